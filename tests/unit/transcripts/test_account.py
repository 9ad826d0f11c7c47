"""The account of a recorded session: head, scale, marks and placeholders, from made logs whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from context_bench.core.keys import canonical_json
from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.transcripts.account import (
    STAND_IN,
    Account,
    completed,
    fit,
    is_placeholder,
    made_text,
    weighing,
)
from context_bench.transcripts.session import RecordedReply, Session, reconstructed, verbatim
from context_bench.wire.atoms import atoms

COUNTER = counter_for("claude-sonnet-4-5")
MESSAGES = [
    {"role": role, "content": [{"type": "text", "text": f"{role} {n}"}]}
    for n in range(4)
    for role in ("user", "assistant")
]


def transcript(
    usages: list[Usage | None], *, version: str = "2.1.197", stop: str | None = "end_turn", **meta: Any
) -> Session:
    """A session of Claude Code as its reader gives it: request t holds the first 2 t + 1 messages."""
    requests = []
    for turn, usage in enumerate(usages):
        reply = RecordedReply(f"assistant {turn}", usage=usage, model="claude-sonnet-4-5", finish_reason=stop)
        body = {"model": "claude-sonnet-4-5"}
        requests.append(
            reconstructed("anthropic", body, MESSAGES, 0, 2 * turn + 1, recorded_reply=reply, at=float(turn))
        )
    facts = {
        "format": "claude-code-transcript",
        "reconstructed": True,
        "assumed": ["system", "tools"],
        "version": version,
        **meta,
    }
    return Session("s", "log.jsonl", "anthropic", requests, facts)


@given(
    head=st.integers(2_000, 60_000),
    scale=st.floats(0.7, 1.7),
    sizes=st.lists(st.integers(1_500, 20_000), min_size=3, max_size=12),
)
def test_the_head_and_the_scale_come_out_of_stated_usage(head: int, scale: float, sizes: list[int]) -> None:
    """Stated tokens are made as scale × (head + ours): both are found again, to rounding."""
    rebuilt = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    stated = [Usage(round(scale * (head + ours)), 10) for ours in rebuilt]
    found = fit(transcript(stated), rebuilt, COUNTER.count)
    assert found.scale == pytest.approx(scale, rel=0.01)
    assert found.head == pytest.approx(head, rel=0.05, abs=0.02 * rebuilt[0] + 5)
    assert found.rebuilt_after == rebuilt[-1] * len(rebuilt) - sum(rebuilt[-1] - ours for ours in rebuilt) - rebuilt[
        0
    ] * len(rebuilt)


def test_the_first_reply_that_states_usage_sizes_the_head() -> None:
    found = fit(transcript([None, Usage(30_010, 5)]), [10, 20], COUNTER.count)
    assert (found.head, found.stated_requests, found.warm) == (29_990, 1, 0)


def test_requests_of_nearly_one_size_give_no_scale() -> None:
    assert fit(transcript([Usage(30_000, 5), Usage(32_000, 5)]), [1_000, 1_900], COUNTER.count).scale == 1.0


@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "cache_read", "cache_write", "cache_write_1h"])
@pytest.mark.parametrize("tokens", [10_000_001, 10**15, 10**400])
def test_more_tokens_than_any_model_takes_are_no_usage(name: str, tokens: int) -> None:
    usage = replace(Usage(30_000, 5, 10, 20), **{name: tokens})
    session = transcript([usage, Usage(30_010, 5)])
    account = fit(session, [10, 20], COUNTER.count)
    assert (account.stated_requests, account.head, account.hour) == (1, 29_990, False)
    reply = completed(session, account).requests[0].recorded_reply
    assert reply is not None
    assert reply.usage is None


def test_the_made_text_is_bounded() -> None:
    account = fit(transcript([Usage(9_000_000, 5)]), [10], COUNTER.count)
    assert account.head == 8_999_990
    assert len(made_text(account.words)) < 1_000_000


def test_what_is_there_of_the_instructions_stays() -> None:
    body = {"model": "gpt-4.1", "instructions": "Be brief.", "input": []}
    reply = RecordedReply("yes", usage=Usage(9_000, 5))
    meta = {"format": "codex-rollout", "assumed": ["instructions", "tools"]}
    session = Session(
        "s",
        "r.jsonl",
        "openai-responses",
        [reconstructed("openai-responses", body, [], 0, 0, recorded_reply=reply)],
        meta,
    )
    account = fit(session, [10], COUNTER.count)
    told = completed(session, account).requests[0].body["instructions"]
    assert told.startswith(made_text(account.words))
    assert told.endswith("Be brief.")


@pytest.mark.parametrize(("system", "hour"), [("5m", False), ("1h", True), (None, False), ("text", False)])
def test_marks_for_an_hour_are_seen_where_no_usage_says_so(system: str | None, hour: bool) -> None:
    mark = {"type": "ephemeral", "ttl": system} if system else None
    blocks: Any = (
        "ttl 1h"
        if system == "text"
        else [{"type": "text", "text": "'ttl': '1h'", **({"cache_control": mark} if mark else {})}]
    )
    body = {"model": "claude-sonnet-4-5", "system": blocks, "messages": MESSAGES[:1]}
    session = Session(
        "s", "r.jsonl", "anthropic", [verbatim("anthropic", body, recorded_reply=RecordedReply("yes"))], {}
    )
    assert fit(session, [10], COUNTER.count).hour is hour


def test_without_usage_there_is_no_head_and_it_shows() -> None:
    found = fit(transcript([None, None]), [10, 20], COUNTER.count)
    assert (found.head, found.stated_requests, found.requests, found.missing) == (0, 0, 2, ("system", "tools"))


def test_the_stand_ins_weigh_what_the_log_leaves_out() -> None:
    account = fit(transcript([Usage(30_000, 5), Usage(30_010, 5)]), [10, 20], COUNTER.count)
    body = completed(transcript([Usage(30_000, 5), Usage(30_010, 5)]), account).requests[0].body
    assert account.head == 29_990
    assert [tool["name"] for tool in body["tools"]] == [STAND_IN]
    text = body["system"][0]["text"]
    assert text == made_text(account.words)
    counter = weighing(COUNTER, account)
    tools = canonical_json(body["tools"])
    assert counter.count(text) + counter.count(tools) == pytest.approx(account.head, abs=60)
    assert counter.count(f"The tool {STAND_IN} is defined in account.py.") < 30, (
        "a text that only names it is no stand-in"
    )
    assert 0.2 < counter.count(text) / account.head < 0.4


def test_a_made_text_states_no_rule_and_no_fact() -> None:
    assert atoms(made_text(5_000)) == {}
    assert made_text(300) == made_text(300)


@pytest.mark.parametrize(
    ("version", "marked"),
    [
        ("1.0.60", 2),
        ("2.0.30", 2),
        ("2.1.55", 2),
        ("2.1.60", 1),
        ("2.1.62", 2),
        ("2.1.68", 2),
        ("2.1.70", 1),
        ("2.1.197", 1),
        ("99.0", 1),
        (None, 1),
    ],
)
def test_marks_stand_where_that_version_puts_them(version: str | None, marked: int) -> None:
    session = transcript([Usage(9_000, 5), Usage(9_010, 5)], version=version or "")
    body = completed(session, fit(session, [10, 20], COUNTER.count)).requests[1].body
    assert [index for index, m in enumerate(body["messages"]) if "cache_control" in m["content"][-1]] == [1, 2][
        2 - marked :
    ]
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert not any("cache_control" in block for message in MESSAGES for block in message["content"])


def test_entries_that_live_for_an_hour_are_marked_so() -> None:
    session = transcript([Usage(9_000, 5, 0, 9_000, cache_write_1h=9_000)])
    account = fit(session, [10], COUNTER.count)
    assert account.hour
    assert completed(session, account).requests[0].body["system"][0]["cache_control"] == {
        "type": "ephemeral",
        "ttl": "1h",
    }


def test_requests_whose_bodies_were_recorded_stay_as_they_were() -> None:
    body = {"model": "claude-sonnet-4-5", "system": "You are terse.", "messages": MESSAGES[:1]}
    usage = Usage(500, 5)
    session = Session(
        "s", "r.jsonl", "anthropic", [verbatim("anthropic", body, recorded_reply=RecordedReply("yes", usage=usage))], {}
    )
    account = fit(session, [400], COUNTER.count)
    assert (account.head, account.missing, account.scale) == (0, (), 1.25)
    assert completed(session, account).requests[0].body == body


@pytest.mark.parametrize(
    ("version", "stop", "placeholder"),
    [
        ("2.1.7", None, False),
        ("2.1.8", None, True),
        ("2.1.58", None, True),
        ("2.1.55", "tool_use", False),
        ("2.1.59", None, False),
        ("2.1.197", None, False),
        ("", None, False),
    ],
)
def test_placeholders_of_the_versions_that_log_them_are_no_usage(
    version: str, stop: str | None, placeholder: bool
) -> None:
    session = transcript([Usage(9_000, 1, 0, 9_000)], version=version, stop=stop)
    account = fit(session, [10], COUNTER.count)
    reply = completed(session, account).requests[0].recorded_reply
    usage = reply.usage if reply else None
    assert usage is not None
    assert (usage.output_tokens is None, account.predicted_outputs) == (placeholder, int(placeholder))
    assert usage.input_tokens == 9_000


def test_the_stream_states_placeholders_in_every_version() -> None:
    assert is_placeholder("claude-code-stream", None, None)
    assert not is_placeholder("claude-code-stream", None, "end_turn")
    assert not is_placeholder("codex-rollout", "2.1.20", None)


def test_an_account_goes_through_json() -> None:
    account = fit(transcript([Usage(9_000, 5, 100, 8_000)]), [10], COUNTER.count)
    assert Account.of(account.as_dict()) == account
    assert Account.of(None) == Account()
