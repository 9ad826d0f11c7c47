"""A viewer that writes: who may, what it writes, and how that is shown and sought."""

import asyncio
import csv
import io
import json
import lzma
import re
import shutil
import sqlite3
from contextlib import closing
from html import escape, unescape
from pathlib import Path

import aiohttp
import pytest

from context_bench.__main__ import main
from context_bench.core.errors import StoreUnusable
from context_bench.engine import list_runs, open_store, open_watch, run_of, watch_of
from context_bench.engine.store.browsing import Place
from context_bench.engine.store.remarks import notes_of
from context_bench.session.runs import result_of
from context_bench.viewer import Viewer
from context_bench.viewer.pages import watch_url

from .conftest import HOSTILE, Speller, examples, run, session_with

#: As much of it as a title, tag or note may hold.
NASTY = "</textarea><img src=x onerror=alert(1)>{{ 7*7 }}\"'&"


@pytest.fixture
def path(store_path, tmp_path):
    copied = tmp_path / "store.db"
    shutil.copy(store_path, copied)
    return copied


@pytest.fixture
async def viewer(path):
    async with Viewer(path, result_of=result_of, edit=True) as started:
        yield started


@pytest.fixture
async def session(viewer):
    async with session_with(viewer) as opened:
        yield opened


async def page(session, address):
    async with session.get(address) as response:
        assert response.status == 200, (address, await response.text())
        return await response.text()


def fields_of(html, action):
    """The fields of the form that is sent there, as a browser has them before anybody types."""
    form = re.search(rf'<form[^>]* method="post" action="{re.escape(action)}[^>]*>(.*?)</form>', html, re.DOTALL)
    assert form, action
    found = {name: unescape(value) for name, value in re.findall(r'<input [^>]*?name="(\w+)" value="([^"]*)"', form[1])}
    for name, value in re.findall(r'<textarea name="(\w+)"[^>]*>\n(.*?)</textarea>', form[1], re.DOTALL):
        found[name] = unescape(value)
    return found


async def send(session, viewer, address, fields, *, headers=None, follow=True):
    told = {"Origin": viewer.address} if headers is None else headers
    async with session.post(address, data=fields, headers=told, allow_redirects=follow) as response:
        return response.status, await response.text()


async def filled(session, viewer, run_name, place=None, **values):
    """Open the page of a form, type, send."""
    run_id = run_of_name(viewer, run_name).id
    seen, action = f"/runs/{run_id}/edit", f"/runs/{run_id}/edit"
    if place is not None:
        seen, action = f"/runs/{run_id}/rows/{place}", f"/runs/{run_id}/rows/{place}/note"
    fields = fields_of(await page(session, seen), action)
    return await send(session, viewer, action, {**fields, **values})


def run_of_name(viewer, name):
    return run_of(viewer.library.store, name)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"key": None}, 403),
        ({"key": ""}, 403),
        ({"key": "x" * 32}, 403),
        ({"key": "é"}, 403),
        ({}, 200),
    ],
)
async def test_nothing_is_written_without_the_key_of_the_form(viewer, session, change, status):
    address = f"/runs/{run_of_name(viewer, 'first').id}/edit"
    fields = {**fields_of(await page(session, address), address), "title": "new", **change}
    fields = {name: value for name, value in fields.items() if value is not None}
    got, text = await send(session, viewer, address, fields)
    assert got == status
    assert ("Nothing was written" in text) == (status == 403)
    assert run_of_name(viewer, "first").title == ("new" if status == 200 else "")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:{port}", "Host": "rebound.example:{port}"},
        {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-site"},
        {
            "Origin": "http://127.0.0.1:{port}",
            "Sec-Fetch-Site": "cross-site",
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
        },
    ],
)
async def test_nothing_is_written_for_other_pages_and_other_names(viewer, session, headers):
    found = run_of_name(viewer, "first")
    address = f"/runs/{found.id}/edit"
    fields = {**fields_of(await page(session, address), address), "title": "theirs"}
    port = viewer.address.rpartition(":")[2]
    told = {name: value.format(port=port) for name, value in headers.items()}
    for there in (address, f"/runs/{found.id}/delete"):
        status, _ = await send(session, viewer, there, fields, headers=told)
        assert status == 403
    assert run_of_name(viewer, "first").title == ""


async def test_the_key_is_not_enough_without_the_cookie_and_differs_from_the_token(viewer, session):
    address = f"/runs/{run_of_name(viewer, 'first').id}/edit"
    fields = fields_of(await page(session, address), address)
    assert fields["key"] not in viewer.url
    async with session_with(viewer, enter=False) as stranger:
        status, _ = await send(stranger, viewer, address, {**fields, "title": "new"})
        assert status == 403
    assert run_of_name(viewer, "first").title == ""


async def test_what_is_no_form_or_too_large_is_refused(viewer, session):
    address = f"/runs/{run_of_name(viewer, 'first').id}/edit"
    key = fields_of(await page(session, address), address)["key"]
    told = {"Origin": viewer.address}
    async with session.post(address, json={"key": key, "title": "x"}, headers=told) as response:
        assert response.status == 403
    form = aiohttp.FormData({"key": key, "title": "x"}, default_to_multipart=True)
    async with session.post(address, data=form, headers=told) as response:
        assert response.status == 403
    typed = {**told, "Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"key=%ff%fe", b"\xff\xfe", b"&".join(b"a=1" for _ in range(30))):
        async with session.post(address, data=body, headers=typed) as response:
            assert response.status == 400
    async with session.post(address, data={"key": key, "title": "x" * 100_000}, headers=told) as response:
        assert response.status == 413
    assert run_of_name(viewer, "first").title == ""


async def test_without_edit_there_are_no_forms_and_no_writes(served, path):
    async with session_with(served) as session:
        found = run_of(served.library.store, "first")
        listed = await page(session, "/")
        row = await page(session, f"/runs/{found.id}/rows/0-0-0")
        assert 'method="post"' not in listed + row
        assert "/edit" not in listed + row
        for address in (f"/runs/{found.id}/edit", f"/runs/{found.id}/delete", "/deleted"):
            status, text = await send(session, served, address, {"key": "x", "title": "new"})
            assert status == 405
            assert "context-bench view --edit" in text
            async with session.get(address) as response:
                assert response.status == 404
        async with session.get("/") as response:
            assert response.headers["Referrer-Policy"] == "no-referrer"


async def test_only_the_forms_addresses_take_a_form(viewer, session):
    found = run_of_name(viewer, "first")
    for address in ("/", f"/runs/{found.id}", "/deleted", f"/runs/{found.id}/rows/0-0-0", "/static/style.css"):
        status, _ = await send(session, viewer, address, {"key": "x"})
        assert status == 405
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        async with session.request(method, f"/runs/{found.id}/edit", headers={"Origin": viewer.address}) as response:
            assert response.status == 405
    async with session.get("/") as response:
        assert response.headers["Referrer-Policy"] == "same-origin"  # else a form would say it comes from nowhere
        assert "unsafe" not in response.headers["Content-Security-Policy"]


async def test_a_title_and_tags_stand_in_the_list_and_are_sought_there(viewer, session):
    status, text = await filled(session, viewer, "first", title="The good one", tags="keep, to show")
    assert status == 200
    assert "The good one" in text
    assert "first</span>" in text
    for address, there in (("/", 4), ("/?tag=keep", 1), ("/?tag=other", 0), ("/?q=good+one", 1), ("/?q=to+show", 1)):
        listed = await page(session, address)
        assert len(re.findall(r'<th scope="row"><a href="/runs/', listed)) == there, address
        assert ("The good one" in listed) == bool(there)
    assert '<option value="keep" selected>' in await page(session, "/?tag=keep")
    assert "The good one" in await page(session, "/runs/first")  # its name leads to it as before
    assert run_of_name(viewer, "first").name == "first"


async def test_a_note_is_shown_and_rows_are_sought_by_tag_and_note(viewer, session):
    found = run_of_name(viewer, "first")
    await filled(session, viewer, "first", "1-4-0", tags="odd one", note="it said word1\nand meant word4")
    status, text = await filled(session, viewer, "first", "1-5-0", tags="odd one, second", note="")
    assert status == 200
    assert "odd one" in text
    assert "and meant word4" in await page(session, f"/runs/{found.id}/rows/1-4-0?noted=1")
    for query, rows in (("tag=odd+one", 2), ("tag=second", 1), ("noted=1", 1), ("noted=1&tag=second", 0)):
        shown = await page(session, f"/runs/{found.id}?layout=rows&{query}")
        assert len(re.findall(rf'<th scope="row"><a href="/runs/{found.id}/rows/', shown)) == rows, query
    matrix = await page(session, f"/runs/{found.id}?noted=1")
    assert 'role="status">1 example</span>' in matrix
    assert "Download 1 example:" in matrix
    assert "it said word1 and meant word4" in matrix
    searched = await page(session, f"/runs/{found.id}?layout=rows&tag=second&q=ex-5")
    assert "ex-5" in searched
    assert "No row is like that" in await page(session, f"/runs/{found.id}?layout=rows&tag=second&q=ex-4")


async def test_downloads_and_exports_have_what_was_written_and_nothing_new_where_nothing_was(
    viewer, session, path, tmp_path, capsys
):
    first, second = run_of_name(viewer, "first"), run_of_name(viewer, "second")
    await filled(session, viewer, "first", "1-4-0", tags="odd, b", note="=1+1")
    await filled(session, viewer, "first", title="=T", tags="t")
    lines = list(csv.DictReader(io.StringIO(await page(session, f"/runs/{first.id}/rows.csv?noted=1"))))
    assert [(each["example_id"], each["tags"], each["note"]) for each in lines] == [("ex-4", "odd, b", "'=1+1")]
    plain = csv.DictReader(io.StringIO(await page(session, f"/runs/{second.id}/rows.csv")))
    assert "note" not in (plain.fieldnames or [])
    rows = json.loads(await page(session, f"/runs/{first.id}/rows.json"))
    assert [each.get("note") for each in rows if "note" in each or "tags" in each] == ["=1+1"]
    matrix = json.loads(await page(session, f"/runs/{first.id}/rows.json?layout=matrix&noted=1"))
    assert [each["tags"] for each in matrix[0]["answers"] if "tags" in each] == [["odd", "b"]]
    flat = list(csv.DictReader(io.StringIO(await page(session, f"/runs/{first.id}/rows.csv?layout=matrix&noted=1"))))
    assert flat[0]["short: note"] == "'=1+1"
    assert flat[0]["full: note"] == ""

    def exported(name, form, *more):
        out = tmp_path / f"out.{form}"
        line = ["export", name, "--store", str(path), "--format", form, "--out", str(out), *more]
        assert main(line) == 0
        return out

    document = json.loads((await asyncio.to_thread(exported, "first", "json")).read_text("utf-8"))
    assert document["labels"] == {"title": "=T", "tags": ["t"]}
    assert [row["note"] for row in document["rows"] if "note" in row] == ["=1+1"]
    canonical = json.loads((await asyncio.to_thread(exported, "first", "json", "--canonical")).read_text("utf-8"))
    assert "labels" not in canonical
    assert not [row for row in canonical["rows"] if "note" in row]
    other = json.loads((await asyncio.to_thread(exported, "second", "json")).read_text("utf-8"))
    assert "labels" not in other
    told = (await asyncio.to_thread(exported, "first", "jsonl")).read_text("utf-8").splitlines()
    assert [row["tags"] for row in map(json.loads, told) if "tags" in row] == [["odd", "b"]]
    table = csv.DictReader(io.StringIO((await asyncio.to_thread(exported, "first", "csv")).read_text("utf-8")))
    assert [row["note"] for row in table if row["note"]] == ["'=1+1"]
    import pyarrow.parquet

    found = pyarrow.parquet.read_table(await asyncio.to_thread(exported, "first", "parquet")).to_pylist()
    assert [(row["tags"], row["note"]) for row in found if row["note"]] == [(["odd", "b"], "=1+1")]
    bare = pyarrow.parquet.read_table(await asyncio.to_thread(exported, "second", "parquet"))
    assert "note" not in bare.column_names
    capsys.readouterr()


async def test_hostile_words_are_only_text_wherever_they_are_shown(viewer, session):
    tag = NASTY[:40].replace(",", "")
    found = run_of_name(viewer, "first")
    status, _ = await filled(session, viewer, "first", title=NASTY, tags=tag)
    assert status == 200
    status, _ = await filled(session, viewer, "first", "1-4-0", tags=tag, note=NASTY * 50)
    assert status == 200
    for address in (
        "/",
        f"/?tag={tag}",
        f"/runs/{found.id}",
        f"/runs/{found.id}?layout=rows",
        f"/runs/{found.id}/rows/1-4-0",
        f"/runs/{found.id}/edit",
        f"/runs/{found.id}/delete",
        f"/compare?run={found.id}&run=second",
        f"/pair?row={found.id}/1-4-0&row={found.id}/0-4-0",
    ):
        html = await page(session, address)
        assert "<img" not in html, address
        assert "49" not in re.findall(r"\{\{.*?\}\}|onerror=alert\(1\)&gt;(\d\d)", html), address
    form = fields_of(await page(session, f"/runs/{found.id}/rows/1-4-0"), f"/runs/{found.id}/rows/1-4-0/note")
    assert form["note"] == NASTY * 50  # and it is kept as it was typed
    assert form["tags"] == tag
    for words in ({"note": "x" * 4001}, {"note": "\x1b[31m"}, {"tags": "a\u202eb"}, {"tags": "x" * 41}):
        status, text = await filled(session, viewer, "first", "1-6-0", **words)
        assert status == 400
        assert "\x1b" not in text
        assert "\u202e" not in text
    for words in ({"title": HOSTILE}, {"title": "x" * 201}):
        status, _ = await filled(session, viewer, "second", **words)
        assert status == 400
    assert run_of_name(viewer, "second").title == ""
    assert Place(1, 6, 0) not in notes_of(viewer.library.store, found.number)


async def test_deleting_asks_and_can_be_undone(viewer, session, path, capsys):
    found = run_of_name(viewer, "first")
    asked = await page(session, f"/runs/{found.id}/delete")
    assert "Delete this run?" in asked
    assert len(list_runs(viewer.library.store)) == 4  # to look is not to do
    fields = fields_of(asked, f"/runs/{found.id}/delete")
    status, text = await send(session, viewer, f"/runs/{found.id}/delete", fields)
    assert status == 200
    assert "Undo" in text
    assert f"/runs/{found.id}/restore" in text
    assert found.id not in await page(session, "/")
    async with session.get(f"/runs/{found.id}") as response:
        assert response.status == 400
        assert "marked as deleted" in await response.text()
    assert await asyncio.to_thread(main, ["show", "first", "--store", str(path)]) == 2
    assert await asyncio.to_thread(main, ["runs", "--store", str(path), "--deleted"]) == 0
    told = capsys.readouterr()
    assert "marked as deleted" in told.err
    assert "first" in told.out
    status, text = await send(
        session, viewer, f"/runs/{found.id}/restore", fields_of(text, f"/runs/{found.id}/restore")
    )
    assert status == 200
    assert run_of_name(viewer, "first").rows == found.rows
    assert "No run is marked as deleted" in await page(session, "/deleted")


def test_purge_takes_what_is_marked_and_asks_which(path, capsys):
    from context_bench.engine.store.remarks import mark_deleted

    with open_store(path) as store:
        mark_deleted(store, run_of(store, "other").id)
    assert main(["purge", "--store", str(path)]) == 2
    assert main(["purge", "--store", str(path), "--deleted", "--dry-run"]) == 0
    assert "would remove 1 run(s) other" in capsys.readouterr().err
    assert main(["purge", "--store", str(path), "--deleted"]) == 0
    assert "removed 1 run(s) other" in capsys.readouterr().err
    with open_store(path) as store:
        assert len(list_runs(store)) == 3
        assert list_runs(store, deleted=True) == []


async def test_two_pages_that_edit_the_same_do_not_overwrite_each_other(viewer, session):
    found = run_of_name(viewer, "first")
    action = f"/runs/{found.id}/rows/1-4-0/note"
    seen = fields_of(await page(session, f"/runs/{found.id}/rows/1-4-0"), action)
    status, _ = await send(session, viewer, action, {**seen, "note": "the first"})
    assert status == 200
    status, text = await send(session, viewer, action, {**seen, "note": "the <second>"})
    assert status == 409
    assert "the &lt;second&gt;" in text  # to be copied
    status, _ = await send(session, viewer, action, {**seen, "note": "the first"})
    assert status == 200  # the same again, as a browser sends it that loads a page anew
    assert notes_of(viewer.library.store, found.number)[Place(1, 4, 0)].text == "the first"


async def test_a_run_that_goes_on_can_be_written_on_and_not_deleted(viewer, session, path):
    gate = asyncio.Event()
    with open_store(path) as store:
        working = asyncio.create_task(run(store, "live", [Speller("one", gate=gate)], examples(8)))
        try:
            while not [each for each in list_runs(store) if each.name == "live" and each.rows >= 4]:  # noqa: ASYNC110 (what is in a file has no event)
                await asyncio.sleep(0.01)
            status, _ = await filled(session, viewer, "live", "0-2-0", tags="early", note="while it goes on")
            assert status == 200
            status, _ = await filled(session, viewer, "live", title="Going on")
            assert status == 200
            found = run_of_name(viewer, "live")
            fields = fields_of(await page(session, f"/runs/{found.id}/delete"), f"/runs/{found.id}/delete")
            status, text = await send(session, viewer, f"/runs/{found.id}/delete", fields)
            assert status == 503
            assert "being worked on" in text
        finally:
            gate.set()
            executed = await working
    assert executed.completed
    told = run_of_name(viewer, "live")
    assert (told.rows, told.title, told.status) == (8, "Going on", "done")
    assert notes_of(viewer.library.store, told.number)[Place(0, 2, 0)].tags == ("early",)


async def test_rows_and_runs_that_are_not_there_are_said(viewer, session):
    found = run_of_name(viewer, "first")
    address = f"/runs/{found.id}/rows/1-4-0"
    fields = fields_of(await page(session, address), f"{address}/note")
    for there, status in (
        (f"/runs/{found.id}/rows/1-4000-0/note", 404),
        (f"/runs/{found.id}/rows/x/note", 400),
        ("/runs/nobody/edit", 404),
        ("/runs/nobody/restore", 404),
    ):
        got, _ = await send(session, viewer, there, {**fields, "note": "x"})
        assert got == status, there
    async with session.get(f"{address}/note") as response:
        assert str(response.url).endswith(address)


async def test_an_older_store_is_brought_up_to_date_to_be_written_and_not_to_be_read(tmp_path):
    kept = lzma.decompress((Path(__file__).parents[2] / "golden/stores/pipeline.db.xz").read_bytes())
    older = tmp_path / "older.db"
    older.write_bytes(kept)
    with closing(sqlite3.connect(older)) as connection:
        (version,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert version < "0011"
    with pytest.raises(StoreUnusable, match="brings an older one up to date"):
        await Viewer(older, result_of=result_of).start()
    assert older.read_bytes() == kept
    async with Viewer(older, result_of=result_of, edit=True) as viewer, session_with(viewer) as session:
        status, _ = await filled(session, viewer, "kept", title="From before", tags="old")
        assert status == 200
        status, _ = await filled(session, viewer, "kept", "0-0-0", note="as it was")
        assert status == 200
        assert run_of_name(viewer, "kept").describe()["tags"] == ["old"]


async def test_a_store_that_cannot_be_written_is_said_before_anything_is_shown(path, tmp_path):
    with pytest.raises(StoreUnusable, match="no store at"):
        await Viewer(tmp_path / "none.db", result_of=result_of, edit=True).start()
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreUnusable):
        await Viewer(tmp_path / "folder", result_of=result_of, edit=True).start()


async def test_title_and_tags_of_a_watch_are_written_also_while_it_is_at_work(viewer, session, path):
    """What the watch writes about itself meanwhile, and at its end, leaves them as they are."""
    with open_store(str(path)) as store:
        log = open_watch(store, {"via": "http://h", "title": "Before", "tags": ["old"]}, name="traffic & more")
        log.under_way(1)
        address = watch_url("traffic & more", "/edit")
        assert f'href="{escape(address)}"' in await page(session, watch_url("traffic & more"))
        assert f'href="{escape(address)}"' in await page(session, "/")
        fields = fields_of(await page(session, address), escape(address))
        assert (fields["title"], fields["tags"]) == ("Before", "old")
        written = {**fields, "title": NASTY, "tags": "team a, b"}
        status, html = await send(session, viewer, address, written)
        assert status == 200
        assert "<img" not in html
        log.under_way(2)
        assert watch_of(store, "traffic & more").settings["under_way"] == 2
        log.end({"via": "http://h", "title": "Before", "tags": ["old"], "exit": 0})
        watch = watch_of(store, "traffic & more")
        assert (watch.title, watch.tags, watch.settings["exit"]) == (NASTY, ["team a", "b"], 0)
        status, html = await send(session, viewer, address, {**written, "title": "too late"})
        assert (status, "nothing was written" in html) == (409, True)
        fields = fields_of(await page(session, address), escape(address))
        assert (await send(session, viewer, address, {**fields, "title": "", "tags": ""}))[0] == 200
        watch = watch_of(store, "traffic & more")
        assert (watch.title, watch.tags, watch.settings["via"]) == ("", [], "http://h")
    assert (await send(session, viewer, address, {**fields, "key": "x"}))[0] == 403
    assert (await send(session, viewer, watch_url("nobody", "/edit"), fields))[0] == 404
