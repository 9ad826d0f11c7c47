"""Two machines on one store: the drivers of a run, of which one is lost. The other takes its run over, and nothing is
written twice.

    python benchmarks/trials/two_machines.py

The machines are two network namespaces of this one, joined by a cable of their own (veth), each with a host name and
processes that the other cannot see. On the first are the store (PostgreSQL) and the provider; drivers run on both.
Needs root and iproute2. Takes some five minutes, because a lost driver's lease is two. Exit code 1 if a promise did not
hold.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

from context_bench.engine import open_store, run_of
from context_bench.engine.store import schema
from context_bench.llm.servers import ModelServer
from postgres_server import PostgresServer

FIRST, SECOND = "cb-trial-1", "cb-trial-2"
HERE, THERE = "10.99.83.1", "10.99.83.2"
WORKERS, ROWS, LEASE = 4, 160, 120.0


def missing() -> list[str]:
    """What this trial needs and has not."""
    found = [] if os.geteuid() == 0 else ["root, for namespaces"]
    found += [] if shutil.which("ip") else ["iproute2 (apt-get install iproute2)"]
    return found + [f"{name} (apt-get install util-linux)" for name in ("nsenter", "unshare") if not shutil.which(name)]


def ip(*arguments: str, check: bool = True) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


def wire() -> None:
    """Make both namespaces and the cable between them."""
    unwire()
    for name in (FIRST, SECOND):
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
    ip("-n", FIRST, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", SECOND)
    for name, address in ((FIRST, HERE), (SECOND, THERE)):
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
        ip("-n", name, "link", "set", "cable", "up")


def unwire() -> None:
    """Take the namespaces away."""
    for name in (FIRST, SECOND):
        ip("netns", "del", name, check=False)


class Machines:
    """The store and the provider of the first machine, and drivers on both."""

    def __init__(self, folder: Path, store: str, url: str, answers: common.Answers) -> None:
        self.folder, self.store, self.url, self.answers = folder, store, url, answers

    async def drive(self, machine: str, name: str, data: Path) -> common.Command:
        """Start a driver of a run on a machine."""
        given = [
            "run",
            "--proxy",
            self.url,
            "--name",
            "boxes",
            "--model",
            "m",
            "--dataset",
            str(data),
            "--run",
            name,
            "--store",
            self.store,
        ]
        given += ["--max-workers", str(WORKERS), "--retries", "0", "--timeout", "10", "--output", "json", "--quiet"]
        apart = [
            "nsenter",
            f"--net=/run/netns/{machine}",
            "unshare",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        apart += ["sh", "-c", f'hostname {machine}; exec "$@"', "sh"]
        return await common.Command(self.folder, given, before=apart).start()

    def inner(self, command: common.Command) -> int:
        """The process id of the driver itself."""
        assert command.process is not None
        pid = command.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def kept(self, name: str) -> tuple[int, int, int, str]:
        """Rows, failed rows, stored outputs and status of a run."""
        with open_store(self.store) as store:
            record = run_of(store, name)
            with store.reading() as connection:
                outputs = len(
                    connection.execute(schema.outputs.select().where(schema.outputs.c.run == record.number)).all()
                )
            return record.rows, record.failed, outputs, record.status

    def again(self, first: int) -> int:
        """How many questions of a data set were asked more than once, counted with repetition."""
        return sum(count - 1 for number, count in self.answers.log.items() if first <= int(number) < first + ROWS)


def last(ended: common.Ended) -> str:
    """The last sentence a command printed on stderr."""
    return " ".join(ended.err.split())[-260:]


async def side_by_side(machines: Machines, table: common.Table) -> None:
    """A run that the other machine wants, too; then a run of each machine at the same time."""
    data, other = (
        common.questions(machines.folder / f"{name}.jsonl", ROWS, first)
        for name, first in (("one", 0), ("other", 1000))
    )
    working = await machines.drive(FIRST, "one", data)
    await asyncio.wait_for(machines.answers.until(10), 60)
    beside = await machines.drive(SECOND, "other", other)
    refused = await (await machines.drive(SECOND, "one", data)).ended()
    both = [await working.ended(), await beside.ended()]
    table.add(
        "a run that is worked on is left to its machine", "a second driver elsewhere", last(refused), refused.code == 2
    )
    fine = [each.code for each in both] == [0, 0] and not machines.again(0) and not machines.again(1000)
    fine = fine and machines.kept("one")[:3] == machines.kept("other")[:3] == (ROWS, 0, ROWS)
    told = f"exit codes {[each.code for each in both]}, asked again {machines.again(0) + machines.again(1000)}"
    table.add("runs of two machines go on side by side", "one run each", told, fine)


async def one_lost(machines: Machines, table: common.Table) -> None:
    """The second machine loses its cable with two runs in hand: one driver dies, the other is halted and wakes too
    late.
    """
    dead, halted = (
        common.questions(machines.folder / f"{name}.jsonl", ROWS, first)
        for name, first in (("dead", 2000), ("halted", 3000))
    )
    before = machines.answers.seen
    killed, sleeping = await machines.drive(SECOND, "dead", dead), await machines.drive(SECOND, "halted", halted)
    both = asyncio.create_task(machines.answers.until(before + 2 * ROWS // 3))
    await asyncio.wait_for(both, 120)
    ip("-n", SECOND, "link", "set", "cable", "down")
    cut = time.monotonic()
    os.kill(machines.inner(sleeping), signal.SIGSTOP)
    await asyncio.sleep(3)
    os.kill(machines.inner(killed), signal.SIGKILL)
    await killed.ended()
    had = {name: machines.kept(name)[0] for name in ("dead", "halted")}
    early = await (await machines.drive(FIRST, "dead", dead)).ended()
    told = f"{time.monotonic() - cut:.0f} s after the loss: {last(early)}"
    table.add(
        "a lost driver's run is not taken before its lease is over", "the other machine, at once", told, early.code == 2
    )
    await asyncio.sleep(max(0.0, LEASE + 8 - (time.monotonic() - cut)))
    for name, data, first in (("dead", dead, 2000), ("halted", halted, 3000)):
        ended = await (await machines.drive(FIRST, name, data)).ended()
        rows, failed, outputs, status = machines.kept(name)
        again = machines.again(first)
        whole = ended.code == 0 and (rows, failed, outputs, status) == (ROWS, 0, ROWS, "done")
        tried = f"driver {name}, {had[name]} of {ROWS} rows done, taken over after {LEASE + 8:.0f} s"
        table.add(
            "after the lease the other machine goes on; nothing lost or doubled",
            tried,
            f"{rows} rows, {outputs} outputs",
            whole,
        )
        table.add("asked again at most those in flight", tried, f"{again} of {WORKERS}", again <= WORKERS)
    asked, kept = machines.answers.seen, machines.kept("halted")
    ip("-n", SECOND, "link", "set", "cable", "up")
    os.kill(machines.inner(sleeping), signal.SIGCONT)
    woke = await sleeping.ended(240)
    more = machines.answers.seen - asked
    told = f"exit code {woke.code}, {more} more asked: {last(woke)}"
    quiet = woke.code not in (0, None) and not woke.noise and machines.kept("halted") == kept
    table.add(
        "one that comes back writes nothing and ends with a sentence",
        "woken, cable in",
        told,
        quiet and "taken up" in woke.err,
    )
    table.add("and asks for no more than it had in hand", "woken, cable in", f"{more} of {WORKERS}", more <= WORKERS)


async def inside() -> int:
    """On the first machine."""
    table, answers = common.Table("Two machines"), common.Answers(0.3)
    with tempfile.TemporaryDirectory(prefix="context-bench-trial-") as name:
        folder = common.opened(name)
        rules = folder / "hba.conf"
        rules.write_text(f"host all all 127.0.0.1/32 scram-sha-256\nhost all all {HERE}/24 scram-sha-256\n")
        heard = (f"listen_addresses=127.0.0.1,{HERE}", f"hba_file={rules}")
        with PostgresServer(safe=True, settings=heard) as server:
            store = server.url("trial").replace("127.0.0.1", HERE)
            async with ModelServer(answers, host=HERE) as provider:
                machines = Machines(folder, store, provider.url, answers)
                await side_by_side(machines, table)
                await one_lost(machines, table)
    return table.ended()


if __name__ == "__main__":
    if needs := missing():
        sys.exit(f"two_machines.py needs {', '.join(needs)}")
    if sys.argv[1:] == ["inside"]:
        sys.exit(asyncio.run(inside()))
    wire()
    try:
        line = ["nsenter", f"--net=/run/netns/{FIRST}", sys.executable, __file__, "inside"]
        sys.exit(subprocess.run(line).returncode)
    finally:
        unwire()
