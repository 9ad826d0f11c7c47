"""Readers of other harnesses' answers: what each format says, in its old and new forms, and that no value in it breaks
them.
"""

import json
import zipfile

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.records import Usage
from context_bench.transcripts.harness_results import read_answers


def written(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def answers(path, **options):
    log = read_answers(path, **options)
    return list(log.answers), log


# --- Inspect
# ------------------------------------------------------------------------


def inspect_log(*samples, **more):
    header = {
        "task": "boxes",
        "model": "org/m",
        "run_id": "r",
        "created": "2026-11-02T10:00:00+00:00",
        "dataset": {},
        "config": {},
    }
    return {"version": 2, "status": "success", "eval": {**header, **more}, "plan": {}, "samples": list(samples)}


def sample(**more):
    output = {
        "model": "m",
        "choices": [{"message": {"role": "assistant", "content": "word"}, "stop_reason": "stop"}],
        "completion": "word",
    }
    return {"id": 1, "epoch": 1, "input": "What?", "target": "word", "output": output, **more}


def one(tmp_path, *samples, **more):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(inspect_log(*samples, **more), indent=2))  # as Inspect writes it: over many lines
    return answers(path)


def test_a_sample_says_what_was_asked_answered_scored_and_used(tmp_path):
    usage = {
        "input_tokens": 10,
        "output_tokens": 4,
        "input_tokens_cache_read": 90,
        "reasoning_tokens": 3,
        "total_cost": 0.5,
    }
    (answer,), log = one(
        tmp_path,
        sample(
            input=[
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "Box 1 holds word."}, {"type": "image", "image": "x"}],
                },
                {"role": "user", "content": "What is in box 1?"},
            ],
            target=["word", "Word"],
            epoch=3,
            metadata={"shelf": 2},
            model_usage={"org/m": usage, "org/judge": {"input_tokens": 999, "output_tokens": 9}},
            working_time=1.5,
            total_time=9.0,
            started_at="2026-11-02T10:00:00+00:00",
            scores={"match": {"value": "C", "answer": "word"}},
        ),
    )
    assert answer.example == {
        "id": 1, "dataset": "boxes", "question": "What is in box 1?", "context": "Be brief.\n\nBox 1 holds "
            "word.", "answer": "word",
        "answers": ["word", "Word"], "shelf": 2,
    }  # fmt: skip
    assert (answer.system, answer.trial, answer.output, answer.error) == ("org/m", 2, {"response": "word"}, None)
    assert answer.scores == {"match": 1.0}
    assert answer.usage == Usage(input_tokens=100, output_tokens=4, cache_read=90, reasoning_tokens=3)
    assert (answer.cost, answer.latency, answer.started, answer.finish_reason) == (0.5, 1.5, 1793613600.0, "stop")
    assert (log.source, log.facts["task"], log.facts["status"]) == ("inspect", "boxes", "success")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("C", {"s": 1.0}),
        ("I", {"s": 0.0}),
        ("P", {"s": 0.5}),
        ("N", {"s": 0.0}),
        ("Yes", {"s": 1.0}),
        ("0.25", {"s": 0.25}),
        (True, {"s": 1.0}),
        (0.75, {"s": 0.75}),
        ({"f1": 0.5, "em": "I"}, {"s.f1": 0.5, "s.em": 0.0}),
        ("excellent", {}),
        (None, {}),
        ([1, 2], {}),
        (float("nan"), {}),
    ],
)
def test_values_of_scorers_become_numbers_or_nothing(tmp_path, value, found):
    (answer,), log = one(tmp_path, sample(scores={"s": {"value": value}}))
    assert answer.scores == found
    assert log.skipped == ({} if found else {"a score that is no number": 1})


def test_choices_come_with_their_letter(tmp_path):
    (answer,), _ = one(tmp_path, sample(choices=["red", "green"], target="B"))
    assert answer.example["choices"] == ["red", "green"]
    assert answer.example["correct_letter"] == answer.example["answer"] == "B"


def test_texts_that_are_kept_once_are_put_back(tmp_path):
    (answer,), _ = one(
        tmp_path,
        sample(
            input="attachment://aa",
            metadata={"deep": [{"text": "attachment://bb"}], "gone": "attachment://cc"},
            attachments={"aa": "What?", "bb": "long"},
        ),
    )
    assert answer.example["question"] == "What?"
    assert answer.example["deep"] == [{"text": "long"}]
    assert answer.example["gone"] == "attachment://cc"


def test_an_error_is_why_there_is_no_answer(tmp_path):
    found, _ = one(
        tmp_path,
        sample(error={"message": "RateLimitError('slow')", "traceback": "…"}, output={}),
        sample(id=2, error=None),
    )
    assert [answer.error for answer in found] == ["RateLimitError('slow')", None]


def test_an_answer_without_completion_is_read_from_its_message(tmp_path):
    calls = [{"id": "c", "function": "look", "arguments": {"box": 1}, "type": "function"}]
    content = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "word"}]
    (answer,), _ = one(tmp_path, sample(output={"choices": [{"message": {"content": content, "tool_calls": calls}}]}))
    assert answer.output == {"response": "word", "tool_calls": [{"name": "look", "arguments": {"box": 1}}]}


def archive(path, header, entries, name="header.json"):
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(name, json.dumps(header))
        for entry, value in entries:
            made.writestr(entry, json.dumps(value))
    return path


def test_an_archive_is_read_by_epoch_and_id_and_the_last_entry_of_a_name_counts(tmp_path):
    names = ["10_epoch_1", "9_epoch_1", "a/b_epoch_1", "9_epoch_2"]
    entries = [
        (f"samples/{name}.json", sample(id=name.rpartition("_epoch_")[0], epoch=int(name[-1]))) for name in names
    ]
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = archive(
            tmp_path / "x.eval",
            inspect_log(),
            [*entries, ("samples/9_epoch_2.json", sample(id="9", epoch=2, target="last"))],
        )
    found, _ = answers(path)
    assert [(answer.example["id"], answer.trial) for answer in found] == [("9", 0), ("10", 0), ("a/b", 0), ("9", 1)]
    assert found[-1].example["answer"] == "last"


def test_an_archive_of_a_crashed_run_is_read_as_far_as_it_goes(tmp_path):
    start = {"version": 2, "eval": inspect_log()["eval"], "plan": {}}
    found, log = answers(
        archive(tmp_path / "x.eval", start, [("samples/1_epoch_1.json", sample())], "_journal/start.json")
    )
    assert len(found) == 1
    assert log.facts["status"] == "unknown"


def test_a_large_sample_in_pieces_is_put_together(tmp_path):
    shell = sample(input="attachment://1")
    folder = "samples/1_epoch_1/"
    pieces = [
        (folder + "sample.json", shell),
        (folder + "metadata.json", {"shelf": "attachment://0"}),
        (folder + "attachments/0.json", ["zero"]),
        (folder + "attachments/1.json", ["What is it?"]),
        (folder + "events/0.json", [{"huge": True}]),
    ]
    (answer,), _ = answers(archive(tmp_path / "x.eval", inspect_log(), pieces))
    assert (answer.example["question"], answer.example["shelf"]) == ("What is it?", "zero")


# --- lm-eval
# ------------------------------------------------------------------------


def chosen(likelihoods, **more):
    """A sample of a task with options, as the harness writes it: likelihoods are texts in lists."""
    options = [" Paris", " Rome", " Oslo"]
    return {
        "doc_id": 4,
        "doc": {"question": "Capital of France?", "choices": {"text": options, "label": ["A", "B", "C"]}},
        "target": "0",
        "arguments": {
            f"gen_args_{i}": {"arg_0": "Q: Capital of France?\nA:", "arg_1": option} for i, option in enumerate(options)
        },
        "resps": [[[str(value), "False"]] for value in likelihoods],
        "filtered_resps": [[str(value), "False"] for value in likelihoods],
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
        "acc": 1.0,
        "acc_norm": 0.0,
        **more,
    }


def test_the_likeliest_option_is_the_answer(tmp_path):
    (answer,), _ = answers(
        written(tmp_path / "samples_capitals_2026-11-02T10-00-00.000001.jsonl", chosen([-1.5, -2.5, -9]))
    )
    assert answer.output == {"response": "Paris", "log_likelihoods": [-1.5, -2.5, -9.0]}
    assert answer.example["choices"] == ["Paris", "Rome", "Oslo"]
    assert (answer.example["answer"], answer.example["correct_letter"], answer.example["id"]) == ("Paris", "A", 4)
    assert answer.example["dataset"] == "capitals"
    assert answer.scores == {"acc": 1.0, "acc_norm": 0.0}
    (wrong,), _ = answers(written(tmp_path / "x.jsonl", chosen([-3, -2.5, -9])))
    assert wrong.output["response"] == "Rome"


def test_the_old_form_with_lists_is_read_alike(tmp_path):
    new = chosen([-1.5, -2.5, -9])
    old = {
        **new,
        "arguments": [list(each.values()) for each in new["arguments"].values()],
        "resps": [[[-1.5, False]], [[-2.5, False]], [[-9.0, False]]],
        "filtered_resps": [[-1.5, False], [-2.5, False], [-9.0, False]],
        "target": 0,
    }
    del old["filter"], old["metrics"]
    (first,), _ = answers(written(tmp_path / "samples_t_2026-11-02T10-00-00.000001.jsonl", new))
    (second,), _ = answers(written(tmp_path / "samples_t_2026-11-02T10-00-00.000002.jsonl", old))
    assert first == second


def text_sample(**more):
    base = {
        "doc_id": 0,
        "doc": {"question": "Q?"},
        "target": "a",
        "arguments": [["prompt", {}]],
        "resps": [["r"]],
        "filtered_resps": ["r"],
    }
    return {**base, **more}


def test_repeats_are_trials_and_what_was_scored_once_is_told_once(tmp_path):
    path = written(tmp_path / "x.jsonl", text_sample(resps=[["one", "two", "three"]], exact_match=1.0))
    found, _ = answers(path)
    assert [(answer.trial, answer.output["response"]) for answer in found] == [(0, "one"), (1, "two"), (2, "three")]
    assert [answer.scores for answer in found] == [{"exact_match": 1.0}, {}, {}]


def test_filters_of_one_document_are_scores_of_one_answer(tmp_path):
    lines = [
        text_sample(doc_id=i, filter=name, metrics=["em"], em=float(name == "b"))
        for name in ("a", "b")
        for i in range(3)
    ]
    found, _ = answers(written(tmp_path / "x.jsonl", *lines))
    assert [answer.scores for answer in found] == [{"em.a": 0.0, "em.b": 1.0}] * 3


def test_samples_without_ids_are_documents_of_their_own(tmp_path):
    lines = [text_sample() | {"doc_id": None} for _ in range(2)]
    for line in lines:
        del line["doc_id"]
    found, _ = answers(written(tmp_path / "x.jsonl", *lines))
    assert [answer.example["id"] for answer in found] == [0, 1]


def test_a_list_of_targets_written_as_text_is_a_list(tmp_path):
    (answer,), _ = answers(
        written(tmp_path / "x.jsonl", text_sample(target="['Paris', 'paris']", doc={"question": "?", "answers": "old"}))
    )
    assert answer.example["answers"] == ["Paris", "paris"]
    (answer,), _ = answers(written(tmp_path / "y.jsonl", text_sample(target="[not a list")))
    assert answer.example["answer"] == "[not a list"


def test_the_documents_own_fields_are_there_for_evaluators(tmp_path):
    doc = {"prompt": "Write two lines.", "instruction_id_list": ["x:y"], "kwargs": [{}], "key": 7}
    (answer,), _ = answers(written(tmp_path / "x.jsonl", text_sample(doc=doc, target=0)))
    assert answer.example["instruction_id_list"] == ["x:y"]
    assert answer.example["question"] == "Write two lines."


def test_the_model_is_named_by_the_results_beside_or_by_the_folder(tmp_path):
    date = "2026-11-02T10-00-00.000001"
    folder = tmp_path / "org__model"
    folder.mkdir()
    path = written(folder / f"samples_t_{date}.jsonl", text_sample())
    assert answers(path)[0][0].system == "org/model"
    (folder / f"results_{date}.json").write_text(json.dumps({"results": {}, "model_name": "org/other"}, indent=1))
    assert answers(path)[0][0].system == "org/other"
    (folder / f"results_{date}.json").write_text("{broken")
    assert answers(path)[0][0].system == "org/model"


def test_a_likelihood_of_one_text_is_no_answer(tmp_path):
    rolling = text_sample(arguments=[["text"]], resps=[[["-12.5", "True"]]], filtered_resps=[["-12.5", "True"]], acc=1)
    (answer,), _ = answers(written(tmp_path / "x.jsonl", rolling))
    assert answer.output == {}
    assert answer.scores == {"acc": 1.0}


# --- JSON lines
# ------------------------------------------------------------------------


def test_lines_with_other_programs_names_are_understood(tmp_path):
    path = written(
        tmp_path / "theirs.jsonl",
        {
            "model": "m",
            "input": "What?",
            "target": ["a", "b"],
            "output": "x",
            "response": "a",
            "usage": {"prompt_tokens": 3},
        },
        {"model": "m", "input": "Why?", "target": 4, "error": "Timeout: slow", "latency": 2},
    )
    (first, second), log = answers(path)
    assert first.example["question"] == "What?"
    assert (first.example["answer"], first.example["answers"]) == ("a", ["a", "b"])
    assert (first.example["id"], second.example["id"], first.example["dataset"]) == (0, 1, "theirs")
    assert first.usage == Usage(input_tokens=3)
    assert (second.error, second.latency, second.example["answer"]) == ("Timeout: slow", 2.0, "4")
    assert log.source == "jsonl"


def test_lines_that_are_no_answers_are_counted(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"response": "a", "id": 1}\nnot json\n{"id": 2}\n[]\n')
    found, log = answers(path)
    assert len(found) == 1
    assert log.skipped == {"no answer": 2, "not JSON": 1}


def test_a_format_can_be_given(tmp_path):
    path = written(tmp_path / "x.jsonl", text_sample(response="r"))
    assert answers(path)[1].source == "lm_eval"
    assert answers(path, format="jsonl")[1].source == "jsonl"
    with pytest.raises(BadInput, match="inspect, lm-eval, jsonl"):
        read_answers(path, "csv")


# --- whatever is in them
# ------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["attachment://a", "C", "['", "0", "True"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["value", "a", "message", "content", "text", "0"]), inner)
    ),
    max_leaves=6,
)
INSPECT_KEYS = [
    "id",
    "epoch",
    "input",
    "choices",
    "target",
    "output",
    "scores",
    "metadata",
    "error",
    "model_usage",
    "attachments",
]
LM_KEYS = ["doc_id", "target", "arguments", "filtered_resps", "filter", "metrics", "acc", "resps"]
LINE_KEYS = [
    "id",
    "example",
    "example_id",
    "trial",
    "scores",
    "usage",
    "errors",
    "output",
    "latency",
    "metadata",
    "answer",
    "model",
]


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(INSPECT_KEYS), JSON), JSON)
def test_no_sample_of_inspect_breaks_the_reader(tmp_path_factory, odd, own):
    path = tmp_path_factory.mktemp("odd") / "x.json"
    path.write_text(json.dumps(inspect_log(odd, metadata={"context_bench": own})))
    plain(answers(path)[0], 1)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(LM_KEYS), JSON), JSON)
def test_no_sample_of_lm_eval_breaks_the_reader(tmp_path_factory, odd, doc):
    path = written(tmp_path_factory.mktemp("odd") / "x.jsonl", {"doc_id": 0, "doc": doc, "resps": [["r"]], **odd})
    found = answers(path)[0]
    plain(found, len(found))
    assert found


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(LINE_KEYS), JSON))
def test_no_line_breaks_the_reader(tmp_path_factory, odd):
    path = written(tmp_path_factory.mktemp("odd") / "x.jsonl", {**odd, "response": "r"})
    plain(answers(path)[0], 1)


def plain(found, count):
    """Answers are what everybody who takes them relies on."""
    assert len(found) == count
    for answer in found:
        assert isinstance(answer.example["id"], str | int)
        assert isinstance(answer.example["dataset"], str)
        assert isinstance(answer.example["context"], str)
        assert isinstance(answer.system, str)
        assert answer.trial >= 0
        assert all(isinstance(value, float) and value == value for value in answer.scores.values())
        assert isinstance(answer.output.get("response", ""), str)
