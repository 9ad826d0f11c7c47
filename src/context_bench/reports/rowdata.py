"""The rows of a page as data for its script: cells, and what each row opens to, packed so that the file stays small.

What a row opens to is HTML that the one template made when the page was built. It is packed in chunks, which the script
unpacks when a row is opened; nothing of it can run, for the policy of the page allows our own script alone.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from context_bench.core.measures import unit_of_score
from context_bench.core.numbers import number
from context_bench.core.records import EvalRow
from context_bench.core.rows import COST, in_order, unranked
from context_bench.reports.arm_aggregates import changed, first, shape_of
from context_bench.reports.cards import store_option
from context_bench.reports.detail import detail_html, placed
from context_bench.reports.exchanges import differences
from context_bench.reports.page import Page
from context_bench.reports.row_parts import without_replaced
from context_bench.reports.visible_text import command_on, error_text, excerpt, script_json, visible

MOST_ROWS = 50_000  # in the file; more are left to JSON and CSV
PLAIN_ROWS = 1000  # so many stand in the file as plain JSON, more are packed
PACKED_BYTES = 900_000  # for what rows open to, before base64 makes four of three
LEAST_ROOM = 900  # packed bytes for one row, so that its first sentences can be read
LIMITS = (20_000, 6000, 2000, 700, 250)  # characters of one text, tried in this order
PER_CHUNK = 50  # rows
SHOWN_ROWS = 20  # at once, as the script draws them
PRINTED_SCORES = 6  # columns of scores that a sheet of paper has room for
_TEXT_COLUMNS = ("system", "example", "dataset", "shape", "trial")


@dataclass(slots=True)
class RowData:
    """`block`: JSON for a data block; `chunks`: what rows open to, packed; `note`: what is not in the file and where to
    see it; `printed`: the same of what is not printed.
    """

    block: str
    chunks: list[str]
    note: str
    printed: str = ""


def row_data(page: Page) -> RowData:
    """Columns, rows as lists in their order, which of them were changed on the way, and where in the chunks their
    details are.
    """
    facts = _Facts.of(page)
    details, scores = _Details(page, facts), _scores(page)
    places = {name: 6 if "unit" in _digits(name) else 4 for name in scores}
    data: dict[str, Any] = {
        "columns": _columns(scores, facts.used),
        "changed": "".join(map(str, facts.changed)),
        "details": details.places,
        "size": PER_CHUNK,
    }
    rows = [_cells(in_order(row, facts.unordered), places, facts.used) for row in islice(page.rows, MOST_ROWS)]
    if len(rows) > PLAIN_ROWS:
        data["packed"] = packed(_json(rows))
    else:
        data["rows"] = rows
    return RowData(script_json(_json(data)), details.chunks, " ".join(_notes(page, details)), _printed(page))


def packed(text: str) -> str:
    """`text` as the script unpacks it: zlib's format in base64."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# Cells
# ------------------------------------------------------------------------


@dataclass(slots=True)
class _Facts:
    """Facts from one pass over the rows: the columns worth showing, of each row whether it failed and whether it was
    changed; and the systems whose hits have no order.
    """

    used: list[str]
    failed: bytearray
    changed: bytearray
    unordered: frozenset[str]

    @classmethod
    def of(cls, page: Page) -> _Facts:
        datasets, shapes, trials = set(), set(), set()
        failed, differs = bytearray(), bytearray()
        for row in islice(page.rows, MOST_ROWS):
            datasets.add(row.dataset)
            shapes.add(shape_of(row))
            trials.add(row.trial)
            failed.append(bool(row.errors))
            differs.append(changed(row) is True)
        shown = {
            "system": True,
            "example": True,
            "dataset": len(datasets) > 1,
            "shape": len(shapes) > 1,
            "trial": len(trials) > 1,
        }
        used = [name for name in _TEXT_COLUMNS if shown[name]]
        return cls(used, failed, differs, unranked(page.manifest, page.systems))


def _columns(scores: list[str], used: list[str]) -> list[dict[str, Any]]:
    return [
        *({"title": name, "kind": "text"} for name in used),
        *(
            {
                "title": visible(name, 40),
                "kind": "number",
                **_digits(name),
                **({"aside": True} if at >= PRINTED_SCORES else {}),
                **({"spare": True} if at else {}),
            }
            for at, name in enumerate(scores)
        ),
        *({"title": name, "kind": "number"} for name in ("sent", "forwarded")),
        {"title": "latency", "kind": "number", "unit": "seconds"},
        {"title": "cost", "kind": "number", "unit": "usd"},
        {"title": "failure", "kind": "text"},
    ]


def _scores(page: Page) -> list[str]:
    """Names of all scores as the first rows have them, the one that the run is judged by first."""
    seen = dict.fromkeys(name for row in islice(page.rows, 64) for name in row.scores)
    names = [name for name in (*seen, *page.score_names) if name in page.score_names]
    return sorted(dict.fromkeys(names), key=lambda name: name != page.score_field)


def _digits(score: str) -> dict[str, Any]:
    """The way a column of scores is printed: times and amounts in their units, counts without decimals."""
    unit = unit_of_score(score)
    return {"digits": 3} if unit == "score" else {"unit": unit} if unit in ("seconds", "usd") else {}


def _cells(row: EvalRow, scores: Mapping[str, int], used: list[str]) -> list[Any]:
    """`scores`: names and the decimals kept of each."""
    texts = {
        "system": row.system,
        "example": row.example_id,
        "dataset": row.dataset,
        "shape": shape_of(row),
        "trial": row.trial,
    }
    failure = error_text(row.errors)
    return [
        *(None if texts[name] is None else visible(texts[name]) for name in used),
        *(_rounded(row.scores.get(name), places) for name, places in scores.items()),
        number(row.input_tokens) or None,  # 0: nothing was sent as it is
        number(row.output_tokens),
        _rounded(row.latency, 6),
        _rounded(first(row.usage, *COST), 8),
        excerpt(failure, 160) if failure else None,
    ]


def _rounded(value: Any, digits: int) -> float | None:
    known = number(value)
    return None if known is None else round(known, digits)


# Details
# ------------------------------------------------------------------------


@dataclass(slots=True)
class _ByteBudget:
    """Bytes shared out among rows as they come: what one leaves, the next ones get."""

    left: int
    rows: int

    def share(self) -> int:
        return self.left // max(1, self.rows)

    def take(self, size: int) -> None:
        self.left -= size
        self.rows -= 1


@dataclass(slots=True)
class _Details:
    """Details of rows. Where there is no room for all, failed rows come first, then those that were changed on the
    way.
    """

    places: list[int] = field(default_factory=list)  # by row: chunk * PER_CHUNK + place in it, or -1
    chunks: list[str] = field(default_factory=list)
    left_out: int = 0
    cut: bool = False

    def __init__(self, page: Page, facts: _Facts) -> None:
        chosen = _chosen(facts, everything=page.details is not None)
        self.places, self.chunks, self.cut = [-1] * len(facts.failed), [], False
        self.left_out = len(facts.failed) - len(chosen) if page.details is not None else 0
        room = _ByteBudget(PACKED_BYTES, len(chosen))
        made = [
            (key, place, self._fitting(page, in_order(row, facts.unordered), room))
            for key, place, row in _in_plan_order(page, chosen)
        ]
        made.sort(key=lambda entry: entry[0])  # rows of one example side by side: what they share is packed once
        for start in range(0, len(made), PER_CHUNK):
            part = made[start : start + PER_CHUNK]
            self.chunks.append(packed("".join(f"<div>{html}</div>" for _, _, html in part)))
            for offset, (_, place, _) in enumerate(part):
                self.places[place] = start + offset

    def _fitting(self, page: Page, row: EvalRow, room: _ByteBudget) -> str:
        """The details of a row with texts as long as its share of the room allows."""
        told = placed(page.details(row), page.store) if page.details else None
        worked_out = differences(without_replaced(told or {}))
        share = max(LEAST_ROOM, room.share())
        html, size, used = "", 0, LIMITS[-1]
        for used in [limit for limit in LIMITS if limit <= 2 * share] or LIMITS[-1:]:
            html = str(detail_html(row, told, limit=used, worked_out=worked_out, leading=page.score_field))
            size = len(zlib.compress(html.encode("utf-8", "replace"), 6))
            if size <= share:
                break
        self.cut = self.cut or _longest(told) > used
        room.take(size)
        return html


def _longest(value: Any) -> int:
    """Characters of the longest text in what stands behind a row."""
    if isinstance(value, str):
        return len(value)
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return max(map(_longest, parts), default=0)


def _chosen(facts: _Facts, *, everything: bool) -> set[int]:
    """The rows that open: all of them if there is room; without texts only those that failed."""
    most = PACKED_BYTES // LEAST_ROOM
    failed = [at for at, is_so in enumerate(facts.failed) if is_so]
    if not everything:
        return set(failed[:most])
    changed_ones = [at for at, is_so in enumerate(facts.changed) if is_so and not facts.failed[at]]
    others = [at for at in range(len(facts.failed)) if not facts.failed[at] and not facts.changed[at]]
    return set([*failed, *changed_ones, *others][:most])


def _in_plan_order(page: Page, chosen: set[int]) -> Iterator[tuple[tuple[str, str, int], int, EvalRow]]:
    last = max(chosen, default=-1)
    for place, row in enumerate(islice(page.rows, last + 1)):
        if place in chosen:
            yield (row.dataset, str(row.example_id), row.trial), place, row


def _notes(page: Page, details: _Details) -> Iterator[str]:
    rows = len(details.places)
    if len(page.rows) > MOST_ROWS:
        yield f"The first {MOST_ROWS:,} of {len(page.rows):,} rows; the JSON and CSV reports hold all of them."
    if details.left_out:
        yield (
            f"{rows - details.left_out:,} of {rows:,} rows open here: failed ones first, then those that were changed "
            "on the way. "
            "There is no room for the texts of the others."
        )
    if details.cut:
        yield "Long texts are cut here."
    if details.left_out or details.cut:
        view = f"context-bench view{store_option(page.store)}"
        yield f"“{command(page)}” shows any row whole, and “{view}” all of them."


def _printed(page: Page) -> str:
    """Rows and scores that paper does not show: the script draws a page of rows, the style hides what stands aside."""
    known = len(page.score_names)
    many = f"the page of rows that was open ({SHOWN_ROWS} a page, {min(len(page.rows), MOST_ROWS):,} in all)"
    rows = many if len(page.rows) > SHOWN_ROWS else "the rows"
    scores = f", with {PRINTED_SCORES} of {known} scores" if known > PRINTED_SCORES else ""
    some = scores or len(page.rows) > SHOWN_ROWS
    return f"Printed: {rows}{scores}; the JSON and CSV reports hold all of them." if some else ""


def command(page: Page) -> str:
    """The command that shows one row whole."""
    run = page.manifest.get("run")
    name = run.get("name") if isinstance(run, dict) else run
    names = [str(name or "RUN"), "EXAMPLE"]
    return command_on("context-bench diff", names, store_option(page.store))
