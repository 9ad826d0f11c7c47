"""Base URLs that the user gives, read and refused in one place, and the loopback rules of our own servers.

Servers answer programs of this machine. They refuse web pages, whatever name a page gives the machine.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from urllib.parse import unquote, urlsplit, urlunsplit

from context_bench.core.errors import BadInput
from context_bench.core.numbers import MOST_PORT, port, whole

#: The form that a refused URL should have had.
EXPECTED = "http://HOST[:PORT][/PATH] or https://…, with a port from 1 to 65535, and an IPv6 address in brackets: http://[::1]:8080"
_VERSIONED = re.compile(r"/v\d+(?:alpha|beta)?\d*(?=/|$)", re.IGNORECASE)
_UNSENDABLE = re.compile(r"[\x00-\x20\x7f]")
_LONGEST = 120  # characters of a URL that are shown


def base_url(url: str, where: str) -> str:
    """The URL without white space around it. Raises `BadInput` that names `where` it was given, what is wrong, and what
    is expected.
    """
    text = url.strip()
    if (fault := fault_of(text)) is not None:
        raise BadInput(f"{where} {shown(text)!r} is not usable: {fault}; expected {EXPECTED}")
    return text


def listening_port(given: int, where: str) -> int:
    """A port to listen on; 0 takes a free one. Raises `BadInput` that names `where` it was given."""
    if whole(given) != 0 and port(given) is None:
        raise BadInput(
            f"{where} {shown(str(given))!r} is no port; expected a number from 0 (any free one) to {MOST_PORT}"
        )
    return given


def endpoint(base: str, path: str) -> str:
    """The URL to call: `path` (`/v1/…`) under `base`.

    A base that holds a version (`/v1`, `/v1beta/openai`) gets no second one; the whole endpoint is taken as it is; a
    query stays.
    """
    parts = urlsplit(base)
    prefix = parts.path.rstrip("/")
    bare = path.removeprefix("/v1")
    if prefix.endswith(bare):
        whole = prefix
    else:
        whole = prefix + (bare if _VERSIONED.search(prefix) else path)
    return urlunsplit((parts.scheme, parts.netloc, whole, parts.query, ""))


def login_apart(url: str, where: str) -> tuple[str, str | None]:
    """The base URL without credentials, and those as a Basic header; `BadInput` if it is no HTTP URL."""
    parts = urlsplit(base_url(url, where))
    bare = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
    if parts.username is None and parts.password is None:
        return bare, None
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return bare, f"Basic {base64.b64encode(login.encode()).decode()}"


@lru_cache(maxsize=256)
def fault_of(url: str) -> str | None:
    """The fault that keeps any request from a URL; `None` if there is none."""
    if _UNSENDABLE.search(url):  # before it is split: that drops line breaks and tabs without a word
        return "it holds a blank or an unprintable character"
    try:
        parts = urlsplit(url)
        scheme, netloc, host = parts.scheme, parts.netloc.rpartition("@")[2], parts.hostname or ""
    except ValueError as error:
        return str(error)[:200]
    if scheme not in ("http", "https"):
        return "it does not begin with http:// or https://"
    if not host:
        return "there is no host in it" if netloc.count(":") < 2 else "an IPv6 address stands in brackets"
    bracketed = netloc.startswith("[")
    after = netloc.rpartition("]")[2] if bracketed else "".join(netloc.partition(":")[1:])
    told = after.removeprefix(":")
    if bracketed and not _is_ipv6(host):
        return f"{host[:60]!r} is no IPv6 address"
    if not bracketed and ":" in told:
        return "an IPv6 address stands in brackets"
    if (after and not after.startswith(":")) or (
        told and (not told.isascii() or not told.isdigit() or port(told) is None)
    ):
        return f"the port {told[:20]!r} is no number from 1 to {MOST_PORT}"
    try:
        host.encode("idna")
    except UnicodeError:
        return f"{host[:60]!r} is no name of a host" if not bracketed else None
    return None


def shown(url: str) -> str:
    """Whatever was given for a URL, without what may be a login, a query or a fragment: a faulty one may hold a key as
    well.
    """
    bare = re.split(r"[?#]", url, maxsplit=1)[0]
    head, mark, rest = bare.partition("://")
    place, slash, path = rest.partition("/")
    if "@" in path:  # a login with a slash in it
        place, slash, path = path.rpartition("@")[2], "", ""
    return (
        f"{head}{mark}{place.rpartition('@')[2]}{slash}{path}"[:_LONGEST]
        if mark
        else bare.rpartition("@")[2][:_LONGEST]
    )


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """True if a host name or address means this machine to itself."""
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
    """The reason to refuse a request sent by a page of another site, or `None`. `headers` finds names in any spelling.

    Browsers name the page's origin on whatever could change something, and its relation to us (`Sec-Fetch-Site`) on
    everything, pictures and frames included; programs send neither. Pages that this machine serves itself are let in.
    """
    origin = headers.get("Origin")
    if origin is not None and not is_loopback(host_of(origin)):
        return f"Origin {origin[:100]!r} may not use this server: no web page may"
    if headers.get("Sec-Fetch-Site", "").strip().lower() == "cross-site":
        return "a page of another site may not use this server"
    return None


def refusal(headers: Mapping[str, str], names: Collection[str] = ()) -> str | None:
    """The reason to refuse a request, or `None`: a `Host` that is neither a loopback name nor one of `names`, or as
    `page_refusal` says.

    The first keeps out pages whose own name was made to point here (DNS rebinding): for the browser they are of the
    same origin.
    """
    given = headers.get("Host")  # absent in HTTP/1.0, which no browser speaks
    host = "" if given is None else host_of(f"//{given}")
    if given is not None and not is_loopback(host) and host not in names:
        return f"Host {host[:100]!r} is not a loopback name"
    return page_refusal(headers)
