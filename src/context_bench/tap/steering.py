"""Requests steered on their way through a tap: past the server that it relays to, or with another body.

A tap steers nothing by itself. Only a watch with `--holdout` or `--needles` asks for it (decision 13).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from context_bench.tap.exchange import BODY_LIMIT, MARK_HEADER, Exchange, Headers, header

_log = logging.getLogger("context_bench.tap")
#: Bytes of a body that are sent on at once; in between others are served.
_AT_ONCE = 256 * 1024
_Data = bytes | AsyncIterator[bytes] | None


@dataclass(frozen=True, slots=True)
class Onward:
    """Way of a request from here: by default it goes on as it came.

    `around`: the base URL of another tap on this machine that it goes to instead, with `mark` in our own header, which
    that tap takes out. `body`: sent in the place of the one that came; `recorded`: it is also what is written down as
    having come. `plain`: the body is no longer packed.
    """

    around: str | None = None
    mark: str | None = None
    body: bytes | None = None
    recorded: bool = False
    plain: bool = False

    def headers(self, came: Headers) -> Headers:
        """The request's headers as they go on."""
        kept = [(name, self._value(name.lower(), value)) for name, value in came if not self._drops(name.lower())]
        return kept if self.mark is None else [*kept, (MARK_HEADER, self.mark)]

    def _value(self, name: str, value: str) -> str:
        return value if self.body is None or name != "content-length" else str(len(self.body))

    def _drops(self, name: str) -> bool:
        return self.plain and name == "content-encoding"


AS_IT_CAME = Onward()


class Steering:
    """Is asked about each request of a tap, on the tap's loop. This one lets all go on as they came."""

    def by_head(self, exchange: Exchange) -> Onward | None:
        """Decide by the headers; `None` if the body is wanted, too."""
        return AS_IT_CAME

    def by_body(self, exchange: Exchange, body: bytes | None) -> Onward:
        """Decide by the whole body; `None` is one that is longer than is read."""
        return AS_IT_CAME


def from_head(steering: Steering | None, exchange: Exchange) -> Onward | None:
    """Ask `steering` about a request by its headers. Its mistakes stop no request."""
    try:
        return AS_IT_CAME if steering is None else steering.by_head(exchange)
    except Exception:
        _log.exception("a request could not be steered by its headers; it goes on as it came")
        return AS_IT_CAME


async def from_body(steering: Steering | None, exchange: Exchange, coming: _Data) -> tuple[_Data, Onward]:
    """Ask `steering` about a request by its body; also the body to send. A body that has no length keeps none."""
    whole, rest = (coming, None) if not isinstance(coming, AsyncIterator) else await _gathered(coming)
    try:
        assert steering is not None, "it wanted the body"
        onward = steering.by_body(exchange, None if rest is not None else whole or b"")
    except Exception:
        _log.exception("a request could not be steered by its body; it goes on as it came")
        onward = AS_IT_CAME
    if rest is not None:
        return _in_turn(whole or b"", rest), onward
    if onward.body is not None:
        whole = onward.body
        if onward.recorded:
            exchange.body.replace(exchange.arrived, whole)
    unsized = not header(exchange.headers, "content-length")
    return (_in_turn(whole) if whole and (unsized or len(whole) > _AT_ONCE) else whole), onward


async def _gathered(coming: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes] | None]:
    """The whole body; of one that is longer than is read its beginning, and what comes after that."""
    pieces = bytearray()
    async for piece in coming:
        pieces += piece
        if len(pieces) > BODY_LIMIT:
            return bytes(pieces), coming
    return bytes(pieces), None


async def _in_turn(first: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    for start in range(0, len(first), _AT_ONCE):
        yield first[start : start + _AT_ONCE]
    if rest is not None:
        async for piece in rest:
            yield piece
