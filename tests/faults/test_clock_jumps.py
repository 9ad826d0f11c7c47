"""The wall clock jumps by a day, forth or back: durations, ages and the claim on a run stay right."""

import pytest

from context_bench.engine import Arm, RunSettings, execute, open_store, purge, rows, run_of

DAY = 86_400.0


class Jumping:
    """The machine's clock as somebody sets it meanwhile; what is measured in durations goes on evenly."""

    def __init__(self, by):
        self.wall, self.even, self.by = 1_800_000_000.0, 5.0, by

    def now(self):
        return self.wall

    def monotonic(self):
        self.even += 0.25
        return self.even

    async def sleep(self, seconds):
        self.wall += seconds

    def jump(self):
        self.wall += self.by


class Sets:
    """A system in the middle of whose answers the clock is set."""

    name = "sets"

    def __init__(self, clock):
        self.clock = clock

    def fingerprint(self):
        return {"class": "Sets"}

    def process(self, example):
        if example["id"] == 2:
            self.clock.jump()
        return {**example, "response": "fine"}


@pytest.mark.parametrize("by", [DAY, -DAY])
async def test_a_run_across_a_jump(tmp_path, by):
    clock = Jumping(by)
    given = [{"id": number, "context": "c"} for number in range(5)]

    async def runs(store):
        done = await execute(
            store,
            name="r",
            arms=[Arm(Sets(clock))],
            examples=given,
            evaluators=[],
            manifest={},
            settings=RunSettings(late_grace=0.0),
            clock=clock,
        )
        return done.counts

    with open_store(tmp_path / "store.db") as store:
        counts = await runs(store)
        assert (counts["done"], counts["failed"]) == (5, 0)
        assert 0 < counts["seconds"] < 60
        assert {row.latency for row in rows(store, "r")} == {0.25}
        record = run_of(store, "r")
        assert record.status == "done"
        assert record.updated == clock.now()  # not the time before the jump
        again = await runs(store)
        assert again["reused"] == 5
        assert 0 <= again["reused_age"] <= DAY
        clock.jump()
        assert (
            purge(store, older_than=2 * DAY, clock=clock) == []
        )  # a clock that is a day off removes nothing that is kept for two
        assert purge(store, older_than=0, clock=clock) == (["r"] if by > 0 else [])
