"""Search the rows of a run for words: in ids, questions, answers and failures, within a bounded time."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, select, tuple_

from context_bench.engine.encoding import dumps, joined, loads, parts_in, unpacked
from context_bench.engine.store import Store, schema
from context_bench.engine.store.browsing import ListedRun, Place
from context_bench.engine.store.reading import body

MOST_HITS = 1_000
_CHUNK = 256
_AROUND = 70  # characters of a text shown before and after what was found


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
    yield "response", _text(output.get("response", output))
    if row.error is not None:
        yield "failure", row.error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")


def _examples(connection: Connection, keys: set[bytes]) -> dict[bytes, dict[str, Any]]:
    """Question and answer of examples; the long texts beside them are not even read."""
    b = schema.bodies.c
    found: dict[bytes, dict[str, Any]] = {}
    for row in connection.execute(select(b.key, b.data).where(b.key.in_(keys))):
        said = body(row.key, row.data)
        if isinstance(said, dict):
            found[row.key] = {name: said[name] for name in ("question", "answer") if name in said}
    parts = {key for each in found.values() for key in parts_in(each)}
    if parts:
        texts = {
            row.key: body(row.key, row.data)
            for row in connection.execute(select(b.key, b.data).where(b.key.in_(parts)))
        }
        found = {key: joined(each, texts) for key, each in found.items()}
    return found


def _failures(connection: Connection, run: int, outputs: Sequence[int]) -> dict[int, list[str]]:
    s, links = schema.scores.c, schema.run_evaluators.c
    query = select(s.output, s.error).where(
        s.output.in_(outputs), s.error.is_not(None), links.run == run, links.evaluator == s.evaluator
    )
    found: dict[int, list[str]] = {}
    for output, error in connection.execute(query):
        found.setdefault(output, []).append(error)
    return found
