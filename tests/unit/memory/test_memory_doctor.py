"""The examination of a memory finds what it cannot do, says what it does not offer, and leaves alone what was there."""

import json
import sys

import pytest

from context_bench.core.errors import BadInput
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.memory.doctor import examine
from context_bench.memory.protocol import Item, Receipt
from context_bench.memory.systems import as_memory, make_memory
from context_bench.memory.systems.bm25_memory import BM25


def statuses(findings):
    return {finding.name: finding.status for finding in findings}


@pytest.mark.parametrize("spec", ["bm25", "embedding", "hybrid"])
async def test_a_good_memory(spec):
    memory = make_memory(spec)
    memory.add([Item("mine", "The teal canary of mine lives at the quarry.")])
    findings = await examine(memory)
    names = ["add", "flush", "search", "sources", "namespaces", "stats", "update", "delete", "tidy up"]
    assert statuses(findings) == {**dict.fromkeys(names, "ok"), "flush": "n/a" if spec == "embedding" else "ok"}
    assert all(finding.seconds >= 0 for finding in findings if finding.name in ("add", "search", "delete"))
    assert memory.stats()["items"] == 1


class Faulty(BM25):
    """A good memory with one fault at a time."""

    fault = ""

    def add(self, items):
        if self.fault == "raises":
            raise OSError("disk full")
        if self.fault == "says nothing":
            return None
        return [Receipt(item.id, "1") for item in items] if self.fault == "loses" else super().add(items)

    def search(self, query, k, *, as_of=None):
        if self.fault == "search raises":
            raise RuntimeError("no index")
        return super().search(query, k + 3)[::-1] if self.fault == "worst first" else super().search(query, k)

    def delete(self, memory_id):
        return True if self.fault == "keeps" else super().delete(memory_id)

    def update(self, memory_id, text):
        return True if self.fault == "no update" else super().update(memory_id, text)

    def stats(self):
        return {"items": "many"} if self.fault == "no numbers" else super().stats()

    def namespace(self, name):
        return self if self.fault == "one namespace" else type(self)(space=name)


@pytest.mark.parametrize(
    ("fault", "name", "status", "words"),
    [
        ("raises", "add", "fail", "OSError: disk full"),
        ("says nothing", "add", "fail", "NoneType"),
        ("loses", "search", "fail", "nothing"),
        ("search raises", "search", "fail", "no index"),
        ("worst first", "search", "warn", "is hit 4 of 4"),
        ("keeps", "delete", "fail", "still found"),
        ("no update", "update", "fail", "old text found: True"),
        ("no numbers", "stats", "fail", "many"),
        ("one namespace", "namespaces", "fail", "finds what was added here"),
    ],
)
async def test_a_fault_is_found(fault, name, status, words):
    findings = await examine(type("Faulty", (Faulty,), {"fault": fault})())
    found = next(finding for finding in findings if finding.name == name)
    assert (found.status, words in found.detail) == (status, True), found


class Deleting:
    """No namespaces, but it can take one item away; it must never be emptied."""

    name = "deleting"
    capabilities = frozenset({"add", "search", "delete"})

    def __init__(self):
        self.inner = BM25()

    def add(self, items):
        return self.inner.add(items)

    def search(self, query, k, *, as_of=None):
        return self.inner.search(query, k)

    def delete(self, memory_id):
        return self.inner.delete(memory_id)

    def reset(self):
        raise AssertionError("it was emptied")

    delete_all = reset


async def test_without_namespaces_only_its_own_canaries_are_taken_away():
    memory = Deleting()
    memory.add([Item("mine", "mine")])
    findings = statuses(await examine(memory))
    assert (findings["delete"], findings["tidy up"], findings["namespaces"], findings["update"]) == (
        "ok",
        "ok",
        "n/a",
        "n/a",
    )
    assert memory.inner.stats()["items"] == 1


async def test_what_could_not_be_taken_away_again_is_added_only_by_force():
    class Texts:
        name = "texts"

        def __init__(self):
            self.texts = ["mine"]

        def add(self, text):
            self.texts.append(text)

        def search(self, query, limit):
            return [text for text in self.texts if query.split()[3] in text][:limit]

        def clear(self):
            raise AssertionError("it was emptied")

    texts = Texts()
    with pytest.raises(BadInput, match="--force"):
        await examine(as_memory(texts))
    assert texts.texts == ["mine"]
    findings = await examine(as_memory(texts), force=True)
    assert statuses(findings)["tidy up"] == "warn"
    assert "4 canaries stay" in findings[-1].detail
    assert len(texts.texts) == 5


async def test_nothing_is_said_to_be_deleted_that_was_not():
    class Refuses(Deleting):
        def add(self, items):
            return [Receipt(item.id, error="no room") for item in items] if self.full else super().add(items)

        def delete(self, memory_id):
            raise OSError("read only")

    memory = Refuses()
    memory.full = True
    tidied = (await examine(memory))[-1]
    assert (tidied.name, tidied.status) == ("tidy up", "n/a")
    assert "nothing was acknowledged" in tidied.detail
    memory.full = False
    tidied = (await examine(memory))[-1]
    assert (tidied.status, tidied.detail.partition(";")[0]) == ("warn", "4 canaries stay in it")


async def test_a_memory_that_answers():
    rules = {"rules": [{"when": {"last": "In which box"}, "text": "In box 43."}, {"text": "ok"}]}
    async with ModelServer(Scripted(rules)) as model:
        findings = await examine(make_memory("proxy:model=m", relay=model.url))
    assert statuses(findings) == {
        "add": "ok", "flush": "n/a", "search": "n/a", "answer": "ok", "namespaces": "n/a",
        "stats": "n/a", "update": "n/a", "delete": "n/a", "tidy up": "warn",
    }  # fmt: skip


PROGRAM = """
import json, pathlib, re, sys
what, user, *rest = sys.argv[1:]
path = pathlib.Path(sys.argv[0]).with_name(f"{user}.json")
held = json.loads(path.read_text()) if path.exists() else {}
words = lambda text: set(re.findall(r"\\w+", text.lower()))
if what == "add":
    ident = f"{user}-{len(held)}"
    held[ident] = rest[0]
    print(json.dumps({"id": ident}))
elif what == "find":
    best = sorted(held.items(), key=lambda one: -len(words(one[1]) & words(rest[1])))
    print(json.dumps([{"id": ident, "text": text} for ident, text in best[: int(rest[0])]]))
elif what == "drop":
    held.pop(rest[0], None)
else:
    held = {}
path.write_text(json.dumps(held))
"""


async def test_a_program(tmp_path):
    (tmp_path / "notes.py").write_text(PROGRAM)
    start = [sys.executable, str(tmp_path / "notes.py")]
    commands = {
        "store": ["add", "{namespace}", "{content}"], "recall": ["find", "{namespace}", "{limit}", "{query}"],
        "delete": ["drop", "{namespace}", "{id}"], "reset": ["clear", "{namespace}"],
    }  # fmt: skip
    lines = [f"{name} = {json.dumps([*start, *words])}" for name, words in commands.items()]
    (tmp_path / "notes.toml").write_text("\n".join(['memory_id = "id"', *lines, "[output]", 'id = "id"']))
    findings = await examine(make_memory(f"cli:{tmp_path}/notes.toml"))
    assert statuses(findings) == {
        "add": "ok", "flush": "ok", "search": "ok", "sources": "n/a", "namespaces": "ok",
        "stats": "n/a", "update": "n/a", "delete": "ok", "tidy up": "ok",
    }  # fmt: skip
