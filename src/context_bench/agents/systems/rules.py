"""When a run of an agent is over: limits declared beforehand that hold for every arm alike, and what it is called if one is met."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from context_bench.core.errors import BadInput, CopyUnusable
from context_bench.core.protocols import Prices
from context_bench.core.records import Forwarded
from context_bench.llm.failures import says_too_long

TIME, STEPS, MONEY, OVERFLOW = "time limit", "step limit", "money limit", "context overflow"
AGENT, VERIFY = "agent error", "verify error"
#: All classes, in the order in which they are tried: a run that met several is counted under the first.
CLASSES = (STEPS, MONEY, TIME, OVERFLOW, AGENT, VERIFY)
SECONDS = 1800.0
_CHAT = ("openai-chat", "openai-responses", "anthropic")
_REFUSED_FOR_LENGTH = (400, 413, 422, 500)


@dataclass(frozen=True, slots=True)
class AbortRules:
    """The most that one run of an agent may take: seconds on the clock, answered calls of the model, US dollars.

    `None` = no such limit; for seconds the task's own `timeout`, which is the same for all arms too, else 1800.
    """

    max_seconds: float | None = None
    max_calls: int | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (math.isfinite(value) and value > 0):
                raise BadInput(f"{name.replace('_', ' ')} of one run is {value}; expected a number above 0")

    @property
    def watching(self) -> bool:
        """Whether the traffic has to be looked at while the agent works."""
        return self.max_calls is not None or self.max_cost is not None

    def seconds(self, example: Mapping[str, Any]) -> float:
        """Seconds that an agent has for this task."""
        return self.max_seconds or float(example.get("timeout") or SECONDS)

    def broken(self, records: Sequence[Forwarded], prices: Prices | None) -> str | None:
        """The limit that these calls have passed, if any. Calls that the provider did not answer do not count."""
        served = answered(records)
        if self.max_calls is not None and len(served) > self.max_calls:
            return STEPS
        if self.max_cost is not None and (spent := cost_of(served, prices)) is not None and spent > self.max_cost:
            return MONEY
        return None

    def told(self) -> dict[str, Any]:
        """The rules as JSON."""
        return asdict(self)


def is_agents(error: Exception) -> bool:
    """Whether a failure after an agent's work is the agent's own doing. Its run then scores 0; any other failure is no result at all."""
    return isinstance(error, CopyUnusable)


def calls_of(records: Sequence[Forwarded]) -> list[Forwarded]:
    """The calls of a model among what went by."""
    return [record for record in records if record.wire in _CHAT]


def answered(records: Sequence[Forwarded]) -> list[Forwarded]:
    """The calls of a model that were answered."""
    return [record for record in calls_of(records) if record.error is None and (record.status is None or record.status < 400)]


def cost_of(served: Sequence[Forwarded], prices: Prices | None) -> float | None:
    """US dollars of calls; `None` if no price is known for any of them."""
    known = [prices.cost(one.usage, one.model or "") for one in served if one.usage is not None] if prices is not None else []
    told = [cost for cost in known if cost is not None]
    return sum(told) if told else None


def overflowed(records: Sequence[Forwarded]) -> bool:
    """True if the last call was refused because it does not fit the model's window, and nothing came after it."""
    calls = calls_of(records)
    if not calls or calls[-1].status not in _REFUSED_FOR_LENGTH:
        return False
    return says_too_long(json.dumps(calls[-1].reply, ensure_ascii=False, default=str) + (calls[-1].error or ""))
