"""Requests of a watch on their way: drawn conversations go past the proxy, needles go in before it and out behind it.

A conversation is drawn by a keyed hash of what names it, so that it always falls the same way with the same key: the
session that the client names in a header or field, else the reply that it goes on from, else its first words.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cachetools import FIFOCache

from context_bench.core.keys import canonical_json, load_object
from context_bench.llm.coding import decode
from context_bench.tap.exchange import AS_IT_CAME, MARK_HEADER, SOCKET, Exchange, Onward, Steering, header
from context_bench.traffic.watch.session_context import reply_id_of, session_in_headers
from context_bench.wire.apis.shared import as_dict, as_list
from context_bench.wire.needles import Needles, NotPlanted
from context_bench.wire.request import SYSTEM_ROLES

_PROMPTS = ("openai-chat", "openai-responses", "anthropic")
_NAMED = (*_PROMPTS, "anthropic-count")
_REPLIES = 100_000
#: Headers that say what the body's bytes are: with another body they would be wrong.
_SIGNED = ("content-digest", "content-md5", "digest", "repr-digest", "signature", "x-amz-content-sha256")


class Conversations:
    """Names conversations by a keyed hash, and draws those that are held out: a share of them, 0 to 1."""

    def __init__(self, key: bytes, share: float) -> None:
        self._key, self._share = key, share
        self._replies: FIFOCache[str, str] = FIFOCache(_REPLIES)  # id of a stored response → conversation

    def by_head(self, exchange: Exchange) -> str:
        """The conversation that the headers name; empty if they name none."""
        named = session_in_headers(exchange, {})
        return "" if named is None else self._hash(f"named {named}")

    def by_body(self, exchange: Exchange, body: Mapping[str, Any]) -> str:
        """The conversation of a request; empty if nothing tells which it is."""
        if (named := session_in_headers(exchange, body)) is not None:
            return self._hash(f"named {named}")
        if (before := body.get("previous_response_id")) is not None:
            return self._replies.get(self._hash(f"reply {before}"), "")
        first = _first_words(body)
        return self._hash(f"begun {first}") if first else ""

    def remember(self, replies: Iterable[tuple[str, str]]) -> None:
        """Take up replies of earlier watches, newest first, each with its conversation; empty ones say nothing."""
        for reply, unit in reversed([each for each in replies if all(each)]):
            self._replies[reply] = unit

    def answered(self, exchange: Exchange) -> None:
        """Remember the reply, from which a later request may go on, by its hash."""
        if not exchange.steered.unit or exchange.wire != "openai-responses" or not exchange.reply.pieces:
            return
        if (reply := reply_id_of(exchange.reply.pieces[0][1][:4096])) is not None:
            exchange.steered.reply = self._hash(f"reply {reply}")
            self._replies[exchange.steered.reply] = exchange.steered.unit

    def held_out(self, unit: str) -> bool:
        """Does a conversation go past the proxy?"""
        return bool(unit) and int(unit, 16) < self._share * 16 ** len(unit)

    def _hash(self, text: str) -> str:
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).hexdigest()


def _first_words(body: Mapping[str, Any]) -> str:
    """Beginning of a conversation that is no instruction: it stays the same in all of its requests."""
    given = body.get("messages", body.get("input"))
    if isinstance(given, str):
        return given
    for message in map(as_dict, as_list(given)):
        if message.get("role") not in (*SYSTEM_ROLES, None):
            content = message.get("content")
            return content if isinstance(content, str) else "\n".join(map(_words_of, as_list(content)))
    return ""


def _words_of(part: Any) -> str:
    text = as_dict(part).get("text")
    kept = {name: value for name, value in as_dict(part).items() if name != "cache_control"}
    return text if isinstance(text, str) else canonical_json(kept or part)


@dataclass(slots=True)
class FrontSteering(Steering):
    """Steers what clients send. `back_url`: of the tap behind the proxy, once that is open; `mark` tells it which
    requests did not come from the proxy.
    """

    conversations: Conversations | None = None
    needles: Needles | None = None
    back_url: str | None = None
    mark: str = ""

    def __post_init__(self) -> None:
        self.mark = f"past-{secrets.token_hex(8)}"

    def by_head(self, exchange: Exchange) -> Onward | None:
        if self.conversations is not None and (unit := self.conversations.by_head(exchange)):
            if (onward := self._drawn(exchange, unit)) is not AS_IT_CAME:
                return onward
        elif self.conversations is not None and exchange.wire in _NAMED:
            return None
        return None if self.needles is not None and exchange.wire in _PROMPTS else AS_IT_CAME

    def by_body(self, exchange: Exchange, body: bytes | None) -> Onward:
        if self.conversations is not None and not exchange.steered.unit and body is not None:
            onward = self._drawn(exchange, self.conversations.by_body(exchange, _read(exchange, body)))
            if onward is not AS_IT_CAME:
                return onward
        if self.needles is None or exchange.wire not in _PROMPTS:
            return AS_IT_CAME
        try:
            return self._with_needles(self.needles, exchange, body)
        except NotPlanted as reason:
            exchange.steered.without = str(reason)
            return AS_IT_CAME

    def _drawn(self, exchange: Exchange, unit: str) -> Onward:
        assert self.conversations is not None, "only drawn where conversations are"
        exchange.steered.unit = unit
        exchange.steered.held_out = self.conversations.held_out(unit)
        return Onward(self.back_url, self.mark) if exchange.steered.held_out else AS_IT_CAME

    @staticmethod
    def _with_needles(needles: Needles, exchange: Exchange, body: bytes | None) -> Onward:
        if body is None:
            raise NotPlanted("too large")
        if header(exchange.headers, "content-encoding") not in ("", "identity"):
            raise NotPlanted("packed")
        if any(header(exchange.headers, name) for name in _SIGNED):
            raise NotPlanted("signed")
        planted = needles.plant(exchange.wire, body)
        exchange.steered.planted = planted.needles
        return Onward(body=planted.body)

    def note_socket_request(self, exchange: Exchange) -> None:
        """A request of a WebSocket goes the way that was chosen when that was opened, and without needles."""
        if exchange.method != SOCKET:
            return
        if self.conversations is not None:
            self._drawn(exchange, self.conversations.by_head(exchange))
        if self.needles is not None and not exchange.steered.held_out:
            exchange.steered.without = "WebSocket"

    def went_past(self, call: Exchange) -> bool:
        """True if a request that reached the tap behind did not come from the proxy."""
        return header(call.headers, MARK_HEADER) == self.mark


@dataclass(slots=True)
class BackSteering(Steering):
    """Takes the needles out of what is on its way to the provider."""

    needles: Needles

    def by_head(self, exchange: Exchange) -> Onward | None:
        return None

    def by_body(self, exchange: Exchange, body: bytes | None) -> Onward:
        if not body:
            return AS_IT_CAME
        packing = header(exchange.headers, "content-encoding")
        packed = packing not in ("", "identity")
        removed = self.needles.remove(decode(body, packing) if packed else body)
        if not removed.needles and not removed.damaged:
            return AS_IT_CAME
        exchange.steered.removed, exchange.steered.damaged = removed.needles, removed.damaged
        return Onward(body=removed.body, recorded=True, plain=packed)


def _read(exchange: Exchange, body: bytes) -> Mapping[str, Any]:
    try:
        return load_object(decode(body, header(exchange.headers, "content-encoding"))) or {}
    except (ValueError, RecursionError):
        return {}
