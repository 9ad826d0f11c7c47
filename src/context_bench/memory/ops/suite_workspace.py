"""The workspace of an operational suite: namespaces of its own, facts to store, and calls that end in time.

Nothing that was in the memory before is touched, and the namespaces are emptied afterwards. A call that outlives its
deadline raises `TimedOut`, and the suite goes on. Facts are drawn by seed; each holds a word of its own by which it is
recognised.
"""

from __future__ import annotations

import asyncio
import glob
import inspect
import queue
import random
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, BadReply, TimedOut
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.protocols import method
from context_bench.llm.servers import ModelServer
from context_bench.memory.protocol import Hit, Item, Memory, NotSupported, Receipt

_Job = tuple["Future[Any]", Callable[[], Any]]


class TimedCaller:
    """One caller of a memory: a thread of its own for plain functions, the running loop for async ones.

    A call that outlives `deadline` seconds is `TimedOut`. A thread that is stuck then is left behind (it cannot be
    ended, and does not keep the process alive) and the next call gets a new one.
    """

    def __init__(self, deadline: float, name: str = "ops") -> None:
        self.deadline, self._name = deadline, name
        self._work: queue.SimpleQueue[_Job | None] | None = None

    async def call(self, function: Callable[..., Any], *args: Any, seconds: float | None = None, **kwargs: Any) -> Any:
        """Call `function`, awaiting it if need be; its own errors are raised. `seconds`: another deadline for this
        call.
        """
        limit = self.deadline if seconds is None else seconds
        try:
            async with asyncio.timeout(limit) as timer:
                found = (
                    function(*args, **kwargs)
                    if inspect.iscoroutinefunction(function)
                    else await self._away(partial(function, *args, **kwargs))
                )
                return await found if inspect.isawaitable(found) else found
        except TimeoutError:
            if not timer.expired():  # the memory's own
                raise
            self.close()
            name = getattr(function, "__name__", type(function).__name__)
            raise TimedOut(f"{name}() had not come back after {limit:g} s") from None

    def close(self) -> None:
        """Let the thread end when it is done with what it does."""
        if self._work is not None:
            self._work.put(None)
            self._work = None

    async def _away(self, call: Callable[[], Any]) -> Any:
        if self._work is None:
            self._work = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(self._work,), name=self._name, daemon=True).start()
        done: Future[Any] = Future()
        self._work.put((done, call))
        return await asyncio.wrap_future(done)


def _serve(work: queue.SimpleQueue[_Job | None]) -> None:
    while (job := work.get()) is not None:
        done, call = job
        if not done.set_running_or_notify_cancel():
            continue
        try:
            done.set_result(call())
        except StopIteration as error:  # cannot be raised into a future
            done.set_exception(RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:  # handed over, whatever it is
            done.set_exception(error)


_NAMES = (
    "Maren",
    "Tobias",
    "Ilse",
    "Ravi",
    "Noor",
    "Pavel",
    "Chiara",
    "Dembe",
    "Yuki",
    "Linnea",
    "Oskar",
    "Salma",
    "Teodor",
    "Wanjiru",
)
_SURNAMES = (
    "Oduya",
    "Halvorsen",
    "Kessler",
    "Brandt",
    "Achterberg",
    "Moreau",
    "Lindqvist",
    "Takeda",
    "Varga",
    "Nkosi",
    "Solano",
    "Petrov",
)
_PLACES = (
    "boathouse", "granary", "lighthouse", "orchard", "foundry", "observatory", "vineyard", "quarry", "chapel", "sawmill", "greenhouse",  # noqa: E501
    "brewery", "stables", "windmill", "archive", "bakery", "dovecote", "cistern", "forge", "pavilion",
)  # fmt: skip
_FILLER = (
    "The ferry was late again and nobody minded.", "Rain is expected on the coast towards evening.", "They talked about bread for a while.",  # noqa: E501
    "A new path was cut through the hazel wood.", "The choir meets on alternate weeks in winter.", "Somebody had left the gate ajar.",  # noqa: E501
)  # fmt: skip
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True, slots=True)
class StoredFact:
    """A thing to remember. `word` occurs in no other fact; `question` asks for it without saying it; `topic` is name
    and place.
    """

    id: str
    word: str
    text: str
    question: str
    topic: str

    def item(self, time: str | None = None) -> Item:
        return Item(self.id, self.text, time=time)

    def with_word(self, word: str) -> str:
        """The same thing with another word."""
        return self.text.replace(self.word, word)


class Facts:
    """A source of facts. All words have one length, so that none is ever part of another."""

    def __init__(self, *seed: object) -> None:
        self._random = random.Random("/".join(map(str, seed)))
        self._words: set[str] = set()
        self._number = 0
        self._topics = [(name, surname, place) for name in _NAMES for surname in _SURNAMES for place in _PLACES]
        self._random.shuffle(self._topics)

    def word(self) -> str:
        """A word that this source has not given before: ten letters that can be spoken."""
        while True:
            pairs = (self._random.choice(_CONSONANTS) + self._random.choice(_VOWELS) for _ in range(5))
            word = "".join(pairs)
            if word not in self._words:
                self._words.add(word)
                return word

    def fact(self) -> StoredFact:
        """A new fact; who and where repeat only after thousands."""
        number, self._number = self._number, self._number + 1
        name, surname, place = self._topics[number % len(self._topics)]
        who, word = f"{name} {surname}", self.word()
        return StoredFact(
            f"f{number}",
            word,
            f"{who} opens the old {place} with the secret word {word}.",
            f"With which secret word does {who} open the old {place}?",
            f"{who} {place}",
        )

    def facts(self, number: int) -> list[StoredFact]:
        return [self.fact() for _ in range(number)]

    def neighbour(self, fact: StoredFact) -> StoredFact:
        """A true thing about the same person and place with a word of its own."""
        word = self.word()
        return StoredFact(
            f"{fact.id}n",
            word,
            f"{fact.topic}: the cat there is called {word}.",
            f"What is the cat called? {fact.topic}",
            fact.topic,
        )

    def long(self, characters: int, head: str, tail: str) -> str:
        """A text of about so many characters that begins with one word and ends with another."""
        parts = [f"The report opens with the word {head}."]
        size = len(parts[0])
        while size < characters - 40:
            parts.append(self._random.choice(_FILLER))
            size += len(parts[-1]) + 1
        return " ".join([*parts, f"The report closes with {tail}."])

    def pick(self, number: int) -> int:
        return self._random.randrange(number)


def says(hits: list[Hit], *words: str) -> bool:
    """True if a hit says all of the words."""
    return any(all(word in hit.text.lower() for word in words) for hit in hits)


def whole(text: str, hits: list[Hit]) -> bool:
    """True if a hit holds the whole text, however it is spaced."""
    wanted = " ".join(text.split())
    return any(wanted in " ".join(hit.text.split()) for hit in hits)


_SETTLE = 2.0  # seconds that a memory without flush() gets until what was added can be found
_LOOK = 0.02
_OURS = "cb-ops-"  # how the names of all our namespaces begin


@dataclass
class SuiteWorkspace:
    """The memory, namespaces and settings of a suite.

    `spec`: a spec from which a child process can make the memory, if there is one. `own`: a folder of ours that it lies
    in. `many`: how much is stored before everything of a user is deleted. `model`: a model of ours that the memory
    asks, if it does.
    """

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
    many: int = 1001
    model: ModelServer | None = None
    base: Memory = field(init=False)
    caller: TimedCaller = field(init=False)

    def __post_init__(self) -> None:
        self.caller = TimedCaller(self.deadline)
        self.facts = Facts(self.suite, self.seed)
        self._token = secrets.token_hex(4)  # two runs on one store never meet
        self._places: dict[str, Memory] = {}
        self._used: dict[str, None] = {}  # labels of places that were filled, in order
        self._open = False
        self._settles = True
        self._ours: dict[
            str, None
        ] = {}  # the memory's names of what was added, where they are the only way to take it back

    # --- opening and leaving ---

    async def enter(self) -> None:
        self.base = await self.caller.call(self.make)
        self._open = True

    async def place(self, label: str = "a") -> Memory:
        """A namespace of this suite's own; a memory without namespaces itself, which `check_empty` has found empty."""
        if label not in self._places:
            self._used[label] = None
            self._places[label] = (
                await self.act(self.base, "namespace", self.name_of(label)) if self.has("namespaces") else self.base
            )
        return self._places[label]

    async def named(self, name: str) -> Memory:
        """A namespace of this very name, which begins with `name_of`'s of a label; emptied in the end like the rest."""
        if name not in self._places:
            self._used[name] = None
            self._places[name] = await self.act(self.base, "namespace", name)
        return self._places[name]

    def name_of(self, label: str) -> str:
        return f"{_OURS}{self.suite}-{label}-{self._token}"

    async def reopen(self) -> None:
        """Close everything and open it again; `place` gives the same namespaces."""
        labels = list(self._places)
        await self.close()
        await self.enter()
        for label in labels:
            await self._place_of(label)

    async def _place_of(self, label: str) -> Memory:
        """The namespace of a label, or of a whole name that `named` was given."""
        return await (self.named(label) if label.startswith(_OURS) else self.place(label))

    async def close(self) -> None:
        """Close every handle; what is stored stays."""
        for memory in [
            *(each for each in self._places.values() if each is not self.base),
            *([self.base] if self._open else []),
        ]:
            close = method(memory, "aclose", "close")
            if close is not None:
                await self.caller.call(close)
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
                await self.forget(await self._place_of(label))
        for memory_id in self._ours:
            with suppress(Exception):
                await self.act(self.base, "delete", memory_id)
        with suppress(Exception):
            await self.close()
        self.caller.close()

    # --- what the memory can do ---

    def has(self, *capabilities: str) -> bool:
        """True if the memory says that it can do all of this."""
        return set(capabilities) <= set(self.base.capabilities)

    def needs(self, *capabilities: str) -> None:
        """`NotSupported` if the memory does not say that it can do all of this."""
        missing = [each for each in capabilities if each not in self.base.capabilities]
        if missing:
            raise NotSupported(f"the memory does not offer {', '.join(missing)}")

    def times(self, number: int, least: int = 2) -> int:
        return max(least, round(number * self.scale))

    # --- calls ---

    def handed(self, item: Item) -> Item:
        """The item under an id that no other run and no other suite hands over: some memories keep things under it."""
        return replace(item, id=f"{self._token}-{item.id}")

    def note(self, memory_ids: Iterable[str | None]) -> None:
        """Remember what to take back in the end, where a namespace cannot be emptied."""
        if self.has("delete") and not self.has("namespaces") and not self.has("delete_all"):
            self._ours.update(dict.fromkeys(each for each in memory_ids if each is not None))

    async def add(self, memory: Memory, items: Sequence[Item], caller: TimedCaller | None = None) -> list[Receipt]:
        """Hand items over, in calls of the size that the memory likes; one receipt an item, in order."""
        size = getattr(memory, "batch", 50) or max(1, len(items))
        handed = [self.handed(item) for item in items]
        receipts: list[Receipt] = []
        for start in range(0, len(items), size):
            found = await (caller or self.caller).call(memory.add, handed[start : start + size])
            if not isinstance(found, list | tuple) or not all(isinstance(each, Receipt) for each in found):
                raise BadReply(f"add() gave {type(found).__name__}, expected one Receipt an item")
            receipts += found
        self.note(receipt.memory_id for receipt in receipts)
        by_item = {receipt.item_id: receipt for receipt in receipts}
        missing = Receipt("", error="no receipt")
        return [
            replace(by_item.get(sent.id, missing), item_id=item.id) for item, sent in zip(items, handed, strict=True)
        ]

    async def act(self, memory: Memory, name: str, *args: Any, **more: Any) -> Any:
        """Call a method that is optional in the protocol."""
        return await self.caller.call(getattr(memory, name), *args, **more)

    async def flush(self, memory: Memory) -> None:
        flush = method(memory, "flush")
        if flush is not None:
            await self.caller.call(flush, self.deadline)

    async def store(self, memory: Memory, items: Sequence[Item]) -> list[Receipt]:
        """`add` and `flush`; a memory without flush() gets a moment until it finds the last one."""
        receipts = await self.add(memory, items)
        await self.flush(memory)
        if items and self._settles and method(memory, "flush") is None and self.has("search"):
            await self._settle(memory, items[-1])
        return receipts

    async def search(
        self, memory: Memory, query: str, k: int | None = None, *, caller: TimedCaller | None = None, **options: Any
    ) -> list[Hit]:
        found = await (caller or self.caller).call(memory.search, query, k or self.k, **options)
        if not isinstance(found, list | tuple) or not all(isinstance(hit, Hit) for hit in found):
            raise BadReply(f"search() gave {type(found).__name__}, expected a list of hits")
        mark = f"{self._token}-"
        return [replace(hit, source_ids=tuple(each.removeprefix(mark) for each in hit.source_ids)) for hit in found]

    async def finds(self, memory: Memory, query: str, *words: str) -> bool:
        """True if a search finds something that says all of `words`."""
        return says(await self.search(memory, query), *words)

    async def found(self, memory: Memory, facts: Sequence[StoredFact]) -> list[StoredFact]:
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
        await self.caller.call(forget)

    async def ids_of(self, memory: Memory, receipt: Receipt, query: str, word: str) -> list[str]:
        """The memory's names of what it keeps of an item, from the receipt or from what it finds. `NotSupported` if
        there are none.
        """
        if receipt.memory_id is not None:
            return [receipt.memory_id]
        named = [
            hit.memory_id
            for hit in await self.search(memory, query)
            if word in hit.text.lower() and hit.memory_id is not None
        ]
        if not named:
            raise NotSupported("neither receipts nor hits name an id of what is kept")
        return list(dict.fromkeys(named))

    async def stats(self, memory: Memory) -> dict[str, Any]:
        """The size that the memory reports; nothing if it does not offer that."""
        stats = method(memory, "stats")
        if stats is None:
            return {}
        try:
            found = await self.caller.call(stats)
        except NotSupported:  # told in a file that has no such step
            return {}
        return found if isinstance(found, dict) else {}

    async def files(self, memory: Memory) -> list[Path]:
        """The files that the memory says it writes: `files()`, `stats()["path"]` or `path`, with all that begins with
        the same name.
        """
        listing = method(memory, "files")
        named = await self.caller.call(listing) if listing is not None else (await self.stats(memory)).get("path")
        if named is None:
            named = getattr(memory, "path", None)
        paths = named if isinstance(named, list | tuple | set | frozenset) else [named]
        return list(
            dict.fromkeys(file for path in paths if isinstance(path, str | Path) for file in _beside(Path(path)))
        )


async def check_empty(workspace: SuiteWorkspace) -> None:
    """`BadInput` if the memory has no namespaces and holds something: what a person keeps is nothing to experiment
    with.
    """
    if workspace.has("namespaces") or workspace.own is not None:
        return
    held = (await workspace.stats(workspace.base)).get("items")
    if not isinstance(held, int) and workspace.has("search"):
        held = len(await workspace.search(workspace.base, "What do you remember?", 1))
    if held:
        raise BadInput(
            f"memory {workspace.base.name!r} has no namespaces and is not empty; the operational suites add and "
            "delete, "
            "so give them a memory made for them"
        )


def _beside(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(each for each in path.rglob("*") if each.is_file())
    return sorted(each for each in path.parent.glob(f"{glob.escape(path.name)}*") if each.is_file())
