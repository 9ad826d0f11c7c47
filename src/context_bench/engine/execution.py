"""What the parts of one execution share: the writer and its thread, settings, books, and the workers' bench."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from context_bench.core.clock import Clock
from context_bench.core.errors import Stop
from context_bench.core.protocols import Recorder, Spend
from context_bench.engine.books import Books
from context_bench.engine.circumstances import Circumstances
from context_bench.engine.commit import GroupCommit
from context_bench.engine.executors.local import Executor, Local
from context_bench.engine.limits import enough_descriptors
from context_bench.engine.plan import RunSettings
from context_bench.engine.progress import Progress
from context_bench.engine.scoring import Scorer
from context_bench.engine.store.writing import Writer
from context_bench.engine.threads import OneThread
from context_bench.engine.waiting import Waiting
from context_bench.engine.work import TEXT_FIELDS, Bench


class Execution:
    """One execution of one run, or of judging one."""

    def __init__(
        self,
        writer: Writer,
        settings: RunSettings,
        recorder: Recorder | None,
        spend: Spend | None,
        progress: Progress | None,
        clock: Clock,
        executor: Executor | None = None,
    ) -> None:
        self.executor = executor or Local()
        self.writer, self.settings, self.clock = writer, settings, clock
        self.recorder, self.progress = recorder, progress
        self.spend = spend
        # By time alone, requests can only be told apart when there is one at a time.
        asked = 1 if getattr(recorder, "marker", None) == "serial" else settings.max_workers or 1
        self.workers, self.notes = enough_descriptors(asked)
        self.notes += writer.secrets.notes
        self.stopped: Stop | None = None
        self.interrupted = False
        self.books = Books(writer, self.in_database, progress, clock)
        self.circumstances: Circumstances | None = None  # nor changes anything about endpoints then

    @asynccontextmanager
    async def threads(self) -> AsyncIterator[None]:
        """The store's thread and the reader's, for as long as the run lasts."""
        self.reader = OneThread("context-bench-examples")
        with ThreadPoolExecutor(1, "context-bench-store") as self.database:
            try:
                yield
            finally:
                self.reader.shutdown(wait=False)
                self.writer.let_go()

    async def in_database(self, function: Any, *args: Any) -> Any:
        """Run `function` in the store's thread."""
        return await asyncio.get_running_loop().run_in_executor(self.database, function, *args)

    def open(self) -> None:
        """Make what all workers share."""
        self.commits = GroupCommit(self.writer.commit, self.database)
        self.bench = Bench(
            run=self.writer.run.id,
            arms=self.writer.arms,
            scorers=[Scorer(each, self.settings.example_timeout) for each in self.writer.evaluators if not each.after],
            clock=self.clock,
            recorder=self.recorder,
            spend=self.spend,
            example_timeout=self.settings.example_timeout,
            text_fields=self.settings.text_fields or TEXT_FIELDS,
            setup_timeout=self.settings.setup_timeout,
            leave_behind=self.commits.leave_behind,
            waiting=None if self.progress is None else Waiting(self.progress.note, self.clock.monotonic),
        )

    def notice(self, said: str) -> None:
        """Something about the run itself, for who watches and for the record."""
        self.notes.append(said)
        if self.progress is not None:
            self.progress.note(said)
