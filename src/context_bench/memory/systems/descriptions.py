"""Descriptions of memories in files: steps, placeholders and paths.

A description is checked as a whole, and all its faults are reported at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadReply, BadSpec
from context_bench.core.numbers import duration, real
from context_bench.core.templates import at, names_in
from context_bench.memory.protocol import Hit

OF_ITEM = frozenset(("content", "text", "id", "role", "speaker", "time", "session"))
#: Step → the placeholders it may have, beside those of every step.
STEPS: dict[str, frozenset[str]] = {
    "open": frozenset(),
    "add": OF_ITEM | {"metadata"},
    "search": frozenset(("query", "k", "as_of")),
    "answer": frozenset(("query",)),
    "delete": frozenset(("id",)),
    "update": frozenset(("id", "content", "text", "metadata")),
    "delete_all": frozenset(),
    "get": frozenset(("id",)),
    "list": frozenset(("page",)),
    "between": frozenset(("start", "end")),
    "relate": frozenset(("subject", "relation", "object")),
    "related": frozenset(("ids",)),
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
    "get": ("hit", "text", "id"),
    "list": ("hits", "text", "id"),
    "between": ("hits", "text", "id"),
    "related": ("relations", "subject", "relation", "object"),
}
_WAITS = ("probe", "status", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Paths of an entry's parts; no path = the entry does not have it."""

    text: str = "text"
    score: str | None = None
    id: str | None = None
    source: str | None = None
    time: str | None = None


def hit_of(entry: Any, paths: Paths) -> Hit:
    """One entry of a reply as a hit, its text empty where there is none; `BadReply` for what is no entry."""
    text = at(entry, paths.text)
    if text is not None and not isinstance(text, str):
        raise BadReply(f"a memory's text at {paths.text!r} is expected to be text, found {text!r:.80}")
    if paths.text and not isinstance(entry, Mapping | list | None):
        raise BadReply(f"a memory is expected to be an object, found {entry!r:.80}")
    score, ident, time = at(entry, paths.score), at(entry, paths.id), at(entry, paths.time)
    sources = at(entry, paths.source)
    return Hit(
        text or "",
        real(score),
        () if sources is None else tuple(map(str, sources if isinstance(sources, list) else [sources])),
        None if ident is None else str(ident),
        None if time is None else str(time),
    )


@dataclass(frozen=True, slots=True)
class MemoryStep(Paths):
    """One thing that can be asked of the memory: `call` says how (templates, as its transport wants them), the others
    read the reply.

    `listed`: path to the list of hits or relations, or to the one hit. `equals`: what `ready` has to be; without it,
    anything but empty, zero and false. `id` of "add" may be a template instead: the name that the call gave the memory,
    for those that keep things under names of ours.
    """

    name: str
    call: Mapping[str, Any]
    listed: str = ""
    ready: str = ""
    equals: Any = None
    items: str | None = None
    bytes: str | None = None
    subject: str = "subject"
    relation: str = "relation"
    object: str = "object"

    @property
    def names_its_own(self) -> bool:
        """True if `id` is the name that the call gives, and no path in the reply."""
        return self.name == "add" and bool(names_in(self.id))


@dataclass(frozen=True, slots=True)
class MemoryDescription:
    """Description of a memory in a file, checked. `wait`: how to know that what was added can be found ("probe",
    "status", "no").
    """

    name: str
    steps: Mapping[str, MemoryStep]
    timeout: float
    granularity: str
    wait: str
    more: Mapping[str, Any]  # what the transport wants to know
    given: Mapping[str, Any] = field(repr=False)

    @property
    def namespaced(self) -> bool:
        """True if every step names its namespace, by name or by what opening it gave."""
        used = [names_in(step.call) for name, step in self.steps.items() if name in ("add", "search", "answer")]
        return all(names & _ALWAYS for names in used)


class DescriptionReader:
    """A file's table, read step by step; every fault is told at once by `done`."""

    def __init__(
        self, given: Mapping[str, Any], where: str, *, call: Mapping[str, tuple[type, ...]], needed: str
    ) -> None:
        self.given, self.where, self.faults = given, where, list[str]()
        self._call, self._needed = call, needed
        self._known = {*STEPS, "name", "timeout", "granularity", "wait", "owner"}

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        """A value of the file's top."""
        self._known.add(name)
        value = self.given.get(name, default)
        if value is not default and not isinstance(value, kind):
            self.faults.append(f"`{name}` is expected to be {_called(kind)}, found {value!r:.60}")
            return default
        return value

    def done(self, more: Mapping[str, Any]) -> MemoryDescription:
        """The description; `BadSpec` with every fault."""
        steps = {name: step for name in STEPS if name in self.given and (step := self._step(name)) is not None}
        self.take("owner", dict)
        name, granularity = self.take("name", str), self.take("granularity", str, "turn")
        timeout, wait = (
            self.given.get("timeout", 30.0),
            self.take("wait", str, "status" if "status" in self.given else "probe"),
        )
        if not duration(timeout):
            self.faults.append(f"`timeout` is expected to be seconds above 0, found {timeout!r:.40}")
        if granularity not in ("turn", "pair", "session"):
            self.faults.append(f"`granularity` is turn, pair or session, found {granularity!r:.40}")
        if wait not in _WAITS or (wait == "status" and "status" not in self.given):
            self.faults.append(f"`wait` is probe, no, or status with a table [status], found {wait!r:.40}")
        if "add" not in self.given or not {"search", "answer"} & self.given.keys():
            self.faults.append("[add] and one of [search], [answer] are needed")
        self.faults += [
            f"`{name}` is not known; expected {', '.join(sorted(self._known))}"
            for name in sorted(self.given.keys() - self._known)
        ]
        for needs, names in (
            ("add", {"content", "text"}),
            ("search", {"query"}),
            ("answer", {"query"}),
            ("delete", {"id"}),
            ("get", {"id"}),
            ("between", {"start"}),
            ("relate", {"subject"}),
            ("relate", {"object"}),
            ("related", {"ids"}),
        ):
            if needs in steps and not names_in(steps[needs].call) & names:
                self.faults.append(f"[{needs}] never says {' or '.join(f'{{{one}}}' for one in sorted(names))}")
        if self.faults:
            raise BadSpec(self.where, self.faults)
        return MemoryDescription(
            name or Path(self.where).stem, steps, float(timeout), granularity, wait, more, self.given
        )

    def _step(self, name: str) -> MemoryStep | None:
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
                self.faults.append(
                    f"[{name}]: {key} is expected to be {_called(*self._call[key])}, found {value!r:.60}"
                )
        known = {*self._call, *_PATHS.get(name, ()), *(("equals",) if name == "status" else ())}
        self.faults += [
            f"[{name}]: {key!r} is not known; expected {', '.join(sorted(known))}"
            for key in sorted(table.keys() - known)
        ]
        if self._needed not in table:
            self.faults.append(f"[{name}] has no `{self._needed}`")
        allowed = STEPS[name] | (_ALWAYS if "open" in self.given and name != "open" else {"namespace"})
        self.faults += [
            f"[{name}]: {{{odd}}} is not known there; expected {', '.join(f'{{{one}}}' for one in sorted(allowed))}"
            for odd in sorted(names_in([call, paths.get("id") if name == "add" else None]) - allowed)
        ]
        if self.faults:
            return MemoryStep(name, call) if isinstance(table, Mapping) else None
        listed = next((paths.pop(key) for key in ("hits", "hit", "relations") if key in paths), "")
        return MemoryStep(name, call, listed, equals=table.get("equals"), **paths)


def _called(*kinds: type) -> str:
    names = {str: "text", dict: "a table", list: "a list", bool: "true or false"}
    return " or ".join(names.get(kind, kind.__name__) for kind in kinds)
