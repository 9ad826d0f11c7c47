"""Reading back: rows as a sequence, exports, equal content, and clearing."""

import random

import pytest

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.machine import ManualClock
from context_bench.core.records import Call
from context_bench.engine import (
    canonical,
    differences,
    export,
    list_runs,
    open_store,
    purge,
    rows,
    run_of,
    same_examples,
    set_manifest,
)
from context_bench.engine.store import schema


class Echo:
    def __init__(self, name="s", fingerprint="1"):
        self.name, self.print = name, fingerprint

    def fingerprint(self):
        return self.print

    async def aprocess(self, example):
        from context_bench.core.ledger import current_ledger

        body = {"messages": [{"role": "user", "content": example["context"]}]}
        current_ledger().record(
            Call(
                "system", "m", "http://h/v1/chat/completions", 1.0, request=body, reply={"content": example["context"]}
            )
        )
        return {**example, "response": example["context"]}


class Length:
    name = "length"

    def score(self, original, processed):
        return {"length": float(len(processed["response"]))}


def examples(n, text="long text "):
    return [{"id": i, "context": f"{i} {text * 40}"} for i in range(n)]


async def test_rows_are_a_sequence_that_is_read_again_and_again(store, run):
    await run([Echo("b"), Echo("a", "2")], examples(300), [Length()], max_workers=16)
    found = rows(store, "r")
    whole = list(found)
    assert len(found) == len(whole) == 600
    assert list(found) == whole
    assert [row.example_id for row in whole] == [*range(300), *range(300)]
    assert [row.system for row in whole] == ["b"] * 300 + ["a"] * 300
    for index in random.Random(1).sample(range(600), 40):
        assert found[index] == whole[index] == found[index - 600]
    assert found[255:259] == whole[255:259]
    assert found[-2:] == whole[-2:]
    assert found[::150] == whole[::150]
    with pytest.raises(IndexError):
        found[600]
    assert list(rows(store, "r", "a")) == whole[300:]
    assert rows(store, run_of(store, "r").id, "a")[299] == whole[-1]
    assert whole[0] in found


async def test_rows_of_nothing_and_of_nobody(store, run):
    await run([Echo()], [])
    assert list(rows(store, "r")) == []
    assert len(rows(store, "r")) == 0
    with pytest.raises(UnknownName, match=r"Unknown run 'R'. Did you mean r\?|Unknown run 'R'"):
        rows(store, "R")
    with pytest.raises(UnknownName, match=r"Unknown system 'x'.*Known: s"):
        rows(store, "r", "x")


async def test_runs_are_found_by_name_id_and_the_beginning_of_an_id(store, run):
    first = await run([Echo()], examples(1), name="first")
    second = await run([Echo("t", "2")], examples(1), name="second")
    assert [record.name for record in list_runs(store)] == ["second", "first"]
    assert (
        run_of(store, "first").id
        == run_of(store, first.run_id).id
        == run_of(store, first.run_id[:9]).id
        == first.run_id
    )
    assert run_of(store, second.run_id).describe()["systems"] == ["t"]
    with pytest.raises(UnknownName, match="Unknown run 'third'"):
        run_of(store, "third")
    with pytest.raises(UnknownName):
        run_of(store, "")
    with store.writing() as connection:
        connection.execute(schema.runs.update().where(schema.runs.c.name == "first").values(id="abc1"))
        connection.execute(schema.runs.update().where(schema.runs.c.name == "second").values(id="abc2"))
    with pytest.raises(BadInput, match="beginning of several"):
        run_of(store, "abc")


async def test_the_manifest_can_be_replaced(store, run):
    done = await run([Echo()], examples(1))
    set_manifest(store, done.run_id, {"note": "ü"})
    assert run_of(store, "r").manifest == {"note": "ü"}


async def test_an_export_has_everything(store, run):
    await run([Echo()], examples(2), [Length()])
    items = list(export(store, "r"))
    assert [item["example"] for item in items] == examples(2)
    assert items[1]["output"]["response"] == examples(2)[1]["context"]
    (call,) = items[1]["calls"]
    assert call["request"]["messages"][0]["content"] == examples(2)[1]["context"]
    assert call["reply"]["content"] == examples(2)[1]["context"]
    assert items[0]["row"]["scores"] == {"length": 402.0}


@pytest.mark.parametrize(
    ("policy", "example", "request_kept"), [("all", True, True), ("changed", True, False), ("none", False, False)]
)
async def test_bodies_are_kept_as_asked(store, run, policy, example, request_kept):
    await run([Echo()], examples(1), bodies=policy)
    (item,) = export(store, "r")
    assert (item["example"] is not None) == example
    assert ("request" in item["calls"][0]) == request_kept
    assert item["output"]["response"]


async def test_a_context_is_stored_once_for_all_systems(store, run):
    words = " ".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))
    given = [{"id": 0, "context": words}]
    await run([Echo(str(i), str(i)) for i in range(8)], given)
    with store.reading() as connection:
        large = [row for row in connection.execute(schema.bodies.select()) if len(row.data) > 5_000]
    assert len(large) == 1


async def test_equal_runs_are_equal_apart_from_times(store, run, place):
    with open_store(place()) as other:
        await run([Echo()], examples(5), [Length()], max_workers=3)
        await run([Echo()], examples(5), [Length()], into=other, name="again")
        assert differences(rows(store, "r"), rows(other, "again")) == []
        assert "latency" not in canonical(rows(store, "r")[0])
        await run([Echo()], examples(4), [Length()], into=other, name="short")
        await run([Echo()], examples(5, "other text "), [Length()], into=other, name="other")
        assert differences(rows(store, "r"), rows(other, "short")) == ["row 4: only in the first run"]
        assert any("scores" in said for said in differences(rows(store, "r"), rows(other, "other")))
        assert len(differences(rows(store, "r"), rows(other, "other"), limit=3)) <= 5
        assert not same_examples(other, "again", "short")
        assert not same_examples(other, "again", "other")
        await run([Echo("t", "9")], examples(5), [Length()], into=other, name="t")
        assert same_examples(other, "again", "t")


async def test_purging_removes_old_runs_and_all_that_only_they_used(store, run):
    clock = ManualClock(1_000_000.0)
    await run([Echo()], examples(3, "old text "), [Length()], name="old", clock=clock)
    await run([Echo()], examples(3, "shared text "), [Length()], name="shared", clock=clock)
    clock.time += 100_000
    await run([Echo()], examples(3, "shared text "), [Length()], name="new", clock=clock, reuse="all")
    assert purge(store, older_than=200_000, clock=clock) == []
    assert sorted(purge(store, older_than=50_000, dry_run=True, clock=clock)) == ["old", "shared"]
    before = list(rows(store, "new"))
    assert sorted(purge(store, older_than=50_000, clock=clock)) == ["old", "shared"]
    assert [record.name for record in list_runs(store)] == ["new"]
    assert list(rows(store, "new")) == before
    assert [item["example"] for item in export(store, "new")] == examples(3, "shared text ")
    assert all(item["calls"][0]["request"] for item in export(store, "new"))
    if store.engine.dialect.name == "sqlite":
        assert b"old text" not in store.path.read_bytes()
    with store.reading() as connection:
        counts = {
            table.name: len(connection.execute(table.select()).all())
            for table in (schema.outputs, schema.scores, schema.calls, schema.examples)
        }
    assert counts == {"outputs": 3, "scores": 3, "calls": 3, "examples": 3}
    clock.time += 100_000
    assert purge(store, older_than=0, clock=clock) == ["new"]
    with store.reading() as connection:
        for table in (schema.bodies, schema.body_parts, schema.outputs, schema.plan, schema.forwarded):
            assert connection.execute(table.select()).all() == []


async def test_a_purged_number_is_never_given_again(store, run):
    clock = ManualClock(1_000.0)
    await run([Echo()], examples(1), name="a", clock=clock)
    clock.time += 10
    purge(store, older_than=5, clock=clock)
    await run([Echo()], examples(1), name="b", clock=clock)
    assert run_of(store, "b").number == 2


async def test_an_age_must_be_a_number(store):
    with pytest.raises(BadInput):
        purge(store, older_than=float("nan"))
