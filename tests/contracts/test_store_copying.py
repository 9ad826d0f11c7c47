"""Runs copied from one store to another: the same reports, nothing twice, and a copy that was broken off goes on."""

import itertools
from contextlib import contextmanager

import pytest

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.ledger import current_ledger
from context_bench.core.records import Call
from context_bench.engine import copy_run, list_runs, open_store, purge, rescore, rows, run_of, setups, spent
from context_bench.engine.store import copied_rows, schema
from context_bench.engine.store.browsing import listed
from context_bench.engine.store.postgresql import StoreLost
from context_bench.metrics import MeanScore
from context_bench.reports.renderers import render
from context_bench.runner import collect, details
from context_bench.viewer.pages import Library

#: What does not hang on the kind of store is tried with files.
of_files = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


class Keeping:
    """Keeps state by group, pays for getting ready and for every answer; some texts are shared, large or hold a NUL."""

    name, stateful = "keeping", True

    def fingerprint(self):
        return {}

    def namespace(self, name):
        return self

    async def asetup(self, example):
        current_ledger().record(
            Call("system", "m", "http://h", 1.0, cost=0.5, request={"add": example["group"]}, reply={"ok": "\x00"})
        )
        return {"stored": 3}

    async def aprocess(self, example):
        asked = {"text": example["context"], "id": example["id"]}
        current_ledger().record(
            Call("system", "m", "http://h", float(example["id"]), cost=0.1, request=asked, in_flight=2)
        )
        return {**example, "response": f"answer {example['id']} \x00"}


class Plain(Keeping):
    name, stateful = "plain", False
    asetup = namespace = None


class Right:
    name, version = "right", "1"

    def score(self, original, processed):
        if original["id"] == 3:
            raise ValueError("cannot say")
        return {"right": float(str(original["id"]) in processed["response"])}


def examples(n=12):
    return [
        {"id": i, "context": f"{i} " + "what all share " * 80, "group": f"g{i // 4}", "cluster": f"g{i // 4}"}
        for i in range(n)
    ]


def told(*systems):
    return {
        "cells": [{"labels": {}, "systems": list(systems), "baseline": systems[-1], "controls": []}],
        "datasets": [],
    }


@pytest.fixture
def made(run, store):
    """A run of all kinds of rows, after another whose answers it partly uses."""

    async def make(**more):
        await run([Plain()], examples(4), [Right()], name="first", manifest=told("plain"), **more)
        return await run(
            [Keeping(), Plain()],
            examples(),
            [Right()],
            name="r",
            reuse="all",
            manifest=told("keeping", "plain"),
            **more,
        )

    return make


@pytest.fixture
def elsewhere(place):
    with open_store(place()) as opened:
        yield opened


def reports(store, name="r"):
    """The report as JSON, and what stands behind every row."""
    run = run_of(store, name).id
    found, behind = collect(store, run, [MeanScore("right")]), details(store, run)
    return render(found, "json"), [behind(row) for row in found.rows]


def counted(store):
    with store.reading() as connection:
        return {
            table.name: len(connection.execute(table.select()).all())
            for table in schema.metadata.sorted_tables
            if table.name != "pens"
        }


async def test_a_copy_gives_the_same_reports_and_holds_each_thing_once(store, elsewhere, made):
    await made()
    with store.writing() as connection:  # what the tap saw, of a row and of nobody
        record = (
            b"\x00"
            + b'{"id":"f","matched_by":"key","wire":"openai-chat","method":"POST","path":"/v1","started":1.0,"tokens":7}'  # noqa: E501
        )
        output = connection.execute(schema.outputs.select().where(schema.outputs.c.run == 2)).first()
        for belongs in (output.id, None):
            connection.execute(schema.forwarded.insert().values(run=2, output=belongs, take=1, record=record))
    copied = copy_run(store, elsewhere, "r")
    assert (copied.rows, copied.there) == (24, False)
    assert reports(elsewhere) == reports(store)
    assert spent(elsewhere, run_of(elsewhere, "r").id) == pytest.approx(spent(store, run_of(store, "r").id))
    assert setups(elsewhere, "r") == setups(store, "r")
    assert [run.name for run in list_runs(elsewhere)] == ["r"]
    assert copy_run(store, elsewhere, "r").there
    copy_run(store, elsewhere, "first")
    assert reports(elsewhere, "first") == reports(store, "first")
    assert (
        [run.name for run in list_runs(elsewhere)] == [run.name for run in list_runs(store)] == ["r", "first"]
    )  # as they were started
    assert [run.name for run in listed(elsewhere)[0]] == ["r", "first"]
    assert [run.name for run in Library(elsewhere).two_runs(["r", "first"])] == [
        "first",
        "r",
    ]  # the earlier one, though it came later
    purge(elsewhere, older_than=0)
    assert not any(
        counted(elsewhere)[table] for table in ("outputs", "scores", "calls", "forwarded", "bodies", "setups")
    )


@of_files
async def test_everything_is_there_once_whichever_run_comes_first(store, elsewhere, made):
    await made()
    for name in ("first", "r", "first", "r"):
        copy_run(store, elsewhere, name)
    assert counted(elsewhere) == counted(store)


async def test_a_copy_broken_off_anywhere_goes_on(store, elsewhere, made, place, monkeypatch):
    await made()
    monkeypatch.setattr(copied_rows, "ROWS", 5)
    writing, left, tries = elsewhere.writing, 0, 0

    def stepping(**how):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return writing(**how)

    monkeypatch.setattr(elsewhere, "writing", stepping)
    while True:
        tries, left = tries + 1, 3  # the run taken up, and two pieces more
        try:
            assert not copy_run(store, elsewhere, "r").there
            break
        except KeyboardInterrupt:
            assert [run.status for run in list_runs(elsewhere)] in ([], ["copying"])
            with pytest.raises(UnknownName):  # half a run is none
                run_of(elsewhere, "r")
            with pytest.raises(BadInput if list_runs(elsewhere) else UnknownName):
                run_of(elsewhere, run_of(store, "r").id)
    assert tries > 4
    monkeypatch.undo()
    assert reports(elsewhere) == reports(store)
    with open_store(place()) as undisturbed:
        copy_run(store, undisturbed, "r")
        assert counted(elsewhere) == counted(undisturbed)


@of_files
async def test_a_database_that_goes_away_before_or_after_it_committed_costs_and_doubles_nothing(
    store, elsewhere, made, place, monkeypatch
):
    await made()
    monkeypatch.setattr(copied_rows, "ROWS", 5)
    writing, turns = elsewhere.writing, itertools.count(1)

    @contextmanager
    def failing(**how):
        turn = next(turns)
        with writing(**how) as connection:
            yield connection
            if turn % 4 == 0:
                raise StoreLost("gone before the commit")
        if turn % 4 == 2:
            raise StoreLost("gone before the answer")

    monkeypatch.setattr(elsewhere, "writing", failing)
    copied = copy_run(store, elsewhere, "r")
    monkeypatch.undo()
    assert next(turns) > 16
    assert reports(elsewhere) == reports(store)
    with open_store(place()) as undisturbed:
        whole = copy_run(store, undisturbed, "r")
        assert counted(elsewhere) == counted(undisturbed)
    assert copied == whole  # counted once each, whatever answers were lost


@of_files
async def test_an_unfinished_run_is_finished_in_its_new_place(store, elsewhere, run, made):
    class Stopping(Keeping):
        async def aprocess(self, example):
            if example["id"] == 9:
                raise KeyboardInterrupt
            return await super().aprocess(example)

    with pytest.raises(BaseException):  # noqa: B017 (however it ends)
        await run([Stopping(), Plain()], examples(), [Right()], name="r")
    copy_run(store, elsewhere, "r")
    await run([Keeping(), Plain()], examples(), [Right()], name="r", into=elsewhere)
    done = run_of(elsewhere, "r")
    assert (done.status, done.rows, done.planned, done.failed) == ("done", 24, 24, 0)
    with pytest.raises(BadInput, match="later: it was worked on there"):
        copy_run(store, elsewhere, "r")


@of_files
async def test_what_was_judged_again_is_copied_anew_and_names_do_not_clash(store, elsewhere, run, made):
    class Long:
        name, version = "long", "1"

        def score(self, original, processed):
            return {"long": float(len(processed["response"]) > 10)}

    await made()
    copy_run(store, elsewhere, "r")
    await rescore(store, "r", [Long()])
    assert not copy_run(store, elsewhere, "r").there
    assert reports(elsewhere) == reports(store)
    assert {"right", "long"} <= set(next(iter(rows(elsewhere, "r"))).scores)
    assert copy_run(store, elsewhere, "r").there
    await run([Plain()], examples(2), [Right()], name="first", into=elsewhere)
    with pytest.raises(BadInput, match="--as NAME"):
        copy_run(store, elsewhere, "first")
    copy_run(store, elsewhere, "first", name="other")
    assert len(rows(elsewhere, "other")) == 4
    assert copy_run(store, store, "r").there  # onto itself
