"""What each built-in memory finds, and what the file of the BM25 one survives."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput, StoreUnusable
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.memory.protocol import Item
from context_bench.memory.systems.baselines import FullContext, Oracle, RandomPick, Recency
from context_bench.memory.systems.bm25_memory import BM25, _words
from context_bench.memory.systems.built_memories import (
    AnchoredSummary,
    Embedding,
    Hybrid,
    RegenerativeSummary,
    _numbers,
)

TALK = [
    Item("D1:1", "I bought a red bike in Oslo.", speaker="Ann", time="2023-05-08", session="1"),
    Item("D1:2", "Nice! I sold my old car.", speaker="Bob", time="2023-05-08", session="1"),
    Item("D2:1", "My sister visits on Sunday.", speaker="Ann", time="2023-06-01", session="2"),
    Item("D2:2", "Bring her to the lake.", speaker="Bob", time="2023-06-01", session="2"),
]


def ids(hits):
    return [source for hit in hits for source in hit.source_ids]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


# --- the simple ones ---


def test_full_context_gives_everything_in_order_with_speakers_and_dates():
    memory = FullContext()
    memory.add(TALK)
    hits = memory.search("anything", 1)
    assert ids(hits) == ["D1:1", "D1:2", "D2:1", "D2:2"]
    assert (hits[0].text, hits[0].time) == ("Ann: I bought a red bike in Oslo.", "2023-05-08")


def test_recency_gives_the_newest_first_within_its_window():
    memory = Recency(n=3)
    memory.add(TALK)
    assert ids(memory.search("bike", 10)) == ["D2:2", "D2:1", "D1:2"]
    assert ids(memory.search("bike", 2)) == ["D2:2", "D2:1"]
    narrow = Recency(tokens=16)
    narrow.add(TALK)
    assert ids(narrow.search("bike", 10)) == ["D2:2", "D2:1"]
    with pytest.raises(BadInput):
        Recency(n=0)


def test_random_repeats_itself_and_depends_on_seed_and_question():
    def drawn(seed, question, space="a"):
        memory = RandomPick(seed).namespace(space)
        memory.add([Item(str(i), f"fact {i}") for i in range(100)])
        return ids(memory.search(question, 8))

    assert drawn(1, "q") == drawn(1, "q", "b")
    assert len(set(drawn(1, "q"))) == 8
    assert drawn(1, "q") != drawn(2, "q")
    assert drawn(1, "q") != drawn(1, "r")


def test_the_oracle_gives_the_evidence_by_item_or_by_session():
    memory = Oracle()
    memory.add(TALK)
    assert ids(memory.search("?", 1, evidence=["D2:1", "D1:1"])) == ["D1:1", "D2:1"]
    assert ids(memory.search("?", 1, evidence=["2"])) == ["D2:1", "D2:2"]
    assert memory.search("?", 5) == []


# --- BM25 ---


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("我去年搬到了北京大学附近", "北京在哪里"),
        ("我去年搬到了北京大学附近", "京"),
        ("きのう東京タワーに行きました", "東京タワーはいつ"),
        ("나는 서울에서 살아요", "서울"),
        ("ผมชอบกินข้าวมันไก่", "ข้าวมันไก่"),
        ("मैंने हिन्दी सीखी", "हिन्दी"),
        ("اشتريت الكتاب من القاهرة", "القاهرة"),
        ("Я купил велосипед", "ВЕЛОСИПЕД"),
        ("Der Straßenname ist Café", "cafe"),
        ("the year was ２０２３年", "２０２３"),
    ],
)
def test_bm25_finds_words_of_any_script(text, question):
    memory = BM25()
    memory.add([Item("other", "Nothing to see here; 别的; другое; その他; 다른"), Item("it", text)])
    hits = memory.search(question, 1)
    assert [(hit.text, hit.source_ids) for hit in hits] == [(text, ("it",))]


def test_hindi_words_are_not_cut_at_their_vowel_signs():
    memory = BM25()
    memory.add([Item("a", "हिन्दी"), Item("b", "हन्द")])
    assert ids(memory.search("हिन्दी", 5)) == ["a"]


def test_bm25_ranks_rare_words_first_and_looks_for_the_speaker_too():
    memory = BM25()
    memory.add([*TALK, *(Item(f"x{i}", "I bought bread.", speaker="Cid", session="3") for i in range(20))])
    assert ids(memory.search("What did Ann say she bought in Oslo?", 1)) == ["D1:1"]
    scores = [hit.score for hit in memory.search("bought bread", 30)]
    assert scores == sorted(scores, reverse=True)


def test_the_words_of_one_namespace_do_not_weigh_in_another(tmp_path):
    store = BM25(tmp_path / "m.db")
    quiet, loud = store.namespace("quiet"), store.namespace("loud")
    quiet.add(TALK)
    before = [hit.score for hit in quiet.search("red bike", 5)]
    loud.add([Item(str(i), "red bike red bike") for i in range(200)])
    assert [hit.score for hit in quiet.search("red bike", 5)] == before


def test_ids_are_never_used_again(tmp_path):
    memory = BM25(tmp_path / "m.db")
    (first,) = memory.add([Item("a", "one")])
    assert memory.delete(first.memory_id)
    (second,) = memory.add([Item("b", "two")])
    assert first.memory_id != second.memory_id
    assert not memory.delete(first.memory_id)
    assert ids(memory.search("two", 3)) == ["b"]


@given(st.text(max_size=60), st.text(max_size=60))
def test_bm25_takes_any_text_and_any_question(text, question):
    memory = BM25()
    memory.add([Item("a", text)])
    for hit in memory.search(question, 3):
        assert hit.text == text.encode("utf-8", "replace").decode()
    assert all('"' not in word and "\x00" not in word for word in _words(question))
    memory.close()


def test_the_file_is_read_again_by_name(tmp_path):
    path = tmp_path / "deep" / "m.db"
    first = BM25(path).namespace("u1")
    first.add(TALK)
    first.close()
    again = BM25(path)
    assert "persistent" in again.capabilities
    assert ids(again.namespace("u1").search("bike", 3)) == ["D1:1"]
    assert again.namespace("u2").search("bike", 3) == []
    assert again.search("bike", 3) == []


def test_deleted_words_leave_the_file(tmp_path):
    path = tmp_path / "m.db"
    memory = BM25(path)
    receipts = memory.add([Item(str(i), f"The code of door {i} is zq{i}vxk.") for i in range(50)])
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"zq7vxk" in stored  # the scan can see it
    memory.delete(receipts[7].memory_id)
    memory.update(receipts[8].memory_id, "The door is gone.")
    memory.flush()
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"zq7vxk" not in stored
    assert b"zq8vxk" not in stored
    assert b"zq9vxk" in stored
    memory.delete_all()
    memory.close()
    assert b"vxk" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_writers_in_threads_and_namespaces_lose_nothing(tmp_path):
    path = tmp_path / "m.db"
    errors = []

    def write(writer):
        try:
            memory = BM25(path, space=f"user{writer % 3}")
            for number in range(25):
                memory.add([Item(f"w{writer}n{number}", f"writer{writer} wrote number{number}")])
            memory.close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for space in range(3):
        memory = BM25(path, space=f"user{space}")
        assert memory.stats()["items"] == 50
        found = set(ids(memory.search("wrote", 100)))
        assert found == {f"w{writer}n{number}" for writer in (space, space + 3) for number in range(25)}


_CHILD = """
import sys
from context_bench.memory.protocol import Item
from context_bench.memory.systems.bm25_memory import BM25
memory = BM25(sys.argv[1], space="u")
number = 0
while True:
    (receipt,) = memory.add([Item(str(number), f"fact number{number}")])
    print(receipt.item_id, flush=True)
    number += 1
"""


@pytest.mark.parametrize("after", [1, 2, 13])
def test_what_is_acknowledged_survives_kill_9(tmp_path, after):
    path = tmp_path / "m.db"
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_CHILD), str(path)], stdout=subprocess.PIPE, text=True
    )
    told = [child.stdout.readline().strip() for _ in range(after)]
    os.kill(child.pid, signal.SIGKILL)
    told += child.stdout.read().split("\n")[:-1]
    child.wait()
    child.stdout.close()
    memory = BM25(path, space="u")
    kept = {hit.source_ids[0]: hit.text for hit in memory.search("fact", 100_000)}
    assert set(told) <= set(kept)
    assert all(text == f"fact number{number}" for number, text in kept.items())
    memory.add([Item("after", "fact after the crash")])
    assert "after" in ids(memory.search("crash", 5))


def test_a_batch_is_stored_as_a_whole_or_not_at_all(tmp_path):
    memory = BM25(tmp_path / "m.db")
    memory.add(TALK)
    with pytest.raises(sqlite3.Error):
        memory.add([Item("good", "a good one"), Item("bad", "one that SQLite refuses", time=Unbindable("2024"))])
    assert memory.stats()["items"] == len(TALK)
    memory.add([Item("next", "and it goes on")])
    assert ids(memory.search("goes on", 1)) == ["next"]


class Unbindable(str):
    """A text that fails in the middle of the transaction."""

    def __conform__(self, protocol):
        raise sqlite3.InterfaceError("not to be stored")


def test_a_file_that_is_no_database_is_said_so(tmp_path):
    path = tmp_path / "m.db"
    path.write_text("this is not a database, and it is long enough to be read as a header of one" * 20)
    with pytest.raises(StoreUnusable, match=r"m\.db"):
        BM25(path)
    with pytest.raises(BadInput, match="synchronous"):
        BM25(synchronous="PERHAPS")


# --- vectors ---


class Letters:
    """Vectors that can be worked out by hand: how often a, b, c occur."""

    name = "letters"

    def embed(self, texts):
        return [[float(text.count(letter)) for letter in "abc"] for text in texts]


def test_embedding_ranks_by_cosine_and_keeps_vectors_and_texts_together():
    memory = Embedding(embedder=Letters())
    receipts = memory.add([Item("aaa", "aaa"), Item("ab", "ab"), Item("c", "c"), Item("b", "b")])
    assert ids(memory.search("a", 2)) == ["aaa", "ab"]
    assert [round(hit.score, 4) for hit in memory.search("a", 4)] == [1.0, 0.7071, 0.0, 0.0]
    memory.delete(receipts[0].memory_id)
    assert ids(memory.search("a", 9)) == ["ab", "c", "b"]
    memory.update(receipts[2].memory_id, "aa")
    assert [hit.text for hit in memory.search("a", 1)] == ["aa"]
    memory.add([Item("more", "abc")] * 40)
    assert len(memory.search("a", 100)) == 43


def test_recency_tips_the_scale_between_equals():
    items = [Item("old", "a"), Item("new", "a")]
    plain, fresh = Embedding(embedder=Letters()), Embedding(0.5, embedder=Letters())
    plain.add(items)
    fresh.add(items)
    assert ids(plain.search("a", 2)) == ["old", "new"]
    assert ids(fresh.search("a", 2)) == ["new", "old"]
    with pytest.raises(BadInput, match="recency"):
        Embedding(1.5, embedder=Letters())


def test_the_bundled_embedder_finds_what_shares_no_word():
    memory = Embedding()
    memory.add(TALK)
    assert ids(memory.search("Which vehicle did she purchase in Norway's capital?", 1)) == ["D1:1"]


def test_hybrid_fuses_ranks():
    memory = Hybrid(embedder=Letters())
    memory.add([Item("words", "zebra ccc"), Item("vector", "aaa"), Item("both", "zebra a")])
    hits = memory.search("zebra a", 3)  # words: both, words; vectors (a and b counted): both, vector, words
    assert ids(hits) == ["both", "words", "vector"]
    assert [hit.score for hit in hits] == pytest.approx([2 / 61, 1 / 62 + 1 / 63, 1 / 62])


def test_hybrid_keeps_nothing_of_what_it_cannot_embed():
    class Fails(Letters):
        def embed(self, texts):
            raise RuntimeError("no model today")

    memory = Hybrid(embedder=Fails())
    with pytest.raises(RuntimeError, match="today"):
        memory.add(TALK)
    assert memory.stats()["items"] == 0


# --- written by a model ---


async def test_the_regenerative_summary_is_written_anew_with_every_part():
    rules = [
        {"when": {"last": "nothing yet"}, "text": "Ann has a red bike."},
        {"when": {"last": "Ann has a red bike"}, "text": "Ann has a red bike. Her sister visits."},
    ]
    async with ModelServer(Scripted({"rules": rules})) as model:
        memory = RegenerativeSummary(model.url, "m", part_tokens=44)
        ledger = Ledger(account="system")
        with open_ledger(ledger):
            receipts = await memory.add(TALK)
        assert [receipt.error for receipt in receipts] == [None] * 4
        (hit,) = memory.search("anything", 5)
        assert hit.text == "Ann has a red bike. Her sister visits."
        assert hit.source_ids == ()
        assert [(call.account, call.model) for call in ledger.calls] == [("system", "m")] * 2
        assert model.requests[0].body["temperature"] == 0
        assert "(2023-05-08) Ann: I bought a red bike in Oslo." in model.requests[0].body["messages"][1]["content"]
        assert memory.namespace("other").search("anything", 5) == []
        await memory.aclose()


async def test_a_part_that_fails_is_in_the_receipts_and_changes_nothing():
    rules = [{"when": {"last": "sister"}, "status": 400, "error": "no"}, {"text": "Ann has a red bike."}]
    async with ModelServer(Scripted({"rules": rules})) as model:
        memory = RegenerativeSummary(model.url, "m", part_tokens=44, max_retries=0)
        receipts = await memory.add(TALK)
        assert [receipt.error is None for receipt in receipts] == [True, True, False, False]
        assert "Refused" in receipts[2].error
        assert [hit.text for hit in memory.search("?", 1)] == ["Ann has a red bike."]
        await memory.aclose()


async def test_the_ledger_is_added_to_struck_out_and_anchored():
    rules = [
        {
            "when": {"last": r"Ledger:\n\(empty\)"},
            "text": "- Ann bought a red bike in Oslo [1]\n- Bob sold his car [2, 9]\nHere you are!",
        },
        {
            "when": {"last": "L1: Ann bought"},
            "text": "~ L2\n- Bob bought the car back [1-2].\n* Small things need no source\n- nothing",
        },
    ]
    async with ModelServer(Scripted({"rules": rules})) as model:
        memory = AnchoredSummary(model.url, "m", part_tokens=44)
        assert all(receipt.error is None for receipt in await memory.add(TALK))
        everything = {hit.memory_id: (hit.text, hit.source_ids, hit.time) for hit in memory.search("zzz", 10)}
        assert everything == {
            "L1": ("Ann bought a red bike in Oslo", ("D1:1",), "2023-05-08"),
            "L3": ("Bob bought the car back", ("D2:1", "D2:2"), "2023-06-01"),
            "L4": ("Small things need no source", (), None),
        }
        assert [hit.memory_id for hit in memory.search("Who has a bike?", 1)] == ["L1"]
        assert memory.namespace("other").search("bike", 5) == []
        await memory.aclose()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2,5", [2, 5]),
        ("1-3", [1, 2, 3]),
        ("7 – 8; 1", [7, 8, 1]),
        ("9-2", [9, 2]),
        ("1-999999", [1, 999999]),
        ("", []),
    ],
)
def test_turn_numbers(text, numbers):
    assert _numbers(text) == numbers


@pytest.mark.parametrize("kind", [RegenerativeSummary, AnchoredSummary])
def test_a_summary_without_a_model_says_what_it_needs(kind):
    with pytest.raises(BadInput, match="relay"):
        kind()
    assert "sk-secret" not in str(kind("http://127.0.0.1:9", api_key="sk-secret").fingerprint())
