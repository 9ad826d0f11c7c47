"""Finding out what a file is, and never falling over what it holds."""

import gc
import gzip
import json
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadInput
from context_bench.datasets import sessions
from context_bench.transcripts import read_sessions
from context_bench.transcripts.format import LogSource, peek_at
from context_bench.transcripts.formats import formats
from context_bench.transcripts.traces import load_traces

USE = {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "/r/a.py"}}
BODY = {"model": "m", "messages": [{"role": "user", "content": "a"}]}


def write(folder: Path, *lines: Any, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_an_unknown_file_is_named_with_its_keys_and_what_was_tried(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": "?", "context": "…"}, name="rows.jsonl")
    with pytest.raises(BadInput, match=r"rows.jsonl.*'question', 'context'.*openai_jsonl"):
        list(read_sessions(path))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "x.jsonl: empty file: nothing was recorded"),
        (b"\n\n", "no line of it is JSON"),
        (b"\x00\xff\xfe" * 99, "no line of it is JSON"),
        (b"3\n", "JSON int"),
        (b"[]\n", "no line of it is JSON"),
    ],
)
def test_files_that_are_no_log(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    for agents in (False, True):
        with pytest.raises(BadInput, match=told if not agents or not content else "x.jsonl: "):
            list(read_sessions(path, agents=agents))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        list(read_sessions(tmp_path / "none.jsonl"))


def test_the_name_of_a_file_says_nothing(tmp_path: Path) -> None:
    head = {"type": "session_meta", "payload": {"id": "r"}}
    said = {
        "type": "response_item",
        "payload": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
    }
    path = write(tmp_path, head, said, name="claude-transcript.jsonl")
    assert next(iter(read_sessions(path))).meta["format"] == "codex-rollout"


def test_a_folder_is_read_by_name_and_tells_what_it_left_out(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "notes.md").write_text("not a log")
    write(tmp_path / "sub", BODY, name="b.jsonl")
    write(tmp_path, BODY, name="a.ndjson")
    write(tmp_path, {"x": 1}, name="c.json")
    told: list[BadInput] = []
    assert [session.id for session in read_sessions(tmp_path, on_skip=told.append)] == ["a-1", "b-1"]
    assert len(told) == 1
    assert "c.json" in str(told[0])
    assert len(list(read_sessions([tmp_path / "a.ndjson", tmp_path / "sub"]))) == 2
    (tmp_path / "a.ndjson").unlink()
    (tmp_path / "sub" / "b.jsonl").unlink()
    with pytest.raises(BadInput, match=r"(?s)no recorded sessions in the folder.*c.json"):
        list(read_sessions(tmp_path))


def test_what_is_passed_over_is_counted_once(tmp_path: Path) -> None:
    path = write(tmp_path, BODY, "{torn", "", {"x": 1}, json.dumps(BODY)[:20], {**BODY, "user": "else"})
    first, second = read_sessions(path)
    assert first.meta["skipped"] == {"no messages": 1, "not JSON": 2}
    assert second.meta["skipped"] == {}


def test_byte_order_mark_crlf_and_lone_surrogates(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf"
        + json.dumps(BODY).encode()
        + b"\r\n"
        + b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}\r\n'
    )
    assert [session.requests[0].messages[0]["content"] for session in read_sessions(path)] == ["a", "\ud800"]


def test_deep_nesting_is_one_line_that_is_passed_over(tmp_path: Path) -> None:
    (session,) = read_sessions(write(tmp_path, BODY, '{"messages":' + "[" * 200_000, "[" * 100_000 + "]" * 100_000))
    assert session.meta["skipped"]["not JSON"] == 2


def test_a_very_long_line(tmp_path: Path) -> None:
    long = {"model": "m", "messages": [{"role": "user", "content": "x" * 30_000_000}]}
    (session,) = read_sessions(write(tmp_path, long))
    assert len(session.requests[0].body["messages"][0]["content"]) == 30_000_000


def test_a_long_log_is_held_one_session_at_a_time(tmp_path: Path) -> None:
    with (tmp_path / "many.jsonl").open("w") as file:
        for number in range(400):
            file.write(
                json.dumps({"model": "m", "messages": [{"role": "user", "content": f"{number} " + "y" * 50_000}]})
                + "\n"
            )
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_sessions(tmp_path / "many.jsonl"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 400
    assert peak < 12_000_000  # the file has 20 MB; the sample that it is recognised by may hold 4


def test_a_long_session_holds_each_message_once(tmp_path: Path) -> None:
    turns = [{"role": ("user", "assistant")[n % 2], "content": f"{n} " + "z" * 4_000} for n in range(121)]
    path = write(tmp_path, *({"model": "m", "messages": turns[: n + 1]} for n in range(0, 121, 2)))
    (session,) = read_sessions(path)
    assert len({id(message) for request in session.requests for message in request.body["messages"]}) == 121


@given(st.binary(max_size=400))
@settings(max_examples=150)
def test_random_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "x"
    path.write_bytes(data)
    with pytest.raises(BadInput):
        list(read_sessions(path))


def test_an_empty_file_is_of_no_format(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"")
    peek = peek_at(LogSource(tmp_path / "log.jsonl"))
    assert formats()
    assert not any(one.sniff(peek) for one in formats().values())
    assert len({one.rank for one in formats().values()}) == len(formats())


def test_a_folder_of_claude_codes_has_nothing_to_complain_of(tmp_path: Path) -> None:
    envelope = {"sessionId": "s", "parentUuid": None, "isSidechain": False, "cwd": "/r"}
    kinds = (
        "queue-operation",
        "attachment",
        "last-prompt",
        "summary",
        "file-history-snapshot",
        "ai-title",
        "mode",
        "progress",
    )
    said = [
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "a"}, **envelope},
        {"type": "assistant", "uuid": "u2", "message": {"id": "m", "role": "assistant", "content": [USE]}, **envelope},
    ]
    usual = [{"type": kind, "sessionId": "s", "uuid": kind} for kind in kinds] + [{"type": "summary", "leafUuid": "x"}]
    write(tmp_path, *said, *usual, {"type": "hologram", **envelope}, name="s.jsonl")
    aside = tmp_path / "s" / "subagents"
    aside.mkdir(parents=True)
    write(
        aside,
        *({**line, "isSidechain": True, "agentId": "1", "uuid": f"a{line['uuid']}"} for line in said),
        name="agent-1.jsonl",
    )
    write(aside, {"agentType": "general-purpose", "description": "look"}, name="agent-1.meta.json")
    write(tmp_path, {"rows": 1}, name="other.meta.json")
    told: list[str] = []
    helper, main = read_sessions(tmp_path, on_skip=lambda why: told.append(str(why)))
    assert (main.meta["skipped"], helper.meta["skipped"]) == ({"type hologram": 1}, {})
    (trace,) = load_traces(tmp_path, on_skip=lambda why: told.append(str(why)))
    assert trace.skipped == {"type hologram": 1}
    assert len(told) == 2  # one for each door: the file that describes no log
    assert all("other.meta.json" in one and "Formats tried" not in one for one in told)


# Packed logs
# ------------------------------------------------------------------------


def _conversation(turns: int = 2) -> bytes:
    said = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"line {n}"} for n in range(2 * turns)]
    return (json.dumps({"model": "m", "messages": said}) + "\n").encode()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of its own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_a_packed_log_reads_as_the_log_in_it(
    ending: str, pack: Callable[[bytes], bytes], tmp_path: Path, temporary: Path
) -> None:
    plain = tmp_path / "plain" / "log.jsonl"
    packed = tmp_path / "packed" / f"log.jsonl{ending}"
    for path, data in ((plain, _conversation()), (packed, pack(_conversation()))):
        path.parent.mkdir()
        path.write_bytes(data)
    for place in (packed, packed.parent):
        [mine], [other] = list(read_sessions(place)), list(read_sessions(plain))
        assert [request.body for request in mine.requests] == [request.body for request in other.requests]
        assert (mine.id, mine.source) == (other.id, str(packed))
    del mine, other
    gc.collect()
    assert not list(temporary.iterdir())


def test_packed_records_are_found_again_by_their_places(tmp_path: Path) -> None:
    lines = [{"model": "m", "messages": [{"role": "user", "content": f"{name} asks"}]} for name in ("a", "b", "c")]
    path = write(tmp_path, *lines)
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    source = LogSource(packed)
    places = [place for place, _ in source.placed()]
    assert list(source.at(places[::-1])) == lines[::-1]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (gzip.compress(b"0" * 2**24), "x.jsonl.gz: too large: unpacks to more than 200 times its size"),
        (gzip.compress(_conversation(50), mtime=0)[:-20], "x.jsonl.gz: it ends in the middle"),
        (b"\x1f\x8b\x08" + b"\xff" * 60, "x.jsonl.gz: not readable as gzip"),
        (zstandard.compress(_conversation(50))[:-3], "x.jsonl.gz: it ends in the middle"),
        (gzip.compress(gzip.compress(_conversation())), "no line of it is JSON"),
    ],
    ids=["too many times its size", "cut", "broken", "a cut frame", "packed twice"],
)
def test_packed_files_that_are_no_log(data: bytes, told: str, tmp_path: Path, temporary: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=told):
        list(read_sessions(path))
    with pytest.raises(BadInput, match=told):
        list(read_sessions(tmp_path))
    assert not list(temporary.iterdir())


def test_the_files_of_bundled_sessions_are_logs() -> None:
    folder = Path(sessions.__file__).parent
    found = {one.id: one for one in read_sessions(folder)}
    assert set(found) == {name.removeprefix(sessions.PREFIX) for name in sessions.bundled()}
    own = sessions.load_session("notice-refactor-en")
    read = found["notice-refactor-en"]
    assert [one.messages for one in read.requests] == [one.messages for one in own.requests]
    assert [(one.at, one.exact) for one in read.requests] == [(one.at, one.exact) for one in own.requests]
    [trace] = load_traces(folder / "notice-refactor-en.jsonl.gz")
    assert any(event.path and event.path.endswith("notices/mail.py") for event in trace.events)
