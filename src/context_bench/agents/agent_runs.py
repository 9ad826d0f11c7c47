"""Run agents against each other, from Python: the functions and records behind `context_bench.agents`.

`Solved` scores a run by what the task's own tests said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.core.records import Example, Result
from context_bench.core.roles import CANDIDATE, ArmRole, described_cell, roles_in

if TYPE_CHECKING:
    from context_bench.agents.figures import AgentRun
    from context_bench.agents.systems import AbortRules, ArmSpec
    from context_bench.results import EvalResult

#: The arm in which nothing is done: what it solves says nothing, and who does not beat it has lost.
NOTHING = "none"


@dataclass(slots=True)
class Line:
    """The arms of a run: `arms` as given, `floor`: the baseline once more, `nothing`: the arm that does nothing.
    `baseline`: a name.
    """

    arms: list[ArmSpec]
    baseline: str
    floor: ArmSpec | None = None
    nothing: bool = True
    roles: dict[str, ArmRole] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All names, in the order of reports."""
        own = [arm.name for arm in self.arms]
        return [*own, *([self.floor.name] if self.floor else []), *([NOTHING] if self.nothing else [])]

    def cell(self) -> dict[str, Any]:
        """The cell of the run's manifest."""
        return described_cell({}, {name: self.roles[name] for name in self.names}, self.baseline)

    @property
    def controls(self) -> list[str]:
        """The names of the arms that are there for comparison."""
        return list(self.cell()["controls"])


def model_behind(upstream: str | None) -> str | None:
    """The upstream behind the tap, where `scripted:bundled:repo-tasks` is the shipped model that solves the bundled
    tasks.
    """
    from context_bench.agents.datasets import BUNDLED, SCRIPT

    return f"scripted:{SCRIPT}" if upstream == f"scripted:{BUNDLED}" else upstream


def line_up(
    arms: Sequence[ArmSpec],
    *,
    baseline: str | None = None,
    noise_floor: bool | None = None,
    trials: int = 1,
    nothing: bool = True,
) -> Line:
    """Names checked, and what is added: `BASE#2`, the baseline again (default: with two trials or more), and `none`,
    doing nothing.

    The baseline is the arm of that name, else the one called `base`, else the first. An arm given twice word for word
    is its own noise floor; one that only has such a name is not. Raises `BadInput`.
    """
    from context_bench.agents.systems.arm_specs import again, twice

    given = list(arms)
    made = twice(given)
    if not made:
        raise BadInput(
            "no arm: give --arm NAME= for the agent as it is, and --arm NAME='KEY=VALUE …' or NAME=SCRIPT for what is "
            "compared"
        )
    names = [arm.name for arm in made]
    base = baseline or ("base" if "base" in names else names[0])
    if base not in names:
        raise BadInput(f"baseline {base!r} is no arm; there are: {', '.join(names)}")
    wanted = trials >= 2 if noise_floor is None else noise_floor
    repeated = {own.name: first.name for first, own in zip(given, made, strict=True) if own.name != first.name}
    number = next(number for number in range(2, len(names) + 3) if f"{base}#{number}" not in names)
    floor = again(made[names.index(base)], number) if wanted and base not in repeated.values() else None
    line = Line(made, base, floor, nothing and NOTHING not in names)
    line.roles = {name: ArmRole("noise_floor", of=repeated[name]) if name in repeated else CANDIDATE for name in names}
    line.roles |= {floor.name: ArmRole("noise_floor", of=base)} if floor else {}
    line.roles |= {NOTHING: ArmRole("known_bad", "none")} if line.nothing else {}
    return line


def run_agents(
    tasks: str | Path | Iterable[Example],
    arms: Mapping[str, str] | Sequence[ArmSpec],
    command: Sequence[str],
    *,
    upstream: str | None = None,
    tap_port: int = 0,
    upstream_key: str | None = None,
    limits: AbortRules | None = None,
    trials: int = 1,
    noise_floor: bool | None = None,
    nothing: bool = True,
    baseline: str | None = None,
    margin: float | None = None,
    seed: int = 0,
    max_workers: int = 1,
    store: str | Path | None = None,
    run: str | None = None,
    prices: Any = None,
    environment: Mapping[str, str] | None = None,
    readable: Iterable[str | Path] = (),
    stdin: bool = False,
    unsafe: bool = False,
    repos: str | Path | None = None,
    test_command: str = "",
    max_tasks: int | None = None,
    progress: bool = False,
) -> EvalResult:
    """Every arm on every task, `trials` times, each in a fresh copy behind walls, in seeded random order; verified by
    the tasks' tests.

    `tasks`: what `context_bench.agents.datasets.load_tasks` reads, or examples of that shape. `arms`: name → text as
    after `NAME=` on the command line. `upstream`: what stands behind the tap (a URL, `embedded`, `scripted:FILE`);
    without it there is no tap, and calls, tokens and money are not known. `repos`, `test_command`: for rows like
    SWE-bench's, see `load_tasks`. Other arguments: see `Agent`, `line_up` and `evaluate`. Raises `BadInput`,
    `MissingProgram`, `PreflightFailed`.
    """
    from context_bench.llm.background import run_sync

    return run_sync(
        _run(
            *_examples(tasks, max_tasks, repos, test_command),
            line_up(_specs(arms), baseline=baseline, noise_floor=noise_floor, trials=trials, nothing=nothing),
            list(command),
            upstream=model_behind(upstream),
            tap_port=tap_port,
            upstream_key=upstream_key,
            limits=limits,
            settings={"trials": trials, "seed": seed, "max_workers": max_workers},
            margin=margin,
            store=store,
            run=run,
            prices=prices,
            agent={"environment": environment, "readable": tuple(readable), "stdin": stdin, "unsafe": unsafe},
            progress=progress,
        )
    )


def _specs(arms: Mapping[str, str] | Sequence[ArmSpec]) -> list[ArmSpec]:
    from context_bench.agents.systems.arm_specs import parse_arm

    return [parse_arm(f"{name}={text}") for name, text in arms.items()] if isinstance(arms, Mapping) else list(arms)


def _examples(
    tasks: str | Path | Iterable[Example], most: int | None, repos: str | Path | None, test_command: str
) -> tuple[list[Example], list[str]]:
    """The tasks, and those that cannot be run here, each with its reason."""
    if not isinstance(tasks, str | Path):
        return list(tasks)[:most], []
    from context_bench.agents.datasets import load_tasks

    found = load_tasks(str(tasks), repos=repos, n=most, test_command=test_command)
    return list(found), [f"{one.id}: {one.reason}" for one in found.refused]


async def _run(
    examples: list[Example],
    refused: list[str],
    line: Line,
    command: list[str],
    *,
    upstream: str | None,
    tap_port: int,
    upstream_key: str | None,
    limits: AbortRules | None,
    settings: dict[str, Any],
    margin: float | None,
    store: str | Path | None,
    run: str | None,
    prices: Any,
    agent: dict[str, Any],
    progress: bool,
) -> EvalResult:
    import tempfile
    from contextlib import AsyncExitStack, closing

    from context_bench.agents.systems import AbortRules
    from context_bench.agents.systems.arm_specs import require_reachable
    from context_bench.engine import RunSettings, execute, open_store
    from context_bench.engine.progress import TerminalProgress
    from context_bench.llm.prices import GenaiPrices
    from context_bench.metrics import CostOfPass, MeanScore
    from context_bench.runner import collect
    from context_bench.tap import Tap

    rules = limits or AbortRules()
    if not examples:
        raise BadInput("no task to run")
    async with AsyncExitStack() as stack:
        where = (
            str(store)
            if store is not None
            else stack.enter_context(tempfile.TemporaryDirectory(prefix="context-bench-")) + "/store.db"
        )
        tap = (
            await stack.enter_async_context(Tap(upstream, port=tap_port, upstream_key=upstream_key))
            if upstream
            else None
        )
        database = stack.enter_context(closing(open_store(where)))
        await require_reachable(line.arms)
        told = {
            "limits": rules.told(),
            "command": command,
            "baseline": line.baseline,
            "nothing": NOTHING if line.nothing else None,
        }
        told["refused"] = refused
        manifest = {
            "cells": [line.cell()],
            "margin": {"value": margin, "rule": margin_rule(margin), "score_field": "solved"},
            "options": {"seed": settings["seed"], "trials": settings["trials"], "upstream": upstream},
            "agents": told,
        }
        executed = await execute(
            database,
            name=run,
            arms=arms_of(line, command, rules, tap=tap, prices=prices or GenaiPrices({}), identity=upstream, **agent),
            examples=examples,
            evaluators=[Solved()],
            manifest=manifest,
            settings=RunSettings(**settings),
            recorder=tap,
            progress=TerminalProgress() if progress else None,
        )
        if executed.stopped is not None:
            raise executed.stopped
        result = collect(
            database,
            executed.run_id,
            [MeanScore(score_field="solved"), CostOfPass(threshold=1.0, score_field="solved")],
        )
        result.rows = list(result.rows)
        return result


def margin_rule(margin: float | None) -> str:
    """The source of a run's margin, in words."""
    return "given" if margin is not None else "min(0.02, 10 % of base − none)"


def arms_of(
    line: Line,
    command: Sequence[str],
    limits: AbortRules,
    *,
    tap: Any = None,
    prices: Any = None,
    identity: str | None = None,
    **more: Any,
) -> list[Any]:
    """The arms of the engine. `tap`: a started one in this process, or `None`. `more`: further arguments of `Agent`."""
    from context_bench.agents.systems import Agent
    from context_bench.engine import Arm

    if tap is None and limits.watching:
        raise BadInput(
            "a limit on calls or money needs a tap that sees them: give --upstream (and no URL of a running tap)"
        )
    for spec in line.arms:  # a place that this run does not have is told now, not by every run
        spec.values({"tap": None if tap is None else tap.url, "key": "", "workspace": "", "home": "", "path": ""})
    shared = {
        "limits": limits,
        "tap": None if tap is None else tap.url,
        "look": getattr(tap, "seen", None),
        "prices": prices,
    }
    specs = [*line.arms, *([line.floor] if line.floor else [])]
    agents = [Agent(spec.name, command, spec, identity=identity, **shared, **more) for spec in specs]
    agents += [Agent(NOTHING, None, unsafe=bool(more.get("unsafe")))] if line.nothing else []
    made = [Arm(system=agent, role=line.roles[agent.name]) for agent in agents]
    return made


def add_agents(result: Result, told: Mapping[str, Any]) -> None:
    """Fill in `result.agents`, figures in the summary, and notes. `told`: `agents` of the run's manifest."""
    from context_bench.agents.figures import (
        AgentRun,
        Contest,
        amounts_against,
        by_task,
        cost_per_solved_against,
        figures,
        flips,
    )

    base, nothing = str(told.get("baseline")), told.get("nothing")
    runs: dict[str, list[AgentRun]] = {name: [] for name in result.summary}
    why: dict[tuple[str, str], str] = {}
    for row in result.rows:
        runs.setdefault(row.system, []).append(AgentRun.of(row))
        if said := row.metadata.get("why"):
            why.setdefault((row.system, str(row.metadata.get("abort"))), str(said))
    doing = {name: own for name, own in runs.items() if name != nothing}
    margin = next((each.margin for each in result.comparisons), None)
    seed = (result.manifest.get("options") or {}).get("seed") or 0
    roles = roles_in(result.manifest, runs)
    aside = {
        name for name, own in roles.items() if own.role == "known_bad" or (own.role == "noise_floor" and own.of == base)
    }
    candidates = [name for name in doing if name not in (base, *aside)]
    contest = Contest(base, candidates, [name for name in runs if roles[name].role == "known_bad"], margin, seed)
    arms = {name: figures(own) for name, own in runs.items()}
    against = {name: amounts_against(own, runs.get(base, []), seed=seed) for name, own in doing.items() if name != base}
    verdicts = contest.verdicts(runs)
    for name, amounts in against.items():
        if per_solved := cost_per_solved_against(runs[name], runs.get(base, []), verdicts.get(name)):
            amounts["cost_per_solved"] = per_solved
    result.agents = {
        "baseline": base,
        "nothing": nothing,
        "limits": told.get("limits"),
        "sandbox": dict(Counter(str(row.metadata["sandbox"]) for row in result.rows if row.metadata.get("sandbox"))),
        "walls": dict(Counter(str(row.metadata["walls"]) for row in result.rows if row.metadata.get("walls"))),
        "refused": list(told.get("refused") or []),
        "arms": arms,
        "against": against,
        "without_one": flips(contest, runs),
        "tasks": by_task(runs),
    }
    for name, values in result.summary.items():
        values.update(
            {f"agent_{key}": arms[name][key] for key in ("aborted", "calls_mean", "cost_sum") if key in arms[name]}
        )
        values.update({f"{key}_ratio": amount["ratio"] for key, amount in against.get(name, {}).items()})
    result.notes[:0] = _notes(result.agents, runs)
    for (name, abort), said in why.items():
        if abort in ("agent error", "verify error"):
            result.notes.append(
                f"{name}: {arms[name]['aborts'].get(abort, 0)} of {len(runs[name])} runs: {abort}, for instance: "
                f"{said[:300]}"
            )


def _notes(agents: Mapping[str, Any], runs: Mapping[str, Sequence[Any]]) -> list[str]:
    """Notes that stand above the numbers."""
    limits = {key.removeprefix("max_"): value for key, value in (agents["limits"] or {}).items() if value is not None}
    said = ", ".join(f"{key} {value:g}" for key, value in limits.items())
    said = f"{said}, " * bool(said) + "seconds as each task says" if "seconds" not in limits else said
    notes = []
    if bare := agents["sandbox"].get("none"):
        notes.append(
            f"NO SANDBOX: {bare} of {sum(agents['sandbox'].values())} runs had no walls (--unsafe). Agents could read "
            "and change whatever "
            "this user can, the hidden tests and each other's work included: take no figure here for more than a trial."
        )
    several = len(agents["walls"]) > 1
    notes += [f"{said} ({count} runs)" if several else said for said, count in agents["walls"].items()]
    if refused := agents["refused"]:
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
        notes.append(f"{len(refused)} task(s) passed over: {'; '.join(refused[:5])}{more}.")
    notes.append(
        f"Abort rule, the same for all arms: {said}. A run that is ended by it, or whose agent fails, counts as not "
        "solved."
    )
    nothing = agents.get("nothing")
    if len({run.task for own in runs.values() for run in own}) < _ENOUGH_TASKS:
        notes.append(_FEW_TASKS)
    notes += [
        f"{name}: {amounts['cost_per_solved']['sentence']}"
        for name, amounts in agents["against"].items()
        if "cost_per_solved" in amounts
    ]
    if free := [run.task[1] for run in runs.get(nothing or "", []) if run.solved]:
        notes.append(f"Solved by doing nothing, so they tell nothing: {', '.join(dict.fromkeys(free))}.")
    for name, own in runs.items():
        silent = sum(run.calls == 0 for run in own)
        if silent and name != nothing:
            notes.append(
                f"{name}: {silent} of {len(own)} runs made no call that the tap saw. Does the agent read "
                "OPENAI_BASE_URL or "
                "ANTHROPIC_BASE_URL, and is the tap the upstream of the arm's proxy?"
            )
        unpriced = sum(run.cost is None and bool(run.calls) for run in own)
        if unpriced:
            notes.append(
                f"{name}: no price is known for {unpriced} of {len(own)} runs; --price MODEL=INPUT,OUTPUT gives one."
            )
    return notes


_ENOUGH_TASKS = 50
#: `python benchmarks/coverage.py agents`: the share of runs in which an arm that solves just as many is cleared.
_FEW_TASKS = (
    "Fewer than 50 tasks tell little: at a margin of 10 points, for example, an arm solving just as many is cleared "
    "in about 6 % of runs of 12 tasks of 3 trials, in 33 % of 20, in 75 % of 50. More tasks tell more than more trials."
)


class Solved:
    """`solved`: 1 if every test that had to pass does, else 0; so also for a run that a rule ended before it was
    done.
    """

    name, version = "solved", "1"
    needs: tuple[str, ...] = ()
    fields = ("solved",)

    def applies(self, example: Example, output: Example) -> bool:
        """The output is one of an agent."""
        return isinstance(output.get("solved"), bool)

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """1.0 or 0.0; nothing where no tests were run."""
        return {"solved": float(processed["solved"])} if self.applies(original, processed) else {}
