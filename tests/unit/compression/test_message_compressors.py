"""Compressors that know messages: what stays, that no result stays without its call, and that budgets hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from context_bench.compression.compressors import compressor_of
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput
from context_bench.core.tokens import counter_for
from context_bench.datasets import sessions
from context_bench.wire.conversation import message_text
from context_bench.wire.violations import wire_violations

COUNTER = counter_for()
NAMES = ("window", "mask_observations", "dedupe")


def session(name: str = "invoice-service-en") -> list[dict[str, Any]]:
    return sessions.load_session(name).messages[1:]


def compressed(
    spec: str, prefix: list[dict[str, Any]], tail: list[dict[str, Any]] | None = None, budget: int | None = None
) -> Any:
    made, _ = compressor_of(spec).compress(prefix, tail or [], state=None, budget=budget)
    assert made.tokens_after == tokens_of(made.messages, COUNTER)
    return made


@given(st.sampled_from(NAMES), st.integers(1, 112), st.one_of(st.none(), st.integers(0, 30_000)))
def test_no_result_is_left_without_its_call(name: str, cut: int, budget: int | None) -> None:
    whole = session()
    while cut < len(whole) and whole[cut]["role"] == "tool":
        cut -= 1
    made = compressed(name, whole[:cut], whole[cut:], budget)
    broken = {one.kind for one in wire_violations(whole, [*made.messages, *whole[cut:]])}
    assert not broken & {"orphan_tool_result", "unanswered_tool_call", "tool_arguments_changed"}
    assert made.tokens_after <= made.tokens_before


def test_a_window_keeps_the_last_messages_in_whole_turns() -> None:
    whole = session()
    made = compressed("window:n=7", whole)
    assert 0 < len(made.messages) <= 7
    assert made.messages == whole[-len(made.messages) :]
    assert made.messages[0]["role"] != "tool"
    assert compressed("window", whole, budget=500).tokens_after <= 500
    assert compressed("window:n=0", whole).messages == []


def test_masked_results_and_those_that_stay() -> None:
    whole = session()
    made = compressed("mask_observations:keep=2", whole)
    results = [message_text(m) for m in made.messages if m["role"] == "tool"]
    was = [message_text(m) for m in whole if m["role"] == "tool"]
    assert results[-2:] == was[-2:]
    assert any(text.endswith("tokens left out]") for text in results[:-2])
    assert [m for m in made.messages if m["role"] != "tool"] == [m for m in whole if m["role"] != "tool"]
    less = compressed("mask_observations:keep=10000", whole, budget=made.tokens_after)
    assert less.tokens_after <= made.tokens_after


def test_what_is_shown_again_is_shown_once() -> None:
    text = "\n".join(f"{number}\tline {number}" for number in range(40))
    part = "\n".join(text.split("\n")[5:20])
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "Read", "arguments": "{}"}}],
    }
    prefix = [
        call,
        {"role": "tool", "tool_call_id": "1", "content": part},
        call,
        {"role": "tool", "tool_call_id": "1", "content": text},
    ]
    made = compressed("dedupe", prefix)
    assert message_text(made.messages[1]) == "[the same as a later result]"
    assert made.messages[3] == prefix[3]
    assert compressed("dedupe", prefix[:2], prefix[2:]).messages[1] == made.messages[1]
    assert compressed("dedupe", [prefix[3], prefix[1]]).messages == [
        prefix[3],
        prefix[1],
    ]  # the longer one came first: both stay


@pytest.mark.parametrize(
    "spec", ["window:n=-1", "window:n=x", "mask_observations:keep=-1", "mask_observations:least=yes", "dedupe:least=1"]
)
def test_settings_that_make_no_sense(spec: str) -> None:
    with pytest.raises(BadInput):
        compressor_of(spec)
