"""What caches would make of prompts: by session and model, marks followed, texts bounded."""

import datetime
import random

import pytest

from context_bench.core.tokens import counter_for
from context_bench.llm.prices import GenaiPrices, profile_for
from context_bench.traffic.watch.measure import CacheForecast
from context_bench.wire.apis import parse_request
from context_bench.wire.cache import Prompts, marks, segments, session_cache

PRICES = GenaiPrices(on=datetime.date(2026, 11, 1))
MARK = {"cache_control": {"type": "ephemeral"}}


def chat(*texts, model="gpt-4o"):
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(texts)]
    return parse_request("openai-chat", {"model": model, "messages": messages})


def claude(*texts, marked=(), **more):
    content = [{"type": "text", "text": text, **(MARK if i in marked else {})} for i, text in enumerate(texts)]
    return parse_request(
        "anthropic", {"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": content}], **more}
    )


def test_marks_are_found_where_the_segments_end():
    tools = [{"name": "read", "input_schema": {}}, {"name": "run", "input_schema": {}, **MARK}]
    system = [{"type": "text", "text": "rules"}, {"type": "text", "text": "more", **MARK}]
    request = claude("a", "b", "c", marked=(1,), tools=tools, system=system)
    assert marks(request) == [1, 3, 5]
    assert len(segments(request)) == 6
    assert marks(claude("a", "b")) == []
    assert marks(claude("a", "b", cache_control={"type": "ephemeral"})) == [2]
    assert marks(claude("a", "b", marked=(1,), cache_control={"type": "ephemeral"})) == [2]


def test_request_by_request_it_is_the_arithmetic_of_the_whole_session():
    words, forecast, prompts = "harbour " * 1200, CacheForecast(PRICES), Prompts(counter_for("gpt-4o").count)
    texts = [
        [words],
        [words, "yes", words],
        [words, "yes", "other " * 900],
        [words, "yes", words, "no", words],
        ["short"],
    ]
    found = [forecast.add("s", chat(*some), at=float(i)) for i, some in enumerate(texts)]
    for some in texts:
        prompts.add(segments(chat(*some)))
    whole = session_cache(prompts.lengths, prompts.shared, [0] * len(texts), profile_for("gpt-4o", PRICES))
    assert [one.read for one in found] == whole.cached_per_request
    assert whole.cached_per_request[1:4] == [1152, 1152, 2304]
    assert sum(one.cost for one in found) == pytest.approx(whole.cost_usd)


def test_sessions_and_models_do_not_share_a_cache():
    forecast, words = CacheForecast(PRICES), "harbour " * 2000
    assert forecast.add("a", chat(words), 0.0).read == 0
    assert forecast.add("b", chat(words), 0.0).read == 0
    assert forecast.add("a", chat(words, model="gpt-4o-mini"), 0.0).read == 0
    assert forecast.add("a", chat(words), 0.0).read > 1024


def test_only_what_is_marked_is_stored_by_anthropic_and_only_for_its_time():
    forecast, head = CacheForecast(PRICES), "harbour rules " * 2000
    stored = forecast.add("s", claude(head, "one", marked=(0,)), 0.0)
    assert stored.read == 0
    assert stored.written > 3000
    assert forecast.add("s", claude(head, "two", marked=(0,)), 299.0).read == stored.written
    assert forecast.add("s", claude(head, "two"), 300.0).read == 0
    late = forecast.add("s", claude(head, "three", marked=(0,)), 1_000.0)
    assert (late.read, late.written) == (0, stored.written)


def test_without_a_price_there_is_no_money_but_there_are_tokens():
    forecast = CacheForecast(None)
    forecast.add("s", chat("harbour " * 2000), 0.0)
    found = forecast.add("s", chat("harbour " * 2000), 0.0)
    assert found.read > 1024
    assert found.cost is None


def test_the_oldest_sessions_go_when_there_is_no_more_room():
    forecast, words = CacheForecast(PRICES, room=40_000), random.Random(0).randbytes(16_000).hex()
    for session in ("a", "b", "c"):
        forecast.add(session, chat(words + session), 0.0)
    assert forecast.add("c", chat(words + "c"), 0.0).read > 1024
    assert forecast.add("a", chat(words + "a"), 0.0).read == 0
