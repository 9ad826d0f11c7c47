"""The viewer's pages: their content, read from the store in threads and cached, and its HTML.

Everything is escaped by the templates, and outside text goes through `visible` as in every report.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import ChoiceLoader, Environment, FunctionLoader, TemplateNotFound
from markupsafe import Markup

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.machine import quoted
from context_bench.core.records import EvalRow, not_compared
from context_bench.core.rows import in_order
from context_bench.engine import list_watches, run_of
from context_bench.engine.store import Store, browsing, row_lists
from context_bench.engine.store.browsing import ListedRun, Live, Place
from context_bench.engine.store.remarks import MOST_NOTE, MOST_TAG, MOST_TAGS, MOST_TITLE, Remark, notes_of
from context_bench.engine.store.row_lists import Facets, RowQuery, SearchHit, TextSearch
from context_bench.engine.store.run_records import tags_in
from context_bench.reports.detail import detail_html, placed, turn_html
from context_bench.reports.html_page import environment, style_text, template_text
from context_bench.reports.row_parts import page_limit
from context_bench.viewer.example_lines import (
    FORMS,
    MOST_SYSTEMS,
    ExampleAnswer,
    ExampleLine,
    Neighbours,
    Noted,
    Standard,
    beside_line,
    body,
    cells,
    in_unit,
    lines_at,
    shown_count,
    shown_duration,
    when,
    written_lines,
    written_rows,
)
from context_bench.viewer.working import LIST_SORTS, ListedEntry, RunAbout, RunCache

PAGE = 50  # rows on one page


@dataclass(frozen=True, slots=True)
class Query:
    """Rows as an address names them: filters, words to be found, order, and the page (from 1). `start`: rows that the
    search leaves out. `kind`: of runs, or of questions. `tag` and `noted`: with this tag, with a note. `layout`:
    `matrix`, a line an example with all systems' answers, or `rows`. `sort` of `of:NAME`: by that system's score.
    """

    system: str = ""
    dataset: str = ""
    failed: bool = False
    words: str = ""
    sort: str = ""
    descending: bool = False
    page: int = 1
    start: int = 0
    change: str = ""
    kind: str = ""
    layout: str = ""
    tag: str = ""
    noted: bool = False

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Query:
        """From the parameters of a request. Raises `BadInput` for a number that is none."""
        return cls(
            system=query.get("system", ""),
            dataset=query.get("dataset", ""),
            failed=query.get("failed", "") not in ("", "0"),
            words=query.get("q", "").strip()[:400],
            sort=query.get("sort", ""),
            descending=query.get("order") == "down",
            page=max(1, whole_number(query, "page", 1)),
            start=whole_number(query, "from", 0),
            change=query.get("change", ""),
            kind=query.get("kind", ""),
            layout=query.get("layout", ""),
            tag=query.get("tag", ""),
            noted=query.get("noted", "") not in ("", "0"),
        )

    @property
    def asked(self) -> RowQuery:
        """All of it that the store answers by itself."""
        sort = "" if self.ranked else self.sort
        down = self.descending and bool(sort)
        return RowQuery(self.system, self.dataset, self.failed, sort, down, kind=self.kind)

    @property
    def ranked(self) -> str:
        """The system by whose score examples are sorted; `""` = by none."""
        return self.sort.removeprefix("of:") if self.sort.startswith("of:") else ""

    def takes(self, remark: Remark) -> bool:
        """Is a row with these tags and this note asked for?"""
        return (not self.noted or bool(remark.text)) and (not self.tag or self.tag in remark.tags)

    @property
    def narrowed(self) -> bool:
        """Is this more than the first page of everything?"""
        return replace(self, layout="") != Query()

    def of_lines(self, run: ListedRun) -> bool:
        """Is this list of the run one of examples, not of rows?"""
        return self.layout == "matrix" or (self.layout != "rows" and len(run.systems) > 1)

    def parameters(self, **changed: object) -> str:
        """`?…` of the same question with these fields changed; without what is as usual. Another begins at page 1."""
        if changed and "page" not in changed:
            changed["page"] = 1
        if changed.keys() - {"page", "start"} and "start" not in changed:
            changed["start"] = 0
        one = replace(self, **changed)  # type: ignore[arg-type]
        named = {
            "system": one.system,
            "dataset": one.dataset,
            "failed": "1" if one.failed else "",
            "change": one.change,
            "kind": one.kind,
            "layout": one.layout,
            "tag": one.tag,
            "noted": "1" if one.noted else "",
            "q": one.words,
            "sort": one.sort,
            "order": "down" if one.descending else "",
            "page": str(one.page) if one.page > 1 else "",
            "from": str(one.start) if one.start else "",
        }
        told = urlencode({name: value for name, value in named.items() if value}, errors="surrogatepass")
        return f"?{told}" if told else ""


def whole_number(query: Mapping[str, str], name: str, usual: int) -> int:
    """A parameter that is a number; `BadInput` for one that is none."""
    text = query.get(name, "")
    if not text:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise BadInput(f"{name}={text[:40]!r} is not a whole number")
    return int(text)


def run_url(run: str) -> str:
    """The page of a run, by its id."""
    return f"/runs/{run}"


def watch_url(name: str, at: str = "", **more: object) -> str:
    """The page of a watch, or of a part of it."""
    return f"/watch{at}?" + urlencode({"name": name, **more}, errors="surrogatepass")


def row_url(run: str, place: Place, query: Query | None = None) -> str:
    """The page of a row, as one of those that `query` asks for."""
    return f"/runs/{run}/rows/{place}{query.parameters() if query else ''}"


def pair_url(one: tuple[str, Place], other: tuple[str, Place]) -> str:
    """Two rows side by side."""
    return "/pair?" + urlencode([("row", f"{run}/{place}") for run, place in (one, other)])


def read_pair(text: str) -> tuple[str, Place]:
    """`RUN/PLACE` of a pair's address."""
    run, slash, place = text.partition("/")
    if not slash or not run:
        raise BadInput(f"{text[:80]!r} names no row; expected RUN/ARM-POSITION-TRIAL")
    return run, Place.parse(place)


RUNS = 50  # on a page of the list
SEARCH_SECONDS = 2.0


@dataclass(slots=True)
class RunPage:
    """Some of the runs and watches that are asked for. `kinds` and `tags`: those that there are."""

    runs: list[ListedEntry]
    total: int
    query: Query
    kinds: list[str]
    tags: list[str] = field(default_factory=list)

    @property
    def page(self) -> int:
        """The page shown: the last one where a later one was asked for."""
        return min(self.query.page, self.pages)

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // RUNS))


@dataclass(slots=True)
class RowPage:
    """Some of the rows that were asked for: `rows` with their places, `total` of them; or, where `columns` (systems)
    are named, some of the examples, each a line with the answers of these. `noted`: what was written on any row.
    """

    run: ListedRun
    query: Query
    facets: Facets
    rows: list[tuple[Place, EvalRow]]
    total: int
    search: TextSearch | None = None
    hits: dict[Place, SearchHit] = field(default_factory=dict)
    texts: dict[Place, dict[str, str]] = field(default_factory=dict)
    standard: Standard = field(default_factory=Standard)
    noted: Noted = field(default_factory=dict)
    columns: list[tuple[int, str]] = field(default_factory=list)
    lines: list[ExampleLine] = field(default_factory=list)

    @property
    def tags(self) -> list[str]:
        """Tags that rows of the run have."""
        return sorted({tag for remark in self.noted.values() for tag in remark.tags})

    @property
    def page(self) -> int:
        """The page shown: the last one where a later one was asked for."""
        return min(self.query.page, self.pages)

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // PAGE))


@dataclass(slots=True)
class RowView:
    """One row with what is behind it, its neighbours among the rows (or lines of examples) asked for, and all systems'
    answers to the same example, its own first. `score`: the one that the run is judged by.
    """

    run: ListedRun
    query: Query
    place: Place
    row: EvalRow
    detail: Mapping[str, Any] | None
    score: str = ""
    beside: Neighbours = field(default_factory=Neighbours)
    remark: Remark = field(default_factory=Remark)
    answers: list[ExampleAnswer] = field(default_factory=list)


class Library:
    """Reads one store; `named`: as commands must name it. Keeps 16 orders of rows (8 bytes a row), 6 searches."""

    def __init__(self, store: Store, named: str = "") -> None:
        self.store, self.named = store, named
        self._orders, self._searches, self._facets = RunCache(16), RunCache(6), RunCache(64)
        self._abouts: dict[int, tuple[float, RunAbout]] = {}

    @property
    def kept(self) -> int:
        """Number of orders, searches and facets in the cache."""
        return len(self._orders) + len(self._searches) + len(self._facets)

    def runs(self, query: Query) -> RunPage:
        """A page of the list of runs and watches, newest first if nothing else is asked for. Raises `BadInput`."""
        if query.sort and query.sort not in LIST_SORTS:
            raise BadInput(f"runs cannot be sorted by {query.sort[:60]!r}; expected {', '.join(LIST_SORTS)}")
        found = [*self._stored(query.words), *self._watches(query.words)]
        found.sort(key=lambda each: -each.created)
        kinds = sorted({each.about.kind for each in found})
        tags = sorted({tag for each in found for tag in each.tags})
        found = [
            each for each in found if query.kind in ("", each.about.kind) and query.takes(Remark(tuple(each.tags)))
        ]
        if query.sort:
            value = LIST_SORTS[query.sort]
            known = sorted((each for each in found if value(each) is not None), key=value, reverse=query.descending)
            found = [*known, *(each for each in found if value(each) is None)]
        page = RunPage([], len(found), query, kinds, tags)
        page.runs = found[(page.page - 1) * RUNS : page.page * RUNS]
        heads = [each for each in page.runs if each.watch is None]
        for each, run in zip(heads, browsing.whole(self.store, [each.head for each in heads]), strict=True):
            each.run = run
        return page

    def _stored(self, words: str) -> Iterator[ListedEntry]:
        for head in browsing.heads(self.store, words=words):
            at, about = self._abouts.get(head.number, (None, None))
            if about is None or at != head.updated:
                about = RunAbout.read(browsing.manifest_of(self.store, head.number))
                self._abouts[head.number] = head.updated, about
            name, tags = head.title or head.name, tags_in(head.tags)
            yield ListedEntry(about, name, head.created, browsing.summary_of(head), head, tags=tags)

    def _watches(self, words: str) -> Iterator[ListedEntry]:
        for watch in list_watches(self.store):
            text = " ".join((watch.name, watch.title, *watch.tags, watch.status, "watch")).casefold()
            if watch.status != "copying" and all(word.casefold() in text for word in words.split()):
                about = RunAbout("watch", model=watch.model)
                yield ListedEntry(about, watch.shown, watch.created, watch.figures, watch=watch, tags=watch.tags)

    def run(self, name: str) -> ListedRun:
        """The run with this id or name. Raises `UnknownName`."""
        return browsing.listed_run(self.store, name)

    def live(self, name: str) -> tuple[ListedRun, list[Live]]:
        """A run and how far its systems are."""
        run = self.run(name)
        return run, browsing.live(self.store, run)

    def rows(self, run: ListedRun, query: Query) -> RowPage:
        """A page of rows, or of examples. Raises `UnknownName` and `BadInput` for what cannot be asked."""
        facets = self._facets.of(run, "facets", lambda: row_lists.facets(self.store, run))
        order, found = self._chosen(run, query)
        page = RowPage(run, query, facets, [], len(order), found, standard=self._standard(run), noted=self.noted(run))
        if query.of_lines(run):
            self._add_lines(page, order)
            return page
        some = [Place.unpack(packed) for packed in order[(page.page - 1) * PAGE : page.page * PAGE]]
        rows, shown = row_lists.rows_at(self.store, run, some), page.standard.unordered
        page.rows = [(place, in_order(row, shown)) for place, row in rows]
        page.texts = row_lists.texts_at(self.store, run, some)
        page.hits = {hit.place: hit for hit in found.hits if hit.place in set(some)} if found else {}
        return page

    def _add_lines(self, page: RowPage, order: array[int]) -> None:
        examples = self._examples(page.run, page.query, order)
        page.total, page.columns = len(examples), page.standard.columns(page.run, page.query.system)
        some = examples[(page.page - 1) * PAGE : page.page * PAGE]
        page.lines = lines_at(self.store, page.run, some, page.columns[:MOST_SYSTEMS], page.standard)
        for hit in page.search.hits if page.search else ():
            page.hits.setdefault(hit.place._replace(arm=0), hit)

    def _examples(self, run: ListedRun, query: Query, order: array[int]) -> array[int]:
        """The examples of these rows, in the order that is asked for."""
        if not query.ranked:
            return row_lists.examples_of(order)
        by = RowQuery(query.ranked, sort=f"score:{self._standard(run).score}", descending=query.descending)
        ranked = self._orders.of(run, by, lambda: row_lists.places(self.store, run, by))
        return row_lists.examples_of(order, ranked)

    def _chosen(self, run: ListedRun, query: Query) -> tuple[array[int], TextSearch | None]:
        """All rows asked for, in order, and what the search said."""
        asked = query.asked
        if query.change:
            standard = self._standard(run)
            asked = replace(asked, change=query.change, score=standard.score, baselines=standard.held(query.system))
        order = self._orders.of(run, asked, lambda: row_lists.places(self.store, run, asked))
        kept = None
        if query.tag or query.noted:
            kept = frozenset(place.packed for place, remark in self.noted(run).items() if query.takes(remark))
            order = array("q", filter(kept.__contains__, order))
        if not query.words:
            return order, None
        what = (asked, query.words, query.start, kept)
        rest = order[query.start :]
        found = self._searches.of(
            run, what, lambda: row_lists.search(self.store, run, rest, query.words, seconds=SEARCH_SECONDS)
        )
        return array("q", (hit.place.packed for hit in found.hits)), found

    def noted(self, run: ListedRun) -> dict[Place, Remark]:
        """Words of people on rows of the run, as they are now."""
        return notes_of(self.store, run.number)

    def _standard(self, run: ListedRun) -> Standard:
        return self._facets.of(run, "standard", lambda: Standard.read(run_of(self.store, run.id).manifest))

    def written(self, run: ListedRun, query: Query, form: str) -> Iterator[str]:
        """All rows asked for, or all examples with the layout `matrix`, in a form of `FORMS`, some at a time."""
        order, _ = self._chosen(run, query)
        noted = self.noted(run)
        if query.layout == "matrix":
            standard = self._standard(run)
            order = self._examples(run, query, order)
            return written_lines(self.store, run, order, standard.columns(run, query.system), standard, form, noted)
        scores = self._facets.of(run, "facets", lambda: row_lists.facets(self.store, run)).scores
        return written_rows(self.store, run, order, scores, form, noted)

    def row(self, run: ListedRun, place: Place, query: Query) -> RowView:
        """One row. Raises `UnknownName` if the run has none there."""
        row = self.row_at(run, place)
        standard = self._standard(run)
        view = RowView(run, query, place, row, self._detail(run, row), standard.score)
        view.remark = self.noted(run).get(place, Remark())
        columns = sorted(run.systems, key=lambda each: each[0] != place.arm)
        packed = Place(0, place.position, place.trial).packed
        order, _ = self._chosen(run, query)
        if query.of_lines(run):
            view.beside = beside_line(self.store, run, self._examples(run, query, order), packed, columns)
        else:
            view.beside = Neighbours.among(order, place.packed)
        (line,) = lines_at(self.store, run, [packed], columns, standard)
        view.answers = [each for each in line.answers if each is not None]
        return view

    def row_at(self, run: ListedRun, place: Place) -> EvalRow:
        """The row at this place. Raises `UnknownName`."""
        found = row_lists.rows_at(self.store, run, [place]) if max(place) < 1 << 32 and place.arm < 1 << 15 else []
        if not found:
            raise UnknownName("row", str(place), [])
        return in_order(found[0][1], self._standard(run).unordered)

    def pair(self, one: tuple[str, Place], other: tuple[str, Place]) -> list[RowView]:
        """Two rows, of one run or of two."""
        views = []
        for name, place in (one, other):
            run = self.run(name)
            row = self.row_at(run, place)
            views.append(RowView(run, Query(), place, row, self._detail(run, row), self._standard(run).score))
        return views

    def _detail(self, run: ListedRun, row: EvalRow) -> Mapping[str, Any] | None:
        from context_bench.runner import detail_of

        told = detail_of(self.store, run.id, row.system, row.example_id, row.trial, dataset=row.dataset)
        return placed(told, self.named)

    def two_runs(self, names: list[str]) -> tuple[ListedRun, ListedRun]:
        """The two runs to be compared, the earlier one first. Raises `BadInput` unless there are two."""
        if len(names) != 2 or names[0] == names[1]:
            raise BadInput("Comparing takes two runs: tick two in the list of runs.")
        one, other = (self.run(name) for name in names)
        return (one, other) if (one.created, one.number) < (other.created, other.number) else (other, one)


MOST_SCORES = 10  # columns of the table of rows


def render(template: str, **values: Any) -> str:
    """A page or a part of one."""
    return _environment().get_template(template).render(**values)


@lru_cache
def _environment() -> Environment:
    shared = environment()
    assert shared.loader is not None
    made = shared.overlay(loader=ChoiceLoader([FunctionLoader(_own), shared.loader]))
    made.globals = {
        **shared.globals,
        "run_url": run_url,
        "row_url": row_url,
        "pair_url": pair_url,
        "detail_html": lambda row, told, first: detail_html(row, told, limit=page_limit(told), leading=first),
        "turn_html": turn_html,
        "cells": cells,
        "page_size": PAGE,
        "most_scores": MOST_SCORES,
        "changes": row_lists.CHANGES,
        "forms": FORMS,
        "most_systems": MOST_SYSTEMS,
        "list_sorts": LIST_SORTS,
        "watch_url": watch_url,
        "most": {"title": MOST_TITLE, "note": MOST_NOTE, "tags": (MOST_TAG + 2) * MOST_TAGS},
    }
    made.filters = {
        **shared.filters,
        "quoted": quoted,
        "not_compared": not_compared,
        "when": when,
        "duration": shown_duration,
        "short": shown_count,
        "body": body,
        "unit": in_unit,
        "points": lambda value: f"{100 * value:+z.1f}".replace("-", "−").replace("+0.0", "0.0"),
        "markup": Markup,
    }
    return made


def _own(name: str) -> str | None:
    place = files("context_bench.viewer") / "templates" / name
    return place.read_text(encoding="utf-8") if place.is_file() else None


@lru_cache
def style() -> str:
    """The style of every page: the report's, that of opened rows, and the viewer's own."""
    own = _own("viewer.css")
    assert own is not None
    return "\n".join((style_text(), template_text("detail.css"), own))


@lru_cache
def script() -> str:
    """The viewer's own script."""
    own = _own("viewer.js")
    if own is None:
        raise TemplateNotFound("viewer.js")
    return own + template_text("rows.js") + template_text("charts.js")
