"""What every kind of store must do, done with each: a SQLite file and a PostgreSQL database."""

import itertools

import pytest

from context_bench.engine import Arm, RunSettings, execute, open_store
from context_bench.engine.store import schema

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.program("initdb"))]


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def place(kind, tmp_path, request):
    """→ the address of an empty store; another one at every call."""
    numbers = itertools.count()
    if kind == "sqlite":
        return lambda: str(tmp_path / f"store{next(numbers)}.db")
    server = request.getfixturevalue("postgres")

    def address():
        where = f"{server.url('contracts')}?schema=store{next(numbers)}"
        with open_store(where) as store, store.writing() as connection:  # made by an earlier test, or just now
            names = ", ".join(f'"{table.name}"' for table in schema.metadata.sorted_tables)
            connection.exec_driver_sql(f"TRUNCATE {names} RESTART IDENTITY")
        return where

    return address


@pytest.fixture
def where(place):
    return place()


@pytest.fixture
def store(where):
    with open_store(where) as opened:
        yield opened


@pytest.fixture
def run(store):
    async def runs(systems, examples, evaluators=(), *, name="r", manifest=None, into=None, **options):
        chosen = {key: options.pop(key) for key in list(options) if key in RunSettings.__dataclass_fields__}
        arms = [one if isinstance(one, Arm) else Arm(one) for one in systems]
        settings = RunSettings(**{"late_grace": 0.0, **chosen})
        kept = {"evaluators": list(evaluators), "manifest": manifest or {}, "settings": settings}
        return await execute(into or store, name=name, arms=arms, examples=examples, **kept, **options)

    return runs
