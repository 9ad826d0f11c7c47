"""The sections of a run over probes, from rows of known outcome; every renderer; nothing that means nothing in such a
run.
"""

from __future__ import annotations

import json
import random

import pytest

from context_bench.compression.figures import add_compression
from context_bench.compression.probes import packed
from context_bench.compression.sections.costs import pays_after
from context_bench.core.records import EvalRow
from context_bench.reports import build_page, to_json
from context_bench.reports.html_page import render as render_html
from context_bench.reports.renderers import render_csv as to_csv, render_markdown as to_markdown
from context_bench.reports.table import render as to_table
from context_bench.results import EvalResult

SYSTEMS = {
    "full": (0.9, 1.0),
    "full#2": (0.9, 1.0),
    "none": (0.1, 0.0),
    "clever": (0.8, 0.2),
    "head_tail@clever": (0.5, 0.2),
}
KINDS = ("recall", "artifact", "continuation", "decision")


def rows(systems=SYSTEMS, *, sessions=12, cycles=1, replicates=1, trials=1, rubric=False, seed=0):
    draw = random.Random(seed)
    for system, (mean, keep) in systems.items():
        for session in range(sessions):
            for cycle in range(1, cycles + 1):
                for replicate in range(1, replicates + 1):
                    group = f"s{session}@{cycle}" + (f"/{replicate}" if replicates > 1 else "")
                    for at, kind in enumerate(KINDS):
                        label = (
                            f"s{session}@9#{kind}"
                            + (f"~{cycle}" if cycle > 1 else "")
                            + (f"/{replicate}" if replicate > 1 else "")
                        )
                        for trial in range(trials):
                            left = mean * (0.8 ** (cycle - 1) if system == "clever" else 1)
                            value = min(1.0, max(0.0, left + draw.uniform(-0.1, 0.1)))
                            scores = {
                                "probe_score": value,
                                "probe_rating": 5 * value,
                                "probe_contradiction": float(at == 3 and keep == 0.2),
                            }
                            scores |= (
                                {"accuracy": 5 * value, "continuity": 2.0, "rubric_overall": 3.0} if rubric else {}
                            )
                            before = 1000 + 100 * session
                            told = {
                                "qa_type": kind,
                                "tokens_before": before,
                                "tokens_after": round(keep * before),
                                "cycle": cycle,
                            }
                            yield EvalRow(
                                system,
                                label,
                                scores,
                                0,
                                round(keep * before),
                                told,
                                0.01,
                                "probes",
                                trial,
                                group,
                                f"s{session}",
                            )


def answers(made):
    session = packed(
        [{"role": "user", "content": "Keep port 8080."}, {"role": "assistant", "content": "Done in app.py."}]
    )
    for row in made:
        example = {
            **{
                "id": row.example_id,
                "question": "?",
                "answer": "8080",
                "probe_type": row.metadata["qa_type"],
                "group": row.group,
            },
            **{
                "atoms": [
                    {"text": "8080", "kind": "number", "sources": [[0, 10, 14]]},
                    {"text": "app.py", "kind": "path"},
                ]
            },
            **{"points": [2], "session": session},
        }
        text = {"full": "user: Keep port 8080.\n\nassistant: Done in app.py.", "none": ""}.get(
            row.system, "user: Keep port 8080."
        )
        yield (
            row,
            example,
            {"context": text, "response": "app.py" if row.system == "clever" else "8080 <script>", "compressed": {}},
        )


def result(made, **options):
    about = {"points": "fraction:0.75", "responder": "sentence", **options}
    manifest = {
        "compression": about,
        "margin": {"score_field": "probe_score"},
        "options": {"model": ["some-model"], "shape": "plain-user", "seed": 0},
    }
    names = dict.fromkeys(row.system for row in made)
    found = EvalResult(
        rows=made, summary={name: {"mean_score": 0.5, "pass_rate": 0.5} for name in names}, manifest=manifest
    )
    add_compression(found, about, answers(made))
    return found


@pytest.fixture(scope="module")
def plain_run():
    return result(list(rows()))


def cells(page, section, table=0):
    found = page.section(section).tables[table]
    return {row[0]: dict(zip([column.title for column in found.columns], row, strict=True)) for row in found.rows}


def test_the_head_names_who_answered_and_graded(plain_run):
    page = build_page(plain_run)
    facts = dict(page.facts)
    assert facts["Answered by"] == "sentence reader (no model)"
    assert "knows words, not meaning" in facts["Graded by"]
    assert not {"Model", "Shape"} & set(facts)
    assert dict(build_page(result(list(rows(sessions=1)), responder="http://x")).facts)["Answered by"] == "some-model"


def test_only_what_means_something_is_shown(plain_run):
    shown = to_table(build_page(plain_run))
    for words in ("seen by", "forwarded", "pass_rate", "TTFT", "All metrics", "Set-up"):
        assert words not in shown
    order = ["Quality", "By type of probe", "Retention", "What it takes", "What was lost"]
    places = [shown.index(f"\n{title}\n") for title in order]
    assert places == sorted(places)
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_retention_and_lift(plain_run):
    page = build_page(plain_run)
    index = cells(page, "retention")["clever"]["retention index (95 %)"]
    assert index.value == pytest.approx(0.875, abs=0.03)
    assert index.low < 0.875 < index.high
    assert not {"full", "none", "full#2"} & set(cells(page, "retention"))
    lift = cells(page, "retention", 1)
    assert set(lift) == {"clever"}
    assert lift["clever"]["lift (95 %)"].value == pytest.approx(0.3, abs=0.03)
    assert set(cells(page, "retention", 2)["clever"]) == {"System", *(f"{kind} (95 %)" for kind in KINDS)}


def test_sizes_say_keep_and_removed_and_fold(plain_run):
    own = cells(build_page(plain_run), "sizes")["clever"]
    assert own["keep (95 %)"].value == pytest.approx(0.2)
    assert own["removed"].value == pytest.approx(0.8)
    assert own["fold"].value == pytest.approx(5, abs=0.01)
    assert cells(build_page(plain_run), "sizes")["none"]["fold"] is None


def test_losses_say_whose_they_are(plain_run):
    page = build_page(plain_run)
    own = cells(page, "losses")
    assert own["clever"]["still there (95 %)"].value == 0.5  # the port, not the path
    assert own["clever"]["named (95 %)"].value == 0.5
    assert own["clever"]["there, unnamed (95 %)"].value == 0.5
    assert own["full"]["still there (95 %)"].value == 1
    assert own["full"]["still there (95 %)"].low < 1  # never of width 0
    assert own["none"]["still there (95 %)"].value == 0
    [row] = page.section("losses").tables[-1].rows
    assert row == ["8080", "message 1 of 2 (user)", "there, unnamed"]
    assert cells(page, "losses", 1)["path"]["clever"].value == 0
    assert cells(page, "sizes")["full"]["prefix kept"].value == 1


def test_drift_has_a_line_for_each_system():
    page = build_page(result(list(rows(cycles=3))))
    own = cells(page, "drift")["clever"]
    assert own["after 1 (95 %)"].value > own["after 2 (95 %)"].value > own["after 3 (95 %)"].value
    assert own["slope (95 %)"].high < 0
    assert own["half-life"] == "over 3"
    assert "drift" not in {section.id for section in build_page(result(list(rows(sessions=2)))).sections}


def test_variance_says_where_calls_help():
    page = build_page(result(list(rows(replicates=3, trials=2))))
    lines = [row[1:3] for row in page.section("variance").tables[0].rows if row[0] == "clever"]
    assert [line[0] for line in lines] == ["session", "compressor", "answer", "judge"]
    assert [line[1].value for line in lines] == [12, 3, 2, 1]
    assert "clever: " in page.section("variance").tables[0].about


def test_the_rubric_stands_under_its_own_names():
    page = build_page(result(list(rows(rubric=True))))
    own = cells(page, "rubric")["clever"]
    assert own["Accuracy (95 %)"].value == pytest.approx(4, abs=0.1)
    assert own["Continuity (95 %)"].value == 2
    assert own["overall (95 %)"].value == pytest.approx(3, abs=0.1)
    assert own["mean of probes (95 %)"].value == pytest.approx(3, abs=0.1)


def test_several_sizes_make_a_curve():
    systems = {
        "full": (0.9, 1.0),
        "none": (0.1, 0.0),
        **{f"x:keep={keep}": (0.4 + keep / 2, keep) for keep in (0.1, 0.3, 0.6)},
    }
    page = build_page(result(list(rows(systems))))
    own = cells(page, "curves")["x"]
    assert 0.5 < own["AURQ (95 %)"].low < own["AURQ (95 %)"].value < 1
    assert own["falls below"] == "yes"
    [chart] = page.section("curves").charts
    assert len(chart.data) == 3
    shown = render_html(page)
    assert "Quality by fold" in shown
    assert "curves" not in {section.id for section in build_page(result(list(rows()))).sections}


def test_every_form_has_it_and_json_brings_it_back(plain_run):
    page = build_page(plain_run)
    text = to_json(plain_run)
    again = EvalResult.from_json(text)
    assert json.loads(text)["compression"]["systems"]["clever"]["retention"]["value"] == pytest.approx(0.875, abs=0.03)
    assert to_table(build_page(again)) == to_table(page)
    assert "retention index" in to_markdown(page)
    assert "clever" in to_csv(page)
    shown = render_html(page)
    assert "retention index" in shown
    assert "<script>8080" not in shown


def test_other_runs_have_none_of_it():
    found = EvalResult(rows=[EvalRow("a", 1, {"f1": 1.0}, 10, 5)], summary={"a": {"mean_score": 1.0}}, manifest={})
    page = build_page(found)
    assert not {"retention", "sizes", "losses", "probe-types"} & {section.id for section in page.sections}
    assert page.section("tokens") is not None


def test_when_a_rewrite_has_paid_for_itself() -> None:
    assert pays_after(100_000, 55_000, 10 / 55) == pytest.approx(10.5)
    assert pays_after(100, 10, 0.0) == pytest.approx(0.2777777778)
    assert pays_after(100, 1, 1.0) == 0.0
    assert pays_after(100, 100, 1.0) is None
    assert pays_after(100, 50, None) is None
