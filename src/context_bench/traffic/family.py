"""The record of the family *traffic*: what goes over the wire, watched live or sent again from recordings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from context_bench.core.families import Command, Family, Kept, Sections, Stored
from context_bench.core.lazy import DeclaredNames
from context_bench.core.records import Result
from context_bench.traffic import BILL

__all__ = ["FAMILY"]


def _complete(result: Result, about: Mapping[str, Any], stored: Stored) -> None:
    from context_bench.traffic.figures import add_replay

    add_replay(result, stored.store, stored.id, about)


def _beside(result: Result, stored: Stored) -> None:
    if result.wire:  # a tap saw what arrived
        from context_bench.traffic.sections import add_bill

        add_bill(result, stored)


def _bill(material: Any) -> list[Any]:
    if not material.result.families.get(BILL):
        return []
    from context_bench.traffic.sections import bill_sections

    return bill_sections(material)


def _below(result: Any) -> str:
    if not result.families.get(BILL):
        return ""
    from context_bench.traffic.sections import bill_pointer

    return bill_pointer(result)


def _build(material: Any) -> list[Any]:
    from context_bench.traffic.sections.replay_sections import replay

    return replay(material)


def _sentences(material: Any) -> list[Any]:
    from context_bench.traffic.sections.replay_sections import replay_sentences

    return replay_sentences(material)


def _old(store: Any, before: float) -> dict[int, str]:
    from context_bench.engine.store.watches import old_watches

    return old_watches(store, before)


def _remove(connection: Any, numbers: list[int]) -> None:
    from context_bench.engine.store.watches import remove_watches

    remove_watches(connection, numbers)


def _bodies() -> list[Any]:
    from context_bench.engine.store import schema

    return [schema.watched_bodies.c.request, schema.watched_bodies.c.reply]


FAMILY = Family(
    name="traffic",
    manifest_key="replay",
    commands={
        "watch": Command(
            "context_bench.traffic.command.watch_command:command",
            "Your own traffic before and behind a proxy, live.",
            {"allow_extra_args": True},
            after="demo",
        ),
        "replay": Command(
            "context_bench.traffic.command.replay_command:command",
            "Recorded sessions again, through each proxy.",
            after="watch",
        ),
        "explain": Command(
            "context_bench.traffic.command.explain_command:command",
            "Where tokens and money went, and what could be saved.",
            after="replay",
        ),
        "doctor": Command(
            "context_bench.traffic.doctor:doctor",
            "What a proxy speaks, keeps and changes.",
            after="serve",
        ),
    },
    evaluators=DeclaredNames("context_bench.traffic.evaluators", Path(__file__).parent / "evaluators", "EVALUATORS"),
    offers={"replay": "context_bench.traffic.command.replay_command:replay_from"},
    unscored=lambda about: not about.get("level"),
    complete=_complete,
    beside=_beside,
    sections=Sections(
        build=_build,
        first=("replay-cost", "prefix-cache"),
        sentences=_sentences,
        shown=(
            *("net_cost_ratio", "token_saving", "cache_penalty"),
            *("prefix_stability", "cacheable_prefix_share", "agreement_with_passthrough"),
        ),
        alone="",
        below=_below,
        beside=_bill,
    ),
    kept=Kept(_old, _remove, _bodies),
    checks={
        "proxy": "context_bench.traffic.probes:proxy_checks",
        "system": "context_bench.traffic.probes:proxy_checks",
        "agent-log": "context_bench.traffic.probes.agent_requests:agent_checks",
        "command": "context_bench.traffic.probes.agent_requests:agent_checks",
    },
)
