"""One run from options to exit code: bring up what stands around the systems, check, run, report."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.addresses import host_of, is_loopback
from context_bench.core.errors import BadInput, NothingToRun, PreflightFailed, UnknownName
from context_bench.core.machine import expanded, opened
from context_bench.core.records import Call
from context_bench.core.tokens import unload_vocabularies
from context_bench.llm.redact import key_in
from context_bench.session import interrupts, run_parts
from context_bench.session.offers import DEFAULT_STORE
from context_bench.session.options import RunOptions
from context_bench.session.output_files import say
from context_bench.session.run_parts import Accounts, is_local, started_upstream


def run_session(options: RunOptions, pilot: Any = None) -> int:
    """Run and report; returns the exit code. Ctrl-C keeps everything that was finished. `pilot.first(environment,
    datasets)` gives the options to begin with, and may leave in the environment those to go on with.
    """
    return interrupts.run(_session(options, pilot))


@dataclass(slots=True)
class RunEnvironment:
    """Servers of a run: the provider, the tap before it, a passthrough hop for the controls, a reader for
    systems without answers.

    `spend`: a money limit that already counts, if something was asked before the run; `overhead`: the attempts of that,
    until they are written down with the run. `result`: what the run found, once it is reported. `accounts`: the limits
    of what is asked. `before_report` is given the result of a completed run, its store and id, and may add to it.
    `goes_on`: what to ask after the pilot, in the same run; there is no report before that.
    """

    upstream: str | None = None
    tap: Any = None
    hop: str | None = None
    reader: str | None = None
    notes: list[str] = field(default_factory=list)
    spend: Any = None
    overhead: list[Call] = field(default_factory=list)
    result: Any = None
    accounts: Accounts | None = None
    before_report: Callable[[Any, Any, str], Awaitable[None]] | None = None
    goes_on: RunOptions | None = None

    def limiter(self, url: str) -> Any:
        """The limiter of requests to that endpoint; `None` where nobody has to wait."""
        return self.accounts.of(url) if self.accounts is not None else None


@asynccontextmanager
async def run_environment(options: RunOptions, accounts: Accounts | None = None) -> AsyncIterator[RunEnvironment]:
    """Start the local upstream, the tap and the passthrough hop that the options ask for; stop them afterwards."""
    _check_wiring(options)
    async with AsyncExitStack() as stack:
        environment = RunEnvironment(accounts=accounts or Accounts(options))
        if options.upstream:
            environment.upstream = await stack.enter_async_context(started_upstream(options.upstream))
        if options.reader:
            environment.reader = await stack.enter_async_context(started_upstream(options.reader))
        if options.tap is not None:
            environment.tap = await _tap(stack, options, environment)
        if options.controls:
            from context_bench.systems.serve import Served

            provider = environment.tap.url if environment.tap is not None else environment.upstream
            assert provider is not None, "checked: controls need --upstream"
            environment.hop = (await stack.enter_async_context(Served("full", provider))).url
        yield environment


def _check_wiring(options: RunOptions) -> None:
    if options.tap is not None and options.tap_port is None and options.upstream:
        raise BadInput(
            f"--tap {options.tap} is a running tap, which has its own upstream; leave out --upstream, or give --tap a "
            "port"
        )
    if options.tap_port is not None and not options.upstream:
        raise BadInput("--tap PORT needs --upstream: the provider's base URL, or embedded, echo, scripted:FILE")
    if options.controls and not (options.upstream or options.tap):
        raise BadInput(
            "--controls needs --upstream: the endpoint that the controls (passthrough, truncation …) talk to directly"
        )


async def _tap(stack: AsyncExitStack, options: RunOptions, environment: RunEnvironment) -> Any:
    from context_bench.tap import RemoteTap, Tap

    if options.tap_port is None:
        return await stack.enter_async_context(RemoteTap(options.tap or ""))
    assert environment.upstream is not None
    own = Tap(
        environment.upstream,
        port=options.tap_port,
        marker=options.marker,
        record=options.record,
        upstream_key=key_in(options.api_key_env),
    )
    return await stack.enter_async_context(own)


async def _session(options: RunOptions, pilot: Any) -> int:
    run_parts.import_modules(options.imports)
    _check_basics(options)
    data = _datasets(options)
    if said := run_parts.settle_evidence(options, data):
        say(said)
    async with run_environment(options) as environment:
        if pilot is not None:
            options = pilot.first(environment, data)
            data = _datasets(options)
        code = await _measured(options, environment, data)
        if environment.goes_on is not None:
            options, environment.before_report = environment.goes_on, None
            environment.goes_on = None
            code = await _measured(options, environment, _datasets(options))
        return code


async def _measured(options: RunOptions, environment: RunEnvironment, data: list[Any]) -> int:
    from context_bench.session import arms

    prices = run_parts.prices(options)
    evaluators = run_parts.evaluators(options, data, prices, environment.accounts)
    if chosen := run_parts.settle_score(options, data, evaluators):
        say(chosen)
    local = is_local(options.upstream or "") and not (options.price or options.price_model)
    cells = arms.cells(options, environment, None if local else prices)  # what local models answer costs nothing
    if options.evidence_only:
        cells[0].notes.append(
            "No model was asked (--evidence-only): the verdicts are about what arrived of the evidence, word for "
            "word, not about answers."
        )
    return await carry_out(options, environment, prices, data, cells, evaluators)


def _datasets(options: RunOptions) -> list[Any]:

    try:
        return run_parts.datasets(options)
    except (UnknownName, BadInput) as error:
        raise NothingToRun(str(error)) from error


async def carry_out(
    options: RunOptions,
    environment: RunEnvironment,
    prices: Any,
    data: list[Any],
    cells: list[Any],
    evaluators: list[Any],
    **more: Any,
) -> int:
    """Check, run and report what was put together; returns the exit code. `more` goes into the manifest."""
    from context_bench.engine import open_store
    from context_bench.engine.commit import rare_collections
    from context_bench.session import preflight

    arms = [arm for cell in cells for arm in cell.arms]
    preflight.check_plan(options, data, prices, evaluators)
    run_parts.metrics(options, several_datasets=len(data) > 1)  # refuses one that cannot be made, before any cost
    executor_of(options, environment)
    run_parts.remark(options.title, options.tag)
    if options.dry_run:
        preflight.show(preflight.forecast(options, data, arms, evaluators, prices), options)
        return 0
    with closing(open_store(store_of(options))) as store:
        name = run_name(store, options)
        spend = environment.spend or run_parts.spend(options, store, name)
        await preflight.check_sizes(options, environment, cells, data, spend)
        arms = [arm for cell in cells for arm in cell.arms]
        await preflight.check_systems(options, environment, arms, evaluators, spend)
        manifest = run_parts.manifest(options, data, cells, {**_conditions(options, environment, prices), **more})
        with rare_collections():
            return await _run_and_report(options, environment, store, name, cells, data, evaluators, manifest, spend)


async def _run_and_report(
    options: RunOptions,
    environment: RunEnvironment,
    store: Any,
    name: str | None,
    cells: list[Any],
    data: list[Any],
    evaluators: list[Any],
    manifest: dict[str, Any],
    spend: Any,
) -> int:
    from context_bench.datasets.examples import Chained
    from context_bench.engine import RunSettings, execute
    from context_bench.engine.progress import TerminalProgress
    from context_bench.runner import add_notes, collect
    from context_bench.session import reporting
    from context_bench.session.runs import left_behind, report_stored

    metrics = run_parts.metrics(options, several_datasets=len(data) > 1)
    source: Any = Chained(data)
    looks = _looks(options, cells, source, data, manifest)
    before = _same_design(store, name, manifest)

    async def go(examples: Any, name: str | None, total: int | None, *, to_go_on: bool = False) -> Any:
        return await execute(
            store,
            name=name,
            arms=[arm for cell in cells for arm in cell.arms],
            examples=examples,
            evaluators=evaluators,
            manifest=manifest,
            settings=RunSettings(
                trials=options.trials,
                seed=options.seed,
                max_workers=options.max_workers,
                example_timeout=options.example_timeout,
                setup_timeout=options.setup_timeout,
                run_timeout=options.run_timeout,
                bodies=options.bodies or "auto",
            ),
            recorder=environment.tap,
            spend=spend,
            progress=None if options.quiet else TerminalProgress(),
            total=total,
            reuse="all" if options.reuse or options.cache_dir else "run",
            executor=executor_of(options, environment),
            limits=environment.accounts.limit_changes if environment.accounts is not None else None,
            overhead=environment.overhead,
            to_go_on=to_go_on,
            remark=run_parts.remark(options.title, options.tag),
        )

    if looks is None:
        # it may take reading a file
        executed = await go(source, name, None if options.quiet else _at_most(options, data))
    else:
        executed = await _until_decided(store, name, looks, go, metrics)
    if executed.reused_note:
        say(executed.reused_note)
    if environment.tap is None:  # else the bill of what arrived is yet to be counted
        unload_vocabularies()
    result = collect(store, executed.run_id, metrics)
    if executed.completed:
        if looks is None and not options.pilot and (left := left_behind(store, before, executed.run_id)):
            say(left)
        from context_bench.session.activity import activity_notes

        found = [
            *await activity_notes(options, environment.tap, cells, result),
            *(note for cell in cells for note in cell.notes),
        ]
        result.notes += found
        add_notes(store, executed.run_id, found)
        if environment.before_report is not None:
            await environment.before_report(result, store, executed.run_id)
    if environment.goes_on is not None:
        return reporting.exit_code(result, executed, 1.0, store_of(options))
    report_stored(
        store,
        executed.run_id,
        result,
        options.output,
        options.out,
        full=options.full,
        place=store_of(options),
        as_stored=environment.before_report is None,
    )
    environment.result = result
    return reporting.exit_code(result, executed, options.max_failures, store_of(options))


def _looks(options: RunOptions, cells: list[Any], source: Any, data: list[Any], manifest: dict[str, Any]) -> Any:
    """The examples in the order of the looks of `--until-decided`, declared in the manifest; `None` without it."""
    if not options.until_decided:
        return None
    if not any(cell.baseline for cell in cells):
        raise BadInput("--until-decided needs something to compare with, such as --controls: one system has no verdict")
    from context_bench.engine.looks import ExamplesInLooks

    mine = {arm.name for cell in cells for arm in cell.arms if not arm.role.is_control and arm.name != cell.baseline}
    found = ExamplesInLooks.planned(source, data, several=len(mine) > 1)
    manifest["design"] = {**(manifest.get("design") or {}), "until_decided": found.design}
    return found


def _same_design(store: Any, name: str | None, manifest: dict[str, Any]) -> Any:
    """The run of that name so far, if there is one. Refuse to go on with a run whose looks were declared to be others:
    its verdicts would not be what they say. Of a run that an earlier version began the levels stay.
    """
    from context_bench.engine import list_runs
    from context_bench.engine.looks import as_begun, planned_looks

    before = next((run for run in list_runs(store) if name is not None and run.name == name), None)
    if before is not None and "pilot" in (before.manifest.get("design") or {}) and not planned_looks(before.manifest):
        return before  # what follows a pilot is declared after it
    if before is not None and (looks := planned_looks(manifest)) is not None:
        manifest["design"]["until_decided"] = as_begun(looks, planned_looks(before.manifest))
    if before is not None and planned_looks(before.manifest) != planned_looks(manifest):
        begun = "with" if planned_looks(before.manifest) is not None else "without"
        raise BadInput(
            f"run {name!r} was begun {begun} --until-decided, or with other examples: the looks at it were declared "
            "then. Go on with the same options, or give another --run"
        )
    return before


async def _until_decided(store: Any, name: str | None, looks: Any, go: Any, metrics: list[Any]) -> Any:
    """Answer the examples up to a look, take it, and so on until every system has its verdict or they are all done."""
    from context_bench.engine import list_runs, run_of
    from context_bench.engine.looks import all_decided, looks_taken, take_look
    from context_bench.engine.store.run_records import finish
    from context_bench.runner import collect

    most = len(looks.ends)
    past = next((run.manifest for run in list_runs(store) if name is not None and run.name == name), {})
    while True:
        taken, over = looks_taken(past), all_decided(past)
        part = looks.first(taken if over else min(taken + 1, most))
        executed = await go(part, name, len(part), to_go_on=True)
        name, run = executed.name, executed.run_id
        if not executed.completed:
            return executed
        past = run_of(store, run).manifest
        if looks_taken(past) > taken:  # an unfinished run was gone on with, which had been looked at before
            continue
        if over or taken == most or take_look(store, run, lambda store, run: collect(store, run, metrics)):
            finish(store, run)
            return executed
        past = run_of(store, run).manifest


def money_limit(options: RunOptions, *others: Callable[[str], str]) -> Any:
    """The limit of `--max-cost` for what is asked before the run, and then for the run; `None` without one. What the
    run has spent before counts, and what runs did that `others` name after it.
    """
    from context_bench.engine import open_store

    if options.max_cost is None:
        return None
    with closing(open_store(store_of(options))) as store:
        name = run_name(store, options)
        return run_parts.spend(options, store, *([name, *(other(name) for other in others)] if name else []))


def checked_name(flag: str, name: str | None, what: str = "run") -> str | None:
    """The name that a user gives a run or a watch. `BadInput` for one by which it could not be shown."""
    if name is not None and name.strip() in ("", "last"):
        raise BadInput(
            f"{flag} {name!r}: expected a name; 'last' stands for the newest {what}. Choose another name, "
            f"or leave {flag} out for a name that is made"
        )
    return name


def run_name(store: Any, options: RunOptions) -> str | None:
    """The name to run under: `--run`, the run that `--resume` means, or none (then an unfinished run of the same
    content goes on).
    """
    from context_bench.engine import list_runs, run_of

    checked_name("--run", options.run)
    if options.resume is None:
        return options.run
    if options.resume != "last":
        return str(run_of(store, options.resume).name)
    unfinished = next((run for run in list_runs(store) if run.status not in ("done", "copying")), None)
    if unfinished is None:
        raise BadInput("--resume: every run in the store is finished; name one, or leave --resume out")
    return str(unfinished.name)


def _conditions(options: RunOptions, environment: RunEnvironment, prices: Any) -> dict[str, Any]:
    caches = (
        "shared by all arms" if options.cache_namespace == "none" else "kept apart by a first line of each arm's own"
    )
    if options.upstream is not None and is_local(options.upstream):
        caches = "off (local model)"
    return {
        "prices": {
            "source": prices.source,
            "date": prices.date,
            **({"model": options.price_model} if options.price_model else {}),
        },
        "tap": None if environment.tap is None else {"marker": options.marker, "record": options.record},
        "provider_caches": caches,
        **({"load": environment.accounts.load()} if environment.accounts is not None else {}),
    }


def _check_basics(options: RunOptions) -> None:
    if not options.all_proxies and not options.system and not options.controls:
        raise NothingToRun(
            "nothing to measure: give --proxy URL (repeatable), --system SPEC, or --controls with --upstream"
        )
    if not options.dataset:
        raise NothingToRun(
            "--dataset is missing: a built-in name such as hotpotqa, bundled:pydocs-qa, hf:OWNER/NAME, or a file"
        )
    if (
        options.max_cost is not None
        and options.upstream
        and is_local(options.upstream)
        and not (options.price or options.price_model)
    ):
        raise PreflightFailed(
            "--max-cost: local models have no price; give one with --price MODEL=INPUT,OUTPUT or --price-model NAME"
        )


def store_of(options: RunOptions) -> str:
    """The run's store: `--store`, the store in `--cache-dir`, or the default."""
    if options.store:
        return options.store
    return f"{options.cache_dir}/store.db" if options.cache_dir else DEFAULT_STORE


def _at_most(options: RunOptions, data: list[Any]) -> int | None:
    """The examples there can be, for progress; `None` where that is known only when all are read."""
    sizes = [_size(each, options.max_examples) for each in data]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _size(dataset: Any, limit: int | None) -> int | None:
    from context_bench.datasets import datasets_known, describe
    from context_bench.datasets.examples import LoadedDataset

    if not isinstance(dataset, LoadedDataset):
        return None  # `-n` limits sessions, conversations or tasks there
    size = None
    if dataset.name.endswith(".jsonl"):
        with opened(expanded(dataset.name)) as file:
            size = sum(not line.isspace() for line in file)
    elif dataset.name in datasets_known():
        size = describe(dataset.name).get("size")
    return limit if size is None else size if limit is None else min(size, limit)


def executor_of(options: RunOptions, environment: RunEnvironment) -> Any:
    """The executor that `--executor` names; `None` is this process. Raises `BadInput` for what nodes cannot do,
    `MissingExtra` without Ray.
    """
    if options.executor == "local":
        if options.ray_address is not None:
            raise BadInput("--ray-address needs --executor ray")
        return None
    if options.tap_port is not None:
        raise BadInput(
            f"--tap {options.tap}: a tap inside this run cannot be asked from Ray's nodes. Start one on this machine "
            "(context-bench tap "
            "--upstream URL) and give --tap its URL; that will do if all nodes are on this machine, else use "
            "--executor local"
        )
    from context_bench.engine.executors.ray_nodes import RayNodes

    return RayNodes(options.ray_address, local_only=only_here(options, environment))


def only_here(options: RunOptions, environment: RunEnvironment) -> str:
    """The endpoints of the run that only this machine can reach; empty if there are none."""
    asked: list[tuple[str, str | None]] = [("--proxy", proxy.url) for proxy in options.all_proxies]
    asked += [("--upstream", environment.upstream), ("--controls", environment.hop), ("--reader", environment.reader)]
    asked += [("--judge-url", options.judge_url), ("--tap", options.tap)]
    return ", ".join(
        dict.fromkeys(name for name, url in asked if url and is_loopback(host_of(url if "//" in url else f"//{url}")))
    )
