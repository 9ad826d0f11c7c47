"""Who may look: whoever has the address with the token, through a loopback name, and no other web page."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from context_bench.core.addresses import is_loopback

TOKEN = "token"


class Door:
    """Looks at every request before anything else does. `port` is known once the server listens.

    The token is exchanged for a cookie that other sites cannot have sent (`SameSite=Strict`) and no script can read. Cookies know no ports,
    so its name has the port in it.
    """

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self.port = 0

    def refusal(self, request: web.BaseRequest) -> str | None:
        """Why a request is not even looked at, or `None`: a foreign `Host` (a rebound name), another page's `Origin` or subrequest."""
        host = request.headers.get(hdrs.HOST, "")
        if not self._own(host):
            return f"Host {host[:100]!r} is not this viewer's: open it under the address that `context-bench view` printed."
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and not (origin.startswith("http://") and self._own(origin.removeprefix("http://"))):
            return f"Origin {origin[:100]!r} may not use this viewer: no other web page may."
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("same-origin", "none") and not _follows_link(request):
            return "Other web pages may link to this viewer, and nothing else."
        return None

    def _own(self, netloc: str) -> bool:
        try:
            parts = urlsplit(f"//{netloc}")
            return parts.netloc == netloc and is_loopback(parts.hostname or "") and (parts.port or 80) == self.port and "@" not in netloc
        except ValueError:
            return False

    def has_cookie(self, request: web.BaseRequest) -> bool:
        """Was the token shown before?"""
        return _equal(request.cookies.get(self._cookie, ""), self._session)

    def shows_token(self, request: web.BaseRequest) -> bool:
        """Is the right token in the address?"""
        return _equal(request.query.get(TOKEN, ""), self.token)

    def let_in(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Give the cookie."""
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="Strict", path="/")

    @property
    def _cookie(self) -> str:
        return f"context_bench_{self.port}"


def _follows_link(request: web.BaseRequest) -> bool:
    headers = request.headers
    return headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
