"""What a file says about a memory: its steps, the placeholders and paths they may have, and every fault told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from context_bench.core.errors import BadReply, BadSpec
from context_bench.core.numbers import duration, real
from context_bench.core.templates import at, names_in
from context_bench.memory.protocol import Hit

OF_ITEM = frozenset(("content", "text", "id", "role", "speaker", "time", "session"))
#: Step → the placeholders it may have, beside those of every step.
STEPS: dict[str, frozenset[str]] = {
    "open": frozenset(),
    "add": OF_ITEM,
    "search": frozenset(("query", "k", "as_of")),
    "answer": frozenset(("query",)),
    "delete": frozenset(("id",)),
    "update": frozenset(("id", "content", "text")),
    "delete_all": frozenset(),
    "status": frozenset(),
    "stats": frozenset(),
}
_ALWAYS = frozenset(("namespace", "space"))
#: Step → its keys that are paths in its reply.
_PATHS: dict[str, tuple[str, ...]] = {
    "open": ("id",),
    "add": ("id",),
    "search": ("hits", "text", "score", "id", "source", "time"),
    "answer": ("text",),
    "status": ("ready",),
    "stats": ("items", "bytes"),
}
_WAITS = ("probe", "status", "no")


class Paths(Protocol):
    """Where in an entry its parts are; no path = the entry does not have it."""

    @property
    def text(self) -> str: ...
    @property
    def score(self) -> str | None: ...
    @property
    def id(self) -> str | None: ...
    @property
    def source(self) -> str | None: ...
    @property
    def time(self) -> str | None: ...


def hit_of(entry: Any, paths: Paths) -> Hit:
    """One entry of a reply as a hit, its text empty where there is none; `BadReply` for what is no entry."""
    text = at(entry, paths.text)
    if text is not None and not isinstance(text, str):
        raise BadReply(f"a memory's text at {paths.text!r} is expected to be text, found {text!r:.80}")
    if paths.text and not isinstance(entry, Mapping | list | None):
        raise BadReply(f"a memory is expected to be an object, found {entry!r:.80}")
    score, ident, time = at(entry, paths.score), at(entry, paths.id), at(entry, paths.time)
    return Hit(
        text or "",
        real(score),
        _sources(at(entry, paths.source)),
        None if ident is None else str(ident),
        None if time is None else str(time),
    )


def _sources(found: Any) -> tuple[str, ...]:
    if found is None:
        return ()
    return tuple(str(one) for one in found) if isinstance(found, list) else (str(found),)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that can be asked of the memory: `call` says how (templates, as its transport wants them), the others read the reply.

    `listed`: path to the list of hits. `equals`: what `ready` has to be; without it, anything but empty, zero and false. `id` of "add" may
    be a template instead: the name that the call gave the memory, for those that keep things under names of ours.
    """

    name: str
    call: Mapping[str, Any]
    listed: str = ""
    text: str = "text"
    score: str | None = None
    id: str | None = None
    source: str | None = None
    time: str | None = None
    ready: str = ""
    equals: Any = None
    items: str | None = None
    bytes: str | None = None

    @property
    def names_its_own(self) -> bool:
        """Whether `id` is the name that the call gives, and no path in the reply."""
        return self.name == "add" and bool(names_in(self.id))


@dataclass(frozen=True, slots=True)
class Description:
    """What a file says about a memory, checked. `wait`: how to know that what was added can be found ("probe", "status", "no")."""

    name: str
    steps: Mapping[str, Step]
    timeout: float
    granularity: str
    wait: str
    more: Mapping[str, Any]  # what the transport wants to know
    given: Mapping[str, Any] = field(repr=False)

    @property
    def namespaced(self) -> bool:
        """Whether every step names its namespace, by name or by what opening it gave."""
        used = [names_in(step.call) for name, step in self.steps.items() if name in ("add", "search", "answer")]
        return all(names & _ALWAYS for names in used)


class Reading:
    """A file's table, read step by step; every fault is told at once by `done`."""

    def __init__(self, given: Mapping[str, Any], where: str, *, call: Mapping[str, tuple[type, ...]], needed: str) -> None:
        self.given, self.where, self.faults = given, where, list[str]()
        self._call, self._needed = call, needed
        self._known = {*STEPS, "name", "timeout", "granularity", "wait"}

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        """A value of the file's top."""
        self._known.add(name)
        value = self.given.get(name, default)
        if value is not default and not isinstance(value, kind):
            self.faults.append(f"`{name}` is expected to be {_called(kind)}, found {value!r:.60}")
            return default
        return value

    def done(self, more: Mapping[str, Any]) -> Description:
        """The description; `BadSpec` with every fault."""
        steps = {name: step for name in STEPS if name in self.given and (step := self._step(name)) is not None}
        name, granularity = self.take("name", str), self.take("granularity", str, "turn")
        timeout, wait = self.given.get("timeout", 30.0), self.take("wait", str, "status" if "status" in self.given else "probe")
        if not duration(timeout):
            self.faults.append(f"`timeout` is expected to be seconds above 0, found {timeout!r:.40}")
        if granularity not in ("turn", "pair", "session"):
            self.faults.append(f"`granularity` is turn, pair or session, found {granularity!r:.40}")
        if wait not in _WAITS or (wait == "status" and "status" not in self.given):
            self.faults.append(f"`wait` is probe, no, or status with a table [status], found {wait!r:.40}")
        if "add" not in self.given or not {"search", "answer"} & self.given.keys():
            self.faults.append("[add] and one of [search], [answer] are needed")
        self.faults += [
            f"`{name}` is not known; expected {', '.join(sorted(self._known))}" for name in sorted(self.given.keys() - self._known)
        ]
        for needs, names in (("add", {"content", "text"}), ("search", {"query"}), ("answer", {"query"}), ("delete", {"id"})):
            if needs in steps and not names_in(steps[needs].call) & names:
                self.faults.append(f"[{needs}] never says {' or '.join(f'{{{one}}}' for one in sorted(names))}")
        if self.faults:
            raise BadSpec(self.where, self.faults)
        return Description(name or Path(self.where).stem, steps, float(timeout), granularity, wait, more, self.given)

    def _step(self, name: str) -> Step | None:
        table = self.given[name]
        if not isinstance(table, Mapping):
            self.faults.append(f"`{name}` is expected to be a table [{name}]")
            return None
        paths = {key: table[key] for key in _PATHS.get(name, ()) if key in table}
        self.faults += [
            f"[{name}]: {key} is expected to be a path (text), found {value!r:.40}"
            for key, value in paths.items()
            if not isinstance(value, str) or (names_in(value) and (name, key) != ("add", "id"))
        ]
        call = {key: table[key] for key in self._call if key in table}
        for key, value in call.items():
            if not isinstance(value, self._call[key]):
                self.faults.append(f"[{name}]: {key} is expected to be {_called(*self._call[key])}, found {value!r:.60}")
        known = {*self._call, *_PATHS.get(name, ()), *(("equals",) if name == "status" else ())}
        self.faults += [f"[{name}]: {key!r} is not known; expected {', '.join(sorted(known))}" for key in sorted(table.keys() - known)]
        if self._needed not in table:
            self.faults.append(f"[{name}] has no `{self._needed}`")
        allowed = STEPS[name] | (_ALWAYS if "open" in self.given and name != "open" else {"namespace"})
        self.faults += [
            f"[{name}]: {{{odd}}} is not known there; expected {', '.join(f'{{{one}}}' for one in sorted(allowed))}"
            for odd in sorted(names_in([call, paths.get("id") if name == "add" else None]) - allowed)
        ]
        if self.faults:
            return Step(name, call) if isinstance(table, Mapping) else None
        listed = paths.pop("hits", "")
        return Step(name, call, listed, equals=table.get("equals"), **paths)


def _called(*kinds: type) -> str:
    names = {str: "text", dict: "a table", list: "a list", bool: "true or false"}
    return " or ".join(names.get(kind, kind.__name__) for kind in kinds)
