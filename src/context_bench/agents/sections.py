"""Sections on runs of agents: what each arm solved, took and cost, what ended its runs, and whether one task
decides.
"""

from __future__ import annotations

from typing import Any

from context_bench.reports.declared import (
    FigureColumn,
    ReportContext,
    columns,
    declared_table,
    interval_of,
    mapping,
    section_of,
)
from context_bench.reports.page import Section, Table

_MOST_NAMED = 6
_SOLVED = columns(
    ("solved_share", "solved (95 %)", "share", ""),
    ("solved", "runs solved", "count", ""),
    ("runs", "runs", "count", ""),
    ("aborted", "aborted", "count", ""),
    ("failures", "failed", "count", ""),
    ("rules", "aborted by", "text", "the rule of the run that ended it; such runs count as not solved"),
    needs="always",
)
_TAKES = (
    FigureColumn("calls_mean", "turns", "number", "answered calls of the model per run (mean)", digits=2),
    *columns(
        ("reads_sum", "reads", "count", "texts of files that the model was shown, over all runs"),
        ("again_sum", "re-reads", "count", "reads that held nothing the model had not been shown before"),
        ("tokens_mean", "prompt tokens", "count", "billed prompt tokens per run (mean), cached ones included"),
        ("output_mean", "reply tokens", "count", "billed reply tokens per run (mean)"),
    ),
    FigureColumn(
        "seconds_median",
        "seconds",
        "number",
        "of the agent on the clock, without copying and tests (median)",
        digits=2,
    ),
)
_MONEY = columns(
    ("cost_sum", "billed", "usd", "all runs of the arm, at the provider's cache prices"),
    ("cost_median", "per run", "usd", "median"),
    ("cost_per_solved", "per solved", "usd", "all that was billed over the runs that solved their task"),
)
_QUOTAS = columns(
    ("used", "used up", "share", "by all runs of the arm, each from its first reply to its last"),
    ("used_mean", "per run", "share", "mean"),
    ("most", "at most", "share", "the highest share that was used up at the end of a run"),
    ("runs", "runs", "count", "runs whose replies told the quota"),
    needs="always",
)
_RATIOS = (
    FigureColumn("sums", "ratio of sums (95 %)", "number", needs="always", digits=3),
    FigureColumn("medians", "median per task (95 %)", "number", needs="always", digits=3),
    FigureColumn("n", "pairs", needs="always"),
    FigureColumn(
        "without",
        "turns without",
        "text",
        "tasks without which the ratio of sums falls on the other side of 1",
        "always",
    ),
)
_PER_SOLVED = (
    FigureColumn("per_solved", "cost per solved (95 %)", "number", needs="always", digits=3),
    *columns(("verdict", "verdict", "text", ""), ("n", "pairs", "count", ""), needs="always"),
)
_AMOUNTS = (
    ("cost", "money"),
    ("tokens", "prompt tokens"),
    ("output", "reply tokens"),
    ("calls", "turns"),
    ("again", "re-reads"),
    ("seconds", "seconds"),
)
_ONE_TASK = columns(
    ("verdict", "verdict", "text", ""),
    ("tasks", "tasks", "count", ""),
    ("other", "another without", "text", ""),
    needs="always",
)
_TASKS = (
    *columns(("solved", "solved", "count", ""), ("runs", "runs", "count", ""), needs="always"),
    FigureColumn("rules", "aborted by", "text", needs="always"),
    FigureColumn("calls_mean", "turns", "number", needs="always", digits=2),
    FigureColumn("tokens_mean", "prompt tokens", needs="always"),
    FigureColumn("cost_mean", "cost", "usd", needs="always"),
    FigureColumn("seconds_mean", "seconds", "number", needs="always", digits=2),
)


def agents(report: ReportContext) -> list[Section | None]:
    """The sections of a run of agents; none for any other run."""
    figures = mapping(report.result.agents)
    arms = {name: facts for name, facts in mapping(figures.get("arms")).items() if isinstance(facts, dict)}
    if not arms:
        return []
    working = {name: facts for name, facts in arms.items() if name != figures.get("nothing")}
    return [
        _solved(report, arms),
        section_of(
            "agent-effort",
            "What it took",
            declared_table("agent-effort", _TAKES, working.items(), keys=("Arm",)),
            declared_table("agent-money", _MONEY, working.items(), keys=("Arm",)),
            _quotas(working),
        ),
        _against(figures),
        _without_one(figures),
        _tasks(figures),
    ]


def agent_facts(report: ReportContext) -> list[tuple[str, Any]]:
    """The head of a run of agents: the sandbox, in the place of model and shape, which are unknown."""
    backends = mapping(mapping(report.result.agents).get("sandbox"))
    named = (f"NONE ({count} runs without walls)" if name == "none" else name for name, count in backends.items())
    return [("Sandbox", ", ".join(named) or None)]


def _rules(facts: dict[str, Any]) -> str | None:
    """The rules that ended runs, each with its count."""
    return ", ".join(f"{name} {count}" for name, count in mapping(facts.get("aborts")).items()) or None


def _solved(report: ReportContext, arms: dict[str, dict[str, Any]]) -> Section | None:
    lines = []
    for line, _ in report.lines:
        facts = arms.get(line[0], {})
        share = interval_of(report, line, "mean_score", None, "share")
        lines.append((line[0], {**facts, "solved_share": share, "rules": _rules(facts)}))
    about = (
        "Trials of a task are averaged first; tasks (or their repositories) are what is independent. Failed runs "
        "are not counted for or against an arm."
    )
    return section_of("agents", "Tasks solved", declared_table("agents", _SOLVED, lines, keys=("Arm",), about=about))


def _quotas(arms: dict[str, dict[str, Any]]) -> Table | None:
    """The table of what the runs of each arm used up of the quotas, as the provider's headers told."""
    lines = [
        ((name, quota), mapping(told))
        for name, facts in arms.items()
        for quota, told in mapping(facts.get("quotas")).items()
    ]
    about = (
        "Told by the provider's headers. What else ran on the account at that time is in it, also other runs: with "
        "--max-workers 1 only what is not of this command."
    )
    title = "Of the account's quotas"
    return declared_table("agent-quotas", _QUOTAS, lines, keys=("Arm", "quota"), title=title, about=about)


def _against(figures: dict[str, Any]) -> Section | None:
    base = figures.get("baseline")
    lines = []
    for name, amounts in mapping(figures.get("against")).items():
        for key, title in _AMOUNTS:
            if facts := mapping(mapping(amounts).get(key)):
                sums = {"value": facts.get("ratio"), "low": facts.get("low"), "high": facts.get("high")}
                medians = {"value": facts.get("median")}
                medians |= {end: facts.get(f"median_{end}") for end in ("low", "high")}
                shown = {"sums": sums, "medians": medians, "without": _named(facts.get("side_without"))}
                lines.append(((name, title), {**facts, **shown}))
    about = f"{base} = 1, on the pairs of task and trial that both finished; below 1 the arm took less."
    table = declared_table("agent-ratios", _RATIOS, lines, keys=("Arm", "of"), about=about)
    return section_of("agent-ratios", f"What it took, against {base}", table, _per_solved(figures))


def _per_solved(figures: dict[str, Any]) -> Table | None:
    """The cost of a solved task against the baseline, with its verdict."""
    lines = []
    for name, amounts in mapping(figures.get("against")).items():
        if facts := mapping(mapping(amounts).get("cost_per_solved")):
            ratio = {"value": facts.get("ratio"), "low": facts.get("low"), "high": facts.get("high")}
            lines.append((name, {**facts, "per_solved": ratio}))
    about = "Cheaper: the interval lies below 1, and solving is shown to hold (non-inferior or better)."
    return declared_table("agent-per-solved", _PER_SOLVED, lines, keys=("Arm",), about=about)


def _without_one(figures: dict[str, Any]) -> Section | None:
    lines = []
    for name, facts in mapping(figures.get("without_one")).items():
        other = [f"{task} ({verdict})" for task, verdict in mapping(facts.get("without")).items()]
        verdict = str(facts.get("verdict"))
        lines.append((name, {**facts, "verdict": verdict, "other": _named(other) or "no task decides alone"}))
    about = "The verdict, found anew without each single task."
    table = declared_table("agent-one-task", _ONE_TASK, lines, keys=("Arm",), about=about)
    return section_of("agent-one-task", "Does one task decide?", table)


def _named(names: Any) -> str | None:
    known = [str(name) for name in names or []]
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return ", ".join(known[:_MOST_NAMED]) + more if known else None


def _tasks(figures: dict[str, Any]) -> Section | None:
    lines = [
        ((str(task.get("task")), name), {**facts, "rules": _rules(facts)})
        for task in figures.get("tasks") or []
        for name, facts in mapping(task.get("arms")).items()
    ]
    table = declared_table("agent-tasks", _TASKS, lines, keys=("task", "arm"))
    return section_of("agent-tasks", "Task by task", table, brief=False)
