"""The paired bootstrap beside scipy's, and what further columns cost: CPU seconds and memory, each in a process of its
own.

    python benchmarks/resampling.py [--rows 10000] [--columns 12]

`bca` is `bca_difference` (BCa interval of a mean paired difference, 10,000 resamples), `scipy percentile` and
`scipy BCa` are `scipy.stats.bootstrap` with batches of 100. `1 column`, `N columns` are `ratio_intervals`, as a report
asks for them. Imports come before the clock starts; memory is the growth of the peak after that.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def pairs(rows: int) -> tuple[Any, Any]:
    """Scores as token F1 gives them: many zeros and ones, correlated between the two systems."""
    import numpy as np

    draw = np.random.default_rng(7)
    plain = np.where(draw.random(rows) < 0.8, draw.integers(0, 2, rows).astype(float), draw.random(rows))
    other = np.where(draw.random(rows) < 0.7, plain, draw.random(rows))
    return plain, other


def ways(rows: int, columns: int) -> dict[str, Callable[[], Any]]:
    """What can be timed, ready to go."""
    import numpy as np
    from scipy import stats

    from context_bench.stats.bootstrap import bca_difference, ratio_intervals

    a, b = pairs(rows)
    draw = np.random.default_rng(3)
    tops, bottoms = draw.random((rows, columns)), 1.0 + draw.random((rows, columns))

    def scipy_way(method: str) -> Callable[[], Any]:
        return lambda: stats.bootstrap(
            (b - a,), np.mean, n_resamples=10_000, batch=100, method=method, rng=np.random.default_rng(1)
        )

    return {
        "bca": lambda: bca_difference(b, a),
        "scipy percentile": lambda: scipy_way("percentile")(),
        "scipy BCa": lambda: scipy_way("BCa")(),
        "1 column": lambda: ratio_intervals(tops[:, :1], bottoms[:, :1]),
        f"{columns} columns": lambda: ratio_intervals(tops, bottoms),
    }


def timed(name: str, rows: int, columns: int) -> dict[str, Any]:
    """CPU seconds and MB of one way, in this process."""
    way = ways(rows, columns)[name]
    ways(64, columns)[name]()  # whatever is imported or made at the first call is there
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    told = way()
    cpu = time.process_time() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    interval = getattr(told, "confidence_interval", told)
    ends = [float(interval.low), float(interval.high)] if hasattr(interval, "low") else [*told[0]]
    return {"cpu": cpu, "grown": grown, "ends": ends}


def main() -> None:
    """Every way in turn, three times, the best of each."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("rows", 10_000), ("columns", 12)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--one", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.one:
        print(json.dumps(timed(asked.one, asked.rows, asked.columns)))
        return
    best: dict[str, dict[str, Any]] = {}
    names = ["bca", "scipy percentile", "scipy BCa", "1 column", f"{asked.columns} columns"]
    for _ in range(3):
        for name in names:
            command = [
                sys.executable,
                __file__,
                "--rows",
                str(asked.rows),
                "--columns",
                str(asked.columns),
                "--one",
                name,
            ]
            told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            if name not in best or told["cpu"] < best[name]["cpu"]:
                best[name] = told
    for name, told in best.items():
        low, high = told["ends"]
        print(f"{name:<18}{told['cpu']:>8.2f} CPU s{told['grown']:>8.1f} MB  [{low:.5f}, {high:.5f}]")
    print(f"bca / scipy percentile: {best['bca']['cpu'] / best['scipy percentile']['cpu']:.2f}")
    print(f"{asked.columns} columns / 1 column: {best[names[-1]]['cpu'] / best['1 column']['cpu']:.2f}")


if __name__ == "__main__":
    main()
