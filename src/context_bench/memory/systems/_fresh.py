"""Memories that know nothing of other conversations: which can be kept so, and a new instance each where only a class was named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from context_bench.core import calling
from context_bench.core.errors import BadInput
from context_bench.memory.protocol import Memory

_WAY = "give it one of them, or name its class (py:module:Class), of which each conversation gets a new one"


def is_separable(memory: Memory) -> bool:
    """Whether one conversation can be kept from the next: by a namespace of its own, or by emptying the memory between them."""
    if memory.capabilities & {"namespaces", "delete_all"}:
        return True
    return calling.method(memory, "reset", "delete_all") is not None and bool(getattr(memory, "can_reset", True))


def check_separable(memory: Memory, name: str) -> None:
    """`BadInput` for a memory in which one conversation's items would be found in the next one, with what to add."""
    if not is_separable(memory):
        way = getattr(memory, "way_apart", _WAY)
        raise BadInput(
            f"memory {name!r} has neither namespace(), reset() nor delete_all(), so what one conversation told it would be found in the "
            f"next one: {way}; or ask about one conversation alone (-n 1, in Python max_examples=1)"
        )


def separable(make: Callable[[], Memory]) -> Memory:
    """What `make` gives; where that cannot be kept apart and `make` gives another object each time, each namespace gets a new one."""
    memory = make()
    if is_separable(memory):
        return memory
    other = make()
    return memory if _inner(other) is _inner(memory) else Anew(make, memory)


def _inner(memory: Memory) -> Any:
    return getattr(memory, "adapted", memory)


class Anew:
    """A memory that has neither `namespace()` nor `reset()`, made anew for each namespace; all else is that of its instance."""

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
        """What this instance finds."""
        return self._memory.search(query, k, as_of=as_of, **more)

    def fingerprint(self) -> dict[str, Any]:
        """That of what is made."""
        return calling.fingerprint(self._memory)

    def namespace(self, name: str) -> Anew:
        """A new instance, which knows nothing yet."""
        return Anew(self._make, self._make())
