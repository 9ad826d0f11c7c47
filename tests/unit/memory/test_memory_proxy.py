"""A proxy that remembers by itself: what it is told, as whom, and what it answers."""

import pytest

from context_bench.core.errors import BadInput
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.memory.protocol import Item, NotSupported
from context_bench.memory.systems import Bridge, make_memory
from context_bench.memory.systems.adapting import calls_models
from context_bench.testing.memory_contract import acheck_memory

ITEMS = [
    Item("t1", "I moved to Oslo.", speaker="Ann", time="2024-03-01", session="1"),
    Item("t2", "Nice!", role="assistant", session="1"),
    Item("t3", "The key is in box 42.", session="2"),
]
RULES = {
    "rules": [
        {"when": {"last": "Where"}, "text": "In Oslo."},
        {"when": {"last": "Empty"}, "status": 500},
        {"text": "ok"},
    ]
}


def said(model):
    return [(each.body["messages"], each.body["user"], each.body["max_tokens"]) for each in model.requests]


async def test_it_is_told_sessions_as_chats_and_asked_as_a_model():
    async with ModelServer(Scripted(RULES)) as model:
        memory = make_memory("proxy:model=m", relay=model.url)
        ann = memory.namespace("ann")
        assert [receipt.error for receipt in await ann.add(ITEMS)] == [None] * 3
        assert said(model) == [
            (
                [
                    {"role": "user", "content": "[2024-03-01] Ann: I moved to Oslo."},
                    {"role": "assistant", "content": "assistant: Nice!"},
                ],
                "ann",
                16,
            ),
            ([{"role": "user", "content": "user: The key is in box 42."}], "ann", 16),
        ]
        ledger = Ledger()
        with open_ledger(ledger):
            answer = await ann.answer("Where does Ann live?")
        assert answer.text == "In Oslo."
        assert answer.context_tokens == ledger.usage.input_tokens > 0
        assert said(model)[-1] == ([{"role": "user", "content": "Where does Ann live?"}], "ann", 256)
        output = (
            await Bridge(memory)
            .namespace("n")
            .aprocess({"id": "1", "question": "Where?", "items": '{"id": "a", "text": "b"}'})
        )
        assert output["response"] == "In Oslo."
        assert "hits" not in output
        with pytest.raises(NotSupported, match="shows no hits"):
            memory.search("?", 1)
        await memory.aclose()


async def test_it_keeps_the_contract():
    async with ModelServer(Scripted(RULES)) as model:
        assert await acheck_memory(lambda: make_memory("proxy:model=m", relay=model.url)) == []


async def test_ways_to_tell_and_to_say_as_whom():
    async with ModelServer(Scripted(RULES)) as model:
        memory = make_memory(f"proxy:url={model.url},model=m,ingest=turns,header=x-user-id,reply_tokens=1")
        assert len(await memory.namespace("ann é").add(ITEMS)) == 3
        assert [request.headers["x-user-id"] for request in model.requests] == ["ann%20%C3%A9"] * 3
        assert "user" not in model.requests[0].body
        silent = make_memory(f"proxy:url={model.url},model=m,ingest=none,user=false")
        assert [receipt.error for receipt in await silent.add(ITEMS)] == [None] * 3
        assert model.seen == 3
        assert silent.capabilities == {"add", "answer", "persistent"}
        with pytest.raises(NotSupported):
            silent.namespace("ann")


async def test_what_it_refuses_is_on_the_receipts_of_that_session():
    async with ModelServer(
        Scripted({"rules": [{"when": {"last": "Oslo|Nice"}, "status": 400}, {"text": "ok"}]})
    ) as model:
        receipts = await make_memory("proxy:model=m", relay=model.url).add(ITEMS)
        assert [receipt.error is None for receipt in receipts] == [False, False, True]
        assert receipts[0].error.startswith("Refused: HTTP 400")


@pytest.mark.parametrize(
    "spec",
    [
        "proxy",
        "proxy:model=m",
        "proxy:url=http://127.0.0.1:1,model=m,ingest=all",
        "proxy:url=http://h,model=m,header=authorization",
    ],
)
def test_what_cannot_be(spec):
    with pytest.raises(BadInput):
        make_memory(spec)


def test_who_calls_models_by_its_own_means(tmp_path):
    assert calls_models("mem0:infer=true")
    assert calls_models("langmem:embedder=relay")
    for spec in (
        "mem0",
        "langgraph",
        "bm25",
        "summary_anchored",
        "proxy:url=http://h",
        f"http:{tmp_path}/none.toml",
        "cli:x",
        "mcp:y",
    ):
        assert not calls_models(spec), spec

    class Mine:
        own_calls = True

    assert calls_models(Mine())
    with pytest.raises(BadInput):
        calls_models("py:nowhere.at.all:Mine")
