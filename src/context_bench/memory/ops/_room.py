"""A place to experiment in: namespaces that nobody else uses, emptied afterwards, and never anything that was there before."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from context_bench.core.calling import method
from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import BadInput, BadReply
from context_bench.memory.ops._calls import Lane
from context_bench.memory.ops._facts import Fact, Facts, says, whole
from context_bench.memory.protocol import Hit, Item, Memory, NotSupported, Receipt

_SETTLE = 2.0  # seconds that a memory without flush() gets until what was added can be found
_LOOK = 0.02


@dataclass
class Room:
    """What a suite works with. `spec`: what a child process can make the memory from, if anything. `own`: a folder of ours it lies in."""

    make: Callable[[], Any]
    suite: str
    seed: int
    scale: float
    deadline: float
    k: int
    spec: str | None = None
    own: Path | None = None
    reader: Any = None
    clock: Clock = SYSTEM_CLOCK
    base: Memory = field(init=False)
    lane: Lane = field(init=False)

    def __post_init__(self) -> None:
        self.lane = Lane(self.deadline)
        self.facts = Facts(self.suite, self.seed)
        self._token = secrets.token_hex(4)  # two runs on one store never meet
        self._places: dict[str, Memory] = {}
        self._used: dict[str, None] = {}  # labels of places that were filled, in order
        self._open = False
        self._settles = True
        self._ours: dict[str, None] = {}  # the memory's names of what was added, where they are the only way to take it back

    # --- opening and leaving ---

    async def enter(self) -> None:
        """Open the memory."""
        self.base = await self.lane.call(self.make)
        self._open = True

    async def place(self, label: str = "a") -> Memory:
        """A namespace of this suite's own; a memory without namespaces itself, which `check_empty` has found empty."""
        if label not in self._places:
            self._used[label] = None
            self._places[label] = (
                await self.lane.call(getattr(self.base, "namespace"), self.name_of(label))  # noqa: B009 - optional in the protocol
                if self.has("namespaces")
                else self.base
            )
        return self._places[label]

    def name_of(self, label: str) -> str:
        """The name of a namespace of this suite."""
        return f"cb-ops-{self.suite}-{label}-{self._token}"

    async def reopen(self) -> None:
        """Close everything and open it again; `place` gives the same namespaces."""
        labels = list(self._places)
        await self.close()
        await self.enter()
        for label in labels:
            await self.place(label)

    async def close(self) -> None:
        """Close every handle; what is stored stays."""
        for memory in [*(each for each in self._places.values() if each is not self.base), *([self.base] if self._open else [])]:
            close = method(memory, "aclose", "close")
            if close is not None:
                await self.lane.call(close)
        self._places, self._open = {}, False

    async def drop(self) -> None:
        """Close what can be closed of something that is broken."""
        with suppress(Exception):
            await self.close()
        self._places, self._open = {}, False

    async def leave(self) -> None:
        """Empty what this suite filled, and close. What goes wrong here changes no finding."""
        with suppress(Exception):
            if not self._open:
                await self.enter()
        for label in self._used:
            with suppress(Exception):
                await self.forget(await self.place(label))
        for memory_id in self._ours:
            with suppress(Exception):
                await self.lane.call(getattr(self.base, "delete"), memory_id)  # noqa: B009 - optional in the protocol
        with suppress(Exception):
            await self.close()
        self.lane.close()

    # --- what the memory can do ---

    def has(self, *capabilities: str) -> bool:
        """Whether the memory says that it can do all of this."""
        return set(capabilities) <= set(self.base.capabilities)

    def needs(self, *capabilities: str) -> None:
        """`NotSupported` if the memory does not say that it can do all of this."""
        missing = [each for each in capabilities if each not in self.base.capabilities]
        if missing:
            raise NotSupported(f"the memory does not offer {', '.join(missing)}")

    def times(self, number: int, least: int = 2) -> int:
        """`number` at this scale."""
        return max(least, round(number * self.scale))

    # --- calls ---

    def handed(self, item: Item) -> Item:
        """The item under an id that no other run and no other suite hands over: some memories keep things under it."""
        return replace(item, id=f"{self._token}-{item.id}")

    def note(self, memory_ids: Iterable[str | None]) -> None:
        """Remember what to take back in the end, where a namespace cannot be emptied."""
        if self.has("delete") and not self.has("namespaces") and not self.has("delete_all"):
            self._ours.update(dict.fromkeys(each for each in memory_ids if each is not None))

    async def add(self, memory: Memory, items: Sequence[Item], lane: Lane | None = None) -> list[Receipt]:
        """Hand items over, in calls of the size that the memory likes; one receipt an item, in order."""
        size = getattr(memory, "batch", 50) or max(1, len(items))
        handed = [self.handed(item) for item in items]
        receipts: list[Receipt] = []
        for start in range(0, len(items), size):
            found = await (lane or self.lane).call(memory.add, handed[start : start + size])
            if not isinstance(found, list | tuple) or not all(isinstance(each, Receipt) for each in found):
                raise BadReply(f"add() gave {type(found).__name__}, expected one Receipt an item")
            receipts += found
        self.note(receipt.memory_id for receipt in receipts)
        by_item = {receipt.item_id: receipt for receipt in receipts}
        missing = Receipt("", error="no receipt")
        return [replace(by_item.get(sent.id, missing), item_id=item.id) for item, sent in zip(items, handed, strict=True)]

    async def flush(self, memory: Memory) -> None:
        """Wait until what was added can be found."""
        flush = method(memory, "flush")
        if flush is not None:
            await self.lane.call(flush, self.deadline)

    async def store(self, memory: Memory, items: Sequence[Item]) -> list[Receipt]:
        """`add` and `flush`; a memory without flush() gets a moment until it finds the last one."""
        receipts = await self.add(memory, items)
        await self.flush(memory)
        if items and self._settles and method(memory, "flush") is None and self.has("search"):
            await self._settle(memory, items[-1])
        return receipts

    async def search(self, memory: Memory, query: str, k: int | None = None, *, lane: Lane | None = None, **options: Any) -> list[Hit]:
        """The hits, as they come."""
        found = await (lane or self.lane).call(memory.search, query, k or self.k, **options)
        if not isinstance(found, list | tuple) or not all(isinstance(hit, Hit) for hit in found):
            raise BadReply(f"search() gave {type(found).__name__}, expected a list of hits")
        mark = f"{self._token}-"
        return [replace(hit, source_ids=tuple(each.removeprefix(mark) for each in hit.source_ids)) for hit in found]

    async def finds(self, memory: Memory, query: str, *words: str) -> bool:
        """Whether a search finds something that says all of `words`."""
        return says(await self.search(memory, query), *words)

    async def found(self, memory: Memory, facts: Sequence[Fact]) -> list[Fact]:
        """Those of the facts that are found by their exact text."""
        return [fact for fact in facts if await self.finds(memory, fact.text, fact.word)]

    async def _settle(self, memory: Memory, item: Item) -> None:
        until = self.clock.monotonic() + _SETTLE
        while not whole(item.text, await self.search(memory, item.text)):
            if self.clock.monotonic() >= until:
                self._settles = False  # it does not find things so; once is enough to know
                return
            await self.clock.sleep(_LOOK)

    async def forget(self, memory: Memory) -> None:
        """Empty a namespace; `NotSupported` if that is not offered."""
        forget = method(memory, "delete_all", "reset")
        if forget is None:
            raise NotSupported("the memory offers no delete_all()")
        await self.lane.call(forget)

    async def ids_of(self, memory: Memory, receipt: Receipt, query: str, word: str) -> list[str]:
        """The memory's names of what it keeps of an item, from the receipt or from what it finds. `NotSupported` if there are none."""
        if receipt.memory_id is not None:
            return [receipt.memory_id]
        named = [hit.memory_id for hit in await self.search(memory, query) if word in hit.text.lower() and hit.memory_id is not None]
        if not named:
            raise NotSupported("neither receipts nor hits name an id of what is kept")
        return list(dict.fromkeys(named))

    async def stats(self, memory: Memory) -> dict[str, Any]:
        """What the memory tells of its size; nothing if it does not offer that."""
        stats = method(memory, "stats")
        if stats is None:
            return {}
        try:
            found = await self.lane.call(stats)
        except NotSupported:  # told in a file that has no such step
            return {}
        return found if isinstance(found, dict) else {}

    async def files(self, memory: Memory) -> list[Path]:
        """The files that the memory says it writes: `files()`, `stats()["path"]` or `path`, with all that begins with the same name."""
        told: Any = None
        if (listing := method(memory, "files")) is not None:
            told = await self.lane.call(listing)
        else:
            told = (await self.stats(memory)).get("path")
        if told is None:
            told = getattr(memory, "path", None)
        listed = told if isinstance(told, list | tuple | set | frozenset) else [told]
        return list(dict.fromkeys(each for path in listed if isinstance(path, str | Path) for each in _beside(Path(path))))


async def check_empty(room: Room) -> None:
    """`BadInput` if the memory has no namespaces and holds something: what a person keeps is nothing to experiment with."""
    if room.has("namespaces") or room.own is not None:
        return
    held = (await room.stats(room.base)).get("items")
    if not isinstance(held, int) and room.has("search"):
        held = len(await room.search(room.base, "What do you remember?", 1))
    if held:
        raise BadInput(
            f"memory {room.base.name!r} has no namespaces and is not empty; the operational suites add and delete, "
            "so give them a memory made for them"
        )


def _beside(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(each for each in path.rglob("*") if each.is_file())
    return sorted(each for each in path.parent.glob(f"{_literal(path.name)}*") if each.is_file())


def _literal(name: str) -> str:
    import glob

    return glob.escape(name)
