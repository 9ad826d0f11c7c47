"""What an operational suite found: probes with their controls, in one form for all suites."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from context_bench.core.errors import Stop, TimedOut, describe
from context_bench.llm.redact import redact
from context_bench.memory.protocol import NotSupported
from context_bench.stats.distributions import nearest_rank

Kind = Literal["test", "positive control", "measurement"]
Outcome = Literal["pass", "fail", "error", "not applicable", "measured"]

_SHOWN = 5  # findings kept of one probe
_LONGEST = 200  # characters of a finding


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was seen to be wrong. `what` may quote the memory's own text (ours or anybody's): show it as text only."""

    what: str


@dataclass(frozen=True, slots=True)
class Probe:
    """One question put to a memory, and what came of it.

    `kind` "positive control": shows that the test named alike could have failed at all; where it does not hold, that test fails too.
    "measurement": figures without a right or wrong, outcome "measured". `numbers`: counts, shares (0 to 1), seconds, bytes.
    """

    suite: str
    name: str
    kind: Kind
    outcome: Outcome
    sentence: str
    numbers: Mapping[str, float | int | None] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """All probes of one suite on one memory."""

    suite: str
    memory: str
    probes: tuple[Probe, ...]
    seconds: float
    seed: int
    scale: float

    @property
    def outcome(self) -> Outcome:
        """The worst of the probes: "fail", "error", "pass"; without any test "measured" or "not applicable"."""
        seen = {probe.outcome for probe in self.probes}
        worst: Outcome
        for worst in ("fail", "error", "pass", "measured"):
            if worst in seen and (worst != "pass" or any(each.kind == "test" and each.outcome == "pass" for each in self.probes)):
                return worst
        return "not applicable"

    @property
    def failed(self) -> tuple[Probe, ...]:
        """The probes that failed or could not be made."""
        return tuple(probe for probe in self.probes if probe.outcome in ("fail", "error"))

    def as_rows(self) -> list[dict[str, Any]]:
        """One flat row a probe: memory, suite, probe, kind, outcome, sentence, numbers, findings."""
        return [
            {
                "memory": self.memory,
                "suite": self.suite,
                "probe": probe.name,
                "kind": probe.kind,
                "outcome": probe.outcome,
                "sentence": probe.sentence,
                "numbers": dict(probe.numbers),
                "findings": [finding.what for finding in probe.findings],
            }
            for probe in self.probes
        ]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {**asdict(self), "outcome": self.outcome}


class Sheet:
    """Where a suite writes its probes down."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.probes: list[Probe] = []

    def test(
        self,
        name: str,
        holds: bool,
        sentence: str,
        numbers: Mapping[str, float | int | None] | None = None,
        findings: Sequence[str] = (),
        *,
        control: bool | None = None,
        proof: str = "",
    ) -> bool:
        """Write down a test and, before it, its positive control (`control`: whether that held; `proof`: what it was)."""
        if control is not None:
            outcome: Outcome = "pass" if control else "fail"
            self.probes.append(Probe(self.suite, name, "positive control", outcome, proof if control else f"does not hold: {proof}"))
        if control is False:
            sentence = f"says nothing, because its positive control failed; seen: {sentence}"
        passed = holds and control is not False
        found = tuple(Finding(_short(each)) for each in findings[:_SHOWN])
        self.probes.append(Probe(self.suite, name, "test", "pass" if passed else "fail", sentence, dict(numbers or {}), found))
        return passed

    def measured(self, name: str, sentence: str, numbers: Mapping[str, float | int | None]) -> None:
        """Write down figures that have no right or wrong."""
        self.probes.append(Probe(self.suite, name, "measurement", "measured", sentence, dict(numbers)))

    def without(self, name: str, why: str) -> None:
        """Write down that a test cannot be made of this memory."""
        self.probes.append(Probe(self.suite, name, "test", "not applicable", why))

    @asynccontextmanager
    async def guard(self, name: str) -> AsyncIterator[None]:
        """What a probe raises becomes its outcome: an outlived deadline is a failure, what is not offered does not apply."""
        try:
            yield
        except Stop:
            raise
        except NotSupported as error:
            self.without(name, str(error) or "the memory does not offer this")
        except TimedOut as error:
            self.probes.append(Probe(self.suite, name, "test", "fail", redact(describe(error))))
        except Exception as error:  # of a memory that we know nothing about
            self.probes.append(Probe(self.suite, name, "test", "error", redact(describe(error))))


def share(part: int, whole: int) -> float | None:
    """`part` of `whole`; `None` of nothing."""
    return part / whole if whole else None


def percentile(values: Sequence[float], of: float) -> float | None:
    """The `of` percentile (0 to 1) by nearest rank; `None` of nothing."""
    return nearest_rank(sorted(values), of) if values else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
