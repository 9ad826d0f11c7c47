"""ATIF (Harbor), `ATIF-v1.0` and later: one envelope for many agents; tools keep the names of the agent that made the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.numbers import moment
from context_bench.core.usage import ATIF, ATIF_TOTAL, usage_of
from context_bench.transcripts.source import Source
from context_bench.transcripts.traces.recording import Recording, mapping, money, run, sequence, texts, whole
from context_bench.transcripts.values import text

NAME = "atif"


def matches(sample: list[Any]) -> bool:
    """Whether the first object names the schema."""
    return bool(sample) and str(mapping(sample[0]).get("schema_version", "")).startswith("ATIF-")


def recordings(source: Source) -> Iterator[Recording]:
    """One run per trajectory; those of sub-agents are part of it, marked."""
    for value in source.values():
        document = mapping(value)
        if not isinstance(document.get("steps"), list):
            source.skip("no steps")
            continue
        yield _run(document)


def _run(document: Mapping[str, Any]) -> Recording:
    agent, extra, metrics = mapping(document.get("agent")), mapping(document.get("extra")), mapping(document.get("final_metrics"))
    one = run(text(agent.get("name")) or "", extra.get("instance_id"), lasting_shell=agent.get("name") in _LASTING)
    one.head.model = text(agent.get("model_name"))
    one.head.cwd = text(extra.get("cwd")) or text(mapping(agent.get("extra")).get("cwd"))
    one.head.patch = text(extra.get("patch")) or text(extra.get("submission"))
    one.head.cost = money(metrics.get("total_cost_usd"))
    _steps(document, one, sidechain=False, depth=0)
    one.head.usage = usage_of(metrics, ATIF_TOTAL) or one.head.usage
    return one


_LASTING = ("claude-code", "openhands", "swe-agent")


def _steps(document: Mapping[str, Any], one: Recording, *, sidechain: bool, depth: int) -> None:
    for value in sequence(document.get("steps")):
        step = mapping(value)
        if step.get("is_copied_context"):
            one.skip("a step copied from another run")
            continue
        t = one.at(moment(step.get("timestamp")))
        if step.get("source") == "agent":
            one.turns += 1
            _calls(step, one, t, sidechain)
            if not sidechain:
                one.billed(usage_of(step.get("metrics"), ATIF))
    for inner in sequence(document.get("subagent_trajectories")):
        if depth < 8:
            _steps(mapping(inner), one, sidechain=True, depth=depth + 1)


def _calls(step: Mapping[str, Any], one: Recording, t: float | None, sidechain: bool) -> None:
    made = []
    for call in map(mapping, sequence(step.get("tool_calls"))):
        known = one.call(call.get("function_name"), call.get("arguments"), call.get("tool_call_id"), t=t, sidechain=sidechain)
        known.cwd = text(mapping(call.get("extra")).get("cwd"))
        made.append(known)
    for result in map(mapping, sequence(mapping(step.get("observation")).get("results"))):
        ident, extra = result.get("source_call_id"), mapping(result.get("extra"))
        call_of = next(
            (call for call in made if call.ident == ident and ident is not None), made[0] if len(made) == 1 and ident is None else None
        )
        if call_of is None:
            if made:
                one.skip("a result without its call")
            continue
        failed = True if extra.get("is_error") else None
        call_of.answer(texts(result.get("content")) or "", failed=failed, exit_code=whole(extra.get("exit_code")))
