"""The record of the family *traces*: recorded runs of agents, scored by the code that they read and changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.families import Command, Family, Sections, Stored, StoredRow
from context_bench.core.records import Result

__all__ = ["FAMILY"]


def _complete(result: Result, about: Mapping[str, Any], stored: Stored) -> None:
    result.families["traces"] = dict(about)


def _build(report: Any) -> list[Any]:
    from context_bench.traces.reports.sections import run_sections

    return run_sections(report)


def _facts(report: Any) -> list[tuple[str, Any]]:
    from context_bench.traces.reports.sections import run_facts

    return run_facts(report)


def _row(stored: StoredRow) -> list[Any]:
    from context_bench.traces.reports.sections import steps_and_diff

    return steps_and_diff(stored)


def _apart(report: Any, name: str) -> bool:
    kind, dot, _ = name.partition(".")
    return bool(dot) and kind in ("coverage", "precision", "f1", "auc", "redundancy", "editloc")


FAMILY = Family(
    name="traces",
    manifest_key="traces",
    commands={
        "trace": Command(
            "context_bench.traces.command.app:app", "Did an agent read the right code: score, compare.", after="judge"
        )
    },
    offers={
        "gold_of_row": "context_bench.traces.gold:gold_of_row",
        "readings": "context_bench.traces.reading:readings",
        "readings_by_repository": "context_bench.traces.reading:by_repository",
        "reading_grids": "context_bench.traces.reading:reading_grids",
    },
    complete=_complete,
    sections=Sections(
        build=_build, facts=_facts, unit="Recorded runs", apart=_apart, row=_row, replaces=("tokens", "time"), alone=""
    ),
)
