"""Where sessions are cut, what is asked about the part that went, and that every answer is really there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from context_bench.compression.datasets import (
    artifact_ledger,
    compression_points,
    generate_probes,
    visible_share,
)
from context_bench.compression.probes import CompressionPoint, Probe
from context_bench.core.errors import BadInput
from context_bench.datasets import sessions
from context_bench.wire.conversation import message_text

RECORDED = json.loads((Path(__file__).parents[2] / "vectors" / "compression.json").read_text("utf-8"))[
    "probe_generation"
]


def call(ident: str, tool: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": ident, "type": "function", "function": function}],
    }


def result(ident: str, text: str = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": text}


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["id"])
def test_recorded_sessions(case: dict[str, Any]) -> None:
    cut = case["truncate_before"]
    probes = generate_probes(case["messages"], truncate_before=cut)
    assert [
        kind for kind in ("recall", "artifact", "continuation", "decision") if any(p.type == kind for p in probes)
    ] == case["expected_probe_types"]
    ledger = artifact_ledger(case["messages"][:cut])
    assert {name: getattr(ledger, name) for name in case.get("expected_artifacts", {})} == case.get(
        "expected_artifacts", {}
    )
    atoms = {
        kind: [atom.text for p in probes if p.type == kind for atom in p.atoms]
        for kind in ("recall", "continuation", "decision")
    }
    told = json.dumps([p.to_json() for p in probes])
    assert not any(banned in told for banned in case.get("must_not_appear", []))
    for kind in ("recall", "continuation"):
        wanted = case.get(f"{kind}_atoms_must_include_any", [])
        assert not wanted or any(text in atom for text in wanted for atom in atoms[kind])
    assert all(any(text in atom for atom in atoms["decision"]) for text in case.get("decision_atoms_must_include", []))


@pytest.mark.parametrize("name", sessions.bundled())
def test_the_ledger_of_the_bundled_sessions_is_true(name: str) -> None:
    session = sessions.load_session(name)
    truth = session.meta["truth"]
    ledger = artifact_ledger(session.messages, cwd=session.meta["cwd"])
    assert sorted(ledger.created) == truth["files_created"]
    assert sorted(ledger.modified) == truth["files_modified"]
    assert set(truth["files_only_read"]) <= set(ledger.read_only)
    assert ledger.notes == {}


@pytest.mark.parametrize("name", sessions.bundled())
def test_every_probe_of_the_bundled_sessions_can_be_checked(name: str) -> None:
    session = sessions.load_session(name)
    for point in compression_points(session, "fraction:0.3,0.6,0.9"):
        probes = generate_probes(point)
        for probe, share in zip(probes, visible_share(probes, point), strict=True):
            assert Probe.from_json(json.loads(json.dumps(probe.to_json()))) == probe
            assert share < 1.0 or probe.type != "recall"
            for atom in probe.atoms:
                assert atom.sources, atom
                for source in atom.sources:
                    assert source.message < point.index
                    if source.start is not None:
                        said = message_text(point.prefix[source.message])[source.start : source.end]
                        assert said.casefold() == atom.text.casefold()
                assert atom.text not in probe.question


def test_what_files_went_through() -> None:
    patch = (
        "*** Begin Patch\n*** Add File: new/one.py\n+x\n*** Update File: old.py\n@@\n-a\n+b\n*** Delete File: "
        "gone.py\n*** End Patch"
    )
    messages = [
        call("1", "Bash", command="sed -i 's/a/b/' src/a.go && echo done"),
        result("1"),
        call("2", "apply_patch", input=patch),
        result("2"),
        call("3", "Write", file_path="fresh.md", content="x"),
        result("3", "File created successfully at: fresh.md"),
        call("4", "Edit", file_path="fresh.md", old_string="x", new_string="y"),
        result("4"),
        call("5", "Write", file_path="there.md", content="x"),
        result("5", "The file there.md has been updated."),
        call("6", "Read", file_path="missing.py"),
        result("6", "Error: ENOENT: no such file or directory, open 'missing.py'"),
        call("7", "Bash", command="cat notes.txt > copy.txt; rm -f junk.log; cat <<'X' >> appended.txt\nhello\nX"),
        result("7", ""),
        call("8", "Write", file_path="temp.py", content="x"),
        result("8", "File created successfully at: temp.py"),
        call("9", "Bash", command="rm temp.py"),
        result("9", ""),
    ]
    ledger = artifact_ledger(messages)
    assert ledger.created == ["new/one.py", "fresh.md", "copy.txt"]
    assert ledger.modified == ["src/a.go", "old.py", "there.md", "appended.txt"]
    assert ledger.deleted == ["gone.py", "junk.log"]
    assert "missing.py" not in ledger.files


def test_points_never_part_a_call_from_its_result() -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        call("1", "Read", file_path="a"),
        result("1"),
        result("1"),
    ]
    assert [point.index for point in compression_points(messages, "at:3,4")] == [2]
    assert [point.index for point in compression_points(messages, "at:5")] == [5]
    assert compression_points(messages, "at:0,1") == []  # nothing to compress before the first word of the user


@given(st.sampled_from(sessions.bundled()), st.integers(1, 120))
def test_points_of_a_session_keep_it_whole(name: str, every: int) -> None:
    session = sessions.load_session(name)
    for point in compression_points(session, f"every:{every}"):
        assert [*point.prefix, *point.tail] == session.messages
        answered = {m.get("tool_call_id") for m in point.tail if m["role"] == "tool"}
        made = {one["id"] for m in point.tail for one in m.get("tool_calls") or ()}
        assert answered <= made


@pytest.mark.parametrize(
    "points", ["", "fraction", "fraction:0", "fraction:2", "tokens:-1", "every:0", "at:x", "often", "task-boundary:3"]
)
def test_points_that_are_none_are_refused(points: str) -> None:
    with pytest.raises(BadInput, match="points"):
        compression_points([{"role": "user", "content": "x"}], points)


def test_a_window_that_is_never_filled_gives_no_point() -> None:
    assert compression_points([{"role": "user", "content": "x"}], "fraction:0.75", window=200_000) == []


def test_what_the_tail_still_says_is_no_recall() -> None:
    fact = {"role": "tool", "tool_call_id": "1", "content": "Error: connect ECONNREFUSED 10.0.0.7:6380"}
    prefix = [{"role": "user", "content": "It fails."}, call("1", "Bash", command="npm test"), fact]
    silent = CompressionPoint("s", 3, "at:3", prefix, [{"role": "user", "content": "Go on."}])
    telling = CompressionPoint(
        "s", 3, "at:3", prefix, [{"role": "user", "content": "connect ECONNREFUSED 10.0.0.7:6380 again"}]
    )
    assert any(p.type == "recall" and "error" in p.question for p in generate_probes(silent))
    assert not any(
        "ECONNREFUSED" in atom.text for p in generate_probes(telling) if p.type == "recall" for atom in p.atoms
    )


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "system", "odd"]), "content": st.text(max_size=80)}
        ),
        max_size=6,
    )
)
def test_any_messages_give_probes_or_none(messages: list[dict[str, Any]]) -> None:
    for probe in generate_probes(messages):
        assert probe.atoms
