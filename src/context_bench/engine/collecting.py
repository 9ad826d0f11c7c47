"""The garbage collector during a run: what is there from the start is not looked through again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New containers before the youngest generation is looked through. A row makes about a hundred, nearly none of them in a circle.
_YOUNG = 10_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect seldom, and leave alone what exists now (modules, plans): a tenth of a run's CPU otherwise. As it was before, afterwards.

    Does nothing where somebody has turned the collector off or slowed it down further.
    """
    before = gc.get_threshold()
    if not gc.isenabled() or not 0 < before[0] < _YOUNG:
        yield
        return
    gc.freeze()
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
