"""Assign a request to its session, and to its purpose there: the agent's own work, a sub-agent's, a title, a probe of
the quota.

Each purpose is a prompt of its own that shares little with the others. Headers of the client decide, else the shape of
the request. Texts are only looked at, never kept: the names are ours. Below stands what steers requests by it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cachetools import FIFOCache

from context_bench.core.keys import canonical_json, digest_of, load_object, stable_hash
from context_bench.llm.coding import decode
from context_bench.tap.exchange import (
    AS_IT_CAME,
    KEY_HEADERS,
    MARK_HEADER,
    SOCKET,
    Exchange,
    Headers,
    Onward,
    Steering,
    header,
)
from context_bench.tap.masking import failure_of
from context_bench.wire.apis.shared import as_dict, as_list, load_json
from context_bench.wire.cache import Segments, common_prefix, segments
from context_bench.wire.needles import Needles, NotPlanted
from context_bench.wire.request import SYSTEM_ROLES, WireRequest

MAIN, SUB_AGENT, TITLE, QUOTA, WARM_UP, TOOLLESS = (
    "main",
    "sub-agent",
    "title",
    "quota probe",
    "warm-up",
    "without tools",
)

#: Who asks, if it is not the agent itself, in headers; Codex says the same in the body where the headers are those of a
#: whole WebSocket.
_AGENTS = ("x-claude-code-agent-id", "x-openai-subagent")
#: Where opencode names the session that a sub-agent's own session belongs to.
PARENT_HEADER = "x-parent-session-id"
_THREADS = ("thread-id", "thread_id", "x-codex-window-id")
_TITLE = re.compile(r"\btitles?\b", re.IGNORECASE)
_LOOKED_AT = 4_000  # characters of the instructions
_MOST_AGENTS = 1_000


class Contexts:
    """The contexts of one session, in the order in which they appear."""

    def __init__(self) -> None:
        self._agents: dict[str, int] = {}
        self._tools = False

    def of(self, exchange: Exchange, request: WireRequest) -> str:
        """The context of the next request."""
        agent = _agent(exchange.headers, request.params.get("client_metadata"))
        if agent is not None:
            return self._numbered(agent)
        if exchange.record is not None and exchange.record.facts.get("warm_up"):
            return WARM_UP
        if request.tools:
            self._tools = True
            return MAIN
        if _is_quota_probe(request):
            return QUOTA
        if _is_title(request):
            return TITLE
        return TOOLLESS if self._tools else MAIN

    def _numbered(self, agent: str) -> str:
        if agent not in self._agents and len(self._agents) >= _MOST_AGENTS:
            return SUB_AGENT
        return f"{SUB_AGENT} {self._agents.setdefault(agent, len(self._agents) + 1)}"


def _agent(headers: Headers, metadata: Any) -> str | None:
    """The name of the sub-agent that asks, if one does."""
    if header(headers, PARENT_HEADER).strip():
        return f"session {header(headers, 'x-session-id')[:500]}"
    told = metadata if isinstance(metadata, Mapping) else {}

    def named(name: str) -> str:
        value = header(headers, name).strip() or told.get(name)
        return value[:500] if isinstance(value, str) else ""

    agent = next((value for name in _AGENTS if (value := named(name))), None)
    thread = next((value for name in _THREADS if (value := named(name))), "")
    return None if agent is None else f"{agent} {thread}"


def _is_quota_probe(request: WireRequest) -> bool:
    """Claude Code asks for one token before it begins, to learn from the headers what is left."""
    return request.wire == "anthropic" and request.params.get("max_tokens") == 1 and len(request.messages) == 1


def _is_title(request: WireRequest) -> bool:
    told = "\n".join(message.text for message in request.messages if message.role in ("system", "developer"))
    return _TITLE.search(told[:_LOOKED_AT]) is not None


#: Where clients name their session.
SESSION_HEADERS = (
    "x-claude-code-session-id",
    "x-session-id",
    "session-id",
    "session_id",
    "conversation-id",
    "conversation_id",
    "x-conversation-id",
)
_HEADS = ("tools", "system", "developer")
_REPLY_ID = re.compile(rb'"id"\s*:\s*"(resp_[^"]{1,200})"')
_REMEMBERED = 8


@dataclass(slots=True)
class WatchedSession:
    """One conversation, or one client's string of them. `label` may be written and shown, the rest never leaves the
    memory.

    `origin`: what it was told to be or began with, the same in every watch of the same traffic.
    """

    label: str
    identity: str
    owner: str
    origin: str
    turns: int = 0
    last: list[bytes] = field(default_factory=list)  # digests of the latest request's segments
    head: int = 0  # how many of these are what all sessions of a program share
    contexts: Contexts = field(default_factory=Contexts)
    recent: deque[_Sent] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


@dataclass(slots=True)
class _Sent:
    """One of the latest requests: a digest of what it means, its turn, and how its latest attempt failed."""

    meaning: bytes
    turn: int
    failure: str | None


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """The place of a request: its session, which turn, what it is for, and whether the client has sent the same before.

    `after`: how the attempt before this one failed, if it is a repeat and did.
    """

    session: WatchedSession
    turn: int
    repeat: bool
    context: str = MAIN
    after: str | None = None


class Sessions:
    """Remembers the sessions of a watch (the latest `most`) and puts each finished request in its place."""

    def __init__(self, most: int = 2_000) -> None:
        self._most = most
        self._secret = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, WatchedSession] = OrderedDict()
        self._replies: FIFOCache[str, str] = FIFOCache(4 * most)  # id of a stored response → identity
        self._made = 0

    def place(self, exchange: Exchange, request: WireRequest, reply: bytes = b"") -> SessionPlace:
        """Place a request that is over in its session. `reply`: the beginning of its answer."""
        owner = self._owner(exchange)
        prompt = segments(request)
        digests = [digest_of(kind, text) for kind, text in prompt]
        session = self._find(exchange, request, owner, prompt, digests)
        self._sessions.move_to_end(session.identity)
        session.last, session.head = digests, _head(prompt)
        self._remember_reply(reply, request, session)
        context, failure = session.contexts.of(exchange, request), _failure(exchange)
        before = next((sent for sent in session.recent if sent.meaning == _meaning(exchange)), None)
        if before is None:
            session.turns += 1
            session.recent.append(_Sent(_meaning(exchange), session.turns, failure))
            return SessionPlace(session, session.turns, False, context)
        after, before.failure = before.failure, failure
        return SessionPlace(session, before.turn, True, context, after)

    def _find(
        self, exchange: Exchange, request: WireRequest, owner: str, prompt: Segments, digests: list[bytes]
    ) -> WatchedSession:
        told = session_in_headers(exchange, request.params)
        if told is not None:
            identity = f"told {owner} {told}"
            return self._sessions.get(identity) or self._new(identity, owner, told)
        replied = self._replies.get(str(request.params.get("previous_response_id")), "")
        if replied in self._sessions:
            return self._sessions[replied]
        found = self._continued(owner, exchange, request, digests)
        if found is not None:
            return found
        return self._new(f"from {owner} {self._made}", owner, stable_hash(prompt))

    def _continued(
        self, owner: str, exchange: Exchange, request: WireRequest, digests: list[bytes]
    ) -> WatchedSession | None:
        """The session that this request goes on with: whose latest request it repeats at its start, beyond system
        texts.
        """
        mine = [
            session
            for session in self._sessions.values()
            if session.owner == owner and not session.identity.startswith("told")
        ]
        if not any(
            message.role in ("assistant", "tool") for message in request.messages
        ):  # a beginning, unless it is a second try
            latest = ((one, one.recent[-1]) for one in reversed(mine) if one.recent)
            again = (one for one, sent in latest if sent.failure is not None and sent.meaning == _meaning(exchange))
            return next(again, None)
        best: tuple[tuple[bool, int, int], WatchedSession] | None = None
        for order, session in enumerate(mine):
            whole = common_prefix(session.last, digests)
            if whole <= session.head:
                continue
            rank = (whole == len(session.last), whole, order)
            if best is None or rank > best[0]:
                best = rank, session
        return best[1] if best else None

    def _new(self, identity: str, owner: str, origin: str) -> WatchedSession:
        self._made += 1
        session = WatchedSession(f"s{self._made}-{self._hash(identity)[:6]}", identity, owner, origin)
        self._sessions[identity] = session
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
        return session

    def _owner(self, exchange: Exchange) -> str:
        """The client's key and account as a keyed hash: the key itself is not even remembered."""
        return self._hash("\n".join(header(exchange.headers, name) for name in KEY_HEADERS))

    def _hash(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:24]

    def _remember_reply(self, reply: bytes, request: WireRequest, session: WatchedSession) -> None:
        found = reply_id_of(reply) if request.wire == "openai-responses" else None
        if found is not None:
            self._replies[found] = session.identity


def reply_id_of(reply: bytes) -> str | None:
    """The id of a response that is stored at the provider, from the beginning of an answer."""
    found = _REPLY_ID.search(reply)
    return None if found is None else found[1].decode("utf-8", "replace")


def _meaning(exchange: Exchange) -> bytes:
    return exchange.meaning or exchange.digest


def _failure(exchange: Exchange) -> str | None:
    if exchange.record is not None:
        return failure_of(exchange.record)
    return (
        "no answer" if exchange.status is None else str(exchange.status) if exchange.status >= 400 else exchange.error
    )


def session_in_headers(exchange: Exchange, params: Mapping[str, Any]) -> str | None:
    """The session that the client itself names, in a header or a field; `None` if it names none.

    A sub-agent that has a session of its own belongs to the one that it names as its parent. The body's `user` is a
    person's or an account's name, not a session's, and is not read.
    """
    if parent := header(exchange.headers, PARENT_HEADER).strip():
        return f"x-session-id={parent[:500]}"
    for name in SESSION_HEADERS:
        if value := header(exchange.headers, name).strip():
            return f"{name}={value[:500]}"
    conversation = params.get("conversation")
    told = [
        params.get("prompt_cache_key"),
        conversation.get("id") if isinstance(conversation, Mapping) else conversation,
        _session_of_user(params.get("metadata")),
    ]
    return next((value[:500] for value in told if isinstance(value, str) and value), None)


def _session_of_user(metadata: Any) -> str | None:
    """Claude Code writes its session into `metadata.user_id`: after `_session_`, or as `session_id` of a JSON text."""
    if not isinstance(metadata, Mapping):
        return None
    if isinstance(metadata.get("session_id"), str):
        return str(metadata["session_id"])
    told = metadata.get("user_id")
    if not isinstance(told, str):
        return None
    if told.startswith("{"):
        try:
            read = load_json(told)
        except ValueError:
            return None
        return (
            str(read["session_id"]) if isinstance(read, Mapping) and isinstance(read.get("session_id"), str) else None
        )
    _, found, session = told.rpartition("_session_")
    return session if found else None


def _head(prompt: Segments) -> int:
    """The number of leading segments that all sessions of a program share."""
    return next((i for i, (kind, _) in enumerate(prompt) if not kind.startswith(_HEADS)), len(prompt))


# Requests on their way: drawn conversations go past the proxy, needles go in before it and out behind it
# ------------------------------------------------------------------------
#
# A conversation is drawn by a keyed hash of what names it, so that it always falls the same way with the same key: the
# session that the client names in a header or field, else the reply that it goes on from, else its first words.

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
