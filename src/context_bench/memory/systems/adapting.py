"""Objects of other shapes as a `Memory`: the documented `Client` and `MemorySystem`, and whatever has something like
add and search.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.core.calling import call, fingerprint, method, misfit, recorded_name
from context_bench.core.errors import BadInput, BadReply, Stop
from context_bench.core.numbers import real
from context_bench.memory.protocol import Hit, Item, Memory, NotSupported, Receipt
from context_bench.memory.systems.baselines import spoken

_STORE = ("add", "store", "insert", "remember")
_SEARCH = ("search", "recall", "retrieve", "query")
_LIMIT = ("k", "limit", "top_k", "n", "n_results", "num_results", "max_results", "size")
_LISTS = ("results", "memories", "hits", "items", "documents", "data")
_TEXT = ("text", "memory", "content", "page_content", "document", "fact", "value")
_SCORE = ("score", "similarity", "relevance")
_ID = ("memory_id", "id", "_id", "uuid")
_TIME = ("time", "timestamp", "created_at", "date")


@dataclass(frozen=True, slots=True)
class Answer:
    """Reply of a memory that answers itself. `context_tokens`: how much it read for it, as it counts; `None` = it does
    not tell.
    """

    text: str
    context_tokens: int | None = None


def as_memory(found: Any, name: str | None = None) -> Memory:
    """`found` as a `Memory`; one that is a memory already is given back as it is.

    Documented shapes: `reset/store(content)/recall(query, limit)`, and `reset/ingest(turns)/query(question)`, which
    answers itself (text, or an object with `answer` and `context_tokens`; else its attribute `last_context_tokens`).
    Else the first of add, store, insert, remember and of search, recall, retrieve, query. Methods may be plain or
    async. `BadInput` for what fits none.
    """
    if _is_memory(found):
        memory: Memory = found
        _checked(memory.name, memory.add, ["items"], "add(items), which gets a list of Item")
        _checked(memory.name, memory.search, ["query", 1], "search(query, k, *, as_of=None)", as_of=None)
        return memory
    if not isinstance(found, type):
        if method(found, "ingest") and method(found, "query"):
            _checked(_named(found), found.ingest, ["turns"], "ingest(turns), which gets a list of messages")
            _checked(_named(found), found.query, ["question"], "query(question)")
            return Answering(found, name)
        if method(found, *_STORE) and method(found, *_SEARCH):
            return Adapted(found, name)
    raise BadInput(
        f"{_named(found)} is not a memory: expected add/store and search/recall (or ingest and query); "
        f"it has: {', '.join(_public(found)) or 'nothing'}"
    )


def as_answer(found: Any, memory: Any = None) -> Answer:
    """An answer in the house's form, whatever form it was given in; raises `BadReply` for what holds no text."""
    if isinstance(found, Answer):
        return found
    text, tokens = found, None
    if not isinstance(found, str):
        text, tokens = _part(found, ("answer", "text", "response")), _part(found, ("context_tokens",))
    if not isinstance(text, str):
        raise BadReply(f"the memory answered with {type(found).__name__}, expected text or an object with .answer")
    if tokens is None:
        tokens = getattr(memory, "last_context_tokens", None)
    return Answer(text, tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None)


def as_hits(found: Any) -> list[Hit]:
    """A search's result as hits: a list of texts, dicts, objects or (text, score) pairs, or something that holds such a
    list.
    """
    if isinstance(found, str):
        return [Hit(line) for line in found.splitlines() if line.strip()]
    if not isinstance(found, list | tuple):
        found = _part(found, _LISTS)
    if not isinstance(found, list | tuple):
        raise BadReply(f"the memory's search gave {type(found).__name__}, expected a list of memories")
    return [as_hit(each) for each in found]


def as_hit(found: Any) -> Hit:
    """One memory found, as a hit; raises `BadReply` for what holds no text."""
    if isinstance(found, Hit):
        return found
    if isinstance(found, str):
        return Hit(found)
    if isinstance(found, tuple | list) and len(found) == 2:
        one, score = found
        inner = as_hit(one)
        return Hit(inner.text, real(score), inner.source_ids, inner.memory_id, inner.time)
    text = _part(found, _TEXT)
    if not isinstance(text, str):
        raise BadReply(
            f"a memory found has no text: {type(found).__name__} with {', '.join(_public(found)) or 'nothing'}; "
            f"looked for {', '.join(_TEXT)}"
        )
    about = _part(found, ("metadata",))
    memory_id, when = _part(found, _ID), _part(found, _TIME) or _part(about, _TIME)
    return Hit(
        text,
        real(_part(found, _SCORE)),
        _sources(found) or _sources(about),
        None if memory_id is None else str(memory_id),
        None if when is None else str(when),
    )


def told(item: Item) -> str:
    """An item for a memory that takes nothing but text: when and by whom it was said is kept in it."""
    return f"[{item.time}] {spoken(item)}" if item.time else spoken(item)


class Adapted:
    """A memory with something like add and search. What else it offers under the usual names is offered on."""

    batch: int | None = 1  # the object takes one text at a time

    def __init__(self, inner: Any, name: str | None = None) -> None:
        self._inner = self.adapted = inner
        self.name = name or _named(inner)
        add, search = method(inner, *_STORE), method(inner, *_SEARCH)
        assert add is not None
        assert search is not None
        self._add, self._search = add, search
        self._about = _parameter(add, ("metadata",))
        self._limit, self._as_of = _parameter(search, _LIMIT), _parameter(search, ("as_of",))
        _checked(
            self.name,
            add,
            ["text"],
            "one that takes a text, as in add(text) or add(text, metadata=None)",
            **self._told_to_add(),
        )
        _checked(
            self.name,
            search,
            ["query", *self._position()],
            "one that takes a question, as in search(query, k)",
            **self._most(1),
        )
        offered = {"add", "search"}
        for capability, names in (
            ("delete", ("delete", "forget")),
            ("update", ("update",)),
            ("stats", ("stats",)),
            ("namespaces", ("namespace",)),
        ):
            if method(inner, *names):
                offered.add(capability)
        if method(inner, "delete_all", "clear", "reset"):
            offered.add("delete_all")
        if self._about:
            offered |= {"metadata", "source_ids"}
        self.capabilities = frozenset(offered)
        _offer(self, inner, {"delete": ("delete", "forget"), "update": ("update",), "stats": ("stats",)})
        _offer(self, inner, {"delete_all": ("delete_all", "clear", "reset"), "reset": ("reset", "delete_all", "clear")})
        _offer(self, inner, {"close": ("aclose", "close")})
        if "namespaces" in offered:
            self.namespace: Callable[[str], Memory] = self._twin
        granularity = getattr(inner, "granularity", None)
        self.granularity = granularity if isinstance(granularity, str) else "turn"

    def fingerprint(self) -> dict[str, Any]:
        """The object's own."""
        return _identity(self._inner, self.name)

    async def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Hand the items over one by one. An object that raises, or says `False`, has not stored the item."""
        receipts = []
        for item in items:
            try:
                said = await call(self._add, told(item), **self._facts(item))
            except Stop:
                raise
            except Exception as error:  # of an object that we know nothing about
                receipts.append(Receipt(item.id, error=f"{type(error).__name__}: {error}"[:500]))
                continue
            error_text = "the store said no" if said is False else None
            receipts.append(Receipt(item.id, _id_of(said), error_text))
        return receipts

    async def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """Hits of the object, read by `as_hits`."""
        options = self._most(k)
        if self._as_of and as_of is not None:
            options[self._as_of] = as_of
        return as_hits(await call(self._search, query, *self._position(k), **options))

    def _most(self, k: int) -> dict[str, Any]:
        """The number of hits, where it is asked for by name."""
        return {self._limit: k} if self._limit else {}

    def _position(self, k: int = 1) -> list[int]:
        """The number of hits, where it is asked for by position."""
        return [k] if self._limit is None and _positional(self._search) > 1 else []

    def _told_to_add(self) -> dict[str, Any]:
        return {self._about: {}} if self._about else {}

    async def flush(self, seconds: float | None = None) -> None:
        """Wait until what was added can be found, if the object offers that."""
        await _flush(self._inner, seconds)

    def _facts(self, item: Item) -> dict[str, Any]:
        if not self._about:
            return {}
        facts = {
            "source_id": item.id,
            "role": item.role,
            "speaker": item.speaker,
            "time": item.time,
            "session": item.session,
        }
        return {self._about: {name: value for name, value in facts.items() if value is not None}}

    def _twin(self, name: str) -> Memory:
        return as_memory(self._inner.namespace(name), self.name)


class Answering:
    """A memory that answers questions itself and shows nothing of what it found. It gets the whole conversation at
    once.

    A turn is `{"role", "content"}`; content begins with its date and speaker where they are known, because these two
    fields are all that is documented. `timestamp`, `speaker` and `session_id` are there as well, for those who read
    them.
    """

    batch: int | None = None

    def __init__(self, inner: Any, name: str | None = None) -> None:
        self._inner = self.adapted = inner
        self.name = name or _named(inner)
        offered = {"add", "answer"} | ({"namespaces"} if method(inner, "namespace") else set())
        self.capabilities = frozenset(offered)
        _offer(self, inner, {"reset": ("reset",), "close": ("aclose", "close")})
        if "namespaces" in offered:
            self.namespace: Callable[[str], Memory] = self._twin

    def fingerprint(self) -> dict[str, Any]:
        """The object's own."""
        return _identity(self._inner, self.name)

    async def add(self, items: Sequence[Item]) -> list[Receipt]:
        """`ingest` all turns; what it raises is raised."""
        await call(self._inner.ingest, [_turn(item) for item in items])
        return [Receipt(item.id) for item in items]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """It does not show what it finds."""
        raise NotSupported(f"{self.name} answers itself and shows no hits")

    async def flush(self, seconds: float | None = None) -> None:
        """Wait until what was added is taken in, if the object offers that."""
        await _flush(self._inner, seconds)

    async def answer(self, question: str) -> Answer:
        """The answer of `query`."""
        return as_answer(await call(self._inner.query, question), self._inner)

    def _twin(self, name: str) -> Memory:
        return as_memory(self._inner.namespace(name), self.name)


async def _flush(inner: Any, seconds: float | None) -> None:
    """Wait as `inner` waits, told how long if it asks."""
    flush = method(inner, "flush")
    if flush is not None:
        await (call(flush, seconds) if _accepts_one(flush) else call(flush))


def _checked(name: str, function: Callable[..., Any], args: Sequence[Any], expected: str, **kwargs: Any) -> None:
    """`BadInput` for a method that cannot be called as this house does: better said before anything is stored."""
    if (why := misfit(function, *args, **kwargs)) is not None:
        raise BadInput(f"memory {name!r} cannot be called: {why}; expected {expected}")


def _turn(item: Item) -> dict[str, Any]:
    more = {"timestamp": item.time, "speaker": item.speaker, "session_id": item.session}
    said = f"{item.speaker}: {item.text}" if item.speaker else item.text
    content = f"[{item.time}] {said}" if item.time else said
    return {"role": item.role, "content": content, **{name: value for name, value in more.items() if value is not None}}


def _is_memory(found: Any) -> bool:
    return (
        isinstance(getattr(found, "capabilities", None), frozenset | set)
        and isinstance(found, Memory)
        and not isinstance(found, type)
    )


def _offer(adapter: Any, inner: Any, wanted: Mapping[str, Sequence[str]]) -> None:
    """Give `adapter` those methods that `inner` has under one of the names."""
    for name, names in wanted.items():
        if (found := method(inner, *names)) is not None:
            setattr(adapter, name, found)


def _identity(inner: Any, name: str) -> dict[str, Any]:
    """The fingerprint of an object that may have no name."""
    if method(inner, "fingerprint") or hasattr(inner, "name"):
        return fingerprint(inner)
    kind = type(inner)
    return {"class": recorded_name(kind), "name": name, "version": getattr(inner, "version", None)}


def _parameter(function: Callable[..., Any], names: Sequence[str]) -> str | None:
    """The first of `names` that `function` takes by keyword."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return next((name for name in names if name in parameters and parameters[name].kind in by_keyword), None)


def _positional(function: Callable[..., Any]) -> int:
    """Count the arguments that `function` needs or takes by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2  # built-ins: the documented (query, limit)
    return sum(
        each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
        for each in parameters
    )


def _accepts_one(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(0)
    except (TypeError, ValueError):
        return False
    return True


def _part(found: Any, names: Sequence[str]) -> Any:
    """The first of `names` that a mapping or an object has, and that is not empty."""
    for name in names:
        value = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        if value is not None and not callable(value):
            return value
    return None


def _sources(found: Any) -> tuple[str, ...]:
    many = _part(found, ("source_ids",))
    if isinstance(many, list | tuple | set | frozenset):
        return tuple(map(str, many))
    one = _part(found, ("source_id",))
    return () if one is None else (str(one),)


def _id_of(said: Any) -> str | None:
    if isinstance(said, str):
        return said
    found = None if said is None or isinstance(said, bool | int | float) else _part(said, _ID)
    return None if found is None else str(found)


def _named(found: Any) -> str:
    name = getattr(found, "name", None)
    return name if isinstance(name, str) and name else (found if isinstance(found, type) else type(found)).__name__


def _public(found: Any) -> list[str]:
    names = list(found) if isinstance(found, Mapping) else dir(found)
    return [str(name) for name in names if not str(name).startswith("_")][:20]
