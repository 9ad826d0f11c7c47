"""`evaluate_memory`: conversations in, one row per question out, on the ordinary engine."""

import ast
from pathlib import Path

import pytest

import context_bench
from context_bench import evaluate_memory
from context_bench.core.errors import BadInput
from context_bench.evaluators import AnswerQuality
from context_bench.memory import evaluation, make_memory
from context_bench.metrics import MeanScore, PerQATypeMetric, TokenEfficiencyMetric

CONVERSATIONS = [
    {
        "id": f"c{c}",
        "dataset": "talks",
        "turns": [
            {"role": "user", "content": f"My {thing} is called {name}{c}.", "timestamp": f"2026-01-0{n + 1}"}
            for n, (thing, name) in enumerate((("boat", "Heron"), ("dog", "Biscuit"), ("bakery", "Crumb")))
        ],
        "qa_pairs": [
            {"question": "What is the boat called?", "answer": f"Heron{c}", "type": "single_hop"},
            {"question": "What is the dog called?", "answer": f"Biscuit{c}", "type": "temporal"},
        ],
    }
    for c in range(3)
]


class Remembers:
    """A documented memory system: it answers with the name in the turn that shares most words with the question."""

    def __init__(self, name="remembers"):
        self.name, self.turns, self.resets = name, [], 0

    def reset(self):
        self.turns, self.resets = [], self.resets + 1

    def ingest(self, turns):
        self.turns += turns

    def query(self, question):
        words = set(question.lower().split())
        best = max(self.turns, key=lambda turn: len(words & set(turn["content"].lower().split())))
        self.last_context_tokens = 7
        return best["content"].split()[-1].rstrip(".")


class Forgetful(Remembers):
    def query(self, question):
        if "dog" in question:
            raise RuntimeError("out of memory")
        return "no idea"


METRICS = [MeanScore(score_field="f1"), PerQATypeMetric(score_field="f1"), TokenEfficiencyMetric(score_field="f1")]


def test_one_row_a_question_with_the_documented_fields():
    system = Remembers()
    result = evaluate_memory([system], CONVERSATIONS, [AnswerQuality()], METRICS, progress=False)
    assert [row.example_id for row in result.rows] == ["c0_0", "c0_1", "c1_0", "c1_1", "c2_0", "c2_1"]
    assert all(row.scores["f1"] == 1.0 for row in result.rows), "each conversation is asked about itself alone"
    row = result.rows[3]
    assert (row.input_tokens, row.dataset, row.group) == (7, "talks", "c1")
    assert row.metadata["qa_type"] == "temporal"
    assert (row.metadata["conversation_id"], row.metadata["turn_count"]) == ("c1", 3)
    assert row.metadata["ingest_latency"] >= 0
    assert row.latency == row.metadata["query_latency"]
    assert row.output_tokens > 0
    assert result.config == {
        "systems": ["remembers"],
        "evaluators": ["answer_quality"],
        "metrics": ["mean_score", "per_qa_type", "token_efficiency"],
        "num_examples": 3,
    }
    summary = result.summary["remembers"]
    assert (summary["f1_single_hop"], summary["f1_temporal"], summary["f1_mean"]) == (1.0, 1.0, 1.0)
    assert summary["mean_input_tokens"] == 7.0


def test_evaluators_get_the_whole_conversation_with_roles_in_capitals_and_names_as_they_are():
    turns = [
        {"role": "user", "content": "I moved to Oslo."},
        {"role": "assistant", "content": "Noted. " * 1000},
        {"role": "user", "speaker": "Ann", "content": "So did I."},
    ]
    told = []

    class Listens(AnswerQuality):
        def score(self, original, processed):
            told.append(original["context"])
            return super().score(original, processed)

    asked = [{"id": "c", "turns": turns, "qa_pairs": [{"question": "Where do I live?", "answer": "Oslo"}]}]
    evaluate_memory([Remembers()], asked, [Listens()], progress=False)
    assert told == ["USER: I moved to Oslo.\nASSISTANT: " + "Noted. " * 1000 + "\nAnn: So did I."]


def test_conversations_are_counted_not_questions():
    assert (
        len(evaluate_memory([Remembers()], iter(CONVERSATIONS), [AnswerQuality()], max_examples=2, progress=False).rows)
        == 4
    )


def test_a_failed_query_is_an_error_and_no_empty_answer():
    result = evaluate_memory([Forgetful("forgetful")], CONVERSATIONS, [AnswerQuality()], METRICS, progress=False)
    failed = [row for row in result.rows if row.errors]
    assert len(failed) == 3
    assert all("out of memory" in row.errors["system"] and not row.scores for row in failed)
    assert result.estimates["forgetful"]["f1"].failures == 3


def test_stores_and_built_in_memories_take_part(tmp_path):
    class Store:
        name = "store"

        def reset(self):
            self.items = []

        def store(self, content):
            self.items.append(content)

        def recall(self, query, limit):
            return self.items[:limit]

    result = evaluate_memory(
        [Store(), make_memory("bm25")],
        CONVERSATIONS,
        [AnswerQuality()],
        progress=False,
        store=tmp_path / "s.db",
        run="r",
    )
    assert not any(row.errors for row in result.rows)
    assert {row.system: row.metadata["hits"] for row in result.rows} == {"store": 3, "bm25": 3}
    assert not any("f1" in row.scores for row in result.rows), "hits without a reader are no answer"
    again = evaluate_memory(
        [Store(), make_memory("bm25")],
        CONVERSATIONS,
        [AnswerQuality()],
        progress=False,
        store=tmp_path / "s.db",
        run="r",
    )
    assert len(again.rows) == len(result.rows) == 12


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 1},
        {"id": 1, "turns": "x", "qa_pairs": []},
        {"id": 1, "turns": [{"role": "user"}], "qa_pairs": []},
        {"id": 1, "turns": [], "qa_pairs": [{"answer": "a"}]},
        ["turn 1"],
    ],
)
def test_what_is_no_conversation_is_named(wrong):
    with pytest.raises(BadInput, match="1"):
        evaluate_memory([Remembers()], [wrong], [AnswerQuality()], progress=False)


class NeverEmptied(Remembers):
    reset = None

    def ingest(self, turns):
        raise AssertionError("it was told something")


def test_one_that_cannot_be_emptied_is_refused_before_it_is_told_anything():
    with pytest.raises(BadInput, match=r"neither namespace\(\), reset\(\) nor delete_all\(\)"):
        evaluate_memory([NeverEmptied()], CONVERSATIONS, [AnswerQuality()], METRICS, progress=False)


class AsksForMore(Remembers):
    def query(self, question, user):
        return "?"


def test_one_that_cannot_be_called_is_refused_before_it_is_told_anything():
    with pytest.raises(
        BadInput, match=r"query\(question, user\): missing a required argument: 'user'; expected query\(question\)"
    ):
        evaluate_memory([AsksForMore()], CONVERSATIONS, [AnswerQuality()], METRICS, progress=False)


def test_type_checkers_see_the_same_signature_at_the_root():
    def signature(path):
        functions = (
            node for node in ast.walk(ast.parse(Path(path).read_text("utf-8"))) if isinstance(node, ast.FunctionDef)
        )
        function = next(node for node in functions if node.name == "evaluate_memory")
        return f"{ast.unparse(function.args)} -> {ast.unparse(function.returns)}"

    assert signature(context_bench.__file__) == signature(evaluation.__file__)
