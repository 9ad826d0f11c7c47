"""What an address asks of a run's rows, and the addresses of the same with one thing changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from context_bench.core.errors import BadInput
from context_bench.engine.store.browsing import Asked, Place

PAGE = 50  # rows on one page


@dataclass(frozen=True, slots=True)
class Query:
    """Rows as an address names them: filters, words to be found, order, and the page (from 1). `start`: rows that the search leaves out."""

    system: str = ""
    dataset: str = ""
    failed: bool = False
    words: str = ""
    sort: str = ""
    descending: bool = False
    page: int = 1
    start: int = 0

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
            page=max(1, _whole(query, "page", 1)),
            start=_whole(query, "from", 0),
        )

    @property
    def asked(self) -> Asked:
        """All of it that the store answers by itself."""
        return Asked(self.system, self.dataset, self.failed, self.sort, self.descending)

    @property
    def narrowed(self) -> bool:
        """Is this more than the first page of everything?"""
        return self != Query()

    def parameters(self, **changed: object) -> str:
        """`?…` of the same question with these fields changed; without what is as usual. Another question begins at its first page."""
        if changed and "page" not in changed:
            changed["page"] = 1
        if changed.keys() - {"page", "start"} and "start" not in changed:
            changed["start"] = 0
        one = replace(self, **changed)  # type: ignore[arg-type]
        named = {
            "system": one.system,
            "dataset": one.dataset,
            "failed": "1" if one.failed else "",
            "q": one.words,
            "sort": one.sort,
            "order": "down" if one.descending else "",
            "page": str(one.page) if one.page > 1 else "",
            "from": str(one.start) if one.start else "",
        }
        told = urlencode({name: value for name, value in named.items() if value}, errors="surrogatepass")
        return f"?{told}" if told else ""


def _whole(query: Mapping[str, str], name: str, usual: int) -> int:
    text = query.get(name, "")
    if not text:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise BadInput(f"{name}={text[:40]!r} is not a whole number")
    return int(text)


def run_url(run: str) -> str:
    """The page of a run, by its id."""
    return f"/runs/{run}"


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
