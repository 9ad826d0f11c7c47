"""The guide to memories: every file in it is one that is understood, its Python runs, its names are those of the program."""

import re
import tomllib
from pathlib import Path

import pytest

from context_bench.systems.memories import BUILTINS, SCHEMES, http, mcp
from context_bench.systems.memories.command import CommandClient

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "memory.md").read_text()
FILES = re.findall(r"```toml\n(.*?)```", GUIDE, re.S)
PYTHON = re.findall(r"```python\n(.*?)```", GUIDE, re.S)


@pytest.mark.parametrize("text", FILES)
def test_files_are_understood(text, monkeypatch):
    for name in re.findall(r'env = "(\w+)"', text):
        monkeypatch.setenv(name, "any-key-will-do-here")
    given = tomllib.loads(text)
    read = CommandClient.from_dict if "store" in given else mcp.from_dict if "command" in given else http.from_dict
    memory = read(given)
    assert memory.name == given["name"]
    assert {"add", "search"} <= memory.capabilities


def test_the_python_runs(capsys):
    examined, contract, *_not_run = PYTHON
    exec(compile(examined, "memory.md", "exec"), {"__name__": "guide"})
    assert "ok delete it is gone" in capsys.readouterr().out
    names = {"__name__": "guide"}
    exec(compile(contract, "memory.md", "exec"), names)
    names["test_my_memory"]()


def test_every_memory_is_named():
    table = GUIDE.split("## What")[1].split("Options follow")[0]
    named = set(re.findall(r"`(\w+)[`:]", table))
    assert {*BUILTINS, *SCHEMES, "py"} <= named
