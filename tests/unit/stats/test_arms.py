"""Two groups drawn at random: the ratio of their typical amounts, and an interval that holds at every look."""

import math
import random

import pytest

from context_bench.stats.anytime import FEWEST_OF_ARM, ratio_of_arms


def test_the_ratio_is_that_of_geometric_means():
    found = ratio_of_arms([1.0, 4.0], [1.0, 100.0, 10.0], share=0.5)
    assert found.value == pytest.approx(2 / 10)
    assert (found.low, found.high) == (None, None)
    assert ratio_of_arms([], [1.0], share=0.1) is ratio_of_arms([1.0], [], share=0.1) is None


def test_a_group_that_is_too_small_has_no_interval():
    many, few = [1.0, 2.0] * 500, [1.0, 2.0] * (FEWEST_OF_ARM // 2)
    assert ratio_of_arms(many, few[1:], share=0.1).low is None
    assert ratio_of_arms(few[1:], many, share=0.9).high is None
    whole = ratio_of_arms(many, few, share=0.1)
    assert whole.low < whole.value == 1.0 < whole.high


def test_the_interval_has_the_width_of_the_sequence_that_is_cited():
    """With variances of 1 and groups of half: σ² = n (1/n₁ + 1/n₂) = 4, and the boundary as the paper has it."""
    n, alpha, tuned = 200, 0.05, 200.0
    spread = math.exp(math.sqrt(99 / 100))  # of ± this, the variance with n − 1 is 1
    group = [spread, 1 / spread] * 50
    found = ratio_of_arms(group, group, share=0.5)
    rho = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / tuned
    half = 2 * math.sqrt(2 * (n * rho + 1) / (n * n * rho) * math.log(math.sqrt(n * rho + 1) / alpha))
    assert math.log(found.high) == pytest.approx(half)
    assert math.log(found.low) == pytest.approx(-half)


def test_amounts_that_are_all_scaled_move_the_interval_and_not_its_width():
    rng = random.Random(4)
    through, past = ([rng.lognormvariate(0, 1.2) for _ in range(size)] for size in (900, 100))
    one, other = (ratio_of_arms([scale * each for each in through], past, share=0.1) for scale in (1.0, 0.7))
    assert other.value == pytest.approx(0.7 * one.value)
    assert other.high / other.low == pytest.approx(one.high / one.low)


def missed(streams: int, sessions: int, share: float) -> int:
    """Streams of equal groups in which an interval at any of the looks leaves the truth out."""
    looks, wrong = [round(300 * 1.35**k) for k in range(20) if 300 * 1.35**k <= sessions], 0
    for seed in range(streams):
        rng = random.Random(seed)
        drawn = [(rng.random() < share, rng.lognormvariate(0, 1.2)) for _ in range(sessions)]
        for look in looks:
            through = [bill for held, bill in drawn[:look] if not held]
            past = [bill for held, bill in drawn[:look] if held]
            found = ratio_of_arms(through, past, share=share)
            if found.low is not None and not found.low <= 1.0 <= found.high:
                wrong += 1
                break
    return wrong


def test_looking_again_and_again_it_misses_the_truth_in_no_more_than_one_stream_of_twenty():
    assert missed(200, 1500, 0.1) <= 10
