"""Records of watches of live traffic, batch by batch, read back turn by turn; and the state of limits on sessions."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from context_bench.core.errors import Stop, StoreUnusable, UnknownName
from context_bench.core.machine import SYSTEM_CLOCK, Clock, process_mark, still_alive
from context_bench.core.numbers import forwarded_of, real, usage_of
from context_bench.core.records import Forwarded
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import Bodies, dumps, pack, unpacked
from context_bench.engine.store import Store, schema
from context_bench.engine.store.dialects import Unstorable, insert, insert_one, put, storing
from context_bench.engine.store.outcomes import write_bodies
from context_bench.engine.store.reading import bodies_of
from context_bench.engine.store.run_records import (
    COPYING,
    DONE,
    INTERRUPTED,
    RUNNING,
    iso_time,
    newest_first,
)
from context_bench.wire.turns import Turn

_TURN = frozenset(field.name for field in fields(Turn))
_AT_ONCE = 200  # turns read at a time
_MODELS, _MODEL = 3, 100  # models that a list shows, characters of each


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """A watch as the store knows it. Times in seconds since the epoch.

    `status`: running · done · interrupted (killed) · copying (a copy that is not whole yet).
    """

    number: int
    name: str
    status: str
    created: float
    updated: float
    settings: dict[str, Any]
    records: int = 0

    @property
    def title(self) -> str:
        """Title that people gave it; its name stays its name."""
        return text if isinstance(text := self.settings.get("title"), str) else ""

    @property
    def tags(self) -> list[str]:
        """Its tags, as a run has them."""
        found = self.settings.get("tags")
        return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []

    @property
    def model(self) -> str:
        """The first models that were asked for; of a watch made before this was kept `""`."""
        found = self._in_short().get("models")
        return ", ".join(model for model in found if isinstance(model, str)) if isinstance(found, list) else ""

    @property
    def figures(self) -> dict[str, float | None]:
        """`rows`: its turns; `cost`: their US dollars, `None` where no price of any is known."""
        return {"rows": self.records, "cost": real(self._in_short().get("cost"))}

    @property
    def shown(self) -> str:
        """Its title, or else its name."""
        return self.title or self.name

    def _in_short(self) -> Mapping[str, Any]:
        told = self.settings.get("told")
        return told if isinstance(told, Mapping) else {}

    def describe(self) -> dict[str, Any]:
        """The watch in one line of JSON, in the keys of a run; `None` where a watch has no such thing."""
        return {
            "kind": "watch",
            "id": None,
            "name": self.name,
            "status": self.status,
            "started": iso_time(self.created),
            "systems": [],
            "rows": self.records,
            "owed": None,
            "failed": None,
            "counts": {},
            **{name: value for name, value in (("title", self.title), ("tags", self.tags)) if value},
        }


def labels_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Title and tags among the settings of a watch, where it has any."""
    return {name: settings[name] for name in ("title", "tags") if settings.get(name)}


def with_labels(settings: Mapping[str, Any], labels: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with these labels, and no others."""
    kept = {name: value for name, value in settings.items() if name not in ("title", "tags")}
    return kept | labels_of(labels)


class WatchLog:
    """Writes one watch. Every `write` is one transaction; when it returns, its records are safe from loss of power."""

    def __init__(
        self, store: Store, number: int, name: str, settings: dict[str, Any], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.number, self.name, self._settings = number, name, settings
        self._store, self._clock, self._bodies = store, clock, Bodies()
        self.dropped = 0  # records that could not be stored
        self.counted = 0  # turns under way, as the store has it
        self._told: dict[str, Any] = {"models": [], "cost": None}  # of its turns, for lists

    def write(self, turns: list[Turn], under_way: int | None = None) -> None:
        """Keep some records. One that cannot be stored is kept without its bodies, else dropped and counted in
        `dropped`.

        `under_way`: turns that have begun and are not kept even now, for whoever finds the watch killed.
        """
        try:
            self._insist(turns, under_way)
        except Exception as error:
            if isinstance(error, Stop) and not isinstance(error, Unstorable):
                raise
            for turn in turns:
                self._write_one(turn, under_way)

    def _write_one(self, turn: Turn, under_way: int | None) -> None:
        bare = replace(turn, front=_bare(turn.front), calls=[_bare(call) for call in turn.calls])
        for record in (turn, bare):
            try:
                return self._insist([record], under_way)
            except Exception as error:
                if isinstance(error, Stop) and not isinstance(error, Unstorable):
                    raise
        self.dropped += 1
        return None

    def _insist(self, turns: list[Turn], under_way: int | None) -> None:
        told = _with_turns(self._told, turns)
        try:
            self._store.insist(lambda: self._try(turns, under_way, told))
        except BaseException:
            self._bodies.dropped()
            raise
        self._bodies.committed()
        self._told = told
        self.counted = self.counted if under_way is None else under_way

    def under_way(self, count: int) -> None:
        """So many turns have begun and are not kept. Safe from the end of this process when it returns, not from loss
        of power.
        """
        self._store.write(
            lambda connection: connection.execute(self._updated(connection, count, self._told)), durable=False
        )
        self.counted = count

    def _updated(self, connection: Connection, under_way: int | None, told: dict[str, Any]) -> Any:
        values: dict[str, Any] = {"updated": self._clock.now()}
        if under_way is not None:
            values["settings"] = self._packed(connection, {**self._settings, "under_way": under_way, "told": told})
        return update(schema.watches).where(schema.watches.c.number == self.number).values(values)

    def _packed(self, connection: Connection, settings: Mapping[str, Any]) -> bytes:
        """Settings to be kept, with the title and tags that the store has by now: people may change them meanwhile."""
        own = select(schema.watches.c.settings).where(schema.watches.c.number == self.number).with_for_update()
        return pack(dumps(with_labels(settings, unpacked(connection.scalar(own), {}))))

    def _try(self, turns: list[Turn], under_way: int | None, told: dict[str, Any]) -> None:
        w = schema.watched.c
        self._bodies.dropped()  # of a try before
        with self._store.writing() as connection:
            first = select(w.number).where(w.watch == self.number, w.number == turns[0].number) if turns else None
            if first is not None and connection.scalar(first) is not None:
                return  # they are there: only the answer to the commit was lost
            with storing():
                for turn in turns:
                    self._write(connection, turn)
            write_bodies(connection, self._bodies)
            connection.execute(self._updated(connection, under_way, told))

    def end(self, settings: dict[str, Any] | None = None) -> None:
        """The watch is over. `settings`: what it says about itself now."""
        values: dict[str, Any] = {"status": DONE, "owner": None, "updated": self._clock.now()}

        def work(connection: Connection) -> None:
            if settings is not None:
                told = settings | {"told": self._told} | ({"dropped": self.dropped} if self.dropped else {})
                values["settings"] = self._packed(connection, told)
            connection.execute(update(schema.watches).where(schema.watches.c.number == self.number).values(values))

        self._store.write(work)

    def take_back(self) -> None:
        """Forget a watch that could not begin. One with a turn stays."""
        of, turns = schema.watches.c.number == self.number, schema.watched
        some = select(turns.c.watch).where(turns.c.watch == self.number).exists()
        self._store.write(lambda connection: connection.execute(delete(schema.watches).where(of, ~some)))

    def _write(self, connection: Connection, turn: Turn) -> None:
        seen = [turn.front, *turn.calls]
        bare = replace(turn, front=_bare(turn.front), calls=[_bare(call) for call in turn.calls])
        told = asdict(bare)
        told["front"] = _filled(told["front"]) if turn.front is not None else None
        told["calls"] = [_filled(call) for call in told["calls"]]
        values = {
            "watch": self.number,
            "number": turn.number,
            "arm": turn.arm,
            "session": utf8_safe(turn.session),
            "turn": turn.turn,
        }
        connection.execute(schema.watched.insert().values(**values, record=pack(dumps(_filled(told)))))
        kept = [
            {
                "watch": self.number,
                "number": turn.number,
                "place": place,
                "request": None if record.request is None else self._bodies.add(record.request),
                "reply": None if record.reply is None else self._bodies.add(record.reply),
            }
            for place, record in enumerate(seen)
            if record is not None and (record.request is not None or record.reply is not None)
        ]
        if kept:
            connection.execute(schema.watched_bodies.insert(), kept)


def _with_turns(told: Mapping[str, Any], turns: Iterable[Turn]) -> dict[str, Any]:
    """The first models that were asked for, and US dollars, with those of some turns."""
    models, cost = list(told["models"]), told["cost"]
    for turn in turns:
        name = utf8_safe(turn.model or "")[:_MODEL]
        if name and name not in models and len(models) < _MODELS:
            models.append(name)
        if turn.cost is not None or turn.guessed is not None:
            cost = (cost or 0.0) + (turn.cost or 0.0) + (turn.guessed or 0.0)
    return {"models": models, "cost": cost}


def first_free(wanted: str, taken: Collection[str]) -> str:
    """The wanted name, or where it is taken the first of `NAME-2`, `NAME-3` … that is not."""
    numbered = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
    return next(each for each in (wanted, *numbered) if each not in taken)


def open_watch(
    store: Store, settings: dict[str, Any], *, name: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> WatchLog:
    """Begin a watch. `settings`: what it says about itself, JSON-ready, no secrets. `name`: default from the time of
    day.
    """
    from datetime import UTC, datetime

    now = clock.now()
    wanted = utf8_safe(name) if name else f"watch-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}"
    with store.writing() as connection:
        store.database.alone(connection)
        taken = set(
            connection.scalars(
                select(schema.watches.c.name).where(schema.watches.c.name.startswith(wanted, autoescape=True))
            )
        )
        chosen = first_free(wanted, taken)
        values = {"name": chosen, "status": RUNNING, "created": now, "updated": now, "owner": process_mark()}
        number = insert_one(connection, schema.watches, {**values, "settings": pack(dumps(settings))})
    return WatchLog(store, number, chosen, settings, clock)


def watch_key(store: Store) -> str:
    """The key of the newest watch here that has one, in hex digits, else a new one: with it conversations are drawn and
    needles follow from what they are planted in, the same in every watch of this store.
    """
    with store.reading() as connection:
        newest = select(schema.watches.c.settings).order_by(*newest_first(schema.watches))
        for settings in connection.scalars(newest):
            if isinstance(key := unpacked(settings, {}).get("key"), str):
                return key
    return secrets.token_hex(16)


def newest_turns(store: Store, most: int) -> Iterator[Turn]:
    """The latest records of all watches, newest first, `most` at most."""
    w = schema.watched.c
    with store.reading() as connection:
        newest = select(w.record).order_by(w.watch.desc(), w.number.desc()).limit(most)
        records = connection.scalars(newest).all()
    return (_turn(unpacked(record)) for record in records)


def list_watches(store: Store) -> list[WatchRecord]:
    """All watches, newest first."""
    with store.reading() as connection:
        counted = select(schema.watched.c.watch, func.count()).group_by(schema.watched.c.watch)
        counts: dict[int, int] = {row[0]: row[1] for row in connection.execute(counted)}
        found = connection.execute(select(schema.watches).order_by(*newest_first(schema.watches))).all()
        return [_record(row, counts.get(row.number, 0)) for row in found]


def old_watches(store: Store, before: float) -> dict[int, str]:
    """Number → name of the watches that are over and were not touched since."""
    return {
        watch.number: watch.name for watch in list_watches(store) if watch.updated < before and watch.status != RUNNING
    }


def remove_watches(connection: Connection, numbers: list[int]) -> None:
    """Remove watches and their records; bodies stay."""
    for column in (schema.watched_bodies.c.watch, schema.watched.c.watch, schema.watches.c.number):
        connection.execute(delete(column.table).where(column.in_(numbers)))


def watch_of(store: Store, name: str) -> WatchRecord:
    """The watch of this name, or the newest for `last`. Raises `UnknownName`."""
    known = [watch for watch in list_watches(store) if watch.status != COPYING]  # half a watch is none
    found = next((watch for watch in known if name in ("last", watch.name)), None)
    if found is None:
        raise UnknownName("watch", name, [watch.name for watch in known[:20]])
    return found


def watched(store: Store, name: str, *, bodies: bool = False, after: int = 0) -> Iterator[Turn]:
    """The records of a watch in order, those numbered above `after`; with `bodies`, what the recording policy kept of
    requests and replies is filled in.
    """
    number = watch_of(store, name).number
    w = schema.watched.c
    while True:
        with store.reading() as connection:
            query = (
                select(w.number, w.record).where(w.watch == number, w.number > after).order_by(w.number).limit(_AT_ONCE)
            )
            found = connection.execute(query).all()
            turns = [_turn(unpacked(row.record)) for row in found]
            if bodies and turns:
                _fill(connection, number, turns)
        yield from turns
        if not turns:
            return
        after = turns[-1].number


def _fill(connection: Connection, watch: int, turns: list[Turn]) -> None:
    b = schema.watched_bodies.c
    span = b.number.between(turns[0].number, turns[-1].number)
    kept = connection.execute(select(b.number, b.place, b.request, b.reply).where(b.watch == watch, span)).all()
    known = bodies_of(connection, {key for row in kept for key in (row.request, row.reply) if key is not None})
    by_number = {turn.number: turn for turn in turns}
    for row in kept:
        turn = by_number[row.number]
        record = turn.calls[row.place - 1] if row.place else turn.front
        if record is not None:
            record.request, record.reply = known.get(row.request), known.get(row.reply)


def _record(row: Row[Any], records: int) -> WatchRecord:
    status = (
        INTERRUPTED if row.status == RUNNING and not still_alive(row.owner, row.updated, SYSTEM_CLOCK) else row.status
    )
    return WatchRecord(row.number, row.name, status, row.created, row.updated, unpacked(row.settings, {}), records)


def _bare(record: Forwarded | None) -> Any:
    return None if record is None else replace(record, request=None, reply=None)


def _filled(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, {}, [], "")}


def _turn(values: dict[str, Any]) -> Turn:
    kept = {name: value for name, value in values.items() if name in _TURN}
    kept["usage"] = usage_of(kept.get("usage"))
    kept["front"] = _forwarded(kept["front"]) if kept.get("front") else None
    kept["calls"] = [_forwarded(call) for call in kept.get("calls", [])]
    return Turn(**kept)


def _forwarded(values: dict[str, Any]) -> Forwarded:
    return forwarded_of({**dict.fromkeys(("id", "wire", "method", "path"), ""), "mark": None, **values})


class CertificateLog:
    """The state under one key (16 bytes), owned by this process. `state`: as it was found; `None`: there was none.

    Raises `StoreUnusable` while another process owns it.
    """

    def __init__(self, store: Store, key: bytes, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self.key, self._clock = store, key, clock
        self.state: dict[str, Any] | None = None
        store.insist(self._take)

    def _take(self) -> None:
        c, now, mark = schema.certificates.c, self._clock.now(), process_mark()
        with self._store.writing() as connection:
            self._store.database.alone(connection)
            row = connection.execute(select(schema.certificates).where(c.key == self.key)).first()
            if row is None:
                values = {"key": self.key, "created": now, "updated": now, "owner": mark, "state": pack(dumps(None))}
                connection.execute(insert(connection, schema.certificates).values(values))
                return
            if row.owner != mark and still_alive(row.owner, row.updated, self._clock):
                raise StoreUnusable(
                    f"the same limits are being kept by another process in store {self._store.name}: two that count "
                    "apart would each forget what the other saw. Wait for it, or name another store with --store"
                )
            self.state = unpacked(row.state, None)
            connection.execute(update(schema.certificates).where(c.key == self.key).values(owner=mark, updated=now))

    def write(
        self, state: Mapping[str, Any], counted: Mapping[bytes, int] | None = None, *, release: bool = False
    ) -> None:
        """Keep a state, and of sessions that were counted now their number of requests by digest (16 bytes)."""
        rows = [(self.key, session, requests) for session, requests in (counted or {}).items()]
        values = {"state": pack(dumps(state)), "updated": self._clock.now()} | ({"owner": None} if release else {})
        changed = update(schema.certificates).where(schema.certificates.c.key == self.key).values(values)

        def both(connection: Any) -> None:
            connection.execute(changed)
            if rows:
                put(connection, schema.counted_sessions, ("certificate", "session", "requests"), rows)

        self._store.write(both)

    def counted(self) -> dict[bytes, int]:
        """The sessions that were counted, with the number of requests that they had."""
        c = schema.counted_sessions.c
        with self._store.reading() as connection:
            found = connection.execute(select(c.session, c.requests).where(c.certificate == self.key))
            return {bytes(row.session): row.requests for row in found}
