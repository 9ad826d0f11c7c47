"""Every built-in memory keeps the contract, and the contract catches memories that do not."""

import pytest

from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.memory.protocol import Hit, Item, Receipt
from context_bench.memory.systems import make_memory
from context_bench.memory.systems.bm25_memory import BM25
from context_bench.testing.memory_contract import acheck_memory, assert_memory, check_memory

OURS = ["none", "full_context", "naive", "recency", "random", "oracle", "bm25", "embedding", "hybrid"]


@pytest.mark.parametrize("spec", [*OURS, "recency:n=3,tokens=40", "embedding:recency=0.3", "random:seed=5"])
def test_built_in_memories_keep_the_contract(spec):
    assert_memory(lambda: make_memory(spec))


def test_the_file_keeps_the_contract(tmp_path):
    files = iter(range(1000))
    assert_memory(lambda: BM25(tmp_path / f"{next(files)}.db"))


@pytest.mark.parametrize("name", ["summary_regenerative", "summary_anchored"])
async def test_written_memories_keep_the_contract(name, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    rules = [
        {"when": {"last": "Ledger:"}, "text": "- the amber key is in box 40 [1]\n- the cobalt key is in box 42 [3]"},
        {"text": "A few keys."},
    ]
    async with ModelServer(Scripted({"rules": rules})) as model:
        assert await acheck_memory(lambda: make_memory(name, relay=model.url, model="m")) == []


class Broken(BM25):
    """A good memory with one fault at a time."""

    fault = ""

    def search(self, query, k, *, as_of=None):
        if self.fault == "k+1":
            return super().search(query, k + 1)
        if self.fault == "raises on odd":
            self._db.execute(f"SELECT * FROM {self._table} WHERE {self._table} MATCH '{query}'")
        if self.fault == "echo":
            return [Hit(query, 1.0)]
        if self.fault == "worst first":
            return super().search(query, k)[::-1]
        if self.fault == "made-up sources":
            return [Hit(hit.text, hit.score, ("x9",)) for hit in super().search(query, k)]
        return super().search(query, k)

    def add(self, items):
        receipts = super().add(items)
        return receipts[:-1] if self.fault == "loses a receipt" else receipts

    def delete(self, memory_id):
        if self.fault == "keeps":
            return True
        if self.fault == "deletes by number":
            return super().delete(f"{self._mark}-{memory_id.rpartition('-')[2]}")
        return super().delete(memory_id)

    def update(self, memory_id, text):
        return True if self.fault == "no update" else super().update(memory_id, text)

    def delete_all(self):
        if self.fault != "no reset":
            super().delete_all()

    def namespace(self, name):
        return self if self.fault == "one namespace" else type(self)(space=name)

    def stats(self):
        return {"items": "many"} if self.fault == "no numbers" else super().stats()


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("", None),
        ("k+1", "hits_are_hits"),
        ("worst first", "hits_are_hits"),
        ("made-up sources", "hits_are_hits"),
        ("raises on odd", "odd_texts_and_questions"),
        ("echo", "an_empty_memory_finds_nothing"),
        ("loses a receipt", "a_receipt_for_every_item"),
        ("keeps", "what_is_deleted_is_gone"),
        ("deletes by number", "namespaces_do_not_see_each_other"),
        ("no update", "what_is_updated_is_new"),
        ("no reset", "reset_forgets_everything"),
        ("one namespace", "namespaces_do_not_see_each_other"),
        ("no numbers", "counts_what_it_holds"),
    ],
)
def test_a_fault_is_found_by_its_check(fault, check):
    kind = type("Broken", (Broken,), {"fault": fault})
    found = {finding.check for finding in check_memory(kind)}
    assert (check in found) if check else not found


def test_a_memory_that_promises_too_much():
    class Boaster:
        name = ""
        capabilities = frozenset({"add", "search", "fly", "delete"})

        def add(self, items):
            return [Receipt(item.id) for item in items]

        def search(self, query, k, *, as_of=None):
            return []

    problems = [str(finding) for finding in check_memory(Boaster)]
    assert any("fly" in problem for problem in problems)
    assert any("no delete()" in problem for problem in problems)
    with pytest.raises(AssertionError, match="fly"):
        assert_memory(Boaster)


def test_a_lone_item_is_given_back_as_it_was():
    memory = make_memory("bm25")
    memory.add([Item("x", "The gate opens at 7:30 pm.", time="2024-05-01")])
    (hit,) = memory.search("When does the gate open?", 3)
    assert (hit.text, hit.source_ids, hit.time) == ("The gate opens at 7:30 pm.", ("x",), "2024-05-01")
