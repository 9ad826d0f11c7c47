"""The operational suites: does a memory keep users apart, forget what it must, hold what it acknowledged, and come back
in time?

Every test that looks for something bad carries a positive control that shows that it could have seen it; without that
it fails. What a memory does not offer is "not applicable", never a pass. A new suite is one file here, which declares
`SUITES = {"name": "function"}`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from context_bench.core.errors import BadInput, Stop, TimedOut, UnknownName, describe
from context_bench.core.families import GradeAnswer, GradeCheck, GradeFault, GradeTarget
from context_bench.core.lazy import DeclaredNames
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.plugins import load_object
from context_bench.llm.redact import redact
from context_bench.llm.servers import ModelServer
from context_bench.memory.ops.suite_workspace import SuiteWorkspace, check_empty
from context_bench.memory.protocol import NotSupported
from context_bench.memory.systems.adapting import as_memory, make_memory
from context_bench.stats import distributions

__all__ = [
    "DEFAULT",
    "SUITES",
    "SuiteFinding",
    "SuiteProbe",
    "SuiteResult",
    "grade_checks",
    "run_suites",
]

Kind = Literal["test", "positive control", "measurement"]
Outcome = Literal["pass", "fail", "error", "not applicable", "measured"]
_SHOWN = 5  # findings kept of one probe
_LONGEST = 200  # characters of a finding


@dataclass(frozen=True, slots=True)
class SuiteFinding:
    """One thing that was seen to be wrong. `what` may quote the memory's own text (ours or anybody's): show it as text
    only.
    """

    what: str


@dataclass(frozen=True, slots=True)
class SuiteProbe:
    """One question put to a memory, and what came of it.

    `kind` "positive control": shows that the test named alike could have failed at all; where it does not hold, that
    test fails too. "measurement": figures without a right or wrong, outcome "measured". `numbers`: counts, shares (0 to
    1), seconds, bytes.
    """

    suite: str
    name: str
    kind: Kind
    outcome: Outcome
    sentence: str
    numbers: Mapping[str, float | int | None] = field(default_factory=dict)
    findings: tuple[SuiteFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """All probes of one suite on one memory."""

    suite: str
    memory: str
    probes: tuple[SuiteProbe, ...]
    seconds: float
    seed: int
    scale: float

    @property
    def outcome(self) -> Outcome:
        """The worst of the probes: "fail", "error", "pass"; without any test "measured" or "not applicable"."""
        seen = {probe.outcome for probe in self.probes}
        worst: Outcome
        for worst in ("fail", "error", "pass", "measured"):
            if worst in seen and (
                worst != "pass" or any(each.kind == "test" and each.outcome == "pass" for each in self.probes)
            ):
                return worst
        return "not applicable"

    @property
    def failed(self) -> tuple[SuiteProbe, ...]:
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
        return {**asdict(self), "outcome": self.outcome}


class SuiteReport:
    """Collects the probes of a suite."""

    def __init__(self, suite: str) -> None:
        self.suite = suite
        self.probes: list[SuiteProbe] = []

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
        """Write down a test and, before it, its positive control (`control`: whether that held; `proof`: what it
        was).
        """
        if control is not None:
            outcome: Outcome = "pass" if control else "fail"
            self.probes.append(
                SuiteProbe(
                    self.suite, name, "positive control", outcome, proof if control else f"does not hold: {proof}"
                )
            )
        if control is False:
            sentence = f"says nothing, because its positive control failed; seen: {sentence}"
        passed = holds and control is not False
        found = tuple(SuiteFinding(_short(each)) for each in findings[:_SHOWN])
        self.probes.append(
            SuiteProbe(self.suite, name, "test", "pass" if passed else "fail", sentence, dict(numbers or {}), found)
        )
        return passed

    def measured(self, name: str, sentence: str, numbers: Mapping[str, float | int | None]) -> None:
        """Write down figures that have no right or wrong."""
        self.probes.append(SuiteProbe(self.suite, name, "measurement", "measured", sentence, dict(numbers)))

    def without(self, name: str, why: str) -> None:
        """Write down that a test cannot be made of this memory."""
        self.probes.append(SuiteProbe(self.suite, name, "test", "not applicable", why))

    @asynccontextmanager
    async def guard(self, name: str) -> AsyncIterator[None]:
        """Turn an exception of a probe into its outcome: an outlived deadline is a failure, what is not offered does
        not apply.
        """
        try:
            yield
        except Stop:
            raise
        except NotSupported as error:
            self.without(name, str(error) or "the memory does not offer this")
        except TimedOut as error:
            self.probes.append(SuiteProbe(self.suite, name, "test", "fail", redact(describe(error))))
        except Exception as error:  # of a memory that we know nothing about
            self.probes.append(SuiteProbe(self.suite, name, "test", "error", redact(describe(error))))


def share(part: int, whole: int) -> float | None:
    """`part` of `whole`; `None` of nothing."""
    return part / whole if whole else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """As `stats.distributions.percentile`, of values in any order; `None` of nothing."""
    return distributions.percentile(sorted(values), share) if values else None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


#: What is run when nothing else is said, in this order.
DEFAULT = ("isolation", "delete", "update", "concurrency", "crash", "growth", "owners", "residue", "relations")
_PLACES = DeclaredNames(__name__, __path__[0], "SUITES")
#: All there are, as the files here declare them.
SUITES = (*DEFAULT, *(name for name in sorted(_PLACES) if name not in DEFAULT))

#: In a spec: a folder of our own, new for the run and removed after it.
FOLDER = "{dir}"
#: In a spec: the address of a model of ours, which "residue" looks at.
MODEL = "{model}"


async def run_suites(
    make: str | Callable[[], Any],
    suites: Sequence[str] = DEFAULT,
    *,
    spec: str | None = None,
    seed: int = 0,
    scale: float = 1.0,
    deadline: float = 60.0,
    k: int = 10,
    many: int = 1001,
    reader: Any = None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[SuiteResult]:
    """Run a memory through each of `suites`.

    `make`: a spec (`bm25:path={dir}/store.db`; `{dir}` becomes a folder of ours, removed afterwards), or a function
    that opens the memory, the same place each time it is called (a memory that says "persistent" is closed and opened
    again). `spec`: how a child process can make it, for the crash suite, if `make` is a function. `scale` multiplies
    the number of things stored and asked (1: some seconds on a local store). A call that outlives `deadline` seconds is
    a failure. `many`: how much "residue" stores before it deletes everything of a user, as far as the deadline allows;
    `{model}` in a spec becomes the address of a model of ours. `reader`: a system; with it "poison" also asks whether
    it obeys.

    Only namespaces of our own are written to and emptied; a memory without namespaces must be empty, else `BadInput`.
    `UnknownName` for a suite that does not exist; errors in making the memory are raised.
    """
    for name in suites:
        if name not in SUITES:
            raise UnknownName("operational suite", name, SUITES)
    if not suites:
        raise BadInput(f"no operational suite is named; there are {', '.join(SUITES)}")
    for what, number in (("scale", scale), ("deadline", deadline)):
        if not 0 < number < math.inf:
            raise BadInput(f"{what} is {number:g}; expected a number above 0")
    if k < 1:
        raise BadInput(f"k is {k}; expected a number of hits, 1 or more")
    if many < 1:
        raise BadInput(f"many is {many}; expected a number of things to store, 1 or more")
    with tempfile.TemporaryDirectory(prefix="context-bench-ops-", ignore_cleanup_errors=True) as folder:
        async with _model_behind(make if isinstance(make, str) else spec) as model:
            opened, child, own = _opened(make, spec, Path(folder), model)
            results = []
            for number, name in enumerate(suites):
                workspace = SuiteWorkspace(
                    opened, name, seed, scale, deadline, k, child, own, reader, clock, many, model
                )
                results.append(await _one(workspace, first=number == 0))
            return results


@asynccontextmanager
async def _model_behind(spec: str | None) -> AsyncIterator[ModelServer | None]:
    """The model of ours that the spec names, for as long as the suites run; `None` if it names none."""
    if spec is None or MODEL not in spec:
        yield None
        return
    from context_bench.memory.ops.residue import ExtractingModel

    async with ModelServer(ExtractingModel()) as model:
        yield model


def _opened(
    make: str | Callable[[], Any], spec: str | None, folder: Path, model: ModelServer | None
) -> tuple[Callable[[], Any], str | None, Path | None]:
    """A function that opens the memory here, the spec for a child process, and our folder if it lies there."""
    text = make if isinstance(make, str) else spec
    child = None if text is None else text.replace(FOLDER, str(folder)).replace(MODEL, model.url if model else MODEL)
    own = folder if text is not None and FOLDER in text else None
    if isinstance(make, str):
        assert child is not None
        return (lambda: make_memory(child)), child, own
    return (lambda: as_memory(make())), child, own


async def _one(workspace: SuiteWorkspace, *, first: bool) -> SuiteResult:
    suite = load_object(_PLACES[workspace.suite])
    report = SuiteReport(workspace.suite)
    begun = workspace.clock.monotonic()
    await workspace.enter()
    name = workspace.base.name
    try:
        if first:
            await check_empty(workspace)
        async with report.guard(workspace.suite):
            await suite(workspace, report)
    finally:
        await workspace.leave()
    return SuiteResult(
        workspace.suite,
        name,
        tuple(report.probes),
        workspace.clock.monotonic() - begun,
        workspace.seed,
        workspace.scale,
    )


#: Suite → the headings of a grade that it is asked for; the others are measurements, or need a reader.
GRADED: dict[str, tuple[str, ...]] = {
    "isolation": ("privacy",),
    "owners": ("privacy",),
    "delete": ("privacy",),
    "residue": ("privacy",),
    "update": ("faithful replies",),
    "relations": ("faithful replies",),
    "concurrency": ("concurrency",),
    "crash": ("errors",),
    "robust": ("errors",),
}


@asynccontextmanager
async def grade_checks(target: GradeTarget) -> AsyncIterator[Sequence[GradeCheck]]:
    """The checks of a memory: one for each suite whose probes pass or fail."""
    yield [
        GradeCheck(
            f"memory, {suite}", headings, f"Does it pass the suite {suite}?", partial(_suite, target.value, suite)
        )
        for suite, headings in GRADED.items()
    ]


async def _suite(spec: str, suite: str) -> GradeAnswer:
    """A failed probe is a fault of the suite's kind; a suite of which nothing could be tried was not asked."""
    [result] = await run_suites(spec, [suite])
    tests = [probe for probe in result.probes if probe.kind == "test"]
    faults = [
        GradeFault(
            f"memory_{suite}",
            f"{probe.name}: {probe.sentence}",
            arrived="\n".join(finding.what for finding in probe.findings),
        )
        for probe in tests
        if probe.outcome in ("fail", "error")
    ]
    passed = [probe.name for probe in tests if probe.outcome == "pass"]
    if not faults and not passed:
        why = next((probe.sentence for probe in tests), "the suite has no test for it")
        return GradeAnswer(not_asked=f"not applicable: {why}")
    return GradeAnswer(tuple(faults), detail=f"passed: {', '.join(passed)}" if passed else "")
