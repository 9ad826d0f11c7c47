"""What the pages show is what the store holds: lists, pages of rows, searches, comparisons, a run as it goes."""

import asyncio
import csv
import html
import io
import json
import operator
import re

import pytest

from context_bench.engine import list_runs, open_store, rows
from context_bench.engine.store import row_lists
from context_bench.session.runs import result_of
from context_bench.viewer import Viewer
from context_bench.viewer.pages import PAGE
from context_bench.viewer.server import shown_place

from .conftest import HOSTILE, Speller, examples, run, session_with


async def text_of(session, address, status=200):
    async with session.get(address) as response:
        text = await response.text()
        assert response.status == status, text
        return text


def shown(text):
    """(place, example id) of the rows in a page, in order."""
    return [
        (place, html.unescape(name)) for place, name in re.findall(r'/rows/(\d+-\d+-\d+)[^"]*">([^<]*)</a></th>', text)
    ]


@pytest.fixture(scope="module")
def first(store_path):
    with open_store(store_path) as store:
        return list(rows(store, "first"))


def places(found):
    """Rows as their places in the plan: arms `full` and `short` are 0 and 1, and positions are the numbers in the
    ids.
    """
    return [f"{('full', 'short').index(row.system)}-{row.example_id.rpartition('-')[2]}-{row.trial}" for row in found]


async def every_place(session, address):
    """The places on all pages, following what leads on."""
    found = []
    while address:
        text = await text_of(session, address)
        found += [place for place, _ in shown(text)]
        following = re.search(r'<a href="([^"]*)" rel="next"', text)
        address = html.unescape(following[1]).partition("#")[0] if following else None
    return found


async def test_runs_newest_first_and_found_by_words(session):
    text = await text_of(session, "/")
    names = [
        name for name in re.findall(r'<a href="/runs/\w+">([^<]*)</a>', text) if name in ("first", "second", "other")
    ]
    assert names == ["other", "second", "first"]
    assert "4 runs" in text
    some = await text_of(session, "/?q=sec")
    assert "1 run<" in some
    assert ">second</a>" in some
    assert "No run has" in await text_of(session, "/?q=%25")
    assert "3 runs" in await text_of(session, "/?q=done+short")


def _known(key, descending):
    """As the pages sort: unknown last either way, equals in plan order."""

    def ordered(found):
        known = [row for row in found if key(row) is not None]
        return sorted(known, key=key, reverse=descending) + [row for row in found if key(row) is None]

    return ordered


ORDERS = {
    "": lambda found: found,
    "sort=score:f1": _known(lambda row: row.scores.get("f1"), False),
    "sort=score:f1&order=down": _known(lambda row: row.scores.get("f1"), True),
    "sort=latency&order=down": _known(lambda row: row.latency, True),
    "sort=sent": _known(lambda row: row.input_tokens, False),
    "sort=dataset": _known(lambda row: row.dataset, False),
    "sort=failure": _known(lambda row: row.errors.get("system"), False),
    "system=short": lambda found: [row for row in found if row.system == "short"],
    "dataset=odd&failed=1": lambda found: [row for row in found if row.dataset == "odd" and row.errors],
    "failed=1&system=full&sort=score:other": lambda found: [
        row for row in found if row.errors and row.system == "full"
    ],
}


@pytest.mark.parametrize("asked", ORDERS)
async def test_sorted_and_filtered_rows_are_those_of_the_store(session, first, asked):
    expected = ORDERS[asked](first)
    if "order=down" in asked:  # `sorted(reverse=True)` keeps equals in order, as the pages do
        assert len(expected) == len(first)
    text = await text_of(session, f"/runs/first?layout=rows&{asked}")
    assert f"of {len(expected):,} rows" in text
    found = await every_place(session, f"/runs/first?layout=rows&{asked}")
    assert len(shown(text)) == min(PAGE, len(expected))
    assert found == places(expected)


def _moved(first, change):
    """Rows of `short` whose f1 stands so against the baseline's, `full`."""
    base = {row.example_id: row.scores.get("f1") for row in first if row.system == "full"}
    tests = {
        "lost": lambda mine, theirs: None not in (mine, theirs) and mine < theirs,
        "gained": lambda mine, theirs: None not in (mine, theirs) and mine > theirs,
        "same": lambda mine, theirs: mine is not None and mine == theirs,
        "failed": lambda mine, theirs: mine is None and theirs is not None,
    }
    own = [row for row in first if row.system == "short"]
    return [row for row in own if tests[change](row.scores.get("f1"), base[row.example_id])]


@pytest.mark.parametrize("change", ["lost", "gained", "same", "failed"])
async def test_rows_are_filtered_by_their_change_against_the_baseline(session, first, change):
    expected = _moved(first, change)
    assert await every_place(session, f"/runs/first?layout=rows&change={change}") == places(expected)
    assert await every_place(session, f"/runs/first?layout=rows&change={change}&system=full") == []
    odd = [row for row in expected if row.dataset == "odd"]
    assert await every_place(session, f"/runs/first?layout=rows&change={change}&dataset=odd") == places(odd)
    assert bool(expected) == (change != "failed")  # here both systems fail alike


async def test_a_system_that_fails_where_the_baseline_does_not_is_found(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        await run(store, "one", [Speller("full", 2, 1000), Speller("short", 2, 4)], examples(12))
    async with Viewer(tmp_path / "s.db", result_of=result_of) as viewer, session_with(viewer) as session:
        assert await every_place(session, "/runs/one?layout=rows&change=failed") == ["1-3-0", "1-7-0", "1-11-0"]
        assert "expected lost, gained" in await text_of(session, "/runs/one?change=stolen", 400)
        assert "expected lost, gained" in await text_of(session, "/runs/one/rows.csv?change=stolen", 400)


async def test_a_list_of_rows_shows_question_expected_answer_and_whether_it_is_right(session):
    text = await text_of(session, "/runs/first?layout=rows&system=short")
    for about, said in (("", "What is the word? (2)"), ("expected", "gold2"), ("answer", "word2 of short")):
        named = f' data-of="{about}"' if about else ""
        assert f'<td class="t said"{named}>{said}</td>' in text
    marked = re.findall(r'class="n (good|bad)" data-of="f1">([0-9.]+)<', text)
    assert {tone for tone, _ in marked} == {"good", "bad"}
    assert all((tone == "good") == (float(figure) >= 0.7) for tone, figure in marked)  # as pass and fail are told
    assert not re.findall(r'class="n (?:good|bad)" data-of="other"', text)


async def test_a_column_for_what_is_expected_is_there_only_where_something_is(tmp_path):
    path = tmp_path / "open.db"
    with open_store(path) as store:
        items = [{**each, "answer": None} for each in examples(3)]
        await run(store, "open", [Speller("full"), Speller("short")], items)
    async with Viewer(path, result_of=result_of) as viewer, session_with(viewer) as session:
        for layout in ("rows", "matrix"):
            text = await text_of(session, f"/runs/open?layout={layout}")
            assert ">question<" in text
            assert "expected" not in text.partition('id="rows"')[2]


class Many:
    """A score for an example that has a number and for one that has none, after many that sort before it."""

    name, version = "many", "1"

    def score(self, original, processed):
        known = {f"a{number:02}": 0.5 for number in range(14)}
        return known if str(original["id"]).endswith("-3") else {**known, "f1": 1.0}


async def test_the_score_that_a_run_is_judged_by_comes_first_and_paper_has_few(tmp_path):
    items = examples(5)
    del items[3]["answer"]
    with open_store(tmp_path / "s.db") as store:
        await run(store, "one", [Speller("full", 2), Speller("short", 2, 3)], items, evaluators=[Many()])
    async with Viewer(tmp_path / "s.db", result_of=result_of) as viewer, session_with(viewer) as session:
        text = await text_of(session, "/runs/one?layout=rows")
        titles = re.findall(r'<th scope="col" class="n( aside)?(?: spare)?"><a[^>]*>(f1|a\d\d)</a></th>', text)
        assert titles == [
            ("", "f1"),
            *((" aside", f"a0{at}") for at in range(9)),
        ]
        assert "Printed: rows 1 to 10 of 10, with 1 of 15 scores." in text
        assert ">{}<" not in text  # what a failed row answered
        place = next(place for place, name in shown(text) if name == "ex-0")
        row = await text_of(session, f"/runs/one/rows/{place}")
        assert '<dl class="scores"><div><dt>f1</dt>' in row
        lines = await text_of(session, "/runs/one")
        assert "<em>open</em>: no f1, as a rule because the example has no gold answer." in lines
        assert '<td class="t said" data-of="expected"><span class="missing">—</span></td>' in lines


async def test_words_that_no_mark_of_the_page_has_are_not_explained(session):
    assert "<em>open</em>" not in await text_of(session, "/runs/first")


async def test_a_row_that_failed_has_no_answer_and_only_then_there_is_a_column_for_failures(session):
    failed = await text_of(session, "/runs/first?layout=rows&failed=1")
    assert ">failure<" in failed
    assert '<td class="t said">{}</td>' not in failed
    assert '<td class="t said" data-of="answer"><span class="missing">—</span></td>' in failed
    assert ">failure<" not in await text_of(session, "/runs/first?layout=rows&change=lost")


async def test_what_is_filtered_is_downloaded_whole(session, first):
    expected = _moved(first, "lost")
    lines = (await text_of(session, "/runs/first/rows.jsonl?change=lost")).splitlines()
    told = [json.loads(line) for line in lines]
    assert [(each["system"], each["example_id"], each["f1"]) for each in told] == [
        (row.system, row.example_id, row.scores["f1"]) for row in expected
    ]
    assert told[0]["question"].startswith("What is the word?")
    assert told[0]["expected"].startswith("gold")
    assert told[0]["answer"].endswith(" of short")
    async with session.get("/runs/first/rows.csv") as response:
        assert response.headers["Content-Disposition"] == 'attachment; filename="rows.csv"'
        assert response.content_type == "text/csv"
        table = list(csv.DictReader(io.StringIO(await response.text())))
    assert [each["example_id"] for each in table] == [row.example_id for row in first]
    assert sum(bool(each["failure"]) for each in table) == sum(bool(row.errors) for row in first)


async def test_no_downloaded_cell_is_a_formula(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        await run(store, "one", [Speller("full")], examples(2, question="=cmd|' /C calc'!A0"))
    async with Viewer(tmp_path / "s.db", result_of=result_of) as viewer, session_with(viewer) as session:
        text = await text_of(session, "/runs/one/rows.csv")
    assert [each["question"][:5] for each in csv.DictReader(io.StringIO(text))] == ["'=cmd"] * 2


async def test_a_search_finds_what_the_rows_say(session, first):
    assert await every_place(session, "/runs/first?layout=rows&q=EX-12") == places(
        row for row in first if "ex-12" in row.example_id
    )
    assert await every_place(session, "/runs/first?layout=rows&q=gold7+word2&system=short") == places(
        row
        for row in first
        if row.system == "short" and re.match(r"ex-7\d?$", row.example_id) and _number(row) % 3 == 2 and not row.errors
    )
    failed = await text_of(session, "/runs/first?layout=rows&q=no+answer+onerror")
    assert len(shown(failed)) == sum(1 for row in first if row.errors)
    assert "Looked at all 260 rows" in failed
    assert "<mark>" in failed
    assert "No row is like that" in await text_of(session, "/runs/first?layout=rows&q=nowhere-to-be-found")


def _number(row):
    return int(row.example_id.rpartition("-")[2])


async def test_a_search_that_stops_early_says_so_and_goes_on(served, session):
    library = served.library
    listed = library.run("first")
    order = row_lists.places(library.store, listed, row_lists.RowQuery())
    ticks = iter(range(10**6))
    some = row_lists.search(library.store, listed, order, "gold", seconds=0.5, monotonic=lambda: float(next(ticks)))
    assert some.stopped == "after 0.5 s"
    assert 0 < some.looked < some.total == len(order)
    assert len(some.hits) == some.looked
    rest = await text_of(session, f"/runs/first?layout=rows&q=gold&from={some.looked}")
    assert f"Looked at the last {some.total - some.looked} rows" in rest


async def test_a_row_its_neighbours_and_the_other_systems(session, first):
    order = places(row for row in first if row.errors)
    text = await text_of(session, f"/runs/first/rows/{order[3]}?failed=1&layout=rows")
    assert f"row 4 of {len(order)}" in text
    assert re.search(rf'/rows/{order[2]}\?failed=1&amp;layout=rows" rel="prev"', text)
    assert re.search(rf'/rows/{order[4]}\?failed=1&amp;layout=rows" rel="next"', text)
    whole = await text_of(session, "/runs/first/rows/1-4-0")
    assert "gold4" in whole
    assert "What is the word? (4)" in whole
    assert "word1 of short" in whole
    assert (
        "All systems&#39; answers to the same example" in whole or "All systems' answers to the same example" in whole
    )
    link = html.unescape(re.search(r'href="(/pair\?[^"]*)"', whole)[1])
    pair = await text_of(session, link)
    assert "word1 of short" in pair
    assert "word0 of full" in pair
    assert "different examples" not in pair


async def test_the_summary_is_the_reports_and_is_not_waited_for(store_path):
    async with Viewer(store_path, result_of=result_of) as fresh, session_with(fresh) as session:
        page = await text_of(session, "/runs/first")
        assert 'data-fragment="/runs/' in page
        assert "Worked out" not in page
        part = await text_of(session, "/runs/first/summary?part")
        assert "<html" not in part
        assert re.search(r"short.*full", part, re.S)
        assert "Manifest" in part
        again = await text_of(session, "/runs/first")
        assert "Worked out" in again
        assert 'class="chipline"' in await text_of(session, "/")


async def test_a_run_whose_summary_fails_leaves_the_list_of_runs_whole(store_path):
    async with Viewer(store_path, result_of=operator.add) as broken, session_with(broken) as session:
        assert "could not be worked out" in await text_of(session, "/runs/first/verdicts?part")
        assert "could not be worked out" in await text_of(session, "/")


async def test_two_runs_compared_pair_by_pair(store_path, session):
    with open_store(store_path) as store:
        ids = {record.name: record.id for record in list_runs(store)}
        one, other = (
            {(row.system, row.example_id): row.scores.get("f1") for row in rows(store, name)}
            for name in ("first", "second")
        )
    both = f"/compare?run={ids['second']}&run={ids['first']}"
    moved = sum(
        1 for key, score in one.items() if key[0] == "short" and None not in (score, other[key]) and score != other[key]
    )
    assert f'data-fragment="/compare?run={ids["first"]}&amp;run={ids["second"]}' in await text_of(
        session, both
    )  # the earlier one first
    told = await text_of(session, f"{both}&wait")
    assert f"{moved} examples got another score" in told
    assert "short before" in told
    pair = html.unescape(re.search(r'href="(/pair\?[^"]*)"', told)[1])
    assert "of short" in await text_of(session, pair)


async def test_runs_that_measured_different_things_are_refused_in_words_and_compared_when_insisted_on(
    store_path, session
):
    with open_store(store_path) as store:
        ids = {record.name: record.id for record in list_runs(store)}
    both = f"/compare?run={ids['first']}&run={ids['other']}"
    refused = await text_of(session, f"{both}&part")
    assert "Not comparable as they are" in refused
    assert "model" in refused
    assert "--force" not in refused
    insisted = html.unescape(re.search(r'href="(/compare\?[^"]*force[^"]*)"', refused)[1])
    assert "Compared although" in await text_of(session, f"{insisted}&part")


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/runs/nope", 404, "nope"),
        ("/nowhere", 404, "no such page"),
        ("/runs/first/rows/9-9-9", 404, "9-9-9"),
        ("/runs/first/rows/0-99999-0", 404, "0-99999-0"),
        ("/runs/first/rows/x", 400, "ARM-POSITION-TRIAL"),
        ("/runs/first/rows/9999999999-9999999999-9999999999", 404, "9999999999"),
        ("/runs/first?sort=nonsense", 400, "cannot be sorted by"),
        ("/runs/first?system=nobody", 404, "nobody"),
        ("/runs/first?page=x", 400, "not a whole number"),
        ("/compare", 400, "two"),
        ("/compare?run=first&run=first", 400, "two"),
        ("/compare?run=first&run=nope", 404, "nope"),
        ("/pair?row=first/0-0-0", 400, "Two rows"),
        ("/pair?row=first&row=second", 400, "names no row"),
    ],
)
async def test_what_is_not_there_is_said_in_words(session, address, status, said):
    assert said in html.unescape(await text_of(session, address, status))


async def test_a_page_beyond_the_last_is_the_last(session, first):
    assert [place for place, _ in shown(await text_of(session, "/runs/first?layout=rows&page=999"))] == places(
        first[250:]
    )


async def test_hostile_texts_are_text_on_every_page(store_path, session):
    with open_store(store_path) as store:
        hostile = next(record for record in list_runs(store) if record.name.startswith("run "))
    pages = [
        "/",
        f"/runs/{hostile.id}",
        f"/runs/{hostile.id}?q=onerror",
        f"/runs/{hostile.id}?q=%3C/script%3E",
        f"/runs/{hostile.id}/summary",
    ]
    pages += [f"/runs/{hostile.id}/rows/0-3-0", f"/pair?row={hostile.id}/0-3-0&row={hostile.id}/0-4-0"]
    pages += ["/?q=" + "%3Cimg+src=x+onerror=alert(1)%3E%1B%5B31m"]
    for address in pages:
        text = await text_of(session, address)
        assert "<img" not in text, address
        assert "\x1b" not in text, address
        assert "\u202e" not in text.replace(HOSTILE, ""), address
        assert not re.search(r"<script(?! src=\"/static/viewer.js\" defer>)", text), address
        assert "49" not in re.findall(r"31m[^<]{0,40}", text)[:1], address
        assert "onerror=alert(1)" in html.unescape(text), address


async def test_a_running_run_tells_how_far_it_is_until_it_ends(tmp_path):
    path, gate = tmp_path / "live.db", asyncio.Event()
    with open_store(path) as store:
        going = asyncio.create_task(run(store, "live", [Speller("full"), Speller("short", gate=gate)], examples(16)))
        async with Viewer(path, result_of=result_of) as viewer, session_with(viewer) as session:
            async with asyncio.timeout(120):
                while ">live<" not in await text_of(session, "/"):
                    pass
            page = await text_of(session, "/runs/live")
            assert ">running</span>" in page
            assert 'data-events="/runs/' in page
            async with session.get("/runs/live/events") as stream:
                assert stream.content_type == "text/event-stream"
                told = await _until(stream, "16 of 16", "5 of 16")
                assert '<progress max="16" value="5"' in told
                gate.set()
                ended = await _until(stream, "event: end")
                assert ended.endswith("data: done")
            await going
            assert ">done</span>" in await text_of(session, "/runs/live")
            async with session.get("/runs/live/events") as stream:
                whole = (await stream.read()).decode()
                assert whole.count("16 of 16") == 2
                assert whole.rstrip().endswith("event: end\ndata: done")


async def _until(stream, *wanted):
    """The first event that has all of these in it."""
    async with asyncio.timeout(120):
        while True:
            event = (await stream.content.readuntil(b"\n\n")).decode().strip()
            if all(each in event for each in wanted):
                return event


def test_a_store_is_named_without_the_folders_above_here_and_home(tmp_path, monkeypatch):
    (tmp_path / "home" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home" / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert shown_place(str(tmp_path / "home" / "here" / "store.db")) == "store.db"
    assert shown_place(str(tmp_path / "home" / "store.db")) == "~/store.db"
    assert shown_place("/elsewhere/store.db") == "/elsewhere/store.db"
    assert shown_place("postgresql://host/base") == "postgresql://host/base"
