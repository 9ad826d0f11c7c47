"""Keys that are read from variables of the environment. A variable that was named as one that holds a key counts as one from then on.

Its name alone need not tell: `--api-key-env WORK`. What is kept of a run is searched for these values (`engine/secrets`), whoever says
them: a provider that quotes what it was sent, a program that prints its environment.
"""

from __future__ import annotations

import os

_NAMED: set[str] = set()


def key_in(variable: str | None) -> str | None:
    """The key in the environment's `variable`, `None` if there is none."""
    if not variable:
        return None
    _NAMED.add(variable)
    return os.environ.get(variable)


def keys_told() -> list[str]:
    """What the variables that were asked for hold now."""
    return [value for name in sorted(_NAMED) if (value := os.environ.get(name))]
