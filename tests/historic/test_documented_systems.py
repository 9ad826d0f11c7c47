"""Systems as documented: names, the request that is sent, what comes back, what is raised. The provider is a real
server on loopback.
"""

import socket

import pytest

from context_bench import ClaudeCLI, OpenAIProxy, evaluate
from context_bench.evaluators import AnswerQuality
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.systems import openai_proxy
from context_bench.types import System


@pytest.fixture
def provider():
    """`provider(script)` starts a server that answers by the script."""
    running = []

    def start(**script):
        server = ModelServer(Scripted({"default": "at noon", **script}))
        run_sync(server.start())
        running.append(server)
        return server

    yield start
    for server in running:
        run_sync(server.stop())


ASKED = {"id": 7, "context": "High water is at noon.", "question": "When is high water?"}


def test_names():
    assert OpenAIProxy(base_url="http://localhost:8080").name == "openai_proxy_localhost:8080"
    assert OpenAIProxy(base_url="http://localhost:8080/").name == "openai_proxy_localhost:8080"
    assert OpenAIProxy(base_url="https://tide.example/some/path").name == "openai_proxy_tide.example"
    assert OpenAIProxy(base_url="http://localhost:8080", name="mine").name == "mine"
    assert ClaudeCLI().name == "claude"
    assert openai_proxy.OpenAIProxy is OpenAIProxy
    assert isinstance(OpenAIProxy(base_url="http://h"), System)


def sent(server):
    return [(message["role"], message["content"]) for message in server.requests[-1].body["messages"]]


def test_context_is_the_system_message_and_the_question_the_users(provider):
    server = provider()
    found = OpenAIProxy(base_url=server.url).process(ASKED)
    assert sent(server) == [("system", ASKED["context"]), ("user", ASKED["question"])]
    assert {**ASKED, "response": "at noon"}.items() <= found.items()
    assert found["api_usage"]["prompt_tokens"] > 0


def test_other_messages(provider):
    server = provider()
    OpenAIProxy(base_url=server.url).process({"id": 1, "context": "Only this."})
    assert sent(server) == [("user", "Only this.")]
    OpenAIProxy(base_url=server.url, system_prompt="Be brief.").process(ASKED)
    assert sent(server)[0] == ("system", "Be brief.")
    assert sent(server)[-1] == ("user", ASKED["question"])
    OpenAIProxy(
        base_url=server.url,
        system_prompt="Unused.",
        build_messages=lambda e: [{"role": "user", "content": e["id"] * 2 * "x"}],
    ).process(ASKED)
    assert sent(server) == [("user", 14 * "x")]
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    OpenAIProxy(base_url=server.url, system_prompt="Be brief.").process({"id": 1, "turns": turns})
    assert sent(server) == [("system", "Be brief."), ("user", "a"), ("assistant", "b"), ("user", "c")]


def test_model_extras_and_keys(provider, monkeypatch):
    keys = {
        "from-the-environment": "the environment's",
        "given": "the one given",
    }  # a reply that quotes the key itself is masked
    server = provider(
        rules=[{"when": {"header": {"authorization": f"^Bearer {key}$"}}, "text": text} for key, text in keys.items()]
    )
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert OpenAIProxy(base_url=server.url).process(ASKED)["response"] == "at noon"  # no key, no header
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    assert OpenAIProxy(base_url=server.url).process(ASKED)["response"] == "the environment's"
    assert OpenAIProxy(base_url=server.url, api_key="given").process(ASKED)["response"] == "the one given"
    OpenAIProxy(base_url=server.url, model="tiny", extra_body={"temperature": 0, "max_tokens": 9}).process(ASKED)
    request = server.requests[-1]
    assert (request.body["model"], request.body["temperature"], request.body["max_tokens"]) == ("tiny", 0, 9)


def test_a_conversation_is_sent_turn_by_turn_with_all_that_was_said(provider):
    server = provider()
    turns = [{"role": "user", "content": "Hello"}, {"role": "user", "content": "And now?"}]
    replies = OpenAIProxy(base_url=server.url).process_conversation(turns)
    assert [reply["content"] for reply in replies] == ["at noon", "at noon"]
    assert sent(server) == [("user", "Hello"), ("assistant", "at noon"), ("user", "And now?")]


@pytest.mark.parametrize(
    ("rule", "said", "calls"),
    [
        ({"status": 400}, "HTTP 400", 1),
        ({"status": 503}, "HTTP 503", 3),
        ({"malformed": True}, "invalid JSON", 1),
        ({"empty_choices": True}, "empty choices", 1),
        ({"malformed": '{"unlike": 1}'}, "Unexpected response", 1),
    ],
)
def test_failures_are_runtime_errors_with_the_documented_words(provider, rule, said, calls):
    server = provider(rules=[rule])
    with pytest.raises(RuntimeError, match=said):
        OpenAIProxy(base_url=server.url, max_retries=2, retry_base_delay=0.001).process(ASKED)
    assert server.seen >= calls


def test_passing_failures_are_tried_again(provider):
    server = provider(rules=[{"first": 2, "status": 429}])
    assert OpenAIProxy(base_url=server.url, retry_base_delay=0.001).process(ASKED)["response"] == "at noon"
    assert server.seen == 3


def test_nobody_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(RuntimeError, match="Could not connect"):
            OpenAIProxy(base_url=url, max_retries=0).process(ASKED)


def test_a_compressor_of_ones_own_in_front_of_a_proxy(provider):
    server = provider()
    proxy = OpenAIProxy(base_url=server.url)

    class FirstSentence:
        name = "first_sentence"

        def process(self, example):
            return proxy.process({**example, "context": example["context"].split(".")[0] + "."})

    example = {**ASKED, "context": "High water is at noon. The rest is silence.", "answer": "at noon"}
    (row,) = evaluate([FirstSentence()], [example], [AnswerQuality()], progress=False).rows
    assert sent(server)[0] == ("system", "High water is at noon.")
    assert row.scores["exact_match"] == 1.0
