"""Examples of a run as lines, one an example with the answer of every system and whether it passed; figures as they are
shown; and rows or lines as they are downloaded.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from context_bench.core.measures import unit_of_score
from context_bench.core.numbers import number
from context_bench.core.records import EvalRow
from context_bench.core.rows import COST, unranked
from context_bench.engine.progress import duration, short
from context_bench.engine.store import Store, row_lists
from context_bench.engine.store.browsing import ListedRun, Place
from context_bench.engine.store.remarks import Remark
from context_bench.reports.arm_aggregates import first
from context_bench.reports.page import Figure, Unit
from context_bench.reports.visible_text import csv_cell, error_text, json_line, json_ready

FORMS = {"csv": "text/csv", "json": "application/json", "jsonl": "application/x-ndjson"}
PASSES = 0.7  # the least score that passes where a run does not say
MOST_SYSTEMS = 12  # columns of answers; one system beside its baseline is asked for by name
_CHUNK = 200  # rows or lines that are read at once for a download


@dataclass(frozen=True, slots=True)
class Standard:
    """Rules a run judges by: `score` (`""`: it names none), least value that passes, (system, baseline) pairs, which
    systems are controls, and whose hits have no order.
    """

    score: str = ""
    passes: float = PASSES
    pairs: tuple[tuple[str, str], ...] = ()
    controls: frozenset[str] = frozenset()
    unordered: frozenset[str] = frozenset()

    @classmethod
    def read(cls, manifest: Mapping[str, Any]) -> Standard:
        """From a run's manifest, which may be any JSON."""
        options = manifest.get("options") or {}
        named = (manifest, manifest.get("margin") or {}, options)
        score = next((str(each["score_field"]) for each in named if each.get("score_field")), "")
        cells = manifest.get("cells") or []
        pairs = (
            (str(system), str(cell["baseline"]))
            for cell in cells
            if cell.get("baseline")
            for system in cell.get("systems") or []
            if system != cell["baseline"]
        )
        least = options.get("threshold")
        passes = float(least) if isinstance(least, int | float) else PASSES
        controls = frozenset(str(name) for cell in cells for name in cell.get("controls") or [])
        return cls(score, passes, tuple(dict.fromkeys(pairs)) if score else (), controls, unranked(manifest))

    def held(self, system: str = "") -> tuple[tuple[str, str], ...]:
        """The pairs that say what was lost and gained: those of `system`; without one, of all that are no controls."""
        own = tuple(pair for pair in self.pairs if pair[0] not in self.controls)
        return tuple(pair for pair in self.pairs if pair[0] == system) if system else own or self.pairs

    def columns(self, run: ListedRun, system: str = "") -> list[tuple[int, str]]:
        """(arm, name) of the systems beside each other, baselines first and controls last: all, or `system` with what
        it is held against.
        """
        bases = dict.fromkeys(base for own, base in self.pairs if system in ("", own))
        ordered = sorted((name for _, name in run.systems), key=lambda name: name in self.controls)
        wanted = [*bases, system] if system else [*bases, *ordered]
        arms = {name: arm for arm, name in run.systems}
        return [(arms[name], name) for name in dict.fromkeys(wanted) if name in arms]


@dataclass(frozen=True, slots=True)
class ExampleAnswer:
    """The answer of one system to an example. `passed`: `None` without a score; `change`: against the baseline's, one
    of `row_lists.CHANGES`, `""` without one; `against`: the baseline.
    """

    place: Place
    row: EvalRow
    response: str
    score: float | None = None
    passed: bool | None = None
    change: str = ""
    against: str = ""

    @property
    def failure(self) -> str:
        """Its errors as text; `""` = nothing."""
        return error_text(self.row.errors)


@dataclass(frozen=True, slots=True)
class ExampleLine:
    """One example (and trial): what was asked and expected, and an answer for each column, `None` = not there. `place`
    is without its arm (0); `row` one of the answers.
    """

    place: Place
    row: EvalRow
    question: str
    expected: str
    answers: list[ExampleAnswer | None] = field(default_factory=list)


def failure_of(row: EvalRow) -> str:
    """Errors of a row in one text."""
    return "; ".join(f"{source}: {error}" for source, error in row.errors.items())


def lines_at(
    store: Store, run: ListedRun, packed: Sequence[int], columns: Sequence[tuple[int, str]], standard: Standard
) -> list[ExampleLine]:
    """The lines of these examples (as `row_lists.examples_of` gives them), in this order."""
    asked = [Place.unpack(each) for each in packed]
    places = [Place(arm, each.position, each.trial) for each in asked for arm, _ in columns]
    found = dict(row_lists.rows_at(store, run, places))
    texts = row_lists.texts_at(store, run, list(found))
    bases = dict(standard.pairs)
    arms = {name: arm for arm, name in columns}
    made = []
    for each in asked:
        answers: list[ExampleAnswer | None] = []
        for arm, name in columns:
            own = found.get(at := Place(arm, each.position, each.trial))
            base = found.get(Place(arms.get(bases.get(name, ""), -1), each.position, each.trial))
            answers.append(_answer(at, own, base, texts.get(at, {}).get("response", ""), standard) if own else None)
        if (some := next((answer for answer in answers if answer is not None), None)) is not None:
            said = texts.get(some.place, {})
            made.append(ExampleLine(each, some.row, said.get("question", ""), said.get("answer", ""), answers))
    return made


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The place of one in a list: `number` from 1 among `total` (`None`: not in it), and those before and after it.
    `what`: of what there are so many.
    """

    number: int | None = None
    total: int = 0
    previous: Place | None = None
    following: Place | None = None
    what: str = "row"

    @classmethod
    def among(cls, order: array[int], packed: int, what: str = "row") -> Neighbours:
        """In a list of packed places."""
        if packed not in order:
            return cls(total=len(order), what=what)
        at = order.index(packed)
        previous = Place.unpack(order[at - 1]) if at else None
        following = Place.unpack(order[at + 1]) if at + 1 < len(order) else None
        return cls(at + 1, len(order), previous, following, what)


def beside_line(
    store: Store, run: ListedRun, order: array[int], packed: int, columns: Sequence[tuple[int, str]]
) -> Neighbours:
    """The lines before and after an example in a list of them, each as its row by the first of the columns that has
    one.
    """

    def row(line: Place | None) -> Place | None:
        wanted = [line._replace(arm=arm) for arm, _ in columns] if line is not None else []
        return next((at for at, _ in row_lists.rows_at(store, run, wanted)), None)

    found = Neighbours.among(order, packed, "example")
    return replace(found, previous=row(found.previous), following=row(found.following))


def _answer(at: Place, row: EvalRow, base: EvalRow | None, response: str, standard: Standard) -> ExampleAnswer:
    score = _score(row, standard.score)
    passed = None if score is None else score >= standard.passes
    theirs = _score(base, standard.score) if base is not None else None
    change = against = ""
    if base is not None and theirs is not None:
        against = base.system
        change = "failed" if score is None else "same" if score == theirs else "lost" if score < theirs else "gained"
    return ExampleAnswer(at, row, response, score, passed, change, against)


def _score(row: EvalRow, name: str) -> float | None:
    value = row.scores.get(name)
    return float(value) if isinstance(value, int | float) and value == value else None


# --- figures, as they are shown


def when(seconds: float) -> str:
    """A time as a person reads it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def body(value: Any) -> str:
    """A request or a reply as text, JSON indented."""
    return value if isinstance(value, str) else json.dumps(json_ready(value), ensure_ascii=False, indent=2)


def shown_duration(seconds: float | None) -> str:
    """Seconds as a person reads them."""
    return "—" if seconds is None else duration(seconds)


def shown_count(count: int | None) -> str:
    """A number of things, short."""
    return "—" if count is None else short(count)


def in_unit(value: float | None, unit: Unit, digits: int | None = None) -> str:
    """A figure with its unit."""
    return "—" if value is None else Figure(value, unit, digits=digits).short


def cells(row: EvalRow, scores: list[str]) -> dict[str, Any]:
    """The figures of a row, ready to be shown."""
    return {
        "scores": [in_unit(number(row.scores.get(name)), unit_of_score(name)) for name in scores],
        "sent": in_unit(number(row.input_tokens) or None, "count"),
        "forwarded": in_unit(number(row.output_tokens), "count"),
        "latency": in_unit(None if (seconds := number(row.latency)) is None else round(seconds, 6), "seconds"),
        "cost": in_unit(first(row.usage, *COST), "usd"),
        "failure": error_text(row.errors),
    }


# --- downloads
# ------------------------------------------------------------------------

_COLUMNS = (
    *("system", "dataset", "example_id", "trial", "question", "expected", "answer"),
    *("sent_tokens", "forwarded_tokens", "latency", "cost", "failure"),
)


#: What people wrote on rows, by their places; columns and keys of it are there only where somebody wrote something.
Noted = Mapping[Place, Remark]
_WRITTEN = ("tags", "note")


def _remarked(noted: Noted, place: Place, form: str) -> dict[str, Any]:
    """Tags and note of a row: both in every line of CSV, elsewhere those that there are."""
    remark = noted.get(place, Remark())
    if form == "csv":
        return {"tags": ", ".join(remark.tags), "note": remark.text} if noted else {}
    return {name: value for name, value in (("tags", list(remark.tags)), ("note", remark.text)) if value}


def written_rows(
    store: Store, run: ListedRun, order: array[int], scores: list[str], form: str, noted: Noted
) -> Iterator[str]:
    """All rows at these places, as `form` of `FORMS`, some hundred at a time."""

    def chunks() -> Iterator[list[dict[str, Any]]]:
        for begin in range(0, len(order), _CHUNK):
            some = [Place.unpack(packed) for packed in order[begin : begin + _CHUNK]]
            texts = row_lists.texts_at(store, run, some)
            found = row_lists.rows_at(store, run, some)
            yield [_downloaded(row, texts.get(at, {}), scores) | _remarked(noted, at, form) for at, row in found]

    return _written(chunks(), [*_COLUMNS, *scores, *(_WRITTEN if noted else ())], form)


def _downloaded(row: EvalRow, texts: Mapping[str, str], scores: list[str]) -> dict[str, Any]:
    said = (row.system, row.dataset, row.example_id, row.trial, *map(texts.get, ("question", "answer", "response")))
    cost = first(row.usage, *COST)
    figures = (row.input_tokens, row.output_tokens, row.latency, cost, failure_of(row) or None)
    return dict(zip(_COLUMNS, said + figures, strict=True)) | {name: row.scores.get(name) for name in scores}


def written_lines(
    store: Store,
    run: ListedRun,
    order: array[int],
    columns: Sequence[tuple[int, str]],
    standard: Standard,
    form: str,
    noted: Noted,
) -> Iterator[str]:
    """All lines of these examples, as `form` of `FORMS`, some hundred at a time: JSON has the answers by system, CSV
    four columns for each, six where there are notes.
    """
    names = [name for _, name in columns]
    about = ("dataset", "example_id", "trial", "question", "expected")
    parts = ("answer", "score", "change", "failure")

    def chunks() -> Iterator[list[dict[str, Any]]]:
        for begin in range(0, len(order), _CHUNK):
            made = []
            for line in lines_at(store, run, order[begin : begin + _CHUNK], columns, standard):
                said = (line.row.dataset, line.row.example_id, line.row.trial, line.question, line.expected)
                answers = [
                    {
                        "system": name,
                        **dict(zip(parts, _parts(each), strict=True)),
                        **_remarked(noted, each.place, form),
                    }
                    for name, each in zip(names, line.answers, strict=True)
                    if each is not None
                ]
                made.append({**dict(zip(about, said, strict=True)), "answers": answers})
            yield made if form != "csv" else [_flat(each, names, columned) for each in made]

    columned = (*parts, *(_WRITTEN if noted else ()))
    return _written(chunks(), [*about, *(f"{name}: {part}" for name in names for part in columned)], form)


def _parts(answer: ExampleAnswer) -> tuple[Any, ...]:
    return answer.response, answer.score, answer.change or None, answer.failure or None


def _flat(line: dict[str, Any], names: Sequence[str], parts: Sequence[str]) -> dict[str, Any]:
    answers = {each["system"]: each for each in line.pop("answers")}
    return line | {f"{name}: {part}": answers.get(name, {}).get(part) for name in names for part in parts}


def _written(chunks: Iterator[list[dict[str, Any]]], titles: Sequence[str], form: str) -> Iterator[str]:
    """CSV texts that a spreadsheet would take for a formula are quoted, as in every CSV that leaves here."""
    if form == "csv":
        yield _csv([titles])
    between = "[\n"
    for chunk in chunks:
        if form == "csv":
            yield _csv([list(each.values()) for each in chunk])
        elif form == "jsonl":
            yield "".join(json_line(each) + "\n" for each in chunk)
        elif chunk:
            yield between + ",\n".join(map(json_line, chunk))
            between = ",\n"
    if form == "json":
        yield "[]\n" if between == "[\n" else "\n]\n"


def _csv(lines: Sequence[Sequence[Any]]) -> str:
    made = StringIO()
    csv.writer(made, lineterminator="\n").writerows(
        [[csv_cell(each) if isinstance(each, str) else each for each in line] for line in lines]
    )
    return made.getvalue()
