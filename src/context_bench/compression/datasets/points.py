"""Where a session is compressed: before which message. Never between a tool call and its result."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate

from context_bench.compression.probes.example import tokens_of
from context_bench.compression.probes.probe import CompressionPoint
from context_bench.core.errors import BadInput
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.transcripts.session import Session
from context_bench.wire.conversation import ChatMessage
from context_bench.wire.request import SYSTEM_ROLES

_GRAMMAR = "fraction:0.75[,…], tokens:N[,…], every:N (messages), at:I[,…] (messages) or task-boundary"


def compression_points(
    session: Session | Sequence[ChatMessage],
    points: str = "fraction:0.75",
    *,
    window: int | None = None,
    counter: TokenCounter | None = None,
) -> list[CompressionPoint]:
    """The places at which a session is cut, in order.

    `points`: `fraction:F` where so much of `window` tokens (without a window: of the whole session) is used up; `tokens:N`; `every:N`
    messages; `at:I,J` before these messages, counted from 0; `task-boundary` before each message of the user but the first. A place that
    would part a tool call from its result is moved to before the call. Places with nothing to compress, or beyond the end, are left out.
    Raises `BadInput` for a text that is none of these.
    """
    messages, name, tools = _parts(session)
    wanted = _indices(points, messages, window, counter or counter_for())
    head = next((at for at, message in enumerate(messages) if message.get("role") not in SYSTEM_ROLES), len(messages))
    places = dict.fromkeys(_whole(messages, index) for index in wanted)
    kept = [index for index in sorted(places) if head < index <= len(messages)]
    return [CompressionPoint(name, index, points, messages[:index], messages[index:], tools) for index in kept]


def _parts(session: Session | Sequence[ChatMessage]) -> tuple[list[ChatMessage], str, Sequence[object]]:
    if isinstance(session, Session):
        return session.messages, session.id, session.requests[-1].chat.tools if session.requests else ()
    return list(session), "session", ()


def _indices(points: str, messages: Sequence[ChatMessage], window: int | None, counter: TokenCounter) -> Iterator[int]:
    kind, _, text = points.partition(":")
    if kind == "task-boundary" and not text:
        users = [at for at, message in enumerate(messages) if message.get("role") == "user"]
        yield from users[1:]
        return
    numbers = _numbers(points, text)
    if kind == "at":
        yield from (int(number) for number in numbers if number == int(number))
    elif kind == "every" and len(numbers) == 1 and numbers[0] >= 1:
        step = int(numbers[0])
        yield from range(step, len(messages) + 1, step)
    elif kind in ("fraction", "tokens") and all(number > 0 for number in numbers):
        used = list(accumulate(tokens_of([message], counter) for message in messages))
        whole = (window or (used[-1] if used else 0)) if kind == "fraction" else 1
        if kind == "fraction" and max(numbers) > 1:
            raise BadInput(f"the points are {points!r}: a fraction is above 0 and at most 1")
        yield from (place for share in numbers if (place := _reached(used, share * whole)) is not None)
    else:
        raise BadInput(f"the points are {points!r}; expected {_GRAMMAR}")


def _numbers(points: str, text: str) -> list[float]:
    found = [part.strip() for part in text.strip("[] ").split(",")]
    if not all(re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", part) for part in found):
        raise BadInput(f"the points are {points!r}; expected {_GRAMMAR}")
    return [float(part) for part in found]


def _reached(used: Sequence[int], tokens: float) -> int | None:
    """How many messages it takes to use so many tokens up; `None` if all of them do not."""
    return next((at for at, total in enumerate(used, 1) if total >= tokens - 1e-9), None)


def _whole(messages: Sequence[ChatMessage], index: int) -> int:
    """`index`, or before the calls whose results it would part from them."""
    if index >= len(messages):
        return index
    while index > 0 and messages[index].get("role") in ("tool", "function"):
        index -= 1
    return index
