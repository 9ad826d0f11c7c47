"""Fidelity of a compressor to a text, without any model: kept, lost and invented atoms, fragments, lines, words.

`fidelity(original, compressed)` measures one pair, `summarise(pairs)` many. All shares are in [0, 1]; what cannot be
told is `None`. Three words for the size, never "ratio" alone: keep = tokens after / before, removal = 1 - keep, fold =
before / after.
"""

from context_bench.wire.fidelity.findings import (
    AtomCounts,
    Fidelity,
    Fragments,
    LostAtom,
    NearMiss,
    fragments,
    line_order,
)
from context_bench.wire.fidelity.measuring import Summary, Text, fidelity, script_of, summarise, word_damage, words

__all__ = [
    "Fidelity",
    "Fragments",
    "LostAtom",
    "NearMiss",
    "Summary",
    "AtomCounts",
    "Text",
    "fidelity",
    "fragments",
    "line_order",
    "script_of",
    "summarise",
    "word_damage",
    "words",
]
