"""A body above the limit is relayed as it came, and every output says how many bodies were not compared."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from context_bench.__main__ import main
from context_bench.engine import open_store, open_watch
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.session.runs import result_of
from context_bench.tap import Watch
from context_bench.tap.exchange import BODY_LIMIT
from context_bench.testing.hostile import MisbehavingProxy
from context_bench.traffic.sections.watch_board import Board, line
from context_bench.viewer import Viewer
from context_bench.wire.turns import Turn

from .test_replay_command import behind
from .test_watch import free_port

LARGE = "a text of many words. " * (BODY_LIMIT // 22 + 1)


async def post(url: str, text: str) -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/chat/completions", json=body) as reply:
        assert (await reply.json())["usage"]["prompt_tokens"] > len(text) / 10  # all of it went through


async def test_watch_says_how_many_bodies_it_did_not_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    back, board = free_port(), Board()
    lines: list[str] = []
    with open_store("s.db") as store:
        log = open_watch(store, {}, name="mine")

        async def keep(turns: list[Turn]) -> None:
            log.write(turns, 0)
            lines.extend(map(line, turns))
            for turn in turns:
                board.add(turn)

        async with (
            ModelServer(Scripted({"default": "fine"})) as server,
            MisbehavingProxy("nothing", f"http://127.0.0.1:{back}") as proxy,
            Watch(server.url, via=proxy.url, back=back, keep=keep) as watch,
        ):
            await post(watch.url, "Hi, and thank you.")
            await post(watch.url, LARGE)
        log.end({})
    assert [each.endswith(" · 2 bodies not compared: too large") for each in lines] == [False, True]
    show = ["watch", "--show", "mine", "--store", "s.db"]
    assert main(show) == 0
    assert capsys.readouterr().out.count("2 bodies not compared: too large.\n") == 1
    assert main([*show, "--output", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["notes"] == ["2 bodies not compared: too large."]
    arm = report["arms"]["main"]
    assert arm["total"]["oversized"] == arm["sessions"]["-"]["oversized"] == 2
    async with (
        Viewer("s.db", result_of=result_of) as viewer,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        await session.get(viewer.url)
        pages = [
            await (await session.get(f"{viewer.address}{place}")).text()
            for place in ("/watch?name=mine", "/watch/turn?name=mine&number=1", "/watch/turn?name=mine&number=2")
        ]
    assert [page.count("2 bodies not compared: too large") for page in pages] == [1, 0, 1]


def test_replay_says_in_every_output_how_many_bodies_it_did_not_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = {"role": "assistant", "content": "fine"}
    Path("log.jsonl").write_text(
        "".join(
            json.dumps({"model": "gpt-4o", "session_id": name, "messages": [{"role": "user", "content": text}, answer]})
            + "\n"
            for name, text in (("one", "Hi."), ("two", LARGE))
        )
    )
    with behind("nothing") as arms:
        assert (
            main(
                ["replay", "log.jsonl", *arms, "--upstream", "echo", "--run", "r", "--output", "json", "--out", "json"]
            )
            == 0
        )
    report = json.loads(Path("json").read_text())
    assert "nothing: 1 body not compared: too large." in report["notes"]
    assert report["wire"]["nothing"]["oversized"] == 1
    assert report["wire"]["nothing"]["text_changed"] == 0  # nobody knows of the large one
    for output in ("table", "html", "markdown"):
        assert main(["show", "r", "--output", output, "--out", output]) == 0
        assert Path(output).read_text().count("nothing: 1 body not compared: too large.") == 1, output
