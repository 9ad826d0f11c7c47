"""What is written comes back the same from every kind of store: hostile text, resumed runs, set-ups, watches, replies,
pages.
"""

import asyncio

import pytest

from context_bench.core.errors import StoreUnusable
from context_bench.core.machine import ManualClock
from context_bench.core.records import Call, Forwarded
from context_bench.engine import (
    StoredReplies,
    list_watches,
    open_store,
    open_watch,
    purge,
    rescore,
    rows,
    run_of,
    setups,
    spent,
    watched,
)
from context_bench.engine.encoding import Secrets
from context_bench.engine.store import browsing, row_lists, schema as tables
from context_bench.wire.turns import Turn

HOSTILE = "\x00\x1a0\x1a1 ' \" \\ %s %% :x $1 ﷺ 😀 \U0010ffff\n</script>"
HALF = "\ud800"


class Talker:
    """Answers, spends, fails where it is told to, and counts."""

    def __init__(self, name="talker", fails=()):
        self.name, self.fails, self.asked = name, set(fails), []

    def fingerprint(self):
        return {"name": self.name}

    async def aprocess(self, example):
        from context_bench.core.ledger import current_ledger

        self.asked.append(example["id"])
        request = {"messages": [{"role": "user", "content": example["context"]}]}
        current_ledger().record(
            Call("system", HOSTILE * 40, "http://h/" + HALF, 1e9 + 0.1, 0.25, cost=0.5, request=request, error=HOSTILE)
        )
        if example["id"] in self.fails:
            raise RuntimeError(HOSTILE + HALF)
        return {**example, "response": f"{example['context']} of {self.name}", "note": HOSTILE + HALF}


class Grouped(Talker):
    stateful = True

    async def asetup(self, example):
        return {"held": HOSTILE}

    def namespace(self, name):
        return Grouped(self.name, self.fails)


class Length:
    version = "1"

    def __init__(self, name="length"):
        self.name = name

    def score(self, original, processed):
        return {self.name: len(processed["response"]) / 3}


def examples(n, **more):
    return [
        {"id": i, "context": f"{HOSTILE} {i} " + "long " * 300, "dataset": "odd" if i % 2 else HOSTILE, **more}
        for i in range(n)
    ]


async def test_any_text_comes_back_as_it_was(store, run):
    await run(
        [Talker(f"s{HOSTILE}", fails=[1])],
        examples(3, group=HOSTILE, cluster=HOSTILE),
        [Length(HOSTILE)],
        name=f"r{HOSTILE}",
    )
    found = list(rows(store, f"r{HOSTILE}"))
    assert [row.dataset for row in found] == [HOSTILE, "odd", HOSTILE]
    assert {(row.system, row.group, row.cluster) for row in found} == {(f"s{HOSTILE}", HOSTILE, HOSTILE)}
    assert found[1].errors["system"] == f"RuntimeError: {' '.join(HOSTILE.split())}?"
    assert list(found[0].scores) == [HOSTILE]
    assert run_of(store, f"r{HOSTILE}").name == f"r{HOSTILE}"
    with store.reading() as connection:
        call = connection.execute(tables.calls.select().order_by(tables.calls.c.id)).first()
        endpoint = connection.execute(tables.endpoints.select()).one()
    assert (call.error, call.started, call.seconds, call.exact) == (HOSTILE, 1e9 + 0.1, 0.25, False)
    assert (HOSTILE * 40).startswith(endpoint.model)


async def test_numbers_keep_their_width(store):
    large = 2**62 + 1
    with store.writing() as connection:
        values = {
            "key": b"k" * 16,
            "run": large,
            "created": 0.1 + 0.2,
            "takes": large,
            "tapped": True,
            "output": b"",
            "input_tokens": large,
        }
        connection.execute(tables.outputs.insert().values(values))
    with store.reading() as connection:
        row = connection.execute(tables.outputs.select()).one()
    assert (row.run, row.takes, row.input_tokens, row.created, row.tapped) == (large, large, large, 0.1 + 0.2, True)


async def test_a_run_goes_on_where_it_was(store, run):
    first, second = Talker(fails=[1]), Talker()
    assert (await run([first], examples(4), [Length()], max_workers=1)).completed
    done = await run([second], examples(6), [Length()])
    assert done.completed
    assert (first.asked, second.asked) == ([0, 1, 2, 3], [1, 4, 5])
    assert spent(store, done.run_id) == 3.5
    assert run_of(store, "r").rows == 6
    await rescore(store, "r", [Length("other")])
    assert {tuple(row.scores) for row in rows(store, "r")} == {("length", "other")}


async def test_an_edited_example_is_asked_again_and_a_shorter_plan_forgets_the_rest(store, run):
    await run([Talker()], examples(4), [Length()])
    again = Talker()
    await run([again], [*examples(2), {**examples(3)[2], "context": "edited"}], [Length()])
    assert again.asked == [2]
    assert [row.example_id for row in rows(store, "r")] == [0, 1, 2]


async def test_groups_are_set_up_once_and_told(store, run):
    await run([Grouped()], examples(4, group=HOSTILE))
    assert [(each.group, each.attempt, each.output) for each in setups(store, "r")] == [(HOSTILE, 1, {"held": HOSTILE})]
    await run([Grouped()], examples(4, group=HOSTILE))
    assert len(setups(store, "r")) == 1


def turn(number, text):
    record = Forwarded(
        f"f{number}", None, "none", "openai-chat", "POST", "/v1", 1.0, request={"messages": [text * 600]}
    )
    return Turn(number=number, arm="via", session=HOSTILE, turn=number, kind="chat", at=1.0, front=record)


def test_a_watch_is_written_and_read_turn_by_turn(store):
    log = open_watch(store, {"via": HOSTILE}, name="w")
    other = open_watch(store, {}, name="w")
    log.write([turn(1, "a"), turn(2, HOSTILE)])
    log.write([turn(3, "a")])
    log.write([turn(3, "a")])  # again: the answer to the commit was lost
    log.end({"via": "b"})
    other.end()
    assert [(each.name, each.status, each.records) for each in list_watches(store)] == [
        ("w-2", "done", 0),
        ("w", "done", 3),
    ]
    found = list(watched(store, "w", bodies=True))
    assert [(each.number, each.session) for each in found] == [(1, HOSTILE), (2, HOSTILE), (3, HOSTILE)]
    assert [each.front.request["messages"][0] for each in found] == ["a" * 600, HOSTILE * 600, "a" * 600]


def test_replies_of_judges_are_remembered_until_they_are_old(store):
    replies = StoredReplies(store, Secrets(()), clock=ManualClock(100.0))
    assert replies.get("k") is None
    replies.put("k", {"content": "old"})
    replies.put("k", {"content": HOSTILE})
    assert replies.get("k") == {"content": HOSTILE}
    purge(store, older_than=1.0)
    assert replies.get("k") is None


async def test_pages_of_rows_are_sorted_and_filtered_alike(store, run, where):
    await run([Talker("a", fails=[3]), Talker("B")], examples(6), [Length()], trials=2)
    with open_store(where) if store.engine.dialect.name == "sqlite" else browsing.open_reading(where) as seen:
        pass
    with browsing.open_reading(where) as seen:
        listed = browsing.listed_run(seen, "r")
        assert browsing.listed(seen, words="b R")[1] == 1
        assert browsing.listed(seen, words="%")[1] == 0
        assert [each.done for each in browsing.live(seen, listed)] == [12, 12]
        assert {type(each.sent) for each in browsing.live(seen, listed)} <= {int, type(None)}
        assert set(row_lists.facets(seen, listed).datasets) == {HOSTILE, "odd"}
        for sort in (*row_lists.SORTS, "score:length", "score:nothing", ""):
            for descending in (False, True):
                assert len(row_lists.places(seen, listed, row_lists.RowQuery(sort=sort, descending=descending))) == 24
        up = shown(seen, listed, sort="score:length")
        down = shown(seen, listed, sort="score:length", descending=True)
        known = [row for row in up if row.scores]
        assert [row.scores["length"] for row in known] == sorted(row.scores["length"] for row in known)
        assert [bool(row.scores) for row in up] == [bool(row.scores) for row in down] == [True] * 22 + [False] * 2
        failed = shown(seen, listed, failed=True)
        assert [(row.system, row.example_id) for row in failed] == [("a", 3), ("a", 3)]
        assert {row.dataset for row in shown(seen, listed, dataset=HOSTILE, system="B")} == {HOSTILE}


def shown(store, listed, **asked):
    places = row_lists.places(store, listed, row_lists.RowQuery(**asked))
    return [row for _, row in row_lists.rows_at(store, listed, [browsing.Place.unpack(each) for each in places])]


def test_a_reader_cannot_write(store, where):
    with (
        browsing.open_reading(where) as seen,
        pytest.raises(StoreUnusable, match=r"cannot be (written|used)"),
        seen.writing() as connection,
    ):
        connection.execute(tables.replies.delete())


async def test_a_run_is_worked_on_by_one_process_only_and_a_writer_that_lost_it_writes_nothing(store, run, where):
    gate, begun = asyncio.Event(), asyncio.Event()

    class Waits(Talker):
        async def aprocess(self, example):
            begun.set()
            await gate.wait()
            return await super().aprocess(example)

    going = asyncio.create_task(run([Waits()], examples(2)))
    await begun.wait()
    with pytest.raises(StoreUnusable, match="being worked on by another process"):
        await run([Talker()], examples(2))
    with pytest.raises(StoreUnusable, match="being worked on"):
        purge_now(store, await made_long_ago(run))
    with store.writing() as connection:  # as after two minutes without a sign of life, seen from another machine
        connection.execute(
            tables.runs.update().where(tables.runs.c.name == "r").values(owner="elsewhere|1|1", updated=0.0)
        )
    with open_store(where) as other:
        assert (await run([Talker()], examples(2), into=other)).completed
    gate.set()
    with pytest.raises(StoreUnusable, match="taken up by another process"):
        await going
    assert len(rows(store, "r")) == 2
    with store.reading() as connection:
        assert (
            len(
                connection.execute(
                    tables.outputs.select().where(tables.outputs.c.run == run_of(store, "r").number)
                ).all()
            )
            == 2
        )


async def made_long_ago(run):
    clock = ManualClock(1_000.0)
    await run([Talker()], examples(1), name="old", clock=clock)
    return clock


def purge_now(store, clock):
    clock.time += 10
    purge(store, older_than=5, clock=clock)


class Unseated(Talker):
    """Loses its run's pen while it answers, as when another process takes the run up; only the first time."""

    def __init__(self, store):
        super().__init__("unseated")
        self.store = store

    async def aprocess(self, example):
        answer = await super().aprocess(example)
        if len(self.asked) == 3:
            with self.store.writing() as connection:
                connection.execute(tables.pens.delete())
        return answer


async def test_the_same_process_goes_on_with_a_run_whose_store_failed(store, run):
    system = Unseated(store)
    with pytest.raises(StoreUnusable, match="this one ends here") as caught:
        await run([system], examples(4))
    assert run_of(store, "r").status == "interrupted"
    done = await run([system], examples(4))
    assert done.completed
    assert (done.counts["done"], done.counts["reused"]) == (2, 2)
    assert system.asked == [0, 1, 2, 2, 3]
    assert caught.value is not None  # who still holds the error is in nobody's way


async def test_a_run_that_this_process_works_on_is_not_taken_up_beside(store, run):
    class Nosy(Talker):
        async def aprocess(self, example):
            with pytest.raises(StoreUnusable, match="being worked on"):
                await run([Talker()], examples(1))
            assert run_of(store, "r").status == "running"
            return await super().aprocess(example)

    done = await run([Nosy()], examples(1))
    assert (done.completed, done.counts["failed"]) == (True, 0)
