"""Coverage-guided fuzzing, started by hand: `python benchmarks/fuzz/fuzz.py TARGET -max_total_time=60` (see README.md)."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["context_bench"]):
    from targets import TARGETS, tried

if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
    sys.exit(f"which one? {', '.join(TARGETS)}")
target = TARGETS[sys.argv.pop(1)]
atheris.Setup(sys.argv, lambda data: tried(target, data) and None)
atheris.Fuzz()
