"""What tokens cost."""

from __future__ import annotations

import ast
import datetime
import pickle
import subprocess
import sys
from pathlib import Path

import genai_prices
import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput
from context_bench.core.protocols import Prices
from context_bench.core.records import Usage
from context_bench.llm import prices
from context_bench.llm.prices import UNLIMITED_OUTPUT, GenaiPrices, PricedAs

MILLION = 1_000_000
DAY = datetime.date(2026, 1, 15)
PRICES = GenaiPrices(on=DAY)


def test_public_prices_with_cached_parts() -> None:
    prices: Prices = GenaiPrices(on=DAY)
    assert prices.cost(Usage(MILLION, MILLION), "gpt-4o-mini") == pytest.approx(0.15 + 0.60)
    assert prices.cost(Usage(MILLION, 0, cache_read=400_000), "gpt-4o-mini") == pytest.approx(0.09 + 0.03)
    haiku = Usage(MILLION, 0, cache_read=200_000, cache_write=100_000)
    assert prices.cost(haiku, "claude-haiku-4-5-20251001") == pytest.approx(0.7 + 0.02 + 0.125)


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "openrouter/openai/gpt-4o-mini", "GPT-4o-mini"])
def test_names_as_routers_write_them(model: str) -> None:
    assert GenaiPrices(on=DAY).cost(Usage(MILLION, 0), model) == pytest.approx(0.15)


def test_unknown_stays_unknown() -> None:
    prices = GenaiPrices(on=DAY)
    assert prices.cost(Usage(5, 5), "our-own-model") is None
    assert prices.cost(Usage(5, 5), "") is None
    assert prices.cost(Usage(), "gpt-4o-mini") is None
    assert prices.cost(Usage(None, 5), "gpt-4o-mini") is None  # a prompt that nobody counted is not free
    assert prices.cost(Usage(5, None), "gpt-4o-mini") is None
    assert prices.cost(Usage(5, None), "voyage-3") == pytest.approx(3e-7)  # embeddings have no output
    assert prices.worst_case("our-own-model", 10, 10) is None
    assert not prices.has_price("our-own-model")


def test_more_cached_tokens_than_there_are_are_not_billed_below_nothing() -> None:
    cost = GenaiPrices(on=DAY).cost(Usage(100, 0, cache_read=500, cache_write=500), "gpt-4o-mini")
    assert cost == pytest.approx(100 * 0.075 / MILLION)


def test_own_prices_win_and_a_star_holds_for_all_others() -> None:
    prices = GenaiPrices(
        {"gpt-4o-mini": {"input": 1, "output": 2, "cache_read": 0.1}, "*": {"input": 3, "output": 0}}, on=DAY
    )
    assert prices.cost(Usage(MILLION, MILLION, cache_read=500_000), "gpt-4o-mini") == pytest.approx(0.5 + 0.05 + 2)
    assert prices.cost(Usage(MILLION, 0, cache_write=500_000), "anything") == pytest.approx(3)
    assert prices.source.startswith("genai-prices ")
    assert "gpt-4o-mini" in prices.source
    assert prices.date == "2026-01-15"


@pytest.mark.parametrize("model", ["gpt-4o-mini", "claude-sonnet-4-5", "gpt-5.6-sol", "our-own-model"])
@pytest.mark.parametrize("hour", [False, True])
def test_the_bill_and_the_cache_model_have_one_price_where_an_own_one_leaves_the_cache_open(
    model: str, hour: bool
) -> None:
    own = GenaiPrices({"*": {"input": 2, "output": 8}}, on=DAY)
    profile = prices.profile_for(model, own, hour=hour)
    assert own.cost(Usage(MILLION, 0, cache_read=MILLION), model) == pytest.approx(2 * profile.r)
    written = Usage(MILLION, 0, cache_write=MILLION, cache_write_1h=MILLION if hour else None)
    assert own.cost(written, model) == pytest.approx(2 * (profile.w or 1))
    assert own.cost(Usage(MILLION, MILLION), model) == pytest.approx(10)
    no_discount = GenaiPrices({"*": {"input": 2, "output": 8, "cache_read": 2}}, on=DAY)
    assert prices.profile_for(model, no_discount).r == 1
    assert no_discount.cost(Usage(MILLION, 0, cache_read=MILLION), model) == pytest.approx(2)


@pytest.mark.parametrize(
    "price",
    [{"input": 1}, {"input": 1, "output": -2}, {"input": 1, "output": 1, "cached": 0}, {"input": "1", "output": 1}],
)
def test_a_faulty_price_is_told(price: dict[str, float]) -> None:
    with pytest.raises(BadInput, match="price of 'm'"):
        GenaiPrices({"m": price})


@pytest.mark.parametrize("model", ["gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-pro", "gpt-5", "o3"])
@given(
    total=st.integers(0, 2 * MILLION),
    output=st.integers(0, MILLION),
    read=st.integers(0, MILLION),
    write=st.integers(0, MILLION),
)
def test_the_table_itself_says_the_same(model: str, total: int, output: int, read: int, write: int) -> None:
    read = min(read, total)
    write = min(write, total - read)
    listed = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=total, output_tokens=output, cache_read_tokens=read, cache_write_tokens=write),
        model,
        genai_request_timestamp=datetime.datetime.combine(DAY, datetime.time(12), datetime.UTC),
    )
    assert PRICES.cost(Usage(total, output, read, write), model) == pytest.approx(
        float(listed.total_price), rel=1e-9, abs=1e-15
    )


def test_worst_case_takes_the_dearest_rate_and_all_output() -> None:
    prices = GenaiPrices({"m": {"input": 1, "output": 10, "cache_write": 1.25}}, on=DAY)
    assert prices.worst_case("m", 1000, 100) == pytest.approx((1000 * 1.25 + 100 * 10) / MILLION)
    assert prices.worst_case("m", 0, None) == pytest.approx(UNLIMITED_OUTPUT * 10 / MILLION)
    table = GenaiPrices(on=DAY)
    assert table.worst_case("gpt-3.5-turbo", 16_000, None) == pytest.approx((16_000 * 0.5 + 385 * 1.5) / MILLION)


def test_priced_as_another_model() -> None:
    prices: Prices = PricedAs(GenaiPrices(on=DAY), "gpt-4o-mini")
    assert prices.cost(Usage(MILLION, 0), "smollm2") == pytest.approx(0.15)


def in_a_new_process(model: str) -> tuple[object, bool]:
    """(cost of a usage, whether the table was loaded)."""
    code = (
        "import sys, datetime; from context_bench.core.records import Usage; from context_bench.llm.prices import "
        "GenaiPrices;"
        f"prices = GenaiPrices(on=datetime.date(2026, 1, 15)); print([prices.cost(Usage(999, 77, 55, 3), {model!r}),"
        f"prices.worst_case({model!r}, 16_000, None), 'genai_prices' in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    *costs, loaded = ast.literal_eval(told)
    return costs, loaded


@pytest.mark.parametrize("model", ["gpt-3.5-turbo", "our-own-model"])
def test_the_table_is_loaded_once_a_day(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old = tmp_path / "context-bench" / "prices-0-2020-01-01.json"
    old.parent.mkdir()
    old.write_text("{}")
    asked = in_a_new_process(model)
    assert asked[1]
    assert in_a_new_process(model) == (asked[0], False)
    assert not old.exists()


@pytest.mark.parametrize(
    "told",
    ["", "[1]", '{"m": [1, 2, 3]}', '{"m": [1, 2, 3, "4", 5, null]}', '{"m": [1, 2, -3, 4, 5, null]}', "[" * 9999],
)
def test_what_is_no_price_in_the_cache_is_as_if_it_were_not_there(
    told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prices.keep("1", "2026-01-15", "other", None)
    (file,) = tmp_path.rglob("prices-*")
    file.write_text(told)
    assert prices.recalled("1", "2026-01-15", "m") == (False, None)
    prices.keep("1", "2026-01-15", "m", (1.0, 2.0, 0.1, 1.25, 2.0, 9000))
    assert prices.recalled("1", "2026-01-15", "m") == (True, (1.0, 2.0, 0.1, 1.25, 2.0, 9000))


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "context-bench").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prices.keep("1", "2026-01-15", "m", None)
    assert prices.recalled("1", "2026-01-15", "m") == (False, None)


def test_prices_travel_to_another_process_with_their_day_and_overrides():
    sent = pickle.loads(pickle.dumps(GenaiPrices({"mine": {"input": 2, "output": 4}}, on=DAY)))
    assert sent.date == DAY.isoformat()
    assert sent.cost(Usage(MILLION, MILLION), "mine") == 6
    assert sent.cost(Usage(10, 10), "gpt-4o") == PRICES.cost(Usage(10, 10), "gpt-4o")


def test_what_is_stored_for_an_hour_costs_more_to_write() -> None:
    """Anthropic's price list: 1.25 times the input for five minutes, twice for an hour."""
    for model, rate in (("claude-opus-4-5", 5.0), ("claude-sonnet-4-5", 3.0)):
        short, long = Usage(100_000, 0, 0, 100_000), Usage(100_000, 0, 0, 100_000, cache_write_1h=40_000)
        assert PRICES.cost(short, model) == pytest.approx(0.1 * rate * 1.25)
        assert PRICES.cost(long, model) == pytest.approx(0.06 * rate * 1.25 + 0.04 * rate * 2)
    own = GenaiPrices(
        {"m": {"input": 1.0, "output": 1.0, "cache_write": 1.5}, "n": {"input": 1, "output": 1, "cache_write_1h": 3}}
    )
    assert own.cost(Usage(1_000_000, 0, 0, 1_000_000, cache_write_1h=500_000), "m") == pytest.approx(1.5)
    assert own.cost(Usage(1_000_000, 0, 0, 1_000_000, cache_write_1h=500_000), "n") == pytest.approx(2.0)
