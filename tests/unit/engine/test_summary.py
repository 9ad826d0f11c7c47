"""From rows to summary, estimates, comparisons, failures, notes."""

import random
import tracemalloc
from dataclasses import replace

import pytest

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.records import EvalRow, plain
from context_bench.core.roles import roles_of_old_names
from context_bench.engine.run_summary import summarise
from context_bench.metrics import CompressionRatio, CostOfPass, Latency, MeanScore, PassRate, PerDatasetBreakdown

METRICS = [MeanScore("f1"), PassRate(0.7, "f1"), CompressionRatio(), CostOfPass(0.7, "f1"), Latency()]
TIMED_OUT = {"system": "TimedOut: no answer in 30 s"}


def row(system, number, score=1.0, **more):
    given = {"input_tokens": 1000, "output_tokens": 1000, "latency": 1.0, "dataset": "d", **more}
    scores = {} if score is None else {"f1": score}
    return EvalRow(system, given.pop("example_id", number), given.pop("scores", scores), **given)


def result(by_system, **settings):
    settings = {"score_field": "f1", **settings}
    metrics = settings.pop("metrics", METRICS)
    settings["roles"] = roles_of_old_names(by_system, settings.get("baseline"), settings.pop("controls", ()))
    return summarise(lambda name: iter(by_system[name]), list(by_system), metrics, **settings)


def arms(n=200, **scores):
    """Rows of several systems; each score is a number or a function of the example's number."""
    return {
        name.replace("full_2", "full#2").replace("_at_", "@"): [
            row(name, i, score(i) if callable(score) else score) for i in range(n)
        ]
        for name, score in scores.items()
    }


def verdicts(found):
    return {comparison.system: comparison.verdict for comparison in found.comparisons}


def test_a_run_with_controls():
    found = result(
        arms(full=1.0, full_2=1.0, kompact=1.0, none=0.0, lossy=lambda i: float(i % 4 > 0)),
        baseline="full",
        controls=["full", "full#2", "none"],
    )
    told = verdicts(found)
    assert (told["kompact"], told["none"], told["lossy"]) == ("non-inferior", "inferior", "inferior")
    noise = next(comparison for comparison in found.comparisons if comparison.system == "full#2")
    assert noise.sentence.startswith("Noise floor: full#2 is full again")
    assert found.summary["lossy"]["mean_score"] == 0.75
    estimate = found.estimates["lossy"]["mean_score"]
    assert estimate == found.estimates["lossy"]["f1"]
    assert (estimate.value, estimate.n, estimate.failures, estimate.method) == (0.75, 200, 0, "Wilson")
    assert estimate.low < 0.75 < estimate.high
    passed = found.estimates["lossy"]["pass_rate"]
    assert (passed.value, passed.n) == (found.summary["lossy"]["pass_rate"], 200)


def test_baseline_is_full_else_the_first_else_the_one_named():
    systems = arms(kompact=1.0, full=1.0, other=1.0)
    assert {comparison.baseline for comparison in result(systems).comparisons} == {"full"}
    assert {comparison.baseline for comparison in result(arms(a=1.0, b=1.0)).comparisons} == {"a"}
    assert {comparison.baseline for comparison in result(systems, baseline="other").comparisons} == {"other"}
    with pytest.raises(UnknownName, match="fill"):
        result(systems, baseline="fill")


def test_one_system_is_not_compared_and_the_note_says_how_it_would_be():
    found = result(arms(kompact=1.0))
    assert found.comparisons == []
    assert any("--controls" in note for note in found.notes)


def test_random_drop_of_another_proxy_is_no_proof():
    systems = arms(full=1.0, kompact=1.0, headroom=1.0) | {
        "random_drop@headroom": [row("r", i, 0.0) for i in range(200)]
    }
    found = verdicts(result(systems, controls=["full", "random_drop@headroom"]))
    assert found["headroom"] == "non-inferior"
    assert found["kompact"] == "insensitive"


def test_the_known_bad_arm_must_lose_on_the_same_examples():
    systems = arms(full=1.0, kompact=1.0, none=lambda i: float(i < 200), n=400)
    systems["kompact"] = systems["kompact"][:200]
    assert verdicts(result(systems, controls=["none"]))["kompact"] == "insensitive"


def test_margin_is_a_tenth_of_what_the_context_is_worth():
    found = result(
        arms(full=lambda i: float(i % 10 > 0), none=lambda i: float(i % 10 > 1), kompact=1.0), controls=["none"]
    )
    assert [comparison.margin for comparison in found.comparisons] == [pytest.approx(0.01)] * 2
    assert {comparison.margin for comparison in result(arms(full=1.0, kompact=1.0)).comparisons} == {0.02}
    assert {comparison.margin for comparison in result(arms(full=1.0, kompact=1.0), margin=0.1).comparisons} == {0.1}


def test_pairs_with_a_failure_are_left_out_and_counted():
    systems = arms(full=1.0, kompact=1.0, none=0.0)
    for i in range(3):
        systems["kompact"][i] = row("kompact", i, None, errors=TIMED_OUT)
    systems["full"][5] = row("full", 5, None, errors={"answer_quality": "EvaluatorFailed: x"})
    found = result(systems, controls=["none"])
    comparison = found.comparisons[0]
    assert (comparison.n, comparison.excluded) == (196, 4)
    estimate = found.estimates["kompact"]["f1"]
    assert (estimate.n, estimate.failures) == (197, 3)
    assert (estimate.worst, estimate.best) == (pytest.approx(0.985), 1.0)
    assert found.failures == {
        "kompact": {"system": {"TimedOut": 3}},
        "full": {"answer_quality": {"EvaluatorFailed": 1}},
    }
    assert "kompact: 3 of 200 rows failed (TimedOut 3)." in found.notes


def test_rows_without_gold_are_counted_in_a_note():
    def told(system, unscored):
        return [row(system, number, None if number in unscored else 1.0) for number in range(12)]

    noted = result({"full": told("full", range(4)), "b": told("b", range(4))}).notes
    said = "4 of the 12 rows of each system are not in f1, though nothing failed: as a rule their examples have no gold"
    assert [note for note in noted if note.startswith(said)]
    noted = result({"full": told("full", range(4)), "b": told("b", range(2))}).notes
    assert any("2 to 4 of the 12 rows" in note for note in noted)
    noted = result({"full": told("full", [3]), "b": told("b", [3])}).notes
    assert any(
        "1 of the 12 rows of each system is not in f1" in note and "its example has no gold" in note for note in noted
    )
    assert not any("gold" in note for note in result({"full": told("full", ()), "b": told("b", ())}).notes)


def test_pairing_is_by_dataset_example_position_and_trial_not_by_order():
    first = [row("a", i, float(i % 2)) for i in range(50)]
    second = [row("b", i, float(i % 2)) for i in reversed(range(50))]
    found = result({"a": first, "b": second})
    assert found.comparisons[0].difference == 0.0
    assert found.comparisons[0].low > -0.12  # unmatched, half of all pairs would differ


def test_equal_ids_stay_apart():
    """0, 0 and "0" are three examples."""
    rows = {
        name: [
            row(name, i, score, example_id=identity)
            for i, (identity, score) in enumerate([(0, 1.0), (0, 0.0), ("0", 1.0)] * 4)
        ]
        for name in ("a", "b")
    }
    found = result(rows)
    assert found.comparisons[0].n == 12
    assert found.comparisons[0].difference == 0.0
    assert found.estimates["a"]["f1"].clusters == 12


def test_trials_are_averaged_before_anything_else():
    rng = random.Random(2)
    systems = {
        name: [row(name, i, float(rng.random() < 0.5), trial=trial) for i in range(40) for trial in range(5)]
        for name in ("a", "b")
    }
    found = result(systems)
    assert found.comparisons[0].n == 40
    assert found.estimates["a"]["f1"].n == 200
    assert found.estimates["a"]["f1"].clusters == 40
    assert any("asked 5 times" in note for note in found.notes)


def test_clusters_are_drawn_together():
    rng = random.Random(4)
    good = {f"c{i}": float(rng.random() < 0.5) for i in range(20)}
    together = [row("a", i, good[f"c{i // 10}"], cluster=f"c{i // 10}") for i in range(200)]
    apart = [row("b", i, good[f"c{i // 10}"]) for i in range(200)]
    found = result({"a": together, "b": apart})
    wide, narrow = found.estimates["a"]["f1"], found.estimates["b"]["f1"]
    assert (wide.clusters, narrow.clusters) == (20, 200)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert wide.method == "Wilson, clustered"


def test_fewer_than_six_clusters_give_no_interval():
    systems = {name: [row(name, i, 1.0, group=f"g{i % 5}") for i in range(100)] for name in ("full", "a")}
    found = result(systems)
    assert all(estimate.low is None for estimate in found.estimates["a"].values())
    assert found.comparisons[0].verdict == "no verdict"
    assert "(at least 6 independent ones are needed)" in found.comparisons[0].sentence
    assert not any("interval" in note for note in found.notes)  # it is said once
    alone = result({"a": systems["a"]})
    assert "Only 5 clusters of examples: with fewer than 6 no interval is given, for it would mislead." in alone.notes


def test_few_clusters_are_told_once_and_of_the_system_that_they_are_of():
    """As in the demo: the second answer is asked of every third example, so it has 8 clusters where others have 12."""
    few = {name: [row(name, i, 1.0 - i % 2, cluster=f"c{i // 2}") for i in range(24)] for name in ("full", "a")}
    few["full#2"] = [
        one for one in (row("full#2", i, 1.0, cluster=f"c{i // 2}") for i in range(24)) if one.example_id % 3 == 0
    ]
    found = result(few)
    said = {each.system: each.sentence for each in found.comparisons}
    assert {name: known["f1"].clusters for name, known in found.estimates.items()} == {"full": 12, "a": 12, "full#2": 8}
    assert "24 examples in 12 clusters" in said["a"]
    assert not any("Rough" in each for each in said.values())
    assert [note for note in found.notes if "rough" in note] == [
        "Intervals of full#2 are rough: only 8 clusters of examples."
    ]
    held = result({"full": few["full"], "b": [replace(one, system="b") for one in few["full#2"]]})
    assert "Rough: only 8 clusters." in held.comparisons[0].sentence
    assert not any("rough" in note for note in held.notes)
    assert "Intervals are rough: only 8 clusters of examples." in result({"b": few["full#2"]}).notes


def test_several_datasets_are_compared_each_and_together():
    systems = {name: [row(name, i, 1.0, dataset=f"d{i % 2}") for i in range(100)] for name in ("full", "a")}
    found = result(systems)
    assert [comparison.dataset for comparison in found.comparisons] == [None, "d0", "d1"]
    assert [comparison.n for comparison in found.comparisons] == [100, 50, 50]


def test_scores_of_one_dataset_are_not_owed_by_another():
    rows = [row("a", i, dataset="qa") for i in range(10)] + [
        row("a", i, None, scores={"mc": 1.0}, dataset="mc") for i in range(10)
    ]
    rows.append(row("a", 99, None, dataset="mc", errors=TIMED_OUT))
    found = result({"a": rows})
    assert found.estimates["a"]["f1"].failures == 0
    assert found.estimates["a"]["mc"].failures == 1


def test_a_score_that_no_row_has_is_an_error_that_lists_the_known_ones():
    with pytest.raises(BadInput, match=r"'f1_typo'.*there are: exact_match, f1"):
        result({"a": [row("a", 1, None, scores={"f1": 1.0, "exact_match": 1.0})]}, score_field="f1_typo")
    with pytest.raises(BadInput, match="'f2'"):
        result(arms(a=1.0), metrics=[PassRate(score_field="f2")])


def test_a_run_without_any_score_is_no_error():
    found = result({name: [row(name, i, None) for i in range(10)] for name in ("a", "b")})
    assert any("gold answer" in note for note in found.notes)
    assert found.estimates["a"]["compression_ratio"].value == 0.0
    failed = result(
        {
            "a": [
                row("a", i, None, errors=TIMED_OUT, input_tokens=None, output_tokens=None, latency=None)
                for i in range(10)
            ]
        }
    )
    assert failed.estimates["a"] == {}


@pytest.mark.parametrize("judged", ["judge_score", "memory_judge", "memory_judge_raw", "false_memory"])
def test_uncalibrated_judge_scores_are_estimated_but_get_no_verdict(judged):
    systems = {
        name: [row(name, i, None, scores={judged: score}) for i in range(100)]
        for name, score in (("full", 1.0), ("a", 0.25))
    }
    found = result(systems, score_field=judged, metrics=[MeanScore(judged)])
    assert found.comparisons[0].verdict == "no verdict"
    assert found.estimates["a"][judged].low is not None
    calibrated = result(systems, score_field=judged, metrics=[MeanScore(judged)], uncalibrated=[])
    assert calibrated.comparisons[0].verdict == "inferior"


def test_tokens_money_and_time_have_intervals():
    rng = random.Random(1)
    rows = [
        row("a", i, output_tokens=rng.randrange(300, 700), latency=rng.random(), usage={"cost": 0.001, "ttft": 0.1})
        for i in range(60)
    ]
    rows += [row("a", 100, None, errors=TIMED_OUT, output_tokens=None, latency=30.0)]
    told = result({"a": rows}).estimates["a"]
    assert told["compression_ratio"].low < told["compression_ratio"].value < told["compression_ratio"].high
    assert told["compression_ratio"].value == pytest.approx(1 - sum(r.output_tokens for r in rows[:60]) / 60_000)
    assert told["compression_ratio"].n == 60
    assert told["cost_usd"].value == pytest.approx(0.001)
    assert told["mean_input_tokens"].value == 1000
    assert told["latency_median"].low < told["latency_median"].value < told["latency_median"].high < 1
    assert told["ttft_median"].value == 0.1


@pytest.mark.parametrize("name", ["cost", "cost_usd", "usd"])
def test_a_cost_under_any_of_its_names_has_an_interval(name):
    rows = [row("a", i, usage={name: 0.001 + i / 1e6}) for i in range(60)]
    assert result({"a": rows}).estimates["a"]["cost_usd"].value == pytest.approx(0.0010295)


def test_a_mean_cost_that_few_rows_make_is_called_so():
    rng = random.Random(4)

    def spent(sigma):
        return [row("a", i, usage={"cost": 0.01 * rng.lognormvariate(0, sigma)}) for i in range(60)]

    even, dear = result({"a": spent(0.5)}), result({"a": spent(2.0)})
    assert "a few dear rows make the mean cost" in " ".join(dear.notes)
    assert "dear" not in " ".join(even.notes)
    cost = dear.estimates["a"]["cost_usd"]
    assert cost.method == "cluster bootstrap, corrected for skewness"
    assert cost.high - cost.value > 1.5 * (cost.value - cost.low)


def test_unknown_tokens_are_absent():
    told = result({"a": [row("a", i, output_tokens=None) for i in range(10)]}).estimates["a"]
    assert "compression_ratio" not in told
    assert "mean_output_tokens" not in told
    assert "cost_usd" not in told
    assert told["mean_input_tokens"].value == 1000


def test_wire_facts_are_added_up():
    wire = {
        "sent": 100,
        "forwarded": 60,
        "billed": 61,
        "calls": 2,
        "client_calls": 1,
        "role_changes": 1,
        "param_changes": 0,
        "exact": True,
    }
    wire |= {
        "changes": [{"kind": "role", "detail": "message 1: system → user"}],
        "authorization_forwarded": True,
        "truncated": False,
    }
    rows = [row("a", i, wire=wire) for i in range(10)] + [
        row("a", 10, wire=wire | {"authorization_forwarded": False, "exact": False})
    ]
    found = result({"a": rows, "b": [row("b", 0)]}).wire
    assert list(found) == ["a"]
    assert found["a"]["sent"] == 1100
    assert found["a"]["forwarded"] == 660
    assert found["a"]["calls_per_request"] == 2.0
    assert found["a"]["role_changes"] == 11
    assert found["a"]["changes"] == {"role: message 1: system → user": 11}
    assert found["a"]["authorization_forwarded"] == pytest.approx(10 / 11)
    assert found["a"]["exact"] is False


def test_metrics_of_users_get_the_list_of_one_systems_rows():
    class Count:
        name = "count"

        def compute(self, rows):
            assert isinstance(rows, list)
            return {"count": float(len(rows)), "mean_score": 7.0}

    found = result(arms(a=1.0, b=1.0, n=10), metrics=[MeanScore("f1"), Count()])
    assert found.summary == {name: {"mean_score": 7.0, "count": 10.0} for name in ("a", "b")}


def test_a_metric_of_a_user_that_fails_is_told_and_costs_only_itself():
    class Unlucky:
        name = "unlucky"

        def compute(self, rows):
            return {"unlucky": 1 / (len(rows) - 10)}

    found = result(arms(a=1.0, b=1.0, n=10), metrics=[MeanScore("f1"), Unlucky()])
    assert found.summary == {name: {"mean_score": 1.0} for name in ("a", "b")}
    said = "metric 'unlucky' failed and is left out (ZeroDivisionError: division by zero)."
    assert [note for note in found.notes if "unlucky" in note] == [f"a: {said}", f"b: {said}"]


def test_an_evaluator_that_fails_more_on_one_system_is_named():
    systems = {name: [row(name, i) for i in range(100)] for name in ("full", "a")}
    for i in range(30):
        systems["a"][i] = row("a", i, errors={"llm_judge": "JudgeUnreadable: ?"})
    assert any(note.startswith("llm_judge failed on some systems more often") for note in result(systems).notes)


def test_shapes_are_never_paired_with_one_another():
    systems = {
        "full": [row("full", i, 1.0, metadata={"shape": "plain-user"}) for i in range(20)],
        "a": [row("a", i, 0.0, metadata={"shape": "claude-code"}) for i in range(20)],
    }
    assert result(systems).comparisons[0].n == 0
    systems["a"] = [row("a", i, 1.0, metadata={"shape": "plain-user"}) for i in range(20)]
    (same,) = result(systems).comparisons
    assert (same.n, same.shape) == (20, "plain-user")
    assert "with plain-user requests" in same.sentence


def test_same_rows_same_result():
    systems = arms(full=lambda i: (i % 7) / 6, a=lambda i: (i % 5) / 4, none=0.0)
    assert plain(result(systems, seed=3).__dict__) == plain(result(systems, seed=3).__dict__)


def test_memory_does_not_grow_with_what_rows_carry():
    def rows(name):
        for i in range(1500):
            yield row(name, i, float(i % 3 > 0), metadata={"reply": "x" * 50_000})

    result(arms(n=10, a=1.0, b=1.0))  # imports and caches
    tracemalloc.start()
    summarise(rows, ["full", "a"], METRICS, score_field="f1")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # all texts together are 150 MB


def test_one_text_asked_about_under_two_dataset_names_is_one_cluster():
    def rows(name):
        return [
            EvalRow("s", f"{d}{i}", {"f1": 1.0}, dataset=d, cluster=f"{name}{i}") for d in ("a", "b") for i in range(8)
        ]

    shared = summarise(lambda _: rows("context-"), ["s"], [], score_field="f1").estimates["s"]["f1"]
    own = summarise(lambda _: rows("document-"), ["s"], [], score_field="f1").estimates["s"]["f1"]
    assert (shared.clusters, own.clusters) == (8, 16)


def test_datasets_without_a_context_are_left_out_of_verdicts_over_everything():
    def rows(system, score):
        mine = [row(system, i, score, dataset="stories") for i in range(20)]
        return mine + [row(system, i, 1.0, dataset="sums") for i in range(60)]

    found = result({"full": rows("full", 1.0), "p": rows("p", 0.0)}, aside=["sums"])
    lines = {one.dataset: (one.n, one.difference) for one in found.comparisons}
    assert lines == {None: (20, -1.0), "stories": (20, -1.0), "sums": (60, 0.0)}
    assert any(note.startswith("sums: no context") for note in found.notes)
    nothing_else = result({"full": rows("full", 1.0), "p": rows("p", 0.0)}, aside=["stories", "sums"])
    assert nothing_else.comparisons[0].n == 80
    assert not any("no context" in note for note in nothing_else.notes)


def test_two_means_do_not_overwrite_each_other():
    rows = [row("a", i, None, scores={"f1": 1.0, "recall": 0.5, "em": 0.0}) for i in range(10)]
    metrics = [
        MeanScore("f1"),
        PassRate(0.7, "f1"),
        MeanScore("recall"),
        PassRate(0.4, "recall"),
        PassRate(0.9, "f1"),
        CostOfPass(0.4, "recall"),
    ]
    found = result({"a": rows}, metrics=metrics)
    assert found.summary["a"] == {
        "mean_score": 1.0,
        "pass_rate": 1.0,
        "mean_recall": 0.5,
        "pass_rate_recall_0.4": 1.0,
        "pass_rate_0.9": 1.0,
        "cost_of_pass": 1000.0,
        "num_passing": 10.0,
    }
    told = found.estimates["a"]
    assert {name: told[name].value for name in found.summary["a"] if name != "num_passing"} == {
        name: value for name, value in found.summary["a"].items() if name != "num_passing"
    }
    main = result({"a": rows}, metrics=metrics, score_field="recall").summary["a"]
    assert (main["mean_score"], main["mean_f1"], main["pass_rate"], main["pass_rate_f1_0.7"]) == (0.5, 1.0, 1.0, 1.0)


def test_the_cost_of_a_pass_and_its_interval_are_about_the_same_rows():
    mixed = [row("a", i, None, scores={"f1": 1.0} if i % 2 else {"other": 1.0}) for i in range(20)]
    found = result({"a": mixed}, metrics=[CostOfPass(0.7, "f1")], score_field="f1")
    told = found.estimates["a"]["cost_of_pass"]
    assert (found.summary["a"]["cost_of_pass"], told.value, told.n) == (1000.0, 1000.0, 10)


def test_verdicts_over_everything_are_corrected_over_systems_and_controls_are_not_counted():
    systems = arms(n=145, full=1.0, kompact=1.0, none=0.0) | {"head_tail@kompact": [row("h", i) for i in range(145)]}
    (alone,) = [each for each in result(systems, controls=["full", "none"]).comparisons if each.system == "kompact"]
    assert alone.verdict == "non-inferior"
    assert "Holm" not in alone.sentence
    two = result({**systems, "headroom": systems["kompact"]}, controls=["full", "none"])
    assert {each.system: each.verdict for each in two.comparisons if each.system in ("kompact", "headroom")} == {
        "kompact": "undecided",
        "headroom": "undecided",
    }
    assert all(
        ("Holm-corrected over 2 systems." in each.sentence) == (each.system in ("kompact", "headroom"))
        for each in two.comparisons
    )
    assert [each.system for each in two.comparisons] == ["kompact", "none", "head_tail@kompact", "headroom"]


def test_verdicts_by_dataset_are_corrected_over_systems_and_datasets():
    systems = {name: [row(name, i, 1.0, dataset=f"d{i % 2}") for i in range(400)] for name in ("full", "a", "b")}
    systems["none"] = [row("none", i, 0.0, dataset=f"d{i % 2}") for i in range(400)]
    found = result(systems, controls=["full", "none"]).comparisons
    parts = [each for each in found if each.dataset and each.system != "none"]
    assert len(parts) == 4
    assert all("Holm-corrected over 2 systems and 2 datasets." in each.sentence for each in parts)
    alone = result({name: systems[name] for name in ("full", "a", "none")}, controls=["full", "none"]).comparisons
    assert parts[0].p == pytest.approx(2 * next(each.p for each in alone if each.dataset == "d0"), rel=1e-6)


def test_what_was_chosen_after_the_run_is_on_every_verdict():
    found = result(arms(full=1.0, a=1.0, none=0.0), controls=["none"], margin=0.1, chosen_after="margin").comparisons
    assert [each.post_hoc for each in found] == [True, True]
    assert all(each.sentence.endswith("Margin chosen after the run: exploratory.") for each in found)
    assert not any(each.post_hoc for each in result(arms(full=1.0, a=1.0)).comparisons)


def test_every_mean_of_the_summary_has_an_estimate():
    rng = random.Random(6)
    rows = [
        row(
            "a",
            i,
            float(rng.random() < 0.6),
            latency=rng.random(),
            usage={"cost": 0.01, "ttft": 0.1, "output_tokens": 20},
            dataset=f"d{i % 2}",
        )
        for i in range(600)
    ]
    rows += [
        row("a", 900 + i, None, errors=TIMED_OUT, output_tokens=None, input_tokens=None, dataset="d0") for i in range(3)
    ]
    found = result({"a": rows}, metrics=[*METRICS, PerDatasetBreakdown("f1")])
    told = found.estimates["a"]
    assert set(found.summary["a"]) - set(told) == {"num_passing"}
    for name, value in found.summary["a"].items():
        if name == "num_passing":
            continue
        estimate = told[name]
        assert estimate.value == pytest.approx(value), name
        assert estimate.low <= value <= estimate.high, name
        assert estimate.method
        assert (estimate.worst is None) == (estimate.method in ("Woodruff", "cluster bootstrap")), name
        assert estimate.n + estimate.failures == (
            300 if name.endswith("d1") else 303 if name.endswith("d0") else 603
        ), name
    assert told["cost_of_pass_usd"].value == pytest.approx(0.01 * 600 / found.summary["a"]["num_passing"])


def test_a_tail_that_was_not_seen_has_no_interval():
    told = result({"a": [row("a", i, latency=float(i)) for i in range(100)]}).estimates["a"]
    assert told["latency_p95"].low is not None
    assert (told["latency_p99"].value, told["latency_p99"].low, told["latency_p99"].high) == (
        pytest.approx(98.01),
        None,
        None,
    )


def test_cost_of_pass_with_hardly_a_pass_has_no_interval():
    rows = [row("a", i, float(i == 3)) for i in range(40)]
    told = result({"a": rows}).estimates["a"]["cost_of_pass"]
    assert (told.value, told.low, told.high) == (40_000.0, None, None)
    assert "cost_of_pass" not in result({"a": [row("a", i, 0.0) for i in range(40)]}).estimates["a"]
