"""`context-bench compress run` and `compress probe`: what is lost of a session when it is compressed, by asking about
it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.core.records import Call
from context_bench.core.roles import control_role
from context_bench.llm.redact import key_in
from context_bench.session import interrupts, run_parts
from context_bench.session.arms import Cell, host_and_port, refuse_equal_names
from context_bench.session.flags import options_of, own, takes
from context_bench.session.options import CompressOptions
from context_bench.session.output_files import say
from context_bench.session.run_parts import Accounts
from context_bench.session.run_session import RunEnvironment, carry_out, money_limit, run_environment
from context_bench.wire.lossless import REWRITINGS

if TYPE_CHECKING:
    from context_bench.compression.probes import ProbeType

SessionsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files or folders of logs, bundled:sessions[/NAME], hf:OWNER/NAME. [default: bundled:sessions]",
        metavar="SESSIONS",
    ),
]


@takes(
    CompressOptions,
    "system proxy name tap upstream points window responder model controls probes types per_type max_examples "
    "drift replicates trials eligibility judge_url judge_model criteria visibility rubric output out full score_field "
    "margin seed store run max_workers max_cost dry_run wire proxy_key_env proxy_version marker tap_check "
    "baseline evaluator metric imports api_key_env judge_key_env temperature max_tokens timeout example_timeout "
    "setup_timeout run_timeout rpm tpm judge_rpm judge_tpm fixed_concurrency retries resume title tag reuse bodies "
    "price price_model max_failures force quiet config",
)
def run(context: typer.Context, sessions: SessionsArgument = None, **_given: Any) -> int:
    """Compress sessions with each system, ask what was lost, and compare with all, nothing, and plain truncation to the
    same size.
    """
    return compress_sessions(options_of(context, CompressOptions))


@takes(
    CompressOptions,
    "points window probes types per_type max_examples responder model api_key_env timeout retries rpm tpm max_cost "
    "price out",
    responder=own("The model that writes probes (--probes model): a URL.", unit="URL", note=""),
    model=own("Its name."),
    api_key_env=own("Variable with its key."),
    out=own("Write the probes to this file instead of stdout."),
)
def probe(context: typer.Context, sessions: SessionsArgument = None, **given: Any) -> int:
    """Write the probes of sessions as JSON lines: question, facts of the answer, and where in the session each was
    found.
    """
    from context_bench.llm.spend import SpendLimit
    from context_bench.session.output_files import say
    from context_bench.session.run_parts import Accounts

    options = checked_probes(options_of(context, CompressOptions))
    spend = SpendLimit(options.max_cost) if options.max_cost is not None else None
    found = probe_set(options, limits=WriterSettings.of(options, Accounts(options), spend))
    lines = [
        json.dumps({k: v for k, v in example.items() if k != "session"}, ensure_ascii=False)
        for example in found.examples()
    ]
    text = "\n".join(lines) + "\n"
    out: Path | None = given["out"]
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, "utf-8")
    told = found.manifest()
    say(
        f"{told['counts']['probes']} probes at {told['counts']['points']} points of {told['counts']['sessions']} "
        f"sessions: {told['types']}"
    )
    return 0


#: What every table has beside the systems; the last two in the size of each system.
CONTROLS = ("full", "full#2", "none", "head_tail", "random_drop")
TAP_PORT = "9090"
_SIZED = ("head_tail", "random_drop", "bm25")
#: A loss of the rubric's overall (0 to 5) that would still be acceptable, unless another is given.
RUBRIC_MARGIN = 0.1


def compress_sessions(options: CompressOptions) -> int:
    """Run and report; returns the exit code."""
    return interrupts.run(_compress(_completed(options)))


@dataclass(frozen=True, slots=True, eq=False)
class WriterSettings:
    """Settings of the model that writes probes, and the list of its calls; equal only to itself, as a run is."""

    timeout: float = 120.0
    retries: int = 3
    limiter: Any = None
    spend: Any = None
    prices: Any = None
    calls: list[Call] = field(default_factory=list)

    @classmethod
    def of(cls, options: CompressOptions, accounts: Accounts, spend: Any = None) -> WriterSettings:
        """As the options say; a timeout that nobody set is the writer's own."""
        timeout = options.timeout if "timeout" in options.given else 120.0
        return cls(timeout, options.retries, accounts.of(options.responder), spend, run_parts.prices(options))


def probe_set(
    options: CompressOptions, only: frozenset[str] | None = None, limits: WriterSettings | None = None
) -> Any:
    """The probes of the sessions that the options name. `BadInput` where there are none."""
    from context_bench.compression.datasets import ProbeSet
    from context_bench.datasets.recorded import RecordedSessions

    passed: set[str] = set()

    def skipped(fault: BadInput) -> None:
        if str(fault) not in passed:
            passed.add(str(fault))
            say(f"passed over: {fault}")

    sources = RecordedSessions(options.sessions, options.max_examples, on_skip=skipped, agents=True)
    return ProbeSet(
        sources,
        options.points,
        options.window,
        _most(options),
        options.types,
        options.drift,
        options.replicates,
        only,
        structured="structured" in options.probes,
        writer=_writer(options.responder, options.model[0], options.api_key_env, limits)
        if "model" in options.probes
        else None,
    )


@lru_cache(maxsize=4)
def _writer(url: str, model: str, key_env: str, limits: WriterSettings | None) -> Any:
    """The model that writes probes, the same for every pass of a run, so that it is asked once."""
    from context_bench.compression.datasets.probe_set import ModelProbes

    if not url.startswith(("http://", "https://")):
        raise BadInput(
            "--probes model: the responder writes them and has to be a URL, such as http://localhost:8000; it is "
            f"{url!r}"
        )
    asked = limits or WriterSettings()
    return ModelProbes(
        url,
        model,
        key_in(key_env),
        timeout=asked.timeout,
        max_retries=asked.retries,
        prices=asked.prices,
        limiter=asked.limiter,
        spend=asked.spend,
        calls=asked.calls,
    )


def _most(options: CompressOptions) -> dict[ProbeType, int] | None:
    from context_bench.compression.probes import PROBE_TYPES

    return None if options.per_type is None else dict.fromkeys(PROBE_TYPES, options.per_type)


def checked_probes(options: CompressOptions) -> CompressOptions:
    """The same options, if it is known who makes the probes."""
    if unknown := sorted(set(options.probes) - {"structured", "model"}) or (["nothing"] if not options.probes else []):
        raise BadInput(f"--probes {unknown[0]!r} is not known; expected structured, model or both")
    if options.reader and "responder" not in options.given:
        options.responder = options.reader  # in a file as on the command line
    return options


def _completed(options: CompressOptions) -> CompressOptions:
    """With what follows from other options; faults that can be seen at once are told."""
    from context_bench.compression.datasets.probe_set import ELIGIBILITY
    from context_bench.compression.probes import PROBE_TYPES

    if not options.system and not options.all_proxies and not options.controls:
        raise BadInput(
            "nothing to measure: give --system SPEC (repeatable), such as anchored, mask_observations, py:pkg.mod:Class"
        )
    if unknown := sorted(set(options.types) - set(PROBE_TYPES)):
        raise BadInput(f"--types {unknown[0]!r} is no type of probe; expected some of {', '.join(PROBE_TYPES)}")
    if unknown := sorted(set(options.controls or []) - {*CONTROLS, *_SIZED, *REWRITINGS}):
        raise BadInput(
            f"--controls {unknown[0]!r} is not known here; expected some of "
            f"{', '.join(dict.fromkeys([*CONTROLS, *_SIZED, *REWRITINGS]))}"
        )
    checked_probes(options)
    if "as-recorded" in options.system and "points" not in options.given:
        options.points = "recorded"
    if options.dry_run and "model" in options.probes:
        raise BadInput(
            "--dry-run asks nobody, and only the model knows which probes it would write; forecast with --probes "
            "structured"
        )
    _wired(options)
    if options.eligibility is None:
        options.eligibility = 0 if options.responder == "sentence" else ELIGIBILITY
    return options


def _wired(options: CompressOptions) -> None:
    """With a proxy or a tap one model answers for all, behind the tap: it is the upstream."""
    if not (options.all_proxies or options.tap or options.upstream):
        return
    remote = options.tap is not None and options.tap_port is None
    told = options.upstream or (options.tap if remote else None)
    if told and "responder" in options.given and options.responder != told:
        raise BadInput(
            f"--reader {options.responder}: behind a tap the upstream answers for all, here {told}; leave out --reader"
        )
    options.tap = options.tap or TAP_PORT
    options.upstream = options.upstream if remote else options.upstream or options.responder
    options.responder = str(options.upstream or options.tap)
    if "bodies" not in options.given:
        options.bodies = "auto"


async def _compress(options: CompressOptions) -> int:
    import asyncio

    from context_bench.compression.datasets.probe_set import eligibility_of, eligible_probes
    from context_bench.compression.session_rules.artifacts import reads_commands
    from context_bench.session import preflight

    run_parts.import_modules(options.imports)
    accounts = Accounts(options)
    spend = None if options.dry_run else money_limit(options, eligibility_of)  # choosing probes stands under it as well
    limits = WriterSettings.of(options, accounts, spend) if "model" in options.probes else None
    if limits is not None:
        preflight.check_price(options, limits.prices)  # writing probes costs money already
    data = await asyncio.to_thread(probe_set, options, None, limits)
    controls, options.controls = list(options.controls or []), None  # ours compress sessions; no hop is needed
    options.reader = None if options.upstream or options.tap or options.responder == "sentence" else options.responder
    async with run_environment(options, accounts) as environment:
        environment.spend = spend
        environment.overhead = limits.calls if limits is not None else []
        prices = run_parts.prices(options)
        cell = _cell(options, environment, prices, controls, data.recorded)
        evaluators = _evaluators(options, prices, environment)
        if options.eligibility and not options.dry_run:
            preflight.check_plan(options, [data], prices, evaluators)
            await preflight.check_endpoints(options)  # choosing asks the responder already
            chosen = await eligible_probes(
                options, responder(options, environment, prices, tapped=False), data, environment
            )
            data = await asyncio.to_thread(probe_set, options, chosen, limits)
        about = {
            "points": options.points,
            "responder": options.responder,
            "drift": options.drift,
            "eligibility": options.eligibility,
            "controls": cell.controls,
            "grader": "rubric" if options.judge_url else "atoms",
            **({} if reads_commands() else {"commands_unread": True}),
        }
        return await carry_out(
            options, environment, prices, [data], [cell], evaluators, compression=about, **_margin(options)
        )


def _margin(options: CompressOptions) -> dict[str, Any]:
    """The margin of scores by the rubric, which lie between 0 and 5; for others as in every run."""
    if options.margin is not None or not options.score_field.startswith("rubric_"):
        return {}
    return {"margin": {"value": RUBRIC_MARGIN, "rule": f"{RUBRIC_MARGIN} of 5", "score_field": options.score_field}}


def _cell(
    options: CompressOptions, environment: RunEnvironment, prices: Any, controls: Sequence[str], recorded: Any
) -> Cell:
    """The systems, full history twice, nothing, and the cheap ways in the size of each system."""
    from context_bench.compression.systems.compressing import Compressing
    from context_bench.compression.systems.through_proxy import SizedByProxy
    from context_bench.engine import Arm
    from context_bench.systems.control import system_role

    reader, tapped = responder(options, environment, prices), environment.tap is not None
    proxies = _proxies(options, environment, prices)
    systems = [
        Compressing(_compressor(options, environment, prices, spec, recorded), reader, name=_name(spec), tapped=tapped)
        for spec in options.system
    ]
    of_systems = map(system_role, options.system)
    fixed = [name for name in controls if name not in _SIZED]
    sizes = [name for name in controls if name in _SIZED]
    cell = Cell({"model": "no model" if options.responder == "sentence" else options.model[0], "shape": "session"})
    floors = [
        Compressing(name.partition("#")[0], reader, name=name, tapped=tapped)
        for name in fixed
        if name not in options.system
    ]
    sized = [
        Compressing(name, reader, partner=system, tapped=tapped)
        for system in systems
        for name in sizes
        if name != system.name
    ]
    behind = [SizedByProxy(name, reader, proxy.name, tapped=tapped) for proxy in proxies for name in sizes]
    cell.arms = [Arm(system=each) for each in proxies]
    cell.arms += [Arm(system=each, role=role) for each, role in zip(systems, of_systems, strict=True)]
    cell.arms += [Arm(system=each, role=control_role(each.name)) for each in floors]
    cell.arms += [
        Arm(system=each, role=control_role(each.compressor.name, of=each.partner.name))
        for each in sized
        if each.partner
    ]
    cell.arms += [
        Arm(system=each, role=control_role(each.compressor.name, of=each.matches), budget_from=each.matches)
        for each in behind
    ]
    refuse_equal_names(cell.names)
    cell.baseline = _baseline(options, cell)
    return cell


def _proxies(options: CompressOptions, environment: RunEnvironment, prices: Any) -> list[Any]:
    """The proxies under test; each has the tap as its upstream."""
    from context_bench.compression.systems.through_proxy import ThroughProxy
    from context_bench.tap.masking import map_text, mask_names, mask_text

    def clean(body: Any) -> Any:
        """A body as the tap writes it down."""
        return map_text(mask_names(body), mask_text)

    return [
        ThroughProxy(
            proxy.url,
            proxy.name or host_and_port(proxy.url),
            clean=clean,
            proxy_key=key_in(proxy.key_env),
            version=proxy.version,
            **_asking(options, prices, environment.limiter(proxy.url)),
        )
        for proxy in options.all_proxies
    ]


def _asking(options: CompressOptions, prices: Any, limiter: Any) -> dict[str, Any]:
    """Settings with which every arm of a tapped run asks."""
    from context_bench.session.run_parts import is_local
    from context_bench.systems.openai_proxy import WIRES

    body = dict(options.extra_body) | {"temperature": options.temperature if options.temperature is not None else 0}
    return {
        "model": options.model[0],
        "wire": WIRES[options.wire or "openai"],
        "api_key": key_in(options.api_key_env),
        "params": {**body, "max_tokens": options.max_tokens or 400},
        "timeout": options.timeout,
        "max_retries": options.retries,
        "prices": None if is_local(options.responder) else prices,
        "limiter": limiter,
    }


def _baseline(options: CompressOptions, cell: Cell) -> str | None:
    if options.baseline is not None:
        if options.baseline not in cell.names:
            raise BadInput(
                f"--baseline {options.baseline!r} is not a system of this run; it has: {', '.join(cell.names)}"
            )
        return options.baseline
    return cell.usual_baseline()


def _name(spec: str) -> str:
    return spec.removeprefix("builtin:")


def _compressor(options: CompressOptions, environment: RunEnvironment, prices: Any, spec: str, recorded: Any) -> Any:
    """The compressor of a spec; one that asks a model and was told of none uses the responder's. `recorded`: what the
    sessions' clients made of each history.
    """
    from context_bench.compression.compressors import compressor_for
    from context_bench.session.run_parts import is_local

    relay, key = environment.reader or environment.upstream, key_in(options.api_key_env)
    costs = None if is_local(options.responder) else prices
    limiter = environment.limiter(relay) if relay is not None else None
    more = {"relay": relay, "model": options.model[0], "api_key": key, "prices": costs, "limiter": limiter}
    return compressor_for(spec, recorded=recorded, **more)


def responder(options: CompressOptions, environment: RunEnvironment, prices: Any, *, tapped: bool = True) -> Any:
    """The responder to the probes, the same for every system; in a tapped run behind the tap, unless `tapped` is
    false.
    """
    from context_bench.compression.systems.sentence import SentenceReader
    from context_bench.session.run_parts import is_local
    from context_bench.systems import OpenAIProxy

    if environment.tap is not None:
        from context_bench.compression.systems.through_proxy import Conversing

        url = environment.tap.url if tapped or environment.upstream is None else environment.upstream
        return Conversing(
            url, "responder", identity=options.responder, **_asking(options, prices, environment.limiter(url))
        )
    if environment.reader is None:
        return SentenceReader()
    body = dict(options.extra_body) | {"temperature": options.temperature if options.temperature is not None else 0}
    return OpenAIProxy(
        environment.reader,
        options.model[0],
        "responder",
        key_in(options.api_key_env),
        options.system_prompt,
        timeout=options.timeout,
        extra_body={**body, "max_tokens": options.max_tokens or 400},
        max_retries=options.retries,
        prices=None if is_local(options.responder) else prices,
        limiter=environment.limiter(environment.reader),
        identity=options.responder,
    )


def _evaluators(options: CompressOptions, prices: Any, environment: RunEnvironment) -> list[Any]:
    """The atoms grader always; the rubric judge where one is named."""
    from context_bench.core.plugins import build
    from context_bench.evaluators import BUILTINS

    evaluators = [build("evaluator", "probe_atoms", BUILTINS)]
    if options.judge_url:
        key = key_in(options.judge_key_env or options.api_key_env)
        settings: dict[str, Any] = {
            "base_url": options.judge_url,
            "model": options.judge_model,
            "prices": prices,
            "api_key": key,
        }
        if environment.accounts is not None:
            settings["limiter"] = environment.accounts.of_judge(options.judge_url)
        settings |= run_parts.patience(options)
        settings |= {
            "criteria": options.criteria,
            "visibility": options.visibility,
            "seed": options.seed,
            "rubric": options.rubric,
        }
        evaluators.append(build("evaluator", "rubric_judge", BUILTINS, defaults=settings))
        if "score_field" not in options.given:
            options.score_field = "rubric_overall"
    return [
        *evaluators,
        *(build("evaluator", spec, BUILTINS, lambda found: hasattr(found, "score")) for spec in options.evaluator),
    ]


def judges_again(asked: Any, record: Any, made: list[Any]) -> list[Any]:
    """The evaluators for stored answers to probes: what is named, and with a judge's URL the rubric, as the run had
    it.
    """
    from context_bench.evaluators import AnswerQuality, LLMJudge
    from context_bench.session.judged import judge_of

    named = {spec.partition(":")[0] for spec in asked.evaluator}
    unasked = [kind for kind, name in ((AnswerQuality, "answer"), (LLMJudge, "llm_judge")) if name not in named]
    chosen = [each for each in made if not isinstance(each, tuple(unasked))]
    if asked.judge_url and not named & {"llm_judge", "rubric_judge"}:
        model = asked.judge_model if "judge_model" in asked.given else None
        chosen.append(judge_of(record, asked.judge_url, model, asked.judge_key_env, limits=asked))
    return chosen
