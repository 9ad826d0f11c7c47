"""`open_store` and what can be done with a store as a whole: its runs, their manifests, who is at work on one."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import Connection, Engine, Row, Table, func, select, update
from sqlalchemy.exc import DBAPIError

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import BadInput, ContextBenchError, NotComparable, StoreUnusable, UnknownName
from context_bench.core.keys import hash_text
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import Damaged, dumps, pack, sound, sound_body, unpacked
from context_bench.engine.store import schema
from context_bench.engine.store.dialects import PACKED, SENSELESS
from context_bench.engine.store.opening import BUSY_TIMEOUT, Database, database_of
from context_bench.engine.store.postgresql import StoreLost
from context_bench.engine.store.sqlite import temporary_path

#: Damaged values are looked for so long (seconds), and so many are named.
PATIENCE, _MOST_NAMED = 30.0, 5
_ADVICE = "put the file back from a copy of it, or measure those again in a new run"
_EXPORT = "; `context-bench export --format jsonl` writes the rows that are whole and names the others"
#: Tables of rows, of which an export names what is damaged and writes the others.
_OF_ROWS = frozenset({"outputs", "scores", "bodies", "calls", "forwarded"})


def packed_columns(table: Table) -> list[str]:
    """The columns of a table that hold packed values."""
    return [column.name for column in table.columns if isinstance(column.type, type(PACKED))]


def explained(name: str, connection: Connection | None) -> Damaged:
    """What is said of a store (`name`) in which something was found damaged: all that is, as far as it can be looked
    through.
    """
    found: list[str] = []
    if connection is not None:
        for place in damaged(connection, until=time.monotonic() + PATIENCE):
            found.append(place)
            if len(found) > _MOST_NAMED:
                break
    places = "; ".join(found[:_MOST_NAMED]) + ("; and more" if len(found) > _MOST_NAMED else "")
    advice = _ADVICE + (_EXPORT if connection is not None and _exportable(found, connection) else "")
    return Damaged(f"store {name} is damaged: {places or 'a value that was read'} cannot be what was written; {advice}")


def _exportable(found: list[str], connection: Connection) -> bool:
    """True if an export of rows gets past the damage: it needs its run, and what it names are values of rows."""
    columns = packed_columns(schema.runs)
    if any(faults(schema.runs, row, columns) for row in connection.execute(select(schema.runs)).mappings()):
        return False
    return bool(found) and {place.partition(" ")[0] for place in found} <= _OF_ROWS


def damaged(connection: Connection, *, until: float) -> Iterator[str]:
    """Find the damaged values, as table, row and column. `until`: when to give up, by `time.monotonic`."""
    for table in schema.metadata.sorted_tables:
        columns = packed_columns(table)
        if not columns:
            continue
        keys = [column.name for column in table.primary_key]
        for row in connection.execute(select(table)).mappings():
            if time.monotonic() > until:
                return
            faulty = faults(table, row, columns)
            if faulty:
                yield named(table.name, {key: row[key] for key in keys}, faulty)


def faults(table: Table, row: Mapping[Any, Any], columns: Iterable[str]) -> list[str]:
    """Those columns of a row that are damaged."""
    if table is schema.bodies:
        return [] if sound_body(row["key"], row["data"]) else ["data"]
    return [name for name in columns if row[name] is not None and not sound(row[name])]


def named(table: str, keys: Mapping[str, Any], columns: Iterable[str]) -> str:
    """The name of a row's values in messages: `outputs id=12 (usage, wire)`."""
    place = " ".join(f"{key}={value.hex() if isinstance(value, bytes) else value}" for key, value in keys.items())
    return f"{table} {place} ({', '.join(columns)})"


T = TypeVar("T")
#: How often a transaction is tried that the database breaks off. Each try waits for the database to be there again.
TRIES = 5
RUNNING, DONE, INTERRUPTED, STOPPED = "running", "done", "interrupted", "stopped"
#: Status of a run that is being copied here and not whole yet (`copying`).
COPYING = "copying"


class Store:
    """An open store. Safe to share between threads; several processes may have the same one open."""

    def __init__(
        self, engine: Engine, database: Database, folder: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
        self.engine = engine
        self.database = database
        self._folder = folder  # of a temporary store: lives as long as the store does

    @property
    def name(self) -> str:
        """Its place, for messages: a path, or an address without its password."""
        return self.database.name

    @property
    def path(self) -> Path:
        """The file of a SQLite store; no other store has one."""
        return Path(self.database.name)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one consistent state."""
        with self._looked_through(), self.database.explained(), self._begun(write=False) as connection:
            yield connection

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[Connection]:
        """A connection in a write transaction, safe from loss of power when the block ends.

        With `durable=False` it becomes safe together with the next durable one: enough for what can be made again.
        """
        with self._looked_through(), self.database.explained(), self._begun(write=True, durable=durable) as connection:
            yield connection
            connection.commit()

    @contextmanager
    def _looked_through(self) -> Iterator[None]:
        """Where something that is read is damaged, say what all is; what makes no sense may be a sign of that.

        The store is looked through, for a bounded time, when the transaction has ended: it keeps nobody from writing.
        """
        try:
            yield
        except Damaged as error:
            if error.args:
                raise
            with self.database.explained(), self._begun(write=False) as connection:
                raise explained(self.name, connection) from None
        except (ContextBenchError, DBAPIError):
            raise
        except SENSELESS as error:
            until = time.monotonic() + PATIENCE
            with self.database.explained(), self._begun(write=False) as connection:
                if (said := self.database.damage(connection, until)) is not None:
                    raise StoreUnusable(said) from error
                if next(damaged(connection, until=until), None) is not None:
                    raise explained(self.name, connection) from error
            raise

    def _begun(self, *, write: bool, durable: bool = True) -> Connection:
        """A connection in a transaction; a database that went away since the store was opened is waited for."""
        until = time.monotonic() + self.database.patience
        while True:
            try:
                with self.database.explained():
                    return self.database.begin(self.engine, write=write, durable=durable)
            except StoreLost:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def insist(self, work: Callable[[], T]) -> T:
        """Do `work` again if the database went away in the middle or asks for it: for what may be done twice. Raises
        `StoreUnusable`.
        """
        for left in reversed(range(TRIES)):
            try:
                return work()
            except StoreLost:
                if not left:
                    raise
        raise AssertionError

    def close(self) -> None:
        """Close every connection. A temporary store is gone afterwards."""
        self.engine.dispose()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(where: str | Path | None = None, *, busy_timeout: int = BUSY_TIMEOUT) -> Store:
    """The store at a path, `sqlite:///PATH` or `postgresql://USER@HOST:PORT/DATABASE`, made (a file with mode 0600) or
    migrated as needed; `None` = a temporary one, gone on `close()`.

    Raises `StoreUnusable`, which says what is wrong with it and what to do. `busy_timeout`: milliseconds to wait for
    other writers.
    """
    folder = None
    if where is None:
        folder, where = temporary_path()
    database = database_of(where, busy_timeout=busy_timeout)
    return Store(database.engine(), database, folder)


@dataclass(slots=True)
class RunRecord:
    """A run as the store knows it. Times in seconds since the epoch.

    `status`: running · done · interrupted (Ctrl-C, or killed) · stopped (cost cap, run deadline). `counts`: those of
    the latest execution (see `Executed`), but `unmatched` (requests nobody can be named for) and `cost` (US dollars of
    all calls, `None` = no price known) are the whole run's. `timing`: seconds of work by system, summed over its rows,
    which run interleaved. `owed` minus `rows` is what a resume would do.
    """

    number: int
    id: str
    name: str
    status: str
    created: float
    updated: float
    manifest: dict[str, Any]
    counts: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    systems: list[str] = field(default_factory=list)
    rows: int = 0
    owed: int = 0
    failed: int = 0

    @property
    def started(self) -> str:
        """The time at which the run was begun, as ISO time in UTC."""
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def describe(self) -> dict[str, Any]:
        """The run in one line of JSON, without its manifest."""
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "started": self.started,
            "systems": self.systems,
            "rows": self.rows,
            "owed": self.owed,
            "failed": self.failed,
            "counts": self.counts,
        }


def newest_first(table: Table) -> tuple[Any, ...]:
    """The order of runs or watches by when they were started."""
    return table.c.created.desc(), table.c.number.desc()


def list_runs(store: Store) -> list[RunRecord]:
    """All runs, the one that was started last first (wherever that was: a copy is as old as what it is of)."""
    with store.reading() as connection:
        found = connection.execute(select(schema.runs).order_by(*newest_first(schema.runs))).all()
        return [_record(connection, row) for row in found]


def run_of(store: Store, name: str) -> RunRecord:
    """The run with this name or id; the beginning of an id is enough if no other begins so. Raises `UnknownName` or
    `BadInput`.
    """
    runs = schema.runs
    with store.reading() as connection:
        exact = connection.execute(
            select(runs).where((runs.c.name == utf8_safe(name)) | (runs.c.id == utf8_safe(name)))
        ).first()
        if exact is not None:
            return _whole(connection, exact)
        near = (
            connection.execute(
                select(runs).where(func.substr(runs.c.id, 1, len(name)) == utf8_safe(name)).limit(2)
            ).all()
            if name
            else []
        )
        if len(near) == 1:
            return _whole(connection, near[0])
        if near:
            raise BadInput(f"{name!r} is the beginning of several run ids; give more of it, or the run's name")
        raise UnknownName("run", name, connection.scalars(select(runs.c.name).order_by(*newest_first(runs)).limit(20)))


def _whole(connection: Connection, row: Row[Any]) -> RunRecord:
    if row.status == COPYING:
        raise BadInput(f"{row.name!r} is a copy that was broken off; the same `context-bench copy` goes on with it")
    return _record(connection, row)


def set_manifest(store: Store, run: str, manifest: dict[str, Any]) -> None:
    """Replace what a run says about itself."""
    with store.writing() as connection:
        connection.execute(update(schema.runs).where(schema.runs.c.id == run).values(manifest=pack(dumps(manifest))))


def spent(store: Store, run: str) -> float:
    """US dollars of all calls a run has made, failed and repeated ones and judges included, as far as prices are
    known.
    """
    with store.reading() as connection:
        number = connection.scalar(select(schema.runs.c.number).where(schema.runs.c.id == run))
        return float(
            connection.scalar(select(func.sum(schema.calls.c.cost)).where(schema.calls.c.run == number)) or 0.0
        )


def _record(connection: Connection, row: Row[Any]) -> RunRecord:
    arms = schema.arms
    query = select(arms.c.name).where(arms.c.run == row.number, arms.c.ordinal.is_not(None)).order_by(arms.c.ordinal)
    counts = unpacked(row.counts, {})
    facts = counts.pop("stored", None)
    if facts is None or row.status == RUNNING:
        facts = _facts(connection, row.number)
    return RunRecord(
        number=row.number,
        id=row.id,
        name=row.name,
        status=INTERRUPTED
        if row.status == RUNNING and not worked_on(row.id, row.owner, row.updated, SYSTEM_CLOCK)
        else row.status,
        created=row.created,
        updated=row.updated,
        manifest=unpacked(row.manifest, {}),
        counts={**counts, "unmatched": facts["unmatched"], "cost": facts["cost"]},
        timing=facts["timing"],
        systems=list(connection.scalars(query)),
        rows=facts["rows"],
        owed=facts["owed"],
        failed=facts["failed"],
    )


def _facts(connection: Connection, run: int) -> dict[str, Any]:
    """What the tables say about a run; kept with it when it ends, since counting a large run takes its time."""
    p, o, a, lost, calls = schema.plan, schema.outputs, schema.arms.c, schema.forwarded.c, schema.calls.c
    names = {row.arm: row.name for row in connection.execute(select(a.arm, a.name).where(a.run == run))}
    # By number, in which order the plan is: by name, all of it would be sorted first.
    worked = select(p.c.arm, func.count(), func.count(o.c.error), func.sum(o.c.latency)).select_from(
        p.join(o, p.c.output == o.c.id)
    )
    answered = connection.execute(worked.where(p.c.run == run).group_by(p.c.arm))
    by_arm = sorted((names[arm], *counted) for arm, *counted in answered if arm in names)
    return {
        "rows": sum(rows for _, rows, _, _ in by_arm),
        "failed": sum(failed for _, _, failed, _ in by_arm),
        "owed": connection.scalar(select(func.count()).where(p.c.run == run)) or 0,
        "timing": {name: seconds or 0.0 for name, _, _, seconds in by_arm},
        "unmatched": connection.scalar(
            select(func.count()).where(lost.run == run, lost.output.is_(None), lost.setup.is_(None))
        )
        or 0,
        "cost": connection.scalar(select(func.sum(calls.cost)).where(calls.run == run)),
    }


# --- beginning and ending a run
# ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Begun:
    """A run that this process now works on. `fresh`: it has no earlier rows."""

    number: int
    id: str
    name: str
    fresh: bool
    created: float
    before: dict[str, Any] = field(default_factory=dict)  # the manifest of the time before


def begin_run(connection: Connection, *, name: str | None, identity: str, again: bool, clock: Clock) -> Begun:
    """Take up the run `name`, or without a name the latest unfinished one with the same `identity` (if `again`), else
    make a new one.

    Call it with the store to yourself (`Database.alone`).

    Raises `StoreUnusable` if another living process is at work on it.
    """
    runs = schema.runs
    if name is not None:
        found = connection.execute(select(runs).where(runs.c.name == utf8_safe(name))).first()
        if found is None:
            found = connection.execute(select(runs).where(runs.c.id == utf8_safe(name))).first()
        if found is not None and _busy(found, clock):
            raise StoreUnusable(
                f"run {name!r} is being worked on by another process; wait for it, or give this one another --run name"
            )
        if found is not None and not again:
            raise NotComparable(f"a run named {name!r} exists and is not to be used again; give this one another name")
    else:
        same = (
            select(runs)
            .where(runs.c.identity == identity, runs.c.status != DONE)
            .order_by(runs.c.number.desc())
            .limit(5)
        )
        found = next((row for row in connection.execute(same) if not _busy(row, clock)), None) if again else None
    now = clock.now()
    if found is None:
        return _new_run(connection, name, identity, now)
    connection.execute(
        update(runs)
        .where(runs.c.number == found.number)
        .values(status=RUNNING, owner=process_mark(), updated=now, identity=identity)
    )
    return Begun(found.number, found.id, found.name, False, found.created, unpacked(found.manifest, {}))


def _new_run(connection: Connection, name: str | None, identity: str, now: float) -> Begun:
    from datetime import UTC, datetime

    run_id = uuid4().hex[:12]
    chosen = utf8_safe(name) if name is not None else f"{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{run_id[:4]}"
    values = {
        "id": run_id,
        "name": chosen,
        "status": RUNNING,
        "identity": identity,
        "created": now,
        "updated": now,
        "owner": process_mark(),
        "manifest": pack(dumps({})),
        "counts": pack(dumps({})),
    }
    number = connection.execute(schema.runs.insert().values(values)).inserted_primary_key
    assert number is not None
    return Begun(int(number[0]), run_id, chosen, True, now)


def end_run(connection: Connection, run: int, status: str, counts: dict[str, Any], now: float) -> None:
    """Say how a run ended and what it counted."""
    runs = schema.runs
    told = pack(dumps({**counts, "stored": _facts(connection, run)}))
    connection.execute(
        update(runs).where(runs.c.number == run).values(status=status, counts=told, updated=now, owner=None)
    )


def recount(connection: Connection, run: int) -> None:
    """Bring the stored counts of a run up to date, after it was judged again."""
    runs = schema.runs
    counts = unpacked(connection.scalar(select(runs.c.counts).where(runs.c.number == run)), {})
    told = pack(dumps({**counts, "stored": _facts(connection, run)}))
    connection.execute(update(runs).where(runs.c.number == run).values(counts=told))


def _busy(row: Row[Any], clock: Clock) -> bool:
    return row.status == RUNNING and worked_on(row.id, row.owner, row.updated, clock)


#: Ids of the runs that this process is at work on: an owner that lives may have let go of a run whose store failed.
AT_WORK: set[str] = set()


def worked_on(run: str, owner: str | None, updated: float, clock: Clock) -> bool:
    """Is somebody at work on the run of this id?"""
    return run in AT_WORK if owner == process_mark() else still_alive(owner, updated, clock)


def process_mark() -> str:
    """Names this process, so that another one can tell whether it still lives."""
    pid = os.getpid()
    return f"{_host()}|{pid}|{_started(pid)}"


def _host() -> str:
    import platform

    try:  # containers of one machine may share its name, not its processes
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        space = ""
    return hash_text(f"{platform.node()} {space}", 12)


def _started(pid: int) -> str:
    """The time at which a process began (ticks since boot), so that a process id used again is not taken for the old
    process.
    """
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "ended" if facts[0] == "Z" else facts[19]
    except (OSError, IndexError):
        return "?"


def still_alive(owner: str | None, updated: float, clock: Clock) -> bool:
    """Is the process that owns a run still there? On another host: has it written in the last two minutes?"""
    if not owner:
        return False
    host, pid, started = owner.split("|")
    if host != _host():
        return clock.now() - updated < 120
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return _started(int(pid)) == started
