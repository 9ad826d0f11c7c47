"""Runs of a store: find, begin and end them, and tell who is at work on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Row, Table, delete, func, select, update

from context_bench.core.errors import BadInput, NotComparable, StoreUnusable, UnknownName
from context_bench.core.families import families_of
from context_bench.core.keys import hash_text
from context_bench.core.machine import SYSTEM_CLOCK, Clock, process_mark, quoted, still_alive
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import dumps, pack, unpacked
from context_bench.engine.plan import PlannedArm, PlannedEvaluator
from context_bench.engine.store import Store, schema
from context_bench.engine.store.dialects import insert, insert_one, number_of

RUNNING, DONE, INTERRUPTED, STOPPED = "running", "done", "interrupted", "stopped"
#: Status of a run that is being copied here and not whole yet (`copying`).
COPYING = "copying"


@dataclass(slots=True)
class RunRecord:
    """A run as the store knows it. Times in seconds since the epoch.

    `status`: running · done · interrupted (Ctrl-C, or killed) · stopped (cost cap, run deadline). `counts`: those of
    the latest execution (see `Executed`), but `unmatched` (requests nobody can be named for) and `cost` (US dollars of
    all calls, `None` = no price known) are the whole run's. `timing`: seconds of work by system, summed over its rows,
    which run interleaved. `planned` minus `rows` is what a resume would do.
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
    planned: int = 0
    failed: int = 0
    title: str = ""
    tags: list[str] = field(default_factory=list)

    @property
    def started(self) -> str:
        """The time at which the run was begun, as ISO time in UTC."""
        return iso_time(self.created)

    def describe(self) -> dict[str, Any]:
        """The run in one line of JSON, without its manifest."""
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "started": self.started,
            "systems": self.systems,
            "rows": self.rows,
            "owed": self.planned,
            "failed": self.failed,
            "counts": self.counts,
            **{name: value for name, value in (("title", self.title), ("tags", self.tags)) if value},
        }


def iso_time(seconds: float) -> str:
    """Seconds since the epoch as ISO time in UTC."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def tags_in(text: str | None) -> list[str]:
    """Tags as they are kept, a line each."""
    return text.split("\n") if text else []


def newest_first(table: Table) -> tuple[Any, ...]:
    """The order of runs or watches by when they were started."""
    return table.c.created.desc(), table.c.number.desc()


def list_runs(store: Store, *, deleted: bool = False) -> list[RunRecord]:
    """All runs, the one that was started last first (wherever that was: a copy is as old as what it is of).
    `deleted`: those that are marked as deleted instead.
    """
    marked = schema.runs.c.deleted
    chosen = select(schema.runs).where(marked.is_not(None) if deleted else marked.is_(None))
    with store.reading() as connection:
        found = connection.execute(chosen.order_by(*newest_first(schema.runs))).all()
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
            return _whole(store, connection, exact)
        near = (
            connection.execute(
                select(runs)
                .where(func.substr(runs.c.id, 1, len(name)) == utf8_safe(name), runs.c.deleted.is_(None))
                .limit(2)
            ).all()
            if name
            else []
        )
        if len(near) == 1:
            return _whole(store, connection, near[0])
        if near:
            raise BadInput(f"{name!r} is the beginning of several run ids; give more of it, or the run's name")
        raise no_such_run(connection, name)


def no_such_run(connection: Connection, name: str) -> UnknownName:
    """The error for a name that no run has: near names, the newest runs, and whether a watch is called so."""
    r, w = schema.runs.c, schema.watches.c
    names = list(connection.scalars(select(r.name).where(r.deleted.is_(None)).order_by(*newest_first(schema.runs))))
    more = f" and {len(names) - 20:,} more, which `context-bench runs` lists" if len(names) > 20 else ""
    known = f"Known: {', '.join(names[:20]) or 'none'}{more}."
    if connection.scalar(select(w.number).where(w.name == utf8_safe(name))) is not None:
        known = f"A watch is called so, and this is about runs; `context-bench watch --show NAME` shows it. {known}"
    return UnknownName("run", name, names, known)


def refuse_deleted(row: Row[Any], store: str) -> None:
    """Raise `BadInput` for a run of the store of this name that is marked as deleted."""
    if row.deleted is not None:
        place = f"--store {quoted(store)}"
        raise BadInput(
            f"run {row.name!r} is marked as deleted; restore it under *Deleted runs* of `context-bench view --edit "
            f"{place}`, or remove it for good with `context-bench purge --deleted {place}`"
        )


def _whole(store: Store, connection: Connection, row: Row[Any]) -> RunRecord:
    refuse_deleted(row, store.name)
    if row.status == COPYING:
        raise BadInput(f"{row.name!r} is a copy that was broken off; the same `context-bench copy` goes on with it")
    return _record(connection, row)


def set_manifest(store: Store, run: str, manifest: dict[str, Any]) -> None:
    """Replace what a run says about itself."""
    r = schema.runs.c
    with store.writing() as connection:
        connection.execute(update(schema.runs).where(r.id == run).values(manifest=pack(dumps(manifest))))
        put_summary(connection, connection.scalar(select(r.number).where(r.id == run)), None)


def put_summary(connection: Connection, run: int | None, summary: Mapping[str, Any] | None) -> None:
    """Keep with a run that ended what lists say of it; forgotten when its rows, scores or manifest change (`None`)."""
    here = (schema.runs.c.number == run) & (schema.runs.c.status != RUNNING)
    counts = unpacked(connection.scalar(select(schema.runs.c.counts).where(here)), {})
    if (stored := counts.get("stored")) is not None and stored.get("summary") != summary:
        stored["summary"] = summary
        connection.execute(update(schema.runs).where(here).values(counts=pack(dumps(counts))))


def finish(store: Store, run: str) -> None:
    """Call a run (id or name) done whose examples were taken in several goes."""
    number = run_of(store, run).number
    with store.writing() as connection:
        connection.execute(update(schema.runs).where(schema.runs.c.number == number).values(status=DONE))


def spent(store: Store, run: str) -> float:
    """US dollars of all calls a run has made, failed and repeated ones and judges included, as far as prices are
    known.
    """
    with store.reading() as connection:
        number = connection.scalar(select(schema.runs.c.number).where(schema.runs.c.id == run))
        return float(
            connection.scalar(select(func.sum(schema.calls.c.cost)).where(schema.calls.c.run == number)) or 0.0
        )


def calls_made(store: Store, run: str) -> int:
    """Calls of models that a run has made, failed and repeated ones and judges included."""
    with store.reading() as connection:
        number = connection.scalar(select(schema.runs.c.number).where(schema.runs.c.id == run))
        return int(
            connection.scalar(select(func.count()).select_from(schema.calls).where(schema.calls.c.run == number)) or 0
        )


def examples_planned(store: Store, run: str, *, groups: bool = False) -> int:
    """Examples that a run has read, or the groups that they belong to."""
    e, r = schema.examples.c, schema.runs.c
    with store.reading() as connection:
        mine = e.run == connection.scalar(select(r.number).where(r.id == run))
        found = select(e.dataset, e.group).where(mine).distinct() if groups else select(e.position).where(mine)
        return int(connection.scalar(select(func.count()).select_from(found.subquery())) or 0)


def _record(connection: Connection, row: Row[Any]) -> RunRecord:
    counts = unpacked(row.counts, {})
    facts = counts.pop("stored", None)
    if facts is None or row.status == RUNNING:
        facts = _facts(connection, row.number)
    return RunRecord(
        number=row.number,
        id=row.id,
        name=row.name,
        status=status_of(row),
        created=row.created,
        updated=row.updated,
        manifest=unpacked(row.manifest, {}),
        counts={**counts, "unmatched": facts["unmatched"], "cost": facts["cost"]},
        timing=facts["timing"],
        systems=[name for _, name in arms_of(connection, row.number)],
        rows=facts["rows"],
        planned=facts["owed"],
        failed=facts["failed"],
        title=row.title or "",
        tags=tags_in(row.tags),
    )


def arms_of(connection: Connection, run: int) -> list[tuple[int, str]]:
    """(number, name) of the arms of a run (number), in their order."""
    a = schema.arms.c
    query = select(a.arm, a.name).where(a.run == run, a.ordinal.is_not(None)).order_by(a.ordinal)
    return [(arm, name) for arm, name in connection.execute(query)]


def _facts(connection: Connection, run: int) -> dict[str, Any]:
    """Figures of a run from the tables; kept with it when it ends, since counting a large run takes its time."""
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


@dataclass(frozen=True, slots=True)
class WantedRun:
    """The run that a command is to begin or to go on with. `manifest` and `systems` tell what it would hold."""

    name: str | None
    identity: str
    manifest: dict[str, Any]
    systems: Sequence[str]


def begin_run(connection: Connection, store: str, wanted: WantedRun, *, again: bool, clock: Clock) -> Begun:
    """Take up the run of the wanted name, or without a name the latest unfinished one with the same `identity` (if
    `again`), else make a new one.

    Call it with the store to yourself (`Database.alone`). `store`: its name, for messages. Raises `StoreUnusable` if
    another living process is at work on it, `BadInput` if the name is that of something else.
    """
    name, identity = wanted.name, wanted.identity
    runs = schema.runs
    if name is not None:
        found = connection.execute(select(runs).where(runs.c.name == utf8_safe(name))).first()
        if found is None:
            found = connection.execute(select(runs).where(runs.c.id == utf8_safe(name))).first()
        if found is not None:
            refuse_deleted(found, store)
        if found is not None and busy(found, clock):
            raise StoreUnusable(
                f"run {name!r} is being worked on by another process; wait for it, or give this one another --run name"
            )
        if found is not None and not again:
            raise NotComparable(f"a run named {name!r} exists and is not to be used again; give this one another name")
        if found is not None:
            _refuse_another(connection, found, wanted, store)
    else:
        same = (
            select(runs)
            .where(runs.c.identity == identity, runs.c.status != DONE, runs.c.deleted.is_(None))
            .order_by(runs.c.number.desc())
            .limit(5)
        )
        found = next((row for row in connection.execute(same) if not busy(row, clock)), None) if again else None
    now = clock.now()
    if found is None:
        return _new_run(connection, name, identity, now)
    connection.execute(
        update(runs)
        .where(runs.c.number == found.number)
        .values(status=RUNNING, owner=process_mark(), updated=now, identity=identity)
    )
    return Begun(found.number, found.id, found.name, False, found.created, unpacked(found.manifest, {}))


def _refuse_another(connection: Connection, found: Row[Any], wanted: WantedRun, store: str) -> None:
    """Raise `BadInput` where the stored run, if it has answers, is of another kind than the wanted one, or has no
    system or no data in common with it: not one of its answers could be kept.
    """
    before, systems = unpacked(found.manifest, {}), [name for _, name in arms_of(connection, found.number)]
    kinds = kind_of(before), kind_of(wanted.manifest)
    data = _data_of(before), _data_of(wanted.manifest)
    apart = (
        kinds[0] != kinds[1]
        or not {utf8_safe(name) for name in wanted.systems} & set(systems)
        or (all(data) and not data[0].keys() & data[1].keys())
    )
    held = select(func.count()).where(schema.plan.c.run == found.number, schema.plan.c.output.is_not(None))
    if not before or not apart or not (rows := connection.scalar(held)):
        return
    ours, theirs = (
        f"{kind} of {_some(names)}" + (f" on {_some(list(dict.fromkeys(on.values())))}" if on else "")
        for kind, names, on in zip(kinds, (systems, wanted.systems), data, strict=True)
    )
    place = f"--store {quoted(store)}"
    raise BadInput(
        f"the name {found.name!r} is taken ({ours}, {rows:,} rows), and this would be another ({theirs}), which could "
        "keep none of those rows. Give it another name (--run, or --name of an import), or remove that run first: mark "
        f"it as deleted in `context-bench view --edit {place}`, then `context-bench purge --deleted {place}`"
    )


def kind_of(manifest: Mapping[str, Any]) -> str:
    """The kind of a run, by its manifest: import, grade, what a family calls it (replay, memory …), else run."""
    others = (kind for key, kind in (("imported", "import"), ("grade", "grade")) if manifest.get(key))
    return next(iter([*others, *(family.manifest_key for family in families_of(manifest)), "run"]))


def _data_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """By what the data of a run can be known again, names and hashes of content → the name to show."""
    found: dict[str, str] = {}
    for each in (one for one in manifest.get("datasets") or [] if isinstance(one, Mapping)):
        parts = [str(one["set"]) for one in each.get("sets") or [] if one.get("set")]
        name = str(each.get("name"))
        found |= dict.fromkeys([name, *parts, *([each["sha256"]] if each.get("sha256") else [])], name)
    return found


def _some(names: Sequence[str]) -> str:
    """At most three of the names, and how many more there are."""
    return ", ".join([*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])])


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
    return Begun(insert_one(connection, schema.runs, values), run_id, chosen, True, now)


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


#: Ids of the runs that this process is at work on: an owner that lives may have let go of a run whose store failed.
AT_WORK: set[str] = set()


def worked_on(run: str, owner: str | None, updated: float, clock: Clock) -> bool:
    """Is somebody at work on the run of this id?"""
    return run in AT_WORK if owner == process_mark() else still_alive(owner, updated, clock)


def busy(row: Row[Any], clock: Clock = SYSTEM_CLOCK) -> bool:
    """Is a living process at work on this run?"""
    return row.status == RUNNING and worked_on(row.id, row.owner, row.updated, clock)


def status_of(row: Row[Any]) -> str:
    """The status of a run; one that nobody works on any more was interrupted."""
    return INTERRUPTED if row.status == RUNNING and not busy(row) else str(row.status)


# --- arms and evaluators of a run ---


def identity_of(
    arms: Sequence[PlannedArm], evaluators: Sequence[PlannedEvaluator], settings: dict[str, Any], datasets: Any
) -> str:
    """The identity of a run, equal for two commands that mean the same: arms and their partners, evaluators, seed and
    trials, datasets.
    """
    parts = [
        [[arm.name, arm.key, arm.arm.budget_from] for arm in arms],
        [each.key for each in evaluators],
        settings,
        dumps(datasets).decode("utf-8", "replace"),
    ]
    return hash_text(dumps(parts).decode("utf-8", "replace"))


def register_arms(connection: Connection, run: int, chosen: Sequence[PlannedArm]) -> None:
    """Give arms their numbers, and drop the plan of those that are gone."""
    arms, plan = schema.arms, schema.plan
    stored = {row.name: row for row in connection.execute(select(arms).where(arms.c.run == run))}
    known = {name: row.arm for name, row in stored.items()}
    number = max(known.values(), default=-1)
    connection.execute(update(arms).where(arms.c.run == run).values(ordinal=None))
    for ordinal, arm in enumerate(chosen):
        name = utf8_safe(arm.name)
        if name not in known:
            number += 1
            known[name] = number
        arm.number = known[name]
        values = {"name": name, "ordinal": ordinal, "key": bytes.fromhex(arm.key)}
        if (
            name in stored and stored[name].key != values["key"]
        ):  # another system under an old name: its answers are not this one's
            connection.execute(update(plan).where(plan.c.run == run, plan.c.arm == arm.number).values(output=None))
        adding = insert(connection, arms).values(run=run, arm=arm.number, **values)
        connection.execute(adding.on_conflict_do_update(index_elements=["run", "arm"], set_=values))
    present = [arm.number for arm in chosen]
    connection.execute(delete(plan).where(plan.c.run == run, plan.c.arm.not_in(present)))


def find_arms(connection: Connection, run: int, chosen: Sequence[PlannedArm]) -> None:
    """Give arms the numbers that the run knows their names by."""
    a = schema.arms.c
    known = {row.name: row.arm for row in connection.execute(select(a.name, a.arm).where(a.run == run))}
    for arm in chosen:
        arm.number = known[utf8_safe(arm.name)]


def register_evaluators(
    connection: Connection, run: int, chosen: Sequence[PlannedEvaluator], *, keep: bool = False
) -> None:
    """Give evaluators their ids and make them the run's; with `keep`, those of other names stay."""
    table, links = schema.evaluators, schema.run_evaluators
    for evaluator in sorted(chosen, key=lambda evaluator: evaluator.key):
        values = {"key": bytes.fromhex(evaluator.key), "name": utf8_safe(evaluator.name)}
        evaluator.id = number_of(connection, table, values)
    ids: list[int] = []
    if keep:
        names = {utf8_safe(each.name) for each in chosen}
        linked = select(table.c.id, table.c.name).join(links, links.c.evaluator == table.c.id)
        before = linked.where(links.c.run == run).order_by(links.c.ordinal)
        ids = [row.id for row in connection.execute(before) if row.name not in names]
    ids = list(dict.fromkeys([*ids, *(each.id for each in chosen)]))
    connection.execute(delete(links).where(links.c.run == run))
    if ids:
        connection.execute(links.insert(), [{"run": run, "ordinal": n, "evaluator": one} for n, one in enumerate(ids)])
