"""Under what load rows were made is in the store while the run goes on: what ends it cannot lose it."""

import asyncio

from context_bench.core.rows import limit_notes, loads_of
from context_bench.engine import open_store, run_of

ONE, EIGHT = ({"mode": "fixed", "at_once": n, "stream": True} for n in (1, 8))


class Watcher:
    """Answers once another process would find the limits' history in the store; `seen`: what that was."""

    name = "s"

    def __init__(self, path, name):
        self.path, self.run, self.seen = str(path), name, []

    def fingerprint(self):
        return {}

    async def aprocess(self, example):
        with open_store(self.path) as other:
            while len(found := run_of(other, self.run).manifest.get("limits", [])) < example["id"]:  # noqa: ASYNC110 (what is in a file has no event)
                await asyncio.sleep(0.01)
        self.seen.append(found)
        return {**example, "response": "."}


async def test_the_history_of_every_execution_is_on_disk_before_it_ends(store, run, monkeypatch):
    monkeypatch.setattr("context_bench.engine.driver.EVERY", 0.05)
    first, later = [[1.0, 20, "start"]], [[2.0, 20, "start"]]
    system, examples = Watcher(store.path, "r"), [{"id": n, "context": ""} for n in (1, 2)]
    await run([system], examples[:1], manifest={"load": ONE}, limits=lambda: {"http://a": list(first)})
    assert system.seen == [[{"http://a": first}]]

    def growing():
        if len(later) == 1 and len(system.seen) == 2:
            later.append([3.0, 16, "refused for quota"])
        return {"http://a": list(later)}

    await run([system], examples, manifest={"load": EIGHT}, limits=growing)
    assert system.seen[1] == [{"http://a": first}, {"http://a": later[:1]}]
    kept = run_of(store, "r").manifest
    assert kept["limits"] == [{"http://a": first}, {"http://a": later}], (
        "what happened after the last look is kept with the end"
    )
    assert loads_of(kept) == [ONE, EIGHT]
    assert [note.partition(":")[0] for note in limit_notes(kept)] == [
        "Times mix different load, for the run went on with other settings",
        "http",
    ]


async def test_an_execution_that_makes_no_row_adds_no_load(store, run):
    class Plain:
        name = "s"

        def process(self, example):
            return {**example, "response": "."}

    examples = [{"id": 1, "context": ""}]
    await run([Plain()], examples, manifest={"load": ONE})
    await run([Plain()], examples, manifest={"load": EIGHT})
    assert loads_of(run_of(store, "r").manifest) == [ONE]
