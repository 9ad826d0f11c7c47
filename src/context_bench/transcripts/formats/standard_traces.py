"""Traces in forms that several programs write: Harbor's ATIF, and OpenTelemetry's spans.

Harbor: its trajectories (ATIF), and the result of a trial.

`ATIF-v1.0` and later are one envelope for many agents; tools keep the names of the agent that made the run. A trial
(`result.json` in its folder) is resolved where its reward is 1 or more.

OpenTelemetry spans of the GenAI convention: OTLP/JSON, or an exporter's spans one per line.

Arguments and results of tools are opt-in there; a run without them says so in its notes, since nothing can be scored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.numbers import ATIF, ATIF_TOTAL, OTEL, moment, money, score, usage_of, whole
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, parsed, sequence, text, texts
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


def sniff_of_atif(peek: Peek) -> bool:
    """True if the first object names the schema."""
    return str(peek.first.get("schema_version", "")).startswith("ATIF-")


def read_of_atif(source: LogSource) -> Iterator[Transcript]:
    """One run per trajectory; those of sub-agents are part of it, marked."""
    return map(_run_of_atif, source.rows(lambda row: isinstance(row.get("steps"), list), "no steps"))


def _run_of_atif(document: Mapping[str, Any]) -> Transcript:
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


# otel
# ------------------------------------------------------------------------

_ASKS = ("chat", "generate_content", "text_completion")


def sniff_of_otel(peek: Peek) -> bool:
    """True if an object holds spans, or is one of the convention."""
    return any(
        isinstance(row.get("resourceSpans"), list) or _is_convention(_attributes(row.get("attributes")))
        for row in map(mapping, peek.sample[:50])
    )


def _is_convention(attributes: Mapping[str, Any]) -> bool:
    return any(name.startswith("gen_ai.") for name in attributes)


def read_of_otel(source: LogSource) -> Iterator[Transcript]:
    """One run per trace id, its spans in the order in which they began."""
    runs: dict[str, list[tuple[int, int, dict[str, Any], Mapping[str, Any]]]] = {}
    for number, span in enumerate(_spans(source)):
        told = _attributes(span.get("attributes"))
        if not _is_convention(told):
            source.skip("a span of something else")
            continue
        context = mapping(span.get("context"))
        trace = next((str(v) for v in (span.get("traceId"), span.get("trace_id"), context.get("trace_id")) if v), "")
        runs.setdefault(trace, []).append((_nanoseconds(span, "start"), number, told, span))
    for spans in runs.values():
        spans.sort(key=lambda span: span[:2])
        yield _run_of_otel(spans)


def _spans(source: LogSource) -> Iterator[Mapping[str, Any]]:
    for value in source.values():
        row = mapping(value)
        if not isinstance(row.get("resourceSpans"), list):
            yield row
            continue
        for resource in map(mapping, row["resourceSpans"]):
            for scope in map(mapping, sequence(resource.get("scopeSpans"))):
                yield from map(mapping, sequence(scope.get("spans")))


def _run_of_otel(spans: list[tuple[int, int, dict[str, Any], Mapping[str, Any]]]) -> Transcript:
    one = run("", None)
    tools = scored = 0
    heard: list[str] = []
    for began, _, told, span in spans:
        t = one.at(moment(began / 1e9)) if began < 10**19 else None
        one.agent = one.agent or text(told.get("gen_ai.agent.name")) or ""
        operation = told.get("gen_ai.operation.name")
        if operation in _ASKS:
            one.turns += 1
            one.model = one.model or text(told.get("gen_ai.response.model")) or text(told.get("gen_ai.request.model"))
            usage = usage_of({name: whole(value) for name, value in told.items()}, OTEL)
            one.billed(usage)
            _talk(told, one, t, heard).usage = usage
        elif operation == "execute_tool" or "gen_ai.tool.name" in told:
            tools += 1
            scored += _tool(told, span, one, t)
    if tools and not scored:
        one.notes.append("the spans hold no arguments and results of tools (they are opt-in): nothing can be scored")
    return one


def _talk(told: Mapping[str, Any], one: Transcript, t: float | None, heard: list[str]) -> Message:
    """Read one request and its reply, whose contents are opt-in; each request repeats what was said before (`heard`: by
    the user).
    """
    asked = [
        (mapping(message).get("role"), _parts(message, "text"))
        for message in sequence(parsed(told.get("gen_ai.input.messages")))
    ]
    if not one.context.messages:
        system = [_parts({"parts": sequence(parsed(told.get("gen_ai.system_instructions")))}, "text")]
        for said in (*system, *(said for role, said in asked if role == "system")):
            one.given("system", said, t)
    for said in [said for role, said in asked if role == "user" and said][len(heard) :]:
        heard.append(said)
        one.given("user", said, t)
    made = [mapping(message) for message in sequence(parsed(told.get("gen_ai.output.messages")))]
    said, thoughts = (
        "\n".join(filter(None, (_parts(message, kind) for message in made))) for kind in ("text", "reasoning")
    )
    return one.reply(said or None, at=t, thoughts=thoughts)


def _parts(message: Any, kind: str) -> str:
    """The texts of a message that are of one kind."""
    parts = (mapping(part) for part in sequence(mapping(message).get("parts")))
    return "\n".join(str(part.get("content") or "") for part in parts if part.get("type") == kind)


def _tool(told: Mapping[str, Any], span: Mapping[str, Any], one: Transcript, t: float | None) -> bool:
    """Read one call; returns whether its arguments are there."""
    arguments = told.get("gen_ai.tool.call.arguments")
    name = told.get("gen_ai.tool.name") or str(span.get("name", "")).removeprefix("execute_tool ")
    call = one.call(name, arguments if arguments is not None else {}, told.get("gen_ai.tool.call.id"), t=t)
    one.speaking(at=t).calls.append(call)
    status = mapping(span.get("status"))
    failed = (
        bool(told.get("error.type"))
        or status.get("code") in (2, "STATUS_CODE_ERROR")
        or status.get("status_code") in (2, "ERROR")
    )
    result = told.get("gen_ai.tool.call.result")
    if result is not None or failed:
        value = parsed(result)
        found = value if isinstance(value, str) else texts(value)
        call.answer(
            found if found is not None else canonical_json(value) if value is not None else "",
            failed=True if failed else None,
        )
    return arguments is not None


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes as an object, from OTLP's list of keys and typed values or from an object."""
    if isinstance(value, list):
        return {
            str(pair["key"]): _plain(pair.get("value")) for pair in value if isinstance(pair, Mapping) and "key" in pair
        }
    return {str(key): item for key, item in mapping(value).items()}


def _plain(value: Any, depth: int = 0) -> Any:
    typed = mapping(value)
    if not typed or depth > 20:
        return None if isinstance(value, Mapping) else value
    kind, inner = next(iter(typed.items()))
    if kind == "arrayValue":
        return [_plain(item, depth + 1) for item in sequence(mapping(inner).get("values"))]
    if kind == "kvlistValue":
        return {
            str(pair.get("key")): _plain(pair.get("value"), depth + 1)
            for pair in map(mapping, sequence(mapping(inner).get("values")))
        }
    return inner


def _nanoseconds(span: Mapping[str, Any], which: str) -> int:
    value = span.get(f"{which}TimeUnixNano", span.get(f"{which}_time_unix_nano"))
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    if type(value) is int and 0 <= value < 10**19:
        return value
    at = moment(span.get(f"{which}_time", span.get(f"{which}Time")))
    return int(at * 1e9) if at is not None else 0


FORMAT = {
    "atif": Format("atif", 80, sniff_of_atif, read_of_atif, about="ATIF (Harbor), one envelope for many agents."),
    "otel": Format(
        "opentelemetry",
        90,
        sniff_of_otel,
        read_of_otel,
        about="OpenTelemetry spans of the GenAI convention: OTLP/JSON, or an exporter's spans one per line.",
    ),
}
REPORT = {
    "harbor": report("Harbor trial result", 40, _is_trial, _outcomes, "Harbor: the result of a trial (`result.json`).")
}
