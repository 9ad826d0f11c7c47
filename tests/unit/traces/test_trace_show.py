"""One run in the terminal: what it says, that it fits, and that nothing in a log reaches the terminal as more than
text.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from rich.cells import cell_len

from context_bench.cli.app import run_line
from context_bench.shell.repo import Snapshot
from context_bench.traces import score_trace
from context_bench.traces.gold import Gold
from context_bench.traces.reports.run_details import _bar, render
from context_bench.traces.trace_rows import CallView, FileMap, StepView, TraceRow
from context_bench.transcripts.trace import Trace, dump_traces

from .trace_runs import FILES, GOLD, PATCH, events, long_run, scored

NASTY = "\x1b[31mred\x1b[0m\u202ename\u200b\r\n\tend\x07"


def words(text: str) -> str:
    return " ".join(text.split())


def test_it_tells_the_run() -> None:
    text = render(scored())
    for line in (
        "   1  Read src/calc.py 1–15 (structured)            ██··  ██▋·  █▉··  █▋··",
        "   2  Read src/gone.py failed                       ██··  ██▋·  █▉··  █▋··",
        "   3  Glob src/util.py name only (structured)",
        "   4  Edit src/calc.py edit 10",
        "   5  Grep docs/notes.md 100–103, 250",
        "Missed gold: 9 of 15 lines",
        "  src/calc.py:16–20",
        "  src/util.py:5–8",
    ):
        assert line in text, line
    told = words(text)
    assert "repository acme/widget @ 4f2a91c0ddba language python agent claude model model-1" in told
    assert "failed reads 1" in told
    assert "line 0.400 0.300 0.343 0.400 0.000" in told
    assert "symbol/block" in told
    assert "1 of 1 deleted lines lie in the gold's edit region" in told


def test_guesses_are_marked_and_explained() -> None:
    text = render(scored(provenance="command"))
    assert "(command?)" in text
    assert "?: a guess" in text
    assert "2 of 3 reads are guesses" in text
    assert "?: a guess" not in render(scored())


def test_without_gold_the_reads_are_told() -> None:
    row = score_trace(Gold("t"), Trace("t", "codex", None, events()), Snapshot(FILES), drift=False)
    row.score = None
    text = render(row)
    assert "Read src/calc.py 1–15 (structured)" in text
    assert "No gold: nothing says what should have been read." in text
    assert "██" not in text
    assert "In the end" not in text


def test_an_empty_run_and_a_long_one() -> None:
    assert "No calls" in render(TraceRow("s", "nothing"))
    text = render(long_run(60))
    assert text.count("docs/notes.md") == 59
    assert "Missed gold: 4 of 15 lines" in text


def test_the_original_policy_tells_no_lines_of_files() -> None:
    trace = Trace("t", "codex", None, events()[1:2])
    row = score_trace(GOLD, trace, Snapshot(FILES), "contextbench-v1")
    text = render(row)
    assert "Missed gold: not told under policy contextbench-v1." in text
    assert "not scored: no_context_extracted" in text


def test_all_gold_read() -> None:
    assert "Missed gold: none, all 9 lines were read." in render(
        scored(files={"a.py": FileMap(20, init=[(1, 9)], read=[(1, 12)])})
    )


@settings(max_examples=60)
@given(st.text(max_size=80), st.text(max_size=30), st.integers(56, 140), st.booleans())
def test_any_name_fits_and_stays_text(path: str, tool: str, width: int, ok: bool) -> None:
    row = scored(agent=tool, model=path, notes=[path], skipped={tool: 1})
    row.instance_id = path
    row.steps.append(
        StepView(6, calls=[CallView(tool, "read", path, ((1, 2), (7, 9)), "args", "shown", ok)], coverage={"line": 0.5})
    )
    row.files[path] = FileMap(None, init=[(1, 4)])
    lines = render(row, width=width).split("\n")
    assert all(cell_len(line) <= width for line in lines), max(lines, key=cell_len)
    assert all(line.isprintable() for line in lines)


def test_hostile_names_are_escaped() -> None:
    row = scored(NASTY, NASTY, agent=NASTY, error=NASTY, path=NASTY)
    text = render(row)
    assert not set("\x1b\u202e\u200b\r\x07") & set(text)
    assert "\\x1b[31mred" in text
    assert "\x1b" in render(row, color=True)
    assert "\x1b[31mred" not in render(row, color=True)


@given(st.floats(0, 1), st.floats(0, 1))
def test_bars_grow_with_coverage_and_only_all_fills_them(a: float, b: float) -> None:
    bars = [_bar(value, None).plain for value in sorted((a, b))]
    filled = [bar.rstrip("·") for bar in bars]
    assert all(cell_len(bar) == 4 for bar in bars)
    assert [len(bar) for bar in filled] == sorted(len(bar) for bar in filled)
    for value, bar in zip(sorted((a, b)), filled, strict=True):
        assert (bar == "████") == (value == 1)
        assert (bar == "") == (value == 0)
    assert _bar(None, None).plain == "—"


# The command
# ------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    traces = [
        Trace("acme__widget-1", "claude", None, events(), patch=PATCH),
        Trace("acme__widget-2", "claude", None, events()),
    ]
    (tmp_path / "one.jsonl").write_bytes(b"".join(dump_traces(traces[:1])))
    (tmp_path / "two.jsonl").write_bytes(b"".join(dump_traces(traces)))
    gold = {"inst_id": "acme__widget-1", "init_ctx": [{"file": "src/calc.py", "start_line": 10, "end_line": 20}]}
    (tmp_path / "gold.jsonl").write_text(json.dumps(gold) + "\n")
    (tmp_path / "repo.json").write_text(json.dumps({path: data.decode() for path, data in FILES.items()}))
    return tmp_path


def run(line: str) -> int:
    return run_line(["trace", "show", *line.split()])


def test_the_command_with_and_without_gold(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("one.jsonl") == 0
    assert "No gold" in capsys.readouterr().out
    assert run("one.jsonl --gold gold.jsonl --repo repo.json") == 0
    scored_text = capsys.readouterr().out
    assert "Missed gold: 5 of 11 lines\n  src/calc.py:16–20\n" in scored_text
    assert max(map(cell_len, scored_text.split("\n"))) <= 80
    assert run("one.jsonl --gold gold.jsonl") == 0
    assert "bytes and symbols are" in capsys.readouterr().out


def test_the_run_is_named_where_there_are_several(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("two.jsonl --gold gold.jsonl") == 2
    assert "2 runs: name one with --instance. There are: acme__widget-1, acme__widget-2" in words(
        capsys.readouterr().err
    )
    assert run("two.jsonl") == 0
    assert "What was read, by repository" in capsys.readouterr().out
    assert run("two.jsonl --instance acme__widget-2") == 0
    shown = capsys.readouterr().out
    assert "\nacme__widget-2\n" in shown
    assert "acme__widget-1" not in shown
    assert run("two.jsonl --instance other") == 2
    assert "no run of 'other'" in capsys.readouterr().err


def test_the_task_is_named_where_the_log_does_not_say(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "unnamed.jsonl").write_bytes(b"".join(dump_traces([Trace("session-7", "claude", None, events())])))
    assert run("unnamed.jsonl --gold gold.jsonl --repo repo.json") == 0
    assert "none of the 1 golds is of 'session-7': --instance says which task it is" in words(capsys.readouterr().out)
    assert run("unnamed.jsonl --gold gold.jsonl --repo repo.json --instance acme__widget-1") == 0
    assert "Missed gold: 5 of 11 lines" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("gone.jsonl", "gone.jsonl: no such trace"),
        ("one.jsonl --gold gone.jsonl", "gone.jsonl: no such gold"),
        ("one.jsonl --repo gone", "gone: no such repository"),
        ("one.jsonl --policy lax", "Unknown policy 'lax'"),
        ("repo.json", "not a trace that can be read"),
    ],
)
def test_bad_input_is_named(place: Path, capsys: pytest.CaptureFixture[str], line: str, told: str) -> None:
    assert run(line) == 2
    assert told in words(capsys.readouterr().err)


@pytest.mark.parametrize("no_color", [False, True])
def test_colour_in_a_terminal_unless_it_is_unwanted(place: Path, no_color: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    if no_color:
        environment["NO_COLOR"] = "1"
    command = [sys.executable, "-m", "context_bench", "trace", "show", "one.jsonl"]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, cwd=place, env=environment) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65536):
                said += part
        except OSError:  # the end of a terminal
            pass
        assert process.wait() == 0
    os.close(ours)
    assert b"src/calc.py" in said
    assert (b"\x1b[" in said) == (not no_color)


def test_rows_keep_what_is_shown() -> None:
    row = scored()
    again = TraceRow.from_json(json.loads(json.dumps(row.to_json())))
    assert render(again) == render(replace(row))
