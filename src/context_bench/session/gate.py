"""`context-bench gate`: hold a run's numbers against limits, so that a pipeline stops where a person would."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from xml.etree import ElementTree

import typer

from context_bench.core.errors import BadInput, GateFailed, NotComparable, UnknownName
from context_bench.core.numbers import real
from context_bench.reports.visible_text import TEXT_LIMIT, markdown as markdown_text, visible
from context_bench.session.flags import flag, own, takes
from context_bench.session.grade import SCHEMA as GRADE, grade_of_result, letters_below
from context_bench.session.options import StoredOptions
from context_bench.session.output_files import replacing

if TYPE_CHECKING:
    from context_bench.results import EvalResult


@dataclass(frozen=True, slots=True)
class Check:
    """One condition. `name`: what was looked at; `message`: what was found, as a sentence. `skipped`: it could not be
    looked at, so that it has neither held nor not.
    """

    name: str
    passed: bool
    message: str
    skipped: bool = False


class GateOptions(StoredOptions):
    """The options of `context-bench gate`."""

    min_grade: str | None = flag("Of a grade: no heading may have a worse letter, or none.", unit="LETTER")


@takes(
    GateOptions,
    metric=own("The metric that may not get worse than --margin.", unit=None, rare=False, note="the run's score"),
    margin=own("How much worse is not worse.", note="the margin that the run was planned with"),
    max_failures=own("Largest share of a system's rows that may have failed.", rare=False, note="not checked"),
)
def command(
    run: Annotated[
        str,
        typer.Argument(
            help="A JSON file (exported run, or a `compress` output), or the name of a stored run, or `last`."
        ),
    ],
    against: str | None,
    minimum: list[str] | None,
    maximum: list[str] | None,
    metric: str | None,
    margin: float | None,
    max_failures: float | None,
    min_grade: str | None,
    junit: Path | None,
    markdown: Path | None,
    force: bool,
    store: str,
) -> int:
    """Exit code 4 if a limit does not hold or a metric got worse; 0 if all is well.

    For a run every system that is no control is held to the limits; SYSTEM/METRIC=X names one. With `--metric M`,
    `--margin X` or `--against` each of them must be shown to be at most X worse: than itself in the run given by
    `--against`, else than the run's own baseline. A margin that the run was not planned with was chosen when the
    answers were there: such a verdict is exploratory, and says so.
    """
    compared = metric is not None or margin is not None or against is not None
    if not compared and not minimum and not maximum and max_failures is None and min_grade is None:
        raise BadInput(
            "nothing to check: give --min METRIC=X, --max METRIC=X, --max-failures X, --min-grade "
            "LETTER, or --metric M --margin X"
        )
    if max_failures is not None and not 0 <= max_failures <= 1:
        raise BadInput(f"--max-failures {max_failures:g}: expected a share of the rows, from 0 to 1, such as 0.02")
    checks: list[Check] = []
    with _read(run, store) as document:
        if not isinstance(document, Mapping) and next(iter(document.rows), None) is None:
            raise BadInput(f"{run}: the run has no rows, so no limit can be shown to hold")
        if min_grade is not None:
            checks += _letters(document, min_grade)
        checks += limits(document, minimum or [], maximum or [])
        if max_failures is not None:
            checks += _failures(document, max_failures)
        if compared:
            checks += _not_worse(document, against, store, metric, margin, force)
    _write(checks, junit, markdown)
    hold(checks)
    passed = (f"{check.name}{' (exploratory)' if 'exploratory' in check.message else ''}" for check in checks)
    print(f"context-bench: gate passed: {', '.join(dict.fromkeys(passed))}")
    return 0


def hold(checks: Sequence[Check]) -> None:
    """Raise `GateFailed` with all that did not hold."""
    if faults := [check for check in checks if not check.passed]:
        raise GateFailed("\n".join(["gate failed:", *(f"  - {check.message}" for check in faults)]))


def limits(document: Mapping[str, Any] | EvalResult, minimum: Sequence[str], maximum: Sequence[str]) -> list[Check]:
    """One check per limit and system; `UnknownName` for a metric the document does not know."""
    return [
        _limit(owner, text, value, lower)
        for texts, lower in ((minimum, True), (maximum, False))
        for text in texts
        for owner, value in _values(document, limit_of(text)[0])
    ]


def _limit(owner: str, text: str, value: float | None, lower: bool) -> Check:
    name, limit = limit_of(text)
    name = name.removeprefix(owner)
    sign = "≥" if lower else "≤"
    title = f"{owner}{name} {sign} {limit:g}"
    if (value := real(value)) is None:
        return Check(title, False, f"{owner}{name} was not measured")
    holds = value >= limit if lower else value <= limit
    word = f"{'at least' if lower else 'at most'}" if holds else f"{'below' if lower else 'above'}"
    return Check(title, holds, f"{owner}{name} is {value:.6g}, {word} {limit:g}")


def limit_of(text: str) -> tuple[str, float]:
    """`METRIC=X` as its two parts."""
    name, equals, value = text.rpartition("=")
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not equals or not name.strip() or math.isnan(limit):
        raise BadInput(f"{text!r} is not a limit; expected METRIC=NUMBER, such as retained=0.9")
    return name.strip(), limit


def _values(document: Mapping[str, Any] | EvalResult, name: str) -> list[tuple[str, float | None]]:
    if isinstance(document, Mapping):
        metrics = document["metrics"]
        if (
            name not in metrics
            and name not in document.get("known", [])
            and name.partition(".")[0] not in document.get("known", [])
        ):
            raise UnknownName("metric", name, {*metrics, *document.get("known", [])})
        return [(f"{document['system']}/" if "system" in document else "", metrics.get(name))]
    from context_bench.comparison import candidates

    system, slash, metric = name.rpartition("/")
    if slash and system not in document.summary:
        raise UnknownName("system", system, document.summary)
    means = {one: {score: each.value for score, each in found.items()} for one, found in document.estimates.items()}
    known = {
        one: {**means.get(one, {}), **found} for one, found in document.summary.items()
    }  # scores by their own names count too
    if not any(metric in found for found in known.values()):
        raise UnknownName("metric", metric, {key for found in known.values() for key in found})
    return [(f"{one}/", known[one].get(metric)) for one in ([system] if slash else candidates(document))]


def _failures(document: Mapping[str, Any] | EvalResult, most: float) -> list[Check]:
    from context_bench.comparison import candidates

    if isinstance(document, Mapping):
        raise BadInput("--max-failures is about a run; this is the output of a compress command")
    rows = dict.fromkeys(candidates(document), 0)
    failed = dict(rows)
    for row in document.rows:
        if row.system in rows:
            rows[row.system] += 1
            failed[row.system] += bool(row.errors)
    return [
        Check(
            f"{name} failures ≤ {most:g}",
            rows[name] > 0 and failed[name] <= most * rows[name],
            f"{name} failed on {failed[name]} of {rows[name]} rows" if rows[name] else f"{name} has no rows",
        )
        for name in rows
    ]


def _letters(document: Mapping[str, Any] | EvalResult, least: str) -> list[Check]:
    """One check per heading of a grade."""
    grade = document if isinstance(document, Mapping) else grade_of_result(document)
    if grade.get("schema") != GRADE:
        raise BadInput("--min-grade is about a grade; this is the output of a compress command")
    return [
        Check(
            f"{heading} ≥ {least}",
            holds,
            f"{heading} is {letter}, {'at least' if holds else 'below'} {least}"
            if letter
            else f"{heading} was not asked, which is no {least}",
        )
        for heading, letter, holds in letters_below(grade, least)
    ]


@contextmanager
def _read(run: str, store: str) -> Iterator[Mapping[str, Any] | EvalResult]:
    """The result of a run, or what a `compress` command wrote."""
    from context_bench.session.runs import found_run, read_json

    if Path(run).is_file() and ("metrics" in (document := read_json(Path(run))) or document.get("schema") == GRADE):
        if not isinstance(document.setdefault("metrics", {}), dict):
            raise BadInput(f"{run}: 'metrics' is no object")
        yield document
        return
    with found_run(run, store) as result:
        yield result


# Not worse
# ------------------------------------------------------------------------


def _not_worse(
    document: Mapping[str, Any] | EvalResult,
    against: str | None,
    store: str,
    metric: str | None,
    margin: float | None,
    force: bool,
) -> list[Check]:
    from context_bench.comparison import compare, within

    if isinstance(document, Mapping):
        if metric is None or margin is None:
            raise BadInput(
                "two outputs of a compress command have no margin of their own: give --metric METRIC and --margin X"
            )
        if against is None:
            raise BadInput(
                "--metric and --margin compare two files of the same command: give the other one with --against"
            )
    if against is None:
        assert not isinstance(document, Mapping)
        return _shown(within(document, metric=metric, margin=margin))
    with _read(against, store) as earlier:
        if isinstance(document, Mapping) and isinstance(earlier, Mapping):
            assert metric is not None
            assert margin is not None
            return [_number_not_worse(document, earlier, metric, margin)]
        if isinstance(document, Mapping) or isinstance(earlier, Mapping):
            raise NotComparable("one is a run and the other the output of a compress command")
        return _shown(compare(earlier, document, metric=metric, margin=margin, force=force))


def _shown(result: EvalResult) -> list[Check]:
    """Each holds if it was shown that the system is worse by no more than the margin, in a run that could have shown a
    greater loss.
    """
    checks = []
    for one in (one for one in result.comparisons if not one.dataset):
        margin = "the default margin" if one.margin is None else f"{one.margin:g}"
        title = f"{one.system} {one.metric} not worse by {margin} than {one.baseline}"
        checks.append(Check(title, one.verdict in ("better", "non-inferior"), one.sentence))
    return checks


def _number_not_worse(document: Mapping[str, Any], earlier: Mapping[str, Any], metric: str, margin: float) -> Check:
    """Two outputs of a `compress` command: plain numbers without an interval."""
    if document.get("schema") != earlier.get("schema"):
        raise NotComparable(f"{document.get('schema')} and {earlier.get('schema')} are not the same kind of result")
    [(_, now)], [(_, before)] = _values(document, metric), _values(earlier, metric)
    title = f"{metric} not worse by {margin:g}"
    if now is None or before is None:
        return Check(title, False, f"{metric} was not measured in both")
    fewer = metric.partition(".")[0] in (document.get("less_is_better") or [])
    loss = now - before if fewer else before - now
    return Check(
        title,
        loss <= margin,
        f"{metric} went from {before:.6g} to {now:.6g}{f', more than {margin:g} worse' * (loss > margin)}",
    )


def _write(checks: Sequence[Check], junit: Path | None, markdown: Path | None) -> None:
    if junit is not None:
        with replacing(junit, "w", encoding="utf-8") as file:
            file.write(as_junit(checks))
    if markdown is not None:
        markdown.parent.mkdir(parents=True, exist_ok=True)
        with markdown.open("a", encoding="utf-8") as file:
            file.write(as_checklist(checks))


def as_junit(checks: Sequence[Check], suite: str = "context-bench gate") -> str:
    """A JUnit XML document with one test case per check; what did not hold is a failure with its message, what was
    skipped is neither.
    """
    failed = sum(not check.passed and not check.skipped for check in checks)
    skipped = str(sum(check.skipped for check in checks))
    root = ElementTree.Element("testsuites", tests=str(len(checks)), failures=str(failed))
    cases = ElementTree.SubElement(
        root, "testsuite", name=suite, tests=str(len(checks)), failures=str(failed), errors="0", skipped=skipped
    )
    for check in checks:
        case = ElementTree.SubElement(cases, "testcase", classname=suite, name=visible(check.name))
        if check.skipped:
            ElementTree.SubElement(case, "skipped", message=visible(check.message, 400))
        elif check.passed:
            ElementTree.SubElement(case, "system-out").text = visible(check.message, 4000)
        else:
            failure = ElementTree.SubElement(case, "failure", message=visible(check.message, 400))
            failure.text = visible(check.message, 4000)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def as_checklist(checks: Sequence[Check], title: str = "context-bench gate") -> str:
    """A heading that says whether all held, and a table with one line per check."""
    failed = sum(not check.passed for check in checks)
    state = "passed" if not failed else f"failed: {failed} of {len(checks)} checks"
    lines = [f"## {title} {state}", "", "| | check | found |", "|---|---|---|"]
    for check in checks:
        state = "ok" if check.passed else "**failed**"
        lines.append(f"| {state} | {markdown_text(check.name)} | {markdown_text(check.message, TEXT_LIMIT)} |")
    return "\n".join(lines) + "\n"
