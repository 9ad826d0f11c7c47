"""A run shows that it lives, however long its examples take."""

import asyncio

import pytest

from context_bench.core.errors import StoreUnusable
from context_bench.core.machine import ManualClock
from context_bench.engine import commit as alive, run_of


async def test_signs_of_life_go_on_while_one_example_takes_its_time(store, run, monkeypatch):
    shown, clock, real, given = [], ManualClock(1_000.0), alive.heartbeat, asyncio.Event()

    def signs(show, every=None):
        if every is not None:  # another sign than that of life
            return real(show, every)

        async def showing():
            await show()
            given.set()

        return real(showing, every=0.001)

    monkeypatch.setattr("context_bench.engine.driver.heartbeat", signs)

    class Slow:
        name = "slow"

        async def aprocess(self, example):
            for _ in range(3):
                clock.time += 100
                for _ in range(2):  # the first may have been on its way
                    given.clear()
                    await given.wait()
                shown.append(run_of(store, "r").updated)
            return {**example, "response": "late"}

        process = aprocess

    done = await run([Slow()], [{"id": 1, "context": "c"}], clock=clock)
    assert done.completed
    assert shown == [1_100.0, 1_200.0, 1_300.0]


async def test_a_sign_that_cannot_be_given_leaves_the_failure_to_the_work():
    tried = asyncio.Event()

    async def show():
        tried.set()
        raise StoreUnusable("gone")

    async with alive.heartbeat(show, every=0.0):
        await tried.wait()
    with pytest.raises(ValueError, match="the work's own"):
        async with alive.heartbeat(show, every=0.0):
            raise ValueError("the work's own")
