"""Causes of cache breaks: each made by a scripted session against the documented rules, and recognised."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.transcripts.cache_breaks import CAUSES, CacheReport, cache_breaks
from context_bench.transcripts.itemised import Itemised, itemised
from context_bench.transcripts.session import RecordedReply, Session, SessionRequest, reconstructed, verbatim

MODEL = "claude-sonnet-4-5"
Body = dict[str, Any]
MARK = {"type": "ephemeral"}


def _words(name: str, count: int = 700) -> str:
    return " ".join(f"{name}{n}" for n in range(count))


def _message(role: str, text: str) -> Body:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def _body(turns: int) -> Body:
    """The request of turn `turns`: what a client sends that only ever appends, with its marks."""
    messages = [_message("user", _words("task"))]
    for turn in range(turns):
        messages += [
            _message("assistant", _words(f"answer{turn}-", 300)),
            _message("user", _words(f"more{turn}-", 300)),
        ]
    messages[-1]["content"][-1]["cache_control"] = MARK
    return {
        "model": MODEL,
        "tools": [{"name": name, "description": _words(name, 90), "input_schema": {}} for name in ("Read", "Bash")],
        "system": [{"type": "text", "text": _words("rule"), "cache_control": MARK}],
        "messages": messages,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
    }


class Provider:
    """Bills by Anthropic's documented rules: whole marked prefixes, for five minutes, looked up 20 blocks back."""

    def __init__(self, count: Callable[[str], int] = lambda text: len(text.split()) * 2) -> None:
        self.count = count
        self.entries: dict[tuple[Any, ...], float] = {}
        self.evict = False

    def bill(self, body: Body, at: float) -> Usage:
        plain = copy.deepcopy(body)
        blocks: list[tuple[str, bool]] = [(repr(plain["tools"]), False)]
        blocks += [(block["text"], bool(block.pop("cache_control", None))) for block in plain["system"]]
        for message in plain["messages"]:
            blocks += [(block["text"], bool(block.pop("cache_control", None))) for block in message["content"]]
        tokens = [self.count(text) for text, _ in blocks]
        keys = [
            (body["model"], repr(body["thinking"]), *(text for text, _ in blocks[: n + 1])) for n in range(len(blocks))
        ]
        marks = [n for n, (_, marked) in enumerate(blocks) if marked]
        if self.evict:
            self.entries.clear()
        alive = [
            n
            for mark in marks
            for n in range(max(0, mark - 20), mark + 1)
            if at - self.entries.get(keys[n], -1e9) <= 300
        ]
        read = sum(tokens[: max(alive, default=-1) + 1])
        written = max(0, sum(tokens[: max(marks, default=-1) + 1]) - read)
        for mark in [*marks, *alive]:
            self.entries[keys[mark]] = at
        return Usage(sum(tokens), 300, cache_read=read, cache_write=written)


def _run(edit: Callable[[int, Body], float | None], turns: int = 6) -> Itemised:
    """A session of which `edit` changes the bodies; it gives the seconds that pass before a request (20)."""
    provider, at, requests = Provider(), 0.0, list[SessionRequest]()
    for turn in range(turns):
        body = _body(turn)
        at += edit(turn, body) or 20.0
        provider.evict = bool(body.pop("evict", False))
        usage = provider.bill(body, at)
        reply = RecordedReply("fine", usage=usage, model=MODEL, finish_reason="stop")
        requests.append(verbatim("anthropic", body, recorded_reply=reply, at=at))
    return itemised(Session("s", "here", "anthropic", requests, {}))


def _from(at: int, change: Callable[[Body], Any]) -> Callable[[int, Body], float | None]:
    """Change every body from this turn on, as a client does that goes on from there."""

    def edit(turn: int, body: Body) -> None:
        if turn >= at:
            change(body)

    return edit


def _idle(turn: int, body: Body) -> float | None:
    return 1_000.0 if turn == 3 else None


def _no_mark(body: Body) -> None:
    for block in [*body["system"], *(block for message in body["messages"] for block in message["content"])]:
        block.pop("cache_control", None)


def _many_blocks(turn: int, body: Body) -> None:
    if turn >= 3:
        del body["system"][0]["cache_control"]
        more = [{"type": "text", "text": f"part {n}"} for n in range(40)]
        body["messages"][5]["content"][:0] = more if turn == 3 else []
        if turn > 3:
            body["messages"][5]["content"][:0] = more


def _cleared(body: Body) -> None:
    body["messages"][1]["content"][0]["text"] = "[cleared]"


def _compacted(body: Body) -> None:
    summary = "This session is being continued from a previous conversation that ran out of context. " + _words(
        "sum", 90
    )
    body["messages"] = [_message("user", summary), *body["messages"][5:]]


SCRIPTS: dict[str, tuple[str, Callable[[int, Body], float | None]]] = {
    "idle for 1,000 s": ("expired", _idle),
    "a tool more": ("tools changed", _from(3, lambda b: b["tools"].append({"name": "New", "input_schema": {}}))),
    "tools in another order": ("tools changed", _from(3, lambda b: b["tools"].reverse())),
    "a date in the system prompt": (
        "system changed",
        _from(3, lambda b: b["system"][0].update(text="Today is Friday. " + b["system"][0]["text"])),
    ),
    "another model": ("model switched", _from(3, lambda b: b.update(model="claude-opus-4-5"))),
    "more thinking": ("settings changed", _from(3, lambda b: b["thinking"].update(budget_tokens=9000))),
    "an old result cleared": (
        "history edited",
        _from(3, _cleared),
    ),
    "the user went back": (
        "rewind",
        _from(3, lambda b: b["messages"].__setitem__(slice(2, None), [_message("user", _words("other", 300))])),
    ),
    "a compaction": ("compaction", _from(3, _compacted)),
    "no mark any more": ("mark moved", _from(3, _no_mark)),
    "40 blocks at once": ("mark moved", _many_blocks),
    "an eviction": ("unknown", lambda turn, body: body.update(evict=turn == 3)),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_cause_is_recognised(name: str) -> None:
    cause, edit = SCRIPTS[name]
    found = cache_breaks(_run(edit))
    assert [one.cause for one in found.breaks][:1] == [cause], found.breaks
    assert {one.turn for one in found.breaks if one.turn <= 3} == {3}
    first = found.breaks[0]
    assert first.lost > 1_000
    assert first.usd == pytest.approx(first.lost * 3.0 * (1.25 - 0.1) / 1e6)
    assert cause in CAUSES


def test_a_session_that_only_appends_has_no_break_and_is_served_as_predicted() -> None:
    found = cache_breaks(_run(lambda turn, body: None))
    assert found.breaks == []
    assert found.predicted == pytest.approx(found.stated, rel=0.1)  # the provider counts otherwise than we do


def test_a_resumed_conversation_is_a_break_of_its_first_request() -> None:
    body, provider = _body(4), Provider()
    reply = RecordedReply("fine", usage=provider.bill(body, 0.0), model=MODEL, finish_reason="stop")
    made = itemised(Session("s", "here", "anthropic", [verbatim("anthropic", body, recorded_reply=reply)], {}))
    assert [one.cause for one in cache_breaks(made).breaks] == ["resume"]


def _logged(body: Body) -> Body:
    """The body that can be made of a log that holds neither system prompt nor tools."""
    return {name: value for name, value in body.items() if name not in ("system", "tools")}


def test_a_change_of_what_a_log_does_not_hold_is_a_change_of_the_head() -> None:
    provider, requests = (
        Provider(counter_for(MODEL).count),
        list[SessionRequest](),
    )  # a log's scale is that of its texts
    for turn in range(6):
        body = _body(turn)
        if turn >= 3:
            body["system"][0]["text"] += " " + _words("skill", 400)
        reply = RecordedReply("fine", usage=provider.bill(body, turn * 20.0), model=MODEL, finish_reason="stop")
        logged = _logged(body)
        head = {name: value for name, value in logged.items() if name != "messages"}
        items = logged["messages"]
        made = reconstructed("anthropic", head, items, 0, len(items), recorded_reply=reply, at=turn * 20.0)
        requests.append(made)
    found = cache_breaks(itemised(Session("s", "here", "anthropic", requests, {})))
    assert [(one.turn, one.cause) for one in found.breaks] == [(3, "head changed")]


def test_each_cause_is_made_here_and_stands_in_the_guide() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "explain.md").read_text()
    table = guide.split("## Why the cache broke")[1].split("##")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    assert rows[2:] == list(CAUSES)
    made = {cause for cause, _ in SCRIPTS.values()} | {"resume", "proxy", "head changed"}
    assert made == set(CAUSES)


def test_a_change_that_the_client_did_not_make_is_the_proxys() -> None:
    edited = _run(_from(3, _cleared))
    sent = _run(lambda turn, body: None)
    assert [one.cause for one in cache_breaks(edited, sent).breaks] == ["proxy"]
    assert [one.cause for one in cache_breaks(edited, edited).breaks] == ["history edited"]


def test_the_bytes_of_a_changed_system_prompt_are_named_and_not_its_words() -> None:
    made = _run(_from(3, lambda b: b["system"][0].update(text=b["system"][0]["text"].replace("rule350 ", "RULE "))))
    [found] = cache_breaks(made).breaks
    start = _words("rule").index("rule350 ")
    assert found.detail == f"bytes {start:,} to {start + 7:,} of {len(_words('rule')):,} became 4 bytes"


def test_an_hour_would_have_spared_a_pause_and_cost_dearer_writes() -> None:
    found = cache_breaks(_run(_idle))
    assert found.hour_saves == pytest.approx(found.breaks[0].usd)
    written = sum(turn.usage.cache_write or 0 for turn in _run(_idle).turns)
    assert found.hour_costs == pytest.approx(written * 3.0 * 0.75 / 1e6)
    long = cache_breaks(_run(lambda turn, body: 9_000.0 if turn == 3 else None))
    assert [one.cause for one in long.breaks] == ["expired"]
    assert long.hour_saves == 0


def test_causes_are_summed_up_the_dearest_first() -> None:
    whole = CacheReport()
    for name in ("a tool more", "idle for 1,000 s", "tools in another order"):
        whole += cache_breaks(_run(SCRIPTS[name][1]))
    rows = whole.by_cause()
    assert rows["tools changed"]["breaks"] == 2
    assert list(rows) == sorted(rows, key=lambda cause: -rows[cause]["usd"])
