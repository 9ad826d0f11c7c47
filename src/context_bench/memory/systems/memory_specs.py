"""Make a memory from its spec: `bm25`, `embedding:recency=0.2`, `py:pkg.mod:Class`, `cli:…`, `http:…`, `mcp:…`.

A memory must keep conversations apart, by a namespace or by emptying. Where only a class is named and it can do
neither, each conversation gets a new instance (`Anew`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from context_bench.core import calling
from context_bench.core.errors import BadInput, ContextBenchError, UnknownName
from context_bench.core.lazy import registry
from context_bench.core.plugins import PluginSpec, check_options, load_object, parse_spec
from context_bench.memory.protocol import Memory
from context_bench.memory.systems import BUILTINS, SCHEMES
from context_bench.memory.systems.adapting import as_memory

_WAY = "give it one of them, or name its class (py:module:Class), of which each conversation gets a new one"


def is_separable(memory: Memory) -> bool:
    """True if one conversation can be kept from the next: by a namespace of its own, or by emptying the memory between
    them.
    """
    if memory.capabilities & {"namespaces", "delete_all"}:
        return True
    return calling.method(memory, "reset", "delete_all") is not None and bool(getattr(memory, "can_reset", True))


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
    other = make()
    return memory if _inner(other) is _inner(memory) else Anew(make, memory)


def _inner(memory: Memory) -> Any:
    return getattr(memory, "adapted", memory)


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
        """Remember the items."""
        return self._memory.add(items)

    def search(self, query: str, k: int, *, as_of: str | None = None, **more: Any) -> Any:
        """Hits of this instance."""
        return self._memory.search(query, k, as_of=as_of, **more)

    def fingerprint(self) -> dict[str, Any]:
        """That of what is made."""
        return calling.fingerprint(self._memory)

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
    parsed = parse_spec(spec)
    given = {"relay": relay, "model": model, "api_key": api_key, "prices": prices, "limiter": limiter}
    if parsed.scheme in ("cli", "http", "mcp"):
        if parsed.scheme not in SCHEMES:
            raise BadInput(f"{spec!r}: {parsed.scheme}: is not a way to name a memory here")
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
    parsed = parse_spec(spec)
    if parsed.scheme in ("cli", "http", "mcp"):
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
    check_options("memory", spec, make, {*given, "space", *list(_parameters(make))[: len(first)]}, hint)
    taken = _parameters(make)
    options = {name: value for name, value in given.items() if value is not None and name in taken} | spec.options
    try:
        return make(*first, **options)
    except ContextBenchError:
        raise
    except TypeError as error:
        raise BadInput(f"memory {spec.text!r} could not be made: {error}") from error


def _parameters(make: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(make).parameters)
    except (TypeError, ValueError):
        return []
