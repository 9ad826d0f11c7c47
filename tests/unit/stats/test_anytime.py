"""Alarms and intervals that hold whenever one looks: the five recorded streams, and what every stream must keep."""

import json
import math
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench import stats
from context_bench.stats.anytime import BETS, BoundedSequence, EDetector, RatioSequence

VECTORS = {
    each["name"]: each
    for each in json.loads((Path(__file__).parents[2] / "vectors" / "always_valid.json").read_text("utf-8"))
}
STEPS = st.floats(-1, 4, allow_nan=False)


def near(value):
    return pytest.approx(value, abs=1e-9)


def alone(i):
    return 0.1 * 2.0 ** (i % 5)


def bills(base):
    """(through, alone) of session 1, 2, …; the ratio goes up and down around `base`."""
    return ((alone(i) * (base + 0.02 * ((7 * i) % 9 - 4)), alone(i)) for i in count(1))


def cost_steps(case):
    return (stats.bill_step(*bill, case["limit"], cap=case["cap"], floor=case["floor"]) for bill in bills(0.90))


def share_steps(case):
    return (stats.share_step(0.1 if i % 3 == 0 else 0.0, case["limit"]) for i in count(1))


def quality_steps(case):
    return (stats.quality_step(1.0 if i % 60 == 0 else -1.0 if i % 12 == 0 else 0.0, 0.0) for i in count(1))


@pytest.mark.parametrize(
    ("name", "steps", "some"),
    [
        ("cost rises", cost_steps, "after_20"),
        ("needles lost", share_steps, "after_10"),
        ("quality falls", quality_steps, "after_60"),
    ],
)
def test_evidence_and_alarm_are_those_recorded(name, steps, some):
    case = VECTORS[name]
    assert tuple(case["bets"]) in BETS.values()
    for part in (some, "to_the_alarm"):
        detector = EDetector(case["bets"], case["alpha"], case["horizon"])
        alarms = [detector.add(step) for step in islice(steps(case), case[part]["sessions"])]
        assert detector.evidence == near(case[part]["evidence"])
        assert math.log(detector.evidence) == near(case[part]["log_evidence"])
        assert (alarms.index(True) + 1 if any(alarms) else None) == case[part]["alarm_at"]


def test_the_first_steps_of_a_bill_are_those_recorded():
    case = VECTORS["cost rises"]
    assert list(islice(cost_steps(case), 5)) == near(case["steps_1_to_5"])


def test_the_bounded_sequence_is_the_one_recorded():
    case, sequence, ends = VECTORS["confidence sequence, bounded"], BoundedSequence(0.05), {}
    for i in range(1, 401):
        sequence.add((37 * i) % 101 / 100 * 0.4 + 0.3)
        ends[str(i)] = sequence.interval
    for at, wanted in case["at"].items():
        assert list(ends[at]) == near(wanted)


def test_the_ratio_sequence_and_the_learned_limit_are_those_recorded():
    case, sequence, ends = VECTORS["confidence sequence, ratio of sums; learned limit"], RatioSequence(0.05, 300), {}
    sessions = list(islice(bills(0.80), 500))
    for i, bill in enumerate(sessions, 1):
        sequence.add(*bill)
        ends[str(i)] = [sequence.ratio, *sequence.interval]
    for at, wanted in case["at"].items():
        assert ends[at] == near(wanted)
    learned = stats.learned_limit(*zip(*sessions, strict=True), cap=1.0, floor=0.4)
    assert learned == near(case["learned_limit_cap_1_floor_0.4"])


def stored(thing):
    """The same, written as JSON and read back."""
    return type(thing)(**json.loads(json.dumps(asdict(thing))))


@given(st.lists(STEPS, max_size=60), st.data())
def test_a_state_taken_up_anywhere_equals_one_pass(steps, data):
    cut = data.draw(st.integers(0, len(steps)))
    for made, values in (
        (lambda: EDetector(BETS["cost"], weights=(0.1, 0.2, 0.7)), [(step,) for step in steps]),
        (lambda: BoundedSequence(low=-1.0, high=4.0), [(step,) for step in steps]),
        (RatioSequence, [(step + 1, 2 + step) for step in steps]),
    ):
        through, parted = made(), made()
        for value in values:
            through.add(*value)
        for value in values[:cut]:
            parted.add(*value)
        parted = stored(parted)
        for value in values[cut:]:
            parted.add(*value)
        assert asdict(stored(through)) == asdict(stored(parted))


@given(st.one_of(st.floats(max_value=-1, exclude_max=True), st.just(math.nan), st.just(math.inf)))
def test_a_step_that_cannot_be_bet_on_is_refused_and_leaves_no_trace(step):
    detector = EDetector(BETS["share"])
    before = asdict(detector)
    with pytest.raises(ValueError, match="cannot be bet on"):
        detector.add(step)
    assert asdict(detector) == before


@given(st.lists(st.sampled_from([-1.0, 1.0]), min_size=1, max_size=8))
def test_no_stopping_rule_gains_on_a_fair_stream(path):
    """Over all continuations of a path by fair ±1 steps, the mean evidence grows by what is put in, and no more."""
    detector = EDetector(BETS["cost"], horizon=50)
    for step in path:
        detector.add(step)
    now, given_next = detector.evidence, (1 - detector.start) / 49
    after = []
    for step in (-1.0, 1.0):
        following = stored(detector)
        following.add(step)
        after.append(following.evidence)
    assert sum(after) / 2 == pytest.approx(now + given_next)


def test_the_horizon_spends_all_of_alpha_and_no_more():
    detector = EDetector(BETS["share"], horizon=20)
    for _ in range(20):
        detector.add(0.0)
    assert detector.evidence == pytest.approx(1.0)
    assert detector.used_up
    with pytest.raises(ValueError, match="start a new detector"):
        detector.add(0.0)


def test_an_alarm_stays_whatever_follows():
    detector = EDetector(BETS["cost"])
    while not detector.add(1.0):
        pass
    found = asdict(detector)
    assert detector.add(-1.0)
    assert asdict(detector) == found


@given(st.floats(0.01, 50), st.floats(0.01, 50), st.floats(0.1, 2), st.floats(0.01, 20))
def test_steps_of_bills_can_all_be_bet_on(through, own, limit, cap):
    step = stats.bill_step(through, own, limit, cap=cap, floor=limit / 2)
    assert step >= -1
    assert (step > 0) == (through / own > limit)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: stats.bill_step(1.0, 0.0, 0.9, cap=1.0),
        lambda: stats.bill_step(1.0, 1.0, 0.9, cap=0.0),
        lambda: stats.ratio_step(-0.1, 0.9),
        lambda: stats.ratio_step(1.0, 0.9, floor=0.9),
        lambda: stats.ratio_step(math.nan, 0.9),
        lambda: stats.share_step(1.1, 0.01),
        lambda: stats.share_step(0.5, 0.0),
        lambda: stats.quality_step(-1.5, 0.0),
        lambda: stats.learned_limit([1.0], [1.0], cap=1.0),
        lambda: stats.learned_limit([1.0, 1.0], [1.0, 0.0], cap=1.0),
        lambda: EDetector((1.5,)),
        lambda: EDetector((0.5,), weights=(0.4,)),
        lambda: EDetector((0.5,), alpha=0.0),
        lambda: BoundedSequence().add(1.01),
        lambda: RatioSequence().add(1.0, 0.0),
    ],
)
def test_what_makes_no_step_is_refused(refused):
    with pytest.raises(ValueError, match=r"expected|learned from|outside|must lie"):
        refused()


def test_before_the_first_session_nothing_is_claimed():
    assert BoundedSequence().mean is None
    assert BoundedSequence().interval == (0.0, 1.0)
    assert RatioSequence().ratio is None
    assert RatioSequence().interval is None
