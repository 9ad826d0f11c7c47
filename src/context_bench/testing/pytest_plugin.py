"""Benchmarks as tests: the fixture `context_bench`, its marker, and the verdicts at the end of the test report.

```python
@pytest.mark.context_bench(metric="f1", margin=0.05)
def test_my_compressor_loses_nothing(context_bench):
    result = context_bench.evaluate([Full(), Mine(), Nothing()], "bundled:pydocs-qa", max_examples=60)
    context_bench.assert_not_worse(result, "mine", baseline="full")
```

Loaded by pytest itself once context-bench is installed; `-p no:context_bench` leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from context_bench.core.records import Comparison, Example
    from context_bench.results import EvalResult

_MARKER = (
    "context_bench(metric=, margin=, baseline=, seed=): what the fixture `context_bench` compares by, "
    "unless told otherwise in a call"
)
_SAID = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--context-bench-store`."""
    group = parser.getgroup("context-bench")
    group.addoption(
        "--context-bench-store",
        metavar="FILE",
        help="keep the runs of benchmark tests in this store [default: nowhere]",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker, and a place for what verdicts say."""
    config.addinivalue_line("markers", _MARKER)
    config.stash[_SAID] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The verdicts of all benchmark tests, passed ones too."""
    if said := config.stash.get(_SAID, []):
        terminalreporter.section("context-bench")
        for line in said:
            terminalreporter.write_line(line)


@pytest.fixture
def context_bench(request: pytest.FixtureRequest, record_property: Any) -> BenchmarkRunner:
    """Runs systems over a dataset and asserts what may be said of them; see `BenchmarkRunner`."""
    marker = request.node.get_closest_marker("context_bench")
    settings = dict(marker.kwargs) if marker else {}
    if unknown := set(settings) - {"metric", "margin", "baseline", "seed"}:
        raise pytest.UsageError(
            f"marker context_bench knows metric, margin, baseline and seed, not {sorted(unknown)[0]!r}"
        )

    def say(sentence: str) -> None:
        request.config.stash[_SAID].append(f"{request.node.nodeid}: {sentence}")
        record_property("context_bench", sentence)

    return BenchmarkRunner(
        say, store=request.config.getoption("--context-bench-store"), name=request.node.nodeid, **settings
    )


class BenchmarkRunner:
    """Value of the fixture: `evaluate` to run, `assert_…` to hold the result against a demand."""

    def __init__(
        self,
        say: Any,
        *,
        store: str | Path | None = None,
        name: str | None = None,
        metric: str | None = None,
        margin: float | None = None,
        baseline: str | None = None,
        seed: int = 0,
    ) -> None:
        self._say, self._store, self._name = say, store, name
        self.metric, self.margin, self.baseline, self.seed = metric, margin, baseline, seed

    def evaluate(
        self,
        systems: Any,
        dataset: str | Iterable[Example],
        evaluators: Any = None,
        metrics: Sequence[Any] | None = None,
        **more: Any,
    ) -> EvalResult:
        """As `context_bench.evaluate`; `dataset` may also be a name that `--dataset` knows, which then chooses the
        evaluators.
        """
        from context_bench.metrics import MeanScore
        from context_bench.runner import evaluate

        examples, named = self._examples(dataset, more.pop("n", None))
        chosen = evaluators if evaluators is not None else named
        field = more.pop("score_field", self.metric)
        measures = list(metrics) if metrics is not None else [MeanScore(score_field=field or "f1")]
        kept = {"store": self._store, "run": self._name} if self._store else {}
        told = {
            "baseline": self.baseline,
            "margin": self.margin,
            "score_field": field,
            "seed": self.seed,
            "progress": False,
        }
        return evaluate(systems, examples, chosen, measures, **{**kept, **told, **more})

    def _examples(self, dataset: str | Iterable[Example], n: int | None) -> tuple[Iterable[Example], list[Any]]:
        from context_bench.core.plugins import build
        from context_bench.datasets import load
        from context_bench.evaluators import BUILTINS

        loaded = load(dataset, n=n, seed=self.seed) if isinstance(dataset, str) else None
        names = loaded.evaluators if loaded is not None else ["answer"]
        made = [build("evaluator", name, BUILTINS, lambda found: hasattr(found, "score")) for name in names]
        return (loaded.examples() if loaded is not None else dataset), made  # type: ignore[return-value]

    def assert_not_worse(
        self,
        result: EvalResult,
        system: str,
        *,
        baseline: str | None = None,
        metric: str | None = None,
        margin: float | None = None,
        before: EvalResult | None = None,
    ) -> Comparison:
        """`system` is shown to lose less than `margin` against `baseline` of the same result, or against itself in
        `before`.

        Fails with the verdict's own sentence, also where the run could not have shown a loss (no arm that must lose) or
        is too small.
        """
        from context_bench.comparison import compare, within

        __tracebackhide__ = True
        score, allowed, wanted = (
            metric or self.metric,
            margin if margin is not None else self.margin,
            baseline or self.baseline,
        )
        if before is not None:
            found = compare(before, result, systems=[system], metric=score, margin=allowed)
        else:
            found = within(result, metric=score, margin=allowed)
        for one in found.comparisons:
            if one.system == system and not one.dataset and (before is not None or wanted in (None, one.baseline)):
                self._say(one.sentence)
                if one.verdict not in ("better", "non-inferior"):
                    pytest.fail(one.sentence, pytrace=False)
                return one
        against = f" with {wanted!r}" if wanted else ""
        raise ValueError(f"the result compares no {system!r}{against}; it has: {', '.join(result.summary)}")

    def assert_at_least(self, result: EvalResult, metric: str, value: float, *, system: str | None = None) -> None:
        """A metric of the summary is at least `value`, for `system` or for every system that is no control."""
        from context_bench.comparison import candidates

        __tracebackhide__ = True
        for name in [system] if system else candidates(result):
            found = result.summary[name].get(metric)
            self._say(
                f"{name}: {metric} is {'unmeasured' if found is None else f'{found:.6g}'}, wanted at least {value:g}"
            )
            if found is None or not found >= value:
                pytest.fail(f"{name}: {metric} is {found}, below {value:g}", pytrace=False)
