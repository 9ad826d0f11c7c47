"""The six jobs of scripts/jobs.py: their form, and those that take no model and no server, done in this process. All of
them, with the wheel in a clean environment: `make jobs`.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from context_bench.__main__ import main

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import cast  # noqa: E402
import jobs  # noqa: E402


def test_there_are_six_each_of_at_most_three_commands(tmp_path):
    assert len(jobs.JOBS) == 6
    for name, job in jobs.JOBS.items():
        assert 1 <= len(job.commands) <= jobs.MOST_COMMANDS
        assert job.question.endswith("?")
        (tmp_path / name).mkdir()
        job.has(tmp_path / name)
        assert list((tmp_path / name).iterdir())


@pytest.mark.parametrize("name", ["reading", "compaction"])
def test_the_answer_is_a_sentence_of_what_is_printed(name, tmp_path, monkeypatch, capsys):
    job = jobs.JOBS[name]
    job.has(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for line in job.commands:
        assert main(shlex.split(line)[1:]) == 0
    assert jobs.answered(capsys.readouterr().out, job.answer).startswith("answered: ")


def test_a_log_that_was_read_once_and_used_gets_another_answer(tmp_path, monkeypatch, capsys):
    jobs._agents_log(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "claude.jsonl").read_text().splitlines()]
    monkeypatch.chdir(tmp_path)
    jobs._write(tmp_path / "once.jsonl", [*rows[:3], jobs._line("assistant", 4, "See src/part0.py.", (3000, 9))])
    assert main(["trace", "show", "once.jsonl"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"0 \(0 %\) had been read before, unchanged, and 0 \(0 %\) were never used afterwards: 0 of 1", said
    )


def test_another_output_is_no_answer():
    assert jobs.answered("nothing\nof it", r"gate failed") == "no answer of the form 'gate failed' in: nothing of it"


def test_a_job_of_four_commands_is_refused(tmp_path):
    job = jobs.Job("?", lambda folder: None, ("true",) * 4, "x")
    assert jobs.tried(job, Path("/bin/true"), tmp_path) == "4 commands, expected at most 3"


def test_the_cast_is_what_the_commands_print(tmp_path):
    kept = cast.CAST.read_text("utf-8")
    assert kept == cast.recorded(tmp_path), "run python scripts/cast.py"
    head, *events = map(json.loads, kept.splitlines())
    assert head["version"] == 2
    assert [at for at, _, _ in events] == sorted(at for at, _, _ in events)
    assert all(kind == "o" for _, kind, _ in events)
    shown = "".join(text for _, _, text in events)
    assert all(jobs.JOBS[name].question in shown for name in cast.SHOWN)
