"""Records of `context-bench tap --out`, kept with the policies `full` or `redacted`: bodies as they reached the provider.

Requests that the provider refused, token counts and other routes are passed over and counted; a record without a body cannot be replayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.keys import hash_text
from context_bench.core.numbers import moment
from context_bench.core.usage import usage_of
from context_bench.transcripts.requests import NO_BODY, Logged, sessions_of, told_session
from context_bench.transcripts.session import Session
from context_bench.transcripts.source import Source
from context_bench.transcripts.values import text
from context_bench.wire.conversation import ITEMS, WIRES, reply_message

NAME = "tap-records"
_FIELDS = frozenset({"matched_by", "wire", "bytes_in", "facts"})
_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta", "user-agent")


def matches(sample: list[Any]) -> bool:
    """Whether the lines are a tap's."""
    return any(isinstance(value, dict) and "matched_by" in value and value.keys() >= _FIELDS for value in sample)


def sessions(source: Source) -> Iterator[Session]:
    """The conversations that went through the tap."""
    return sessions_of(source, NAME, read)


def read(value: Any) -> Logged | str:
    """One record, or why it is passed over."""
    if not isinstance(value, Mapping) or not value.keys() >= _FIELDS:
        return "not a record of a tap"
    wire, body, status = value.get("wire"), value.get("request"), value.get("status")
    if wire not in WIRES:
        return f"route {str(wire)[:40]}"
    if isinstance(status, int) and status >= 400:
        return f"refused with HTTP {status}"
    facts = value["facts"] if isinstance(value.get("facts"), Mapping) else {}
    if facts.get("warm_up"):
        return "no answer was asked for"
    if facts.get("policy") not in ("full", "redacted") or not isinstance(body, Mapping) or not body.get(ITEMS[wire]):
        return NO_BODY
    told = facts.get("headers")
    headers = {name: told[name] for name in _HEADERS if isinstance(told.get(name), str)} if isinstance(told, Mapping) else {}
    mark = text(value.get("mark"))
    return Logged(
        wire=wire,
        body=dict(body),
        reply=reply_message(wire, value.get("reply")),
        usage=usage_of(value.get("usage")),
        model=text(value.get("model")),
        at=moment(value.get("started")),
        headers=headers,
        path=text(value.get("path")) or "",
        told=f"mark-{hash_text(mark, 12)}" if mark else told_session(body),
        meta={"policy": facts["policy"]},
    )
