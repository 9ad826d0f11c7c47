"""Coverage-guided fuzzing, started by hand: `python benchmarks/fuzz/fuzz.py TARGET -max_total_time=60` (see README.md)."""

from __future__ import annotations

import random
import sys

import atheris

with atheris.instrument_imports(include=["context_bench"]):
    from targets import TARGETS, tried
from seeds import changed, seeds

if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
    sys.exit(f"which one? {', '.join(TARGETS)}")
name = sys.argv.pop(1)
target = TARGETS[name]


def mutated(data: bytes, most: int, seed: int) -> bytes:
    """By turns libFuzzer's own way, and a change of a value in the JSON that the bytes are."""
    return changed(data, random.Random(seed), most) or atheris.Mutate(data, most) if seed % 2 else atheris.Mutate(data, most)


atheris.Setup([*sys.argv, *seeds(name)], lambda data: tried(target, data) and None, custom_mutator=mutated)
atheris.Fuzz()
