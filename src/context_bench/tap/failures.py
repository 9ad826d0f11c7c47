"""How requests fail, in a few words of ours: what may be written down whatever the recording policy."""

from __future__ import annotations

from context_bench.core.records import Forwarded

#: How the error of an exchange begins that nobody behind the tap ended.
_OUR_SIDE = ("the client ", "the tap was stopped")


def failure_of(record: Forwarded) -> str | None:
    """How a request failed, by its status or by what was seen of its answer; `None` if it was answered whole."""
    if record.status is None:
        return "client left" if client_left(record.error) else "no answer"
    if record.status >= 400:
        return str(record.status)
    failure = record.facts.get("failure")
    return failure if isinstance(failure, str) else None


def mark_failed(record: Forwarded, how: str) -> None:
    """Write down that an answer was not whole though its status was good."""
    record.facts.setdefault("failure", how)


def cut_off(error: str | None) -> str:
    """Who ended an answer before its end, by the error of its exchange."""
    return "client left" if client_left(error) else "broken off"


def client_left(error: str | None) -> bool:
    """True if the client or the tap ended the exchange, not the upstream."""
    return (error or "").startswith(_OUR_SIDE)
