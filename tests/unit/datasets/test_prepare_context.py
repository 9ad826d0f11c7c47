"""The functions that make rows of the datasets with a context: what the samples in the catalogue do not show."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import pytest

from context_bench.core.errors import BadSpec
from context_bench.datasets import prepare, spec


@dataclass
class Repository:
    files: dict = field(default_factory=dict)
    config: str | None = None
    split: str = "test"
    seed: int = 0

    def paths(self, pattern):
        return sorted(path for path in self.files if fnmatchcase(path, pattern))

    def text(self, path):
        return self.files[path]

    def rows(self, pattern):
        return (row for path in self.paths(pattern) for row in self.files[path])


def run(name, rows, **source):
    return list(prepare.FUNCTIONS[name](iter(rows), Repository(**source)))


NEEDLE = {
    "id": "0401",
    "needle": "Then {CHAR} saw {1}.",
    "questions": {"onehop": "Who saw {2}?", "twohop": "Who saw {3}?"},
    "tests": {f"T{i:02}": {"input_args": ["a", "b", "c"]} for i in range(30)},
    "character_set": ["Ilse", "Tomas", "Anna"],
}
BOOKS = {f"haystack/rand_shuffle/rand_book_{i}.txt": "\n".join(f"{i}.{j}" for j in range(50)) for i in (1, 2, 3)}


def test_nolima_is_the_same_for_a_seed_and_goes_through_books_lines_and_names():
    rows = run("nolima", [NEEDLE], files=BOOKS)
    assert rows == run("nolima", [NEEDLE], files=BOOKS)
    assert len(rows) == 60
    for row in rows:
        lines = row["text"].split("\n")
        assert lines.pop(row["place"]) == f"Then {row['golds'][0]} saw a."
        assert "\n".join(lines) == BOOKS[f"haystack/rand_shuffle/{row['book']}"]
    assert {row["golds"][0] for row in rows} == {"Ilse", "Tomas", "Anna"}
    assert len({row["book"] for row in rows}) == 3
    assert len({row["place"] for row in rows}) > 15
    other = run("nolima", [NEEDLE], files=BOOKS, seed=1)
    assert [r["key"] for r in other] == [r["key"] for r in rows]
    assert sum(a["text"] != b["text"] for a, b in zip(rows, other, strict=True)) > 50


def test_nolima_asks_both_questions_of_one_text():
    one, two = run("nolima", [NEEDLE], files=BOOKS)[:2]
    assert (one["text"], one["golds"], one["pair"]) == (two["text"], two["golds"], two["pair"])
    assert (one["question"], two["question"]) == ("Who saw b?", "Who saw c?")


def test_nolima_answers_that_are_no_names():
    needle = {
        **NEEDLE,
        "needle": "{1} is {2} {x}.",
        "tests": {"T": {"input_args": ["a", "b", "c"], "gold_answers": ["z"]}},
    }
    del needle["character_set"]
    rows = run("nolima", [needle], files=BOOKS)
    assert rows[0]["golds"] == ["z"]
    assert "a is b {x}." in rows[0]["text"].split("\n")


def test_what_was_chosen_does_not_depend_on_the_machine():
    assert prepare.chance(0, "x", 1).randrange(10**6) == 13384


FUNCTION = {"name": "f", "description": "", "parameters": {"type": "dict", "properties": {"a": {}, "b": {}}}}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("f(1, b='x')", {"name": "f", "arguments": {"a": [1], "b": ["x"]}}),
        ("f(b=[-1, {'k': None}])", {"name": "f", "arguments": {"b": [[-1, {"k": None}]]}}),
        ("m.f(a=True)", {"name": "m.f", "arguments": {"a": [True]}}),
        ("f()", {"name": "f", "arguments": {}}),
        ("f(a=g(1))", None),
        ("f(", None),
        ("f", None),
        ("__import__('os').system('x')", {"name": "__import__('os').system", "arguments": {}}),
        (7, None),
        ("(" * 5000, None),
    ],
)
def test_calls_written_as_python_are_read_and_never_run(call, expected):
    assert prepare._python_call(call, [FUNCTION]) == expected


def test_bfcl_keeps_the_users_words_and_the_right_call():
    say = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Do f."}]]
    files = {"possible_answer/BFCL_v3_live_simple.json": [{"id": "a", "ground_truth": [{"f": {"a": [1, ""]}}]}]}
    live, executable, unknown = run(
        "bfcl",
        [
            {"id": "a", "question": say, "function": [{**FUNCTION, "name": "g"}, FUNCTION]},
            {"id": "b", "question": say, "function": [FUNCTION], "ground_truth": [{"f": 1}]},
            {"id": "c", "question": say, "function": [{**FUNCTION, "name": "g"}]},
        ],
        files=files,
    )
    assert live["asked"].startswith("Be brief.\n\nDo f.\n\n")
    assert (live["gold"], live["expected"]) == ("f", [{"name": "f", "arguments": {"a": [1, ""]}}])
    assert (executable["gold"], executable["expected"]) == ('{"f": 1}', None)
    assert (unknown["gold"], unknown["expected"]) == ("g", None)


def test_qasper_takes_every_annotator_in_the_authors_order():
    answer = {"unanswerable": False, "extractive_spans": [], "free_form_answer": "", "yes_no": None}
    golds = [
        {**answer, "unanswerable": True, "free_form_answer": "x"},
        {**answer, "extractive_spans": ["a", "b"], "free_form_answer": "x"},
        {**answer, "free_form_answer": "x"},
        {**answer, "yes_no": False},
        answer,
    ]
    assert [prepare._qasper_gold(g) for g in golds] == ["Unanswerable", "a, b", "x", "No", ""]


def test_triviaqa_without_any_page_has_the_question_to_read():
    row = {"question": "Q?", "search_results": {"search_context": ["", None]}, "entity_pages": None}
    assert run("triviaqa", [row])[0]["evidence"] == ["Q?"]


def test_infinitebench_finds_the_right_option():
    row = {"input": "Q?", "answer": ["x", "C"], "options": ["a", "b", "x"]}
    assert [run("infinitebench", [row])[0][key] for key in ("position", "golds", "task")] == [
        2,
        ["x"],
        "Q?\n\nA) a  B) b  C) x",
    ]
    odd = run("infinitebench", [{**row, "answer": "none of them"}])[0]
    assert (odd["position"], odd["golds"]) == (None, ["none of them"])


def test_longbench_says_what_to_do_where_the_rows_do_not():
    assert run("longbench", [{"input": ""}], config="lcc")[0]["task"]
    assert run("longbench", [{"input": "Q"}], config="lcc")[0]["task"] == "Q"
    silent = {"gov_report", "multi_news", "vcsum", "passage_count", "lcc"}
    assert silent == set(prepare._LONGBENCH_TASKS) <= set(spec.named("longbench").configs)
    known = set(spec.named("infinitebench").configs.values())
    assert set(prepare._INFINITEBENCH_TASKS) <= known


def test_a_function_that_is_not_there_and_one_that_fails_on_the_sample():
    text = (
        'about = "x"\nsource = "hf:me/set"\nlicence = "x"\nevaluators = []\nprepare = "{}"\n'
        '[fields]\ncontext = "t"\n[sample]\nrow = {{ t = "x" }}\nexample = {{ context = "x" }}\n'
    )
    with pytest.raises(BadSpec, match=r"prepare: 'chance' is no function of datasets/prepare.py; there are: .*nolima"):
        spec.parse(text.format("chance"), "f")
    with pytest.raises(BadSpec, match="sample: dialogsum failed on it: KeyError: 'dialogue'"):
        spec.parse(text.format("dialogsum"), "f")
    with pytest.raises(BadSpec, match=r"sample: nolima failed on it: ValueError: sample.files has no 'haystack"):
        spec.parse(text.format("nolima"), "f")
