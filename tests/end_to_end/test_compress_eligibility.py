"""Probes of a run that a model answers are chosen by answers of their own, and scored by others."""

from __future__ import annotations

import asyncio
import json
import random
import re

from context_bench.cli.app import run_line
from context_bench.compression.systems.sentence import SentenceModel
from context_bench.engine import list_runs, open_store, rows, spent
from context_bench.llm.servers import ModelServer

SESSION = "bundled:sessions/order-sync-zh"


class Wavering(SentenceModel):
    """A model whose answers differ from call to call: now and then it gives up."""

    def __init__(self, gives_up: float = 0.15):
        super().__init__()
        self.calls, self.gives_up = 0, gives_up

    async def reply(self, request, headers):
        self.calls += 1
        reply = await super().reply(request, headers)
        if random.Random(self.calls).random() < self.gives_up:
            reply.text = "I do not know."
        return reply


def line(folder, url, run, *more):
    where = [
        "--store",
        f"{folder}/store.db",
        "--run",
        run,
        "--quiet",
        "--output",
        "json",
        "--out",
        f"{folder}/{run}.json",
    ]
    return ["compress", "run", SESSION, "--responder", url, "--model", "m", "--controls", "full,none", *where, *more]


async def ran(*words):
    return await asyncio.to_thread(run_line, [*words])


async def test_probes_are_chosen_by_draws_that_are_not_scored(tmp_path):
    model = Wavering()
    async with ModelServer(model) as server:
        assert await ran(*line(tmp_path, server.url, "one", "--reuse")) in (0, 1)
        chosen = json.loads((tmp_path / "one.json").read_text())
        asked = model.calls
        assert await ran(*line(tmp_path, server.url, "two")) in (0, 1)
        again = model.calls - asked
    store = open_store(f"{tmp_path}/store.db")
    try:
        drawn, scored = list(rows(store, "one-eligibility")), list(rows(store, "one"))
    finally:
        store.close()
    probes = {row.example_id for row in drawn}
    kept = {row.example_id for row in scored}
    assert kept < probes
    assert len(drawn) == 10 * len(probes)
    assert asked == len(drawn) + 2 * len(
        kept
    )  # nothing that was scored had been drawn before, even where rows may be used again
    assert again == 2 * len(kept)  # a second run scores draws of its own, over the probes that were chosen
    full = [row.scores["probe_score"] for row in scored if row.system == "full"]
    assert min(full) < 0.5, "all are right: scored by the draws that chose them"
    assert chosen["manifest"]["datasets"][0]["counts"]["not answerable, left out"] == len(probes) - len(kept)
    assert await ran("show", "one-eligibility", "--full", "--store", f"{tmp_path}/store.db") == 0


async def test_replicates_and_cycles_are_chosen_with_their_probe(tmp_path):
    model = Wavering(0.0)
    async with ModelServer(model) as server:
        more = ["--drift", "--points", "fraction:0.5,0.8", "--replicates", "2", "--eligibility", "1", "--per-type", "1"]
        assert await ran(*line(tmp_path, server.url, "drift", *more)) == 0
    report = json.loads((tmp_path / "drift.json").read_text())
    asked = {row["example_id"] for row in report["rows"]}
    probes = {re.split("[~/]", name.split("#")[1])[0] for name in asked}
    assert probes
    assert len(asked) == 4 * len(probes)
    assert model.calls == 2 * len({row["example_id"] for row in report["rows"]}) + 2 * drawn_in(tmp_path, "drift")


def drawn_in(folder, run):
    store = open_store(f"{folder}/store.db")
    try:
        return len({row.example_id for row in rows(store, f"{run}-eligibility")})
    finally:
        store.close()


async def test_choosing_probes_stands_under_the_money_limit(tmp_path, capsys):
    model = Wavering(0.0)
    async with ModelServer(model) as server:
        told = line(tmp_path, server.url, "dear", "--max-cost", "0.05", "--price", "m=1000,1000")
        assert await ran(*told) == 5
    assert "cost cap" in capsys.readouterr().err
    store = open_store(f"{tmp_path}/store.db")
    try:
        assert spent(store, store_run(store)) <= 0.05
    finally:
        store.close()


def store_run(store):
    [run] = list_runs(store)
    assert run.name == "dear-eligibility"
    return run.id


async def test_a_limit_without_a_price_is_said_before_anything_is_asked(tmp_path, capsys):
    model = Wavering(0.0)
    async with ModelServer(model) as server:
        assert await ran(*line(tmp_path, server.url, "no", "--max-cost", "1")) == 2
    assert "--max-cost needs a price for 'm'" in capsys.readouterr().err
    assert model.calls == 0
