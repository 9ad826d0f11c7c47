"""Grades: a letter for each heading, from the answers to checks, by the rules that `rules.toml` publishes.

A letter is that of the worst finding under its heading, never an average. A heading of which most could not be asked
has none. `grade_document` gives the page as plain data, `letters_below` holds it against the least letter that a
pipeline accepts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.families import GradeAnswer, GradeFault, GradeTarget
from context_bench.core.machine import quoted
from context_bench.core.measures import dollars

__all__ = [
    "LETTERS",
    "SCHEMA",
    "GradeRules",
    "KindRule",
    "answer_of",
    "as_output",
    "grade_document",
    "grade_of_result",
    "grade_rules",
    "heading_points",
    "letters_below",
]

SCHEMA = "context-bench.grade/1"
#: The model whose prices findings are told in where the grade names none.
_PRICED_AS = "claude-sonnet-4-5"
#: From the best to the worst, with the number that stands for each where grades are compared as scores.
LETTERS = {"A": 1.0, "B": 0.75, "C": 0.5, "D": 0.25, "F": 0.0}
#: Characters of the bytes that show a finding.
_SHOWN = 1_500


@dataclass(frozen=True, slots=True)
class KindRule:
    """The rule for one kind of fault: the heading, how bad it is, the letter that one of it makes, the provider's
    likely answer, and what its price follows from.
    """

    heading: str
    severity: str
    letter: str
    answer: str = ""
    price: str = ""


@dataclass(frozen=True, slots=True)
class GradeRules:
    """The published rules. `headings`: name → what it is about; `subjects`: name → the subjects that it is for."""

    version: int
    severities: Mapping[str, str]
    headings: Mapping[str, str]
    subjects: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, KindRule]

    def of(self, kind: str) -> KindRule:
        """The rule for a kind; `UnknownName` if there is none: nothing is graded without one."""
        if kind not in self.kinds:
            raise UnknownName("kind of finding in grade/rules.toml", kind, self.kinds)
        return self.kinds[kind]

    def headings_for(self, subject: str) -> list[str]:
        """The headings of a subject's grade, in their order."""
        return [name for name, subjects in self.subjects.items() if subject in subjects]


@lru_cache(maxsize=1)
def grade_rules() -> GradeRules:
    """The rules of `rules.toml`, and those of the linter with the headings that it gives them."""
    import tomllib

    from context_bench.wire.violations.linter import RULES

    read = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))
    kinds = {
        rule.kind: KindRule(
            read["linted"][rule.severity],
            rule.severity,
            read["severities"][rule.severity],
            f"{'400' if rule.severity == 'refused' else '200'}: {rule.says}",
        )
        for rule in reversed(RULES)  # of one kind the first counts
    }
    for kind, rule in read["kinds"].items():
        if rule["heading"] not in read["headings"] or rule["severity"] not in read["severities"]:
            raise BadInput(f"grade/rules.toml: {kind} names heading {rule['heading']!r}, severity {rule['severity']!r}")
        kinds[kind] = KindRule(
            rule["heading"],
            rule["severity"],
            read["severities"][rule["severity"]],
            rule.get("answer", ""),
            rule.get("price", ""),
        )
    return GradeRules(
        read["version"],
        read["severities"],
        {name: " ".join(heading["about"].split()) for name, heading in read["headings"].items()},
        {name: tuple(heading["subjects"]) for name, heading in read["headings"].items()},
        kinds,
    )


def as_output(answer: GradeAnswer) -> dict[str, Any]:
    """An answer as it is stored in a run."""
    return {
        "faults": [
            {
                "kind": fault.kind,
                "detail": fault.detail,
                "sent": _cut(fault.sent),
                "arrived": _cut(fault.arrived),
                **({"tokens": fault.tokens} if fault.tokens is not None else {}),
            }
            for fault in answer.faults
        ],
        "not_asked": answer.not_asked,
        "offered": answer.offered,
        "detail": answer.detail,
    }


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} … ({len(text):,} characters)"


def answer_of(stored: Mapping[str, Any]) -> GradeAnswer:
    """The answer that `as_output` wrote; of a store that somebody else may have written."""
    listed = stored.get("faults")
    faults = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    return GradeAnswer(
        tuple(
            GradeFault(
                str(each.get("kind")),
                str(each.get("detail") or ""),
                str(each.get("sent") or ""),
                str(each.get("arrived") or ""),
                each["tokens"] if isinstance(each.get("tokens"), int) else None,
            )
            for each in faults
        ),
        str(stored.get("not_asked") or ""),
        stored.get("offered") is not False,
        str(stored.get("detail") or ""),
    )


def heading_points(headings: Sequence[str], answer: GradeAnswer) -> dict[str, float]:
    """One check as scores by heading, 1 for A to 0 for F; nothing for what was not asked."""
    if answer.not_asked or not answer.offered:
        return {}
    rules = grade_rules()
    points = dict.fromkeys(headings, LETTERS["A"])
    for fault in answer.faults:
        rule = rules.of(fault.kind)
        points[rule.heading] = min(points.get(rule.heading, LETTERS["A"]), LETTERS[rule.letter])
    return {name.replace(" ", "_"): value for name, value in points.items()}


#: Name of a check → its headings and its answer.
Answered = Mapping[str, tuple[Sequence[str], GradeAnswer]]


def grade_document(target: GradeTarget, answered: Answered, prices: Any = None, model: str = "") -> dict[str, Any]:
    """The grade as plain data: a letter for each heading, the findings, what was not asked. `prices`, `model`: what the
    price of a finding is told in.
    """
    rules = grade_rules()
    findings = [
        _finding(name, fault, rules, target, prices, model)
        for name, (_, answer) in answered.items()
        for fault in answer.faults
        if not answer.not_asked
    ]
    headings = [_heading(name, answered, findings, rules) for name in rules.headings_for(target.subject)]
    order = list(rules.headings)
    findings.sort(key=lambda one: (LETTERS[one["letter"]], order.index(one["heading"]), one["kind"]))
    return {
        "schema": SCHEMA,
        "rules": rules.version,
        "subject": target.subject,
        "target": target.value,
        "start": target.start,
        "grade": _overall(headings),
        "headings": headings,
        "findings": findings,
        "not_asked": [
            {"check": name, "why": answer.not_asked} for name, (_, answer) in answered.items() if answer.not_asked
        ],
        "not_offered": [name for name, (_, answer) in answered.items() if not answer.offered],
        "checks": [{"check": name, "detail": answer.detail} for name, (_, answer) in answered.items() if answer.detail],
    }


def _overall(headings: Sequence[Mapping[str, Any]]) -> str | None:
    """The worst letter; where a heading could not be asked, which is no good letter, none but a bad one."""
    worst = max((str(one["letter"]) for one in headings if one["letter"] is not None), default=None)
    unknown = any(one["letter"] is None and one["not_asked"] for one in headings)
    return None if worst is not None and unknown and LETTERS[worst] > LETTERS["D"] else worst


def _heading(name: str, answered: Answered, findings: Iterable[Mapping[str, Any]], rules: GradeRules) -> dict[str, Any]:
    of_it = [answer for headings, answer in answered.values() if name in headings]
    offered = [answer for answer in of_it if answer.offered]
    asked = [answer for answer in offered if not answer.not_asked]
    kinds = Counter(one["kind"] for one in findings if one["heading"] == name)
    letter = max((rules.of(kind).letter for kind in kinds), default="A") if kinds or asked else None
    if letter is not None and LETTERS[letter] > LETTERS["D"] and 2 * len(asked) < len(offered):
        letter = None  # most of it could not be asked, which is no good letter
    return {
        "heading": name,
        "about": rules.headings[name],
        "letter": letter,
        "asked": len(asked),
        "not_asked": len(offered) - len(asked),
        "kinds": dict(kinds),
    }


def _finding(
    check: str, fault: GradeFault, rules: GradeRules, target: GradeTarget, prices: Any, model: str
) -> dict[str, Any]:
    rule = rules.of(fault.kind)
    found = {
        "check": check,
        "kind": fault.kind,
        "heading": rule.heading,
        "severity": rule.severity,
        "letter": rule.letter,
        "detail": fault.detail,
        "sent": fault.sent,
        "arrived": fault.arrived,
        "answer": rule.answer,
        "price": _price(rule, fault, prices, model),
    }
    return {**found, "issue": _issue(found, target)}


def _price(rule: KindRule, fault: GradeFault, prices: Any, model: str) -> str:
    """The price of a finding in words, for a thousand such requests; empty where it has none, or none is known."""
    if not rule.price or fault.tokens is None or prices is None:
        return ""
    from context_bench.core.records import Usage

    whole = prices.cost(Usage(input_tokens=fault.tokens, output_tokens=0), model)
    cached = prices.cost(Usage(input_tokens=fault.tokens, output_tokens=0, cache_read=fault.tokens), model)
    if whole is None or cached is None:
        return ""
    extra = whole - cached if rule.price == "uncached" else whole
    return (
        f"{dollars(1000 * extra)} more for 1,000 requests of {fault.tokens:,} tokens ({model}, prices of {prices.date})"
    )


def _issue(found: Mapping[str, Any], target: GradeTarget) -> str:
    """A text for the package's maintainers: what was sent, what arrived, how to see it again."""
    lines = [f"### {found['detail'][:120]}", "", f"**Check**: {found['check']} (`{found['kind']}`)", ""]
    for title, text in (("Sent", found["sent"]), ("Arrived", found["arrived"])):
        if text:
            lines += [f"**{title}**", "```", text.replace("```", "` ` `"), "```", ""]
    if found["answer"]:
        lines += [f"**What the provider likely answers**: {found['answer']}", ""]
    if found["price"]:
        lines += [f"**Price**: {found['price']}", ""]
    return "\n".join(
        [*lines, "**To see it again** (offline, no key)", "```sh", command_line(target, found["check"]), "```"]
    )


def grade_of_result(result: Any) -> dict[str, Any]:
    """The grade that a stored run, or an exported one, holds; `BadInput` for a run that is none."""
    from context_bench.llm.prices import GenaiPrices

    about = result.manifest.get("grade")
    if not isinstance(about, Mapping):
        raise BadInput("this run is no grade: context-bench grade makes one")
    answered: dict[str, tuple[Sequence[str], GradeAnswer]] = {}
    for row in result.rows:
        stored = row.metadata.get("grade")
        if isinstance(stored, Mapping):
            answered[str(row.example_id)] = ([str(each) for each in stored.get("headings") or []], answer_of(stored))
        elif row.errors:
            reason = next(iter(row.errors.values()))
            answered[str(row.example_id)] = (list(grade_rules().headings), GradeAnswer(not_asked=str(reason)))
    target = GradeTarget(
        subject=str(about.get("subject")),
        value=str(about.get("target") or ""),
        start=str(about.get("start") or ""),
        back=about["back"] if isinstance(about.get("back"), int) else 0,
        headers={str(name): str(value) for name, value in (about.get("headers") or {}).items()},
    )
    document = grade_document(target, answered, GenaiPrices(), str(about.get("model") or _PRICED_AS))
    return {**document, "name": str(about.get("name") or "")}


def command_line(target: GradeTarget, check: str = "") -> str:
    """The command that grades the target, or asks it one check."""
    option = "--proxy" if target.subject == "proxy" else f"--{target.subject}"
    words = ["context-bench", "grade"]
    if target.start:
        words += ["--proxy-command", target.start]
    elif target.value:
        words += [option, target.value]
    if target.back:
        words += ["--back", str(target.back)]
    words += [word for name, value in target.headers.items() for word in ("--header", f"{name}: {value}")]
    return " ".join(map(quoted, [*words, *(["--check", check] if check else [])]))


def letters_below(document: Mapping[str, Any], least: str) -> list[tuple[str, str | None, bool]]:
    """(heading, letter, holds) for each heading of a grade. A heading without a letter does not hold: what was not
    asked is not known to be good.
    """
    if least not in LETTERS:
        raise BadInput(f"--min-grade {least!r}: expected one of {', '.join(LETTERS)}")
    listed = document.get("headings")
    found = [
        (str(one["heading"]), one["letter"] if one.get("letter") in LETTERS else None)
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, Mapping) and "heading" in one
    ]
    if not found:
        raise BadInput("a grade without headings: expected what context-bench grade --output json writes")
    return [(name, letter, letter is not None and LETTERS[letter] >= LETTERS[least]) for name, letter in found]
