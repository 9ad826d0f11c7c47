"""The record of the family *agents*: agents on repository tasks, arm against arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.core.families import Command, Family, Sections, Stored, StoredRow
from context_bench.core.records import Result

__all__ = ["FAMILY"]


def _complete(result: Result, about: Mapping[str, Any], stored: Stored) -> None:
    from context_bench.agents.agent_runs import add_agents

    add_agents(result, about)


def _build(report: Any) -> list[Any]:
    from context_bench.agents.sections import agents

    return agents(report)


def _facts(report: Any) -> list[tuple[str, Any]]:
    from context_bench.agents.sections import agent_facts

    return agent_facts(report)


def _row(stored: StoredRow) -> list[Any]:
    from context_bench.agents.sections import transcript_and_diff

    return transcript_and_diff(stored)


FAMILY = Family(
    name="agents",
    manifest_key="agents",
    commands={
        "agent": Command(
            "context_bench.agents.command.app:command",
            "Agents on repository tasks, arm against arm.",
            {"allow_extra_args": True},
            after="replay",
        ),
    },
    complete=_complete,
    by_cluster=True,
    sections=Sections(
        build=_build,
        facts=_facts,
        unit="Tasks",
        row=_row,
        shown=(
            *("agent_aborted", "agent_calls_mean", "agent_cost_sum"),
            *("cost_ratio", "tokens_ratio", "output_ratio", "calls_ratio", "seconds_ratio", "again_ratio"),
        ),
    ),
)
