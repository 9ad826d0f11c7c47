"""What every format module makes of a log: a run's facts, and its tool calls as the program logged them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.core.records import Usage
from context_bench.core.trace import Event, Ranges, Trace
from context_bench.logs.source import Source


@dataclass(slots=True)
class ToolCall:
    """One call of a tool and what came of it.

    `arguments` is an object, or text for tools that take text. `output` is the text that the model was given (`None`: the log has none),
    `structured` the program's own record of the result. `failed`, `exit_code` and `cut` are what the log says of it, not what the text
    suggests. `cwd` is the folder of this one call, `lasting_cwd` the folder the log says the shell is in before it. `then`: what the same
    call did afterwards, such as show the file that it edited.
    """

    tool: str
    arguments: Any
    ident: str | None = None
    output: str | None = None
    structured: Any = None
    failed: bool | None = None
    exit_code: int | None = None
    cut: bool = False
    cwd: str | None = None
    lasting_cwd: str | None = None
    turn: int | None = None
    t: float | None = None
    tokens_before: int | None = None
    sidechain: bool = False
    place: str | None = None
    answered: bool = False
    then: ToolCall | None = None

    def answer(self, output: str | None, *, failed: bool | None = None, exit_code: int | None = None, structured: Any = None) -> None:
        """Record the result; a second one for the same call is kept out."""
        if not self.answered:
            self.answered, self.output, self.failed, self.exit_code = True, output, failed, exit_code
            self.structured = structured


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
    _open: dict[str, ToolCall] = field(default_factory=dict)

    def call(self, tool: Any, arguments: Any, ident: Any = None, **more: Any) -> ToolCall:
        """A new call; `arguments` in JSON text are parsed."""
        made = ToolCall(tool if isinstance(tool, str) else str(tool), parsed(arguments), ident if isinstance(ident, str) else None, **more)
        made.turn = made.turn if made.turn is not None else self.turns or None
        made.tokens_before = made.tokens_before if made.tokens_before is not None else self.processed
        self.calls.append(made)
        if made.ident is not None:
            self._open[made.ident] = made
        return made

    def find(self, ident: Any) -> ToolCall | None:
        """The last call with this id."""
        return self._open.get(ident) if isinstance(ident, str) else None

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


def parsed(value: Any) -> Any:
    """Arguments as the model wrote them: JSON text becomes what it says, other text stays."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return load_json(value)
        except ValueError:
            return value
    return value


def texts(content: Any, depth: int = 0) -> str | None:
    """The text of a result: a text, or the text parts of a list of parts; `None` where there is none."""
    if isinstance(content, str):
        return content
    if depth > 4:
        return None
    if isinstance(content, Mapping):
        return texts(content.get("text", content.get("content")), depth + 1)
    if isinstance(content, list):
        found = [text for part in content if (text := texts(part, depth + 1)) is not None]
        return "\n".join(found) if found else None
    return None


def claim(path: str, ranges: Ranges, step: int, tool: str, symbols: tuple[str, ...] = (), *, shown: bool = False) -> Event:
    """What a prediction, or the agent about itself, says was read."""
    return Event(step, None, "read", tool, path, ranges, "self_report", "shown" if shown else "claimed", symbols=symbols)


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is an object, else an empty one."""
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def sequence(value: Any) -> list[Any]:
    """`value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def whole(value: Any) -> int | None:
    """A whole number, or `None`; a text of digits is one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else None
    if isinstance(value, str):
        return int(value) if value.removeprefix("-").isascii() and value.removeprefix("-").isdigit() and len(value) < 16 else None
    return value if isinstance(value, int) and abs(value) < 2**53 else None


def money(value: Any) -> float | None:
    """US dollars, or `None` for what is no amount."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else None


def counted(counts: Mapping[str, int]) -> Counter[str]:
    """A counter of what a source skipped."""
    return Counter(dict(counts))
