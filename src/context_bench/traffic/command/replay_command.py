"""`context-bench replay`: recorded sessions once more, through each proxy; what becomes of cache, money, wire and next
actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Annotated, Any

import typer

from context_bench.core.errors import BadInput, LimitCrossed
from context_bench.core.machine import expanded
from context_bench.core.roles import CANDIDATE, control_role
from context_bench.llm.redact import key_in
from context_bench.session import interrupts, run_parts
from context_bench.session.arms import Cell, host_and_port, refuse_equal_names
from context_bench.session.flags import options_of, takes
from context_bench.session.options import ProxyOptions
from context_bench.session.output_files import say
from context_bench.session.run_parts import is_local
from context_bench.session.run_session import RunEnvironment, carry_out, run_environment
from context_bench.traffic.command.limit_guard import LimitedReplay, LimitGuard, checked_limits
from context_bench.wire.lossless import REWRITINGS


@takes(
    LimitedReplay,
    "proxy name upstream tap controls level model profile max_examples output out full store run max_cost dry_run wire "
    "trials margin seed max_workers api_key_env proxy_key_env proxy_version marker tap_check timeout example_timeout "
    "run_timeout rpm tpm fixed_concurrency retries resume title tag reuse price max_failures limit fail_fast notify "
    "anew quiet config",
)
def command(
    context: typer.Context,
    sessions: Annotated[
        list[str],
        typer.Argument(
            help="Files or folders of recorded sessions, bundled:sessions[/NAME], or hf:OWNER/NAME.",
            metavar="SESSIONS...",
        ),
    ],
    **_given: Any,
) -> int:
    """Send recorded sessions again, request by request, through each proxy, and measure what arrives behind it."""
    return replay_sessions(options_of(context, LimitedReplay))


TAP_PORT = "9090"
PASSTHROUGH = ("full", "full#2")


def replay_sessions(options: LimitedReplay, then: Callable[[Any], None] | None = None) -> int:
    """Replay and report; returns the exit code. `then` is given the result."""
    return interrupts.run(_replay(_completed(options), then))


def replay_from(fields: Mapping[str, Any], then: Callable[[Any], None] | None = None) -> int:
    """`replay_sessions` with options by name, for commands of other families."""
    from context_bench.session.flags import read_options

    return replay_sessions(read_options(dict(fields), None, LimitedReplay), then)


def _completed(options: LimitedReplay) -> LimitedReplay:
    """With what follows from other options; faults that can be seen at once are reported."""
    if not options.all_proxies and not options.controls:
        raise BadInput("nothing to measure: give --proxy URL (repeatable); the proxy's own upstream must be the tap")
    if not options.upstream and not options.tap:
        raise BadInput(
            "--upstream is missing: echo (no model, nothing is spent), the provider's base URL, embedded, or "
            "scripted:FILE"
        )
    if options.level is None:
        options.level = 0 if options.upstream in (None, "echo") else 1
    if options.upstream and options.tap is None:
        options.tap = TAP_PORT
    if unknown := [name for name in options.controls or [] if name not in REWRITINGS]:
        raise BadInput(
            f"--controls {unknown[0]!r} is not known here; expected some of {', '.join(REWRITINGS)}, which rewrite "
            "JSON without loss (passthrough is always there at level 1)"
        )
    options.controls = [*(PASSTHROUGH if options.level else ()), *(options.controls or [])]
    if options.max_workers == 1 and "max_workers" not in options.given:
        options.max_workers = len(options.all_proxies) + len(options.controls)
    if options.profile is not None:
        from context_bench.llm.prices import check_profile

        check_profile(options.profile, run_parts.prices(options))
    if options.profile is None and options.model:
        options.profile = options.model[0]
    return options


def _limits(options: LimitedReplay) -> dict[str, float]:
    limits = checked_limits("replay", options)
    if limits and len(options.all_proxies) != 1:
        raise BadInput("replay: --limit is about one system; give one --proxy, and a replay each for others")
    if "needles" in limits:
        raise BadInput("replay: recorded requests hold no needles; --limit needles=… is for watch")
    return limits


async def _replay(options: LimitedReplay, then: Callable[[Any], None] | None) -> int:
    from context_bench.evaluators import NextAction

    limits = _limits(options)

    reported: set[str] = set()

    def skipped(fault: BadInput) -> None:
        if str(fault) not in reported:
            reported.add(str(fault))
            say(f"passed over: {fault}")

    data = _sessions(options, skipped)
    wire = next((session.wire for _, session in data.sessions()), None)
    if wire is None:
        raise BadInput(f"no requests in {data.name}: nothing to replay")
    async with AsyncExitStack() as stack:
        environment = await stack.enter_async_context(run_environment(options))
        hops = {name: await _hop(stack, name, environment) for name in options.controls or []}
        prices = run_parts.prices(options)
        bills = None if is_local(options.upstream or "") else prices  # what local models answer costs nothing
        cell = _cell(options, environment, bills, wire, hops)
        evaluators = [NextAction()] if options.level else []
        about = {
            "level": options.level,
            "passthrough": PASSTHROUGH[0] if options.level else None,
            "profile": options.profile,
            "prices_on": prices.date,
            "prices": run_parts.own_prices(options),
        }
        crossed: list[LimitGuard] = []

        async def count(result: Any, store: Any, run: str) -> None:
            guard = await _counted(options, limits, result, store, run)
            crossed.extend([guard] if guard.crossed else [])

        environment.before_report = count if limits else None
        code = await carry_out(options, environment, prices, [data], [cell], evaluators, replay=about)
        if crossed:
            code = LimitCrossed.exit_code
        if then is not None and environment.result is not None:
            then(environment.result)
        return code


def _places(options: LimitedReplay) -> list[str]:
    """The sets of sessions, the same from whatever folder the command is started in."""
    return [each if ":" in each else str(expanded(each).resolve()) for each in options.sessions]


async def _counted(
    options: LimitedReplay, limits: Mapping[str, float], result: Any, store: Any, run: str
) -> LimitGuard:
    """Count in the sessions of a replay that were not counted before, and say how the limits stand."""
    from context_bench.runner import add_notes
    from context_bench.traffic.figures import session_counts

    [proxy] = options.all_proxies
    name = proxy.name or host_and_port(proxy.url)
    about = {"of": "replay", "sessions": _places(options), "proxy": proxy.url, "profile": options.profile}
    guard = LimitGuard(store, limits, about, options)
    counted, grown = guard.count_new(session_counts(store, run, result.manifest["replay"], name))
    _, warnings = await guard.tell()
    notes = [*warnings, *guard.sentences(), f"{counted:,} sessions were counted now."]
    if grown:
        notes.append(
            f"{grown:,} sessions have grown since they were counted: what came after that is not in the limits."
        )
    result.notes += notes
    add_notes(store, run, notes)
    result.replay["limits"] = guard.certificate.as_dict()
    return guard


def _sessions(options: LimitedReplay, skipped: Any) -> Any:
    from context_bench.datasets.recorded import RecordedSessions
    from context_bench.systems.openai_proxy import WIRES

    wire = WIRES[options.wire] if options.wire else None
    return RecordedSessions(options.sessions, options.max_examples, wire, on_skip=skipped, with_text=not options.level)


async def _hop(stack: AsyncExitStack, name: str, environment: RunEnvironment) -> str:
    """The URL of a control: the passthrough hop, or one that rewrites what goes through it, as far from the tap as a
    proxy is.
    """
    from context_bench.systems.serve import Served

    assert environment.hop is not None, "controls bring a passthrough hop"
    if name in PASSTHROUGH:
        return environment.hop
    provider = environment.tap.url if environment.tap is not None else environment.upstream
    assert provider is not None, "checked: controls need --upstream"
    return (await stack.enter_async_context(Served(name, provider))).url


def _cell(options: LimitedReplay, environment: RunEnvironment, prices: Any, wire: str, hops: Mapping[str, str]) -> Cell:
    """Each proxy, and its controls; at level 1 passthrough twice is among them."""
    cell = Cell({"model": options.model[0] if options.model else "as recorded", "shape": "recorded"})
    cell.arms = [
        _arm(options, environment, prices, wire, proxy.url, proxy.name or host_and_port(proxy.url), proxy)
        for proxy in options.all_proxies
    ]
    cell.arms += [_arm(options, environment, prices, wire, url, name, None) for name, url in hops.items()]
    cell.baseline = PASSTHROUGH[0] if options.level else None
    refuse_equal_names(cell.names)
    return cell


def _arm(
    options: LimitedReplay,
    environment: RunEnvironment,
    prices: Any,
    wire: str,
    url: str,
    name: str,
    proxy: ProxyOptions | None,
) -> Any:
    from context_bench.engine import Arm
    from context_bench.systems import Replay

    return Arm(
        system=Replay(
            url,
            name,
            model=options.model[0] if options.model else None,
            wire=wire,
            api_key=key_in(options.api_key_env),
            proxy_key=key_in(proxy.key_env) if proxy else None,
            timeout=options.timeout,
            max_retries=options.retries,
            prices=prices,
            limiter=environment.limiter(url),
            version=proxy.version if proxy else None,
            identity=None if proxy else f"{options.upstream or options.tap} through {name.partition('#')[0]}",
        ),
        role=CANDIDATE if proxy else control_role(name),
    )
