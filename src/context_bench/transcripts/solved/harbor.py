"""The result of a Harbor trial (`result.json` in the trial's folder): resolved where its reward is 1 or more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from context_bench.core.numbers import score
from context_bench.transcripts.format import Format, LogSource, Peek
from context_bench.transcripts.solved.patch_reports import PatchOutcome, mapping

NAME = "Harbor trial result"
#: Exceptions of the machinery: the agent had no chance. What the agent or its patch may have caused is not among them.
_MACHINERY = re.compile(r"Environment|Docker|Daytona|Modal|Sandbox|AgentSetup|Download|Upload|AddTestsDir")


def sniff(peek: Peek) -> bool:
    """True if the file is the result of a trial."""
    return _is_trial(peek.first)


def read(source: LogSource) -> Iterator[PatchOutcome]:
    """The trials of the file: mostly one."""
    for row in map(mapping, source.values()):
        if _is_trial(row):
            yield _outcome(row)
        else:
            source.skip("not the result of a trial")


def _is_trial(row: dict[str, Any]) -> bool:
    return isinstance(row.get("task_name"), str) and any(
        key in row for key in ("verifier_result", "exception_info", "reward")
    )


def _outcome(row: dict[str, Any]) -> PatchOutcome:
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


def _reward(row: dict[str, Any]) -> float | None:
    """The reward named so; of several without that name, none."""
    verdict = mapping(row.get("verifier_result"))
    rewards = mapping(verdict.get("rewards"))
    value = rewards.get("reward", verdict.get("reward", row.get("reward")))
    if value is None and len(rewards) == 1:
        value = next(iter(rewards.values()))
    return score(value)


FORMAT = Format(NAME, 40, sniff, read)
