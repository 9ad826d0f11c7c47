"""Money: what is billed and what is in flight never pass the cap."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import CostCapReached
from context_bench.core.protocols import Spend
from context_bench.llm.spend import SpendLimit


async def test_to_the_cent() -> None:
    limit: Spend = SpendLimit(1.00)
    for _ in range(10):
        limit.settle(await limit.reserve(0.10), 0.10)
    with pytest.raises(CostCapReached, match=r"\$1\.00 .*\$1\.0000 spent"):
        await limit.reserve(0.01)
    assert isinstance(limit, SpendLimit)
    assert limit.spent == 1.00
    limit.settle(await limit.reserve(0.0), None)


async def test_waits_for_calls_in_flight_and_goes_on_when_they_were_cheaper() -> None:
    limit = SpendLimit(1.00)
    first = await limit.reserve(0.60)
    second = asyncio.create_task(limit.reserve(0.60))
    third = asyncio.create_task(limit.reserve(0.40))
    assert await third
    assert not second.done()
    assert limit.in_flight == 1.00
    limit.settle(await third, 0.10)
    await asyncio.sleep(0)
    assert not second.done()
    limit.settle(first, 0.30)
    assert await second
    assert (limit.spent, limit.in_flight) == (0.40, 0.60)


async def test_stops_when_nothing_in_flight_can_help() -> None:
    limit = SpendLimit(1.00)
    first = await limit.reserve(0.60)
    second = asyncio.create_task(limit.reserve(0.60))
    await asyncio.sleep(0)
    limit.settle(first, 0.50)
    with pytest.raises(CostCapReached):
        await second
    with pytest.raises(CostCapReached, match=r"up to \$2"):
        await limit.reserve(2.0)


async def test_what_is_spent_already_makes_waiting_pointless() -> None:
    limit = SpendLimit(1.00, spent=0.7)
    await limit.reserve(0.2)
    with pytest.raises(CostCapReached):
        await limit.reserve(0.4)


async def test_an_unknown_bill_counts_with_its_worst_case_and_a_ticket_only_once() -> None:
    limit = SpendLimit(1.00)
    ticket = await limit.reserve(0.25)
    limit.settle(ticket, None)
    limit.settle(ticket, 0.75)
    assert limit.spent == 0.25


@pytest.mark.parametrize("cap", [-1.0, float("nan"), float("inf")])
def test_a_cap_is_a_number_of_dollars(cap: float) -> None:
    with pytest.raises(ValueError, match="money limit"):
        SpendLimit(cap)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 1)), min_size=1, max_size=40), st.floats(0, 2))
def test_the_cap_holds_at_every_moment(calls: list[tuple[float, float]], cap: float) -> None:
    async def run() -> tuple[SpendLimit, int]:
        limit, refused = SpendLimit(cap), 0

        async def one(worst: float, share: float) -> None:
            nonlocal refused
            try:
                ticket = await limit.reserve(worst)
            except CostCapReached:
                refused += 1
                return
            assert limit.spent + limit.in_flight <= cap + 1e-9
            await asyncio.sleep(0)
            limit.settle(ticket, worst * share)

        await asyncio.gather(*(one(*call) for call in calls))
        return limit, refused

    limit, refused = asyncio.run(run())
    assert limit.in_flight == 0
    assert limit.spent <= cap + 1e-9
    if sum(worst for worst, _ in calls) <= cap * 0.999:
        assert refused == 0
