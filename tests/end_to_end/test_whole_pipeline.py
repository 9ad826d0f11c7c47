"""The whole family in one command: five datasets of five kinds from a hub on loopback, a proxy that loses, controls,
one report.

The model answers questions about a text only where the sentence that tells it arrives; everything else it knows by
heart.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from context_bench.__main__ import main
from context_bench.datasets import load
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.reporters import to_html, to_markdown, to_table
from context_bench.reports import build_page
from context_bench.results import EvalResult
from context_bench.testing.hostile import MisbehavingProxy
from minihub import MiniHub, catalogue_fixtures, fixture_rows, parquet_bytes

PEOPLE = ["Ada", "Bo", "Cleo", "Dag", "Edda", "Finn", "Gro", "Hal", "Ida", "Jo", "Kai", "Liv"]
TRADES = [
    "baker",
    "sailor",
    "weaver",
    "tanner",
    "miller",
    "cooper",
    "mason",
    "potter",
    "dyer",
    "smith",
    "tailor",
    "roofer",
]
HOTPOT = "fullwiki/validation-00000-of-00001.parquet"
ARMS = {"lossy", "full", "full#2", "none", "head_tail@lossy", "random_drop@lossy"}
ANSWER = {"f1", "exact_match", "recall", "contains"}
IFEVAL = {"ifeval_strict", "ifeval_loose", "ifeval_prompt_loose", "ifeval_instruction_strict"}

#: The scores that a row of each dataset may have; more is an evaluator where it has no say.
SCORES = {
    "hotpotqa": ANSWER,
    "mmlu:anatomy": ANSWER | {"mc_accuracy"},
    "gsm8k": ANSWER | {"math_equiv", "math_from_prose"},
    "humaneval": ANSWER | {"pass_at_1"},
    "ifeval": IFEVAL,
}
COUNTS = {"hotpotqa": 20, "mmlu:anatomy": 3, "gsm8k": 6, "humaneval": 3, "ifeval": 3}
OBEDIENT = {
    "about tea": "Tea " * 41,
    "angular brackets": "<<Rain>>\n\nIt rains.",
    "what is brine": "brine is water with salt in it and salt is what is left of it.",
}


def told(i):
    """The sentence that question `i` is about."""
    return f"{PEOPLE[i % 12]} of house {i} is a {TRADES[i * 5 % 12]} by trade."


def hotpot_rows():
    """24 questions in the dataset's own schema; in every second one the sentence stands in the text's second half."""
    template, made = fixture_rows("hotpotqa/hotpot_qa", HOTPOT)[0], []
    for i in range(24):
        other = [f"Lane {k} runs past house {i} and is paved with stone of the year {k}." for k in range(14)]
        at = 1 if i % 2 == 0 else 12
        sentences = [*other[:at], told(i), *other[at:]]
        asked = {
            "id": f"{i:024x}",
            "question": f"By what trade does the person of house {i} live?",
            "answer": TRADES[i * 5 % 12],
        }
        made.append({**template, **asked, "context": {"title": [f"House {i}"], "sentences": [sentences]}})
    return made


def script():
    """What the model knows: by heart everything but the houses."""
    houses = enumerate(hotpot_rows())
    key = {
        row["question"]: {"answer": row["answer"], "evidence": told(i), "wrong": "nobody knows"} for i, row in houses
    }
    for name, answer in (
        ("mmlu:anatomy", lambda e: f"The answer is {e['correct_letter']}."),
        ("gsm8k", lambda e: f"So it is \\boxed{{{e['answer']}}}"),
        ("humaneval", lambda e: f"```python\n{e['context']}{e['answer']}```"),
    ):
        key |= {example["question"]: {"answer": answer(example)} for example in load(name).examples()}
    rules = [{"when": {"text": phrase}, "text": reply} for phrase, reply in OBEDIENT.items()]
    return {"answer_key": key, "rules": rules, "default": "nine"}


@pytest.fixture(scope="module")
def place(tmp_path_factory, hub_client):
    """A hub that serves all sets, and a folder to work in."""
    folder = tmp_path_factory.mktemp("pipeline")
    with pytest.MonkeyPatch.context() as patch, MiniHub(catalogue_fixtures()) as hub:
        hub.repos["hotpotqa/hotpot_qa"].files[HOTPOT] = parquet_bytes(hotpot_rows())
        hub_client(patch, folder / "hf", hub.url)
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def model(place):
    server = ModelServer(Scripted(script()))
    run_sync(server.start())
    yield server
    run_sync(server.stop())


@pytest.fixture(scope="module")
def report(place, model):
    """The command of the issue, as it is written there."""
    datasets = [part for name in COUNTS for part in ("--dataset", name)]
    with MisbehavingProxy("halves", model.url) as proxy:
        command = [
            "--proxy",
            proxy.url,
            "--name",
            "lossy",
            *datasets,
            "-n",
            "20",
            "--controls",
            "--upstream",
            model.url,
        ]
        assert main([*command, "--max-workers", "4", "--quiet", "--output", "json", "--out", "report.json"]) == 0
    return json.loads((place / "report.json").read_text())


def of(report, system, dataset=None):
    return [row for row in report["rows"] if row["system"] == system and dataset in (None, row["dataset"])]


def against_full(report, system, dataset=None):
    (found,) = [one for one in report["comparisons"] if one["system"] == system and one.get("dataset") == dataset]
    return found


def test_every_arm_answers_every_example_once(report):
    assert set(report["summary"]) == ARMS
    for system in ARMS:
        assert Counter(row["dataset"] for row in of(report, system)) == COUNTS
        assert not any(row.get("errors") for row in of(report, system))


def test_no_evaluator_scores_a_row_that_it_does_not_apply_to(report):
    for row in report["rows"]:
        assert set(row["scores"]) == SCORES[row["dataset"]], row["system"]


def test_right_answers_are_right_by_the_measure_of_their_dataset(report):
    for dataset, score in (
        ("hotpotqa", "f1"),
        ("mmlu:anatomy", "mc_accuracy"),
        ("gsm8k", "math_equiv"),
        ("humaneval", "pass_at_1"),
        ("ifeval", "ifeval_strict"),
    ):
        assert {row["scores"][score] for row in of(report, "full", dataset)} == {1.0}, dataset


def test_what_the_proxy_loses_is_seen_and_what_cannot_be_lost_does_not_thin_it(report):
    lossy = against_full(report, "lossy")
    assert (lossy["verdict"], lossy["n"], lossy["difference"]) == (
        "inferior",
        20,
        pytest.approx(-0.5),
    )  # not 32 examples, not -0.3
    assert against_full(report, "none")["verdict"] == "inferior"
    assert against_full(report, "head_tail@lossy")["difference"] == pytest.approx(0.0)
    (note,) = [note for note in report["notes"] if "no evidence" in note]
    assert note.startswith("mmlu:anatomy, gsm8k, humaneval, ifeval: no context apart from the question")


def test_each_dataset_has_a_line_and_verdicts_of_its_own(report):
    for system in ARMS - {"full", "full#2"}:
        lines = {one["dataset"]: one for one in report["comparisons"] if one["system"] == system and "dataset" in one}
        assert set(lines) == {"hotpotqa", "mmlu:anatomy", "gsm8k", "humaneval"}  # ifeval has no f1
        for one in lines.values():
            assert one["n"] == COUNTS[one["dataset"]]
        assert {lines[name]["verdict"] for name in ("mmlu:anatomy", "humaneval")} == {"no verdict"}  # three examples
    whole, part = against_full(report, "lossy"), against_full(report, "lossy", "hotpotqa")
    assert part["p"] == pytest.approx(
        2 * whole["p"]
    )  # the same pairs, Holm-corrected over the two datasets that can be tested
    assert "Holm-corrected over 2 datasets" in part["sentence"]
    summary = report["summary"]["full"]
    assert {name: summary[f"dataset:{name}"] for name in ("hotpotqa", "gsm8k")} == {"hotpotqa": 1.0, "gsm8k": 0.0}
    assert "dataset:ifeval" not in summary


@pytest.mark.parametrize("form", [to_table, to_markdown, to_html])
def test_the_report_says_all_that_in_every_form(report, form):
    shown = " ".join(form(EvalResult.from_json(report)).split())
    assert all(name in shown for name in COUNTS)
    assert "By dataset" in shown
    assert "inferior to full" in shown
    assert "no context apart from the question" in shown


def test_each_dataset_shows_the_measure_of_its_kind(report):
    table = build_page(EvalResult.from_json(report)).section("datasets").tables[0]
    assert [column.title for column in table.columns[-2:]] == ["own score", "mean of it"]
    own = {row[1]: (row[-2], row[-1] and row[-1].value) for row in table.rows if row[0] == "full"}
    assert own == {
        "hotpotqa": (None, None),  # what all have is what it is measured by
        "mmlu:anatomy": ("mc_accuracy", 1.0),
        "gsm8k": ("math_equiv", 1.0),
        "humaneval": ("pass_at_1", 1.0),
        "ifeval": ("ifeval_strict", 1.0),
    }


def test_scored_again_for_another_dataset_of_the_run_nobody_is_asked(report, model, capsys):
    seen = model.seen
    assert main(["rescore", "last", "--score-field", "math_equiv", "--output", "json"]) == 0
    again = json.loads(capsys.readouterr().out)
    for row in again["rows"]:
        assert set(row["scores"]) == SCORES[row["dataset"]]
    assert again["summary"]["full"]["mean_score"] == 1.0
    assert against_full(again, "lossy")["n"] == 6  # a score that only a set without context has is compared there
    assert model.seen == seen


def bench(model, *more):
    return main(["--proxy", model.url, "--name", "p", "--upstream", model.url, "--quiet", "--store", "other.db", *more])


def test_where_no_dataset_has_a_context_controls_are_refused_unless_forced(place, model, capsys):
    without = ["--dataset", "gsm8k", "--dataset", "mmlu:anatomy", "--controls", "full,none"]
    seen = model.seen
    assert bench(model, *without) == 2
    said = capsys.readouterr().err
    assert "gsm8k, mmlu:anatomy: no context apart from the question" in said
    assert "--force" in said
    assert model.seen == seen
    assert bench(model, *without, "--force", "--output", "json") == 0
    forced = json.loads(capsys.readouterr().out)
    assert against_full(forced, "p")["n"] == 9
    assert not any("no evidence" in note for note in forced["notes"])


def test_forced_all_datasets_count(place, model, capsys):
    mixed = ["--dataset", "hotpotqa", "--dataset", "gsm8k", "-n", "6", "--controls", "full,none", "--output", "json"]
    assert bench(model, *mixed) == 0
    assert against_full(json.loads(capsys.readouterr().out), "p")["n"] == 6
    assert bench(model, *mixed, "--force") == 0
    assert against_full(json.loads(capsys.readouterr().out), "p")["n"] == 12


def test_too_many_failures_end_with_1(place, model, capsys):
    breaking = ModelServer(
        Scripted({"rules": [{"when": {"text": "house 3"}, "status": 400, "error": "no"}], "default": "nine"})
    )
    run_sync(breaking.start())
    try:
        command = ["--dataset", "hotpotqa", "-n", "6", "--output", "json"]
        assert bench(breaking, *command) == 1
        said = capsys.readouterr()
        assert "p failed on 1 of 6 rows" in said.err
        assert json.loads(said.out)["failures"]["p"]["system"] == {"Refused": 1}
        assert bench(breaking, *command, "--max-failures", "0.2") == 0
    finally:
        run_sync(breaking.stop())
