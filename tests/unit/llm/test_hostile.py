"""The client against everything that the hostile provider can do. Waits are on a manual clock; only stalls cost a
moment.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from context_bench.core import errors
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.machine import ManualClock
from context_bench.core.records import Call
from context_bench.llm.chat import ChatClient
from context_bench.llm.limits import AdaptiveLimiter
from context_bench.testing.hostile import CASES, Act, Hostile, HostileCase, faults, refused_url
from context_bench.testing.hostile_cases import Scene
from context_bench.wire.apis import Reply, chat_request

FAILING = [case for case in CASES.values() if case.error is not None]
ANSWERED = [case for case in CASES.values() if case.error is None]
ANSWER = "4.2 m — naïve ✓ 🦎"


async def asked(
    provider: Hostile, case: HostileCase, clock: ManualClock, retries: int = 2, **client: Any
) -> tuple[Reply | Exception, list[Call]]:
    """The end of one request, and its attempts."""
    ledger = Ledger()
    limit = 0.15 if case.slow else 20
    body = {"model": "m", "messages": [{"role": "user", "content": "Say it."}], "stream": case.stream}
    async with ChatClient(
        provider.url, clock=clock, max_retries=1 if case.slow else retries, timeout=limit, **client
    ) as chat:
        with open_ledger(ledger):
            try:
                return await chat.send(chat_request(body), tool_calls_ok=case.name == "two-tools"), ledger.calls
            except errors.SystemFailed as error:
                return error, ledger.calls


@pytest.mark.parametrize("case", FAILING, ids=lambda case: case.name)
async def test_a_case_at_every_attempt_ends_as_its_class_after_the_right_number_of_attempts(case: HostileCase) -> None:
    clock = ManualClock()
    async with Hostile(case.name, answer=lambda _: ANSWER, tick=0.02, clock=clock) as provider:
        end, calls = await asked(provider, case, clock)
    tries = 1 if not case.again else 2 if case.slow else 3
    assert type(end) is case.error
    assert [call.attempt for call in calls] == list(range(1, tries + 1))
    assert len(provider.log) == tries
    assert all(call.error and call.error.startswith(type(end).__name__) for call in calls)


@pytest.mark.parametrize("case", [case for case in FAILING if case.again], ids=lambda case: case.name)
async def test_a_case_that_passes_is_waited_for_as_asked_and_answered_then(case: HostileCase) -> None:
    clock = ManualClock()
    limiter = AdaptiveLimiter(start=10, clock=clock)
    async with Hostile([case.name], answer=lambda _: ANSWER, tick=0.02, clock=clock) as provider:
        end, calls = await asked(provider, case, clock, limiter=limiter)
    assert isinstance(end, Reply)
    assert end.text == ANSWER
    assert [call.error is None for call in calls] == [False, True]
    wait = min(60.0, max(1.0, case.asks or 0.0))
    assert calls[1].waited == pytest.approx(wait, abs=1)  # dates have whole seconds
    assert sum(clock.sleeps) == pytest.approx(calls[1].waited)
    assert limiter.limit == (8 if case.error is errors.RateLimited else 10)  # a success after a retry is no growth
    assert (limiter.in_use, limiter.in_flight) == (0, 0)


@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: case.name)
async def test_an_odd_stream_is_read_like_any_other(case: HostileCase) -> None:
    clock = ManualClock()
    async with Hostile(case.name, answer=lambda _: ANSWER) as provider:
        end, calls = await asked(provider, case, clock)
    assert isinstance(end, Reply)
    assert end.text == ANSWER
    (call,) = calls
    assert (call.ttft is not None) == case.stream
    assert (call.usage is not None) == (provider.log[0].usage is not None)
    if call.usage is not None:
        assert call.usage == provider.log[0].usage
    if case.name == "two-tools":
        assert [(each["name"], each["arguments"]) for each in end.tool_calls] == [
            ("first", '{"a":1}'),
            ("second", '{"b":2}'),
        ]
    if case.name == "reasoning":
        assert end.reasoning == "hm"


@pytest.mark.parametrize(
    "case", [case for case in ANSWERED if case.name.startswith("done-then-")], ids=lambda case: case.name
)
async def test_a_stream_is_at_an_end_when_it_says_so_whatever_it_does_then(case: HostileCase) -> None:
    """Nobody waits for the connection, nothing that follows is taken into the answer, and the connection is not used
    again.
    """
    clock = ManualClock()
    async with Hostile([case.name], answer=lambda _: ANSWER, tick=0.02) as provider:
        begun = time.monotonic()
        async with ChatClient(provider.url, clock=clock, max_retries=0, timeout=60) as chat, asyncio.timeout(20):
            replies = [await chat.send(chat_request({"model": "m", "messages": [], "stream": True})) for _ in range(2)]
        assert time.monotonic() - begun < 10
    assert [(reply.text, reply.finish_reason, reply.usage is None) for reply in replies] == [
        (ANSWER, "stop", False)
    ] * 2
    assert len(provider.log) == 2
    aside = replies[0].after_done
    told = {"more": 2, "more-and-stall": 1, "another-end": 1, "error": 1, "no-json": 1}.get(
        case.name.removeprefix("done-then-")
    )
    if told is not None:
        assert aside is not None
        assert aside["events"] == told
        assert (" EVIL" in aside["text"]) == ("more" in case.name)
    elif case.name == "done-then-flood":
        assert aside is not None
        assert aside["bytes"] < 2**20
        assert len(aside["text"]) <= 2_000
    else:
        assert aside is None
    assert replies[1].after_done is None


async def test_what_follows_the_end_is_in_the_record_of_the_call_without_the_requests_own_key() -> None:
    key = "cb-9f3kQ7w1ZpL0xVb2"
    ledger = Ledger()
    async with Hostile("done-then-more") as provider, ChatClient(provider.url, api_key=key) as chat:
        with open_ledger(ledger):
            reply = await chat.send(chat_request({"model": "m", "messages": [], "stream": True}))
    assert reply.after_done == ledger.calls[0].reply["after_done"]
    assert ledger.calls[0].reply["content"] == "42"


async def test_ordinary_streams_share_one_connection() -> None:
    connections = 0

    class Counting(Hostile):
        async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await super()._connected(reader, writer)

    async with Counting() as provider, ChatClient(provider.url) as chat:
        for _ in range(5):
            await chat.send(chat_request({"model": "m", "messages": [], "stream": True}))
    assert connections == 1


@pytest.mark.parametrize("ending", [Act.STALL, Act.RESET, Act.CLOSE])
async def test_a_whole_reply_without_its_end_mark_is_not_asked_for_again(
    ending: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finish reason has come: what stalls or breaks then may owe its bill, and the answer is there."""
    monkeypatch.setattr("context_bench.llm.chat._BILL_SECONDS", 0.2)

    def steps(scene: Scene) -> list[bytes | Act]:
        *whole, _end, _done, _bill = CASES["answer"].steps(scene)
        return [*whole, _done, ending]

    monkeypatch.setitem(CASES, "unmarked", HostileCase("unmarked", "", steps, stream=True))
    async with (
        Hostile("unmarked", answer=lambda _: ANSWER) as provider,
        ChatClient(provider.url, timeout=60) as chat,
        asyncio.timeout(20),
    ):
        reply = await chat.send(chat_request({"model": "m", "messages": [], "stream": True}))
    assert (reply.text, reply.finish_reason, len(provider.log)) == (ANSWER, "stop", 1)


def without_its_bill(ending: Act) -> HostileCase:
    """A whole streamed answer, cut before the chunk that tells its usage."""

    def steps(scene: Scene) -> list[bytes | Act]:
        *whole, _bill, _done, _end = CASES["usage-last"].steps(scene)
        return [*whole, ending]

    return HostileCase("unbilled", "", steps, stream=True)


async def billed(
    provider: Hostile, *, needs_bill: bool, first: str = "usage-last", **client: Any
) -> tuple[list[Reply], list[list[Call]]]:
    """The replies to two streamed requests, of which the first shows whether this endpoint tells its bills."""
    replies, calls = [], []
    async with ChatClient(provider.url, clock=ManualClock(), timeout=60, **client) as chat, asyncio.timeout(30):
        for case in (first, "second"):
            ledger = Ledger(needs_bill=needs_bill)
            with open_ledger(ledger):
                body = {"model": "m", "messages": [{"role": "user", "content": case}], "stream": True}
                replies.append(await chat.send(chat_request(body)))
            calls.append(ledger.calls)
    return replies, calls


@pytest.mark.parametrize("ending", [Act.STALL, Act.RESET, Act.CLOSE])
async def test_an_answer_whose_bill_is_needed_and_was_cut_off_is_asked_for_once_more(
    ending: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("context_bench.llm.chat._BILL_SECONDS", 0.2)
    monkeypatch.setitem(CASES, "unbilled", without_its_bill(ending))
    async with Hostile(["usage-last", "unbilled", "usage-last"], answer=lambda _: ANSWER) as provider:
        replies, calls = await billed(provider, needs_bill=True)
    assert [reply.text for reply in replies] == [ANSWER, ANSWER]
    assert replies[1].usage is not None
    cut, whole = calls[1]
    assert "its bill" in str(cut.error)
    assert (cut.usage, whole.error, whole.usage) == (None, None, replies[1].usage)


@pytest.mark.parametrize("then", ["unbilled", "500", "400", "filtered", "reset-before-headers"])
async def test_where_a_lost_bill_does_not_come_the_second_time_the_answer_stands(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one attempt is made for the bill alone, and nothing that becomes of it takes the answer away."""
    monkeypatch.setattr("context_bench.llm.chat._BILL_SECONDS", 0.2)
    monkeypatch.setitem(CASES, "unbilled", without_its_bill(Act.STALL))
    answers = iter([ANSWER, "the first", "the second", *["not this"] * 3])
    async with Hostile(["usage-last", "unbilled", *[then] * 3], answer=lambda _: next(answers)) as provider:
        replies, calls = await billed(provider, needs_bill=True, max_retries=2)
    assert replies[1].text == ("the second" if then == "unbilled" else "the first")
    assert replies[1].usage is None
    assert [call.error is None for call in calls[1]].count(True) == 1
    assert len(calls[1]) == {"unbilled": 2, "400": 2, "filtered": 2}.get(then, 3)


@pytest.mark.parametrize(
    ("needs_bill", "first", "retries"), [(False, "usage-last", 3), (True, "unbilled", 3), (True, "usage-last", 0)]
)
async def test_nothing_is_paid_again_for_a_bill_that_nobody_needs_or_that_this_endpoint_never_tells(
    needs_bill: bool, first: str, retries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("context_bench.llm.chat._BILL_SECONDS", 0.2)
    monkeypatch.setitem(CASES, "unbilled", without_its_bill(Act.STALL))
    async with Hostile([first, "unbilled"], answer=lambda _: ANSWER) as provider:
        replies, calls = await billed(provider, needs_bill=needs_bill, max_retries=retries)
    assert [reply.text for reply in replies] == [ANSWER, ANSWER]
    assert [[call.error for call in each] for each in calls] == [[None], [None]]
    assert len(provider.log) == 2


async def test_money_or_time_that_is_not_there_for_a_second_attempt_leaves_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("context_bench.llm.chat._BILL_SECONDS", 0.2)
    monkeypatch.setitem(CASES, "unbilled", without_its_bill(Act.RESET))

    class Spent:
        """Money for two attempts."""

        left = 2

        async def reserve(self, dollars: float) -> int:
            self.left -= 1
            if self.left < 0:
                raise errors.CostCapReached("no money is left")
            return self.left

        def settle(self, ticket: int, cost: float | None) -> None:
            """It is gone."""

    monkeypatch.setattr("context_bench.llm.chat.worst_case", lambda *_: 1.0)
    for money in (True, False):
        spend = Spent() if money else None
        clock = ManualClock()
        async with (
            Hostile(["usage-last", "unbilled", "usage-last"], answer=lambda _: ANSWER) as provider,
            ChatClient(provider.url, clock=clock, timeout=60) as chat,
            asyncio.timeout(30),
        ):
            for content in ("first", "second"):
                ledger = Ledger(needs_bill=True, spend=spend, deadline=None if money else clock.monotonic() + 1.5)
                body = {"model": "m", "messages": [{"role": "user", "content": content}], "stream": True}
                with open_ledger(ledger):
                    reply = await chat.send(chat_request(body))
                assert reply.text == ANSWER
            assert len(provider.log) == 2
            assert [call.error for call in ledger.calls] == [None]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_nobody_there_or_nobody_who_speaks_tls(scheme: str) -> None:
    ledger, clock = Ledger(), ManualClock()
    async with Hostile() as provider:
        target = provider.url.replace("http", scheme) if scheme == "https" else refused_url()
        async with ChatClient(target, clock=clock, max_retries=2) as chat:
            with open_ledger(ledger), pytest.raises(errors.Unreachable):
                await chat.chat("m", [{"role": "user", "content": "?"}])
    assert len(ledger.calls) == 3
    assert {call.status for call in ledger.calls} == {None}


async def test_a_request_names_its_case() -> None:
    async with Hostile() as provider, ChatClient(provider.url, max_retries=0) as chat:
        with pytest.raises(errors.Filtered):
            await chat.chat("m", [{"role": "user", "content": "please, hostile:filtered"}])
        with pytest.raises(errors.Declined):
            await chat.chat("hostile:declined", [{"role": "user", "content": "?"}])
        assert (await chat.chat("m", [{"role": "user", "content": "?"}])).text == "42"
    assert [(one.number, one.attempt, one.case) for one in provider.log] == [
        (1, 1, "filtered"),
        (2, 1, "declined"),
        (3, 1, "answer"),
    ]


async def test_faults_are_the_same_ones_every_time() -> None:
    order = faults(0.3, ["500", "reset-mid-body"], seed=3)

    async def cases() -> list[str]:
        async with Hostile(order) as provider, ChatClient(provider.url, max_retries=0) as chat:
            for number in range(60):
                try:
                    await chat.chat("m", [{"role": "user", "content": f"question {number}"}])
                except errors.SystemFailed:
                    continue
            return [one.case for one in provider.log]

    first = await cases()
    assert first == await cases()
    assert 9 <= sum(case != "answer" for case in first) <= 27
    assert {"500", "reset-mid-body"} < set(first)
