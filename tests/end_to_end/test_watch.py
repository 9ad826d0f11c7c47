"""Watching live traffic with both taps on real sockets: what is counted, what is kept, and that nobody's text is among
it.
"""

import asyncio
import contextlib
import json
import random
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from context_bench.__main__ import main
from context_bench.core.machine import ManualClock
from context_bench.core.records import Usage
from context_bench.engine import list_watches, open_store, open_watch, purge, watch_of, watched
from context_bench.engine.encoding import unpack
from context_bench.llm.prices import GenaiPrices
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.llm.spend import SpendLimit
from context_bench.tap import Shadow, Watch
from context_bench.testing.hostile import MisbehavingProxy, Rewriting, in_body
from context_bench.traffic.sections.watch_board import line, summary
from context_bench.wire.turns import Turn, by_session, total

CHAT = "/v1/chat/completions"
KEY = {"Authorization": "Bearer sk-the-clients-own-key-0123456789", "x-api-key": "another-key-of-the-client-9876543210"}
PRICES = GenaiPrices()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Kept(list[Turn]):
    """Turns as they are kept."""

    async def keep(self, turns: list[Turn]) -> None:
        self.extend(turns)


@contextlib.asynccontextmanager
async def behind(
    habit: str | Callable[[dict], None], rules: object = None, **options: object
) -> AsyncIterator[tuple[Watch, ModelServer, Kept]]:
    """A watch around a proxy of some habit, or one that edits bodies. The turns are all there once the block is
    left.
    """
    kept, back = Kept(), free_port()
    upstream = f"http://127.0.0.1:{back}"
    async with (
        ModelServer(Scripted(rules or {"default": "fine"})) as server,
        MisbehavingProxy(habit, upstream) if isinstance(habit, str) else Rewriting(in_body(habit), upstream) as proxy,
        Watch(server.url, via=proxy.url, back=back, prices=PRICES, keep=kept.keep, **options) as watch,
    ):
        yield watch, server, kept


async def send(url: str, messages: list, *, headers: dict = KEY, path: str = CHAT, **more: object) -> bytes:
    body = {"model": "gpt-4o", "messages": messages, **more}
    async with aiohttp.ClientSession() as session, session.post(url + path, json=body, headers=headers) as reply:
        return await reply.read()


def conversation(turns: int, topic: str) -> list[list[dict]]:
    """The requests of a conversation that only grows."""
    messages: list[dict] = [{"role": "system", "content": "You help with the papers of the harbour office. " * 10}]
    requests = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{topic} {turn} " * 400 + f"\n\nWhat of {topic} {turn}?"})
        requests.append(list(messages))
        messages.append({"role": "assistant", "content": "fine"})
    return requests


async def test_turns_of_two_clients_at_once_are_kept_apart_and_extra_calls_are_counted():
    async with behind("calls-twice") as (watch, server, kept):

        async def client(topic: str) -> None:
            for messages in conversation(4, topic):
                await send(watch.url, messages)

        await asyncio.gather(client("tides"), client("cargo"), client("pilots"))
    sessions = by_session(kept)
    assert [(figures.turns, figures.extra, figures.calls) for figures in sessions.values()] == [(4, 4, 8)] * 3
    whole = total(kept)
    assert whole.calls == server.seen == 24
    assert whole.unchanged == whole.compared == 12
    assert whole.forwarded == whole.usage.input_tokens
    assert whole.forwarded > whole.sent
    assert not whole.violations


async def test_a_session_that_is_rewritten_loses_its_cache_and_the_forecast_says_what_that_costs():
    async with behind("nothing") as (watch, _, honest):
        for messages in conversation(5, "tides"):
            await send(watch.url, messages)
    async with behind("rewrites-history") as (watch, _, rewritten):
        for messages in conversation(5, "tides"):
            await send(watch.url, messages)
    assert total(honest).prompt_cost_ratio == 1.0
    assert total(honest).predicted_read == sum(128 * (turn.sent // 128) for turn in honest[:-1])
    assert total(rewritten).forwarded < total(honest).forwarded
    assert total(rewritten).predicted_read < total(honest).predicted_read


async def test_client_keys_go_through_untouched_and_are_kept_nowhere():
    async with behind("nothing", record="full") as (watch, server, kept):
        await send(watch.url, [{"role": "user", "content": "hello"}])
    assert {name: server.requests[0].headers[name.lower()] for name in KEY} == KEY
    told = repr(kept)
    assert "hello" in told
    assert not any(value.rpartition(" ")[2] in told for value in KEY.values())


async def test_what_a_proxy_does_to_the_wire_is_told_by_kind_and_in_detail_only_where_bodies_are_kept():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
    ]
    for record in ("meta", "full"):
        async with behind("user-only", record=record) as (watch, _, kept):
            await send(watch.url, [*messages, {"role": "user", "content": "and now?"}])
        [turn] = kept
        assert turn.violations["assistant_role_changed"] == 1
        assert turn.violations["system_role_lost"] == 1
        assert bool(turn.details) == (record == "full")
        assert turn.unchanged is False


async def test_what_a_proxy_does_to_tools_is_told_apart_and_what_it_adds_is_named():
    def meddles(body: dict) -> None:
        for tool in body["tools"]:
            del tool["function"]["parameters"]["$schema"]
        body["tools"][0]["function"]["parameters"]["required"] = ["path"]
        body["tools"].pop(1)
        added = ["headroom_retrieve", "ours_read_private_ledger", "no word at all"]
        body["tools"] += [
            {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in added
        ]

    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}
    names = ("read_private_ledger", "write_private_ledger", "list_private_ledger")
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in names]
    expected = {"tool_added": 3, "tool_removed": 1, "tool_meaning_changed": 1, "tool_annotation_changed": 1}
    expected["tool_name_refused"] = 1  # of the one with spaces
    for record in ("meta", "full"):
        async with behind(meddles, record=record) as (watch, _, kept):
            await send(watch.url, [{"role": "user", "content": "hi"}], tools=tools)
        [turn] = kept
        assert turn.violations == expected
        told = summary(kept, {})
        if record == "meta":
            assert "tool_added headroom_retrieve ×3" in line(turn)
            assert "tool_added 3 (headroom_retrieve)" in told
            assert "private_ledger" not in repr(kept) + told
        else:
            assert turn.tools["tool_removed"] == ["write_private_ledger"]
            assert "tool_removed 1 (write_private_ledger)" in " ".join(told.split())
        assert total(kept).as_dict()["tools"]["tool_added"]["headroom_retrieve"] == 1


async def test_marked_prefixes_of_anthropic_prompts_are_followed_and_usage_is_set_beside():
    usage = {"input_tokens": 9000, "output_tokens": 3, "cache_read": 7000, "cache_write": 1500}
    async with behind("nothing", {"rules": [{"text": "fine", "usage": usage}]}) as (watch, _, kept):
        text = [{"type": "text", "text": "The harbour rules. " * 1500, "cache_control": {"type": "ephemeral"}}]
        for question in ("one", "two"):
            messages = [{"role": "user", "content": question}]
            await send(
                watch.url,
                messages,
                path="/v1/messages",
                model="claude-sonnet-4-5",
                system=text,
                headers={**KEY, "session_id": "one"},
            )
    first, second = kept
    assert (first.predicted_read, first.predicted_write) == (0, first.sent - 1)
    assert (second.predicted_read, second.predicted_write) == (first.sent - 1, 0)
    assert total(kept).usage == Usage(18000, 6, 14000, 3000)
    assert total(kept).new_tokens == 1000
    assert first.cost == pytest.approx((500 * 3 + 7000 * 0.3 + 1500 * 3.75 + 3 * 15) / 1e6)


async def test_failures_retries_and_repeats_are_told_apart():
    rules = {"rules": [{"first": 1, "status": 500, "error": "busy"}], "default": "fine"}
    async with behind("nothing", rules) as (watch, _, kept):
        for _ in range(2):
            await send(watch.url, [{"role": "user", "content": "hello"}])
    figures = total(kept)
    assert (figures.turns, figures.repeats, figures.failed) == (1, 1, 1)
    assert [turn.turn for turn in kept] == [1, 1]


async def test_without_a_proxy_there_is_one_tap_and_a_baseline():
    kept = Kept()
    async with (
        ModelServer(Scripted({"default": "fine"})) as server,
        Watch(server.url, prices=PRICES, keep=kept.keep) as watch,
    ):
        assert watch.back_url is None
        for messages in conversation(3, "tides"):
            await send(watch.url, messages, stream=True)
        async with aiohttp.ClientSession() as session, session.get(watch.url + "/v1/models") as reply:
            assert reply.status == 200
    figures = total(kept)
    assert (figures.turns, figures.other, figures.calls, figures.compared) == (3, 1, 4, 0)
    assert figures.sent == figures.forwarded
    assert figures.added is None


async def test_bodies_that_make_no_sense_go_through_and_are_accounted_for():
    odd = [
        b"{",
        b"[]",
        b'{"messages": 7}',
        b'{"messages": [{"role": 3, "content": {"a": [null]}}], "tools": "x", "model": []}',
        b"\xff\xfe",
    ]
    async with behind("nothing") as (watch, server, kept), aiohttp.ClientSession() as session:
        for body in odd:
            async with session.post(watch.url + CHAT, data=body, headers={"Content-Type": "application/json"}) as reply:
                await reply.read()
    assert [received.raw for received in server.requests] == odd
    assert total(kept).calls == len(odd) == len(kept)


async def test_a_store_that_fails_does_not_stop_the_traffic():
    async def full(turns: list[Turn]) -> None:
        raise OSError("disk full")

    async with ModelServer(Scripted({"default": "fine"})) as server, Watch(server.url, keep=full) as watch:
        for _ in range(2):
            assert b"fine" in await send(watch.url, [{"role": "user", "content": "hello"}])
        await watch.drain()
        assert "disk full" in str(watch.fault)


# The second arm


@contextlib.asynccontextmanager
async def mirrored(
    share: float, *, cap: float = 10.0, seed: int = 0, prices: GenaiPrices = PRICES
) -> AsyncIterator[tuple]:
    kept, second = Kept(), free_port()
    offers: list = []
    seen: list = []
    async with (
        ModelServer(Scripted({"default": "fine"})) as server,
        MisbehavingProxy("halves", f"http://127.0.0.1:{second}") as other,
    ):
        watch = Watch(
            server.url,
            prices=prices,
            keep=kept.keep,
            seen=lambda turn: [one(turn) for one in seen] and None,
            mirror=lambda turn: [one(turn) for one in offers] and None,
        )
        async with watch:
            arm = watch.new_arm(server.url, via=other.url, back=second, record="meta")
            await watch.add_arm(arm)
            async with Shadow(arm, share=share, spend=SpendLimit(cap), prices=prices, seed=seed) as shadow:
                offers.append(shadow.offer)
                seen.append(shadow.seen)
                yield watch, server, kept, shadow
                await watch.drain()
                await shadow.idle(20)
                await watch.drain()


async def test_mirrored_requests_go_out_after_the_client_was_served_and_are_an_arm_of_their_own():
    async with mirrored(1.0) as (watch, server, kept, shadow):
        for messages in conversation(3, "tides"):
            assert b"fine" in await send(watch.url, messages)
    main, second = total(kept), total(kept, "shadow")
    assert (main.turns, second.turns, server.seen) == (3, 3, 6)
    assert second.sent == main.sent
    assert second.forwarded < 0.7 * main.forwarded
    assert {turn.session for turn in kept if turn.arm == "main"} == {
        turn.session for turn in kept if turn.arm == "shadow"
    }
    assert [turn.turn for turn in kept if turn.arm == "shadow"] == [1, 2, 3]
    assert shadow.counts == {"sampled": 3, "sent": 3, "unfinished": 0}
    assert {received.headers["authorization"] for received in server.requests} == {KEY["Authorization"]}


async def test_the_same_traffic_gives_the_same_sample():
    async def chosen(seed: int) -> list[int]:
        async with mirrored(0.5, seed=seed) as (watch, _, kept, _):
            for messages in conversation(12, "tides"):
                await send(watch.url, messages[-1:], headers={**KEY, "session_id": "one"})
        return [turn.turn for turn in kept if turn.arm == "shadow"]

    first = await chosen(1)
    assert 0 < len(first) < 12
    assert await chosen(1) == first
    assert await chosen(2) != first


async def test_mirroring_stops_at_its_cap_and_does_not_begin_without_a_price():
    worst = PRICES.worst_case("gpt-4o", 100, 5)
    async with mirrored(1.0, cap=2.5 * worst) as (watch, server, kept, shadow):
        for turn in range(5):
            await send(watch.url, [{"role": "user", "content": f"{turn} " * 45}], max_tokens=5)
    assert "cost cap" in shadow.stopped
    assert 0 < total(kept, "shadow").turns < 5
    assert total(kept, "shadow").cost <= 2.5 * worst
    async with mirrored(1.0) as (watch, server, kept, shadow):
        await send(watch.url, [{"role": "user", "content": "hello"}], model="nobody-knows-this-one")
    assert (shadow.counts["unpriced"], server.seen) == (1, 1)


# Kept, and nobody's text among it


def planted(seed: int) -> list[str]:
    """Texts that occur nowhere else, each a secret of another kind of place."""
    rng = random.Random(seed)
    return ["".join(rng.choice("bcdfghjklmnpqrstvwxz0123456789") for _ in range(40)) for _ in range(14)]


def traffic(secrets: list[str]) -> list[tuple[str, bytes, dict]]:
    """Requests with a secret in every place where a client could put text."""
    s = secrets
    tool = {
        "type": "function",
        "function": {"name": "read", "description": s[0], "parameters": {"type": "object", "title": s[1]}},
    }
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": s[2]})}}
    chat = {
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": s[3]},
            {"role": "user", "content": [{"type": "text", "text": s[4]}, {"type": s[5], "text": s[4]}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": s[6]},
        ],
        "tools": [tool],
        "stop": [s[7]],
        "metadata": {"note": s[8]},
        s[9]: s[9],
    }
    claude = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "system": s[3],
        "messages": [{"role": "user", "content": s[10]}],
    }
    codex = {"model": "gpt-5", "instructions": s[3], "input": s[11], "prompt_cache_key": s[12], "stream": True}
    bodies = [(CHAT, chat), (CHAT, {**chat, "stream": True}), ("/v1/messages", claude), ("/v1/responses", codex)]
    bodies += [
        ("/v1/embeddings", {"model": "m", "input": s[10]}),
        (CHAT, {**chat, "messages": [{"role": s[5], "content": s[4]}]}),
    ]
    told = [(path, json.dumps(body).encode(), {**KEY, "session_id": s[12]}) for path, body in bodies]
    return [*told, (CHAT, f'{{"broken": "{s[11]}'.encode(), KEY), ("/v1/messages", s[10].encode(), KEY)]


def found(folder: Path, secrets: list[str]) -> set[str]:
    """Runs of 12 characters of any secret in any file, in the clear or packed in a column of a store."""
    runs = {secret[i : i + 12] for secret in secrets for i in range(len(secret) - 11)}
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    for path in folder.glob("*.db"):
        with contextlib.closing(sqlite3.connect(path)) as raw:
            tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            cells = (cell for table in tables for row in raw.execute(f'SELECT * FROM "{table}"') for cell in row)
            texts += [
                unpack(cell) for cell in cells if isinstance(cell, bytes) and len(cell) > 16
            ]  # shorter ones are keys
    return {run for run in runs if any(run.encode() in text for text in texts)}


async def command(folder: Path, *options: str, client: tuple[str, ...] = ()) -> asyncio.subprocess.Process:
    line = [
        sys.executable,
        "-m",
        "context_bench",
        "watch",
        "--store",
        str(folder / "store.db"),
        *options,
        *(["--", *client] if client else []),
    ]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*line, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe)


async def lines(process: asyncio.subprocess.Process, number: int) -> list[str]:
    return [(await process.stderr.readline()).decode() for _ in range(number)]


@pytest.mark.parametrize("policy", ["meta", "hashes", "full"])
async def test_killed_in_the_middle_every_told_record_is_there_and_no_text_of_anybody(tmp_path, policy):
    secrets = planted(7)
    requests = traffic(secrets)
    rules = {
        "rules": [{"when": {"text": secrets[10]}, "status": 400, "error": f"not {secrets[10]}"}, {"text": secrets[13]}]
    }
    front, back = free_port(), free_port()
    async with (
        ModelServer(Scripted(rules)) as server,
        MisbehavingProxy("user-only", f"http://127.0.0.1:{back}") as proxy,
    ):
        options = ["--front", str(front), "--back", str(back), "--via", proxy.url, "--upstream", server.url]
        watch = await command(tmp_path, *options, "--record", policy, "--records", str(tmp_path / "records.jsonl"))
        try:
            head = await lines(watch, 2)
            assert str(front) in head[0]
            async with aiohttp.ClientSession() as session:
                for path, body, headers in requests:
                    async with session.post(f"http://127.0.0.1:{front}{path}", data=body, headers=headers) as reply:
                        await reply.read()
            told = await lines(watch, len(requests))
        finally:
            watch.kill()
            await watch.wait()
    (tmp_path / "told.txt").write_text("".join(told))
    assert (tmp_path / "store.db-wal").stat().st_size > 0
    in_the_open = found(tmp_path, secrets)
    show = ["watch", "--store", str(tmp_path / "store.db"), "--show", "last", "--out"]
    assert await asyncio.to_thread(main, [*show, str(tmp_path / "report.json"), "--output", "json"]) == 0
    shown = json.loads((tmp_path / "report.json").read_text())
    assert await asyncio.to_thread(main, [*show, str(tmp_path / "report.txt")]) == 0
    assert shown["watch"]["status"] == "interrupted"
    assert shown["arms"]["main"]["total"]["calls"] == len(requests) == server.seen
    with open_store(tmp_path / "store.db") as store:
        assert len(list(watched(store, "last"))) == len(requests)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0 or path.name == "told.txt", path
    if policy == "full":  # the search finds what is there
        assert in_the_open
        assert found(tmp_path, secrets)
    else:
        assert in_the_open == found(tmp_path, secrets) == set()
    keys = [value.rpartition(" ")[2] for value in KEY.values()]
    assert found(tmp_path, keys) == set()


async def test_bodies_come_back_where_they_were_kept(tmp_path):
    async with behind("halves", record="full") as (watch, server, kept):
        for messages in conversation(2, "tides"):
            await send(watch.url, messages)
    with open_store(tmp_path / "store.db") as store:
        log = open_watch(store, {"upstream": server.url}, name="first")
        log.write(list(kept))
        log.end()
        assert watch_of(store, "first").status == "done"
        again = list(watched(store, "first", bodies=True))
        bare = list(watched(store, "last"))
    assert again == list(kept)
    assert bare[0].front.request is None
    assert bare[0].violations == kept[0].violations


async def test_old_watches_are_purged_with_their_bodies_and_newer_ones_keep_theirs(tmp_path):
    async with behind("nothing", record="full") as (watch, _, kept):
        await send(watch.url, conversation(1, "tides")[0])
    clock = ManualClock(start=1_000.0)
    with open_store(tmp_path / "store.db") as store:
        for name in ("old", "new"):
            log = open_watch(store, {}, name=name, clock=clock)
            log.write(list(kept))
            log.end()
            clock.time += 1_000
        assert purge(store, older_than=1_500, clock=clock) == ["old"]
        assert [watch.name for watch in list_watches(store)] == ["new"]
        assert list(watched(store, "new", bodies=True)) == list(kept)
        assert purge(store, older_than=0, clock=ManualClock(start=clock.time + 1)) == ["new"]
        with store.reading() as connection:
            tables = ("watches", "watched", "watched_bodies", "bodies", "body_parts")
            assert [connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() for table in tables] == [0] * 5


# The client that is started with it


CLIENT = """
import json, os, sys, urllib.request
chat = "/chat/completions"
for name, path in {"OPENAI_BASE_URL": chat, "OPENAI_API_BASE": chat, "ANTHROPIC_BASE_URL": "/v1/messages"}.items():
    body = {"model": "gpt-4o", "max_tokens": 5, "messages": [{"role": "user", "content": name}]}
    request = urllib.request.Request(os.environ[name] + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    assert b"fine" in urllib.request.urlopen(request).read()
print(sys.stdin.readline().strip().upper(), sys.argv[1:])
sys.exit(7)
"""  # noqa: E501


async def test_a_client_keeps_its_streams_its_arguments_and_its_exit_code(tmp_path):
    async with ModelServer(Scripted({"default": "fine"})) as server:
        client = (sys.executable, "-c", CLIENT, "--help-all", "--resume", "--controls", "--", "-x")
        options = ("--front", str(free_port()), "--upstream", server.url, "--quiet")
        process = await command(tmp_path, *options, client=client)
        out, error = await process.communicate(b"typed\n")
    assert process.returncode == 7, error.decode()
    first, *rest = out.decode().splitlines()
    assert first == "TYPED ['--help-all', '--resume', '--controls', '--', '-x']"
    assert error == b""
    assert server.seen == 3
    assert all(len(line) <= 80 for line in rest)


async def test_a_client_that_is_killed_or_missing(tmp_path):
    options = ("--front", str(free_port()), "--upstream", "echo", "--quiet")
    killed = await command(tmp_path, *options, client=(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"))
    await killed.communicate()
    assert killed.returncode == 128 + signal.SIGKILL
    missing = await command(tmp_path, *options, client=("no-such-program-anywhere",))
    _, error = await missing.communicate()
    assert missing.returncode == 2
    assert b"'no-such-program-anywhere' cannot be started" in error


async def test_a_proxy_that_is_not_there_is_said_before_a_client_starts(tmp_path):
    dead, back = f"http://127.0.0.1:{free_port()}", str(free_port())
    options = ("--front", str(free_port()), "--back", back, "--via", dead, "--upstream", "echo")
    refused = await command(tmp_path, *options, client=(sys.executable, "-c", "print('started')"))
    out, error = await refused.communicate()
    assert (refused.returncode, out) == (2, b"")
    said = (
        f"--proxy: nothing answers at {dead} (Connection refused). Start it first, with http://127.0.0.1:{back} "
        "as its upstream,"
    )
    assert said in error.decode()
    alone = await command(tmp_path, *options)
    assert said in (await lines(alone, 1))[0]
    await lines(alone, 2)  # it can still be started
    alone.send_signal(signal.SIGINT)
    await alone.communicate()
    assert alone.returncode == 0


async def test_ctrl_c_is_how_it_ends(tmp_path):
    process = await command(tmp_path, "--front", str(free_port()), "--upstream", "echo")
    await lines(process, 2)
    process.send_signal(signal.SIGINT)
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    assert b"Nothing came through." in out
    assert b"Traceback" not in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--upstream is missing"),
        (["--upstream", "echo", "--shadow", "http://127.0.0.1:1"], "--max-cost"),
        (["--upstream", "echo", "--max-cost", "1"], "--shadow"),
        (["--upstream", "echo", "--sample", "2"], "--sample 2.0: expected a number at least 0 and at most 1"),
        (["--upstream", "echo", "--via", "nonsense"], "--proxy 'nonsense' is not usable"),
        (["--upstream", "echo", "--output", "pdf"], "table or json"),
        (["--show", "last"], "no store"),
        (["--upstream", "echo", "--spend", "ftp://a.example/log"], "--spend ftp://a.example/log: no such file"),
        (["--upstream", "echo", "--record", "everything"], "recording policy"),
        (["--upstream", "echo", "--title", "t" * 201], "a title of 201 characters is too long"),
        (["--upstream", "echo", "--tag", "a\x1bb"], "a tag may not hold the character U+001B"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(tmp_path, options, said, capsys, monkeypatch):
    from context_bench.cli.app import run_line

    monkeypatch.chdir(tmp_path)
    code = run_line(["watch", "--front", str(free_port()), *options])
    assert code == 2
    assert said in capsys.readouterr().err


async def test_a_proxy_whose_stream_goes_on_after_its_end_is_told_of():
    async def goes_on(request: web.Request) -> web.StreamResponse:
        async with (
            aiohttp.ClientSession() as session,
            session.post(back + request.path, data=await request.read()) as reply,
        ):
            whole = await reply.read()
        more = b'data: {"choices": [{"index": 0, "delta": {"content": " EVIL"}}]}\n\n'
        return web.Response(body=whole + more, headers={"Content-Type": "text/event-stream"})

    app, kept, port = web.Application(), Kept(), free_port()
    app.router.add_post("/{path:.*}", goes_on)
    back = f"http://127.0.0.1:{port}"
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    via = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with (
        ModelServer(Scripted({"default": "fine"})) as server,
        Watch(server.url, via=via, back=port, keep=kept.keep) as watch,
    ):
        await send(watch.url, [{"role": "user", "content": "hello"}], stream=True)
    await runner.cleanup()
    [turn] = kept
    assert turn.violations == {"after_done": 1}
    assert turn.front.facts["after_done"]["events"] == 1
    assert "EVIL" not in repr(turn)
    assert "after_done" in summary(kept, {})


ENDS = {
    CHAT: (
        b'data: {"choices": [{"index": 0, "delta": {"content": "fine"}, "finish_reason": "stop"}]}\n\n',
        b"data: [DONE]\n\n",
    ),
    "/v1/messages": (
        b"event: content_block_delta\n"
        b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "fine"}}\n\n',
        b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
    ),
    "/v1/responses": (
        b'event: response.output_text.delta\ndata: {"type": "response.output_text.delta", "delta": "fine"}\n\n',
        b"event: response.completed\n"
        b'data: {"type": "response.completed", "response": {"model": "m", "status": "completed", "output": []}}\n\n',
    ),
}


@contextlib.asynccontextmanager
async def staying_open(
    *more: tuple[float, bytes], open_for: float = 2.0
) -> AsyncIterator[tuple[Watch, Kept, list[float]]]:
    """A watch around a proxy whose provider keeps streams open after their last event. `more`: pauses, and what is said
    after each.
    """
    kept, back, ended, clock = Kept(), free_port(), list[float](), asyncio.get_running_loop().time

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        first, last = ENDS[request.path]
        await response.write(first)
        await asyncio.sleep(0.01)
        await response.write(last[:-9])
        await asyncio.sleep(0.06)  # longer than the wait for what follows the event, of which this is a part
        ended.append(clock())
        for pause, said in ((0.0, last[-9:]), *more, (open_for, b"")):
            await asyncio.sleep(pause)
            if said:
                await response.write(said)
        return response

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with MisbehavingProxy("nothing", f"http://127.0.0.1:{back}") as proxy:
        upstream = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with (
            asyncio.timeout(60),
            Watch(upstream, via=proxy.url, back=back, prices=PRICES, keep=kept.keep) as watch,
        ):
            yield watch, kept, ended
    await runner.cleanup()


@pytest.mark.parametrize("path", ENDS)
async def test_the_end_of_a_stream_that_stays_open_is_not_held_up_and_its_waiting_is_nobodys_time(path):
    waited, clock = [], asyncio.get_running_loop().time
    async with staying_open(open_for=30.0) as (watch, kept, ended), aiohttp.ClientSession() as session:
        for number in range(4):
            body = {
                "model": "m",
                "stream": True,
                "messages": [{"role": "user", "content": f"hello {number}"}],
                "input": f"hello {number}",
            }
            async with session.post(watch.url + path, json=body) as reply:
                heard = b""
                while not heard.endswith(ENDS[path][1]):
                    heard += await reply.content.readany()
                waited.append(clock() - ended[-1])
                assert len(kept) == number + 1  # it is kept before its client has the end
        await watch.drain()
    assert [(turn.kind, len(turn.calls), turn.failure) for turn in kept] == [("turn", 1, None)] * 4
    assert min(waited) < 0.2
    for turn in kept:
        assert turn.front.facts["reply_complete"]
        assert turn.calls[0].facts["reply_complete"]
        assert turn.added >= 0
        assert turn.seconds < 20.0
        assert "+-" not in line(turn)


async def test_a_client_that_reads_until_the_connection_closes_has_turns_with_their_calls():
    clock = asyncio.get_running_loop().time
    async with staying_open(open_for=1.5) as (watch, kept, _):

        async def seconds(number: int) -> float:
            begun = clock()
            heard = await send(watch.url, [{"role": "user", "content": f"hello {number}"}], stream=True)
            assert heard.endswith(b"data: [DONE]\n\n")
            return clock() - begun

        whole = await asyncio.gather(*(seconds(number) for number in range(3)))
        await watch.drain()
    assert [(turn.kind, len(turn.calls), turn.pending) for turn in kept] == [("turn", 1, 0)] * 3
    assert "without a call" not in summary(kept, {})
    assert min(whole) - max(turn.calls[0].seconds for turn in kept) > 1.0  # the wait for the close is in none


async def test_what_a_provider_says_after_the_end_is_no_doing_of_the_proxy():
    aside = b'data: {"choices": [{"index": 0, "delta": {"content": " EVIL"}}]}\n\n'
    async with staying_open((0.0, aside), (0.2, aside)) as (watch, kept, _):
        heard = await send(watch.url, [{"role": "user", "content": "hello"}], stream=True)
        await watch.drain()
    assert heard.endswith(b"[DONE]\n\n" + aside * 2)  # all of it is relayed
    [turn] = kept
    assert turn.violations == {}
    assert turn.calls[0].facts["after_done"]["events"] >= 1


async def test_what_a_provider_refuses_is_told_with_one_tap_too_and_never_in_the_clients_words():
    kept = Kept()
    secret = {"role": "user", "content": "my secret plan", "timestamp": 2.5}
    async with (
        ModelServer(Scripted({"default": "fine"})) as server,
        Watch(server.url, prices=PRICES, keep=kept.keep, record="meta") as watch,
    ):
        await send(watch.url, [secret], parallel_tool_calls=False)
        await send(watch.url, [{"role": "user", "content": "fine"}])
    broken, clean = kept
    assert broken.violations == {"tool_setting_without_tools": 1, "unknown_message_key": 1}
    assert clean.violations == {}
    assert "secret" not in repr(kept)


async def test_a_proxy_that_makes_a_request_invalid_is_told_and_the_clients_own_faults_are_not():
    def notes(body: dict) -> None:
        body["messages"][-1]["extra"] = {"seen": 1}

    async with behind(notes, record="full") as (watch, _, kept):
        await send(watch.url, [{"role": "user", "content": "hi", "timestamp": 1.0}])
    [turn] = kept
    assert turn.violations["unknown_message_key"] == 1
    assert any("'extra'" in detail for detail in turn.details)


async def test_a_proxy_that_keeps_a_session_from_being_cached_is_told_by_two_requests():
    asked = iter(range(9))

    def dated(body: dict) -> None:
        body["messages"][0]["content"] += f"\nRequest {next(asked)}."

    async with behind(dated) as (watch, _, kept):
        for messages in conversation(2, "tides"):
            await send(watch.url, messages)
    assert "system_changed" not in kept[0].violations
    assert kept[1].violations["system_changed"] == 1


async def test_a_line_and_a_key_of_one_conversation_in_anothers_request():
    seen: list[dict] = []

    def mixes(request):
        body = json.loads(request.raw)
        if seen and body["messages"][-1]["content"].startswith("Second"):
            body["messages"].insert(0, seen[0])
            headers = request.headers.copy()
            headers["Authorization"] = "Bearer sk-first-0123456789"
            return request.with_headers(headers).with_body(body)
        seen.append(body["messages"][-1])
        return request

    first = [{"role": "user", "content": "First: the vault of the harbour office opens with 4711 and a key."}]
    second = [{"role": "user", "content": "Second: when does the ferry to the island leave tomorrow?"}]
    kept, back = Kept(), free_port()
    async with (
        ModelServer(Scripted({"default": "fine"})) as server,
        Rewriting(mixes, f"http://127.0.0.1:{back}") as proxy,
        Watch(server.url, via=proxy.url, back=back, prices=PRICES, keep=kept.keep) as watch,
    ):
        await send(watch.url, first, headers={"Authorization": "Bearer sk-first-0123456789"})
        await send(watch.url, second, headers={"Authorization": "Bearer sk-second-987654321"})
    assert kept[0].violations == {}
    assert kept[1].violations["conversation_leaked"] == kept[1].violations["key_leaked"] == 1
    assert "4711" not in repr(kept)
    assert "sk-first" not in repr(kept)


def test_a_watch_has_the_title_and_tags_it_was_given_wherever_it_is_listed(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    store = ["--store", str(tmp_path / "s.db")]
    begin = ["watch", *store, "--front", str(free_port()), "--upstream", "echo", "--quiet", "--name", "monday"]
    named = ["--title", "Before the upgrade", "--tag", "team a,litellm", "--tag", "LiteLLM"]
    assert main([*begin, *named, "--output", "json", "--", sys.executable, "-c", "pass"]) == 0
    told = json.loads(capsys.readouterr().out)["watch"]
    assert (told["title"], told["tags"]) == ("Before the upgrade", ["team a", "litellm"])
    assert main([*begin[:-1], "tuesday", "--", sys.executable, "-c", "pass"]) == 0
    capsys.readouterr()
    assert main(["runs", *store]) == 0
    tuesday, monday, label = capsys.readouterr().out.splitlines()[1:]
    assert tuesday.split()[0] == "tuesday"
    assert (monday.split()[0], monday.split()[-2:]) == ("monday", ["live", "traffic"])
    assert label == "    Before the upgrade  [team a, litellm]"
    assert main(["runs", *store, "--json"]) == 0
    tuesday, monday = json.loads(capsys.readouterr().out)
    assert (tuesday["kind"], "title" in tuesday, "tags" in tuesday) == ("watch", False, False)
    assert (monday["name"], monday["title"], monday["tags"]) == ("monday", "Before the upgrade", ["team a", "litellm"])
    assert main(["runs", *store, "--deleted", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_what_the_proxys_spend_log_says_stands_beside_the_bill(tmp_path, capsys):
    """What the log held before the watch is none of it."""
    log, front = tmp_path / "spend.jsonl", free_port()
    log.write_text('{"response_cost": 2.0}\n')
    body = json.dumps({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}]})
    client = "import sys, urllib.request as u; url, body, log = sys.argv[1:]; "
    client += "u.urlopen(u.Request(url, body.encode(), {'content-type': 'application/json'})).read(); "
    client += "open(log, 'a').write('{\"response_cost\": 0.5}\\n')"
    out = tmp_path / "report.json"
    watch = ["watch", "--front", str(front), "--upstream", "echo", "--spend", str(log)]
    watch += ["--store", str(tmp_path / "s.db")]
    line = [*watch, "--quiet", "--output", "json", "--out", str(out), "--", sys.executable, "-c", client]
    assert main([*line, f"http://127.0.0.1:{front}/v1/chat/completions", body, str(log)]) == 0
    told = json.loads(out.read_text())
    assert told["watch"]["spend"]["told"] == 0.5
    assert 0 < told["watch"]["spend"]["by_usage"] < 0.1
    assert any("spend log says $0.5000" in note for note in told["notes"])
    capsys.readouterr()
    assert main([*watch, "--quiet", "--", sys.executable, "-c", "pass"]) == 0
    assert "The proxy's spend log says $0.00." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("fault", ["front", "records", "out", "client"])
def test_a_watch_that_cannot_begin_leaves_nothing_in_the_store(tmp_path: Path, fault: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = {
            "front": ["--front", str(taken.getsockname()[1])],
            "records": ["--records", str(tmp_path)],
            "out": ["--out", str(tmp_path / "none" / "x" / "\0.json")],
            "client": ["--", str(tmp_path / "no-such-program")],
        }[fault]
        store = tmp_path / "w.db"
        assert main(["watch", "--upstream", "echo", "--store", str(store), "--name", "x", *given]) != 0
    with open_store(store) as kept:
        assert list_watches(kept) == []
