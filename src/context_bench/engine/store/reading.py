"""Results of a run, read back in plan order and bounded memory: rows, examples with their outputs, whole exports."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from sqlalchemy import Connection, Select, bindparam, func, select, true, tuple_

from context_bench.core.errors import UnknownName
from context_bench.core.records import EvalRow, Example
from context_bench.engine.encoding import Damaged, Skeleton, dumps, loads, unpack_body, unpacked
from context_bench.engine.store import Store, schema
from context_bench.engine.store.dialects import KeyedQuery, PreparedQuery
from context_bench.engine.store.run_records import arms_of

#: Rows read at once: where some are wanted, where all are, where their examples are.
CHUNK, _MANY, _WHOLE = 256, 1024, 64
_FIRST = (-1, -1)
_BODY, _ID = 6, 7  # where `_plan_query` has the key of the example and the id of the output
#: Evaluators by name, each with what it said of outputs: output → its number, the output's, values, error, usage.
_Scored = list[tuple[str, dict[int, tuple[Any, ...]]]]


def rows(store: Store, run: str, system: str | None = None) -> StoredRows:
    """The rows of a run (id or name), or of one of its systems: by system in the order given, then example, then trial.

    Read as they are needed and as often as wanted; rows still owed are not among them. Raises `UnknownName`.
    """
    with store.reading() as connection:
        runs = schema.runs
        number = connection.scalar(select(runs.c.number).where((runs.c.id == run) | (runs.c.name == run)))
        if number is None:
            raise UnknownName("run", run, connection.scalars(select(runs.c.name).limit(20)))
        arms = arms_of(connection, number)
    names = [name for _, name in arms]
    if system is not None and system not in names:
        raise UnknownName("system", system, names)
    return StoredRows(store, number, [(arm, name) for arm, name in arms if system in (None, name)])


class StoredRows(Sequence[EvalRow]):
    """Rows of a stored run, a chunk of them in memory at a time.

    `systems`: whose they are, in their order. `aggregates`: what a pass over all of them found for a page; reports
    read no row for it again.
    """

    aggregates: Any = None

    def __init__(self, store: Store, run: int, arms: list[tuple[int, str]]) -> None:
        self._store = store
        self._run = run
        self._arms = arms
        self.systems = [name for _, name in arms]
        self._length: int | None = None
        self._chunk: tuple[int, list[EvalRow]] = (0, [])

    def __len__(self) -> int:
        if self._length is None:
            plan = schema.plan.c
            with self._store.reading() as connection:
                query = select(func.count(plan.output)).where(
                    plan.run == self._run, plan.arm.in_([arm for arm, _ in self._arms])
                )
                self._length = connection.scalar(query) or 0
        return self._length

    def __iter__(self) -> Iterator[EvalRow]:
        for arm, name in self._arms:
            last = _FIRST
            while True:
                with self._store.reading() as connection:
                    found = _PLAN_CHUNK.read(connection, self._run, arm, *last, _MANY, 0)
                    until = found[-1][:2] if found else last
                    scores = _SCORES_BETWEEN.read(connection, self._run, arm, *last, *until)
                    made = _made(name, found, _by_evaluator(connection, self._run, scores))
                yield from made
                if len(found) < _MANY:
                    break
                last = until

    @overload
    def __getitem__(self, index: int) -> EvalRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[EvalRow]: ...
    def __getitem__(self, index: int | slice) -> EvalRow | list[EvalRow]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        start, chunk = self._chunk
        if not start <= index < start + len(chunk):
            start = index - index % CHUNK
            self._chunk = start, self._load(start)
            start, chunk = self._chunk
        return chunk[index - start]

    def _load(self, start: int) -> list[EvalRow]:
        loaded: list[EvalRow] = []
        plan = schema.plan.c
        with self._store.reading() as connection:
            for arm, name in self._arms:
                if len(loaded) >= CHUNK:
                    break
                count = (
                    connection.scalar(select(func.count(plan.output)).where(plan.run == self._run, plan.arm == arm))
                    or 0
                )
                if start < count:
                    found = _PLAN_CHUNK.read(connection, self._run, arm, *_FIRST, CHUNK - len(loaded), start)
                    loaded += _eval_rows(connection, self._run, name, found)
                start = max(0, start - count)
        return loaded


def _plan_query(run: Any, arm: Any) -> Select[Any]:
    """Plan rows of an arm that have an output, joined with the example and the output."""
    return _PLANNED.where(_p.run == run, _p.arm == arm)


# Built once: what is read chunk by chunk would else cost more to say than to find.
_p, _e, _o, _s = schema.plan.c, schema.examples.c, schema.outputs.c, schema.scores.c
_OF_OUTPUT = ("id", "error", "source", "input_tokens", "output_tokens", "latency", "usage", "wire", "metadata")
_OF_EXAMPLE: tuple[Any, ...] = (_e.id.label("example_id"), _e.dataset, _e.group, _e.cluster, _e.body)
_PLANNED = (
    select(_p.position, _p.trial, *_OF_EXAMPLE, *(_o[name] for name in _OF_OUTPUT))
    .select_from(
        schema.plan.join(schema.examples, (_e.run == _p.run) & (_e.position == _p.position)).join(
            schema.outputs, _o.id == _p.output
        )
    )
    .order_by(_p.position, _p.trial)
)
_PLACE, _AFTER = tuple_(_p.position, _p.trial), tuple_(bindparam("position"), bindparam("trial"))
_NAMES = ("run", "arm", "position", "trial")
_FOLLOWING = _plan_query(bindparam("run"), bindparam("arm")).where(_PLACE > _AFTER)
_FOLLOWING = _FOLLOWING.limit(bindparam("limit")).offset(bindparam("skipped"))
_PLAN_CHUNK = PreparedQuery(_FOLLOWING, (*_NAMES, "limit", "skipped"))
_WHOLE_CHUNK = PreparedQuery(_FOLLOWING.add_columns(_o.output), (*_NAMES, "limit", "skipped"))
_SCORED: Select[Any] = select(_s.evaluator, _s.output, _s["values"], _s.error, _s.usage)
_SCORES = KeyedQuery(_SCORED, _s.output)
#: The same for the outputs of an arm from one place of the plan to another.
_SCORES_BETWEEN = PreparedQuery(
    _SCORED.select_from(schema.plan.join(schema.scores, _s.output == _p.output)).where(
        _p.run == bindparam("run"),
        _p.arm == bindparam("arm"),
        _PLACE > _AFTER,
        tuple_(bindparam("to_position"), bindparam("to_trial")) >= _PLACE,
    ),
    (*_NAMES, "to_position", "to_trial"),
)
_BODIES = KeyedQuery(select(schema.bodies.c.key, schema.bodies.c.data), schema.bodies.c.key)
_EVALUATORS = PreparedQuery(
    select(schema.evaluators.c.id, schema.evaluators.c.name)
    .join(schema.run_evaluators, schema.evaluators.c.id == schema.run_evaluators.c.evaluator)
    .where(schema.run_evaluators.c.run == bindparam("run"))
    .order_by(schema.run_evaluators.c.ordinal),
    ("run",),
)


def _eval_rows(connection: Connection, run: int, name: str, found: Iterable[Sequence[Any]]) -> list[EvalRow]:
    """The rows of one system, of what `_plan_query` found."""
    chunk = [tuple(row) for row in found]
    scores = _SCORES.read(connection, [row[_ID] for row in chunk])
    return _made(name, chunk, _by_evaluator(connection, run, scores))


def _made(name: str, found: Iterable[tuple[Any, ...]], scored: _Scored) -> list[EvalRow]:
    """Read by the hundred thousand, so values are taken by their place, in the order of `_plan_query`."""
    made, unpacked_once = [], _UnpackedOnce()
    for (
        _,
        trial,
        example_id,
        dataset,
        group,
        cluster,
        _,
        number,
        error,
        source,
        sent,
        forwarded,
        latency,
        usage,
        wire,
        metadata,
        *_,
    ) in found:
        errors = {} if error is None else {"system": error}
        try:
            billed = {} if usage is None else unpacked(usage)
            facts = {} if metadata is None else {**unpacked_once[metadata]}
            seen = {} if wire is None else unpacked(wire)
            scores = _take_scores(number, scored, errors, billed, unpacked_once)
        except Damaged:
            billed, facts, seen, scores = _what_is_whole(number, usage, metadata, wire, scored, errors)
        if source is not None:
            facts["forwarded_source"] = source
        place = (loads(example_id), scores, sent, forwarded, facts, latency, dataset, trial, group, cluster)
        made.append(EvalRow(name, *place, errors, billed, seen))
    return made


#: Under this name a row's errors have what of it is damaged in the store.
DAMAGED = "store"


def _what_is_whole(
    output: int, usage: Any, metadata: Any, wire: Any, scored: _Scored, errors: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, float]]:
    """Usage, metadata, wire and scores of a row as far as they are what was written; its errors name the rest."""
    whole: dict[str, Any] = {}
    for name, data in (("usage", usage), ("metadata", metadata), ("wire", wire)):
        try:
            whole[name] = {**unpacked(data, {})}
        except Damaged:
            whole[name] = {}
            add_damage(errors, f"outputs id={output} ({name})")
    scores: dict[str, float] = {}
    for each in scored:
        try:
            scores.update(_take_scores(output, [each], errors, whole["usage"], _UnpackedOnce()))
        except Damaged:
            add_damage(errors, f"scores output={output} ({each[0]})")
    return whole["usage"], whole["metadata"], whole["wire"], scores


def add_damage(errors: dict[str, str], place: str) -> None:
    """Say in a row's errors that something of it is damaged."""
    before = errors.get(DAMAGED)
    errors[DAMAGED] = f"Damaged: {place}" if before is None else f"{before}; {place}"


class _UnpackedOnce(dict[bytes, dict[str, Any]]):
    """Packed columns of a chunk of rows, unpacked: many are equal. Read only; what holds further lists or mappings is
    not remembered.
    """

    def __missing__(self, data: bytes) -> dict[str, Any]:
        found: dict[str, Any] = unpacked(data)
        if _NESTED.isdisjoint(map(type, found.values())):
            self[data] = found
        return found


_NESTED = frozenset((dict, list))


def _take_scores(
    output: int, scored: _Scored, errors: dict[str, str], usage: dict[str, Any], known: _UnpackedOnce
) -> dict[str, float]:
    """Scores of one row; the evaluators' errors and usage are added to the row's."""
    scores: dict[str, float] = {}
    for evaluator, of in scored:
        if (told := of.get(output)) is not None:
            _, _, values, error, used = told
            if error is not None:
                errors[evaluator] = error
            if values is not None:
                scores.update(known[values])
            if used is not None:
                usage["judge"] = _added(usage.get("judge", {}), unpacked(used))
    return scores


def _by_evaluator(connection: Connection, run: int, found: Iterable[tuple[Any, ...]]) -> _Scored:
    """Scores by the evaluators of the run, in their order."""
    names: dict[int, str] = dict(_EVALUATORS.read(connection, run))
    scores: dict[int, dict[int, tuple[Any, ...]]] = {number: {} for number in names}
    for row in found:
        if row[0] in scores:
            scores[row[0]][row[1]] = row
    return [(names[number], of) for number, of in scores.items() if of]


def _added(total: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {key: total.get(key, 0) + more.get(key, 0) for key in {**total, **more}}


def score_names(store: Store, run: int, system: str | None = None) -> set[str]:
    """The names of the scores that a run (number), or one of its systems, has; damaged ones aside."""
    links, names = schema.run_evaluators.c, set[str]()
    with store.reading() as connection:
        arms = [arm for arm, name in arms_of(connection, run) if system in (None, name)]
        tables = schema.plan.join(schema.scores, _s.output == _p.output).join(
            schema.run_evaluators, (links.evaluator == _s.evaluator) & (links.run == run)
        )
        query = select(_s["values"]).select_from(tables).where(_p.run == run, _p.arm.in_(arms)).distinct()
        for values in connection.execution_options(stream_results=True).scalars(query):
            with suppress(Damaged):
                names.update(unpacked(values, ()))
    return names


# --- whole records: for export, inspection and judging again
# -----------------------------------------------------------------


@dataclass(slots=True)
class StoredOutput:
    """An output with all that belongs to it. `example` is `None` if bodies were not kept."""

    id: int
    system: str
    position: int
    row: EvalRow
    example: Example | None
    output: Example
    scored: tuple[int, ...]  # evaluators (store ids) that judged it without an error
    whole: bool = True  # example and output are what was written; else the row's errors say which is not

    @property
    def processed(self) -> Example:
        """Example and what the system made of it, as evaluators see it."""
        return {**(self.example or {}), **self.output}


def stored(store: Store, run: int, system: str | None = None) -> Iterator[StoredOutput]:
    """Every output of a run (number) with its example, in plan order, read in small chunks."""
    with store.reading() as connection:
        arms = [(arm, name) for arm, name in arms_of(connection, run) if system in (None, name)]
    for arm, name in arms:
        last = _FIRST
        while True:
            with store.reading() as connection:
                chunk = _WHOLE_CHUNK.read(connection, run, arm, *last, _WHOLE, 0)
                made = _stored_chunk(connection, run, name, chunk)
            yield from made
            if len(chunk) < _WHOLE:
                break
            last = chunk[-1][:2]


def stored_one(
    store: Store, run: int, system: str, example_id: str | int, trial: int = 0, *, dataset: str | None = None
) -> StoredOutput | None:
    """The answer of a system to one example of a run (number). A typed id may be a number in the store, and the other
    way round.
    """
    a, e = schema.arms.c, schema.examples.c
    ids = [
        dumps(example_id),
        *([dumps(number)] if (number := _as_number(example_id)) is not None else [dumps(str(example_id))]),
    ]
    with store.reading() as connection:
        arm = connection.scalar(select(a.arm).where(a.run == run, a.name == system, a.ordinal.is_not(None)))
        places = select(e.id, e.position).where(
            e.run == run, e.id.in_(ids), e.dataset == dataset if dataset is not None else true()
        )
        found = {row.id: row.position for row in reversed(connection.execute(places.order_by(e.position)).all())}
        position = next((found[key] for key in ids if key in found), None)
        if arm is None or position is None:
            return None
        p = schema.plan.c
        query = _plan_query(run, arm).add_columns(_o.output).where(p.position == position, p.trial == trial)
        chunk = connection.execute(query).all()
        return next(_stored_chunk(connection, run, system, chunk), None)


def example_ids(store: Store, run: int) -> list[str | int]:
    """The ids of a run's (number) examples, in plan order."""
    e = schema.examples.c
    with store.reading() as connection:
        return [loads(key) for key in connection.scalars(select(e.id).where(e.run == run).order_by(e.position))]


def _as_number(example_id: str | int) -> int | None:
    return int(example_id) if isinstance(example_id, str) and re.fullmatch(r"-?\d{1,18}", example_id) else None


def stored_ids(store: Store, run: int) -> array[int]:
    """Ids of all answers of a run (number), in plan order; 8 bytes each."""
    p, o = schema.plan, schema.outputs
    query = select(p.c.output).join(o, o.c.id == p.c.output).where(p.c.run == run, o.c.error.is_(None))
    with store.reading() as connection:
        return array("q", connection.scalars(query.order_by(p.c.arm, p.c.position, p.c.trial)))


def stored_by_id(store: Store, run: int, ids: Sequence[int]) -> list[StoredOutput]:
    """The outputs of a run with these ids, in this order."""
    p, a = schema.plan, schema.arms
    found: dict[int, StoredOutput] = {}
    with store.reading() as connection:
        names = {row.arm: row.name for row in connection.execute(select(a.c.arm, a.c.name).where(a.c.run == run))}
        arms = connection.scalars(select(p.c.arm).where(p.c.run == run, p.c.output.in_(ids)).distinct()).all()
        for arm in arms:
            query = _plan_query(run, arm).add_columns(_o.output).where(p.c.output.in_(ids))
            chunk = connection.execute(query).all()
            found |= {item.id: item for item in _stored_chunk(connection, run, names[arm], chunk)}
    return [found[number] for number in ids if number in found]


def _stored_chunk(
    connection: Connection, run: int, name: str, found: Iterable[Sequence[Any]]
) -> Iterator[StoredOutput]:
    """Outputs with their examples, of what `_plan_query` found with the output after it. Each output is unpacked when
    it is asked for: that of a recorded session has a hundred kilobytes.
    """
    chunk = [tuple(row) for row in found]
    scores = list(_SCORES.read(connection, [row[_ID] for row in chunk]))
    judged: dict[int, tuple[int, ...]] = {}
    for evaluator, output, _, error, _ in scores:
        if error is None:
            judged[output] = (*judged.get(output, ()), evaluator)
    lost: set[bytes] = set()
    examples = bodies_of(connection, {row[_BODY] for row in chunk} - {None}, lost)
    rows_made = _made(name, chunk, _by_evaluator(connection, run, scores))

    def whole(row: Sequence[Any], made: EvalRow) -> StoredOutput:
        number, body, intact = row[_ID], row[_BODY], True
        try:
            answer = unpacked(row[-1], {})
        except Damaged:
            answer, intact = {}, False
            add_damage(made.errors, f"outputs id={number} (output)")
        if body in lost:
            add_damage(made.errors, f"bodies key={body.hex()} (data)")
            intact = False
        return StoredOutput(number, name, row[0], made, examples.get(body), answer, judged.get(number, ()), intact)

    return map(whole, chunk, rows_made)


def bodies_of(connection: Connection, keys: Iterable[bytes], lost: set[bytes] | None = None) -> dict[bytes, Any]:
    """The bodies with these keys, parts put back.

    Raises `Damaged` for one that is not there or not what was written, or whose parts are not; with `lost`, it goes
    there and is left out.
    """
    missing: set[bytes] = set()
    skeletons = _raw(connection, set(keys), missing, Skeleton)
    parts = _raw(connection, {part for each in skeletons.values() for part in each.parts}, missing, loads)
    found: dict[bytes, Any] = {}
    for key, skeleton in skeletons.items():
        if missing and not missing.isdisjoint(skeleton.parts):
            missing.add(key)
        else:
            found[key] = skeleton.joined(parts)
    if missing and lost is None:
        raise Damaged
    if lost is not None:
        lost |= missing
    return found


_T = TypeVar("_T")


def _raw(connection: Connection, keys: set[bytes], missing: set[bytes], read: Callable[[bytes], _T]) -> dict[bytes, _T]:
    """Bodies or parts, read from their bytes; the keys of those that are damaged are added to `missing`."""
    found: dict[bytes, _T] = {}
    for key, data in _BODIES.read(connection, sorted(keys)):
        try:
            found[key] = read(unpack_body(key, data))
        except Damaged:
            missing.add(key)
    missing |= keys - found.keys()
    return found


def same_examples(store: Store, first: str, second: str) -> bool:
    """Were two runs asked the same examples, in the same order?"""
    e = schema.examples.c
    numbers = [rows(store, name)._run for name in (first, second)]
    with store.reading() as connection:
        one, two = (
            iter(connection.execute(select(e.content).where(e.run == number).order_by(e.position)))
            for number in numbers
        )
        while True:
            a, b = next(one, None), next(two, None)
            if a != b:
                return False
            if a is None:
                return True
