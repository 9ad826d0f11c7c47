"""One session in many logs: every format tells the same reads, failures, edits and tokens."""

import json
from pathlib import Path
from typing import Any

import pytest

from context_bench.shell.repo import Snapshot
from context_bench.transcripts.trace import Event, Trace
from context_bench.transcripts.traces import load_traces

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "traces.json").read_text())
SAME = VECTORS["same_session"]
EXPECTED = SAME["expected_common"]


REPO = Snapshot.from_json(VECTORS["fixture_repo"])


def expected_reads(told: dict[str, Any]) -> list[Any]:
    return [step for step in EXPECTED["reads"] if "grep lines" not in told["cannot_tell"] or "src/util.py" not in step]


def written(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def shown(trace: Trace) -> list[Event]:
    return [
        event for event in trace.events if event.kind in ("read", "search") and event.ok and event.strength == "shown"
    ]


def reads(trace: Trace) -> list[dict[str, list[list[int]]]]:
    """What each call showed, calls that showed nothing left out."""
    steps: dict[int, dict[str, list[list[int]]]] = {}
    for event in shown(trace):
        assert isinstance(event.ranges, tuple), event
        assert event.path is not None
        steps.setdefault(event.step, {})[event.path] = [list(pair) for pair in event.ranges]
    return [steps[step] for step in sorted(steps)]


@pytest.mark.parametrize("form", list(SAME["formats"]))
def test_every_format_tells_the_same(form: str, tmp_path: Path) -> None:
    told = SAME["formats"][form]
    (trace,) = load_traces(written(tmp_path, told["files"]), repo=REPO)
    edited = {event.path for event in trace.events if event.kind == "edit" and event.path}
    assert sorted(edited) == EXPECTED["edited_files"]
    if form not in ("benchkit_trace_jsonl", "gemini_session_json"):  # these name the folder nowhere, not even in a path
        assert trace.cwd == EXPECTED["workspace"]
    if "failed_reads" not in told["cannot_tell"]:
        failed = {event.path for event in trace.events if event.kind == "read" and not event.ok}
        assert sorted(path for path in failed if path) == EXPECTED["failed_reads"]
    if "tokens" not in told["cannot_tell"]:
        assert trace.usage is not None
        tokens = EXPECTED["tokens"]
        counted = (trace.usage.input_tokens, trace.usage.cache_read, trace.usage.output_tokens)
        assert counted == (tokens["prompt_total_including_cached"], tokens["cached"], tokens["completion"])
    assert reads(trace) == expected_reads(told)
    assert not trace.skipped
    assert trace.step_count >= 5


@pytest.mark.parametrize("form", [form for form in SAME["formats"] if form != "benchkit_trace_jsonl"])
def test_the_reads_are_told_without_the_repository_too(form: str, tmp_path: Path) -> None:
    told = SAME["formats"][form]
    (trace,) = load_traces(written(tmp_path, told["files"]))
    assert reads(trace) == expected_reads(told)
    assert EXPECTED["failed_reads"] == [event.path for event in trace.events if event.kind == "read" and not event.ok]


@pytest.mark.parametrize("form", list(SAME["formats"]))
def test_a_trace_survives_being_written(form: str, tmp_path: Path) -> None:
    (trace,) = load_traces(written(tmp_path, SAME["formats"][form]["files"]))
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(trace.to_json()) + "\n")
    (again,) = load_traces(path)
    assert again == trace


def test_a_transcript_and_a_stream_agree(tmp_path: Path) -> None:
    (stream,) = SAME["formats"]["claude_stream_json"]["files"].values()
    lines = [{"type": "summary", "summary": "Fix subtotal", "leafUuid": "x"}]
    for number, line in enumerate(map(json.loads, stream.splitlines())):
        if line["type"] in ("user", "assistant"):
            envelope = {
                "uuid": line["uuid"],
                "parentUuid": None,
                "sessionId": "S",
                "cwd": "/ws/demo",
                "isSidechain": False,
            }
            lines.append(
                {
                    "type": line["type"],
                    **envelope,
                    "timestamp": f"2026-01-02T03:04:{number:02d}Z",
                    "message": line["message"],
                }
            )
    lines += lines[2:4]  # a resumed session repeats lines
    path = tmp_path / "demo__demo-1.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (trace,) = load_traces(path)
    assert trace.instance_id == "demo__demo-1"
    assert reads(trace) == EXPECTED["reads"]
    assert trace.skipped == {"repeated": 2}
    usage = trace.usage
    assert usage is not None
    assert (usage.input_tokens, usage.cache_read, usage.output_tokens) == (1000, 400, 50)
    assert trace.started is not None
    assert trace.ended is not None
    assert trace.ended > trace.started


RECORDED = {
    "i16_claude_record": {"src/calc.py": [(8, 12), (15, 16)], "src/util.py": [(9, 9)], "README.md": [(1, 3)]},
    "i26_claude_trace_tab_prefix": {"src/calc.py": [(8, 12), (15, 16)], "src/util.py": [(9, 9)], "README.md": [(1, 3)]},
    "i19_codex_record": {"src/calc.py": [(8, 12), (15, 16)], "src/util.py": [(9, 9)]},
}


def importer(ident: str, folder: Path) -> Path:
    (case,) = [case for case in VECTORS["importers"] if case["id"] == ident]
    written(folder, case["files"])
    return folder / case["entry"]


@pytest.mark.parametrize("ident", list(RECORDED))
def test_run_records_hold_what_was_seen_and_keep_the_self_report_apart(ident: str, tmp_path: Path) -> None:
    (trace,) = load_traces(importer(ident, tmp_path))
    found: dict[str, list[tuple[int, int]]] = {}
    for event in shown(trace):
        assert isinstance(event.ranges, tuple)
        assert event.path
        found.setdefault(event.path, []).extend(event.ranges)
    assert found == RECORDED[ident]
    if ident.endswith("record"):
        assert trace.instance_id == "demo__demo-1"
        assert trace.patch
        assert trace.final
        assert all(event.provenance == "self_report" and event.strength == "claimed" for event in trace.final)
    else:
        assert trace.final is None


@pytest.mark.parametrize("ident", [case["id"] for case in VECTORS["importers"] if "files" in case])
def test_every_importer_case_is_read(ident: str, tmp_path: Path) -> None:
    traces = list(load_traces(importer(ident, tmp_path)))
    assert traces[0].instance_id == "demo__demo-1"
    assert any(
        event.path and event.path.endswith("src/calc.py") for event in (*traces[0].events, *(traces[0].final or ()))
    )
    assert not sum((trace.skipped for trace in traces), start=traces[0].skipped.__class__())
