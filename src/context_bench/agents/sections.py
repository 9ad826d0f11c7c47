"""Sections on runs of agents: what each arm solved, took and cost, what ended its runs, and whether one task
decides.
"""

from __future__ import annotations

from typing import Any

from context_bench.core.numbers import number
from context_bench.reports.declared import figure, mapping
from context_bench.reports.page import Cell, Column, Figure, Section, Table
from context_bench.reports.report_context import ReportContext, interval_of

_MOST_NAMED = 6
_TAKES = (
    ("calls_mean", "turns", "number", "answered calls of the model per run (mean)"),
    ("reads_sum", "reads", "count", "texts of files that the model was shown, over all runs"),
    ("again_sum", "re-reads", "count", "reads that held nothing the model had not been shown before"),
    ("tokens_mean", "prompt tokens", "count", "billed prompt tokens per run (mean), cached ones included"),
    ("output_mean", "reply tokens", "count", "billed reply tokens per run (mean)"),
    ("seconds_median", "seconds", "number", "of the agent on the clock, without copying and tests (median)"),
)
_MONEY = (
    ("cost_sum", "billed", "usd", "all runs of the arm, at the provider's cache prices"),
    ("cost_median", "per run", "usd", "median"),
    ("cost_per_solved", "per solved", "usd", "all that was billed over the runs that solved their task"),
)
_AMOUNTS = (
    ("cost", "money"),
    ("tokens", "prompt tokens"),
    ("output", "reply tokens"),
    ("calls", "turns"),
    ("again", "re-reads"),
    ("seconds", "seconds"),
)


def agents(material: ReportContext) -> list[Section | None]:
    """The sections of a run of agents; none for any other run."""
    told = mapping(material.result.agents)
    arms = {name: facts for name, facts in mapping(told.get("arms")).items() if isinstance(facts, dict)}
    if not arms:
        return []
    return [_solved(material, arms), _taken(told, arms), _against(told), _without_one(told), _tasks(told, arms)]


def agent_facts(material: ReportContext) -> list[tuple[str, Any]]:
    """The head of a run of agents: the sandbox, in the place of model and shape, which are unknown."""
    houses = mapping(mapping(material.result.agents).get("sandbox"))
    told = ", ".join(f"NONE ({count} runs without walls)" if name == "none" else name for name, count in houses.items())
    return [("Sandbox", told or None)]


def _solved(material: ReportContext, arms: dict[str, dict[str, Any]]) -> Section:
    columns = [
        Column("Arm", False),
        Column("solved (95 %)"),
        Column("runs solved"),
        Column("runs"),
        Column("aborted"),
        Column("failed"),
    ]
    columns.append(
        Column("aborted by", False, about="the rule of the run that ended it; such runs count as not solved")
    )
    rows: list[list[Cell]] = []
    for line, _ in material.lines:
        facts = arms.get(line[0], {})
        counts = [figure(facts.get(key), "count") for key in ("solved", "runs", "aborted", "failures")]
        by = ", ".join(f"{name} {count}" for name, count in mapping(facts.get("aborts")).items())
        rows.append([line[0], interval_of(material, line, "mean_score", None, "share"), *counts, by or None])
    about = (
        "Trials of a task are averaged first; tasks (or their repositories) are what is independent. Failed "
        "runs say nothing of an arm."
    )
    return Section("agents", "Tasks solved", tables=[Table("agents", columns, rows, about=about)])


def _taken(told: dict[str, Any], arms: dict[str, dict[str, Any]]) -> Section | None:
    nothing = told.get("nothing")
    working = {name: facts for name, facts in arms.items() if name != nothing}
    entries = [entry for entry in _TAKES if any(entry[0] in facts for facts in working.values())]
    money = [entry for entry in _MONEY if any(entry[0] in facts for facts in working.values())]
    tables = [
        _table(f"agent-{name}", chosen, working) for name, chosen in (("effort", entries), ("money", money)) if chosen
    ]
    return Section("agent-effort", "What it took", tables=tables) if tables else None


def _table(name: str, entries: Any, arms: dict[str, dict[str, Any]]) -> Table:
    columns = [Column("Arm", False), *(Column(title, about=about) for _, title, _, about in entries)]
    rows: list[list[Cell]] = [
        [arm, *(_cell(facts.get(key), unit) for key, _, unit, _ in entries)] for arm, facts in arms.items()
    ]
    return Table(name, columns, rows)


def _cell(value: Any, unit: str) -> Figure | None:
    known = number(value)
    rounded = None if known is None else round(known) if unit == "count" else known
    return figure(rounded, unit, digits=2 if unit == "number" else None)


def _against(told: dict[str, Any]) -> Section | None:
    base = told.get("baseline")
    columns = [
        Column("Arm", False),
        Column("of", False),
        Column("ratio of sums (95 %)"),
        Column("median per task"),
        Column("pairs"),
    ]
    columns.append(
        Column("turns without", False, about="tasks without which the ratio of sums falls on the other side of 1")
    )
    rows: list[list[Cell]] = []
    for name, amounts in mapping(told.get("against")).items():
        for key, title in _AMOUNTS:
            if facts := mapping(mapping(amounts).get(key)):
                value = number(facts.get("ratio"))
                ratio = (
                    None
                    if value is None
                    else Figure(value, "number", number(facts.get("low")), number(facts.get("high")), digits=3)
                )
                median, pairs = figure(facts.get("median"), "number", digits=3), figure(facts.get("n"), "count")
                rows.append([name, title, ratio, median, pairs, _named(facts.get("side_without"))])
    if not rows:
        return None
    about = f"{base} = 1, on the pairs of task and trial that both finished; below 1 the arm took less."
    return Section(
        "agent-ratios",
        f"What it took, against {base}",
        tables=[Table("agent-ratios", columns, rows, about=about, keys=2)],
    )


def _without_one(told: dict[str, Any]) -> Section | None:
    columns = [Column("Arm", False), Column("verdict", False), Column("tasks"), Column("another without", False)]
    rows: list[list[Cell]] = []
    for name, facts in mapping(told.get("without_one")).items():
        other = [f"{task} ({verdict})" for task, verdict in mapping(facts.get("without")).items()]
        rows.append(
            [
                name,
                str(facts.get("verdict")),
                figure(facts.get("tasks"), "count"),
                _named(other) or "no task decides alone",
            ]
        )
    if not rows:
        return None
    about = "The verdict, found anew without each single task."
    return Section(
        "agent-one-task", "Does one task decide?", tables=[Table("agent-one-task", columns, rows, about=about)]
    )


def _named(names: Any) -> str | None:
    known = [str(name) for name in names or []]
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return ", ".join(known[:_MOST_NAMED]) + more if known else None


def _tasks(told: dict[str, Any], arms: dict[str, dict[str, Any]]) -> Section:
    columns = [
        Column("task", False),
        Column("arm", False),
        Column("solved"),
        Column("runs"),
        Column("aborted by", False),
    ]
    columns += [Column("turns"), Column("prompt tokens"), Column("cost"), Column("seconds")]
    rows: list[list[Cell]] = []
    for task in told.get("tasks") or []:
        for name, facts in mapping(task.get("arms")).items():
            by = ", ".join(f"{rule} {count}" for rule, count in mapping(facts.get("aborts")).items())
            amounts = (
                ("calls_mean", "number"),
                ("tokens_mean", "count"),
                ("cost_mean", "usd"),
                ("seconds_mean", "number"),
            )
            cells = [_cell(facts.get(key), unit) for key, unit in amounts]
            solved, runs = figure(facts.get("solved"), "count"), figure(facts.get("runs"), "count")
            rows.append([str(task.get("task")), name, solved, runs, by or None, *cells])
    return Section("agent-tasks", "Task by task", tables=[Table("agent-tasks", columns, rows, keys=2)], brief=False)
