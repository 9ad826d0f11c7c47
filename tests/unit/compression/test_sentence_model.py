"""The sentence reader behind a wire says what it says in a script, on every wire."""

import pytest

from context_bench.compression.probes import packed, rendered, tokens_of
from context_bench.compression.systems.compressing import Compressing
from context_bench.compression.systems.sentence import SentenceModel, SentenceReader
from context_bench.compression.systems.through_proxy import Conversing, ThroughProxy
from context_bench.core.records import Call, Forwarded
from context_bench.core.tokens import counter_for
from context_bench.datasets import sessions
from context_bench.llm.servers import ModelServer

QUESTION = "Which file was modified, and which test failed?"


@pytest.fixture(scope="module")
def example():
    session = sessions.load_session(sessions.bundled()[0])
    where = next(at for at, message in enumerate(session.messages) if at > 8 and message["role"] == "assistant")
    return {"id": "x#1", "group": "x", "question": QUESTION, "session": packed(session.messages), "points": [where]}


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
async def test_the_same_answer_over_every_wire(example, wire):
    turns = [*map(dict, sessions.load_session(sessions.bundled()[0]).messages), {"role": "user", "content": QUESTION}]
    alone = SentenceReader().process({"question": QUESTION, "turns": turns})["response"]
    async with ModelServer(SentenceModel()) as server:
        asked = ThroughProxy(server.url, "theirs", model="gpt-4o", wire=wire)
        found = await asked.aprocess(example)
        again = await Compressing("full", Conversing(server.url, model="gpt-4o", wire=wire), tapped=True).aprocess(
            example
        )
        await asked.aclose()
        bodies = [received.body for received in server.requests]
    assert found["response"] == alone != "Not mentioned."
    assert again["response"] == alone
    assert bodies[0] == bodies[1]  # a proxy under test and the reader of any other arm ask in the same words
    assert found["api_usage"]["prompt_tokens"] == asked.shaped(example).tokens()


def test_what_stands_before_the_point_is_the_compressed_part(example):
    asked = ThroughProxy("http://127.0.0.1:1", model="gpt-4o")
    whole, rest = asked.shaped(example).tokens(), asked.request_without_context_tokens(example)
    messages = sessions.load_session(sessions.bundled()[0]).messages
    head = 1 if messages[0]["role"] == "system" else 0
    assert whole - rest == tokens_of(messages[head : example["points"][0]], counter_for("gpt-4o"))


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
async def test_what_arrives_untouched_is_the_prefix_as_it_was(example, wire):
    asked = ThroughProxy("http://127.0.0.1:1", model="gpt-4o", wire=wire)
    body = asked.shaped(example).body
    call = Call("system", "gpt-4o", "http://127.0.0.1:1", 0.0, request=body)
    arrived = Forwarded("1", "cb", "key", wire, "POST", "/", 0.0, status=200, request=body)
    told = asked.after_capture(example, asked.shaped(example).tokens(), [call], [arrived])
    messages = sessions.load_session(sessions.bundled()[0]).messages
    prefix = messages[1 if messages[0]["role"] == "system" else 0 : example["points"][0]]
    assert told["wire"]["violations"] == {}
    if wire != "anthropic":  # which keeps arguments as objects: their JSON is spaced otherwise
        assert told["output"]["context"] == rendered(prefix)
    assert len(told["output"]["context"]) == pytest.approx(len(rendered(prefix)), rel=0.02)
    assert told["metadata"]["tokens_after"] == pytest.approx(tokens_of(prefix, counter_for("gpt-4o")), rel=0.02)


async def test_a_model_with_nothing_to_read_has_nothing_to_say():
    async with ModelServer(SentenceModel()) as server:
        empty = await Conversing(server.url, model="gpt-4o").aprocess(
            {"turns": [{"role": "user", "content": "What was decided?"}]}
        )
        plain = await Conversing(server.url, model="gpt-4o").aprocess(
            {"context": "The gate opens at nine.", "question": "When?"}
        )
    assert empty["response"] == "Not mentioned."
    assert (
        plain["response"] == "Not mentioned."
    )  # all in one message: there is no telling the question from what is to be read
