"""Relays with one habit each: what they do to a request has a kind on every API and between any two of them, and a
faithful relay, or one that only shortens, has none.
"""

from __future__ import annotations

import copy
import html
import json
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from context_bench.wire.apis import parse_request
from context_bench.wire.violations import compare_requests, lint_changes

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PATH = {"type": "string", "enum": ["/a", "/b"], "pattern": "^/"}
PARAMETERS = {
    "type": "object",
    "$defs": {"Place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}},
    "properties": {
        "path": PATH,
        "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "at": {"$ref": "#/$defs/Place"},
        "kind": {"const": "x"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    },
    "required": ["path"],
    "additionalProperties": False,
}
FORM = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
ARGUMENTS = {"path": "/a", "n": 12345678901234567890, "f": 1.5}
WORDS = "The café of Zoë <b>opens</b> at nine & closes late."

CHAT: dict[str, Any] = {
    "model": "gpt-5",
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0,
    "top_p": 0.9,
    "max_completion_tokens": 50,
    "parallel_tool_calls": False,
    "tool_choice": {"type": "function", "function": {"name": "read"}},
    "reasoning_effort": "low",
    "metadata": {"task": "x"},
    "service_tier": "flex",
    "user": "u-1",
    "store": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": FORM}},
    "tools": [
        {"type": "function", "function": {"name": "read", "strict": True, "parameters": PARAMETERS}},
        {"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}},
    ],
    "messages": [
        {"role": "system", "content": "You keep the records of the harbour."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look at this:"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "text", "text": WORDS},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "a1", "type": "function", "function": {"name": "read", "arguments": json.dumps(ARGUMENTS)}},
                {"id": "a2", "type": "function", "function": {"name": "run", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a1", "content": "The file holds much."},
        {"role": "tool", "tool_call_id": "a2", "content": "It ran."},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "And when does it open?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a3", "type": "function", "function": {"name": "read", "arguments": '{"path":"/b"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "a3", "content": "End of file."},
    ],
}
CLAUDE: dict[str, Any] = {
    "model": "claude-sonnet-4-0",
    "max_tokens": 50,
    "stream": True,
    "temperature": 0,
    "top_p": 0.9,
    "tool_choice": {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": FORM}},
    "system": [{"type": "text", "text": "You keep the records of the harbour."}],
    "tools": [
        {"name": "read", "input_schema": PARAMETERS},
        {"name": "run", "input_schema": {"type": "object", "properties": {}}},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look at this:"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {"type": "text", "text": WORDS},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a1", "name": "read", "input": ARGUMENTS},
                {"type": "tool_use", "id": "a2", "name": "run", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a1", "content": "The file holds much."},
                {"type": "tool_result", "tool_use_id": "a2", "content": "It ran."},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "I see."}]},
        {"role": "user", "content": "And when does it open?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a3", "name": "read", "input": {"path": "/b"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a3", "content": "End of file."}]},
    ],
}
RESPONSES: dict[str, Any] = {
    "model": "gpt-5",
    "stream": True,
    "temperature": 0,
    "top_p": 0.9,
    "max_output_tokens": 50,
    "parallel_tool_calls": False,
    "tool_choice": {"type": "function", "name": "read"},
    "reasoning": {"effort": "low"},
    "metadata": {"task": "x"},
    "service_tier": "flex",
    "user": "u-1",
    "store": False,
    "text": {"format": {"type": "json_schema", "name": "a", "strict": True, "schema": FORM}},
    "instructions": "You keep the records of the harbour.",
    "tools": [
        {"type": "function", "name": "read", "strict": True, "parameters": PARAMETERS},
        {"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}},
    ],
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look at this:"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                {"type": "input_text", "text": WORDS},
            ],
        },
        {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "a1", "name": "read", "arguments": json.dumps(ARGUMENTS)},
        {"type": "function_call", "call_id": "a2", "name": "run", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a1", "output": "The file holds much."},
        {"type": "function_call_output", "call_id": "a2", "output": "It ran."},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I see."}]},
        {"role": "user", "content": "And when does it open?"},
        {"type": "function_call", "call_id": "a3", "name": "read", "arguments": '{"path":"/b"}'},
        {"type": "function_call_output", "call_id": "a3", "output": "End of file."},
    ],
}
BODIES = {"openai-chat": CHAT, "anthropic": CLAUDE, "openai-responses": RESPONSES}
WIRES = tuple(BODIES)


def kinds(sent: str, wire: str, body: dict[str, Any], before: dict[str, Any] | None = None) -> set[str]:
    """The kinds of what became of a request that was sent on one API and arrived on another, or the same."""
    client = BODIES[sent] if before is None else before
    found = compare_requests(parse_request(sent, client), parse_request(wire, body))
    found += lint_changes(client, body, sent_wire=sent, wire=wire, known=found)
    return {one.kind for one in found} - {"wire_changed"}


# Habits, for all APIs at once: each finds its place in a body of any API.


def walk(value: Any):
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(inner)


def everywhere(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """The habit that does something to every object of a body."""

    def habit(body: dict[str, Any]) -> None:
        for one in list(walk(body)):
            if isinstance(one, dict):
                change(one)

    return habit


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    return lambda body: [body.pop(name, None) for name in names] and None


def text(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    """The habit that makes one text of the conversation another, wherever it stands."""

    def change(one: dict[str, Any]) -> None:
        for name in ("text", "content", "output", "instructions"):
            if one.get(name) == old:
                one[name] = new

    return everywhere(change)


def parts(change: Callable[[list[Any]], list[Any]]) -> Callable[[dict[str, Any]], None]:
    """The habit that does something to the three parts of the first question."""

    def habit(one: dict[str, Any]) -> None:
        if isinstance(one.get("content"), list) and len(one["content"]) == 3 and one.get("role") == "user":
            one["content"] = change(one["content"])

    return everywhere(habit)


def schema(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], None]:
    def habit(body: dict[str, Any]) -> None:
        tool = body["tools"][0]
        change(tool.get("input_schema") or tool.get("parameters") or tool["function"]["parameters"])

    return habit


def arguments(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], None]:
    """The habit that makes other arguments of those of the first call."""

    def habit(one: dict[str, Any]) -> None:
        if isinstance(one.get("input"), dict) and one.get("id") == "a1":
            one["input"] = change(one["input"])
        elif isinstance(one.get("arguments"), str) and one["arguments"] == json.dumps(ARGUMENTS):
            one["arguments"] = json.dumps(change(json.loads(one["arguments"])))

    return everywhere(habit)


def ids(old: str, new: str, *names: str) -> Callable[[dict[str, Any]], None]:
    """The habit that gives another id to a call, or to its result. Responses calls both `call_id`."""

    def habit(one: dict[str, Any]) -> None:
        if one.get("type") == "function_call_output" and "id" in names:
            return
        if one.get("type") == "function_call" and "id" not in names:
            return
        one.update({name: new for name in (*names, "call_id") if one.get(name) == old})

    return everywhere(habit)


def swapped_results(body: dict[str, Any]) -> None:
    first, second = "The file holds much.", "It ran."
    text(first, "§")(body)
    text(second, first)(body)
    text("§", second)(body)


def reversed_calls(body: dict[str, Any]) -> None:
    for one in walk(body):
        if isinstance(one, list) and sum("arguments" in str(each) or "tool_use" in str(each) for each in one) > 1:
            found = [i for i, each in enumerate(one) if isinstance(each, dict) and _is_call(each)]
            if len(found) > 1 and found[1] == found[0] + 1:
                one[found[0]], one[found[1]] = one[found[1]], one[found[0]]


def _is_call(one: dict[str, Any]) -> bool:
    return one.get("type") in ("tool_use", "function_call") or (one.get("type") == "function" and "id" in one)


def merged_calls(body: dict[str, Any]) -> None:
    """The second parallel call, and its result, are gone: its arguments went into the first."""
    for one in list(walk(body)):
        if isinstance(one, list):
            one[:] = [each for each in one if not (isinstance(each, dict) and "a2" in _ids(each))]


def _ids(one: dict[str, Any]) -> list[Any]:
    return [one.get(name) for name in ("id", "call_id", "tool_call_id", "tool_use_id")]


def twice(body: dict[str, Any]) -> None:
    """The question comes twice."""
    items = body.get("messages") or body["input"]
    place = next(i for i, one in enumerate(items) if one.get("content") == "And when does it open?")
    items.insert(place, copy.deepcopy(items[place]))


def no_system(body: dict[str, Any]) -> None:
    body.pop("system", None)
    body.pop("instructions", None)
    if body.get("messages", [{}])[0].get("role") == "system":
        del body["messages"][0]


def no_effort(body: dict[str, Any]) -> None:
    without("reasoning_effort", "reasoning")(body)
    body.get("output_config", {}).pop("effort", None)


def no_form(body: dict[str, Any]) -> None:
    without("response_format", "text")(body)
    body.get("output_config", {}).pop("format", None)


def another_limit(body: dict[str, Any]) -> None:
    body.update({name: 4096 for name in ("max_tokens", "max_completion_tokens", "max_output_tokens") if name in body})


def parallel_flag(body: dict[str, Any]) -> None:
    body.pop("parallel_tool_calls", None)
    body["tool_choice"].pop("disable_parallel_tool_use", None)


HABITS: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("temperature 0 dropped as false", without("temperature"), "params_changed"),
    ("top_p dropped", without("top_p"), "params_changed"),
    ("another limit", another_limit, "params_changed"),
    ("stream turned off", lambda body: body.update(stream=False), "params_changed"),
    ("reasoning effort dropped", no_effort, ""),
    ("the form of answer dropped", no_form, "response_format_changed"),
    ("tool_choice dropped", without("tool_choice"), "tool_choice_changed"),
    ("the flag for parallel calls dropped", parallel_flag, ""),
    ("tools dropped", without("tools"), "tool_removed"),
    ("a tool dropped", lambda body: body["tools"].pop(), "tool_removed"),
    ("tools sorted the other way", lambda body: body["tools"].reverse(), "order_changed"),
    ("a tool's name cut", everywhere(lambda one: one.get("name") == "read" and one.update(name="rea")), "tool_removed"),
    ("enum lost", schema(lambda one: one["properties"]["path"].pop("enum")), "tool_meaning_changed"),
    ("pattern lost", schema(lambda one: one["properties"]["path"].pop("pattern")), "tool_meaning_changed"),
    ("anyOf flattened", schema(lambda one: one["properties"].update(n={"type": "integer"})), "tool_meaning_changed"),
    ("$ref not resolved", schema(lambda one: one.pop("$defs")), "tool_meaning_changed"),
    ("const lost", schema(lambda one: one["properties"]["kind"].pop("const")), "tool_meaning_changed"),
    ("items lost", schema(lambda one: one["properties"]["tags"].pop("items")), "tool_meaning_changed"),
    ("required lost", schema(lambda one: one.pop("required")), "tool_meaning_changed"),
    ("additionalProperties lost", schema(lambda one: one.pop("additionalProperties")), "tool_meaning_changed"),
    ("a property lost", schema(lambda one: one["properties"].pop("path")), "tool_meaning_changed"),
    ("big integers as floats", arguments(lambda one: {**one, "n": float(one["n"])}), "tool_arguments_changed"),
    ("floats cut", arguments(lambda one: {**one, "f": 1}), "tool_arguments_changed"),
    ("arguments lost", arguments(lambda one: {}), "tool_arguments_changed"),
    ("arguments nested", arguments(lambda one: {"input": one}), "tool_arguments_changed"),
    ("a call renumbered", ids("a1", "z9", "id"), "orphan_tool_result"),
    ("a result renumbered", ids("a1", "z9", "tool_call_id", "tool_use_id"), ""),
    ("results change places", swapped_results, "tool_result_swapped"),
    ("calls change places", reversed_calls, "order_changed"),
    ("parallel calls merged", merged_calls, ""),
    ("the text beside calls dropped", text("I look.", ""), ""),
    ("instructions dropped", no_system, "system_role_lost"),
    ("instructions emptied", text("You keep the records of the harbour.", ""), "system_role_lost"),
    ("other instructions", text("You keep the records of the harbour.", "Sell soap!"), "system_role_lost"),
    ("an image dropped", parts(lambda three: [three[0], three[2]]), "media_lost"),
    ("the first part only", parts(lambda three: three[:1]), ""),
    ("the last part only", parts(lambda three: three[-1:]), ""),
    ("parts in another order", parts(lambda three: [three[1], three[0], three[2]]), "order_changed"),
    ("a text part twice", parts(lambda three: [three[0], *three]), "message_added"),
    ("an image twice", parts(lambda three: [*three[:2], *three[1:]]), "message_added"),
    ("the question twice", twice, "message_added"),
    ("wrong encoding", text(WORDS, WORDS.encode().decode("latin-1")), "text_damaged"),
    ("question marks", text(WORDS, WORDS.encode("ascii", "replace").decode()), "text_damaged"),
    ("replacement characters", text(WORDS, WORDS.replace("é", "\ufffd")), "text_damaged"),
    ("HTML entities", text(WORDS, html.escape(WORDS)), "text_damaged"),
    ("JSON escapes", text(WORDS, json.dumps(WORDS)[1:-1]), "text_damaged"),
    ("quoted as JSON", text("It ran.", json.dumps("It ran.")), ""),
    ("another normal form", text(WORDS, unicodedata.normalize("NFD", WORDS)), "text_damaged"),
    ("capitals lost", text(WORDS, WORDS.lower()), "text_damaged"),
    ("parts written out as JSON", text("It ran.", json.dumps([{"type": "text", "text": "It ran."}])), "text_damaged"),
    ("parts written out as code", text("It ran.", repr([{"type": "text", "text": "It ran."}])), "text_damaged"),
    ("an object by its name", text("It ran.", "[object Object]"), "text_damaged"),
]


@pytest.mark.parametrize(("sent", "wire"), [(a, b) for a in WIRES for b in WIRES])
def test_a_faithful_relay_has_no_kind(sent: str, wire: str) -> None:
    assert kinds(sent, wire, copy.deepcopy(BODIES[wire])) == set()


@pytest.mark.parametrize(("sent", "wire"), [(a, b) for a in WIRES for b in WIRES])
@pytest.mark.parametrize(("habit", "kind"), [each[1:] for each in HABITS], ids=[each[0] for each in HABITS])
def test_a_habit_has_a_kind_on_every_api_and_between_them(
    sent: str, wire: str, habit: Callable[[dict[str, Any]], Any], kind: str
) -> None:
    if habit is merged_calls and sent == wire == "openai-responses":
        return  # a call and its result of a finished turn, each an item: an earlier turn that is gone as a whole
    body = copy.deepcopy(BODIES[wire])
    habit(body)
    assert body != BODIES[wire], "the habit found nothing to do"
    found = kinds(sent, wire, body)
    assert kind in found if kind else found


LINE = "2031-04-{:02} 09:{:02} INFO gate {} closed without a fault"
LOG = "\n".join(LINE.format(1 + i % 28, i % 60, i) for i in range(120))


@pytest.mark.parametrize(
    "shorter",
    [
        LOG[:400],
        LOG[-400:],
        f"{LOG[:300]}\n[90 lines left out]\n{LOG[-300:]}",
        "[90 lines left out; ask for 7f3a to read them]",
        "Gates closed 120 times, without a fault.",
        " ".join(LOG.split()[::3]),
    ],
)
@pytest.mark.parametrize("wire", WIRES)
def test_a_relay_that_only_shortens_has_no_kind(wire: str, shorter: str) -> None:
    sent, arrived = (copy.deepcopy(BODIES[wire]) for _ in range(2))
    for body, words in (sent, LOG), (arrived, shorter):
        text("The file holds much.", words)(body)
        text(WORDS, f"{words}\n\nWhen does it open?")(body)
    assert kinds(wire, wire, arrived, sent) == set()


ONE_API: list[tuple[str, str, Callable[[dict[str, Any]], Any], str]] = [
    ("the user's name dropped", "openai-chat", lambda body: body["messages"][1].pop("name"), "field_changed"),
    (
        "detail of an image dropped",
        "openai-chat",
        lambda body: body["messages"][1]["content"][1]["image_url"].pop("detail"),
        "field_changed",
    ),
    (
        "another type for a file",
        "anthropic",
        lambda body: body["messages"][0]["content"][1]["source"].update(media_type="image/jpeg"),
        "field_changed",
    ),
    (
        "a call's signature dropped",
        "openai-chat",
        lambda body: body["messages"][2]["tool_calls"][0].pop("extra_content"),
        "field_changed",
    ),
    (
        "a document's title dropped",
        "anthropic",
        lambda body: body["messages"][0]["content"][3].pop("title"),
        "field_changed",
    ),
    (
        "citations turned off",
        "anthropic",
        lambda body: body["messages"][0]["content"][3].pop("citations"),
        "field_changed",
    ),
    ("a phase dropped", "openai-responses", lambda body: body["input"][1].pop("phase"), "field_changed"),
    ("a rule of the instructions dropped", "anthropic", lambda body: body["system"].pop(), "part_lost"),
    ("thinking dropped", "anthropic", lambda body: body["messages"][5]["content"].pop(0), "thinking_changed"),
    (
        "its signature dropped",
        "anthropic",
        lambda body: body["messages"][5]["content"][0].pop("signature"),
        "thinking_changed",
    ),
    (
        "is_error dropped",
        "anthropic",
        lambda body: body["messages"][2]["content"][0].pop("is_error"),
        "tool_error_lost",
    ),
    ("a mark dropped", "anthropic", lambda body: body["system"][0].pop("cache_control"), "cache_control_lost"),
    ("seed dropped", "openai-chat", without("seed"), "params_changed"),
    ("n dropped", "openai-chat", without("n"), "params_changed"),
    ("logprobs dropped", "openai-chat", without("logprobs"), "params_changed"),
    ("stop cut", "openai-chat", lambda body: body["stop"].pop(), "params_changed"),
    ("the last instructions dropped", "openai-chat", lambda body: body["messages"].pop(6), "system_role_lost"),
    (
        "reasoning of the turn dropped",
        "openai-chat",
        lambda body: body["messages"][8].pop("reasoning_content"),
        "thinking_changed",
    ),
    ("top_k dropped", "anthropic", without("top_k"), "params_changed"),
    (
        "a call twice",
        "openai-chat",
        lambda body: body["messages"][2]["tool_calls"].append(copy.deepcopy(body["messages"][2]["tool_calls"][1])),
        "tool_arguments_changed",
    ),
    (
        "input written as text",
        "anthropic",
        lambda body: body["messages"][1]["content"][1].update(input=json.dumps(ARGUMENTS)),
        "tool_call_form_wrong",
    ),
    (
        "a call without its type",
        "openai-chat",
        lambda body: body["messages"][2]["tool_calls"][0].pop("type"),
        "tool_call_form_wrong",
    ),
    ("usage of a stream not asked", "openai-chat", without("stream_options"), "params_changed"),
    ("include dropped", "openai-responses", without("include"), "params_changed"),
    (
        "the stored conversation dropped",
        "openai-responses",
        without("previous_response_id"),
        "previous_response_id_changed",
    ),
]


def richer(wire: str) -> dict[str, Any]:
    """The body with what only its own API can say."""
    body = copy.deepcopy(BODIES[wire])
    if wire == "openai-chat":
        body |= {"seed": 7, "n": 2, "logprobs": True, "stop": ["END", "\n\nHuman:"]}
        body["messages"].insert(6, {"role": "system", "content": "Now answer in French."})
        body["messages"][1]["name"] = "ann"
        body["messages"][1]["content"][1]["image_url"]["detail"] = "high"
        body["messages"][2]["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "c2ln"}}
        body["messages"][8]["reasoning_content"] = "The other file."
    elif wire == "anthropic":
        body |= {"top_k": 5}
        rule = {"type": "text", "text": "Answer briefly."}
        body["system"] = [{**body["system"][0], "cache_control": {"type": "ephemeral"}}, rule]
        source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQKJcOkw7zDtsOfCjIgMCBvYmo="}
        document = {"type": "document", "title": "Tides", "citations": {"enabled": True}, "source": source}
        body["messages"][0]["content"].append(document)
        body["messages"][2]["content"][0]["is_error"] = True
        thinking = {"type": "thinking", "thinking": "The other file.", "signature": "c2ln"}
        body["messages"][5]["content"].insert(0, thinking)
    else:
        body |= {"include": ["reasoning.encrypted_content"], "previous_response_id": "resp_1"}
        body["input"][1]["phase"] = "commentary"
    return body


@pytest.mark.parametrize(("wire", "habit", "kind"), [each[1:] for each in ONE_API], ids=[each[0] for each in ONE_API])
def test_a_habit_with_what_only_one_api_can_say(wire: str, habit: Callable[[dict[str, Any]], Any], kind: str) -> None:
    sent = richer(wire)
    assert kinds(wire, wire, copy.deepcopy(sent), sent) == set()
    arrived = copy.deepcopy(sent)
    habit(arrived)
    assert kind in kinds(wire, wire, arrived, sent)


def test_texts_that_were_joined_without_a_break_are_all_there() -> None:
    sent, arrived = copy.deepcopy(CLAUDE), copy.deepcopy(CHAT)
    sent["messages"][1]["content"].insert(1, {"type": "text", "text": "It takes a while."})
    arrived["messages"][2]["content"] = "I look.It takes a while."
    assert kinds("anthropic", "openai-chat", arrived, sent) == set()


@pytest.mark.parametrize(("sent", "wire"), [(a, b) for a in WIRES for b in WIRES if a != b])
def test_a_result_is_not_emptied_on_the_way_to_another_api(sent: str, wire: str) -> None:
    body = copy.deepcopy(BODIES[wire])
    text("It ran.", "")(body)
    assert kinds(sent, wire, body) == {"result_emptied"}


def test_a_result_of_parts_arrives_empty_where_only_plain_texts_are_read() -> None:
    sent, arrived = (copy.deepcopy(CLAUDE) for _ in range(2))
    result = sent["messages"][2]["content"][0]
    result["content"] = [{"type": "text", "text": result["content"]}]
    arrived["messages"][2]["content"][0]["content"] = ""
    assert kinds("anthropic", "anthropic", arrived, sent) == {"result_emptied"}
    arrived["messages"][0]["content"][2]["text"] = "[left out]\n\nAt nine?"  # other texts became shorter, too
    assert "result_emptied" not in kinds("anthropic", "anthropic", arrived, sent)


@pytest.mark.parametrize("name", ["metadata", "service_tier", "user", "store"])
def test_what_only_the_apis_of_openai_can_say_is_compared_between_them(name: str) -> None:
    for sent, wire in ("openai-chat", "openai-responses"), ("openai-responses", "openai-chat"):
        body = copy.deepcopy(BODIES[wire])
        del body[name]
        assert "params_changed" in kinds(sent, wire, body)


def test_a_mark_that_is_gone_is_no_field() -> None:
    sent = richer("anthropic")
    sent["system"][0]["cache_control"]["ttl"] = "1h"
    arrived = copy.deepcopy(sent)
    del arrived["system"][0]["cache_control"]
    assert kinds("anthropic", "anthropic", arrived, sent) == {"cache_control_lost"}


def test_strict_schemas_stay_strict_between_the_apis_of_openai() -> None:
    body = copy.deepcopy(RESPONSES)
    body["tools"][0].pop("strict")
    assert kinds("openai-chat", "openai-responses", body) == {"tool_meaning_changed"}
    body = copy.deepcopy(RESPONSES)
    body["text"]["format"].pop("strict")
    assert kinds("openai-chat", "openai-responses", body) == {"response_format_changed"}


def test_a_stream_for_a_client_that_is_always_told_its_usage() -> None:
    body = copy.deepcopy(CHAT)
    del body["stream_options"]
    for sent in ("anthropic", "openai-responses"):
        assert kinds(sent, "openai-chat", body) == {"usage_not_asked"}
        assert kinds(sent, "openai-chat", {**body, "stream": False}) == {"params_changed"}  # no stream at all
