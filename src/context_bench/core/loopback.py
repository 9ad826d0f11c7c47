"""Who may speak to a server of ours: programs of this machine, and no web page, whatever name it gives the machine."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Collection, Mapping
from functools import lru_cache
from urllib.parse import urlsplit


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine to itself."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    return False


def host_of(url: str) -> str:
    """The host in a URL or origin, without port; empty if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def page_refusal(headers: Mapping[str, str]) -> str | None:
    """Why a request that a page of another site sent is not let in, or `None`. `headers` finds names in any spelling.

    Browsers name the page's origin on whatever could change something, and its relation to us (`Sec-Fetch-Site`) on everything, pictures
    and frames included; programs send neither. Pages that this machine serves itself are let in.
    """
    origin = headers.get("Origin")
    if origin is not None and not is_loopback(host_of(origin)):
        return f"Origin {origin[:100]!r} may not use this server: no web page may"
    if headers.get("Sec-Fetch-Site", "").strip().lower() == "cross-site":
        return "a page of another site may not use this server"
    return None


def refusal(headers: Mapping[str, str], names: Collection[str] = ()) -> str | None:
    """Why a request is not let in, or `None`: by a `Host` that is neither a loopback name nor one of `names`, or as `page_refusal` says.

    The first keeps out pages whose own name was made to point here (DNS rebinding): for the browser they are of the same origin.
    """
    given = headers.get("Host")  # absent in HTTP/1.0, which no browser speaks
    host = "" if given is None else host_of(f"//{given}")
    if given is not None and not is_loopback(host) and host not in names:
        return f"Host {host[:100]!r} is not a loopback name"
    return page_refusal(headers)
