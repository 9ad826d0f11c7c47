"""What a request is for within its session: the agent's own work, a sub-agent's, a title, a probe of the quota.

Each is a prompt of its own that shares little with the others. Told by what clients say in headers, else by the shape of the request; texts
are only looked at, never kept: the names are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from context_bench.tap.matching import Headers
from context_bench.tap.records import Exchange, header
from context_bench.wire.request import WireRequest

MAIN, SUB_AGENT, TITLE, QUOTA, WARM_UP, TOOLLESS = "main", "sub-agent", "title", "quota probe", "warm-up", "without tools"

#: Who asks, if it is not the agent itself, in headers; Codex says the same in the body where the headers are those of a whole WebSocket.
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
    """What names the sub-agent that asks, if one does."""
    if header(headers, PARENT_HEADER).strip():
        return f"session {header(headers, 'x-session-id')[:500]}"
    told = metadata if isinstance(metadata, Mapping) else {}

    def said(name: str) -> str:
        value = header(headers, name).strip() or told.get(name)
        return value[:500] if isinstance(value, str) else ""

    agent = next((value for name in _AGENTS if (value := said(name))), None)
    thread = next((value for name in _THREADS if (value := said(name))), "")
    return None if agent is None else f"{agent} {thread}"


def _is_quota_probe(request: WireRequest) -> bool:
    """Claude Code asks for one token before it begins, to learn from the headers what is left."""
    return request.wire == "anthropic" and request.params.get("max_tokens") == 1 and len(request.messages) == 1


def _is_title(request: WireRequest) -> bool:
    told = "\n".join(message.text for message in request.messages if message.role in ("system", "developer"))
    return _TITLE.search(told[:_LOOKED_AT]) is not None
