"""Memories described in a file: its steps, placeholders and paths, and the requests made from them.

A description is checked as a whole, and all its faults are reported at once. `Described` sends the steps by whatever
transport a subclass brings, and reads the replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadReply, BadSpec, Failed, TimedOut, describe
from context_bench.core.numbers import duration, real
from context_bench.core.templates import at, fill, names_in
from context_bench.core.text import normalise
from context_bench.core.tokens import utf8_safe
from context_bench.memory.protocol import Capability, Hit, Item, NotSupported, Receipt
from context_bench.memory.systems.adapting import Answer, as_answer
from context_bench.memory.systems.baselines import dated_text, spoken
from context_bench.sandbox.vendors import time_left

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

    `listed`: path to the list of hits. `equals`: what `ready` has to be; without it, anything but empty, zero and
    false. `id` of "add" may be a template instead: the name that the call gave the memory, for those that keep things
    under names of ours.
    """

    name: str
    call: Mapping[str, Any]
    listed: str = ""
    ready: str = ""
    equals: Any = None
    items: str | None = None
    bytes: str | None = None

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
        self._known = {*STEPS, "name", "timeout", "granularity", "wait"}

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
        listed = paths.pop("hits", "")
        return MemoryStep(name, call, listed, equals=table.get("equals"), **paths)


def _called(*kinds: type) -> str:
    names = {str: "text", dict: "a table", list: "a list", bool: "true or false"}
    return " or ".join(names.get(kind, kind.__name__) for kind in kinds)


_PROBED = 10  # hits in which the last item added is looked for


class NotThere(Exception):
    """The memory says that the thing it was to change, delete or look at does not exist."""


class Described:
    """A memory that a file describes; a subclass says how a step is sent. Replies are read by path.

    What the file has no step for is not offered. Without `delete_all` but with namespaces, `reset` goes on in a new
    one; with neither, it deletes what this object added, if the file says by which names. `add` sends one step an item.
    `flush` asks the status, or searches for the last item added, until it is there: never a fixed sleep.
    """

    batch: int | None = 1
    way_apart = (
        "say {namespace} in all of [add], [search] and [answer], or give [delete_all] (or [delete] with "
        "an id of ours in [add])"
    )
    leaves_behind = False  # whether `reset` leaves things where they are, in a namespace that is not used again
    reset: Callable[[], Awaitable[None]]
    delete_all: Callable[[], Awaitable[None]]

    def __init__(self, description: MemoryDescription, namespace: str = "context-bench") -> None:
        self.description, self.name, self.granularity = description, description.name, description.granularity
        self._namespace, self._space, self._round = namespace, None, 0
        self._opening = asyncio.Lock()
        self._last: tuple[Item, str | None] | None = None
        self._added: dict[str, None] = {}  # the names given to what was added, where `reset` deletes by them
        if "delete_all" in description.steps:
            self.delete_all = self.reset = self._delete_all
        elif description.namespaced:
            self.reset, self.leaves_behind = self._go_on_elsewhere, True
        elif self._deletes_added:
            self.reset = self._delete_added

    _space: str | None

    # What a subclass says

    async def _send(self, step: MemoryStep, values: Mapping[str, Any], seconds: float) -> Any:
        """The reply to one step as a JSON document; `None` for none. Raises `SystemFailed`; `NotThere`."""
        raise NotImplementedError

    def _isolated(self, namespace: str) -> Self:
        return type(self)(self.description, namespace)

    # A memory

    @property
    def capabilities(self) -> frozenset[Capability]:
        steps = self.description.steps
        add, search, stats = steps["add"], steps.get("search"), steps.get("stats")
        has_ids = bool((search and search.id) or add.id)
        offered: dict[Capability, object] = {
            "add": True,
            "search": search,
            "answer": "answer" in steps,
            "delete": "delete" in steps and has_ids,
            "update": "update" in steps and has_ids,
            "delete_all": "delete_all" in steps,
            "timestamps": "time" in names_in(add.call),
            "source_ids": search and search.source is not None,
            "scores": search and search.score is not None,
            "namespaces": self.description.namespaced,
            "stats": stats and stats.items is not None and stats.bytes is not None,
            "persistent": True,
        }
        return frozenset(name for name, is_offered in offered.items() if is_offered)

    @property
    def _deletes_added(self) -> bool:
        """True if to delete one by one is the only way to empty it, and all the names are ours."""
        steps = self.description.steps
        return (
            steps["add"].names_its_own
            and "delete" in steps
            and "delete_all" not in steps
            and not self.description.namespaced
        )

    def fingerprint(self) -> dict[str, Any]:
        """Everything that can change what is found: the whole file but its patience. It holds no key: files name
        variables.
        """
        return {
            "class": type(self).__name__,
            **{name: value for name, value in self.description.given.items() if name != "timeout"},
        }

    def namespace(self, name: str) -> Self:
        """An instance with its own store; `NotSupported` unless the steps say `{namespace}` or `{space}`."""
        if not self.description.namespaced:
            raise NotSupported(
                f"the description of {self.name} has no {{namespace}} in all of [add], [search], [answer]"
            )
        return self._isolated(name)

    async def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Remember the items, one step each; what fails is on its receipt."""
        return [await self._add(item) for item in items]

    async def _add(self, item: Item) -> Receipt:
        step = self.description.steps["add"]
        dated = "time" in names_in(step.call)
        values = {name: getattr(item, name) for name in OF_ITEM - {"content"}} | {
            "content": spoken(item) if dated else dated_text(item)
        }
        try:
            reply, named = await self._sent("add", values)
        except (Failed, NotThere) as error:
            return Receipt(item.id, error=describe(error))
        ident = fill(step.id, named) if step.names_its_own else at(reply, step.id)
        memory_id = None if ident is None else str(ident)
        if memory_id is not None and self._deletes_added:
            self._added[memory_id] = None
        if item.text.strip():
            self._last = item, memory_id
        return Receipt(item.id, memory_id)

    async def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        return await self._search(query, k, as_of, None)

    async def _search(self, query: str, k: int, as_of: str | None, seconds: float | None) -> list[Hit]:
        step = self._step("search")
        document = await self._ask("search", {"query": query, "k": k, "as_of": as_of}, seconds)
        listed = at(document, step.listed)
        if not isinstance(listed, list):
            place = f" at {step.listed!r}" if step.listed else ""
            raise BadReply(f"{self.name}: the search is expected to give a list{place}, found {document!r:.200}")
        hits = [hit_of(entry, step) for entry in listed]
        if hits and not any(hit.text for hit in hits):
            raise BadReply(
                f"{self.name}: {len(hits)} memories without any text at {step.text!r}; has the reply changed? "
                f"{listed[0]!r:.200}"
            )
        return hits

    async def answer(self, question: str) -> Answer:
        document = await self._ask("answer", {"query": question})
        return as_answer(at(document, self._step("answer").text))

    async def delete(self, memory_id: str) -> bool:
        """Forget one memory; whether there was one, as far as the memory says."""
        there = await self._change("delete", memory_id, {})
        self._added.pop(memory_id, None)
        return there

    async def update(self, memory_id: str, text: str) -> bool:
        """Other text for one memory; whether there was one, as far as the memory says."""
        return await self._change("update", memory_id, {"content": text, "text": text})

    async def _change(self, name: str, memory_id: str, values: Mapping[str, Any]) -> bool:
        """False if there was no such memory."""
        there = True
        try:
            await self._ask(name, {"id": memory_id, **values})
        except NotThere:
            there = False
        if self._last is not None and self._last[1] in (memory_id, None):
            self._last = None  # it may be this one: then nothing is left that `flush` could look for
        return there

    async def stats(self) -> dict[str, int]:
        step = self._step("stats")
        document = await self._ask("stats", {})
        sizes = {"items": at(document, step.items), "bytes": at(document, step.bytes)}
        return {name: value for name, value in sizes.items() if isinstance(value, int) and not isinstance(value, bool)}

    async def flush(self, seconds: float = 60.0) -> None:
        """Wait until what was added can be found; `TimedOut` if that takes longer."""
        if self.description.wait == "no" or (
            self.description.wait == "probe" and (self._last is None or "search" not in self.description.steps)
        ):
            return
        end, pause = SYSTEM_CLOCK.monotonic() + seconds, 0.02
        check = self._ready if self.description.wait == "status" else self._visible
        while not await check(end):
            if SYSTEM_CLOCK.monotonic() + pause >= end:
                what = (
                    "said it was not ready" if self.description.wait == "status" else "did not find the last item added"
                )
                raise TimedOut(f"{self.name} still {what} after {seconds:g} s")
            await asyncio.sleep(pause)
            pause = min(1.0, 2 * pause)

    async def _ready(self, end: float) -> bool:
        step = self._step("status")
        status = at(await self._ask("status", {}, end - SYSTEM_CLOCK.monotonic()), step.ready)
        return bool(status == step.equals if step.equals is not None else status)

    async def _visible(self, end: float) -> bool:
        assert self._last is not None
        item, ident = self._last
        hits = await self._search(item.text[:500], _PROBED, None, end - SYSTEM_CLOCK.monotonic())
        text = normalise(item.text)
        return any(
            item.id in hit.source_ids
            or (ident is not None and ident == hit.memory_id)
            or _same(text, normalise(hit.text))
            for hit in hits
        )

    async def _delete_all(self) -> None:
        if self._space is None and "open" in self.description.steps:
            return  # never opened: nothing is there
        with suppress(NotThere):
            await self._ask("delete_all", {})
        self._space, self._last = None, None

    async def _delete_added(self) -> None:
        for memory_id in list(self._added):
            await self.delete(memory_id)
        self._last = None

    async def _go_on_elsewhere(self) -> None:
        self._round += 1
        self._space, self._last = None, None

    # Sending

    async def _ask(self, name: str, values: Mapping[str, Any], seconds: float | None = None) -> Any:
        return (await self._sent(name, values, seconds))[0]

    async def _sent(
        self, name: str, values: Mapping[str, Any], seconds: float | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The reply, and what stood for the placeholders."""
        step = self._step(name)
        named = {"namespace": f"{self._namespace}-{self._round}" if self._round else self._namespace}
        if "open" in self.description.steps:
            named["space"] = await self._opened(named)
        cleaned = {
            key: utf8_safe(value) if isinstance(value, str) else value for key, value in {**values, **named}.items()
        }
        return await self._send(step, cleaned, self._time_left(seconds)), cleaned

    async def _opened(self, named: Mapping[str, Any]) -> str:
        """The name of the namespace on the other side; made once."""
        async with self._opening:
            if self._space is None:
                step = self._step("open")
                document = await self._send(step, named, self._time_left(None))
                space = named["namespace"] if step.id is None else at(document, step.id)
                if space is None:
                    raise BadReply(f"{self.name}: [open] gave nothing at {step.id!r}: {document!r:.200}")
                self._space = str(space)
            return self._space

    def _step(self, name: str) -> MemoryStep:
        step = self.description.steps.get(name)
        if step is None:
            raise NotSupported(f"the description of {self.name} has no [{name}]")
        return step

    def _time_left(self, seconds: float | None) -> float:
        allowed = self.description.timeout if seconds is None else min(seconds, self.description.timeout)
        left = time_left(allowed)
        if left <= 0:
            raise TimedOut(f"{self.name} was not asked: no time was left")
        return left


def _same(text: str, other: str) -> bool:
    """True if one says the other; a short text is in many."""
    return text == other or (min(len(text), len(other)) >= 12 and (text in other or other in text))
