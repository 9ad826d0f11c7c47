"""Summaries that a model writes: what it is asked, what is done with what it says, budgets, failures."""

from __future__ import annotations

from typing import Any

import pytest

from context_bench.compression.compressors import compressor_for
from context_bench.compression.compressors.model_summaries import AnchoredIterative, Regenerative
from context_bench.core.errors import BadInput, BadReply, ServerFailed
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.tokens import counter_for
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.testing.compressor_contract import acheck_compressor
from context_bench.wire.conversation import message_text

COUNT = counter_for().count
PREFIX = [
    {"role": "user", "content": "The gauge shows 4.2 m. Fix src/gauge.py."},
    {"role": "assistant", "content": "I use the table instead of the list because it is sorted."},
]
LATER = [{"role": "user", "content": "Now the clock in src/clock.py."}]


def text_of(made: Any) -> str:
    return "\n".join(message_text(message) for message in made.messages)


async def test_sections_are_added_to_and_struck_but_never_written_anew() -> None:
    rules = [
        {
            "when": {"last": "clock"},
            "text": "Here you are:\n## Intent\n- Fix the clock too\n## Next steps\n* Wind the clock\n~ 3\n~ 99\n## "
            "Weather\n- rain",
        },
        {
            "when": {"last": "gauge"},
            "text": "## Intent\n- Fix the gauge\n## Decisions\n- The table, not the list\n## Next\n- Paint the gauge",
        },
    ]
    async with ModelServer(Scripted({"rules": rules})) as server:
        compressor = AnchoredIterative(relay=server.url, model="m")
        made, state = await compressor.compress(PREFIX, LATER)
        assert text_of(made).splitlines()[2:] == [
            "Intent:",
            "- Fix the gauge",
            "",
            "Decisions:",
            "- The table, not the list",
            "",
            "Next steps:",
            "- Still left to do: Paint the gauge",
        ]
        ledger = Ledger(account="compressor")
        with open_ledger(ledger):
            again, _ = await compressor.compress([*made.messages, *LATER], [], state=state)
        (call,) = ledger.calls
        assert call.usage is not None
        asked = str(call.request)
        assert "3. Paint the gauge" in asked
        assert "4.2 m" not in asked  # what was summarised is not read again
        assert text_of(again).splitlines()[3:] == [
            "- Fix the gauge",
            "- Fix the clock too",
            "",
            "Decisions:",
            "- The table, not the list",
            "",
            "Next steps:",
            "- Still left to do: Wind the clock",
        ]
        await compressor.aclose()


async def test_a_whole_summary_each_time_and_part_by_part() -> None:
    rules = [
        {"when": {"last": "clock[\\s\\S]*New summary:"}, "text": "Gauge and clock."},
        {"when": {"last": "gauge[\\s\\S]*New summary:"}, "text": "Gauge only."},
    ]
    async with ModelServer(Scripted({"rules": rules})) as server:
        compressor = Regenerative(relay=server.url, model="m", part_tokens=30)
        ledger = Ledger(account="compressor")
        with open_ledger(ledger):
            made, state = await compressor.compress([*PREFIX, *LATER], [])
        assert text_of(made).endswith("Gauge and clock.")
        assert state is None
        assert len(ledger.calls) == 2
        assert "Gauge only." in str(ledger.calls[1].request)
        await compressor.aclose()


async def test_a_budget_is_asked_for_then_kept_by_cutting_and_said() -> None:
    rules = [{"text": "one two three four five six seven eight nine ten " * 8}]
    async with ModelServer(Scripted({"rules": rules})) as server:
        compressor = Regenerative(relay=server.url, model="m")
        ledger = Ledger(account="compressor")
        with open_ledger(ledger):
            made, _ = await compressor.compress(PREFIX, [], budget=30)
        assert COUNT(text_of(made)) <= 30
        assert made.tokens_after == COUNT(text_of(made))
        assert "cut off" in made.warnings[0]
        assert len(ledger.calls) == 2  # asked, and asked to make it shorter
        assert "at most" in str(ledger.calls[0].request)
        small, _ = await compressor.compress(PREFIX, [], budget=3)
        assert small.messages == []
        assert small.warnings
        await compressor.aclose()
    entries = "\n".join(f"- Decision number {number} about the gauge" for number in range(40))
    async with ModelServer(Scripted({"rules": [{"text": f"## Decisions\n{entries}"}]})) as server:
        anchored = AnchoredIterative(relay=server.url, model="m", budget=60)
        made, state = await anchored.compress(PREFIX, [])
        assert COUNT(text_of(made)) <= 60
        assert "Decision number 39" in text_of(made)
        assert len(state["sections"]["decisions"]) == 40
        assert "did not fit" in made.warnings[0]
        await anchored.aclose()


async def test_what_cannot_be_read_and_what_fails_is_a_failure() -> None:
    async with ModelServer(Scripted({"rules": [{"text": "I would rather not."}]})) as server:
        compressor = AnchoredIterative(relay=server.url, model="m")
        with pytest.raises(BadReply, match="I would rather not"):
            await compressor.compress(PREFIX, [])
        await compressor.aclose()
    async with ModelServer(Scripted({"rules": [{"status": 500, "error": "down"}]})) as server:
        for kind in (AnchoredIterative, Regenerative):
            failing = kind(relay=server.url, model="m", max_retries=0)
            with pytest.raises(ServerFailed):
                await failing.compress(PREFIX, [])
            await failing.aclose()


async def test_both_keep_the_contract() -> None:
    async with ModelServer(Scripted({"rules": [{"text": "## State\n- the gauge shows 4.2 m"}]})) as server:
        for kind in (AnchoredIterative, Regenerative):
            assert await acheck_compressor(lambda kind=kind: kind(relay=server.url, model="m"), huge=20_000) == []


def test_they_are_made_with_what_the_run_has() -> None:
    made: Any = compressor_for("regenerative:budget=99", relay="http://127.0.0.1:9", model="m", api_key="k")
    assert (made.name, made.model, made.budget) == ("regenerative", "m", 99)
    assert "k" not in made.fingerprint().values()
    with pytest.raises(BadInput, match="needs a model"):
        compressor_for("anchored_iterative")
    with pytest.raises(BadInput, match="part_tokens"):
        Regenerative(relay="http://127.0.0.1:9", part_tokens=0)
