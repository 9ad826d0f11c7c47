"""The commands of the documentation, one after another, against a model and a hub on loopback."""

from __future__ import annotations

import json

import pytest

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from minihub import MiniHub, catalogue_fixtures, parquet_bytes, zip_bytes

PARQUET = "test-00000-of-00001.parquet"


@pytest.fixture(scope="module")
def place(tmp_path_factory, hub_client):
    """A hub that serves the catalogue, and a folder to work in."""
    folder = tmp_path_factory.mktemp("documented")
    repos = catalogue_fixtures()
    mgsm, bbh, longbench = (repos[name].files for name in ("juletxara/mgsm", "lukaemon/bbh", "zai-org/LongBench"))
    mgsm[f"de/{PARQUET}"] = parquet_bytes(
        [{"question": f"Was ist {i} und {i}?", "answer_number": 2 * i, "answer": None} for i in range(3)]
    )
    bbh[f"causal_judgement/{PARQUET}"] = parquet_bytes(
        [{"input": f"Did {name} cause it?", "target": "Yes"} for name in ("Ann", "Bob")]
    )
    asked = [
        {"input": f"Who wrote part {i}?", "context": f"Part {i} is by B.", "answers": ["B"], "_id": str(i)}
        for i in range(2)
    ]
    longbench["data.zip"] = zip_bytes({"data/qasper.jsonl": "\n".join(map(json.dumps, asked)).encode()})
    with pytest.MonkeyPatch.context() as patch, MiniHub(repos) as hub:
        hub_client(patch, folder / "hf", hub.url)
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def model(place):
    """Answerer and judge in one: every answer is the letter B, every grade a four, but for the judge's own trial
    answers that are wrong.
    """
    rules = [
        {"when": {"text": r"capital of France is Berlin|Hm\."}, "text": "1"},
        {"when": {"text": "Assistant's response"}, "text": "4"},
    ]
    server = ModelServer(Scripted({"rules": rules, "default": "The answer is B."}))
    run_sync(server.start())
    yield server
    run_sync(server.stop())


@pytest.fixture
def bench(model, capsys):
    """The command with one proxy and few examples; its report, read back where it is JSON."""

    def run(*more, code=0, n="2"):
        capsys.readouterr()
        assert main(["--proxy", model.url, "--quiet", "-n", n, *more]) == code
        said = capsys.readouterr().out
        return json.loads(said) if "json" in more else said

    return run


JSON = ("--output", "json")


def test_one_proxy_and_one_dataset_print_a_table(bench, model):
    shown = bench("--dataset", "hotpotqa")
    assert "Evaluation Results" in shown
    assert model.url.removeprefix("http://") in shown  # host:port where no name is given


def test_two_proxies_with_names_are_told_apart_and_ranked(bench, model):
    found = bench("--proxy", model.url, "--name", "kompact", "--name", "headroom", "--dataset", "hotpotqa", *JSON)
    assert list(found["summary"]) == ["kompact", "headroom"]
    assert {row["system"] for row in found["rows"]} == {"kompact", "headroom"}
    (comparison,) = found["comparisons"]
    assert (comparison["system"], comparison["baseline"], comparison["difference"]) == ("headroom", "kompact", 0.0)


def test_names_without_a_proxy_are_ignored_and_missing_ones_made(bench, model):
    found = bench("--name", "one", "--name", "surplus", "--dataset", "gsm8k", *JSON)
    assert list(found["summary"]) == ["one"]


def test_several_datasets_have_a_breakdown(bench):
    found = bench("--dataset", "hotpotqa", "--dataset", "gsm8k", *JSON)
    (summary,) = found["summary"].values()
    assert {"dataset:hotpotqa", "dataset:gsm8k"} <= set(summary)
    assert len(found["rows"]) == 4  # -n is per dataset


def test_rows_with_a_tag_of_their_own_are_judged_by_what_their_dataset_names(bench, place):
    asked = {"context": "x", "question": "Which?", "answer": "B"}
    (place / "tagged.jsonl").write_text(
        "".join(json.dumps({"id": i, "dataset": "gsm8k", **asked}) + "\n" for i in "ab")
    )
    found = bench("--dataset", "gsm8k", "--dataset", "tagged.jsonl", "--score-field", "math_equiv", *JSON)
    assert [("math_equiv" in row["scores"], "f1" in row["scores"]) for row in found["rows"]] == [
        *[(True, True)] * 2,
        *[(False, True)] * 2,
    ]
    assert {row["dataset"] for row in found["rows"]} == {"gsm8k"}
    assert found["estimates"][next(iter(found["summary"]))]["math_equiv"]["n"] == 2


def test_an_html_report_is_one_page(bench, place):
    page = bench("--dataset", "hotpotqa", "--output", "html")
    assert page.startswith("<!DOCTYPE html>")
    assert "rowData" in page


def test_a_file_of_ones_own(bench, place):
    (place / "mine.jsonl").write_text(
        '{"id": "a", "context": "The answer is B.", "question": "Which?", "answer": "The answer is B."}\n'
    )
    found = bench("--dataset", "./mine.jsonl", *JSON)
    (row,) = found["rows"]
    assert (row["dataset"], row["example_id"], row["scores"]["exact_match"]) == ("./mine.jsonl", "a", 1.0)


@pytest.mark.parametrize(
    "dataset",
    [
        "mmlu:anatomy",
        "mgsm:de",
        "mgsm:ja",
        "mgsm:en",
        "bbh:causal_judgement",
        "longbench:qasper",
        "infinitebench:en_qa",
    ],
)
def test_configurations(bench, dataset):
    rows = bench("--dataset", dataset, *JSON)["rows"]
    assert len(rows) == 2
    assert all(row["dataset"] == dataset and row["scores"] and not row.get("errors") for row in rows)


@pytest.mark.parametrize(
    ("field", "dataset"),
    [
        ("mc_accuracy", "mmlu"),
        ("pass_at_1", "humaneval"),
        ("math_equiv", "gsm8k"),
        ("judge_score", "alpaca-eval"),
        ("contains", "hotpotqa"),
        ("exact_match", "natural-questions"),
        ("recall", "triviaqa"),
        ("rouge_l_f1", "meetingbank"),
        ("nli_accuracy", "contract-nli"),
        ("ifeval_strict", "ifeval"),
    ],
)
def test_every_score_can_be_what_the_report_is_about(bench, model, field, dataset):
    judge = ("--judge-url", model.url) if field == "judge_score" else ()
    found = bench("--dataset", dataset, "--score-field", field, *judge, *JSON)
    (summary,) = found["summary"].values()
    scores = [row["scores"][field] for row in found["rows"]]
    assert len(scores) == 2
    assert summary["mean_score"] == pytest.approx(sum(scores) / 2)
    assert summary["pass_rate"] == sum(score >= 0.7 for score in scores) / 2


def test_judge_cache_and_workers_together_and_the_same_command_again_asks_nobody(bench, model):
    command = ("--dataset", "mt-bench", "--judge-url", model.url, "--cache-dir", "results", "--max-workers", "8", *JSON)
    first = bench(*command, "--score-field", "judge_score")
    assert {row["scores"]["judge_score"] for row in first["rows"]} == {0.75}
    seen = model.seen
    again = bench(*command, "--score-field", "judge_score")
    checks = model.seen - seen
    assert again["rows"] == first["rows"]
    more = bench(*command, "--score-field", "judge_score", n="3")
    assert len(more["rows"]) == 3
    assert model.seen - seen - checks > checks  # the same checks, and the third conversation with its grade


def test_what_cannot_be_run_is_said_as_documented(bench, place):
    (place / "empty.jsonl").write_text("")
    for dataset, said in (
        ("nosuch", r"(?s)^Unknown dataset 'nosuch'.\nKnown: .*hotpotqa.*locomo.*winogrande"),
        (
            "hotpotqqa",
            r"(?s)^Unknown dataset 'hotpotqqa'. Did you mean hotpotqa\?\nKnown: hotpotqa, alpaca-eval, .*\n"
            r"`context-bench datasets` tells what each is; .{1,70}$",
        ),
        ("hotpotqa:x", "does not accept a :config suffix"),
        ("./empty.jsonl", "No examples loaded"),
    ):
        with pytest.raises(SystemExit, match=said) as ended:
            bench("--dataset", dataset)
        assert ended.value.code == 2
        assert max(map(len, str(ended.value).splitlines())) <= 120
