"""Formats that a trace reads are read whole: the prompt, thoughts and words of the model stand in their sessions beside
the calls.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from context_bench.transcripts import read_sessions
from context_bench.transcripts.session import Session
from context_bench.transcripts.traces import load_traces
from context_bench.wire.conversation import message_text

READ = {"path": "a.py"}
USE = {"type": "tool_use", "id": "c", "name": "read", "input": READ}
OTEL_IN = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Mend it."}]}])
OTEL_OUT = json.dumps(
    [{"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm."}, {"type": "text", "content": "Looking."}]}]
)
OTEL_SYSTEM = json.dumps([{"type": "text", "content": "Be brief."}])


def span(number: int, **attributes: Any) -> dict[str, Any]:
    named = {f"gen_ai.{name.replace('__', '.')}": value for name, value in attributes.items()}
    return {"traceId": "t", "startTimeUnixNano": str(number * 10**9), "attributes": named}


def said(event: str, words: str, **more: Any) -> dict[str, Any]:
    return {
        "type": event,
        "message": {"role": event, "content": [{"type": "text", "text": words}]},
        "session_id": "s",
        **more,
    }


LOGS: dict[str, list[Any]] = {
    "cursor": [
        {"type": "system", "subtype": "init", "apiKeySource": "login", "session_id": "s", "model": "m", "cwd": "/w"},
        said("user", "Mend it."),
        said("assistant", "Looking.", model_call_id="1"),
        {
            "type": "tool_call",
            "subtype": "completed",
            "call_id": "c",
            "model_call_id": "1",
            "session_id": "s",
            "tool_call": {"read": {"args": READ, "result": {"success": {"content": "x"}}}},
        },
        said("assistant", "Done.", model_call_id="2"),
    ],
    "opentelemetry": [
        span(
            1,
            operation__name="chat",
            system_instructions=OTEL_SYSTEM,
            input__messages=OTEL_IN,
            output__messages=OTEL_OUT,
        ),
        span(
            2,
            operation__name="execute_tool",
            tool__name="read",
            tool__call__id="c",
            tool__call__arguments=json.dumps(READ),
            tool__call__result="x",
        ),
        span(
            3,
            operation__name="chat",
            input__messages=OTEL_IN,
            output__messages=OTEL_OUT.replace("Looking.", "Done.").replace("Hm.", ""),
        ),
    ],
    "gemini-cli": [
        {"type": "init", "session_id": "s", "model": "m"},
        {"type": "message", "role": "user", "content": "Mend it."},
        {"type": "message", "role": "assistant", "content": "Look", "delta": True},
        {"type": "message", "role": "assistant", "content": "ing.", "delta": True},
        {"type": "tool_use", "tool_name": "read", "tool_id": "c", "parameters": READ},
        {"type": "tool_result", "tool_id": "c", "status": "success", "output": "x"},
        {"type": "message", "role": "assistant", "content": "Done."},
    ],
    "atif": [
        {
            "schema_version": "ATIF-v1.5",
            "agent": {"name": "atif", "version": "1"},
            "steps": [
                {"source": "system", "message": "Be brief."},
                {"source": "user", "message": "Mend it."},
                {
                    "source": "agent",
                    "message": "Looking.",
                    "reasoning_content": "Hm.",
                    "tool_calls": [{"tool_call_id": "c", "function_name": "read", "arguments": READ}],
                    "observation": {"results": [{"source_call_id": "c", "content": "x"}]},
                },
                {"source": "agent", "message": "Done."},
            ],
        }
    ],
    "opencode": [
        {"type": "step_start", "sessionID": "s", "part": {"type": "step-start"}},
        {"type": "reasoning", "sessionID": "s", "part": {"type": "reasoning", "text": "Hm."}},
        {"type": "text", "sessionID": "s", "part": {"type": "text", "text": "Looking."}},
        {
            "type": "tool_use",
            "sessionID": "s",
            "part": {
                "type": "tool",
                "callID": "c",
                "tool": "read",
                "state": {"status": "completed", "input": READ, "output": "x"},
            },
        },
        {"type": "step_start", "sessionID": "s", "part": {"type": "step-start"}},
        {"type": "text", "sessionID": "s", "part": {"type": "text", "text": "Done."}},
    ],
    "openhands": [
        {"id": 0, "source": "agent", "action": "system", "args": {"content": "Be brief."}},
        {"id": 1, "source": "user", "action": "message", "args": {"content": "Mend it."}},
        {
            "id": 2,
            "source": "agent",
            "action": "read",
            "args": {**READ, "thought": "Looking."},
            "tool_call_metadata": {"tool_call_id": "c"},
        },
        {"id": 3, "source": "agent", "observation": "read", "cause": 2, "content": "x", "extras": {}},
        {"id": 4, "source": "agent", "action": "message", "args": {"content": "Done."}},
    ],
    "openhands, version 1": [
        {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"text": "Be brief."}},
        {"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": [{"text": "Mend it."}]}},
        {
            "kind": "ActionEvent",
            "source": "agent",
            "tool_name": "read",
            "tool_call_id": "c",
            "llm_response_id": "1",
            "thought": [{"text": "Looking."}],
            "reasoning_content": "Hm.",
            "action": READ,
        },
        {
            "kind": "ObservationEvent",
            "source": "environment",
            "tool_call_id": "c",
            "observation": {"content": [{"text": "x"}]},
        },
        {
            "kind": "MessageEvent",
            "source": "agent",
            "llm_message": {"role": "assistant", "content": [{"text": "Done."}]},
        },
    ],
    "inspect": [
        {
            "eval": {"model": "m"},
            "samples": [
                {
                    "id": "s",
                    "messages": [
                        {"role": "system", "content": "Be brief."},
                        {"role": "user", "content": "Mend it."},
                        {
                            "role": "assistant",
                            "content": [
                                {"type": "reasoning", "reasoning": "Hm."},
                                {"type": "text", "text": "Looking."},
                            ],
                            "tool_calls": [{"id": "c", "function": "read", "arguments": READ}],
                        },
                        {"role": "tool", "tool_call_id": "c", "content": "x"},
                        {"role": "assistant", "content": "Done."},
                    ],
                    "events": [{"event": "tool", "id": "c", "function": "read", "arguments": READ, "result": "x"}],
                }
            ],
        }
    ],
    "cline": [
        {
            "sessionId": "s",
            "cwd": "/w",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Mend it."}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, USE]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
            ],
        }
    ],
}
#: What formats do not hold, where they do not hold everything.
LOST = {
    "cursor": {"system"},
    "gemini-cli": {"system"},
    "opencode": {"system", "prompt"},
    "cline": {"system"},
}
THINKING = {"opentelemetry", "atif", "opencode", "openhands, version 1", "inspect"}


def session_of(rows: list[Any], folder: Path) -> Session:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (trace,) = load_traces(path)
    assert trace.step_count == 1
    (session,) = read_sessions(path, agents=True)
    return session


@pytest.mark.parametrize("name", LOGS)
def test_a_session_holds_everything_that_the_log_does(name: str, tmp_path: Path) -> None:
    session = session_of(LOGS[name], tmp_path)
    lost = LOST.get(name, set())
    spoken = [(message["role"], message_text(message)) for message in session.messages]
    expected = [("user", "(The prompt was not recorded.)" if "prompt" in lost else "Mend it.")]
    assert [one for one in spoken if one[0] == "system"] == ([] if "system" in lost else [("system", "Be brief.")])
    assert [one for one in spoken if one[0] != "system"] == [
        *expected,
        ("assistant", "Looking."),
        ("tool", "x"),
        ("assistant", "Done."),
    ]
    assert [(use.name, json.loads(use.arguments)["path"], use.output) for use in session.tool_uses()] == [
        ("read", "a.py", "x")
    ]
    assert lost - {"prompt"} <= set(session.meta["assumed"])
    assert "what was said between the calls" not in session.meta["assumed"]
    thoughts = [message["reasoning_content"] for message in session.messages if message.get("reasoning_content")]
    assert thoughts == (["Hm."] if name in THINKING else [])


def test_a_trajectory_of_mini_swe_agent_is_a_conversation(tmp_path: Path) -> None:
    action = {"actions": [{"command": "cat a.py", "tool_call_id": "c"}]}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Mend it."},
        {"role": "assistant", "content": "Looking.", "reasoning_content": "Hm.", "extra": action},
        {"role": "tool", "tool_call_id": "c", "content": "x", "extra": {"returncode": 0}},
        {"role": "assistant", "content": "Done."},
    ]
    path = tmp_path / "s.traj.json"
    path.write_text(json.dumps({"trajectory_format": "mini-swe-agent-1.1", "info": {}, "messages": messages}))
    (session,) = read_sessions(path)
    assert session.meta["format"] == "mini-swe-agent"
    assert session.meta["assumed"] == ["tools"]
    assert [message_text(message) for message in session.messages] == [
        "Be brief.",
        "Mend it.",
        "Looking.",
        "x",
        "Done.",
    ]
    assert session.messages[2]["reasoning_content"] == "Hm."


def test_a_log_without_words_says_so(tmp_path: Path) -> None:
    session = session_of(
        [span(1, operation__name="execute_tool", tool__name="read", tool__call__arguments="{}")], tmp_path
    )
    assert "what was said between the calls" in session.meta["assumed"]
