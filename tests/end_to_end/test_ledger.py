"""The books against the provider's own log: every attempt, failed ones and the judge's included, with tokens and
money.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter

import pytest
from sqlalchemy import select

from context_bench.core.machine import ManualClock
from context_bench.engine import Arm, RunSettings, execute, open_store, rows, run_of
from context_bench.engine.encoding import unpacked
from context_bench.engine.store import schema
from context_bench.engine.store.run_records import spent
from context_bench.evaluators import AnswerQuality
from context_bench.llm.chat import ChatClient
from context_bench.systems import OpenAIProxy
from context_bench.systems.control import Control
from context_bench.testing.hostile import CASES, Act, Hostile, HostileCase, faults

EXAMPLES, WORKERS = 60, 4
PRICE = {"input": 2.0, "output": 8.0}
FAULTS = ["500", "502", "reset-before-headers", "close-mid-body", "error-in-a-reply", "reset-mid-stream"]


UNBILLED = HostileCase(
    "unbilled",
    "a whole answer, whose stream stalls before its bill",
    lambda scene: [*list(CASES["usage-last"].steps(scene))[:-3], Act.STALL],
    stream=True,
)


def cut_once(text):
    """The first request with this text loses its bill."""
    return lambda asked: (
        "unbilled" if text in asked.text and asked.attempt == 1 and "word30" in asked.text else "usage-last"
    )


def place(text):
    """Which example a request is about, and whether the judge asks."""
    return int(re.search(r"<(\d+)>", text)[1]), "score" in text.lower()


def answer(asked):
    return "Score: 5" if place(asked.text)[1] else f"42 <{place(asked.text)[0]}>"


def books(where):
    """(attempts, input tokens, output tokens) in the store, and attempts by account."""
    with open_store(where) as store, store.reading() as connection:
        calls = connection.execute(select(schema.calls.c.usage, schema.calls.c.account, schema.calls.c.status)).all()
    told = [unpacked(call.usage, {}) or {} for call in calls]
    tokens = [sum(each.get(name) or 0 for each in told) for name in ("input_tokens", "output_tokens")]
    return (len(calls), *tokens), Counter(call.account for call in calls)


def log_of(provider):
    """The same from the provider's side."""
    told = [one.usage for one in provider.log if one.usage]
    return len(provider.log), sum(each.input_tokens for each in told), sum(each.output_tokens for each in told)


def order(asked):
    """30 % faults; a stream that breaks off needs a stream."""
    return faults(0.3, FAULTS if asked.stream else FAULTS[:-1], seed=5)(asked)


async def test_after_faults_a_kill_and_a_resume_the_books_agree_with_the_providers_log(tmp_path, forks):
    where = tmp_path / "ledger.db"
    async with Hostile(order, answer=answer) as provider:
        child = await forks("ledger_child.py", provider.url, where, EXAMPLES, WORKERS)
        pid = await child.start()
        while len(provider.log) < EXAMPLES:  # noqa: ASYNC110 (the log has no event)
            await asyncio.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        assert await child.ended() == -signal.SIGKILL
        killed, (before, _) = log_of(provider), books(where)
        lost = [have - kept for have, kept in zip(killed, before, strict=True)]
        assert all(each >= 0 for each in lost)
        attempts = Counter(place(one.text) for one in provider.log)
        most = sum(
            sorted((attempts[number, False] + attempts[number, True] for number in range(EXAMPLES)), reverse=True)[
                : 2 * WORKERS
            ]
        )
        assert lost[0] <= most  # what was in flight, or answered and not yet committed
        await child.start()
        assert await child.ended() == 0
        await child.close()
        whole, (after, accounts) = log_of(provider), books(where)
    assert [have - kept for have, kept in zip(whole, after, strict=True)] == lost  # the resumed run's books are exact
    assert sum(one.case != "answer" for one in provider.log) > 0.2 * len(provider.log)
    assert accounts["judge"] >= EXAMPLES
    with open_store(where) as store:
        assert len(rows(store, "ledger")) == EXAMPLES
        assert not any(row.failed for row in rows(store, "ledger"))
        dollars = (after[1] * PRICE["input"] + after[2] * PRICE["output"]) / 1e6
        assert spent(store, run_of(store, "ledger").id) == pytest.approx(dollars)


class Patient:
    """A user's own system whose waits take no time."""

    def __init__(self, url):
        self.name, self.client = "patient", ChatClient(url, clock=ManualClock(), max_retries=2, timeout=0.3)

    async def aprocess(self, example):
        reply = await self.client.chat(
            "m", [{"role": "user", "content": example["context"]}], stream=CASES[example["id"]].stream
        )
        return {**example, "response": reply.text}


class Exact:
    name = "exact"

    def score(self, original, processed):
        return {"exact": float(processed["response"] == "42")}


async def test_every_row_ends_right_or_with_its_class_and_its_attempts_in_the_books(tmp_path):
    """One example for each thing a provider can do; none is a score of 0."""
    named = [case for case in CASES.values() if case.name != "two-tools"]
    async with Hostile(tick=0.02) as provider:
        data = [{"id": case.name, "context": f"hostile:{case.name}", "question": "?"} for case in named]
        with open_store(tmp_path / "cases.db") as store:
            settings = RunSettings(max_workers=8)
            system = Patient(provider.url)
            done = await execute(
                store,
                name="cases",
                arms=[Arm(system)],
                examples=data,
                evaluators=[Exact()],
                manifest={},
                settings=settings,
            )
            await system.client.aclose()
            found = {row.example_id: row for row in rows(store, "cases")}
        assert done.completed
        attempts = Counter(one.case for one in provider.log)
    for case in named:
        row = found[case.name]
        if case.error is None:
            assert (row.errors, row.scores) == ({}, {"exact": 1.0})
        else:
            assert row.errors["system"].startswith(f"{case.error.__name__}: ")
            assert row.scores == {}
        assert attempts[case.name] == (3 if case.again else 1)
    assert books(tmp_path / "cases.db")[0] == log_of(provider)


async def test_a_run_that_is_out_of_time_says_so_and_keeps_what_was_asked(tmp_path):
    where = tmp_path / "late.db"
    async with Hostile(lambda asked: "stall-before-headers" if "<2>" in asked.text else "answer") as provider:
        with open_store(where) as store:
            system = Patient(provider.url)
            system.client.timeout = None
            done = await execute(
                store,
                name="late",
                arms=[Arm(Slow(system))],
                examples=[{"id": i, "context": f"<{i}>", "question": "?"} for i in range(5)],
                evaluators=[Exact()],
                manifest={},
                settings=RunSettings(max_workers=1, run_timeout=1.5),
            )
            await system.client.aclose()
            assert (done.completed, type(done.stopped).__name__) == (False, "RunTimedOut")
            assert run_of(store, "late").status == "stopped"
            assert [row.errors for row in rows(store, "late")] == [{}, {}]
        assert books(where)[0] == log_of(provider)
        assert len(provider.log) == 3


class Slow(Patient):
    def __init__(self, other):
        self.name, self.client = "slow", other.client

    async def aprocess(self, example):
        reply = await self.client.chat("m", [{"role": "user", "content": example["context"]}])
        return {**example, "response": reply.text}


class Asks:
    """A judge that never hears back."""

    name = "asks"

    def __init__(self, url):
        self.client = ChatClient(url, timeout=None)

    async def ascore(self, original, processed):
        await self.client.chat("m", [{"role": "user", "content": "hostile:stall-before-headers"}])
        return {"asks": 1.0}


async def test_a_judge_that_is_cut_off_is_in_the_books(tmp_path):
    where, example = tmp_path / "judged.db", {"id": 1, "context": "<1>", "question": "?"}
    async with Hostile() as provider:
        judge, system = Asks(provider.url), Slow(Patient(provider.url))
        made = {"examples": [example], "manifest": {}}
        with open_store(where) as store:
            settings = RunSettings(max_workers=1, run_timeout=1.0)
            await execute(store, name="r", arms=[Arm(system)], evaluators=[Exact()], settings=settings, **made)
            again = await execute(
                store, name="r", arms=[Arm(system)], evaluators=[Exact(), judge], settings=settings, **made
            )
            assert not again.completed
            assert [row.scores for row in rows(store, "r")] == [{"exact": 1.0}]
        await judge.client.aclose()
        await system.client.aclose()
        attempts, accounts = books(where)
        assert attempts == log_of(provider)
        assert accounts == {"system": 1, "judge": 1}


@pytest.mark.parametrize("case", ["done-then-stall", "done-then-more"])
async def test_a_stream_that_goes_on_or_stays_open_after_its_end_is_one_row_asked_once(tmp_path, case):
    async with Hostile(case) as provider:
        with open_store(tmp_path / "after.db") as store:
            async with asyncio.timeout(60):
                await execute(
                    store,
                    name="after",
                    arms=[Arm(OpenAIProxy(provider.url, name="proxy", model="m", stream=True))],
                    examples=[
                        {"id": i, "context": "some words", "question": f"which {i}?", "answer": "42"} for i in range(4)
                    ],
                    evaluators=[AnswerQuality()],
                    manifest={},
                    settings=RunSettings(max_workers=2),
                )
            found = list(rows(store, "after"))
    assert [(row.errors, row.scores["exact_match"]) for row in found] == [
        ({}, 1.0)
    ] * 4  # nothing of what follows is in the answer
    assert len(provider.log) == 4
    events = {row.metadata.get("after_done", {}).get("events") for row in found}
    assert events == ({2} if case == "done-then-more" else {None})


async def matched(where, provider, name):
    """Rows of a run of a system that streams, and of a control in its size, with no tap to count what arrives."""

    def system(name):
        return OpenAIProxy(provider.url, name=name, model="m", stream=True, max_retries=1, retry_base_delay=0.01)

    control = Control("head_tail", system("inner"), partner="proxy")
    context = " ".join(f"word{n}" for n in range(60))
    with open_store(where) as store:
        async with asyncio.timeout(60):
            await execute(
                store,
                name=name,
                arms=[Arm(system("proxy")), Arm(control, budget_from="proxy")],
                examples=[
                    {"id": i, "context": f"<{i}> {context}", "question": f"which {i}?", "answer": "42"}
                    for i in range(3)
                ],
                evaluators=[AnswerQuality()],
                manifest={},
                settings=RunSettings(max_workers=1),
            )
        return list(rows(store, name))


def sizes(found):
    return [(row.system, row.example_id, row.output_tokens, row.metadata.get("budget"), row.errors) for row in found]


async def test_a_bill_that_is_cut_off_costs_a_control_no_row_of_its_own(tmp_path, monkeypatch):
    """The report of the disturbed run is that of the undisturbed one, since the bill is asked for once more."""
    monkeypatch.setattr("context_bench.llm.chat._BILL_SECONDS", 0.1)
    monkeypatch.setitem(CASES, "unbilled", UNBILLED)
    async with Hostile("usage-last") as calm, Hostile(cut_once("<1>")) as disturbed:
        whole = await matched(tmp_path / "calm.db", calm, "r")
        found = await matched(tmp_path / "disturbed.db", disturbed, "r")
    assert sizes(found) == sizes(whole)
    assert not any(row.failed for row in found)
    assert len(disturbed.log) == len(calm.log) + 1


async def test_a_control_whose_size_stays_unknown_says_why_and_no_answer_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr("context_bench.llm.chat._BILL_SECONDS", 0.1)
    monkeypatch.setitem(CASES, "unbilled", UNBILLED)

    def order(asked):
        return "unbilled" if "<1>" in asked.text and "word30" in asked.text else failing(asked)

    def failing(asked):
        return "400" if "<2>" in asked.text and not mended else "usage-last"

    mended = False
    async with Hostile(order) as provider:
        first = await matched(tmp_path / "r.db", provider, "r")
        asked, mended = len(provider.log), True
        again = await matched(tmp_path / "r.db", provider, "r")
    reasons = {row.example_id: row.errors.get("system", "") for row in first if row.system == "head_tail@proxy"}
    assert reasons[0] == ""
    assert "its answer is stored and is not asked for again, but came without a bill" in reasons[1]
    assert "it gave no answer; it is asked again when this run goes on" in reasons[2]
    assert all(reason.startswith("NoBudget: what proxy forwarded") for reason in (reasons[1], reasons[2]))
    assert len(provider.log) == asked + 2  # both of the third example; nobody asks for the second one's again
    assert [(row.system, row.example_id) for row in again if row.failed] == [("head_tail@proxy", 1)]
    assert next(row for row in again if row.failed).errors["system"] == reasons[1]
