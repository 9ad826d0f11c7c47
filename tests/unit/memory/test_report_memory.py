"""Sections on memories: only for runs of memories, every number from rows or set-ups, and the documented breakdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from context_bench.core.records import EvalRow, SetupRecord
from context_bench.memory.sections import per_qa_type
from context_bench.reports import build_page, render
from context_bench.reports.page import Figure, Page
from context_bench.results import EvalResult

FORMATS = ("table", "markdown", "html", "json", "csv")


def scores(right: bool, example: int, *, level: str = "") -> dict[str, float]:
    found = {f"{level}recall_at_{k}": float(right and k > 1) for k in (1, 10)} | {
        f"{level}all_at_{k}": float(right and k > 1) for k in (1, 10)
    }
    more = {f"{level}mrr": 0.5 * right, f"{level}hit_at_10": float(right), f"{level}ndcg_at_10": 0.1, "hit_count": 10.0}
    used = {
        "retrieved_tokens": 50.0,
        "context_share": 0.25,
        "search_seconds": 0.001 * (example + 1),
        "near_duplicate_share": 0.5,
    }
    unlevelled = {"evidence_found": float(right), "evidence_recall": float(right)} if not level else {}
    return {**found, **more, **used, **unlevelled, "f1": float(right), "needless_abstention": float(not right)}


def rows(system: str, right: Callable[[int], bool], **more: Any) -> list[EvalRow]:
    made = [
        EvalRow(
            system,
            n,
            scores(right(n), n, **more),
            10,
            10,
            {"qa_type": ("multi-hop", "temporal")[n % 2]},
            group=f"h{n // 2}",
            cluster=f"h{n // 2}",
            usage={"cost": 0.01},
        )
        for n in range(16)
    ]
    made[0].scores.pop("needless_abstention")
    made[0].scores["abstention_recall"] = 1.0
    return made


def result(*parts: list[EvalRow], setups: list[SetupRecord] | None = None) -> EvalResult:
    systems = [part[0].system for part in parts]
    manifest = {"score_field": "f1", "options": {"threshold": 0.5}}
    return EvalResult(
        [row for part in parts for row in part],
        {name: {"mean_score": 0.5} for name in systems},
        manifest=manifest,
        setups=setups or [],
    )


def page(*parts: list[EvalRow], **more: Any) -> Page:
    return build_page(result(*parts, **more))


def table(found: Page, name: str) -> dict[str, dict[str, str]]:
    by_id = {each.id: each for section in found.sections for each in section.tables}
    columns = [column.title for column in by_id[name].columns]
    return {
        " ".join(str(cell) for cell in row if isinstance(cell, str)): {
            title: cell.text if isinstance(cell, Figure) else "—"
            for title, cell in zip(columns, row, strict=True)
            if not isinstance(cell, str)
        }
        for row in by_id[name].rows
    }


BM25, NONE = rows("bm25", lambda n: n % 4 > 0), rows("none", lambda n: n % 4 == 0)


def test_what_was_found() -> None:
    found = table(page(BM25, NONE), "memory-found")
    assert list(found["bm25"]) == [
        "recall@1",
        "recall@10",
        "all@1",
        "all@10",
        "MRR",
        "of all given",
        "n",
    ]
    assert (found["bm25"]["recall@10"], found["none"]["MRR"], found["bm25"]["n"]) == (
        "0.750",
        "0.125",
        "16",
    )


def test_sessions_have_a_table_of_their_own_where_items_do_not_tell_everything() -> None:
    by_session = rows("sessions", lambda n: True, level="session_")
    both = [
        EvalRow(
            **{**{name: getattr(row, name) for name in row.__slots__}, "scores": {**row.scores, "session_mrr": 0.5}}
        )
        for row in BM25
    ]
    known = page(both, by_session)
    assert "session recall@10" not in table(known, "memory-found")["bm25"]
    apart = table(known, "memory-sessions")
    assert apart["sessions"]["session recall@10"] == "1.000"
    assert apart["bm25"]["session MRR"] == "0.500"
    assert table(known, "memory-found")["sessions"]["recall@10"] == "—"
    assert "memory-sessions" not in {each.id for section in page(both).sections for each in section.tables}


def test_what_it_took() -> None:
    records = [SetupRecord("bm25", "h0", 0, 1, 1, 1.0, {"probed": 10, "probe_found": 9}, cost=0.08, calls=1)]
    found = table(page(BM25, NONE, setups=records), "memory-taken")["bm25"]
    assert (found["tokens/question"], found["of full context"], found["write loss"]) == ("50", "25 %", "10 %")
    assert (found["search p50, ms"], found["search p99, ms"], found["searches"], found["first search, ms"]) == (
        "9.00",
        "15.86",
        "8",
        "8.00",
    )
    assert (found["facts used"], found["tokens/fact used"], found["cost/fact used"]) == ("12", "66.7", "$0.0200")
    unknown = [SetupRecord("bm25", "h0", 0, 1, 1, 1.0, {}, cost=None, calls=1)]
    assert table(page(BM25, NONE, setups=unknown), "memory-taken")["bm25"]["cost/fact used"] == "—"


def test_what_the_answers_were_worth() -> None:
    found = table(page(BM25, NONE), "memory-answers")
    assert found["bm25"]["helped (95 %)"].startswith("75 % [")
    assert found["bm25"]["harmed (95 %)"].startswith("25 % [")
    assert found["none"]["harmed (95 %)"] == "—"
    assert (found["bm25"]["abstention recall"], found["bm25"]["coverage"], found["bm25"]["of answered"]) == (
        "1.000",
        "0.800",
        "1.000",
    )
    assert found["bm25"]["abstention precision"] == "0.250"
    assert found["bm25"]["f1 (95 %)"].startswith("0.750 [")
    assert table(page(BM25), "memory-answers")["bm25"].keys().isdisjoint({"helped (95 %)", "harmed (95 %)"})


def test_by_type_with_n_and_interval() -> None:
    found = table(page(BM25, NONE), "qa_types")
    assert list(found) == ["multi-hop bm25", "multi-hop none", "temporal bm25", "temporal none"]
    assert found["multi-hop bm25"]["f1 (95 %)"].startswith("0.500 [")
    assert found["temporal bm25"]["recall@10 (95 %)"].startswith("1.000 [")
    assert found["temporal none"]["n"] == "8"


def test_by_type_says_each_n_where_they_differ() -> None:
    part = [
        EvalRow("bm25", row.example_id, row.scores, metadata=row.metadata, group=row.group, cluster=row.cluster)
        for row in rows("x", bool)
    ]
    del part[1].scores["f1"]
    by_type = page(part).section("qa_types")
    assert by_type is not None
    assert [column.title for column in by_type.tables[0].columns].count("n") == 3
    assert [cell.value for cell in by_type.tables[0].rows[1] if isinstance(cell, Figure) and cell.unit == "count"] == [
        7,
        8,
        8,
    ]


def test_facts_that_changed_say_how_many() -> None:
    part = rows("bm25", bool)
    for row in part[:3]:
        row.scores |= {"stale_in_top_k": 1.0, "stale_over_current": 1.0}
    found = table(page(part, NONE), "memory-junk")
    assert (found["bm25"]["stale found"], found["bm25"]["changed facts"], found["none"]["changed facts"]) == (
        "100 %",
        "3",
        "—",
    )


def test_scores_of_memories_stand_in_their_own_sections_only() -> None:
    known = page(BM25, NONE)
    quality = known.section("quality")
    assert quality is None or not any(
        "recall_at" in column.title or "hit_count" in column.title for column in quality.tables[0].columns
    )


def test_other_runs_have_no_such_section() -> None:
    plain = [EvalRow("proxy", n, {"f1": 1.0, "recall": 1.0, "map": 0.5}, 10, 5) for n in range(4)]
    found = page(plain)
    assert found.section("memory") is None
    assert found.section("qa_types") is None


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_them(name: str) -> None:
    odd = rows("<b>|odd", lambda n: True)
    text = render(result(BM25, odd), name)
    assert "bm25" in text
    if name == "html":
        assert "<b>|odd" not in text


def test_a_failed_system_beside_a_good_one() -> None:
    failed = [EvalRow("down", n, {}, None, None, errors={"system": "TimedOut: x"}) for n in range(4)]
    found = table(page(BM25, failed), "memory-found")
    assert set(found["down"].values()) == {"—"}


def test_the_documented_breakdown() -> None:
    summary = {
        "a": {"f1_temporal": 0.5, "f1_multi-hop": 1.0, "f1_mean": 0.75, "mean_score": 0.75},
        "b|c": {"f1_temporal": float("nan")},
    }
    assert per_qa_type(summary, "f1") == (
        "## Per-QA-Type Breakdown\n\n"
        "| System | f1_multi-hop | f1_temporal |\n"
        "| --- | ---: | ---: |\n"
        "| a | 1.0000 | 0.5000 |\n"
        "| b\\|c | — | — |\n"
    )
    assert per_qa_type({"a": {"f1_mean": 1.0}}, "f1") == ""
