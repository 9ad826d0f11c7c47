"""What judges' figures are worked out by: agreement, corrections, pairs, blinding. Expected values by another way of
counting.
"""

import math
from itertools import product

import pytest
from hypothesis import given, strategies as st

from context_bench.judge.calibration import (
    Labelled,
    calibrate,
    family_of,
    label_of,
    same_family,
    self_preference,
)
from context_bench.judge.judge_replies import fingerprints, leak, mark_rates, normalised, opaque_id
from context_bench.judge.pairwise_judge import PairVerdict, pairwise_summary
from context_bench.stats import kendall_tau, prediction_powered, rogan_gladen, spearman, weighted_kappa

ratings = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=40)

# --- agreement
# ------------------------------------------------------------------------


@given(ratings)
def test_weighted_kappa_is_that_of_the_table(pairs):
    """By the formula over the table of 6 × 6 with its margins."""
    n = len(pairs)
    weight = {(i, j): (i - j) ** 2 / 25 for i, j in product(range(6), repeat=2)}
    observed = sum(weight[pair] for pair in pairs) / n
    expected = sum(weight[a, b] for a, _ in pairs for _, b in pairs) / n**2
    found = weighted_kappa([a for a, _ in pairs], [b for _, b in pairs])
    assert found == (None if expected == 0 else pytest.approx(1 - observed / expected))


def test_correlations():
    assert spearman([1, 2, 3, 4], [2, 3, 5, 9]) == pytest.approx(1)
    assert spearman([1, 2, 3], [3, 3, 3]) is None
    assert spearman([1, 2], [1, 2]) is None
    assert kendall_tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert kendall_tau([1, 1], [1, 2]) is None


def test_rogan_gladen_gives_back_the_true_rate():
    q1, q0, true = 0.9, 0.8, 0.35
    seen = true * q1 + (1 - true) * (1 - q0)
    found = rogan_gladen(seen, 400, q1, 60, q0, 40)
    assert found.value == pytest.approx(true)
    spread = seen * (1 - seen) / 400 + (1 - true) ** 2 * q0 * (1 - q0) / 40 + true**2 * q1 * (1 - q1) / 60
    assert found.se == pytest.approx(math.sqrt(spread) / (q0 + q1 - 1))
    assert rogan_gladen(0.05, 400, q1, 60, q0, 40).value == 0.0
    assert rogan_gladen(0.5, 400, 0.5, 60, 0.5, 40) is None
    assert rogan_gladen(0.5, 0, 0.9, 60, 0.9, 40) is None


def test_prediction_powered_takes_the_bias_out():
    found = prediction_powered([4.0, 5.0, 3.0, 4.0], [4.0, 5.0], [3.0, 4.5])
    assert found.value == pytest.approx(4.0 - 0.75)
    assert found.se == pytest.approx(math.sqrt((2 / 3) / 4 + 0.125 / 2))
    low, high = found.interval()
    assert (low + high) / 2 == pytest.approx(found.value)
    assert high - low == pytest.approx(2 * 1.959964 * found.se)
    assert prediction_powered([4.0, 5.0], [4.0], [4.0]) is None


def test_calibration():
    told = [(5, 5), (4, 4), (3, 3), (1, 1), (0, 0), (2, 2)]
    same = [Labelled(f"a{i}", "a", f, (y,)) for i, (f, y) in enumerate(told)]
    kind = [Labelled(f"b{i}", "b", min(5, f + 1), (y,)) for i, (f, y) in enumerate(told)]
    judged = {"a": [f for f, _ in told] * 2, "b": [min(5, f + 1) for f, _ in told] * 2, "c": [1.0]}
    found = calibrate(same, {"a": judged["a"]})
    assert (found.kappa, found.alpha, found.spearman, found.label) == (1.0, 1.0, pytest.approx(1.0), "firm")
    found = calibrate(same + kind, judged)
    assert found.signed_error == {"a": 0.0, "b": pytest.approx(5 / 6)}
    assert found.corrected["b"]["mean"].value == pytest.approx(2.5)
    assert found.corrected["b"]["pass_rate"].value < sum(f >= 3 for f in judged["b"]) / 12
    assert found.notes == ["12 labels; below 100 agreement is a rough figure", "no label of c"]
    turned = calibrate([Labelled(x.id, "a", 5 - x.judge, x.humans) for x in same], {"a": judged["a"]})
    assert turned.kappa < 0
    assert turned.label == "uncalibrated"
    assert calibrate([], {}).label == "uncalibrated"
    several = calibrate(
        [Labelled(x.id, "a", x.judge, (x.humans[0], None if i else 4)) for i, x in enumerate(same)], {"a": [1, 2]}
    )
    assert several.alpha < 1
    assert several.n == 6


@pytest.mark.parametrize(
    ("alpha", "label"), [(None, "uncalibrated"), (0.66, "uncalibrated"), (0.667, "tentative"), (0.8, "firm")]
)
def test_gates(alpha, label):
    assert label_of(alpha) == label


def test_families():
    names = {
        "gpt-4.1": "openai",
        "o3-mini": "openai",
        "anthropic/claude-haiku-4-5": "anthropic",
        "Qwen/Qwen3-8B": "qwen",
        "mine": None,
    }
    assert {name: family_of(name) for name in names} == names
    assert same_family("gpt-4", {"responder": "openai/gpt-5", "compressor": "claude-x"}) == [
        "the judge and the responder are of one family (openai): it may favour its own"
    ]
    assert same_family("mine", {"responder": "mine"}) == []
    scores = {"openai": {"x": 4.0, "y": 3.0}, "qwen": {"x": 3.0, "y": 3.0}, "meta": {"x": 2.0, "y": 2.0, "z": 0.0}}
    assert self_preference(scores, "openai") == pytest.approx((1.5 + 0.5) / 2)
    assert self_preference({"openai": {"x": 1.0}}, "openai") is None


# --- pairs
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "backward", "win", "consistent"),
    [
        ("first", "second", 1.0, True),
        ("second", "first", 0.0, True),
        ("tie", "tie", 0.5, True),
        ("first", "first", 0.5, False),
        ("first", "tie", 0.5, False),
    ],
)
def test_a_win_takes_both_orders(forward, backward, win, consistent):
    verdict = PairVerdict(forward, backward)
    assert (verdict.win, verdict.consistent) == (win, consistent)


def test_pairwise_summary():
    verdicts = [PairVerdict("first", "second")] * 6 + [PairVerdict("first", "first")] * 2
    found = pairwise_summary(verdicts, [0, 0, 1, 2, 3, 4, 5, 6])
    assert (found.n, found.win_rate, found.consistency, found.first_bias) == (8, 0.875, 0.75, (6 + 4) / 16 - 0.5)
    assert found.low < 0.875 < found.high <= 1
    assert pairwise_summary(verdicts[:3], [0, 1, 2]).low is None
    assert pairwise_summary([]) is None


# --- blinding
# ------------------------------------------------------------------------


def test_opaque_ids_follow_from_key_and_item():
    import hashlib
    import hmac

    assert opaque_id("k", "sys", "s1", 7, "p") == hmac.new(b"k", b"sys|s1|7|p", hashlib.sha256).hexdigest()[:12]
    assert len({opaque_id(key, name, "s", 1, "p") for key in "ab" for name in ("x", "y")}) == 4


MARKED = {
    "heading": "## Files modified\n- a.py",
    "wrapper": "<summary>All is well.</summary>",
    "retrieval marker": "[120 lines compressed to 8. Retrieve more: hash=abc123]",
    "elision marker": "see (filtered 40 lines) here",
    "opaque": "[opaque, 812 tokens]",
    "thinned": "login endpoint returned 401 stale session token redis eviction " * 12,
}


@pytest.mark.parametrize("kind", MARKED)
def test_marks_are_known(kind):
    assert fingerprints(MARKED[kind]) == [kind]


def test_plain_talk_has_no_marks():
    talk = (
        "user: the login fails with 401, see [1] and (the log). It is in src/a.py, as we said.\n\nassistant: I will "
        "look at it.\n" * 8
    )
    assert fingerprints(talk) == []
    assert normalised(talk) == talk.strip()
    assert mark_rates({"a": [talk, MARKED["wrapper"]], "b": []})["a"].kinds == {"wrapper": 0.5}


def test_normalised_texts_of_two_methods_look_alike():
    anchored = "## Intent\nFix login.\n\n## Files Modified\n- a.py\n\n## Next Steps\n- test it\n[3 messages omitted]"
    marker = "[40 lines compressed to 2: hash=9f]"
    other = (
        "<summary>\n**Goal:**\nFix login.\n\n# 2. Modified files\n- a.py\n\n### TODO:\n- test it\n"
        + marker
        + "</summary>"
    )
    assert normalised(anchored) == normalised(other)
    assert normalised("# The odd Heading\nx") == "Section: the odd heading\nx"


@given(st.lists(st.sampled_from([*MARKED.values(), "said so", "", "# x"])).map("\n".join))
def test_no_mark_is_left_in_a_normalised_text(text):
    assert not {"heading", "wrapper", "retrieval marker", "elision marker"} & set(fingerprints(normalised(text)))


def test_leak():
    assert (leak(1.0, 4), leak(0.25, 4), leak(0.5, 2), leak(1.0, 1)) == (1.0, 0.0, 0.0, None)
