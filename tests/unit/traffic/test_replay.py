"""Recorded sessions sent again: what reaches the server is what was recorded, under our own key, and nothing of the
recording's login.
"""

from __future__ import annotations

import json

import orjson
import pytest

from context_bench.core.errors import BadInput, Refused
from context_bench.core.ledger import Ledger, Mark, open_ledger
from context_bench.core.records import Usage
from context_bench.datasets.recorded import examples_of
from context_bench.datasets.sessions import bundled, load_session
from context_bench.llm.responders import Echo
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.traffic.systems import Replay
from context_bench.transcripts.session import RecordedReply, Session, conversation, verbatim

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is here?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.py\nb.py"},
    {"role": "assistant", "content": "Two files."},
]


def a_session(**meta):
    requests = conversation(
        MESSAGES, model="gpt-4o", tools=[{"type": "function", "function": {"name": "ls"}}], params={"temperature": 0}
    )
    return Session("s", "log.jsonl", "openai-chat", requests, meta)


def test_examples_carry_request_and_reply_in_order():
    first, second = examples_of(a_session(cwd="/work"), dataset="mine")
    assert (first["id"], second["id"], first["group"], first["cluster"]) == ("s/0", "s/1", "s", "s")
    assert (first["dataset"], first["cwd"], first["request"]["path"]) == ("mine", "/work", "/v1/chat/completions")
    assert first["request"]["body"]["messages"] == MESSAGES[:2]
    assert second["request"]["body"]["messages"] == MESSAGES[:4]
    assert first["recorded"]["tool_calls"] == [{"id": "c1", "name": "ls", "arguments": '{"path": "."}'}]
    assert second["recorded"]["text"] == "Two files."
    assert orjson.loads(orjson.dumps([first, second])) == [first, second]  # fit for a store


async def test_every_body_arrives_byte_for_byte_as_rendered_and_twice_alike():
    session = a_session()
    async with ModelServer(Echo()) as model:
        system = Replay(model.url)
        for _ in range(2):
            for example in examples_of(session):
                await system.aprocess(example)
        await system.aclose()
        raw = [request.raw for request in model.requests]
    assert raw[:2] == raw[2:] == [orjson.dumps(request.body) for request in session.requests]


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses"])
async def test_bundled_sessions_go_over_every_wire(wire):
    session = load_session(bundled()[-1], wire=wire)
    examples = list(examples_of(session))[:3]
    async with ModelServer(Echo()) as model:
        system = Replay(model.url + "/v1/", wire=wire)
        outputs = [await system.aprocess(example) for example in examples]
        await system.aclose()
        assert [request.body for request in model.requests] == [example["request"]["body"] for example in examples]
        assert {request.wire for request in model.requests} == {wire}
    assert all(output["response"].startswith("echo ") and output["tool_calls"] == [] for output in outputs)


async def test_the_recordings_login_and_connection_are_not_sent_but_its_other_headers_are():
    headers = {
        "Authorization": "Bearer sk-recorded-secret", "x-api-key": "sk-recorded-secret", "Cookie": "a=b", "Host": "api.example",  # noqa: E501
        "Content-Length": "3", "Accept-Encoding": "br", "anthropic-beta": "context-1m", "user-agent": "agent/1",
        "content-type": "application/json",
    }  # fmt: skip
    body = {"model": "claude-haiku-4-5", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    session = Session(
        "s", "x", "anthropic", [verbatim("anthropic", body, headers=headers, path="/v1/messages?beta=true")]
    )
    example = next(examples_of(session))
    assert "secret" not in json.dumps(example)
    async with ModelServer(Echo()) as model:
        system = Replay(model.url, api_key="sk-ours")
        with open_ledger(Ledger(mark=Mark("key", "cb-mark"))):
            await system.aprocess(example)
        await system.aclose()
        seen = model.requests[-1]
    told = {name.lower(): value for name, value in seen.headers.items()}
    assert told["x-api-key"] == "cb-mark"
    assert (told["anthropic-beta"], told["user-agent"], told["host"]) == (
        "context-1m",
        "agent/1",
        model.url.removeprefix("http://"),
    )
    assert not {"cookie", "authorization"} & told.keys()
    assert told["content-length"] == str(len(seen.raw))
    assert seen.path.startswith("/v1/messages")


async def test_a_reply_that_only_calls_tools_is_an_answer_and_nothing_is_run():
    rules = [{"tool_calls": [{"id": "t", "name": "ls", "arguments": {"path": "./"}}], "finish_reason": "tool_calls"}]
    async with ModelServer(Scripted({"rules": rules})) as model:
        system = Replay(model.url, model="other-model")
        ledger = Ledger()
        with open_ledger(ledger):
            output = await system.aprocess(next(examples_of(a_session())))
        await system.aclose()
        assert model.seen == 1
        assert model.requests[-1].body["model"] == "other-model"
    assert output["response"] == ""
    assert [call["name"] for call in output["tool_calls"]] == ["ls"]
    assert ledger.calls[0].usage.input_tokens > 0


async def test_failures_are_the_clients_own():
    async with ModelServer(Scripted({"rules": [{"status": 400, "error": "no such model"}]})) as model:
        system = Replay(model.url, max_retries=0)
        with pytest.raises(Refused, match="no such model"):
            await system.aprocess(next(examples_of(a_session())))
        await system.aclose()


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses"])
async def test_a_plain_example_is_asked_over_the_sessions_wire(wire):
    async with ModelServer(Echo()) as model:
        system = Replay(model.url, wire=wire)
        await system.aprocess({"id": 1, "context": "The gate opens at nine.", "question": "When?"})
        await system.aclose()
        assert model.requests[-1].wire == wire


def test_what_the_recording_says_of_usage_is_kept():
    session = a_session()
    session.requests[0].recorded_reply = RecordedReply("hi", usage=Usage(10, 5))
    session.requests[1].recorded_reply = None
    first, second = examples_of(session)
    assert first["recorded"]["usage"] == {"input_tokens": 10, "output_tokens": 5}
    assert "recorded" not in second


def test_identity_and_twins_hold_no_keys():
    system = Replay("http://user:pass@127.0.0.1:9/v1", api_key="sk-hidden", proxy_key="sk-other", version="2")
    assert "hidden" not in json.dumps(system.fingerprint())
    assert "pass" not in json.dumps(system.fingerprint())
    twin = system.namespace("s")
    assert (twin.name, twin.base_url, twin is system) == (system.name, system.base_url, False)
    with pytest.raises(BadInput, match="expected one of"):
        Replay("http://127.0.0.1:9", wire="carrier-pigeon")
