"""Names from outside in every place that takes one: a sentence and a known exit code, nothing outside the folder, and
nothing on a terminal or a page that acts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_bench.__main__ import main

from ..end_to_end.test_watch import free_port

NAMES = [
    "\x1b[31mred\x1b]0;title\x07",
    "\x1b[2J",
    "\x9b31m",
    "\u202egnp.exe",
    "\u2066a\u2069",
    "\u200b",
    "\u2028\u2029",
    "a\nb",
    "a\r\nb",
    "\t",
    "   ",
    "../../outside",
    "..",
    ".",
    "~",
    "/nowhere/absolute",
    "a/b\\c",
    "%00%2e%2e",
    "-rf",
    "--help",
    "--",
    '=HYPERLINK("http://x","y")',
    "@SUM(A1)",
    "+1+1",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "{{ 7*7 }}{% raw %}",
    "n" * 300,
    "\u00e9" * 200,
    "z\u0300" * 40,
    "$(touch owned)",
    "`id`;touch owned",
    "__proto__",
    "a|b*c_d[e](f)",
    "last",
]
#: Only within a value that no argument can hold.
IN_DATA = [*NAMES, "nul\x00byte", ""]
#: What `trace score` keeps in its folder, whatever the tasks are called.
KEPT = {"rows.jsonl", "appendix_minimal_per_task_log.csv", "summary.json", "summary.md", "report.html", "store.db"}
_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_FORMULA = re.compile(r'(?:^|,)"?[=+@-]', re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder deep in another, in which nothing may appear."""
    made = tmp_path / "deep" / "er"
    made.mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(made / "cache"))
    monkeypatch.chdir(made)
    yield made
    assert [path for path in (*tmp_path.iterdir(), *made.parent.iterdir()) if path not in (made.parent, made)] == []
    assert not (made / "owned").exists()


def ends(capsys: pytest.CaptureFixture[str], *argv: str, codes: tuple[int, ...] = (0,)) -> str:
    """What the command prints; it ends with one of the codes, and nothing of it acts on a terminal."""
    code = main(list(argv))
    told = capsys.readouterr()
    assert code in codes, (argv, told.err)
    assert "Traceback" not in told.err
    for text in (told.out, told.err):
        assert _ACTS.search(text) is None, (argv, text)
    return told.out


def test_ids_of_rows_in_every_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of systems, examples, data sets, groups and scores in an imported log."""
    rows = [
        {"system": system, "id": name, "question": name, "answer": name, "response": name, "dataset": name}
        | {"group": name, "scores": {"f1": 0.5, name or "q": 0.1}}
        for system in (*NAMES[:6], "full")
        for name in IN_DATA
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ends(capsys, "import", "rows.jsonl", "--name", "r", "--store", "s.db")
    for output in ("table", "html", "markdown"):
        ends(capsys, "show", "r", "--full", "--store", "s.db", "--output", output)
        ends(capsys, "show", "r", "--store", "s.db", "--output", output, "--out", output)
        text = Path(output).read_text(encoding="utf-8")
        assert _ACTS.search(text) is None
        assert "<script>alert" not in text
        assert "<img src=x" not in text
    for form in ("csv", "jsonl"):
        ends(capsys, "export", "r", "--store", "s.db", "--format", form, "--out", form)
    ends(capsys, "show", "r", "--store", "s.db", "--output", "csv", "--out", "cells.csv")
    body = Path("cells.csv").read_text(encoding="utf-8").partition("\n")[2]
    assert _FORMULA.search(body) is None
    for name in NAMES[::4]:
        ends(capsys, "diff", "--store", "s.db", "--system=full", "--", "r", name)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_of_runs_systems_and_stores(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"system": name, "id": 1, "question": "q", "answer": "a", "response": "a"}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    reserved = name.strip() in ("", "last")
    ends(capsys, "import", "rows.jsonl", f"--name={name}", "--store", "s.db", codes=(2,) if reserved else (0,))
    ends(capsys, "import", "rows.jsonl", "--store", "s.db")
    ends(capsys, "runs", "--store", "s.db")
    ends(capsys, "show", "--store", "s.db", "--", "import-rows" if reserved else name)
    line = ("copy", "import-rows", "--store", "s.db", "--to", "c.db", f"--as={name}")
    ends(capsys, *line, codes=(2,) if reserved else (0,))
    ends(capsys, "run", "--system", name, "--dataset", "rows.jsonl", "-n", "1", "--store", "t.db", codes=(2,))
    place = name.replace("/", "_")  # a path is the user's own to choose
    ends(capsys, "import", "rows.jsonl", "--name", "r", f"--store={place}.db", codes=(0, 2))
    ends(capsys, "show", "r", f"--store={place}.db", "--output", "json", f"--out={place}.json", codes=(0, 2))


def test_sessions_tools_and_models_of_logs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sessions = [
        {
            "model": name or "m",
            "session_id": name,
            "tools": [{"type": "function", "function": {"name": name, "description": name, "parameters": {}}}],
            "messages": [
                {"role": "user", "content": name},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": name,
                            "type": "function",
                            "function": {"name": name, "arguments": json.dumps({name: name})},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": name, "content": name},
                {"role": "assistant", "content": name},
            ],
        }
        for name in IN_DATA
    ]
    Path("log.jsonl").write_text("".join(json.dumps(session) + "\n" for session in sessions))
    for more in ((), ("--compactions",), ("--output", "markdown"), ("--html", "page.html")):
        ends(capsys, "explain", "log.jsonl", *more)
    ends(capsys, "compress", "cache", "log.jsonl")
    page = Path("page.html").read_text(encoding="utf-8")
    assert _ACTS.search(page) is None
    assert "<script>alert" not in page


def conversation(name: str) -> dict[str, object]:
    """A session whose every name is this one, with facts that probes can ask for."""
    call = {"id": name, "type": "function", "function": {"name": name, "arguments": json.dumps({name: name})}}
    facts = [f"The port of depot {n} is {8000 + n}; its file is src/depot_{n}.py." for n in range(12)]
    turns = [
        turn
        for fact in facts
        for turn in (
            {"role": "user", "content": f"{name} Note this. {fact}"},
            {"role": "assistant", "content": f"Noted: {fact}"},
        )
    ]
    more = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": name},
        {"role": "assistant", "content": "Done."},
    ]
    return {"model": "gpt-4o", "session_id": name, "messages": [*turns[:12], *more, *turns[12:]]}


@pytest.mark.parametrize("command", ["replay", "compress"])
def test_ids_of_sessions_that_are_replayed_or_compressed(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("log.jsonl").write_text("".join(json.dumps(conversation(name)) + "\n" for name in IN_DATA[::3]))
    own = {
        "replay": ("replay", "log.jsonl", "--controls", "minify", "--upstream", "echo", "--tap", str(free_port())),
        "compress": ("compress", "run", "log.jsonl", "--system", "head_tail:keep=0.3", "--per-type", "1"),
    }[command]
    ends(capsys, *own, "--run", "r", "--store", "s.db", "--quiet")
    for output in ("table", "html", "markdown", "json", "csv"):
        ends(capsys, "show", "r", "--full", "--store", "s.db", "--output", output, "--out", output)
        if output in ("table", "html", "markdown"):
            text = Path(output).read_text(encoding="utf-8")
            assert _ACTS.search(text) is None
            assert "<script>alert" not in text
            assert "<img src=x" not in text
    assert _FORMULA.search(Path("csv").read_text(encoding="utf-8").partition("\n")[2]) is None


def test_ids_of_tasks_whose_traces_are_scored(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vectors = json.loads((Path(__file__).parents[1] / "vectors" / "traces.json").read_text(encoding="utf-8"))
    Path("repo.json").write_text(json.dumps(vectors["fixture_repo"]))
    area = [{"file": "src/calc.py", "start_line": 8, "end_line": 16}]
    gold = [{"inst_id": name, "repo": name, "language": "python", "init_ctx": area, "add_ctx": []} for name in IN_DATA]
    Path("gold.jsonl").write_text("".join(json.dumps(each) + "\n" for each in gold))
    ((file, text),) = vectors["same_session"]["formats"]["mini_v2"]["files"].items()
    for number, name in enumerate(NAMES[::2]):
        place = Path("logs", str(number), file)
        place.parent.mkdir(parents=True)
        place.write_text(text)
        line = ("trace", "score", "--gold", "gold.jsonl", "--repo", "repo.json", "--trace", f"set={place.parent}")
        ends(capsys, *line, f"--instance={name}", "--out-dir", "out", "--quiet", codes=(0, 2))
    for path in Path("out").rglob("*"):
        assert path.name in KEPT
        if path.suffix in (".md", ".html"):
            text = path.read_text(encoding="utf-8")
            assert _ACTS.search(text) is None
            assert "<script>alert" not in text
        if path.suffix == ".csv":
            assert _FORMULA.search(path.read_text(encoding="utf-8").partition("\n")[2]) is None
