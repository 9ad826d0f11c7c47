"""A long run with faults on: `context-bench run` against a provider that fails in every way, killed, halted, resumed.
Nothing may be lost.

    python benchmarks/soak.py [--minutes 30] [--requests N] [--seed 0] [--workers 12] [--pace 80] [--store URL]
        [--samples FILE]

Everything is on loopback and in a folder that is removed. Several rounds, each a run of its own in one store: arms
`direct`, `behind` (a proxy that halves contexts) and four controls, a tap in a process of its own before the provider,
a judge, a viewer that is browsed all the while. Phases, by their share of the time (or of `--requests`, whichever ends
first):

* 0.1: rounds that are killed (SIGKILL) and resumed, halted (SIGSTOP), and whose tap is killed;
* 0.7, and 50 minutes at least if 30 are asked for: first a round that nothing but the provider disturbs shows the
  pace, and the tap is warmed with requests of nobody's; then comes one long round in one process, with the provider's
  faults and halts only: the slopes of run and tap are measured here, the tap's to the end. While it has faults, the
  provider takes `--pace` requests a second at most, so that a round has a length and the machine room for other work;
  only those that warm the long round come as fast as they can;
* 0.2: each round is played again undisturbed into another store and both reports are compared.

From the undisturbed round on a second viewer shows a copy of the store, which is at rest, and its slope is measured to
the end: it is browsed for 20 seconds and left alone for 35, in turn, so that every minute has a moment in which nothing
is under way.

At the end stands a table in Markdown. Exit code 1 if an invariant is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import soak_books
import soak_faults
import soak_told
import soak_watch
from soak_programs import Broken, Programs, free_port, listening, processor_seconds
from viewer import Browser

from context_bench.engine import open_store
from context_bench.testing.hostile import MisbehavingProxy

ARMS, PER_EXAMPLE = 6, 9.0  # requests of an example, those of the judge and second tries among them
TIMEOUT = 5.0  # seconds for an attempt
#: Seconds in which a round must get on by one request, or spend so many seconds of processor: a report of many rows, on
#: a machine that others use as well, takes minutes.
PATIENCE, AT_WORK = 240.0, 5.0
OWN_RETRIES = 6  # resumes for rows that failed
KILLED, FAULTY = 0.1, 0.8  # of the time: until when rounds are killed, and until when rounds with faults are begun
UNBILLED = 0.001  # of a round's rows at most may be whole answers whose stream stalled before their bill
#: Minutes at least of the long round, if 30 are asked for: a quarter goes until it is warm, and of less than thirty a
#: slope's interval is too wide.
LONG, IF_ASKED = 50.0, 30.0
PEACE = 1_000  # examples of the undisturbed round before it: the viewer's store at rest is to have pages worth a look
MARGIN = 1.15  # of a long round's size: one that ends early shows no slope, one that ends late only takes longer
LOOKS = ("", "?sort=latency&order=down", "?failed=1", "?q=box", "/summary?part")  # at a run
VIEWS_AT_ONCE = 4  # as many as the viewer reads at once
#: Seconds in turn for which a store at rest is browsed and left alone. A viewer gives free memory back every 30 s; what
#: pages that are being made at that moment hold would count as kept.
BROWSED, ALONE = 20.0, 35.0
#: Requests (a judge's apart) after which what a run remembers of texts, bodies and rows has filled its room, and its
#: heap has the holes that it will have.
RUN_WARM = 32_000
TAP_WARM = 14_000  # requests after which the conversations that a tap remembers have filled their room


@dataclass
class Event:
    """Something that is done to a round when so many of its requests have come."""

    after: int
    what: str  # kill · halt · tap


@dataclass
class Round:
    """One run of the soak, with what was done to it and what came of it."""

    number: int
    examples: int
    stream: bool
    events: list[Event]
    data: Path
    warms: bool = False  # its first requests come as fast as they can
    kills: int = 0
    taps: int = 0
    halts: list[tuple[float, float]] = field(default_factory=list)  # from when to when, seconds since the epoch
    starts: int = 0
    told: str = ""  # its report in canonical JSON
    codes: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"soak-{self.number}"


class Soak:
    """The processes around the rounds, and what was found."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked, self.folder = asked, folder
        self.store, self.calm_store = asked.store or str(folder / "store.db"), str(folder / "calm.db")
        self.random = random.Random(asked.seed)
        self.faults = soak_faults.Faults(asked.seed)
        self.gate = soak_faults.Pace(self.faults, asked.pace)
        self.direct, self.behind, self.judge = (
            soak_faults.Paced(self.gate, self.faults, answer=soak_faults.answer, tick=0.004) for _ in range(3)
        )
        self.relay_url = ""
        self.tap_port = free_port()
        self.programs = Programs(folder)
        self.broken = self.programs.broken
        self.rounds: list[Round] = []
        self.unbilled = 0
        self.began = time.monotonic()
        self.beside: list[asyncio.Task[None]] = []  # those who look on
        self.pace = 0.0  # requests a second of the fastest start of a run with faults on
        self.views = self.equal = 0
        self.sums: Counter[str] = Counter()

    async def start_tap(self) -> None:
        """Start the tap, on the same port each time."""
        await self.programs.start("tap", "tap", "--port", str(self.tap_port), "--upstream", self.behind.url)
        await listening(self.tap_port)

    def command(self, round_: Round, store: str) -> list[str]:
        """The command line of a round's run."""
        given = [
            "run",
            "--proxy",
            self.direct.url,
            "--name",
            "direct",
            "--proxy",
            self.relay_url,
            "--name",
            "behind",
            "--no-tap-check",
        ]
        given += [
            "--controls",
            "full,none,head_tail",
            "--tap",
            f"http://127.0.0.1:{self.tap_port}",
            "--judge-url",
            self.judge.url,
        ]
        given += [
            "--model",
            "m",
            "--judge-model",
            "judge",
            "--price",
            "m=1,2",
            "--price",
            "judge=1,2",
            "--dataset",
            str(round_.data),
        ]
        given += [
            "--run",
            round_.name,
            "--store",
            store,
            "--max-workers",
            str(self.asked.workers),
            "--timeout",
            str(TIMEOUT),
        ]
        return [
            *given,
            "--output",
            "json",
            "--out",
            str(self.folder / "out.json"),
            "--quiet",
            *(["--stream"] if round_.stream else []),
        ]

    # --- a round
    # ------------------------------------------------------------------------

    def prepared(self, number: int, examples: int, events: list[tuple[float, str]]) -> Round:
        """A round of so many examples; `events`: (share of its requests after which, what)."""
        data = self.folder / f"soak-{number}.jsonl"
        lines = (json.dumps(soak_faults.example(number, each, self.asked.seed)) for each in range(examples))
        data.write_text("".join(f"{line}\n" for line in lines))
        chosen = sorted(
            (Event(int(share * examples * ARMS), what) for share, what in events), key=lambda event: event.after
        )
        return Round(number, examples, number % 2 == 0, chosen, data)

    async def play(self, round_: Round) -> None:
        """The round to its end, whatever happens to it; then again until no row has failed."""
        self.rounds.append(round_)
        pending = list(round_.events)
        while await self._once(round_, pending) not in (0, 1):
            if round_.starts > 20:
                raise Broken(f"{round_.name} does not come to its end")
        told = await self.report(round_, self.store)
        failed = sum(soak_books.failures(told).values())
        self.check(round_, told)
        for _ in range(OWN_RETRIES):
            print(f"  failures told: {failed}", flush=True)
            if not failed:
                break
            await self._once(round_, [])
            told = await self.report(round_, self.store)
            failed = sum(soak_books.failures(told).values())
        if failed:
            self.broken.append(f"{round_.name}: {failed} rows still fail after {OWN_RETRIES} resumes")
        round_.told = told

    async def compare(self, round_: Round) -> None:
        """The round once more in peace, and both reports."""
        self.faults.on = False
        before = [len(provider.log) for provider in (self.direct, self.behind, self.judge)]
        await self._once(round_, [], calm=True)
        for provider, length in zip((self.direct, self.behind, self.judge), before, strict=True):
            del provider.log[length:]  # it is no part of the books
        told, calm = round_.told, await self.report(round_, self.calm_store)
        both = soak_told.compared(told, calm)
        self.unbilled += both.unbilled
        if both.unbilled > UNBILLED * ARMS * round_.examples:
            self.broken.append(f"{round_.name}: {both.unbilled} answers without their bill, which is too many")
        if both.differences:
            (self.folder / f"{round_.name}.disturbed.json").write_text(told)
            (self.folder / f"{round_.name}.calm.json").write_text(calm)
            self.broken.append(
                f"{round_.name}: its report is not that of the undisturbed run: {'; '.join(both.differences[:12])}"
            )
        else:
            self.equal += 1
            print(
                f"{round_.name}: its report is that of the undisturbed run ({len(calm):,} characters, attempts apart)",
                flush=True,
            )

    async def _once(self, round_: Round, pending: list[Event], *, calm: bool = False) -> int:
        """One start of the round's command, to its end or its violent death; the exit code."""
        if not calm:
            round_.starts += 1
        began, was, first = time.monotonic(), self.requests(), self.faults.seen[round_.number]
        process = await self.programs.start(
            "calm" if calm else "run", *self.command(round_, self.calm_store if calm else self.store)
        )
        watched = next(each for each in reversed(self.programs.watched) if each.pid == process.pid)
        reader = asyncio.create_task(process.communicate())
        seen, moved, spent = -1, time.monotonic(), 0.0
        self.gate.free = round_.warms and round_.starts == 1
        try:
            while not reader.done():
                await asyncio.wait([reader], timeout=0.25)
                count = self.requests()
                if count != seen:
                    seen, moved, spent = count, time.monotonic(), processor_seconds(process.pid)
                    if (
                        self.faults.on or calm
                    ):  # without faults it works at another pace, and has other amounts under way
                        watched.busy = moved
                    if watched.warm_from is None and self.faults.seen[round_.number] - first >= self.run_warm:
                        self.gate.free = False
                        watched.warm_from = moved + soak_watch.WARM["run"]
                if time.monotonic() - moved > PATIENCE:
                    worked = processor_seconds(process.pid) - spent
                    if worked < AT_WORK:
                        raise Broken(f"{round_.name} hangs: no request for {PATIENCE:g} s, {worked:.1f} s of work")
                    moved, spent = time.monotonic(), spent + worked
                while pending and not reader.done() and self.faults.seen[round_.number] >= pending[0].after:
                    await self._strike(round_, pending.pop(0).what, process, reader)
        finally:
            await self.programs.end("calm" if calm else "run", signal.SIGKILL)
            await reader
        code = process.returncode or 0
        if not calm and self.faults.on:
            self.pace = max(self.pace, (self.requests() - was) / (time.monotonic() - began))
        if not calm:
            round_.codes.append(code)
        if code not in (0, 1, 2, -signal.SIGKILL):
            raise Broken(f"{round_.name} ended with {code}")
        return code

    async def _strike(
        self, round_: Round, what: str, process: asyncio.subprocess.Process, reader: asyncio.Task[object]
    ) -> None:
        if what == "kill":
            round_.kills += 1
            process.kill()
        elif what == "halt":
            since = time.time()
            with contextlib.suppress(ProcessLookupError):  # it ended in the moment in which it was to be halted
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(self.random.uniform(1, 8))
                process.send_signal(signal.SIGCONT)
            round_.halts.append((since, time.time()))
        else:
            round_.taps += 1
            await self.programs.end("tap", signal.SIGKILL)
            await asyncio.wait([reader], timeout=120)
            if not reader.done():
                self.broken.append(f"{round_.name}: 120 s after its tap was gone the run had not ended")
            await self.start_tap()

    async def report(self, round_: Round, store: str) -> str:
        """A run's report in canonical JSON."""
        return await self.programs.said("export", "export", round_.name, "--store", store, "--canonical")

    # --- what must hold
    # ------------------------------------------------------------------------

    def check(self, round_: Round, told: str) -> None:
        """The books of a round, when it is over for the first time."""
        urls = {self.direct.url: "direct", self.judge.url: "judge"}
        with contextlib.closing(open_store(self.store)) as store:
            books, homeless = soak_books.ledger(store, round_.name, urls)
            found = soak_books.rows_of(store, round_.name, round_.examples * ARMS, told)
        for name, provider in (("direct", self.direct), ("tapped", self.behind), ("judge", self.judge)):
            soak_books.seen_by(provider.log, round_.number, books[name])
        print(
            f"{round_.name}: {found}; exit codes {round_.codes}; {homeless} attempts of work that was cut off",
            flush=True,
        )
        for name, each in books.items():
            missing, beyond = each.missing(), each.beyond()
            print(
                f"  {name}: {sum(each.seen.values()):,} requests seen, {sum(each.kept.values()):,} in the ledger of "
                "rows; seen only "
                f"{sum(missing.values())} (of {len(missing)} examples), in the ledger only {sum(beyond.values())}; "
                f"billed ${each.billed:.6f}, booked ${each.booked:.6f}",
                flush=True,
            )
            for place, count in beyond.items():
                told = [(one.error, one.halted(round_.halts)) for one in each.unanswered.get(place, [])]
                print(
                    f"    example {place}: {count} in the ledger only; without an answer (error, halted meanwhile): "
                    f"{told}",
                    flush=True,
                )
            self.sums["outside"] += each.outside(round_.halts)
            self.sums.update(
                {"seen": sum(each.seen.values()), "kept": sum(each.kept.values()), "missing": sum(missing.values())}
            )
            self.sums.update({"beyond": sum(beyond.values())})
            self._check_books(round_, name, each, homeless)
        self.sums.update({"owed": found.owed, "lost": found.lost, "doubled": found.doubled})
        for what, count in (
            ("lost", found.lost),
            ("doubled", found.doubled),
            ("untold failures", found.failed - found.told),
        ):
            if count:
                self.broken.append(f"{round_.name}: {count} rows {what}")

    def _check_books(self, round_: Round, name: str, books: soak_books.Books, homeless: int) -> None:
        in_flight = (round_.kills + round_.taps) * self.asked.workers  # rows; of each all attempts may be lost
        missing = books.missing()
        if len(missing) > in_flight:
            self.broken.append(
                f"{round_.name}: {len(missing)} examples at {name} have requests that are not in the ledger; "
                f"{in_flight} may"
            )
        if odd := books.unexplained():
            self.broken.append(
                f"{round_.name}: {odd} attempts at {name} were answered by the ledger, and never reached the provider"
            )

    # --- the whole
    # ------------------------------------------------------------------------

    def requests(self) -> int:
        """How many requests have come."""
        return sum(len(provider.log) for provider in (self.direct, self.behind, self.judge))

    def over(self, share: float = 1.0) -> bool:
        """Has so large a share of the time, or of the requests, passed?"""
        late = self.asked.requests is not None and self.requests() >= share * self.asked.requests
        return late or time.monotonic() - self.began >= share * 60 * self.asked.minutes

    async def rounds_of_all_kinds(self) -> None:
        """Rounds that are killed; then long ones."""
        number = 0
        while number == 0 or not self.over(KILLED):
            number += 1
            draw = self.random.uniform
            strikes = [
                (draw(0.05, 0.9), what)
                for what in ("kill", "kill", "halt", "tap", *(("kill", "halt") if number > 1 else ()))
            ]
            await self.play(self.prepared(number, min(40 * number, 150), strikes))
        await self.play(self.prepared(number + 1, max(150, min(PEACE, int(33 * self.asked.minutes))), []))
        await self.rest_a_store()
        await self.warm_tap()
        number += 1 + (number + 1) % 2  # the next are streamed
        while not self.over(0.9 * FAULTY):
            left = self.began + FAULTY * 60 * self.asked.minutes - time.monotonic()
            left = max(left, 60 * LONG) if self.asked.minutes >= IF_ASKED else left
            size = int(max(40, MARGIN * (left * self.pace + self.run_warm) / PER_EXAMPLE))
            if self.asked.requests:
                size = min(size, self.asked.requests // (2 * ARMS))
            number += 2
            halts = [(self.random.uniform(0.05, 0.9), "halt") for _ in range(4)]
            long = self.prepared(number, size, halts)
            long.warms = True
            await self.play(long)
        self.faults.on = False
        for round_ in self.rounds:
            await self.compare(round_)

    async def warm_tap(self) -> None:
        """Send the tap as many requests as fill its room for conversations; they belong to no round."""
        self.faults.on = False
        url, at_once = f"http://127.0.0.1:{self.tap_port}/v1/chat/completions", asyncio.Semaphore(self.asked.workers)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as client:

            async def send(number: int) -> None:
                text = json.dumps(soak_faults.example(0, number, self.asked.seed))
                body = {"model": "m", "stream": bool(number % 2), "messages": [{"role": "user", "content": text}]}
                async with at_once:
                    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                        async with client.post(url, json=body) as reply:
                            await reply.read()

            for start in range(0, self.tap_warm, 1_000):
                await asyncio.gather(*(send(number) for number in range(start, start + 1_000)))
        self.faults.on = True
        self._warm("tap")

    async def rest_a_store(self) -> None:
        """Open a second viewer, of a copy of what there is by now, and look at all that it shows, as many pages at once
        as it reads: what it keeps has filled its room then. Somebody browses it to the end.
        """
        copy = str(self.folder / "resting.db")
        await self.programs.said("copying", "copy", "--store", self.store, "--to", copy)
        browser = await self.opened("viewer", copy)
        page, _ = await asyncio.to_thread(browser.get, "/")
        with ThreadPoolExecutor(VIEWS_AT_ONCE) as hands:
            await asyncio.to_thread(
                list, hands.map(browser.get, [f"/runs/{run}{look}" for run in runs_on(page) for look in LOOKS] * 5)
            )
        self._warm("viewer")
        self.beside.append(asyncio.create_task(self.browse(browser, resting=True)))

    def _warm(self, name: str) -> None:
        for each in self.programs.watched:
            if each.name == name:
                each.warm_from = time.monotonic() + soak_watch.WARM[name]

    @property
    def run_warm(self) -> int:
        """Requests of one process, a judge's apart, after which a run is warm; fewer in a short trial."""
        return min(RUN_WARM, int(800 * self.asked.minutes))

    @property
    def tap_warm(self) -> int:
        """Requests to warm the tap with; fewer in a short trial."""
        return min(TAP_WARM, int(500 * self.asked.minutes))

    async def watch(self) -> None:
        """Look at the processes every second."""
        while True:
            for each in self.programs.watched:
                each.look()
            await asyncio.sleep(1)

    async def opened(self, name: str, store: str) -> Browser:
        """A viewer of a store, and somebody to look at it."""
        address = ""
        while not address:  # until there is a store
            await asyncio.sleep(5)
            process = await self.programs.start(name, "view", store, "--no-open")
            assert process.stdout is not None
            address = (await process.stdout.readline()).decode().strip()
        return await asyncio.to_thread(Browser, address)

    async def look_on(self) -> None:
        """Somebody looks at the growing store now and then."""
        await self.browse(await self.opened("viewer at work", self.store), resting=False)

    async def browse(self, browser: Browser, *, resting: bool) -> None:
        """Look at pages now and then; at those of a store at rest often, and not at all in between."""
        since = time.monotonic()
        while True:
            if resting and time.monotonic() - since >= BROWSED:
                await asyncio.sleep(ALONE)
                since = time.monotonic()
            await asyncio.sleep(self.random.uniform(3, 9) / (18 if resting else 1))
            page, _ = await asyncio.to_thread(browser.get, "/")
            self.views += 1
            if runs := runs_on(page):
                await asyncio.to_thread(browser.get, f"/runs/{self.random.choice(runs)}{self.random.choice(LOOKS)}")
                self.views += 1

    @contextlib.asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """Providers, relay, tap and viewer."""
        async with self.direct, self.behind, self.judge:
            tap_url = f"http://127.0.0.1:{self.tap_port}"
            async with MisbehavingProxy("halves", tap_url) as relay:
                self.relay_url = relay.url
                await self.start_tap()
                self.beside += [asyncio.create_task(self.watch()), asyncio.create_task(self.look_on())]
                try:
                    yield
                finally:
                    for task in self.beside:
                        task.cancel()
                    for found in await asyncio.gather(*self.beside, return_exceptions=True):
                        if not isinstance(found, asyncio.CancelledError):
                            self.broken.append(f"somebody who looked on could not: {found!r}")
                    await self.programs.end_all()

    async def run(self) -> int:
        """All of it; the exit code."""
        async with self.around():
            try:
                await self.rounds_of_all_kinds()
            except Exception as error:
                if not isinstance(error, Broken):
                    traceback.print_exc()
                self.broken.append(str(error))
        self.tell()
        return 1 if self.broken else 0

    def tell(self) -> None:
        """The figures."""
        providers = (self.direct, self.behind, self.judge)
        kinds, cases = soak_faults.injected(providers)
        requests = sum(len(provider.log) for provider in providers)
        print(
            f"\n{requests:,} requests in {(time.monotonic() - self.began) / 60:.1f} minutes; {self.views} pages viewed"
        )
        print(
            f"{sum(kinds.values()):,} faults by the provider: "
            + ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common())
        )
        print("  " + ", ".join(f"{case} {count:,}" for case, count in sorted(cases.items())))
        done = Counter[str]()
        for round_ in self.rounds:
            done.update(
                {
                    "SIGKILL": round_.kills,
                    "SIGSTOP": len(round_.halts),
                    "tap killed": round_.taps,
                    "starts": round_.starts,
                }
            )
        print(f"{len(self.rounds)} rounds: " + ", ".join(f"{what} {count}" for what, count in done.items()))
        found = [
            kind
            for name in ("run", "tap", "viewer")
            if (kind := soak_watch.kind(self.programs.watched, name)) is not None
        ]
        self.broken += [kind.broken for kind in found if kind.broken is not None]
        if self.asked.samples:
            soak_watch.write(self.programs.watched, self.asked.samples, self.began)
        print("\n".join(f"BROKEN: {what}" for what in self.broken) or "every invariant held")
        for log in self.folder.glob("*.log") if self.broken else ():
            print(f"the end of {log.name}:", *log.read_text("utf-8", "replace").splitlines()[-12:], sep="\n  ")
        print(f"\n{soak_told.table(self.figures(requests, kinds, done), found)}\n\n{soak_watch.RULE}")

    def figures(self, requests: int, kinds: Counter[str], done: Counter[str]) -> dict[str, str]:
        """What happened and what held, by name."""
        sums = self.sums
        return {
            f"{self.asked.minutes:g} minutes, seed {self.asked.seed}, {self.asked.pace:g} requests a second": "**held**"
            if not self.broken
            else f"**{len(self.broken)} broken**",
            "requests, by the provider's own log; pages of the viewer": f"{requests:,}; {self.views:,}",
            "faults injected": f"{sum(kinds.values()):,}: "
            + ", ".join(f"{name} {count:,}" for name, count in kinds.most_common()),
            "SIGKILL, SIGSTOP, tap killed, starts": ", ".join(
                str(done[name]) for name in ("SIGKILL", "SIGSTOP", "tap killed", "starts")
            ),
            "rows owed; lost, doubled": f"{sums['owed']:,}; {sums['lost']}, {sums['doubled']}",
            "report against that of an undisturbed run": f"equal in {self.equal} of {len(self.rounds)} rounds"
            f" (bills that never came: {self.unbilled})",
            "attempts in the provider's log; in the ledger of rows": (
                f"{sums['seen']:,}; {sums['kept']:,} (not in the ledger {sums['missing']}, all of killed work; "
                f"in the ledger only {sums['beyond']}, all without an answer, {sums['beyond'] - sums['outside']} in a "
                "SIGSTOP)"
            ),
        }


def runs_on(page: str) -> list[str]:
    """The runs that the viewer's list shows. Besides the link to its page a run may have one to a part of it."""
    return re.findall(r'href="/runs/([^"/]+)"', page)


def main() -> int:
    """Play the rounds and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--pace", type=float, default=80.0, help="requests a second, of all providers together")
    parser.add_argument("--store", help="a PostgreSQL URL; else a file in the folder")
    parser.add_argument("--samples", type=Path, help="write every sample of memory, files and threads there")
    parser.add_argument("--keep", type=Path, help="a folder to work in, which stays")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        folder.mkdir(parents=True, exist_ok=True)
        return asyncio.run(Soak(asked, folder).run())


if __name__ == "__main__":
    sys.exit(main())
