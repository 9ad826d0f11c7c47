"""Memories described in a file: `Described` sends their steps by whatever transport a subclass brings, and reads the
replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from context_bench.core.errors import BadReply, Failed, Refused, TimedOut, describe
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.core.templates import at, fill, names_in
from context_bench.core.text import normalise
from context_bench.core.tokens import utf8_safe
from context_bench.memory.protocol import Capability, Hit, Item, NotSupported, Receipt, Relation
from context_bench.memory.systems.adapting import Answer, as_answer
from context_bench.memory.systems.baselines import dated_text, spoken
from context_bench.memory.systems.descriptions import OF_ITEM, MemoryDescription, MemoryStep, hit_of
from context_bench.sandbox.vendors import time_left

_MOST_PAGES = 10_000
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
            "metadata": "metadata" in names_in(add.call),
            "list": "list" in steps,
            "by_time": "between" in steps,
            "by_id": "get" in steps and has_ids,
            "relations": {"relate", "related"} <= steps.keys() and has_ids,
            "persistent": True,
        }
        return frozenset(name for name, is_offered in offered.items() if is_offered)

    @property
    def owner(self) -> Any:
        """The metadata by which the memory knows the owner of this namespace, if the file says it."""
        return fill(self.description.given.get("owner"), {"namespace": self._place})

    @property
    def _place(self) -> str:
        return f"{self._namespace}-{self._round}" if self._round else self._namespace

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
            "content": spoken(item) if dated else dated_text(item),
            "metadata": dict(item.metadata) or None,
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
        hits = self._hits(step, document)
        if hits and not any(hit.text for hit in hits):
            raise BadReply(
                f"{self.name}: {len(hits)} memories without any text at {step.text!r}; has the reply changed? "
                f"{document!r:.200}"
            )
        return hits

    def _hits(self, step: MemoryStep, document: Any) -> list[Hit]:
        return [hit_of(entry, step) for entry in self._listed(step, document)]

    def _listed(self, step: MemoryStep, document: Any) -> list[Any]:
        listed = at(document, step.listed)
        if not isinstance(listed, list):
            place = f" at {step.listed!r}" if step.listed else ""
            raise BadReply(f"{self.name}: [{step.name}] is expected to give a list{place}, found {document!r:.200}")
        return listed

    async def list_all(self) -> list[Hit]:
        """Everything that [list] shows: page by page, until a page is empty, if it takes a `{page}`."""
        step = self._step("list")
        if "page" not in names_in(step.call):
            return self._hits(step, await self._ask("list", {}))
        hits: list[Hit] = []
        for page in range(1, _MOST_PAGES + 1):
            more = self._hits(step, await self._ask("list", {"page": page}))
            if not more or more[-1] in hits[-len(more) :]:
                return hits
            hits += more
        raise BadReply(f"{self.name}: [list] has more than {_MOST_PAGES:,} pages, or its pages never end")

    async def between(self, start: str, end: str) -> list[Hit]:
        """Everything stored from one day to another, both in ISO 8601."""
        return self._hits(self._step("between"), await self._ask("between", {"start": start, "end": end}))

    async def get(self, memory_id: str) -> Hit | None:
        """One memory by its id; `None` if there is none."""
        step = self._step("get")
        try:
            found = at(await self._ask("get", {"id": memory_id}), step.listed)
        except (NotThere, Refused):
            return None
        hits = [hit_of(entry, step) for entry in (found if isinstance(found, list) else [found]) if entry]
        return next((hit for hit in hits if hit.text), None)

    async def relate(self, subject: str, relation: str, other: str) -> None:
        """Join two memories, by their ids."""
        await self._ask("relate", {"subject": subject, "relation": relation, "object": other})

    async def related(self, memory_ids: Sequence[str]) -> list[Relation]:
        """The relations that are shown when these memories are asked for."""
        step = self._step("related")
        return [
            Relation(*(str(at(entry, path)) for path in (step.subject, step.relation, step.object)))
            for entry in self._listed(step, await self._ask("related", {"ids": list(memory_ids)}))
        ]

    async def answer(self, question: str) -> Answer:
        document = await self._ask("answer", {"query": question})
        return as_answer(at(document, self._step("answer").text))

    async def delete(self, memory_id: str) -> bool:
        """Forget one memory; whether there was one, as far as the memory says."""
        there = await self._change("delete", memory_id, {})
        self._added.pop(memory_id, None)
        return there

    async def update(self, memory_id: str, text: str, metadata: Mapping[str, Any] | None = None) -> bool:
        """Other text for one memory; whether there was one, as far as the memory says. `NotSupported` for metadata
        without a `{metadata}` in [update].
        """
        if metadata and "metadata" not in names_in(self._step("update").call):
            raise NotSupported(f"the description of {self.name} has no {{metadata}} in [update]")
        return await self._change("update", memory_id, {"content": text, "text": text, "metadata": metadata})

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
        named = {"namespace": self._place}
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
