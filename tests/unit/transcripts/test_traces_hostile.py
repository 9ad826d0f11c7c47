"""Logs that are none, are torn, or lie: nothing raises but a plain refusal, and what was passed over is counted."""

import copy
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Snapshot
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces import load_traces

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "traces.json").read_text())
REPO = Snapshot.from_json(VECTORS["fixture_repo"])
LOGS: dict[str, bytes] = {
    form: next(iter(told["files"].values())).encode() for form, told in VECTORS["same_session"]["formats"].items()
}
LOGS |= {case["id"]: case["files"][case["entry"]].encode() for case in VECTORS["importers"] if "files" in case}
JUNK: list[Any] = [
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "\0",
    "\ud800",
    "a" * 300,
    [],
    {},
    [[]],
    [None],
    {"a": None},
    "../../../etc/passwd",
    "{",
    "[1",
]


def read(data: bytes, **more: Any) -> list[Trace] | None:
    """The traces of a file, `None` if it is refused; a trace can always be written and read again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(data)
        try:
            traces = list(load_traces(path, **more))
        except BadInput:
            return None
    for trace in traces:
        Trace.from_json(json.loads(json.dumps(trace.to_json())))
    return traces


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes(data: bytes) -> None:
    assert read(data) is None


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(LOGS)), st.floats(0, 1), st.binary(max_size=20))
def test_torn_logs(form: str, share: float, tail: bytes) -> None:
    whole = read(LOGS[form])
    assert whole is not None
    torn = read(LOGS[form][: int(len(LOGS[form]) * share)] + tail)
    assert torn is None or sum(trace.step_count for trace in torn) <= sum(trace.step_count for trace in whole)


def mangled(value: Any, rng: random.Random) -> Any:
    """The same value with one place in it replaced by junk."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    holder, key = rng.choice(places)
    holder[key] = copy.deepcopy(rng.choice(JUNK))
    return value


def _places(value: Any) -> Any:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(inner)


@pytest.mark.parametrize("form", sorted(form for form in LOGS if "prometheus" not in form))
def test_fields_of_another_type(form: str) -> None:
    rng = random.Random(form)
    lines = [json.loads(line) for line in LOGS[form].splitlines()]
    for _ in range(25):
        bent = [mangled(line, rng) if rng.random() < 0.6 else line for line in lines]
        read(b"".join(json.dumps(line).encode() + b"\n" for line in bent), repo=REPO if rng.random() < 0.3 else None)


def test_a_very_long_line_is_no_obstacle() -> None:
    stream = LOGS["claude_stream_json"].splitlines(keepends=True)
    torn = b'{"type": "user", "message": "' + b"x" * 20_000_000 + b"\n"
    good = json.dumps({"type": "attachment", "text": "1:" * 10_000_000}).encode() + b"\n"
    traces = read(b"".join([*stream[:3], torn, good, *stream[3:]]))
    assert traces is not None
    assert traces[0].skipped == {"not JSON": 1, "type attachment": 1}
    assert traces[0].events == (read(LOGS["claude_stream_json"]) or [])[0].events


def test_a_very_long_output() -> None:
    text = LOGS["claude_stream_json"].decode().replace("8\\tdef subtotal", "8\\t" + "y" * 20_000_000 + "def subtotal")
    traces = read(text.encode())
    assert traces is not None
    assert traces[0].events[0].ranges == ((8, 12),)


def test_what_is_unknown_is_counted_by_type() -> None:
    more = [{"type": "hologram"}, {"type": "system", "subtype": "weather"}, 7, None, [1], "text"]
    data = LOGS["claude_stream_json"] + b"".join(json.dumps(value).encode() + b"\n" for value in more) + b"torn {\n"
    traces = read(data)
    assert traces is not None
    assert traces[0].skipped == {"type hologram": 1, "type system/weather": 1, "type None": 4, "not JSON": 1}


def test_no_path_leaves_the_repository_or_is_guessed_by_its_name() -> None:
    lines = [json.loads(line) for line in LOGS["claude_stream_json"].splitlines()]
    for path in ("../../etc/passwd", "/elsewhere/calc.py", "src/../../demo2/src/calc.py", "calc.py"):
        lines[2]["message"]["content"][0]["input"]["file_path"] = path
        traces = read(b"".join(json.dumps(line).encode() + b"\n" for line in lines), repo=REPO)
        assert traces is not None
        seen = traces[0].events[0].path
        assert seen is not None
        assert seen.startswith("/") or seen == path == "calc.py"
