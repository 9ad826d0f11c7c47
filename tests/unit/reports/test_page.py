from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

import pytest

from context_bench.core.lazy import registry
from context_bench.core.records import Comparison, EvalRow, Result
from context_bench.reports import FORMATS, build_page, render
from context_bench.reports.page import Figure, Page, Point, Table
from context_bench.reports.renderers import page_from, page_text


def table(page: Page, section: str, position: int = 0) -> Table:
    found = page.section(section)
    assert found is not None, f"no section {section}"
    return found.tables[position]


def cells(page: Page, section: str, first: str, position: int = 0) -> dict[str, Any]:
    it = table(page, section, position)
    row = next(row for row in it.rows if row[0] == first)
    return dict(zip([column.title.removesuffix(" (95 %)") for column in it.columns], row, strict=True))


def text(value: Any) -> str | None:
    return value.text if isinstance(value, Figure) else value


def test_verdicts_come_first_and_are_the_given_sentences(result: Result) -> None:
    page = build_page(result)
    assert [each.text for each in page.verdicts] == [each.sentence for each in result.comparisons]
    assert {each.verdict: each.tone for each in page.verdicts} == {
        "inferior": "bad",
        "non-inferior": "good",
        "undecided": "neutral",
    }
    assert page.baseline == "full"


def test_sections_are_in_reading_order(result: Result) -> None:
    order = [section.id for section in build_page(result).sections]
    assert order == [
        "money",
        "quality",
        "comparisons",
        "datasets",
        "time",
        "tokens",
        "wire",
        "responder",
        "metrics",
        "failures",
    ]


def test_quality_says_interval_n_failures_and_bounds(result: Result) -> None:
    quality = cells(build_page(result), "quality", "kompact")
    estimate = result.estimates["kompact"]["mean_score"]
    assert quality["mean f1"] == Figure(estimate.value, "score", estimate.low, estimate.high)
    assert text(quality["n"]) == "38"
    assert text(quality["failed"]) == "2"
    assert quality["bounds"] == f"{estimate.worst:.3f} … {estimate.best:.3f}"
    assert cells(build_page(result), "quality", "full")["bounds"] is None


def test_tokens_say_who_counted(result: Result) -> None:
    page = build_page(result)
    assert cells(page, "tokens", "kompact")["seen by"] == "tap"
    assert cells(page, "tokens", "headroom")["seen by"] == "usage"
    assert [text(cells(page, "tokens", name)["grew"]) for name in ("headroom", "full", "kompact")] == ["40", "0", "0"]
    rows = [row for row in result.rows if row.system == "kompact" and row.output_tokens is not None]
    sent, forwarded = sum(row.input_tokens or 0 for row in rows), sum(row.output_tokens or 0 for row in rows)
    share = 100 * (1 - forwarded / sent)
    assert text(cells(page, "tokens", "kompact")["compression"]) == f"{share:.0f} % [{share - 1:.0f}, {share + 1:.0f}]"


def test_python_systems_without_tap_or_usage_are_told_as_context() -> None:
    rows = [EvalRow("cut", number, {"f1": 1.0}, 100, 50) for number in range(3)]
    assert cells(build_page(Result(rows, {"cut": {"mean_score": 1.0}})), "tokens", "cut")["seen by"] == "context"


def test_what_was_not_measured_is_absent_and_never_zero() -> None:
    rows = [EvalRow("blind", number, {"f1": 1.0}, 100, None, latency=None) for number in range(3)]
    summary = {
        "mean_score": 1.0, "compression_ratio": 0.0, "mean_input_tokens": 100.0, "mean_output_tokens": 0.0,
        "cost_of_pass": float("inf"), "latency_mean": 0.0, "latency_p95": 0.0,
    }  # fmt: skip
    page = build_page(Result(rows, {"blind": summary}, manifest={"options": {"seed": 1}}))  # as of a run, not by hand
    assert page.summary == {"blind": {"mean_score": 1.0, "mean_input_tokens": 100.0}}
    told = cells(page, "tokens", "blind")
    assert set(told) == {"System", "sent"}  # a column that no system has a figure for is no column
    assert page.section("time") is None
    assert page.section("money") is None


def test_inexact_counts_are_marked(result: Result) -> None:
    for row in result.rows:
        if row.system == "kompact" and row.wire:
            row.wire["exact"] = False
    page = build_page(result)
    assert (text(cells(page, "tokens", "kompact")["forwarded"]) or "").startswith("≈")
    assert not (text(cells(page, "tokens", "kompact")["billed"]) or "").startswith("≈")
    assert not (text(cells(page, "tokens", "full")["forwarded"]) or "").startswith("≈")
    assert "≈" in table(page, "tokens").about


def test_wire_facts_are_summed_from_rows_and_completed_by_the_run(result: Result) -> None:
    page = build_page(result)
    told = cells(page, "wire", "kompact")
    assert (text(told["calls/request"]), text(told["extra calls"]), text(told["unmatched"])) == ("1.10", "4", "2")
    assert (text(told["roles changed"]), told["key passed on"]) == ("40", "yes")
    assert page.wire["kompact"]["calls_per_request"] == pytest.approx(1.1)
    assert [row[1] for row in table(page, "wire", 1).rows] == [
        "role: message 1: system → user",
        "param: temperature removed",
    ]
    assert not any(row[0] == "headroom" for row in table(page, "wire").rows)  # the tap saw nothing of it


def test_failures_are_counted_by_class_from_rows_when_the_run_does_not_say(result: Result) -> None:
    told = cells(build_page(result), "failures", "kompact")
    assert (told["where"], told["class"], text(told["rows"]), text(told["share"])) == (
        "system",
        "TimedOut",
        "2",
        "5.0 %",
    )
    assert told["for instance"] == "no reply within 30 s"


def test_intervals_come_from_the_runs_estimates(result: Result) -> None:
    page = build_page(result)
    known = result.estimates["full"]["cost_usd"]
    assert known.low is not None
    assert known.high is not None
    assert cells(page, "money", "full")["per 1,000 examples"] == Figure(
        1000 * known.value, "usd", 1000 * known.low, 1000 * known.high
    )
    assert (
        text(cells(page, "time", "full")["median"]) == f"{known_median(result, 'full'):.3f} s"
    )  # one end unknown: no interval
    titles = [column.title for column in table(page, "quality").columns]
    assert titles[-2:] == ["pass_rate", "mean exact_match (95 %)"]  # f1 is told once


def known_median(result: Result, system: str) -> float:
    return result.estimates[system]["latency_median"].value


def test_money_is_told_only_where_a_price_is_known(result: Result) -> None:
    for row in result.rows:
        if row.system == "full":
            row.usage.pop("cost")
    result.estimates["full"].pop("cost_usd")
    page = build_page(result)
    assert cells(page, "money", "full")["total"] is None
    own = [row.usage["cost"] for row in result.rows if row.system == "headroom"]
    assert cells(page, "money", "headroom")["total"] == Figure(sum(own), "usd")
    assert "claude-haiku-4-5" in table(page, "money").about


def test_shapes_are_lines_of_their_own(results: Callable[..., Result]) -> None:
    page = build_page(results(shapes=("plain-user", "codex"), systems=("kompact", "full")))
    names = [row[0] for row in table(page, "tokens").rows]
    assert names == ["kompact · plain-user", "kompact · codex", "full · plain-user", "full · codex"]
    assert [row[0] for row in table(page, "quality").rows] == names
    assert text(cells(page, "wire", "kompact · all shapes")["unmatched"]) == "2"


def test_one_shape_is_not_told_in_every_line(results: Callable[..., Result]) -> None:
    page = build_page(results(shapes=("codex",), systems=("kompact", "full")))
    assert [row[0] for row in table(page, "tokens").rows] == ["kompact", "full"]
    assert ("Shape", "codex") in page.facts


def test_one_system_alone_says_how_to_get_a_comparison() -> None:
    page = build_page(Result([EvalRow("a", 1, {"f1": 1.0}, 1, 1)], {"a": {"mean_score": 1.0}}))
    assert page.verdicts == []
    assert any("--controls" in note for note in page.notes)


def test_a_dataset_verdict_stands_above_only_without_an_overall_one() -> None:
    def compared(dataset: str | None) -> Comparison:
        return Comparison(
            "a",
            "b",
            "mean_score",
            dataset,
            None,
            0.1,
            0.0,
            0.2,
            0.5,
            "undecided",
            0.02,
            9,
            9,
            sentence=f"about {dataset}",
        )

    rows = [EvalRow(name, 1, {"f1": 1.0}, 1, 1) for name in ("a", "b")]
    summary = {"a": {"mean_score": 1.0}, "b": {"mean_score": 1.0}}
    both = build_page(Result(rows, summary, comparisons=[compared(None), compared("x")]))
    alone = build_page(Result(rows, summary, comparisons=[compared("x"), compared("y")]))
    assert [each.text for each in both.verdicts] == ["about None"]
    assert [each.text for each in alone.verdicts] == ["about x", "about y"]
    assert [row[0] for row in table(both, "comparisons").rows] == ["a", "a · x"]


def test_the_responder_card_appears_only_when_measured(result: Result) -> None:
    page = build_page(result)
    assert [row[0] for row in table(page, "responder").rows] == ["closed book", "short context", "full context"]
    result.manifest.pop("responder")
    assert build_page(result).section("responder") is None


def test_pareto_front_is_who_nobody_beats(result: Result) -> None:
    section = build_page(result).section("quality")
    assert section is not None
    points = {point.name: point for point in section.charts[0].data}
    assert set(points) == set(result.summary)
    for point in points.values():
        beaten = any(clearly(other, point) for other in points.values() if not other.name.endswith("#2"))
        assert point.front is not (beaten or point.name.endswith("#2"))


def clearly(other: Point, point: Point) -> bool:
    """Better or cheaper by more than the two intervals leave open, and not the other way round in the other."""
    gains = [gain(other.quality, point.quality), -gain(other.cost, point.cost)]
    return min(gains) >= 0 < max(gains)


def gain(one: Figure, other: Figure) -> int:
    ends = (one.low, one.high, other.low, other.high)
    if None not in ends and one.low <= other.value <= one.high and other.low <= one.value <= other.high:
        return 0
    return (one.value > other.value) - (one.value < other.value)


def test_secrets_of_a_careless_manifest_do_not_reach_the_page(result: Result) -> None:
    assert build_page(result).manifest["options"]["api_key"] == "(hidden)"


class Stored(Sequence[EvalRow]):
    """Rows that are made when read, as the store's are; counts how often they were read."""

    def __init__(self, n: int) -> None:
        self.n, self.passes = n, 0

    def __len__(self) -> int:
        return self.n

    @overload
    def __getitem__(self, at: int) -> EvalRow: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[EvalRow]: ...
    def __getitem__(self, at: int | slice) -> EvalRow | Sequence[EvalRow]:
        raise AssertionError("pages read rows in order, once")

    def __iter__(self) -> Iterator[EvalRow]:
        self.passes += 1
        return (EvalRow("a", number, {"f1": 0.5}, 10, 5, dataset="d") for number in range(self.n))


def test_rows_are_read_once_and_never_held() -> None:
    rows = Stored(500)
    page = build_page(Result(rows, {"a": {"mean_score": 0.5}}))
    assert rows.passes == 1
    assert page.examples == 500
    assert page.rows is rows


def test_an_empty_result_is_a_page_too() -> None:
    page = build_page(Result([], {}))
    assert (page.sections, page.verdicts, page.examples, page.notes) == ([], [], 0, [])


@pytest.mark.parametrize(
    ("figure", "shown"),
    [
        (Figure(0.7562, "score", 0.646, 0.866), "0.756 [0.646, 0.866]"),
        (Figure(-0.0001, "score"), "0.000"),
        (Figure(0.05, "score", -0.02, 0.12, signed=True), "+0.050 [-0.020, +0.120]"),
        (Figure(0.5204, "share"), "52 %"),
        (Figure(1038.75, "tokens"), "1,039"),
        (Figure(40.975, "tokens", approximate=True), "≈41.0"),
        (Figure(0.0227, "usd"), "$0.0227"),
        (Figure(0.00002, "usd"), "$0.0000200"),
        (Figure(-1.5, "usd"), "-$1.50"),
        (Figure(0.0, "usd"), "$0.00"),
        (Figure(1234.5, "usd"), "$1,234.50"),
        (Figure(1.8573, "seconds"), "1.857 s"),
        (Figure(61.2, "seconds"), "1 min 1 s"),
        (Figure(0.0, "seconds"), "0 ms"),
        (Figure(0.00042, "seconds"), "0.4 ms"),
        (Figure(0.00001, "seconds"), "<0.1 ms"),
        (Figure(0.0099, "seconds"), "9.9 ms"),
        (Figure(0.00996, "seconds"), "10 ms"),
        (Figure(-0.002, "seconds", signed=True), "-2.0 ms"),
        (Figure(0.004, "seconds", 0.002, 0.0061), "4.0 ms [2.0, 6.1]"),
        (Figure(0.008, "seconds", 0.002, 0.5), "8.0 ms [2.0, 500]"),
        (Figure(0.5, "share", 0.5, 0.5), "50 % [50, 50]"),
        (Figure(0.5, "score", 0.5, 0.5), "0.500 [0.500, 0.500]"),
        (Figure(0.00001, "p"), "<0.001"),
        (Figure(1234, "count"), "1,234"),
        (Figure(2014.0, digits=4), "2014.0000"),
        (Figure(1e300), "1e+300"),
        (Figure(0.00000123), "1.23e-06"),
    ],
)
def test_figures_print_by_unit(figure: Figure, shown: str) -> None:
    assert figure.text == shown


def test_a_page_kept_as_text_is_the_page_whatever_it_tells(
    nasty: str, hostile: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_objects", {})  # beside users' own metrics and reporters no page is kept
    page = build_page(hostile(nasty))
    kept = page_text(page)
    assert kept is not None
    again = page_from(kept, page.rows)
    assert again is not None
    assert again == replace(page, details=None)
    assert [render(again, name) for name in FORMATS] == [render(page, name) for name in FORMATS]


def test_a_page_with_what_json_cannot_tell_is_not_kept(result: Result) -> None:
    page = build_page(result)
    page.families["own"] = {"figure": object()}
    assert page_text(page) is None
