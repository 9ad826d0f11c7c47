"""pass@k against counting all choices, and which rows it is made of."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.plugins import build
from context_bench.core.records import EvalRow
from context_bench.metrics import BUILTINS, PassAtK
from context_bench.metrics.quality import pass_at_k


def row(example, value, *, dataset="humaneval", trial=0, **scores):
    return EvalRow("s", example, scores if value is None else {"pass_at_1": value}, dataset=dataset, trial=trial)


@given(st.data())
def test_it_is_the_share_of_choices_with_a_pass(data):
    n = data.draw(st.integers(1, 9))
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    tries = [True] * c + [False] * (n - c)
    choices = list(combinations(tries, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))


@given(st.integers(1, 500), st.data())
def test_it_is_a_probability_that_grows_with_k(n, data):
    c = data.draw(st.integers(0, n))
    values = [pass_at_k(n, c, k) for k in range(1, n + 1)]
    assert values[0] == pytest.approx(c / n)
    assert values[-1] == (c > 0)
    assert all(0 <= a <= b + 1e-12 <= 1 + 1e-9 for a, b in pairwise(values))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0), (0, 0, 1)])
def test_what_is_not_defined_is_refused(n, c, k):
    with pytest.raises(ValueError, match="defined for"):
        pass_at_k(n, c, k)


def test_trials_of_an_example_then_the_mean_over_examples():
    rows = [row("a", value, trial=n) for n, value in enumerate([1.0, 0.0, 0.0, 1.0])] + [
        row("b", 0.0, trial=n) for n in range(4)
    ]
    assert PassAtK(k=(1, 2)).compute(rows) == pytest.approx({"pass_at_1": 0.25, "pass_at_2": (5 / 6 + 0) / 2})


def test_examples_of_two_datasets_and_of_two_types_are_not_mixed():
    rows = [row("1", 1.0), row("1", 0.0, dataset="mbpp"), row(1, 0.0)]
    assert PassAtK().compute(rows) == pytest.approx({"pass_at_1": 1 / 3})
    assert PassAtK(k=2).compute(rows) == {}


def test_unscored_trials_are_no_tries_and_short_examples_are_left_out():
    rows = [row("a", 1.0), row("a", None, trial=1), row("b", 0.0), row("b", 1.0, trial=1)]
    assert PassAtK(k=(1, 2, 3)).compute(rows) == pytest.approx({"pass_at_1": 0.75, "pass_at_2": 1.0})
    assert PassAtK().compute([row("a", None, f1=1.0)]) == {}
    assert PassAtK(score_field="f1").compute([row("a", None, f1=1.0), row("b", None, f1=0.9)]) == {"pass_at_1": 0.5}


@pytest.mark.parametrize(
    ("spec", "ks"), [("pass_at_k", (1,)), ("pass_at_k:k=5", (5,)), ('pass_at_k:k="10 1 5"', (1, 5, 10))]
)
def test_as_a_metric_on_the_command_line(spec, ks):
    assert build("metric", spec, BUILTINS).ks == ks


@pytest.mark.parametrize("k", [0, (), "", "none", (1, -2)])
def test_a_k_that_is_none(k):
    with pytest.raises(BadInput, match="whole numbers"):
        PassAtK(k=k)
