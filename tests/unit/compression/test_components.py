"""Variance components: known ones are found again, and the advice points at the largest."""

import random

import pytest

from context_bench.compression.drift import Observation, components


def made(sessions=60, compressions=3, probes=5, answers=3, judgements=2, *, sd=(0.2, 0.1, 0.15, 0.05), seed=0):
    draw = random.Random(seed)
    offsets = [draw.gauss(0, 0.3) for _ in range(probes)]  # some probes are harder, for every system and answer
    for session in range(sessions):
        at = draw.gauss(0.5, sd[0])
        for compression in range(compressions):
            there = at + draw.gauss(0, sd[1])
            for probe in range(probes):
                for answer in range(answers):
                    said = there + offsets[probe] + draw.gauss(0, sd[2])
                    for judgement in range(judgements):
                        yield Observation(session, compression, probe, answer, judgement, said + draw.gauss(0, sd[3]))


def test_known_components_are_found_again():
    found = components(made(400))
    for name, sd in zip(("session", "compressor", "answer", "judge"), (0.2, 0.1, 0.15, 0.05), strict=True):
        assert found.level(name).variance == pytest.approx(sd**2, rel=0.2), name
    predicted = 0.04 / 400 + 0.01 / 1200 + 0.0225 / (1200 * 3 * 5) + 0.0025 / (1200 * 3 * 5 * 2)
    assert found.se == pytest.approx(predicted**0.5, rel=0.1)
    assert sum(level.share for level in found.levels) == pytest.approx(1)
    assert "sessions" in found.advice.split(":")[0]


def test_what_was_never_repeated_is_not_made_up():
    found = components(made(compressions=1, answers=1, judgements=1))
    assert found.level("compressor").variance is None
    assert found.level("answer").variance is None
    assert found.level("session").share == 1
    assert "compressions of each point" in found.advice
    assert "not told apart" in found.advice


def test_advice_goes_where_the_variance_is():
    found = components(made(sd=(0.01, 0.5, 0.01, 0.01)))
    assert found.level("compressor").share > 0.9
    assert found.advice.split(":")[0].endswith("compressions of each point")
    assert found.level("compressor").se_if_doubled < found.level("answer").se_if_doubled
    doubled = components(made(sessions=120, sd=(0.2, 0.0, 0.1, 0.0)))
    assert doubled.level("session").se_if_doubled == pytest.approx(doubled.se / 2**0.5)


def test_one_session_says_nothing():
    assert components(made(sessions=1)) is None
    assert components([]) is None
    same = components(Observation(s, 0, 0, 0, 0, 1.0) for s in range(5))
    assert same.se == 0
    assert "All scores agree" in same.advice
