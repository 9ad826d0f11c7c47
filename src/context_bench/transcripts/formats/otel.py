"""OpenTelemetry spans of the GenAI convention: OTLP/JSON, or an exporter's spans one per line.

Arguments and results of tools are opt-in there; a run without them says so in its notes, since nothing can be scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.numbers import OTEL, moment, usage_of, whole
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, parsed, sequence, text, texts
from context_bench.transcripts.transcript import Message, Transcript, run

_ASKS = ("chat", "generate_content", "text_completion")


def sniff(peek: Peek) -> bool:
    """True if an object holds spans, or is one of the convention."""
    return any(
        isinstance(row.get("resourceSpans"), list) or _is_convention(_attributes(row.get("attributes")))
        for row in map(mapping, peek.sample[:50])
    )


def _is_convention(attributes: Mapping[str, Any]) -> bool:
    return any(name.startswith("gen_ai.") for name in attributes)


def read(source: LogSource) -> Iterator[Transcript]:
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
        yield _run(spans)


def _spans(source: LogSource) -> Iterator[Mapping[str, Any]]:
    for value in source.values():
        row = mapping(value)
        if not isinstance(row.get("resourceSpans"), list):
            yield row
            continue
        for resource in map(mapping, row["resourceSpans"]):
            for scope in map(mapping, sequence(resource.get("scopeSpans"))):
                yield from map(mapping, sequence(scope.get("spans")))


def _run(spans: list[tuple[int, int, dict[str, Any], Mapping[str, Any]]]) -> Transcript:
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


FORMAT = Format("opentelemetry", 90, sniff, read)
