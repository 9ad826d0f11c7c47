"""How an exchange over HTTP can fail; which of these is worth another attempt is decided in `llm.failures`."""

from __future__ import annotations

import os


class Trouble(Exception):
    """No whole reply; the text says why, in the words of the system or of the parser."""


class Unusable(Trouble):
    """A URL that cannot be called."""


class CannotConnect(Trouble):
    """No connection: nobody listens, the name is unknown, the way there is broken. Nothing was sent."""


class NotSecure(Trouble):
    """The other side could not prove who it is, or does not speak TLS. Nothing was sent."""


class NotHttp(Trouble):
    """Something came back that cannot be read as an HTTP reply."""


class Oversized(NotHttp):
    """More came back than is read; to ask again would bring as much."""


class Broken(Trouble):
    """The connection ended before the reply was whole; the request may have been worked on."""


def why(error: BaseException) -> str:
    """Why there is no connection, in the system's words: asyncio's own repeat the address."""
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
