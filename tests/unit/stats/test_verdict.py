"""What may be said of a system: every verdict, its conditions, and the words of its sentence."""

import random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from context_bench.stats.verdict import Assay, VerdictQuestion, compare, default_margin, judge, noise_floor, weigh

BAD = {"none": [0.0] * 200}
RIGHT = [1.0] * 200


def lossy(share, n=200, seed=1):
    """Scores of a system that loses this share of right answers, evenly spread."""
    rng = random.Random(seed)
    wrong = set(rng.sample(range(n), round(share * n)))
    return [0.0 if i in wrong else 1.0 for i in range(n)]


def test_better():
    found = compare(RIGHT, lossy(0.2), margin=0.02, system="kompact", baseline="full", metric="f1")
    assert found.verdict == "better"
    assert found.difference == pytest.approx(0.2)
    assert found.sentence.startswith("kompact: better than full: f1 +20.0 points (95 % interval ")
    assert "200 examples" in found.sentence
    assert found.p < 0.05


def test_inferior_needs_more_than_the_margin():
    found = compare(lossy(0.2), RIGHT, margin=0.02, system="kompact", baseline="full")
    assert found.verdict == "inferior"
    assert "shown to exceed the margin of 2 points" in found.sentence
    assert found.p < 0.05
    small = compare(lossy(0.05), RIGHT, margin=0.05, known_bad=BAD)
    assert small.verdict == "undecided"
    assert "a loss is shown, but not whether it exceeds the margin of 5 points" in small.sentence


def test_non_inferior_needs_an_arm_that_was_shown_to_lose():
    sure = compare(RIGHT, RIGHT, margin=0.02, known_bad=BAD)
    assert sure.verdict == "non-inferior"
    assert "a loss of 2 points or more is ruled out" in sure.sentence
    assert "the known-bad arm 'none' did show such a loss" in sure.sentence
    assert sure.n_needed is None
    blind = compare(RIGHT, RIGHT, margin=0.02, known_bad={"none": RIGHT, "random_drop": lossy(0.01)})
    assert blind.verdict == "insensitive"
    assert "'none' and 'random_drop'" in blind.sentence
    assert "cannot tell" in blind.sentence
    bare = compare(RIGHT, RIGHT, margin=0.02)
    assert bare.verdict == "insensitive"
    assert "--controls" in bare.sentence


def test_forty_of_forty_is_undecided_and_name_no_number():
    found = compare([1.0] * 40, [1.0] * 40, margin=0.02, known_bad={"none": [0.0] * 40})
    assert found.verdict == "undecided"
    assert found.n_needed is None
    assert "No number of examples can be named from 40 examples: it may take more than 800" in found.sentence
    assert "fewer than 140 examples cannot rule it out" in found.sentence


def test_no_margin_below_nothing_to_lose():
    found = compare(RIGHT, RIGHT, margin=default_margin(0.5, 0.5), known_bad=BAD)
    assert found.margin == 0.0
    assert found.verdict == "insensitive"
    assert "without any context" in found.sentence


@pytest.mark.parametrize(
    ("full", "none", "expected"),
    [(None, None, 0.02), (0.9, None, 0.02), (0.9, 0.1, 0.02), (0.5, 0.4, 0.01), (0.4, 0.5, 0.0)],
)
def test_default_margin(full, none, expected):
    assert default_margin(full, none) == pytest.approx(expected)


def test_few_clusters():
    five = compare([1.0] * 50, [0.0] * 50, [i % 5 for i in range(50)], margin=0.02)
    assert (five.verdict, five.low, five.high, five.p) == ("no verdict", None, None, None)
    assert "too few" in five.sentence
    assert five.difference == 1.0
    eight = compare([1.0] * 64, [0.0] * 64, [i % 8 for i in range(64)], margin=0.02)
    assert eight.verdict == "better"
    assert "Rough: only 8 clusters." in eight.sentence


def test_nothing_in_common():
    found = compare([], [], margin=0.02, excluded=3)
    assert found.verdict == "no verdict"
    assert "no example was scored for both, 3 left out because one side failed" in found.sentence


def test_pairs_must_be_pairs():
    with pytest.raises(ValueError, match="pairs"):
        weigh([1.0], [1.0, 0.0], margin=None)


def test_scores_without_a_range():
    rng = random.Random(3)
    baseline = [rng.gauss(50, 5) for _ in range(60)]
    system = [value + rng.gauss(0.5, 1) for value in baseline]
    assert compare(system, baseline, margin=None).verdict == "no verdict"
    found = compare(system, baseline, margin=2.0, known_bad={"none": [value - 30 for value in baseline]})
    assert found.verdict in ("better", "non-inferior")
    assert "points" not in found.sentence
    lost = compare([value - 5 + rng.gauss(0, 1) for value in baseline], baseline, margin=2.0)
    assert lost.verdict == "inferior"
    constant = compare(baseline, baseline, margin=2.0)
    assert constant.verdict == "no verdict"
    assert "no known range" in constant.sentence


def test_uncalibrated_scores_get_no_verdict():
    evidence = weigh(RIGHT, lossy(0.3), margin=0.02)
    (found,) = judge([VerdictQuestion("kompact", "full", "judge_score", evidence, calibrated=False)])
    assert found.verdict == "no verdict"
    assert "uncalibrated judge" in found.sentence
    assert found.low is not None


def test_failures_that_could_hide_a_loss_stand_against_a_verdict():
    found = judge(
        [
            VerdictQuestion(
                "kompact",
                "full",
                "f1",
                weigh([1.0] * 300, [1.0] * 300, margin=0.02, excluded=30, lost=[1.0] * 30),
                Assay("none"),
            )
        ]
    )[0]
    assert found.verdict == "undecided"
    assert "counted as wrong, 30 failures of kompact would make it -9.1" in found.sentence
    few = judge(
        [
            VerdictQuestion(
                "kompact",
                "full",
                "f1",
                weigh([1.0] * 300, [1.0] * 300, margin=0.02, excluded=1, lost=[1.0]),
                Assay("none"),
            )
        ]
    )[0]
    assert few.verdict == "non-inferior"
    assert "Counting 1 failure of kompact as wrong: -0.3." in few.sentence
    assert few.excluded == 1


def test_holm_over_datasets():
    def question(name, n):
        return VerdictQuestion(
            "kompact", "full", "f1", weigh([1.0] * n, [1.0] * n, margin=0.02), Assay("none"), dataset=name
        )

    (alone,) = judge([question("a", 140)])
    assert alone.verdict == "non-inferior"
    both = judge([question("a", 140), question("b", 150)])
    assert [found.verdict for found in both] == ["undecided", "undecided"]
    assert both[0].p == pytest.approx(2 * judge([question("b", 150)])[0].p) or both[0].p > alone.p
    assert all("Holm-corrected over 2 datasets." in found.sentence for found in both)
    assert "kompact on a:" in both[0].sentence
    large = judge([question("a", 400), question("b", 400)])
    assert {found.verdict for found in large} == {"non-inferior"}


def test_the_shape_is_named():
    (found,) = judge([VerdictQuestion("kompact", "full", "f1", weigh(RIGHT, RIGHT, margin=0.02), shape="claude-code")])
    assert "with claude-code requests" in found.sentence
    assert found.shape == "claude-code"


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=60),
    st.sampled_from([0.01, 0.02, 0.1]),
)
def test_every_sentence_is_whole_and_never_claims_no_loss(pairs, margin):
    system, baseline = [list(side) for side in zip(*pairs, strict=True)]
    found = compare(system, baseline, margin=margin, known_bad={"none": [0.0] * len(pairs)})
    assert found.sentence.endswith(".")
    assert found.verdict.split()[0] in found.sentence
    for word in ("no loss.", "None", "nan", "inf,", "no significant"):
        assert word not in found.sentence
    assert found.difference == pytest.approx(np.mean(system) - np.mean(baseline))
    if found.low is not None:
        assert found.low <= found.difference <= found.high
        assert found.high - found.low > 1e-6
    else:
        assert found.verdict == "no verdict"


@given(st.integers(6, 300), st.integers(0, 30))
def test_more_examples_with_the_same_picture_never_turn_a_verdict_round(n, losses):
    share = min(losses, n) / n
    order = {"inferior": 0, "undecided": 1, "insensitive": 2, "non-inferior": 2}
    first = compare(lossy(share, n), [1.0] * n, margin=0.1, known_bad={"none": [0.0] * n})
    twice = compare(lossy(share, n) * 2, [1.0] * n * 2, margin=0.1, known_bad={"none": [0.0] * n * 2})
    if first.verdict != "undecided":
        assert order[first.verdict] == order[twice.verdict]


def test_noise_floor():
    calm = noise_floor("full", "full#2", "f1", weigh(RIGHT, lossy(0.01), margin=0.02))
    assert "2 of 200 scores changed" in calm
    assert "Other arms are judged pair by pair" in calm
    assert "second answer" not in calm
    used = noise_floor("full", "full#2", "f1", weigh(RIGHT, lossy(0.01), margin=0.02), second_answer=True)
    assert "It is used as the second answer of full." in used
    chance = weigh(RIGHT, lossy(0.03), margin=0.02)  # 6 scores better, none worse: as it happens in 1 of 70 sound runs
    assert chance.p_gain < 0.05
    assert "not stable" not in noise_floor("full", "full#2", "f1", chance)
    storm = noise_floor("full", "full#2", "f1", weigh(RIGHT, lossy(0.2), margin=0.02))
    assert "not stable" in storm
    assert "unknown" in noise_floor("full", "full#2", "f1", weigh([], [], margin=0.02))


def test_a_margin_chosen_after_the_run_is_labelled():
    planned, late = (compare(RIGHT, RIGHT, margin=0.05, known_bad=BAD, margin_post_hoc=late) for late in (False, True))
    assert (planned.verdict, late.verdict) == ("non-inferior", "non-inferior")
    assert (planned.post_hoc, late.post_hoc) == (False, True)
    assert "chosen after" not in planned.sentence
    assert late.sentence == f"{planned.sentence} Margin chosen after the run: exploratory."
    both = judge(
        [
            VerdictQuestion(
                "s", "full", "f1", weigh(RIGHT, RIGHT, margin=0.05), Assay("none"), chosen_after="margin and score"
            )
        ]
    )[0]
    assert both.sentence.endswith("Margin and score chosen after the run: exploratory.")


def test_a_family_says_what_it_is_corrected_over():
    def question(system, dataset, n=400):
        return VerdictQuestion(
            system, "full", "f1", weigh([1.0] * n, [1.0] * n, margin=0.02), Assay("none"), dataset=dataset
        )

    def said(*pairs):
        return {
            found.sentence.partition("Holm-corrected over ")[2] for found in judge([question(*pair) for pair in pairs])
        }

    assert said(("a", "x")) == {""}
    assert said(("a", "x"), ("a", "y")) == {"2 datasets."}
    assert said(("a", None), ("b", None), ("c", None)) == {"3 systems."}
    assert said(("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")) == {"2 systems and 2 datasets."}
    empty = VerdictQuestion("a", "full", "f1", weigh([], [], margin=0.02, excluded=1), dataset="y")
    assert "Holm" not in judge([question("a", "x"), empty])[0].sentence


def test_what_comes_in_clusters_says_how_many_would_decide():
    found = compare(
        [1.0] * 600, [1.0] * 600, [i // 6 for i in range(600)], margin=0.02, known_bad={"none": [0.0] * 600}
    )
    assert found.verdict == "undecided"
    assert found.n_needed >= 149 * 6
    assert (
        f"About {found.n_needed:,} examples in {-(-found.n_needed // 6):,} such clusters would decide" in found.sentence
    )
    assert "149 of them are the least that can rule out 2 points" in found.sentence


def test_noise_does_not_make_up_for_documents_that_were_not_seen():
    """Changes for better and worse come singly here; that says nothing about documents lost as a whole, and only 20
    were looked at.
    """
    rng = random.Random(5)
    baseline = [float(rng.random() < 0.7) for _ in range(400)]
    system = [float(rng.random() < 0.7) if rng.random() < 0.02 else score for score in baseline]
    known_bad = {"none": [0.0] * 400}
    assert compare(system, baseline, margin=0.03, known_bad=known_bad).verdict == "non-inferior"
    assert (
        compare(system, baseline, [i // 20 for i in range(400)], margin=0.03, known_bad=known_bad).verdict
        == "undecided"
    )
