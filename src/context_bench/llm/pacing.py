"""How often one account is asked: so many requests and tokens a minute, and less when its own headers say that little is left.

An account refuses what comes too fast. Being refused costs time, and with some providers quota as well; who spreads the requests is
refused less. Places in line are given in the order of asking, so nobody is overtaken; waiting for one is never part of a latency.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import BadInput

#: Below this share of a quota what is left of it is spread over the time until it is full again.
SCARCE = 0.1
#: A quota that is full again only after more seconds than this (a day's, say) is not spread: the run may well need less than is left.
LONGEST = 60.0


@dataclass(frozen=True, slots=True)
class Quota:
    """What an account said about one of its quotas: `kind` "requests" or "tokens", how many are `left`, which `share` of all that is, and
    in how many `seconds` it is full again.
    """

    kind: str
    left: float
    share: float
    seconds: float


class Pace:
    """Hands out moments at which requests may be sent; shared by all clients of one account, on whatever event loops they run.

    `rpm`: requests a minute, evenly spread: in any 60 seconds at most so many are sent. `tpm`: tokens a minute, prompt and reply: what
    was sent and received in any 60 seconds passes it by at most the last request. `None`: no such limit. Only wishes of the user and of
    the account's headers (`told`) slow anything down.
    """

    def __init__(self, rpm: float | None = None, tpm: float | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        for name, value in (("requests", rpm), ("tokens", tpm)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise BadInput(f"{name} a minute are a number above 0, not {value!r}")
        self.rpm, self.tpm = rpm, tpm
        self._clock, self._lock = clock, threading.Lock()
        self._each = {"requests": 60 / rpm if rpm else 0.0, "tokens": 60 / tpm if tpm else 0.0}
        self._free = {"requests": -math.inf, "tokens": -math.inf}
        self._scarce: dict[str, tuple[float, float]] = {}  # kind → (until, seconds for each of what is left)
        self._idle = not (rpm or tpm)

    @property
    def idle(self) -> bool:
        """Whether nothing slows anything down: there is no need to ask for a place."""
        return self._idle

    def place(self, tokens: int) -> float:
        """The moment (on the clock's `monotonic`) at which a request of so many tokens may be sent; it is taken by asking."""
        now = self._clock.monotonic()
        if self._idle:
            return now
        with self._lock:
            start = max(now, *self._free.values())
            self._push("requests", start, 1)
            self._push("tokens", start, tokens)
        return start

    def add(self, tokens: int) -> None:
        """Count tokens that were not known when the place was taken: those of the reply."""
        if tokens > 0 and not self._idle:
            with self._lock:
                self._push("tokens", max(self._clock.monotonic(), self._free["tokens"]), tokens)

    def told(self, quotas: Iterable[Quota]) -> str | None:
        """Learn what the account says is left; where that is scarce, why the pace goes down from here (only if it is new)."""
        worst: dict[str, Quota] = {}
        for quota in quotas:
            if quota.seconds <= LONGEST and (quota.kind not in worst or quota.share < worst[quota.kind].share):
                worst[quota.kind] = quota
        if not worst:
            return None
        with self._lock:
            reasons = [reason for quota in worst.values() if (reason := self._learn(quota)) is not None]
            self._idle = not (self.rpm or self.tpm or self._scarce)
        return "; ".join(reasons) or None

    def _learn(self, quota: Quota) -> str | None:
        now = self._clock.monotonic()
        before = self._scarce.pop(quota.kind, None)
        if quota.share >= SCARCE:
            return None
        until = now + quota.seconds
        self._scarce[quota.kind] = until, quota.seconds / quota.left if quota.left > 0 else math.inf
        if quota.left <= 0:
            self._free[quota.kind] = max(self._free[quota.kind], until)
        if before is not None and before[0] > now:
            return None
        return f"{quota.share:.0%} of the {quota.kind} left, spread over {quota.seconds:.3g} s"

    def _push(self, kind: str, start: float, amount: float) -> None:
        """Let the next one wait for what this one takes."""
        free = start + amount * self._each[kind]
        until, each = self._scarce.get(kind, (-math.inf, 0.0))
        if start < until:
            free = max(free, min(until, start + amount * each))
        self._free[kind] = max(self._free[kind], free)
