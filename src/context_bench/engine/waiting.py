"""A line for who watches while an endpoint gives no answer and is asked again: else a wait looks like work."""

from __future__ import annotations

from collections.abc import Callable

#: Seconds in which one fault is said once, and kinds of fault that are remembered.
_EVERY, _MOST = 30.0, 100


class Waiting:
    """Called with each fault; passes it to `say` at first, and again only if it is still there much later."""

    def __init__(self, say: Callable[[str], None], monotonic: Callable[[], float]) -> None:
        self._say, self._monotonic = say, monotonic
        self._said: dict[str, float] = {}

    def __call__(self, fault: str) -> None:
        """One attempt failed with `fault`, and another one will be made."""
        now = self._monotonic()
        known = self._said.get(fault)
        if (known is not None and now - known < _EVERY) or len(self._said) >= _MOST:
            return
        self._said[fault] = now
        self._say(f"{fault}: trying again")
