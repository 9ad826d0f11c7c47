"""Recorded sessions as a dataset: every kind of set, one example per request, names that stay apart."""

from __future__ import annotations

import json

import pytest

from context_bench.core.errors import BadInput, PreflightFailed, UnknownName
from context_bench.datasets.recorded import RecordedSessions, accounted
from context_bench.datasets.sessions import bundled
from context_bench.transcripts.session import Session, verbatim
from context_bench.wire.request import sendable
from minihub import MiniHub, MiniRepo, parquet_bytes

CHAT = [
    {"role": "user", "content": "What is here?"},
    {"role": "assistant", "content": "Two files."},
    {"role": "user", "content": "Which?"},
    {"role": "assistant", "content": "a.py and b.py."},
]


def lines(*conversations):
    return "".join(json.dumps({"messages": messages}) + "\n" for messages in conversations)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(lines(CHAT, CHAT[:2]))
    return path


def test_a_file_gives_one_example_per_request_in_order(log):
    data = RecordedSessions([str(log)])
    found = list(data.examples())
    assert [(e["group"], e["turn"]) for e in found] == [("log-1", 0), ("log-1", 1), ("log-2", 0)]
    assert found[1]["request"]["body"]["messages"] == CHAT[:3]
    assert found[1]["recorded"]["text"] == "a.py and b.py."
    assert {e["dataset"] for e in found} == {str(log)}
    assert list(data.examples()) == found  # read anew, the same


def test_names_stay_apart_over_several_sets(log):
    names = [name for name, _ in RecordedSessions([str(log), str(log)]).sessions()]
    assert names == ["log-1", "log-2", "log-1#2", "log-2#2"]
    assert [name for name, _ in RecordedSessions([str(log), str(log)], n=3).sessions()] == names[:3]


def test_the_manifest_knows_content_not_places(log, tmp_path):
    elsewhere = tmp_path / "deep" / "log.jsonl"
    elsewhere.parent.mkdir()
    elsewhere.write_text(log.read_text())
    here, there = RecordedSessions([str(log)]).manifest(), RecordedSessions([str(elsewhere)]).manifest()
    assert here["sha256"] == there["sha256"]
    assert here["sets"] == there["sets"] == [{"set": "log.jsonl", "kind": "local"}]
    assert (here["sessions"], here["requests"], here["reconstructed"], here["formats"]) == (
        2,
        3,
        2,
        {"openai-jsonl": 2},
    )
    elsewhere.write_text(lines(CHAT, [CHAT[0], {"role": "assistant", "content": "Three."}]))
    assert RecordedSessions([str(elsewhere)]).manifest()["sha256"] != here["sha256"]


def test_bundled_sessions_alone_or_all_on_the_wire_asked_for():
    one = list(RecordedSessions([bundled()[-1]], wire="anthropic").sessions())
    assert [(name, session.wire) for name, session in one] == [(bundled()[-1], "anthropic")]
    assert [name for name, _ in RecordedSessions(["bundled:sessions"]).sessions()] == bundled()
    with pytest.raises(UnknownName, match="Unknown session"):
        list(RecordedSessions(["bundled:sessions/none"]).sessions())


def test_a_folder_says_what_it_passes_over(log, tmp_path):
    (tmp_path / "other.json").write_text('{"a": 1}')
    faults = []
    found = list(RecordedSessions([str(tmp_path)], on_skip=faults.append).sessions())
    assert len(found) == 2
    assert "other.json" in str(faults[0])


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_sets_on_the_hub(kind, tmp_path, monkeypatch, hub_client):
    rows = [{"id": str(number), "messages": CHAT} for number in range(3)]
    data = lines(CHAT, CHAT, CHAT).encode() if kind == "jsonl" else parquet_bytes(rows)
    with MiniHub({"someone/chats": MiniRepo({f"data/train.{kind}": data})}) as hub:
        hub_client(monkeypatch, tmp_path / "hf", hub.url)
        found = list(RecordedSessions(["hf:someone/chats"], n=2).examples())
        assert [(e["turn"], e["dataset"]) for e in found] == [(0, "hf:someone/chats"), (1, "hf:someone/chats")] * 2
        assert found[1]["request"]["body"]["messages"] == CHAT[:3]
        assert len(list(RecordedSessions([f"hf:someone/chats@main:data/*.{kind}"]).sessions())) == 3
        with pytest.raises(PreflightFailed):
            list(RecordedSessions(["hf:someone/none"]).sessions())


@pytest.mark.parametrize(
    ("spec", "said"), [("gone.jsonl", "no sessions at gone.jsonl"), ("hf:what", "expected hf:OWNER/NAME")]
)
def test_what_is_no_set_is_told(spec, said):
    with pytest.raises(BadInput, match=said):
        list(RecordedSessions([spec]).sessions())


def test_headers_of_connection_and_login_stay_behind():
    given = {
        "Authorization": "Bearer x",
        "X-Api-Key": "y",
        "COOKIE": "z",
        "Content-Length": "1",
        "anthropic-beta": "b",
        "user-agent": "u",
    }
    assert sendable(given) == {"anthropic-beta": "b", "user-agent": "u"}


def test_marks_for_an_hour_are_in_the_account_of_bodies_without_usage():
    mark = {"type": "ephemeral", "ttl": "1h"}
    system = [{"type": "text", "text": "You are terse.", "cache_control": mark}]
    body = {"model": "claude-sonnet-4-5", "system": system, "messages": [{"role": "user", "content": "Why?"}]}
    for hour in (True, False):
        mark["ttl"] = "1h" if hour else "5m"
        session, account = accounted(Session("s", "r.jsonl", "anthropic", [verbatim("anthropic", body)], {}))
        assert (account.hour, "account" in session.meta) == (hour, hour)
