"""Where a request goes, and its first bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlsplit

from context_bench.core.errors import Refused
from context_bench.llm.transport.trouble import Unusable

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FRAMING = frozenset({"content-length", "transfer-encoding"})
_KEPT = "/%:@!$&'()*+,;=-._~"  # what has a meaning in a path, and what is encoded already


@dataclass(frozen=True, slots=True)
class Address:
    """Host, port and what to ask for there: `target` is path and query, `authority` the value of `Host`."""

    host: str
    port: int
    secure: bool
    target: str
    authority: str


@lru_cache(maxsize=256)
def address_of(url: str) -> Address:
    """The parts of an `http` or `https` URL without credentials; `Unusable` if it has no host or a port that is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        named = host if ":" in host or host.isascii() else host.encode("idna").decode("ascii")
    except ValueError as error:
        raise Unusable(str(error)) from None
    if not named or parts.scheme not in ("http", "https") or _UNSENDABLE.search(named) or " " in named:
        raise Unusable("no host in it")
    secure = parts.scheme == "https"
    usual = 443 if secure else 80
    shown = f"[{named}]" if ":" in named else named
    target = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT + '?')}" if parts.query else "")
    return Address(named, port or usual, secure, target, shown if port in (None, usual) else f"{shown}:{port}")


def head_of(address: Address, headers: Mapping[str, str]) -> bytes:
    """The request line and the headers (lower-case names) up to the body's length, which `Transport.post` adds.

    `Refused` for a header that no request can carry: a line break in it would be a header of its own.
    """
    lines = {"host": address.authority, "accept": "*/*", "accept-encoding": "identity", "user-agent": "context-bench", **headers}
    told = []
    for name, value in lines.items():
        if name in _FRAMING:
            continue
        if not _NAME.fullmatch(name) or _UNSENDABLE.search(value):
            raise Refused(
                f"The request cannot be sent: the header {name[:60]!r} holds characters that HTTP cannot carry, such as a line break"
            )
        told.append(f"{name}: {value}\r\n")
    return f"POST {address.target} HTTP/1.1\r\n{''.join(told)}".encode("utf-8", "replace")
