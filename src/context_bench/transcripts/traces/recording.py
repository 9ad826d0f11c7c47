"""What every format module makes of a log: a run's facts, and its tool calls as the program logged them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import money as money
from context_bench.core.numbers import whole as whole
from context_bench.core.records import Usage
from context_bench.transcripts.source import Source
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces.folders import folder_before
from context_bench.transcripts.transcripts.claims import claim as claim
from context_bench.transcripts.transcripts.record import ToolCall as ToolCall
from context_bench.transcripts.values import mapping as mapping
from context_bench.transcripts.values import parsed as parsed
from context_bench.transcripts.values import sequence as sequence
from context_bench.transcripts.values import texts as texts


@dataclass
class Recording:
    """One run as logged. `head` holds the facts; its `events` are made from `calls` later, by `reads`.

    `named`: the log told the instance's id. `lasting_shell`: `cd` carries over from one command to the next. `outputs`: this format
    records what tools returned, so that a call without an output is one that showed nothing. `settled`: the events are there, and final.
    """

    head: Trace
    calls: list[ToolCall] = field(default_factory=list)
    named: bool = False
    lasting_shell: bool = False
    outputs: bool = True
    settled: bool = False
    turns: int = 0
    answer_id: str | None = None
    processed: int | None = None
    folders: list[str] = field(default_factory=list)
    """Where the shell was after each command, as far as the log tells, and (`begun`) before the first."""
    begun: bool = False
    _open: dict[str, ToolCall] = field(default_factory=dict)

    def call(self, tool: Any, arguments: Any, ident: Any = None, **more: Any) -> ToolCall:
        """A new call; `arguments` in JSON text are parsed."""
        made = ToolCall(tool if isinstance(tool, str) else str(tool), parsed(arguments), ident if isinstance(ident, str) else None, **more)
        made.lasting_cwd = made.lasting_cwd or (self.folders[-1] if self.folders else None)
        made.turn = made.turn if made.turn is not None else self.turns or None
        made.tokens_before = made.tokens_before if made.tokens_before is not None else self.processed
        self.calls.append(made)
        if made.ident is not None:
            self._open[made.ident] = made
        return made

    def find(self, ident: Any) -> ToolCall | None:
        """The last call with this id."""
        return self._open.get(ident) if isinstance(ident, str) else None

    def ended_in(self, folder: str, call: ToolCall | None) -> None:
        """Note the folder that the shell was in after a call; of the first one it is worked out where it began."""
        command = mapping(call.arguments).get("command") if call is not None else None
        if call is not None and not self.folders and isinstance(command, str):
            call.lasting_cwd = folder_before(command, folder)
            self.begun = call.lasting_cwd is not None
            self.folders += [call.lasting_cwd] if call.lasting_cwd else []
        if self.folders[-1:] != [folder]:
            self.folders.append(folder)

    def at(self, stamp: float | None) -> float | None:
        """Note that something happened then; returns the moment."""
        if stamp is not None:
            self.head.started = stamp if self.head.started is None else min(self.head.started, stamp)
            self.head.ended = stamp if self.head.ended is None else max(self.head.ended, stamp)
        return stamp

    def billed(self, usage: Usage | None) -> None:
        """Add the usage of one answer."""
        if usage is not None:
            self.head.usage = usage if self.head.usage is None else self.head.usage + usage
            self.processed = (self.processed or 0) + (usage.input_tokens or 0) + (usage.output_tokens or 0)

    def skip(self, reason: str) -> None:
        """Count a record of the log that the format has no use for."""
        self.head.skipped[reason[:80]] += 1

    def values_of(self, path: Path) -> Iterator[Any]:
        """What stands in one file of a folder that is a run; what of it could not be read is counted, and never ends the run."""
        source = Source(path)
        try:
            yield from source.values()
        except BadInput:
            self.skip("a file that cannot be read")
        self.head.skipped.update(source.skipped)

    @property
    def told(self) -> bool:
        """Whether there is anything of a run in it."""
        return bool(self.calls or self.head.events or self.head.final or self.head.patch or self.head.usage or self.turns)


def run(agent: str, instance_id: Any, **more: Any) -> Recording:
    """An empty recording; `instance_id` that is no text is taken from the file's name later."""
    named = isinstance(instance_id, str) and bool(instance_id)
    return Recording(Trace(str(instance_id) if named else "", agent=agent), named=named, **more)


def counted(counts: Mapping[str, int]) -> Counter[str]:
    """A counter of what a source skipped."""
    return Counter(dict(counts))
