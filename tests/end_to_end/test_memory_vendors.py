"""Memories from the package index, in their own environments, without a network: mem0, LangGraph's store, LangMem's
tools.
"""

import os
import signal
import sys

import pytest

from context_bench.core.errors import BadInput, MissingProgram, TimedOut, Unreachable
from context_bench.core.protocols import call
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.memory.doctor import examine
from context_bench.memory.protocol import Item
from context_bench.memory.systems import make_memory
from context_bench.sandbox.vendors import Vendor
from context_bench.testing.memory_contract import acheck_memory

ITEMS = [
    Item("t1", "I bought a red bicycle.", speaker="Ann", time="2024-03-01", session="1"),
    Item("t2", "The cat sat on the mat.", role="assistant"),
    Item("t3", "half a pair \ud83d", role="system"),
]


async def check(memory):
    """What every one of them has to do: the contract, in one process; ids, dates and namespaces kept; nothing wrong to
    the doctor.
    """
    try:
        rounds = iter(range(1000))
        assert await acheck_memory(lambda: memory.namespace(f"round {next(rounds)}")) == []
        ann = memory.namespace("Ann / é")
        receipts = ann.add(ITEMS)
        assert [receipt.error for receipt in receipts] == [None] * 3
        best, *_ = ann.search("Who has a bike?", 2)
        assert (best.text, best.source_ids, best.time) == ("Ann: I bought a red bicycle.", ("t1",), "2024-03-01")
        assert best.memory_id == receipts[0].memory_id
        assert ann.stats()["items"] == 3
        assert memory.search("Who has a bike?", 2) == []
        found = {finding.name: finding.status for finding in await examine(memory)}
        assert set(found.values()) <= {"ok", "n/a"}
        assert found["version"] == found["namespaces"] == found["delete"] == found["sources"] == "ok"
    finally:
        memory.close()


@pytest.mark.vendor("mem0")
async def test_mem0_that_keeps_texts(monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-not-to-be-used")  # mem0 would send its calls there
    memory = make_memory("mem0")
    assert memory.fingerprint()["version"] == "2.2.1"
    await check(memory)


@pytest.mark.vendor("mem0")
async def test_mem0_that_extracts_facts(tmp_path):
    fact = '{"memory": [{"text": "Ann owns a red bicycle since March 2024."}]}'
    rules = [
        {"when": {"last": "unreadable"}, "status": 400},
        {"when": {"last": "bicycle"}, "text": fact},
        {"text": '{"memory": []}'},
    ]
    async with ModelServer(Scripted({"rules": rules}), api_key="sk-scripted-123456") as model:
        memory = make_memory(
            f"mem0:infer=true,path={tmp_path}/store", relay=model.url, model="m", api_key="sk-scripted-123456"
        )
        ann = memory.namespace("ann")
        first, second, third = [
            (await call(ann.add, [item]))[0] for item in (*ITEMS[1:2], ITEMS[0], Item("t4", "unreadable"))
        ]
        assert (first.memory_id, first.error) == (None, None)  # nothing worth keeping
        assert second.memory_id is not None
        assert "LLMError" in third.error
        assert "sk-scripted" not in third.error
        assert "[2024-03-01] Ann: I bought a red bicycle." in model.requests[1].text
        assert model.seen == 3
        (hit,) = await call(ann.search, "bicycle", 5)
        assert (hit.text, hit.source_ids) == ("Ann owns a red bicycle since March 2024.", ("t1",))
        assert "sk-scripted" not in repr(memory.fingerprint())
        memory.close()
        again = make_memory(f"mem0:path={tmp_path}/store")
        assert [hit.text for hit in again.namespace("ann").search("bicycle", 5)] == [
            "Ann owns a red bicycle since March 2024."
        ]
        again.close()


@pytest.mark.vendor("langgraph")
@pytest.mark.parametrize("name", ["langgraph", "langmem"])
async def test_langgraph(name):
    await check(make_memory(name))


@pytest.mark.vendor("langgraph")
def test_a_process_that_ends_or_hangs():
    memory = make_memory("langgraph")
    memory.add(ITEMS)
    os.kill(memory._worker._process.program.pid, signal.SIGKILL)
    for words in ("ended during search", "so has what it held"):
        with pytest.raises(Unreachable, match=words):
            memory.search("bike", 1)
    memory.close()
    slow = make_memory("langgraph:timeout=0.01")
    with pytest.raises(TimedOut, match="killed"):
        slow.search("bike", 1)
    slow.close()


def test_what_is_missing_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("CONTEXT_BENCH_MEM0_PYTHON", sys.executable)
    with pytest.raises(MissingProgram, match="has no package mem0ai: run `make vendors`"):
        make_memory("mem0")
    monkeypatch.setenv("CONTEXT_BENCH_MEM0_PYTHON", str(tmp_path / "python"))
    with pytest.raises(MissingProgram, match="cannot be run"):
        make_memory("mem0")
    with pytest.raises(MissingProgram, match="needs the package nobodys-memory"):
        Vendor("nobodys-memory", "nobodys", "1").python()


@pytest.mark.parametrize(
    ("spec", "words"),
    [("mem0:infer=true", "relay=URL"), ("mem0:embedder=x", "minilm"), ("langmem:embedder=relay", "relay")],
)
def test_what_cannot_be(spec, words):
    with pytest.raises(BadInput, match=words):
        make_memory(spec)
