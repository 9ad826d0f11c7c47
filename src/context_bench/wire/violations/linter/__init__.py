"""Rules of what a provider refuses, answers worse or bills more for, told from a request as it arrived: none before it
is needed, so it holds for agent frameworks too, which have nothing in front.

`rules.toml` holds the rules: kind, wires, families of providers, severity, a sentence, and where each is documented or
was seen. Rules are silent on what real clients send. What a request's own client did wrong is not the fault of whoever
passed it on: `lint_changes` tells only what was not there before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from context_bench.wire.apis.shared import as_dict, as_list, as_str
from context_bench.wire.conversation import ITEMS
from context_bench.wire.request import RESULT_ROLES, SYSTEM_ROLES, WireMessage
from context_bench.wire.violations.linter.forms import (
    Found,
    RequestBody,
    at,
    blocks_in_place,
    calls_in_form,
    document,
    ids_in_form,
    parameters_of_this_api,
    shown,
    thinking_in_form,
)
from context_bench.wire.violations.parts import Violation, orphan_results, unanswered_calls
from context_bench.wire.violations.settings import names_of, schema_faults

Severity = Literal["refused", "worse", "costs"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of `rules.toml`. `says`: one plain sentence; `source`: a page or an issue.

    `families`: the providers that it holds for, empty: all but `spared`. `models`: a pattern of names. `added`: it only
    counts where a request before it arrived without.
    """

    kind: str
    wires: tuple[str, ...]
    severity: Severity
    says: str
    source: str
    families: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    models: str = ""
    added: bool = False

    def holds(self, wire: str, family: str, model: str) -> bool:
        """True if the rule is about such a request."""
        served = family in self.families if self.families else family not in self.spared
        return wire in self.wires and served and re.search(self.models, model) is not None


def _rule(told: Mapping[str, Any]) -> Rule:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
    return Rule(**values)


#: Every rule, in the order of the file; of one kind the first that holds counts.
RULES: tuple[Rule, ...] = tuple(map(_rule, document()["rule"]))


def rule_for(kind: str, wire: str, *, family: str = "", model: str | None = None, added: bool = False) -> Rule | None:
    """The first rule of a kind that holds for a request; `added`: also those that need a request before it."""
    about = (one for one in RULES if one.kind == kind and one.holds(wire, family, model or ""))
    return next((one for one in about if added or not one.added), None)


def family_of(model: str | None) -> str:
    """The family of providers that a model's name points to (`openai`, `anthropic`, `bedrock` …), or `""`."""
    named = (one["name"] for one in document()["family"] if re.search(one["models"], (model or "").lower()))
    return next(named, "")


def lint_request(
    request: Mapping[str, Any], wire: str, *, family: str | None = None, earlier: Mapping[str, Any] | None = None
) -> tuple[Violation, ...]:
    """Faults of a request for the provider that gets it, in the order of the rules.

    `request`: the body as it arrived; `wire`: its API (`openai-chat`, `openai-responses`, `anthropic`; any other gives
    nothing). `family`: the provider's, where it is known; else by the model's name. `earlier`: the body that arrived
    before it in the same conversation, which tells what changed in mid-session (`system_changed`, `tools_changed`,
    `result_emptied`). Odd values are passed over, never raised upon; details hold no text of the request.
    """
    return _lint(request, wire, family=family, earlier=earlier, added=False)


def lint_changes(
    sent: Mapping[str, Any] | RequestBody,
    received: Mapping[str, Any] | RequestBody,
    *,
    sent_wire: str,
    wire: str,
    family: str | None = None,
    earlier: tuple[Mapping[str, Any] | RequestBody, Mapping[str, Any] | RequestBody] | None = None,
    known: Sequence[Violation] = (),
) -> tuple[Violation, ...]:
    """Faults of a request as it arrived that it had not as it was sent, by the number of each kind.

    Bodies are given as they are, or as a `RequestBody` where they are read already. `earlier`: the request before it in
    the same conversation, as sent and as it arrived. `known`: what a comparison of the two has found already; its kinds
    are not told again.
    """
    before, after = earlier or (None, None)
    ours = _lint(sent, sent_wire, family=family, earlier=before, added=True)
    same = Counter((one.kind, one.detail) for one in ours)
    left: list[Violation] = []
    for one in _lint(received, wire, family=family, earlier=after, added=True):
        if same[one.kind, one.detail]:
            same[one.kind, one.detail] -= 1
        else:
            left.append(one)
    had: Counter[str] = Counter()  # the same elsewhere: a message may have moved
    for (kind, _), times in same.items():
        had[kind] += times
    named, found = {one.kind for one in known}, list[Violation]()
    for one in left:
        if had[one.kind]:
            had[one.kind] -= 1
        elif one.kind not in named:
            found.append(one)
    return tuple(found)


def _lint(
    request: Mapping[str, Any] | RequestBody,
    wire: str,
    *,
    family: str | None,
    earlier: Mapping[str, Any] | RequestBody | None,
    added: bool,
) -> tuple[Violation, ...]:
    body = _as_body(request, wire)
    if body is None:
        return ()
    model = as_str(body.raw.get("model")) or ""
    family = family_of(model) if family is None else family
    faults = [fault for check in _CHECKS for fault in check(body)]
    if (before := _as_body(earlier, wire)) is not None:
        faults += _since(before, body)
    found: list[tuple[int, Violation]] = []
    for kind, detail, index in faults:
        rule = rule_for(kind, wire, family=family, model=model, added=added)
        if rule is not None:
            found.append((RULES.index(rule), Violation(kind, detail, index)))
    found += [
        (RULES.index(rule), Violation(kind, detail, name=name))
        for kind, detail, name in schema_faults(wire, body.tools, _names(wire))
        if (rule := rule_for(kind, wire, family=family, model=model, added=added)) is not None
    ]
    return tuple(one for _, one in sorted(found, key=lambda each: each[0])[:_MOST])


def _as_body(request: Mapping[str, Any] | RequestBody | None, wire: str) -> RequestBody | None:
    """The body as the rules read it; `None` for an API without rules, and for what is no object."""
    if wire not in ITEMS or isinstance(request, RequestBody):
        return request if isinstance(request, RequestBody) and wire in ITEMS else None
    return RequestBody(request, wire) if isinstance(request, Mapping) else None


_MOST = 200  # of one request: bodies come from outside


def _names(wire: str) -> str:
    return str(document()["limits"]["tool_name"][wire])


# Blocks, keys and roles
# ------------------------------------------------------------------------


def _foreign(body: RequestBody) -> Found:
    foreign = frozenset(document()["foreign"][body.wire])
    for i, block in body.blocks():
        if (kind := as_str(block.get("type"))) in foreign:
            yield "foreign_block", f"{at(i)} holds a block of type {kind}", i
    if body.wire == "openai-responses":
        others = foreign - {"text", "image_url"}
        for i, item in enumerate(body.messages):
            if (kind := as_str(item.get("type"))) in others:
                yield "foreign_block", f"item {i + 1} is of type {kind}", i
    for tool in map(as_dict, body.tools):
        places = ("function", "input_schema", "parameters")
        kept_in = next((name for name in places if isinstance(tool.get(name), Mapping)), None)
        own = {"openai-chat": "function", "anthropic": "input_schema", "openai-responses": "parameters"}[body.wire]
        if kept_in not in (None, own) and not body.raw.get("functions"):
            yield "foreign_tool", f"a tool is defined under {kept_in!r}", None


def _keys(body: RequestBody) -> Found:
    if (known := document()["messages"].get(body.wire)) is not None:
        for i, message in enumerate(body.messages):
            for key in sorted(shown(key) for key, value in message.items() if key not in known and value is not None):
                yield "unknown_message_key", f"message {i + 1} has the key {key!r}", i
    by_type = document()["blocks"].get(body.wire, {})
    for place, block in body.blocks():
        if (known := by_type.get(as_str(block.get("type")) or "")) is not None:
            others = [key for key, value in block.items() if key not in (*known, "type") and value is not None]
            for key in sorted(map(shown, others)):
                yield "unknown_block_key", f"{at(place)}: a {block['type']} block has the key {key!r}", place


def _roles(body: RequestBody) -> Found:
    known = document()["roles"][body.wire]
    old = re.search(document()["limits"]["system_in_messages"], str(body.raw.get("model"))) is None
    for i, message in enumerate(body.messages):
        if body.wire == "openai-responses" and message.get("type", "message") != "message":
            continue
        role = as_str(message.get("role"))
        if role not in known:
            yield (
                "role_unknown",
                f"message {i + 1} has {'no role' if role is None else f'the role {shown(role)!r}'}",
                i,
            )
        elif body.wire == "anthropic" and role == "system" and (old or i == 0):
            yield "role_unknown", f"message {i + 1} has the role 'system', which this model takes at the head only", i
    first = next((i for i, one in enumerate(body.messages) if one.get("role") not in SYSTEM_ROLES), None)
    if first is not None and body.messages[first].get("role") == "assistant":
        yield "assistant_first", f"message {first + 1}, the first of the history, is the assistant's", first


# Cache marks
# ------------------------------------------------------------------------


def _marks(body: RequestBody) -> Found:
    lifetimes = [as_dict(tool).get("cache_control") for tool in body.tools]
    for i, block in body.blocks():
        mark = block.get("cache_control")
        lifetimes.append(mark)
        empty = block.get("type") == "text" and not str(block.get("text") or "").strip()
        if mark and (empty or block.get("type") in ("thinking", "redacted_thinking")):
            yield "cache_mark_misplaced", f"{at(i)}: a mark on {'an empty text' if empty else 'thinking'}", i
        if block.get("type") == "tool_result":
            inner = sum(bool(as_dict(part).get("cache_control")) for part in as_list(block.get("content")))
            if inner:
                yield "cache_mark_in_result", f"{at(i)}: {inner} inside a result", i
            lifetimes += [True] * inner
        if mark and (body.wire != "anthropic" or as_dict(mark).get("type") != "ephemeral"):
            yield "cache_mark_unknown", f"{at(i)} holds a cache mark", i
    if body.wire != "anthropic":
        for i, message in enumerate(body.messages):
            if message.get("cache_control"):
                lifetimes.append(message["cache_control"])
                yield "cache_mark_unknown", f"message {i + 1} holds a cache mark", i
    lifetimes.append(body.raw.get("cache_control"))
    marks = [mark for mark in lifetimes if mark]
    most = document()["limits"]["cache_marks"]
    if len(marks) > most:
        yield "too_many_cache_marks", f"{len(marks)} cache marks, {most} are allowed", None
    short = False
    for mark in marks:
        long = isinstance(mark, Mapping) and mark.get("ttl") == "1h"
        if short and long:
            yield "cache_mark_order", "a mark of one hour stands behind one of five minutes", None
            return
        short = short or not long


# Tool calls and their results
# ------------------------------------------------------------------------


def _pairs(body: RequestBody) -> Found:
    held = body.raw.get("previous_response_id") or body.raw.get("conversation")
    items = {as_str(item.get("type")) for item in body.messages} if body.wire == "openai-responses" else set()
    whole = not held and "item_reference" not in items  # else the provider holds what is not here
    for ident, j in orphan_results(body.neutral) if whole else ():
        if ident != "None" or body.wire != "openai-responses":
            yield "orphan_tool_result", f"message {j + 1} answers a call that is not there", j
    for _, j in unanswered_calls(body.neutral):
        yield "unanswered_tool_call", f"the call in message {j + 1} has no result", j
    results = Counter(
        one.tool_call_id for one in body.neutral.messages if one.role in RESULT_ROLES and one.tool_call_id
    )
    calls = Counter(str(call.get("id")) for one in body.neutral.messages for call in one.tool_calls if call.get("id"))
    for ident, times in results.items():
        if times > max(1, calls[ident]):
            yield "duplicate_tool_result", f"one call has {times} results", None
    yield from (("duplicate_call_id", f"{n} calls have one id", None) for n in calls.values() if n > 1)
    yield from _results_in_place(body)


def _results_in_place(body: RequestBody) -> Found:
    """Results belong right behind the message with their calls."""
    if body.wire == "anthropic":
        turns = _turns(body)
        for (_, role, blocks), (j, _, answers) in pairwise(turns):
            wanted = {block.get("id") for block in blocks if block.get("type") == "tool_use"}
            if role != "assistant" or not wanted:
                continue
            kinds = [block.get("type") for block in answers]
            if "tool_result" in kinds and kinds[0] != "tool_result":
                yield "tool_result_not_first", f"message {j + 1}: a block of type {shown(kinds[0])} stands first", j
            given = {block.get("tool_use_id") for block in answers if block.get("type") == "tool_result"}
            late = (wanted - given) & {one.tool_call_id for one in body.neutral.messages[j:]}
            if late:
                yield "tool_result_late", f"{len(late)} results of the calls before message {j + 1} come later", j
    elif body.wire == "openai-chat":
        open_calls: set[str] = set()
        for j, message in enumerate(body.neutral.messages):
            if message.role in RESULT_ROLES:
                open_calls.discard(str(message.tool_call_id))
                continue
            later = {str(one.tool_call_id) for one in body.neutral.messages[j:]}
            if behind := len(open_calls & later):
                yield "tool_result_late", f"message {j + 1} stands before {behind} results of the calls before it", j
            open_calls = {str(call["id"]) for call in message.tool_calls if call.get("id")}


def _turns(body: RequestBody) -> list[tuple[int, str, list[Mapping[str, Any]]]]:
    """Messages of one role in a row as one, as Anthropic reads them: (place of the first, role, blocks)."""
    turns: list[tuple[int, str, list[Mapping[str, Any]]]] = []
    for i, message in enumerate(body.messages):
        content = message.get("content")
        parts: list[Any] = [{"type": "text"}] if isinstance(content, str) else as_list(content)
        blocks: list[Mapping[str, Any]] = [part if type(part) is dict else as_dict(part) for part in parts]
        if turns and turns[-1][1] == message.get("role"):
            turns[-1][2].extend(blocks)
        else:
            turns.append((i, as_str(message.get("role")) or "", blocks))
    return turns


def _repeats(body: RequestBody) -> Found:
    last: WireMessage | None = None
    for i, message in enumerate(body.neutral.messages):
        if message.parts and all(part.kind == "reasoning" for part in message.parts) and not message.tool_calls:
            continue
        again = last is not None and last.role == message.role == "assistant" and bool(message.text.strip())
        if again and last is not None and last.text == message.text and last.tool_calls == message.tool_calls:
            yield "duplicate_turn", f"message {i + 1} says what the one before it said", i
        last = message


_MEDIA = re.compile(r'"type"\s*:\s*"(?:image|image_url|image-data|input_image|media|file|file-data|document)"')
_BASE64 = re.compile(r'"(?:data:[^"]{1,60};base64,)?[A-Za-z0-9+/]{60,}={0,2}"')


def _results(body: RequestBody) -> Found:
    for i, message in enumerate(body.neutral.messages):
        if message.role not in RESULT_ROLES:
            continue
        raw = body.messages[i].get("content") if body.wire == "openai-chat" else None
        if isinstance(raw, list) and len(raw) > 1 and all(as_dict(part).get("type") == "text" for part in raw):
            yield "tool_result_in_parts", f"message {i + 1}: a result of {len(raw)} texts", i
        text = message.text
        if text.lstrip()[:1] in ("[", "{") and _MEDIA.search(text) and _BASE64.search(text):
            yield "media_as_text", f"message {i + 1}: a result holds the bytes of a file as text", i


# Settings
# ------------------------------------------------------------------------


def _settings(body: RequestBody) -> Found:
    raw = body.raw
    for name in ("tool_choice", "parallel_tool_calls"):
        if raw.get(name) is not None and not body.tools and not raw.get("functions"):
            yield "tool_setting_without_tools", f"{name} without tools", None
    for name in ("tools", "functions", "messages", "input"):
        if raw.get(name) == []:
            yield "empty_list", f"{name} is an empty list", None
    for i, message in enumerate(body.messages if body.wire == "openai-chat" else []):
        yield from (
            ("empty_list", f"message {i + 1}: {name} is an empty list", i)
            for name in ("tool_calls", "content")
            if message.get(name) == []
        )
    if body.wire == "anthropic":
        yield from _anthropic_settings(raw)
    else:
        asked = as_dict(raw.get("response_format")).get("type") == "json_object"
        if asked and not any("json" in message.text.lower() for message in body.neutral.messages):
            yield "json_not_mentioned", "no message holds the word JSON", None
        if raw.get("max_tokens") is not None:
            yield "parameter_refused", "max_tokens", None


def _anthropic_settings(raw: Mapping[str, Any]) -> Found:
    if raw.get("max_tokens") is None and raw.get("messages") is not None:
        yield "max_tokens_missing", "there is no max_tokens", None
    thinking = as_dict(raw.get("thinking"))
    if thinking.get("type") != "enabled":
        return
    budget, limit = thinking.get("budget_tokens"), raw.get("max_tokens")
    if isinstance(budget, int) and isinstance(limit, int) and budget >= limit and not raw.get("tools"):
        yield "thinking_setting_refused", "budget_tokens is not below max_tokens", None
    if raw.get("temperature") not in (None, 1, 1.0):
        yield "thinking_setting_refused", "a temperature other than 1", None
    if as_dict(raw.get("tool_choice")).get("type") in ("any", "tool"):
        yield "thinking_setting_refused", "tool_choice forces a call", None


def _content(body: RequestBody) -> Found:
    last = len(body.messages) - 1
    for i, message in enumerate(body.messages if body.wire != "openai-responses" else []):
        content, role = message.get("content"), message.get("role")
        if body.wire == "anthropic":
            if content in (None, "", []) and not (i == last and role == "assistant"):
                yield "empty_content", f"message {i + 1} is empty", i
            texts = [as_dict(part) for part in as_list(content) if as_dict(part).get("type") == "text"]
            if any(not str(part.get("text") or "").strip() for part in texts):
                yield "empty_content", f"message {i + 1} holds an empty text", i
        elif content is None and (role != "assistant" or not _says_something(message)):
            yield "empty_content", f"message {i + 1} is empty", i


def _says_something(message: Mapping[str, Any]) -> bool:
    return any(message.get(name) for name in ("tool_calls", "function_call", "audio", "refusal"))


def _reasoning(body: RequestBody) -> Found:
    if body.wire != "openai-responses":
        return
    for i, item in enumerate(body.messages):
        if item.get("type") != "reasoning" or not item.get("id"):
            continue
        behind = as_dict(body.messages[i + 1]) if i + 1 < len(body.messages) else {}
        answers = as_str(behind.get("type")) or "message"
        if not behind or answers.endswith("_output") or (answers == "message" and behind.get("role") != "assistant"):
            yield "reasoning_item_alone", f"item {i + 1}: what it led to is not there", i


_CHECKS: tuple[Callable[[RequestBody], Found], ...] = (
    _foreign,
    _keys,
    _roles,
    _marks,
    _pairs,
    _repeats,
    _results,
    _settings,
    _content,
    _reasoning,
    calls_in_form,
    ids_in_form,
    parameters_of_this_api,
    blocks_in_place,
    thinking_in_form,
)


# Against the request before it in the same conversation
# ------------------------------------------------------------------------


def _since(before: RequestBody, now: RequestBody) -> Found:
    old, new = before.neutral.messages, now.neutral.messages
    started, begins = _head(old), _head(new)
    if _texts(old[started : started + 1]) != _texts(new[begins : begins + 1]):
        return  # another conversation, or a compacted one
    if _texts(old[:started]) != _texts(new[:begins]) and started and begins:
        yield "system_changed", "the instructions at the head changed in mid-session", None
    names, later = names_of(before.tools), names_of(now.tools)
    if names != later and sorted(names) == sorted(later):
        yield "tools_changed", "the tools stand in another order than in the request before", None
    said = {one.tool_call_id for one in old if one.role in RESULT_ROLES and one.text.strip()}
    for i, message in enumerate(new):
        if message.role in RESULT_ROLES and message.tool_call_id in said and not _anything(message):
            yield "result_emptied", f"message {i + 1}: the result had a text before", i


def _anything(message: WireMessage) -> bool:
    return bool(message.text.strip()) or any(part.text is None for part in message.parts)


def _head(messages: list[WireMessage]) -> int:
    return next((i for i, message in enumerate(messages) if message.role not in SYSTEM_ROLES), len(messages))


def _texts(messages: list[WireMessage]) -> list[str]:
    return [message.text for message in messages]
