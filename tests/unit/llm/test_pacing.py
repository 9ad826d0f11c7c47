"""Requests and tokens a minute, and going slower before an account refuses. All on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.machine import ManualClock
from context_bench.llm.failures import quotas_of
from context_bench.llm.limits import AdaptiveLimiter, FixedLimiter, Pace, Quota, RequestEnd

NOW = 1_700_000_000.0


class Steps(ManualClock):
    """A clock on which sleepers wake in the order of their times, however many there are."""

    def __init__(self) -> None:
        super().__init__(NOW)
        self._asleep: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        woken = asyncio.Event()
        self._count += 1
        self._asleep.append((self.time + max(0.0, seconds), self._count, woken))
        await woken.wait()

    async def run(self, *work: asyncio.Task[None]) -> None:
        """Until all work is done: whenever nobody can go on, the time of the first sleeper comes."""
        while not all(task.done() for task in work):
            for _ in range(20):
                await asyncio.sleep(0)
            if self._asleep:
                self._asleep.sort(key=lambda entry: entry[:2])
                self.time, _, woken = self._asleep.pop(0)
                woken.set()
        for task in work:
            task.result()


async def sent_at(
    limiters: Sequence[FixedLimiter | AdaptiveLimiter],
    clock: Steps,
    tokens: Sequence[int],
    took: float = 0.0,
    reply: int = 0,
) -> list[tuple[float, int]]:
    """When each of these requests was sent, seconds from the start, in the order in which they asked."""
    sent: list[tuple[float, int]] = []

    async def one(number: int, size: int) -> None:
        limiter = limiters[number % len(limiters)]
        await limiter.acquire(size)
        sent.append((round(clock.time - NOW, 6), number))
        if took:
            await clock.sleep(took)
        limiter.release(RequestEnd.CLEAN, tokens=reply)

    await clock.run(*(asyncio.ensure_future(one(*each)) for each in enumerate(tokens)))
    return sent


async def test_requests_are_spread_over_the_minute_first_come_first_served_for_all_clients_of_the_account() -> None:
    clock = Steps()
    pace = Pace(rpm=30, clock=clock)
    clients = [FixedLimiter(50, clock=clock, pace=pace), AdaptiveLimiter(clock=clock, pace=pace)]
    assert await sent_at(clients, clock, [100] * 6) == [(0, 0), (2, 1), (4, 2), (6, 3), (8, 4), (10, 5)]


async def test_tokens_of_prompt_and_reply_are_paid_by_who_comes_next() -> None:
    clock = Steps()
    limiter = FixedLimiter(1, clock=clock, pace=Pace(tpm=6_000, clock=clock))
    assert await sent_at([limiter], clock, [300, 100, 100], reply=200) == [(0, 0), (5, 1), (8, 2)]


async def test_a_request_larger_than_the_minute_s_tokens_goes_through() -> None:
    clock = Steps()
    limiter = FixedLimiter(1, clock=clock, pace=Pace(tpm=1_000, clock=clock))
    assert await sent_at([limiter], clock, [5_000, 10]) == [(0, 0), (300, 1)]


@given(
    st.integers(1, 600),
    st.integers(100, 100_000),
    st.lists(st.integers(0, 20_000), min_size=1, max_size=40),
    st.integers(1, 9),
)
def test_no_minute_has_more_than_was_allowed(rpm: int, tpm: int, sizes: list[int], slots: int) -> None:
    clock = Steps()
    limiter = FixedLimiter(slots, clock=clock, pace=Pace(rpm, tpm, clock=clock))
    sent = asyncio.run(sent_at([limiter], clock, sizes, took=0.5))
    assert [number for _, number in sent] == list(range(len(sizes)))
    for first, (start, _) in enumerate(sent):
        within = [sizes[number] for at, number in sent[first:] if at < start + 59.999]
        assert len(within) <= rpm
        assert sum(within[:-1]) <= tpm


async def test_without_limits_nobody_waits() -> None:
    clock = Steps()
    assert await sent_at([FixedLimiter(9, clock=clock)], clock, [10**9] * 9) == [(0.0, number) for number in range(9)]
    assert clock.sleeps == []


async def test_who_gives_up_while_waiting_for_its_moment_leaves_no_slot_taken() -> None:
    clock = Steps()
    limiter = FixedLimiter(5, clock=clock, pace=Pace(rpm=1, clock=clock))
    await limiter.acquire()
    waiting = asyncio.ensure_future(limiter.acquire())
    for _ in range(5):
        await asyncio.sleep(0)
    assert (limiter.in_use, limiter.in_flight) == (2, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (limiter.in_use, limiter.in_flight) == (1, 1)


async def test_a_pause_is_no_moment_at_which_all_may_come_together() -> None:
    clock = Steps()
    limiter = FixedLimiter(20, clock=clock, pace=Pace(rpm=60, clock=clock))
    await limiter.acquire()
    limiter.release(RequestEnd.LIMITED, pause=30)
    assert [at for at, _ in await sent_at([limiter], clock, [1] * 4)] == [30, 31, 32, 33]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_limits_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(BadInput, match="a minute"):
        Pace(rpm=value)
    with pytest.raises(BadInput, match="tokens a minute"):
        Pace(tpm=value)


# --- before the refusal
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (
            {
                "x-ratelimit-limit-requests": "100",
                "x-ratelimit-remaining-requests": "5",
                "x-ratelimit-reset-requests": "6m0s",
            },
            [Quota("requests", 5, 0.05, 360)],
        ),
        (
            {
                "x-ratelimit-limit-tokens": "40000",
                "x-ratelimit-remaining-tokens": "1000",
                "x-ratelimit-reset-tokens": "20ms",
            },
            [Quota("tokens", 1000, 0.025, 0.02)],
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-limit": "50000",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:13:29Z",
            },
            [Quota("tokens", 0, 0, 9)],
        ),
        (
            {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "2", "x-ratelimit-reset": "1700000012"},
            [Quota("requests", 2, 0.2, 12)],
        ),
        (
            {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "2", "x-ratelimit-reset": "1700000012000"},
            [Quota("requests", 2, 0.2, 12)],
        ),
        (
            {"ratelimit-limit": "10", "ratelimit-remaining": "-2", "ratelimit-reset": "12"},
            [Quota("requests", 0, 0, 12)],
        ),
        (
            {
                "x-ratelimit-limit-requests": "4",
                "x-ratelimit-remaining-requests": "1",
                "x-ratelimit-reset-requests": "Tue, 14 Nov 2023 22:13:50",
            },
            [Quota("requests", 1, 0.25, 30)],
        ),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "1s"}, []),  # of how many?
        ({"x-ratelimit-limit": "0", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}, []),
        ({"x-ratelimit-limit": "ten", "x-ratelimit-remaining": "?", "x-ratelimit-reset": "soon"}, []),
        ({}, []),
    ],
)
def test_what_headers_say_is_left(headers: dict[str, str], told: list[Quota]) -> None:
    assert quotas_of(headers, NOW) == told


@given(
    st.dictionaries(
        st.sampled_from(
            [
                f"{a}ratelimit-{b}{c}"
                for a in ("", "x-")
                for b in ("limit", "remaining", "reset")
                for c in ("", "-tokens")
            ]
        ),
        st.one_of(st.text(), st.integers().map(str), st.floats().map(str)),
    )
)
def test_any_headers_are_read(headers: dict[str, str]) -> None:
    for quota in quotas_of(headers, NOW):
        assert quota.left >= 0
        assert 0 <= quota.seconds < float("inf")
        Pace(clock=ManualClock()).adapt_to([quota])


async def test_what_is_left_is_spread_over_the_time_until_it_is_full_again_and_said_once() -> None:
    clock = Steps()
    limiter = AdaptiveLimiter(start=10, clock=clock)
    await limiter.acquire()
    limiter.release(RequestEnd.CLEAN, quotas=[Quota("requests", 5, 0.05, 20)])
    assert [at for at, _ in await sent_at([limiter], clock, [1] * 7)] == [0, 4, 8, 12, 16, 20, 20]
    await limiter.acquire()
    limiter.release(RequestEnd.CLEAN, quotas=[Quota("tokens", 100, 0.01, 10)])
    limiter.pace.adapt_to([Quota("tokens", 90, 0.009, 9)])
    assert [change.reason for change in limiter.history] == [
        "start",
        "5.0 % of the requests left, spread over 20 s",
        "1.0 % of the tokens left, spread over 10 s",
    ]
    assert limiter.limit == 10


async def test_an_account_with_nothing_left_is_asked_when_it_is_full_again() -> None:
    clock = Steps()
    limiter = AdaptiveLimiter(clock=clock)
    limiter.pace.adapt_to([Quota("tokens", 0, 0, 7)])
    assert [at for at, _ in await sent_at([limiter], clock, [10, 10])] == [7, 7]


@pytest.mark.parametrize("quota", [Quota("requests", 10, 0.1, 20), Quota("requests", 100, 0.01, 86_400)])
async def test_enough_left_or_a_far_reset_slow_nothing(quota: Quota) -> None:
    clock = Steps()
    limiter = AdaptiveLimiter(clock=clock)
    assert limiter.pace.adapt_to([quota]) is None
    assert [at for at, _ in await sent_at([limiter], clock, [1] * 3)] == [0, 0, 0]


async def test_plenty_again_ends_it_and_the_worst_of_one_kind_counts() -> None:
    clock = Steps()
    pace = Pace(clock=clock)
    assert (
        pace.adapt_to([Quota("tokens", 900, 0.9, 5), Quota("tokens", 10, 0.01, 10)])
        == "1.0 % of the tokens left, spread over 10 s"
    )
    assert pace.adapt_to([Quota("tokens", 900, 0.9, 5)]) is None
    assert [pace.place(5) for _ in range(3)] == [NOW] * 3


async def test_a_fixed_load_is_not_changed_by_headers() -> None:
    clock = Steps()
    limiter = FixedLimiter(4, clock=clock)
    await limiter.acquire()
    limiter.release(RequestEnd.CLEAN, quotas=[Quota("requests", 0, 0, 30)])
    assert [at for at, _ in await sent_at([limiter], clock, [1] * 3)] == [0, 0, 0]
    await limiter.acquire()
    await limiter.acquire()
    limiter.release(RequestEnd.LIMITED, pause=3)
    limiter.release(RequestEnd.LIMITED, pause=3)
    assert [(change.limit, change.reason) for change in limiter.history] == [
        (4, "start"),
        (4, "refused for quota, 3 s pause"),
    ]


async def test_how_many_are_under_way_is_told_to_each() -> None:
    limiter = FixedLimiter(3)
    assert [await limiter.acquire() for _ in range(3)] == [1, 2, 3]
    limiter.release(RequestEnd.CLEAN)
    assert await limiter.acquire() == 3
