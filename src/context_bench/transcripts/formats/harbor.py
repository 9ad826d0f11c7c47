"""Harbor: its trajectories (ATIF), and the result of a trial.

`ATIF-v1.0` and later are one envelope for many agents; tools keep the names of the agent that made the run. A trial
(`result.json` in its folder) is resolved where its reward is 1 or more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import ATIF, ATIF_TOTAL, moment, money, score, usage_of, whole
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text, texts
from context_bench.transcripts.harness_results import PatchOutcome, Row, report
from context_bench.transcripts.transcript import Message, ToolCall, Transcript, run

#: Exceptions of the machinery: the agent had no chance. What the agent or its patch may have caused is not among them.
_MACHINERY = re.compile(r"Environment|Docker|Daytona|Modal|Sandbox|AgentSetup|Download|Upload|AddTestsDir")


def _is_trial(row: Row) -> bool:
    return isinstance(row.get("task_name"), str) and any(
        key in row for key in ("verifier_result", "exception_info", "reward")
    )


def _outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    yield _outcome(row) if _is_trial(row) else "not the result of a trial"


def _outcome(row: Row) -> PatchOutcome:
    name, trial = row["task_name"], row.get("trial_name")
    # a task of a registry is called `owner/name`; its own id is the name
    aliases = tuple(
        alias for alias in (trial, name.rsplit("/", 1)[-1]) if isinstance(alias, str) and alias and alias != name
    )
    reward = _reward(row)
    if reward is not None:
        return PatchOutcome(
            name,
            "resolved" if reward >= 1 else "unresolved",
            reason=None if reward >= 1 else f"reward {reward:g}",
            aliases=aliases,
        )
    kind = mapping(row.get("exception_info")).get("exception_type")
    if isinstance(kind, str) and kind:
        return PatchOutcome(name, "error", bool(_MACHINERY.search(kind)), kind[:200], aliases)
    return PatchOutcome(name, "unknown", reason="no reward", aliases=aliases)


def _reward(row: Row) -> float | None:
    """The reward named so; of several without that name, none."""
    verdict = mapping(row.get("verifier_result"))
    rewards = mapping(verdict.get("rewards"))
    value = rewards.get("reward", verdict.get("reward", row.get("reward")))
    if value is None and len(rewards) == 1:
        value = next(iter(rewards.values()))
    return score(value)


def sniff(peek: Peek) -> bool:
    """True if the first object names the schema."""
    return str(peek.first.get("schema_version", "")).startswith("ATIF-")


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per trajectory; those of sub-agents are part of it, marked."""
    return map(_run, source.rows(lambda row: isinstance(row.get("steps"), list), "no steps"))


def _run(document: Mapping[str, Any]) -> Transcript:
    agent, extra, metrics = (
        mapping(document.get("agent")),
        mapping(document.get("extra")),
        mapping(document.get("final_metrics")),
    )
    one = run(text(agent.get("name")) or "", extra.get("instance_id"), lasting_shell=agent.get("name") in _LASTING)
    one.model = text(agent.get("model_name"))
    one.cwd = text(extra.get("cwd")) or text(mapping(agent.get("extra")).get("cwd"))
    one.patch = text(extra.get("patch")) or text(extra.get("submission"))
    one.cost = money(metrics.get("total_cost_usd"))
    _steps(document, one, sidechain=False, depth=0)
    one.usage = usage_of(metrics, ATIF_TOTAL) or one.usage
    return one


_LASTING = ("claude-code", "openhands", "swe-agent")


def _steps(document: Mapping[str, Any], one: Transcript, *, sidechain: bool, depth: int) -> None:
    for value in sequence(document.get("steps")):
        step = mapping(value)
        if step.get("is_copied_context"):
            one.skip("a step copied from another run")
            continue
        t = one.at(moment(step.get("timestamp")))
        said = texts(step.get("message"))
        if step.get("source") == "agent":
            one.turns += 1
            reply = (
                Message("assistant") if sidechain else one.reply(said or None, at=t, model=text(step.get("model_name")))
            )
            reply.thoughts = text(step.get("reasoning_content")) or ""
            reply.calls = _calls(step, one, t, sidechain)
            if not sidechain:
                reply.usage = usage_of(step.get("metrics"), ATIF)
                one.billed(reply.usage)
        elif not sidechain:
            one.given("system" if step.get("source") == "system" else "user", said, t)
    for inner in sequence(document.get("subagent_trajectories")):
        if depth < 8:
            _steps(mapping(inner), one, sidechain=True, depth=depth + 1)


def _calls(step: Mapping[str, Any], one: Transcript, t: float | None, sidechain: bool) -> list[ToolCall]:
    made: list[ToolCall] = []
    for call in map(mapping, sequence(step.get("tool_calls"))):
        known = one.call(
            call.get("function_name"), call.get("arguments"), call.get("tool_call_id"), t=t, sidechain=sidechain
        )
        known.cwd = text(mapping(call.get("extra")).get("cwd"))
        made.append(known)
    for result in map(mapping, sequence(mapping(step.get("observation")).get("results"))):
        ident, extra = result.get("source_call_id"), mapping(result.get("extra"))
        call_of = next(
            (call for call in made if call.ident == ident and ident is not None),
            made[0] if len(made) == 1 and ident is None else None,
        )
        if call_of is None:
            if made:
                one.skip("a result without its call")
            continue
        failed = True if extra.get("is_error") else None
        call_of.answer(texts(result.get("content")) or "", failed=failed, exit_code=whole(extra.get("exit_code")))
    return made


FORMAT = {"atif": Format("atif", 80, sniff, read, about="ATIF (Harbor), one envelope for many agents.")}


REPORT = report("Harbor trial result", 40, _is_trial, _outcomes, "Harbor: the result of a trial (`result.json`).")
