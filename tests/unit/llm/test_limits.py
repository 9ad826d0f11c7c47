"""Slots: how many, who waits, and what the account's answers change."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from context_bench.core.machine import ManualClock
from context_bench.llm.limits import AdaptiveLimiter, FixedLimiter, Limiter, RequestEnd


async def one_round(limiter: AdaptiveLimiter, outcome: RequestEnd = RequestEnd.CLEAN, share: float = 1.0) -> None:
    """As many answers as there are slots, of which `share` are in use together."""
    left = limiter.limit
    while left:
        together = min(left, max(1, int(limiter.limit * share)))
        for _ in range(together):
            await limiter.acquire()
        for _ in range(together):
            limiter.release(outcome)
        left -= together


def test_both_are_limiters() -> None:
    limiters: list[Limiter] = [FixedLimiter(1), AdaptiveLimiter()]
    assert [limiter.limit for limiter in limiters] == [1, 20]  # type: ignore[attr-defined]


async def test_never_more_than_the_limit_and_first_come_first_served() -> None:
    limiter = FixedLimiter(3)
    order: list[int] = []
    most = 0

    async def work(number: int) -> None:
        nonlocal most
        await limiter.acquire()
        order.append(number)
        most = max(most, limiter.in_use)
        await asyncio.sleep(0)
        limiter.release(RequestEnd.CLEAN)

    await asyncio.gather(*(work(n) for n in range(20)))
    assert order == list(range(20))
    assert (most, limiter.in_use) == (3, 0)


async def test_doubles_while_clean_then_adds_five_per_cent_after_a_cut() -> None:
    limiter = AdaptiveLimiter(start=20, high=200, clock=ManualClock())
    await one_round(limiter)
    assert limiter.limit == 40
    await one_round(limiter)
    assert limiter.limit == 80
    await limiter.acquire()
    limiter.release(RequestEnd.LIMITED)
    assert limiter.limit == 64
    await one_round(limiter)
    assert limiter.limit == 67
    assert [(change.limit, change.reason) for change in limiter.history] == [
        (20, "start"),
        (40, "clean round"),
        (80, "clean round"),
        (64, "refused for quota"),
        (67, "clean round"),
    ]


async def test_a_round_counts_only_if_the_limit_was_used() -> None:
    limiter = AdaptiveLimiter(start=20, clock=ManualClock())
    await one_round(limiter, share=0.5)
    assert limiter.limit == 20
    await one_round(limiter, share=0.8)
    assert limiter.limit == 40


async def test_trouble_begins_the_round_anew_and_neutral_says_nothing() -> None:
    limiter = AdaptiveLimiter(start=4, clock=ManualClock())
    for outcome in (RequestEnd.CLEAN, RequestEnd.CLEAN, RequestEnd.CLEAN, RequestEnd.TROUBLED, RequestEnd.CLEAN):
        for _ in range(4):
            await limiter.acquire()
        limiter.release(outcome)
        for _ in range(3):
            limiter.release(RequestEnd.NEUTRAL)
    assert limiter.limit == 4


async def test_cut_at_most_once_per_calm_time_or_pause() -> None:
    clock = ManualClock()
    limiter = AdaptiveLimiter(start=100, clock=clock)

    async def refused(pause: float = 0.0) -> int:
        await limiter.acquire()
        limiter.release(RequestEnd.LIMITED, pause)
        return limiter.limit

    assert [await refused(), await refused()] == [80, 80]
    clock.time += 16
    for _ in range(2):
        await limiter.acquire()
    limiter.release(RequestEnd.LIMITED, pause=40)
    clock.time += 20
    limiter.release(RequestEnd.LIMITED)  # was under way before the pause, which is longer than the calm time
    assert limiter.limit == 64
    assert await refused() == 51
    assert clock.sleeps == [pytest.approx(20.0)]


async def test_bounds_hold() -> None:
    limiter = AdaptiveLimiter(start=500, low=2, high=3, clock=(clock := ManualClock()))
    assert limiter.limit == 3
    for _ in range(5):
        await limiter.acquire()
        limiter.release(RequestEnd.LIMITED)
        clock.time += 100
    assert limiter.limit == 2
    for _ in range(5):
        await one_round(limiter)
    assert limiter.limit == 3


async def test_a_pause_holds_for_everybody() -> None:
    clock = ManualClock()
    limiter = FixedLimiter(5, clock=clock)
    await limiter.acquire()
    limiter.release(RequestEnd.LIMITED, pause=30)
    await limiter.acquire()
    assert clock.sleeps == [30]


async def test_who_gives_up_waiting_does_not_take_a_slot_along() -> None:
    limiter = FixedLimiter(1)
    await limiter.acquire()
    waiting = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    limiter.release(RequestEnd.CLEAN)  # its turn may come in the same moment as its end
    waiting[1].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(waiting[2], 5)
    assert waiting[2].done()
    assert not waiting[2].cancelled()
    assert limiter.in_use == 1


def test_shared_by_two_event_loops() -> None:
    limiter = FixedLimiter(2)
    most, done = [0], [0]

    async def work() -> None:
        for _ in range(200):
            await limiter.acquire()
            most[0] = max(most[0], limiter.in_use)
            await asyncio.sleep(0)
            limiter.release(RequestEnd.CLEAN)
        done[0] += 1

    async def several() -> None:
        await asyncio.gather(*(work() for _ in range(3)))

    threads = [threading.Thread(target=asyncio.run, args=(several(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (most[0], done[0], limiter.in_use) == (2, 6, 0)
