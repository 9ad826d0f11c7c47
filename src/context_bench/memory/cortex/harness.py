"""Cortex's evaluation harness: questions about things stored, through a client of three calls.

What it does about failures: nothing was measured if `reset` or `store` fails, so the benchmark is aborted; a failed
`recall` is counted, scored as empty, and said aloud; if every recall failed, nothing was measured either. The original
stores a shared conversation once per question when it accumulates (1,194,140 instead of 5,882 calls on LoCoMo); here it
is stored once, unless `repeat_shared` asks for its way.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import comb
from typing import Any

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadInput, Stop, SystemFailed, describe
from context_bench.core.ledger import Ledger, current_ledger, open_ledger
from context_bench.llm.background import run_sync
from context_bench.memory.cortex.containment import (
    BENCHMARKS,
    BenchmarkSummary,
    Client,
    recall_at_k,
    score_question,
    simple_lower,
    summarize,
)
from context_bench.memory.cortex.question_sets import Pair

PER_PAIR, ACCUMULATE = "per-pair-reset", "accumulate"


class BenchmarkAborted(SystemFailed):
    """The benchmark has no result: the store could not be emptied or filled, nothing could be recalled, or time was
    up.
    """


def run_harness(
    client: Client,
    pairs: Sequence[Pair],
    *,
    benchmark: str,
    k: int = 5,
    k2: int = 0,
    accumulate: bool = False,
    repeat_shared: bool = False,
    deadline: float | None = None,
    cancelled: Callable[[], bool] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> BenchmarkSummary:
    """Store, ask, score.

    By default each pair starts from an empty store. `accumulate`: one reset, everything is stored, then everything is
    asked. `k2` ≥ `k`: as many are asked for, and recall is measured there too; scores at `k` see the first `k` only.
    `deadline`: on `SYSTEM_CLOCK.monotonic()`, for the whole run; it also bounds each call of a `CommandClient`.
    `cancelled` is asked before each step. `on_progress(done, total)` after each question; `on_warning(text)` for failed
    recalls (default: a line on standard error). Raises `BenchmarkAborted`; a `Stop` that the client raises goes
    through. `benchmark` may be any name; "locomo", "longmemeval" and "dmr" are shown as they are written.
    """
    if k <= 0:
        raise BadInput(f"k is expected to be above 0, found {k}")
    _same_items(pairs)
    run = _Run(client, benchmark, deadline, cancelled or (lambda: False), on_warning or _say)
    with _until(deadline):
        ranked = run.accumulated(pairs, max(k, k2), repeat_shared) if accumulate else run.one_by_one(pairs, max(k, k2))
        results, deep = [], 0
        for pair, memories in ranked:
            seen = memories[:k] if k2 > k else memories
            results.append(score_question(pair.id, pair.question, pair.answer, seen, k, pair.category))
            deep += recall_at_k(memories, pair.answer, k2)
            if on_progress is not None:
                on_progress(len(results), len(pairs))
    if pairs and run.failures == len(pairs):
        raise BenchmarkAborted(f"{benchmark}: all {len(pairs)} recall calls failed; the last one: {run.last_failure}")
    summary = summarize(BENCHMARKS.get(benchmark, benchmark), results, k, run.failures, k2)
    if summary.k2:
        summary.recall_at_k2 = deep / len(results)
    summary.mode = ACCUMULATE if accumulate else PER_PAIR
    return summary


@dataclass(slots=True)
class _Run:
    """The calls of one benchmark, and what becomes of those that fail."""

    client: Client
    benchmark: str
    deadline: float | None
    cancelled: Callable[[], bool]
    warn: Callable[[str], None]
    failures: int = 0
    last_failure: str = ""

    def one_by_one(self, pairs: Sequence[Pair], limit: int) -> Iterator[tuple[Pair, list[str]]]:
        for pair in pairs:
            self.check()
            self.reset(f"before {pair.id}")
            self.store(pair)
            yield pair, self.recall(pair, limit)

    def accumulated(self, pairs: Sequence[Pair], limit: int, repeat_shared: bool) -> Iterator[tuple[Pair, list[str]]]:
        self.reset("at the start")
        for pair in pairs if repeat_shared else _stored_once(pairs):
            self.check()
            self.store(pair)
        for pair in pairs:
            self.check()
            yield pair, self.recall(pair, limit)

    def check(self) -> None:
        """Stop here if time is up or nobody wants the result any more."""
        ended = self.ended()
        if ended:
            raise BenchmarkAborted(f"{self.benchmark}: {ended} before all questions were asked")

    def ended(self) -> str:
        if self.cancelled():
            return "cancelled"
        return (
            "the time allowed for the run was over"
            if self.deadline is not None and SYSTEM_CLOCK.monotonic() >= self.deadline
            else ""
        )

    def reset(self, when: str) -> None:
        try:
            _done(self.client.reset())
        except Stop:
            raise
        except Exception as error:
            raise self.abort(f"reset failed {when}, so that what is stored is not known", error) from error

    def store(self, pair: Pair) -> None:
        for number, item in enumerate(pair.items):
            self.check()
            try:
                _done(self.client.store(item))
            except Stop:
                raise
            except Exception as error:
                raise self.abort(f"storing item {number} of {pair.id} failed", error) from error

    def recall(self, pair: Pair, limit: int) -> list[str]:
        try:
            return _texts(_done(self.client.recall(pair.question, limit)))
        except Stop:
            raise
        except Exception as error:
            if self.ended():
                raise self.abort(f"recall for {pair.id} failed", error) from error
            self.failures += 1
            self.last_failure = describe(error)
            self.warn(f"{self.benchmark}: recall failed for {pair.id}, scored as empty: {self.last_failure}")
            return []

    def abort(self, what: str, error: Exception) -> BenchmarkAborted:
        ended = self.ended()
        return BenchmarkAborted(f"{self.benchmark}: {what}{f' ({ended})' if ended else ''}: {describe(error)}")


def _done(value: Any) -> Any:
    """The value; one that has to be awaited is awaited."""
    return run_sync(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _texts(memories: Any) -> list[str]:
    found = list(memories or [])
    odd = next((memory for memory in found if not isinstance(memory, str)), None)
    if odd is not None:
        raise TypeError(f"recall is expected to give a list of texts, found a {type(odd).__name__} in it")
    return found


@contextmanager
def _until(deadline: float | None) -> Iterator[None]:
    """Let clients see when the run has to end."""
    opened = current_ledger() or Ledger()
    times = [time for time in (deadline, opened.deadline) if time is not None]
    with open_ledger(replace(opened, deadline=min(times, default=None))):
        yield


def _same_items(pairs: Sequence[Pair]) -> None:
    items: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        if pair.haystack and items.setdefault(pair.haystack, pair.items) != pair.items:
            raise BadInput(f"{pair.id}: its haystack {pair.haystack!r} has other items in another pair")


def _stored_once(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """The pairs whose items have to be stored so that those of all are there: the first of each haystack, and those
    that have none.
    """
    seen: set[str] = set()
    for pair in pairs:
        if not pair.haystack or pair.haystack not in seen:
            seen.add(pair.haystack)
            yield pair


def _say(text: str) -> None:
    sys.stderr.write(f"context-bench: {text}\n")


# What chance would reach
# ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Floor:
    """The score that a store reaches without knowing anything.

    `recall`: recall at k when k of the items are given back at random, 0 to 1, exact. `everything`: share of the
    questions for which k is not smaller than the number of items, so that whoever gives everything back is right.
    """

    recall: float
    everything: float


def random_floor(pairs: Sequence[Pair], k: int, accumulate: bool = False) -> Floor:
    """The mean over the questions of 1 − C(n − m, k) / C(n, k), where m of the n items contain the answer."""
    if not pairs:
        return Floor(0.0, 0.0)
    shared = [simple_lower(item) for pair in _stored_once(pairs) for item in pair.items]
    chance, everything = 0.0, 0
    for pair in pairs:
        items = shared if accumulate else [simple_lower(item) for item in pair.items]
        gold = simple_lower(pair.answer)
        wrong = sum(not gold or gold not in item for item in items)
        drawn = min(max(0, k), len(items))
        everything += k >= len(items)
        chance += 1 - comb(wrong, drawn) / comb(len(items), drawn)
    return Floor(chance / len(pairs), everything / len(pairs))
