"""Three small sets of our own in the shapes of cortex's evaluation harness: for trying a client, not for telling stores apart.

Most questions have no more items than are usually asked for, so whoever gives everything back is right (`random_floor` says so of a run).
Unlike the sets they stand in for, all can be decided when everything is stored together, and questions about updates ask for the new value.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from context_bench.core.errors import UnknownName
from context_bench.memory.cortex.shapes import Pair

NAMES = ("locomo", "longmemeval", "chain-hop")


def seed_set(name: str) -> list[Pair]:
    """The pairs of a set: "locomo" (10, four conversations), "longmemeval" (10), "chain-hop" (7, one to five hops; also called "dmr")."""
    known = {"locomo": _conversations, "longmemeval": _facts, "chain-hop": _chains, "dmr": _chains}
    if name not in known:
        raise UnknownName("set of questions", name, known)
    return known[name](tomllib.loads((files(__package__) / "seed_sets.toml").read_text("utf-8")))


def _conversations(data: dict[str, Any]) -> list[Pair]:
    return [
        Pair(
            id=f"locomo-{talk['id']}{number}",
            question=asked["question"],
            answer=asked["answer"],
            items=tuple(f"User: {user}\nAssistant: {assistant}" for user, assistant in talk["turns"]),
            category=asked["category"],
            haystack=f"locomo-{talk['id']}",
        )
        for talk in data["locomo"]
        for number, asked in enumerate(talk["questions"], 1)
    ]


def _facts(data: dict[str, Any]) -> list[Pair]:
    return [
        Pair(f"longmemeval-{n}", one["question"], one["answer"], tuple(fact["text"] for fact in one["facts"]), one["category"])
        for n, one in enumerate(data["longmemeval"], 1)
    ]


def _chains(data: dict[str, Any]) -> list[Pair]:
    return [
        Pair(
            id=f"chain-hop-{n}",
            question=one["question"],
            answer=one["answer"],
            items=tuple(f"{speaker}: {text}" for speaker, text in one["turns"]),
            category=f"{one['hops']}-hop",
        )
        for n, one in enumerate(data["chain_hop"], 1)
    ]
