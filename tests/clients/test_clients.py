"""Real clients behind a watch, against a provider that keeps books: what is printed is what was billed, whatever goes
wrong on the way.
"""

import asyncio
import importlib.util
import json
import os
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

from context_bench.core.tokens import counter_for
from context_bench.wire.apis import parse_request
from context_bench.wire.request import count_request

from . import playing
from .playing import CLIENTS

#: One reply with two calls, one with a long file, one with little.
LOOK = (["read README.md", "ls"], ["read fares.py"], ["git log --oneline"])
ENDS = "The project knows what a ferry costs."
GUIDE = playing.ROOT / "docs" / "guide" / "watch.md"


def client(name, *marks):
    return pytest.param(name, marks=[pytest.mark.vendor(CLIENTS[name].vendor), *marks], id=name)


def looks(name):
    """The scene in which a client looks around; a title asked for on the way is given. Aider has no tools: it is told
    something.
    """
    played = CLIENTS[name]
    titles = {"when": {"system": "(?i)title generator|title that captures"}, "text": "Ferries"}
    return [titles, *(played.scene(LOOK, ENDS) if played.shell else [])]


async def play(room, port, name, *more):
    """One client, from its start to its end: (the report, what was written on the terminal)."""
    played = CLIENTS[name]
    process = await room.start(port, name, *more or played.argv, env=room.env(played))
    code, written = await room.ended(process)
    assert code == 0, written
    return room.report(), written


def same_money(report, told):
    """Whether the report bills what the books say, token by token and in USD."""
    total, used = report["total"], [entry.usage for entry in told]
    billed = total["billed"]
    assert billed["input"] == sum(usage.input_tokens for usage in used)
    assert billed["output"] == sum(usage.output_tokens for usage in used)
    assert billed["cache_read"] == sum(usage.cache_read for usage in used)
    assert billed.get("cache_write", 0) == sum(usage.cache_write or 0 for usage in used)
    assert total["cost"] == pytest.approx(sum(entry.cost for entry in told), abs=1e-9)


def sessions(report):
    """Turns of each session; `-` is where requests without one are."""
    return sorted(figures["turns"] for name, figures in report["sessions"].items() if name != "-" and figures["turns"])


@pytest.mark.parametrize("name", [client("claude", pytest.mark.short), *map(client, ("codex", "opencode", "mini"))])
async def test_requests_tokens_and_money_are_the_providers(room, free_port, name):
    async with room(*looks(name)) as there:
        report, written = await play(there, free_port, name)
        books = there.provider.books
        left = there.leave(name, CLIENTS[name], "")
    assert len(books) >= len(LOOK) + 1, written
    assert report["total"]["turns"] == len(books)
    assert sessions(report) == [len(books)]
    assert report["total"]["failed"] == report["total"]["repeats"] == 0
    assert report["total"]["billed"]["cache_read"] > 0
    same_money(report, there.provider.told)
    assert len((left / "records.jsonl").read_text().splitlines()) == len(books)


@pytest.mark.parametrize("name", [client("aider")])
async def test_calls_that_tell_no_usage_are_turns_and_the_money_is_that_of_those_that_do(room, free_port, name):
    async with room(*looks(name)) as there:
        report, _ = await play(there, free_port, name)
        books = there.provider.books
    assert report["total"]["turns"] == len(books) >= 1
    assert report["total"]["calls_without_usage"] == sum(not entry.told for entry in books) >= 1
    assert report["total"]["cost_predicted"] > 0
    if there.provider.told:
        same_money(report, there.provider.told)


@pytest.mark.parametrize("name", [client("aider")])
async def test_the_tap_goes_before_what_a_file_of_the_folder_says(room, free_port, name):
    async with room(*looks(name)) as there:
        (there.folder / "work" / ".env").write_text("OPENAI_BASE_URL=http://127.0.0.1:1/v1\n")
        report, written = await play(there, free_port, name)
    assert report["total"]["turns"] >= 1
    assert f"aider: started with --set-env OPENAI_BASE_URL=http://127.0.0.1:{free_port}/v1" in written


@pytest.mark.parametrize("name", [client("gemini")])
async def test_an_api_that_is_not_read_is_passed_on_and_counted_as_other(room, free_port, name):
    async with room() as there:
        env = there.env(CLIENTS[name])
        (there.home / ".gemini").mkdir()
        (there.home / ".gemini" / "settings.json").write_text(
            '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'
        )
        process = await there.start(free_port, name, *CLIENTS[name].argv, env=env)
        _, written = await there.ended(process)
        paths = [request.path for request in there.server.requests]
    assert [path for path in paths if "enerateContent" in path], written
    assert "not read" in written
    assert there.report()["total"]["other"] == len(paths)


@pytest.mark.parametrize("name", [client("claude")])
async def test_a_sub_agent_is_part_of_its_session_and_everything_is_billed_once(room, free_port, name):
    played = CLIENTS[name]
    agent = {
        "name": "Agent",
        "id": "call_agent",
        "arguments": {"description": "look", "prompt": "SUBWORK: read it", "subagent_type": "general-purpose"},
    }
    inner = played.scene([["read fares.py"]], "Four hundred fares.", when={"text": "SUBWORK"})
    asked = [{"when": {"step": 0}, "text": "I ask.", "tool_calls": [agent]}, {"when": {"step": 1}, "text": ENDS}]
    async with room(*inner, *asked) as there:
        report, _ = await play(there, free_port, name)
        left = there.leave("claude-agent", played, "")
    assert report["total"]["turns"] == len(there.provider.books) == 4
    assert sessions(report) == [4]
    [session] = [figures for figures in report["sessions"].values() if figures["turns"]]
    assert sorted(figures["turns"] for figures in session["contexts"].values()) == [2, 2]
    same_money(report, there.provider.told)
    assert list(left.glob("log/projects/*/*/subagents/agent-*.jsonl"))


@pytest.mark.vendor("clients")
async def test_three_clients_at_once_are_three_sessions(room, free_port):
    names = ("claude", "claude", "codex")
    async with room(
        *(
            dict(rule, when={**rule["when"], "wire": wire})
            for name, wire in (("claude", "anthropic"), ("codex", "openai-responses"))
            for rule in CLIENTS[name].scene(LOOK, ENDS)
        )
    ) as there:
        env = there.env(CLIENTS["claude"])
        watch = await there.start(free_port, env=env)
        await listening(free_port)
        url = f"http://127.0.0.1:{free_port}"
        addressed = {**env, "ANTHROPIC_BASE_URL": url}
        codex = [
            f'-cmodel_providers.x.{key}="{value}"'
            for key, value in (("name", "x"), ("base_url", f"{url}/v1"), ("env_key", "OPENAI_API_KEY"))
        ]
        started = []
        for name in names:
            more = ['-cmodel_provider="x"', *codex] if name == "codex" else []
            started.append(
                await asyncio.create_subprocess_exec(
                    str(CLIENTS[name].program),
                    *more,
                    *CLIENTS[name].argv,
                    cwd=there.folder / "work",
                    env=addressed,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                )
            )
        said = await asyncio.gather(*(process.communicate() for process in started))
        assert [process.returncode for process in started] == [0] * 3, said
        watch.send_signal(signal.SIGINT)
        code, written = await there.ended(watch)
    assert code == 0, written
    report = there.report()
    assert sessions(report) == [4, 4, 4]
    same_money(report, there.provider.told)


async def listening(port):
    for _ in range(300):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return
    raise AssertionError("the watch does not listen")


@pytest.mark.parametrize(
    "name", [client("claude", pytest.mark.short), *map(client, ("codex", "opencode", "aider", "mini"))]
)
async def test_a_refusal_for_too_many_requests_is_waited_out_and_costs_nothing(room, free_port, name):
    busy = {"calls": [1], "status": 429, "error": "slow down", "retry_after": 0}
    async with room(busy, *looks(name)) as there:
        report, _ = await play(there, free_port, name)
    books = there.provider.books
    assert [entry.status for entry in books][:2] == [429, 200]
    total = report["total"]
    assert total["failures"] == {"429": 1}
    assert total["repeated_after"] == {"429": 1}
    assert total["turns"] + total["repeats"] == len(books)
    if there.provider.told:
        same_money(report, there.provider.told)


@pytest.mark.parametrize("name", [client("claude", pytest.mark.short), *map(client, ("codex", "opencode"))])
async def test_a_stream_that_breaks_off_is_asked_for_again_and_the_rest_is_billed_as_told(room, free_port, name):
    broken = {"calls": [2], "text": "A reply that nobody gets to the end of. " * 20, "disconnect": "mid-stream"}
    async with room(broken, *looks(name)) as there:
        report, _ = await play(there, free_port, name)
    books = there.provider.books
    assert [entry.whole for entry in books].count(False) == 1
    total, whole = report["total"], there.provider.told
    assert total["turns"] + total["repeats"] == len(books)
    assert total["failures"] == {"broken off": 1}
    cut = next(entry for entry in books if not entry.whole)
    # what a broken stream has told by then (Anthropic says its prompt's tokens first) is billed, the rest of it nobody
    # knows
    assert total["billed"]["input"] in (
        sum(e.usage.input_tokens for e in whole),
        sum(e.usage.input_tokens for e in [*whole, cut]),
    )
    assert (
        sum(e.usage.output_tokens for e in whole)
        <= total["billed"]["output"]
        <= sum(e.usage.output_tokens for e in [*whole, cut])
    )


@pytest.mark.parametrize("name", [client("claude", pytest.mark.short), *map(client, ("codex", "opencode"))])
async def test_an_interrupt_in_the_middle_of_a_reply_ends_the_client_and_the_report_is_written(room, free_port, name):
    played = CLIENTS[name]
    async with room({"text": "word " * 4000, "pieces": 400, "chunk_delay": 0.1}) as there:
        process = await there.start(free_port, name, *played.argv, env=there.env(played))
        await asyncio.wait_for(there.provider.asked.wait(), 60)
        await asyncio.sleep(1)
        os.killpg(process.pid, signal.SIGINT)
        try:
            out, error = await asyncio.wait_for(process.communicate(), 30)
            alive = await asyncio.to_thread(left_alive, process.pid)
        finally:
            playing.end_group(process.pid)
    written = (out + error).decode()
    assert there.report()["total"]["turns"] >= 1, written
    assert process.returncode in (0, 1, 130), written
    assert alive == []


def left_alive(leader):
    """Who of a process group is still there after five seconds."""
    for _ in range(50):
        if not (found := playing.group(leader)):
            return []
        time.sleep(0.1)
    return found


def lines_of_the_guide():
    """(client, its line) from the guide's table."""
    rows = re.findall(r"^\| [^|]+ \| `(context-bench watch [^`]+)` \|", GUIDE.read_text("utf-8"), re.MULTILINE)
    for row in rows:
        words = shlex.split(row)
        yield words[words.index("--") + 1], words


@pytest.mark.parametrize(
    ("name", "words"),
    [pytest.param(n, w, marks=pytest.mark.vendor(CLIENTS[n].vendor), id=n) for n, w in lines_of_the_guide()],
)
async def test_each_line_of_the_guide_brings_its_client_to_the_tap(room, free_port, name, words):
    assert re.fullmatch(r"https://api\.\w+\.com", words[words.index("--upstream") + 1])
    async with room(*looks(name)) as there:
        report, _ = await play(there, free_port, *words[words.index("--") + 1 :])
        asked = [
            request.text
            for request in there.server.requests
            if request.wire in ("anthropic", "openai-chat", "openai-responses")
        ]
    assert report["total"]["turns"] == len(asked) >= 1
    assert any(playing.ASKED in text for text in asked)


def test_the_guide_has_a_line_for_each_client():
    assert {name for name, _ in lines_of_the_guide()} == CLIENTS.keys() - {"gemini"}


@pytest.mark.parametrize("name", [client("claude"), client("codex"), client("opencode")])
async def test_fixtures_made_of_a_fresh_recording_hold_none_of_the_clients_text(room, free_port, name):
    spec = importlib.util.spec_from_file_location("client_fixtures", playing.ROOT / "scripts" / "client_fixtures.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    async with room(*looks(name)) as there:
        await play(there, free_port, name)
        left = there.leave(f"{name}-fresh", CLIENTS[name], "")
    made = [{"file": file, "value": value} for file, value in script.parts(left)]
    texts = [
        text
        for row in (left / "records.jsonl").read_text().splitlines()
        for text in strings(json.loads(row)["request"])
    ]
    whole = json.dumps(made, ensure_ascii=False)
    lines = {line.strip() for text in texts for line in text.splitlines() if len(line.split()) >= 4}
    assert len(lines) > 50
    assert [line for line in lines if line in whole or json.dumps(line)[1:-1] in whole] == []
    for row in made:
        if row["file"] == "records.jsonl":
            record, body = row["value"], row["value"]["request"]
            counted = count_request(parse_request(record["wire"], body), counter_for(body["model"])).total
            assert counted == pytest.approx(record["tokens"], rel=0.001)


def strings(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def test_a_clients_key_is_left_nowhere():
    for file in playing.LEFT.rglob("*") if playing.LEFT.exists() else ():
        assert not file.is_file() or playing.KEY.encode() not in Path(file).read_bytes()
