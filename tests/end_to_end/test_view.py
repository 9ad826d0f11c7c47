"""`context-bench view` as a person starts it: an address, pages behind it, Ctrl-C."""

import asyncio
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from context_bench.cli.app import run_line
from context_bench.engine import Arm, RunSettings, execute, open_store


class Echoes:
    name = "echoes"

    def process(self, example):
        return {**example, "response": example["context"]}


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store.db"
    examples = [{"id": number, "context": "a word"} for number in range(3)]

    async def filled():
        with open_store(path) as opened:
            await execute(
                opened,
                name="seen",
                arms=[Arm(Echoes())],
                examples=examples,
                evaluators=[],
                manifest={},
                settings=RunSettings(late_grace=0),
            )

    asyncio.run(filled())
    return path


def test_it_prints_an_address_serves_behind_it_and_ends_quietly(store):
    command = [sys.executable, "-m", "context_bench", "view", str(store), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as viewer:
        try:
            address = viewer.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            assert "Ctrl-C stops" in viewer.stderr.readline()
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
            page = direct.open(address).read().decode()
            assert ">seen</a>" in page
            assert '<span class="count">3</span>' in page
            stranger = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with pytest.raises(urllib.error.HTTPError, match="403"):
                stranger.open(address.partition("?")[0])
            viewer.send_signal(signal.SIGINT)
            rest = viewer.stderr.read()
            assert viewer.wait(60) == 0
            assert "Traceback" not in rest
        finally:
            viewer.kill()  # else leaving the block waits for a viewer that nobody stopped


def test_without_a_store_it_says_so_and_makes_none(tmp_path, capsys):
    missing = tmp_path / "none.db"
    assert run_line(["view", str(missing), "--no-open"]) == 2
    assert f"no store at {missing}" in capsys.readouterr().err
    assert not missing.exists()


def test_the_store_is_an_option_here_as_everywhere(tmp_path, capsys):
    missing = tmp_path / "none.db"
    assert run_line(["view", "--store", str(missing), "--no-open"]) == 2
    assert f"no store at {missing}" in capsys.readouterr().err
    assert run_line(["view", "a.db", "--store", "b.db", "--no-open"]) == 2
    assert "two stores are named, 'a.db' and --store 'b.db'; name one of them" in capsys.readouterr().err
