"""Headroom and LangChain, for real, each in its own environment; nothing reaches beyond loopback."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from context_bench.compression.compressors import compressor_for
from context_bench.core.errors import BadInput, MissingProgram, Refused
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.datasets import sessions
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.testing.compressor_contract import a_session
from context_bench.wire.conversation import call_of, message_text


def prefix() -> list[dict[str, Any]]:
    return sessions.load_session("lagerverwaltung-de").messages[1:]


@pytest.mark.vendor("headroom")
def test_headroom_compresses_rows_and_keeps_what_was_said() -> None:
    rows = [
        {"time": f"10:00:{i % 60:02}", "level": "INFO", "worker": i % 4, "text": f"batch {i} done"} for i in range(300)
    ]
    rows[200] |= {"level": "FATAL", "text": "disk full on /dev/sda1"}
    calls = a_session(2)
    calls[2] = {**calls[2], "content": json.dumps(rows)}
    headroom: Any = compressor_for("headroom")
    made, _ = headroom.compress(calls, [])
    assert made.tokens_after < 0.6 * made.tokens_before
    assert "disk full" in str(made.messages)
    assert [m["role"] for m in made.messages] == [m["role"] for m in calls]
    assert headroom.fingerprint()["version"] == "0.42.0"


@pytest.mark.vendor("langchain")
def test_langchain_clears_old_results_and_nothing_else() -> None:
    whole = prefix()
    made, _ = compressor_for("langchain_clear:keep=2").compress(whole, [], state=None, budget=None)
    results = [message_text(m) for m in made.messages if m["role"] == "tool"]
    assert set(results[:-2]) == {"[cleared]"}
    assert results[-2:] == [message_text(m) for m in whole if m["role"] == "tool"][-2:]
    assert [message_text(m) for m in made.messages if m["role"] == "user"] == [
        message_text(m) for m in whole if m["role"] == "user"
    ]
    untouched, _ = compressor_for("langchain_clear").compress(whole, [], state=None, budget=10**6)
    assert "[cleared]" not in str(untouched.messages)


@pytest.mark.vendor("langchain")
def test_arguments_that_are_no_json_are_the_packages_failure() -> None:
    odd: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call_of("a", "run", "not json {")]}
    ]
    with pytest.raises(Refused, match="JSONDecodeError"):
        compressor_for("langchain_clear").compress(odd, [], state=None, budget=None)


@pytest.mark.vendor("langchain")
async def test_langchain_summarises_with_a_model_whose_calls_are_booked() -> None:
    import asyncio

    async with ModelServer(Scripted({"rules": [{"text": "The gauge and the clock."}]})) as server:
        summary: Any = compressor_for("langchain_summary:keep=4", relay=server.url, model="m")
        ledger = Ledger(account="compressor")
        with open_ledger(ledger):
            made, _ = await asyncio.to_thread(summary.compress, prefix(), [])
    assert "The gauge and the clock." in message_text(made.messages[0])
    assert 1 < len(made.messages) <= 9
    (call,) = ledger.calls
    assert call.usage is not None
    assert "SESSION INTENT" in str(call.request)
    assert made.tokens_after < made.tokens_before


@pytest.mark.vendor("langchain")
def test_what_the_package_refuses_is_a_failure() -> None:
    with pytest.raises(Refused, match="langchain_summary"):
        compressor_for("langchain_summary:keep=4", relay="http://127.0.0.1:9", model="m").compress(
            prefix(), [], state=None, budget=None
        )


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="needs a model"):
        compressor_for("langchain_summary")
    monkeypatch.setenv("CONTEXT_BENCH_HEADROOM_PYTHON", sys.executable)
    with pytest.raises(MissingProgram, match="make vendors"):
        compressor_for("headroom")
