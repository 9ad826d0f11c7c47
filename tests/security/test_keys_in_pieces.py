"""A provider that says a key in pieces: three characters an event, a token or a block, or all but its end.

Each reply goes through the record of a tap at every level, and through what a run keeps of it.
"""

from __future__ import annotations

import html
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar, web
from aiohttp.test_utils import TestServer
from hypothesis import given, strategies as st
from sqlalchemy import select

from context_bench.__main__ import main
from context_bench.agents.systems import parse_arm
from context_bench.agents.systems.agent import Agent
from context_bench.core.errors import SystemFailed
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.records import Forwarded
from context_bench.engine import open_store, open_watch, watched
from context_bench.engine.encoding import unpack
from context_bench.engine.store.schema import is_packed, metadata
from context_bench.llm.chat import ChatClient
from context_bench.llm.failures import not_json, of_status
from context_bench.llm.redact import MASK, redact, without_pieces, without_secrets
from context_bench.sandbox.supervision import Finished
from context_bench.session.runs import result_of
from context_bench.tap import Watch
from context_bench.tap.exchange import UNMATCHED, Exchange
from context_bench.tap.forwarded import POLICIES, RecordWriter
from context_bench.testing.hostile import MisbehavingProxy
from context_bench.traffic.sections.watch_board import line
from context_bench.viewer import Viewer
from context_bench.wire.apis import stream_reader
from context_bench.wire.turns import Turn

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


ASKED = json.dumps({"model": "m", "messages": [], "input": [], "stream": True})


def recorded(policy: str, wire: str, status: int, kind: str, reply: str, asked: str = ASKED) -> Forwarded:
    headers = [("Authorization", f"Bearer {HEADER}"), ("Content-Type", JSON)]
    seen = Exchange(1, "id", "POST", f"{PATHS[wire]}?sig={QUERY}", headers, UNMATCHED, 1.7e9, 100.0, finished=102.5)
    seen.status, seen.reply_headers = status, [("Content-Type", kind)]
    seen.body.add(101.0, asked.encode())
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


def called(*written: str) -> list[dict[str, Any]]:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": one}}
        for at, one in enumerate(written)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}]


def parts(kind: str = "text", name: str = "text") -> list[dict[str, Any]]:
    return [{"type": kind, name: piece} for piece in pieces(SAID)]


def user(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


def function(written: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": "f", "arguments": written}


LISTED = json.dumps({"a": pieces(SAID)})
#: Requests that repeat a key, as a client sends them that was told it before: by wire, with a name.
REQUESTS: list[tuple[str, str, dict[str, Any] | str]] = [
    ("openai-chat", "a text", user(SAID)),
    ("openai-chat", "parts of a text", user(parts())),
    ("openai-chat", "messages", {"messages": [{"role": "user", "content": piece} for piece in pieces(SAID)]}),
    ("openai-chat", "arguments", {"messages": called(json.dumps({"a": SAID}))}),
    ("openai-chat", "a list in arguments", {"messages": called(LISTED)}),
    ("openai-chat", "several calls", {"messages": called(*(json.dumps({"a": piece}) for piece in pieces(SAID)))}),
    ("openai-chat", "a tool", {"tools": [{"type": "function", "function": {"name": "f", "enum": pieces(SAID)}}]}),
    ("openai-chat", "names and ids", {"user": HEADER, "metadata": {QUERY: HEADER}, "stop": pieces(SAID)}),
    ("openai-chat", "all but its end", user(HALF)),
    ("openai-chat", "the events of a stream", user(f"It said:\n{texts('openai-chat', SAID)}")),
    ("openai-chat", "events as a body", "".join(f"data: {piece}\n\n" for piece in pieces(SAID))),
    ("openai-chat", "JSON that was cut off", json.dumps(user(HALF))[:-4]),
    ("anthropic", "blocks", user(parts())),
    ("anthropic", "a system of blocks", {"system": parts(), "messages": []}),
    ("anthropic", "thoughts", {"messages": [{"role": "assistant", "content": parts("thinking", "thinking")}]}),
    ("anthropic", "input", user([{"type": "tool_use", "id": "c", "name": "f", "input": {"b": pieces(SAID)}}])),
    ("anthropic", "a result", user([{"type": "tool_result", "tool_use_id": "c", "content": parts()}])),
    ("openai-responses", "parts", {"input": [{"role": "user", "content": parts("input_text")}]}),
    ("openai-responses", "instructions", {"input": SAID, "instructions": SAID}),
    ("openai-responses", "arguments", {"input": [function(LISTED)]}),
    ("openai-responses", "thoughts", {"input": [{"type": "reasoning", "summary": parts("summary_text")}]}),
    ("completions", "prompts", {"prompt": pieces(SAID)}),
    ("gemini", "parts", {"contents": [{"role": "user", "parts": parts()}]}),
]


@pytest.mark.parametrize("at", range(len(REQUESTS)), ids=[f"{wire} {name}" for wire, name, _ in REQUESTS])
def test_no_record_of_a_request_holds_one(at):
    wire, _, body = REQUESTS[at]
    sent = body if isinstance(body, str) else json.dumps({"model": "m", **body})
    assert found_in(sent), "the request says it"
    for policy in POLICIES:
        record = recorded(policy, wire, 200, JSON, "{}", sent)
        assert found_in(json.dumps(asdict(record), default=str)) == [], policy


def test_a_request_without_keys_is_recorded_as_it_came():
    wide = "{\n" * 100_000 + "[\ndata: a\n" * 3
    for body in (user([{"type": "text", "text": piece} for piece in pieces("Four and five.")]), user(wide)):
        calls = called('{"a": ["b",  "c"]}', "[1]", "{", "")
        sent = {"model": "m", **body, "tools": calls}
        assert recorded("full", "openai-chat", 200, JSON, "{}", json.dumps(sent)).request == sent


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


async def test_nothing_of_a_watch_holds_one(tmp_path, monkeypatch, capsys):
    """Its lines, its report in both forms, its pages and its store, where bodies are kept."""
    monkeypatch.chdir(tmp_path)
    spoken = [(name, wire) for name, wire in CASES if wire in THREE]
    asked = [(wire, body) for wire, _, body in REQUESTS if wire in THREE]
    shown: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        at = request.headers.get("X-At")
        if at is None:
            return web.json_response({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Four."}}]})
        name, wire = spoken[int(at)]
        _, status, kind, reply = REPLIES[name]
        return web.Response(body=reply(wire).encode(), status=status, headers={"Content-Type": kind})

    there = web.Application(client_max_size=2**24)
    there.router.add_post("/{rest:.*}", answer)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        back = int(probe.getsockname()[1])
    with open_store("s.db") as store:
        log = open_watch(store, {}, name="w")

        async def keep(turns: list[Turn]) -> None:
            log.write(turns, 0)
            shown.extend(map(line, turns))

        async with (
            TestServer(there) as server,
            MisbehavingProxy("nothing", f"http://127.0.0.1:{back}") as proxy,
            Watch(str(server.make_url("")), via=proxy.url, back=back, keep=keep, record="full") as watch,
            ClientSession(headers={"Authorization": f"Bearer {HEADER}", "Content-Type": JSON}) as session,
        ):
            for at, (_, wire) in enumerate(spoken):
                sent = json.dumps({"model": "m", "messages": [], "input": [], "stream": True, "user": str(at)})
                url = f"{watch.url}{PATHS[wire]}?sig={QUERY}"
                async with session.post(url, data=sent, headers={"X-At": str(at)}) as reply:
                    await reply.read()
            for wire, body in asked:
                sent = body if isinstance(body, str) else json.dumps({"model": "m", **body})
                async with session.post(f"{watch.url}{PATHS[wire]}?sig={QUERY}", data=sent) as reply:
                    await reply.read()
        log.end({})
        for table in metadata.sorted_tables:
            packed = [is_packed(column) for column in table.columns]
            with store.reading() as connection:
                rows = connection.execute(select(table)).all()
            shown += [
                str(unpack(cell) if packs and cell else cell)
                for row in rows
                for packs, cell in zip(packed, row, strict=True)
            ]
        turns = list(watched(store, "w", bodies=True))
    assert len(turns) >= len(spoken) + len(asked)
    shown += [json.dumps(asdict(turn), default=str) for turn in turns]
    for output in ("table", "json"):
        assert main(["watch", "--show", "w", "--store", "s.db", "--output", output]) == 0
    shown += [*capsys.readouterr()]
    async with (
        Viewer("s.db", result_of=result_of) as viewer,
        ClientSession(cookie_jar=CookieJar(unsafe=True)) as session,
    ):
        for place in ("", "/watch?name=w", *(f"/watch/turn?name=w&number={turn.number}" for turn in turns)):
            async with session.get(viewer.url if not place else f"{viewer.address}{place}") as page:
                assert page.status == 200
                shown.append(html.unescape(re.sub("<[^>]*>", "", await page.text())))
    assert sum("[masked]" in text for text in shown) > len(spoken) + len(asked)
    assert [found_in(text)[:1] for text in shown if found_in(text)] == []


def test_nothing_that_an_agent_prints_of_a_stream_holds_one(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", HEADER)
    agent = Agent("a", ["sh"], parse_arm(f"a=OTHER_API_KEY={QUERY}"))
    for wire in THREE:
        printed = f"Working.\n{texts(wire, SAID)}"
        assert found_in(printed)
        found = agent._without_pieces(Finished(1, printed, printed[200:], 1.0))
        assert found_in(found.stdout_tail + found.stderr_tail) == []
        assert found.stdout_tail.startswith("Working.\n")
