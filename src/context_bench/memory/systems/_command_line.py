"""A memory's command line as it is described: which programs with what arguments, and how what they write is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from context_bench.core.errors import BadReply, BadSpec
from context_bench.core.jsontext import load_json
from context_bench.core.templates import at, names_in
from context_bench.llm.redact import redact
from context_bench.memory.protocol import Hit
from context_bench.memory.systems._description import hit_of

NAME = re.compile(r"\{([a-z_]+)\}")
ITEM = frozenset(("content", "text", "id", "role", "speaker", "time", "session"))
_ALWAYS = frozenset(("namespace",))


@dataclass(frozen=True, slots=True)
class Command:
    """One program call. `stdin`: what it is given on standard input; by default nothing."""

    argv: tuple[str, ...]
    stdin: str | None = None

    def filled(self, values: Mapping[str, str]) -> tuple[list[str], str | None]:
        """Arguments and standard input with the placeholders replaced, in one pass."""

        def put(template: str) -> str:
            return NAME.sub(lambda found: values.get(found[1], found[0]), template)

        return [put(word) for word in self.argv], None if self.stdin is None else put(self.stdin)

    def names(self) -> set[str]:
        """The placeholders in it."""
        return {name for template in (*self.argv, self.stdin or "") for name in NAME.findall(template)}


@dataclass(frozen=True, slots=True)
class Output:
    """How to read what `recall` wrote.

    "json": `items` is the path to the list (keys joined by dots, numbers count from 0; empty = the whole document is the list), the others
    are paths inside one entry (`text = ""`: the entry itself is the text). Anything but JSON, a log line before it included, is an error.
    "lines": one memory a line, empty lines left out.
    """

    format: Literal["json", "lines"] = "json"
    items: str = ""
    text: str = "text"
    score: str | None = None
    id: str | None = None
    source: str | None = None
    time: str | None = None


# What was written -----------------------------------------------------------------------------------------------------------------------


def read_json(data: bytes, what: str) -> Any:
    text = data.strip()
    if not text:
        raise BadReply(f"{what} ended well and wrote nothing; expected JSON (`[]` for nothing found)")
    try:
        return load_json(text.decode("utf-8", "replace"))
    except ValueError as error:
        raise BadReply(f"what {what} wrote is not JSON alone ({error}): {beginning(text)}") from None


def entries(data: bytes, output: Output) -> list[Hit]:
    document = read_json(data, "recall")
    listed = at(document, output.items)
    if not isinstance(listed, list):
        raise BadReply(
            f"recall is expected to write a JSON list{f' at {output.items!r}' if output.items else ''}, found {beginning(data.strip())}"
        )
    return [hit_of(entry, output) for entry in listed]


def lines(data: bytes) -> list[Hit]:
    return [Hit(line) for line in data.decode("utf-8", "replace").splitlines() if line.strip()]


def beginning(data: bytes) -> str:
    """The beginning, for a message. Cut before keys are sought (a search whose time grows faster than the text), and after."""
    text = redact(data[:2000].decode("utf-8", "replace"))
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


def ending(data: bytes) -> str:
    """The end, for a message; the first cut is far enough away that a key it halves is not in what is left."""
    return redact(data[-4000:].decode("utf-8", "replace"))[-1000:]


# Descriptions in files ------------------------------------------------------------------------------------------------------------------


#: command → the placeholders that it may have
_COMMANDS = {
    "store": ITEM,
    "recall": frozenset(("query", "limit", "budget")),
    "reset": frozenset[str](),
    "flush": frozenset[str](),
    "delete": frozenset(("id",)),
    "update": frozenset(("id", "content", "text")),
}
#: what a call makes no sense without
_NEEDED = {"store": {"content", "text"}, "recall": {"query"}, "delete": {"id"}, "update": {"content", "text"}}
_NUMBERS = {"timeout": (int, float), "max_limit": (int,), "budget_per_item": (int,), "budget_items": (int,)}
_TEXTS = ("name", "memory_id", "granularity")


@dataclass(slots=True)
class Description:
    """What a file says about a command line, checked as a whole."""

    given: Mapping[str, Any]
    where: str
    faults: list[str] = field(default_factory=list)

    def values(self) -> dict[str, Any]:
        """What `CommandClient` is made of; raises `BadSpec` with every fault."""
        values: dict[str, Any] = {f"{name}_command": self.command(name) for name in _COMMANDS if name in self.given}
        self.faults += [f"no `{name}`: a list of arguments is expected" for name in ("store", "recall") if name not in self.given]
        values |= {name: self.given[name] for name in (*_TEXTS, *_NUMBERS) if name in self.given}
        self.faults += [f"`{name}` is expected to be text" for name in _TEXTS if not isinstance(self.given.get(name, ""), str)]
        self.faults += [
            f"`memory_id`: {{{odd}}} is not known there; expected {', '.join(f'{{{one}}}' for one in sorted(ITEM | _ALWAYS))}"
            for odd in sorted(names_in(self.given.get("memory_id")) - ITEM - _ALWAYS)
        ]
        for name, kinds in _NUMBERS.items():
            value = self.given.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                self.faults.append(f"`{name}` is expected to be a number above 0, found {value!r:.40}")
        values["output"] = self.output(self.given.get("output", {}))
        unknown = self.given.keys() - _COMMANDS.keys() - _NUMBERS.keys() - set(_TEXTS) - {"output"}
        self.faults += [f"`{name}` is not known" for name in sorted(map(str, unknown))]
        if self.faults:
            raise BadSpec(self.where, self.faults)
        return values

    def command(self, name: str) -> Command:
        given = self.given[name]
        table = given if isinstance(given, Mapping) else {"argv": given}
        argv, stdin = table.get("argv"), table.get("stdin")
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv) or not isinstance(stdin, str | None):
            self.faults.append(f'`{name}` is expected to be a list of arguments, as in ["program", "--", "{{query}}"]; stdin, a text')
            return Command(("",))
        self.faults += [f"`{name}`: {key!r} is not known; expected argv, stdin" for key in sorted(table.keys() - {"argv", "stdin"})]
        command = Command(tuple(argv), stdin)
        allowed = _COMMANDS[name] | _ALWAYS
        self.faults += [
            f"`{name}`: {{{odd}}} is not known there; expected {', '.join(f'{{{one}}}' for one in sorted(allowed))}"
            for odd in sorted(command.names() - allowed)
        ]
        if name in _NEEDED and not command.names() & _NEEDED[name]:
            self.faults.append(f"`{name}` never says {' or '.join(f'{{{one}}}' for one in sorted(_NEEDED[name]))}")
        return command

    def output(self, given: Any) -> Output:
        known = Output.__dataclass_fields__
        if not isinstance(given, Mapping):
            self.faults.append("`output` is expected to be a table")
            return Output()
        self.faults += [f"`output`: {key!r} is not known; expected {', '.join(known)}" for key in given.keys() - known.keys()]
        self.faults += [f"`output`: {key} is expected to be text" for key, value in given.items() if not isinstance(value, str)]
        if given.get("format", "json") not in ("json", "lines"):
            self.faults.append(f"`output`: format is json or lines, found {given['format']!r:.40}")
        return Output() if self.faults else Output(**given)
