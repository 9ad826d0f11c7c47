"""The noise floor as the baseline's second answer: declared before the first call, and in every difference from it."""

import json
from dataclasses import replace

import pytest

from context_bench import evaluate
from context_bench.comparison import spreads, within
from context_bench.engine import Arm, RunSettings, execute, open_store, run_of, set_manifest
from context_bench.evaluators import AnswerQuality
from context_bench.metrics import MeanScore
from context_bench.results import EvalResult
from context_bench.runner import collect

EXAMPLES = [{"id": i, "context": f"Box {i}.", "question": f"Box {i}?", "answer": str(i)} for i in range(200)]
ROLES = {"full": "baseline", "again": "noise_floor", "none": "known_bad"}


class Answers:
    """Answers right, except for examples whose number leaves one of `wrong` when divided by 20."""

    def __init__(self, name, *wrong):
        self.name, self.wrong = name, wrong

    def process(self, example):
        return {**example, "response": "?" if example["id"] % 20 in self.wrong else example["answer"]}

    def fingerprint(self):
        return {"wrong": self.wrong}


def ask(*systems, **more):
    roles = {system.name: ROLES[system.name] for system in systems if system.name in ROLES}
    return evaluate(
        list(systems), EXAMPLES, AnswerQuality(), [MeanScore(score_field="f1")], progress=False, roles=roles, **more
    )


NONE = Answers("none", *range(20))


def test_differences_are_from_the_mean_of_both_answers():
    result = ask(Answers("mine"), Answers("full", 0, 1), Answers("again", 1, 2), NONE)
    assert result.manifest["design"]["second_baseline"] == {"full": "again"}
    told = {one.system: one for one in result.comparisons}
    assert told["mine"].difference == pytest.approx(0.1)
    assert told["again"].difference == pytest.approx(0.0)
    assert told["again"].sentence.startswith("Noise floor: again is full again;")
    assert "20 of 200 scores changed" in told["again"].sentence
    assert any("again is the second answer of full, as declared before the run" in note for note in result.notes)
    once = ask(Answers("mine"), Answers("full", 0, 1), NONE)
    assert "design" not in once.manifest
    assert told["mine"].high - told["mine"].low < once.comparisons[0].high - once.comparisons[0].low


def test_an_answer_that_failed_leaves_the_first_one():
    class Fails(Answers):
        def process(self, example):
            if example["id"] % 20 < 10:
                raise RuntimeError("no")
            return super().process(example)

    result = ask(Answers("mine"), Answers("full", 0, 15), Fails("again", 15), NONE)
    told = {one.system: one for one in result.comparisons}
    assert (told["mine"].n, told["mine"].difference) == (200, pytest.approx(0.1))


def test_a_gate_and_a_plan_go_by_the_same_differences(tmp_path):
    result = ask(Answers("mine", 3), Answers("full", 0), Answers("again", 1), NONE)
    kept = EvalResult.from_json(result.to_json())
    mine = next(one for one in result.comparisons if one.system == "mine")
    [again] = within(kept, metric="f1", margin=0.02).comparisons
    assert (again.difference, again.low, again.high) == pytest.approx((mine.difference, mine.low, mine.high))
    [spread] = spreads(kept)
    assert spread["forecast"].n == mine.n_needed


async def test_an_arm_on_part_of_the_examples_is_no_second_answer(tmp_path):
    manifest = {
        "cells": [
            {
                "systems": ["mine", "full", "again"],
                "baseline": "full",
                "controls": ["full", "again"],
                "roles": {
                    "mine": {"role": "candidate"},
                    "full": {"role": "baseline"},
                    "again": {"role": "noise_floor", "of": "full"},
                },
            }
        ]
    }
    store = open_store(tmp_path / "s.db")
    arms = [Arm(Answers("mine")), Arm(Answers("full", 0)), Arm(Answers("again", 1))]
    settings = RunSettings()

    async def go(name, arms):
        return await execute(
            store, name=name, arms=arms, examples=EXAMPLES, evaluators=[AnswerQuality()], manifest=manifest,
            settings=settings,
        )  # fmt: skip

    await go("part", [*arms[:2], replace(arms[2], every=3)])
    assert "design" not in run_of(store, "part").manifest
    await go("whole", arms)
    record = run_of(store, "whole")
    assert record.manifest["design"] == {"second_baseline": {"full": "again"}}
    # a run that was begun without the declaration goes on without it
    set_manifest(store, record.id, {k: v for k, v in record.manifest.items() if k != "design"})
    await go("whole", arms)
    manifest = run_of(store, "whole").manifest
    assert "design" not in manifest
    assert not any("second answer" in note for note in collect(store, "whole", [MeanScore("f1")]).notes)
    assert json.dumps(manifest)
    store.close()
