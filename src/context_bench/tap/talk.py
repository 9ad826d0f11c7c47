"""What is said over one WebSocket, as requests and answers: each `response.create` is a request, the events until its end are its answer.

Pure bookkeeping. Answers come in the order of the requests; where the client opens several lanes (`stream_id`), in the order of each lane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from context_bench.core.clock import Clock
from context_bench.core.jsontext import TooLarge
from context_bench.tap.records import Exchange
from context_bench.wire.apis.shared import as_str, load_body

#: Requests of one WebSocket that may wait for an answer; of more, the longest waiting is recorded as never answered.
MOST_WAITING = 64

_ASKS_OR_ENDS = ("response.create", "response.completed", "response.incomplete", "response.failed", "response.cancelled")
_ENDS = frozenset({*_ASKS_OR_ENDS[1:], "error"})
_STREAM = [("content-type", "text/event-stream")]
_JSON = [("content-type", "application/json")]


class Talk:
    """Finds the requests and answers of one WebSocket among its messages.

    It is told of every message of the client before it goes on, of every message of the upstream after. `begin` makes an exchange of
    a request, `leave` takes it once it is over. `keep`: waits until an exchange that is over is kept, where its end waits for that.
    """

    def __init__(
        self,
        begin: Callable[[bytes], Exchange],
        leave: Callable[[Exchange], None],
        clock: Clock,
        keep: Callable[[Exchange], Awaitable[None]] | None = None,
    ) -> None:
        self._begin, self._leave, self._clock, self._keep = begin, leave, clock, keep
        self._last: Exchange | None = None
        self._waiting: deque[tuple[str, Exchange]] = deque()

    def asked(self, text: str) -> None:
        """The client says something."""
        said = _object(text)
        if said is None or said.get("type") != "response.create":
            return
        if len(self._waiting) >= MOST_WAITING:
            self._end(self._waiting[0], f"not answered: {MOST_WAITING} later requests of this WebSocket were waiting too")
        self._waiting.append((_lane(said), self._begin(text.encode("utf-8", "surrogatepass"))))

    def answered(self, text: str) -> None:
        """The upstream has said something."""
        event = _object(text) if self._waiting else None
        found = self._whose(event) if event is not None else None
        if event is None or found is None:
            return
        _take(found[1], text.encode("utf-8", "surrogatepass"), event, self._clock.monotonic())
        if as_str(event.get("type")) in _ENDS:
            found[1].ending = True
            self._end(found)
            self._last = found[1]

    def ends(self, text: str) -> bool:
        """True if a message may end an answer that waits for its record. Looks at bytes only."""
        return any(each.kept is not None for _, each in self._waiting) and any(f'"{kind}"' in text for kind in _ENDS)

    async def kept(self) -> None:
        """Wait until the answer that was ended last is kept."""
        last, self._last = self._last, None
        if last is not None and self._keep is not None:
            await self._keep(last)

    def over(self, why: str) -> None:
        """Nothing more will be said: what has no whole answer yet ends here."""
        while self._waiting:
            self._end(self._waiting[0], why)

    def _whose(self, event: Mapping[str, Any]) -> tuple[str, Exchange] | None:
        lane = _lane(event)
        return next((each for each in self._waiting if each[0] == lane), self._waiting[0] if len(self._waiting) == 1 else None)

    def _end(self, found: tuple[str, Exchange], why: str | None = None) -> None:
        self._waiting.remove(found)
        found[1].error = found[1].error or why
        self._leave(found[1])


def _take(exchange: Exchange, raw: bytes, event: Mapping[str, Any], at: float) -> None:
    """Keep an event as the stream of server-sent events would have brought it; a refusal as the reply that HTTP would have brought."""
    status = event.get("status")
    if event.get("type") == "error" and not exchange.reply.size and isinstance(status, int) and 400 <= status <= 599:
        exchange.status, exchange.reply_headers = status, _JSON
        exchange.reply.add(at, raw)
        return
    exchange.status, exchange.reply_headers = 200, _STREAM
    exchange.reply.add(at, b"data: " + raw.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n")


def _object(text: str) -> dict[str, Any] | None:
    try:
        said = load_body(text)
    except TooLarge:  # its exchange is recorded as one that was not read
        return {"type": next((kind for kind in _ASKS_OR_ENDS if f'"{kind}"' in text), None)}
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _lane(said: Mapping[str, Any]) -> str:
    return as_str(said.get("stream_id")) or ""
