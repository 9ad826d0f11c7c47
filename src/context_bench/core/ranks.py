"""Scores that look at the order of hits, and the memories whose hits have none that means anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from context_bench.core.families import families_of
from context_bench.core.records import EvalRow
from context_bench.core.roles import roles_in

_OF_RANK = re.compile(
    r"(?:session_)?(?:hit|recall|all|ndcg|precision|precision_of_returned)_at_\d+(?:_tokens)?|(?:session_)?mrr|map"
    r"|current_at_1|as_of_at_1|current_above_stale|stale_over_current|stale_in_top_k"
)


def of_rank(name: str | None) -> bool:
    """Whether a score depends on which hits come first."""
    return name is not None and _OF_RANK.fullmatch(name) is not None


def unranked(manifest: Mapping[str, Any], systems: Iterable[str] = ()) -> frozenset[str]:
    """The arms whose hits have no order: the whole conversation and the oracle, in a run of memories. `systems`: as in `roles_in`."""
    kinds = {kind for family in families_of(manifest) for kind in family.in_order}
    if not kinds:
        return frozenset()
    return frozenset(name for name, own in roles_in(manifest, systems).items() if own.kind in kinds)


def without_ranks(rows: Iterable[EvalRow]) -> Iterator[EvalRow]:
    """The rows without scores of the order of hits."""
    for row in rows:
        yield replace(row, scores={name: value for name, value in row.scores.items() if not of_rank(name)})
