"""Checks before a run spends anything: every system answers, its traffic reaches the tap, the judge judges; and
`--dry-run`.

A dry run reports calls, tokens and money of the run, and the differences that it could show. It sends nothing.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from context_bench.core.errors import BadInput, NothingToRun, PreflightFailed, Stop, SystemFailed
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.measures import dollars
from context_bench.core.records import Call
from context_bench.llm.redact import bare_url, key_in
from context_bench.llm.sessions import unreachable, who_answers
from context_bench.session.arms import DEFAULT, Cell
from context_bench.session.options import RunOptions
from context_bench.session.output_files import say
from context_bench.session.run_parts import is_local
from context_bench.session.run_session import RunEnvironment

PROBE = {
    "id": "preflight",
    "context": "The gate opens at nine.",
    "question": "When does the gate open?",
    "answer": "nine",
}


def check_plan(options: RunOptions, data: list[Any], prices: Any, evaluators: list[Any]) -> None:
    """Check everything that needs no request: the format exists, examples are there and fit, limited money can be
    counted.
    """
    _score_exists(options.score_field, evaluators)
    from context_bench.reports.renderers import check_format

    check_format(options.output)
    check_price(options, prices)
    filled = [dataset for dataset in data if next(iter(dataset.examples()), None) is not None]
    if not filled:
        raise NothingToRun("No examples loaded. Check your --dataset arguments.")
    if options.controls and not options.force and not any(dataset.has_context for dataset in filled):
        names = ", ".join(dataset.name for dataset in filled)
        raise PreflightFailed(
            f"{names}: no context apart from the question, so nothing here can show what a compressor loses; "
            "add a dataset that has one (context-bench datasets --context lists them), drop --controls, or insist "
            "with --force"
        )


def check_price(options: RunOptions, prices: Any) -> None:
    """Money that is limited can be counted: a price is known for each model that is asked. Raises `PreflightFailed`."""
    models = [*options.model, *([options.judge_model] if options.judge_url else [])]
    unknown = [model for model in models if options.max_cost is not None and not prices.has_price(model)]
    if unknown:
        raise PreflightFailed(
            f"--max-cost needs a price for {unknown[0]!r}, and none is known; give one with --price "
            f"{unknown[0]}=INPUT,OUTPUT "
            "(USD per million tokens), or --price-model NAME"
        )


def _score_exists(field: str, evaluators: list[Any]) -> None:
    known = [getattr(evaluator, "fields", None) for evaluator in evaluators]
    if known and all(known) and field not in (names := sorted({name for fields in known for name in fields or ()})):
        raise BadInput(f"--score-field {field!r} is no score of this run's evaluators; they give: {', '.join(names)}")


async def check_systems(
    options: RunOptions, environment: RunEnvironment, arms: list[Any], evaluators: list[Any], spend: Any
) -> None:
    """One short request per proxy: it must answer, and with a tap be seen there; the judge must tell right from wrong.

    Before it keys must be there and somebody must listen at each address, so that what is missing is named at once.
    """
    asked = [
        arm.system for arm in arms if arm.budget_from is None and getattr(arm.system, "base_url", None) is not None
    ]
    await check_endpoints(options)
    if asked and not options.quiet:
        _say_model(options)
    tap = environment.tap.url if environment.tap is not None else None
    for system in asked:
        await require_proxy(system.name, system.base_url, tap)
        if (
            tap is None and not options.quiet and system.base_url != environment.hop
        ):  # behind a tap the wrong one is found out
            who = await identified(system.base_url)
            if "/health" in who:
                say(f"{system.name}: {system.base_url}{who}")
    for system in asked:
        await _reachable(options, environment, system, spend)
    await check_evaluators(evaluators, spend, environment.overhead)


def _say_model(options: RunOptions) -> None:
    """Without `--model` a provider is asked for the documented default, which it may not have."""
    answers = getattr(options, "relay", None) or options.upstream or ""
    if options.model and "model" not in options.given and not is_local(answers):  # a replay asks for what was recorded
        say(f"no --model is given: {options.model[0]} is asked for. Another of your provider's: --model NAME")


async def check_endpoints(options: RunOptions) -> None:
    """The keys that models want are there, and somebody listens where they should be. Raises `PreflightFailed`."""
    require_keys(options)
    await require_endpoints(options)


async def check_sizes(
    options: RunOptions, environment: RunEnvironment, cells: list[Cell], data: list[Any], spend: Any
) -> None:
    """A control in the size of a Python system needs that system to give back a context: each is tried on the first
    example.

    Where it gives none, a control asked for by name is refused; of the default ones the cell does without, and notes
    it.
    """
    for cell in cells:
        waiting = {name: [arm for arm in cell.arms if arm.budget_from == name] for name in cell.names}
        for arm in [arm for arm in cell.arms if waiting[arm.system.name]]:
            ledger = Ledger(account="preflight", spend=spend, calls=environment.overhead)
            if not await _sizeless(arm.system, data, ledger, options.example_timeout):
                continue
            left = waiting[arm.system.name]
            names = [one.system.name for one in left]
            told = (
                f"--controls {', '.join(names)} cannot be made: {arm.system.name} answers by itself and gives back no "
                "context of its own, "
                "so its size is not known. Fix the size with --keep 0.5 or --budget N, return {**example, 'context': "
                "what is left}, "
                "or let the system ask through a proxy and measure that one (--proxy URL --tap PORT)"
            )
            if options.controls != DEFAULT:
                raise BadInput(told)
            cell.arms = [one for one in cell.arms if one not in left]
            cell.notes.append(told)
        for note in cell.notes:
            say(note)


async def _sizeless(system: Any, data: list[Any], ledger: Ledger, timeout: float | None) -> bool:
    """Does this Python system answer without giving back a context of its own? One that keeps state, or fails here, is
    not asked twice.
    """
    from context_bench.engine.work import isolated
    from context_bench.systems.control import Read

    if not isinstance(system, Read) or system.stateful:
        return False
    example = next((example for dataset in data for example in dataset.examples() if example.get("context")), None)
    if example is None:
        return False
    with open_ledger(ledger):
        try:
            async with asyncio.timeout(timeout):
                made = await system.made(isolated(example))
        except Exception as error:  # its failures are rows of the run, and counted there
            if isinstance(error, Stop):
                raise
            return False
    return made.get("response") is not None and made.get("context") in (None, example["context"])


async def check_evaluators(evaluators: list[Any], spend: Any, overhead: list[Call]) -> None:
    """A judge must tell a known right answer from a known wrong one before it is asked about anything. Its attempts go
    to `overhead`.
    """
    for evaluator in evaluators:
        preflight = getattr(evaluator, "preflight", None)
        if preflight is not None:
            with open_ledger(Ledger(account="preflight", spend=spend, calls=overhead)):
                await preflight()


async def _reachable(options: RunOptions, environment: RunEnvironment, system: Any, spend: Any) -> None:
    """One marked request: the proxy must answer, and with a tap its traffic must be seen there."""
    mark = await environment.tap.begin(f"preflight:{system.name}") if environment.tap is not None else None
    failure: SystemFailed | None = None
    waiting = None if options.quiet else say
    with open_ledger(Ledger("preflight", mark, spend, calls=environment.overhead, waiting=waiting, brief=True)):
        try:
            await system.aprocess(PROBE)
        except SystemFailed as error:
            failure = error
    seen = await environment.tap.end(mark) if mark is not None else []
    if failure is not None:
        who = await identified(system.base_url)
        raise PreflightFailed(
            f"{system.name} ({system.base_url}) gave no answer to a short request: {failure}{who}"
        ) from failure
    if mark is not None and not seen and options.tap_check:
        raise PreflightFailed(
            f"{system.name} answered, but nothing of it reached the tap, so what it forwards could not be measured"
            f"{await identified(system.base_url)}. "
            f"Start {system.name} with its upstream base URL = {environment.tap.url} (or {environment.tap.url}/v1), "
            "or run on without that with --no-tap-check"
        )
    keyless = mark is not None and mark.mode == "key" and any(record.authorization is False for record in seen)
    if keyless and options.max_workers != 1 and options.tap_check:
        raise PreflightFailed(
            f"{system.name} does not pass on the key it is given, so of several requests in flight nobody can tell "
            "which are its own. "
            "Use --max-workers 1 (then the report says so, with everything else measured) or --marker header, "
            "or run on without its traffic with --no-tap-check"
        )


#: Providers that answer nobody without a key, and the variable in which their own clients look for it.
KEYED = {
    "api.openai.com": "OPENAI_API_KEY",
    "api.anthropic.com": "ANTHROPIC_API_KEY",
    "api.deepseek.com": "DEEPSEEK_API_KEY",
    "api.groq.com": "GROQ_API_KEY",
    "api.mistral.ai": "MISTRAL_API_KEY",
    "api.together.xyz": "TOGETHER_API_KEY",
    "api.x.ai": "XAI_API_KEY",
    "generativelanguage.googleapis.com": "GEMINI_API_KEY",
    "openrouter.ai": "OPENROUTER_API_KEY",
}
#: What can stand in the place of a model elsewhere.
_LOCAL = {
    flag: f" Or here: {flag} embedded (a bundled model), echo (none) or scripted:FILE."
    for flag in ("--upstream", "--reader")
}


def require_keys(options: RunOptions) -> None:
    """Raises `PreflightFailed` where requests of ours go to a provider that wants a key, and the variable that should
    hold it is not set.

    A proxy may bring a key of its own: if only proxies are asked, the one request that each gets beforehand tells.
    """
    ours = options.controls or options.system or options.reader or not options.all_proxies
    for url, flag in _asked(options).items():
        if ours or url != options.upstream:
            _require_key(flag, url, "--api-key-env", options.api_key_env, falls_back=options.tap is None)
    for proxy in options.all_proxies:
        if not key_in(proxy.key_env):
            _require_key("--proxy", proxy.url, "--api-key-env", options.api_key_env, falls_back=True)
    judged = (
        ("--judge-key-env", options.judge_key_env) if options.judge_key_env else ("--api-key-env", options.api_key_env)
    )
    _require_key("--judge-url", options.judge_url, *judged)


def _require_key(flag: str, url: str | None, option: str, variable: str, *, falls_back: bool = False) -> None:
    """`falls_back`: our clients look into the provider's own variable as well."""
    usual = KEYED.get(urlsplit(url or "").hostname or "")
    if usual is None or key_in(variable) or (falls_back and usual == "ANTHROPIC_API_KEY" and key_in(usual)):
        return
    other = f" (such as {usual})" if usual != variable else ""
    raise PreflightFailed(
        f"{flag} {bare_url(url or '')} wants a key, and the variable {variable} is not set: export it, or name the "
        "one that holds yours "
        f"with {option}{other}.{_LOCAL.get(flag, '')}"
    )


async def require_endpoints(options: RunOptions) -> None:
    """Raises `PreflightFailed` where nobody listens at the provider's, the reader's or the judge's address."""
    for url, flag in {**({options.judge_url: "--judge-url"} if options.judge_url else {}), **_asked(options)}.items():
        if (reason := await unreachable(url)) is not None:
            said = (
                f"{flag} {bare_url(url)} cannot be reached ({reason}): check host and port, and the way to it "
                "from here."
            )
            raise PreflightFailed(said + _LOCAL.get(flag, ""))


def _asked(options: RunOptions) -> dict[str, str]:
    """Each address of a model → the option that names it; some options fill others."""
    named = {name: getattr(options, name, None) for name in ("relay", "upstream", "responder", "reader")}
    urls = {
        name: url for name, url in named.items() if isinstance(url, str) and url.startswith(("http://", "https://"))
    }
    return {url: "--reader" if name == "responder" else f"--{name}" for name, url in reversed(urls.items())}


async def require_proxy(name: str, url: str, tap: str | None) -> None:
    """Raises `PreflightFailed` where no proxy listens. `tap`: where its own upstream should be."""
    if (reason := await unreachable(url)) is not None:
        upstream = f", with {tap} as its upstream," if tap else ""
        raise PreflightFailed(
            f"{name}: nothing answers at {bare_url(url)} ({reason}). Start it first{upstream} or check host and port"
        )


async def identified(url: str) -> str:
    """The name of the server at `url`, as the end of a sentence; empty if it does not say."""
    who = await who_answers(url)
    return f" (what answers there says: {who})" if who else ""


#: Variance of paired differences of a score in [0, 1] that is assumed before anything is known (compression.md 8.7's
#: example).
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
    """Go through the examples without sending anything. Budgeted controls are counted as if they sent the whole
    context.
    """
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
                    worst = _plus(
                        worst, judge.worst_case(example, options.max_tokens or UNLIMITED_OUTPUT), options.trials
                    )
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
    if (
        largest := getattr(client, "largest_request", None)
    ) is not None:  # of a memory: its reader, with the longest hits
        client, example = largest(example)
    if not hasattr(client, "shaped"):
        return 0, 0.0
    from context_bench.llm.spend import worst_case

    request = client.shaped(example)
    return request.tokens(), worst_case(request, prices)


def _plus(worst: float | None, money: float | None, times: int) -> float | None:
    return None if worst is None or money is None else worst + money * times


def show(forecast: Forecast, options: RunOptions) -> None:
    """The forecast on stdout, in plain sentences."""
    from rich.console import Console

    money = (
        "no price is known for this model: give --price or --price-model"
        if forecast.worst_usd is None
        else dollars(forecast.worst_usd)
    )
    judges = f" and {forecast.judge_calls:,} judge calls" if forecast.judge_calls else ""
    given = "given" if options.margin else "the default, or 10 % of full − none if that is less"
    lines = [
        f"{forecast.examples:,} examples in {forecast.clusters:,} clusters × {forecast.systems} systems × "
        f"{options.trials} trial(s):",
        f"  {forecast.calls:,} calls{judges}, {forecast.tokens:,} prompt tokens at most",
        f"  worst-case money: {money}"
        + ("" if options.max_tokens else " (no --max-tokens: the longest replies the model allows)"),
        *(
            ["  not counted: what memories ask models by themselves, mostly while they store"]
            if forecast.memories
            else []
        ),
        f"  margin: {forecast.margin:g} ({given})",
        f"Supposing paired differences with variance 1/9 (sd {math.sqrt(ASSUMED_VARIANCE):.2f}) and independent "
        "examples, with 80 % power:",
        f"  smallest difference this n can show: {forecast.smallest_difference:.3f}",
        f"  smallest margin for which equal systems come out non-inferior: {forecast.smallest_margin:.3f}",
        f"  examples needed at margin {forecast.margin:g}: {forecast.n_for_margin:,}",
        "Nothing was sent.",
    ]
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
