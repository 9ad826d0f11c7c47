"""kill -9 at 20 random moments of a 500-example run, then resume: nothing lost, nothing wrong, little repeated."""

import asyncio
import os
import random
import re
import signal
from collections import Counter

from context_bench.engine import differences, open_store, rows, run_of
from context_bench.llm.servers import ModelServer
from context_bench.wire.apis import Reply

EXAMPLES, KILLS, WORKERS = 500, 20, 6


class Counts:
    """Answers every example, counts how often it saw each, and tells when it has seen so many."""

    name = "counts"

    def __init__(self):
        self.seen = Counter()
        self.changed = asyncio.Event()

    async def reply(self, request, headers):
        number = int(re.search(r"<(\d+)>", request.messages[0].text)[1])
        self.seen[number] += 1
        self.changed.set()
        await asyncio.sleep(0.002)
        return Reply(f"answer {number}", [], "stop", None, request.model)

    async def until(self, total):
        while self.seen.total() < total:
            self.changed.clear()
            await self.changed.wait()


async def test_killed_twenty_times_and_resumed_it_is_the_undisturbed_run(tmp_path, forks):
    chance = random.Random(20)
    model, quiet = Counts(), Counts()
    async with ModelServer(model) as server, ModelServer(quiet) as other:
        disturbed = await forks("engine_child.py", server.url, tmp_path / "killed.db", EXAMPLES, WORKERS)
        undisturbed = await forks("engine_child.py", other.url, tmp_path / "quiet.db", EXAMPLES, WORKERS)
        await undisturbed.start()
        kills = 0
        for _ in range(KILLS):
            pid = await disturbed.start()
            await model_or_end(model, model.seen.total() + chance.randint(0, 12), disturbed)
            await asyncio.sleep(chance.random() * 0.01)
            os.kill(pid, signal.SIGKILL)
            assert await disturbed.ended() == -signal.SIGKILL
            kills += 1
            with open_store(tmp_path / "killed.db") as store, store.reading() as connection:
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        await disturbed.start()
        assert await disturbed.ended() == 0
        repeated = model.seen.total() - EXAMPLES
        await disturbed.start()
        assert await disturbed.ended() == 0
        assert model.seen.total() == EXAMPLES + repeated  # resuming twice asks nothing
        assert await undisturbed.ended() == 0
        await disturbed.close()
        await undisturbed.close()
    assert set(model.seen) == set(range(EXAMPLES))
    assert 0 <= repeated <= kills * WORKERS
    assert set(quiet.seen.values()) == {1}
    with open_store(tmp_path / "killed.db") as killed, open_store(tmp_path / "quiet.db") as calm:
        assert len(rows(killed, "killed")) == EXAMPLES
        assert differences(rows(killed, "killed"), rows(calm, "killed")) == []
        assert {row.scores["right"] for row in rows(killed, "killed")} == {1.0}
        assert run_of(killed, "killed").status == "done"


async def model_or_end(model, total, forked):
    """Wait until the server has seen `total` requests; a run that ends before is a fault of the test's numbers."""
    await asyncio.wait_for(model.until(total), 60)
    assert forked.process.returncode is None
