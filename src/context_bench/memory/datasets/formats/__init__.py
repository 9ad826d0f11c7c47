"""The published formats of memory benchmarks, one module each, told apart by what a document holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_bench.memory.datasets.formats import (
    beam,
    convomem,
    dmr,
    generic,
    locomo,
    locomo_rows,
    longmemeval,
    membench,
    memoryagentbench,
    seed,
)
from context_bench.memory.datasets.haystacks import Format

#: In the order in which they are tried; the general one is last.
FORMATS: tuple[Format, ...] = (
    locomo.FORMAT,
    locomo_rows.FORMAT,
    longmemeval.FORMAT,
    dmr.FORMAT,
    beam.FORMAT,
    convomem.FORMAT,
    membench.FORMAT,
    memoryagentbench.FORMAT,
    seed.FORMAT,
    generic.FORMAT,
)


def sniff(document: Mapping[str, Any]) -> Format | None:
    """The format of a document; `None` if it has none that is known."""
    return next((each for each in FORMATS if each.sniff(document)), None)


def shapes() -> str:
    """One line for each format, for messages."""
    return "\n".join(f"  {each.name}: {each.shape}" for each in FORMATS)
