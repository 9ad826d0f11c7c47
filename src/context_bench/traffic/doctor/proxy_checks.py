"""Checks of a proxy: its routes, what of a request reaches the provider unchanged, and how replies come back.

Routes: the address, the key, the model or the proxy itself may be at fault. Requests: key, header, roles, parameters,
tools, marks, signed blocks. Replies: streams as they come or held back, packed ones readable or broken.
"""

from __future__ import annotations

import copy
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from context_bench.core.errors import BadReply
from context_bench.core.protocols import Recorder
from context_bench.core.records import Example
from context_bench.llm.coding import decode
from context_bench.llm.redact import redact
from context_bench.llm.responders import PACKED, SLOWLY
from context_bench.llm.shapes import build
from context_bench.session.activity import Asker, Finding, Seen, Status, first, route_of, shapes_of
from context_bench.wire.apis import ShapedRequest, parse_reply, stream_reader
from context_bench.wire.apis.shared import load_json
from context_bench.wire.request import facts
from context_bench.wire.violations import NOTES, phrase, rule_for, tools_of

#: A stream that takes fewer seconds from its first token to its end tells nothing.
_LONG_ENOUGH = 0.1
_CODINGS = ("gzip", "deflate")
_LONG: Example = {"id": "doctor, streaming", "context": "", "question": SLOWLY}
_SHORT: Example = {"id": "doctor, packed", "context": "", "question": PACKED}
_WORST: tuple[Status, ...] = ("fail", "warn", "unknown", "ok")


async def streaming(asker: Asker, working: list[str]) -> Finding:
    """Are streams passed on as they come, on every route that works?"""
    found = {}
    for shape in working:
        request = build(shape, _LONG, asker.model, stream=True)
        found[route_of(shape)] = _stream(await asker.ask(f"streaming {shape}", request))
    worst = min((finding.status for finding in found.values()), key=_WORST.index)
    if worst in ("fail", "warn"):
        bad = {route: finding for route, finding in found.items() if finding.status == worst}
        detail = first([f"{route}: {finding.detail}" for route, finding in bad.items()], 3)
        return Finding("streaming", worst, detail, next(finding.advice for finding in bad.values()))
    seen = [f"{route}: {finding.detail}" for route, finding in found.items() if finding.status == "ok"]
    short = ", ".join(route for route, finding in found.items() if finding.status == "unknown")
    if short:
        seen.append(f"{short}: streams; the upstream's stream was too short to tell whether it is held back")
    return Finding("streaming", "ok", first(seen, 3))


def _stream(seen: Seen) -> Finding:
    """One stream. `unknown`: it came, and its end too soon after its beginning."""
    call, main = seen.call, seen.main
    if seen.error is not None or call is None:
        return Finding(
            "streaming", "fail", seen.error or "no answer", "run without --stream; agents that stream will not work"
        )
    if call.ttft is None:
        return Finding("streaming", "fail", "a stream was asked for, the reply came whole", "run without --stream")
    if main is not None and not main.stream:
        return Finding(
            "streaming", "warn", "the provider is asked without streaming", "time to first token is not the model's"
        )
    if main is None or main.ttft is None or main.seconds - main.ttft < _LONG_ENOUGH:
        return Finding("streaming", "unknown", "streams")
    if call.started + call.ttft >= main.started + main.seconds:
        advice = "time to first token through this proxy is the total time"
        return Finding("streaming", "warn", "the stream is held back until it is whole", advice)
    return Finding(
        "streaming", "ok", f"passed on as it comes (first token {call.ttft:.2f} s, end {call.seconds:.2f} s)"
    )


async def packed(asker: Asker, working: list[str]) -> Finding:
    """Can replies be read that the provider packs, as clients allow it to? Providers pack streams more seldom than
    other replies.
    """
    broken: dict[bool, list[str]] = {False: [], True: []}
    codings = set()
    for shape in working:
        for stream, found in broken.items():
            for coding in _CODINGS if shape == working[0] else _CODINGS[:1]:
                request = build(shape, _SHORT, asker.model, params={"stream": stream})
                arrived, why = await _unpacked(asker, request, coding)
                codings |= {arrived}
                if why:
                    found.append(f"{route_of(shape)}, {'a stream' if stream else 'a reply'} with {coding}: {why}")
    if lost := [*broken[False], *broken[True]]:
        advice = "clients that accept packed replies, which most do, cannot read these"
        return Finding("packed replies", "fail" if broken[False] else "warn", first(lost, 3), advice)
    passed = " and ".join(coding for coding in _CODINGS if coding in codings)
    if passed:
        return Finding("packed replies", "ok", f"{passed} passed on, and readable")
    return Finding(
        "packed replies", "ok", "replies arrive unpacked: the upstream does not pack them, or the proxy unpacks them"
    )


async def _unpacked(asker: Asker, request: ShapedRequest, coding: str) -> tuple[str, str]:
    """The coding in which a reply arrived, and why it cannot be read; empty if it can."""
    try:
        reply = await asker.raw("POST", request.path, request.body, {**request.headers, "accept-encoding": coding})
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return "", f"no whole reply ({redact(str(error))[:200] or type(error).__name__})"
    if reply.status >= 400:
        return reply.coding, f"HTTP {reply.status}, which the same request without packing does not get"
    try:
        told = decode(reply.body, reply.coding)
        if not request.stream:
            parse_reply(request.wire, load_json(told))
            return reply.coding, ""
        reader = stream_reader(request.wire)
        reader.feed(told)
        reader.close()
    except (ValueError, BadReply) as error:
        return (
            reply.coding,
            f"marked {reply.coding or 'as not packed'}, and cannot be read ({redact(str(error))[:200]})",
        )
    return (
        reply.coding,
        "" if reader.complete and not reader.error else f"marked {reply.coding or 'as not packed'}, and not whole",
    )


#: In what a second request differs from the first, one thing at a time: words, and options of a shape.
_ASKED_ANEW: dict[str, dict[str, Any]] = {
    "another system prompt": {"system_prompt": "Answer in French."},
    "another temperature": {"params": {"temperature": 0.9}},
    "another limit": {"params": {"max_tokens": 77, "max_output_tokens": 77}},
    "other tools": {},
}


async def own_cache(asker: Asker, working: list[str]) -> Finding:
    """Are requests answered without the provider, and then also such as ask for something else?"""
    title, mark = "own cache", secrets.token_hex(4)
    wrong: list[str] = []
    repeats = 0
    for shape in working:
        example: Example = {"id": "doctor", "context": "", "question": f"When does gate {mark} open?"}
        whole = {"stream": False}
        first_asked = await asker.ask("cache", build(shape, example, asker.model, params=whole))
        again = await asker.ask("cache, again", build(shape, example, asker.model, params=whole))
        if first_asked.error or again.error or not first_asked.records:
            continue
        if again.records:
            continue
        repeats += 1
        for about, options in _ASKED_ANEW.items():
            request = build(shape, example, asker.model, **_options(shape, options))
            if about == "other tools":
                request.body["tools"] = [_TOOLS[request.wire]]
            other = await asker.ask(f"cache, {about}", request)
            if other.error is None and not other.records:
                wrong.append(f"{route_of(shape)}: with {about} it gets the earlier reply")
    if wrong:
        advice = "its cache is keyed by too little: switch it off, or clients get replies to what they did not ask"
        return Finding(title, "fail", first(wrong, 4), advice)
    if repeats:
        detail = "repeated requests are answered without the provider; what differs in one field is asked anew"
        return Finding(title, "ok", detail)
    return Finding(title, "ok", "none seen: repeated requests reach the provider")


def _options(shape: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a variant; a limit is called as that shape's API calls it."""
    other = "max_tokens" if shape == "codex" else "max_output_tokens"
    params = {name: value for name, value in options.get("params", {}).items() if name != other}
    return {**options, "params": {"stream": False, **params}}


_PLACE = {"type": "object", "properties": {"place": {"type": "string"}}}
_TOOLS: dict[str, dict[str, Any]] = {
    "openai-chat": {"type": "function", "function": {"name": "look", "parameters": _PLACE}},
    "anthropic": {"name": "look", "input_schema": _PLACE},
    "openai-responses": {"type": "function", "name": "look", "parameters": _PLACE, "strict": False},
}


async def marks(asker: Asker, working: list[str]) -> list[Finding]:
    """Does our key arrive, and our header?"""
    found: list[Finding] = []
    request = asker.short(working[0] if working else "plain-user")
    by_key, by_header = await asker.ask("key", request, "key"), await asker.ask("header", request, "header")
    key = any(record.matched_by == "key" for record in by_key.records)
    header = any(record.matched_by == "header" for record in by_header.records)
    other = "--marker header" if header else "--marker serial"
    if asker.proxy_key:
        found.append(
            Finding(
                "key forwarded",
                "unknown",
                "the proxy checks a key of its own, so ours is not sent as one",
                f"run with {other}",
            )
        )
    elif key:
        found.append(Finding("key forwarded", "ok", "the client's key reaches the provider"))
    else:
        found.append(
            Finding(
                "key forwarded",
                "warn",
                "the client's key does not reach the provider: it is dropped or replaced",
                f"run with {other}",
            )
        )
    if header:
        found.append(Finding("header forwarded", "ok", "x-context-bench reaches the provider"))
    else:
        advice = "" if key else "run with --marker serial"
        found.append(Finding("header forwarded", "warn", "x-context-bench does not reach the provider", advice))
    return found


#: What is asked of each kind of change: title, how bad it is, what it means.
_KINDS: dict[str, tuple[str, Status, str]] = {
    "role": ("roles", "fail", "the model no longer sees who said what"),
    "messages": ("messages", "warn", "the number of messages is part of what was tested"),
    "param": ("parameters", "warn", "set the same values in the proxy, or compare with this in mind"),
    "tools": ("tools", "warn", "an agent's tools must arrive as they are"),
    "cache_control": (
        "cache_control",
        "fail",
        "without the marks the provider caches nothing of the prompt, which costs more",
    ),
    "model": ("model", "warn", "another model answers than the one that was asked"),
}


async def kept(asker: Asker, working: list[str]) -> list[Finding]:
    """Do roles, messages, parameters, tools, marks, model and signed blocks arrive as they were sent?"""
    options: dict[str, Any] = {
        "system_prompt": "Answer briefly.",
        "params": {"temperature": 0.25, "metadata": {"user_id": "doctor"}},
    }
    seen = {shape: await asker.ask(f"kept {shape}", asker.short(shape, **options)) for shape in shapes_of(working)}
    compared = {shape: one for shape, one in seen.items() if one.compared is not None}
    found = [_tools(compared) if kind == "tools" else _kept_kind(kind, compared) for kind in _KINDS]
    found.append(_valid(seen))
    for shape, (title, put, violation) in _SIGNED.items():
        if shape in working:
            found.append(_signed(title, violation, await asker.ask(title, put(asker.short(shape)))))
    unknown = await asker.ask("unknown", asker.short(working[0], params={"x_unknown_parameter": [1]}))
    return [*found, _unknown_parameter(unknown)]


def _kept_kind(kind: str, compared: dict[str, Seen]) -> Finding:
    title, bad, meaning = _KINDS[kind]
    if not compared:
        return Finding(title, "unknown", "no request arrived on the wire on which it was sent")
    lost = [
        f"{shape}: {change.detail}"
        for shape, seen in compared.items()
        for change in seen.changes
        if change.kind == kind
    ]
    if not lost:
        return Finding(title, "ok", f"unchanged in {len(compared)} shapes")
    return Finding(title, bad, first(lost, 4), meaning)


def _tools(compared: dict[str, Seen]) -> Finding:
    """By name, where bodies are kept: words about a tool may become fewer, the tool must stay."""
    told = {shape: seen.violations for shape, seen in compared.items()}
    if not told or any(violations is None for violations in told.values()):
        return _kept_kind("tools", compared)
    title, bad, meaning = _KINDS["tools"]
    by_shape = {shape: tools_of(violations or []) for shape, violations in told.items()}
    lost = [
        f"{shape}: {phrase(kind, names)}"
        for shape, kinds in by_shape.items()
        for kind, names in kinds.items()
        if kind not in NOTES
    ]
    if lost:
        return Finding(title, bad, first(lost, 4), meaning)
    words = [f"{shape}: {', '.join(names[:3])}" for shape, kinds in by_shape.items() for names in kinds.values()]
    if words:
        return Finding(title, "ok", f"the same, described in other words ({first(words, 3)})")
    return Finding(title, "ok", f"unchanged in {len(compared)} shapes")


def _valid(seen: dict[str, Seen]) -> Finding:
    """Find what the provider may refuse of what the proxy made of requests; on another API also what got lost."""
    told = {shape: one.faults for shape, one in seen.items() if one.main is not None}
    if not told or any(faults is None for faults in told.values()):
        return Finding("valid requests", "unknown", "no body was kept of what arrived")
    found = [(shape, one) for shape, faults in told.items() for one in faults or []]
    if not found:
        return Finding("valid requests", "ok", f"nothing that a provider refuses in {len(told)} shapes")
    rules = [rule_for(one.kind, _wire_of(seen[shape]), added=True) for shape, one in found]
    bad = any(rule is None or rule.severity == "refused" for rule in rules)
    words = [f"{shape}: {one.kind} ({one.detail})" for shape, one in found]
    advice = next(
        (f"{rule.says}: {rule.source}" for rule in rules if rule is not None), "what was asked is not all there"
    )
    return Finding("valid requests", "fail" if bad else "warn", first(words, 3), advice)


def _wire_of(seen: Seen) -> str:
    return seen.main.wire if seen.main is not None else seen.request.wire


def _unknown_parameter(seen: Seen) -> Finding:
    if seen.error is not None:
        return Finding(
            "unknown parameters",
            "warn",
            f"refused: {seen.error}",
            "new provider features will not work through this proxy",
        )
    if any("x_unknown_parameter" in change.detail for change in seen.changes):
        return Finding(
            "unknown parameters", "warn", "dropped", "new provider features will not work through this proxy"
        )
    if seen.main is None or not seen.main.facts:
        return Finding("unknown parameters", "unknown", "it was not seen what became of one")
    return Finding("unknown parameters", "ok", "passed on")


# Blocks that only the provider can read
# ---------------------------------------------------------------------------------------------------

#: Made up: a provider that checks signatures refuses them, after they have arrived.
_SIGNATURE = "ZG9jdG9yOiBub3QgYSBzaWduYXR1cmUgb2YgYW55IG1vZGVs"


def _thinking(request: ShapedRequest) -> ShapedRequest:
    """An agent's turn in progress, with the signed thinking that led to its call."""
    body = copy.deepcopy(request.body)
    asked = next(message for message in body["messages"] if message["role"] == "assistant")
    asked["content"].insert(0, {"type": "thinking", "thinking": "The file will say when.", "signature": _SIGNATURE})
    body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    return ShapedRequest(request.wire, request.path, request.headers, body)


def _reasoning(request: ShapedRequest) -> ShapedRequest:
    """The same on the Responses wire: a reasoning item before the call that it led to."""
    body = copy.deepcopy(request.body)
    place = next(i for i, item in enumerate(body["input"]) if item["type"] == "function_call")
    body["input"].insert(
        place, {"type": "reasoning", "id": "rs_doctor", "summary": [], "encrypted_content": _SIGNATURE}
    )
    return ShapedRequest(request.wire, request.path, request.headers, body)


#: By shape: title of the finding, what puts the block in, what losing it is called.
_SIGNED: dict[str, tuple[str, Callable[[ShapedRequest], ShapedRequest], str]] = {
    "claude-code": ("thinking blocks", _thinking, "thinking_changed"),
    "codex": ("reasoning items", _reasoning, "reasoning_item_lost"),
}


def _signed(title: str, violation: str, seen: Seen) -> Finding:
    """Find what became of the signed block, whatever the provider then said of it."""
    main, violations = seen.compared, seen.violations
    meaning = (
        "by the providers' documentation a turn in progress needs its signed blocks as they were: agents "
        "that think may fail"
    )
    if main is None or not main.facts.get("parts"):
        return Finding(title, "unknown", "no such request arrived on the wire on which it was sent")
    if violations is None:
        before, after = (
            sum(kinds.count("reasoning") for kinds in told["parts"])
            for told in (facts(seen.request.parsed()), main.facts)
        )
        if after < before:
            return Finding(title, "fail", "dropped from the turn in progress", meaning)
        return Finding(title, "ok", "arrive; whether they are altered is not visible to a tap that keeps no bodies")
    if lost := next((one for one in violations if one.kind == violation), None):
        return Finding(
            title, "fail", f"dropped or altered in the turn in progress ({lost.kind}: {lost.detail})", meaning
        )
    return Finding(title, "ok", "unchanged in the turn in progress")


#: What proxies and providers say of a model that they do not know.
_UNKNOWN_MODEL = re.compile(
    r"model_not_found|model_not_supported|(?:invalid|unknown|unsupported|no such|not a valid) model"
    r"|\bmodels?\b.{0,120}?\b(?:not (?:be "
    r")?(?:found|exist|configured|available|supported|allowed|recogni[sz]ed|registered)"
    r"|does ?n.?t exist|is ?n.?t (?:configured|available|supported)|unknown|unavailable)",
    re.IGNORECASE | re.DOTALL,
)
_NO_ROUTE = (404, 405, 501)


async def reachable(asker: Asker) -> tuple[list[Finding], bool]:
    """Does anything answer, and does it list its models?"""
    base = asker.client.base_url
    try:
        reply = await asker.raw("GET", "/v1/models")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = redact(str(error)) or type(error).__name__
        return [
            Finding(
                "reachable", "fail", f"nothing answers at {base}: {reason}", "start the proxy, or check host and port"
            )
        ], False
    found = [Finding("reachable", "ok", f"{base} answers")]
    if reply.status == 200:
        asker.offered = _listed(reply.body)
        return [*found, Finding("route models", "ok", "GET /v1/models answers")], True
    return [
        *found,
        Finding(
            "route models",
            "warn",
            f"GET /v1/models gives HTTP {reply.status}",
            "clients that list models will not work",
        ),
    ], True


def _listed(body: bytes) -> list[str]:
    """The first ids in a list of models, in whatever form."""
    try:
        told = load_json(body)
    except ValueError:
        return []
    listed = told.get("data") if isinstance(told, Mapping) else told
    found = [item.get("id") for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
    return [name[:80] for name in found if isinstance(name, str)][:5]


def refuses_model(seen: Seen) -> bool:
    """True if the reply says that the model is not known, or not allowed."""
    refused = seen.call is not None and seen.call.status is not None and 400 <= seen.call.status < 600
    return refused and _UNKNOWN_MODEL.search(_words(seen)) is not None


def _words(seen: Seen) -> str:
    """The error, without the address before it."""
    return (seen.error or "").partition(": ")[2]


def route(name: str, seen: Seen, asker: Asker) -> Finding:
    """Does one route answer?"""
    title = f"route {name}"
    if seen.error is None:
        calls = len(seen.records)
        if calls > 1:
            advice = "its own calls cost money and time"
            return Finding(title, "warn", f"answers, with {calls} calls to the provider for one request", advice)
        wires = {record.wire for record in seen.records} - {seen.request.wire}
        return Finding(title, "ok", f"answers, and asks the provider over {wires.pop()}" if wires else "answers")
    status = seen.call.status if seen.call is not None else None
    if refuses_model(seen):
        return Finding(title, "fail", f"the model {asker.model!r} is not configured: {seen.error}", other_model(asker))
    if status in _NO_ROUTE:
        return Finding(
            title, "warn", f"not offered (HTTP {status})", "shapes that need it cannot be measured through this proxy"
        )
    return Finding(title, "fail", seen.error, "check the proxy's own upstream setting and key")


def other_model(asker: Asker) -> str:
    """Advice for a fault of the model."""
    offered = ", ".join(name for name in asker.offered if name != asker.model)
    return f"give --model NAME, one that the proxy has{': ' if offered else ''}{offered}"


async def count_tokens(asker: Asker) -> Finding:
    """Does it count tokens for clients that ask before they send?"""
    body = {"model": asker.model, "messages": [{"role": "user", "content": "hello"}]}
    try:
        status = (await asker.raw("POST", "/v1/messages/count_tokens", body)).status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return Finding("route count_tokens", "warn", f"no answer: {redact(str(error)) or type(error).__name__}")
    if status == 200:
        return Finding("route count_tokens", "ok", "answers")
    return Finding("route count_tokens", "warn", f"HTTP {status}", "clients that count before they send will guess")


def nothing_arrived(asker: Asker, recorder: Recorder, asked: dict[str, Seen]) -> Finding:
    """Explain a recorder that saw nothing: requests that the proxy itself refused never went on."""
    where = getattr(recorder, "url", "the tap's URL")
    upstream = f"set the proxy's own upstream base URL to {where} (or {where}/v1) and start it again"
    name = "seen by the tap"
    if any(refuses_model(seen) for seen in asked.values()) and all(seen.error is not None for seen in asked.values()):
        detail = f"nothing went on to the tap: the proxy answered that the model {asker.model!r} is not configured"
        return Finding(name, "fail", detail, other_model(asker))
    return Finding(name, "fail", "nothing of what was sent arrived at the tap", upstream)
