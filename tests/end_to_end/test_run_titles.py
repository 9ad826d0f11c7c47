"""Title and tags from the command that makes a run: every command that stores one has the same two options."""

from __future__ import annotations

import json

import pytest

from context_bench.__main__ import main
from context_bench.engine import open_store, run_of

SYSTEM = "class S:\n    name = 's'\n    def process(self, example):\n        return {'response': 'word'}\n"
ROW = {"id": 1, "context": "A box holds a word", "question": "what?", "answer": "word"}
LINES = """
run --system py:titled:S --dataset boxes.jsonl
memory run --system bm25 --dataset bundled:recall-lab -n 1 --questions 1 --reader none --no-floors
compress run bundled:sessions/order-sync-zh --system head_tail:keep=0.5 --controls full
replay bundled:sessions/order-sync-zh --controls minify --upstream echo
"""
COMMANDS = {line.split()[0]: line.split() for line in LINES.strip().splitlines()}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "titled.py").write_text(SYSTEM)
    (tmp_path / "boxes.jsonl").write_text(json.dumps(ROW))
    return tmp_path


def listed(capsys):
    capsys.readouterr()
    assert main(["runs", "--json", "--store", "s.db"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_run_has_the_title_and_tags_it_was_given_and_keeps_its_name(command, place, capsys):
    named = ["--store", "s.db", "--run", "monday", "--quiet", "--out", "report.txt"]
    assert main([*command, *named, "--title", "Before the upgrade", "--tag", "team a,v2", "--tag", "V2"]) in (0, 1, 4)
    (run,) = listed(capsys)
    assert (run["name"], run["title"], run["tags"]) == ("monday", "Before the upgrade", ["team a", "v2"])
    with open_store("s.db") as store:
        assert "Before the upgrade" not in json.dumps(run_of(store, "monday").manifest)


def test_going_on_with_a_run_changes_only_what_is_given_anew(place, capsys):
    begin = [*COMMANDS["run"], "--store", "s.db", "--run", "monday", "--quiet", "--out", "report.txt"]
    assert main([*begin, "--title", "One", "--tag", "a"]) == 0
    identity = listed(capsys)[0]["id"]
    assert main(begin) == 0
    assert [(run["id"], run["title"], run["tags"]) for run in listed(capsys)] == [(identity, "One", ["a"])]
    assert main([*begin, "--title", "Two"]) == 0
    assert [(run["id"], run["title"], run["tags"]) for run in listed(capsys)] == [(identity, "Two", ["a"])]


def test_a_title_that_cannot_be_one_is_refused_before_anything_is_asked(place, capsys):
    assert main([*COMMANDS["run"], "--store", "s.db", "--quiet", "--title", "t" * 201]) == 2
    assert "a title of 201 characters is too long; at most 200" in capsys.readouterr().err
    assert not (place / "s.db").exists()


@pytest.mark.parametrize("command", [["run"], ["memory", "run"], ["compress", "run"], ["replay"], ["agent"], ["grade"]])
def test_the_options_are_the_same_wherever_a_run_is_stored(command, capsys):
    assert main([*command, "--help-all"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "--title TEXT What lists show beside the name, which stays." in told
    assert "A tag in lists; repeatable, or with commas between." in told
