"""The page of scored traces: what it says, what it leaves out, and that nothing in a log becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.reports.html_page import environment
from context_bench.shell.repo import Snapshot
from context_bench.traces import compare_traces, score_trace
from context_bench.traces.reports import trace_page
from context_bench.traces.reports.run_details import DetailLimits, kept_steps, run_view
from context_bench.traces.reports.sections import comparison_section
from context_bench.traces.reports.trace_page import to_html
from context_bench.traces.reports.views import (
    after,
    evidence,
    file_map,
    in_order,
    mean_after,
    ranges_text,
    ruler,
    run_curve,
)
from context_bench.traces.trace_rows import CallView, FileMap, StepView, TraceRow
from context_bench.transcripts.trace import Trace

from .trace_runs import FILES, GOLD, events, long_run, scored

NASTY = "</template></script><img src=x onerror=alert(1)><b>\x1b[2J\u202ename\u200b"
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "section",
        "footer",
        "div",
        "script",
        "template",
    ),
    *("h1", "h2", "h3", "h4", "p", "dl", "dt", "dd", "ul", "li", "strong", "span", "abbr", "wbr", "code", "i", "b"),
    *("table", "thead", "tbody", "tr", "th", "td", "label", "input", "select", "option", "button", "noscript"),
    *("details", "summary", "figure", "figcaption", "svg", "g", "path", "line", "circle", "rect", "text"),
}


class Elements(HTMLParser):
    """Tags with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def fragment(row: TraceRow, limits: DetailLimits | None = None) -> str:
    return environment().get_template("trace_run.html.j2").render(run=run_view(row, limits or DetailLimits()))


def row_data(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="row-data">(.*?)</script>', text, re.S)
    assert found
    read: dict[str, Any] = json.loads(found[1], parse_constant=pytest.fail)
    return read


@pytest.fixture(scope="module")
def two_sets() -> str:
    rows = [
        scored(run, f"acme__widget-{n}", status="resolved" if n else "unresolved")
        for run in ("base", "other")
        for n in range(3)
    ]
    return to_html(rows)


def test_it_says_what_was_read_and_missed(two_sets: str) -> None:
    text = " ".join(Elements(two_sets).text.split())
    assert "3 runs, 1 repository; read 0.400 of the gold lines" in text
    assert "27 gold lines were never read" in text
    assert "src/calc.py:16–20 5 lines" in text
    assert "src/util.py:5–8 4 lines" in text
    assert "solved 2 of 3" in text
    assert "block in the ContextBench paper = symbol here" in text
    for level in ("file", "symbol (“block”)", "span (bytes)", "line"):
        assert text.count(level) >= 2


def headings(text: str) -> tuple[list[str], list[str]]:
    """The ids of the sections before the appendix, apart from notes, and of those in it."""
    before, _, within = text.partition('<details class="appendix"')
    return re.findall(r'<h2 id="(?!notes)([^"]+)"', before), re.findall(r'<h2 id="([^"]+)"', within)


def test_the_appendix_holds_all_but_what_was_read_the_comparison_and_the_runs(two_sets: str) -> None:
    before, within = headings(two_sets)
    assert before == ["verdicts", "s-metrics", "s-rows", "runs"]
    assert {"s-course", "s-editloc", "s-evidence", "s-regions", "s-solving"} <= set(within)
    rows = [scored(run, f"acme__widget-{n}") for run in ("base", "other") for n in range(3)]
    found = compare_traces(rows[:3], rows[3:])
    assert headings(to_html(rows, more=[comparison_section(found)]))[0] == [
        *("verdicts", "s-metrics", "s-comparison", "s-rows", "runs")
    ]


def test_many_sets_have_one_line_each_before_the_appendix() -> None:
    text = to_html([scored(f"agent-{n}", "acme__widget-1") for n in range(4)])
    before, within = headings(text)
    assert before == ["verdicts", "s-by-set", "s-rows", "runs"]
    assert within[0] == "s-metrics"
    table = text[text.index('id="s-by-set"') : text.index('id="s-rows"')]
    lines = [" ".join(Elements(line).text.split()) for line in re.findall(r"<tr>.*?</tr>", table, re.S)]
    assert len(lines) == 5
    assert lines[0].startswith("Set")
    assert lines[0].endswith("line F1")
    assert all(line.startswith(f"agent-{n}") and "0.400" in line for n, line in enumerate(lines[1:]))


def test_without_a_score_nothing_is_said_of_levels() -> None:
    rows = [replace(scored(f"agent-{n}", "acme__widget-1"), score=None) for n in range(5)]
    before, _ = headings(to_html(rows))
    assert before == ["verdicts", "s-metrics", "runs"]


def test_sets_stand_side_by_side_and_rows_open(two_sets: str) -> None:
    data = row_data(two_sets)
    assert [row[:2] for row in data["rows"]] == [
        [run, f"acme__widget-{n}"] for run in ("base", "other") for n in range(3)
    ]
    titles = [column["title"] for column in data["columns"]]
    assert titles[0], titles[-1] == ("set", "problem")
    first = dict(zip(titles, data["rows"][0], strict=True))
    assert first["line coverage"] == pytest.approx(0.4)
    assert first["missed lines"] == 9
    assert data["details"] == [0] * 6
    assert not data["open"]
    assert len(re.findall(r'<template id="detail-\d+">', two_sets)) == 6


def test_nothing_is_loaded_and_the_policy_allows_our_own_only(two_sets: str) -> None:
    policy = next(attrs["content"] or "" for _, attrs in Elements(two_sets).opened if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind, pattern in (("style", r"<style>(.*?)</style>"), ("script", r"<script>(.*?)</script>")):
        found = re.search(pattern, two_sets, re.S)
        assert found
        assert f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}'" in policy
    for tag, attrs in Elements(two_sets).opened:
        assert not set(attrs) & {"src", "href", "style", "action", "srcset"}, tag
        assert not [name for name in attrs if name.startswith("on")], tag
    assert "url(" not in two_sets


def test_hostile_names_become_text() -> None:
    row = scored(
        NASTY,
        NASTY,
        agent=NASTY,
        model=NASTY,
        repo=NASTY,
        error=None,
        notes=[NASTY],
        skipped={NASTY: 2},
        path=NASTY,
        provenance="args",
    )
    row.files = {NASTY: FileMap(30, init=[(1, 3)], read=[(2, 2)]), **row.files}
    row.steps.append(StepView(9, calls=[CallView(NASTY, "read", NASTY, ((1, 2),), NASTY)]))
    row.drift = [{"file": NASTY, "first": 1, "last": 2, "moved": None}]
    text = to_html([row])
    found = Elements(text)
    assert {tag for tag, _ in found.opened} <= TAGS
    assert [attrs for tag, attrs in found.opened if tag == "b" and attrs] == []
    assert text.count("</template>") == text.count("<template id=") == 1
    assert not set("\x1b\u202e\u200b") & set(text)
    assert "\\x1b[2J\\u202ename\\u200b" in found.text


@settings(max_examples=40)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_in_a_run_stays_text(path: str, tool: str) -> None:
    row = TraceRow("set", path, error=tool, agent=tool, files={path: FileMap(9, init=[(1, 9)], read=[(3, 4)])})
    row.steps = [StepView(1, calls=[CallView(tool, "read", path, ((3, 4),))])]
    found = Elements(fragment(row))
    assert {tag for tag, _ in found.opened} <= TAGS
    plain = Elements(
        fragment(replace(row, instance_id="a", error="e", agent="a", files={"f": row.files[path]}, steps=[]))
    )
    assert [tag for tag, _ in found.opened].count("svg") == [tag for tag, _ in plain.opened].count("svg")


def test_a_score_made_of_guesses_looks_like_one() -> None:
    row = scored(provenance="args")
    assert evidence([row]).guessed == pytest.approx(2 / 3)
    text = to_html([row])
    assert '<strong class="bad">' in text
    told = Elements(text).text
    assert "67 % of the reads are guesses" in told
    assert "2 of 3 reads are guesses" in told
    assert told.count("· args, a guess") == 2
    sure = to_html([scored()])
    assert '<strong class="bad">' not in sure
    assert "a guess:" not in Elements(sure).text.replace("A guess:", "")


def test_problems_are_counted_and_told() -> None:
    rows = [scored(error="no_gold", score=None), scored(skipped={"odd record": 3}), scored(path="nowhere/else.py")]
    told = " ".join(Elements(to_html(rows)).text.split())
    for part in (
        "not scored: no_gold",
        "records of the log skipped",
        "odd record (3)",
        "nowhere/else.py",
        "1 of the runs could not be scored",
    ):
        assert part in told, part


def test_the_room_is_kept_and_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_page, "DETAIL_BYTES", 60_000)
    row = long_run(300)
    text = to_html([replace(row, instance_id=f"i{n}") for n in range(12)])
    fragments = re.findall(r'<template id="detail-\d+">(.*?)</template>', text, re.S)
    assert 0 < len(fragments) < 12
    assert sum(len(each.encode()) for each in fragments) <= 60_000
    assert f"{len(fragments)} of these runs open" in text
    assert "292 more steps are left out here" in fragments[0]
    assert "src/calc.py" in fragments[0]  # the step that gained is kept although it is the last
    assert row_data(text)["details"] == [0] * len(fragments) + [-1] * (12 - len(fragments))


def test_of_very_many_runs_those_that_read_least_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_page, "DETAIL_BYTES", 30_000)
    monkeypatch.setattr(trace_page, "LEAST_ROOM", 15_000)
    good, bad = scored(instance="good"), scored(instance="bad", path="docs/notes.md")
    text = to_html([replace(good, instance_id=f"good{n}") for n in range(5)] + [bad])
    assert '<template id="detail-5">' in text


def test_a_thousand_usual_runs_all_open() -> None:
    room = trace_page.DETAIL_BYTES // 1000
    one = len(fragment(long_run(120), DetailLimits.of(room)).encode())
    assert one < room


def test_under_the_original_policy_nothing_is_said_of_missed_lines() -> None:
    row = score_trace(GOLD, Trace("t", "codex", None, events()), Snapshot(FILES), "contextbench-v1", run="v1")
    text = to_html([row])
    verdict = text.partition('<h2 id="verdicts">')[2].partition("</section>")[0]
    assert "of the gold lines" in verdict
    assert "missed" not in verdict
    assert "never read" not in verdict
    assert "missed lines" not in [column["title"] for column in row_data(text)["columns"]]


def test_no_runs_at_all() -> None:
    assert "No runs to report." in to_html([])


def test_differences_are_a_section_of_the_page() -> None:
    rows = {run: [scored(run, f"acme__widget-{n}") for n in range(2)] for run in ("a", "b")}
    rows["b"] = [scored("b", f"acme__widget-{n}", path="docs/notes.md") for n in range(2)]
    text = to_html([*rows["a"], *rows["b"]], more=[comparison_section(compare_traces(rows["a"], rows["b"]))])
    assert "b against a, 2 shared instances" in text
    assert "-0.400" in text


# The pictures
# ------------------------------------------------------------------------


def test_bars_lie_where_the_lines_are() -> None:
    made = file_map("a.py", FileMap(100, init=[(11, 20)], add=[(50, 50)], read=[(15, 60)], edited=[(12, 12)]))
    assert made is not None
    assert [lane.label for lane in made.lanes] == ["gold", "missed", "read", "edited"]
    assert dict(made.lanes[0].marks) == {"add": "M49 0.15H50v.7H49z", "init": "M10 0.15H20v.7H10z"}
    assert dict(made.lanes[1].marks) == {"missed": "M10 1.15H14v.7H10z"}
    assert dict(made.lanes[2].marks) == {"read": "M14 2.15H60v.7H14z"}
    assert made.summary == "100 lines · gold 11 (10 to edit, 1 to know) · missed 4 · read 46 · edited 1"
    assert (made.extent, made.complete) == (100, True)


def test_a_file_without_known_length_or_lines() -> None:
    made = file_map("a.py", FileMap(None, init=[(3, 9)]))
    assert made is not None
    assert (made.extent, made.complete) == (9, False)
    assert made.summary == "length not known · gold 7 · missed 7 · not read"
    assert file_map("a.py", FileMap(40, listed=True)) is None
    assert file_map("a.py", FileMap(None)) is None


@given(st.integers(1, 10**7))
def test_rulers_are_readable(extent: int) -> None:
    ticks = ruler(extent)
    labels = [int(tick.label.replace(",", "")) for tick in ticks]
    assert labels[0] == 1
    assert labels == sorted(set(labels))
    assert len(ticks) <= 6
    assert labels[-1] == extent
    places = [float(tick.at.removesuffix("%")) for tick in ticks]
    assert places == sorted(places)
    assert all(0 <= place <= 100 for place in places)


def test_many_ranges_are_drawn_as_few_boxes() -> None:
    made = file_map("a.py", FileMap(60_000, read=[(n, n) for n in range(1, 60_000, 3)]))
    assert made is not None
    assert len(made.lanes[0].marks[0][1]) < 100
    assert ranges_text([(n, n) for n in range(1, 99, 3)], 2) == "1, 4 and 31 more ranges"


def test_files_with_missed_gold_come_first() -> None:
    files = {
        "read.py": FileMap(9, read=[(1, 9)]),
        "all.py": FileMap(9, init=[(1, 2)], read=[(1, 9)]),
        "missed.py": FileMap(9, add=[(1, 1)]),
    }
    assert [path for path, _ in in_order(TraceRow("s", "i", files=files))] == ["missed.py", "all.py", "read.py"]


def test_the_curve_of_a_run() -> None:
    row = scored()
    assert row.score is not None
    curve = run_curve(row)
    assert curve is not None
    lines = dict(curve.lines)
    assert curve.steps == 4
    assert lines["file"] == "M0 100H1V50H4"
    assert lines["line"] == "M0 100H1V60H4"
    assert curve.edits == "M3 100v-9"
    assert [tick.label for tick in curve.ticks] == ["0", "1", "2", "3", "4"]
    assert run_curve(replace(row, score=None)) is None


def test_coverage_after_a_share_of_the_run() -> None:
    row, late = scored(), long_run(10)
    assert [after(row, "line", share) for share in (0, 0.2, 0.25, 1)] == [
        0.0,
        0.0,
        pytest.approx(0.4),
        pytest.approx(0.4),
    ]
    assert [after(late, "line", share) for share in (0.5, 0.9, 1)] == [0.0, 0.0, pytest.approx(11 / 15)]
    assert mean_after([row, late, TraceRow("s", "i")], "line", 1) == (pytest.approx((6 / 15 + 11 / 15) / 2), 2)


def test_steps_that_say_something_are_kept_first() -> None:
    steps = [
        StepView(n, calls=[CallView("Read", "read", "a.py", ok=n != 7)], coverage={"line": 0.5 if n >= 9 else 0.0})
        for n in range(1, 11)
    ]
    steps[4].calls[0].kind = "edit"
    assert [step.step for step in kept_steps(steps, 3)] == [5, 7, 9]
    assert [step.step for step in kept_steps(steps, 4)] == [1, 5, 7, 9]
    assert kept_steps(steps, 10) == steps
