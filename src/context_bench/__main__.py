"""`context-bench` and `python -m context_bench`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from context_bench.core import machine


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code (0 done, 1 failures or a fault of ours, 2 usage, 3 not comparable, 4
    gate, 5 cost cap, 130 interrupted).

    Raises `SystemExit` (code 2, the reason as its text) where there is nothing to run: no system, no such dataset, no
    example.
    """
    if argv is None:
        machine.collect_seldom()
    try:
        from context_bench.cli.app import run_line
    except KeyboardInterrupt:
        return 130
    return run_line(list(sys.argv[1:] if argv is None else argv), for_good=argv is None)


def __getattr__(name: str) -> Any:
    """`DATASET_LOADERS`: catalogue name → its function in `context_bench.datasets`; `CONFIGURABLE_DATASETS`: those that
    take `:config`.
    """
    if name == "DATASET_LOADERS":
        from context_bench import datasets
        from context_bench.datasets import spec

        return {known: getattr(datasets, known.replace("-", "_")) for known in spec.names()}
    if name == "CONFIGURABLE_DATASETS":
        from context_bench.datasets import spec

        return {known for known in spec.names() if spec.named(known).configs}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if __name__ == "__main__":
    sys.exit(main())
