"""The itemised bill: sums are the provider's own, shares are those of a count from scratch, sources are told apart."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.core.records import Usage
from context_bench.datasets import sessions as bundled
from context_bench.llm.prices import GenaiPrices
from context_bench.transcripts.itemised import MISSING, Itemised, itemised
from context_bench.transcripts.session import RecordedReply, Session, SessionRequest, verbatim
from context_bench.transcripts.sources import SourceReader, TokenSource, image_tokens, tool_label

MODEL = "claude-sonnet-4-5"
PRICES = GenaiPrices(
    {MODEL: {"input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75, "cache_write_1h": 6.0}}
)


def _text(kind: str, number: int) -> dict[str, Any]:
    return {"role": kind, "content": [{"type": "text", "text": f"{kind} {number} says something of its own. " * 9}]}


def _session(histories: list[list[int]], usages: list[Usage], assumed: bool) -> Session:
    requests: list[SessionRequest] = []
    shared: dict[int, dict[str, Any]] = {}
    for history, usage in zip(histories, usages, strict=True):
        messages = [shared.setdefault(n, _text("user" if n % 2 else "assistant", n)) for n in history]
        body = {"model": MODEL, "messages": messages, "system": "Be brief."}
        reply = RecordedReply("Well, here is what I found.", usage=usage, finish_reason="stop")
        requests.append(verbatim("anthropic", body, recorded_reply=reply))
    meta = {"assumed": ["system", "tools"], "reconstructed": True} if assumed else {}
    return Session("s", "here", "anthropic", requests, meta)


HISTORY = st.lists(st.integers(0, 9), min_size=1, max_size=8)
USAGE = st.tuples(*[st.integers(0, 400)] * 3, st.integers(0, 60)).map(
    lambda n: Usage(n[0] + n[1] + n[2] + 1, n[3], cache_read=n[0], cache_write=n[1])
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(HISTORY, USAGE), min_size=1, max_size=7), st.booleans())
def test_every_billed_token_is_in_one_place_and_the_sums_are_the_bill(turns: Any, assumed: bool) -> None:
    session = _session([history for history, _ in turns], [usage for _, usage in turns], assumed)
    made = itemised(session, PRICES)
    billed, stated = made.billed, sum((usage for _, usage in turns), Usage())
    assert billed.input == pytest.approx(stated.input_tokens)
    assert billed.new + billed.carried == pytest.approx(stated.input_tokens)
    assert (billed.read, billed.written) == (pytest.approx(stated.cache_read), pytest.approx(stated.cache_write))
    assert billed.output == pytest.approx(stated.output_tokens)
    assert billed.usd == pytest.approx(sum(PRICES.cost(usage, MODEL) or 0 for _, usage in turns))
    for turn in made.turns:
        assert sum(turn.by_kind.values()) == pytest.approx(turn.usage.input_tokens)
    assert _from_scratch(made) == [
        pytest.approx((item.billed.read, item.billed.written, item.billed.plain), abs=1e-6) for item in made.items
    ]


def _from_scratch(made: Itemised) -> list[tuple[float, float, float]]:
    """What each item was billed, every prompt gone through from its first token."""
    found = [[0.0, 0.0, 0.0] for _ in made.items]
    prompt: list[int] = []
    for turn in made.turns:
        prompt = prompt[: turn.kept] + turn.added
        at, read, written = turn.missing, turn.usage.cache_read or 0, turn.usage.cache_write or 0
        for place in prompt:
            end = at + made.items[place].tokens * turn.scale
            cuts = (0, read, read + written, float("inf"))
            for n in range(3):
                found[place][n] += max(0.0, min(end, cuts[n + 1]) - max(at, cuts[n]))
            at = end
    return [(read, written, plain) for read, written, plain in found]


def test_what_a_log_leaves_out_is_one_line_and_no_item() -> None:
    usages = [Usage(10_000, 20, cache_read=0, cache_write=9_990), Usage(10_500, 20, cache_read=9_990, cache_write=500)]
    made = itemised(_session([[1], [1, 2, 3]], usages, assumed=True), PRICES)
    missing = made.sources[MISSING]
    items = sum(item.billed.input for item in made.items)
    assert missing.input == pytest.approx(20_500 - items)
    assert missing.read > 9_000
    assert missing.new < 10_600
    assert items < 1_000


@pytest.mark.parametrize("name", bundled.bundled())
def test_a_bundled_session_is_billed_in_full_with_nothing_left_over(name: str) -> None:
    made = itemised(bundled.load_session(name))
    total = sum(turn.usage.input_tokens or 0 for turn in made.turns)
    assert made.billed.input == pytest.approx(total)
    assert made.sources.get(MISSING) is None or made.sources[MISSING].input <= 0.02 * total
    assert any(source.kind == "results" and source.name for source in made.sources)


@pytest.mark.parametrize(
    ("tool", "arguments", "label"),
    [
        ("Bash", {"command": "cd /srv && git log --oneline -5"}, "Bash: git log"),
        ("Bash", {"command": "FOO=1 sudo timeout 30 npm run build"}, "Bash: npm run"),
        ("shell", {"command": ["bash", "-lc", "rg -n needle src"]}, "shell: rg"),
        ("exec_command", '{"cmd": "python3 -m pytest -q"}', "exec_command: python -m pytest"),
        ("Bash", {"command": "/usr/bin/sed -n 1,9p a.py | head"}, "Bash: sed"),
        ("Bash", {"command": "$(secret words here)"}, "Bash"),
        ("Bash", {}, "Bash"),
        ("Read", {"file_path": "git log"}, "Read"),
        ("mcp__files__list", {}, "mcp__files__list"),
    ],
)
def test_a_shell_is_named_with_what_it_ran(tool: str, arguments: Any, label: str) -> None:
    assert tool_label(tool, arguments) == label


def test_texts_that_a_client_puts_in_are_not_the_users() -> None:
    reader = SourceReader("anthropic")
    reader.message({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "Read", "input": {}}]})
    memory = "<system-reminder>\nContents of /home/me/CLAUDE.md\n\nBe kind.</system-reminder>"
    pieces = [
        *reader.message({"role": "user", "content": f"Please fix it.{memory}"}),
        *reader.message({"role": "user", "content": "This session is being continued from a previous conversation …"}),
        *reader.message(
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": "x = 1\n<system-reminder>Mind.</system-reminder>",
                    }
                ],
            }
        ),
    ]
    assert [piece.source for piece in pieces] == [
        TokenSource("user"),
        TokenSource("memory", "memory files"),
        TokenSource("summary"),
        TokenSource("results", "Read"),
        TokenSource("memory", "reminders"),
    ]
    assert TokenSource("tools", "mcp__files__list").server == "files"


def test_a_picture_is_counted_by_its_size() -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (600).to_bytes(4) + (500).to_bytes(4) + b"\0" * 40
    raw = {"type": "image", "source": {"type": "base64", "data": base64.b64encode(png).decode()}}
    assert image_tokens(raw, "anthropic") == 400
    assert image_tokens(raw, "openai-chat") == 85 + 170 * 2
    assert image_tokens({"type": "image", "source": {"type": "url", "url": "https://x"}}, "anthropic") == 0
