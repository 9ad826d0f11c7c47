"""kill -9 in the middle of set-ups and of groups, then resume: the same report, nothing half ingested, nothing done
twice without need.
"""

import asyncio
import os
import random
import signal

from context_bench.core.records import Usage
from context_bench.core.rows import note, set_up_again, standing
from context_bench.engine import open_store, rows, run_of, setups, spent
from context_bench.llm.servers import ModelServer
from context_bench.metrics import MeanScore
from context_bench.reports import build_page
from context_bench.reports.json_document import render
from context_bench.runner import collect
from context_bench.wire.apis import Reply

GROUPS, ITEMS, QUESTIONS, WORKERS, KILLS = 8, 4, 2, 2, 5


class Counts:
    """Answers everything and tells when it has been asked so often; until it is `free`, nobody gets beyond the middle
    of a set-up.
    """

    name = "counts"

    def __init__(self):
        self.seen = 0
        self.changed, self.within, self.free = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def reply(self, request, headers):
        self.seen += 1
        self.changed.set()
        if "item 2" in request.messages[0].text:
            self.within.set()
            await self.free.wait()
        await asyncio.sleep(0.002)
        return Reply("noted", [], "stop", Usage(input_tokens=5, output_tokens=1), request.model)

    async def until(self, total):
        while self.seen < total:
            self.changed.clear()
            await self.changed.wait()


def page(store):
    return build_page(collect(store, "killed", [MeanScore(score_field="whole")]))


async def test_killed_within_set_ups_and_resumed_it_is_the_undisturbed_run(tmp_path, forks):
    chance = random.Random(7)
    model, quiet = Counts(), Counts()
    killed, calm = tmp_path / "killed", tmp_path / "calm"
    for folder in (killed, calm):
        (folder / "notes").mkdir(parents=True)
    async with ModelServer(model) as server, ModelServer(quiet) as other:
        disturbed = await forks("setups_child.py", server.url, killed / "store.db", killed / "notes")
        undisturbed = await forks("setups_child.py", other.url, calm / "store.db", calm / "notes")
        await undisturbed.start()
        quiet.free.set()
        for _ in range(KILLS):
            pid = await disturbed.start()
            await asyncio.wait_for(
                model.until(model.seen + chance.randint(1, 10)) if model.free.is_set() else model.within.wait(), 60
            )
            os.kill(pid, signal.SIGKILL)
            model.free.set()
            assert await disturbed.ended() == -signal.SIGKILL
            with open_store(killed / "store.db") as store:
                ready = {(each.number, each.group) for each in setups(store, "killed") if each.error is None}
                assert {(row.metadata["setup"], row.group) for row in rows(store, "killed")} <= ready
                assert run_of(store, "killed").status == "interrupted"
        await disturbed.start()
        assert await disturbed.ended() == 0
        asked = model.seen
        await disturbed.start()
        assert await disturbed.ended() == 0
        assert model.seen == asked  # resuming twice asks nothing
        assert await undisturbed.ended() == 0
        await disturbed.close()
        await undisturbed.close()
    assert quiet.seen == GROUPS * (ITEMS + QUESTIONS)
    with open_store(killed / "store.db") as one, open_store(calm / "store.db") as other_store:
        found, undone = setups(one, "killed"), setups(other_store, "killed")
        assert [(each.group, each.attempt) for each in undone] == [(f"g{i}", 1) for i in range(GROUPS)]
        assert set_up_again(found) > 0
        assert GROUPS < len(found) <= GROUPS + KILLS * WORKERS
        assert all(each.error is None for each in standing(found))
        assert any(each.error == "Interrupted: the set-up never ended" for each in found)
        assert {row.scores["whole"] for row in rows(one, "killed")} == {1.0}
        assert spent(one, run_of(one, "killed").id) >= spent(other_store, run_of(other_store, "killed").id) > 0
        assert {each.cost for each in found if each.seconds is not None} == {each.cost for each in undone} == {0.2}
        resumed, unbroken = page(one), page(other_store)
    assert note(found) in resumed.notes
    assert render(resumed, canonical=True) == render(unbroken, canonical=True)
