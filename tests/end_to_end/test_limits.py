"""Limits on sessions over real sockets: a watch that is ended by an alarm, one that is taken up again, a replay of a
folder that grows.
"""

import asyncio
import json
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.llm.prices import GenaiPrices
from context_bench.llm.responders import Echo
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.tap import Watch
from context_bench.testing.hostile import MisbehavingProxy, Rewriting
from context_bench.traffic.session_limits import OpenSessions
from context_bench.wire.turns import Turn

#: Asks in as many sessions as it is told, then sleeps for as long as it is told.
CLIENT = """
import json, os, sys, time, urllib.request
for number in range(int(sys.argv[1])):
    body = {"model": "gpt-4o", "messages": [{"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"topic {number} " * 300}]}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-own", "x-session-id": f"n{number}"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    urllib.request.urlopen(request).read()
time.sleep(float(sys.argv[2]))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def watching(
    folder: Path, change, *options: str, port: int = 0, upstream: int = 0, sessions: int = 12, stays: float = 0.0
):
    """(exit code, report, what was said) of a watch with a client, around a proxy that changes requests."""
    front, back = free_port(), free_port()
    behind = f"http://127.0.0.1:{back}"
    (folder / "client.py").write_text(CLIENT)
    made = MisbehavingProxy(change, behind, port) if isinstance(change, str) else Rewriting(change, behind, port)
    async with ModelServer(Scripted({"default": "fine"}), port=upstream) as server, made as proxy:
        line = ["watch", "--front", str(front), "--back", str(back), "--via", proxy.url, "--upstream", server.url]
        line += ["--store", str(folder / "store.db"), "--output", "json", *options]
        line += ["--", sys.executable, str(folder / "client.py"), str(sessions), str(stays)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "context_bench", *line, cwd=folder, stdout=pipe, stderr=pipe
        )
        out, error = await asyncio.wait_for(process.communicate(), 240)
    return process.returncode, json.loads(out) if out else None, error.decode()


def same(request):
    return request


def asked_three_times(request):
    """Asks twice on its own account first, of something else: extra calls."""
    return [*(request.with_raw(request.raw.replace(b"topic", word)) for word in (b"other", b"third")), request]


def asked_four_times(request):
    """The same, three times."""
    words = (b"other", b"third", b"fourth")
    return [*(request.with_raw(request.raw.replace(b"question", word)) for word in words), request]


async def test_the_first_violation_ends_a_watch_and_its_client(tmp_path):
    code, report, said = await watching(
        tmp_path, "user-only", "--limit", "violations=0", "--fail-fast", sessions=1, stays=600
    )
    assert code == 6, said
    alarm = report["limits"]["channels"]["violations"]["alarm"]
    [session] = [name for name in report["arms"]["main"]["sessions"] if name != "-"]
    assert alarm["weighed_most"] == [{"session": session}]
    assert f"ALARM violations > 0: the first one, in {session}" in said
    assert any("ALARM violations" in note for note in report["notes"])


async def test_a_bill_that_triples_is_found_by_a_state_that_outlives_its_watch(tmp_path):
    program, port, upstream = tmp_path / "note", free_port(), free_port()
    program.write_text(f"#!/bin/sh\ncat >> {tmp_path}/told.jsonl\n")
    program.chmod(0o700)
    limits = ["--limit", "typical=1.1", "--limit", "violations=0.9", "--notify", str(program)]
    code, report, said = await watching(tmp_path, same, *limits, port=port, upstream=upstream, sessions=3)
    good = report["limits"]["channels"]["typical"]
    assert (code, good["sessions"], good["unknown"], good.get("alarm")) == (0, 3, 0, None), said
    assert good["value"] == pytest.approx(1.0)
    code, report, said = await watching(tmp_path, asked_three_times, *limits, port=port, upstream=upstream)
    alarm = report["limits"]["channels"]["typical"]["alarm"]
    assert (code, alarm["channel"]) == (0, "typical"), said
    assert 3 < alarm["sessions"] < 12
    assert all(2.5 < each["value"] < 3.5 for each in alarm["weighed_most"])
    [told] = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    assert told["alarm"] == alarm
    # An alarm stands over restarts: with --fail-fast nothing begins, until it is begun anew.
    code, report, said = await watching(
        tmp_path, same, *limits, "--fail-fast", port=port, upstream=upstream, sessions=1
    )
    assert (code, report) == (6, None)
    assert "--anew begins anew" in said
    code, report, _ = await watching(
        tmp_path, same, *limits, "--fail-fast", "--anew", port=port, upstream=upstream, sessions=1
    )
    assert (code, report["limits"]["begun"], report["limits"]["channels"]["typical"]["sessions"]) == (0, 2, 1)
    assert len((tmp_path / "told.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--limit", "bill=0.9"],
            "watch: --limit is about what a proxy does; name the one in between with --proxy URL",
        ),
        (["--limit", "cost=0.9", "--via", "http://127.0.0.1:1"], "Unknown channel of --limit 'cost'"),
        (["--fail-fast"], "--fail-fast is about alarms"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused_at_once(options, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["watch", "--front", str(free_port()), "--upstream", "echo", *options]) == 2
    assert said in capsys.readouterr().err


async def bills(change, turns):
    """The sessions that a watch around a proxy counts, of one conversation that grows."""
    kept, back = [], free_port()

    async def keep(batch: list[Turn]) -> None:
        kept.extend(batch)

    async with (
        ModelServer(Scripted({"default": "fine"})) as server,
        Rewriting(change, f"http://127.0.0.1:{back}") as proxy,
        Watch(server.url, via=proxy.url, back=back, prices=GenaiPrices(), keep=keep) as watch,
        aiohttp.ClientSession() as client,
    ):
        for turn in range(1, turns + 1):
            messages = [{"role": "user", "content": f"topic {number} " * 200} for number in range(turn)]
            body = {"model": "gpt-4o", "messages": messages}
            headers = {"Authorization": "Bearer sk-own", "x-session-id": "one"}
            async with client.post(watch.url + "/v1/chat/completions", json=body, headers=headers) as reply:
                assert reply.status == 200
    opened = OpenSessions()
    assert [counts for turn in kept for counts in opened.add(turn)] == []
    [counts] = opened.close()
    return counts, kept


async def test_a_session_that_is_passed_on_costs_what_it_would_cost_alone():
    counts, kept = await bills(same, 3)
    assert counts.requests == 3
    assert counts.alone == counts.through > 0
    prompts = sum(turn.alone_cost for turn in kept)
    replies = sum(turn.usage.output_tokens for turn in kept) * 10 / 1e6  # gpt-4o: $10 a million
    assert counts.alone == pytest.approx(prompts + replies)


async def test_calls_that_a_proxy_makes_by_itself_are_in_the_bill_through_it():
    counts, kept = await bills(asked_three_times, 2)
    assert counts.through == pytest.approx(
        sum(turn.predicted_cost for turn in kept) + sum(turn.usage.output_tokens for turn in kept) * 10 / 1e6
    )
    assert 2 < counts.through / counts.alone < 4


def recorded(folder: Path, name: str) -> None:
    messages = [{"role": "system", "content": f"You are careful. Session {name}."}]
    for turn in range(3):
        messages += [
            {"role": "user", "content": f"question {turn} of {name} " * 40},
            {"role": "assistant", "content": "fine"},
        ]
    line = {"model": "gpt-4o", "messages": messages, "session_id": name}
    (folder / f"{name}.jsonl").write_text(json.dumps(line) + "\n")


def test_a_growing_folder_is_counted_once_and_its_alarm_ends_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, port = tmp_path / "sessions", free_port()
    folder.mkdir()
    server = ModelServer(Echo())
    proxy = Rewriting(asked_four_times, f"http://127.0.0.1:{port}")
    run_sync(server.start())
    run_sync(proxy.__aenter__())

    def replayed(*options):
        line = ["replay", str(folder), "--proxy", proxy.url, "--name", "p", "--upstream", server.url, "--quiet"]
        line += ["--level", "0", "--tap", str(port), "--limit", "typical=1.5", "--out", "report.json"]
        code = main([*line, "--output", "json", *options])
        report = json.loads(Path("report.json").read_text())
        return code, report["replay"]["limits"]["channels"]["typical"], report["notes"]

    try:
        for number in range(2):
            recorded(folder, f"a{number}")
        code, found, notes = replayed()
        assert (code, found["sessions"], found.get("alarm")) == (0, 2, None)
        assert "2 sessions were counted now." in notes
        assert replayed()[1]["sessions"] == 2
        for number in range(8):
            recorded(folder, f"b{number}")
        code, found, notes = replayed("--fail-fast")
        assert (code, found["alarm"]["channel"]) == (6, "typical")
        assert "8 sessions were counted now." in notes
        assert any(note.startswith("Limits: ALARM typical > 1.5") for note in notes)
    finally:
        run_sync(proxy.__aexit__())
        run_sync(server.stop())
