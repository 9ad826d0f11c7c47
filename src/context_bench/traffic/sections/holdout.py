"""Report of a holdout: what conversations through a proxy cost, against those that were drawn to go past it.

The unit is the conversation that was drawn, with its sub-agents, side calls and repeats; never the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.wire.turns import Turn

_ARMS = ("main", "holdout")


@dataclass(slots=True)
class HoldoutBills:
    """Bills by drawn conversation, US dollars, of those through the proxy (`main`) and those held out (`holdout`).

    `unpriced`: conversations with a call whose price is not known. `unnamed`: turns that name no conversation, and
    `strays`: calls that belong to none; both are in neither group.
    """

    bills: dict[str, dict[str, float]] = field(default_factory=lambda: {arm: {} for arm in _ARMS})
    unpriced: dict[str, set[str]] = field(default_factory=lambda: {arm: set() for arm in _ARMS})
    unnamed: int = 0
    strays: int = 0

    def add(self, turn: Turn) -> None:
        """Count one record in."""
        if turn.arm not in _ARMS or turn.kind == "other":
            return
        if not turn.unit:
            self.strays += turn.kind == "stray"
            self.unnamed += turn.kind == "turn"
            return
        bills = self.bills[turn.arm]
        bills[turn.unit] = bills.get(turn.unit, 0.0) + (turn.cost or 0.0) + (turn.guessed or 0.0)
        if turn.unpriced:
            self.unpriced[turn.arm].add(turn.unit)

    def as_dict(self, share: float) -> dict[str, Any]:
        """The result, JSON-ready, with its sentence. `share`: of conversations that were to be held out."""
        from context_bench.stats.anytime import FEWEST_OF_ARM, ratio_of_arms

        through, past = (self._billed(arm) for arm in _ARMS)
        found = ratio_of_arms(through, past, share=share)
        interval = {} if found is None or found.low is None else {"low": found.low, "high": found.high}
        result: dict[str, Any] = {
            "share": share,
            "through": len(through),
            "held_out": len(past),
            "fewest": FEWEST_OF_ARM,
            "left_out": {
                arm: len(self.bills[arm]) - len(bills) for arm, bills in zip(_ARMS, (through, past), strict=True)
            },
            "unnamed_turns": self.unnamed,
            "stray_calls": self.strays,
            "method": "ratio of geometric means of bills, by drawn conversation; asymptotic confidence sequence",
        }
        if interval and found is not None:
            result |= {"cost_ratio": found.value, **interval}
        return {**result, "sentence": _sentence(result)}

    def _billed(self, arm: str) -> list[float]:
        return [bill for unit, bill in self.bills[arm].items() if bill > 0 and unit not in self.unpriced[arm]]


def plural(number: int, what: str) -> str:
    """The word for so many of `what`."""
    return what if number == 1 else f"{what}s"


def _sentence(result: Mapping[str, Any]) -> str:
    through, past, fewest = result["through"], result["held_out"], result["fewest"]
    if "cost_ratio" in result:
        text = (
            f"Holdout: a typical conversation through the proxy costs ×{result['cost_ratio']:.2f} of one past it (95 % "
            f"at any look: ×{result['low']:.2f} to ×{result['high']:.2f}; {through:,} against {past:,} held out, whole "
            "conversations drawn at random)."
        )
    else:
        few, where = (past, "held out") if past <= through else (through, "through the proxy")
        text = (
            f"Holdout: no saving is stated: {few:,} {plural(few, 'conversation')} {where} with a bill, and {fewest} "
            "are the fewest from which an interval holds. With fewer, one dear conversation decides the figure. "
            "Requests are no substitute: those of one conversation fall together."
        )
    return " ".join([text, *_left_out(result)])


def _left_out(result: Mapping[str, Any]) -> list[str]:
    counts = (
        (sum(result["left_out"].values()), "conversation", "without a known bill"),
        (result["unnamed_turns"], "request", "of no known conversation"),
        (result["stray_calls"], "call", "that came while no client waited"),
    )
    named = [f"{count:,} {plural(count, what)} {how}" for count, what, how in counts if count]
    return [f"In neither group: {', '.join(named)}."] if named else []
