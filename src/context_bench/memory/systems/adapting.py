"""Objects of other shapes as a `Memory`: the documented `Client` and `MemorySystem`, and whatever has something like
add and search.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_bench.core.errors import BadInput, BadReply, ContextBenchError, Stop, UnknownName
from context_bench.core.lazy import registry
from context_bench.core.numbers import real
from context_bench.core.plugins import PluginSpec, check_options, load_object, parse_spec
from context_bench.core.protocols import call, fingerprint, method, misfit, recorded_name
from context_bench.memory.protocol import Capability, Hit, Item, Memory, NotSupported, Receipt
from context_bench.memory.systems import BUILTINS, SCHEMES
from context_bench.memory.systems.baselines import dated_text

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
    given = _named(found)
    if not isinstance(found, type):
        if isinstance(getattr(found, "capabilities", None), frozenset | set) and isinstance(found, Memory):
            _check(found.name, found.add, ["items"], "add(items), which gets a list of Item")
            _check(found.name, found.search, ["query", 1], "search(query, k, *, as_of=None)", as_of=None)
            return found
        if method(found, "ingest") and method(found, "query"):
            _check(given, found.ingest, ["turns"], "ingest(turns), which gets a list of messages")
            _check(given, found.query, ["question"], "query(question)")
            return Answering(found, name)
        if method(found, *_STORE) and method(found, *_SEARCH):
            return Adapted(found, name)
    raise BadInput(
        f"{given} is not a memory: expected add/store and search/recall (or ingest and query); "
        f"it has: {', '.join(_public(found)) or 'nothing'}"
    )


def as_answer(reply: Any, memory: Any = None) -> Answer:
    """An `Answer`, whatever form it was given in; raises `BadReply` for what holds no text."""
    if isinstance(reply, Answer):
        return reply
    text, tokens = reply, None
    if not isinstance(reply, str):
        text, tokens = _part(reply, ("answer", "text", "response")), _part(reply, ("context_tokens",))
    if not isinstance(text, str):
        raise BadReply(f"the memory answered with {type(reply).__name__}, expected text or an object with .answer")
    if tokens is None:
        tokens = getattr(memory, "last_context_tokens", None)
    return Answer(text, tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None)


def as_hits(reply: Any) -> list[Hit]:
    """A search's result as hits: a list of texts, dicts, objects or (text, score) pairs, or something that holds such a
    list.
    """
    if isinstance(reply, str):
        return [Hit(line) for line in reply.splitlines() if line.strip()]
    if not isinstance(reply, list | tuple):
        reply = _part(reply, _LISTS)
    if not isinstance(reply, list | tuple):
        raise BadReply(f"the memory's search gave {type(reply).__name__}, expected a list of memories")
    return [_as_hit(record) for record in reply]


def _as_hit(record: Any) -> Hit:
    if isinstance(record, Hit):
        return record
    if isinstance(record, str):
        return Hit(record)
    if isinstance(record, tuple | list) and len(record) == 2:
        return replace(_as_hit(record[0]), score=real(record[1]))
    text = _part(record, _TEXT)
    if not isinstance(text, str):
        raise BadReply(
            f"a memory found has no text: {type(record).__name__} with {', '.join(_public(record)) or 'nothing'}; "
            f"looked for {', '.join(_TEXT)}"
        )
    about = _part(record, ("metadata",))
    memory_id, when = _part(record, _ID), _part(record, _TIME) or _part(about, _TIME)
    return Hit(
        text,
        real(_part(record, _SCORE)),
        _sources(record) or _sources(about),
        None if memory_id is None else str(memory_id),
        None if when is None else str(when),
    )


class Wrapped:
    """An object of another shape as a memory. It keeps the object's name, fingerprint, namespaces and wait."""

    def __init__(self, inner: Any, name: str | None = None) -> None:
        self._inner = self.adapted = inner
        self.name = name or _named(inner)
        if method(inner, "namespace"):
            self.namespace: Callable[[str], Memory] = self._isolated

    def fingerprint(self) -> dict[str, Any]:
        """The object's own; one that has no name is known by its class."""
        inner = self._inner
        if method(inner, "fingerprint") or hasattr(inner, "name"):
            return fingerprint(inner)
        return {"class": recorded_name(type(inner)), "name": self.name, "version": getattr(inner, "version", None)}

    async def flush(self, seconds: float | None = None) -> None:
        """Wait until what was added can be found, if the object offers that; it is given the seconds if it asks."""
        flush = method(self._inner, "flush")
        if flush is not None:
            await (call(flush) if misfit(flush, 0) else call(flush, seconds))

    def _offer(self, methods: Mapping[str, Sequence[str]]) -> None:
        """Give this memory those methods that the object has under one of their names."""
        for name, names in methods.items():
            if (own := method(self._inner, *names)) is not None:
                setattr(self, name, own)

    def _isolated(self, name: str) -> Memory:
        return as_memory(self._inner.namespace(name), self.name)


class Adapted(Wrapped):
    """A memory with something like add and search. What else it offers under the usual names is offered on."""

    batch: int | None = 1  # the object takes one text at a time

    def __init__(self, inner: Any, name: str | None = None) -> None:
        super().__init__(inner, name)
        add, search = method(inner, *_STORE), method(inner, *_SEARCH)
        assert add is not None
        assert search is not None
        self._add, self._search = add, search
        self._about = _parameter(add, ("metadata",))
        self._limit, self._as_of = _parameter(search, _LIMIT), _parameter(search, ("as_of",))
        expected = "one that takes a text, as in add(text) or add(text, metadata=None)"
        _check(self.name, add, ["text"], expected, **({self._about: {}} if self._about else {}))
        positions, keywords = self._asked(1)
        expected = "one that takes a question, as in search(query, k)"
        _check(self.name, search, ["query", *positions], expected, **keywords)
        offered: set[Capability] = {name for name, names in _OFFERED.items() if method(inner, *names)}
        self.capabilities = frozenset(
            offered | {"add", "search"} | ({"metadata", "source_ids"} if self._about else set())
        )

        self._offer({name: _OFFERED[name] for name in ("delete", "update", "stats", "delete_all")})
        self._offer({name: (name,) for name in ("relate", "related", "native", "begin")})
        for shown, read in (("list_all", as_hits), ("between", as_hits), ("get", _one_hit)):
            if (own := method(inner, shown)) is not None:
                setattr(self, shown, _read_as(own, read))
        if (owner := getattr(inner, "owner", None)) is not None:
            self.owner = owner
        self._offer({"reset": ("reset", "delete_all", "clear"), "close": ("aclose", "close")})
        granularity = getattr(inner, "granularity", None)
        self.granularity = granularity if isinstance(granularity, str) else "turn"

    async def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Hand the items over one by one. An object that raises, or says `False`, has not stored the item."""
        receipts = []
        for item in items:
            try:
                reply = await call(self._add, dated_text(item), **self._metadata(item))
            except Stop:
                raise
            except Exception as error:  # of an object that we know nothing about
                receipts.append(Receipt(item.id, error=f"{type(error).__name__}: {error}"[:500]))
            else:
                receipts.append(Receipt(item.id, _id_of(reply), "the store said no" if reply is False else None))
        return receipts

    async def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        positions, keywords = self._asked(k)
        if self._as_of and as_of is not None:
            keywords[self._as_of] = as_of
        return as_hits(await call(self._search, query, *positions, **keywords))

    def _asked(self, k: int) -> tuple[list[int], dict[str, Any]]:
        """The number of hits as the object takes it: by position, or by name."""
        if self._limit:
            return [], {self._limit: k}
        return ([k] if _positional(self._search) > 1 else []), {}

    def _metadata(self, item: Item) -> dict[str, Any]:
        if not self._about:
            return {}
        facts = {
            **item.metadata,
            "source_id": item.id,
            **{name: getattr(item, name) for name in ("role", "speaker", "time", "session")},
        }
        return {self._about: {name: value for name, value in facts.items() if value is not None}}


def _read_as(own: Callable[..., Any], read: Callable[[Any], Any]) -> Callable[..., Any]:
    """The object's method, its result read as ours."""

    async def asked(*args: Any) -> Any:
        return read(await call(own, *args))

    return asked


def _one_hit(record: Any) -> Hit | None:
    return None if record is None else _as_hit(record)


#: Capability → names of the method that offers it.
_OFFERED: dict[Capability, tuple[str, ...]] = {
    "delete": ("delete", "forget"),
    "update": ("update",),
    "stats": ("stats",),
    "namespaces": ("namespace",),
    "delete_all": ("delete_all", "clear", "reset"),
    "list": ("list_all",),
    "by_time": ("between",),
    "by_id": ("get",),
    "relations": ("related",),
    "begin": ("begin",),
}


class Answering(Wrapped):
    """A memory that answers questions itself and shows nothing of what it found. It gets the whole conversation at
    once.

    A turn is `{"role", "content"}`; content begins with its date and speaker where they are known, because these two
    fields are all that is documented. `timestamp`, `speaker` and `session_id` are there as well, for those who read
    them.
    """

    batch: int | None = None

    def __init__(self, inner: Any, name: str | None = None) -> None:
        super().__init__(inner, name)
        namespaces = {"namespaces"} if method(inner, "namespace") else set[str]()
        self.capabilities = frozenset({"add", "answer"} | namespaces)
        self._offer({"reset": ("reset",), "close": ("aclose", "close")})

    async def add(self, items: Sequence[Item]) -> list[Receipt]:
        """`ingest` all turns; what it raises is raised."""
        await call(self._inner.ingest, [_turn(item) for item in items])
        return [Receipt(item.id) for item in items]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        raise NotSupported(f"{self.name} answers itself and shows no hits")

    async def answer(self, question: str) -> Answer:
        return as_answer(await call(self._inner.query, question), self._inner)


def _check(name: str, function: Callable[..., Any], args: Sequence[Any], expected: str, **kwargs: Any) -> None:
    """`BadInput` for a method that cannot be called as this package does: better said before anything is stored."""
    if (why := misfit(function, *args, **kwargs)) is not None:
        raise BadInput(f"memory {name!r} cannot be called: {why}; expected {expected}")


def _turn(item: Item) -> dict[str, Any]:
    more = {"timestamp": item.time, "speaker": item.speaker, "session_id": item.session}
    text = f"{item.speaker}: {item.text}" if item.speaker else item.text
    content = f"[{item.time}] {text}" if item.time else text
    return {"role": item.role, "content": content, **{name: value for name, value in more.items() if value is not None}}


def _parameter(function: Callable[..., Any], names: Sequence[str]) -> str | None:
    """The first of `names` that `function` takes by keyword."""
    parameters = _parameters(function) or {}
    by_keyword = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return next((name for name in names if name in parameters and parameters[name].kind in by_keyword), None)


def _positional(function: Callable[..., Any]) -> int:
    """Count the arguments that `function` needs by position; of a built-in without signature the documented two."""
    parameters = _parameters(function)
    if parameters is None:
        return 2
    return sum(
        each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
        for each in parameters.values()
    )


def _part(record: Any, names: Sequence[str]) -> Any:
    """The first of `names` that a mapping or an object has, and that is not empty."""
    values = (record.get(name) if isinstance(record, Mapping) else getattr(record, name, None) for name in names)
    return next((value for value in values if value is not None and not callable(value)), None)


def _sources(record: Any) -> tuple[str, ...]:
    many = _part(record, ("source_ids",))
    if isinstance(many, list | tuple | set | frozenset):
        return tuple(map(str, many))
    source = _part(record, ("source_id",))
    return () if source is None else (str(source),)


def _id_of(reply: Any) -> str | None:
    if isinstance(reply, str):
        return reply
    ident = None if reply is None or isinstance(reply, bool | int | float) else _part(reply, _ID)
    return None if ident is None else str(ident)


def _named(thing: Any) -> str:
    name = getattr(thing, "name", None)
    return name if isinstance(name, str) and name else (thing if isinstance(thing, type) else type(thing)).__name__


def _public(record: Any) -> list[str]:
    names = list(record) if isinstance(record, Mapping) else dir(record)
    return [str(name) for name in names if not str(name).startswith("_")][:20]


_WAY = "give it one of them, or name its class (py:module:Class), of which each conversation gets a new one"


def is_separable(memory: Memory) -> bool:
    """True if one conversation can be kept from the next: by a namespace of its own, or by emptying the memory between
    them.
    """
    if memory.capabilities & {"namespaces", "delete_all"}:
        return True
    return method(memory, "reset", "delete_all") is not None and bool(getattr(memory, "can_reset", True))


def check_separable(memory: Memory, name: str) -> None:
    """`BadInput` for a memory in which one conversation's items would be found in the next one, with what to add."""
    if not is_separable(memory):
        way = getattr(memory, "way_apart", _WAY)
        raise BadInput(
            f"memory {name!r} has neither namespace(), reset() nor delete_all(), so what one conversation told it "
            "would be found in the "
            f"next one: {way}; or ask about one conversation alone (-n 1, in Python max_examples=1)"
        )


def separable(make: Callable[[], Memory]) -> Memory:
    """Call `make`; where its memory cannot be kept apart and `make` gives another object each time, each namespace gets
    a new one.
    """
    memory = make()
    if is_separable(memory):
        return memory
    inner, other = (getattr(each, "adapted", each) for each in (memory, make()))
    return memory if other is inner else Anew(make, memory)


class Anew:
    """A memory that has neither `namespace()` nor `reset()`, made anew for each namespace; all else is that of its
    instance.
    """

    def __init__(self, make: Callable[[], Memory], memory: Memory) -> None:
        self._make, self._memory = make, memory
        self.name = memory.name
        self.capabilities = memory.capabilities | {"namespaces"}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # nothing of its own is missing once it is made
            raise AttributeError(name)
        return getattr(self._memory, name)

    def add(self, items: Any) -> Any:
        return self._memory.add(items)

    def search(self, query: str, k: int, *, as_of: str | None = None, **more: Any) -> Any:
        return self._memory.search(query, k, as_of=as_of, **more)

    def fingerprint(self) -> dict[str, Any]:
        return fingerprint(self._memory)

    def namespace(self, name: str) -> Anew:
        """A new instance, which knows nothing yet."""
        return Anew(self._make, self._make())


def make_memory(
    spec: Any,
    *,
    relay: str | None = None,
    model: str | None = None,
    api_key: str | None = None,
    prices: Any = None,
    limiter: Any = None,
) -> Memory:
    """The memory that `spec` names; an object is adapted as it is. A class of the user's whose instances can be neither
    separated nor emptied is instantiated anew for each namespace.

    What else is given goes to those whose constructor takes it, unless the spec itself says otherwise. Names registered
    as "memory" come before the built-ins. Raises `UnknownName`, `BadInput`, `MissingExtra`.
    """
    if not isinstance(spec, str):
        return as_memory(spec)
    parsed = parse_spec(spec, SCHEMES)
    given = {"relay": relay, "model": model, "api_key": api_key, "prices": prices, "limiter": limiter}
    if parsed.scheme in SCHEMES:
        return as_memory(_called(load_object(SCHEMES[parsed.scheme]), parsed, (parsed.target,), given))
    target = _target(parsed)
    if isinstance(target, type) or inspect.isroutine(target):
        ours = parsed.scheme != "py" and registry.find("memory", parsed.target) is None
        return _made(target, parsed, given) if ours else separable(lambda: _made(target, parsed, given))
    if parsed.options:
        raise BadInput(f"{spec!r} is an object of type {type(target).__name__}, which takes no options")
    return as_memory(target)


def _made(target: Callable[..., Any], spec: PluginSpec, given: dict[str, Any]) -> Memory:
    return as_memory(_called(target, spec, (), given))


def calls_models(spec: Any) -> bool:
    """True if the memory that `spec` names calls models by its own means, so that only a tap sees what it spends; it is
    not made for that.

    A class or object says so by `own_calls`: true or false, or a function of the options. Those told in files do it
    where we cannot see.
    """
    if not isinstance(spec, str):
        return bool(getattr(spec, "own_calls", False))
    parsed = parse_spec(spec, SCHEMES)
    if parsed.scheme in SCHEMES:
        return False
    own = getattr(_target(parsed), "own_calls", False)
    return bool(own(parsed.options)) if callable(own) else bool(own)


def _target(spec: PluginSpec) -> Any:
    if spec.scheme == "py":
        return load_object(spec.target)
    found = registry.find("memory", spec.target) if spec.scheme == "name" else None
    if found is not None:
        return found
    if spec.target not in BUILTINS:
        raise UnknownName("memory", spec.target, [*BUILTINS, *registry.names("memory")])
    return load_object(BUILTINS[spec.target])


def _called(make: Callable[..., Any], spec: PluginSpec, first: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Call `make` with the options, and with what this command was given for everybody."""
    hint = " How many hits are asked for is said by --k." if "k" in spec.options else ""
    taken = _parameters(make) or {}
    check_options("memory", spec, make, {*given, "space", *list(taken)[: len(first)]}, hint)
    options = {name: value for name, value in given.items() if value is not None and name in taken} | spec.options
    try:
        return make(*first, **options)
    except ContextBenchError:
        raise
    except TypeError as error:
        raise BadInput(f"memory {spec.text!r} could not be made: {error}") from error


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """The parameters by name; `None` of a built-in without signature."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
