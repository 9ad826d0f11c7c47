"""`--dry-run`: what a run would take and what it could show, before anything is sent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from context_bench.session.options import RunOptions

#: Variance of paired differences of a score in [0, 1] that is assumed before anything is known (compression.md 8.7's example).
ASSUMED_VARIANCE = 1 / 9


@dataclass(frozen=True, slots=True)
class Forecast:
    """Calls, tokens and money of a run at most, and the statistics of its size."""

    examples: int
    clusters: int
    systems: int
    calls: int
    judge_calls: int
    tokens: int
    worst_usd: float | None
    margin: float
    smallest_difference: float
    smallest_margin: float
    n_for_margin: int
    memories: bool = False  # which may ask models themselves, nobody knows what


def forecast(options: RunOptions, data: list[Any], arms: list[Any], evaluators: list[Any], prices: Any) -> Forecast:
    """Go through the examples without sending anything. Budgeted controls are counted as if they sent the whole context."""
    from context_bench.llm.prices import UNLIMITED_OUTPUT
    from context_bench.stats import mde, n_noninferiority, smallest_margin

    judges = [evaluator for evaluator in evaluators if hasattr(evaluator, "worst_case")]
    examples = tokens = 0
    worst: float | None = 0.0
    clusters: set[str] = set()
    for dataset in data:
        for example in dataset.examples():
            examples += 1
            clusters.add(str(example.get("cluster") or example.get("group") or (dataset.name, example["id"])))
            for arm in arms:
                count, money = _one(arm.system, example, prices)
                tokens += count * options.trials
                worst = _plus(worst, money, options.trials)
                for judge in judges:
                    worst = _plus(worst, judge.worst_case(example, options.max_tokens or UNLIMITED_OUTPUT), options.trials)
    memories = [arm.system for arm in arms if hasattr(arm.system, "memory")]
    rows = examples * (len(arms) - sum(each.reader is None for each in memories)) * options.trials
    margin = options.margin or 0.02
    return Forecast(
        examples=examples,
        clusters=len(clusters),
        systems=len(arms),
        calls=rows,
        judge_calls=rows * len(judges),
        tokens=tokens,
        worst_usd=worst,
        margin=margin,
        smallest_difference=mde(examples, ASSUMED_VARIANCE),
        smallest_margin=smallest_margin(examples, ASSUMED_VARIANCE),
        n_for_margin=n_noninferiority(margin, ASSUMED_VARIANCE),
        memories=bool(memories),
    )


def _one(system: Any, example: dict[str, Any], prices: Any) -> tuple[int, float | None]:
    client = getattr(system, "inner", system)
    if (largest := getattr(client, "largest_request", None)) is not None:  # of a memory: its reader, with the longest hits
        client, example = largest(example)
    if not hasattr(client, "shaped"):
        return 0, 0.0
    from context_bench.llm.chat import worst_case

    request = client.shaped(example)
    return request.tokens(), worst_case(request, prices)


def _plus(worst: float | None, money: float | None, times: int) -> float | None:
    return None if worst is None or money is None else worst + money * times


def show(forecast: Forecast, options: RunOptions) -> None:
    """The forecast on stdout, in plain sentences."""
    from rich.console import Console

    money = "no price is known for this model: give --price or --price-model" if forecast.worst_usd is None else _usd(forecast.worst_usd)
    judges = f" and {forecast.judge_calls:,} judge calls" if forecast.judge_calls else ""
    given = "given" if options.margin else "the default, or 10 % of full − none if that is less"
    lines = [
        f"{forecast.examples:,} examples in {forecast.clusters:,} clusters × {forecast.systems} systems × {options.trials} trial(s):",
        f"  {forecast.calls:,} calls{judges}, {forecast.tokens:,} prompt tokens at most",
        f"  worst-case money: {money}" + ("" if options.max_tokens else " (no --max-tokens: the longest replies the model allows)"),
        *(["  not counted: what memories ask models by themselves, mostly while they store"] if forecast.memories else []),
        f"  margin: {forecast.margin:g} ({given})",
        f"Supposing paired differences with variance 1/9 (sd {math.sqrt(ASSUMED_VARIANCE):.2f}) and independent examples, with 80 % power:",
        f"  smallest difference this n can show: {forecast.smallest_difference:.3f}",
        f"  smallest margin for which equal systems come out non-inferior: {forecast.smallest_margin:.3f}",
        f"  examples needed at margin {forecast.margin:g}: {forecast.n_for_margin:,}",
        "Nothing was sent.",
    ]
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _usd(value: float) -> str:
    return f"${value:,.4f}" if value < 1 else f"${value:,.2f}"
