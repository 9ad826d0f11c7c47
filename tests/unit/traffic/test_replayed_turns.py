"""Prompt tokens request by request: what the rules predict, and what replies told."""

from __future__ import annotations

from context_bench.core.records import Result
from context_bench.reports import build_page
from context_bench.reports.page import TurnBar
from context_bench.traffic.metrics.replayed import CacheRules, SystemFigures
from context_bench.wire.cache import CacheProfile

PROFILE = CacheProfile(mode="automatic", m=1, b=1, r=0.1, w=1.0, p_in=1.0, p_out=1.0)


def item(number, texts, usage):
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text} for text in texts]}
    record = {"wire": "openai-chat", "request": body, "status": 200, "usage": usage, "tokens": 10, "exact": True}
    row = {"example_id": number, "group": "s", "trial": 0, "errors": {}}
    example = {"request": {"wire": "openai-chat"}, "at": float(number)}
    return {
        "row": row,
        "example": example,
        "output": {},
        "calls": [{"account": "system", "request": body}],
        "forwarded": [record],
    }


def figures(*usages):
    found = SystemFigures(lambda _, hour: CacheRules(PROFILE))
    texts = [f"message {number} " * 30 for number in range(len(usages))]
    for number, usage in enumerate(usages):
        found.add(item(number, texts[: number + 1], usage))
    return found.as_dict()


def page_of(facts):
    replay = {"level": 0, "systems": {"mine": facts}, "cache_rules": {"date": "2026-01-01", "models": {}}}
    page = build_page(Result(rows=[], summary={"mine": {}}, replay=replay))
    return next(chart for section in page.sections for chart in section.charts if chart.kind == "waterfall")


def test_what_replies_told_is_taken_where_all_do():
    told = {"input_tokens": 1000, "cache_read": 0}, {"input_tokens": 2000, "cache_read": 600}
    facts = figures(*told)
    assert [sum(each[1:]) for each in facts["by_turn_told"]] == [1000, 2000]
    assert [each[1] for each in facts["by_turn_told"]] == [0, 600]
    turns = {(turn.name, turn.first): turn for turn in page_of(facts).of(TurnBar)}
    assert turns["mine, as replies told", 2].cached == 600
    assert turns["as sent", 2].cached > 0, "by the rules"
    assert turns["as sent", 2].cached + turns["as sent", 2].new < 1000, "in our own count"


def test_where_some_replies_are_silent_all_bars_are_by_the_rules():
    facts = figures({"input_tokens": 1000, "cache_read": 0}, {"input_tokens": 2000})
    assert [each[0] for each in facts["by_turn_told"]] == [1]
    assert {turn.name for turn in page_of(facts).of(TurnBar)} == {"as sent", "mine"}
    assert "by_turn_told" not in figures({}, {})


def test_parts_of_a_prompt_never_exceed_it():
    facts = figures({"input_tokens": 10, "cache_read": 50}, {"input_tokens": 0, "cache_read": 0})
    assert facts["by_turn_told"] == [[1, 50, 0, 0]]


def test_replies_are_compared_with_what_the_tap_kept_of_them():
    call = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": '{"command": "ls"}'}}
    message = {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
    kept = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    kept["usage"] = {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 64}}
    usage = {"input_tokens": 100, "output_tokens": 9, "cache_read": 64}
    called = [{"id": "call_1", "name": "run", "arguments": '{"command":"ls"}'}]
    whole = {"response": "Let me look.", "tool_calls": called, "finish_reason": "tool_calls"}

    def kinds(output, usage=usage, facts=None):
        found = SystemFigures(lambda _, hour: CacheRules(PROFILE))
        one = item(0, ["list the files"], {})
        one["output"], one["calls"][0]["usage"] = output, usage
        one["forwarded"][0] |= {"reply": kept, "facts": facts or {}}
        found.add(one)
        return {kind: counts["times"] for kind, counts in found.as_dict()["violations"].items()}

    assert kinds(whole) == {}
    assert kinds({**whole, "tool_calls": []}) == {"tool_call_lost": 1}
    assert kinds({**whole, "finish_reason": "stop"}) == {"finish_reason_changed": 1}
    assert kinds({**whole, "response": "Let me"}) == {"reply_text_changed": 1}
    assert kinds(whole, {**usage, "cache_read": None}) == {"reply_usage_lost": 1}
    assert kinds({**whole, "reply_faults": ["stream_index_wrong"]}) == {"stream_index_wrong": 1}
    assert (
        kinds({**whole, "reply_faults": ["stream_index_wrong"]}, facts={"reply_faults": ["stream_index_wrong"]}) == {}
    )
