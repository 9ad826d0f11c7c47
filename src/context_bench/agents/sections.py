"""Sections on runs of agents: what each arm solved, took and cost, what ended its runs, and whether one task
decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.families import RowPart, RowStep, StoredRow
from context_bench.core.keys import canonical_json
from context_bench.core.measures import dollars, took
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
from context_bench.transcripts.dialogue import CallOutput, ModelOutput, instructions, reply_items, spoken, unmarked
from context_bench.transcripts.requests import Logged, items_of

_MOST_NAMED = 6
_SOLVED = columns(
    ("solved_share", "solved (95 %)", "share", ""),
    ("solved", "runs solved", "count", ""),
    ("runs", "runs", "count", ""),
    ("aborted", "aborted", "count", ""),
    ("failures", "failed", "count", ""),
    ("rules", "aborted by", "text", "the rule of the run that ended it; such runs count as not solved"),
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
        "agent's seconds",
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
)
_RATIOS = (
    FigureColumn("sums", "ratio of sums (95 %)", "number", digits=3),
    FigureColumn("medians", "median per task (95 %)", "number", digits=3),
    FigureColumn("n", "pairs"),
    FigureColumn(
        "without",
        "turns without",
        "text",
        "tasks without which the ratio of sums falls on the other side of 1",
    ),
)
_PER_SOLVED = (
    FigureColumn("per_solved", "cost per solved (95 %)", "number", digits=3),
    *columns(("verdict", "verdict", "text", ""), ("n", "pairs", "count", "")),
)
_AMOUNTS = (
    ("cost", "money"),
    ("tokens", "prompt tokens"),
    ("output", "reply tokens"),
    ("calls", "turns"),
    ("again", "re-reads"),
    ("seconds", "agent's seconds"),
)
_ONE_TASK = columns(
    ("verdict", "verdict", "text", ""),
    ("tasks", "tasks", "count", ""),
    ("other", "another without", "text", ""),
)
_TASKS = (
    *columns(("solved", "solved", "count", ""), ("runs", "runs", "count", "")),
    FigureColumn("rules", "aborted by", "text"),
    FigureColumn("calls_mean", "turns", "number", digits=2),
    FigureColumn("tokens_mean", "prompt tokens"),
    FigureColumn("cost_mean", "cost", "usd"),
    FigureColumn("seconds_mean", "agent's seconds", "number", digits=2),
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
        "Trials of a task are averaged first; tasks (or their repositories) are what is independent. Runs that "
        "could not be carried out (failed) count neither for nor against an arm."
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
        alone = "there is no other task" if facts.get("tasks") == 1 else "no task decides alone"
        lines.append((name, {**facts, "verdict": str(facts.get("verdict")), "other": _named(other) or alone}))
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


# --- a row ---


def transcript_and_diff(stored: StoredRow) -> list[RowPart]:
    """The end of a run, its diff whole, and a transcript: what the model was given, said, called, and got back."""
    output = stored.output
    ended = str(output.get("reason") or output.get("abort") or "")
    note = "Solved: the task's tests pass." if output.get("solved") else f"Not solved. {ended}".strip()
    diff = output.get("response")
    changed = isinstance(diff, str) and bool(diff)
    parts = [
        RowPart(
            title="The diff" if changed else "No diff",
            note=note if not stored.row.failed else "",
            text=diff if changed else None,
            changes=True,
            replaces=("answer",),
        ),
        _transcript(stored.details),
    ]
    said = {
        "What the tests said": output.get("tests_said"),
        "The last words of the agent's program": mapping(output.get("agent")).get("said"),
    }
    steps = [
        RowStep(name, (), (("printed", text),), True) for name, text in said.items() if isinstance(text, str) and text
    ]
    return parts + ([RowPart(title="Tests and output", steps=tuple(steps))] if steps else [])


@dataclass(slots=True)
class _Turn:
    """One reply of the model with what it led to."""

    facts: list[tuple[str, str]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the tools that it called
    answered: bool = False


def _transcript(details: Mapping[str, Any]) -> RowPart:
    exchanges = details.get("exchanges") or []
    known = [each for each in exchanges if isinstance(each.get("forwarded") or each.get("sent"), Mapping)]
    if not known:
        why = (
            "No request reached the tap."
            if not exchanges
            else "The bodies of its requests were not kept: run with --bodies all."
        )
        return RowPart(
            title="Transcript", note=why if details.get("calls") or exchanges else "The model was not asked."
        )
    calls = details.get("calls") or []
    paired = calls if len(calls) == len(exchanges) else [{}] * len(exchanges)
    turns = list(_turns(exchanges, paired))
    steps = [
        RowStep(_title(number, turn), tuple(turn.facts), tuple(turn.texts), not number)
        for number, turn in enumerate(turns)
    ]
    left_out = len(exchanges) - len(known)
    note = (
        f"{left_out:,} of {len(exchanges):,} requests were not kept, so what they brought is missing. "
        if left_out
        else ""
    )
    if len(calls) != len(exchanges):
        note += "Tokens and costs cannot be told by step: the provider was called another number of times."
    return RowPart(title="Transcript", note=note, steps=tuple(steps), replaces=("exchanges",))


def _title(number: int, turn: _Turn) -> str:
    if not number:
        return "The task"
    return f"Turn {number}" + (f": {', '.join(dict.fromkeys(turn.names))}" if turn.names else "")


def _turns(exchanges: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]) -> Iterator[_Turn]:
    """The turns, each with what came back for it, which the next request holds."""
    turn, seen, tools = _Turn(), set[str](), dict[str, str]()
    for number, (exchange, call) in enumerate(zip(exchanges, calls, strict=True)):
        body = exchange.get("forwarded") or exchange.get("sent")
        wire = str(next((each for each in reversed(exchange.get("wires") or []) if each), "openai-chat"))
        if isinstance(body, Mapping):
            logged = Logged(wire, dict(body))
            if not number:
                turn.texts += [("instructions", text) for text in instructions(wire, body)]
            for item in items_of(logged):
                if (key := unmarked(item)) not in seen:
                    seen.add(key)
                    _hear(turn, wire, item, tools, given=not number)
        yield turn
        turn = _Turn(_figures(call))
        for item in reply_items(wire, exchange.get("reply")):
            seen.add(unmarked(item))
            _hear(turn, wire, item, tools, given=False)
    yield turn


def _hear(turn: _Turn, wire: str, item: Any, tools: dict[str, str], *, given: bool) -> None:
    """Add the parts of one item of a conversation; an answer that its reply told already is not told again."""
    role = str(item.get("role") or "user") if isinstance(item, Mapping) else "user"
    for part in spoken(wire, item):
        if isinstance(part, ModelOutput):
            if turn.answered and part.text and ("said", part.text) in turn.texts:
                continue
            turn.answered = True
            turn.texts += [("said", part.text)] if part.text else []
            for ident, name, arguments, _ in part.calls:
                if (ident or "") in tools:
                    continue
                tools[ident or ""] = str(name)
                turn.names.append(str(name))
                turn.texts.append((f"calls {name}", _readable(arguments)))
        elif isinstance(part, CallOutput):
            failed = " (failed)" if part.failed else ""
            turn.texts.append((f"{tools.get(part.ident or '', 'tool')} gave{failed}", part.content))
        elif text := "\n".join(part.parts):
            turn.texts.append((role if given else "came back", text))


def _readable(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else canonical_json(arguments)


def _figures(call: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Tokens, cache, money and time of one call, as far as they are known."""
    usage = mapping(call.get("usage"))
    told = [
        (name, f"{value:,}")
        for name, key in (
            ("in", "input_tokens"),
            ("out", "output_tokens"),
            ("from cache", "cache_read"),
            ("to cache", "cache_write"),
        )
        if isinstance(value := usage.get(key), int)
    ]
    cost, seconds, status = call.get("cost"), call.get("seconds"), call.get("status")
    told += [("cost", dollars(cost))] if isinstance(cost, int | float) else []
    told += [("took", took(seconds))] if isinstance(seconds, int | float) else []
    return told + ([("status", str(status))] if status not in (None, 200) else [])
