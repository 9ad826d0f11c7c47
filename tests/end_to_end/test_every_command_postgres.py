"""Memories, sessions, agents, replays, imports, watches, judges and the viewer with a PostgreSQL store, then all of it
copied to a file and back: every report stays what it was.
"""

import io
import json
import re
import socket
import sys
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from context_bench.__main__ import main
from context_bench.agents.datasets import SCRIPT
from context_bench.engine import list_runs, open_store, watched
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.session.runs import result_of
from context_bench.testing.hostile import MisbehavingProxy
from context_bench.testing.rule_judge import RuleJudge
from context_bench.viewer import Viewer

pytestmark = pytest.mark.program("initdb")
TINY = str(Path(__file__).parents[2] / "examples" / "tiny_agent.py")
ASKS = """
import sys, urllib.request
body = b'{"model": "m", "messages": [{"role": "user", "content": "What is in box 1?"}]}'
urllib.request.urlopen(urllib.request.Request(sys.argv[1], body, {"content-type": "application/json"})).read()
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(responder):
    server = ModelServer(responder)
    run_sync(server.start())
    try:
        yield server.url
    finally:
        run_sync(server.stop())


@pytest.fixture
def store(postgres, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test-alone")
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    return postgres.url("everything").replace(f":{postgres.password}@", "@")


@pytest.fixture
def command(store, capsys):
    """(words) → what was printed. Every command gets the store, and must succeed."""

    def ran(*words, code=0):
        quiet = (
            ["--quiet"] if words[0] in ("run", "compress", "agent", "replay") or words[:2] == ("memory", "run") else []
        )
        cut = words.index("--") if "--" in words else len(words)
        assert main([str(word) for word in (*words[:cut], "--store", store, *quiet, *words[cut:])]) == code, (
            capsys.readouterr().err
        )
        told = capsys.readouterr()
        return told.out + told.err

    return ran


def made(command, monkeypatch):
    """One run of each kind."""
    data = Path("boxes.jsonl")
    asked = [
        {"id": n, "context": f"Box {n} holds thing{n}. " * 8, "question": f"What is in box {n}?", "answer": f"thing{n}"}
        for n in range(4)
    ]
    data.write_text("".join(json.dumps(one) + "\n" for one in asked))
    with serving(Scripted({"default": "thing1"})) as model:
        command(
            "run",
            "--dataset",
            data,
            "--controls",
            "full,none",
            "--tap",
            "0",
            "--upstream",
            model,
            "--run",
            "boxes",
            "--price",
            "m=1,2",
            "--model",
            "m",
        )
        tapped = free_port()
        with MisbehavingProxy("nothing", f"http://127.0.0.1:{tapped}") as proxy:
            Path("log.jsonl").write_text(
                json.dumps(
                    {
                        "model": "m",
                        "messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Ho."}],
                    }
                )
            )
            command(
                "replay",
                "log.jsonl",
                "--proxy",
                proxy.url,
                "--name",
                "p",
                "--tap",
                tapped,
                "--upstream",
                "echo",
                "--run",
                "again",
            )
        front, back = free_port(), free_port()
        with MisbehavingProxy("nothing", f"http://127.0.0.1:{back}") as proxy:
            client = ["--", sys.executable, "-c", ASKS, f"http://127.0.0.1:{front}/v1/chat/completions"]
            command("watch", "--front", front, "--back", back, "--via", proxy.url, "--upstream", model, *client)
    command(
        "memory",
        "run",
        "--dataset",
        "bundled:recall-lab",
        "-n",
        "1",
        "--reader",
        "none",
        "--system",
        "bm25",
        "--no-floors",
        "--run",
        "recall",
    )
    with serving(RuleJudge()) as judge:
        session = [
            "bundled:sessions/order-sync-zh",
            "--system",
            "head_tail:keep=0.3",
            "--controls",
            "full",
            "--per-type",
            "1",
        ]
        command("compress", "run", *session, "--judge-url", judge, "--judge-model", "gpt-rules", "--run", "session")
        assert "gpt-rules: " in command(
            "judge", "audit", "session", "-n", "2", "--only", "marks,repeats", "--replicates", "2"
        )
    monkeypatch.setattr("sys.stdin", io.StringIO("4\n2\n"))
    command("judge", "label", "session", "--items", "2", "--labels", "labels.jsonl")
    task = [
        "bundled:repo-tasks:split-parsing",
        "--arm",
        "base=",
        "--upstream",
        f"scripted:{SCRIPT}",
        "--tap",
        str(free_port()),
    ]
    command("agent", *task, "--run", "agents", "--", sys.executable, TINY, "{instruction}")
    command("export", "boxes", "--format", "jsonl", "--out", "rows.jsonl")
    command("import", "rows.jsonl", "--name", "back")


def shown(where, name, output="json"):
    out = Path(f"shown.{output}")
    assert main(["show", name, "--store", str(where), "--output", output, "--out", str(out)]) == 0
    return out.read_bytes()


async def seen_in_a_browser(where):
    """The viewer's list, a run, one of its rows and a search, read from the server."""
    async with (
        Viewer(where, result_of=result_of) as viewer,
        aiohttp.ClientSession(viewer.address, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):

        async def page(address):
            async with session.get(address) as reply:
                assert reply.status == 200, address
                return await reply.text()

        home = await page(viewer.url)
        run = home.split(">boxes</a>")[0].rpartition('href="')[2].partition('"')[0]
        assert "none" in await page(run)
        found = await page(f"{run}?q=thing2")
        assert "/rows/0-2-0" in found
        assert "/rows/0-1-0" not in found
        assert "thing3" in await page(f"{run}/rows/0-3-0")
        return home


def test_with_every_command(store, command, monkeypatch):
    made(command, monkeypatch)
    with open_store(store) as opened:
        names = sorted(run.name for run in list_runs(opened))
        assert names == ["again", "agents", "back", "boxes", "recall", "session"]
        assert len(list(watched(opened, "last"))) == 1
    home = run_sync(seen_in_a_browser(store))
    assert all(f">{name}</a>" in home for name in names)
    assert "passed" in command("gate", "boxes", "--min", "full/f1=0")
    assert "full" in command("plot", "boxes", "--kind", "latency", "--out", "chart.svg") + Path("chart.svg").read_text()
    command("compare", "boxes", "back", "--force")
    before = {name: shown(store, name) for name in names}
    command("copy", "--to", "file.db")
    other = f"{store}?schema=other"
    assert main(["copy", "--store", "file.db", "--to", other]) == 0
    for name, report in before.items():
        assert shown(other, name) == report, name
    pages = [
        re.sub("--store(?:</span>)? [^<]*", "", shown(place, "session", "html").decode()) for place in (other, store)
    ]
    assert pages[0] == pages[1]
    assert "already" in command("copy", "--to", other)
