"""Connections of aiohttp that can tell the end of a reply over TLS from a cut. A module of its own: a plain run loads
no aiohttp.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

from context_bench.llm.transport.errors import UNENDED
from context_bench.llm.transport.pool import ended_by_peer


class Connector(aiohttp.TCPConnector):
    """An aiohttp connector for as many connections as are asked for.

    A reply without a length ends with its connection. Anybody on the way can end a connection; only the server can say
    over TLS that it has ended it (close_notify). Where it has not, reading the reply raises
    `aiohttp.ClientPayloadError`, as for every other cut reply.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(limit=0, **settings)
        self._factory = cast("partial[ResponseHandler]", partial(_Handler, loop=self._loop))


class _Handler(ResponseHandler):
    """Spoils the reply under way where the connection was ended and TLS was not."""

    def eof_received(self) -> None:
        payload, transport = self._payload, self.transport
        if payload is not None and not payload.is_eof() and transport is not None and not ended_by_peer(transport):
            payload.set_exception(aiohttp.ClientPayloadError(UNENDED))
        super().eof_received()
