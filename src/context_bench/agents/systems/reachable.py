"""Whether what an arm's agent is told to talk to is there, asked before anything is run: else its arm would lose for that."""

from __future__ import annotations

from collections.abc import Iterable

from context_bench.agents.systems.arms import ArmSpec
from context_bench.core.errors import BadInput, PreflightFailed
from context_bench.llm.sessions import unreachable
from context_bench.llm.transport import Unusable, address_of

#: Variables that say where the model is.
WHERE = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL")


async def require_reachable(arms: Iterable[ArmSpec]) -> None:
    """One TCP connection to each place that an arm names as the model's; no request is sent.

    Raises `PreflightFailed` where nothing listens, `BadInput` for what is no URL.
    """
    for arm in arms:
        for name in WHERE:
            value = arm.variables.get(name, "")
            if value and "{" not in value:
                await _require(arm.name, name, value)


async def _require(arm: str, name: str, value: str) -> None:
    try:
        address_of(value)
    except Unusable:
        raise BadInput(f"arm {arm!r}: {name}={value} is no URL; expected http://HOST:PORT/… or https://…") from None
    if (reason := await unreachable(value)) is not None:
        raise PreflightFailed(
            f"arm {arm!r}: nothing listens at {name}={value} ({reason}). Start the proxy first, with the tap as its upstream"
        )
