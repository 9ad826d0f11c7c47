"""A run, and the commands before one. `context-bench run`: the main job; `session.run_session` does the rest.
`context-bench datasets`: what there is to measure on, and what one of them holds. `context-bench power`: how many
examples a question needs, and what a number of examples can answer, before money is spent.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.core.numbers import MOST
from context_bench.session import offers
from context_bench.session.flags import flag, options_of, own, takes
from context_bench.session.options import Common, RunOptions, StoredOptions

#: Margins, differences, error rates and spreads that are counted with: beyond them no float holds their squares.
_LEAST, _MOST = 1e-6, 1e6
#: Is there a context that can be compressed?
_WORDS: dict[bool | None, str] = {True: "yes", False: "–", None: "known once read"}


@takes(StoredOptions)
def list_datasets(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this one: fields, evaluators, licence, an example.", autocompletion=offers.datasets),
    ] = None,
    *,
    json: bool,
    context: bool,
    imports: list[str] | None,
) -> int:
    """List the datasets that `--dataset` knows by name, or show one. Nothing is downloaded."""
    from context_bench.datasets import datasets_known, describe
    from context_bench.session.run_parts import import_modules

    import_modules(imports or [])
    if name is not None:
        found = describe(name)
        _as_json(found) if json else _one(found)
        return 0
    listed = [
        described
        for each in datasets_known()
        if (described := describe(each)) and (described.get("has_context") or not context)
    ]
    _as_json(listed) if json else _table(listed)
    return 0


def _as_json(found: Any) -> None:
    from json import dumps

    from context_bench.session.output_files import write_out

    write_out(dumps(found, indent=2, ensure_ascii=False, default=str) + "\n", None)


def _table(listed: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console = Console()
    shown = _columns(console.width)
    numbers = {
        "size": Column("size", justify="right", no_wrap=True, min_width=6),
        "context": Column("context", no_wrap=True, min_width=7),
    }
    table = Table(*(numbers.get(name) or Column(name, overflow="fold") for name in shown), box=None)
    for each in listed:
        cells = _cells(each)
        table.add_row(*(cells[name] for name in shown))
    console.print(table, markup=False)
    print(f"{len(listed)} datasets. Context –: the text is the question itself, so there is nothing to compress.")
    print("All about one: context-bench datasets NAME")


def _columns(width: int) -> list[str]:
    """The facts that fit a line; the rest is shown for one dataset by itself."""
    if width < 60:
        return ["dataset", "size"]
    return ["dataset", "context", "size", *(["evaluators"] if width >= 100 else []), "about"]


def _cells(each: dict[str, Any]) -> dict[str, str]:
    from context_bench.reports.visible_text import visible

    size, suffix = each.get("size"), "[:…]" if each.get("configs") else ""
    cells = {
        "dataset": f"{each['name']}{suffix}",
        "context": _WORDS[each.get("has_context")],
        "size": f"{size:,}" if size else "?",
        "evaluators": ", ".join(each.get("evaluators", [])),
        "about": re.split(r"(?<=\w)[.;]\s", each["about"])[0].partition(": ")[0].rstrip("."),
    }
    return {name: visible(cell, 400) for name, cell in cells.items()}


def _one(found: dict[str, Any]) -> None:
    from context_bench.reports.visible_text import visible

    configs = found.get("configs") or []
    context = {**_WORDS, False: "no: the text is the question itself, so there is nothing to compress"}[
        found.get("has_context")
    ]
    facts = {
        "about": found["about"],
        "source": found.get("source"),
        "revision": found.get("revision")
        or ("newest (not pinned)" if str(found.get("source", "")).startswith("hf:") else None),
        "config": found.get("config"),
        "configs": f"{len(configs)}: {', '.join(configs)}" if configs else None,
        "split": found.get("split"),
        "size": f"{found['size']:,} examples" if found.get("size") else None,
        "licence": found.get("licence"),
        "citation": found.get("citation"),
        "context": context,
        "evaluators": ", ".join(found.get("evaluators", [])) or None,
        "fields": ", ".join(found.get("fields", [])) or None,
    }
    print(visible(found["name"]))
    for label, value in facts.items():
        if value:
            print(f"  {label:<11}{visible(value, 4000)}")
    if found.get("sample"):
        print("  example (invented, in the dataset's shape):")
        for key, value in found["sample"].items():
            print(f"    {visible(key)}: {visible(value, 300)}")


class PowerOptions(Common):
    """Options of `context-bench power`."""

    difference: float = flag("Smallest difference that you want to see.", 0.03)
    sd: float | None = flag(
        "Standard deviation of the paired differences.",
        note="that of --from, else as --discordant implies, else 1/3",
    )
    discordant: float | None = flag("For pass/fail scores: share of examples on which the two differ.")
    within_sd: float = flag("Standard deviation between answers of one system to one example.", 0.0)
    cluster_size: float = flag("Examples that share a text or a conversation, on average.", 1.0)
    icc: float = flag("Correlation of differences inside a cluster, 0 to 1.", 0.0)
    power: float = flag("Chance of a decision if there is something to decide.", 0.8)
    alpha: float = flag("Two-sided error; a margin is tested one-sided at this level.", 0.05)
    source: str | None = flag(
        "Take the spread from this run (name, `last`, or exported JSON).", names="--from", unit="RUN"
    )


@takes(
    PowerOptions,
    examples=own("Examples that you have: what can they show?", names="-n --examples", note=""),
    margin=own(default=0.02),
    trials=own("Answers per example and system."),
    metric=own("The score of that run.", unit=None, rare=False),
)
def count_examples(
    examples: int | None,
    margin: float,
    difference: float,
    sd: float | None,
    discordant: float | None,
    trials: int,
    within_sd: float,
    cluster_size: float,
    icc: float,
    power: float,
    alpha: float,
    source: str | None,
    metric: str | None,
    json: bool,
    store: str,
) -> int:
    """Examples needed for a difference and for a margin; with `-n`, what that many can show."""
    of_one, inside = f"from {_LEAST:f} to 1", f"from {_LEAST:f} to {1 - _LEAST:f}"
    for name, value, holds, expected in (
        ("--sd", sd, sd is None or 0 < sd <= _MOST, f"above 0, at most {_MOST:g}"),
        ("--within-sd", within_sd, 0 <= within_sd <= _MOST, f"from 0 to {_MOST:g}"),
        ("--margin", margin, _LEAST <= margin < 1, of_one),
        ("--difference", difference, _LEAST <= abs(difference) <= 1, of_one),
        ("--icc", icc, 0 <= icc <= 1, "from 0 to 1"),
        ("--cluster-size", cluster_size, 1 <= cluster_size <= _MOST, f"from 1 to {_MOST:g}"),
        ("--trials", trials, trials >= 1, "at least 1"),
        ("--power", power, _LEAST <= power <= 1 - _LEAST, inside),
        ("--alpha", alpha, _LEAST <= alpha <= 1 - _LEAST, inside),
        (
            "--discordant",
            discordant,
            discordant is None or abs(difference) <= discordant <= 1,
            "from the difference to 1",
        ),
        ("-n", examples, examples is None or 1 <= examples <= MOST, f"from 1 to {MOST}"),
    ):
        if not holds:
            raise BadInput(f"{name} is {value}; expected a number {expected}")
    measured = _measured(source, metric, margin, store) if source else None
    spread = sd if sd is not None else measured["sd"] if measured else _pass_fail_spread(discordant)
    as_measured = measured is not None and cluster_size == 1
    effect = measured["design_effect"] if measured and as_measured else 1 + (cluster_size - 1) * icc
    variance = spread**2 + 2 * within_sd**2 / trials
    needed = _answers_needed(
        examples, margin, abs(difference), variance, discordant, effect, power, alpha, max(cluster_size, 1.0)
    )
    if measured:
        ahead = measured.pop("forecast", None)
        needed["measured"] = measured
        if as_measured and sd is None and ahead is not None and (power, alpha, trials) == (0.8, 0.05, 1):
            needed["n_for_margin"] = _as_forecast(margin, ahead)
    _show(needed, as_json=json, given=bool(measured) or sd is not None or discordant is not None)
    return 0


def _pass_fail_spread(discordant: float | None) -> float:
    """The spread of differences that are -1, 0 or 1, as many down as up; a third where nothing is known."""
    return math.sqrt(discordant) if discordant is not None and discordant > 0 else 1 / 3


def _answers_needed(
    n: int | None,
    margin: float,
    difference: float,
    variance: float,
    discordant: float | None,
    effect: float,
    power: float,
    alpha: float,
    cluster_size: float,
) -> dict[str, Any]:
    from context_bench.stats import least_clusters, mde, n_mcnemar, n_noninferiority, n_paired, smallest_margin

    needed: dict[str, Any] = {
        "assumed": {"sd": math.sqrt(variance), "design_effect": effect, "power": power, "alpha": alpha},
        "n_for_difference": {
            "difference": difference,
            "n": n_paired(difference, variance, alpha=alpha, power=power, effect=effect),
        },
        "n_for_margin": {
            "margin": margin,
            "n": n_noninferiority(margin, variance, alpha=alpha, power=power, effect=effect),
            "least_clusters": least_clusters(margin),
        },
    }
    whole = needed["n_for_margin"]
    half = n_noninferiority(margin, variance, true_difference=-margin / 2, alpha=alpha, power=power, effect=effect)
    whole["if_half_lost"] = half
    if cluster_size > 1:
        fewest = math.ceil(cluster_size * whole["least_clusters"])
        whole |= {name: max(whole[name], fewest) for name in ("n", "if_half_lost")}
    if discordant is not None:
        found = math.ceil(effect * n_mcnemar(discordant, difference, alpha=alpha, power=power))
        needed["n_for_pass_fail"] = {"difference": difference, "discordant": discordant, "n": found}
    if n is not None:
        needed["with_n"] = {
            "n": n,
            "smallest_difference": mde(n, variance, alpha=alpha, power=power, effect=effect),
            "smallest_margin": smallest_margin(n, variance, alpha=alpha, power=power, effect=effect),
        }
    return needed


def _as_forecast(margin: float, ahead: Any) -> dict[str, Any]:
    """The forecast that the run's own verdict at this margin would give; `n` is `None` where it names none."""
    from dataclasses import asdict

    from context_bench.stats import least_clusters

    return {"margin": margin, **asdict(ahead), "least_clusters": least_clusters(margin)}


def _measured(source: str, metric: str | None, margin: float, store: str) -> dict[str, Any]:
    """Spread and clustering of paired differences in an earlier run: the widest of the measured systems', so that the
    forecast is safe.
    """
    from context_bench.comparison import spreads
    from context_bench.session.runs import found_run

    with found_run(source, store) as result:
        found = spreads(result, metric, margin)
    widest = max(found, key=lambda one: one["sd"])
    if not widest["sd"]:
        raise BadInput(f"{source}: no pair of scores differs, so it says nothing about the spread; give --sd")
    return widest


#: The reasons for which a forecast names no number.
_UNNAMED = {
    "margin": "no number can be named, the loss seen is the margin",
    "chance": "no number can be named, as many as there were would usually do, and did not",
    "few": "no number can be named from so few examples",
}


def for_margin(margin: dict[str, Any]) -> list[str]:
    """A line for each thing that may be true of the loss, with the examples that decide it then."""
    size = margin["margin"]
    if margin["n"] is None:
        return [f"  to rule out a loss of {size:g}: {_UNNAMED[margin['why']]}"]
    spread = f" in {margin['clusters']:,} clusters" if margin.get("clusters") else ""
    around = f" ({margin['low']:,} to {margin['high']:,} as far as that run can tell)" if margin.get("low") else ""
    needed = f"{margin['n']:,} examples{spread}{around}"
    if margin.get("as_seen"):
        return [f"  to decide on a loss of {size:g} if the true one is somewhere about the one seen: {needed}"]
    half = margin.get("if_half_lost")
    more = [] if half is None else [f"  the same if {size / 2:g} is truly lost: {half:,} examples"]
    return [f"  to rule out a loss of {size:g} if the two are truly equal: {needed}", *more]


#: Said where nobody gave a spread: verdicts of a run stand on its own.
_GUESSED = (
    "That standard deviation is a guess, so a run's verdict can name another number: it goes by what the run found. "
    "--from last does so, too."
)


def _show(needed: dict[str, Any], *, as_json: bool, given: bool) -> None:
    if as_json:
        import json

        print(json.dumps(needed, indent=2))
        return
    from context_bench.core.measures import percent

    assumed = needed["assumed"]
    effect = (
        f", design effect {assumed['design_effect']:.2f} (examples in clusters count less)"
        if assumed["design_effect"] > 1
        else ""
    )
    measured = needed.get("measured")
    of = f"seen in {measured['system']} − {measured['baseline']}" if measured else "supposed"
    margin = needed["n_for_margin"]
    lines = [
        f"If paired differences have the standard deviation {assumed['sd']:.3f} ({of}){effect}; "
        f"power {percent(assumed['power'])}, error {percent(assumed['alpha'])}:",
        f"  to see a difference of {needed['n_for_difference']['difference']:g}: {needed['n_for_difference']['n']:,} "
        "examples",
        *for_margin(margin),
        f"  to rule out that whole documents are lost: {margin['least_clusters']:,} documents, however many examples "
        "each has",
    ]
    if not given:
        lines.append(_GUESSED)
    if "n_for_pass_fail" in needed:
        one = needed["n_for_pass_fail"]
        lines.append(
            f"  pass/fail, {percent(one['discordant'])} of examples differing, {one['difference']:g} more one way: "
            f"{one['n']:,} examples"
        )
    if "with_n" in needed:
        with_n = needed["with_n"]
        lines += [
            f"With {with_n['n']:,} examples:",
            f"  smallest difference they can show: {with_n['smallest_difference']:.3f}",
            f"  smallest loss they can rule out if the two are truly equal: {with_n['smallest_margin']:.3f}",
        ]
    print("\n".join(lines))


@takes(
    RunOptions,
    "proxy name dataset system model max_examples output out full score_field threshold judge_url judge_model "
    "max_workers cache_dir tap upstream controls baseline margin shape stream trials seed max_cost store dry_run "
    "until_decided pilot go_on evidence_only "
    "config api_key_env proxy_key_env judge_key_env temperature max_tokens system_prompt prompt timeout "
    "example_timeout setup_timeout run_timeout rpm tpm judge_rpm judge_tpm fixed_concurrency executor ray_address "
    "retries marker record wire tap_check copy_replies only_lost bodies budget keep reader evaluator metric imports "
    "run resume title tag reuse proxy_version cache_namespace price price_model max_failures force quiet",
    judge_url=own("Adds LLMJudge at this OpenAI-compatible endpoint."),
    judge_model=own(note=None),
    tap=own("See what really reaches the provider: a port to start a tap on, or the URL of a running one.", note=""),
    baseline=own(unit="NAME", note="full, else the first"),
    margin=own(note="min(0.02, 10 % of full − none)"),
    dry_run=own("Only say what it would take: calls, tokens, money, detectable difference."),
    config=own(rare=False),
    judge_key_env=own(note="that of --api-key-env"),
    max_tokens=own("Most tokens of a reply.", note="not sent"),
    record=own("What the tap keeps: meta, hashes, redacted, full.", rare=True),
    imports=own("Module to import first (for register_* calls)."),
    run=own(rare=True),
    reuse=own("Also use rows of other runs with the same content; says how many and how old."),
    proxy_version=own("Enters the proxies' identity: a new version is never answered from old rows."),
)
def run(context: typer.Context, **_given: Any) -> int:
    """Measure proxies and other systems on datasets, against controls, with intervals and verdicts."""
    from context_bench.session.reporting import Pilot
    from context_bench.session.run_session import run_session

    options = options_of(context, RunOptions)
    if options.go_on and not options.pilot:
        raise BadInput("--go-on goes on after a pilot; give --pilot too")
    return run_session(options, Pilot(options) if options.pilot else None)
