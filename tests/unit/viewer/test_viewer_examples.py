"""Examples as lines, one an example with every system's answer: filters against the baseline, orders, downloads."""

import csv
import html
import io
import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from context_bench.engine import open_store, rows
from context_bench.session.runs import result_of
from context_bench.viewer import Viewer
from context_bench.viewer.pages import PAGE

from .conftest import EXAMPLES, HOSTILE, Speller, examples, manifest, run, session_with
from .test_viewer_pages import _moved, text_of


@pytest.fixture(scope="module")
def first(store_path):
    with open_store(store_path) as store:
        return list(rows(store, "first"))


def lines(text):
    """Example → its cells, in order: what each system's answer says first."""
    found, table = {}, text.partition('class="rows matrix"')[2]
    for line in re.findall(r"<tr><th scope=\"row\">.*?</tr>", table, re.DOTALL):
        name = html.unescape(re.search(r">([^<]*)</a></th>", line)[1])
        found[name] = [html.unescape(re.sub("<[^>]*>", " ", cell)).split() for cell in line.split("<td")[2:]]
    return found


def of(found, system):
    return {row.example_id: row for row in found if row.system == system}


async def test_a_line_holds_an_example_with_the_answer_of_every_system_and_whether_it_passed(session, first):
    text = await text_of(session, "/runs/first")
    found = lines(text)
    assert len(found) == PAGE
    assert f"1–{PAGE} of {EXAMPLES} examples" in text
    full, short = of(first, "full"), of(first, "short")
    at = next(name for name in found if full[name].scores.get("f1", 0) < 0.7 <= short[name].scores.get("f1", 0))
    _, expected, one, other = found[at]
    assert expected[-1].partition(">")[2] == f"gold{at[3:]}"
    assert "fail" in one
    assert "pass" in other
    assert "gained" in other
    assert "gained" not in one
    assert "short" in other
    failed = found["ex-16"]
    assert all("failed" in cell for cell in failed[2:])
    assert "f1 of at least 0.7" in re.sub("<[^>]*>", "", text)


async def test_a_row_is_coloured_by_whether_it_passes_as_its_line_of_an_example_says(session, first):
    text = await text_of(session, "/runs/first?layout=rows")
    shown = re.findall(r'<td class="n (good|bad)"[^>]*>([\d.]+)</td>', text)
    assert {float(score) >= 0.7 for tone, score in shown if tone == "good"} == {True}
    assert {float(score) < 0.7 for tone, score in shown if tone == "bad"} == {True}
    scored = [row for row in first[:PAGE] if "f1" in row.scores]
    assert len(shown) == len(scored) > 0


@pytest.mark.parametrize(
    "asked", ["change=lost", "change=gained", "failed=1", "q=gold1&sort=of%3Ashort", "system=short"]
)
async def test_from_a_line_of_the_list_one_goes_on_to_the_next_line(session, asked):
    listed = await text_of(session, f"/runs/first?{asked}")
    order = list(lines(listed))
    total = int(re.search(r"of ([\d,]+) examples", listed)[1])
    assert total == len(order) or len(order) == PAGE
    address = html.unescape(re.search(r'<th scope="row"><a href="([^"]*)"', listed.partition("matrix")[2])[1])
    walked, back = [], []
    while address and len(walked) < len(order):
        text = await text_of(session, address)
        walked.append(html.unescape(re.search(r"<h1>([^<]*) <span", text)[1]))
        assert f"example {len(walked)} of {total}" in text
        address, last = _leads(text, "next"), address
    assert walked == order
    while last:
        back.append(html.unescape(re.search(r"<h1>([^<]*) <span", text := await text_of(session, last))[1]))
        last = _leads(text, "prev")
    assert back == order[::-1]


def _leads(text, where):
    found = re.search(rf'<a href="([^"]*)" rel="{where}"', text)
    return html.unescape(found[1]) if found else None


async def test_the_next_line_is_told_of_the_same_system_where_it_has_a_row(session, first):
    lost = [row.example_id for row in _moved(first, "lost")]
    one, other = (f"1-{name.rpartition('-')[2]}-0" for name in lost[:2])
    text = await text_of(session, f"/runs/first/rows/{one}?change=lost")
    assert f"/rows/{other}?change=lost" in text
    of_baseline = await text_of(session, f"/runs/first/rows/0{one[1:]}?change=lost")
    assert f"/rows/0{other[1:]}?change=lost" in of_baseline


@pytest.mark.parametrize("change", ["lost", "gained", "same"])
async def test_examples_are_those_whose_score_moved_so(session, first, change):
    expected = [row.example_id for row in _moved(first, change)]
    found = {}
    for page in range(1, 4):
        found |= lines(await text_of(session, f"/runs/first?change={change}&page={page}"))
    assert list(found) == expected
    if change != "same":
        assert all(change in cells[-1] for cells in found.values())


async def test_examples_are_sorted_by_the_score_of_a_system_unknown_last(session, first):
    short = of(first, "short")
    known = [row for row in short.values() if "f1" in row.scores]
    for order, down in (("", False), ("&order=down", True)):
        expected = [row.example_id for row in sorted(known, key=lambda row: row.scores["f1"], reverse=down)]
        expected += [name for name in short if "f1" not in short[name].scores]
        assert list(lines(await text_of(session, f"/runs/first?sort=of:short{order}"))) == expected[:PAGE]
    found = list(lines(await text_of(session, "/runs/first?sort=of:short&change=lost")))
    lost = [row.example_id for row in _moved(first, "lost")]
    assert found == sorted(lost, key=lambda name: short[name].scores["f1"])[:PAGE]
    assert "nothing" in html.unescape(await text_of(session, "/runs/first?sort=of:nothing", 404))


async def test_one_system_is_shown_beside_its_baseline(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        systems = [Speller("other", 4), Speller("full", 2), Speller("short", 3)]
        told = manifest("full", "other", "short")
        await run(store, "one", systems, examples(6), manifest=told)
    async with Viewer(tmp_path / "s.db", result_of=result_of) as viewer, session_with(viewer) as session:
        everyone = await text_of(session, "/runs/one")
        pair = await text_of(session, "/runs/one?system=short")
    heads = [re.findall(r"sort=of%3A(\w+)", text) for text in (everyone, pair)]
    assert heads == [["full", "other", "short"], ["full", "short"]]


async def test_lost_is_what_the_systems_of_the_user_lost_and_a_control_is_asked_for_by_name(tmp_path):
    cells = [{"labels": {}, "systems": ["full", "none", "mine"], "baseline": "full", "controls": ["full", "none"]}]
    with open_store(tmp_path / "s.db") as store:
        systems = [Speller("full", 1), Speller("none", 6), Speller("mine", 2)]
        await run(store, "one", systems, examples(16), manifest=manifest("full", "none", "mine", cells=cells))
    async with Viewer(tmp_path / "s.db", result_of=result_of) as viewer, session_with(viewer) as session:
        lost = lines(await text_of(session, "/runs/one?change=lost"))
        control = lines(await text_of(session, "/runs/one?change=lost&system=none"))
        heads = re.findall(r"sort=of%3A(\w+)", await text_of(session, "/runs/one"))
    assert {int(name[3:]) % 2 for name in lost} == {1}
    assert "ex-2" in control
    assert heads == ["full", "mine", "none"]


async def test_lines_are_downloaded_as_they_are_filtered_in_three_forms(session, first):
    expected = [row.example_id for row in _moved(first, "lost")]
    asked = "change=lost&layout=matrix"
    told = [json.loads(line) for line in (await text_of(session, f"/runs/first/rows.jsonl?{asked}")).splitlines()]
    assert [each["example_id"] for each in told] == expected
    assert json.loads(await text_of(session, f"/runs/first/rows.json?{asked}")) == told
    mine = told[0]["answers"][1]
    assert [mine["system"], mine["change"]] == ["short", "lost"]
    assert mine["score"] == of(first, "short")[expected[0]].scores["f1"]
    table = list(csv.DictReader(io.StringIO(await text_of(session, f"/runs/first/rows.csv?{asked}"))))
    assert [each["example_id"] for each in table] == expected
    assert {each["short: change"] for each in table} == {"lost"}
    assert table[0]["full: answer"] == told[0]["answers"][0]["answer"]
    assert json.loads(await text_of(session, "/runs/first/rows.json?q=zzzzzz")) == []
    assert len(json.loads(await text_of(session, "/runs/first/rows.json"))) == 2 * EXAMPLES


async def test_a_search_shows_where_in_the_line_of_its_example(session):
    text = await text_of(session, "/runs/first?q=word2+short")
    assert "<mark>word2</mark>" in text
    found = lines(text)
    assert all("short" in cells[-1] for cells in found.values())


async def test_hostile_names_of_systems_and_texts_stay_text_in_lines(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        nasty = [{**each, "id": f"{HOSTILE}-{n}", "question": HOSTILE} for n, each in enumerate(examples(20))]
        await run(store, "one", [Speller(f"a {HOSTILE}"), Speller(f"b {HOSTILE}", 2)], nasty)
    async with Viewer(tmp_path / "s.db", result_of=result_of) as viewer, session_with(viewer) as session:
        text = await text_of(session, "/runs/one")
        assert text.count('class="mark') == 40
        assert "<img" not in text
        shown = re.sub(r' value="[^"]*"', "", text)  # what a form sends is the name itself
        assert not {"\x1b", "\u202e"} & set(shown)


def links(text):
    """Address → what the link says of itself, of all links in drawings."""
    found = re.findall(r'<a href="([^"]*)" aria-label="([^"]*)"[^>]*><(?:path|circle|rect|line)', text)
    return {html.unescape(address): html.unescape(name) for address, name in found}


async def test_marks_of_charts_lead_to_their_rows(session, first):
    text = await text_of(session, "/runs/first/summary?part")
    found = links(text)
    run = re.search(r"/runs/(\w+)\?", next(iter(found)))[1]
    difference = next(address for address in found if "change=" in address and "dataset" not in address)
    assert f"/runs/{run}?system=short&change=gained" in difference or "change=lost" in difference
    assert found[difference].startswith("Rows: short")
    change = re.search(r"change=(\w+)", difference)[1]
    shown = lines(await text_of(session, difference.partition("#")[0]))
    assert list(shown) == [row.example_id for row in _moved(first, change)][:PAGE]
    failures = next(address for address in found if "failed=1" in address and "full" in address)
    listed = await text_of(session, failures.partition("#")[0] + "&layout=rows")
    assert f"of {sum(bool(row.errors) for row in first if row.system == 'full')} rows" in listed
    slowest = next(address for address in found if "sort=latency" in address)
    assert 'aria-sort="descending"' in await text_of(session, slowest.partition("#")[0])
    for address in found:
        assert address.startswith(f"/runs/{run}?system=")
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        assert ('role="group"' in drawing[:400]) == ("<a " in drawing)
        assert "data-rows" not in drawing


async def test_every_bar_of_changes_leads_to_as_many_examples_as_it_stands_for(session, first):
    found = links(await text_of(session, "/runs/first/summary?part"))
    bars = {address: name for address, name in found.items() if re.search(r"change=(lost|gained)%3A", address)}
    assert len(bars) > 3
    count = 0
    for address, name in bars.items():
        kind, number = re.search(r"change=(\w+)", address)[1], int(re.search(r"short: (\d+) ", name)[1])
        text = await text_of(session, address.partition("#")[0])
        assert f"of {number} examples" in text
        assert re.search(rf'<option value="{kind}:[^"]*" selected>{kind} by ', text)
        count += number
    moved = [row for change in ("lost", "gained") for row in _moved(first, change)]
    assert count == len(moved)


async def test_a_difference_in_a_kind_of_question_leads_to_the_examples_of_that_kind(tmp_path):
    kinds = ["when", "who & <where>"]
    asked = [{**each, "qa_type": kinds[at % 3 == 0]} for at, each in enumerate(examples(60))]
    with open_store(tmp_path / "s.db") as store:
        await run(store, "one", [Speller("full", 2), Speller("short", 3)], asked)
        made = list(rows(store, "one"))
    moved = {change: _moved(made, change) for change in ("lost", "gained")}
    async with Viewer(tmp_path / "s.db", result_of=result_of) as viewer, session_with(viewer) as session:
        found = links(await text_of(session, "/runs/one/summary?part"))
        marks = [address for address in found if "kind=" in address]
        assert {parse_qs(urlsplit(address).query)["kind"][0] for address in marks} == set(kinds)
        for address in marks:
            kind, change = (parse_qs(urlsplit(address).query)[name][0] for name in ("kind", "change"))
            expected = [row.example_id for row in moved[change] if row.metadata["qa_type"] == kind]
            text = await text_of(session, address.partition("#")[0])
            assert expected
            assert list(lines(text)) == expected
            assert f"of {len(expected)} examples" in text
            assert f'<option value="{html.escape(kind)}" selected>' in text
        everything = await text_of(session, "/runs/one?layout=rows&kind=when")
        assert f"of {2 * sum(each['qa_type'] == 'when' for each in asked)} rows" in everything
        assert "no examples" in await text_of(session, "/runs/one?kind=nobody")
        failed = await text_of(session, "/runs/one?layout=rows&failed=1&kind=when")
        assert f"of {sum(row.failed and row.metadata['qa_type'] == 'when' for row in made)} rows" in failed


@pytest.mark.parametrize(
    "change",
    ["lost:", "lost:1", "lost:a:b", "lost:0.2:0.1", "same:0:1", "failed:0:1", "lost:nan:1", "lost:0:1:2", ":0:1"],
)
async def test_a_change_that_cannot_be_asked_is_told(session, change):
    text = await text_of(session, f"/runs/first?change={change}", 400)
    assert "lost:LESS:MORE" in text


async def test_marks_of_hostile_systems_lead_to_their_rows_and_nowhere_else(tmp_path):
    with open_store(tmp_path / "s.db") as store:
        systems = [Speller(f"a {HOSTILE}"), Speller(f"b {HOSTILE}", 2)]
        told = manifest(*(each.name for each in systems))
        await run(store, "one", systems, examples(40), manifest=told)
    async with Viewer(tmp_path / "s.db", result_of=result_of) as viewer, session_with(viewer) as session:
        text = await text_of(session, "/runs/one/summary?part")
        found = links(text)
        assert found
        assert "<img" not in text
        assert "\x1b" not in text
        assert all(re.match(r"/runs/\w+\?", address) for address in found)
        for address in list(found)[:3]:
            await text_of(session, address.partition("#")[0])
