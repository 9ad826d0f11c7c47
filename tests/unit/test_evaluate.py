"""`evaluate` and what it returns, as documented, and where the original lost work, hung or lied."""

import asyncio
import itertools
import json
import math
import subprocess
import sys

import pytest

from context_bench import EvalResult, EvalRow, evaluate, evaluate_memory, register_dataset, register_metric
from context_bench.core.errors import BadInput, SameName
from context_bench.evaluators import AnswerQuality
from context_bench.metrics import CompressionRatio, CostOfPass, Latency, MeanScore, PassRate
from context_bench.registry import get_metric, load_dataset, registry
from context_bench.reporters import to_html, to_json, to_markdown

EXAMPLES = [
    {"id": i, "context": f"House {i} is blue. " * 20, "question": f"Colour of house {i}?", "answer": "blue"}
    for i in range(6)
]


class Halve:
    """Returns half of the context and an answer."""

    def __init__(self, name="halve", answer="blue"):
        self.name, self.answer, self.seen = name, answer, []

    def process(self, example):
        self.seen.append(example.get("id"))
        return {**example, "context": example["context"][: len(example["context"]) // 2], "response": self.answer}


class FailsOn:
    name = "fails"

    def __init__(self, *ids):
        self.ids = ids

    def process(self, example):
        if example["id"] in self.ids:
            raise ValueError("no such house")
        return {**example, "response": "blue"}


def run(systems, examples=EXAMPLES, **options):
    return evaluate(
        systems, examples, [AnswerQuality()], [MeanScore("f1"), CompressionRatio()], progress=False, **options
    )


def test_the_documented_shape():
    result = run([Halve()])
    assert isinstance(result, EvalResult)
    assert [row.example_id for row in result.rows] == list(range(6))
    assert result.summary["halve"]["mean_score"] == 1.0
    assert 0.4 < result.summary["halve"]["compression_ratio"] < 0.6
    assert result.config == {
        "systems": ["halve"],
        "evaluators": ["answer_quality"],
        "metrics": ["mean_score", "compression_ratio"],
        "num_examples": 6,
        "max_workers": 1,
    }
    assert set(result.timing) == {"halve"}


def test_the_configuration_of_a_run_that_goes_on_is_that_of_all_its_examples(tmp_path):
    run([Halve()], EXAMPLES[:2], store=tmp_path / "s.db", run="r")
    config = run([Halve()], store=tmp_path / "s.db", run="r", max_workers=2).config
    assert (config["systems"], config["num_examples"], config["max_workers"]) == (["halve"], 6, 2)


def test_a_failing_example_is_a_row_and_nothing_is_lost():
    result = run([FailsOn(3)])
    by_id = {row.example_id: row for row in result.rows}
    assert by_id[3].errors == {"system": "ValueError: no such house"}
    assert by_id[3].scores == {}
    assert result.summary["fails"]["mean_score"] == 1.0
    assert result.failures["fails"]["system"] == {"ValueError": 1}
    estimate = result.estimates["fails"]["f1"]
    assert (estimate.n, estimate.failures) == (5, 1)
    assert estimate.worst == pytest.approx(5 / 6)
    assert estimate.best == pytest.approx(1.0)


class Ends:
    """Wants to end the program: as a system, or as an evaluator, always but for the first example."""

    def __init__(self, error, name="ends"):
        self.error, self.name = error, name

    def process(self, example):
        return {**example, "response": str(self.score(example))}

    def score(self, example, processed=None):
        if example["id"]:
            raise self.error
        return {"fine": 1.0}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_plug_in_that_ends_the_program_fails_its_own_rows_and_nothing_else(error):
    for _ in range(2):
        result = evaluate([Ends(error), Halve()], EXAMPLES[:3], [Ends(error, "judge"), AnswerQuality()], progress=False)
        systems = [row.errors for row in result.rows if row.system == "ends"]
        judged = [row.errors for row in result.rows if row.system == "halve"]
        assert [bool(errors) for errors in systems] == [bool(errors) for errors in judged] == [False, True, True]
        assert all(f"RuntimeError: {type(error).__name__}" in str(errors) for errors in systems[1:] + judged[1:])


def test_an_endless_dataset_is_read_only_as_far_as_needed():
    endless = ({"id": i, "context": "x", "question": "q", "answer": "blue"} for i in itertools.count())
    assert len(run([Halve()], endless, max_examples=3).rows) == 3


def test_equal_and_missing_ids_are_rows_of_their_own():
    same = [{"id": key, "context": f"text {n}", "question": "q", "answer": "blue"} for n, key in enumerate([0, 0, "0"])]
    system = Halve()
    result = run([system], [*same, {"context": "no id", "question": "q", "answer": "blue"}])
    assert len(result.rows) == 4
    assert system.seen == [0, 0, "0", None]


def test_it_works_inside_a_running_event_loop():
    async def notebook():
        return run([Halve()], EXAMPLES[:2])

    assert len(asyncio.run(notebook()).rows) == 2


def test_async_systems_run_side_by_side():
    class Slow:
        name = "slow"
        running = most = 0

        async def aprocess(self, example):
            Slow.running += 1
            Slow.most = max(Slow.most, Slow.running)
            await asyncio.sleep(0.01)
            Slow.running -= 1
            return {**example, "response": "blue"}

    run([Slow()], max_workers=4)
    assert Slow.most > 1


def test_two_systems_are_compared_with_the_first():
    result = run([Halve("one"), Halve("two", "red")])
    (comparison,) = result.comparisons
    assert (comparison.system, comparison.baseline) == ("two", "one")
    assert comparison.difference == pytest.approx(-1.0)


def test_equal_names_and_wrong_plugins_are_refused():
    with pytest.raises(SameName, match="'halve'"):
        run([Halve(), Halve()])
    with pytest.raises(BadInput, match="process"):
        run([object()])
    with pytest.raises(BadInput, match="score"):
        evaluate([Halve()], EXAMPLES, [object()], progress=False)


def test_a_cache_is_keyed_by_content(tmp_path):
    first, again = Halve(), Halve()
    run([first], cache_dir=tmp_path)
    run([again], cache_dir=tmp_path)
    assert (len(first.seen), again.seen) == (6, [])
    edited = [{**EXAMPLES[0], "answer": "green"}, *EXAMPLES[1:]]
    third = Halve()
    result = run([third], edited, cache_dir=tmp_path)
    assert third.seen == [0]
    assert result.rows[0].scores["f1"] == 0.0


def test_rows_from_a_cache_are_announced_on_standard_error(tmp_path, capsys):
    for progress, said in ((True, ""), (True, "6 rows were already in the store"), (False, "")):
        evaluate([Halve()], EXAMPLES, [AnswerQuality()], progress=progress, cache_dir=tmp_path)
        out, err = capsys.readouterr()
        assert out == ""
        assert said in err
        assert ("already in the store" in err) == bool(said)


def test_filter_computes_the_summary_anew():
    tagged = [{**example, "dataset": "even" if example["id"] % 2 == 0 else "odd"} for example in EXAMPLES]
    result = run([FailsOn(0, 2), Halve(answer="red")], tagged)
    odd = result.filter(dataset="odd", system="halve")
    assert {row.dataset for row in odd.rows} == {"odd"}
    assert odd.summary == {"halve": {**odd.summary["halve"], "mean_score": 0.0}}
    with pytest.raises(AttributeError, match="colour"):
        result.filter(colour="red")


def test_reports_of_every_kind(tmp_path):
    result = run([Halve("a|b"), FailsOn(1)])
    assert json.loads(to_json(result), parse_constant=pytest.fail)["rows"]
    assert json.loads(result.to_json())["summary"]["fails"]["mean_score"] == 1.0
    assert "Evaluation Results" in to_markdown(result)
    assert "rowData" in to_html(result)
    assert "<table" in result._repr_html_()
    frame = result.to_dataframe()
    assert list(frame.columns[:3]) == ["system", "example_id", "dataset"]
    assert len(frame) == 12


def test_infinity_never_reaches_json():
    result = evaluate(
        [Halve(answer="red")],
        EXAMPLES,
        [AnswerQuality()],
        [CostOfPass(0.7, "f1"), PassRate(0.7, "f1"), Latency()],
        progress=False,
    )
    read = json.loads(result.to_json(), parse_constant=pytest.fail)
    assert "cost_of_pass" not in read["summary"]["halve"]
    assert read["summary"]["halve"]["pass_rate"] == 0.0


def test_numbers_and_fields_of_other_kinds_are_refused_or_taken_as_meant():
    for function, systems, data in ((evaluate, [Halve()], EXAMPLES), (evaluate_memory, [], [])):
        with pytest.raises(BadInput, match=r"max_examples is -1; expected the number of examples wanted"):
            function(systems, data, [AnswerQuality()], max_examples=-1, progress=False)
    counted = [run([Halve()], text_fields=given).rows[0].input_tokens for given in ("question", ("question",))]
    assert counted[0] == counted[1] > 0


def test_numbers_that_somebody_gave_stay_whatever_the_rows_say():
    given = {"mean_score": 0.5, "pass_rate": 0.0, "latency_mean": 0.0, "mean_input_tokens": 3.0}
    row = EvalRow("a", 1, {}, None, None, {}, None)
    made = EvalResult(rows=[row], summary={"a": {**given, "cost_of_pass": math.inf}})
    assert json.loads(made.to_json())["summary"] == {"a": given}
    assert "0.5000" in to_markdown(made)
    assert EvalResult.from_json(made.to_json()).summary == {"a": given}


def test_the_result_types_take_the_documented_arguments():
    row = EvalRow("s", 1, {"f1": 0.5}, 10, 5, {"k": 1}, 0.1, "d")
    result = EvalResult([row], {"s": {"mean_score": 0.5}}, {"s": 0.1}, {"n": 1})
    assert result.filter(system="s").summary == {"s": {"mean_score": 0.5}}
    assert result.filter(system="none").rows == []


def test_the_registry_is_connected():
    register_dataset("houses", lambda n=None: EXAMPLES[:n])
    assert [example["id"] for example in load_dataset("houses", n=2)] == [0, 1]
    register_metric("mine", MeanScore)
    assert get_metric("mine") is MeanScore
    assert "houses" in registry.list("dataset")
    with pytest.raises(KeyError, match="No metric registered with name 'other'"):
        get_metric("other")
    with pytest.raises(BadInput, match="built-in"):
        register_dataset("gsm8k", list)


HEAVY = [
    "asyncio",
    "numpy",
    "scipy",
    "sqlalchemy",
    "pyarrow",
    "altair",
    "aiohttp",
    "jinja2",
    "pydantic",
    "huggingface_hub",
    "rich.console",
]


def test_importing_loads_nothing_heavy():
    code = "import sys, context_bench; print([name for name in sys.argv[1:] if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_is_quick_because_it_loads_little():
    code = "import sys; from context_bench.__main__ import main; main(['--help'])"
    code += "; print([name for name in sys.argv[1:] if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "--proxy" in done.stdout


def test_nothing_is_left_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run([Halve()])
    assert list(tmp_path.iterdir()) == []


def test_rows_say_what_kind_of_question_it_was_and_what_the_system_says_of_its_answer():
    class Remembers:
        name = "remembers"

        def process(self, example):
            return {**example, "response": "x", "facts": {"hits": 3, "unknown": None}}

    example = {"id": 1, "context": "c", "answer": "x", "qa_type": "temporal"}
    [row] = evaluate([Remembers()], [example], [AnswerQuality()], progress=False).rows
    assert row.metadata == {"qa_type": "temporal", "hits": 3, "forwarded_source": "context"}
