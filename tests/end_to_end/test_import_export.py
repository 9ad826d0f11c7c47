"""Out of a store and back in: a run as Inspect logs, Parquet, JSON lines; logs of Inspect and lm-eval as runs."""

import csv
import io
import json
import math
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
import zstandard
from pyarrow import parquet

from context_bench.__main__ import main
from context_bench.llm.background import run_sync
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer

VENDOR = Path(__file__).parents[2] / ".vendors" / "inspect" / "bin" / "python"
COUNT = 8
NASTY = "=cmd|' /C calc'!A0 \x1b[31m\u202e</script>\ud800 \x00"
EXAMPLES = [
    {
        "id": f"box/{i}",
        "context": f"Box {i} holds word{i}. " * 5,
        "question": f"What is in box {i}? {NASTY if i == 5 else ''}",
        "answer": [f"word{i}", f"the word {i}"] if i == 1 else f"word{i}",
        "shelf": i // 2,
    }
    for i in range(COUNT)
]


def said(i):
    """Two right, one half right, one wrong, and so on; nobody answers to box 6."""
    return [f"word{i}", f"it is word{i}", "no idea", NASTY][i % 4]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a store that holds the run `r`: two arms, two trials, one failing example."""
    folder = tmp_path_factory.mktemp("exported")
    before = Path.cwd()
    os.chdir(folder)
    Path("boxes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in EXAMPLES))
    rules = [{"when": {"text": r"in box 6\?"}, "status": 400, "text": "refused"}]
    rules += [{"when": {"text": rf"holds word{i}\b"}, "text": said(i)} for i in range(COUNT)]
    server = ModelServer(Scripted({"rules": [*rules, {"text": "no"}]}))
    run_sync(server.start())
    line = [
        "--dataset",
        "boxes.jsonl",
        "--controls",
        "full,none",
        "--upstream",
        server.url,
        "--model",
        "m",
        "--price",
        "m=1,2",
    ]
    code = main([*line, "--trials", "2", "--retries", "0", "--max-failures", "1", "--run", "r", "--quiet", *JSON])
    run_sync(server.stop())
    assert code == 0
    yield folder
    os.chdir(before)


JSON = ("--output", "json", "--out", "r.json")


def report(path="r.json"):
    return json.loads(Path(path).read_text())


def keyed(rows):
    return {(row["system"], row["example_id"], row["trial"]): row for row in rows}


def imported(*files, name):
    assert main(["import", *map(str, files), "--name", name, "--output", "json", "--out", f"{name}.out"]) == 0
    return report(f"{name}.out")


def same_but_for_scores(back, row):
    """What an import must give back of a row."""
    for name in ("input_tokens", "latency", "cluster", "errors", "dataset"):
        assert back.get(name) == row.get(name), name
    for name in ("input_tokens", "output_tokens", "cost"):
        assert back.get("usage", {}).get(name) == row.get("usage", {}).get(name), name


@pytest.fixture(scope="module")
def logs(place):
    assert main(["export", "r", "--format", "inspect", "--out", "logs"]) == 0
    return sorted(Path("logs").iterdir())


def test_an_unknown_form_is_named_with_every_known_one(place, capsys):
    assert main(["export", "r", "--format", "foo"]) == 2
    said = capsys.readouterr().err
    assert "Unknown report format 'foo'" in said
    known = set(said.partition("Known: ")[2].rstrip(".\n").split(", "))
    assert {"csv", "html", "json", "inspect", "jsonl", "parquet", "memory", "results"} <= known


def test_inspect_logs_come_back_as_the_same_run(place, logs):
    assert len(logs) == 2  # one per system
    back = imported(*logs, name="back")
    rows = keyed(back["rows"])
    assert rows.keys() == keyed(report()["rows"]).keys()
    for key, row in keyed(report()["rows"]).items():
        assert rows[key]["scores"] == {f"inspect.{name}": value for name, value in row["scores"].items()}
        same_but_for_scores(rows[key], row)
    assert {row["errors"]["system"].partition(":")[0] for row in rows.values() if row.get("errors")} == {"Refused"}
    assert back["manifest"]["margin"]["score_field"].startswith("inspect.")


def test_imported_answers_scored_again_get_what_the_run_gave_them(place, logs):
    imported(*logs, name="again")
    assert (
        main(
            [
                "rescore",
                "again",
                "--evaluator",
                "answer",
                "--score-field",
                "f1",
                "--max-failures",
                "1",
                *JSON[:3],
                "again.json",
            ]
        )
        == 0
    )
    rows = keyed(report("again.json")["rows"])
    for key, row in keyed(report()["rows"]).items():
        ours = {name: value for name, value in rows[key]["scores"].items() if not name.startswith("inspect.")}
        assert ours == row["scores"]
    assert {round(row["scores"]["f1"], 2) for row in rows.values() if row["scores"]} >= {0.0, 0.5, 1.0}
    # … and can be held against the run that they are from.
    assert main(["compare", "r", "again", "--metric", "f1", *JSON[:3], "compared.json"]) == 0
    assert {one["difference"] for one in report("compared.json")["comparisons"]} == {0.0}


def test_answers_from_anywhere_are_compared_with_a_run_of_ours(place):
    """Somebody else's answers do not say how they were asked; they are paired all the same, and the report says so."""
    answers = [
        {
            "dataset": "boxes.jsonl",
            "system": "theirs",
            "trial": trial,
            **{k: v for k, v in each.items() if k != "shelf"},
            "response": f"word{i}",
        }
        for trial in (0, 1)
        for i, each in enumerate(EXAMPLES)
    ]
    Path("theirs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in answers))
    assert main(["import", "theirs.jsonl", "--name", "foreign", "--system", "full", *JSON[:3], "f.out"]) == 0
    assert (
        main(["rescore", "foreign", "--evaluator", "answer", "--score-field", "exact_match", *JSON[:3], "foreign.out"])
        == 0
    )
    assert main(["compare", "r", "foreign", "--metric", "exact_match", *JSON[:3], "compared.json"]) == 0
    compared = report("compared.json")
    (one,) = compared["comparisons"]
    assert one["n"] == COUNT - 1  # box 6 has no answer in our run
    assert one["difference"] == pytest.approx(5 / 7)  # we had 0 and 4 right
    assert any("does not say how its requests were shaped" in note for note in compared["notes"])


def test_json_lines_come_back_as_the_same_run(place):
    assert main(["export", "r", "--format", "jsonl", "--out", "r.jsonl"]) == 0
    lines = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    originals = keyed(report()["rows"])
    assert len(lines) == len(originals) == 2 * 2 * COUNT
    for line in lines:
        row = originals[line["system"], line["example_id"], line["trial"]]
        assert row.items() <= line.items()
        number = int(line["example_id"].removeprefix("box/"))
        assert line["example"]["shelf"] == number // 2
        if line["system"] == "full" and number % 4 != 3 and number != 6:
            assert line["response"] == said(number)
    rows = keyed(imported("r.jsonl", name="lines")["rows"])
    for key, row in originals.items():
        assert rows[key]["scores"] == {f"jsonl.{name}": value for name, value in row["scores"].items()}
        same_but_for_scores(rows[key], row)


def test_parquet_has_every_row_with_scores_as_columns(place):
    assert main(["export", "r", "--format", "parquet", "--out", "r.parquet"]) == 0
    table = parquet.read_table("r.parquet")
    originals = keyed(report()["rows"])
    found = {(row["system"], row["example_id"], row["trial"]): row for row in table.to_pylist()}
    assert found.keys() == originals.keys()
    for key, row in originals.items():
        got = found[key]
        scores = {
            name.removeprefix("score."): value
            for name, value in got.items()
            if name.startswith("score.") and value is not None
        }
        assert scores == row["scores"]
        assert dict(got["errors"]) == row.get("errors", {})
        assert got["failed"] == ("system" in row.get("errors", {}))
        assert (got["latency"], got["input_tokens"], got["output_tokens"]) == tuple(
            row.get(name) for name in ("latency", "input_tokens", "output_tokens")
        )
        assert (got["usage"] or {}).get("cost") == row.get("usage", {}).get("cost")
        assert got["answers"] == (
            ["word1", "the word 1"] if key[1] == "box/1" else [f"word{key[1].removeprefix('box/')}"]
        )
    assert main(["export", "r", "--format", "parquet", "--system", "none", "--out", "none.parquet"]) == 0
    assert set(parquet.read_table("none.parquet")["system"].to_pylist()) == {"none"}


def test_csv_stays_as_it_was(place, capsys):
    capsys.readouterr()
    assert main(["export", "r", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 2 * 2 * COUNT
    assert {"system", "f1", "latency"} <= rows[0].keys()


def test_several_systems_do_not_fit_one_inspect_log(place, capsys):
    assert main(["export", "r", "--format", "inspect"]) == 2
    assert "--out DIR, or --system NAME" in capsys.readouterr().err
    assert main(["export", "r", "--format", "inspect", "--out", "one.json"]) == 2
    capsys.readouterr()
    assert main(["export", "r", "--format", "inspect", "--system", "full"]) == 0
    assert json.loads(capsys.readouterr().out)["eval"]["model"] == "full/m"
    assert main(["export", "r", "--format", "inspect", "--system", "gone"]) == 2
    assert "Unknown system 'gone'" in capsys.readouterr().err
    assert main(["export", "r", "--format", "csv", "--system", "full"]) == 2
    assert main(["export", "r", "--format", "xml"]) == 2
    capsys.readouterr()
    assert main(["export", "r", "--format", "inspect", "--out", "boxes.jsonl"]) == 2  # a file where a folder should be
    assert "cannot write boxes.jsonl" in capsys.readouterr().err


def test_an_edited_log_is_imported_anew_under_the_same_name(place, logs):
    document = json.loads(logs[0].read_text())
    imported(logs[0], name="edited")
    for sample in document["samples"]:
        sample["output"]["completion"] = "word0"
    Path("edited.json").write_text(json.dumps(document))
    rows = imported("edited.json", name="edited")["rows"]
    assert main(["rescore", "edited", "--evaluator", "answer", "--max-failures", "1", *JSON[:3], "rescored.json"]) == 0
    right = {row["example_id"] for row in report("rescored.json")["rows"] if row["scores"].get("exact_match")}
    assert right == {"box/0"}
    assert len(rows) == 2 * COUNT


# --- with Inspect itself
# ------------------------------------------------------------------------

READ = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries, write_eval_log
found, listed = [], len(list_eval_logs("logs"))
for path in sys.argv[1:]:
    log, header = read_eval_log(path), read_eval_log(path, header_only=True)
    found.append({
        "task": log.eval.task, "model": log.eval.model, "status": log.status, "epochs": log.eval.config.epochs,
        "samples": [
            {"id": s.id, "epoch": s.epoch, "target": s.target, "scores": {n: v.value for n, v in (s.scores or {}).items()},
             "error": s.error.message if s.error else None, "completion": s.output.completion,
             "messages": [[m.role, m.text] for m in s.messages], "tokens": {n: u.input_tokens for n, u in s.model_usage.items()}}
            for s in log.samples
        ],
        "means": {s.name: s.metrics["mean"].value for s in header.results.scores},
        "summaries": len(read_eval_log_sample_summaries(path)),
    })
    write_eval_log(log, path.removesuffix(".json") + ".eval")
print(json.dumps({"logs": found, "listed": listed}))
"""  # noqa: E501

MAKE = """
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput
from inspect_ai.scorer import includes, match
from inspect_ai.solver import solver

@solver
def told():
    async def solve(state, generate):
        number = state.user_prompt.text.split("box ")[1][0]
        if number == "2":
            raise RuntimeError("the model is gone")
        state.output = ModelOutput.from_content("mockllm/model", f"word{number}" if number != "3" else "no idea")
        state.messages.append(state.output.message)
        return state
    return solve

samples = [
    Sample(id=f"a/{i}", input=[ChatMessageSystem(content="Be brief."), ChatMessageUser(content=f"What is in box {i}?")],
           target=[f"word{i}", f"Word {i}"], metadata={"context": f"Box {i} holds word{i}. " * 20})
    for i in range(4)
]
scorers = [match(location="exact"), includes()]
task = Task(dataset=MemoryDataset(samples, name="boxes"), solver=told(), scorer=scorers, name="boxes", epochs=2)
for form in ("eval", "json"):
    eval(task, model="mockllm/model", log_dir="theirs", log_format=form, display="none", fail_on_error=False)
"""


@pytest.fixture(scope="module")
def inspected(place, logs):
    """What Inspect says of our logs; its own copies of them are in `logs` too, and a run of its own is in `theirs`."""
    done = subprocess.run(
        [str(VENDOR), "-c", READ + MAKE, *map(str, logs)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[0])


@pytest.mark.vendor("inspect")
def test_inspects_own_reader_opens_our_logs(place, inspected):
    found = inspected
    assert found["listed"] == 2
    originals = keyed(report()["rows"])
    for log in found["logs"]:
        system = log["model"].partition("/")[0]
        assert (log["task"], log["status"], log["epochs"], log["summaries"]) == ("boxes.jsonl", "success", 2, 2 * COUNT)
        assert {(system, s["id"], s["epoch"] - 1) for s in log["samples"]} == {
            key for key in originals if key[0] == system
        }
        for sample in log["samples"]:
            row = originals[system, sample["id"], sample["epoch"] - 1]
            assert sample["scores"] == row["scores"]
            assert sample["error"] == row.get("errors", {}).get("system")
            assert sample["tokens"] == ({"m": row["usage"]["input_tokens"]} if "input_tokens" in row["usage"] else {})
            roles = [role for role, _ in sample["messages"]]
            assert roles == (["user"] if sample["error"] else ["user", "assistant"])
            if not sample["error"] and sample["id"] != "box/5":
                number = int(sample["id"].removeprefix("box/"))
                assert (f"holds word{number}." in sample["messages"][0][1]) == (system == "full")
                assert sample["target"] == (["word1", "the word 1"] if number == 1 else f"word{number}")
        scores = [row["scores"] for key, row in originals.items() if key[0] == system and row["scores"]]
        for name, mean in log["means"].items():
            assert mean == pytest.approx(math.fsum(each[name] for each in scores) / len(scores))
    # … and what Inspect makes of them, in its own archive, is still the same run.
    again = keyed(imported(*sorted(Path("logs").glob("*.eval")), name="through-inspect")["rows"])
    for key, row in originals.items():
        assert again[key]["scores"] == {f"inspect.{name}": value for name, value in row["scores"].items()}
        same_but_for_scores(again[key], row)


@pytest.mark.vendor("inspect")
def test_logs_that_inspect_wrote_become_runs(place, inspected):
    archive, document = sorted(Path("theirs").iterdir(), key=lambda path: path.suffix)
    with zipfile.ZipFile(archive) as opened:  # the compression that the standard library does not know is met
        assert 93 in {entry.compress_type for entry in opened.infolist()}
    runs = [imported(archive, name="archive"), imported(document, name="document")]
    for run in runs:
        rows = keyed(run["rows"])
        assert rows.keys() == {("mockllm/model", f"a/{i}", trial) for i in range(4) for trial in (0, 1)}
        for (_, example, _), row in rows.items():
            if example == "a/2":
                assert row["errors"] == {"system": "RuntimeError: the model is gone"}
                assert row["scores"] == {}
            else:
                right = float(example != "a/3")
                assert row["scores"] == {"inspect.match": right, "inspect.includes": right}
                assert row["latency"] > 0
                assert not {"input_tokens", "output_tokens"} & row.keys()  # it called no model, so nothing is known
    assert (
        main(
            [
                "rescore",
                "archive",
                "--evaluator",
                "answer",
                "--score-field",
                "f1",
                "--max-failures",
                "1",
                *JSON[:3],
                "theirs.json",
            ]
        )
        == 0
    )
    rescored = keyed(report("theirs.json")["rows"])
    assert {key[1]: row["scores"]["exact_match"] for key, row in rescored.items() if row["scores"]} == {
        "a/0": 1.0,
        "a/1": 1.0,
        "a/3": 0.0,
    }


# --- lm-eval
# ------------------------------------------------------------------------


def lm_eval_samples(folder, task, lines, model=None):
    folder.mkdir(parents=True, exist_ok=True)
    date = "2026-11-02T10-20-30.123456"
    path = folder / f"samples_{task}_{date}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if model:
        (folder / f"results_{date}.json").write_text(
            json.dumps({"results": {}, "configs": {}, "model_name": model}, indent=2)
        )
    return path


def generated(number, filter_key, reply, **metrics):
    prompt = f"Question: How many are {number} and 1?\nAnswer:"
    return {
        "doc_id": number,
        "doc": {"question": f"How many are {number} and 1?", "answer": f"We add. #### {number + 1}"},
        "target": str(number + 1),
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {"until": ["Question:"], "do_sample": False}}},
        "resps": [[reply]],
        "filtered_resps": [re.sub(r"\D", "", reply) or "[invalid]"],
        "filter": filter_key,
        "metrics": list(metrics),
        "doc_hash": "d",
        "prompt_hash": "p",
        "target_hash": "t",
        **metrics,
    }


def test_lm_eval_samples_become_a_run_that_can_be_scored_and_compared(place):
    lines = [generated(i, "strict-match", str(i + 1), exact_match=float(i != 2)) for i in range(6)]
    lines += [generated(i, "flexible-extract", str(i + 1), exact_match=1.0) for i in range(6)]
    path = lm_eval_samples(Path("lm"), "sums", lines, "org/small")
    run = imported(path, name="sums")
    rows = keyed(run["rows"])
    assert rows.keys() == {("org/small", i, 0) for i in range(6)}
    assert rows["org/small", 2, 0]["scores"] == {
        "lm_eval.exact_match.strict-match": 0.0,
        "lm_eval.exact_match.flexible-extract": 1.0,
    }
    assert rows["org/small", 2, 0]["dataset"] == "sums"
    assert (
        main(["rescore", "sums", "--evaluator", "answer", "--score-field", "exact_match", *JSON[:3], "sums.json"]) == 0
    )
    assert {row["scores"]["exact_match"] for row in report("sums.json")["rows"]} == {1.0}

    worse = [generated(i, "none", "no idea" if i % 2 else str(i + 1), exact_match=float(i % 2 == 0)) for i in range(6)]
    imported(lm_eval_samples(Path("worse"), "sums", worse, "org/smaller"), name="worse")
    assert (
        main(["rescore", "worse", "--evaluator", "answer", "--score-field", "exact_match", *JSON[:3], "worse.json"])
        == 0
    )
    assert main(["compare", "sums", "worse", "--metric", "exact_match", *JSON[:3], "differ.json"]) == 0
    (one,) = report("differ.json")["comparisons"]
    assert (one["difference"], one["n"]) == (-0.5, 6)


def test_two_systems_of_one_task_are_compared_in_one_run(place):
    good = lm_eval_samples(
        Path("x__one"), "sums", [generated(i, "none", str(i + 1), exact_match=1.0) for i in range(8)]
    )
    bad = lm_eval_samples(
        Path("x__two"), "sums", [generated(i, "none", "3", exact_match=float(i == 2)) for i in range(8)]
    )
    run = imported(good, bad, name="both")
    assert {row["system"] for row in run["rows"]} == {"x/one", "x/two"}
    (one,) = [
        each for each in run["comparisons"] if each["metric"] == "lm_eval.exact_match" and not each.get("dataset")
    ]
    assert one["difference"] == pytest.approx(-7 / 8)


# --- what cannot be imported
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("empty.jsonl", b"", "no line of it is JSON"),
        ("other.jsonl", b'{"a": 1}\n', "the first keys are 'a'"),
        ("broken.eval", b"PK\x03\x04 nothing", "broken ZIP archive"),
        ("list.json", b"[1, 2]", "a JSON int"),
        (
            "noanswers.json",
            b'{"version": 2, "status": "error", "eval": {"task": "t", "model": "m"}, "plan": {}}',
            "no answers in",
        ),
    ],
)
def test_other_files_are_refused_with_what_was_seen(place, capsys, name, data, told):
    Path(name).write_bytes(data)
    assert main(["import", name]) == 2
    assert told in capsys.readouterr().err


def test_missing_files_folders_and_formats_are_named(place, capsys):
    assert main(["import", "nowhere.eval"]) == 2
    assert "cannot read nowhere.eval" in capsys.readouterr().err
    Path("folder").mkdir()
    assert main(["import", "folder"]) == 2
    assert "cannot read folder" in capsys.readouterr().err
    assert main(["import", "boxes.jsonl", "--format", "csv"]) == 2
    assert "inspect, lm-eval, jsonl" in capsys.readouterr().err


def archive(path, entries, compress=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compress) as made:
        for name, value in entries.items():
            made.writestr(name, value if isinstance(value, bytes) else json.dumps(value))
    return path


def test_a_zip_that_is_no_log_and_one_that_is_damaged_are_refused(place, capsys):
    assert main(["import", str(archive("a.zip", {"x.txt": b"hello"}))]) == 2
    assert "no Inspect log" in capsys.readouterr().err
    header = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}}
    path = archive("bad.eval", {"header.json": header, "samples/1_epoch_1.json": b"{not json"})
    assert main(["import", path]) == 2
    assert "samples/1_epoch_1.json cannot be read" in capsys.readouterr().err


def test_answers_to_different_questions_cannot_be_one_run(place, capsys):
    for name, question in (("p.jsonl", "What?"), ("q.jsonl", "Why?")):
        line = {"id": 1, "dataset": "d", "system": name, "question": question, "answer": "x", "response": "x"}
        Path(name).write_text(json.dumps(line) + "\n")
    assert main(["import", "p.jsonl", "q.jsonl", "--name", "mixed"]) == 2
    assert "import the files one by one" in capsys.readouterr().err
    twice = json.dumps({"id": 1, "system": "s", "question": "What?", "response": "x"}) + "\n"
    Path("twice.jsonl").write_text(twice * 2)
    assert main(["import", "twice.jsonl", "--name", "twice"]) == 2
    assert "two answers to example 1" in capsys.readouterr().err


def test_a_log_full_of_holes_is_refused_before_it_becomes_a_run(place, capsys):
    Path("holes.jsonl").write_text(json.dumps({"id": 1, "trial": 10**15, "response": "x"}) + "\n")
    assert main(["import", "holes.jsonl"]) == 2
    assert "only 1 answers" in capsys.readouterr().err


def test_the_compression_of_inspects_archives_is_checked(place, capsys):
    """A Zstandard entry whose bytes were changed is refused, not guessed at."""
    header = json.dumps({"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}}).encode()
    packed = zstandard.compress(header)
    with zipfile.ZipFile("z.eval", "w", zipfile.ZIP_STORED) as made:
        made.writestr("header.json", packed)
    data = bytearray(Path("z.eval").read_bytes())
    with zipfile.ZipFile("z.eval") as made:
        central = made.start_dir
    for offset in (8, central + 10):  # say that it is compressed by method 93
        data[offset : offset + 2] = (93).to_bytes(2, "little")
    Path("z.eval").write_bytes(data)
    assert main(["import", "z.eval"]) == 2
    assert "it is damaged" in capsys.readouterr().err
