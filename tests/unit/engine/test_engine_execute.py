"""What a run does with systems, examples and evaluators of every kind. Systems here are the test's own; nothing of ours
is replaced.
"""

import asyncio
import itertools
import threading
import time
from collections import Counter

import pytest

from context_bench.core.errors import BadInput, CostCapReached, EvaluatorFailed, MissingExtra, StoreUnusable
from context_bench.core.keys import stable_hash
from context_bench.core.ledger import current_ledger
from context_bench.core.records import Call, Usage
from context_bench.engine import Arm, RunSettings, export, list_runs, rescore, rows, run_of, spent


class Answer:
    """Answers, counts, and fails where it is told to."""

    def __init__(self, name="s", model="m", fail=(), delay=0.0):
        self.name, self.model, self.fail, self.delay = name, model, set(fail), delay
        self.seen = []

    def fingerprint(self):
        return {"model": self.model}

    async def aprocess(self, example):
        self.seen.append(example["id"])
        await asyncio.sleep(self.delay)
        if example["id"] in self.fail:
            raise RuntimeError(f"no answer to {example['id']}")
        return {**example, "response": f"{self.model} says {example['context']}"}


class Blocking:
    """The same, in the plain old way."""

    def __init__(self, name="b", fail=()):
        self.name, self.fail, self.threads = name, set(fail), set()

    def process(self, example):
        self.threads.add(threading.current_thread())
        if example["id"] in self.fail:
            raise ValueError("boom")
        return {**example, "response": "ok"}


class Right:
    """1 if the gold answer is in the response."""

    name = "right"
    needs = ("answer",)

    def __init__(self, field="right"):
        self.field, self.calls = field, 0

    def fingerprint(self):
        return {"field": self.field}

    def score(self, original, processed):
        self.calls += 1
        return {self.field: float(original["answer"] in processed["response"])}


def examples(n, **more):
    return [{"id": i, "context": f"context {i}", "question": "?", "answer": str(i), **more} for i in range(n)]


# --- failures are rows (W10, W11) ------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 6])
@pytest.mark.parametrize("kind", [Answer, Blocking])
async def test_one_failing_example_is_one_failed_row(store, run, workers, kind):
    done = await run([kind("s", fail={3})], examples(6), [Right("f")], max_workers=workers)
    found = list(rows(store, "r"))
    assert done.completed
    assert [row.failed for row in found] == [False, False, False, True, False, False]
    assert found[3].errors["system"] in ("RuntimeError: no answer to 3", "ValueError: boom")
    assert found[3].scores == {}
    assert found[0].scores
    assert done.counts["failed"] == 1
    assert run_of(store, "r").failed == 1


async def test_one_failing_evaluator_leaves_the_others_scores(store, run):
    class Breaks(Right):
        name = "breaks"

        def score(self, original, processed):
            raise EvaluatorFailed("cannot read it")

    await run([Answer()], examples(2), [Breaks(), Right()])
    for row in rows(store, "r"):
        assert row.scores == {"right": 1.0}
        assert row.errors == {"breaks": "EvaluatorFailed: cannot read it"}
        assert not row.failed


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "BadReply: system 's' returned NoneType"),
        ("text", "BadReply: system 's' returned str"),
        ([1], "BadReply: system 's' returned list"),
    ],
)
async def test_what_is_not_an_answer_is_a_failure(store, run, returned, said):
    class Odd(Answer):
        async def aprocess(self, example):
            return returned

    await run([Odd()], examples(1))
    assert rows(store, "r")[0].errors["system"].startswith(said)


def test_ctrl_c_in_a_system_ends_the_run_and_keeps_what_was_done(store, run):
    class Leaves(Answer):
        async def aprocess(self, example):
            if example["id"] == 3:
                raise KeyboardInterrupt
            return await super().aprocess(example)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run([Leaves()], examples(6), max_workers=1))
    assert len(rows(store, "r")) == 3
    assert list_runs(store)[0].status == "interrupted"


# --- evaluators ------------------------------------------------------------------------------------


async def test_evaluators_apply_by_their_needs_or_their_own_word(store, run):
    class Own(Right):
        name = "own"
        needs = ()

        def applies(self, example, output):
            return example["id"] == 1 and "response" in output

    class Free:
        name = "free"

        def score(self, original, processed):
            return {} if original["id"] == 0 else {"free": 1}

    given = [
        {"id": 0, "context": "0"},
        {"id": 1, "context": "1", "answer": "1"},
        {"id": 2, "context": "2", "answer": None},
    ]
    await run([Answer()], given, [Right(), Own("own"), Free()])
    assert [row.scores for row in rows(store, "r")] == [{}, {"right": 1.0, "own": 1.0, "free": 1.0}, {"free": 1.0}]
    assert all(row.errors == {} for row in rows(store, "r"))


@pytest.mark.parametrize(
    ("returned", "scores", "error"),
    [
        ({}, {}, "returned no score although the example has answer"),
        (None, {}, "returned no score"),
        ({"a": None}, {}, "returned no score"),
        ({"a": float("nan"), "b": 1.0}, {}, "'a' = nan, expected a finite number"),
        ({"b": float("-inf")}, {}, "'b' = -inf, expected a finite number"),
        ({"b": 1e300}, {}, "'b' = 1e+300, expected a finite number"),
        ({"a": True, "b": 2, "c": None}, {"a": 1.0, "b": 2.0}, None),
        ({"a": "0.5"}, {}, "'a' = '0.5', expected a number"),
        ([1], {}, "returned list"),
    ],
)
async def test_what_counts_as_a_score(store, run, returned, scores, error):
    class Odd(Right):
        def score(self, original, processed):
            return returned

    await run([Answer()], examples(1), [Odd()])
    (row,) = rows(store, "r")
    assert row.scores == scores
    assert error is None or error in row.errors["right"]
    assert (error is None) == (row.errors == {})


async def test_numbers_of_numpy_are_numbers(store, run):
    import numpy

    class Numpy(Right):
        def score(self, original, processed):
            return {"a": numpy.float32(0.5), "b": numpy.int64(3), "c": numpy.bool_(True)}

    await run([Answer()], examples(1), [Numpy()])
    assert rows(store, "r")[0].scores == {"a": 0.5, "b": 3.0, "c": 1.0}


async def test_an_async_evaluator_is_asked_by_ascore_and_pays_on_the_judges_account(store, run):
    class Judge(Right):
        name = "judge"

        def score(self, original, processed):
            raise AssertionError("ascore is there")

        async def ascore(self, original, processed):
            ledger = current_ledger()
            assert ledger.account == "judge"
            ledger.record(Call("judge", "judge-1", "http://j/v1/chat/completions", 1.0, usage=Usage(10, 2), cost=0.25))
            return {"judged": 1.0}

    await run([Answer()], examples(2), [Judge()])
    (row, _) = rows(store, "r")
    assert row.usage == {"judge": {"input_tokens": 10, "output_tokens": 2, "cost": 0.25, "calls": 1}}
    assert row.input_tokens == 3
    assert spent(store, run_of(store, "r").id) == 0.5
    assert [call["account"] for call in next(export(store, "r"))["calls"]] == ["judge"]


async def test_a_slow_evaluator_does_not_stop_the_others(run):
    """Two evaluators that wait for one another only finish if a plain score() runs beside the loop."""
    barrier = threading.Barrier(2, timeout=20)

    class Waits:
        name = "waits"

        def score(self, original, processed):
            barrier.wait()
            return {"waited": 1.0}

    done = await run([Answer()], examples(2), [Waits()], max_workers=2)
    assert done.counts["systems"]["s"]["judge_failed"] == 0


async def test_evaluators_see_example_and_output_and_only_the_new_is_stored(store, run):
    class Looks(Right):
        def score(self, original, processed):
            assert "response" not in original
            assert processed["question"] == "?"
            assert processed["context"] == "short"
            return {"looked": 1.0}

    class Shortens(Answer):
        async def aprocess(self, example):
            return {"id": example["id"], "context": "short", "response": "x", "question": example["question"]}

    await run([Shortens()], examples(1), [Looks()])
    assert rows(store, "r")[0].scores == {"looked": 1.0}
    assert next(export(store, "r"))["output"] == {"context": "short", "response": "x"}


async def test_a_system_cannot_harm_the_example_of_another(store, run):
    class Vandal(Answer):
        async def aprocess(self, example):
            example["turns"].append("mine")
            example["turns"][0]["content"] = "gone"
            example["answer"] = "gone"
            return example

    given = [{"id": 0, "context": "c", "answer": "c", "turns": [{"content": "hello"}]}]
    await run([Vandal("v"), Answer("s")], given, [Right()], max_workers=1)
    assert given[0]["turns"] == [{"content": "hello"}]
    assert {item["row"]["system"]: sorted(item["output"]) for item in export(store, "r")} == {
        "v": ["answer", "turns"],
        "s": ["response"],
    }


# --- tokens and metadata ---------------------------------------------------------------------------


async def test_a_system_that_gives_only_an_answer_did_not_compress_to_nothing(store, run):
    class Answers:
        name = "answers"

        def process(self, example):
            return {"response": "x"}

    await run([Answers()], [{"id": 0, "context": "word " * 20, "answer": "x"}])
    (row,) = rows(store, "r")
    assert (row.input_tokens, row.output_tokens) == (21, None)
    assert "forwarded_source" not in row.metadata


async def test_a_python_system_is_measured_by_the_context_it_returns_never_by_the_echo(store, run):
    class Halves(Answer):
        async def aprocess(self, example):
            return {**example, "context": "word " * 10, "response": "long answer " * 50, "reasoning": "x " * 500}

    given = [{"id": 0, "context": "word " * 20, "answer": "y " * 300, "notes": "z " * 500}]
    await run([Halves()], given)
    (row,) = rows(store, "r")
    assert (row.input_tokens, row.output_tokens) == (21, 11)
    assert row.metadata["forwarded_source"] == "context"
    assert row.wire == {}


async def test_text_fields_choose_what_is_compared(store, run):
    await run([Answer()], [{"id": 0, "context": "one two", "question": "three"}], text_fields=("context", "question"))
    (row,) = rows(store, "r")
    assert (row.input_tokens, row.output_tokens) == (3, 3)


async def test_special_token_text_is_counted_as_text(store, run):
    await run([Answer()], [{"id": 0, "context": "see <|endoftext|> here"}])
    assert rows(store, "r")[0].input_tokens > 3


async def test_recorded_calls_give_sent_and_billed_tokens_without_waiting_time(store, run):
    class Client(Answer):
        async def aprocess(self, example):
            ledger = current_ledger()
            url = "http://h/v1/chat/completions"
            ledger.record(Call("system", "m", url, 1.0, sent_tokens=50, status=429, error="RateLimited: slow down"))
            ledger.record(
                Call(
                    "system",
                    "m",
                    url,
                    2.0,
                    waited=100.0,
                    attempt=2,
                    sent_tokens=50,
                    usage=Usage(40, 5, cache_read=8),
                    cost=0.5,
                    ttft=0.25,
                )
            )
            return {
                **example,
                "response": "x",
                "api_usage": {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45},
                "finish_reason": "stop",
            }

    await run([Client()], examples(1), name="r")
    (row,) = rows(store, "r")
    assert (row.input_tokens, row.output_tokens, row.latency) == (50, 40, 0.0)
    assert row.usage == {"input_tokens": 40, "output_tokens": 5, "cache_read": 8, "cost": 0.5, "calls": 2, "ttft": 0.25}
    told = {
        "prompt_tokens": 40,
        "completion_tokens": 5,
        "total_tokens": 45,
        "finish_reason": "stop",
        "model": "m",
        "forwarded_source": "usage",
    }
    assert row.metadata == told
    (item,) = export(store, "r")
    assert [(call["attempt"], call.get("error"), call.get("status")) for call in item["calls"]] == [
        (1, "RateLimited: slow down", 429),
        (2, None, None),
    ]


async def test_a_reply_without_usage_is_unknown_not_the_echo(store, run):
    class Silent(Answer):
        async def aprocess(self, example):
            current_ledger().record(Call("system", "m", "http://h/v1/messages", 1.0, sent_tokens=50))
            return {**example, "response": "x"}

    await run([Silent()], examples(1))
    (row,) = rows(store, "r")
    assert (row.input_tokens, row.output_tokens) == (50, None)
    assert "forwarded_source" not in row.metadata


async def test_multi_turn_examples_are_one_row(store, run):
    class Talks(Answer):
        def process_conversation(self, turns):
            return [{"role": "assistant", "content": f"re: {turn}"} for turn in turns[:-1]] + [
                {"role": "assistant", "content": None}
            ]

    given = [
        {"id": 0, "context": "c", "multi_turn": True, "turns": ["a", "b"]},
        {"id": 1, "context": "c", "multi_turn": True},
    ]
    await run([Talks()], given)
    outputs = [item["output"] for item in export(store, "r")]
    assert outputs == [{"response": "", "turn_responses": ["re: a", ""]}, {"response": "m says c"}]


async def test_of_a_conversation_the_turns_are_counted_and_what_became_of_them_is_unknown(store, run):
    class Talks(Answer):
        def process_conversation(self, turns):
            return [{"role": "assistant", "content": "ok"} for _ in turns]

    turns = [{"role": "user", "content": "hi"}, {"role": "user", "content": [{"type": "text", "text": "w " * 500}]}]
    given = [{"id": 0, "context": "hi", "multi_turn": True, "turns": turns}]
    await run([Talks()], given)
    (row,) = rows(store, "r")
    assert (row.input_tokens, row.output_tokens) == (1 + 501, None)
    await run([Talks()], given, name="chosen", text_fields=("response", "context"))
    (row,) = rows(store, "chosen")
    assert (row.input_tokens, row.output_tokens) == (1, 2)


# --- order, trials, arms that depend on others -----------------------------------------------------


async def test_rows_come_by_system_example_and_trial_whatever_the_order_of_work(store, run):
    await run([Answer("b"), Answer("a", model="n")], examples(3), max_workers=4, trials=2)
    found = [(row.system, row.example_id, row.trial) for row in rows(store, "r")]
    assert found == [(system, i, trial) for system in ("b", "a") for i in range(3) for trial in range(2)]


async def test_arms_are_interleaved_in_an_order_fixed_by_the_seed(run):
    async def order(name, seed):
        log = []

        class Logs(Answer):
            async def aprocess(self, example):
                log.append((example["id"], self.name))
                return await super().aprocess(example)

        await run([Logs("a"), Logs("b"), Logs("c")], examples(8), name=name, seed=seed, reuse="none")
        assert [i for i, _ in log] == [i for i in range(8) for _ in range(3)]
        return [name for _, name in log]

    first, again, other = await order("1", 5), await order("2", 5), await order("3", 6)
    assert first == again
    assert first != other


class Forwards(Answer):
    """Shrinks the context to as many words as the example says."""

    async def aprocess(self, example):
        if example["id"] in self.fail:
            raise RuntimeError("partner broke")
        return {**example, "context": "word " * example["words"], "response": "x"}


class Budgeted(Answer):
    async def aprocess(self, example):
        self.seen.append((example["id"], example["budget"]))
        return {**example, "response": "x"}


@pytest.mark.parametrize("workers", [1, 2, 7])
async def test_dependent_arms_get_exactly_what_their_partner_forwarded(store, run, workers):
    partner, control = Forwards("p", fail={2}), Budgeted("bm25@p", model="c")
    given = [{"id": i, "context": "word " * 50, "words": i + 3} for i in range(6)]
    done = await run([Arm(control, budget_from="p"), Arm(partner)], given, max_workers=workers, trials=2)
    assert done.completed
    assert sorted(control.seen) == sorted((i, i + 4) for i in (0, 1, 3, 4, 5) for _ in range(2))
    refused = [row for row in rows(store, "r", "bm25@p") if row.failed]
    assert [row.example_id for row in refused] == [2, 2]
    assert all(row.errors["system"].startswith("NoBudget: what p forwarded") for row in refused)
    assert rows(store, "r", "bm25@p")[0].metadata["budget"] == 4

    again = await run([Arm(control, budget_from="p"), Arm(partner)], given, max_workers=workers, trials=2)
    assert again.counts["done"] == 4
    assert len(control.seen) == 10

    partner.fail.clear()
    await run([Arm(control, budget_from="p"), Arm(partner)], given, max_workers=workers, trials=2)
    assert control.seen[10:] == [(2, 6), (2, 6)]
    assert not any(row.failed for row in rows(store, "r"))


async def test_within_an_example_dependents_come_after_all_primaries(run):
    log = []

    class Logs(Forwards):
        async def aprocess(self, example):
            log.append((example["id"], self.name))
            return await super().aprocess(example)

    given = [{"id": i, "context": "w", "words": 2} for i in range(5)]
    arms = [
        Arm(Logs("d1", model="d"), budget_from="p"),
        Arm(Logs("p")),
        Arm(Logs("d2", model="e"), budget_from="q"),
        Arm(Logs("q")),
    ]
    await run(arms, given, max_workers=1)
    for i, quarter in enumerate(
        itertools.batched(log, 4) if hasattr(itertools, "batched") else [log[k : k + 4] for k in range(0, 20, 4)]
    ):
        assert {number for number, _ in quarter} == {i}
        assert {name for _, name in quarter[:2]} == {"p", "q"}


async def test_a_partner_whose_context_part_is_not_known_gives_no_budget(store, run):
    class Opaque(Answer):
        async def aprocess(self, example):
            return {**example, "response": "x", "api_usage": {"prompt_tokens": 30}}

    class Knows(Opaque):
        def request_without_context_tokens(self, example):
            return 12

    control = Budgeted("c")
    await run([Arm(Opaque("o")), Arm(control, budget_from="o")], examples(1), name="no")
    assert rows(store, "no", "c")[0].errors["system"].startswith("NoBudget")
    await run([Arm(Knows("k")), Arm(control, budget_from="k")], examples(1), name="yes")
    assert control.seen == [(0, 18)]


# --- streams (W17), odd examples -------------------------------------------------------------------


async def test_an_endless_source_is_read_no_further_than_needed(store, run):
    taken = []

    def endless():
        for i in itertools.count():
            taken.append(i)
            yield {"id": i, "context": str(i)}

    done = await run([Answer()], itertools.islice(endless(), 3))
    assert done.completed
    assert done.examples == len(rows(store, "r")) == len(taken) == 3


async def test_reading_does_not_run_away_from_the_work(run):
    read = 0

    def source():
        nonlocal read
        for i in range(1_200):
            read += 1
            yield {"id": i, "context": "c"}

    class Watches(Answer):
        furthest = 0

        async def aprocess(self, example):
            self.furthest = max(self.furthest, read - example["id"])
            return {**example, "response": "x"}

    watching = Watches()
    await run([watching], source(), max_workers=8, bodies="none")
    assert watching.furthest < 300


async def test_a_slow_source_does_not_hold_up_what_is_there(run):
    gate = threading.Event()

    def source():
        yield {"id": 0, "context": "c"}
        time.sleep(0.3)  # longer than a chunk is waited for
        yield {"id": 1, "context": "c"}
        assert gate.wait(30)
        yield {"id": 2, "context": "c"}

    class Opens(Answer):
        async def aprocess(self, example):
            gate.set()
            return await super().aprocess(example)

    opens = Opens()
    assert (await run([opens], source())).completed
    assert opens.seen == [0, 1, 2]


async def test_a_source_that_breaks_keeps_what_was_done(store, run):
    def source(broken):
        yield from examples(200)
        if broken:
            raise BadInput("line 201 is not JSON")

    done = await run([Answer()], source(True), max_workers=4)
    assert not done.completed
    assert str(done.stopped) == "line 201 is not JSON"
    assert run_of(store, "r").status == "stopped"
    kept = len(rows(store, "r"))
    resumed = await run([Answer()], source(False))
    assert (resumed.counts["reused"], resumed.counts["done"]) == (kept, 200 - kept)


async def test_a_source_with_a_bug_of_its_own_shows_it(store, run):
    def source():
        yield {"id": 0, "context": "c"}
        raise ZeroDivisionError("my bug")

    with pytest.raises(ZeroDivisionError, match="my bug"):
        await run([Answer()], source())
    assert run_of(store, "r").status == "interrupted"


async def test_what_is_not_an_example_is_refused_by_its_place(run):
    done = await run([Answer()], [{"id": 0, "context": "c"}, "text"])
    assert str(done.stopped).startswith("example 1 is str 'text'")


async def test_hostile_text_survives_and_harms_nothing(store, run):
    nasty = "\x00\ud800 <script>alert(1)</script> '; DROP TABLE runs; -- \x1b[31m \u202e " + "x" * 300_000
    given = [
        {
            "id": nasty[:40],
            "context": nasty,
            "dataset": nasty[:30],
            "answer": "x",
            nasty[:10]: [nasty[:5], {1: 2}, 10**30, float("nan")],
        }
    ]

    class Echoes(Answer):
        async def aprocess(self, example):
            return {**example, "response": nasty, "odd": object(), 3: {4}, "big": 2**200}

    system = nasty.replace("\ud800", "")[:30]  # a name with half a surrogate pair stops the run before it begins
    await run([Echoes(system)], given, [Right()], name=nasty[:30])
    (row,) = rows(store, run_of(store, nasty[:30]).id)
    assert row.example_id == nasty[:40]
    assert row.scores == {"right": 1.0}
    (item,) = export(store, run_of(store, nasty[:30]).id)
    assert item["output"]["response"] == nasty
    assert item["output"]["big"] == 2**200
    assert item["example"]["context"] == nasty


# --- identity and reuse (W20 to W24, decision 21) --------------------------------------------------


async def test_a_second_run_of_the_same_name_is_a_no_op_with_equal_rows(store, run):
    system, judge = Answer(), Right()
    await run([system], examples(5), [judge], max_workers=3)
    before = list(rows(store, "r"))
    for _ in range(2):
        again = await run([system], examples(5), [judge])
        assert again.completed
        assert (again.counts["done"], again.counts["reused"]) == (0, 5)
    assert len(system.seen) == judge.calls == 5
    assert list(rows(store, "r")) == before


async def test_duplicates_are_each_owed_an_answer_of_their_own(store, run):
    given = [{"id": i, "context": "same", "answer": "m"} for i in (0, 0, "0")]
    system = Answer()
    await run([system], given)
    assert system.seen == [0, 0, "0"]
    assert [row.example_id for row in rows(store, "r")] == [0, 0, "0"]
    await run([system], [*given, given[0]])
    assert system.seen == [0, 0, "0", 0]
    assert len({item["output"]["response"] for item in export(store, "r")}) == 1


async def test_a_changed_model_is_asked_anew_and_old_rows_do_not_show(store, run):
    await run([Answer(model="good")], examples(3), [Right()])
    bad = Answer(model="bad", fail={1})
    await run([bad], examples(3), [Right()])
    assert bad.seen == [0, 1, 2]
    assert [row.failed for row in rows(store, "r")] == [False, True, False]
    assert all(item["output"]["response"].startswith("bad") for item in export(store, "r") if item["output"])


async def test_only_the_edited_example_is_done_again(store, run):
    system = Answer()
    await run([system], examples(4), [Right()])
    given = examples(4)
    given[2]["answer"] = "Rome"
    await run([system], given, [Right()])
    assert system.seen == [0, 1, 2, 3, 2]
    assert [row.scores["right"] for row in rows(store, "r")] == [1.0, 1.0, 0.0, 1.0]


async def test_more_examples_another_system_another_evaluator_cost_only_themselves(store, run):
    one, two, judge = Answer("one"), Answer("two", model="n"), Right()
    await run([one], examples(3), [judge])
    await run([one], examples(5), [judge])
    assert one.seen == [0, 1, 2, 3, 4]
    await run([one, two], examples(5), [judge])
    assert one.seen + two.seen == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    second = Right("second")
    await run([one, two], examples(5), [judge, second])
    assert len(one.seen) == len(two.seen) == 5
    assert second.calls == 10
    assert judge.calls == 10
    assert all(row.scores == {"right": 1.0, "second": 1.0} for row in rows(store, "r"))


async def test_fewer_examples_and_systems_show_fewer_rows(store, run):
    await run([Answer("a"), Answer("b", model="n")], examples(5), trials=2)
    await run([Answer("a")], examples(2))
    assert [(row.system, row.example_id) for row in rows(store, "r")] == [("a", 0), ("a", 1)]
    assert run_of(store, "r").systems == ["a"]
    assert run_of(store, "r").planned == 2


async def test_failed_rows_are_tried_again_and_their_calls_stay_on_the_bill(store, run):
    class Pays(Answer):
        async def aprocess(self, example):
            current_ledger().record(
                Call("system", "m", "http://h/v1/chat/completions", 1.0, sent_tokens=5, usage=Usage(5, 1), cost=0.5)
            )
            return await super().aprocess(example)

    system = Pays(fail={1})
    await run([system], examples(3))
    system.fail.clear()
    again = await run([system], examples(3))
    assert system.seen == [0, 1, 2, 1]
    assert (again.counts["done"], again.counts["reused"]) == (1, 2)
    assert not any(row.failed for row in rows(store, "r"))
    assert spent(store, again.run_id) == 2.0
    assert [call["take"] for call in list(export(store, "r"))[1]["calls"]] == [0, 1]


async def test_a_failed_evaluator_is_asked_again_without_the_system(store, run):
    class Flaky(Right):
        broken = True

        def score(self, original, processed):
            if self.broken and original["id"] == 1:
                raise EvaluatorFailed("judge asleep")
            return super().score(original, processed)

    system, judge = Answer(), Flaky()
    await run([system], examples(3), [judge])
    assert rows(store, "r")[1].errors == {"right": "EvaluatorFailed: judge asleep"}
    judge.broken = False
    await run([system], examples(3), [judge])
    assert len(system.seen) == 3
    assert judge.calls == 3
    assert all(row.scores == {"right": 1.0} and not row.errors for row in rows(store, "r"))


async def test_other_runs_answers_are_taken_only_when_asked(store, run):
    first = Answer("before")
    await run([first], examples(3), [Right()], name="one")
    fresh = Answer("after")
    done = await run([fresh], examples(3), [Right()], name="two")
    assert (len(fresh.seen), done.counts["reused"]) == (3, 0)
    third = Answer("third")
    done = await run([third], examples(4), [Right()], name="three", reuse="all")
    assert third.seen == [3]
    assert done.counts["reused"] == 3
    assert done.counts["reused_age"] >= 0
    assert len(rows(store, "three")) == 4
    with pytest.raises(Exception, match="give this one another name"):
        await run([third], examples(4), name="three", reuse="none")


async def test_failures_of_other_runs_are_never_taken(store, run):
    await run([Answer(fail={0})], examples(2), name="one")
    fixed = Answer()
    await run([fixed], examples(2), name="two", reuse="all")
    assert fixed.seen == [0]
    assert [row.failed for row in rows(store, "one")] == [True, False]


async def test_without_a_name_only_the_unfinished_run_of_the_same_content_goes_on(store, run):
    class Breaks(Answer):
        async def aprocess(self, example):
            if example["id"] == 2 and self.fail:
                raise MissingExtra("this system", "local")
            return await super().aprocess(example)

    system = Breaks(fail={"yes"})
    first = await run([system], examples(4), name=None)
    assert isinstance(first.stopped, MissingExtra)
    other = await run([Answer("o", model="o")], examples(4), name=None)
    assert other.run_id != first.run_id
    system.fail.clear()
    second = await run([system], examples(4), name=None)
    assert second.run_id == first.run_id
    assert second.completed
    assert system.seen == [0, 1, 2, 3]
    third = await run([system], examples(4), name=None)
    assert third.run_id != first.run_id
    assert len(list_runs(store)) == 3


async def test_a_run_somebody_works_on_is_not_touched(run):
    started, go = asyncio.Event(), asyncio.Event()

    class Waits(Answer):
        async def aprocess(self, example):
            started.set()
            await go.wait()
            return await super().aprocess(example)

    working = asyncio.create_task(run([Waits()], examples(1)))
    await started.wait()
    with pytest.raises(StoreUnusable, match="being worked on by another process"):
        await run([Answer()], examples(1))
    go.set()
    assert (await working).completed


# --- ends: cost cap, deadlines, Ctrl-C -------------------------------------------------------------


async def test_a_cost_cap_stops_cleanly_and_keeps_everything_paid_for(store, run):
    class Costs(Answer):
        async def aprocess(self, example):
            if example["id"] == 3:
                current_ledger().record(Call("system", "m", "http://h/v1/chat/completions", 1.0, cost=0.125))
                raise CostCapReached("the next call could exceed $1")
            return await super().aprocess(example)

    done = await run([Costs()], examples(10), [Right()])
    assert isinstance(done.stopped, CostCapReached)
    assert not done.completed
    record = run_of(store, "r")
    assert (record.status, record.rows, record.failed) == ("stopped", 3, 0)
    assert spent(store, record.id) == 0.125
    resumed = await run([Answer()], examples(10), [Right()])
    assert (resumed.counts["done"], resumed.counts["reused"]) == (7, 3)


async def test_a_cost_cap_met_by_a_judge_keeps_the_answer(store, run):
    class Judge(Right):
        poor = True

        async def ascore(self, original, processed):
            if self.poor and original["id"] == 1:
                raise CostCapReached("no money for the judge")
            return {"right": 1.0}

    system, judge = Answer(), Judge()
    done = await run([system], examples(3), [judge])
    assert isinstance(done.stopped, CostCapReached)
    assert [row.scores for row in rows(store, "r")] == [{"right": 1.0}, {}]
    judge.poor = False
    await run([system], examples(3), [judge])
    assert system.seen == [0, 1, 2]
    assert [row.scores for row in rows(store, "r")] == [{"right": 1.0}] * 3


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_an_example_that_takes_too_long_is_a_failed_row(store, run, kind):
    never = threading.Event()

    class Hangs(Answer):
        async def aprocess(self, example):
            if example["id"] == 1:
                await asyncio.Event().wait()
            return await super().aprocess(example)

    class Blocks(Blocking):
        def process(self, example):
            if example["id"] == 1:
                never.wait(30)
            return super().process(example)

    await run([Hangs() if kind == "async" else Blocks()], examples(4), example_timeout=0.2)
    never.set()
    found = list(rows(store, "r"))
    assert [row.failed for row in found] == [False, True, False, False]
    assert found[1].errors["system"] == "TimedOut: no answer within 0.2 s, the time allowed for one example"


async def test_a_judge_that_takes_too_long_is_its_own_failure(store, run):
    class Hangs(Right):
        async def ascore(self, original, processed):
            await asyncio.Event().wait()

    await run([Answer()], examples(1), [Hangs()], example_timeout=0.1)
    assert rows(store, "r")[0].errors == {"right": "TimedOut: right gave no score within 0.1 s"}


@pytest.mark.parametrize("workers", [1, 3])
async def test_the_runs_deadline_ends_it_and_the_rest_is_still_owed(store, run, workers):
    class Hangs(Answer):
        async def aprocess(self, example):
            if example["id"] >= 2:
                await asyncio.Event().wait()
            return await super().aprocess(example)

    done = await run([Hangs()], examples(6), run_timeout=1.0, max_workers=workers)
    assert "longer than the 1 s allowed" in str(done.stopped)
    assert [row.example_id for row in rows(store, "r")] == [0, 1]
    assert not any(row.failed for row in rows(store, "r"))
    assert run_of(store, "r").status == "stopped"


async def test_judging_again_ends_at_its_deadline_too_and_keeps_what_was_judged(store, run):
    class Hangs(Right):
        name = "slow"

        async def ascore(self, original, processed):
            self.calls += 1
            if self.calls > 2:
                await asyncio.Event().wait()
            return {"slow": 1.0}

    await run([Answer()], examples(4), [Right()])
    done = await rescore(store, "r", [Hangs()], settings=RunSettings(max_workers=1, run_timeout=1.0))
    assert "longer than the 1 s allowed" in str(done.stopped)
    assert [row.scores.get("slow") for row in rows(store, "r")].count(1.0) == 2


@pytest.mark.parametrize("workers", [1, 4])
async def test_cancelling_commits_what_is_done_and_says_interrupted(store, run, workers):
    reached = asyncio.Event()

    class Hangs(Answer):
        async def aprocess(self, example):
            if example["id"] >= 5:
                reached.set()
                await asyncio.Event().wait()
            return await super().aprocess(example)

    task = asyncio.create_task(run([Hangs()], examples(50), max_workers=workers))
    await reached.wait()
    await asyncio.sleep(0.2)
    task.cancel()
    done = await task
    assert not done.completed
    assert done.stopped is None
    assert done.counts["interrupted"]
    assert [row.example_id for row in rows(store, "r")] == [0, 1, 2, 3, 4]
    assert run_of(store, "r").status == "interrupted"


# --- systems that keep state -----------------------------------------------------------------------


class Remembers:
    """Answers with all it was shown since the last reset; two at a time would mix."""

    stateful = True

    def __init__(self, name="memory"):
        self.name, self.shown, self.resets, self.fail, self.inside = name, [], 0, set(), 0

    def fingerprint(self):
        return {"class": "Remembers"}

    def reset(self):
        self.resets += 1
        self.shown = []

    async def aprocess(self, example):
        self.inside += 1
        assert self.inside == 1
        await asyncio.sleep(0)
        self.shown.append(example["id"])
        response = ",".join(str(one) for one in self.shown)
        await asyncio.sleep(0)
        self.inside -= 1
        if example["id"] in self.fail:
            raise RuntimeError("forgot")
        return {**example, "response": response}


def grouped():
    return [{"id": f"{group}{i}", "context": "c", "group": group} for group in "abcd" for i in range(3)]


async def test_groups_are_done_in_order_one_at_a_time_after_reset(store, run):
    memory = Remembers()
    await run([memory, Answer()], grouped(), max_workers=5, trials=2)
    said = [item["output"]["response"] for item in export(store, "r") if item["row"]["system"] == "memory"]
    expected = [",".join(f"{g}{k}" for k in range(i + 1)) for g in "abcd" for i in range(3) for _ in range(2)]
    assert said == expected
    assert memory.resets == 8
    assert rows(store, "r", "memory")[0].group == rows(store, "r", "memory")[0].cluster == "a"


async def test_with_namespaces_groups_run_side_by_side_and_are_closed(store, run):
    class Spaces(Remembers):
        twins, closed, together, most = [], 0, 0, 0

        def namespace(self, name):
            twin = Spaces()
            Spaces.twins.append(name)
            return twin

        async def aprocess(self, example):
            Spaces.together += 1
            Spaces.most = max(Spaces.most, Spaces.together)
            await asyncio.sleep(0.01)
            Spaces.together -= 1
            return await super().aprocess(example)

        async def aclose(self):
            Spaces.closed += 1

    await run([Spaces()], grouped(), max_workers=4)
    assert [item["output"]["response"] for item in export(store, "r")][:3] == ["a0", "a0,a1", "a0,a1,a2"]
    assert len(set(Spaces.twins)) == Spaces.closed == 4
    assert Spaces.most > 1


async def test_a_half_done_group_is_done_again_from_its_beginning(store, run):
    memory = Remembers()
    memory.fail = {"b1"}
    await run([memory], grouped())
    memory.fail = set()
    asked = len(memory.shown) and memory.resets
    again = await run([memory], grouped())
    assert again.counts["restarted"] == 1
    assert (again.counts["done"], again.counts["reused"]) == (3, 9)
    assert memory.resets == asked + 1
    assert [item["output"]["response"] for item in export(store, "r")][3:6] == ["b0", "b0,b1", "b0,b1,b2"]


async def test_a_group_that_comes_back_is_refused(run):
    given = grouped()
    done = await run([Remembers()], [given[0], given[3], given[1]])
    assert "group 'a' comes back at example 2" in str(done.stopped)
    assert (await run([Answer()], [given[0], given[3], given[1]], name="other")).completed


# --- judging again ---------------------------------------------------------------------------------


async def test_rescoring_asks_no_system_and_replaces_only_the_evaluator_of_that_name(store, run):
    class Length:
        name = "length"

        def __init__(self, version="1"):
            self.version = version

        def score(self, original, processed):
            return {"length": float(len(processed["response"])) * (1 if self.version == "1" else -1)}

    system = Answer(fail={1})
    await run([system], examples(3), [Right(), Length()])
    seen = list(system.seen)
    done = await rescore(store, "r", [Length("2"), Right("again")])
    assert done.completed
    assert system.seen == seen
    scores = [row.scores for row in rows(store, "r")]
    assert scores[0] == {"length": -16.0, "again": 1.0}
    assert scores[1] == {}
    assert run_of(store, "r").manifest["rescored"][0]["evaluators"] == ["length", "right"]


async def test_rescoring_needs_the_examples(store, run):
    await run([Answer()], examples(1), bodies="none")
    with pytest.raises(BadInput, match="bodies='none'"):
        await rescore(store, "r", [Right()])


async def test_rescoring_leaves_equal_scores_alone_unless_told(store, run):
    judge = Right()
    await run([Answer()], examples(2), [judge])
    await rescore(store, "r", [judge])
    assert judge.calls == 2
    await rescore(store, "r", [judge], again=True)
    assert judge.calls == 4


async def test_evaluators_of_the_second_stage_see_all_systems_answers_in_seeded_order(store, run):
    class Blind(Right):
        name, stage = "blind", "after"

        def __init__(self):
            super().__init__("blind")
            self.order = []

        async def ascore(self, original, processed):
            self.order.append((original["id"], processed["response"]))
            return {"blind": 1.0}

    first, second = Blind(), Blind()
    one, two = Answer("one"), Answer("two", model="n")
    await run([one, two], examples(20), [Right(), first])
    assert len(first.order) == 40
    systems = [response.split()[0] for _, response in first.order]
    assert 0 < Counter(systems[:20])["m"] < 20
    await run([one, two], examples(20), [Right(), second], name="second")
    assert second.order == first.order
    assert all(row.scores == {"right": 1.0, "blind": 1.0} for row in rows(store, "r"))
    with pytest.raises(BadInput, match="keeps none"):
        await run([one], examples(1), [first], name="none", bodies="none")


# --- manifest and secrets --------------------------------------------------------------------------


async def test_the_manifest_says_what_is_needed_to_repeat_the_run(store, run):
    await run([Answer("a")], examples(1), [Right()], manifest={"margin": {"value": 0.02}, "datasets": ["d"]}, seed=7)
    manifest = run_of(store, "r").manifest
    assert manifest["margin"] == {"value": 0.02, "hash": stable_hash({"value": 0.02})}
    told = manifest["engine"]
    assert told["settings"]["seed"] == 7
    assert told["systems"][0]["fingerprint"] == {"model": "m"}
    assert told["evaluators"] == [{"name": "right", "version": None, "fingerprint": {"field": "right"}}]
    assert {"python", "platform", "package", "dependencies"} <= set(told["environment"])
    await run([Answer("a")], examples(1), [Right()], manifest={"margin": {"value": 0.5}, "datasets": ["d"]}, seed=7)
    later = run_of(store, "r").manifest
    assert later["margin"]["value"] == 0.5
    assert [one["margin"]["value"] for one in later["earlier"]] == [0.02]


async def test_planted_keys_are_nowhere_in_the_store(store, run, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", "sk-planted-environment-0001")

    class Leaky(Answer):
        fingerprint = None

        def __init__(self, name="leaky"):
            super().__init__(name)
            self.api_key = "sk-planted-constructor-0002"
            self.base_url = "http://someone:planted-password-0003@127.0.0.1/v1"
            self.extra = {"headers": {"Authorization": "Bearer planted-bearer-0004"}}

        async def aprocess(self, example):
            keys = "sk-planted-environment-0001 sk-planted-constructor-0002 planted-bearer-0004"
            url = self.base_url
            current_ledger().record(
                Call(
                    "system", "m", url, 1.0, request={"said": keys * 30}, reply={"echo": keys}, error=f"401: bad {keys}"
                )
            )
            if example["id"] == 1:
                raise RuntimeError(f"could not reach {self.base_url} with {keys}")
            return {**example, "response": f"your keys are {keys}", "trace": {"url": url}}

    class Tells(Right):
        def score(self, original, processed):
            raise EvaluatorFailed("sk-planted-constructor-0002")

    Leaky.fingerprint = None
    await run([Leaky()], examples(2), [Tells()], manifest={"argv": ["--key", "sk-planted-environment-0001"]})
    text = str(list(export(store, "r"))) + str(run_of(store, "r").manifest) + str(list(rows(store, "r")))
    with store.engine.connect() as connection:
        connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    for planted in (
        "sk-planted-environment-0001",
        "sk-planted-constructor-0002",
        "planted-password-0003",
        "planted-bearer-0004",
    ):
        assert planted not in text
        assert planted.encode() not in raw
    assert "your keys are [redacted]" in text
