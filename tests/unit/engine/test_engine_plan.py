"""What a run owes and how it is known."""

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput, SameName
from context_bench.engine.encoding import Secrets
from context_bench.engine.plan import (
    Arm,
    RunSettings,
    content_key,
    example_facts,
    ordered,
    output_key,
    planned_arms,
    planned_evaluators,
)


class Plain:
    def __init__(self, name="a", model="m", stateful=False):
        self.name, self.model = name, model
        if stateful:
            self.stateful = True

    def fingerprint(self):
        return {"model": self.model}

    def process(self, example):
        return example


def arms(*systems):
    return planned_arms([s if isinstance(s, Arm) else Arm(s) for s in systems], Secrets())


def key(arm, content="c", trial=0, occurrence=0, budget=None):
    return output_key(arm, content, trial, occurrence, budget)


def test_the_key_of_an_output_is_its_content():
    (one,), (same,), (other,) = arms(Plain("a")), arms(Plain("b")), arms(Plain("a", model="other"))
    assert key(one) == key(same)
    assert (
        len(
            {
                key(one),
                key(other),
                key(one, "d"),
                key(one, trial=1),
                key(one, occurrence=1),
                key(one, budget=10),
                key(one, budget=0),
            }
        )
        == 7
    )


def test_twins_of_one_configuration_have_outputs_of_their_own():
    first, second = arms(Plain("full"), Plain("full#2"))
    assert key(first) != key(second)
    assert key(second) == key(arms(Plain("x"), Plain("y"))[1])


def test_two_systems_with_one_name_stop_the_run():
    with pytest.raises(SameName, match="two systems are called 'a'"):
        arms(Plain("a"), Plain("a", model="other"))


def test_a_name_that_cannot_be_stored_stops_the_run_before_it_costs_anything():
    with pytest.raises(BadInput, match="another name"):
        arms(Plain("a\ud800"))


@pytest.mark.parametrize(
    ("given_arms", "said"),
    [
        ([], "at least one system"),
        ([Arm(Plain("a"), budget_from="b")], "not a system of this run"),
        ([Arm(Plain("a"), budget_from="a")], "itself waits"),
        ([Arm(Plain("a")), Arm(Plain("b"), budget_from="a"), Arm(Plain("c"), budget_from="b")], "itself waits"),
        ([Arm(Plain("a")), Arm(Plain("b", stateful=True), budget_from="a")], "keeps state"),
    ],
)
def test_arms_that_cannot_be(given_arms, said):
    with pytest.raises(BadInput, match=said):
        arms(*given_arms)


def test_where_an_example_comes_from_is_no_part_of_what_it_is():
    assert content_key({"id": 1, "context": "x", "dataset": "/a/b.jsonl"}) == content_key(
        {"dataset": "c.jsonl", "context": "x", "id": 1}
    )
    assert content_key({"id": 1, "context": "x"}) != content_key({"id": "1", "context": "x"})
    assert content_key({"id": 1, "context": "x", "answer": "Paris"}) != content_key(
        {"id": 1, "context": "x", "answer": "Rome"}
    )


def test_odd_examples_have_keys_too():
    circle = {"id": 1}
    circle["me"] = circle
    for odd in (circle, {"id": 1, 2: "b"}, {"id": "\ud800"}, {"id": object}):
        assert len(content_key(odd)) == 32


def test_what_rows_carry_of_an_example():
    assert example_facts({"context": "x"}, 7) == (7, "", None, None)
    assert example_facts({"id": "0", "dataset": None, "group": 3}, 0) == ("0", "", "3", "3")
    assert example_facts({"id": True, "group": "g", "cluster": "doc"}, 0) == ("True", "", "g", "doc")
    assert example_facts({"id": [1, 2], "dataset": "d\ud800"}, 0)[:2] == ("[1, 2]", "d?")


def test_evaluators_are_known_by_name_version_and_configuration():
    class Judge:
        def __init__(self, name="j", version="1", strict=True):
            self.name, self.version, self.strict = name, version, strict

    keys = [
        planned_evaluators([judge], Secrets())[0].key
        for judge in (Judge(), Judge(), Judge("k"), Judge(version="2"), Judge(strict=False))
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


@given(st.lists(st.integers(), unique=True, max_size=8), st.integers(), st.text(), st.integers(0, 5))
def test_the_order_of_arms_is_a_permutation_fixed_by_seed_and_example(given_arms, seed, content, trial):
    order = ordered(given_arms, seed, content, trial)
    assert sorted(order) == sorted(given_arms)
    assert order == ordered(given_arms, seed, content, trial)


def test_every_arm_comes_first_about_equally_often():
    firsts = [ordered([0, 1, 2], 0, str(i), 0)[0] for i in range(900)]
    assert all(240 < firsts.count(arm) < 360 for arm in (0, 1, 2))


@pytest.mark.parametrize(
    "wrong",
    [{"trials": 0}, {"max_workers": -1}, {"example_timeout": 0}, {"run_timeout": float("nan")}, {"bodies": "some"}],
)
def test_settings_that_cannot_be(wrong):
    with pytest.raises(BadInput):
        RunSettings(**wrong).check()
