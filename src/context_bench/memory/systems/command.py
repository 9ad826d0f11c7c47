"""Any memory with a command line: one program call to store, one to recall, never through a shell.

As a `Client` it is what cortex's harness drives (`reset`, `store`, `recall`); as a `Memory` it takes items and gives
hits. Commands are lists of arguments with placeholders; what is put in for a placeholder stays one argument, whatever
is in it, and is not looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from context_bench.core.errors import BadInput, BadReply, BadSpec, Failed, Refused, describe
from context_bench.core.keys import load_json
from context_bench.core.templates import at, fill, names_in, read_description
from context_bench.llm.redact import redact
from context_bench.memory.protocol import Capability, Hit, Item, NotSupported, Receipt
from context_bench.memory.systems.baselines import dated_text, spoken
from context_bench.memory.systems.descriptions import OF_ITEM, Paths, hit_of
from context_bench.sandbox.vendors import FinishedProgram, run_program, time_left

SCHEMES = {"cli": "from_spec"}

NAME = re.compile(r"\{([a-z_]+)\}")
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
        return {name for template in (*self.argv, self.stdin or "") for name in NAME.findall(template)}


@dataclass(frozen=True, slots=True)
class Output(Paths):
    """Settings for reading what `recall` wrote.

    "json": `items` is the path to the list (keys joined by dots, numbers count from 0; empty = the whole document is
    the list), the others are paths inside one entry (`text = ""`: the entry itself is the text). Anything but JSON, a
    log line before it included, is an error. "lines": one memory a line, empty lines left out.
    """

    format: Literal["json", "lines"] = "json"
    items: str = ""


# Output of the program
def read_json(data: bytes, what: str) -> Any:
    """Read the output of the step `what` as one JSON document, or raise `BadReply`."""
    text = data.strip()
    if not text:
        raise BadReply(f"{what} ended well and wrote nothing; expected JSON (`[]` for nothing found)")
    try:
        return load_json(text.decode("utf-8", "replace"))
    except ValueError as error:
        raise BadReply(f"what {what} wrote is not JSON alone ({error}): {beginning(text)}") from None


def entries(data: bytes, output: Output) -> list[Hit]:
    """Read hits from JSON output, or raise `BadReply`."""
    document = read_json(data, "recall")
    listed = at(document, output.items)
    if not isinstance(listed, list):
        raise BadReply(
            f"recall is expected to write a JSON list{f' at {output.items!r}' if output.items else ''}, found "
            f"{beginning(data.strip())}"
        )
    return [hit_of(entry, output) for entry in listed]


def lines(data: bytes) -> list[Hit]:
    """Read hits from plain output: each line that is not blank is one."""
    return [Hit(line) for line in data.decode("utf-8", "replace").splitlines() if line.strip()]


def beginning(data: bytes) -> str:
    """The beginning, for a message. Cut before keys are sought (a search whose time grows faster than the text), and
    after.
    """
    text = redact(data[:2000].decode("utf-8", "replace"))
    return repr(text if len(text) <= 200 else f"{text[:200]}…")


def ending(data: bytes) -> str:
    """The end, for a message; the first cut is far enough away that a key it halves is not in what is left."""
    return redact(data[-4000:].decode("utf-8", "replace"))[-1000:]


# Descriptions in files
# ------------------------------------------------------------------------


#: command → the placeholders that it may have
_COMMANDS = {
    "store": OF_ITEM,
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
class CommandDescription:
    """Description of a command line in a file, checked as a whole."""

    given: Mapping[str, Any]
    where: str
    faults: list[str] = field(default_factory=list)

    def values(self) -> dict[str, Any]:
        """The arguments of `CommandClient`; raises `BadSpec` with every fault."""
        values: dict[str, Any] = {f"{name}_command": self.command(name) for name in _COMMANDS if name in self.given}
        self.faults += [
            f"no `{name}`: a list of arguments is expected" for name in ("store", "recall") if name not in self.given
        ]
        values |= {name: self.given[name] for name in (*_TEXTS, *_NUMBERS) if name in self.given}
        self.faults += [
            f"`{name}` is expected to be text" for name in _TEXTS if not isinstance(self.given.get(name, ""), str)
        ]
        self._check_names("memory_id", names_in(self.given.get("memory_id")), OF_ITEM | _ALWAYS)
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
        if (
            not isinstance(argv, list)
            or not argv
            or not all(isinstance(word, str) for word in argv)
            or not isinstance(stdin, str | None)
        ):
            self.faults.append(
                f'`{name}` is expected to be a list of arguments, as in ["program", "--", "{{query}}"]; stdin, a text'
            )
            return Command(("",))
        self.faults += [
            f"`{name}`: {key!r} is not known; expected argv, stdin" for key in sorted(table.keys() - {"argv", "stdin"})
        ]
        command = Command(tuple(argv), stdin)
        self._check_names(name, command.names(), _COMMANDS[name] | _ALWAYS)
        if name in _NEEDED and not command.names() & _NEEDED[name]:
            self.faults.append(f"`{name}` never says {' or '.join(f'{{{one}}}' for one in sorted(_NEEDED[name]))}")
        return command

    def _check_names(self, key: str, names: Set[str], allowed: Set[str]) -> None:
        expected = ", ".join(f"{{{name}}}" for name in sorted(allowed))
        self.faults += [
            f"`{key}`: {{{odd}}} is not known there; expected {expected}" for odd in sorted(names - allowed)
        ]

    def output(self, given: Any) -> Output:
        known = Output.__dataclass_fields__
        if not isinstance(given, Mapping):
            self.faults.append("`output` is expected to be a table")
            return Output()
        self.faults += [
            f"`output`: {key!r} is not known; expected {', '.join(known)}" for key in given.keys() - known.keys()
        ]
        self.faults += [
            f"`output`: {key} is expected to be text" for key, value in given.items() if not isinstance(value, str)
        ]
        if given.get("format", "json") not in ("json", "lines"):
            self.faults.append(f"`output`: format is json or lines, found {given['format']!r:.40}")
        return Output() if self.faults else Output(**given)


BINARY = "openclaw-cortex"
TIMEOUT = 30.0


@dataclass(frozen=True)
class CommandClient:
    """A memory behind a command line.

    `recall` and `store` are needed; `reset`, `flush`, `delete` (`{id}`) and `update` (`{id}`, `{content}`) are not, and
    `NotSupported` where they are not given. Placeholders of `store`: `{content}` (what was said, by whom, and, without
    a `{time}`, when), `{text}`, `{id}`, `{role}`, `{speaker}`, `{time}`, `{session}`; of `recall`: `{query}`,
    `{limit}`, `{budget}` (tokens: `budget_per_item` for each of at most `budget_items` results); of all: `{namespace}`,
    which keeps groups apart. `memory_id`: path to the new memory's id in the JSON that `store` writes, or a template
    such as `{namespace}-{id}` where `store` gives it its name.

    Every call ends after `timeout` seconds, or when the run or example has to end. Raises `Unreachable` (no such
    program), `TimedOut` (it and all that it started are killed), `Refused` (exit status ≠ 0; or arguments that are not
    handed over at all: an empty text, a limit outside 1 … `max_limit`, a NUL character) and `BadReply` (output that
    cannot be read).
    """

    store_command: Command
    recall_command: Command
    reset_command: Command | None = None
    flush_command: Command | None = None
    delete_command: Command | None = None
    update_command: Command | None = None
    output: Output = field(default_factory=Output)
    memory_id: str | None = None
    name: str = "command"
    timeout: float = TIMEOUT
    max_limit: int = 10_000
    budget_per_item: int = 500
    budget_items: int | None = 2000
    granularity: str = "turn"
    in_namespace: str = "context-bench"
    batch: int | None = 1  # one program call an item

    # Ways to make one

    @classmethod
    def preset(
        cls,
        name: str = "cortex",
        *,
        binary: str | None = None,
        config: str | Path | None = None,
        timeout: float | None = None,
        compat: str | None = None,
    ) -> CommandClient:
        """A known program; "cortex" is the only one. `compat="v0.10"`: the arguments and limits of that version."""
        if name != "cortex":
            raise BadInput(f"no preset {name!r} of a command line; known: cortex")
        if compat not in (None, "v0.10"):
            raise BadInput(f"compat={compat!r} is not known; expected v0.10, or nothing for today's arguments")
        old = compat == "v0.10"
        start = (binary or BINARY, *(("--config", str(config)) if config else ()))
        wanted = (
            ("--budget", "{budget}", "--context", "_")
            if old
            else ("--format", "json", "--limit", "{limit}", "--budget", "{budget}")
        )
        for word in start:
            if NAME.search(word):
                raise BadInput(
                    f"{word!r}: a path with a word in braces is taken for a placeholder; give it another name"
                )
        return cls(
            store_command=Command((*start, "store", "--scope", "permanent", "--type", "fact", "--", "{content}")),
            recall_command=Command((*start, "recall", *wanted, "--", "{query}")),
            reset_command=Command((*start, "reset", "--yes")),
            output=Output("json", "", text="memory.content"),
            name="cortex",
            timeout=timeout or TIMEOUT,
            max_limit=1_048_576 if old else 10_000,
            budget_items=None if old else 2000,
        )

    @classmethod
    def from_file(cls, path: str | Path) -> CommandClient:
        """From a TOML file (or a YAML one, if PyYAML is installed), as `cli:FILE` names it:

        ```toml
        name = "notes"
        timeout = 30
        store = ["notes", "add", "--", "{content}"]
        recall = ["notes", "find", "--limit", "{limit}", "--json", "--", "{query}"]
        reset = ["notes", "clear", "--yes"]        # also: flush, delete, update
        [output]                                   # format = "lines": one memory a line
        items = "results"
        text = "note.body"
        score = "score"
        ```

        A command may also be a table: `argv = […]`, `stdin = "{content}"`.
        """
        return cls.from_dict(read_description(path), str(path))

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], where: str = "the description of the command line") -> CommandClient:
        """From what such a file says; `BadSpec` lists every fault."""
        return cls(**CommandDescription(given, where).values())

    # As a client

    @property
    def binary_path(self) -> str:
        return self.recall_command.argv[0]

    def reset(self) -> None:
        """Empty the store (of this namespace, if the command line has namespaces)."""
        self._call("reset", self.reset_command, {})

    def store(self, content: str) -> None:
        if not content:
            raise Refused("an empty text is not stored")
        self._call("store", self.store_command, dict.fromkeys(OF_ITEM, "") | {"content": content, "text": content})

    def recall(self, query: str, limit: int) -> list[str]:
        """At most `limit` texts, best first."""
        return [hit.text for hit in self.search(query, limit)]

    # As a memory

    @property
    def capabilities(self) -> frozenset[Capability]:
        offered: dict[Capability, bool] = {
            "add": True,
            "search": True,
            "delete": self.delete_command is not None and bool(self.output.id or self.memory_id),
            "delete_all": self.reset_command is not None,
            "update": self.update_command is not None and bool(self.output.id or self.memory_id),
            "timestamps": "time" in self.store_command.names(),
            "source_ids": self.output.source is not None,
            "scores": self.output.score is not None,
            "namespaces": self._namespaced,
            "persistent": True,
        }
        return frozenset(name for name, is_offered in offered.items() if is_offered)

    way_apart: ClassVar[str] = "say {namespace} in `store` and `recall`, or give `reset`"

    @property
    def can_reset(self) -> bool:
        """True if there is a command that empties the store; `reset` is there for every client."""
        return self.reset_command is not None

    @property
    def _namespaced(self) -> bool:
        return all("namespace" in command.names() for command in (self.store_command, self.recall_command))

    def namespace(self, name: str) -> CommandClient:
        """An instance with its own store; `NotSupported` unless both `store` and `recall` have `{namespace}`."""
        if not self._namespaced:
            raise NotSupported(f"the command line of {self.name} has no {{namespace}}")
        return replace(self, in_namespace=name)

    def fingerprint(self) -> dict[str, Any]:
        return {
            "class": "CommandClient",
            **{name: value for name, value in asdict(self).items() if name not in ("timeout", "in_namespace")},
        }

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Remember the items, one call each; what fails is on its receipt."""
        return [self._add(item) for item in items]

    def _add(self, item: Item) -> Receipt:
        if not item.text:
            return Receipt(item.id, error="Refused: an empty text is not stored")
        texts = {name: getattr(item, name) or "" for name in OF_ITEM - {"content"}}
        content = spoken(item) if "timestamps" in self.capabilities else dated_text(item)
        values = {"content": content, **texts}
        try:
            written = self._call("store", self.store_command, values).out
            return Receipt(item.id, self._new_id(written, {**values, "namespace": self.in_namespace}))
        except Failed as error:
            return Receipt(item.id, error=describe(error))

    def _new_id(self, written: bytes, values: Mapping[str, str]) -> str | None:
        if self.memory_id is None:
            return None
        is_template = bool(names_in(self.memory_id))
        ident = fill(self.memory_id, values) if is_template else at(read_json(written, "store"), self.memory_id)
        return None if ident is None else str(ident)

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The best `k` hits, best first. There is no way to say when a question is asked, so `as_of` is not sent."""
        if k < 1 or k > self.max_limit:
            raise Refused(f"{self.name}: the limit is expected to be from 1 to {self.max_limit:,}, found {k:,}")
        if not query:
            raise Refused("an empty query is not asked")
        budget = min(k, self.budget_items or k) * self.budget_per_item
        done = self._call("recall", self.recall_command, {"query": query, "limit": str(k), "budget": str(budget)})
        hits = lines(done.out) if self.output.format == "lines" else entries(done.out, self.output)
        if hits and not any(hit.text for hit in hits):
            raise BadReply(
                f"{self.name}: {len(hits)} memories without any text at {self.output.text!r}; has the output changed?"
            )
        return hits[:k]

    def flush(self, seconds: float = TIMEOUT) -> None:
        """Wait until what was stored can be found, where the command line has a command for it."""
        if self.flush_command is not None:
            self._call("flush", self.flush_command, {}, seconds)

    def delete(self, memory_id: str) -> None:
        self._call("delete", self.delete_command, {"id": memory_id})

    def delete_all(self) -> None:
        self.reset()

    def update(self, memory_id: str, text: str) -> None:
        self._call("update", self.update_command, {"id": memory_id, "content": text, "text": text})

    # The call

    def _call(
        self, what: str, command: Command | None, values: Mapping[str, str], seconds: float | None = None
    ) -> FinishedProgram:
        if command is None:
            raise NotSupported(f"the command line of {self.name} has no command to {what}")
        argv, stdin = command.filled({**values, "namespace": self.in_namespace})
        done = run_program(argv, time_left(self.timeout if seconds is None else seconds), stdin)
        if done.status != 0:
            words = ending(done.err.strip() or done.out.strip()) or "it said nothing"
            how = f"exit status {done.status}" if done.status > 0 else f"signal {-done.status}"
            raise Refused(f"{self.name}: {what} ended with {how}: {words}")
        return done


def CortexClient(
    binary_path: str | None = None, config_path: str | Path | None = None, call_timeout: float | None = None
) -> CommandClient:
    """`CommandClient.preset("cortex")` under its documented name and with its documented arguments; a timeout of zero
    means the default.
    """
    return CommandClient.preset("cortex", binary=binary_path, config=config_path, timeout=call_timeout)


def from_spec(target: str) -> CommandClient:
    """Make the memory of a `cli:` spec: a description's file, or `preset=cortex` with `binary=`, `config=`, `timeout=`,
    `compat=`, `wipe=yes`.

    The preset has one store and empties it between groups, so it wants a `config` of its own, or to be told that this
    store may go.
    """
    options = dict(part.partition("=")[::2] for part in target.split(",")) if target.startswith("preset=") else None
    if options is None:
        if not target:
            raise BadInput(
                "cli: is expected to name a file, or to go on as in cli:preset=cortex,binary=PATH,config=FILE"
            )
        return CommandClient.from_file(target)
    unknown = options.keys() - {"preset", "binary", "config", "timeout", "compat", "wipe"}
    if unknown:
        raise BadInput(
            f"cli:{target}: {', '.join(sorted(unknown))} not known; expected binary, config, timeout, compat, wipe"
        )
    if not options.get("config") and options.get("wipe") != "yes":
        raise BadInput(
            f"cli:{target} would empty the store that the program uses by default: give config=FILE with a store of "
            "its own, or wipe=yes"
        )
    try:
        timeout = float(options.get("timeout") or TIMEOUT)
    except ValueError:
        timeout = 0.0
    if not timeout > 0:
        raise BadInput(f"cli:{target}: timeout is expected to be seconds above 0, found {options['timeout']!r}")
    return CommandClient.preset(
        options["preset"],
        binary=options.get("binary") or None,
        config=options.get("config") or None,
        timeout=timeout,
        compat=options.get("compat") or None,
    )
