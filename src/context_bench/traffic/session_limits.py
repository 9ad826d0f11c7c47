"""Limits on what a system does to sessions, and the evidence that one is crossed, valid whenever one looks.

A `Certificate` holds a channel for each declared limit and takes in one finished session at a time. The chance of a
false alarm, `ALPHA` over the horizon of all sessions, is split evenly over its channels. What it is takes a few numbers
and goes through JSON, so that it outlives the process.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.numbers import real
from context_bench.stats.anytime import (
    BETS,
    COST_WEIGHTS,
    HORIZON,
    BoundedSequence,
    EDetector,
    RatioSequence,
    bill_step,
    ratio_step,
    share_step,
)
from context_bench.stats.distributions import percentile
from context_bench.wire.turns import Turn
from context_bench.wire.violations import KINDS, REPLY_KINDS, total

#: Channels, and what the number of each limits.
CHANNELS = {
    "bill": "cost of all sessions, as a multiple of sending the requests as they were",
    "typical": "the same multiple of a session, each counting alike",
    "needles": "share of a session's planted facts that do not arrive",
    "violations": "share of a session's requests with a wire violation; 0: the first one is the alarm",
}
MONEY = ("bill", "typical")
#: A kind of violation is a channel, too: the share of a session's requests with it.
_KINDS = frozenset((*KINDS, *REPLY_KINDS))
#: Chance of a false alarm, over all channels of a certificate and all of its horizon.
ALPHA = 0.05
#: Sessions that set what one may weigh in the bill: this percentile of their own bills. They are no steps themselves.
REFERENCE, CAP = 50, 0.8
#: Sessions from which on the interval of a ratio is shown; it is asymptotic.
SHOWN_FROM = 200
#: Seconds without a request after which a session of a watch is finished.
IDLE_SECONDS = 1800.0
_MOST_OPEN = 2_000  # sessions; the one longest unused is finished then
_NAMED = 5  # sessions of an alarm
_HIGHEST = 100.0


def declared_limits(texts: Sequence[str]) -> dict[str, float]:
    """The limits that `CHANNEL=NUMBER` texts declare. Raises `BadInput`, or `UnknownName` for a channel."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, told = text.partition("=")
        name = name.strip()
        if not equals:
            raise BadInput(f"--limit {text!r} names no number; expected CHANNEL=NUMBER, such as bill=0.9. {_listed()}")
        if name not in CHANNELS and name not in _KINDS:
            there = (
                f"Known: {', '.join(sorted(CHANNELS))}, and each kind of violation, such as {KINDS[0]} and {KINDS[1]}."
            )
            raise UnknownName("channel of --limit", name, [*CHANNELS, *_KINDS], there)
        if name in found:
            raise BadInput(f"--limit {name} is given twice; give each channel once")
        try:
            value = float(told)
        except ValueError:
            value = math.nan
        most = _HIGHEST if name in MONEY else 1.0
        at_once = name == "violations" or name in _KINDS
        if not (0 < value < most or (value == 0 and at_once)):
            least = "0 (none at all) or more" if at_once else "more than 0"
            what = CHANNELS.get(name, "share of a session's requests with this violation")
            raise BadInput(f"--limit {text}: {told!r} is no limit of {name}; expected {least}, below {most:g} ({what})")
        found[name] = value
    return found


def _listed() -> str:
    return "Channels: " + "; ".join(f"{name} ({what})" for name, what in CHANNELS.items())


@dataclass(slots=True)
class SessionCounts:
    """A session as limits read it; it is counted once, when it is finished.

    `alone`, `through`: US dollars without and with the system, by the same cache rules; `None`: not known. `violated`:
    requests with a violation, of `requests`; `kinds`: requests by kind of violation. `lost`: needles that did not
    arrive, of `planted`; 0 where there are none. `last`: when it was seen last, in seconds since the epoch.
    """

    session: str
    requests: int = 0
    violated: int = 0
    alone: float | None = 0.0
    through: float | None = 0.0
    planted: int = 0
    lost: int = 0
    last: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)

    def add(self, turn: Turn) -> None:
        """Count in a turn of a watch, or calls that came late."""
        self.last = max(self.last, turn.at + (turn.seconds or 0.0))
        if turn.kind == "turn":
            self.requests += 1
            self.violated += total(violations_of(turn)) > 0
            for kind in turn.violations:
                self.kinds[kind] = self.kinds.get(kind, 0) + 1
            self.planted += turn.needles_planted
            self.lost += turn.needles_lost
        bills = turn.bill_alone, turn.bill_through
        self.alone, self.through = (
            None if a is None or b is None else a + b for a, b in zip((self.alone, self.through), bills, strict=True)
        )


def violations_of(turn: Turn) -> dict[str, int]:
    """Changes to a request beyond shortening it, and to its reply. What could not be measured is none of these."""
    return {kind: count for kind, count in turn.violations.items() if kind != "not_measured"}


@dataclass
class OpenSessions:
    """The sessions of a watch that are not finished, the one longest unused first."""

    sessions: dict[str, SessionCounts] = field(default_factory=dict)

    def add(self, turn: Turn) -> Iterator[SessionCounts]:
        """Count in a turn; the sessions that are finished by then come out."""
        yield from self.finished(turn.at)
        if turn.arm != "main" or not turn.session or turn.kind not in ("turn", "late"):
            return
        counts = self.sessions.pop(turn.session, None) or SessionCounts(turn.session)
        counts.add(turn)
        self.sessions[turn.session] = counts
        if len(self.sessions) > _MOST_OPEN:
            yield self.sessions.pop(next(iter(self.sessions)))

    def finished(self, now: float) -> Iterator[SessionCounts]:
        """The sessions that nothing came of for `IDLE_SECONDS` before `now`."""
        while self.sessions and (first := next(iter(self.sessions.values()))).last < now - IDLE_SECONDS:
            yield self.sessions.pop(first.session)

    def close(self) -> Iterator[SessionCounts]:
        """All of them: the watch is over."""
        while self.sessions:
            yield self.sessions.pop(next(iter(self.sessions)))


@dataclass
class Channel:
    """One limit with its evidence. `detector` is `None` where the first crossing is the alarm.

    `unknown`: sessions whose money is not known; they are no steps. `weighed`: the sessions since evidence last began
    to rise that weigh most; `rise`: how far it has risen, as a logarithm. `alarm`: the record of the alarm.
    """

    name: str
    limit: float
    detector: EDetector | None
    sequence: BoundedSequence | RatioSequence
    unknown: int = 0
    reference: list[float] = field(default_factory=list)
    cap: float | None = None
    rise: float = 0.0
    weighed: list[dict[str, Any]] = field(default_factory=list)
    alarm: dict[str, Any] | None = None

    @classmethod
    def new(cls, name: str, limit: float, alpha: float) -> Channel:
        """A channel without a session."""
        if name in MONEY:
            return cls(name, limit, EDetector(BETS["cost"], alpha, weights=COST_WEIGHTS), RatioSequence())
        return cls(name, limit, EDetector(BETS["share"], alpha) if limit else None, BoundedSequence())

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Channel:
        """A channel from its stored state."""
        values = dict(stored)
        sequence = RatioSequence if values["name"] in MONEY else BoundedSequence
        if values["detector"] is not None:
            values["detector"] = EDetector(**values["detector"])
        return cls(**{**values, "sequence": sequence(**values["sequence"])})

    def add(self, counts: SessionCounts, now: float) -> dict[str, Any] | None:
        """Count in a finished session. Returns the alarm that it raises."""
        if self.alarm is not None or (self.detector is not None and self.detector.used_up):
            return None
        amounts = self._amounts(counts)
        if amounts is None:
            return None
        above, below = amounts
        if isinstance(self.sequence, RatioSequence):
            self.sequence.add(*((above / below, 1.0) if self.name == "typical" else amounts))
        else:
            self.sequence.add(above / below)
        step = self._step(above, below)
        if step is None:
            return None
        self._weigh(counts.session, step, above / below)
        if self.detector.add(step) if self.detector is not None else step > 0:
            self.alarm = self._alarm(now)
        return self.alarm

    def violated(self, session: str, now: float) -> dict[str, Any] | None:
        """The first violation, where none is allowed: that needs no session to end. Returns the alarm."""
        if self.detector is not None or self.alarm is not None:
            return None
        self.weighed = [{"session": session}]
        self.alarm = self._alarm(now)
        return self.alarm

    def _amounts(self, counts: SessionCounts) -> tuple[float, float] | None:
        """The amount that crosses the limit, and of how much; `None` where the session says nothing of it."""
        if self.name in MONEY:
            through, alone = real(counts.through), real(counts.alone)
            if through is None or alone is None or through < 0:
                self.unknown += 1
                return None
            return (through, alone) if alone > 0 else None
        part, whole = counts.kinds.get(self.name, 0), counts.requests
        if self.name in CHANNELS:
            part, whole = (counts.lost, counts.planted) if self.name == "needles" else (counts.violated, whole)
        return (min(part, whole), whole) if whole else None

    def _step(self, above: float, below: float) -> float | None:
        if self.name == "typical":
            return ratio_step(above / below, self.limit, floor=self.limit / 2)
        if self.name != "bill":
            return share_step(above / below, self.limit) if self.limit else above
        if self.cap is None:
            self.reference.append(below)
            if len(self.reference) == REFERENCE:
                self.cap, self.reference = percentile(sorted(self.reference), CAP), []
            return None
        return bill_step(above, below, self.limit, cap=self.cap, floor=self.limit / 2)

    def _weigh(self, session: str, step: float, value: float) -> None:
        bet = self.detector.bets[-1] if self.detector is not None else 0.0
        self.rise = max(0.0, self.rise + math.log1p(bet * step))
        if self.detector is not None and not self.rise:
            self.weighed = []
        elif step > 0:
            listed = [*self.weighed, {"session": session, "value": value, "step": step}]
            self.weighed = sorted(listed, key=lambda each: -each["step"])[:_NAMED]

    def _alarm(self, now: float) -> dict[str, Any]:
        found = {"channel": self.name, "limit": self.limit, "at": now, **self.estimate()}
        if self.detector is not None:
            found |= {"evidence": self.detector.evidence, "threshold": self.detector.threshold}
        return {**found, "weighed_most": self.weighed}

    def estimate(self) -> dict[str, Any]:
        """`sessions`, `value` and its interval `low` to `high`, JSON-ready; what cannot be said is left out."""
        found: dict[str, Any] = {"sessions": self.sequence.sessions}
        if isinstance(self.sequence, BoundedSequence):
            value, ends = self.sequence.mean, self.sequence.interval if self.sequence.sessions else None
        else:
            value = self.sequence.ratio
            ends = self.sequence.interval if self.sequence.sessions >= SHOWN_FROM else None
        found |= {} if value is None else {"value": value}
        return found if ends is None or ends[0] > ends[1] else {**found, "low": ends[0], "high": ends[1]}

    def as_dict(self) -> dict[str, Any]:
        """The channel as a report shows it, JSON-ready."""
        found = {"limit": self.limit, **self.estimate(), "unknown": self.unknown}
        if self.detector is not None:
            found |= {"evidence": self.detector.evidence, "threshold": self.detector.threshold}
            found |= {"used_up": True} if self.detector.used_up else {}
        return {**found, "alarm": self.alarm}

    def sentence(self) -> str:
        """Says in one line how the limit stands."""
        if self.alarm is not None:
            return alarm_sentence(self.alarm)
        sessions = self.sequence.sessions
        parts = [f"{self.name} ≤ {self.limit:g}: no alarm after {sessions:,} session{'s' * (sessions != 1)}"]
        if self.detector is not None:
            parts[0] += f" (evidence {self.detector.evidence:.3g}, an alarm at {self.detector.threshold:.3g})"
            if self.detector.used_up:
                parts.append(f"its {HORIZON:,} sessions are used up, nothing more is counted: begin anew with --anew")
        parts += [text for text in (_estimated(self.estimate(), self.name),) if text]
        if self.name == "bill" and self.cap is None and sessions:
            parts.append(f"the first {REFERENCE} sessions only set what one may weigh")
        if self.unknown:
            parts.append(f"{self.unknown:,} more are not counted: what they cost is not known")
        return "; ".join(parts)


def _estimated(estimate: Mapping[str, Any], name: str) -> str:
    """The estimate in words."""
    if "value" not in estimate:
        return ""
    text = f"{'ratio' if name in MONEY else 'share'} {estimate['value']:.3g}"
    if "low" in estimate:
        text += f", {estimate['low']:.3g} to {estimate['high']:.3g} at every look"
    return text


def alarm_sentence(alarm: Mapping[str, Any]) -> str:
    """Says in one line what crossed its limit, and by which sessions."""
    sessions = ", ".join(
        f"{each['session']} ({each['value']:.3g})" if "value" in each else each["session"]
        for each in alarm["weighed_most"]
    )
    if "evidence" not in alarm:
        return f"ALARM {alarm['channel']} > {alarm['limit']:g}: the first one, in {sessions}"
    text = f"ALARM {alarm['channel']} > {alarm['limit']:g} after {alarm['sessions']:,} sessions"
    text += f" (evidence {alarm['evidence']:.3g} ≥ {alarm['threshold']:.3g})"
    estimate = _estimated(alarm, alarm["channel"])
    return f"{text}; {estimate + '; ' if estimate else ''}these weighed most: {sessions or 'none by itself'}"


@dataclass
class Certificate:
    """Declared limits over a stream of finished sessions, each with its channel.

    `begun` counts from 1: it goes up when one begins anew, with an `ALPHA` of its own.
    """

    channels: dict[str, Channel]
    begun: int = 1

    @classmethod
    def new(cls, limits: Mapping[str, float], begun: int = 1) -> Certificate:
        """A certificate without a session. `ALPHA` is split over the limits that take a statistic."""
        bets = sum(limit > 0 for limit in limits.values()) or 1
        return cls({name: Channel.new(name, limit, ALPHA / bets) for name, limit in limits.items()}, begun)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Certificate:
        """A certificate from its stored state."""
        return cls({each["name"]: Channel.of(each) for each in stored["channels"]}, stored["begun"])

    def state(self) -> dict[str, Any]:
        """Its state as plain data, for a store."""
        return {"begun": self.begun, "channels": [asdict(channel) for channel in self.channels.values()]}

    def add(self, counts: SessionCounts, now: float) -> list[dict[str, Any]]:
        """Count in a finished session; returns the alarms that it raises."""
        found = [channel.add(counts, now) for channel in self.channels.values()]
        return [alarm for alarm in found if alarm is not None]

    def violated(self, session: str, now: float, kinds: Mapping[str, int]) -> list[dict[str, Any]]:
        """A request of a session was violated, by `kinds`; returns the alarms that this is where none is allowed."""
        crossed = [*kinds, *(["violations"] if total(kinds) else [])]
        channels = [self.channels[name] for name in crossed if name in self.channels]
        found = [channel.violated(session, now) for channel in channels]
        return [alarm for alarm in found if alarm is not None]

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """The alarms that stand."""
        return [channel.alarm for channel in self.channels.values() if channel.alarm is not None]

    def as_dict(self) -> dict[str, Any]:
        """The state of its limits, JSON-ready."""
        return {
            "alpha": ALPHA,
            "horizon": HORIZON,
            "begun": self.begun,
            "channels": {name: channel.as_dict() for name, channel in self.channels.items()},
        }

    def sentences(self) -> Iterable[str]:
        """A line for each limit."""
        return [channel.sentence() for channel in self.channels.values()]
