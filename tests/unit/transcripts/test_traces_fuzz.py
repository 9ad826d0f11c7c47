"""Every importer on hostile logs: a refusal or a trace, never another exception; what is passed over is counted; memory
is bounded.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadInput
from context_bench.transcripts import read_sessions
from context_bench.transcripts.format import LogSource, peek_at, recognised
from context_bench.transcripts.formats import formats
from context_bench.transcripts.session import Session
from context_bench.transcripts.trace import Event, Trace
from context_bench.transcripts.traces import load_traces

from . import transcript_cases as cases

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "traces.json").read_text())
USE = {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "/r/a.py"}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "1\tx\n2\ty"}
CALL = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": "cat a.py"}'}}
TALK = [
    {"role": "user", "content": "Repair it. cwd: /r"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "x\ny"},
]
ENVELOPE = {"uuid": "u", "parentUuid": None, "sessionId": "S", "cwd": "/r", "isSidechain": False}
TAPED = {
    "id": "1",
    "wire": "openai-chat",
    "matched_by": "none",
    "bytes_in": 1,
    "facts": {"policy": "full"},
    "status": 200,
}


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


#: Of each format a log; the first records of those the vectors have, and small ones of the others.
SEEDS: dict[str, bytes] = {
    "own": lines(Trace("a", "x", events=[Event(1, "t", "read", "Read", "a.py", ((1, 2),))]).to_json()),
    "tap_records": lines(
        {
            **TAPED,
            "request": {"model": "m", "messages": TALK[:1]},
            "reply": {"id": "r1", "choices": [{"message": TALK[1]}]},
        },
        {
            **TAPED,
            "request": {"model": "m", "messages": TALK},
            "reply": {"id": "r2", "choices": [{"message": {"content": "Done."}}]},
        },
    ),
    "atif": lines(
        {
            "schema_version": "ATIF-v1.5",
            "agent": {"name": "a", "version": "1"},
            "steps": [
                {
                    "step_id": 1,
                    "source": "agent",
                    "message": "",
                    "tool_calls": [{"tool_call_id": "t", "function_name": "Read", "arguments": USE["input"]}],
                    "observation": {"results": [{"source_call_id": "t", "content": "1\tx"}]},
                }
            ],
        }
    ),
    "agentless": lines({"instance_id": "a", "2_found_files": ["a.py"], "5_sample_edit_locs": [{"a.py": ["line: 3"]}]}),
    "claude_code_transcript": lines(
        {"type": "assistant", **ENVELOPE, "message": {"id": "m", "role": "assistant", "content": [USE]}},
        {"type": "user", **ENVELOPE, "uuid": "v", "message": {"role": "user", "content": [RESULT]}},
    ),
    "cline": lines(
        {"sessionId": "s", "messages": [{"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}]}
    ),
    "openhands_completions": lines(
        {"messages": TALK, "response": {"choices": [{"message": {"content": "x"}}]}, "kwargs": {"tools": [{}]}}
    ),
    "story": lines(
        {"language": "en", "cwd": "/r", "tools": []},
        *({"at": float(at), "message": message} for at, message in enumerate(TALK)),
    ),
    "swe_context": lines(
        {"viewed_files": ["a.py"], "edited_files": [], "file_line_ranges": {"a.py": [{"start": 1, "end": 2}]}}
    ),
}


with tempfile.TemporaryDirectory() as _folder:
    cases.database(
        Path(_folder) / "opencode.db", (cases.MAIN, cases.MAIN_MESSAGES), (cases.HELPER, cases.HELPER_MESSAGES)
    ).close()
    SEEDS["opencode_database"] = (Path(_folder) / "opencode.db").read_bytes()
SEEDS |= {
    "opencode_export": cases.export(cases.MAIN, cases.MAIN_MESSAGES).encode(),
    "codex_rollout": lines(*cases.CODEX_BARE),
    "aider": cases.AIDER.encode(),
}
#: Formats that are no JSON.
PLAIN = {"prometheus", "aider", "opencode_database"}


def format_of(data: bytes) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(data)
        tried = {name: one for name, one in formats().items() if one.calls}
        try:
            return recognised(peek_at(LogSource(path)), tried, "unknown")[0]
        except BadInput:
            return None


for _told in (
    *VECTORS["same_session"]["formats"].values(),
    *(case for case in VECTORS["importers"] if "files" in case),
):
    for _text in _told["files"].values():
        _data = _text.encode() if isinstance(_text, str) else json.dumps(_text).encode()
        if _name := format_of(_data):
            SEEDS.setdefault(_name, _data)


def read(data: bytes) -> list[Trace] | None:
    """The traces of a file, `None` if it is refused; what is read can be written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(data)
        try:
            traces = list(load_traces(path))
        except BadInput:
            return None
        for session in sessions(path):
            assert [request.body for request in session.requests]
    for trace in traces:
        Trace.from_json(json.loads(json.dumps(trace.to_json())))
    return traces


def sessions(path: Path) -> list[Session]:
    """The sessions of a file; none of one that holds neither a reply nor a call."""
    try:
        return list(read_sessions(path, agents=True))
    except BadInput:
        return []


def test_there_is_a_log_of_every_format_and_each_is_told_by_its_content() -> None:
    assert {name: format_of(data) for name, data in SEEDS.items()} == {
        name: name for name, one in formats().items() if one.calls
    }


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["tool_use", "/r/a.py", "assistant"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "content", "id", "name", "path", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    found = []
    for key, inner in (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else ()
    ):
        found += [(value, key), *places(inner)]
    return found


def values_of(data: bytes) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(data)
        return list(LogSource(path).values())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_in_any_place(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(set(SEEDS) - PLAIN)))
    rows = json.loads(json.dumps(values_of(SEEDS[name])))
    for _ in range(data.draw(st.integers(1, 3))):
        if spots := places(rows):
            holder, key = data.draw(st.sampled_from(spots))
            holder[key] = data.draw(JSON)
    read(lines(*rows))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SEEDS)), st.floats(0, 1), st.binary(max_size=30))
def test_torn_at_any_place(name: str, share: float, tail: bytes) -> None:
    read(SEEDS[name][: int(len(SEEDS[name]) * share)] + tail)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(set(SEEDS) - PLAIN)),
    st.integers(1, 4),
    st.sampled_from([b"{torn", b"\xff\xfe\x00", b'"\\ud800', b"[" * 20_000]),
)
def test_lines_that_are_no_json_are_counted_and_cost_nothing_else(name: str, number: int, junk: bytes) -> None:
    clean = lines(*values_of(SEEDS[name]))
    plain, dirty = read(clean), read(clean + (junk + b"\n") * number)
    assert plain is not None
    assert dirty is not None
    assert [trace.events for trace in dirty] == [trace.events for trace in plain]
    assert sum(trace.skipped["not JSON"] for trace in dirty) == number


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(set(SEEDS) - PLAIN)),
    st.data(),
    st.sampled_from([50, 200, 5000]),
    st.sampled_from(["[]", "{}"]),
)
def test_deep_nesting(name: str, data: st.DataObject, depth: int, kind: str) -> None:
    rows = json.loads(json.dumps(values_of(SEEDS[name])))
    holder, key = data.draw(st.sampled_from(places(rows)))
    holder[key] = "@@"
    deep = "[" * depth + "]" * depth if kind == "[]" else '{"content":' * depth + "1" + "}" * depth
    read(lines(*rows).replace(b'"@@"', deep.encode()))


CHILD = """
import resource, sys
from pathlib import Path
from context_bench.shell.repo import Snapshot
from context_bench.transcripts.traces import load_traces
repo = Snapshot.from_json({"a.py": {"text": "x\\n" * 50}})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(trace,) = load_traces(Path(sys.argv[1]), repo=repo)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(grown // 1024, trace.step_count, dict(trace.skipped))
"""


def test_lines_of_a_hundred_megabytes(tmp_path: Path) -> None:
    """A torn one, one without line ends and one of nothing but lines, as outputs of a reader and of a command."""
    size = 100_000_000
    path = tmp_path / "log.jsonl"
    init = {"type": "system", "subtype": "init", "cwd": "/r", "session_id": "s", "tools": ["Read"], "model": "m"}
    with path.open("wb") as file:
        file.write(lines(init) + b'{"type": "user", "message": "' + b"x" * size + b"\n")
        for number, (name, given_, unit) in enumerate(
            [
                ("Read", {"file_path": "/r/a.py"}, b"y"),
                ("Bash", {"command": "cat a.py"}, b"1: x\\n"),
                ("Grep", {"pattern": "x"}, b"a.py:1:x\\n"),
            ]
        ):
            use = {"type": "tool_use", "id": f"t{number}", "name": name, "input": given_}
            file.write(
                lines(
                    {
                        "type": "assistant",
                        "message": {"id": f"m{number}", "role": "assistant", "content": [use]},
                        "session_id": "s",
                    }
                )
            )
            result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "@@"}
            row = lines({"type": "user", "message": {"role": "user", "content": [result]}, "session_id": "s"})
            file.write(row.replace(b"@@", unit * (size // len(unit) // (1 if unit == b"y" else 20))))
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown, steps, skipped = done.stdout.split(" ", 2)
    assert (steps, skipped.strip()) == ("3", "{'not JSON': 1}")
    assert int(grown) < 1500
