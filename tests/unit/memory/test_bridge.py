"""A memory as a system: what it is told, what it gives, what fails, and that twins stay apart."""

import asyncio

import pytest

from context_bench.core.errors import BadInput, BadReply, CostCapReached, SetupFailed, SystemFailed, TimedOut
from context_bench.core.ledger import Ledger, Mark, open_ledger
from context_bench.core.machine import ManualClock
from context_bench.core.tokens import count_tokens
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.memory.protocol import Hit, Item, Receipt, conversation, packed
from context_bench.memory.systems import Bridge, as_memory, make_memory
from context_bench.memory.systems.bm25_memory import BM25
from context_bench.memory.systems.bridge import READER_PROMPT
from context_bench.memory.systems.ingest import Provenance, joined, rendered
from context_bench.systems import OpenAIProxy

TALK = [
    Item("D1:1", "I bought a red bike in Oslo.", speaker="Ann", time="2023-05-08", session="1"),
    Item("D1:2", "Nice! I sold my old car to a farmer.", speaker="Bob", time="2023-05-08", session="1"),
    Item("D1:3", "Ok.", speaker="Ann", time="2023-05-08", session="1"),
    Item("D2:1", "My sister visits us on Sunday.", speaker="Ann", time="2023-06-01", session="2"),
    Item("D2:2", "Bring her to the lake.", speaker="Bob", time="2023-06-01", session="2"),
]
GOLD = ("ZQ-GOLD-ANSWER", "ZQ-GOLD-OTHER", "ZQ-QA-TYPE", "ZQ-EVIDENCE", "ZQ-EVIDENCE-SESSION", "ZQ-LABEL")


def example(items=TALK, **more):
    return {
        "id": "q1",
        "dataset": "talk",
        "question": "What did Ann buy in Oslo?",
        "answer": "a red bike",
        "items": packed(items),
        "context": conversation(items),
        "evidence": ["D1:1"],
        "group": "g",
        "cluster": "g",
        **more,
    }


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


class Spy:
    """Keeps everything it is given."""

    name = "spy"
    capabilities = frozenset({"add", "search", "answer", "source_ids"})

    def __init__(self):
        self.told, self.hits = [], [Hit("Ann: I bought a red bike in Oslo.", 1.0, ("D1:1",))]

    def add(self, items):
        self.told.append(("add", items))
        return [Receipt(item.id) for item in items]

    def search(self, *args, **options):
        self.told.append(("search", args, options))
        return self.hits

    def answer(self, *args, **options):
        self.told.append(("answer", args, options))
        return "a bike"


class Tripwire(dict):
    """An example whose gold may only be carried along, not looked at."""

    def __getitem__(self, key):
        return super().__getitem__(self.checked(key))

    def get(self, key, default=None):
        return super().get(self.checked(key), default)

    def checked(self, key):
        if key in (
            "answer",
            "answers",
            "qa_type",
            "evidence",
            "evidence_sessions",
            "answerable",
            "correct_letter",
            "context",
        ):
            raise AssertionError(f"{key} was looked at")
        return key


async def test_a_memory_is_told_items_and_questions_and_nothing_else():
    gold = {
        "answer": GOLD[0],
        "answers": [GOLD[1]],
        "qa_type": GOLD[2],
        "evidence": [GOLD[3]],
        "evidence_sessions": [GOLD[4]],
        "label": GOLD[5],
        "answerable": True,
    }
    spy = Spy()
    bridge = Bridge(spy)
    asked = Tripwire(example(**gold, asked="2023-07-01"))
    await bridge.asetup(asked)
    output = await bridge.aprocess(asked)
    assert output["answer"] == GOLD[0]  # carried along for the evaluators
    assert not any(secret in repr(spy.told) for secret in GOLD)
    assert [item for what, *rest in spy.told if what == "add" for item in rest[0]] == TALK
    assert [call for call in spy.told if call[0] != "add"] == [
        ("search", ("What did Ann buy in Oslo?", 10), {"as_of": "2023-07-01"}),
        ("answer", ("What did Ann buy in Oslo?",), {}),
    ]


async def test_only_a_memory_that_wants_evidence_gets_it():
    class Wants(Spy):
        wants_evidence = True

    spy = Wants()
    await Bridge(spy).aprocess(example())
    assert spy.told[1][2] == {"as_of": None, "evidence": ["D1:1"]}
    output = await Bridge(make_memory("oracle"), k=1).aprocess(example(evidence=["D2:1", "D1:1"]))
    assert [hit["source_ids"] for hit in output["hits"]] == [["D1:1"], ["D2:1"]]


async def test_the_reader_sees_hits_dates_and_question_and_answers_on_its_own_account():
    key = {
        "What did Ann buy in Oslo?": {
            "answer": "a red bike",
            "evidence": "[2023-05-08] Ann: I bought a red bike in Oslo.",
        }
    }
    async with ModelServer(Scripted({"answer_key": key})) as model:
        reader = OpenAIProxy(model.url, "m", shape="plain-user", api_key="reader-key")
        bridge = Bridge(make_memory("bm25"), reader=reader, k=2)
        ledger = Ledger(account="system", mark=Mark("key", "memory-mark"))
        with open_ledger(ledger):
            output = await bridge.aprocess(example(asked="2023-07-01"))
        received = model.requests[-1]
        await bridge.aclose()
    assert output["response"] == "a red bike"
    assert output["abstained"] is False
    assert output["api_usage"]["prompt_tokens"] > 0
    assert [call.account for call in ledger.calls] == ["reader"]
    assert received.headers["authorization"] == "Bearer reader-key"
    assert received.body["messages"][0] == {"role": "system", "content": READER_PROMPT}
    said = received.body["messages"][1]["content"]
    assert "The question is asked on 2023-07-01." in said
    assert "a red bike" not in said.replace("I bought a red bike in Oslo", "")
    assert reader.system_prompt is None  # the caller's own object is as it was
    assert bridge.model == "m"


async def test_not_mentioned_is_an_abstention():
    async with ModelServer(Scripted({"default": "Not mentioned."})) as model:
        bridge = Bridge(make_memory("none"), reader=OpenAIProxy(model.url, "m"))
        output = await bridge.aprocess(example())
        await bridge.aclose()
    assert (output["hits"], output["context"], output["retrieved_tokens"], output["abstained"]) == ([], "", 0, True)


async def test_a_readers_own_prompt_stays():
    reader = OpenAIProxy("http://127.0.0.1:9", system_prompt="Be a poet.")
    assert Bridge(make_memory("none"), reader=reader).reader.system_prompt == "Be a poet."
    assert Bridge(make_memory("none"), reader=OpenAIProxy("http://127.0.0.1:9"), prompt="").reader.system_prompt is None


async def test_without_a_reader_there_are_hits_and_no_response():
    output = await Bridge(make_memory("bm25"), k=2).aprocess(example())
    assert "response" not in output
    first = output["hits"][0]
    assert {name: first[name] for name in ("text", "source_ids", "time")} == {
        "text": "Ann: I bought a red bike in Oslo.",
        "source_ids": ["D1:1"],
        "time": "2023-05-08",
    }
    assert output["provenance"] == "ids"
    assert output["context"].startswith("[2023-05-08] Ann: I bought a red bike in Oslo.")
    assert output["retrieved_tokens"] == sum(hit["tokens"] for hit in output["hits"])
    assert first["tokens"] == count_tokens("[2023-05-08] Ann: I bought a red bike in Oslo.")


@pytest.mark.parametrize("budget", [1, 17, 18, 40, 1000])
async def test_a_budget_keeps_the_longest_prefix_that_fits(budget):
    whole = (await Bridge(make_memory("full_context")).aprocess(example()))["hits"]
    output = await Bridge(make_memory("full_context"), budget_tokens=budget).aprocess(example())
    kept = output["hits"]
    assert kept == whole[: len(kept)]
    assert output["retrieved_tokens"] <= budget
    assert len(kept) == len(whole) or output["retrieved_tokens"] + whole[len(kept)]["tokens"] > budget


async def test_hits_beyond_k_are_cut_and_counted():
    spy = Spy()
    spy.hits = [Hit(f"hit {i}") for i in range(8)]
    output = await Bridge(spy, k=3).aprocess(example())
    assert len(output["hits"]) == 3
    assert output["hits_beyond_k"] == 5
    assert "hits_beyond_k" not in await Bridge(make_memory("full_context"), k=1).aprocess(example())


# --- set-up ---


async def test_the_facts_of_a_set_up():
    class Slow(Spy):
        batch = 2
        capabilities = Spy.capabilities | {"stats"}

        def __init__(self, clock):
            super().__init__()
            self.clock, self.waits = clock, iter([9.0, 1.0, 3.0])

        def add(self, items):
            self.clock.time += next(self.waits)
            return super().add(items)

        def flush(self, seconds):
            self.clock.time += 0.5

        def stats(self):
            return {"items": 5, "bytes": 1234}

    clock = ManualClock()
    facts = await Bridge(Slow(clock), clock=clock).asetup(example())
    assert facts == {
        "items": 5,
        "granularity": "turn",
        "parts": 5,
        "acknowledged": 5,
        "failed": 0,
        "errors": [],
        "call_count": 3,
        "batch": 2,
        "seconds_add": 13.0,
        "seconds_flush": 0.5,
        "seconds_first": 9.0,
        "seconds_each": {"n": 2, "p50": 2.0, "p95": pytest.approx(2.9), "p99": pytest.approx(2.98)},
        "stored": 5,
        "bytes": 1234,
    }


async def test_a_set_up_is_done_once_for_all_questions_of_a_group():
    spy = Spy()
    bridge = Bridge(spy)
    await asyncio.gather(*(bridge.aprocess(example(id=number)) for number in range(4)))
    assert [what for what, *_ in spy.told].count("add") == 1


async def test_few_losses_are_told_and_many_end_the_group():
    class Loses(Spy):
        def __init__(self, lost):
            super().__init__()
            self.lost = lost

        def add(self, items):
            self.told.append(("add", items))
            return [
                Receipt(item.id, error=f"no room for {item.id}" if item.id in self.lost else None) for item in items
            ]

    many = [Item(str(i), f"fact {i}") for i in range(40)]
    facts = await Bridge(Loses({"3", "5"})).asetup(example(many))
    assert (facts["acknowledged"], facts["failed"], facts["errors"]) == (38, 2, ["no room for 3", "no room for 5"])
    lossy = Loses({"3", "5", "7"})
    bridge = Bridge(lossy)
    for _ in range(2):  # the group is lost once, not tried again with every question
        with pytest.raises(SetupFailed, match="3 of 40 items were not stored"):
            await bridge.aprocess(example(many))
    assert len(lossy.told) == 1


async def test_an_add_that_raises_or_forgets_receipts_is_a_loss():
    class Raises(Spy):
        def add(self, items):
            raise ConnectionError("the store is down")

    class Forgets(Spy):
        def add(self, items):
            return super().add(items)[1:]

    class Nothing(Spy):
        def add(self, items):
            return None

    with pytest.raises(SetupFailed, match="the store is down"):
        await Bridge(Raises()).asetup(example())
    with pytest.raises(SetupFailed, match="no receipt"):
        await Bridge(Forgets()).asetup(example())
    with pytest.raises(SetupFailed, match="expected one Receipt"):
        await Bridge(Nothing()).asetup(example())


async def test_a_flush_that_does_not_end_fails_the_group():
    class Never(Spy):
        async def flush(self, seconds):
            raise TimedOut(f"not visible after {seconds} s")

    with pytest.raises(SetupFailed, match="could not be found within 1 s"):
        await Bridge(Never(), flush_seconds=1).asetup(example())


async def test_what_ends_a_run_ends_it():
    class Costly(Spy):
        async def add(self, items):
            raise CostCapReached("enough")

    with pytest.raises(CostCapReached):
        await Bridge(Costly()).asetup(example())


@pytest.mark.parametrize(("error", "kind"), [(ValueError("boom"), SystemFailed), (TimedOut("late"), TimedOut)])
async def test_a_search_that_fails_is_an_error_and_never_an_empty_list(error, kind):
    class Breaks(Spy):
        def search(self, query, k, *, as_of=None):
            raise error

    with pytest.raises(kind, match=str(error)):
        await Bridge(Breaks()).aprocess(example())


@pytest.mark.parametrize("found", [None, "text", [{"text": "a dict"}], 3])
async def test_what_is_not_a_list_of_hits_is_an_error(found):
    spy = Spy()
    spy.hits = found
    with pytest.raises(BadReply, match="expected a list of hits"):
        await Bridge(spy).aprocess(example())


async def test_an_example_without_items_is_said_so():
    with pytest.raises(BadInput, match="no items"):
        await Bridge(Spy()).aprocess({"id": 7, "question": "?"})


# --- answering memories ---


class Documented:
    """The documented memory protocol."""

    name = "documented"
    last_context_tokens = 42

    def __init__(self):
        self.turns = []

    def reset(self):
        self.turns = []

    def ingest(self, turns):
        self.turns += turns

    def query(self, question):
        return "a bike" if any("bike" in turn["content"] for turn in self.turns) else "Not mentioned"


async def test_a_memory_that_answers_itself():
    memory = Documented()
    bridge = Bridge(as_memory(memory))
    output = await bridge.aprocess(example())
    assert (output["response"], output["context_tokens"], output["retrieved_tokens"]) == ("a bike", 42, 42)
    assert "hits" not in output
    assert output["context"] == ""
    assert memory.turns[0]["content"] == "[2023-05-08] Ann: I bought a red bike in Oslo."
    assert not hasattr(bridge, "namespace")
    other = await bridge.aprocess(example([Item("x", "Nothing much.")], group="h"))
    assert (other["response"], other["abstained"]) == ("Not mentioned", True)


# --- groups ---


async def test_twins_stay_apart_and_leave_nothing_behind(tmp_path):
    store = BM25(tmp_path / "m.db")
    bridge = Bridge(store, k=5)
    ours, theirs = bridge.namespace("run-1"), bridge.namespace("run-2")
    secret = [Item("S", "I bought a yacht in Oslo.", speaker="Eve", session="9")]
    first, second = await asyncio.gather(ours.aprocess(example()), theirs.aprocess(example(secret, group="h")))
    assert "yacht" not in first["context"]
    assert [hit["source_ids"] for hit in second["hits"]] == [["S"]]
    await theirs.aclose()
    assert b"yacht" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert (await ours.aprocess(example()))["context"] == first["context"]
    await ours.aclose()
    await bridge.aclose()


async def test_without_namespaces_reset_comes_between_groups():
    class Plain:
        name = "plain"

        def __init__(self):
            self.texts, self.resets = [], 0

        def reset(self):
            self.texts, self.resets = [], self.resets + 1

        def store(self, content):
            self.texts.append(content)

        def recall(self, query, limit):
            return self.texts[-limit:]

    plain = Plain()
    bridge = Bridge(as_memory(plain))
    assert not hasattr(bridge, "namespace")
    await bridge.aprocess(example())
    output = await bridge.aprocess(example([Item("x", "Only this.")]))
    assert output["context"] == "Only this."
    assert output["provenance"] == "text match"
    assert plain.resets == 1


async def test_a_memory_that_cannot_be_emptied_is_refused_a_second_group():
    bridge = Bridge(Spy())
    await bridge.reset()  # nothing in it yet
    await bridge.aprocess(example())
    with pytest.raises(BadInput, match="neither namespace"):
        await bridge.reset()


def test_sync_use_and_odd_arguments():
    assert Bridge(make_memory("bm25")).process(example())["hits"][0]["source_ids"] == ["D1:1"]
    with pytest.raises(BadInput, match="k ≥ 1"):
        Bridge(make_memory("bm25"), k=0)

    class Mute(Spy):
        capabilities = frozenset({"add"})

    with pytest.raises(BadInput, match="neither search nor answer"):
        Bridge(Mute())


def test_the_fingerprint_tells_what_counts_and_no_key():
    reader = OpenAIProxy("http://127.0.0.1:9", "m", api_key="sk-secret")

    def told(**options):
        return repr(Bridge(make_memory("bm25"), reader=reader, **options).fingerprint())

    assert told() == told()
    assert len({told(), told(k=5), told(budget_tokens=9), told(prompt="Other.")}) == 4
    assert "sk-secret" not in told()


# --- granularity and provenance ---


def test_pairs_and_sessions_keep_every_id():
    assert [ids for _, ids in joined(TALK, "pair")] == [("D1:1", "D1:2"), ("D1:3",), ("D2:1", "D2:2")]
    sessions = list(joined(TALK, "session"))
    assert [ids for _, ids in sessions] == [("D1:1", "D1:2", "D1:3"), ("D2:1", "D2:2")]
    first = sessions[0][0]
    assert (first.id, first.time, first.session) == ("D1:1..D1:3", "2023-05-08", "1")
    assert first.line == "Ann: I bought a red bike in Oslo.\nBob: Nice! I sold my old car to a farmer.\nAnn: Ok."
    assert [part for part, _ in joined(TALK, "turn")] == TALK
    alone = [Item("a", "x"), Item("b", "y")]
    assert [part for part, _ in joined(alone, "session")] == alone
    with pytest.raises(BadInput, match="granularity"):
        joined(TALK, "week")


async def test_hits_of_joined_items_name_all_their_turns():
    class BySession(BM25):
        granularity = "session"

    output = await Bridge(BySession()).aprocess(example())
    assert output["hits"][0]["source_ids"] == ["D1:1", "D1:2", "D1:3"]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("I bought a red bike in Oslo.", ("D1:1",)),
        ("ann: i bought a RED bike in oslo", ("D1:1",)),
        ("[2023-05-08] Ann: Ok.", ("D1:3",)),
        ("My sister visits us on Sunday. Bring her to the lake.", ("D2:1", "D2:2")),
        ("red bike in Oslo", ("D1:1",)),
        ("her", ()),
        ("Ann owns a bicycle", ()),
        ("", ()),
    ],
)
def test_where_a_text_comes_from(text, ids):
    assert Provenance(packed(TALK)).of(Hit(text)) == ids


async def test_hits_that_nobody_said_have_no_provenance():
    spy = Spy()
    spy.hits = [Hit("Ann owns a bicycle")]
    assert (await Bridge(spy).aprocess(example()))["provenance"] == "none"
    spy.hits = [Hit("I bought a red bike in Oslo."), Hit("Ann owns a bicycle")]
    assert (await Bridge(spy).aprocess(example()))["provenance"] == "text match"


def test_a_date_is_not_said_twice():
    assert rendered(Hit("[2023-05-08] Ann: hi", time="2023-05-08")) == "[2023-05-08] Ann: hi"
    assert rendered(Hit("Ann: hi", time="2023-05-08")) == "[2023-05-08] Ann: hi"
    assert rendered(Hit("Ann: hi")) == "Ann: hi"
