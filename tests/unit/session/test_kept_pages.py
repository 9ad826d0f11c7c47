"""The page of a long run is kept with it: read back it is the page, and it is not read once anything else is true."""

import sqlite3
from contextlib import closing

import pytest

from context_bench.core.lazy import registry
from context_bench.engine import Arm, RunSettings, copy_run, execute, open_store, rescore, run_of, set_manifest
from context_bench.engine.store import damaged
from context_bench.engine.store.browsing import open_reading
from context_bench.reports import build_page, render, renderers
from context_bench.runner import details
from context_bench.session import runs
from context_bench.session.runs import kept_page_of, page_of, report_stored, result_of

FORMATS = ("table", "markdown", "json", "csv", "html")


class Half:
    """Knows half of the answers, fails now and then."""

    def __init__(self, name, step=2):
        self.name, self.step = name, step

    def fingerprint(self):
        return {"name": self.name, "step": self.step}

    async def aprocess(self, example):
        if example["id"] % 11 == 10:
            raise RuntimeError("no answer")
        return {**example, "response": "yes" if example["id"] % self.step else "no"}


class Right:
    name, version = "right", "1"

    def __init__(self, value=1.0, version="1"):
        self.value, self.version = value, version

    def score(self, original, processed):
        return {"f1": self.value * (processed["response"] == "yes")}


def examples(count=24):
    return [{"id": n, "context": "c " * (n + 1), "question": f"q{n}", "answer": "yes"} for n in range(count)]


async def made(store, name, *, reuse="run", systems=("full", "short"), count=24):
    arms = [Half(each, 2 + place) for place, each in enumerate(systems)]
    cell = {"labels": {}, "systems": list(systems), "baseline": systems[0], "controls": []}
    about = {"value": 0.02, "rule": "given", "score_field": "f1"}
    manifest = {"cells": [cell], "margin": about, "options": {"seed": 0, "score_field": "f1", "model": "one"}}
    await execute(
        store,
        name=name,
        arms=[Arm(each) for each in arms],
        examples=examples(count),
        evaluators=[Right()],
        manifest=manifest,
        settings=RunSettings(late_grace=0.0),
        reuse=reuse,
    )
    return run_of(store, name)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "KEPT_FROM", 0)
    monkeypatch.setattr(registry, "_objects", {})  # what other tests registered would be users' own: no page is kept
    with open_store(tmp_path / "s.db") as opened:
        yield opened


def outputs(page):
    return {each: render(page, each, details=page.details) for each in FORMATS}


async def test_the_kept_page_gives_every_output_that_the_page_worked_out_gave(store):
    record = await made(store, "one")
    assert kept_page_of(store, record.id) is None
    first = outputs(page_of(store, record))
    assert outputs(kept_page_of(store, record.id)) == first
    assert list(kept_page_of(store, record.id).rows) == list(result_of(store, record).rows)


async def test_a_kept_page_names_the_store_as_whoever_asks_does(store, tmp_path):
    record = await made(store, "one")
    elsewhere = f"{tmp_path}/a store.db"
    worked_out = outputs(page_of(store, record, elsewhere))
    assert f"--store '{elsewhere}'" in worked_out["markdown"] + worked_out["html"] + worked_out["table"]
    assert outputs(kept_page_of(store, record.id, elsewhere)) == worked_out
    usual = outputs(kept_page_of(store, record.id))
    assert elsewhere not in "".join(usual.values())
    assert usual == outputs(build_page(result_of(store, record), details=details(store, record.id)))


async def test_a_kept_page_is_shown_without_working_anything_out(store, monkeypatch):
    record = await made(store, "one")
    first = outputs(page_of(store, record))

    def worked_out(*_):
        raise AssertionError("the rows were read again")

    monkeypatch.setattr(runs, "result_of", worked_out)
    assert outputs(page_of(store, record)) == first


async def test_the_report_of_a_run_keeps_the_page_that_would_be_worked_out(store, tmp_path):
    record = await made(store, "one")
    report_stored(store, record.id, result_of(store, record), "json", tmp_path / "r.json")
    page = kept_page_of(store, record.id)
    assert render(page, "json") == (tmp_path / "r.json").read_text()


async def test_a_result_to_which_something_was_added_is_not_what_the_store_says(store, tmp_path):
    record = await made(store, "one")
    result = result_of(store, record)
    report_stored(store, record.id, result, "json", tmp_path / "r.json", as_stored=False)
    assert kept_page_of(store, record.id) is None
    set_manifest(store, record.id, {**record.manifest, "notes": ["later"]})
    report_stored(store, record.id, result, "json", tmp_path / "r.json")
    assert kept_page_of(store, record.id) is None


async def test_short_runs_keep_no_page(store, monkeypatch):
    record = await made(store, "one")
    monkeypatch.setattr(runs, "KEPT_FROM", 2 * 24 + 1)
    page_of(store, record)
    assert kept_page_of(store, record.id) is None


async def test_a_page_is_worked_out_anew_when_the_manifest_scores_or_rows_changed(store):
    record = await made(store, "one")
    page_of(store, record)
    set_manifest(store, record.id, {**record.manifest, "notes": ["said later"]})
    assert kept_page_of(store, record.id) is None
    assert "said later" in page_of(store, run_of(store, "one")).notes

    await rescore(store, record.id, [Right(0.5, "2")])
    assert kept_page_of(store, record.id) is None
    assert max(row.scores.get("f1", 0.0) for row in page_of(store, run_of(store, "one")).rows) == 0.5
    assert page_of(store, run_of(store, "one")).summary["full"]["mean_score"] < 0.5

    before = page_of(store, run_of(store, "one")).examples
    await made(store, "one", count=30)
    assert page_of(store, run_of(store, "one")).examples == before + 6


async def test_another_run_leaves_a_page_alone_unless_it_shares_answers(store):
    record = await made(store, "one")
    page_of(store, record)
    await made(store, "two", systems=("other",))
    assert kept_page_of(store, record.id) is not None

    three = await made(store, "three", reuse="all")
    assert three.counts["reused"]
    assert kept_page_of(store, record.id) is None
    page_of(store, record)
    assert kept_page_of(store, record.id) is not None
    await rescore(store, run_of(store, "three").id, [Right(0.25, "2")])
    assert kept_page_of(store, record.id) is None


async def test_what_users_bring_may_say_something_else_tomorrow(store, monkeypatch):
    record = await made(store, "one")
    page_of(store, record)
    monkeypatch.setattr(registry, "_objects", {**registry._objects, "metric": {"own": object()}})
    assert kept_page_of(store, record.id) is None
    assert renderers.page_text(page_of(store, record)) is None


async def test_another_version_or_place_of_this_program_wrote_no_page_of_ours(store, monkeypatch):
    record = await made(store, "one")
    page_of(store, record)
    monkeypatch.setattr(renderers, "_program", lambda: "another")
    assert kept_page_of(store, record.id) is None


@pytest.mark.parametrize("spoiled", [b"", b"\xc0page\n[]", b"\x00page\n[]", b'\x00page\n["x", {"$": "Nobody"}]', None])
async def test_a_page_that_is_damaged_or_gone_is_worked_out_again(store, tmp_path, spoiled):
    record = await made(store, "one")
    first = outputs(page_of(store, record))
    with closing(sqlite3.connect(tmp_path / "s.db")) as beside, beside:
        here = "key = (select key from bodies order by rowid desc limit 1)"
        if spoiled is None:
            beside.execute(f"delete from bodies where {here}")
        else:
            beside.execute(f"update bodies set data = ? where {here}", (spoiled,))
    assert kept_page_of(store, record.id) is None
    assert outputs(page_of(store, record)) == first
    assert kept_page_of(store, record.id) is not None


async def test_keeping_pages_leaves_the_store_sound_and_one_page_a_run(store):
    record = await made(store, "one")

    def bodies():
        with store.reading() as connection:
            assert list(damaged(connection, until=float("inf"))) == []
            return connection.exec_driver_sql("select count(*) from bodies").scalar()

    before = bodies()
    for note in ("a", "b", "c"):
        page_of(store, record)
        set_manifest(store, record.id, {**record.manifest, "notes": [note]})
        record = run_of(store, "one")
        assert bodies() == before + 1


async def test_a_copy_has_no_page_of_its_own_and_makes_the_same_one(store, tmp_path):
    record = await made(store, "one")
    page = page_of(store, record)
    with open_store(tmp_path / "other.db") as target:
        copy_run(store, target, record.id)
        assert kept_page_of(target, record.id) is None
        assert page_of(target, run_of(target, "one")).summary == page.summary
        assert copy_run(store, target, record.id).there


async def test_a_store_that_is_only_read_shows_pages_all_the_same(store, tmp_path):
    record = await made(store, "one")
    with closing(open_reading(tmp_path / "s.db")) as reading:
        first = outputs(page_of(reading, record))
        assert kept_page_of(reading, record.id) is None
    page_of(store, record)
    with closing(open_reading(tmp_path / "s.db")) as reading:
        assert outputs(kept_page_of(reading, record.id)) == first
