"""The result of a Harbor trial (`result.json` in the trial's folder): resolved where its reward is 1 or more."""

from __future__ import annotations

import re
from collections.abc import Iterator

from context_bench.core.numbers import score
from context_bench.transcripts.patch_verdicts import PatchOutcome, Row, mapping, report

#: Exceptions of the machinery: the agent had no chance. What the agent or its patch may have caused is not among them.
_MACHINERY = re.compile(r"Environment|Docker|Daytona|Modal|Sandbox|AgentSetup|Download|Upload|AddTestsDir")


def _is_trial(row: Row) -> bool:
    return isinstance(row.get("task_name"), str) and any(
        key in row for key in ("verifier_result", "exception_info", "reward")
    )


def _outcomes(row: Row) -> Iterator[PatchOutcome | str]:
    yield _outcome(row) if _is_trial(row) else "not the result of a trial"


def _outcome(row: Row) -> PatchOutcome:
    name, trial = row["task_name"], row.get("trial_name")
    # a task of a registry is called `owner/name`; its own id is the name
    aliases = tuple(
        alias for alias in (trial, name.rsplit("/", 1)[-1]) if isinstance(alias, str) and alias and alias != name
    )
    reward = _reward(row)
    if reward is not None:
        return PatchOutcome(
            name,
            "resolved" if reward >= 1 else "unresolved",
            reason=None if reward >= 1 else f"reward {reward:g}",
            aliases=aliases,
        )
    kind = mapping(row.get("exception_info")).get("exception_type")
    if isinstance(kind, str) and kind:
        return PatchOutcome(name, "error", bool(_MACHINERY.search(kind)), kind[:200], aliases)
    return PatchOutcome(name, "unknown", reason="no reward", aliases=aliases)


def _reward(row: Row) -> float | None:
    """The reward named so; of several without that name, none."""
    verdict = mapping(row.get("verifier_result"))
    rewards = mapping(verdict.get("rewards"))
    value = rewards.get("reward", verdict.get("reward", row.get("reward")))
    if value is None and len(rewards) == 1:
        value = next(iter(rewards.values()))
    return score(value)


REPORT = report("Harbor trial result", 40, _is_trial, _outcomes)
