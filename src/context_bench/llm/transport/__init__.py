"""HTTP/1.1 as far as a client of models needs it: `POST` on kept-open connections, replies read whole or piece by
piece.

`Transport.post` sends once and never again: whether to try again is decided in one place, above (`llm.chat`). What is
not here on purpose: redirects, cookies, proxies of the environment, connections shared by several requests at once.
"""

from context_bench.llm.transport.pool import Address, Transport, address_of, head_of, tls
from context_bench.llm.transport.response import (
    Broken,
    CannotConnect,
    NotHttp,
    NotSecure,
    Oversized,
    Response,
    TransportError,
    Unusable,
    why,
)

__all__ = [
    "Address",
    "Broken",
    "CannotConnect",
    "NotHttp",
    "NotSecure",
    "Oversized",
    "Response",
    "Transport",
    "TransportError",
    "Unusable",
    "address_of",
    "head_of",
    "tls",
    "why",
]
