"""Checks of requests, one and several: is what arrives at the provider what the client asked, on each API and at each
size? What becomes of own caches, prefixes, keys, many clients at once, the same thing twice?

The bodies are those of `requests.json`: agents' turns with parallel calls and thinking, settings, images, forms of
answers. A text that became shorter is no fault.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from context_bench.core.families import GradeAnswer, GradeCheck, GradeFault
from context_bench.core.keys import canonical_json, load_json
from context_bench.llm.redact import redact
from context_bench.llm.responders import Delivery, ResponderError, Staged
from context_bench.llm.servers import Received
from context_bench.tap.exchange import KEY_HEADERS
from context_bench.traffic.probes import (
    KEY,
    OTHER_KEY,
    WIRES,
    Heard,
    ProbeExchange,
    ProbeRig,
    fault,
    plain,
    refused,
    says,
)
from context_bench.wire.apis import ShapedRequest
from context_bench.wire.diff import first_difference
from context_bench.wire.request import WireRequest
from context_bench.wire.violations import Violation, compare_requests, lint_changes, repeated_requests

_TICKET = re.compile(r"ticket-(\d{3})-[0-9a-f]{6}")
_Ask = Callable[[ProbeRig, str], Awaitable[GradeAnswer]]
_SIZES = {"100 kB": 100_000, "5 MB": 5_000_000}
#: Recorded sessions that are replayed on each API, and requests of each.
_SESSIONS, _TURNS = 3, 6
_BETA = {"anthropic-beta": "context-management-2025-06-27"}


@lru_cache(maxsize=1)
def bodies() -> dict[str, dict[str, dict[str, Any]]]:
    """API → what the request is about → its body without a model."""
    read: dict[str, dict[str, dict[str, Any]]] = json.loads(
        Path(__file__).with_name("requests.json").read_text("utf-8")
    )
    return read


def request_checks(rig: ProbeRig) -> list[GradeCheck]:
    """One check for each body of each API, and for each size."""
    checks = [
        GradeCheck(
            f"request, {WIRES[wire]}: {about}",
            ("faithful requests", "cache and money") if "cache_control" in str(body) else ("faithful requests",),
            f"Does {about} arrive as it was sent?",
            partial(_arrives, rig, wire, body),
        )
        for wire, listed in bodies().items()
        for about, body in listed.items()
    ]
    for wire, route in WIRES.items():
        checks.append(_check(f"request, {route}: a field that is not known", partial(_unknown, rig, wire)))
        checks += [
            _check(f"request, {route}: a body of {name}", partial(_large, rig, wire, size))
            for name, size in _SIZES.items()
        ]
    return checks


def _check(name: str, ask: Callable[[], Awaitable[GradeAnswer]]) -> GradeCheck:
    return GradeCheck(name, ("faithful requests",), "Does it arrive as it was sent?", ask)


async def _arrives(rig: ProbeRig, wire: str, body: dict[str, Any]) -> GradeAnswer:
    if (missing := await rig.missing(wire)) is not None:
        return missing
    headers = _BETA if wire == "anthropic" else {}
    asked = await rig.ask(rig.request(wire, _fresh(rig, body), headers=headers), says(plain()))
    return refused(asked) or GradeAnswer(tuple(request_faults(asked)))


def _fresh(rig: ProbeRig, body: dict[str, Any], mark: str = "") -> dict[str, Any]:
    """A body of `requests.json` with a mark where its text has a place for one."""
    made: dict[str, Any] = json.loads(json.dumps(body, ensure_ascii=False).replace("§", mark or rig.unique()))
    return made


def request_faults(asked: ProbeExchange) -> list[GradeFault]:
    """The changes to a request that arrived, and its repeats."""
    main = asked.main
    assert main is not None, "what did not arrive is told before"
    sent, same = asked.request, main.wire == asked.request.wire
    found: list[Violation] = compare_requests(
        sent.parsed(),
        main.request,
        sent_headers=sent.headers if same else None,  # of one API: on another they mean nothing
        received_headers=main.headers if same else None,
    )
    if isinstance(main.body, Mapping):
        found += lint_changes(sent.body, main.body, sent_wire=sent.wire, wire=main.wire, known=found)
    found = [one for one in found if not _follows(one, found, sent, same)]
    again = repeated_requests([(each.raw, 200) for each in asked.arrived])
    faults = [fault(one.kind, one.detail, asked, tokens=True) for one in [*found, *again]]
    if own := len(asked.arrived) - 1 - len(again):
        faults.append(fault("own_call", f"{own} more calls of the proxy's own for one request", asked))
    if not any(main.headers.get(name) for name in KEY_HEADERS):
        faults.append(fault("key_lost", "no header of what arrived holds a key", asked))
    return faults


def _follows(one: Violation, found: list[Violation], sent: ShapedRequest, same: bool) -> bool:
    """True for what follows from another finding, or from the other API: it is no fault of its own.

    A tool that was added to a request without any makes `auto` of its choice. An image in a tool's result has to go
    into a user's message on an API whose results hold only text.
    """
    kinds = {each.kind for each in found}
    if one.kind == "tool_choice_changed":
        return not sent.body.get("tools") and "tool_added" in kinds
    apart = one.kind in ("message_added", "last_user_changed") and "media_lost" not in kinds
    return apart and not same and _media_in_results(sent.body)


def _media_in_results(body: Mapping[str, Any]) -> bool:
    blocks = [
        block
        for message in body.get("messages") or []
        for block in (message["content"] if isinstance(message.get("content"), list) else [])
        if block.get("type") == "tool_result" and isinstance(block.get("content"), list)
    ]
    return any(part.get("type") != "text" for block in blocks for part in block["content"])


async def _unknown(rig: ProbeRig, wire: str) -> GradeAnswer:
    if (missing := await rig.missing(wire)) is not None:
        return missing
    asked = await rig.ask(rig.short(wire, x_unknown_parameter=[1]), says(plain()))
    heard = asked.heard
    if heard.error or (heard.status or 0) >= 400 or asked.main is None:
        said = heard.error or f"HTTP {heard.status}: {heard.text[:200]}"
        return GradeAnswer((fault("unknown_field_lost", f"x_unknown_parameter is refused: {said}", asked),))
    if "x_unknown_parameter" not in (asked.main.body or {}):
        return GradeAnswer((fault("unknown_field_lost", "x_unknown_parameter is dropped", asked),))
    return GradeAnswer()


async def _large(rig: ProbeRig, wire: str, size: int) -> GradeAnswer:
    if (missing := await rig.missing(wire)) is not None:
        return missing
    line = f"{rig.unique()} {{:07}} the keeper wrote down who came through the gate, and with what goods.\n"
    log = "".join(map(line.format, range(size // len(line.format(0)))))
    request = _with_log(rig, wire, log)
    asked = await rig.ask(request, says(plain()))
    answer = refused(asked, "large_request_refused")
    if answer is not None:
        return GradeAnswer(
            tuple(GradeFault(one.kind, one.detail, f"a body of {size:,} bytes") for one in answer.faults)
        )
    told = [one for one in request_faults(asked) if one.kind != "json_reserialised"]
    return GradeAnswer(tuple(GradeFault(one.kind, one.detail, f"a body of {size:,} bytes") for one in told))


def _with_log(rig: ProbeRig, wire: str, log: str) -> ShapedRequest:
    """A question about a long text that came before it."""
    field = "input" if wire == "openai-responses" else "messages"
    turns = [
        {"role": "user", "content": log},
        {"role": "assistant", "content": "I have read it."},
        {"role": "user", "content": "Who came last?"},
    ]
    return rig.request(wire, {field: turns})


def conduct_checks(rig: ProbeRig) -> list[GradeCheck]:
    """The checks of several requests, on each API."""
    checks = []
    for wire, route in WIRES.items():
        for about, (headings, question, ask) in _CONDUCT.items():
            checks.append(GradeCheck(f"{about}, {route}", headings, question, partial(_offered, rig, wire, ask)))
    return checks


async def _offered(rig: ProbeRig, wire: str, ask: _Ask) -> GradeAnswer:
    return await rig.missing(wire) or await ask(rig, wire)


# ProbeExchange twice
# -------------------------------------------------------------------------------------------------------------------


def _variants(wire: str) -> dict[str, dict[str, Any]]:
    """One field each in which a second request differs from the first."""
    tool = {"type": "object", "properties": {"place": {"type": "string"}}}
    if wire == "anthropic":
        tools: list[dict[str, Any]] = [{"name": "look", "input_schema": tool}]
        system: dict[str, Any] = {"system": "Answer in French."}
    elif wire == "openai-responses":
        tools = [{"type": "function", "name": "look", "parameters": tool, "strict": False}]
        system = {"instructions": "Answer in French."}
    else:
        tools = [{"type": "function", "function": {"name": "look", "parameters": tool}}]
        system = {"response_format": {"type": "json_object"}}
    most = "max_output_tokens" if wire == "openai-responses" else "max_tokens"
    return {
        "other tools": {"tools": tools},
        "another system prompt" if wire != "openai-chat" else "another form of answer": system,
        "another temperature": {"temperature": 0.9},
        "another limit of output": {most: 77},
    }


async def _one_field(rig: ProbeRig, wire: str) -> GradeAnswer:
    """An answer from the proxy's own cache must not be given to a request that asks something else."""
    question = f"Is the gate open on the first of May? ({rig.unique()})"
    first = await rig.ask(rig.short(wire, question, temperature=0.0), says(plain("The first answer.")))
    found = []
    for about, changed in _variants(wire).items():
        request = rig.short(wire, question, **{"temperature": 0.0, **changed})
        again = await rig.ask(request, says(plain("The second answer.")))
        if again.heard.status == 200 and not again.arrived:
            detail = f"a request with {about} gets the earlier reply; the provider was not asked"
            found.append(
                GradeFault(
                    "reply_for_another_request", detail, f"{first.sent_text}\n{again.sent_text}", again.heard.text
                )
            )
    same = await rig.ask(rig.short(wire, question, temperature=0.0), says(plain("The second answer.")))
    detail = "" if same.arrived else "the proxy answers a repeated request from a cache of its own"
    return GradeAnswer(tuple(found), detail=detail)


async def _another_key(rig: ProbeRig, wire: str) -> GradeAnswer:
    """A reply belongs to the key that asked for it."""
    if rig.target.key:
        return GradeAnswer(not_asked="the proxy checks a key of its own, so ours is not sent")
    question = f"What did I ask you to remember? ({rig.unique()})"
    await rig.ask(rig.short(wire, question, temperature=0.0), says(plain("It was the harbour code 4711.")))
    other = await rig.ask(
        rig.short(wire, question, temperature=0.0), says(plain("You asked nothing of me.")), key=OTHER_KEY
    )
    found = []
    if other.heard.status == 200 and not other.arrived:
        detail = "another key asks the same and gets the first one's reply; the provider was not asked"
        found.append(GradeFault("reply_shared_between_keys", detail, other.sent_text, other.heard.text))
    if any(_bears(each, KEY) for each in other.arrived):
        found.append(fault("key_of_another", "the second client's request went on with the first one's key", other))
    return GradeAnswer(tuple(found))


def _bears(received: Received, key: str) -> bool:
    return any(key in value for value in received.headers.values())


async def _key_in_reply(rig: ProbeRig, wire: str) -> GradeAnswer:
    """Errors are shown to people and kept in logs: no key belongs there."""
    key = rig.target.key or KEY
    found = []
    for status in (401, 500):

        def failing(request: WireRequest, headers: Mapping[str, str], status: int = status) -> Staged:
            raise ResponderError(status, "grade says no")

        asked = await rig.ask(rig.short(wire), failing)
        shown = asked.heard.body + repr(asked.heard.headers).encode()
        if key.encode() in shown:
            found.append(GradeFault("key_exposed", f"the error after HTTP {status} holds the client's key"))
    return GradeAnswer(tuple(found))


async def _other_conversation(rig: ProbeRig, wire: str) -> GradeAnswer:
    """Text of one conversation in the request of another, of another key."""
    secret = f"BLUE-HERON-{rig.unique()}"
    text = f"Remember: the code of the gate is {secret}.\n\nWhat is the code of the gate?"
    await rig.ask(rig.short(wire, text), says(plain("I remember it.")))
    other = await rig.ask(
        rig.short(wire, "What is the code of the gate?"), says(plain("I do not know.")), key=OTHER_KEY
    )
    where = [
        words
        for words, raw in (
            ("the other's request", b"".join(each.raw for each in other.arrived)),
            ("the other's reply", other.heard.body),
        )
        if secret.encode() in raw
    ]
    if where:
        detail = f"what one client said stands in {' and '.join(where)}"
        return GradeAnswer((fault("leak_between_conversations", detail, other),))
    return GradeAnswer()


async def _same_bytes(rig: ProbeRig, wire: str) -> GradeAnswer:
    """Prompt caches compare bytes: the same request must be forwarded as the same ones."""
    body, mark = bodies()[wire]["an agent's turn"], rig.unique()
    request = rig.request(wire, _fresh(rig, body, mark))
    arrived = [one.main.raw for one in [await rig.ask(request, says(plain())) for _ in range(3)] if one.main]
    if len(arrived) < 3:  # it has a cache of its own: the same with other marks, which are then put right
        marks = [rig.unique() for _ in range(3)]
        asked = [await rig.ask(rig.request(wire, _fresh(rig, body, each)), says(plain())) for each in marks]
        arrived = [
            one.main.raw.replace(each.encode(), mark.encode())
            for one, each in zip(asked, marks, strict=True)
            if one.main
        ]
    if len(arrived) < 2:
        return GradeAnswer(not_asked="a repeated request is answered without the provider")
    first = arrived[0]
    other = next((each for each in arrived[1:] if each != first), None)
    if other is None:
        return GradeAnswer()
    place = next((i for i, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), min(len(first), len(other)))
    around = slice(max(0, place - 80), place + 120)
    detail = f"the same request is forwarded as other bytes, from byte {place:,} on{_cause(first, other)}"
    was, now = (redact(raw[around].decode("utf-8", "replace"), (KEY, OTHER_KEY)) for raw in (first, other))
    return GradeAnswer((GradeFault("bytes_differ", detail, was, now, request.tokens()),))


def _cause(first: bytes, other: bytes) -> str:
    """The field that differs first and the cause (key order, completion order, times, ids), where both are JSON."""
    try:
        difference = first_difference(load_json(first), load_json(other))
    except ValueError:
        return ""
    if difference is None:
        return ": white space or escapes"
    return f"{f', {difference.path}' if difference.path else ''}: {difference.cause}"


async def _growing(rig: ProbeRig, wire: str) -> GradeAnswer:
    """A session that grows: what was forwarded before stays the beginning of what is forwarded now."""
    field = "input" if wire == "openai-responses" else "messages"
    head = (
        {"system" if wire == "anthropic" else "instructions": "You keep the records."} if wire != "openai-chat" else {}
    )
    turns: list[dict[str, Any]] = []
    before: list[str] = []
    mark = rig.unique()
    for number in range(5):
        log = "\n".join(f"2031-04-{number + 1:02} {hour:02}:00 INFO gate-{hour % 4} closed" for hour in range(24))
        turns.append({"role": "user", "content": f"{log}\n\nWhat happened on day {number + 1}? ({mark})"})
        asked = await rig.ask(rig.request(wire, {**head, field: turns}), says(plain()))
        main = asked.main
        if main is None:
            return GradeAnswer(not_asked=f"turn {number + 1} did not arrive at the provider")
        now = [canonical_json([message.role, message.text]) for message in main.request.messages]
        kept = next(
            (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
        )
        if kept < len(before) - 1:  # the last message may change when it is the last no more
            detail = f"turn {number + 1}: message {kept + 1} of the {len(before):,} that were forwarded is another now"
            shown = (before[kept], now[kept] if kept < len(now) else "")
            tokens = asked.request.tokens()
            return GradeAnswer(
                (
                    GradeFault("prefix_broken", detail, *shown, tokens),
                    GradeFault("history_rewritten", detail, *shown, tokens),
                )
            )
        before = now
        turns.append({"role": "assistant", "content": "The gate opens at nine."})
    return GradeAnswer()


async def _replayed(rig: ProbeRig, wire: str) -> GradeAnswer:
    """The beginning of recorded sessions of agents, request by request; of each kind the first fault counts."""
    from context_bench.datasets.recorded import RecordedSessions

    firsts: dict[str, GradeFault] = {}
    count = 0
    for _, session in RecordedSessions(["bundled:sessions"], _SESSIONS, wire).sessions():
        for recorded in session.requests[:_TURNS]:
            body = {name: value for name, value in recorded.body.items() if name not in ("model", "stream")}
            asked = await rig.ask(rig.request(wire, body, headers=recorded.headers), says(plain()))
            count += 1
            answer = refused(asked) or GradeAnswer(tuple(request_faults(asked)))
            for found in answer.faults:
                detail = f"session {session.id}, request {count}: {found.detail}"
                firsts.setdefault(found.kind, replace(found, detail=detail))
    return GradeAnswer(tuple(firsts.values()), detail=f"{count} requests of {_SESSIONS} sessions")


# Many at once
# -------------------------------------------------------------------------------------------------------------------


def _answering_tickets(seconds: float) -> Callable[[WireRequest, Mapping[str, str]], Staged]:
    def script(request: WireRequest, headers: Mapping[str, str]) -> Staged:
        texts = "\n".join(message.text for message in request.messages)
        found = _TICKET.search(texts)
        reply = plain(f"You hold {found[0] if found else 'no ticket'}.")
        return Staged(reply, Delivery(delay=seconds))

    return script


async def _at_once(rig: ProbeRig, wire: str, *, stream: bool = False) -> GradeAnswer:
    """So many clients at once, each with a ticket of its own."""
    count = rig.target.load
    tickets = [f"ticket-{number:03}-{number * 7919 % 0xFFFFFF:06x}" for number in range(count)]
    rig.stage.script = _answering_tickets(0.4)
    rig.provider.most_in_flight, before = 0, rig.provider.seen
    requests = [
        rig.short(wire, f"I hold {ticket}. Which is mine? ({rig.unique()})", stream=stream) for ticket in tickets
    ]
    heard = await asyncio.gather(*(rig.send(request) for request in requests))
    found = [
        each
        for ticket, request, one in zip(tickets, requests, heard, strict=True)
        if (each := _own(ticket, request, one)) is not None
    ]
    shown = []
    for kind in dict.fromkeys(each.kind for each in found):
        same = [each for each in found if each.kind == kind]
        more = f"; so {len(same)} of {count}" if len(same) > 1 else ""
        shown.append(replace(same[0], detail=f"{same[0].detail}{more}"))
    if len(rig.since(before)) == count > 1 and rig.provider.most_in_flight == 1:
        shown.append(GradeFault("one_at_a_time", f"{count} requests at once reached the provider one after the other"))
    ends = sorted(one.pieces[-1][0] for one in heard if one.pieces)
    detail = f"{count} at once: median {ends[len(ends) // 2]:.2f} s, slowest {ends[-1]:.2f} s, " if ends else ""
    most = rig.provider.most_in_flight
    return GradeAnswer(tuple(shown), detail=f"{detail}at most {most} at the provider, which takes 0.40 s for each")


def _own(ticket: str, request: ShapedRequest, heard: Heard) -> GradeFault | None:
    """The fault of one reply among many; `None` if it is the client's own."""
    if heard.error or heard.status != 200:
        said = heard.error or f"HTTP {heard.status}: {heard.text[:200]}"
        if heard.status == 429:
            return GradeFault("rate_limited", f"{ticket}: {said}", canonical_json(request.body), heard.text)
        return GradeFault("request_lost", f"{ticket}: {said}", canonical_json(request.body), heard.text)
    named = _TICKET.search(heard.reply(request.wire).text or "")
    if named is None:
        return GradeFault("request_lost", f"{ticket}: no ticket in the reply", canonical_json(request.body), heard.text)
    if named[0] != ticket:
        return GradeFault(
            "reply_of_another", f"{ticket} gets the reply of {named[0]}", canonical_json(request.body), heard.text
        )
    return None


_CONDUCT: dict[str, tuple[tuple[str, ...], str, _Ask]] = {
    "asked twice with one field changed": (
        ("faithful replies", "cache and money"),
        "Is a reply from its own cache the reply to this request?",
        _one_field,
    ),
    "asked twice with another key": (("privacy",), "Does one client get another's reply or key?", _another_key),
    "a key in an error": (("privacy",), "Does an error hold the client's key?", _key_in_reply),
    "another's conversation": (("privacy",), "Does text of one reach another?", _other_conversation),
    "the same request three times": (("determinism",), "Is it forwarded as the same bytes?", _same_bytes),
    "a session that grows": (
        ("determinism", "cache and money"),
        "Does what was forwarded before stay the beginning?",
        _growing,
    ),
    "recorded sessions": (
        ("faithful requests", "cache and money"),
        "Does what agents really send arrive as it was sent?",
        _replayed,
    ),
    "many at once": (("concurrency",), "Does each get its own reply?", _at_once),
    "many streams at once": (("concurrency",), "Does each get its own stream?", partial(_at_once, stream=True)),
}
