"""What judges' figures are worked out by: agreement, corrections, pairs, blinding. Expected values by another way of
counting.
"""

import math
import random
from itertools import product
from statistics import NormalDist, fmean

import pytest
from hypothesis import given, strategies as st

from context_bench.judge.calibration import (
    JudgedUnit,
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
from context_bench.stats.agreement import Label, labelled_mean
from context_bench.stats.verdict import LEVEL, as_people_rate, weigh

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


def labelled(system, rated):
    return [Labelled(f"{system}{i}", system, f, (y,), f"u{i}") for i, (f, y) in enumerate(rated)]


def units(ratings):
    return [JudgedUnit(f"u{i}", rating) for i, rating in enumerate(ratings)]


def test_calibration():
    rated = [(5, 5), (4, 4), (3, 3), (1, 1), (0, 0), (2, 2)] * 4
    same = labelled("a", rated)
    kind = labelled("b", [(min(5, f + 1), y) for f, y in rated])
    judged = {"a": units([f for f, _ in rated] * 2), "b": units([min(5, f + 1) for f, _ in rated] * 2)}
    judged |= {"c": units([1.0])}
    found = calibrate(same, {"a": judged["a"]})
    assert (found.kappa, found.alpha, found.spearman, found.label) == (1.0, 1.0, pytest.approx(1.0), "firm")
    assert (found.alpha_low, found.alpha_high) == (1.0, 1.0)
    found = calibrate(same + kind, judged)
    assert found.signed_error == {"a": 0.0, "b": pytest.approx(5 / 6)}
    assert found.corrected["b"]["mean"].value == pytest.approx(2.5)
    assert found.corrected["b"]["pass_rate"].value < sum(each.rating >= 3 for each in judged["b"]) / 48
    assert found.notes == ["48 labels; below 100 agreement is a rough figure", "no label of c"]
    assert calibrate(same[:19], judged).corrected["a"]["mean"] is None  # too few for an interval that covers
    turned = calibrate(labelled("a", [(5 - f, y) for f, y in rated]), {"a": judged["a"]})
    assert turned.kappa < 0
    assert turned.label == "uncalibrated"
    assert calibrate([], {}).label == "uncalibrated"
    several = calibrate(
        [Labelled(x.id, "a", x.judge, (x.humans[0], None if i else 4)) for i, x in enumerate(same)],
        {"a": units([1, 2])},
    )
    assert several.alpha < 1
    assert several.n == 24


def test_a_label_is_granted_by_the_lower_end():
    rng = random.Random(4)
    rated = [(y, y if rng.random() < 0.9 else rng.randint(0, 5)) for y in (rng.randint(0, 5) for _ in range(40))]
    found = calibrate(labelled("a", [(float(f), float(y)) for f, y in rated]), {"a": units([f for f, _ in rated])})
    assert found.alpha_low < 0.8 < found.alpha < found.alpha_high
    assert found.label == "tentative"


def drawn_by_band(rng, n, size, bias=0.0):
    """A judge who is right in 85 of 100 and else says anything, and `n` labels drawn one from each band in turn."""
    human = [min(5, max(0, round(rng.gauss(4, 1.2)))) for _ in range(size)]
    judge = [y if rng.random() < 0.85 else rng.randint(0, 5) for y in human]
    judged = [f + bias for f in judge]
    queues = {band: [at for at in range(size) if judge[at] == band] for band in range(6)}
    for queue in queues.values():
        rng.shuffle(queue)
    chosen = []
    while len(chosen) < n:
        chosen += [queue.pop() for queue in queues.values() if queue]
    shares = {band: judge.count(band) / size for band in range(6)}
    labels = {at: Label(float(human[at]), judge[at], shares[judge[at]]) for at in chosen[:n]}
    return human, judged, judge, labels


@pytest.mark.parametrize(("n", "tuned"), [(40, False), (100, False), (100, True)])
def test_labels_drawn_band_by_band_give_peoples_mean(n, tuned):
    rng, held, off = random.Random(7), 0, []
    for _ in range(400):
        human, judged, bands, labels = drawn_by_band(rng, n, 400)
        found = labelled_mean(judged, labels, bands, tuned=tuned)
        plain = fmean(judged) + fmean(label.human - judged[at] for at, label in labels.items())
        off.append((found.value - fmean(human), plain - fmean(human)))
        low, high = found.interval()
        held += low <= TRUE_MEAN <= high
    assert abs(fmean(own for own, _ in off)) < 0.015
    assert fmean(plain for _, plain in off) > 0.1  # as if they had been drawn at random
    assert 0.92 <= held / 400 <= 0.985


#: The mean of a rounded and clipped normal variable, as `drawn_by_band` makes it.
TRUE_MEAN = sum(
    k * (NormalDist(4, 1.2).cdf(k + 0.5 if k < 5 else 99) - NormalDist(4, 1.2).cdf(k - 0.5 if k else -99))
    for k in range(6)
)


def test_a_judge_who_favours_the_system_lets_no_loss_of_the_margin_pass():
    """The judge says 0.05 of 5 too much of the system, which is 0.1 of 5 worse: 2 points of 100, the margin."""
    rng, passed, by_judge = random.Random(3), 0, 0
    for _ in range(200):
        gap = [rng.choice((-1, 0, 0, 0, 0, 0, 0, 0, 0, 0)) for _ in range(600)]
        judged = [min(5.0, d + 0.05 + (0 if rng.random() < 0.9 else rng.choice((-1, 1)))) for d in gap]
        chosen = rng.sample(range(600), 100)
        found = labelled_mean(judged, {at: Label(float(gap[at])) for at in chosen}, tuned=True)
        raw = weigh(judged, [0.0] * 600, margin=0.1)
        people = as_people_rate(raw, found, 100)
        passed += people.p_loss < LEVEL
        by_judge += raw.p_loss < LEVEL
        assert people.labels == 100
    assert passed / 200 <= 0.06 + 2 * 0.0168
    assert by_judge / 200 > 0.5


def test_nor_does_one_who_is_seldom_wrong():
    """Where few labels show that the judge errs, a λ made from them fits them too well: 6.9 % of 60,000 runs passed,
    6.6 % of these.
    """
    rng, passed = random.Random(3), 0
    for _ in range(1_500):
        gap = rng.choices((-0.2, 0.0), (0.1, 0.9), k=1_000)
        judged = [d + 0.01 + (0 if rng.random() >= 0.02 else rng.choice((-0.2, 0.2))) for d in gap]
        found = labelled_mean(judged, {at: Label(gap[at]) for at in rng.sample(range(len(gap)), 100)}, tuned=True)
        passed += found.p_above(-0.02) < LEVEL
    assert passed / 1_500 <= 0.06


def test_peoples_difference_needs_both_answers_of_an_example():
    rated = [(f, f - 1.0) for f in (5.0, 4.0, 3.0, 2.0, 1.0) * 6]
    system, base = labelled("mine", rated), labelled("full", [(f, f) for f, _ in rated])
    judged = {"mine": units([f for f, _ in rated] * 2), "full": units([f for f, _ in rated] * 2)}
    found = calibrate(system + base, judged, baseline="full").differences["mine"]
    assert (found.value, found.labels, found.n, found.tuned) == (pytest.approx(-1.0), 30, 60, False)
    assert calibrate(system + base[:19], judged, baseline="full").differences == {}
    assert calibrate(system, judged, baseline="full").differences == {}


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
