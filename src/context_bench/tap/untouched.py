"""Requests that arrive at the tap as the baseline's did, and the baseline's replies that answer them.

Two requests are the same if method and path, the headers that choose a version of the API, and the body are: byte for
byte, or as two spellings of one JSON text (spaces between tokens and escapes in strings apart; the order of keys
counts, for it reaches prompts). What we ourselves add is left out: marks, and the line that keeps an arm's prompt cache
apart. The answers to the same request have one distribution, at any temperature: so one of them may stand for the
other, and the expected difference of their scores is 0.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from context_bench.core.ledger import BaselinePairing
from context_bench.tap.exchange import Exchange, Headers, MarkWindow, header, unmarked_target
from context_bench.wire.apis import parse_request
from context_bench.wire.apis.shared import dump, load_body
from context_bench.wire.words import holds_all

#: Hexadecimal digits of a digest: as many bits as a column of numbers holds exactly.
DIGITS = 13
#: Bytes that remembered replies take, packed; of more, the oldest examples' go, and are asked for again. An example's
#: replies go as soon as every arm has asked, so that the room is for examples under way and for rows that failed.
MOST_BYTES = 16 * 2**20
#: Bytes of a reply up to which it is packed: that takes the relay's thread 0.3 ms for 20 kB, 1.1 for 100. One that is
#: not begins with a byte with which no packed one does.
_PACKED, _AS_IT_IS = 128 * 2**10, b"\0"
#: Bytes of Python's own for an example, and for a reply of it or an arm that has asked, roughly: short replies are
#: mostly made of them.
_EXAMPLE, _ITEM = 1_000, 200
#: Bytes of a body from which on it is read in a thread.
_AT_ONCE = 2**20
#: Headers of a request that choose what the provider does with it.
_CHOOSING = ("anthropic-beta", "anthropic-version", "openai-beta", "content-encoding")
#: Headers of a reply that say how to read its body, or what was decided about it; others are of one connection.
_KEPT = ("content-type", "content-encoding", "cache-control", "openai-", "anthropic-", "x-", "request-id")


@dataclass(frozen=True, slots=True)
class KeptReply:
    """A reply of the provider, as it came: `pieces` are those of the body."""

    status: int
    headers: Headers
    pieces: tuple[bytes, ...]

    def packed(self) -> bytes:
        """The reply in one piece; a short one is compressed."""
        head = json.dumps([self.status, self.headers, [len(piece) for piece in self.pieces]]).encode() + b"\n"
        short = sum(map(len, self.pieces)) <= _PACKED
        return zlib.compress(b"".join([head, *self.pieces]), 1) if short else b"".join([_AS_IT_IS, head, *self.pieces])

    @staticmethod
    def unpacked(data: bytes) -> KeptReply:
        """The reply that `packed` gave."""
        plain = data[1:] if data.startswith(_AS_IT_IS) else zlib.decompress(data)
        start = plain.index(b"\n") + 1
        status, headers, lengths = json.loads(plain[:start])
        ends = list(accumulate(lengths, initial=start))
        pieces = tuple(plain[first:last] for first, last in pairwise(ends))
        return KeptReply(status, [(name, value) for name, value in headers], pieces)


@dataclass(slots=True)
class _Remembered:
    """The baseline's replies on one example, packed, by the digest of the request; and who has asked since."""

    replies: dict[str, bytes] = field(default_factory=dict)
    asked: tuple[str, ...] = ()  # tokens of windows

    @property
    def held(self) -> int:
        """Bytes that it takes."""
        return _EXAMPLE + _ITEM * len(self.asked) + sum(_ITEM + len(each) for each in self.replies.values())


@dataclass(slots=True)
class BaselineReplies:
    """The baseline's requests, as digests, and the replies to them, by example.

    `plain`: bodies are recorded whole, so that plain digests of them tell nothing more and can be compared in a later
    run of the program; else the key of the digests dies with the tap.
    """

    plain: bool
    most: int = MOST_BYTES
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _examples: OrderedDict[tuple[str, str], _Remembered] = field(default_factory=OrderedDict, repr=False)
    _held: int = 0

    @property
    def held(self) -> int:
        """Bytes that the replies take."""
        return self._held

    async def answering(self, exchange: Exchange) -> KeptReply | None:
        """Take down what arrived, where that is to be compared; the reply that answers it, if one is to."""
        pairing = exchange.pairing
        if pairing is None or not exchange.body.whole:
            return None
        if exchange.body.size > _AT_ONCE:  # nobody else's request waits for it
            exchange.arrived_as = await asyncio.to_thread(self._digest, exchange, pairing)
        else:
            exchange.arrived_as = self._digest(exchange, pairing)
        if pairing.first or not pairing.copies:
            return None
        remembered = self._examples.get(_place(exchange, pairing))
        if remembered is None:
            return None
        replies = remembered.replies
        if exchange.arrived_as not in replies and len(replies) == 1 and _holds_evidence(exchange, pairing):
            exchange.arrived_as, exchange.assumed = next(iter(replies)), True
        if exchange.arrived_as not in replies:
            return None
        reply = KeptReply.unpacked(replies[exchange.arrived_as])
        exchange.copied = _readable(reply, exchange.headers)
        return reply if exchange.copied else None

    def _digest(self, exchange: Exchange, pairing: BaselinePairing) -> str:
        headers = [f"{name}: {header(exchange.headers, name)}" for name in _CHOOSING]
        head = "\n".join([exchange.method, unmarked_target(exchange.target, None), *headers])
        data = head.encode("utf-8", "surrogateescape") + b"\n\n" + _spelled(exchange.body.data, pairing.aside)
        found = hashlib.sha256(data) if self.plain else hmac.new(self._key, data, hashlib.sha256)
        return found.hexdigest()[:DIGITS]

    def remember(self, exchange: Exchange) -> None:
        """Keep the reply to a request of the baseline, if it is whole and no error."""
        pairing, status = exchange.pairing, exchange.status or 0
        if pairing is None or not pairing.first or not exchange.arrived_as:
            return
        if not _whole(exchange) or pairing.arms == 0 or exchange.reply.size > self.most:
            return
        pieces = tuple(piece for _, piece in exchange.reply.pieces)
        headers = [(name, value) for name, value in exchange.reply_headers if name.lower().startswith(_KEPT)]
        place = _place(exchange, pairing)
        remembered = self._examples.pop(place, None)  # the youngest again, if it stays
        self._held -= 0 if remembered is None else remembered.held
        remembered = remembered or _Remembered()
        remembered.replies[exchange.arrived_as] = KeptReply(status, headers, pieces).packed()
        if remembered.held > self.most:
            return
        self._examples[place] = remembered
        self._held += remembered.held
        while self._held > self.most:
            self._held -= self._examples.popitem(last=False)[1].held

    def close(self, window: MarkWindow) -> None:
        """Forget an example once the window of every arm that is compared with the baseline is over.

        A window whose requests all failed does not count: its row will be tried again.
        """
        pairing = window.pairing
        if pairing is None or pairing.first or pairing.arms is None:
            return
        if window.arrivals and not any(each.copied or _whole(each) for each in window.arrivals):
            return
        place = window.owner, pairing.example
        remembered = self._examples.get(place)
        if remembered is None or window.mark.token in remembered.asked:
            return
        self._held -= remembered.held
        remembered.asked += (window.mark.token,)
        if len(remembered.asked) >= pairing.arms:
            del self._examples[place]
        else:
            self._held += remembered.held


async def gathered(source: AsyncIterator[bytes], exchange: Exchange) -> AsyncIterator[bytes]:
    """A body in pieces, once all of it has come that is kept of it."""
    early = []
    async for piece in source:
        early.append(piece)
        if not exchange.body.whole:
            break

    async def again() -> AsyncIterator[bytes]:
        for piece in early:
            yield piece
        async for piece in source:
            yield piece

    return again()


def _whole(exchange: Exchange) -> bool:
    """Did an answer come that is whole and no error?"""
    answered = exchange.answered and exchange.reply.whole and exchange.error is None
    return bool(answered) and 200 <= (exchange.status or 0) < 300


def _holds_evidence(exchange: Exchange, pairing: BaselinePairing) -> bool:
    """Did all pieces of evidence arrive, so that the answer is taken to be the baseline's?"""
    if not pairing.evidence:
        return False
    try:
        request = parse_request(exchange.wire, load_body(exchange.body.data))
    except Exception:  # hostile bodies are relayed like all others
        return False
    return holds_all([message.text for message in request.messages], pairing.evidence)


def _place(exchange: Exchange, pairing: BaselinePairing) -> tuple[str, str]:
    return ("" if exchange.window is None else exchange.window.owner), pairing.example


def _spelled(body: bytes, aside: str) -> bytes:
    """A body in the one spelling of its JSON, keys in their order; what is no JSON as it is. Without `aside`."""
    try:
        data = dump(load_body(body))
    except (ValueError, RecursionError):
        data = body
    return data.replace(dump(aside)[1:-1], b"", 1) if aside else data


def _readable(reply: KeptReply, headers: Headers) -> bool:
    """Can the client read the reply's encoding?"""
    coding = header(reply.headers, "content-encoding").strip().lower()
    return not coding or coding in header(headers, "accept-encoding").lower()
