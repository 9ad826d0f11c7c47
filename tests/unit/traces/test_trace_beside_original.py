"""Odd input beside the original evaluator, which was run on each of these: `contextbench-v1` gives its figures to the
digit.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from context_bench.shell.repo import open_repo
from context_bench.traces import score_trace
from context_bench.traces.coverage import STRICT, UPSTREAM, Score, prediction, score
from context_bench.traces.figures import means
from context_bench.traces.gold import gold_of_row
from context_bench.traces.symbols import CodeFiles
from context_bench.transcripts.traces import load_traces

CALC, UTIL = "src/calc.py", "src/util.py"
Gold = list[tuple[str, int, int]]
Step = dict[str, list[tuple[int, int]]]


@cache
def files() -> CodeFiles:
    vectors = json.loads((Path(__file__).parents[2] / "vectors" / "traces.json").read_text("utf-8"))
    return CodeFiles(open_repo(vectors["fixture_repo"]))


def scored(init: Gold, steps: list[Step], patch: str = "", add: Gold | None = None, policy: Any = UPSTREAM) -> Score:
    contexts = [[{"file": path, "start_line": a, "end_line": b} for path, a, b in told] for told in (init, add or [])]
    gold = gold_of_row({"inst_id": "t", "init_ctx": contexts[0], "add_ctx": contexts[1]})

    def told(pairs: list[tuple[int, int]]) -> list[dict[str, Any]]:
        return [{"type": "line", "start": a, "end": b} for a, b in pairs]

    whole: Step = {}
    for step in steps:
        for path, pairs in step.items():
            whole.setdefault(path, []).extend(pairs)
    rows = [{"files": list(step), "spans": {path: told(pairs) for path, pairs in step.items()}} for step in steps]
    data = {
        "pred_steps": rows,
        "pred_files": list(whole),
        "pred_spans": {path: told(pairs) for path, pairs in whole.items()},
    }
    selections, final = prediction(data)
    return score(gold, selections, files(), final=final, patch=patch, policy=policy)


def figures(of: Score, level: str) -> list[float | None]:
    """Coverage, precision, hits, size of gold, size of what was read."""
    one = of.final[level]
    rounded = [None if share is None else round(share, 4) for share in (one.coverage, one.precision)]
    return [*rounded, one.intersection, one.gold_size, one.pred_size]


@pytest.mark.parametrize(
    ("init", "steps", "line", "span", "curve"),
    [
        pytest.param(
            [(CALC, 8, 12)], [{CALC: [(12, 8)]}], [0, 1, 0, 5, -3], [0.1405, 1, 17, 121, 17], [0.0], id="reversed"
        ),
        pytest.param(
            [(CALC, 8, 12)],
            [{CALC: [(12, 8)]}, {CALC: [(12, 8)]}, {UTIL: [(6, 2)]}],
            [0, 1, 0, 5, -9],
            [0.1405, 0.5, 17, 121, 34],
            [0.0, 0.0, 0.0],
            id="reversed-again",
        ),
        pytest.param(
            [(CALC, 12, 8)], [{CALC: [(8, 12)]}], [1, 0, 0, -3, 5], [1, 0.1405, 17, 17, 121], [1.0], id="gold-reversed"
        ),
        pytest.param(
            [(CALC, 0, 5)], [{CALC: [(1, 5)]}], [0.8333, 1, 5, 6, 5], [1, 1, 71, 71, 71], [5 / 6], id="gold-from-line-0"
        ),
        pytest.param(
            [(CALC, 46, 50)], [{CALC: [(46, 46)]}], [0.2, 1, 1, 5, 1], [1, 1, 1, 1, 1], [0.2], id="line-after-the-last"
        ),
        pytest.param(
            [("src/noeol.py", 6, 9)],
            [{"src/noeol.py": [(7, 8)]}],
            [0.5, 1, 2, 4, 2],
            [0, 1, 0, 12, 0],
            [0.5],
            id="after-an-open-end",
        ),
        pytest.param(
            [("src\\calc.py", 8, 12), ("/workspace/util.py", 1, 1), ("", 1, 2)],
            [{CALC: [(8, 12)]}],
            [0.8333, 1, 5, 6, 5],
            [0.8643, 1, 121, 140, 121],
            [5 / 6],
            id="gold-of-other-machines",
        ),
    ],
)
def test_ranges_and_paths(init: Gold, steps: list[Step], line: list[Any], span: list[Any], curve: list[float]) -> None:
    found = scored(init, steps)
    assert figures(found, "line") == line
    assert figures(found, "span") == span
    assert [one["line"] for one in found.steps] == pytest.approx(curve)
    assert found.redundancy["line"] == 0.0


def test_gold_in_add_ctx_alone_keeps_the_curve_of_lines_down() -> None:
    found = scored([], [{CALC: [(8, 12)]}], add=[(CALC, 8, 12)])
    assert figures(found, "line") == [1, 0, 0, 0, 5]
    assert [one["line"] for one in found.steps] == [0.0]


def test_a_module_of_ruby_is_a_definition_in_every_policy() -> None:
    for policy in (UPSTREAM, STRICT):
        found = scored([("ruby/greeter.rb", 8, 8)], [{"ruby/greeter.rb": [(1, 1)]}], policy=policy)
        assert figures(found, "symbol") == [0.3333, 1, 1, 3, 1]
        assert [kind for _, kind, _, _ in found.pred_symbols] == ["module"]


@pytest.mark.parametrize(
    ("patch", "hits", "deleted"),
    [
        ("+++ b/src/calc.py\n@@ -8,3 +8,2 @@\n ctx\n-a\n\n+++ b/src/util.py\n-b\n ctx\n-c\n", 3, 3),
        ("+++ b/src/calc.py\n@@ -8,3 +8,2 @@\n-a\n-b\n@@ -9 +9 @@\n-b\n-c\n", 3, 3),
        ("+++  b/src/calc.py\n@@  -8,3  +8,2  @@\n-a\n+++ /dev/null\n@@ -30 +30 @@\n-b\ndiff x\n-c\n", 1, 2),
        (f"+++ b/src/calc.py\n@@ -{'8' * 5000} +8 @@\n-a\n", 0, 0),
    ],
    ids=["header-in-a-hunk", "the-same-lines-twice", "wide-blanks", "number-of-any-length"],
)
def test_deleted_lines_of_odd_patches(patch: str, hits: int, deleted: int) -> None:
    found = scored([(CALC, 8, 12)], [{CALC: [(8, 12)]}], patch).editloc
    assert found is not None
    assert (found["intersection"], found["pred_size"]) == (hits, deleted)


def test_sizes_below_zero_go_into_the_sum_of_all_tasks_and_divide_by_no_nothing() -> None:
    right, reverse = scored([(CALC, 8, 12)], [{CALC: [(8, 12)]}]), scored([(CALC, 8, 12)], [{CALC: [(12, 8)]}])
    wide = means([right, reverse]).figures["micro.precision.line"]
    assert (wide.value, wide.low) == (2.5, None)
    three = scored([(CALC, 8, 12)], [{CALC: [(8, 10)]}])
    assert means([three, reverse]).figures["micro.precision.line"].value == 1.0  # 3 - 3 lines: the original puts 1
    assert means([reverse] * 8, [f"r{n}" for n in range(8)]).figures["micro.precision.line"].value == 1.0
    strict = scored([(CALC, 8, 12)], [{CALC: [(12, 8)]}], policy=STRICT)
    assert figures(strict, "line") == [1, 1, 5, 5, 5]


BOTH = {
    "inst_id": "x",
    "init_ctx": [{"file": CALC, "start_line": 8, "end_line": 12}, {"file": UTIL, "start_line": 1, "end_line": 6}],
}


def of_log(path: Path, row: Any) -> Score:
    path.write_text(json.dumps(row))
    (trace,) = load_traces(path)
    found = score_trace(gold_of_row(BOTH), trace, files(), "contextbench-v1").score
    assert found is not None
    return found


def test_a_prediction_names_files_apart_from_lines_and_has_steps_that_found_nothing(tmp_path: Path) -> None:
    steps = [
        {"files": [], "spans": {}},
        {"files": [UTIL], "spans": {CALC: [{"start": 8, "end": 12}]}, "symbols": {"go/stack.go": ["Push"]}},
        {"files": [CALC], "spans": {CALC: [{"start": 8, "end": 12}]}},
    ]
    final = {"pred_files": [CALC], "pred_spans": {UTIL: [{"start": 1, "end": 2}], CALC: [{"start": 8, "end": 10}]}}
    found = of_log(tmp_path / "pred.jsonl", {"instance_id": "x", "traj_data": {"pred_steps": steps, **final}})
    assert figures(found, "file") == [0.5, 1, 1, 2, 1]
    assert figures(found, "line") == [0.4545, 1, 5, 11, 5]
    assert [one["file"] for one in found.steps] == [0.0, 0.5, 1.0]
    assert [one["symbol"] for one in found.steps] == [0.0, 0.0, 0.5]
    assert found.redundancy["file"] == 0.0


def test_agentless_is_one_step_of_everything_it_picked(tmp_path: Path) -> None:
    row = {
        "instance_id": "x",
        "3_final_combined_files": [CALC],
        "4_related_elements": {UTIL: ["function: clamp"], CALC: ["class: Cart"]},
        "5_sampled_edit_locs_and_patches": [
            {"edit_locs": {CALC: ["function: subtotal"]}},
            {"edit_locs": {CALC: ["lines: 9-12"], "src/uni.py": ["line: 2"]}},
        ],
    }
    found = of_log(tmp_path / "x_traj.json", row)
    assert found.num_steps == 1
    assert figures(found, "file") == [0.5, 1, 1, 2, 1]
    assert figures(found, "symbol") == [0.5, 0.5, 1, 2, 2]
    assert figures(found, "span") == [0.3158, 0.8041, 78, 247, 97]
    assert figures(found, "line") == [0.3636, 0.8, 4, 11, 5]
    assert found.auc["line"] == pytest.approx(4 / 11)
