"""`context-bench agent`: agents on repository tasks, arm against arm, verified by the tasks' own tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from context_bench.agents.agent_runs import NOTHING, Line, arms_of, line_up, margin_rule, model_behind
from context_bench.core.errors import BadInput, NothingToRun, PreflightFailed
from context_bench.core.measures import dollars
from context_bench.core.records import Example
from context_bench.session import interrupts, run_parts
from context_bench.session.arms import Cell
from context_bench.session.flags import flag, options_of, own, takes
from context_bench.session.offers import Many
from context_bench.session.options import RunOptions
from context_bench.session.output_files import say
from context_bench.session.run_parts import is_local
from context_bench.session.run_session import carry_out, run_environment

if TYPE_CHECKING:
    from context_bench.agents.systems import AbortRules


class AgentOptions(RunOptions):
    """The options of `context-bench agent`; `max_examples` counts tasks."""

    changes: ClassVar = {
        "model": own(default=[]),
        "max_examples": own("Most tasks.", names="-n --max-examples --max-tasks"),
        "score_field": own(default="solved"),
        "threshold": own(default=1.0),
        "max_workers": own("Agents at work at once.", rare=True),
        "tap": own("Port of the tap, which is a proxy arm's upstream.", unit="PORT"),
        "upstream": own("The model's provider behind the tap: a URL, embedded, or scripted:FILE."),
        "baseline": own("Arm that the others are compared with.", note="base, else the first"),
        "margin": own("Loss of solve rate that would still be acceptable, such as 0.1."),
        "trials": own("Times each task is given to each arm."),
        "seed": own(rare=True),
        "max_cost": own("Begin no further agent once this many US dollars are spent (exit 5)."),
        "marker": own("How calls are recognised behind a proxy: key, serial."),
        "max_failures": own("Share of failures per arm above which the exit code is 1."),
    }

    bodies: Any = own("Keep request and reply bodies: all, none.", default="all", note="all")

    tasks: str = flag("Folder or file of tasks; the command's argument.", "")
    arm: Many = flag(
        "NAME= (as it is), NAME='KEY=VALUE …' for its environment, or NAME=SCRIPT run before it.", [], unit="NAME=…"
    )
    command: list[str] = own()
    max_seconds: float | None = flag("Abort rule: seconds of one run.", note="the task's own", gt=0)
    max_calls: int | None = flag("Abort rule: answered calls of the model in one run.", ge=1)
    max_cost_per_task: float | None = flag("Abort rule: US dollars of one run.", unit="USD", gt=0)
    noise_floor: bool | None = flag("Run the baseline twice.", note="with 2 trials or more", pair=True)
    nothing: bool = flag("Also verify every task with nothing done (arm none).", True, note="yes", rare=True, pair=True)
    stdin: bool = flag("Give the instruction to CMD's standard input.", False, rare=True)
    pass_env: Many = flag("Variable of this shell that agents get, too; repeatable.", [], unit="NAME", rare=True)
    readable: Many = flag("Path that agents may read; repeatable.", [], unit="PATH", rare=True)
    repos: str | None = flag("Folder with the repositories that tasks name.", unit="DIR", rare=True)
    test_command: str = flag("What runs the tests of rows that name no command.", "", unit="CMD", rare=True)
    unsafe: bool = flag("Without a sandbox where none works: agents can do all that you can.", False, rare=True)


@takes(
    AgentOptions,
    "arm upstream tap trials max_examples max_seconds max_calls max_cost_per_task baseline margin noise_floor "
    "output out full store run max_cost dry_run nothing stdin pass_env readable repos test_command unsafe seed "
    "max_workers api_key_env marker run_timeout bodies resume title tag reuse price price_model max_failures "
    "quiet config",
)
def command(
    context: typer.Context,
    tasks: Annotated[
        str,
        typer.Argument(
            help="Folder or file of tasks (Harbor, SWE-bench-like), or bundled:repo-tasks.", metavar="TASKS"
        ),
    ],
    **_given: Any,
) -> int:
    """Give repository tasks to an agent (`-- CMD`) in several arms, each run in a fresh copy behind walls.

    In CMD: {instruction}, {instruction_file}, {workspace}. In an arm's values: {tap}, {key}, {workspace}, {home},
    {path}.
    """
    return run_them(options_of(context, AgentOptions, command=list(context.args)))


TAP_PORT = "9090"


def run_them(options: AgentOptions) -> int:
    """Run and report; returns the exit code."""
    return interrupts.run(_run(_completed(options)))


def _completed(options: AgentOptions) -> AgentOptions:
    """With what follows from other options; faults that can be seen at once are told."""
    if not options.command:
        raise BadInput("the agent's command is missing: give it after --, such as -- my-agent --task {instruction}")
    if not options.arm:
        raise BadInput(
            "--arm is missing: --arm base= for the agent as it is, then --arm NAME='KEY=VALUE …' or --arm NAME=SCRIPT"
        )
    if options.tap is not None and options.tap_port is None:
        raise BadInput(
            f"--tap {options.tap}: runs of agents need a tap of their own; give a port, and the provider with "
            "--upstream"
        )
    options.upstream = model_behind(options.upstream)
    if options.upstream and options.tap is None:
        options.tap = TAP_PORT
    if options.rpm or options.tpm or options.fixed_concurrency:
        raise BadInput(
            "rpm, tpm and fixed_concurrency hold for requests that this program sends; an agent sends its own. "
            "--max-workers says how many "
            "agents are at work, --max-calls, --max-cost-per-task and --max-cost what they may take"
        )
    if options.marker == "header":
        raise BadInput(
            "--marker header: an agent sends no header of ours; use key (each run has a key of its own) or serial"
        )
    if not options.upstream and (options.max_calls or options.max_cost_per_task):
        raise BadInput(
            "--max-calls and --max-cost-per-task need --upstream: only a tap in front of the model sees calls and money"
        )
    limited = options.max_cost is not None or options.max_cost_per_task is not None
    if limited and options.upstream and is_local(options.upstream) and not (options.price or options.price_model):
        raise PreflightFailed(
            "a limit on money: local models have no price; give one with --price MODEL=INPUT,OUTPUT or --price-model "
            "NAME"
        )
    missing = [name for name in options.pass_env if name not in os.environ]
    if missing:
        raise BadInput(f"--pass-env {missing[0]}: this shell has no such variable")
    return options


async def _run(options: AgentOptions) -> int:
    from context_bench.agents.agent_runs import Solved
    from context_bench.agents.systems import AbortRules, parse_arm
    from context_bench.agents.systems.arm_specs import require_reachable

    tasks = TaskSet(options)
    specs = [parse_arm(text) for text in options.arm]
    line = line_up(
        specs,
        baseline=options.baseline,
        noise_floor=options.noise_floor,
        trials=options.trials,
        nothing=options.nothing,
    )
    limits = AbortRules(options.max_seconds, options.max_calls, options.max_cost_per_task)
    if options.dry_run:
        return _forecast(options, line, tasks.found, limits)
    if options.unsafe:
        say("--unsafe: where no sandbox works, agents run without one and can do all that you can")
    async with run_environment(options) as environment:
        prices = run_parts.prices(options)
        local = (
            options.upstream is not None and is_local(options.upstream) and not (options.price or options.price_model)
        )
        agent = {
            "stdin": options.stdin,
            "environment": {name: os.environ[name] for name in options.pass_env},
            "readable": options.readable,
            "unsafe": options.unsafe,
        }
        bills = None if local else prices  # what local models answer costs nothing
        arms = arms_of(
            line, options.command, limits, tap=environment.tap, prices=bills, identity=options.upstream, **agent
        )
        cell = Cell({}, arms, line.baseline)
        await require_reachable(specs)
        about = {
            "refused": [f"{one.id}: {one.reason}" for one in tasks.refused],
            "limits": limits.told(),
            "command": options.command,
            "baseline": line.baseline,
            "nothing": NOTHING if line.nothing else None,
            "arms": {spec.name: spec.told() for spec in specs},
        }
        options.arm = line.names  # what they hold is in `about`, without keys
        rule = {"value": options.margin, "rule": margin_rule(options.margin), "score_field": options.score_field}
        return await carry_out(options, environment, prices, [tasks], [cell], [Solved()], agents=about, margin=rule)


class TaskSet:
    """The tasks as a dataset of a run."""

    evaluators: tuple[str, ...] = ("solved",)
    has_context = True  # their repositories

    def __init__(self, options: AgentOptions) -> None:
        from context_bench.agents.datasets import load_tasks

        self.name = options.tasks
        self.found = load_tasks(
            options.tasks, repos=options.repos, n=options.max_examples, test_command=options.test_command
        )
        self.refused = list(self.found.refused)
        for refused in self.refused[:20]:
            say(f"passed over: {refused.id}: {refused.reason}")
        if not len(self.found):
            raise NothingToRun(f"no task in {options.tasks}")

    def examples(self) -> Any:
        """The tasks."""
        return iter(self.found)

    def manifest(self) -> dict[str, Any]:
        """The tasks, for the run's manifest."""
        return {"name": self.name, "examples": len(self.found), "refused": len(self.refused)}


def _forecast(options: AgentOptions, line: Line, tasks: Sequence[Example], limits: AbortRules) -> int:
    working = [name for name in line.names if name != NOTHING]
    each = len(working) * options.trials
    runs = each * len(tasks)
    seconds = each * sum(map(limits.seconds, tasks)) / max(1, options.max_workers or 1)
    print(
        f"{len(tasks):,} tasks × {len(working)} arms ({', '.join(working)}) × {options.trials} trial(s): {runs:,} runs"
    )
    if line.nothing:
        print(f"  and {len(tasks) * options.trials:,} verifications with nothing done (arm {NOTHING})")
    print(f"  at most {seconds / 3600:,.1f} hours, by the time limit of one run")
    if options.max_cost_per_task is not None:
        print(f"  at most {dollars(runs * options.max_cost_per_task)}, by the money limit of one run")
    print("Nothing was run.")
    return 0
