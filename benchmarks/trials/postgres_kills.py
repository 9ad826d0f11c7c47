"""A store in PostgreSQL under kill -9 of the run and restarts of the server. Nothing may be lost or doubled.

    python benchmarks/trials/postgres_kills.py [--kills 100] [--restarts 20] [--seed 0]

Real processes on loopback: a PostgreSQL server whose commits wait for the disk, a provider with a log of its own,
`context-bench run` with six workers. Kills fall when the provider's log shows that the run is at work; then the same
command goes on. Restarts are `fast` and `immediate` in turn, in the middle of a run that nobody starts again. Exit code
1 if a promise did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import common
import soak_told

from context_bench.engine import open_store, run_of
from context_bench.engine.store import schema
from context_bench.llm.servers import ModelServer
from postgres_server import PostgresServer

WORKERS, ROWS = 6, 240


class Trial:
    """The server, the provider, and what was counted."""

    def __init__(
        self, folder: Path, server: PostgresServer, store: str, url: str, answers: common.Answers, seed: int
    ) -> None:
        self.folder, self.server, self.store, self.url, self.answers = folder, server, store, url, answers
        self.random = random.Random(seed)
        self.data = common.questions(folder / "boxes.jsonl", ROWS)
        self.kills = self.again = self.most_again = self.runs = self.lost = self.doubled = self.different = 0
        self.noise: list[str] = []
        self.calm = ""

    async def start(self, name: str) -> common.Command:
        """The run's command, started."""
        given = [
            "run",
            "--proxy",
            self.url,
            "--name",
            "boxes",
            "--model",
            "m",
            "--dataset",
            str(self.data),
            "--run",
            name,
        ]
        given += ["--store", self.store, "--max-workers", str(WORKERS), "--retries", "0", "--output", "json", "--quiet"]
        return await common.Command(self.folder, given).start()

    async def undisturbed(self) -> None:
        """The run that the others are compared with."""
        ended = await (await self.start("calm")).ended()
        if ended.code:
            raise SystemExit(f"the undisturbed run failed: {ended.err}")
        self.calm = await self.report("calm")
        self.answers.log.clear()

    async def report(self, name: str) -> str:
        """The run's report in canonical JSON."""
        ended = await common.done(self.folder, "export", name, "--store", self.store, "--canonical")
        if ended.code:
            raise SystemExit(f"export {name} failed: {ended.err}")
        return ended.out

    async def killed(self, name: str, kills: int) -> int:
        """A run that is killed up to `kills` times while it works, each time resumed; how many kills there were."""
        made = 0
        while True:
            before = self.answers.seen
            command = await self.start(name)
            if made < kills:
                assert command.reading is not None
                working = asyncio.create_task(self.answers.until(before + self.random.randint(1, 40)))
                await asyncio.wait({working, command.reading}, return_when=asyncio.FIRST_COMPLETED)
                working.cancel()
                await asyncio.sleep(self.random.random() * 0.08)
                made += 0 if command.over else 1
                command.signal()
            ended = await command.ended()
            self.noise += ended.noise
            if ended.code == -9:
                continue
            if ended.code != 0:
                print(ended.err[-3000:], file=sys.stderr)
            await self.count(name, made)
            return made

    async def count(self, name: str, kills: int) -> None:
        """Compare a finished run with the provider's log and with the undisturbed one."""
        asked = self.answers.log
        again = sum(asked.values()) - ROWS
        self.kills, self.again, self.runs = self.kills + kills, self.again + again, self.runs + 1
        self.most_again = max(self.most_again, again - kills * WORKERS)
        with open_store(self.store) as store:
            record = run_of(store, name)
            with store.reading() as connection:
                mine = schema.outputs.select().where(schema.outputs.c.run == record.number)
                kept = len(connection.execute(mine).all())
                owed = len(connection.execute(schema.plan.select().where(schema.plan.c.run == record.number)).all())
        self.lost += ROWS - record.rows + record.failed
        self.doubled += max(0, kept - ROWS) + max(0, owed - ROWS)
        report = await self.report(name)
        if differ := soak_told.differences(report.replace(name, "calm"), self.calm):
            self.different += 1
            print(name, differ[:5], file=sys.stderr)
        if len(asked) != ROWS:
            print(f"{name}: {len(asked)} of {ROWS} were asked", file=sys.stderr)
            self.lost += ROWS - len(asked)
        asked.clear()


async def kill_often(trial: Trial, kills: int, table: common.Table) -> None:
    """Runs under kills, until there were so many."""
    number, began = 0, time.monotonic()
    while trial.kills < kills:
        await trial.killed(f"killed{number}", kills - trial.kills)
        number += 1
        print(
            f"{trial.kills} kills in {trial.runs} runs, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True
        )
    tried = f"{trial.kills} × kill -9 in {trial.runs} runs of {ROWS} rows"
    table.add("no row is lost", tried, f"{trial.lost}", not trial.lost)
    table.add("no row is there twice", tried, f"{trial.doubled}", not trial.doubled)
    within = f"{trial.again} of {trial.kills * WORKERS} allowed"
    table.add(
        "asked again at most those in flight",
        tried,
        within,
        trial.again <= trial.kills * WORKERS and trial.most_again <= 0,
    )
    table.add(
        "the report is that of an undisturbed run",
        tried,
        f"{trial.runs - trial.different} of {trial.runs}",
        not trial.different,
    )


async def restart_often(trial: Trial, restarts: int, table: common.Table) -> None:
    """Runs during which the server is restarted, five times each, fast and immediate in turn."""
    made, codes, resumed = 0, list[int](), 0
    trial.lost = trial.doubled = trial.different = trial.again = trial.runs = 0
    while made < restarts:
        name = f"restarted{trial.runs}"
        command = await trial.start(name)
        before = trial.answers.seen
        for turn in range(min(5, restarts - made)):
            await asyncio.wait_for(trial.answers.until(before + 20 + 40 * turn), 120)
            await asyncio.sleep(trial.random.random() * 0.05)
            crash = made % 2 == 1

            def restarted(crash: bool = crash) -> None:
                trial.server.stop(crash=crash)
                trial.server.start()

            await asyncio.to_thread(restarted)
            made += 1
        ended = await command.ended()
        trial.noise += ended.noise
        codes.append(ended.code)
        if ended.code:
            print(ended.err[-3000:], file=sys.stderr)
            resumed += 1
            again = await (await trial.start(name)).ended()
            codes.append(again.code)
        await trial.count(name, 0)
        print(f"{made} restarts, exit codes {codes}", file=sys.stderr, flush=True)
    tried = f"{made} restarts, fast and immediate in turn, in {trial.runs} runs"
    table.add("a run waits for its server and goes on", tried, f"{resumed} runs had to be resumed", not any(codes))
    table.add("no row is lost", tried, f"{trial.lost}", not trial.lost)
    table.add("no row is there twice", tried, f"{trial.doubled}", not trial.doubled)
    table.add("nothing is asked again", tried, f"{trial.again}", not trial.again)
    table.add(
        "the report is that of an undisturbed run",
        tried,
        f"{trial.runs - trial.different} of {trial.runs}",
        not trial.different,
    )


async def both_at_once(trial: Trial, table: common.Table) -> None:
    """The server loses power and the run is killed at the same moment; then the server stays away for longer than a run
    waits.
    """
    trial.lost = trial.doubled = trial.different = trial.again = trial.runs = 0
    for number in range(5):
        name, before = f"both{number}", trial.answers.seen
        command = await trial.start(name)
        await asyncio.wait_for(trial.answers.until(before + 30 + 20 * number), 120)
        stopping = asyncio.create_task(asyncio.to_thread(trial.server.stop, crash=True))
        command.signal()
        await command.ended()
        await stopping
        ended = await common.done(trial.folder, "show", name, "--store", trial.store)
        trial.noise += ended.noise
        if number == 0:
            said = ended.err.strip().splitlines()[-1] if ended.err.strip() else ""
            table.add(
                "a server that is away is named",
                "show",
                f"exit code {ended.code}",
                ended.code == 2 and "cannot be reached" in said,
            )
        trial.server.start()
        trial.kills += await trial.killed(name, 0)
    tried = "5 × the server without power and the run killed at once"
    table.add(
        "no row is lost or there twice", tried, f"{trial.lost}, {trial.doubled}", not trial.lost and not trial.doubled
    )
    table.add(
        "asked again at most those in flight", tried, f"{trial.again} of {5 * WORKERS}", trial.again <= 5 * WORKERS
    )
    same = f"{trial.runs - trial.different} of {trial.runs}"
    table.add("the report is that of an undisturbed run", tried, same, not trial.different)


async def main(asked: argparse.Namespace) -> int:
    table = common.Table("PostgreSQL under kills and restarts")
    answers = common.Answers()
    with tempfile.TemporaryDirectory(prefix="context-bench-trial-") as folder, PostgresServer(safe=True) as server:
        store = server.url("trial")
        async with ModelServer(answers) as provider:
            trial = Trial(Path(folder), server, store, provider.url, answers, asked.seed)
            await trial.undisturbed()
            if asked.kills:
                await kill_often(trial, asked.kills, table)
            if asked.restarts:
                await restart_often(trial, asked.restarts, table)
                await both_at_once(trial, table)
            table.add("no traceback, nothing unclosed", "all of them", f"{len(trial.noise)} lines", not trial.noise)
            for line in trial.noise[:10]:
                print(json.dumps(line), file=sys.stderr)
    return table.ended()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(asyncio.run(main(parser.parse_args())))
