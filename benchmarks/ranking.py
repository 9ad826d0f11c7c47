"""recall@10 and nDCG@10 by the measures of `memory.ranking`, beside trec_eval's own code by pytrec_eval: same queries,
one run.

    python benchmarks/ranking.py [--queries 20000] [--depth 10] [--repeats 3]

pytrec_eval is not among the project's dependencies: `pip install pytrec-eval-terrier` puts it beside them; without it
only ours is timed. Time is processor time, best of the repeats, the two in turn. Each starts from what its users have:
ranked ids and the ids of the evidence.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec

from context_bench.memory.ranking import ndcg_at, recall_at

Query = tuple[list[str], list[str]]  # (evidence, ranked ids)
K = 10


def queries(count: int, depth: int) -> list[Query]:
    """Three ids of evidence each, two of them in the ranking, somewhere."""
    draw = random.Random(5)
    made: list[Query] = []
    for _ in range(count):
        gold = [f"d{number}" for number in draw.sample(range(1000), 3)]
        ranked = [one for one in (f"d{number}" for number in draw.sample(range(1000), depth + 3)) if one not in gold][
            : depth - 2
        ]
        for one in gold[:2]:
            ranked.insert(draw.randrange(len(ranked) + 1), one)
        made.append((gold, ranked))
    return made


def ours(asked: Sequence[Query]) -> list[float]:
    """The measures that the memory family's evaluator calls."""
    found = []
    for gold, ranked in asked:
        wanted, hits = set(gold), [{one} for one in ranked[:K]]
        found.append(recall_at(wanted, hits, K) + ndcg_at(wanted, hits, K))
    return found


def trec(asked: Sequence[Query]) -> list[float]:
    """The same by trec_eval."""
    evaluator = import_module("pytrec_eval").RelevanceEvaluator
    truth = {str(number): dict.fromkeys(gold, 1) for number, (gold, _) in enumerate(asked)}
    runs = {
        str(number): {one: float(-place) for place, one in enumerate(ranked)}
        for number, (_, ranked) in enumerate(asked)
    }
    told = evaluator(truth, {f"recall.{K}", f"ndcg_cut.{K}"}).evaluate(runs)
    return [told[str(number)][f"recall_{K}"] + told[str(number)][f"ndcg_cut_{K}"] for number in range(len(asked))]


def main() -> None:
    """Time both and compare what they say."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("queries", 20_000), ("depth", 10), ("repeats", 3)):
        options.add_argument(f"--{name}", type=int, default=default)
    asked = options.parse_args()
    ways: dict[str, Callable[[Sequence[Query]], list[float]]] = {"ours": ours}
    if find_spec("pytrec_eval"):
        ways["pytrec_eval"] = trec
    material, best, said = queries(asked.queries, asked.depth), dict.fromkeys(ways, float("inf")), {}
    for _ in range(asked.repeats):
        for name, way in ways.items():
            began = time.process_time()
            said[name] = way(material)
            best[name] = min(best[name], time.process_time() - began)
    for name, seconds in best.items():
        apart = max(abs(a - b) for a, b in zip(said["ours"], said[name], strict=True))
        print(
            f"{name:<14}{asked.queries / seconds:>12,.0f} queries/s  {best[name] / best['ours']:>6.2f} x ours' time  "
            f"differs by {apart:.1g}"
        )


if __name__ == "__main__":
    main()
