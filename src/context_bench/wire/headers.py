"""Which headers of a recorded request belong to the request, and which to its connection or its login."""

from __future__ import annotations

from collections.abc import Mapping

_OF_THE_CONNECTION = ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "upgrade")
_OF_THE_CODING = ("accept-encoding", "content-encoding")
_OF_THE_LOGIN = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization", "cookie", "x-context-bench")
_NOT_SENT = frozenset((*_OF_THE_CONNECTION, *_OF_THE_CODING, *_OF_THE_LOGIN))


def sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that are part of the request: none of its connection, no key."""
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_SENT}
