"""The dated rules of prompt caches, and profiles made of them and of prices."""

import datetime

import pytest

from context_bench.core.errors import BadInput
from context_bench.llm.prices import GenaiPrices, PricedAs, check_profile, profile_for, rule_for, rules_date, rules_of
from context_bench.wire.cache import CacheProfile

PRICES = GenaiPrices(on=datetime.date(2026, 11, 1))


def test_the_rules_are_dated():
    assert datetime.date.fromisoformat(rules_date()) >= datetime.date(2026, 11, 1)


@pytest.mark.parametrize(
    ("model", "mode", "minimum", "step", "trigger", "write"),
    [
        ("gpt-4o-mini", "block", 1024, 128, "automatic", None),
        ("openai/gpt-5-mini", "block", 1024, 128, "automatic", None),
        ("gpt-5.6-sol", "block", 1024, 1, "automatic", 1.25),
        ("claude-haiku-4-5-20251001", "unit", 4096, 1, "marked", 1.25),
        ("anthropic/claude-opus-4.6", "unit", 4096, 1, "marked", 1.25),
        ("us.anthropic.claude-opus-5-v1:0", "unit", 512, 1, "marked", 1.25),
        ("claude-sonnet-4-5", "unit", 1024, 1, "marked", 1.25),
        ("deepseek-chat", "unit", 64, 1, "automatic", None),
        ("vllm", "block", 16, 16, "automatic", None),
        ("something-nobody-knows", "block", 1024, 128, "automatic", None),
        ("", "block", 1024, 128, "automatic", None),
    ],
)
def test_the_rule_of_a_model(model, mode, minimum, step, trigger, write):
    rule = rule_for(model)
    assert (rule.mode, rule.minimum, rule.step, rule.trigger, rule.write) == (mode, minimum, step, trigger, write)


def test_what_is_not_certain_says_about_what():
    for model in ("claude-sonnet-4-6", "claude-opus-4-7", "gemini-2.5-pro", "unheard-of"):
        assert not rule_for(model).sure
        assert rule_for(model).note


def test_profiles_take_dollars_from_the_price_table():
    assert profile_for("gpt-4o", PRICES) == CacheProfile("block", 1024, 128, 2.5, 10.0, 0.5, None, 600)
    assert profile_for("claude-sonnet-4-5", PRICES) == CacheProfile("unit", 1024, 1, 3.0, 15.0, 0.1, 1.25, 300)
    assert profile_for("gpt-5.6-sol", PRICES).w == 1.25


def test_own_prices_win_and_a_price_of_another_model_brings_its_money_only():
    own = GenaiPrices({"claude-sonnet-4-5": {"input": 2.0, "output": 8.0, "cache_read": 1.0, "cache_write": 4.0}})
    assert profile_for("claude-sonnet-4-5", own) == CacheProfile("unit", 1024, 1, 2.0, 8.0, 0.5, 2.0, 300)
    as_sonnet = profile_for("gpt-4o", PricedAs(PRICES, "claude-sonnet-4-5"))
    assert (as_sonnet.mode, as_sonnet.p_in, as_sonnet.w) == ("block", 3.0, None)


def test_without_a_price_only_ratios_are_left():
    for prices in (None, PRICES):
        assert profile_for("unheard-of", prices) == CacheProfile("block", 1024, 128, 1.0, 0.0, 0.1, None, None)


@pytest.mark.parametrize(
    ("named", "model", "rule", "write", "own"),
    [
        (None, "claude-sonnet-4-5", "Anthropic, 1,024 tokens and up", 1.25, True),
        ("anthropic", "claude-sonnet-4-5", "Anthropic, 1,024 tokens and up", 1.25, True),
        ("anthropic", "gpt-4.1", "Anthropic, 1,024 tokens and up", 1.25, False),
        ("openai", "claude-sonnet-4-5", "OpenAI, GPT-5", None, False),
        ("openai", "gpt-4.1", "OpenAI, before GPT-5", None, True),
        ("openai-5.6", "gpt-4.1", "OpenAI, GPT-5.6 and later", 1.25, False),
    ],
)
def test_a_family_bills_by_its_rules_at_the_recorded_models_prices(
    named: str | None, model: str, rule: str, write: float | None, own: bool
) -> None:
    prices = GenaiPrices()
    found = rules_of(model, prices, named=named)
    assert (found.rule.name, found.profile.w, found.own, found.priced) == (rule, write, own, True)
    assert found.profile.p_in == profile_for(model, prices).p_in


def test_another_model_brings_its_own_prices() -> None:
    assert rules_of("claude-sonnet-4-5", GenaiPrices(), named="gpt-4.1").profile == profile_for(
        "gpt-4.1", GenaiPrices()
    )


def test_entries_for_an_hour_cost_twice_the_input_and_live_longer() -> None:
    for model in ("claude-sonnet-4-5", "claude-opus-4-5"):
        assert (profile_for(model, GenaiPrices(), hour=True).w, profile_for(model, hour=True).ttl) == (2.0, 3600)
    assert profile_for("gpt-4.1", GenaiPrices(), hour=True) == profile_for("gpt-4.1", GenaiPrices())


def test_a_profile_that_nobody_knows_is_refused() -> None:
    for name in ("anthropic", "vllm", "gpt-4.1", "claude-sonnet-4-5"):
        check_profile(name, GenaiPrices())
    with pytest.raises(BadInput, match="no cache rules and no price are known by that name"):
        check_profile("antropic", GenaiPrices())
