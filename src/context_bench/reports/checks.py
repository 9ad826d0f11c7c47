"""Checks that hold or do not, in the forms that build servers show: JUnit XML and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from context_bench.reports.text import TEXT_LIMIT, visible
from context_bench.reports.text import markdown as escaped


@dataclass(frozen=True, slots=True)
class Check:
    """One condition. `name`: what was looked at; `message`: what was found, as a sentence. `skipped`: it could not be
    looked at, so that it has neither held nor not.
    """

    name: str
    passed: bool
    message: str
    skipped: bool = False


def junit(checks: Sequence[Check], suite: str = "context-bench gate") -> str:
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


def markdown(checks: Sequence[Check], title: str = "context-bench gate") -> str:
    """A heading that says whether all held, and a table with one line per check."""
    failed = sum(not check.passed for check in checks)
    state = "passed" if not failed else f"failed: {failed} of {len(checks)} checks"
    lines = [f"## {title} {state}", "", "| | check | found |", "|---|---|---|"]
    lines += [
        f"| {'ok' if check.passed else '**failed**'} | {escaped(check.name)} | {escaped(check.message, TEXT_LIMIT)} |"
        for check in checks
    ]
    return "\n".join(lines) + "\n"
