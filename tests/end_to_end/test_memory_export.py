"""`export --format memory`: a stored run of memories as one file that readers of the seed's evaluation files
understand.
"""

import json

import pytest

from context_bench.cli.app import run_line
from context_bench.memory.cortex.containment import BenchmarkSummary, best_candidate, exact_match, token_f1

READER = "py:context_bench.testing.lab_reader:LabReader"
LINE = [
    "memory",
    "--system",
    "bm25",
    "--dataset",
    "bundled:recall-lab",
    "-n",
    "1",
    "--k",
    "1,5",
    "--reader",
    READER,
    "--quiet",
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    place = tmp_path_factory.mktemp("memory_export")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        assert run_line([*LINE, "--run", "one", "--out", "report.txt"]) == 0
        assert run_line(["export", "one", "--format", "memory", "--out", "out/run.json"]) == 0
        assert run_line(["export", "one", "--format", "jsonl", "--system", "bm25", "--out", "rows.jsonl"]) == 0
    rows = [json.loads(line) for line in (place / "rows.jsonl").read_text("utf-8").splitlines()]
    return place, json.loads((place / "out" / "run.json").read_text("utf-8")), rows


def test_it_is_a_list_of_summaries_that_the_seeds_readers_take(exported, capsys):
    place, found, _ = exported
    assert [one["name"] for one in found] == ["bm25", "none", "random", "full_context", "oracle"]
    read = BenchmarkSummary.from_dict(found[0])
    assert (read.name, read.total_questions, read.k, len(read.results)) == ("bm25", 20, 5, 20)
    baseline = place / "baseline.json"
    baseline.write_text(json.dumps({"systems": [{"name": "x", "locomo_em": 0.5}], "sources": {}}), "utf-8")
    assert (
        run_line(
            ["memory", "cortex-compare", "--baseline", str(baseline), "--current", str(place / "out" / "run.json")]
        )
        == 0
    )
    assert "| x " in capsys.readouterr().out


def test_the_seeds_fields_follow_the_seeds_rules(exported):
    _, found, rows = exported
    for result, row in zip(found[0]["results"], rows, strict=True):
        texts, gold = [hit["text"] for hit in row["output"]["hits"]], row["example"].get("answer", "")
        best = best_candidate(texts, gold)
        assert (result["question_id"], result["question"], result["ground_truth"]) == (
            row["example_id"],
            row["example"]["question"],
            gold,
        )
        assert (result["retrieved"], result["exact_match"], result["f1_score"]) == (
            best,
            exact_match(best, gold),
            token_f1(best, gold),
        )
    assert found[0]["exact_match_accuracy"] == pytest.approx(
        sum(one["exact_match"] for one in found[0]["results"]) / 20
    )


def test_every_question_says_what_was_found_where_and_how_long_it_took(exported):
    _, found, rows = exported
    for result, row in zip(found[0]["results"], rows, strict=True):
        assert result["haystack_id"] == row["cluster"]
        assert [hit["source_ids"] for hit in result["hits"]] == [hit["source_ids"] for hit in row["output"]["hits"]]
        assert all("text" not in hit for hit in result["hits"])
        assert result["answer"] == row["response"]
        assert {"search", "answer", "overhead"} <= result["timings_ms"].keys()
        evidence = set(row["example"].get("evidence", []))
        if evidence:
            ranks = [rank for rank, hit in enumerate(result["hits"], 1) if evidence & set(hit["source_ids"])]
            assert result.get("rank_of_first_gold") == (ranks[0] if ranks else None)
            assert set(result["per_k"]) == {"1", "5"}
        else:
            assert "per_k" not in result


def test_protocol_counts_metrics_storage_and_floors(exported):
    _, found, _ = exported
    one = found[0]
    assert one["schema"] == "context-bench/memory/1"
    assert one["counts"] == {"questions": 20, "answered": 20, "recall_failures": 0, "store_failures": 0, "timeouts": 0}
    protocol = one["protocol"]
    assert (protocol["dataset"]["name"], protocol["dataset"]["n"], len(protocol["dataset"]["sha256"])) == (
        "bundled:recall-lab",
        20,
        64,
    )
    assert (protocol["k"], protocol["mode"], protocol["seed"]) == ([1, 5], "shared", 42)
    assert {"add", "search"} <= set(protocol["system"]["capabilities"])
    assert protocol["system"]["config_hash"] != found[2]["protocol"]["system"]["config_hash"]
    assert {"mean", "ci_low", "ci_high", "n"} >= one["metrics"]["recall_at_5"].keys() >= {"mean", "n"}
    assert one["by_category"]["single"]["questions"] == 2
    assert {"items", "stored", "bytes", "write_loss"} <= one["storage"].keys()
    assert set(one["floors"]) == {"none", "random", "full_context", "oracle"}
    assert one["floors"]["oracle"]["evidence_recall"] == 1.0
    assert one["latency"]["search"]["n"] == 19
    assert one["cost"]["ingest"]["calls"] == 0


def test_runs_of_other_protocols_are_not_put_into_one_table(exported, tmp_path, capsys):
    _, found, _ = exported
    other = [{**found[0], "protocol": {**found[0]["protocol"], "k": [30]}}, found[1]]
    for name, value in (("b.json", {"systems": []}), ("c.json", other)):
        (tmp_path / name).write_text(json.dumps(value), "utf-8")
    assert (
        run_line(
            ["memory", "cortex-compare", "--baseline", str(tmp_path / "b.json"), "--current", str(tmp_path / "c.json")]
        )
        == 1
    )
    said = capsys.readouterr().err
    assert "{'k': [30]}" in said
    assert "sha256" not in said


def test_a_run_of_something_else_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "context": "a b c", "question": "q", "answer": "a"}\n', "utf-8")
    line = [
        "run",
        "--system",
        READER,
        "--dataset",
        "rows.jsonl",
        "--quiet",
        "--run",
        "plain",
        "--out",
        "x.txt",
        "--score-field",
        "f1",
    ]
    run_line(line)
    capsys.readouterr()
    assert run_line(["export", "plain", "--format", "memory"]) == 2
    assert "measured no memories" in capsys.readouterr().err


def test_the_names_of_the_memory_command_line_reach_compare_and_rescore(exported, monkeypatch, capsys):
    place, *_ = exported
    monkeypatch.chdir(place)
    capsys.readouterr()
    assert run_line(["memory", "replay", "one", "--evaluator", "summarization", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimates"]["bm25"]["rouge_l_f1"]["n"] > 0
    assert run_line([*LINE, "--run", "two", "--out", "report.txt", "--no-floors"]) == 0
    assert run_line(["memory", "compare", "one", "two", "--system", "bm25"]) == 0
    assert "bm25" in capsys.readouterr().out
