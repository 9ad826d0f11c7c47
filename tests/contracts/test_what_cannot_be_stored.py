"""An answer, a judgement, a set-up or a watched turn that a store cannot hold is one failure with its reason, never the
end of a run.
"""

import math
import random
import sqlite3

import pytest
from sqlalchemy import event

from context_bench.core.errors import StoreUnusable
from context_bench.core.ledger import current_ledger
from context_bench.core.records import Call, Forwarded, Usage
from context_bench.engine import open_watch, rescore, rows, run_of, setups, spent, watched
from context_bench.engine.store import watches as watching
from context_bench.wire.turns import Turn

HUGE = 2**63


class Circle(dict):
    """A value that no writer of JSON takes, and that cannot be written as text."""

    def __init__(self):
        self["me"] = self

    def __repr__(self):
        raise RuntimeError("no words for it")


CALLS = {
    "sent_tokens": {"sent_tokens": HUGE},
    "attempt": {"attempt": 10**30},
    "status": {"status": -HUGE - 1},
    "in_flight": {"in_flight": HUGE},
    "a list for a number": {"sent_tokens": [1]},
    "a text for a number": {"in_flight": Circle()},
    "a text for a moment": {"started": "today"},
    "endless money": {"cost": math.inf},
    "no number of seconds": {"seconds": math.nan},
    "no seconds": {"seconds": None},
    "usage": {"usage": Usage(10**5000)},
    "an object for an account": {"account": {"a": 1}},
    "a body": {"request": Circle()},
    "a reply": {"reply": {"content": 10**5000}},
}
ANSWERS = {
    "a number of 5000 digits": {"note": 10**5000},
    "a circle": {"note": Circle()},
    "facts": {"facts": {"n": 10**5000}},
}


class Odd:
    """Answers; on the middle example a call or an answer of its own that cannot be kept."""

    name = "odd"

    def __init__(self, call=None, answer=None):
        self.call, self.answer, self.asked = call or {}, answer or {}, []

    def fingerprint(self):
        return {"name": self.name}

    async def aprocess(self, example):
        self.asked.append(example["id"])
        middle = example["id"] == 1
        values = {"account": "system", "model": "m", "url": "http://h", "started": 1.0, "cost": 0.5}
        current_ledger().record(Call(**{**values, **(self.call if middle else {})}))
        return {**example, "response": "yes", **(self.answer if middle else {})}


class Grouped(Odd):
    stateful = True

    async def asetup(self, example):
        return {"held": 10**5000} if example["group"] == "g1" else {"held": 1}

    def namespace(self, name):
        return self


class Score:
    version = "1"

    def __init__(self, name="score"):
        self.name = name

    def score(self, original, processed):
        if original["id"] == 1 and self.name == "spends":
            current_ledger().record(Call("judge", "j", "http://h", 1.0, sent_tokens=HUGE, cost=0.25))
        return {self.name: 1.0}


def examples(n=3, **more):
    return [
        {"id": i, "context": f"text {i}", "dataset": "d", **{key: make(i) for key, make in more.items()}}
        for i in range(n)
    ]


@pytest.mark.parametrize("odd", [*CALLS, *ANSWERS])
async def test_a_row_that_cannot_be_stored_fails_alone(store, run, odd):
    system = Odd(CALLS.get(odd), ANSWERS.get(odd))
    done = await run([system], examples(), [Score()], max_workers=4)
    assert done.completed
    assert (done.counts["done"], done.counts["failed"]) == (3, 1)
    found = list(rows(store, "r"))
    assert [bool(row.scores) for row in found] == [True, False, True]
    error = found[1].errors["system"]
    assert error.startswith("NotStored: ")
    assert "cannot be kept" in error
    assert len(error) < 600
    assert "INSERT" not in error
    assert spent(store, done.run_id) == (1.0 if odd == "endless money" else 1.5), "what was paid for it is in the books"
    system.call, system.answer, system.asked = {}, {}, []
    again = await run([system], examples(), [Score()])
    assert again.completed
    assert system.asked == [1], "only the failed one is asked again"
    assert [bool(row.scores) for row in rows(store, "r")] == [True, True, True]


async def test_a_run_that_stays_odd_can_be_taken_up_as_often_as_one_likes(store, run):
    system = Odd(CALLS["sent_tokens"])
    for _ in range(3):
        assert (await run([system], examples(), [Score()])).completed
    assert run_of(store, "r").failed == 1
    assert system.asked == [0, 1, 2, 1, 1]


async def test_a_judgement_that_cannot_be_stored_fails_alone(store, run):
    await run([Odd()], examples(), [Score()])
    done = await rescore(store, "r", [Score("spends")])
    assert done.completed
    found = list(rows(store, "r"))
    assert [row.errors.get("spends", "")[:9] for row in found] == ["", "NotStored", ""]
    assert [set(row.scores) for row in found] == [{"score", "spends"}, {"score"}, {"score", "spends"}]
    assert spent(store, done.run_id) == 1.75


async def test_a_set_up_that_cannot_be_stored_fails_its_group_alone(store, run):
    done = await run([Grouped()], examples(4, group=lambda i: f"g{i // 2}"), [Score()])
    assert done.completed
    assert [row.errors.get("system", "")[:23] for row in rows(store, "r")] == [
        "",
        "",
        "SetupFailed: NotStored:",
        "SetupFailed: NotStored:",
    ]
    assert [bool(each.error) for each in setups(store, "r")] == [False, True]


def _turn(number, **more):
    front = Forwarded(
        f"f{number}", None, "none", "openai-chat", "POST", "/v1/chat/completions", 1.0, request={"n": number}, **more
    )
    return Turn(number, "chat", 1.0, session="s", turn=number, front=front)


def test_a_watched_turn_that_cannot_be_stored_is_dropped_and_counted(store):
    log = open_watch(store, {})
    log.write([_turn(1), _turn(2, facts={"n": 10**5000}), _turn(3, reply=Circle()), _turn(4)])
    assert log.dropped == 1
    log.write([_turn(5)])
    log.end({})
    kept = list(watched(store, log.name, bodies=True))
    assert [turn.number for turn in kept] == [1, 3, 4, 5], "the third lost its bodies only"
    assert kept[1].front.reply is None
    assert watching.watch_of(store, log.name).settings["dropped"] == 1


async def test_a_store_that_fails_is_not_taken_for_an_odd_row(store, run, monkeypatch):
    from context_bench.engine.store.outcomes import OutcomeRows

    def full(*_):
        raise StoreUnusable("the disk is full")

    monkeypatch.setattr(OutcomeRows, "commit", full)
    done = await run([Odd()], examples(), [Score()])
    assert not done.completed
    assert isinstance(done.stopped, StoreUnusable)
    assert "the disk is full" in str(done.stopped)
    assert not [row for row in rows(store, "r") if row.scores or row.errors]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_an_answer_that_is_too_large_fails_alone(store, run):
    """SQLite takes a blob of a billion bytes at most; a smaller limit shows the same."""

    @event.listens_for(store.engine, "connect")
    def narrow(connection, _):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 300_000)

    store.engine.dispose()
    noise = random.Random(0).randbytes(500_000).hex()
    for large in ({"answer": {"note": noise}}, {"call": {"request": {"text": noise}}}):
        system = Odd(**large)
        name = next(iter(large))
        done = await run([system], examples(), [Score()], name=name, bodies="all", max_workers=4)
        assert done.completed
        assert [row.errors.get("system", "")[:9] for row in rows(store, name)] == ["", "NotStored", ""]
        assert "too big" in next(row.errors["system"] for row in rows(store, name) if row.errors)
