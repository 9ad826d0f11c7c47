"""The rows of a run sorted, filtered and held against the baseline in SQL, a page of them at a time; a search for words
in ids, questions, answers and failures, within a bounded time.

Everything here only reads, works while a run is written, and holds at most 16 bytes a row.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select, tuple_

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.numbers import real
from context_bench.core.records import EvalRow
from context_bench.core.rows import COST
from context_bench.core.tokens import utf8_safe
from context_bench.engine.encoding import Skeleton, dumps, loads, unpack_body, unpacked
from context_bench.engine.store import Store, schema
from context_bench.engine.store.browsing import (
    ARM_BITS,
    POSITION_BITS,
    ListedRun,
    Place,
    RunColumns,
    columns_of,
    failed_by,
    judge_error,
    of_kind,
)
from context_bench.engine.store.dialects import readable
from context_bench.engine.store.reading import _eval_rows, _plan_query
from context_bench.stats.distributions import within_bin

MOST_HITS = 1_000
_CHUNK = 256
_AROUND = 70  # characters of a text shown before and after what was found


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Rows to show, and their order. `sort`: a name of `SORTS` or `score:NAME`, "" = plan order; unknown values come
    last either way.

    `change`: how `score` stands against that of the baseline's answer to the same example and trial (`change_asked`);
    `baselines`: (system, baseline) pairs. `kind`: of question, as datasets name it.
    """

    system: str = ""
    dataset: str = ""
    failed: bool = False
    sort: str = ""
    descending: bool = False
    change: str = ""
    score: str = ""
    baselines: tuple[tuple[str, str], ...] = ()
    kind: str = ""


@dataclass(slots=True)
class Facets:
    """Columns by which rows can be filtered and sorted."""

    systems: list[tuple[int, str]]
    datasets: list[str] = field(default_factory=list)
    scores: list[str] = field(default_factory=list)
    trials: int = 1


def _number_in(data: bytes | None, names: Sequence[str]) -> float | None:
    """The first number under one of these names in a packed mapping."""
    values = unpacked(data, {})
    for name in names:
        if (found := real(values.get(name))) is not None:
            return found
    return None


#: How a row's score may stand against its baseline's. `failed`: it has none where the baseline has one.
CHANGES = ("lost", "gained", "same", "failed")
#: What rows can be sorted by, besides `score:NAME`.
SORTS = ("example", "dataset", "sent", "forwarded", "latency", "cost", "failure")


def facets(store: Store, run: ListedRun) -> Facets:
    """Systems, datasets, trials, and the names of scores as the first rows of each system have them."""
    e, p = schema.examples.c, schema.plan.c
    found = Facets(run.systems)
    with store.reading() as connection:
        found.datasets = list(connection.scalars(select(e.dataset).where(e.run == run.number).distinct().limit(200)))
        found.trials = 1 + (connection.scalar(select(func.max(p.trial)).where(p.run == run.number)) or 0)
        seen: dict[str, None] = {}
        for arm, name in run.systems:
            first = connection.execute(_plan_query(run.number, arm).limit(64)).all()
            for row in _eval_rows(connection, run.number, name, first):
                seen |= dict.fromkeys(row.scores)
    found.scores = list(seen)
    return found


def change_asked(text: str) -> tuple[str, tuple[float, float] | None]:
    """One of `CHANGES`, "" for all, and the sizes of the change: `lost:0.2:0.3` is more than 0.2 and up to 0.3. Raises
    `BadInput`.
    """
    kind, *sizes = text.split(":")
    ends = [float(each) for each in sizes if each.replace(".", "", 1).isdecimal()]
    if (kind in CHANGES or not text) and not sizes:
        return kind, None
    if kind in CHANGES[:2] and len(ends) == len(sizes) == 2 and ends[0] < ends[1]:
        return kind, (ends[0], ends[1])
    raise BadInput(f"{text[:60]!r} is no change against the baseline; expected {', '.join(CHANGES)}, or lost:LESS:MORE")


def places(store: Store, run: ListedRun, asked: RowQuery) -> array[int]:
    """All rows that are asked for, in order, as packed places. Raises `UnknownName` and `BadInput` for what cannot be
    asked.
    """
    change_asked(asked.change)
    columns = columns_of(store, run)
    found = _by_columns(columns, run, asked)
    found = of_kind(store, run, _places(store, run, asked), asked.kind) if found is None else found
    return _changed(store, run, asked, found, columns) if asked.change else found


def _by_columns(columns: RunColumns | None, run: ListedRun, asked: RowQuery) -> array[int] | None:
    """The same by the columns that were kept with the run, but for the change; `None` without a column of this."""
    import numpy as np

    if columns is None or not columns.has(asked.sort):
        return None
    if not _counted(asked):
        _order(asked.sort, run.number)
    wanted = np.isin(columns.places >> ARM_BITS, _arms(run, asked))
    for name, text in (("dataset", asked.dataset), ("kind", asked.kind)):
        if text:
            if (here := columns.are(name, text)) is None:
                return None
            wanted &= here
    if asked.failed:
        wanted &= ~np.isnan(columns.column("failure"))
    places = columns.places[wanted]
    if asked.sort:
        values = columns.column(asked.sort)[wanted]
        places = places[np.argsort(-values if asked.descending else values, kind="stable")]
    return array("q", places.tobytes())


def examples_of(order: array[int], ranked: array[int] | None = None) -> array[int]:
    """The examples (and trials) of these rows, as packed places without an arm, in the order in which they first occur
    in `ranked`, if that is given, and then in `order`.
    """
    import numpy as np

    def seen(places: array[int]) -> Any:
        found = np.asarray(places, dtype=np.int64) & (1 << ARM_BITS) - 1
        _, at = np.unique(found, return_index=True)
        return found[np.sort(at)]

    made = seen(order)
    if ranked is not None:
        first = seen(ranked)
        made = np.concatenate([first[np.isin(first, made)], made[~np.isin(made, first)]])
    return array("q", made.tobytes())


def _changed(
    store: Store, run: ListedRun, asked: RowQuery, found: array[int], columns: RunColumns | None
) -> array[int]:
    """Those of `found` whose score changed against the baseline as is asked for."""
    import numpy as np

    p, o = schema.plan, schema.outputs
    arms = {name: arm for arm, name in run.systems}
    query = select(p.c.arm * (1 << ARM_BITS) + p.c.position * (1 << POSITION_BITS) + p.c.trial).where(
        p.c.run == run.number, p.c.output.is_not(None)
    )
    by_score = RowQuery(sort=f"score:{asked.score}")
    wanted, kept = np.asarray(found, dtype=np.int64), np.zeros(len(found), dtype=bool)
    for system, baseline in asked.baselines:
        if system == baseline or not {system, baseline} <= arms.keys() or asked.system not in ("", system):
            continue
        with store.reading() as connection:
            own, other = (
                columns.of_arm(arms[name], by_score.sort)
                if columns is not None and columns.has(by_score.sort)
                else _numbers(connection, query, [arms[name]], p.join(o, o.c.id == p.c.output), run.number, by_score)
                for name in (system, baseline)
            )
        ours = np.flatnonzero(wanted >> ARM_BITS == arms[system])
        mine = _values_at(wanted[ours], own)
        theirs = _values_at(wanted[ours] - (arms[system] << ARM_BITS) + (arms[baseline] << ARM_BITS), other)
        matches = {
            "lost": mine < theirs,
            "gained": mine > theirs,
            "same": mine == theirs,
            "failed": np.isnan(mine) & ~np.isnan(theirs),
        }
        kind, sizes = change_asked(asked.change)
        kept[ours] = matches[kind] & within_bin(mine - theirs, *sizes) if sizes else matches[kind]
    return array("q", wanted[kept].tobytes())


def _values_at(places: Any, numbered: tuple[Any, Any]) -> Any:
    """The value at each of these packed places, NaN where there is none; `numbered` is in the order of places."""
    import numpy as np

    there, values = np.asarray(numbered[0], dtype=np.int64), numbered[1]
    if not len(there):
        return np.full(len(places), nan)
    at = np.minimum(np.searchsorted(there, places), len(there) - 1)
    return np.where(there[at] == places, values[at], nan)


def _places(store: Store, run: ListedRun, asked: RowQuery) -> array[int]:
    p, e, o, a = schema.plan, schema.examples, schema.outputs, schema.arms
    counted = _counted(asked)
    order = None if counted else _order(asked.sort, run.number)
    tables: Any = p
    if asked.failed or order is not None or counted:
        tables = tables.join(o, o.c.id == p.c.output)
    if asked.dataset or asked.sort in ("example", "dataset"):
        tables = tables.join(e, (e.c.run == p.c.run) & (e.c.position == p.c.position))
    query = select(p.c.arm * (1 << ARM_BITS) + p.c.position * (1 << POSITION_BITS) + p.c.trial)
    conditions = [p.c.run == run.number, p.c.output.is_not(None)]
    if asked.dataset:
        conditions.append(e.c.dataset == asked.dataset)
    if asked.failed:
        conditions.append(failed_by(run.number))
    chosen = _arms(run, asked)
    with store.reading() as connection:
        if counted:
            return _by_number(connection, query.where(*conditions), chosen, tables, run.number, asked)
        if order is None:  # arm by arm, as the table has them
            every: Iterable[Any] = (
                query.select_from(tables).where(*conditions, p.c.arm == arm).order_by(p.c.position, p.c.trial)
                for arm in chosen
            )
            return array("q", (place for each in every for place in connection.scalars(each)))
        tables = tables.join(a, (a.c.run == p.c.run) & (a.c.arm == p.c.arm))
        ranked = query.select_from(tables).where(*conditions, p.c.arm.in_(chosen))
        ends = ((order.desc() if asked.descending else order.asc()).nulls_last(), a.c.ordinal, p.c.position, p.c.trial)
        return array("q", connection.scalars(ranked.order_by(*ends)))


def _counted(asked: RowQuery) -> bool:
    """Are rows sorted by what only Python can read?"""
    return asked.sort == "cost" or asked.sort.startswith("score:")


def _arms(run: ListedRun, asked: RowQuery) -> list[int]:
    chosen = [arm for arm, name in run.systems if asked.system in ("", name)]
    if not chosen and asked.system:
        raise UnknownName("system", asked.system, (name for _, name in run.systems))
    return chosen


def _order(sort: str, run: int) -> ColumnElement[Any] | None:
    o, e = schema.outputs.c, schema.examples.c
    columns: dict[str, ColumnElement[Any]] = {
        "example": func.lower(readable(e.id)),
        "dataset": e.dataset,
        "sent": o.input_tokens,
        "forwarded": o.output_tokens,
        "latency": o.latency,
        "failure": func.coalesce(o.error, judge_error(run)),
    }
    if not sort:
        return None
    if sort not in columns:
        raise BadInput(f"rows cannot be sorted by {sort[:60]!r}; expected {', '.join(SORTS)} or score:NAME")
    return columns[sort]


def _by_number(
    connection: Connection, query: Select[Any], arms: Sequence[int], tables: Any, run: int, asked: RowQuery
) -> array[int]:
    """Places sorted by a number that only Python can read: 16 bytes a row."""
    import numpy as np

    found, values = _numbers(connection, query, arms, tables, run, asked)
    order = np.argsort(-values if asked.descending else values, kind="stable")  # what is not known comes last
    return array("q", np.asarray(found, dtype=np.int64)[order].tobytes())


def _numbers(
    connection: Connection, query: Select[Any], arms: Sequence[int], tables: Any, run: int, asked: RowQuery
) -> tuple[array[int], Any]:
    """Places in plan order with the number that rows are sorted by, NaN where it is not known."""
    import numpy as np

    p, o, s, links = schema.plan, schema.outputs, schema.scores, schema.run_evaluators
    name = asked.sort.removeprefix("score:")
    data: ColumnElement[Any] = o.c.usage
    if asked.sort != name:  # where several evaluators give it, the last one's counts, as in `rows`
        tables = tables.outerjoin(s, s.c.output == p.c.output).outerjoin(
            links, (links.c.evaluator == s.c.evaluator) & (links.c.run == run)
        )
        data = s.c["values"]
    ranked = query.add_columns(data, *([links.c.ordinal] if asked.sort != name else [])).select_from(tables)
    found, numbers, last = array("q"), array("d"), -1
    for arm in arms:
        rows = connection.execution_options(stream_results=True).execute(
            ranked.where(p.c.arm == arm).order_by(p.c.position, p.c.trial)
        )
        for place, value, *ordinal in rows:
            number = None if ordinal == [None] else _number_in(value, (utf8_safe(name),) if ordinal else COST)
            if not found or found[-1] != place:
                found.append(place)
                numbers.append(nan)
                last = -1
            if number is not None and (not ordinal or ordinal[0] > last):
                numbers[-1], last = number, ordinal[0] if ordinal else last
    return found, np.frombuffer(numbers) if numbers else np.empty(0)


def rows_at(store: Store, run: ListedRun, wanted: Sequence[Place]) -> list[tuple[Place, EvalRow]]:
    """The rows at these places, in this order; places without a row are left out."""
    names, p = dict(run.systems), schema.plan.c
    found: dict[Place, EvalRow] = {}
    with store.reading() as connection:
        for arm in dict.fromkeys(place.arm for place in wanted if place.arm in names):
            pairs = [(place.position, place.trial) for place in wanted if place.arm == arm]
            rows = connection.execute(_plan_query(run.number, arm).where(tuple_(p.position, p.trial).in_(pairs))).all()
            made = _eval_rows(connection, run.number, names[arm], rows)
            found |= {Place(arm, row.position, row.trial): each for row, each in zip(rows, made, strict=True)}
    return [(place, found[place]) for place in wanted if place in found]


def places_of(
    store: Store, run: ListedRun, wanted: Sequence[tuple[str, str, Any, int]]
) -> dict[tuple[str, str, Any, int], Place]:
    """The places of rows named by (system, dataset, example id, trial) stand. Reads the run's examples once."""
    e = schema.examples.c
    arms = {name: arm for arm, name in run.systems}
    ids = {dumps(example) for _, _, example, _ in wanted}
    positions: dict[tuple[str, bytes], int] = {}
    with store.reading() as connection:
        for position, dataset, example in connection.execute(
            select(e.position, e.dataset, e.id).where(e.run == run.number)
        ):
            if example in ids:
                positions.setdefault((dataset, example), position)
    found = {}
    for each in wanted:
        system, dataset, example, trial = each
        position = positions.get((dataset, dumps(example)))
        if position is not None and system in arms:
            found[each] = Place(arms[system], position, trial)
    return found


# --- search
# ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A row in which all words occur; the first was found in `name`, `before` + `found` + `after` is a piece of that
    text.
    """

    place: Place
    name: str
    before: str
    found: str
    after: str


@dataclass(slots=True)
class TextSearch:
    """Hits among the first `looked` of `total` rows, in their order. `stopped`: why not in all of them,
    `None` = it was.
    """

    total: int
    looked: int = 0
    hits: list[SearchHit] = field(default_factory=list)
    stopped: str | None = None


def search(
    store: Store,
    run: ListedRun,
    among: array[int],
    words: str,
    *,
    seconds: float = 2.0,
    monotonic: Callable[[], float] = time.monotonic,
) -> TextSearch:
    """The rows (packed places) in which every word of `words` occurs, whatever its case. At least one chunk of rows is
    looked at.

    Contexts are not searched: they are what all questions share.
    """
    wanted = [word.casefold() for word in words.split()]
    done = TextSearch(len(among))
    until = monotonic() + seconds
    while done.looked < done.total:
        some = [Place.unpack(packed) for packed in among[done.looked : done.looked + _CHUNK]]
        done.looked += len(some)
        done.hits += [
            hit for place, texts in _texts(store, run, some) if (hit := _hit(place, texts, wanted)) is not None
        ]
        if done.looked < done.total and len(done.hits) >= MOST_HITS:
            done.stopped = f"after {len(done.hits):,} hits"
            return done
        if done.looked < done.total and monotonic() > until:
            done.stopped = f"after {seconds:g} s"
            return done
    return done


def _hit(place: Place, texts: Sequence[tuple[str, str]], wanted: Sequence[str]) -> SearchHit | None:
    folded = [(name, text, text.casefold()) for name, text in texts]
    if not wanted or not all(any(word in low for _, _, low in folded) for word in wanted):
        return None
    name, text, low = next(each for each in folded if wanted[0] in each[2])
    if len(low) != len(text):  # folding made it longer: show it folded, so that the place is right
        text = low
    at = low.index(wanted[0])
    end = at + len(wanted[0])
    return SearchHit(place, name, text[max(0, at - _AROUND) : at], text[at:end], text[end : end + _AROUND])


def texts_at(store: Store, run: ListedRun, some: Sequence[Place]) -> dict[Place, dict[str, str]]:
    """Texts of the rows at these places: `question`, `answer` (the expected one), `response`; what there is of them."""
    return {place: dict(texts) for place, texts in _texts(store, run, some)}


def _texts(store: Store, run: ListedRun, some: Sequence[Place]) -> Iterator[tuple[Place, list[tuple[str, str]]]]:
    """Each row's texts by name."""
    p, e, o = schema.plan, schema.examples, schema.outputs
    query = select(
        p.c.position, p.c.trial, e.c.id, e.c.body, o.c.id.label("output_id"), o.c.output, o.c.error
    ).select_from(p.join(e, (e.c.run == p.c.run) & (e.c.position == p.c.position)).join(o, o.c.id == p.c.output))
    found: dict[Place, Any] = {}
    with store.reading() as connection:
        for arm in dict.fromkeys(place.arm for place in some):
            pairs = [(place.position, place.trial) for place in some if place.arm == arm]
            chosen = query.where(p.c.run == run.number, p.c.arm == arm, tuple_(p.c.position, p.c.trial).in_(pairs))
            found |= {Place(arm, row.position, row.trial): row for row in connection.execute(chosen)}
        examples = _examples(connection, {row.body for row in found.values() if row.body is not None})
        failed = _failures(connection, run.number, [row.output_id for row in found.values()])
    for place in some:
        if (row := found.get(place)) is not None:
            yield (
                place,
                [
                    *_texts_of(row, examples.get(row.body, {})),
                    *((("failure", error)) for error in failed.get(row.output_id, ())),
                ],
            )


def _texts_of(row: Row[Any], example: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "example", str(loads(row.id))
    for name in ("question", "answer"):
        if example.get(name) not in (None, ""):
            yield name, _text(example[name])
    output = unpacked(row.output, {})
    yield "response", _text(output.get("response", output)) if output else ""
    if row.error is not None:
        yield "failure", row.error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")


def _examples(connection: Connection, keys: set[bytes]) -> dict[bytes, dict[str, Any]]:
    """Question and answer of examples; the long texts beside them are not even read."""
    b = schema.bodies.c
    found = {
        row.key: Skeleton(unpack_body(row.key, row.data), ("question", "answer"))
        for row in connection.execute(select(b.key, b.data).where(b.key.in_(keys)))
    }
    parts = {part for each in found.values() for part in each.parts}
    texts = {
        row.key: loads(unpack_body(row.key, row.data))
        for row in (connection.execute(select(b.key, b.data).where(b.key.in_(parts))) if parts else ())
    }
    return {key: each.joined(texts) for key, each in found.items()}


def _failures(connection: Connection, run: int, outputs: Sequence[int]) -> dict[int, list[str]]:
    s, links = schema.scores.c, schema.run_evaluators.c
    query = select(s.output, s.error).where(
        s.output.in_(outputs), s.error.is_not(None), links.run == run, links.evaluator == s.evaluator
    )
    found: dict[int, list[str]] = {}
    for output, error in connection.execute(query):
        found.setdefault(output, []).append(error)
    return found
