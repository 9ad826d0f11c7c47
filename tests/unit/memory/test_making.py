"""From what a user writes, or the object they have, to a memory."""

from dataclasses import dataclass

import pytest

from context_bench.core.errors import BadInput, BadReply, CostCapReached, UnknownName
from context_bench.core.lazy import DeclaredNames, registry
from context_bench.core.plugins import load_object, parse_spec
from context_bench.memory.protocol import Hit, Item, NotSupported
from context_bench.memory.systems import BUILTINS, SCHEMES, as_memory, make_memory
from context_bench.memory.systems.adapting import Answer, as_answer, as_hits
from context_bench.testing.memory_contract import assert_memory

ITEM = Item("D1:1", "I bought a bike.", speaker="Ann", time="2023-05-08", session="1")


@pytest.mark.parametrize("name", [*BUILTINS, *(f"{scheme}:" for scheme in SCHEMES)])
def test_every_name_leads_somewhere(name):
    assert callable(load_object(BUILTINS.get(name) or SCHEMES[name.rstrip(":")]))


def test_options_and_schemes():
    assert make_memory("recency:n=4").n == 4
    assert make_memory("builtin:random:seed=9").seed == 9
    assert make_memory("py:context_bench.memory.systems.baselines:Recency:n=2").n == 2
    with pytest.raises(UnknownName, match="Did you mean bm25"):
        make_memory("bm52")
    with pytest.raises(BadInput, match="has no option colour"):
        make_memory("bm25:colour=red")
    with pytest.raises(BadInput, match="memory 'recency:n=few': n is 'few'; expected a whole number"):
        make_memory("recency:n=few")
    with pytest.raises(BadInput, match="relay"):
        make_memory("summary_anchored")


def test_a_new_scheme_is_one_file(monkeypatch, tmp_path):
    (tmp_path / "shelf_memories").mkdir()
    (tmp_path / "shelf_memories" / "shelf.py").write_text(
        "from context_bench.memory.systems.baselines import Recency\n"
        'SCHEMES = {"shelf": "from_spec"}\n'
        "def from_spec(target):\n"
        "    memory = Recency()\n"
        "    memory.name = target\n"
        "    return memory\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with_shelf = DeclaredNames("shelf_memories", tmp_path / "shelf_memories", "SCHEMES", SCHEMES)
    monkeypatch.setattr("context_bench.memory.systems.adapting.SCHEMES", with_shelf)
    assert make_memory("shelf:red,n=4: and more").name == "red,n=4: and more"


@pytest.mark.parametrize(
    ("text", "scheme", "target"),
    [
        ("cli:a b:c", "cli", "a b:c"),
        ("http://host/p", "http", "http://host/p"),
        ("https://host/p", "http", "https://host/p"),
        ("http:file.toml", "http", "file.toml"),
        ("mcp:program --x", "mcp", "program --x"),
        ("name:a=1", "name", "name"),
    ],
)
def test_what_a_scheme_is_followed_by(text, scheme, target):
    spec = parse_spec(text)
    assert (spec.scheme, spec.target) == (scheme, target)


def test_relay_model_and_key_go_to_those_who_take_them(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    told = {"relay": "http://127.0.0.1:9", "model": "m", "api_key": "sk-secret"}
    assert make_memory("bm25", **told).name == "bm25"
    memory = make_memory("summary_regenerative", **told)
    assert memory.fingerprint()["model"] == "m"
    assert "sk-secret" not in repr(memory.fingerprint())
    assert make_memory("summary_regenerative:model=other", **told).model == "other"


def test_registered_names(monkeypatch):
    monkeypatch.setattr(registry, "_objects", {"memory": {"mine": lambda size=1: Texts(size)}})
    assert make_memory("mine:size=3").name == "Texts"


class Texts:
    """Something like a memory, without a name."""

    def __init__(self, size=1):
        self.texts = []

    def remember(self, text):
        self.texts.append(text)

    def retrieve(self, query, top_k=5):
        return self.texts[:top_k]

    def clear(self):
        self.texts = []


class Client:
    """The documented client."""

    def reset(self):
        self.kept = []

    def store(self, content):
        self.kept.append(content)

    def recall(self, query, limit):
        return self.kept[:limit]


class Rich:
    """Async, with metadata, ids, scores, namespaces and forgetting."""

    name = "rich"
    granularity = "session"

    def __init__(self, space="m"):
        self.kept, self.flushed, self.space = {}, None, space

    async def add(self, text, metadata=None):
        key = f"{self.space}{len(self.kept)}"
        self.kept[key] = (text, metadata)
        return {"id": key}

    async def search(self, query, limit=5, as_of=None):
        self.as_of = as_of
        rows = [
            {"id": key, "memory": text, "metadata": about, "score": 0.5} for key, (text, about) in self.kept.items()
        ]
        return {"results": rows[:limit]}

    def delete(self, memory_id):
        return self.kept.pop(memory_id, None) is not None

    def delete_all(self):
        self.kept.clear()

    def flush(self, seconds):
        self.flushed = seconds

    def namespace(self, name):
        return Rich(name)


async def test_a_documented_client():
    client = Client()
    memory = as_memory(client)
    memory.reset()
    (receipt,) = await memory.add([ITEM])
    assert (receipt.item_id, receipt.error) == ("D1:1", None)
    assert client.kept == ["[2023-05-08] Ann: I bought a bike."]
    assert await memory.search("?", 3) == [Hit("[2023-05-08] Ann: I bought a bike.")]
    assert memory.capabilities == {"add", "search", "delete_all"}
    await memory.flush(1.0)  # nothing to wait for


async def test_whatever_has_something_like_add_and_search():
    memory = as_memory(Texts())
    await memory.add([Item("a", "one"), Item("b", "two")])
    assert [hit.text for hit in await memory.search("?", 1)] == ["one"]
    memory.reset()
    assert await memory.search("?", 5) == []


async def test_metadata_ids_scores_and_namespaces_are_passed_on():
    rich = Rich()
    memory = as_memory(rich)
    (receipt,) = await memory.add([ITEM])
    assert receipt.memory_id == "m0"
    assert rich.kept["m0"][1] == {
        "source_id": "D1:1",
        "role": "user",
        "speaker": "Ann",
        "time": "2023-05-08",
        "session": "1",
    }
    assert await memory.search("?", 2, as_of="2024-01-01") == [
        Hit("[2023-05-08] Ann: I bought a bike.", 0.5, ("D1:1",), "m0", "2023-05-08")
    ]
    assert rich.as_of == "2024-01-01"
    assert memory.granularity == "session"
    await memory.flush(7.0)
    assert rich.flushed == 7.0
    assert await memory.namespace("x").search("?", 2) == []
    assert {"namespaces", "source_ids", "metadata", "delete"} <= memory.capabilities
    assert memory.delete("m0")


def test_an_adapted_object_keeps_the_contract():
    def cleared():
        client = Client()
        client.reset()
        return as_memory(client)

    assert_memory(cleared)
    assert_memory(lambda: as_memory(Rich()))


async def test_failures_of_the_object_are_in_the_receipts():
    class Fails(Client):
        def store(self, content):
            if "two" in content:
                raise OSError("disk full")
            return False if "three" in content else None

    receipts = await as_memory(Fails()).add([Item("1", "one"), Item("2", "two"), Item("3", "three")])
    assert [receipt.error for receipt in receipts] == [None, "OSError: disk full", "the store said no"]

    class Costly(Client):
        def store(self, content):
            raise CostCapReached("enough")

    with pytest.raises(CostCapReached):
        await as_memory(Costly()).add([Item("1", "one")])


class Documented:
    name = "documented"

    def reset(self):
        self.turns = []

    def ingest(self, turns):
        self.turns = turns

    def query(self, question):
        return f"{question} {len(self.turns)}"


async def test_a_documented_memory_system():
    inner = Documented()
    memory = as_memory(inner)
    memory.reset()
    await memory.add([ITEM, Item("b", "Good.", role="assistant")])
    assert inner.turns == [
        {
            "role": "user",
            "content": "[2023-05-08] Ann: I bought a bike.",
            "timestamp": "2023-05-08",
            "speaker": "Ann",
            "session_id": "1",
        },
        {"role": "assistant", "content": "Good."},
    ]
    assert await memory.answer("How many?") == Answer("How many? 2")
    with pytest.raises(NotSupported):
        memory.search("?", 1)


def test_answers_of_every_documented_form():
    @dataclass
    class Told:
        answer: str
        context_tokens: int = 7

    class Remembers:
        last_context_tokens = 12

    assert as_answer("yes", Remembers()) == Answer("yes", 12)
    assert as_answer("yes") == Answer("yes", None)
    assert as_answer(Told("no"), Remembers()) == Answer("no", 7)
    assert as_answer({"answer": "maybe", "context_tokens": 3}) == Answer("maybe", 3)
    with pytest.raises(BadReply, match="NoneType"):
        as_answer(None)


@pytest.mark.parametrize(
    ("found", "hits"),
    [
        (["a", "b"], [Hit("a"), Hit("b")]),
        ("a\n\nb\n", [Hit("a"), Hit("b")]),
        ([], []),
        ([("a", 0.5), ["b", 1]], [Hit("a", 0.5), Hit("b", 1.0)]),
        ([{"content": "a", "id": 3, "score": 1}], [Hit("a", 1.0, (), "3")]),
        (
            {"memories": [{"text": "a", "source_ids": [1, 2], "created_at": "2024"}]},
            [Hit("a", None, ("1", "2"), None, "2024")],
        ),
        ({"results": []}, []),
    ],
)
def test_results_of_every_usual_form(found, hits):
    assert as_hits(found) == hits


@pytest.mark.parametrize("found", [None, 3, {"ok": True}, [None], [{"score": 1}]])
def test_results_that_are_none(found):
    with pytest.raises(BadReply):
        as_hits(found)


@pytest.mark.parametrize("thing", [object(), Texts, "text and nothing else".split, {"add": 1}])
def test_what_is_no_memory_is_said_so(thing):
    with pytest.raises(BadInput, match="not a memory"):
        as_memory(thing)


def test_a_memory_stays_what_it_is():
    memory = make_memory("bm25")
    assert as_memory(memory) is memory
    assert make_memory(memory) is memory
