"""`context-bench memory`: does a memory find and answer, what does it cost, and does it forget, mix up or lose what it
must not?
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, islice
from typing import Any

import typer

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.lazy import registry
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.plugins import build, parse_spec
from context_bench.core.roles import ArmRole
from context_bench.core.tokens import count_tokens
from context_bench.llm.redact import key_in
from context_bench.memory.command import memory_checks
from context_bench.session import interrupts, run_parts, runs
from context_bench.session.arms import Cell, refuse_equal_names
from context_bench.session.flags import options_of, takes
from context_bench.session.options import MemoryOptions
from context_bench.session.output_files import say
from context_bench.session.run_session import RunEnvironment, carry_out, money_limit, run_environment

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure memories. Without a subcommand `run` is meant: context-bench memory --system bm25 --dataset "
    "bundled:recall-lab",
)
app.command("doctor")(memory_checks.doctor)
app.command("ops")(memory_checks.ops)
app.command("audit")(memory_checks.audit)
app.command("compare")(runs.compare_runs)
app.command(
    "replay",
    help="Judge the stored answers again: no memory and no reader is called. The same as `context-bench rescore`.",
)(runs.rescore)
app.command("cortex-eval")(memory_checks.cortex_eval)
app.command("cortex-compare")(memory_checks.cortex_compare)


@app.command("run")
@takes(
    MemoryOptions,
    "system relay dataset model api_key max_examples qa_types output out full score_field k questions budget_tokens "
    "reader mode floors judge_url judge_model seed store run max_workers max_cost dry_run probes overlay baseline "
    "margin trials tap upstream evaluator metric imports api_key_env judge_key_env temperature max_tokens timeout "
    "example_timeout setup_timeout run_timeout rpm tpm judge_rpm judge_tpm fixed_concurrency retries resume title tag "
    "reuse bodies price price_model max_failures force quiet config",
)
def run(context: typer.Context, **_given: Any) -> int:
    """Put conversations into memories, ask, and measure what was found, answered, forgotten and paid."""
    return remember(options_of(context, MemoryOptions))


#: What a report needs to be read: what nothing, chance and everything score on these very questions.
FLOORS = ("none", "random", "full_context", "oracle")
WORDS = "bm25"  # search by words: what others are compared with where nobody reads

#: Tokens that fit the bundled model's window of 8,192 beside its worked examples, a question and an answer; and what
#: dates on hits add.
READABLE, DATED = 7_600, 1.35

#: The bundled model as reader: it keeps the text it was asked about last, and what one small model on a few cores reads
#: in minutes.
KEEPING = "embedded:keep"
ASKED, SHALLOW, SHORT = 5, [1, 3], 40

#: The original tool's name for the whole conversation: rows keep it where the user gave it.
_SAME_AS = {"naive": "full_context"}
#: Names of the original tool for systems that are not built in here.
_ELSEWHERE = {
    "zep": "Zep is measured over its own server: see docs/guide/memory.md, `http:FILE.toml` or `py:pkg.mod:Class`",
    "rlm": "`rlm` was a vector, keyword and entity search with one model call; `hybrid` is the nearest built-in",
}


def remember(options: MemoryOptions) -> int:
    """Run and report; returns the exit code."""
    return interrupts.run(_remember(_completed(options)))


def _completed(options: MemoryOptions) -> MemoryOptions:
    """With what follows from other options; faults that can be seen at once are told."""
    if not options.system and not options.floors:
        raise BadInput(
            "nothing to measure: give --system SPEC (repeatable), such as bm25, embedding, mem0, py:pkg.mod:Class"
        )
    if not options.k:
        raise BadInput("--k is empty; expected numbers of hits, such as 1,5,10")
    for name in options.system:
        if name in _ELSEWHERE:
            raise BadInput(f"--system {name}: {_ELSEWHERE[name]}")
    if options.reader is None:
        options.reader = options.relay or "embedded"
    if options.reader == "embedded":
        _bundled_reader(options)
    if options.api_key and not key_in(options.api_key_env):
        os.environ[options.api_key_env] = options.api_key
    if not options.judge_url and options.relay and "judge_model" in options.given:
        options.judge_url = options.relay
    return options


def _bundled_reader(options: MemoryOptions) -> None:
    """Defaults for options that are not given, so that a run on a small machine ends in minutes."""
    options.reader = KEEPING
    if "model" not in options.given:
        options.model = [_bundled_name()]
    if "max_workers" not in options.given:
        options.max_workers = min(4, os.cpu_count() or 1)
    if "k" not in options.given:
        options.k = SHALLOW
    if options.questions is None:
        options.questions = ASKED
        options.dataset = [_short(spec) for spec in options.dataset]


def _bundled_name() -> str:
    """The model's name in reports: it answers under any name, so it should stand under its own."""
    from context_bench.llm.weights import BUNDLED_MODEL, find_weights, is_bundled

    weights = find_weights()
    return BUNDLED_MODEL if weights is None or is_bundled(weights) else weights.stem


def _short(spec: str) -> str:
    """The lab with short conversations, unless its length is given; any other dataset as it is."""
    from context_bench.memory.datasets.recall_lab import NAME, TURNS

    name, given = spec[: len(NAME)], spec[len(NAME) :]
    if name != NAME or given[:1] not in ("", ":") or "turns=" in given:
        return spec
    say(
        f"{NAME}: {SHORT} turns a conversation, for the bundled model reads slowly; {NAME}:turns={TURNS} is the usual "
        "length"
    )
    return f"{NAME}:{','.join(filter(None, [f'turns={SHORT}', given[1:]]))}"


async def _remember(options: MemoryOptions) -> int:
    from context_bench.memory.datasets import in_mode, load_memory
    from context_bench.session import preflight

    run_parts.import_modules(options.imports)
    memories = _memories(options)
    _check_names([spec for spec, _ in memories])
    wanted = options.qa_types or None
    loaded = [
        load_memory(spec, n=options.max_examples, qa_types=wanted, seed=options.seed, overlay=options.overlay)
        for spec in options.dataset
    ]
    data = [in_mode(each, options.mode) for each in loaded]
    if isinstance(options.questions, int):
        data = [_sampled(dataset, options.questions, options.seed) for dataset in data]
    _wire(options, memories)
    reads = options.reader != "none"
    if not reads:
        _has_evidence(data)
    options.baseline = options.baseline or _too_long(options, data)
    spec = options.reader if (options.reader or "").startswith("py:") else None
    options.reader = options.reader if reads and spec is None else None
    async with run_environment(options) as environment:
        prices = run_parts.prices(options)
        cell = _cell(options, environment, prices, memories, spec)
        _kept_apart(cell, data, options.trials)
        evaluators = _evaluators(options, data, prices, reads, environment.accounts)
        if "score_field" not in options.given and not reads:
            options.score_field = f"recall_at_{options.k[-1]}"
            say(f"no reader, so the verdict is about {options.score_field} (change it with --score-field)")
        options.metric = [*_metrics(options.score_field, options.trials), *options.metric]
        about = {"k": options.k, "budget_tokens": options.budget_tokens, "reader": reads, "floors": cell.controls}
        about["capabilities"] = {arm.system.name: sorted(arm.system.memory.capabilities) for arm in cell.arms}
        if (judge := next((one for one in evaluators if one.name == "memory_judge"), None)) and not options.dry_run:
            preflight.check_plan(options, data, prices, evaluators)
            environment.spend = money_limit(options)
            about["judge"] = await _calibrated(judge, data, environment)
        return await carry_out(options, environment, prices, data, [cell], evaluators, memory=about)


def _sampled(dataset: Any, most: int, seed: int) -> Any:
    """At most `most` questions of each conversation, evenly over their order and from another start in each, so that
    all types occur.
    """
    from context_bench.memory.datasets.recall_lab import spread

    def chosen() -> Iterator[Any]:
        for number, (_, questions) in enumerate(groupby(dataset.examples(), key=lambda example: example["group"])):
            yield from spread(list(questions), most, seed + number)

    asked, there = sum(1 for _ in chosen()), sum(1 for _ in dataset.examples())
    if asked == there:
        return dataset
    say(
        f"{dataset.name}: {asked} of {there} questions are asked, at most {most} of each conversation; --questions "
        "all asks all of them, "
        "--reader none measures only what is found, in seconds"
    )
    return replace(
        dataset, _read=chosen, _facts=lambda: {**dataset._facts(), "asked": asked, "of": there, "questions_each": most}
    )


async def _calibrated(judge: Any, data: list[Any], environment: RunEnvironment) -> str:
    """Rate at which the judge accepts answers that are known to be wrong, on questions of this very run."""
    from context_bench.judge.calibration import calibrate_answers

    asked = [example for dataset in data for example in islice(dataset.examples(), 100)]
    with open_ledger(Ledger(account="preflight", spend=environment.spend, calls=environment.overhead)):
        return (await calibrate_answers(judge, asked, most=10)).sentence


def _has_evidence(data: list[Any]) -> None:
    """Without a reader only retrieval is measured, and that needs to be known where the answers stand."""
    for dataset in data:
        if not any(example.get("evidence") or example.get("evidence_sessions") for example in dataset.examples()):
            raise BadInput(
                f"{dataset.name} does not say which turns hold its answers, so without a reader nothing can be "
                "measured; drop --reader none"
            )


def _kept_apart(cell: Cell, data: list[Any], trials: int) -> None:
    """Check memories if there are several conversations or trials: each memory has to be separated or emptied, known
    before it is asked.
    """
    from context_bench.memory.systems.adapting import check_separable

    groups = {(dataset.name, example["group"]) for dataset in data for example in dataset.examples()}
    if len(groups) * trials > 1:
        for arm in cell.arms:
            check_separable(arm.system.memory, arm.system.name)


def _too_long(options: MemoryOptions, data: list[Any]) -> str | None:
    """The ceiling to compare with where the bundled model cannot read a whole conversation; `None` where the usual one
    will do.
    """
    if options.reader != KEEPING or not options.floors:
        return None
    texts = {example["group"]: example["context"] for dataset in data for example in dataset.examples()}
    longest = max(map(count_tokens, texts.values()), default=0)
    if longest * DATED <= READABLE:
        return None
    say(
        f"a conversation of {longest:,} tokens is more than the bundled model reads at once: verdicts are against the "
        "oracle's evidence"
    )
    return "oracle"


def _metrics(field: str, trials: int) -> list[str]:
    """Tables that every memory report has beside the means: by type of question, tokens, declined answers; and how far
    trials lie apart.
    """
    names = ["per_qa_type", "token_efficiency", "memory_cost", "abstention", *(["memory_spread"] if trials > 1 else [])]
    return [f"{name}:score_field={field}" for name in names]


def _memories(options: MemoryOptions) -> list[tuple[str, bool]]:
    """Specs of all memories with whether each is a floor or ceiling only."""
    there = {_kind(spec) for spec in options.system}
    floors = [name for name in FLOORS if name not in there] if options.floors else []
    return [*((spec, False) for spec in options.system), *((spec, True) for spec in floors)]


def _check_names(specs: list[str]) -> None:
    """Refuse names that no memory has, before data is fetched for it."""
    from context_bench.memory.systems import BUILTINS, SCHEMES

    for spec in (parse_spec(text, SCHEMES) for text in specs):
        if (
            spec.scheme in ("name", "builtin")
            and spec.target not in BUILTINS
            and registry.find("memory", spec.target) is None
        ):
            raise UnknownName("memory", spec.target, [*BUILTINS, *registry.names("memory")])


def _wire(options: MemoryOptions, memories: list[tuple[str, bool]]) -> None:
    """Memories use the relay, whoever reads. One that calls a model by its own means is seen by a tap before it, a
    question at a time.
    """
    from context_bench.memory.systems.adapting import calls_models

    at_an_endpoint = options.reader != "none" and not (options.reader or "").startswith("py:")
    relay = options.relay or (options.reader if at_an_endpoint else KEEPING)
    if options.tap is None and any(calls_models(spec) for spec, _ in memories):
        options.tap, options.upstream, options.marker = "0", relay, "serial"
        options.max_workers = 1
    elif options.tap_port is not None:
        options.upstream = options.upstream or relay
    elif options.tap is None and options.relay not in (None, options.reader):
        options.upstream = relay


def _cell(
    options: MemoryOptions,
    environment: RunEnvironment,
    prices: Any,
    memories: list[tuple[str, bool]],
    own_reader: str | None,
) -> Cell:
    """All memories with one reader, compared with the whole conversation, or with word search where nobody reads."""
    from context_bench.engine import Arm
    from context_bench.memory.systems import Bridge, make_memory
    from context_bench.session.run_parts import is_local

    relay = environment.tap.url if environment.tap is not None else environment.upstream or environment.reader
    apart = options.reader is None or options.relay not in (None, options.reader)
    reads_at = environment.reader if apart else relay
    key = key_in(options.api_key_env)
    bills = None if is_local(options.relay or options.reader or "") else prices
    cell = Cell({"model": own_reader or _answering(options, reads_at), "shape": "memory"})
    for spec, floor in memories:
        limiter = environment.limiter(relay) if relay is not None else None
        memory = make_memory(spec, relay=relay, model=options.model[0], api_key=key, prices=bills, limiter=limiter)
        reader = _own_reader(own_reader) if own_reader else None
        if own_reader is None and reads_at is not None:
            reader = _reader(options, reads_at, prices, key, environment.limiter(reads_at))
        probes = 0 if floor else options.probes
        bridge = Bridge(memory, reader=reader, k=options.k[-1], probes=probes, name=_name(spec))
        cell.arms.append(Arm(system=bridge, role=_role(spec, floor)))
    refuse_equal_names(cell.names)
    cell.baseline = _baseline(options, cell, reads=own_reader is not None or reads_at is not None)
    return cell


def _role(spec: str, floor: bool) -> ArmRole:
    """The role of a memory. A floor or ceiling that was asked for with --system is under test, and is still of its
    kind.
    """
    kind = _kind(spec)
    if kind == "none":
        return ArmRole("known_bad", kind)
    return ArmRole("control" if floor else "candidate", kind)


def _kind(spec: str) -> str | None:
    """The floor, ceiling or search by words that a built-in memory is, whatever it is called here."""
    own = spec == _name(spec) and registry.find("memory", spec) is not None
    kind = _SAME_AS.get(_name(spec), _name(spec))
    return kind if kind in (*FLOORS, WORDS) and not own else None


def _answering(options: MemoryOptions, reads_at: str | None) -> str:
    """Name the reader, for the report: `sentence` calls no model, whatever --model says."""
    return "no reader" if reads_at is None else "no model" if options.reader == "sentence" else options.model[0]


def _name(spec: str) -> str:
    return spec.removeprefix("builtin:")


def _reader(options: MemoryOptions, url: str, prices: Any, key: str | None, limiter: Any) -> Any:
    """The reader of what was remembered: the same model, prompt and settings for every memory."""
    from context_bench.session.run_parts import is_local
    from context_bench.systems import OpenAIProxy

    reader = options.reader or KEEPING
    local = is_local(reader)
    body = dict(options.extra_body) | {"temperature": options.temperature if options.temperature is not None else 0}
    return OpenAIProxy(
        url,
        options.model[0],
        "reader",
        key,
        options.system_prompt,
        timeout=options.timeout,
        extra_body={**body, "max_tokens": options.max_tokens or (64 if local else 256)},
        max_retries=options.retries,
        shape="plain-user",
        prices=None if local else prices,
        limiter=limiter,
        identity=reader,
    )


def _own_reader(spec: str) -> Any:
    """A reader of the user's: any system."""
    return build("system", spec, {}, lambda found: hasattr(found, "process") or hasattr(found, "aprocess"))


def _baseline(options: MemoryOptions, cell: Cell, *, reads: bool) -> str | None:
    if options.baseline is not None:
        if options.baseline not in cell.names:
            raise BadInput(
                f"--baseline {options.baseline!r} is not a memory of this run; it has: {', '.join(cell.names)}"
            )
        return options.baseline
    return cell.usual_baseline(
        "full_context" if reads else WORDS
    )  # how well a whole conversation is ranked says nothing


def _evaluators(options: MemoryOptions, data: list[Any], prices: Any, reads: bool, accounts: Any) -> list[Any]:
    """Retrieval by evidence; with a reader also answers by what the datasets name, abstention, and a judge if one is
    named.
    """
    from context_bench.evaluators import BUILTINS
    from context_bench.memory.evaluators.retrieval import Retrieval

    used = [build("evaluator", name, BUILTINS) for name in ("memory_use", "updates")]
    own = [Retrieval(ks=tuple(options.k), budgets=tuple(options.budget_tokens)), *used]
    if not reads:
        return own
    more = ["abstention", "answer_variants", *(["memory_judge"] if options.judge_url else [])]
    asked = options.replaced(evaluator=[*options.evaluator, *more])
    taken = {"llm_judge", *(each.name for each in own)}
    return [*own, *(each for each in run_parts.evaluators(asked, data, prices, accounts) if each.name not in taken)]
