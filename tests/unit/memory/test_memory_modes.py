"""The same questions with haystacks put into memories otherwise: for every question anew, or on top of all before."""

from __future__ import annotations

import json

import pytest

from context_bench.cli.app import run_line
from context_bench.memory.datasets import in_mode, load_memory
from context_bench.memory.protocol import unpacked


@pytest.fixture(scope="module")
def lab():
    return load_memory("bundled:recall-lab", n=3, qa_types=["single", "update-latest"], seed=1)


def test_shared_is_what_was_loaded(lab):
    assert in_mode(lab, "shared") is lab


def test_isolated_gives_every_question_a_memory_of_its_own(lab):
    plain, changed = list(lab.examples()), list(in_mode(lab, "isolated").examples())
    assert len({example["group"] for example in changed}) == len(changed) == len(plain)
    for one, other in zip(plain, changed, strict=True):
        assert {**other, "group": one["group"]} == one, (
            "nothing else changes: not the items, not the unit of statistics"
        )


def test_growing_puts_every_haystack_on_top_of_those_before(lab):
    plain, changed = list(lab.examples()), list(in_mode(lab, "growing").examples())
    own = list(dict.fromkeys(example["group"] for example in plain))
    sizes = {example["cluster"]: len(unpacked(example["items"])) for example in changed}
    assert sizes == {own[0]: 100, own[1]: 200, own[2]: 300}
    for one, other in zip(plain, changed, strict=True):
        held = {item.id: item for item in unpacked(other["items"])}
        assert len(held) == sizes[one["cluster"]], "ids stay distinct"
        before = {item.id: item for item in unpacked(one["items"])}
        assert [held[name].text for name in other["evidence"]] == [before[name].text for name in one["evidence"]]
        assert all(each["source"] in held for each in other.get("versions", []))
        assert one["context"].splitlines()[-1] in other["context"]
        assert (other["id"], other["cluster"], other["question"]) == (one["id"], one["cluster"], one["question"])
        assert all(item.session is None or item.session.partition("/")[0] in own for item in held.values())


def test_the_manifest_says_which(lab):
    assert in_mode(lab, "growing").manifest() == {**lab.manifest(), "mode": "growing"}


def test_a_growing_memory_finds_less_and_runs_of_two_modes_are_not_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = [
        "memory",
        "--system",
        "recency",
        "--dataset",
        "bundled:recall-lab",
        "-n",
        "3",
        "--qa-types",
        "single",
        "--reader",
        "none",
    ]
    line += ["--no-floors", "--quiet", "--output", "json", "--k", "1,50"]
    found = {}
    for mode in ("shared", "isolated", "growing"):
        assert run_line([*line, "--mode", mode, "--run", mode]) == 0
        found[mode] = json.loads(capsys.readouterr().out)
    assert {mode: one["summary"]["recency"]["groups"] for mode, one in found.items()} == {
        "shared": 3,
        "isolated": 6,
        "growing": 3,
    }
    assert [one["setups"][-1]["output"]["items"] for one in found.values()] == [100, 100, 300]
    scores = {mode: [row["scores"]["recall_at_50"] for row in one["rows"]] for mode, one in found.items()}
    assert scores["shared"] == scores["isolated"]
    assert run_line(["compare", "shared", "growing"]) == 3
    assert "mode" in capsys.readouterr().err


def test_an_unknown_mode_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_line(["memory", "--system", "bm25", "--dataset", "bundled:recall-lab", "--mode", "apart"]) == 2
    said = capsys.readouterr().err
    assert "mode" in said
    assert "isolated" in said
