"""What metrics and summaries read from a row beyond its fields. `None` = not measured."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from context_bench.core.grouping import by_count
from context_bench.core.numbers import real
from context_bench.core.records import EvalRow

#: Names of facts in `EvalRow.usage`, the first that is a number counts.
COMPLETION, COST, TTFT = ("output_tokens", "completion_tokens"), ("cost", "cost_usd"), ("ttft",)
#: Rows that are looked at together: what is done once for all of them costs nothing, and they take no room.
TOGETHER = 128


def in_pieces(rows: Iterable[EvalRow]) -> Iterator[list[EvalRow]]:
    """Rows in their order, a hundred or so at a time."""
    return by_count(rows, TOGETHER)


def first(facts: dict[str, Any], *names: str) -> float | None:
    """The first of these that is a number."""
    for name in names:
        if (found := real(facts.get(name))) is not None:
            return found
    return None


def completion_tokens(row: EvalRow) -> float | None:
    """Tokens of the reply, as billed."""
    return first(row.usage, *COMPLETION)


def cost_usd(row: EvalRow) -> float | None:
    """US dollars of all attempts of the row, judges not included."""
    return first(row.usage, *COST)


def ttft(row: EvalRow) -> float | None:
    """Seconds to the first token of a streamed reply."""
    return first(row.usage, *TTFT)


def latency(row: EvalRow) -> float | None:
    """Seconds until the reply; `None` for failed rows: how long a failure took is no latency."""
    return None if row.failed else real(row.latency)


def score(row: EvalRow, name: str) -> float | None:
    """The score of that name."""
    return real(row.scores.get(name))


def qa_type(row: EvalRow) -> str:
    """What kind of question the row answers, as its dataset says."""
    kind = row.metadata.get("qa_type")
    return "unknown" if kind is None or kind == "" else str(kind)


def ordered(values: Sequence[float]) -> Sequence[float]:
    """The values sorted; of many as an array too, since a list of a million numbers takes 40 MB."""
    if len(values) < 50_000:
        return sorted(values)
    import numpy as np

    found = array("d", values)
    np.frombuffer(found).sort()
    return found


def attributed(wire: dict[str, Any]) -> dict[str, Any]:
    """A system's sums of what the tap saw, without "0 calls" where none could be attributed to it although some belong to nobody."""
    if not wire.get("unmatched") or wire.get("calls") != 0:
        return wire
    return {name: value for name, value in wire.items() if name not in ("calls", "calls_per_request", "extra_calls", "other_calls")}


class RowTally(Protocol):
    """A metric half-way through its rows."""

    def add(self, row: EvalRow) -> None:
        """Take one row in."""

    def result(self) -> dict[str, float]:
        """The metric's numbers for the rows so far."""


def tallied(tally: RowTally, rows: Iterable[EvalRow]) -> dict[str, float]:
    """The result of a tally that has seen all `rows`."""
    for row in rows:
        tally.add(row)
    return tally.result()
