"""A provider that says a key in pieces: three characters an event, a token or a block, or all but its end.

Each reply goes through the record of a tap at every level, and through what a run keeps of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, strategies as st

from context_bench.core.errors import SystemFailed
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.records import Forwarded
from context_bench.llm.chat import ChatClient
from context_bench.llm.failures import not_json, of_status
from context_bench.llm.redact import MASK, redact, without_pieces, without_secrets
from context_bench.tap.exchange import UNMATCHED, Exchange
from context_bench.tap.forwarded import POLICIES, RecordWriter
from context_bench.wire.apis import stream_reader

HEADER, QUERY = "q7w2kx9m4dz8r5t3bn6v1hjg0c", "zt5x8kq1w9r2m7bd4n6v3hjg0p"
SAID = f"The key is {HEADER} and {QUERY}"
HALF = SAID[:-8]
PATHS = {
    "openai-chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai-responses": "/v1/responses",
    "completions": "/v1/completions",
    "gemini": "/v1beta/models/g:streamGenerateContent",
}
STREAM, JSON = "text/event-stream", "application/json"


def pieces(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


def event(name: str = "", **body: Any) -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(body)}\n\n"


def chat(*deltas: dict[str, Any], finish: str = "stop") -> str:
    chosen = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chosen.append({"index": 0, "delta": {}, "finish_reason": finish})
    events = [event(id="c", object="chat.completion.chunk", model="m", choices=[one]) for one in chosen]
    return "".join(events) + "data: [DONE]\n\n"


def anthropic(*blocks: tuple[dict[str, Any], str, str], stop: str = "end_turn") -> str:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    message["usage"] = {"input_tokens": 1, "output_tokens": 1}
    told = [event("message_start", type="message_start", message=message)]
    for index, (start, field, text) in enumerate(blocks):
        told.append(event("content_block_start", type="content_block_start", index=index, content_block=start))
        kind = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}[field]
        for piece in pieces(text):
            delta = {"type": kind, field: piece}
            told.append(event("content_block_delta", type="content_block_delta", index=index, delta=delta))
        told.append(event("content_block_stop", type="content_block_stop", index=index))
    delta = {"stop_reason": stop, "stop_sequence": None}
    told.append(event("message_delta", type="message_delta", delta=delta, usage={"output_tokens": 2}))
    return "".join(told) + event("message_stop", type="message_stop")


def responses(kind: str, text: str, status: str = "completed") -> str:
    item: dict[str, Any] = {
        "text": {"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": []},
        "arguments": {"type": "function_call", "id": "i", "call_id": "c", "name": "f", "arguments": ""},
        "reasoning": {"type": "reasoning", "id": "i", "summary": []},
    }[kind]
    name, at = {
        "text": ("response.output_text.delta", {"content_index": 0}),
        "arguments": ("response.function_call_arguments.delta", {}),
        "reasoning": ("response.reasoning_summary_text.delta", {"summary_index": 0}),
    }[kind]
    whole = {
        "text": {**item, "content": [{"type": "output_text", "text": text, "annotations": []}]},
        "arguments": {**item, "arguments": text},
        "reasoning": {**item, "summary": [{"type": "summary_text", "text": text}]},
    }[kind]
    response = {"id": "r", "object": "response", "status": "in_progress", "model": "m", "output": []}
    told = [event("response.created", type="response.created", response=response)]
    told.append(event(type="response.output_item.added", output_index=0, item=item))
    told += [event(name, type=name, item_id="i", output_index=0, delta=piece, **at) for piece in pieces(text)]
    told.append(event(type="response.output_item.done", output_index=0, item=whole))
    return "".join(told) + event(type="response.completed", response={**response, "status": status, "output": [whole]})


def texts(wire: str, text: str, *, ended: bool = True) -> str:
    if wire == "anthropic":
        return anthropic(({"type": "text", "text": ""}, "text", text), stop="end_turn" if ended else "max_tokens")
    if wire == "openai-responses":
        return responses("text", text, "completed" if ended else "incomplete")
    if wire == "completions":
        return "".join(event(choices=[{"index": 0, "text": piece}]) for piece in pieces(text))
    if wire == "gemini":
        said = [{"content": {"parts": [{"text": piece}], "role": "model"}} for piece in pieces(text)]
        return "".join(event(candidates=[one]) for one in said)
    return chat(*({"content": piece} for piece in pieces(text)), finish="stop" if ended else "length")


def arguments(wire: str) -> str:
    text = json.dumps({"a": SAID})
    if wire == "anthropic":
        return anthropic(({"type": "tool_use", "id": "c", "name": "f", "input": {}}, "partial_json", text))
    if wire == "openai-responses":
        return responses("arguments", text)
    first = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    calls = [first, *({"index": 0, "function": {"arguments": piece}} for piece in pieces(text))]
    return chat(*({"tool_calls": [call]} for call in calls), finish="tool_calls")


def reasoning(wire: str) -> str:
    if wire == "anthropic":
        return anthropic(({"type": "thinking", "thinking": ""}, "thinking", SAID))
    if wire == "openai-responses":
        return responses("reasoning", SAID)
    return chat(*({"reasoning_content": piece} for piece in pieces(SAID)), {"content": "Four."})


def log_probabilities(text: str) -> list[dict[str, Any]]:
    return [
        {"token": one, "logprob": -0.1, "bytes": list(one.encode()), "top_logprobs": [{"token": one}, {"token": "x"}]}
        for one in pieces(text)
    ]


def chosen(**more: Any) -> str:
    message = {"role": "assistant", "content": SAID}
    return json.dumps({"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop", **more}]})


def blocks(_: str) -> str:
    content = [{"type": "text", "text": text} for text in pieces(SAID)]
    return json.dumps({"type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": "end"})


THREE = tuple(PATHS)[:3]
#: By name: the wires, the status, the type that the reply is said to have, and the reply.
REPLIES: dict[str, tuple[tuple[str, ...], int, str, Callable[[str], str]]] = {
    "text": (tuple(PATHS), 200, STREAM, lambda wire: texts(wire, SAID)),
    "untyped": (tuple(PATHS), 200, JSON, lambda wire: texts(wire, SAID)),
    "refused": (tuple(PATHS), 400, STREAM, lambda wire: texts(wire, SAID)),
    "after the end": (THREE, 200, STREAM, lambda wire: texts(wire, "Four.") + texts(wire, SAID)),
    "no JSON": (tuple(PATHS), 200, JSON, lambda _: "".join(f"data: {piece}\n\n" for piece in pieces(SAID))),
    "lines": (tuple(PATHS), 200, JSON, lambda wire: re.sub("(event: .*\n)?data: ", "", texts(wire, SAID))),
    "arguments": (THREE, 200, STREAM, arguments),
    "reasoning": (THREE, 200, STREAM, reasoning),
    "refusal": (THREE[:1], 200, STREAM, lambda _: chat(*({"refusal": piece} for piece in pieces(SAID)))),
    "half": (THREE, 200, STREAM, lambda wire: texts(wire, HALF, ended=False)),
    "half untyped": (tuple(PATHS), 200, JSON, lambda wire: texts(wire, HALF, ended=False)),
    "blocks": (("anthropic",), 200, JSON, blocks),
    "tokens": (THREE[:1], 200, JSON, lambda _: chosen(logprobs={"content": log_probabilities(SAID)})),
    "older tokens": (THREE[:1], 200, JSON, lambda _: chosen(logprobs={"tokens": pieces(SAID)})),
    "half in JSON": (THREE[:1], 200, JSON, lambda _: chosen().replace(SAID, HALF)),
}
CASES = [(name, wire) for name, (wires, *_) in REPLIES.items() for wire in wires]


def found_in(text: str) -> list[str]:
    """Pieces of the keys that are in `text`: eight characters in a row, or three times three in order with no more
    between than an event takes.
    """
    found = []
    for key in (HEADER, QUERY):
        found += [key[at : at + 8] for at in range(len(key) - 7) if key[at : at + 8] in text][:1]
        for begin in range(3):
            threes = pieces(key[begin:])[:-1]
            for at in range(len(threes) - 3):
                said = ".{0,400}?".join(map(re.escape, threes[at : at + 4]))
                found += [said] if re.search(said, text, re.DOTALL) else []
    return found


def recorded(policy: str, wire: str, status: int, kind: str, reply: str) -> Forwarded:
    headers = [("Authorization", f"Bearer {HEADER}"), ("Content-Type", JSON)]
    seen = Exchange(1, "id", "POST", f"{PATHS[wire]}?sig={QUERY}", headers, UNMATCHED, 1.7e9, 100.0, finished=102.5)
    seen.status, seen.reply_headers = status, [("Content-Type", kind)]
    seen.body.add(101.0, json.dumps({"model": "m", "messages": [], "input": [], "stream": True}).encode())
    for at, piece in enumerate(reply[begin : begin + 7] for begin in range(0, len(reply), 7)):
        seen.reply.add(101.0 + at / 1000, piece.encode())
    return RecordWriter(policy).write(seen)


@pytest.mark.parametrize(("name", "wire"), CASES)
def test_no_record_holds_a_key_that_was_said_in_pieces(name, wire):
    _, status, kind, reply = REPLIES[name]
    assert found_in(reply(wire)), "the reply says it"
    for policy in POLICIES:
        record = recorded(policy, wire, status, kind, reply(wire))
        assert found_in(json.dumps(asdict(record), default=str)) == [], policy
        assert "unread" not in record.facts


@pytest.mark.parametrize("name", ["untyped", "lines", "refused"])
def test_what_was_said_besides_stays_in_the_record(name):
    _, status, kind, reply = REPLIES[name]
    record = recorded("full", "gemini", status, kind, reply("gemini"))
    said = re.sub(r'.*?"text": ?"([^"]*)"', r"\1", str(record.reply), flags=re.DOTALL)
    assert said.startswith("The key is [masked] and [masked]")
    assert str(record.reply).count("candidates") == len(pieces(SAID))


def test_a_reply_without_keys_is_recorded_as_it_came():
    tokens = chosen(logprobs={"content": log_probabilities("Four and five.")}).replace(SAID, "Four and five.")
    for kind, reply in ((JSON, tokens), (JSON, texts("gemini", "Two and two are four."))):
        record = recorded("full", "openai-chat", 200, kind, reply)
        assert record.reply == (json.loads(reply) if reply.startswith("{") else reply)


@pytest.mark.parametrize("wire", THREE)
@pytest.mark.parametrize("name", ["text", "arguments", "reasoning", "refusal", "half", "after the end"])
def test_no_reply_of_a_run_holds_one(name, wire):
    wires, _, _, reply = REPLIES[name]
    if wire not in wires:
        wire = wires[0]
    reader = stream_reader(wire)
    for begin in range(0, len(said := reply(wire).encode()), 7):
        reader.feed(said[begin : begin + 7])
    reader.close()
    assert found_in(json.dumps(asdict(without_secrets(reader.reply, [HEADER, QUERY])))) == []


@pytest.mark.parametrize("name", ["half", "broken", "refusal", "after the end", "call"])
async def test_no_record_of_a_call_and_no_error_of_it_holds_one(name):
    call = {"index": 0, "id": HEADER, "type": "function", "function": {"name": QUERY, "arguments": "{}"}}
    said = {"broken": texts("openai-chat", HALF)[:-250], "call": chat({"tool_calls": [call]})}
    body = said.get(name) or REPLIES[name][3]("openai-chat")

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body.encode(), headers={"Content-Type": STREAM})

    there = web.Application()
    there.router.add_post("/v1/chat/completions", answer)
    async with (
        TestServer(there) as server,
        ChatClient(f"{server.make_url('/v1')}?sig={QUERY}", api_key=HEADER, max_retries=0) as client,
    ):
        with open_ledger(ledger := Ledger()):
            try:
                told = json.dumps(asdict(await client.chat("m", [{"role": "user", "content": "Hi."}], stream=True)))
            except SystemFailed as error:
                told = str(error)
    assert len(ledger.calls) >= 1
    assert found_in(told + json.dumps([asdict(one) for one in ledger.calls], default=str)) == []


@pytest.mark.parametrize("wire", PATHS)
def test_no_failure_quotes_one(wire):
    body, secrets = texts(wire, SAID).encode(), [HEADER, QUERY]
    refused = of_status(400, {}, body, where="there", now=0.0, secrets=secrets)
    odd = not_json(body, JSON, where="there", secrets=secrets)
    for failure in (refused, odd):
        assert found_in(f"{failure.error} {failure.body}") == []
    assert MASK in f"{refused.error} {refused.body}"


def test_texts_of_two_choices_are_not_put_together():
    said = {
        "choices": [{"index": at, "message": {"content": half}} for at, half in enumerate((QUERY[:13], QUERY[13:]))]
    }
    assert without_pieces(said, lambda text: redact(text, [QUERY])) == said


def test_more_texts_than_can_be_searched_are_not_kept():
    for value in ([""] * 200_001, "data: {}\n\n" * 100_001, [[]] * 200_001):
        assert str(without_pieces(value, str)).startswith("(not kept: ")
    assert str(without_pieces("[" * 900 + "]" * 900 + "\n{}\n{}", str)).startswith(("(not kept: ", "[["))


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)


@given(
    st.recursive(
        st.text(max_size=4) | st.none() | st.integers() | st.booleans(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(("index", "a", "b")), inner),
        max_leaves=20,
    ),
    st.lists(st.integers(1, 5), min_size=1, max_size=12),
)
def test_any_value_stays_and_any_cut_of_a_key_is_found(value, sizes):
    def clean(text: str) -> str:
        return text.replace(QUERY, MASK)

    assert without_pieces(value, clean) == value
    parts, rest = [], QUERY
    for size in sizes:
        parts, rest = [*parts, rest[:size]], rest[size:]
    spelled = [{"value": value, "said": part} for part in (*parts, rest)]
    left = without_pieces(spelled, clean)
    assert [one["said"] for one in left] == [MASK, *("" for _ in parts)]
    assert "".join(leaves([one["value"] for one in left])) == "".join(leaves([value] * len(spelled)))
