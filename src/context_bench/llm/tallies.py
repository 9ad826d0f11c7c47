"""Tokens of requests, counted while these are on their way: those that come up together in one call of the tokenizer.

Most of what it takes to count a kilobyte is the call itself, so the requests of one turn of the event loop are counted together, after they
have been sent. Much text is counted in a thread (the tokenizer lets go of the interpreter's lock), so that no reply waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from context_bench.core.tokens import TokenCounter
from context_bench.wire.request import totals_of

#: Characters in one turn of the loop from which on they are counted in a thread.
_MUCH = 2**17


class Tally:
    """The tokens of one request."""

    __slots__ = ("_batch", "_texts", "_total")

    def __init__(self, batch: _Batch, texts: Sequence[str]) -> None:
        self._batch: _Batch | None = batch
        self._texts: Sequence[str] = texts
        self._total: int | None = None

    def now(self) -> int:
        """The number, counted here if it is not known yet."""
        if self._total is None:
            assert self._batch is not None
            self.told(totals_of([self._texts], self._batch.counter)[0])
        return self._total or 0

    async def ready(self) -> int:
        """The number, once it is known."""
        if self._total is None and self._batch is not None and self._batch.running is not None:
            await asyncio.wait((self._batch.running,))
        return self.now()

    def told(self, total: int) -> None:
        """Take the number; the texts are let go."""
        self._total, self._batch, self._texts = total, None, ()


class _Batch:
    """Tallies that are counted together, in the next turn of their loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counter: TokenCounter) -> None:
        self.loop, self.counter = loop, counter
        self.begun = False
        self.running: asyncio.Future[list[int]] | None = None
        self._waiting: list[Tally] = []
        self._texts: list[Sequence[str]] = []

    def add(self, texts: Sequence[str]) -> Tally:
        tally = Tally(self, texts)
        self._waiting.append(tally)
        self._texts.append(texts)
        return tally

    def begin(self) -> None:
        self.begun = True
        if sum(len(text) for texts in self._texts for text in texts) < _MUCH:
            with contextlib.suppress(Exception):  # each is counted, and fails, where it is asked for
                self._take(totals_of(self._texts, self.counter))
            return
        self.running = self.loop.run_in_executor(None, totals_of, self._texts, self.counter)
        self.running.add_done_callback(self._done)

    def _done(self, running: asyncio.Future[list[int]]) -> None:
        if not running.cancelled() and running.exception() is None:
            self._take(running.result())

    def _take(self, totals: list[int]) -> None:
        for tally, total in zip(self._waiting, totals, strict=True):
            tally.told(total)
        self._waiting, self._texts = [], []


class Tallies:
    """Puts the requests of one client into batches, whatever loops it is used on."""

    def __init__(self) -> None:
        self._batch: _Batch | None = None

    def add(self, texts: Sequence[str], counter: TokenCounter) -> Tally:
        """Have the tokens of `texts` counted; the caller runs in an event loop."""
        loop = asyncio.get_running_loop()
        batch = self._batch
        if batch is None or batch.begun or batch.loop is not loop or batch.counter is not counter:
            batch = self._batch = _Batch(loop, counter)
            loop.call_soon(batch.begin)
        return batch.add(texts)
