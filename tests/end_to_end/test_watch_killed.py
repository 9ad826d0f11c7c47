"""kill -9 of a watch: no turn that a client has the answer to is lost, and the report says how many were under way."""

import asyncio
import json
import os
import random
import resource
import signal
import sys
import time

import aiohttp
import pytest
from aiohttp import web

from context_bench.__main__ import main
from context_bench.core.errors import StoreUnusable
from context_bench.engine import open_store, watch_of
from context_bench.tap import Watch
from context_bench.testing.hostile import MisbehavingProxy

from .killing import WAYS, Clients, Provider, free_port, kill_once, listens, until


async def test_a_turn_is_stored_before_its_client_has_the_last_byte(tmp_path, forks):
    chance, port = random.Random(5), free_port()
    store = tmp_path / "store.db"
    async with Provider() as provider:
        watch = await forks("watch_child.py", provider.url, store, port)
        for ways in [*[(way,) for way in WAYS] * 2, *[WAYS * 3] * 3]:
            answered, lost = await kill_once(
                watch.start, watch.ended, provider, store, port, ways, chance.randint(1, 12)
            )
            assert answered
            assert not lost, ways
        await watch.close()


async def test_so_it_is_with_a_proxy_in_between(tmp_path, forks):
    port, back, store = free_port(), free_port(), tmp_path / "store.db"
    async with Provider() as provider, MisbehavingProxy("nothing", f"http://127.0.0.1:{back}") as proxy:
        watch = await forks("watch_child.py", provider.url, store, port, proxy.url, back)
        for ways in [("plain",), ("stream",), ("plain", "stream") * 3]:
            answered, lost = await kill_once(watch.start, watch.ended, provider, store, port, ways, 5)
            assert answered
            assert not lost, ways
        await watch.close()


async def test_a_killed_watch_says_how_many_turns_were_under_way(tmp_path, forks, capsys):
    port, begun, store = free_port(), asyncio.Semaphore(0), tmp_path / "store.db"

    async def never(request):
        begun.release()
        await asyncio.sleep(60)
        return web.Response()

    app = web.Application()
    app.router.add_post("/{path:.*}", never)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    watch = await forks("watch_child.py", f"http://127.0.0.1:{runner.addresses[0][1]}", store, port)
    pid = await watch.start()
    await listens(port)
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
        asking = [
            asyncio.create_task(session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body))
            for _ in range(3)
        ]
        for _ in asking:
            await begun.acquire()
        await until(lambda: under_way(store) == 3)  # written at once, but not waited for by the turns
        os.kill(pid, signal.SIGKILL)
        assert await watch.ended() == -signal.SIGKILL
        await asyncio.gather(*asking, return_exceptions=True)
    await watch.close()
    await runner.cleanup()
    assert await asyncio.to_thread(main, ["watch", "--store", str(store), "--show", "last"]) == 0
    assert "killed with 3 turns under way" in " ".join(capsys.readouterr().out.split())


def under_way(store):
    with open_store(store) as opened:
        return watch_of(opened, "last").settings.get("under_way")


@pytest.mark.parametrize("way", WAYS)
async def test_an_answer_reaches_its_client_though_it_cannot_be_kept(tmp_path, way):
    async def full(turns):
        raise StoreUnusable("no space left on device")

    async with Provider() as provider, Watch(provider.url, keep=full) as watch:
        clients = Clients(watch.url, until=10**9)

        def enough(turn, has=clients.has):
            has(turn)
            if len(clients.answered) == 3:
                clients.enough.set()

        clients.has = enough
        async with asyncio.timeout(20):
            await clients.ask(way)
    assert len(clients.answered) == 3
    assert watch.lost == 3 + (way == "socket")  # the opening of a WebSocket is a record, too
    assert watch.under_way == 0
    assert "no space" in str(watch.fault)


async def test_a_store_that_does_not_answer_holds_no_client_up_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("context_bench.tap.tap_server.HELD_SECONDS", 0.2)
    go_on, kept = asyncio.Event(), []

    async def stuck(turns):
        await go_on.wait()
        kept.extend(turns)

    async with Provider() as provider, Watch(provider.url, keep=stuck) as watch:
        body = {"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": "turn 1"}]}
        async with aiohttp.ClientSession() as session, asyncio.timeout(20):
            async with session.post(watch.url + "/v1/chat/completions", json=body) as reply:
                assert (await reply.read()).endswith(b"data: [DONE]\n\n")
            assert watch.under_way == 1
        go_on.set()
    assert [turn.kind for turn in kept] == ["turn"]
    assert json.dumps(kept[0].failure) == "null"


async def test_a_machine_that_stood_still_for_longer_has_a_turn_stored_before_its_client_has_the_end(monkeypatch):
    monkeypatch.setattr("context_bench.tap.tap_server.HELD_SECONDS", 0.8)
    order = []

    async def after_a_standstill(turns):
        time.sleep(1.0)  # noqa: ASYNC251 - the whole process
        await asyncio.sleep(0.01)
        order.append("stored")

    async with Provider() as provider, Watch(provider.url, keep=after_a_standstill) as watch:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "turn 1"}]}
        async with (
            aiohttp.ClientSession() as session,
            session.post(watch.url + "/v1/chat/completions", json=body) as reply,
        ):
            assert (await reply.json())["choices"]
            order.append("answered")
    assert order == ["stored", "answered"]


CLIENT = """
import json, os, random, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
answers = set()
for number in range(40):
    text = "".join(random.choices("abcdefghijklmnopqrstuvwxyz ", k=40_000))
    body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=30) as reply:
        answers.add(json.load(reply)["choices"][0]["message"]["content"])
assert answers == {"fine"}, answers
"""  # noqa: E501


async def test_on_a_full_disk_clients_are_answered_and_the_summary_counts_what_is_missing(tmp_path):
    line = [
        sys.executable,
        "-m",
        "context_bench",
        "watch",
        "--front",
        "0",
        "--store",
        str(tmp_path / "store.db"),
        "--record",
        "full",
    ]

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))

    async with Provider() as provider, asyncio.timeout(120):
        line += ["--upstream", provider.url, "--output", "json", "--", sys.executable, "-c", CLIENT]
        pipe = asyncio.subprocess.PIPE
        watch = await asyncio.create_subprocess_exec(
            *line, cwd=tmp_path, stdout=pipe, stderr=pipe, preexec_fn=little_room
        )
        out, err = await watch.communicate()
    assert len(provider.seen) == 40, err
    assert "Traceback" not in err.decode()
    told = json.loads(out)
    kept = told["arms"]["main"]["total"]["turns"]
    assert 0 < kept < 40
    assert f"Records were lost: {40 - kept} could not be kept" in " ".join(told["notes"]), told["notes"]
    assert watch.returncode == 1
