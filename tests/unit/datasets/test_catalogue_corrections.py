"""What the catalogue's sets must say, through the real loader and a hub on loopback: documented keys, and known faults
put right.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import minihub
from context_bench.core.errors import PreflightFailed
from context_bench.datasets import load, spec
from context_bench.datasets.prepare import lettered
from context_bench.evaluators import MathEquivalence, MultipleChoiceAccuracy
from minihub import MiniHub, MiniRepo, catalogue_fixtures, fixture_rows

CHOICES = {"choices", "correct_letter"}
PATCHES = {"repo", "base_commit"}

#: Every documented name, with the keys its examples have besides id and context; question and answer where they are
#: documented.
DOCUMENTED = {
    "hotpotqa": {"question", "answer", "type"},
    "natural-questions": {"question", "answer", "answers"},
    "musique": {"question", "answer"},
    "narrativeqa": {"question", "answer", "answers"},
    "triviaqa": {"question", "answer", "answers"},
    "frames": {"question", "answer"},
    "quality": {"question", "answer", *CHOICES},
    "qasper": {"question", "answer"},
    "mmlu": {"question", "answer", *CHOICES},
    "mmlu-pro": {"question", "answer", *CHOICES},
    "arc-challenge": {"question", "answer", *CHOICES},
    "truthfulqa": {"question", "answer", "answers"},
    "gpqa": {"question", "answer", *CHOICES},
    "hellaswag": {"question", "answer", *CHOICES},
    "winogrande": {"question", "answer", *CHOICES},
    "gsm8k": {"question", "answer", "reasoning"},
    "drop": {"question", "answer"},
    "math": {"question", "answer"},
    "mgsm": {"question", "answer"},
    "bbh": {"question", "answer"},
    "humaneval": {"question", "answer", "test", "entry_point"},
    "mbpp": {"question", "answer", "test_list", "test_setup_code"},
    "multi-news": {"question", "answer"},
    "dialogsum": {"question", "answer"},
    "qmsum": {"question", "answer"},
    "summscreenfd": {"question", "answer"},
    "meetingbank": {"question", "answer"},
    "govreport": {"question", "answer"},
    "contract-nli": {"question", "answer"},
    "scifact": {"question", "answer"},
    "ifeval": {"question", "answer", "instruction_id_list", "kwargs"},
    "alpaca-eval": {"question", "answer"},
    "mt-bench": {"question", "answer", "multi_turn", "turns", "category"},
    "longbench": {"question", "answer"},
    "longbench-v2": {"question", "answer", *CHOICES},
    "infinitebench": {"question", "answer"},
    "nolima": {"question", "answer"},
    "bfcl": {"question", "answer", "tools"},
    "apigen": {"question", "answer", "tools", "expected_calls"},
    "swebench": {"answer", *PATCHES},
    "swebench-verified": {"answer", *PATCHES},
    "swebench-lite": {"answer", *PATCHES},
}

NOTHING_TO_COMPRESS = {
    *(
        "natural-questions",
        "frames",
        "gsm8k",
        "math",
        "mgsm",
        "bbh",
        "truthfulqa",
        "humaneval",
        "mbpp",
        "ifeval",
        "alpaca-eval",
    ),
    *("mt-bench", "mmlu", "mmlu-pro", "arc-challenge", "gpqa", "hellaswag", "winogrande", "apigen"),
}

WIRED = {
    "summarization": {"meetingbank", "govreport", "multi-news", "dialogsum", "qmsum", "summscreenfd"},
    "multiple_choice": {"mmlu", "mmlu-pro", "arc-challenge", "gpqa", "hellaswag", "winogrande"},
    "code_execution": {"humaneval", "mbpp"},
    "ifeval": {"ifeval"},
    "math": {"math", "gsm8k", "mgsm"},
    "nli": {"contract-nli", "scifact"},
    "tool_call": {"bfcl", "apigen"},
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory, hub_client):
    """The hub with all fixtures, and a client's home of its own."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, MiniHub(catalogue_fixtures()) as hub:
        hub_client(patch, home, hub.url)
        yield hub


def examples(name, **options):
    return list(load(name, **options).examples())


def test_there_are_the_documented_names():
    assert len(DOCUMENTED) == 42
    assert set(spec.names()) == set(DOCUMENTED)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_examples_have_the_documented_keys(everything, name):
    example = examples(name, n=1)[0]
    assert {"id", "context", *DOCUMENTED[name]} <= set(example)
    assert example["context"].strip()
    assert example["dataset"] == name
    known = load(name, n=1).manifest()
    assert known["licence"]
    assert known["citation"]
    assert known["has_context"] == (name not in NOTHING_TO_COMPRESS)


def test_evaluators_are_wired_as_documented():
    for evaluator, names in WIRED.items():
        assert {name for name in spec.names() if evaluator in spec.named(name).evaluators} >= names, evaluator
    without_gold = {name for name in spec.names() if "answer" not in spec.named(name).evaluators}
    assert without_gold == {"ifeval", "mt-bench"}
    assert not [name for name in spec.names() if "llm_judge" in spec.named(name).evaluators]


def test_configurations_are_the_documented_ones(everything):
    assert len(spec.named("bbh").configs) == 27
    assert spec.named("mgsm").configs == ["bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh"]
    assert len(spec.named("mmlu").configs) == 58  # 57 subjects, and all
    assert "何日" in examples("mgsm:ja")[2]["question"]
    assert [e["answer"] for e in examples("mgsm:ja")] == [e["answer"] for e in examples("mgsm")] == ["10", "180", "21"]


def test_all_golds_are_kept(everything):
    assert [e["answers"] for e in examples("natural-questions")][2] == [
        "green and white",
        "white and green",
        "green, white",
    ]
    assert [e["answer"] for e in examples("natural-questions")] == ["Lene Aas", "1874", "green and white"]
    last = examples("truthfulqa")[2]
    assert (last["answer"], last["answers"]) == ("Nobody knows", ["I have no comment", "Nobody knows"])


def test_quoted_cells_of_frames_keep_their_lines(everything):
    second = examples("frames")[1]
    assert second["question"] == 'Who was mayor of the town whose motto is "Salt and sail"\nwhen its ferry began?'
    assert second["answer"] == "Tomas Vey"


def letters_point_at_the_answer(found):
    for example in found:
        assert example["choices"]["ABCDEFGHIJ".index(example["correct_letter"])] == example["answer"]
        assert example["context"].endswith(lettered(example["choices"]))


@pytest.mark.parametrize("name", ["mmlu", "mmlu-pro", "arc-challenge", "gpqa", "hellaswag", "winogrande"])
def test_the_letter_is_that_of_the_answer(everything, name):
    found = examples(name)
    letters_point_at_the_answer(found)
    assert len({e["correct_letter"] for e in found}) > 1


def test_arc_keys_may_be_digits_and_a_key_of_no_choice_is_left_out(everything):
    found = examples("arc-challenge")
    assert [(e["id"][-1], e["correct_letter"], e["answer"]) for e in found] == [
        ("1", "C", "a star"), ("2", "B", "carbon dioxide"), ("4", "D", "a balance")
    ]  # fmt: skip
    assert len(examples("arc-challenge", n=3)) == 3  # the row left out does not count


def test_gpqa_choices_are_shuffled_by_seed_and_record(everything):
    first, again = examples("gpqa"), examples("gpqa")
    assert first == again
    right = [row["Correct Answer"].strip() for row in gpqa_rows()]
    assert [e["answer"] for e in first] == right
    letters = {seed: tuple(e["correct_letter"] for e in examples("gpqa", seed=seed)) for seed in range(40)}
    assert len(set(letters.values())) > 30
    counts = Counter("".join("".join(found) for found in letters.values()))
    assert set(counts) == set("ABCD")
    assert max(counts.values()) < 80  # of 200, 50 expected
    for seed in (1, 2):
        letters_point_at_the_answer(examples("gpqa", seed=seed))
    assert examples("gpqa", n=2) == first[:2]


def gpqa_rows():
    import csv

    text = (Path(minihub.__file__).parent / "hub_fixtures/Idavidrein--gpqa/gpqa_diamond.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines(keepends=True)))


def test_gpqa_is_the_same_in_every_process(everything):
    program = "from context_bench.datasets import load; print([e['choices'] for e in load('gpqa', seed=3).examples()])"
    seen = set()
    for salt in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert seen == {f"{[e['choices'] for e in examples('gpqa', seed=3)]}\n"}


@pytest.mark.parametrize(
    ("name", "repo"), [("gpqa", "Idavidrein/gpqa"), ("apigen", "Salesforce/xlam-function-calling-60k")]
)
def test_gated_sets_say_how_to_get_them(monkeypatch, tmp_path, hub_client, name, repo):
    fixtures = catalogue_fixtures()
    fixtures[repo].gated = True
    with MiniHub(fixtures) as hub:
        hub_client(monkeypatch, tmp_path, hub.url)
        with pytest.raises(
            PreflightFailed, match=rf"dataset {repo} is gated: sign in at {hub.url}/datasets/{repo}, accept its terms"
        ):
            load(name)
        monkeypatch.setenv("HF_TOKEN", "hf_reader")
        assert len(examples(name)) >= 3


def test_hellaswag_text_is_clean_and_videos_are_clusters(everything):
    found = examples("hellaswag")
    assert found[2]["question"] == "How to store apples. Pick a cool place. A cellar is best."
    assert found[2]["choices"][:2] == ["Lay them on straw. Look at them often.", "Paint the walls."]
    assert found[0]["question"] == "A woman stands on a roof. she"
    assert [e["cluster"] for e in found] == ["activitynet~v_-invented1", "activitynet~v_-invented1", "wikihow~1"]


def test_math_takes_the_last_box_of_the_test_split(everything):
    found = examples("math")
    assert [e["answer"] for e in found] == [
        "5",
        "2x+1",
        "\\sqrt{2}",
        "\\{90\\}",
        "\\frac{3}{8}",
        "7",
        "Nothing is left.",
    ]
    assert len({e["subject"] for e in found}) == 3
    assert "competition_math" not in spec.named("math").source


def test_mbpp_shows_name_imports_and_tests(everything):
    first, second, third = examples("mbpp")
    assert first["question"] == (
        "Write a function to find the area of a circle.\n\nThe function's name is `area`. These tests must pass:\n"
        "import math\nassert area(0) == 0\nassert math.isclose(area(1), math.pi)"
    )
    assert (first["test_setup_code"], second["test_setup_code"]) == ("import math", "")
    assert "name is `sum_even`" in second["question"]  # not the helper that is defined before it
    assert "name is `shared_items`" in third["question"]  # not `set`, which the test calls first
    for example in (first, second, third):
        exec(
            "\n".join([example["answer"], example["test_setup_code"], *example["test_list"]]), {}
        )  # the gold passes as it is handed on


def test_humaneval_prompt_and_gold_pass_their_tests(everything):
    for example in examples("humaneval"):
        space: dict = {}
        exec(f"{example['question']}{example['answer']}\n{example['test']}\ncheck({example['entry_point']})", space)
        assert example["entry_point"] in space


def test_contract_nli_asks_the_statement_and_keeps_the_contract_whole(everything):
    first, second, third = examples("contract-nli")
    assert first["context"].startswith("NON-DISCLOSURE AGREEMENT\n\nBetween")
    assert first["question"].endswith("Statement: Receiving Party shall not take machines apart.")
    assert "Receiving Party shall not take" not in first["context"]
    assert [e["answer"] for e in (first, second, third)] == ["Contradiction", "Entailment", "Not mentioned"]
    assert first["cluster"] == second["cluster"] != third["cluster"]  # two statements on one contract


def test_scifact_columns(everything):
    found = examples("scifact")
    assert [(e["id"], e["answer"]) for e in found] == [(1, "SUPPORT"), (3, "CONTRADICT"), (5, "NOT_ENOUGH_INFO")]
    assert (
        found[1]["context"]
        == "Cells and cold\nBACKGROUND Cells sleep. None woke when cooled.\n\nCold again\nNo cell woke in cold water."
    )
    assert [e["cluster"] for e in found] == ["doc-41", "doc-43", "doc-41"]
    assert all(label in found[0]["question"] for label in ("SUPPORT", "CONTRADICT", "NOT_ENOUGH_INFO"))
    assert found[2]["claim"] == "Reeds shorten the sleep of cells."


def test_scifact_nested_evidence(monkeypatch, tmp_path):
    claims = [
        {"id": 1, "claim": "A.", "evidence": {"41": [{"sentences": [1], "label": "SUPPORT"}]}, "cited_doc_ids": [41]},
        {
            "id": 2,
            "claim": "B.",
            "evidence": {"43": [{"sentences": [0], "label": "CONTRADICT"}]},
            "cited_doc_ids": [41, 43],
        },
        {"id": 3, "claim": "C.", "evidence": {}, "cited_doc_ids": [43]},
        {"id": 4, "claim": "D.", "evidence": {}, "cited_doc_ids": []},
    ]
    corpus = fixture_rows("allenai/scifact", "corpus/train/0000.parquet")
    lines = {"claims_dev.jsonl": claims, "corpus.jsonl": corpus}
    repo = MiniRepo({name: "".join(json.dumps(row) + "\n" for row in rows).encode() for name, rows in lines.items()})
    described = (spec.files("context_bench.datasets") / "catalogue/scifact.toml").read_text("utf-8")
    for old, new in (
        ("allenai/scifact", "me/scifact"),
        ("{config}/{split}/*.parquet", "claims_dev.jsonl"),
        ("refs/convert/parquet", repo.commit),
    ):
        assert old in described
        described = described.replace(old, new)
    (tmp_path / "nested.toml").write_text(described, "utf-8")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with MiniHub({"me/scifact": repo}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        found = examples(str(tmp_path / "nested.toml"))
    assert [(e["id"], e["answer"]) for e in found] == [(1, "SUPPORT"), (2, "CONTRADICT"), (3, "NOT_ENOUGH_INFO")]


def test_sets_without_a_gold_answer_say_an_empty_one(everything):
    assert {e["answer"] for name in ("ifeval", "mt-bench") for e in examples(name)} == {""}
    third = examples("ifeval")[2]
    assert third["kwargs"][1] == {"relation": "at least", "keyword": "salt", "frequency": 2}
    assert len(third["kwargs"]) == len(third["instruction_id_list"])


def test_mt_bench_asks_every_turn(everything):
    second = examples("mt-bench")[1]
    assert second["turns"] == [
        {"role": "user", "content": "What is the area of a 3 by 4 field?"},
        {"role": "user", "content": "And its diagonal?"},
    ]
    assert second["multi_turn"] is True
    assert (second["id"], second["context"], second["question"]) == (
        2345678,
        second["turns"][0]["content"],
        second["turns"][1]["content"],
    )
    assert second["reference"] == ["12", "5"]


def test_alpaca_eval_needs_no_script(everything):
    second = examples("alpaca-eval")[1]
    assert second["answer"] == "The ferry hums across the bay,\nand carries half the town away."
    assert (second["dataset"], second["subset"]) == ("alpaca-eval", "koala")


def test_apigen_shows_the_functions_and_expects_the_calls(everything):
    first, second, third = examples("apigen")
    assert first["expected_calls"] == [{"name": "tide", "arguments": {"place": ["Haug"], "unit": ["m", ""]}}]
    assert second["expected_calls"] == [
        {"name": "tide", "arguments": {"place": ["Haug"], "unit": ["ft"]}},
        {"name": "tide", "arguments": {"place": ["Aldbrook"], "unit": ["ft"]}},
    ]
    assert third["expected_calls"] == [{"name": "ferries", "arguments": {"route": [[2, 3]], "max_wait": [30.0]}}]
    parameters = third["tools"][0]["parameters"]
    assert {name: each.get("type") for name, each in parameters["properties"].items()} == {
        "route": "array", "late": "boolean", "max_wait": "number"
    }  # fmt: skip
    assert parameters["required"] == ["max_wait"]
    assert json.dumps(second["tools"][1]) in second["question"]
    assert second["question"].startswith(second["context"])
    assert json.loads(first["answer"])[0]["name"] == "tide"


def test_swebench_repositories_are_clusters(everything):
    for name in ("swebench", "swebench-verified", "swebench-lite"):
        found = examples(name)
        assert found[0]["context"].startswith("Repository: acme/tide\n\nIssue:\nHigh tide is too low.")
        assert [e["cluster"] for e in found] == [e["repo"] for e in found] == ["acme/tide", "acme/tide", "acme/kelp"]
        assert found[0]["answer"].startswith("--- a/tide.py")
        assert "question" not in found[0]


@pytest.mark.parametrize("name", sorted(set(DOCUMENTED) - NOTHING_TO_COMPRESS))
def test_what_can_be_compressed_is_not_the_question(everything, name):
    for example in examples(name):
        assert not example.get("question", "").startswith(example["context"])


@pytest.mark.parametrize("name", sorted(WIRED["multiple_choice"] | WIRED["math"]))
def test_the_gold_itself_is_scored_right(everything, name):
    evaluator, field = (
        (MathEquivalence(), "math_equiv") if name in WIRED["math"] else (MultipleChoiceAccuracy(), "mc_accuracy")
    )
    for example in examples(name):
        reply = (
            f"\\boxed{{{example['answer']}}}"
            if name in WIRED["math"]
            else f"The answer is {example['correct_letter']}."
        )
        assert evaluator.applies(example, {**example, "response": reply})
        assert evaluator.score(example, {**example, "response": reply})[field] == 1.0
