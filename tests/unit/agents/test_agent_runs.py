"""Figures of agents' runs against counts made by hand, and verdicts without one task against the run's own."""

import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from context_bench.agents import agent_runs
from context_bench.agents.figures import (
    AgentRun,
    Contest,
    amounts_against,
    by_task,
    cost_per_solved_against,
    figures,
    flips,
)
from context_bench.core.records import EvalRow
from context_bench.core.roles import ArmRole
from context_bench.engine.run_summary import summarise
from context_bench.metrics import MeanScore
from context_bench.stats import bounded
from context_bench.stats.verdict import compare


def run(task, solved=1.0, trial=0, **more):
    return AgentRun(("d", task), trial, task, solved, **more)


def test_an_arm_in_numbers():
    runs = [
        run("a", 1.0, cost=1.0, calls=3, reads=4, again=1),
        run("a", 0.0, 1, cost=3.0, calls=9, abort="step limit", reads=4, again=3),
        run("b", 1.0, cost=2.0, calls=6),
        run("b", None, 1, cost=9.0, calls=1),
    ]
    told = figures(runs)
    assert (told["runs"], told["tasks"], told["solved"], told["aborted"], told["failures"]) == (4, 2, 2, 1, 1)
    assert told["aborts"] == {"step limit": 1}
    assert (told["cost_sum"], told["cost_median"], told["calls_mean"], told["cost_per_solved"]) == (6.0, 2.0, 6.0, 3.0)
    assert told["reread_share"] == 0.5
    assert "tokens_sum" not in told


def verdict_on_solving(verdict):
    """A comparison of which only the verdict is read."""
    return replace(compare([1.0] * 20, [1.0] * 20, margin=0.1), verdict=verdict)


def test_cost_per_solved_is_a_ratio_with_an_interval_and_a_verdict_of_two_halves():
    rng = random.Random(2)
    costs = [rng.lognormvariate(0, 0.2) for _ in range(20)]
    base = [run(str(i), float(i % 4 > 0), cost=cost) for i, cost in enumerate(costs)]
    arm = [run(str(i), float(i % 4 > 0), cost=cost * rng.lognormvariate(-0.5, 0.1)) for i, cost in enumerate(costs)]
    found = cost_per_solved_against(arm, base, verdict_on_solving("non-inferior"))
    ratio = sum(one.cost for one in arm) / sum(one.cost for one in base)
    assert found["ratio"] == pytest.approx(ratio)  # both solved the same tasks
    assert found["low"] < ratio < found["high"] < 1
    assert (found["verdict"], found["n"]) == ("cheaper", 20)
    open_still = cost_per_solved_against(arm, base, verdict_on_solving("undecided"))
    assert open_still["verdict"] == "undecided"
    assert "solving is undecided" in open_still["sentence"]
    assert cost_per_solved_against(base, arm, verdict_on_solving("non-inferior"))["verdict"] == "dearer"
    same = cost_per_solved_against(base, base, verdict_on_solving("non-inferior"))
    assert (same["ratio"], same["verdict"]) == (1.0, "undecided")
    assert cost_per_solved_against(arm[:5], base[:5], None) == {}  # five clusters
    unsolved = [run(str(i), 0.0, cost=1.0) for i in range(20)]
    assert cost_per_solved_against(unsolved, base, None) == {}


def test_cost_per_solved_counts_what_was_spent_on_tasks_that_were_not_solved():
    base = [run(str(i), 1.0, cost=1.0) for i in range(20)]
    arm = [run(str(i), float(i < 10), cost=0.6 + 0.01 * i) for i in range(20)]
    found = cost_per_solved_against(arm, base, verdict_on_solving("inferior"))
    assert found["ratio"] == pytest.approx(sum(0.6 + 0.01 * i for i in range(20)) / 10)
    assert found["verdict"] != "cheaper"


def test_money_as_ratio_of_sums_and_as_median_can_disagree_and_the_task_is_named():
    base = [run(name, cost=1.0) for name in "abcdefg"] + [run("giant", cost=100.0)]
    arm = [run(name, cost=1.5) for name in "abcdefg"] + [run("giant", cost=50.0)]
    told = amounts_against(arm, base)["cost"]
    assert told["ratio"] == pytest.approx(60.5 / 107)
    assert told["median"] == 1.5
    assert told["median_low"] <= 1.5 <= told["median_high"]
    assert told["side_without"] == ["giant"]
    assert told["low"] < told["ratio"] < told["high"]
    assert (told["n"], told["tasks"]) == (8, 8)


def test_pairs_where_one_side_failed_or_was_not_measured_are_left_out():
    base = [run("a", cost=1.0), run("a", None, 1, cost=5.0), run("b", cost=4.0), run("c", cost=2.0)]
    arm = [run("a", cost=2.0), run("a", 1.0, 1, cost=5.0), run("b", cost=None), run("x", cost=1.0)]
    told = amounts_against(arm, base)
    assert told["cost"]["ratio"] == 2.0
    assert told["cost"]["n"] == 1
    assert "low" not in told["cost"]  # one cluster
    assert set(told) == {"cost"}


def rows_of(table):
    """Rows of an engine's run: arm → task → one score per trial, `None` for a failure."""
    for name, tasks in table.items():
        for task, scores in tasks.items():
            for trial, score in enumerate(scores):
                errors = {"system": "SetupFailed: x"} if score is None else {}
                scored = {} if score is None else {"solved": score}
                yield EvalRow(name, task, scored, dataset="d", trial=trial, cluster=f"c{task}", errors=errors)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32), st.integers(7, 16), st.integers(1, 3), st.sampled_from([0.05, 0.1, 0.3]))
def test_verdicts_without_a_task_are_those_of_a_run_without_it(seed, count, trials, margin):
    chance = random.Random(seed)
    rates = {"base": 0.8, "hr": chance.choice([0.2, 0.6, 0.8]), "slow": chance.choice([0.5, 0.9]), "none": 0.0}
    table = {
        arm: {f"t{task}": [float(chance.random() < rate) for _ in range(trials)] for task in range(count)}
        for arm, rate in rates.items()
    }

    def engine(tables):
        rows = list(rows_of(tables))
        found = summarise(
            lambda name: [row for row in rows if row.system == name],
            list(tables),
            [MeanScore(score_field="solved")],
            score_field="solved",
            baseline="base",
            margin=margin,
            roles={"none": ArmRole("known_bad", "none")},
        )
        return {each.system: (each.verdict, each.difference, each.low, each.high) for each in found.comparisons}

    runs = {name: [AgentRun.of(row) for row in rows_of({name: tasks})] for name, tasks in table.items()}
    contest = Contest("base", ["hr", "slow"], ["none"], margin)

    def ours(without=()):
        return {
            name: (one.verdict, one.difference, one.low, one.high)
            for name, one in contest.verdicts(runs, without).items()
        }

    whole = engine(table)
    for name, told in ours().items():
        assert told[0] == whole[name][0]
        assert told[1:] == pytest.approx(whole[name][1:])
    gone = f"t{chance.randrange(count)}"
    less = engine({arm: {task: own for task, own in tasks.items() if task != gone} for arm, tasks in table.items()})
    for name, told in ours({("d", gone)}).items():
        assert told[0] == less[name][0]


def test_a_task_that_decides_alone_is_named():
    solved = {"base": [1.0] * 12, "hr": [1.0] * 12, "none": [0.0] * 12}
    runs = {name: [run(f"t{n}", score) for n, score in enumerate(scores)] for name, scores in solved.items()}
    runs["hr"] = [one if one.task[1] != "t3" else run("t3", 0.0) for one in runs["hr"]]
    for margin in (0.2, 0.25, 0.3, 0.35):
        told = flips(Contest("base", ["hr"], ["none"], margin), runs)["hr"]
        if told["without"].get("t3") == "non-inferior":
            assert told["verdict"] == "undecided"
            assert "t4" not in told["without"]
            return
    raise AssertionError("no margin at which the task that was lost decides")


def test_task_by_task():
    runs = {"base": [run("a", cost=1.0), run("b", 0.0)], "hr": [run("a", 0.0, abort="time limit")]}
    first, second = by_task(runs)
    assert first["task"] == "a"
    assert first["arms"]["base"]["solved"] == 1
    assert first["arms"]["hr"]["aborts"] == {"time limit": 1}
    assert list(second["arms"]) == ["base"]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 1e6), st.floats(0.01, 1e6)), min_size=1, max_size=30))
def test_ratios_lie_where_they_must(pairs):
    arm, base = ([run(f"t{n}", cost=pair[side]) for n, pair in enumerate(pairs)] for side in (0, 1))
    told = amounts_against(arm, base)["cost"]
    ratios = [mine / theirs for mine, theirs in pairs]
    assert min(ratios) * (1 - 1e-9) <= told["ratio"] <= max(ratios) * (1 + 1e-9)
    assert min(ratios) <= told["median"] <= max(ratios)
    assert math.isclose(
        told["ratio"], sum(mine for mine, _ in pairs) / sum(theirs for _, theirs in pairs), rel_tol=1e-9
    )


def test_the_note_on_few_tasks_tells_shares_that_hold():
    """Derived anew: abilities Beta(.6, .45) as in `benchmarks/coverage.py agents`, two arms alike, margin 10 points."""
    said = re.search(
        r"about (\d+) % of runs of (\d+) tasks of (\d) trials, in (\d+) % of (\d+), in (\d+) % of (\d+)",
        agent_runs._FEW_TASKS,
    )
    assert said is not None
    first, tasks, trials, *others = map(int, said.groups())
    assert f"Fewer than {agent_runs._ENOUGH_TASKS} tasks" in agent_runs._FEW_TASKS
    rng, runs = np.random.default_rng(20), 1200
    for told, count in ((first, tasks), *zip(others[::2], others[1::2], strict=True)):
        ability = rng.beta(0.6, 0.45, (runs, count))
        base, arm = (rng.binomial(trials, ability) / trials for _ in range(2))
        found = (bounded(d, np.arange(count), low=-1, high=1, guarded=True) for d in arm - base)
        cleared = [each.p_harmless(0.1) < 0.05 for each in found]
        share = told / 100
        assert abs(sum(cleared) / runs - share) < 0.01 + 3 * math.sqrt(share * (1 - share) / runs), (told, count)
