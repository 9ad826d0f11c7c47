"""The list of runs and watches: verdicts that were kept with a run, kinds, orders; a watch turn by turn, as it goes."""

import asyncio
import html
import re
import shlex
from contextlib import asynccontextmanager

import pytest

from context_bench.core.records import Forwarded
from context_bench.engine import copy_run, open_store, open_watch, rescore, run_of, set_manifest
from context_bench.engine.store import browsing
from context_bench.reports.cards import CHIPS
from context_bench.session.runs import report_stored, result_of
from context_bench.viewer import Viewer
from context_bench.viewer.pages import render
from context_bench.wire.turns import Turn

from .conftest import HOSTILE, Marks, Speller, examples, manifest, run, session_with
from .test_viewer_pages import _until, text_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.db"


@asynccontextmanager
async def seen(path):
    async with Viewer(path, result_of=result_of) as viewer, session_with(viewer) as session:
        yield session


def reported(store, name, out):
    record = run_of(store, name)
    report_stored(store, record.id, result_of(store, record), "json", out)


def names(text):
    """Runs and watches as the list has them."""
    return [html.unescape(name) for name in re.findall(r'<th scope="row"><a href="[^"]*">([^<]*)</a>', text)]


def kept(store, name):
    return browsing.listed_run(store, name).summary


async def test_the_verdicts_of_a_reported_run_stand_in_the_list_of_a_viewer_just_started(path, tmp_path):
    with open_store(path) as store:
        await run(store, "one", [Speller("full", 2), Speller("short", 3)], examples(40))
        assert kept(store, "one") is None
        reported(store, "one", tmp_path / "report.json")
        told = kept(store, "one")
        sentence = next(each for each in result_of(store, run_of(store, "one")).comparisons if each.system == "short")
    mine = next(each for each in told["systems"] if each["system"] == "short")
    assert mine["verdict"] == sentence.verdict
    assert mine["chip"].startswith(CHIPS[sentence.verdict].partition("{")[0])
    assert mine["change"] == pytest.approx(sentence.difference)
    async with seen(path) as session:
        text = await text_of(session, "/")
    assert f">{mine['chip']}</span>" in html.unescape(text)
    assert f'title="{sentence.verdict}: ' in text
    assert f"{100 * mine['change']:+.1f}".replace("-", "−") + " points" in text
    assert "% tokens saved" in text
    assert "data-verdicts" not in text


async def test_a_run_that_nobody_reported_is_worked_out_when_it_is_listed_however_large(path):
    with open_store(path) as store:
        await run(store, "one", [Speller("full", 2), Speller("short", 3)], examples(30))
    async with seen(path) as session:
        address = re.search(r'data-verdicts="([^"]*)"', await text_of(session, "/"))[1]
        assert 'class="chipline"' in await text_of(session, html.unescape(address))
        assert 'class="chipline"' in await text_of(session, "/")


async def test_a_run_of_controls_alone_says_so(path):
    with open_store(path) as store:
        cells = [{"labels": {}, "systems": ["full", "none"], "baseline": "full", "controls": ["full", "none"]}]
        margin = {"value": 0.02, "rule": "given", "score_field": "f1"}
        told = {"cells": cells, "margin": margin, "options": {"seed": 0, "score_field": "f1", "model": "one"}}
        await run(store, "one", [Speller("full", 2), Speller("none", 3)], examples(8), manifest=told)
    async with seen(path) as session:
        address = re.search(r'data-verdicts="([^"]*)"', await text_of(session, "/"))[1]
        assert "controls only" in await text_of(session, html.unescape(address))


async def test_kept_verdicts_are_forgotten_when_scores_rows_or_the_manifest_change(path, tmp_path):
    with open_store(path) as store:
        made = [Speller("full", 2), Speller("short", 3)]
        await run(store, "one", made, examples(12))
        reported(store, "one", tmp_path / "report.json")
        record = run_of(store, "one")
        set_manifest(store, record.id, {**record.manifest, "notes": ["another"]})
        assert kept(store, "one") is None
        reported(store, "one", tmp_path / "report.json")
        await rescore(store, record.id, [Marks()])
        assert kept(store, "one") is None
        reported(store, "one", tmp_path / "report.json")
        assert kept(store, "one") is not None
        await run(store, "one", made, examples(20))
        assert kept(store, "one") is None
        assert run_of(store, "one").rows == 40


async def test_a_copy_takes_the_verdicts_along_and_is_the_same_run_without_them(path, tmp_path):
    with open_store(path) as store, open_store(tmp_path / "t.db") as other:
        await run(store, "one", [Speller("full", 2), Speller("short", 3)], examples(12))
        copy_run(store, other, "one")
        reported(store, "one", tmp_path / "report.json")
        assert copy_run(store, other, "one").there
        with open_store(tmp_path / "third.db") as third:
            copy_run(store, third, "one")
            assert kept(third, "one") == kept(store, "one")


async def test_runs_are_sorted_and_filtered_by_kind_with_watches_among_them(path, tmp_path):
    with open_store(path) as store:
        pair = [Speller("full", 2), Speller("short", 3)]
        about = manifest("full", "short", datasets=[{"name": "nq"}])
        await run(store, "b", pair, examples(12), manifest=about)
        await run(store, "C", pair, examples(6), manifest={**about, "compression": {"probes": {}}})
        await run(store, "a", [Speller("full", 2), Speller("short", 2)], examples(9))
        open_watch(store, {"via": "http://h"}, name="traffic").end()
        for name in ("b", "a"):
            reported(store, name, tmp_path / "report.json")
        changes = {name: kept(store, name)["systems"][0]["change"] for name in ("a", "b")}
        assert changes["b"] < changes["a"]
    async with seen(path) as session:
        assert names(await text_of(session, "/")) == ["traffic", "a", "C", "b"]
        assert names(await text_of(session, "/?sort=name")) == ["a", "b", "C", "traffic"]
        assert names(await text_of(session, "/?sort=rows&order=down")) == ["b", "a", "C", "traffic"]
        assert names(await text_of(session, "/?sort=change"))[:2] == ["b", "a"]
        assert names(await text_of(session, "/?kind=compression")) == ["C"]
        watches = await text_of(session, "/?kind=watch")
        assert names(watches) == ["traffic"]
        assert '<span class="count">0</span><span> turns</span>' in watches
        assert names(await text_of(session, "/?kind=questions&sort=name&order=down")) == ["b", "a"]
        assert names(await text_of(session, "/?q=traf")) == ["traffic"]
        assert "is of this kind" in await text_of(session, "/?kind=nothing")
        assert ">nq</td>" in await text_of(session, "/?q=b")
        assert "expected name, kind" in html.unescape(await text_of(session, "/?sort=luck", 400))


@pytest.mark.parametrize(("change", "shown"), [(0.0, "0.0"), (-0.0004, "0.0"), (0.125, "+12.5"), (-0.01, "−1.0")])
def test_what_is_nought_when_rounded_has_no_sign(change, shown):
    named = {"system": "short", "verdict": "lost", "chip": "", "tone": "bad", "text": "", "control": False}
    system = {**named, "change": change, "saved": {"tokens": change}}
    text = render("verdicts_part.html.j2", told={"systems": [system]})
    assert f">{shown} points<" in text
    assert f">{shown.removeprefix('+')} % tokens saved<" in text


async def test_a_watch_shows_its_models_and_its_money_while_it_runs_and_afterwards(path):
    with open_store(path) as store:
        log = open_watch(store, {}, name="traffic")
        for number, (model, cost, guessed) in enumerate([("<m>", 0.25, None), ("n", None, 0.5), ("<m>", 1.0, None)], 1):
            log.write([Turn(number, "turn", 0.0, model=model, cost=cost, guessed=guessed)], 0)
        log.write([Turn(4, "turn", 0.0)], 0)
        open_watch(store, {"told": {"models": 7, "cost": "dear"}}, name="odd")
        for _ in range(2):
            async with seen(path) as session:
                text = await text_of(session, "/?sort=cost&order=down")
            assert names(text) == ["traffic", "odd"]
            assert ">&lt;m&gt;, n</td>" in text
            assert ">$1.75</td>" in text
            log.end({"via": "http://h"})


async def test_a_watch_is_listed_and_found_by_its_title_and_tags(path):
    with open_store(path) as store:
        open_watch(store, {"title": "Before it", "tags": ["<b>team a", 7]}, name="traffic").end()
        open_watch(store, {"title": 7, "tags": "none"}, name="other").end()
    async with seen(path) as session:
        text = await text_of(session, "/")
        assert names(text) == ["other", "Before it"]
        assert '<span class="tag">&lt;b&gt;team a</span>' in text
        assert 'href="/watch?name=traffic"' in text
        for asked in ("q=before", "q=team", "tag=%3Cb%3Eteam+a"):
            assert names(await text_of(session, f"/?{asked}")) == ["Before it"]
        page = await text_of(session, "/watch?name=traffic")
        assert "<h1>Before it <" in page
        assert '<span class="tag">&lt;b&gt;team a</span>' in page


def plain(page):
    """A page without the elements that keep words whole."""
    return re.sub(r'<span class="whole">([^<]*)</span>', r"\1", page)


async def test_commands_of_pages_name_their_run_and_store_as_a_shell_needs_them(path):
    with open_store(path) as store:
        open_watch(store, {}, name="it's a watch").end()
        await run(store, "it's a run", [Speller("full", 2), Speller("short", 3)], examples(40))
        ident = run_of(store, "it's a run").id
    told = f"--store {shlex.quote(str(path))}"
    async with seen(path) as session:
        page = html.unescape(plain(await text_of(session, "/watch?name=it%27s+a+watch")))
        assert "context-bench watch --show " + shlex.quote("it's a watch") + f" {told}<" in page
        summary = html.unescape(plain(await text_of(session, f"/runs/{ident}/summary?part")))
        commands = re.findall(r"<code>(context-bench .*?)</code>", summary)
        assert commands
        assert all(each.endswith(f" {told}") and shlex.quote("it's a run") in each for each in commands)


def turn(number, **more):
    def record(request):
        return Forwarded(str(number), None, "none", "openai-chat", "POST", "/v1/chat", 0.0, tokens=7, request=request)

    front, call = record({"messages": [{"content": f"sent {number} {HOSTILE}"}]}), record({"messages": ["forwarded"]})
    return Turn(
        number, "turn", 0.0, session=HOSTILE, turn=number, sent=90, forwarded=7, front=front, calls=[call], **more
    )


async def test_a_watch_is_shown_turn_by_turn_as_it_goes_with_what_was_sent_and_forwarded(path):
    with open_store(path) as store:
        log = open_watch(store, {"via": "http://h"}, name="traffic")
        log.write([turn(number) for number in range(1, 53)])
        async with asyncio.timeout(120), seen(path) as session:
            page = await text_of(session, "/watch?name=traffic")
            assert "52 turns" in page
            assert 'data-events="/watch/events?name=traffic"' in page
            assert re.findall(r"number=(\d+)", page) == [str(number) for number in range(52, 2, -1)]
            assert re.findall(r"number=(\d+)", await text_of(session, "/watch?name=traffic&page=2")) == ["2", "1"]
            async with session.get("/watch/events?name=traffic") as stream:
                await _until(stream, "52 turns")
                log.write([turn(53, violations={"tools removed": 2}, failure="no answer")])
                told = await _until(stream, "53 turns")
                log.end()
                await _until(stream, "event: end")
            one = await text_of(session, "/watch/turn?name=traffic&number=53")
            assert "tools removed × 2" in one
            assert "no answer" in one
            assert "sent 53" in one
            assert "forwarded" in one
            for text in (one, told, page):
                assert "<img" not in text
                assert "\x1b" not in text
            assert "number=52" in one
            await text_of(session, "/watch/turn?name=traffic&number=54", 404)
            await text_of(session, "/watch/turn?name=traffic&number=x", 400)
            await text_of(session, "/watch?name=nothing", 404)
