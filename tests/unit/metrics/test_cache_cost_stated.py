"""When the money of recorded sessions is known, and why it is not."""

from __future__ import annotations

import pytest

from context_bench.core.records import Usage
from context_bench.metrics.cache_pricing import SessionCost, StatedBill, recorded_facts
from context_bench.transcripts.account import Account

CLAUDE = Account(
    head=1_000,
    words=200,
    missing=("system", "tools"),
    rebuilt=800,
    after=1_000,
    rebuilt_after=900,
    client="Claude Code",
)


def price(usage: Usage) -> float:
    return ((usage.input_tokens or 0) + 10 * (usage.output_tokens or 0)) / 1e6


def bill(*usages: Usage | None, read: int = 500) -> StatedBill:
    found = StatedBill()
    for usage in usages:
        found.add(usage, 7, price, 1_000, read)
    return found


def test_a_log_that_states_all_gives_the_dollars_and_a_verdict() -> None:
    facts = recorded_facts(bill(Usage(1_000, 5, 520), Usage(1_000, None, 480)), [CLAUDE])
    assert facts["usd"] == pytest.approx((2_000 + 140) / 1e6)
    assert (facts["rebuilt_share"], facts["after_head_share"], facts["predicted_outputs"]) == (0.4, 0.9, 1)
    assert (facts["predicted_read_share"], facts["stated_read_share"]) == (0.5, 0.5)
    assert "no_verdict" not in facts


@pytest.mark.parametrize(
    ("found", "account", "moved", "reason"),
    [
        (bill(Usage(1_000, 5, 500), None), CLAUDE, 0, "1 of its 2 replies do not state"),
        (
            bill(Usage(1_000, 5, 500)),
            Account(**{**CLAUDE.as_dict(), "rebuilt_after": 499}),
            0,
            "only 50 % of the tokens billed after",
        ),
        (bill(Usage(1_000, 5, 500)), CLAUDE, 1, "in 1 of 1 requests the system changed what stands for"),
        (
            bill(Usage(1_000, 5, 900)),
            CLAUDE,
            0,
            "states that 90 % of the prompts came from the cache, but the rules predict 50 %",
        ),
        (bill(Usage(1_000, 5, 900)), Account(), 0, "states that 90 %"),
        (bill(Usage(1_000, 5, 500)), Account(**{**CLAUDE.as_dict(), "words": 0}), 0, "replay with --upstream echo"),
    ],
)
def test_no_verdict_has_its_reason(found: StatedBill, account: Account, moved: int, reason: str) -> None:
    assert reason in recorded_facts(found, [account], moved=moved)["no_verdict"]


def test_other_rules_than_the_recorded_ones_are_not_held_against_the_log() -> None:
    assert "no_verdict" not in recorded_facts(bill(Usage(1_000, 5, 900)), [CLAUDE], own_rules=False)


def test_a_stated_bill_keeps_the_ratio() -> None:
    cost = SessionCost(100, 80, alone=2.0, through=3.0, extra=0.5).billed(4.0)
    assert (cost.alone, cost.through, cost.extra, cost.net_cost_ratio) == (4.0, 6.0, 1.0, 1.5)
    assert SessionCost(100, 80, 2.0, 3.0).billed(None).alone == 2.0
