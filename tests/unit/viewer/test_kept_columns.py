"""Rows are listed by the columns that are kept with a long run as they are by reading them."""

from itertools import product

import pytest

from context_bench.core.errors import BadInput, UnknownName
from context_bench.engine import open_store, run_of, set_manifest
from context_bench.engine.store import browsing, damaged, row_lists
from context_bench.engine.store.run_writer import keep_page, kept_page

from .conftest import Marks, Speller, examples, run

SORTS = ("", *row_lists.SORTS, "score:f1", "score:other", "score:none", "score:marks")
BASELINES = (("short", "full"),)


class Moody(Marks):
    """Fails on some answers, and gives one score that another evaluator gives as well."""

    name = "moody"

    def score(self, original, processed):
        number = int(str(original["id"]).rpartition("-")[2])
        if number % 5 == 4:
            raise RuntimeError(f"no mark for {number}")
        return {"other": -float(number), "marks": number % 3} if number % 2 else {"marks": 0.5}


@pytest.fixture
async def store(tmp_path, monkeypatch):
    monkeypatch.setattr(browsing, "COLUMNS_FROM", 1)
    with open_store(tmp_path / "s.db") as opened:
        systems = [Speller("full"), Speller("short", wrong=4, fails=13)]
        asked = [{**each, "qa_type": "when"} if at % 3 else each for at, each in enumerate(examples(60))]
        await run(opened, "first", systems, asked, evaluators=[Marks(), Moody()])
        yield opened


def asked():
    for sort, descending in product(SORTS, (False, True)):
        for system, dataset, failed in product(("", "short"), ("", "odd", "gone"), (False, True)):
            yield row_lists.RowQuery(system, dataset, failed, sort, descending)
    for change, dataset, sort in product(row_lists.CHANGES, ("", "odd"), ("", "latency")):
        yield row_lists.RowQuery(dataset=dataset, sort=sort, change=change, score="f1", baselines=BASELINES)


@pytest.mark.parametrize("most", [1, 1_000])
async def test_rows_of_a_kind_are_listed_by_columns_unless_there_are_many_kinds(store, monkeypatch, most):
    monkeypatch.setattr(browsing, "_MOST_KINDS", most)
    record, listed = run_of(store, "first"), browsing.listed_run(store, "first")
    wanted = [
        row_lists.RowQuery(kind=kind, sort=sort, descending=True, failed=failed)
        for kind, sort, failed in product(("when", "unknown", "nobody"), ("", "latency"), (False, True))
    ]
    wanted.append(row_lists.RowQuery(kind="when", change="lost", score="f1", baselines=BASELINES))
    expected = [list(row_lists.places(store, listed, each)) for each in wanted]
    assert len({tuple(each) for each in expected}) > 6
    browsing.keep_columns_of(store, record.id, kept_page(store, record.id)[0])
    if most > 1:
        monkeypatch.setattr(row_lists, "_places", forbidden)
    assert [list(row_lists.places(store, listed, each)) for each in wanted] == expected


def forbidden(*_):
    raise AssertionError("rows were read")


async def test_every_order_and_filter_is_that_of_the_rows(store, monkeypatch):
    record, listed = run_of(store, "first"), browsing.listed_run(store, "first")
    assert browsing.columns_of(store, listed) is None
    expected = [list(row_lists.places(store, listed, each)) for each in asked()]
    assert len({tuple(each) for each in expected}) > 60
    state, _ = kept_page(store, record.id)
    browsing.keep_columns_of(store, record.id, state)
    monkeypatch.setattr(row_lists, "_places", forbidden)
    monkeypatch.setattr(row_lists, "_numbers", forbidden)
    assert [list(row_lists.places(store, listed, each)) for each in asked()] == expected
    for query in (row_lists.RowQuery(sort="weight"), row_lists.RowQuery(system="nobody")):
        with pytest.raises((BadInput, UnknownName)):
            row_lists.places(store, listed, query)


async def test_columns_stand_beside_the_page_and_go_with_their_state(store):
    record, listed = run_of(store, "first"), browsing.listed_run(store, "first")
    state, _ = kept_page(store, record.id)
    keep_page(store, record.id, state, "the page")
    browsing.keep_columns_of(store, record.id, state)
    assert kept_page(store, record.id) == (state, "the page")
    keep_page(store, record.id, state, "another page")
    assert browsing.columns_of(store, listed) is not None
    with store.reading() as connection:
        assert list(damaged(connection, until=float("inf"))) == []
    set_manifest(store, record.id, {**record.manifest, "notes": ["changed"]})
    assert browsing.columns_of(store, listed) is None
    changed, page = kept_page(store, record.id)
    assert page is None
    before = bodies(store)
    browsing.keep_columns_of(store, record.id, changed)
    assert browsing.columns_of(store, listed) is not None
    assert kept_page(store, record.id)[1] is None
    assert bodies(store) == before - 1  # the older page went, the columns took the place of the older ones


async def test_of_more_scores_than_are_kept_the_rows_are_read(store, monkeypatch):
    monkeypatch.setattr(browsing, "_MOST", 5)
    record, listed = run_of(store, "first"), browsing.listed_run(store, "first")
    wanted = [row_lists.RowQuery(sort=f"score:{name}", descending=True) for name in ("f1", "other", "marks")]
    expected = [list(row_lists.places(store, listed, each)) for each in wanted]
    browsing.keep_columns_of(store, record.id, kept_page(store, record.id)[0])
    assert [list(row_lists.places(store, listed, each)) for each in wanted] == expected


def bodies(store):
    with store.reading() as connection:
        return connection.exec_driver_sql("SELECT count(*) FROM bodies").scalar()
