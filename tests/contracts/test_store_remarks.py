"""Words of people in a store, and runs that are marked as deleted: with a SQLite file and a PostgreSQL database."""

import re

import aiohttp
import pytest
from sqlalchemy import func, select

from context_bench.core.errors import BadInput, StoreUnusable, UnknownName
from context_bench.engine import copy_run, list_runs, open_store, purge, run_of
from context_bench.engine.store import remarks, schema
from context_bench.engine.store.browsing import Place, heads, listed_run
from context_bench.engine.store.remarks import EditConflict, Remark
from context_bench.session.runs import result_of
from context_bench.viewer import Viewer

NOTHING = Remark().stamp


class Upper:
    name = "upper"

    async def aprocess(self, example):
        return {**example, "response": example["question"].upper()}


EXAMPLES = [{"id": f"e{n}", "question": f"q{n}", "answer": f"Q{n}", "context": "c"} for n in range(4)]


@pytest.fixture
async def made(run):
    """The number and the id of a run of four rows."""
    executed = await run([Upper()], EXAMPLES)
    return executed.run_id


def number(store, run="r"):
    return run_of(store, run).number


def test_title_and_tags_are_kept_and_the_name_stays(store, made):
    remarks.describe_run(store, made, Remark(("slow", "b"), "The first"), seen=NOTHING)
    told = run_of(store, "r")
    assert (told.name, told.title, told.tags) == ("r", "The first", ["slow", "b"])
    assert told.describe()["title"] == "The first"
    assert [head.name for head in heads(store, words="first slow")] == ["r"]
    seen = Remark(("slow", "b"), "The first").stamp
    remarks.describe_run(store, made, Remark(), seen=seen)
    assert "title" not in run_of(store, "r").describe()
    with pytest.raises(UnknownName):
        remarks.describe_run(store, "nobody", Remark(), seen=NOTHING)


def test_a_note_stays_with_its_row_and_goes_when_it_is_emptied(store, made):
    at, other = Place(0, 2, 0), Place(0, 3, 0)
    remarks.write_note(store, number(store), at, Remark(("odd",), "two\nlines"), seen=NOTHING)
    remarks.write_note(store, number(store), other, Remark((), "x"), seen=NOTHING)
    assert remarks.notes_of(store, number(store)) == {at: Remark(("odd",), "two\nlines"), other: Remark((), "x")}
    remarks.write_note(store, number(store), other, Remark(), seen=Remark((), "x").stamp)
    assert list(remarks.notes_of(store, number(store))) == [at]
    for nowhere in (Place(0, 4, 0), Place(9, 0, 0), Place(0, 0, 7)):
        with pytest.raises(UnknownName):
            remarks.write_note(store, number(store), nowhere, Remark((), "x"), seen=NOTHING)


def test_who_writes_what_has_changed_since_is_told_and_overwrites_nothing(store, made):
    at = Place(0, 0, 0)
    remarks.write_note(store, number(store), at, Remark((), "mine"), seen=NOTHING)
    with pytest.raises(EditConflict):
        remarks.write_note(store, number(store), at, Remark((), "theirs"), seen=NOTHING)
    remarks.write_note(store, number(store), at, Remark((), "mine"), seen=NOTHING)  # the same again: sent twice
    assert remarks.notes_of(store, number(store))[at].text == "mine"
    remarks.describe_run(store, made, Remark((), "one"), seen=NOTHING)
    with pytest.raises(EditConflict):
        remarks.describe_run(store, made, Remark((), "two"), seen=NOTHING)
    assert run_of(store, "r").title == "one"


async def test_a_note_is_not_shown_on_another_example_at_its_place(store, run, made):
    remarks.write_note(store, number(store), Place(0, 1, 0), Remark((), "about e1"), seen=NOTHING)
    await run([Upper()], [EXAMPLES[0], {**EXAMPLES[1], "question": "another"}, *EXAMPLES[2:]])
    assert remarks.notes_of(store, number(store)) == {}
    await run([Upper()], EXAMPLES)
    assert remarks.notes_of(store, number(store)) == {Place(0, 1, 0): Remark((), "about e1")}


async def test_a_deleted_run_is_nowhere_until_it_is_restored(store, run, made):
    remarks.mark_deleted(store, made)
    assert list_runs(store) == []
    assert [each.id for each in list_runs(store, deleted=True)] == [made]
    assert heads(store) == []
    for find in (run_of, listed_run):
        with pytest.raises(BadInput, match="marked as deleted; restore it"):
            find(store, "r")
    with pytest.raises(UnknownName):
        run_of(store, made[:6])
    with pytest.raises(BadInput, match="marked as deleted"):
        await run([Upper()], EXAMPLES)
    remarks.restore(store, made)
    assert run_of(store, "r").rows == 4
    assert list_runs(store, deleted=True) == []


async def test_an_unfinished_run_that_is_deleted_is_not_gone_on_with(store, run, made):
    await run([Upper()], EXAMPLES[:2], name=None)
    for each in list_runs(store):
        with store.writing() as connection:
            connection.execute(schema.runs.update().values(status="interrupted"))
        remarks.mark_deleted(store, each.id)
    again = await run([Upper()], EXAMPLES[:2], name=None)
    assert [each.id for each in list_runs(store)] == [again.run_id]


async def test_only_what_is_marked_is_purged_with_what_was_written_on_it(store, run, made):
    await run([Upper()], EXAMPLES, name="kept")
    for name in ("r", "kept"):
        remarks.write_note(store, number(store, name), Place(0, 0, 0), Remark((), name), seen=NOTHING)
    assert remarks.purge_deleted(store) == []
    remarks.mark_deleted(store, made)
    assert remarks.purge_deleted(store, dry_run=True) == ["r"]
    assert remarks.deleted_runs(store)[0].name == "r"
    assert remarks.purge_deleted(store) == ["r"]
    assert [each.name for each in list_runs(store)] == ["kept"]
    assert remarks.deleted_runs(store) == []
    with store.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(schema.row_notes)) == 1
    remarks.mark_deleted(store, list_runs(store)[0].id)
    assert purge(store, older_than=0) == ["kept"]  # by its age it goes too


async def test_a_run_that_is_being_worked_on_cannot_be_deleted_but_written_on(store, run, made):
    """As its process sees it: a note is written between the transactions of the run."""

    class Noting(Upper):
        async def aprocess(self, example):
            found = list_runs(store)[0]
            remarks.describe_run(store, found.id, Remark((), f"at {example['id']}"), seen=_stamp(found))
            with pytest.raises(StoreUnusable, match="being worked on"):
                remarks.mark_deleted(store, found.id)
            return await super().aprocess(example)

    executed = await run([Noting()], EXAMPLES, name="live", max_workers=1)
    assert executed.completed
    told = run_of(store, "live")
    assert (told.rows, told.failed, told.title) == (4, 0, "at e3")


def _stamp(found):
    return Remark(tuple(found.tags), found.title).stamp


async def test_a_copy_has_what_was_written_and_keeps_its_own(store, place, run, made):
    remarks.describe_run(store, made, Remark(("t",), "title"), seen=NOTHING)
    remarks.write_note(store, number(store), Place(0, 0, 0), Remark((), "here"), seen=NOTHING)
    with open_store(place()) as target:
        copy_run(store, target, "r")
        assert (run_of(target, "r").title, run_of(target, "r").tags) == ("title", ["t"])
        there = number(target)
        assert remarks.notes_of(target, there) == {Place(0, 0, 0): Remark((), "here")}
        remarks.write_note(target, there, Place(0, 0, 0), Remark((), "own"), seen=Remark((), "here").stamp)
        remarks.write_note(store, number(store), Place(0, 1, 0), Remark((), "new"), seen=NOTHING)
        await run([Upper()], [*EXAMPLES, {**EXAMPLES[0], "id": "e9", "question": "more"}])
        copy_run(store, target, "r")
        assert remarks.notes_of(target, number(target)) == {
            Place(0, 0, 0): Remark((), "own"),
            Place(0, 1, 0): Remark((), "new"),
        }
        remarks.mark_deleted(target, made)
        with pytest.raises(BadInput, match="marked as deleted in"):
            copy_run(store, target, "r")


async def test_the_viewer_writes_in_each_kind_of_store(store, where, made):
    def form(html):
        return dict(re.findall(r'name="(key|seen)" value="([^"]*)"', html))

    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        Viewer(where, result_of=result_of, edit=True) as viewer,
        aiohttp.ClientSession(viewer.address, cookie_jar=jar, headers={"Origin": viewer.address}) as session,
    ):
        async with session.get(viewer.url) as entered:
            assert entered.status == 200
        for page, action, typed in (
            ("edit", "edit", {"title": "Title", "tags": "a, b"}),
            ("rows/0-1-0", "rows/0-1-0/note", {"tags": "c", "note": "two\nlines"}),
            ("delete", "delete", {}),
        ):
            async with session.get(f"/runs/{made}/{page}") as response:
                fields = form(await response.text())
            async with session.post(f"/runs/{made}/{action}", data={**fields, **typed}) as response:
                assert response.status == 200, await response.text()
        assert [each.name for each in list_runs(store, deleted=True)] == ["r"]
        async with session.post(f"/runs/{made}/restore", data=fields) as response:
            assert "Title" in await response.text()
    assert run_of(store, "r").tags == ["a", "b"]
    assert remarks.notes_of(store, number(store)) == {Place(0, 1, 0): Remark(("c",), "two\nlines")}


@pytest.mark.parametrize(
    ("tags", "text", "fault"),
    [
        ("a" * 41, "", "a tag of 41 characters is too long; at most 40"),
        (",".join(map(str, range(21))), "", "21 tags are too many"),
        ("a\x1b[31m", "", "U\\+001B"),
        ("a\u202eb", "", "U\\+202E"),
        ("a\nb", "", "U\\+000A"),
        ("", "x" * 4001, "a note of 4,001 characters is too long; at most 4,000"),
        ("", "a\x00b", "U\\+0000"),
        ("", "a\ud800", "U\\+D800"),
        ("", "a\x9b31m", "U\\+009B"),
    ],
)
def test_what_is_too_long_or_steers_is_refused(tags, text, fault):
    with pytest.raises(BadInput, match=fault):
        Remark.of_row(tags, text)


def test_tags_are_told_apart_by_more_than_case_and_blanks():
    assert Remark.of_row(" Slow ,slow,, two  words,", " a\r\nb\tc ") == Remark(("Slow", "two words"), "a\nb\tc")
    with pytest.raises(BadInput, match="a title of 201"):
        Remark.of_run("", "x" * 201)
    with pytest.raises(BadInput, match="a title may not"):
        Remark.of_run("", "a\nb")
