"""Several requests that arrived for one that was sent, and what was billed of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from context_bench.core.jsontext import load_json, without_nulls
from context_bench.core.keys import canonical_json, hash_text
from context_bench.wire.request import WireRequest
from context_bench.wire.violations.kinds import Violation


def closest(sent: WireRequest, received: Sequence[WireRequest]) -> int:
    """Which of the requests that arrived is the one sent, and not a proxy's own: most of its texts, then most messages, then the last."""
    texts = {message.text for message in sent.messages}
    likeness = [(sum(message.text in texts for message in one.messages), len(one.messages)) for one in received]
    return max(range(len(received)), key=lambda place: (*likeness[place], place))


def repeated_requests(received: Sequence[tuple[bytes, int | None]]) -> list[Violation]:
    """What arrived more than once for one request of the client: (body, the provider's status) in order of arrival.

    `retry` after a failed attempt (429, 5xx, no answer), else `duplicate`. Bodies that mean something else are calls of the proxy's own.
    """
    found: list[Violation] = []
    earlier: dict[str, int | None] = {}
    for place, (body, status) in enumerate(received):
        key = _meaning(body)
        if key in earlier:
            before = earlier[key]
            failed = before is None or before == 429 or before >= 500
            kind, why = ("retry", f"after status {before}") if failed else ("duplicate", f"although it had been answered with {before}")
            found.append(Violation(kind, f"sent again {why}", place))
        earlier[key] = status
    return found


def _meaning(body: bytes) -> str:
    try:
        return canonical_json(without_nulls(load_json(body)))
    except ValueError:
        return hash_text(body.decode("utf-8", "replace"))


_TRUNCATED_BELOW = 0.8  # decision 17


def silent_truncation(billed: int | None, counted: int, *, exact: bool) -> Violation | None:
    """The violation if the provider billed clearly fewer prompt tokens than an exact count of what it was sent."""
    if not exact or billed is None or billed >= _TRUNCATED_BELOW * counted:
        return None
    return Violation("silent_truncation", f"{billed:,} prompt tokens were billed of {counted:,} that were sent")


def ended_twice(told: Mapping[str, Any], provider: Mapping[str, Any]) -> Violation | None:
    """The violation if a stream went on after its end where the provider's own did not, by what two taps noted of the reply."""
    after = told.get("after_done")
    if not isinstance(after, Mapping) or provider.get("after_done"):
        return None
    return Violation("after_done", f"{after.get('events', 0):,} more events after the stream's last one")
