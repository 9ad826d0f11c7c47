"""Every kind of violation, committed by a real proxy on loopback, and beside it a proxy that comes close and does not
commit it.
"""

import base64
import copy
import json

import aiohttp
import pytest

from context_bench.core.tokens import counter_for
from context_bench.llm.scripted import Scripted
from context_bench.llm.servers import ModelServer
from context_bench.llm.shapes import SHAPES, build
from context_bench.testing.hostile import MisbehavingProxy, Rewriting, in_body
from context_bench.wire.request import count_request
from context_bench.wire.violations import KINDS, RULES, compare_requests, repeated_requests, silent_truncation

PIXELS, OTHERS = (base64.b64encode(bytes(range(i, i + 60))).decode() for i in (0, 9))
CONTEXT = "\n\n".join(f"Part {i} of the manual says that valve {i} opens at {i + 50} degrees." for i in range(12))
EXAMPLE = {"id": 1, "context": CONTEXT, "question": "When does valve 3 open?"}


def shaped(shape):
    """A request as that client sends it, with the things in it that a proxy could harm."""
    request = build(shape, EXAMPLE, "gpt-5-mini", system_prompt="Answer in one word.")
    body = request.body = copy.deepcopy(request.body)
    if shape == "claude-code":
        thought = {"type": "thinking", "thinking": "The manual has it.", "signature": "c2lnbmVk"}
        searched = [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "valves"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [{"type": "web_search_result", "url": "https://a.example"}],
            },
        ]
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXELS}}
        task, read, _ = body["messages"]
        task["content"].insert(0, picture)
        early = [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": [dict(thought), *searched, {"type": "text", "text": "Hi."}]},
        ]
        read["content"].insert(0, {**thought, "signature": "YW5vdGhlcg=="})
        body["messages"][:0] = early
        body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
        body["tool_choice"] = {"type": "auto"}
        body["messages"][-1]["content"][0]["is_error"] = True
    elif shape == "codex":
        body["input"].insert(-2, {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA1"})
        body["input"].insert(
            0,
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{PIXELS}"}],
            },
        )
        body["previous_response_id"] = "resp_1"
        body["text"] = {"format": {"type": "json_object"}}
        request.headers["OpenAI-Beta"] = "responses=experimental"
    elif shape == "openai-agent":
        body["response_format"] = {"type": "json_object"}
        body["temperature"] = 0.2
        body["messages"].insert(1, {"role": "user", "content": "Be quick.\n\nAnd right."})
    return request


async def through(proxy, request, model):
    async with proxy, aiohttp.ClientSession() as session:
        data = json.dumps(request.body, ensure_ascii=False).encode()
        async with session.post(proxy.url + request.path, data=data, headers=request.headers) as reply:
            await reply.read()
    return data, list(model.requests)


def found(request, data, received):
    return compare_requests(
        request.parsed(),
        received.request,
        sent_headers=request.headers,
        received_headers=received.headers,
        sent_raw=data,
        received_raw=received.raw,
    )


def kinds(violations):
    return {violation.kind for violation in violations}


# What proxies do to bodies
# ------------------------------------------------------------------------


def each(body, role, change):
    for message in body["messages"]:
        if message["role"] == role:
            change(message)


def text_of(message, change):
    if isinstance(message["content"], str):
        message["content"] = change(message["content"])
    else:
        message["content"][-1]["text"] = change(message["content"][-1]["text"])


def swapped(body):
    """The results of two calls change places."""
    one, other = (message for message in body["messages"] if message["role"] == "tool")
    one["content"], other["content"] = other["content"], one["content"]


def set_role(role, other):
    return lambda body: each(body, role, lambda message: message.update(role=other))


def at(*path):
    """A function of the body that gives what stands at a path."""

    def get(body):
        for step in path:
            body = body[step]
        return body

    return get


def put(path, value):
    return lambda body: at(*path[:-1])(body).__setitem__(path[-1], value)


def drop(*path):
    return lambda body: at(*path[:-1])(body).__delitem__(path[-1])


def move(source, target, name):
    return lambda body: target(body).__setitem__(name, source(body).pop(name))


def both(*edits):
    def edit(body):
        for one in edits:
            one(body)

    return edit


def shorter(text):
    """What compressors do: the middle of the context is left out, the question stays."""
    context, cut, question = text.rpartition("\n\n")
    return context[: len(context) // 3] + cut + question


def reversed_keys(value):
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def rewritten_keys(body):
    turned = reversed_keys(body)
    body.clear()
    body.update(turned)


def without_header(name, value=None):
    def function(request):
        headers = request.headers.copy()
        headers.popall(name)
        if value is not None:
            headers[name] = value
        return request.with_headers(headers)

    return function


MESSAGES, ITEMS = ("messages",), ("input",)
CALL = ("messages", 3, "tool_calls", 0, "function")
TOOL = ("tools", 0, "function")
READ, RESULT, TASK = (
    ("messages", 3, "content"),
    ("messages", 4, "content", 0),
    ("messages", 2, "content"),
)  # of claude-code
ARGUMENTS = '{"folder":"docs"}'

#: kind, shape, what commits it, what comes close
CASES = [
    ("system_role_lost", "plain-system", set_role("system", "user"), set_role("system", "developer")),
    (
        "system_role_lost",
        "openai-agent",
        drop("messages", 0),
        lambda body: text_of(body["messages"][0], lambda text: text[:40]),
    ),
    (
        "system_role_lost",
        "claude-code",
        lambda body: body["messages"].insert(0, {"role": "user", "content": body.pop("system")}),
        lambda body: body.update(system="\n".join(block["text"] for block in body["system"])),
    ),
    ("assistant_role_changed", "openai-agent", set_role("assistant", "user"), put((*MESSAGES, 3, "content"), "")),
    (
        "role_changed",
        "tool-result",
        set_role("tool", "user"),
        lambda body: each(body, "tool", lambda m: text_of(m, shorter)),
    ),
    (
        "last_user_changed",
        "plain-user",
        lambda body: text_of(body["messages"][-1], lambda t: t.replace("open", "close")),
        lambda body: text_of(body["messages"][-1], shorter),
    ),
    (
        "last_user_changed",
        "plain-system",
        drop("messages", -1),
        lambda body: body["messages"][-1].update(content=[{"type": "text", "text": EXAMPLE["question"]}]),
    ),
    (
        "order_changed",
        "openai-agent",
        lambda body: body["messages"].__setitem__(slice(4, 6), body["messages"][5:3:-1]),
        lambda body: body["messages"].pop(1),
    ),
    (
        "order_changed",
        "codex",
        lambda body: body["tools"].reverse(),
        lambda body: body["tools"][0].update(description="Run it."),
    ),
    ("orphan_tool_result", "tool-result", drop("messages", 2), lambda body: body["messages"].__delitem__(slice(2, 4))),
    (
        "orphan_tool_result",
        "codex",
        lambda body: body["input"].pop(-2),
        lambda body: body["input"].__delitem__(slice(-3, None)),
    ),
    ("unanswered_tool_call", "openai-agent", drop("messages", 4), put((*MESSAGES, 4, "content"), "…")),
    ("unanswered_tool_call", "claude-code", drop("messages", 4), put((*RESULT, "content"), "…")),
    (
        "tool_arguments_changed",
        "openai-agent",
        put((*CALL, "arguments"), '{"folder": "src"}'),
        put((*CALL, "arguments"), '{ "folder" : "docs" }'),
    ),
    (
        "tool_arguments_changed",
        "claude-code",
        put((*READ, 2, "input", "file_path"), "/etc"),
        lambda body: rewritten_keys(at(*READ, 2)(body)),
    ),
    ("tool_arguments_changed", "codex", put((*ITEMS, -2, "name"), "bash"), put((*ITEMS, -1, "output"), "[cut]")),
    (
        "tool_added",
        "codex",
        lambda body: body["tools"].append({**body["tools"][0], "name": "retrieve"}),
        put(("tools", 0, "description"), "Run it."),
    ),
    ("tool_removed", "claude-code", lambda body: body["tools"].pop(), put(("tools", 0, "description"), "Run.")),
    (
        "tool_meaning_changed",
        "openai-agent",
        drop(*TOOL, "parameters", "required"),
        put((*TOOL, "description"), "Read it."),
    ),
    (
        "tool_meaning_changed",
        "claude-code",
        drop("tools", 0, "input_schema", "properties", "description"),
        lambda body: at("tools", 1, "input_schema", "properties", "limit")(body).update(description="lines"),
    ),
    (
        "tool_annotation_changed",
        "claude-code",
        put(("tools", 0, "input_schema", "$schema"), "https://json-schema.org/draft/2020-12/schema"),
        lambda body: rewritten_keys(body["tools"][0]),
    ),
    ("tool_annotation_changed", "openai-agent", drop(*TOOL, "description"), put((*TOOL, "title"), None)),
    ("tool_choice_changed", "openai-agent", put(("tool_choice",), "required"), drop("tool_choice")),
    (
        "tool_choice_changed",
        "claude-code",
        put(("tool_choice",), {"type": "tool", "name": "Read"}),
        put(("tool_choice",), {"type": "auto"}),
    ),
    ("params_changed", "openai-agent", put(("temperature",), 0.0), put(("temperature",), 0.2)),
    (
        "params_changed",
        "codex",
        drop("prompt_cache_key"),
        lambda body: body["reasoning"].update(dict(reversed(body["reasoning"].items()))),
    ),
    ("params_changed", "claude-code", put(("model",), "cheaper"), put(("max_tokens",), 8192)),
    (
        "response_format_changed",
        "openai-agent",
        drop("response_format"),
        put(("response_format",), {"type": "json_object"}),
    ),
    (
        "response_format_changed",
        "codex",
        put(("text",), {"format": {"type": "text"}}),
        put(("text", "format"), {"type": "json_object"}),
    ),
    ("cache_control_lost", "claude-code", drop(*RESULT, "cache_control"), put((*RESULT, "content"), "short")),
    (
        "cache_control_moved",
        "claude-code",
        move(at(*RESULT), at(*READ, 1), "cache_control"),
        put((*RESULT, "content"), [{"type": "text", "text": "short"}]),
    ),
    (
        "cache_control_added",
        "claude-code",
        put((*READ, 1, "cache_control"), {"type": "ephemeral"}),
        put((*READ, 1, "text"), "I will."),
    ),
    (
        "cache_control_ttl_changed",
        "claude-code",
        put((*RESULT, "cache_control", "ttl"), "1h"),
        put((*RESULT, "cache_control", "ttl"), "5m"),
    ),
    (
        "thinking_changed",
        "claude-code",
        put((*READ, 0, "thinking"), "The manual has it!"),
        drop("messages", 1, "content", 0),
    ),
    ("thinking_changed", "claude-code", drop(*READ, 0), lambda body: body["messages"].__delitem__(slice(0, 2))),
    (
        "thinking_changed",
        "claude-code",
        put(("thinking", "budget_tokens"), 1024),
        put(("thinking",), {"budget_tokens": 2000, "type": "enabled"}),
    ),
    ("reasoning_item_lost", "codex", drop("input", -3), lambda body: body["input"].__delitem__(slice(-3, None))),
    (
        "reasoning_item_lost",
        "codex",
        put((*ITEMS, -3, "encrypted_content"), "gAAAA2"),
        lambda body: rewritten_keys(body["input"][-3]),
    ),
    (
        "server_tool_changed",
        "claude-code",
        put((*MESSAGES, 1, "content", 1, "input", "query"), "pumps"),
        put((*MESSAGES, 1, "content", 3, "text"), "Hi!"),
    ),
    ("media_lost", "claude-code", drop(*TASK, 0), lambda body: rewritten_keys(at(*TASK, 0)(body))),
    (
        "media_reencoded",
        "claude-code",
        put((*TASK, 0, "source", "data"), OTHERS),
        lambda body: rewritten_keys(at(*TASK, 0)(body)),
    ),
    (
        "media_reencoded",
        "codex",
        put((*ITEMS, 0, "content", 0, "image_url"), f"data:image/png;base64,{OTHERS}"),
        put((*ITEMS, 0, "content", 0, "detail"), "auto"),
    ),
    (
        "message_added",
        "openai-agent",
        lambda body: body["messages"].insert(2, copy.deepcopy(body["messages"][1])),
        lambda body: body["messages"].__setitem__(1, {"role": "user", "content": "In short: be quick.\n\nAnd right."}),
    ),
    (
        "message_added",
        "claude-code",
        lambda body: body["messages"].insert(1, {"role": "assistant", "content": "I remember that valve 9 leaks."}),
        lambda body: body["messages"][1]["content"][-1].update(text="H"),
    ),
    (
        "text_added",
        "plain-system",
        lambda body: text_of(body["messages"][0], lambda text: text + "\n\nYou may call retrieve()."),
        lambda body: text_of(body["messages"][-1], shorter),
    ),
    (
        "turn_lost",
        "codex",
        lambda body: body["input"].__delitem__(slice(-3, None)),
        put((*ITEMS, -1, "output"), "[cut]"),
    ),
    (
        "turn_lost",
        "tool-result",
        lambda body: body["messages"].__delitem__(slice(2, 4)),
        put((*MESSAGES, 3, "content"), "…"),
    ),
    ("tool_error_lost", "claude-code", drop(*RESULT, "is_error"), put((*RESULT, "content"), "short")),
    ("tool_result_swapped", "openai-agent", swapped, put((*MESSAGES, 4, "content"), "…")),
    (
        "text_damaged",
        "plain-system",
        lambda body: text_of(body["messages"][0], lambda text: json.dumps([{"type": "text", "text": text}])),
        lambda body: text_of(body["messages"][0], lambda text: text[:9]),
    ),
    (
        "part_lost",
        "claude-code",
        lambda body: body["messages"][1]["content"].pop(),
        lambda body: body["messages"][1]["content"][-1].update(text="H"),
    ),
    (
        "field_changed",
        "claude-code",
        put((*TASK, 0, "source", "media_type"), "image/jpeg"),
        put((*TASK, 1, "citations"), None),
    ),
    ("previous_response_id_changed", "codex", drop("previous_response_id"), put(("previous_response_id",), "resp_1")),
]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_proxy_that_changes_nothing_violates_nothing(shape):
    async with ModelServer(Scripted([])) as model:
        request = shaped(shape)
        data, (received,) = await through(MisbehavingProxy("nothing", model.url), request, model)
    assert received.raw == data
    assert found(request, data, received) == []


@pytest.mark.parametrize("shape", SHAPES)
async def test_shortening_the_context_violates_nothing(shape):
    async with ModelServer(Scripted([])) as model:
        request = shaped(shape)
        data, (received,) = await through(MisbehavingProxy("halves", model.url), request, model)
    assert received.raw != data
    assert found(request, data, received) == []


@pytest.mark.parametrize(
    ("kind", "shape", "commits", "close"), CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
async def test_who_commits_it_is_told_and_who_comes_close_is_not(kind, shape, commits, close):
    async with ModelServer(Scripted([])) as model:
        request = shaped(shape)
        data, (bad,) = await through(Rewriting(in_body(commits), model.url), request, model)
        model.requests.clear()
        _, (near,) = await through(Rewriting(in_body(close), model.url), request, model)
    assert kind in kinds(found(request, data, bad))
    assert kinds(found(request, data, near)) <= {
        "json_reserialised",
        "cache_control_lost",
        "tool_annotation_changed",
        "turn_lost",  # the whole turn in progress
    } - {kind}


@pytest.mark.parametrize(
    ("name", "value", "near"),
    [
        (
            "anthropic-beta",
            None,
            "fine-grained-tool-streaming-2025-05-14, interleaved-thinking-2025-05-14,claude-code-20250219, more",
        ),
        (
            "anthropic-beta",
            "claude-code-20250219",
            "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14",
        ),
        ("anthropic-version", "2023-01-01", "2023-06-01"),
    ],
)
async def test_beta_features_that_were_asked_for(name, value, near):
    async with ModelServer(Scripted([])) as model:
        request = shaped("claude-code")
        data, (bad,) = await through(Rewriting(without_header(name, value), model.url), request, model)
        model.requests.clear()
        _, (close,) = await through(Rewriting(without_header(name, near), model.url), request, model)
    assert kinds(found(request, data, bad)) == {"beta_header_lost"}
    assert found(request, data, close) == []


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_same_meaning_in_other_bytes(shape):
    async with ModelServer(Scripted([])) as model:
        request = shaped(shape)
        data, (bad,) = await through(Rewriting(in_body(rewritten_keys), model.url), request, model)
        model.requests.clear()
        _, (near,) = await through(Rewriting(in_body(lambda body: body.update(user="me")), model.url), request, model)
    assert kinds(found(request, data, bad)) == {"json_reserialised"}
    assert kinds(found(request, data, near)) == {"params_changed"}


async def test_another_api():
    async with ModelServer(Scripted([])) as model:
        sent = shaped("tool-result")
        data, (received,) = await through(MisbehavingProxy("nothing", model.url), shaped("codex"), model)
    assert "wire_changed" in kinds(found(sent, data, received))


async def test_requests_sent_on_twice():
    async with ModelServer(Scripted([])) as model:
        _, twice = await through(Rewriting(lambda request: [request, request], model.url), shaped("plain-user"), model)
        model.requests.clear()
        _, own = await through(MisbehavingProxy("calls-twice", model.url), shaped("plain-user"), model)
    assert len(twice) == len(own) == 2
    assert kinds(repeated_requests([(one.raw, 200) for one in twice])) == {"duplicate"}
    assert kinds(repeated_requests([(twice[0].raw, 503), (twice[1].raw, 200)])) == {"retry"}
    assert repeated_requests([(one.raw, 200) for one in own]) == []


@pytest.mark.parametrize(("share", "told"), [(0.5, True), (0.85, False), (1.0, False)])
async def test_a_provider_that_cuts_without_a_word(share, told):
    """The upstream bills what it read: a window of half the prompt, or nearly all of it."""
    request = shaped("plain-user")
    counter = counter_for("gpt-5-mini")
    counted = count_request(request.parsed(), counter)
    billed = int(counted.total * share)
    rules = [{"text": "yes", "usage": {"input_tokens": billed, "output_tokens": 1}}]
    async with ModelServer(Scripted(rules)) as model, aiohttp.ClientSession() as session:
        reply = await session.post(model.url + request.path, json=request.body)
        usage = (await reply.json())["usage"]
    assert usage["prompt_tokens"] == billed
    violation = silent_truncation(usage["prompt_tokens"], counted.total, exact=counted.exact)
    assert (violation is not None) == told
    assert silent_truncation(usage["prompt_tokens"], counted.total, exact=False) is None


def test_every_kind_has_its_proxies():
    elsewhere = {"beta_header_lost", "json_reserialised", "wire_changed", "retry", "duplicate", "silent_truncation"}
    elsewhere |= {"after_done"}  # of replies: test_watch.py
    elsewhere |= {"usage_not_asked"}  # between two APIs: test_faulty_relays.py
    elsewhere |= {"forwarded_differently", "conversation_leaked", "key_leaked"}  # of several: test_replay_command.py …
    elsewhere |= {rule.kind for rule in RULES} - {case[0] for case in CASES}  # of the request alone: test_linter.py
    assert {case[0] for case in CASES} | elsewhere == set(KINDS)
