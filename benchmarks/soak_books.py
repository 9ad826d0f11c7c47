"""What must hold of a run in the soak: the provider's own log beside the ledger, rows owed beside rows there, failures
told.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import soak_faults
from sqlalchemy import func, select

from context_bench.core.records import Usage
from context_bench.engine import Store, rows, run_of
from context_bench.engine.encoding import unpacked
from context_bench.engine.store import schema
from context_bench.testing.hostile import Asked

_ADDRESS = re.compile(r"https?://\S+")
INPUT, OUTPUT = 1e-6, 2e-6  # dollars a token, as the runs are told


@dataclass(frozen=True)
class Attempt:
    """An attempt in the ledger: when it began and ended (seconds since the epoch), and its failure."""

    began: float
    ended: float
    error: str

    def halted(self, halts: Iterable[tuple[float, float]]) -> bool:
        """Was the program halted at any time while it was under way?"""
        return any(self.began <= end and begin <= self.ended for begin, end in halts)


@dataclass
class Books:
    """Requests of one run at one endpoint: as the provider logged them and as the ledger has them, by example."""

    seen: Counter[int] = field(default_factory=Counter)
    kept: Counter[int] = field(default_factory=Counter)
    billed: float = 0.0  # dollars of the usage that the provider sent whole
    booked: float = 0.0  # dollars in the ledger
    unanswered: dict[int, list[Attempt]] = field(default_factory=dict)  # by example: what the ledger says had no answer

    def missing(self) -> Counter[int]:
        """Requests that the provider saw and the ledger does not have."""
        return self.seen - self.kept

    def beyond(self) -> Counter[int]:
        """Attempts that never reached the provider."""
        return self.kept - self.seen

    def unexplained(self) -> int:
        """Attempts beyond those that the provider saw, of which the ledger does not say that they had no answer."""
        return sum((self.beyond() - Counter({place: len(each) for place, each in self.unanswered.items()})).values())

    def outside(self, halts: Iterable[tuple[float, float]]) -> int:
        """Attempts beyond those that the provider saw, of which none can have been cut short by a halt of the
        program.
        """
        halted = Counter({place: sum(one.halted(halts) for one in each) for place, each in self.unanswered.items()})
        return sum((self.beyond() - halted).values())


def dollars(usage: Usage | None) -> float:
    """What a reply costs."""
    return 0.0 if usage is None else INPUT * (usage.input_tokens or 0) + OUTPUT * (usage.output_tokens or 0)


def seen_by(log: Iterable[Asked], round_: int, books: Books) -> None:
    """Count the requests of one round in a provider's log."""
    for asked in log:
        place = soak_faults.place(asked)
        if place is not None and place[0] == round_:
            books.seen[place[1]] += 1
            books.billed += dollars(asked.usage)


def ledger(store: Store, name: str, endpoint_of: Mapping[str, str]) -> tuple[dict[str, Books], int]:
    """The ledger of a run by endpoint, and how many attempts belong to no row. `endpoint_of`: names by URL; any other
    is `tapped`. What a tap answered with the baseline's reply was asked of no provider, and is not counted.
    """
    calls, plan, endpoints = schema.calls.c, schema.plan.c, schema.endpoints.c
    number = run_of(store, name).number
    query = (
        select(endpoints.url, calls.output, func.count(), func.sum(calls.cost))
        .select_from(schema.calls)
        .join(schema.endpoints, endpoints.id == calls.endpoint)
        .where(calls.run == number)
        .group_by(endpoints.url, calls.output)
    )
    found = {name: Books() for name in (*endpoint_of.values(), "tapped")}
    homeless = 0
    failed = (
        select(endpoints.url, calls.output, calls.started, calls.seconds, calls.status, calls.error)
        .select_from(schema.calls)
        .join(schema.endpoints, endpoints.id == calls.endpoint)
        .where(calls.run == number, calls.error.is_not(None), calls.usage.is_(None))
    )

    def books_of(url: str) -> Books:
        return found[next((name for begin, name in endpoint_of.items() if url.startswith(begin)), "tapped")]

    with store.reading() as connection:
        # Put together here: the plan has no index by output, so that a join reads all of it for each call.
        planned = select(plan.output, plan.position).where(plan.run == number, plan.output.is_not(None))
        positions = dict(connection.execute(planned).tuples().all())
        for url, output, started, seconds, status, error in connection.execute(failed):
            position = positions.get(output)
            # 502: what stands in between did not reach the provider either
            if position is not None and status in (None, 502):
                attempt = Attempt(started, started + seconds, _ADDRESS.sub("…", error)[:90])
                books_of(url).unanswered.setdefault(position, []).append(attempt)
        for url, output, count, cost in connection.execute(query):
            position, books = positions.get(output), books_of(url)
            books.booked += cost or 0.0
            if position is None:
                homeless += count
            else:
                books.kept[position] += count
        answers = select(schema.outputs.c.id, schema.outputs.c.wire).where(schema.outputs.c.run == number)
        for output, wire in connection.execute(answers):
            if output in positions and (copied := unpacked(wire, {}).get("copied")):
                found["tapped"].kept[positions[output]] -= copied
    return found, homeless


@dataclass
class Rows:
    """Rows of a run: owed when it began, there, lost, answered more than once, failed, and what the report says of
    failures.
    """

    owed: int
    there: int
    lost: int
    doubled: int
    failed: int
    told: int
    unjudged: int


def rows_of(store: Store, name: str, owed: int, report: str) -> Rows:
    """What the store has of a run of so many rows; `report`: its canonical JSON."""
    record = run_of(store, name)
    found = Counter[tuple[str, str]]()
    failed = unjudged = 0
    for row in rows(store, name):
        found[row.system, str(row.example_id)] += 1
        failed += row.failed
        unjudged += not row.failed and bool(row.errors)
    outputs, plan = schema.outputs.c, schema.plan.c
    with store.reading() as connection:
        used = select(plan.output).where(plan.run == record.number, plan.output.is_not(None))
        # A control that failed for want of its partner's budget has another key once it knows one: that failure is no
        # second answer.
        beside = select(func.count()).where(
            outputs.run == record.number, outputs.error.is_(None), outputs.id.not_in(used)
        )
        unused = connection.scalar(beside) or 0
    doubled = sum(count - 1 for count in found.values()) + unused
    return Rows(owed, len(found), owed - len(found), doubled, failed, failures(report)["system"], unjudged)


def failures(report: str) -> Counter[str]:
    """Failures as a report in canonical JSON tells them: of systems (`system`) and of each evaluator."""
    told: Counter[str] = Counter()
    for by_whom in (json.loads(report).get("failures") or {}).values():
        for whom, classes in by_whom.items():
            told[whom] += sum(classes.values())
    return told
