"""Assign a request to its session, and to its purpose there: the agent's own work, a sub-agent's, a title, a probe of
the quota.

Each purpose is a prompt of its own that shares little with the others. Headers of the client decide, else the shape of
the request. Texts are only looked at, never kept: the names are ours.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cachetools import FIFOCache

from context_bench.core.keys import digest_of, stable_hash
from context_bench.tap.exchange import KEY_HEADERS, Exchange, Headers, header
from context_bench.tap.masking import failure_of
from context_bench.wire.apis.shared import load_json
from context_bench.wire.cache import Segments, common_prefix, segments
from context_bench.wire.request import WireRequest

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
