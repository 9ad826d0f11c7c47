"""What the pages show, read from the store: lists of runs, pages of rows, one row with its neighbours. Called in threads."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.records import EvalRow
from context_bench.engine.store import browsing
from context_bench.engine.store import text_search as searching
from context_bench.engine.store.browsing import Facets, Listed, Live, Place
from context_bench.engine.store.store import Store
from context_bench.engine.store.text_search import SearchHit, TextSearch
from context_bench.viewer.asking import PAGE, Query
from context_bench.viewer.keeping import Kept

RUNS = 50  # on a page of the list
SEARCH_SECONDS = 2.0


@dataclass(slots=True)
class RunPage:
    """Some of the runs that have the words."""

    runs: list[Listed]
    total: int
    page: int
    words: str

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // RUNS))


@dataclass(slots=True)
class RowPage:
    """Some of the rows that were asked for: `rows` with their places, `total` of them, of `among` that were searched if there are words."""

    run: Listed
    query: Query
    facets: Facets
    rows: list[tuple[Place, EvalRow]]
    total: int
    search: TextSearch | None = None
    hits: dict[Place, SearchHit] = field(default_factory=dict)

    @property
    def page(self) -> int:
        """The page shown: the last one where a later one was asked for."""
        return min(self.query.page, self.pages)

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // PAGE))


@dataclass(slots=True)
class RowView:
    """One row with what is behind it, its neighbours among the rows asked for, and the other systems' answers to the same example."""

    run: Listed
    query: Query
    place: Place
    row: EvalRow
    told: Mapping[str, Any] | None
    number: int | None = None  # from 1, among `total`
    total: int = 0
    previous: Place | None = None
    following: Place | None = None
    others: list[tuple[Place, EvalRow]] = field(default_factory=list)


class Library:
    """Reads one store. Orders of rows are kept at 8 bytes a row, at most 16 of them; searches, of up to 1,000 hits, at most 6."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._orders, self._searches, self._facets = Kept(16), Kept(6), Kept(64)

    @property
    def kept(self) -> int:
        """How many orders, searches and facets are kept."""
        return len(self._orders) + len(self._searches) + len(self._facets)

    def runs(self, words: str, page: int) -> RunPage:
        """A page of the list of runs, newest first."""
        found, total = browsing.listed(self.store, words=words, skip=(page - 1) * RUNS, limit=RUNS)
        return RunPage(found, total, page, words)

    def run(self, name: str) -> Listed:
        """The run with this id or name. Raises `UnknownName`."""
        return browsing.listed_run(self.store, name)

    def live(self, name: str) -> tuple[Listed, list[Live]]:
        """A run and how far its systems are."""
        run = self.run(name)
        return run, browsing.live(self.store, run)

    def rows(self, run: Listed, query: Query) -> RowPage:
        """A page of rows. Raises `UnknownName` and `BadInput` for what cannot be asked."""
        facets = self._facets.of(run, "facets", lambda: browsing.facets(self.store, run))
        order, found = self._chosen(run, query)
        page = RowPage(run, query, facets, [], len(order), found)
        some = [Place.unpack(packed) for packed in order[(page.page - 1) * PAGE : page.page * PAGE]]
        page.rows = browsing.rows_at(self.store, run, some)
        page.hits = {hit.place: hit for hit in found.hits if hit.place in set(some)} if found else {}
        return page

    def _chosen(self, run: Listed, query: Query) -> tuple[array[int], TextSearch | None]:
        """All rows asked for, in order, and what the search said."""
        order = self._orders.of(run, query.asked, lambda: browsing.places(self.store, run, query.asked))
        if not query.words:
            return order, None
        what = (query.asked, query.words, query.start)
        rest = order[query.start :]
        found = self._searches.of(run, what, lambda: searching.search(self.store, run, rest, query.words, seconds=SEARCH_SECONDS))
        return array("q", (hit.place.packed for hit in found.hits)), found

    def row(self, run: Listed, place: Place, query: Query) -> RowView:
        """One row. Raises `UnknownName` if the run has none there."""
        row = self.row_at(run, place)
        view = RowView(run, query, place, row, self._told(run, row))
        order, _ = self._chosen(run, query)
        view.total = len(order)
        if place.packed in order:
            at = order.index(place.packed)
            view.number = at + 1
            view.previous = Place.unpack(order[at - 1]) if at else None
            view.following = Place.unpack(order[at + 1]) if at + 1 < len(order) else None
        same = [each for each in browsing.same_example(self.store, run, place) if each != place]
        view.others = browsing.rows_at(self.store, run, same)
        return view

    def row_at(self, run: Listed, place: Place) -> EvalRow:
        """The row at this place. Raises `UnknownName`."""
        found = browsing.rows_at(self.store, run, [place]) if max(place) < 1 << 32 and place.arm < 1 << 15 else []
        if not found:
            raise UnknownName("row", str(place), [])
        return found[0][1]

    def pair(self, one: tuple[str, Place], other: tuple[str, Place]) -> list[RowView]:
        """Two rows, of one run or of two."""
        views = []
        for name, place in (one, other):
            run = self.run(name)
            row = self.row_at(run, place)
            views.append(RowView(run, Query(), place, row, self._told(run, row)))
        return views

    def _told(self, run: Listed, row: EvalRow) -> Mapping[str, Any] | None:
        from context_bench.runner import detail_of

        return detail_of(self.store, run.id, row.system, row.example_id, row.trial, dataset=row.dataset)

    def two_runs(self, names: list[str]) -> tuple[Listed, Listed]:
        """The two runs to be compared, the earlier one first. Raises `BadInput` unless there are two."""
        if len(names) != 2 or names[0] == names[1]:
            raise BadInput("Comparing takes two runs: tick two in the list of runs.")
        one, other = (self.run(name) for name in names)
        return (one, other) if (one.created, one.number) < (other.created, other.number) else (other, one)
