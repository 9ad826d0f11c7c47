"""The page of a row, by family: runs that commands made, read over HTTP as a browser reads them."""

import asyncio
import html
import importlib.util
import re
import socket
from pathlib import Path

import aiohttp
import pytest

from context_bench.agents.datasets import SCRIPT
from context_bench.cli.app import run_line
from context_bench.core.families import StoredRow, row_parts
from context_bench.core.records import EvalRow, Forwarded
from context_bench.engine import list_runs, open_store, open_watch, run_of
from context_bench.reports.detail import detail_html
from context_bench.session.runs import result_of
from context_bench.viewer import Viewer
from context_bench.wire.turns import Turn

TESTS = Path(__file__).parents[1]
TINY_AGENT = TESTS.parent / "examples" / "tiny_agent.py"
_spec = importlib.util.spec_from_file_location("trace_fixtures", TESTS / "unit" / "traces" / "trace_fixtures.py")
fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fixtures)
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e{{ 7*7 }}"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pages(run, *rows):
    """The pages of rows, each named by its system and position, of a run in the store of this folder."""
    with open_store("store.db") as store:
        record = run_of(store, run)
    addresses = [f"/runs/{record.id}/rows/{record.systems.index(system)}-{at}-0" for system, at in rows]
    return fetched(*addresses)


def fetched(*addresses):
    """Pages of the viewer of the store in this folder, by their paths."""

    async def read():
        jar = aiohttp.CookieJar(unsafe=True)
        async with (
            Viewer("store.db", result_of=result_of) as viewer,
            aiohttp.ClientSession(viewer.address, cookie_jar=jar) as session,
        ):
            await (await session.get(viewer.url)).read()
            found = []
            for address in addresses:
                async with session.get(address) as response:
                    assert response.status == 200, address
                    assert "script-src 'self'" in response.headers["Content-Security-Policy"]
                    found.append(await response.text())
            return found

    return asyncio.run(read())


def part(page, title):
    """The part of a page under a title, without its tags."""
    found = re.search(rf'<section class="part">\s*<h4>{re.escape(title)}.*?</section>', page, re.S)
    assert found, f"no part {title!r}"
    return html.unescape(re.sub("<[^>]+>", "\t", found[0]))


MEMORY = ("memory", "--dataset", "bundled:recall-lab:turns=40", "-n", "1", "--reader", "none", "--k", "1,3", "--quiet")


def test_a_memory_shows_its_hits_with_gold_ticked_and_what_it_missed(place):
    line = [*MEMORY, "--system", "bm25", "--store", "store.db", "--run", "m"]
    assert run_line(line) == 0
    single, chain, all_of_it = pages("m", ("bm25", 0), ("bm25", 1), ("oracle", 1))
    found = part(single, "What was found")
    assert re.search(r"\t1\t.*?\t✓ yes\t.*?Leander Branbrook walks a puppy", found, re.S), "the first hit is the gold"
    assert "2023-09-29 08:00" in found
    assert "s14:1" in found
    assert re.search(r"\t5\.11\d\t", found), "the memory's own score"
    assert "Gold that was missed" not in single
    missed = part(chain, "Gold that was missed: 3 of 4")
    assert missed.count("Tobias Yarcombe:") == 3
    assert "2024-02-01 08:01:20" in missed
    assert part(all_of_it, "What was found").count("✓") == 4
    assert "What the system made of the context" not in single


ODD_MEMORY = f'''
class Odd:
    """Gives back hostile texts, and says nothing of where they come from."""

    def add(self, items):
        pass

    def search(self, query, k):
        return [{{"text": {HOSTILE!r} * 40, "score": 0.5}}] * 2

    def reset(self):
        pass
'''


def test_hits_without_sources_are_not_taken_for_missed_gold_and_do_nothing(place):
    (place / "odd_memory.py").write_text(ODD_MEMORY)
    assert (
        run_line(
            [
                *MEMORY,
                "--system",
                "py:odd_memory:Odd",
                "--no-floors",
                "--score-field",
                "hit_count",
                "--store",
                "store.db",
                "--run",
                "m",
            ]
        )
        == 0
    )
    (page,) = pages("m", ("py:odd_memory:Odd", 0))
    assert "none can be ticked" in part(page, "What was found")
    assert "Gold that was missed" not in page
    assert "Leander Branbrook walks a puppy" in part(page, "Gold, found or not")
    assert "<img" not in page
    assert "\x1b" not in page
    assert "{{ 7*7 }}" in part(page, "What was found")
    assert "show " in part(page, "What was found"), "long hits are folded"


def test_a_compressor_shows_its_text_with_facts_kept_or_lost_and_where_they_stood(place):
    line = ["compress", "run", "bundled:sessions/invoice-service-en", "--system", "anchored", "--types", "recall"]
    assert run_line([*line, "--per-type", "1", "--quiet", "--store", "store.db", "--run", "c"]) == 0
    kept, lost, whole = pages("c", ("anchored", 0), ("none", 0), ("full", 0))
    facts = part(kept, "Facts asked about")
    assert re.search(
        r"relay\.internal:2525\t.*✓ yes.*✓ yes.*message 4 of \d+ \(tool\).*two replicas since", facts, re.S
    )
    text = part(kept, "The compressed text")
    assert re.search(r"48,976 tokens became \d+\. Facts that are still there are marked", text)
    assert '<mark class="good">relay.internal:2525</mark><span class="label"> kept' in kept
    assert "Tokens sent" not in kept, "nothing of the example was sent as it is"
    assert "✗ no" in part(lost, "Facts asked about")
    assert "<mark" not in lost
    assert "became 0. None of the facts is there." in part(lost, "The compressed text")
    assert "Tool calls count as JSON here, forwarded tokens as text." in text
    assert len(whole) < 1_000_000
    assert "more characters" in part(whole, "The compressed text"), "what lies between the marks is folded"


ODD_COMPRESSOR = f"""
class Odd:
    def compress(self, text):
        return {HOSTILE!r} * 50
"""


def test_a_hostile_compressed_text_does_nothing(place):
    (place / "odd_compressor.py").write_text(ODD_COMPRESSOR)
    line = [
        "compress",
        "run",
        "bundled:sessions/invoice-service-en",
        "--system",
        "py:odd_compressor:Odd",
        "--types",
        "recall",
    ]
    more = ["--per-type", "1", "--controls", "none", "--quiet", "--store", "store.db", "--run", "c"]
    assert run_line([*line, *more]) in (0, 4)
    (page,) = pages("c", ("py:odd_compressor:Odd", 0))
    assert "<img" not in page
    assert "\x1b" not in page
    assert "{{ 7*7 }}" in part(page, "The compressed text")


def steps(page):
    """Title and text of each step of a page's transcript."""
    found = re.findall(r'<details class="step".*?</details>\n', page[page.index("<h4>Transcript") :], re.S)
    return [html.unescape(re.sub("<[^>]+>", "\t", each)) for each in found]


def agent(script, *more):
    words = ["agent", "bundled:repo-tasks:split-parsing", "--arm", "base=", "--no-nothing", "--price", "scripted=1,2"]
    kept = [
        "--store",
        "store.db",
        "--run",
        "a",
        "--quiet",
        "--upstream",
        f"scripted:{script}",
        "--tap",
        str(free_port()),
    ]
    return run_line([*words, *kept, *more, "--", "python3", str(TINY_AGENT), "{instruction}"])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_agent_shows_its_diff_whole_and_a_transcript(place):
    assert agent(SCRIPT) == 0
    (page,) = pages("a", ("base", 0))
    diff = part(page, "The diff")
    assert "Solved: the task's tests pass." in diff
    assert '<span class="line added">+' in page
    told = steps(page)
    assert "The task" in told[0]
    assert "You work in a git repository" in told[0]
    assert re.search(r"Turn 1\t.*in \t\d+\t.*out \t\d+\t.*cost \t\$0\.0", told[1], re.S)
    assert "\tsaid\t" in told[1]
    assert "\tcame back\t" in told[1]
    assert "[exit status 0]" in told[1]
    assert "Sent and forwarded" not in page, "the transcript stands for it"
    assert page.count("You work in a git repository") == 1, "what each request repeats is told once"


def test_an_agent_without_bodies_says_which_option_keeps_them(place):
    assert agent(SCRIPT, "--bodies", "none") == 0
    (page,) = pages("a", ("base", 0))
    assert "run with --bodies all" in part(page, "Transcript")
    assert "The diff" in page


def test_tools_with_hostile_outputs_are_shown_by_their_calls():
    call = {"id": "c1", "type": "function", "function": {"name": f"read {HOSTILE}", "arguments": '{"path": "a.py"}'}}
    first = [{"role": "system", "content": "Be careful."}, {"role": "user", "content": "Mend it."}]
    answer = {"role": "assistant", "content": HOSTILE, "tool_calls": [call]}
    second = [*first, answer, {"role": "tool", "tool_call_id": "c1", "content": HOSTILE * 100}]
    exchanges = [
        {
            "turn": 1,
            "forwarded": {"messages": first},
            "reply": {"choices": [{"message": answer}]},
            "wires": [None, "openai-chat"],
        },
        {"turn": 2, "forwarded": {"messages": second}, "wires": [None, "openai-chat"]},
    ]
    usage = {"usage": {"input_tokens": 9, "output_tokens": 2, "cache_read": 5}, "status": 200}
    row = EvalRow("base", "t", {})
    stored = StoredRow(
        row,
        {},
        {"response": "+new\n-old\n", "solved": False, "reason": "2 of 3 tests failed"},
        {"exchanges": exchanges, "calls": [usage] * 2},
    )
    made = row_parts({"agents": {"arms": []}}, stored)
    page = str(detail_html(row, {"parts": made}))
    assert "<img" not in page
    assert "\x1b" not in page
    _, turn, _ = steps(page)
    assert "from cache \t5" in turn
    assert '{"path": "a.py"}' in turn
    assert " gave\t" in turn
    assert turn.count("calls read") == 1
    assert "Not solved. 2 of 3 tests failed" in html.unescape(page)


def test_a_recorded_run_shows_what_its_calls_looked_at_and_the_gold_that_was_missed(place):
    fixtures.repository(place)
    fixtures.gold_file(place)
    fixtures.session(place / "logs", "claude_stream_json")
    line = [
        "trace",
        "score",
        "--gold",
        "gold.jsonl",
        "--repo",
        "repo.json",
        "--trace",
        "claude=logs/claude_stream_json",
    ]
    assert run_line([*line, "--out-dir", "scored"]) == 0
    (place / "store.db").symlink_to(place / "scored" / "store.db")
    with open_store("store.db") as store:
        (record,) = list_runs(store)
    (page,) = fetched(f"/runs/{record.id}/rows/0-0-0")
    assert re.search(r"\d+ of \d+ lines were not read", part(page, "Gold that was missed"))
    told = steps(page)
    assert any("src/calc.py" in each for each in told)
    assert "trace show LOG" in part(page, "Transcript")


TWO = f"""
class Right:
    def process(self, example):
        return {{**example, "response": example["answer"]}}


class Wrong:
    def process(self, example):
        return {{**example, "response": {HOSTILE!r} + "no " * 400}}
"""


def test_a_question_shows_the_answers_of_all_systems_side_by_side(place):
    (place / "two.py").write_text(TWO)
    line = ["--dataset", "bundled:pydocs-qa", "-n", "1", "--system", "py:two:Right"]
    line += ["--system", "py:two:Wrong"]
    assert run_line([*line, "--controls", "", "--quiet", "--store", "store.db", "--run", "q"]) in (0, 4)
    with open_store("store.db") as store:
        one, other = (name for name in run_of(store, "q").systems if name.endswith(("Right", "Wrong")))
    right, wrong = pages("q", (one, 0), (other, 0))
    for page in (right, wrong):
        table = html.unescape(re.sub("<[^>]+>", "\t", page[page.index('id="others"') :]))
        assert "✓ pass" in table
        assert "✗ fail" in table
        assert "{{ 7*7 }}" in table
        assert "more characters" in table
        assert "<img" not in page
        assert "\x1b" not in page
    assert right.index("this row") < right.index(other, right.index('id="others"'))


def test_a_turn_of_a_watch_shows_what_was_taken_out_and_put_in(place):
    def record(texts):
        request = {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}
        return Forwarded("1", None, "none", "openai-chat", "POST", "/v1/chat", 0.0, tokens=7, request=request)

    front, call = record(["Keep this sentence, and this one.", HOSTILE]), record(["Keep this sentence.", "Put in."])
    turn = Turn(1, "turn", 0.0, sent=9, forwarded=5, front=front, calls=[call], bill_alone=0.002, bill_through=0.001)
    bare = Turn(2, "turn", 0.0, sent=9, forwarded=5, front=Forwarded(**{**as_fields(front), "request": None}))
    with open_store("store.db") as store:
        log = open_watch(store, {"via": "http://h"}, name="w")
        log.write([turn, bare])
        log.end()
    page, without = fetched("/watch/turn?name=w&number=1", "/watch/turn?name=w&number=2")
    assert "What became of the request" in page
    assert re.search(r"<del>[^<]*and this one", page)
    assert "<ins>" in page
    assert "Bill through it" in page
    assert "<img" not in page
    assert "What became of the request" not in without
    assert "bodies are kept where the watch was told to" in without


def as_fields(record):
    return {name: getattr(record, name) for name in Forwarded.__dataclass_fields__}
