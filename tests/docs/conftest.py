"""The world in which the blocks of the documentation run: a model, a hub and proxies on loopback, and what each page
takes as given.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import stat
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from context_bench.__main__ import main
from context_bench.compression.systems.sentence import SentenceModel
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.testing.hostile import MisbehavingProxy
from context_bench.testing.rule_judge import RuleJudge
from minihub import MiniHub, catalogue_fixtures

_spec = importlib.util.spec_from_file_location(
    "trace_fixtures", Path(__file__).parents[1] / "unit" / "traces" / "trace_fixtures.py"
)
traces = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(traces)
EXAMPLES = Path(__file__).parents[2] / "examples"

#: Ports that the pages write, and what they stand for.
TAP, FRONT, PROXIES, READER, SERVERS = "18409", "18400", ("18401", "18402"), "8080", ("8000", "8888", "9000")


def _free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


@pytest.fixture(scope="module")
def hub():
    with MiniHub(catalogue_fixtures()) as served:
        yield served


@pytest.fixture(scope="module")
def model():
    """Answerer and judge in one, on both wires."""
    rules = [{"when": {"text": "Assistant's response"}, "text": "4"}]
    server = ModelServer(Scripted({"rules": rules, "default": "The answer is B."}))
    run_sync(server.start())
    yield server
    run_sync(server.stop())


@pytest.fixture(scope="module")
def judge():
    """A judge by rules."""
    server = ModelServer(RuleJudge())
    run_sync(server.start())
    yield server
    run_sync(server.stop())


class Reader:
    """A model that finds sentences, where a page has one of its own listening."""

    def __init__(self, port):
        self.server = ModelServer(SentenceModel(), port=port)

    def __enter__(self):
        return run_sync(self.server.start())

    def __exit__(self, *error):
        run_sync(self.server.stop())


class World:
    """One page's: a folder, a home, and addresses of its own in the place of those it names."""

    def __init__(self, folder, model, judge):
        self.folder, self.model, self.judge = folder, model, judge
        self.ports = {port: _free_port() for port in (TAP, FRONT, *PROXIES, READER, *SERVERS)}

    def standing_in(self, text):
        """The same text with addresses of loopback."""
        for provider in ("https://api.openai.com", "https://api.anthropic.com"):
            text = text.replace(provider, self.model.url)
        for named, own in self.ports.items():
            text = text.replace(named, own)
        return text

    def proxies(self, text):
        """Whatever a block expects to be listening: proxies before the tap, unless the block starts one."""
        started = ExitStack()
        for habit, port in zip(("halves", "nothing"), PROXIES, strict=True):
            if f":{port}" in text and f"--port {port}" not in text:
                started.enter_context(
                    MisbehavingProxy(habit, f"http://127.0.0.1:{self.ports[TAP]}", int(self.ports[port]))
                )
        if re.search(rf"(127\.0\.0\.1|localhost):{READER}", text):
            started.enter_context(Reader(int(self.ports[READER])))
        return started


@pytest.fixture
def world(tmp_path, monkeypatch, model, judge, hub, hub_client):
    """What every page may take as given."""
    hub_client(monkeypatch, tmp_path / "hf", hub.url)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser()))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "COMPACT_KEY"):
        monkeypatch.setenv(key, "sk-none")
    monkeypatch.setenv("PYTHONPATH", "")  # pages may export it
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "examples").symlink_to(EXAMPLES)
    client = 'curl -s "$ANTHROPIC_BASE_URL/v1/messages" -H "content-type: application/json" -d @- >/dev/null'
    ask = {"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "What went wrong?"}]}
    program(tmp_path, "claude", f"echo '{json.dumps(ask)}' | {client}")
    program(tmp_path, "my-agent", "exit 0")
    sessions = tmp_path / "home" / ".claude" / "projects" / "demo"
    sessions.mkdir(parents=True)
    traces.session(tmp_path / "made-claude", "claude_stream_json").rename(sessions / "session")
    return World(tmp_path, model, judge)


def program(folder, name, text):
    """A shell script of that name on the PATH."""
    place = folder / "bin" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)


def bench(*words):
    assert main([*words, "--quiet"]) == 0


def boxes(number=8):
    """A file of questions, and a model that knows an answer where it is in the context: at its beginning or in its
    middle, by turns.
    """
    filler = "It is closed. " * 12
    lines = [
        {
            "id": i,
            "context": f"{filler if i % 2 else ''}Box {i} holds word{i}. {filler}",
            "question": f"What is in {i}?",
            "answer": f"word{i}",
        }
        for i in range(number)
    ]
    key = {line["question"]: {"answer": line["answer"], "evidence": f"holds {line['answer']}."} for line in lines}
    Path("boxes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Path("boxes.json").write_text(json.dumps({"answer_key": key}))


def one_run(world, name="mine", *more):
    """A small run in the store, the newest one."""
    boxes()
    arms = ("--system", "head_tail:keep=0.3", "--controls", "full,none")
    bench("--dataset", "boxes.jsonl", *arms, "--upstream", "scripted:boxes.json", "--run", name, *more)


def two_runs(world):
    """`before` and `after`, in the store and as JSON files; what loses is among their arms."""
    for name, file in (("before", "accepted.json"), ("after", "run.json")):
        one_run(world, name, "--output", "json", "--out", file)


def judged_run(world):
    """A run of compressors judged by rules, the newest one."""
    bench(
        *("compress", "run", "bundled:sessions/order-sync-zh", "--system", "anchored"),
        *("--judge-url", world.judge.url, "--judge-model", "gpt-rules", "--out", "judged.txt"),
    )


def some_arms(world):
    """The script of an arm."""
    program(world.folder, "install-hook.sh", "true")
    (world.folder / "bin" / "install-hook.sh").rename("install-hook.sh")


def recorded_traces(world):
    """Gold, a repository and the same session by two agents."""
    here = Path()
    traces.repository(here)
    traces.gold_file(here)
    for form, name in (("claude_stream_json", "claude"), ("mini_v2", "mini")):
        session = traces.session(here / "made", form)
        (here / "logs").mkdir(exist_ok=True)
        session.rename(here / "logs" / name)
    (here / "session.jsonl").write_bytes(next((here / "logs" / "claude").rglob("*.jsonl")).read_bytes())
    (here / "resolved.jsonl").write_text('{"instance_id": "demo__demo-1", "resolved": true}\n')


def some_sessions(world):
    """Sessions, a filter for them, and the package that is not here."""
    stand_in_llmlingua(world)
    recorded_traces(world)
    Path("my-sessions").mkdir()
    Path("session.jsonl").rename("my-sessions/session.jsonl")
    program(world.folder, "my-filter", 'cat >/dev/null; echo \'{"text": "Something was done."}\'')


def stand_in_llmlingua(world):
    """The documented signature of `llmlingua.PromptCompressor`, keeping the first words."""
    Path("llmlingua.py").write_text(
        "class PromptCompressor:\n"
        "    def __init__(self, model_name, device_map='cuda', use_llmlingua2=False):\n"
        "        assert use_llmlingua2\n\n"
        "    def compress_prompt(self, context, *, rate=0.5, target_token=-1, force_tokens=()):\n"
        "        words = ' '.join(context).split()\n"
        "        kept = words[:target_token] if target_token >= 0 else words[: int(len(words) * rate)]\n"
        "        return {'compressed_prompt': ' '.join(kept), 'ratio': '2.0x'}\n"
    )


#: Page → what has to be there before its first block.
GIVEN = {
    "docs/guide/agents.md": some_arms,
    "docs/guide/ci.md": two_runs,
    "docs/guide/compressors.md": some_sessions,
    "docs/guide/interchange.md": one_run,
    "docs/guide/judge.md": judged_run,
    "docs/guide/traces.md": recorded_traces,
}


@pytest.fixture
def given(world):
    """(page) → what its blocks begin with is made."""
    return lambda page: GIVEN.get(page, lambda world: None)(world)
