"""The answer of a report: one card for each system of the user, from the verdicts."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

import pytest

from context_bench.core.lazy import registry
from context_bench.core.records import Comparison, Result
from context_bench.reports import build_page
from context_bench.reports.html_page import render as render_html
from context_bench.reports.page import Card, Figure
from context_bench.reports.renderers import page_from, page_text
from context_bench.reports.visible_text import command_on
from context_bench.stats.verdict import compare


def judged(result: Result, system: str, **changes: object) -> Card:
    """The card of `system`, its comparison changed, in points of 100."""
    changed = [
        replace(each, **{"sentence": "f1 in points", **changes}) if each.system == system else each  # type: ignore[arg-type]
        for each in result.comparisons
    ]
    return next(card for card in build_page(replace(result, comparisons=changed)).cards if card.system == system)


def test_systems_of_the_user_have_cards_and_controls_one_line(result: Result) -> None:
    page = build_page(result)
    assert [card.system for card in page.cards] == ["kompact", "headroom"]
    assert page.checks.startswith("The checks worked: ")
    assert "no context (none)" in page.checks


def test_where_only_controls_ran_the_page_says_so(result: Result) -> None:
    told = "Only controls ran"
    assert told in render_html(replace(build_page(result), cards=[], headline=[]))
    assert told not in render_html(build_page(result))


@pytest.mark.parametrize(
    ("verdict", "chip", "clause"),
    [
        ("better", "better", " and answers better, by 6.1 points."),
        ("non-inferior", "no loss ≥ 2 points", "; quality holds: a loss of 2 points or more is ruled out."),
        ("inferior", "loss", "; quality suffers: 6.1 points lost."),
        ("undecided", "can't tell yet", "; whether quality suffers is open: ask 123 questions instead of 38."),
        ("insensitive", "test too weak", "; this test could not have shown a loss."),
        ("no verdict", "can't tell yet", "; whether quality suffers is open after 38 questions."),
    ],
)
def test_each_verdict_has_a_chip_and_a_title_in_plain_words(
    result: Result, verdict: str, chip: str, clause: str
) -> None:
    card = judged(result, "kompact", verdict=verdict, difference=-0.061, margin=0.02, n=38, n_needed=123)
    assert (card.chip, card.verdict) == (chip, verdict)
    assert card.title.startswith("kompact saves 47 % of the money")
    assert card.title.endswith(clause)
    assert card.terms == ("f1 in points",)


def test_a_number_that_supposes_that_nothing_is_lost_says_so(result: Result) -> None:
    said = compare([0.0] * 5 + [1.0] * 195, [1.0] * 195 + [0.0] * 5, margin=0.02, known_bad={"none": [0.0] * 200})
    card = judged(result, "kompact", verdict="undecided", n=200, n_needed=said.n_needed, sentence=said.sentence)
    assert card.title.endswith("ask 908 questions instead of 200, enough if nothing is lost.")


def test_an_open_question_without_a_forecast_names_no_number(result: Result) -> None:
    card = judged(result, "kompact", verdict="undecided", n=1, n_needed=None)
    assert card.title.endswith("whether quality suffers is open after 1 question.")


def test_the_bill_is_told_beside_the_tokens(result: Result) -> None:
    rows = [
        replace(row, usage={**row.usage, "cost": 2.0 if row.system == "headroom" else 1.0}, errors={})
        for row in result.rows
    ]
    card = next(card for card in build_page(replace(result, rows=rows)).cards if card.system == "headroom")
    assert "sends 3.0 % more tokens and costs 100 % more;" in card.title
    assert card.cost_ratio == Figure(2.0, "number", digits=3)


def test_the_next_command_can_be_copied(result: Result) -> None:
    manifest = {**result.manifest, "run": {"name": "a run's name"}}
    named = replace(result, manifest=manifest)
    lost = judged(named, "kompact", verdict="inferior").command
    assert lost == """context-bench diff 'a run'"'"'s name' q0000 --system kompact"""
    assert judged(named, "kompact", verdict="non-inferior").command.startswith("context-bench gate 'a run'")
    card = build_page(named, store="other.db").cards[0]
    assert card.command.endswith(" --store other.db")
    assert judged(replace(result, manifest={}), "kompact", verdict="inferior").command == ""


@pytest.mark.parametrize("verdict", ["inferior", "non-inferior", "better", "undecided"])
def test_a_run_named_like_an_option_is_none_in_the_next_command(
    result: Result, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_objects", {})  # what other tests registered would be users' own: no page is kept
    named = replace(result, manifest={**result.manifest, "run": {"name": "-rf", "store": "other.db"}})
    card = judged(named, "kompact", verdict=verdict)
    words = shlex.split(card.command)
    powered = words[:3] == ["context-bench", "power", "--from=-rf"]
    assert powered or words.index("-rf") > words.index("--"), card.command
    page = build_page(named, store="other.db")
    assert page.whole == "context-bench show --full --store other.db -- -rf"
    moved = page_from(page_text(page, store="other.db") or "", page.rows, store="it.db")
    assert moved is not None
    assert moved.whole == "context-bench show --full --store it.db -- -rf"
    assert command_on("context-bench diff", ["one", "-q 0"], " --system s") == (
        "context-bench diff --system s -- one '-q 0'"
    )
    assert command_on("context-bench diff", ["one", "q0"], " --system s") == "context-bench diff one q0 --system s"


def test_lift_over_truncation_stands_on_the_card(result: Result) -> None:
    lift = Comparison(
        "kompact", "head_tail@kompact", "f1", None, None, 0.2, 0.1, 0.3, 0.01, "better", 0.02, 38, 20,
        sentence="kompact: better, by 20 points",
    )  # fmt: skip
    card = build_page(replace(result, lifts=[lift])).cards[0]
    assert card.lift == "better than truncation"
    assert "better than truncation: +20.0 points [+10.0, +30.0]" in card.figures
    assert lift.sentence in card.terms


def test_every_verdict_against_truncation_says_against_what(result: Result) -> None:
    """Both stand on one line: "inferior: … · insensitive: …" would leave the second one's baseline to be guessed."""
    for verdict in ("better", "inferior", "non-inferior", "undecided", "insensitive"):
        lift = Comparison(
            "kompact", "head_tail@kompact", "f1", None, None, 0.0, -0.05, 0.05, 1.0, verdict, 0.02, 38, 20,
            sentence="kompact: 0 points",
        )  # fmt: skip
        assert "truncation" in build_page(replace(result, lifts=[lift])).cards[0].lift


def test_without_any_judged_answer_a_card_still_says_what_was_saved(result: Result) -> None:
    rows = [replace(row, scores={}) for row in result.rows]
    page = build_page(replace(result, rows=rows, comparisons=[], estimates={}))
    assert [(card.system, card.chip) for card in page.cards] == [
        ("kompact", "quality not measured"),
        ("headroom", "quality not measured"),
    ]
    assert page.cards[0].title.startswith("kompact sends 5")
    assert page.cards[0].title.endswith("fewer tokens.")
    assert page.cards[0].verdict == ""


def test_shapes_have_cards_of_their_own(results: Callable[..., Result]) -> None:
    found = results(shapes=("plain-user", "codex"))
    both = [replace(each, shape=shape) for each in found.comparisons for shape in ("plain-user", "codex")]
    names = [card.system for card in build_page(replace(found, comparisons=both)).cards]
    assert names == ["kompact · plain-user", "kompact · codex", "headroom · plain-user", "headroom · codex"]


def test_a_check_that_must_lose_and_does_not_is_said(result: Result) -> None:
    for verdict, begins in (("undecided", "The checks did not show"), ("no verdict", "Too few questions")):
        changed = [replace(each, verdict=verdict) for each in result.comparisons]  # type: ignore[arg-type]
        assert build_page(replace(result, comparisons=changed)).checks.startswith(begins)


def test_the_overview_leaves_out_what_nobody_measured(result: Result) -> None:
    overview = build_page(result).overview
    assert overview is not None
    assert [column.title for column in overview.tables[0].columns] == [
        "System", "score", "difference", "tokens", "per 1,000", "median", "failed",
    ]  # fmt: skip
    rows = [replace(row, usage={}, latency=None, errors={}) for row in result.rows]
    plain = build_page(replace(result, rows=rows, comparisons=[], failures={})).overview
    assert plain is not None
    assert [column.title for column in plain.tables[0].columns] == ["System", "score", "tokens"]
