"""Tokens and wire facts of one row: from the ledger's calls, from the tap's records, or from what the system returned.

Keys of `EvalRow.wire` (only with a tap; absent = unknown): `source`, `sent`, `forwarded`, `billed` (tokens), `exact`,
`calls` (requests that reached the provider), `client_calls`, `extra_calls`, `other_calls` (not chat), `role_changes`,
`param_changes`, `changes` ([{kind, detail}]), `text_changed`, `authorization_forwarded`, `matched_by`, `prefix_tokens`,
`truncated`, `bytes`, `uncounted_parts`, `late`, `oversized` (bodies too large to be read); in runs that compare arms by
what arrives: `arrived_as`, `copied` (see `arrived_as`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any
from urllib.parse import urlsplit

from context_bench.core import protocols as calling
from context_bench.core.keys import keyed_digest, stable_hash
from context_bench.core.numbers import count
from context_bench.core.protocols import Prices
from context_bench.core.records import Account, Call, Example, Forwarded, Usage
from context_bench.core.tokens import count_tokens_dict, counter_for
from context_bench.engine.plan import PlannedArm, WorkOutcome
from context_bench.wire.conversation import message_text
from context_bench.wire.request import Change, changes, count_request, facts

#: Fields of an example whose tokens are compared where no others are chosen.
TEXT_FIELDS = ("context",)
CHAT = ("openai-chat", "openai-responses", "anthropic")
#: Billed below this share of an exact count means that the provider cut the prompt without saying so.
TRUNCATED_BELOW = 0.8
_MOST_CHANGES = 20
_COUNTS = tuple(each.name for each in fields(Usage))


def answered(calls: Sequence[Call], account: str = "system") -> list[Call]:
    """Calls of an account that got a reply; if none did, the first attempts."""
    if len(calls) == 1 and calls[0].error is None:
        return [calls[0]]
    own = [call for call in calls if call.account == account] or list(calls)
    return [call for call in own if call.error is None] or [call for call in own if call.attempt == 1]


def sent_tokens(calls: Sequence[Call]) -> int | None:
    """Tokens our client sent, each request once however often it was tried; `None` if any could not be counted."""
    return _total(call.sent_tokens for call in answered(calls))


def billed_tokens(calls: Sequence[Call]) -> int | None:
    """Prompt tokens as the provider told them in the replies; `None` if any reply does not."""
    return _total(call.usage.input_tokens if call.usage else None for call in answered(calls) if call.error is None)


def forwarded_tokens(records: Sequence[Forwarded], calls: Sequence[Call] = ()) -> int | None:
    """Tokens of the chat requests that reached the provider and were answered, retries not counted twice; `None` if any
    is uncountable.
    """
    return _total(record.tokens for record in landed(records, calls))


def landed(records: Sequence[Forwarded], calls: Sequence[Call] = ()) -> list[Forwarded]:
    """Requests to a model that were answered; if none was, all that were tried. `calls`: ours, of which one that failed
    was tried again. Where the tap saw the end of no reply and our client has an answer, it is one of those that broke.
    """
    chat = [record for record in records if record.wire in CHAT]
    served = [record for record in chat if _served(record)]
    if not served and any(call.account == "system" and call.error is None for call in calls):
        served = chat
    return _answered_to(calls, chat, served) or chat


def _answered_to(calls: Sequence[Call], chat: Sequence[Forwarded], served: list[Forwarded]) -> list[Forwarded]:
    """The records that the provider served, without those of attempts that failed on our side all the same: their reply
    was an error with status 200, no answer, or came too late. One record belongs to each attempt that arrived.
    """
    client = [call for call in calls if call.account == "system"]
    ours, failed = (
        answered(client),
        [call for call in client if call.error is not None and "Could not connect" not in call.error],
    )
    again = min(len(failed) - (len(chat) - len(served)), len(served) - len(ours))
    if again <= 0:
        return served
    left = paired(ours, served[::-1])[1]  # of equal ones the last is the one that was answered
    dropped = {id(record) for _, record in paired(failed, left[::-1])[0][:again]}
    return [record for record in served if id(record) not in dropped]


def _served(record: Forwarded) -> bool:
    return record.error is None and (record.status is None or record.status < 400)


def _total(values: Any) -> int | None:
    found = list(values)
    return sum(found) if found and all(value is not None for value in found) else None


def usage_of(calls: Sequence[Call]) -> dict[str, Any]:
    """Billed tokens, US dollars, number of attempts, the first reply's `ttft` in seconds, and how many requests were
    `in_flight` when it was asked for; what nobody told is absent.
    """
    if not calls:
        return {}
    total: Usage | None = None
    cost = ttft = load = None
    for call in calls:
        if call.usage is not None:
            total = call.usage if total is None else total + call.usage
        if call.cost is not None:
            cost = call.cost if cost is None else cost + call.cost
        if call.error is None:
            ttft = call.ttft if ttft is None else ttft
            load = call.in_flight if load is None else load
    found: dict[str, Any] = (
        {} if total is None else {name: count for name in _COUNTS if (count := getattr(total, name)) is not None}
    )
    for name, value in (("cost", cost), ("ttft", ttft), ("in_flight", load)):
        if value is not None:
            found[name] = value
    found["calls"] = len(calls)
    return found


def observed(calls: Sequence[Call], records: Sequence[Forwarded]) -> dict[str, Any]:
    """The row's `wire` from our calls and the tap's records of one window."""
    chat, client = (
        [record for record in records if record.wire in CHAT],
        [call for call in calls if call.account == "system"],
    )
    arrived = landed(records, client)
    found: dict[str, Any] = {
        "source": "tap",
        "sent": sent_tokens(client),
        "forwarded": _total(record.tokens for record in arrived),
        "billed": _total(record.usage.input_tokens if record.usage else None for record in arrived),
        "calls": len(chat),
        "client_calls": len(client),
        "extra_calls": max(0, len(chat) - max(1, len(client))),
        "other_calls": len(records) - len(chat),
        "late": sum(record.late for record in records),
    }
    if chat:
        found |= {
            "exact": all(record.exact for record in arrived),
            "bytes": sum(record.bytes_in for record in chat),
            "uncounted_parts": sum(record.uncounted_parts for record in chat),
            "matched_by": chat[0].matched_by,
            "prefix_tokens": _total(record.prefix_tokens for record in arrived),
            "truncated": any(_truncated(record) for record in arrived),
            "authorization_forwarded": _authorization(chat),
            "oversized": sum(record.oversized for record in records) or None,
        }
        found |= _compared(client, arrived)
    return {key: value for key, value in found.items() if value is not None}


def arrived_as(calls: Sequence[Call], records: Sequence[Forwarded], mark: str) -> dict[str, Any]:
    """Digest of what arrived of a row, for comparison with the baseline's row on the same example (`BaselinePairing`).

    `arrived_as`: hex digits of all its requests, in order; two rows that have the same were answered from one
    distribution. Only where each reply reached our client as the tap passed it on: the same text, calls and end.
    `copied`: how many of the requests were answered with the baseline's replies; `assumed`: how many of them only
    because all evidence arrived.
    """
    client = [call for call in calls if call.account == "system"]
    ours, arrived = answered(client), landed(records, client)
    copied = sum(bool(record.facts.get("copied")) for record in arrived)
    found: dict[str, Any] = {"copied": copied} if copied else {}
    if assumed := sum(bool(record.facts.get("assumed")) for record in arrived):
        found["assumed"] = assumed
    if not arrived or len(ours) != len(arrived) or not all(record.facts.get("arrived_as") for record in arrived):
        return found
    ours, arrived = sorted(ours, key=lambda call: call.started), sorted(arrived, key=lambda record: record.started)
    if all(_answer(call, mark) == record.facts.get("answered_as") for call, record in zip(ours, arrived, strict=True)):
        digests = [record.facts["arrived_as"] for record in arrived]
        found["arrived_as"] = digests[0] if len(digests) == 1 else stable_hash(digests, len(digests[0]))
    return found


def arrived_texts(
    calls: Sequence[Call], records: Sequence[Forwarded] | None, output: Mapping[str, Any]
) -> list[str] | None:
    """The texts that went on to the model: of each request that the tap saw (where it keeps bodies), else the context
    that the system gave back; `None` where neither is known.
    """
    from context_bench.wire.apis import parse_request

    arrived = landed(records, [call for call in calls if call.account == "system"]) if records else []
    if not arrived:
        return [output["context"]] if isinstance(output.get("context"), str) else None
    if not all(_plain(record) and isinstance(record.request, Mapping) for record in arrived):
        return None
    requests = [parse_request(record.wire, record.request) for record in arrived]
    return ["\n".join(message.text for message in request.messages) for request in requests]


def _answer(call: Call, mark: str) -> str | None:
    """An answer as our client read it, in the words of `Forwarded.facts["answered_as"]`."""
    if call.error is not None or not isinstance(call.reply, Mapping):
        return None
    message = call.reply
    said = [message.get("content") or "", message.get("tool_calls") or [], message.get("refusal") or ""]
    return keyed_digest(mark, [*said, call.finish_reason])


def with_late(
    wire: dict[str, Any], tokens: int | None, records: Sequence[Forwarded]
) -> tuple[dict[str, Any], int | None]:
    """A closed row's `wire` and forwarded tokens, with requests that arrived after it was closed."""
    chat = [record for record in records if record.wire in CHAT]
    more = forwarded_tokens(records)
    seen = wire.get("source") == "tap"
    total = tokens if more is None else more + (tokens or 0 if seen else 0)
    calls = wire.get("calls", 0) + len(chat)
    joined = {
        **wire,
        "source": "tap" if seen or more is not None else wire.get("source"),
        "forwarded": total,
        "calls": calls,
        "extra_calls": max(0, calls - max(1, wire.get("client_calls", 0))),
        "other_calls": wire.get("other_calls", 0) + len(records) - len(chat),
        "late": wire.get("late", 0) + len(records),
        "bytes": wire.get("bytes", 0) + sum(record.bytes_in for record in chat),
    }
    return {key: value for key, value in joined.items() if value is not None}, total


def _truncated(record: Forwarded) -> bool:
    told = record.usage.input_tokens if record.usage else None
    return bool(record.exact and told and record.tokens and told < TRUNCATED_BELOW * record.tokens)


def _authorization(records: Sequence[Forwarded]) -> bool | None:
    known = [record.authorization for record in records if record.authorization is not None]
    return all(known) if known else None


def added_calls(calls: Sequence[Call], records: Sequence[Forwarded], prices: Prices | None) -> list[Call]:
    """Calls that a proxy made on its own account while it answered ours: no ledger has them, but they are
    on the bill.
    """
    if not records:
        return []
    ours = answered([call for call in calls if call.account == "system"])
    chat = [record for record in records if record.wire in CHAT]
    served = _answered_to(calls, chat, [record for record in chat if _served(record)])
    left = paired(ours, served)[1] if len(served) > len(ours) else []
    return [_own_call(record, prices) for record in left[: len(served) - len(ours)]]


def calls_seen(records: Sequence[Forwarded], prices: Prices | None) -> list[Call]:
    """The calls of a system that is a program of its own, as the tap saw them: nobody else could tell."""
    calls = [_own_call(record, prices, "system") for record in records if record.wire in CHAT]
    for call in calls:
        call.sent_tokens = None  # what it was before a proxy nobody has seen
    return calls


def _own_call(record: Forwarded, prices: Prices | None, account: Account = "compressor") -> Call:
    model, usage = record.model or "", record.usage
    cost = prices.cost(usage, model) if prices is not None and usage is not None else None
    error = None if _served(record) else record.error or f"HTTP {record.status}"
    call = Call(account, model, record.path, record.started, record.seconds, record.ttft, status=record.status)
    call.sent_tokens, call.exact, call.usage, call.cost, call.error = record.tokens, record.exact, usage, cost, error
    return call


def paired(
    client: Sequence[Call], arrived: Sequence[Forwarded]
) -> tuple[list[tuple[Call, Forwarded]], list[Forwarded]]:
    """Each of our requests with the forwarded one that is most like it, and the forwarded ones that are left."""
    pairs, left = _pairs_with_facts(client, arrived)
    return [(call, record) for call, _, record in pairs], left


def _pairs_with_facts(
    client: Sequence[Call], arrived: Sequence[Forwarded]
) -> tuple[list[tuple[Call, tuple[str, dict[str, Any]], Forwarded]], list[Forwarded]]:
    """The same, with what `sent_facts` tells of each of our requests."""
    left, pairs = list(arrived), []
    for call in client:
        sent = sent_facts(call)
        if sent is None or not left:
            continue
        distances = [_distance(call, *sent, record) for record in left] if len(left) > 1 else []
        pairs.append((call, sent, left.pop(distances.index(min(distances)) if distances else 0)))
    return pairs, left


def _distance(call: Call, wire: str, said: dict[str, Any], record: Forwarded) -> tuple[int, bool, int]:
    """Distance of a forwarded request from ours: first by its build, then by its text, then by its length."""
    tokens = abs((record.tokens or 0) - (call.sent_tokens or 0))
    return len(_differences(wire, said, record)), _text_changed(call, said, record) is not False, tokens


def _compared(client: Sequence[Call], arrived: Sequence[Forwarded]) -> dict[str, Any]:
    """Each of our requests against the forwarded one that is most like it: a proxy's extra calls are not changes."""
    found, texts = [], set[bool | None]()
    pairs, _ = _pairs_with_facts(answered(client), arrived)
    for call, (wire, said), best in pairs:
        found += _differences(wire, said, best)
        texts.add(_text_changed(call, said, best))
    if not pairs:
        return {}
    kinds = Counter(change.kind for change in found)
    return {
        "role_changes": kinds["role"],
        "param_changes": kinds["param"],
        "changes": [{"kind": change.kind, "detail": change.detail} for change in found[:_MOST_CHANGES]],
        "text_changed": True if True in texts else None if None in texts else False,
    }


def sent_facts(call: Call) -> tuple[str, dict[str, Any]] | None:
    """Wire and anatomy of a request we sent, if its body is known."""
    if not isinstance(call.request, dict):
        return None
    from context_bench.wire.apis import parse_request, wire_of

    wire = wire_of("POST", urlsplit(call.url).path)
    return wire, facts(parse_request(wire, call.request))


def _differences(wire: str, sent: dict[str, Any], record: Forwarded) -> list[Change]:
    if "roles" not in record.facts:
        return []
    if record.wire != wire:  # parameters of two wires have different names
        return [Change("wire", f"{wire} → {record.wire}")]
    received = {
        "params": {},
        "tools": [],
        "cache_control": [],
        "model": record.model,
        "stream": record.stream,
        **record.facts,
    }
    return changes(sent, received)


def _plain(record: Forwarded) -> bool:
    """Hashes in the record's facts can be compared with ours (the tap keeps bodies), else they are keyed or empty."""
    return bool(record.facts.get("policy", "full") == "full")


def _text_changed(call: Call, sent: dict[str, Any], record: Forwarded) -> bool | None:
    """`None` for a body that was too large to be read."""
    if record.oversized and "texts" not in record.facts and record.tokens is None:
        return None
    if _plain(record) and "texts" in record.facts:
        return bool(sent["texts"] != record.facts["texts"])
    return bool(call.sent_tokens != record.tokens)


def after_done(calls: Sequence[Call]) -> dict[str, Any]:
    """Sums of the events and bytes that streams sent after their end; none is in the answer. The calls' replies have
    its beginning.
    """
    replies = [call.reply.get("after_done") for call in calls if isinstance(call.reply, Mapping)]
    late = [after for after in replies if isinstance(after, Mapping)]
    sums = {name: sum(int(after.get(name, 0)) for after in late) for name in ("events", "bytes")}
    return {"after_done": sums} if late else {}


# --- tokens of a row ---


def fill_in_tokens(
    outcome: WorkOutcome,
    arm: PlannedArm,
    processed: Example | None,
    example: Example,
    in_full: int | None,
    text_fields: Sequence[str],
) -> None:
    """Sent and forwarded tokens, and where the second comes from: tap, else the provider's usage, else the context that
    came back.

    *Sent* is before anything was taken away: `in_full` of a system of ours that shortens before it asks; of one that is
    not an endpoint and asked by itself, what it asked and what its context lost before. (What a memory is given it does
    not send, it remembers.)
    """
    asked = sent_tokens(outcome.calls) if outcome.calls else None
    outcome.input_tokens = asked if in_full is None else in_full
    if (
        asked is not None
        and in_full is None
        and processed is not None
        and asks_in_own_words(arm)
        and not hasattr(arm.system, "memory")
    ):
        outcome.input_tokens = asked + max(
            0, count_tokens_dict(example, TEXT_FIELDS) - count_tokens_dict(processed, TEXT_FIELDS)
        )
    if outcome.input_tokens is None and not arm.played_back and not getattr(arm.system, "calls_elsewhere", False):
        outcome.input_tokens = _tokens_given(arm, example, text_fields)
    if outcome.forwarded and (tokens := forwarded_tokens(outcome.forwarded, outcome.calls)) is not None:
        outcome.output_tokens, outcome.source = tokens, "tap"
    elif any(record.tokens is None for record in outcome.forwarded):
        outcome.source = "tap"  # it was seen, and cannot be counted
    elif outcome.calls:
        outcome.output_tokens, outcome.source = billed_tokens(outcome.calls), "usage"
    elif processed is not None and _turns_given(arm, example, text_fields) is None:
        _count_returned(outcome, processed, example, text_fields)
    if outcome.wire:
        outcome.wire["source"] = outcome.source
    if outcome.output_tokens is None and not outcome.wire:
        outcome.source = None


def conversing(system: Any, example: Example) -> Callable[..., Any] | None:
    """The method by which a system gets the turns of this example and nothing else; `None` where it gets the whole."""
    if not (example.get("multi_turn") and "turns" in example):
        return None
    return calling.method(system, "aprocess_conversation", "process_conversation")


def _turns_given(arm: PlannedArm, example: Example, text_fields: Sequence[str]) -> list[Any] | None:
    """Texts of the turns, where they are all that the system got and no fields of one's own are to be counted. What it
    made of them nobody knows: only replies come back.
    """
    if tuple(text_fields) != TEXT_FIELDS or conversing(arm.system, example) is None:
        return None
    turns = example["turns"]
    each = turns if isinstance(turns, list | tuple) else [turns]
    return [message_text(turn) if isinstance(turn, Mapping) else turn for turn in each]


def _tokens_given(arm: PlannedArm, example: Example, text_fields: Sequence[str]) -> int:
    turns = _turns_given(arm, example, text_fields)
    return count_tokens_dict(example, text_fields) if turns is None else count_tokens_dict({"turns": turns})


def asks_in_own_words(arm: PlannedArm) -> bool:
    """A system that asks in words of its own: what it would have asked of the whole example nobody can build."""
    return not arm.played_back and calling.method(arm.system, "shaped", "request_without_context_tokens") is None


def _count_returned(outcome: WorkOutcome, processed: Example, example: Example, text_fields: Sequence[str]) -> None:
    usage = processed.get("api_usage")
    told = count(usage.get("prompt_tokens")) if isinstance(usage, Mapping) else None
    if told is not None and usage != example.get("api_usage"):
        outcome.output_tokens, outcome.source = told, "usage"
        return
    if not any(name in processed for name in text_fields):
        return  # only an answer came back: what it was made of nobody knows, and it is not nothing
    outcome.output_tokens, outcome.source = count_tokens_dict(processed, text_fields), "context"


def returned_tokens(processed: Example, *, counting: bool) -> int | None:
    """Tokens of the context that a system made of the example's; `None` where it gave none back that is its own."""
    told = processed.get("compressed")
    after = count(told.get("tokens_after")) if isinstance(told, Mapping) else None
    if after is not None:
        return after
    return count_tokens_dict(processed, TEXT_FIELDS) if counting and "context" in processed else None


async def context_tokens(
    system: Any, example: Example, source: str | None, forwarded: int | None, returned: int | None
) -> int | None:
    """Tokens of the context part that went on: what was forwarded less the same request without its context, never
    below 0.
    """
    if source == "context":
        return returned
    if forwarded is None:
        return None
    try:
        rest = await _without_context(system, example)
    except Exception:  # a plug-in that cannot say is a budget that is not known
        return None
    return None if rest is None else max(0, forwarded - rest)


async def _without_context(system: Any, example: Example) -> int | None:
    own = calling.method(system, "request_without_context_tokens")
    if own is not None:
        found = own(example)
        return int(await found if asyncio.iscoroutine(found) else found)
    shaped = calling.method(system, "shaped")
    if shaped is None:
        return None
    from context_bench.llm.shapes import without_context
    from context_bench.wire.apis import parse_request

    request = shaped(without_context(example))
    parsed = parse_request(request.wire, request.body)
    return count_request(parsed, counter_for(parsed.model)).total
