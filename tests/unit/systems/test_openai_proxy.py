"""OpenAIProxy against real servers: the documented constructor and texts, every shape, and every way of not getting an
answer.
"""

import asyncio
import json
import socket

import pytest

from context_bench.core.errors import (
    BadInput,
    BadReply,
    ContextTooLong,
    RateLimited,
    Refused,
    SystemFailed,
    TimedOut,
    UnknownName,
    Unreachable,
)
from context_bench.core.ledger import Ledger, Mark, open_ledger
from context_bench.core.tokens import counter_for
from context_bench.evaluators import ToolCallMatch
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.llm.shapes import SHAPES
from context_bench.systems import OpenAIProxy

EXAMPLE = {"id": 1, "context": "The sky is green.", "question": "What colour is it?"}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def says(*rules):
    return ModelServer(Scripted({"rules": list(rules)}))


def quick(url, **options):
    return OpenAIProxy(url, **{"max_retries": 0, "timeout": 10.0, **options})


async def test_an_example_without_any_text_is_refused_and_not_sent():
    async with says({"text": "green"}) as model:
        with pytest.raises(BadInput, match=r"example 1: nothing to send: needs a .* keys are \['context', 'id'\]"):
            await quick(model.url).aprocess({"id": 1, "context": None})
        assert not model.requests
        for meant in (
            quick(model.url, shape="plain-user", prompt="What colour is the sky?"),
            quick(model.url, build_messages=lambda example: [{"role": "user", "content": f"Number {example['id']}?"}]),
            quick(model.url, extra_body={"messages": [{"role": "user", "content": "What colour?"}]}),
        ):
            assert (await meant.aprocess({"id": 1}))["response"] == "green"
        assert (await quick(model.url).aprocess({"id": 1, "context": ""}))["response"] == "green"


async def test_the_documented_request_and_output():
    async with says({"text": "green"}) as model:
        output = await quick(model.url, system_prompt="Be brief.", extra_body={"temperature": 0}).aprocess(EXAMPLE)
        received = model.requests[-1]
    assert received.path == "/v1/chat/completions"
    assert received.body == {
        "model": "gpt-3.5-turbo",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "system", "content": "The sky is green."},
            {"role": "user", "content": "What colour is it?"},
        ],
        "temperature": 0,
    }
    assert "authorization" not in received.headers
    assert output["response"] == "green"
    assert output["finish_reason"] == "stop"
    assert output["api_usage"] == {
        "prompt_tokens": output["api_usage"]["prompt_tokens"],
        "completion_tokens": 1,
        "total_tokens": output["api_usage"]["prompt_tokens"] + 1,
    }
    assert {key: output[key] for key in EXAMPLE} == EXAMPLE


@pytest.mark.parametrize(
    ("example", "options", "expected"),
    [
        ({"id": 1, "context": "alone"}, {}, [("user", "alone")]),
        ({"id": 1, "context": "c", "question": "q", "turns": [{"role": "user", "content": "t"}]}, {}, [("user", "t")]),
        (
            EXAMPLE,
            {
                "build_messages": lambda e: [{"role": "user", "content": e["question"].upper()}],
                "system_prompt": "ignored",
            },
            [("user", "WHAT COLOUR IS IT?")],
        ),
        (EXAMPLE, {"shape": "plain-user"}, [("user", "The sky is green.\n\nQuestion: What colour is it?")]),
        (
            EXAMPLE,
            {"shape": "plain-user", "prompt": "{question} // {context}"},
            [("user", "What colour is it? // The sky is green.")],
        ),
        (EXAMPLE, {"namespace": "arm 7"}, [("system", "[arm 7]\nThe sky is green."), ("user", "What colour is it?")]),
    ],
)
async def test_messages(example, options, expected):
    async with says({"text": "ok"}) as model:
        await quick(model.url, **options).aprocess(example)
        assert [(m["role"], m["content"]) for m in model.requests[-1].body["messages"]] == expected


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/", "//"])
async def test_base_urls_with_and_without_v1(suffix):
    async with says({"text": "ok"}) as model:
        await quick(model.url + suffix).aprocess(EXAMPLE)
        assert model.requests[-1].path.replace("//", "/") == "/v1/chat/completions"


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("stream", [False, True])
async def test_every_shape_gets_its_answer_and_usage_in_the_same_words(shape, stream):
    async with says({"text": "green"}) as model:
        output = await quick(model.url, shape=shape, stream=stream).aprocess(EXAMPLE)
        assert model.requests[-1].request.stream == (stream or shape in ("claude-code", "codex"))
    assert output["response"] == "green"
    assert set(output["api_usage"]) >= {"prompt_tokens", "completion_tokens", "total_tokens"}


@pytest.mark.parametrize(
    ("wire", "path"),
    [("openai", "/v1/chat/completions"), ("anthropic", "/v1/messages"), ("responses", "/v1/responses")],
)
@pytest.mark.parametrize("shape", ["plain-system", "plain-user"])
async def test_plain_shapes_on_every_wire_say_the_same(wire, path, shape):
    async with says({"text": "green"}) as model:
        proxy = quick(
            model.url,
            wire=wire,
            shape=shape,
            system_prompt="Be brief.",
            extra_body={"max_tokens": 9},
            stream=True,
            api_key="k",
        )
        output = await proxy.aprocess(EXAMPLE)
        received = model.requests[-1]
        assert received.path == path
        said = quick(model.url, shape=shape, system_prompt="Be brief.").shaped(EXAMPLE).parsed()
        assert received.text.split() == " ".join(message.text for message in said.messages).split()
        assert 9 in (received.body.get("max_tokens"), received.body.get("max_output_tokens"))
    assert output["response"] == "green"


def test_what_cannot_be_is_said_when_it_is_made():
    with pytest.raises(UnknownName, match="plain-user"):
        OpenAIProxy("http://127.0.0.1:1", shape="plain-usr")
    with pytest.raises(BadInput, match="prompt template"):
        OpenAIProxy("http://127.0.0.1:1", shape="codex", prompt="{context}")
    with pytest.raises(BadInput, match="build_messages"):
        OpenAIProxy("http://127.0.0.1:1", shape="claude-code", build_messages=lambda e: e["missing"])
    with pytest.raises(BadInput, match="not usable"):
        OpenAIProxy("127.0.0.1:1")
    with pytest.raises(BadInput, match="wire"):
        OpenAIProxy("http://127.0.0.1:1", wire="smtp")
    with pytest.raises(BadInput, match="plain shapes"):
        OpenAIProxy("http://127.0.0.1:1", wire="anthropic", shape="tool-result")


@pytest.mark.parametrize(
    ("rule", "kind", "text"),
    [
        (
            {"status": 400, "error": "context_length_exceeded: too long"},
            ContextTooLong,
            "HTTP 400.*context_length_exceeded",
        ),
        ({"status": 401, "error": "no such account"}, Refused, "HTTP 401.*no such account"),
        ({"status": 429, "error": "slow"}, RateLimited, "HTTP 429"),
        ({"status": 503, "error": "down"}, SystemFailed, "HTTP 503"),
        ({"malformed": True, "text": "x"}, BadReply, "invalid JSON"),
        ({"html": True}, BadReply, "invalid JSON"),
        ({"empty_choices": True, "text": "x"}, BadReply, "empty choices"),
        ({"malformed": "[1]"}, BadReply, "Unexpected response"),
        ({"text": None}, BadReply, "null content"),
        ({"text": ""}, BadReply, "no answer"),
        ({"tool_calls": [{"name": "Read", "arguments": {}}]}, BadReply, "called Read"),
        ({"refusal": "I will not"}, Refused, "I will not"),
        ({"disconnect": "mid-body", "text": "x" * 300}, Unreachable, "broke"),
        ({"delay": "forever"}, TimedOut, "within 0.3 s"),
    ],
)
async def test_no_answer_is_a_failure_of_a_class_and_never_a_text(rule, kind, text):
    async with says(rule) as model:
        with pytest.raises(kind, match=text) as caught:
            await quick(model.url, timeout=0.3 if rule.get("delay") else 10.0).aprocess(EXAMPLE)
    assert isinstance(caught.value, RuntimeError)


async def test_nobody_there():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(RuntimeError, match="Could not connect"):
        await quick(f"http://127.0.0.1:{port}").aprocess(EXAMPLE)


async def test_retries_and_calls_in_the_ledger():
    async with says({"status": 503, "error": "down", "times": 2}, {"text": "ok"}) as model:
        with open_ledger(Ledger()) as ledger:
            output = await OpenAIProxy(model.url, max_retries=3, retry_base_delay=0.001).aprocess(EXAMPLE)
    assert output["response"] == "ok"
    assert [call.status for call in ledger.calls] == [503, 503, 200]
    assert ledger.calls[-1].sent_tokens == sum(map(counter_for().count, (EXAMPLE["context"], EXAMPLE["question"])))


def test_it_works_in_a_script_in_threads_and_inside_a_running_loop():
    servers = says({"text": "ok"})

    async def inside():
        async with servers as model:
            proxy = quick(model.url)
            found = await asyncio.gather(*(asyncio.to_thread(proxy.process, EXAMPLE) for _ in range(4)))
            return [output["response"] for output in [*found, await proxy.aprocess(EXAMPLE)]]

    assert asyncio.run(inside()) == ["ok"] * 5


async def test_process_blocks_a_running_loop_but_works(tmp_path):
    """As in a notebook: the plain method is called where a loop is running. The server has a loop of its own."""
    from context_bench.llm.background import Background

    elsewhere = Background("server-of-this-test")
    model = says({"text": "ok"})
    elsewhere.run(model.start())
    try:
        assert quick(model.url).process(EXAMPLE)["response"] == "ok"
    finally:
        elsewhere.run(model.stop())


async def test_a_conversation_is_asked_turn_by_turn_under_one_mark():
    rules = [{"when": {"turn": 1}, "text": "first"}, {"when": {"turn": 2}, "text": "second"}]
    turns = [
        {"role": "user", "content": "one?"},
        {"role": "assistant", "content": "the gold answer, not ours"},
        {"role": "user", "content": "two?"},
    ]
    async with says(*rules) as model:
        with open_ledger(Ledger(mark=Mark("key", "cb-one-time"))) as ledger:
            answers = await quick(model.url, system_prompt="Be brief.").aprocess_conversation(turns)
        bodies = [[m["content"] for m in received.body["messages"]] for received in model.requests]
        assert {received.headers["authorization"] for received in model.requests} == {"Bearer cb-one-time"}
    assert answers == [{"role": "assistant", "content": "first"}, {"role": "assistant", "content": "second"}]
    assert bodies == [["Be brief.", "one?"], ["Be brief.", "one?", "first", "two?"]]
    assert ledger.usage.output_tokens == 2
    assert len(ledger.calls) == 2


async def test_keys_by_argument_environment_mark_and_for_the_proxy(monkeypatch):
    async def seen(proxy, mark=None):
        with open_ledger(Ledger(mark=mark)):
            await proxy.aprocess(EXAMPLE)
        headers = model.requests[-1].headers
        return headers.get("authorization") or headers.get("x-api-key"), headers.get("x-context-bench")

    async with says({"text": "ok"}) as model:
        assert await seen(quick(model.url, api_key="given")) == ("Bearer given", None)
        monkeypatch.setenv("OPENAI_API_KEY", "from-env")
        assert await seen(quick(model.url)) == ("Bearer from-env", None)
        assert await seen(quick(model.url, shape="claude-code")) == ("from-env", None)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "anthropic-env")
        assert await seen(quick(model.url, shape="claude-code")) == ("anthropic-env", None)
        assert await seen(quick(model.url), Mark("key", "tok")) == ("Bearer tok", None)
        proxy = quick(model.url)
        proxy.proxy_key = "door"
        assert await seen(proxy, Mark("header", "tok")) == ("Bearer door", "tok")


def test_names_and_fingerprints():
    assert OpenAIProxy("http://localhost:7878/v1").name == "openai_proxy_localhost:7878"
    assert OpenAIProxy("http://user:pw@example.org/").name == "openai_proxy_example.org"
    secret = "sk-very-secret-key"
    base = {"api_key": secret, "proxy_key": secret}
    variants = [
        OpenAIProxy("http://h:1", **base),
        OpenAIProxy("http://h:2", **base),
        OpenAIProxy("http://h:1", model="m", **base),
        OpenAIProxy("http://h:1", system_prompt="s", **base),
        OpenAIProxy("http://h:1", extra_body={"temperature": 1}, **base),
        OpenAIProxy("http://h:1", shape="codex", **base),
        OpenAIProxy("http://h:1", shape="plain-user", prompt="{context}", **base),
        OpenAIProxy("http://h:1", stream=True, **base),
        OpenAIProxy("http://h:1", version="2", **base),
        OpenAIProxy("http://h:1", wire="anthropic", **base),
        OpenAIProxy("http://h:1", namespace="n", **base),
        OpenAIProxy("http://h:1", build_messages=lambda e: [], **base),
    ]
    prints = [json.dumps(variant.fingerprint(), sort_keys=True) for variant in variants]
    assert len(set(prints)) == len(prints)
    assert secret not in "".join(prints)
    assert "pw" not in json.dumps(OpenAIProxy("http://user:pw@example.org").fingerprint())
    assert (
        OpenAIProxy("http://h:1", name="a", timeout=3).fingerprint()
        == OpenAIProxy("http://h:1", name="b", api_key=secret).fingerprint()
    )
    assert (
        OpenAIProxy("http://h:1", identity="demo").fingerprint()
        == OpenAIProxy("http://h:2", identity="demo").fingerprint()
    )


@pytest.mark.parametrize("shape", list(SHAPES))
def test_tokens_without_context(shape):
    proxy = OpenAIProxy("http://127.0.0.1:1", shape=shape, model="gpt-4o")
    whole = proxy.shaped(EXAMPLE).tokens()
    without = proxy.request_without_context_tokens(EXAMPLE)
    assert abs(whole - without - counter_for("gpt-4o").count(EXAMPLE["context"])) <= 2


@pytest.mark.parametrize("wire", ["openai", "anthropic", "responses"])
async def test_tool_calls_are_an_answer_where_they_are_expected(wire):
    call = {"name": "get_weather", "arguments": {"city": "Paris"}}
    async with says({"tool_calls": [call]}) as model:
        proxy = quick(model.url, wire=wire)
        output = await proxy.aprocess(
            {**EXAMPLE, "expected_calls": [{"name": "get_weather", "arguments": {"city": ["Paris"]}}]}
        )
        with pytest.raises(BadReply, match="called get_weather"):
            await proxy.aprocess(EXAMPLE)
    assert output["response"] == ""
    [made] = output["tool_calls"]
    assert (made["name"], json.loads(made["arguments"])) == ("get_weather", {"city": "Paris"})
    assert ToolCallMatch().score(output, output)["tool_call"] == 1.0
