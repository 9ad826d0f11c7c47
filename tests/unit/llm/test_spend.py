"""Money: what is billed and what is in flight never pass the cap; what a proxy says that it has spent."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput, CostCapReached
from context_bench.core.protocols import Spend
from context_bench.llm.spend import SpendLimit, SpendLog, spend_stated


async def test_to_the_cent() -> None:
    limit: Spend = SpendLimit(1.00)
    for _ in range(10):
        limit.settle(await limit.reserve(0.10), 0.10)
    with pytest.raises(CostCapReached, match=r"\$1\.00 .*\$1\.00 spent"):
        await limit.reserve(0.01)
    assert isinstance(limit, SpendLimit)
    assert limit.spent == 1.00
    limit.settle(await limit.reserve(0.0), None)


async def test_waits_for_calls_in_flight_and_goes_on_when_they_were_cheaper() -> None:
    limit = SpendLimit(1.00)
    first = await limit.reserve(0.60)
    second = asyncio.create_task(limit.reserve(0.60))
    third = asyncio.create_task(limit.reserve(0.40))
    assert await third
    assert not second.done()
    assert limit.in_flight == 1.00
    limit.settle(await third, 0.10)
    await asyncio.sleep(0)
    assert not second.done()
    limit.settle(first, 0.30)
    assert await second
    assert (limit.spent, limit.in_flight) == (0.40, 0.60)


async def test_stops_when_nothing_in_flight_can_help() -> None:
    limit = SpendLimit(1.00)
    first = await limit.reserve(0.60)
    second = asyncio.create_task(limit.reserve(0.60))
    await asyncio.sleep(0)
    limit.settle(first, 0.50)
    with pytest.raises(CostCapReached):
        await second
    with pytest.raises(CostCapReached, match=r"up to \$2"):
        await limit.reserve(2.0)


async def test_what_is_spent_already_makes_waiting_pointless() -> None:
    limit = SpendLimit(1.00, spent=0.7)
    await limit.reserve(0.2)
    with pytest.raises(CostCapReached):
        await limit.reserve(0.4)


async def test_an_unknown_bill_counts_with_its_worst_case_and_a_ticket_only_once() -> None:
    limit = SpendLimit(1.00)
    ticket = await limit.reserve(0.25)
    limit.settle(ticket, None)
    limit.settle(ticket, 0.75)
    assert limit.spent == 0.25


@pytest.mark.parametrize("cap", [-1.0, float("nan"), float("inf")])
def test_a_cap_is_a_number_of_dollars(cap: float) -> None:
    with pytest.raises(ValueError, match="money limit"):
        SpendLimit(cap)


@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 1)), min_size=1, max_size=40), st.floats(0, 2))
def test_the_cap_holds_at_every_moment(calls: list[tuple[float, float]], cap: float) -> None:
    async def run() -> tuple[SpendLimit, int]:
        limit, refused = SpendLimit(cap), 0

        async def one(worst: float, share: float) -> None:
            nonlocal refused
            try:
                ticket = await limit.reserve(worst)
            except CostCapReached:
                refused += 1
                return
            assert limit.spent + limit.in_flight <= cap + 1e-9
            await asyncio.sleep(0)
            limit.settle(ticket, worst * share)

        await asyncio.gather(*(one(*call) for call in calls))
        return limit, refused

    limit, refused = asyncio.run(run())
    assert limit.in_flight == 0
    assert limit.spent <= cap + 1e-9
    if sum(worst for worst, _ in calls) <= cap * 0.999:
        assert refused == 0


def _database(path, *statements):
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


_ROWS = ({"spend": 0.25, "model": "a"}, {"spend": 0.5}, {"spend": None}, {"spend": "much"})


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(_ROWS),
        json.dumps({"data": _ROWS}),
        "".join(f"{json.dumps(row)}\n" for row in _ROWS) + '{"spend": 7',
        json.dumps({"total_cost": 0.75}),
    ],
    ids=["a list", "under data", "lines, the last one half written", "one total"],
)
def test_a_spend_log_of_json_in_any_form(tmp_path, text):
    path = tmp_path / "spend.json"
    path.write_text(text)
    assert spend_stated(str(path)) == 0.75


def test_a_spend_log_in_a_database_is_read_and_never_written(tmp_path):
    path = tmp_path / "proxy.db"
    _database(
        path,
        'CREATE TABLE "LiteLLM_SpendLogs" (id TEXT, spend REAL)',
        "CREATE TABLE teams (name TEXT, spend REAL)",
        "INSERT INTO LiteLLM_SpendLogs VALUES ('a', 0.25), ('b', 0.5)",
        "INSERT INTO teams VALUES ('a', 99)",
    )
    before = path.read_bytes()
    assert spend_stated(str(path)) == 0.75
    assert spend_stated(f"{path}#teams.spend") == 99
    assert path.read_bytes() == before
    with pytest.raises(BadInput, match=r"expected one column of costs, found none; write SOURCE#TABLE.COLUMN"):
        spend_stated(f"{path}#teams.cost")


@pytest.mark.program("initdb")
def test_a_spend_log_in_postgresql_is_read_and_the_password_never_told(postgres):
    from sqlalchemy import create_engine, text

    url = postgres.url("spend")
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.begin() as connection:
        connection.execute(text('CREATE TABLE "LiteLLM_SpendLogs" (request_id text, spend double precision)'))
        connection.execute(text("INSERT INTO \"LiteLLM_SpendLogs\" VALUES ('a', 0.25), ('b', 0.5), ('c', NULL)"))
    engine.dispose()
    assert spend_stated(url) == 0.75
    assert spend_stated(f"{url}#LiteLLM_SpendLogs.spend") == 0.75
    with pytest.raises(BadInput, match="found none") as told:
        spend_stated(f"{url}#teams.cost")
    assert postgres.password not in str(told.value)
    with pytest.raises(BadInput, match="--spend") as refused:
        spend_stated(url.replace(postgres.password, "a-secret-word"))
    assert "a-secret-word" not in str(refused.value)


def test_what_was_added_meanwhile_stands_beside_the_bill(tmp_path):
    path = tmp_path / "spend.jsonl"
    log = SpendLog.of(str(path))  # the proxy has not written yet
    assert log is not None
    path.write_text('{"response_cost": 0.5}\n')
    assert log.since(0.25) == (
        {"told": 0.5, "by_usage": 0.25},
        "The proxy's spend log says $0.5000, by the provider's usage it is $0.2500.",
    )
    later = SpendLog.of(str(path))
    assert later is not None
    assert later.since(None)[0] == {"told": 0.0, "by_usage": None}
    path.write_text("no log at all\n[1]\n")
    told, said = later.since(0.25)
    assert told["told"] is None
    assert "none of its entries has one of the fields spend" in said


@pytest.mark.parametrize("source", ["ftp://a.example/log", "no-such-file.json", "http://127.0.0.1:9/spend/logs"])
def test_a_spend_log_that_is_not_there(source):
    with pytest.raises(BadInput, match="--spend"):
        spend_stated(source)
