"""Scoring what agents read asks nobody: with sockets forbidden in every process, and where the system allows it without
any network.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "traces.json").read_text())
#: Python reads this module first in every process, the workers' too; an audit hook cannot be taken out again.
BLOCK = """
import socket, sys
def _refuse(event, args):
    if event == "socket.__new__" and args[1] != getattr(socket, "AF_UNIX", None) or event in ("socket.getaddrinfo", "socket.connect"):
        if event != "socket.connect" or not isinstance(args[1], (str, bytes)):
            raise PermissionError(f"no network here: {event} {args[1:]}")
sys.addaudithook(_refuse)
"""  # noqa: E501
WALL = ["bwrap", "--dev-bind", "/", "/", "--unshare-net", "--"]
GOLD = {
    "inst_id": "demo__demo-1",
    "language": "python",
    "init_ctx": [{"file": "src/calc.py", "start_line": 8, "end_line": 12}],
    "add_ctx": [{"file": "src/util.py", "start_line": 9, "end_line": 9}],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("offline")
    (folder / "block").mkdir()
    (folder / "block" / "sitecustomize.py").write_text(BLOCK)
    (folder / "repo.json").write_text(json.dumps(VECTORS["fixture_repo"]))
    (folder / "gold.jsonl").write_text(json.dumps(GOLD) + "\n")
    for form, told in VECTORS["same_session"]["formats"].items():
        for name, text in told["files"].items():
            path = folder / "logs" / form / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text if isinstance(text, str) else json.dumps(text))
    return folder


def wall() -> list[str]:
    """A way to run without a network, if this system has one."""
    try:
        return WALL if subprocess.run([*WALL, "true"], capture_output=True).returncode == 0 else []
    except OSError:
        return []


def run(place: Path, *words: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(place / "block"), "HF_HUB_OFFLINE": "0"}
    done = subprocess.run([*wall(), sys.executable, *words], cwd=place, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_block_is_real(place: Path) -> None:
    code = (
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\nexcept PermissionError as "
        "error:\n    print(error)"
    )
    assert "no network here" in run(place, "-c", code)


def test_every_format_is_read_scored_and_reported_without_a_network(place: Path) -> None:
    forms = VECTORS["same_session"]["formats"]
    traces = [word for form in forms for word in ("--trace", f"{form}={place / 'logs' / form}")]
    reports = [word for ending in ("html", "md", "csv", "json", "jsonl") for word in ("--report", f"report.{ending}")]
    common = ["--gold", "gold.jsonl", "--repo", "repo.json", "--instance", "demo__demo-1"]
    told = run(
        place,
        "-m",
        "context_bench",
        "trace",
        "score",
        *common,
        *traces,
        *reports,
        "--workers",
        "2",
        "--output",
        "json",
        "--quiet",
    )
    assert json.loads(told)
    rows = [json.loads(line) for line in (place / "report.jsonl").read_text().splitlines()]
    assert sorted(row["run"] for row in rows) == sorted(forms)
    for row in rows:
        assert row.get("error") is None
        assert row["score"]["final"]["line"]["coverage"] == (
            1.0 if "grep lines" not in forms[row["run"]]["cannot_tell"] else 5 / 6
        )
    for ending in ("html", "md", "csv", "json"):
        assert (place / f"report.{ending}").stat().st_size > 200


def test_one_run_is_shown_and_converted_without_a_network(place: Path) -> None:
    log = str(place / "logs" / "claude_stream_json")
    run(place, "-m", "context_bench", "trace", "convert", log, "--out", "own.jsonl")
    assert json.loads((place / "own.jsonl").read_text())["events"]
    assert "src/calc.py" in run(place, "-m", "context_bench", "trace", "show", log)
