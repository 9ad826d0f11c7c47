"""A reader that needs no model: it understands the sentences of `bundled:recall-lab`, and nothing else.

With it a whole memory run has answers offline, and what it gets wrong is what the memory did not give it:
`Bridge(BM25(), reader=LabReader())`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import pairwise

from context_bench.core.records import Example
from context_bench.memory.datasets.recall_lab.language import LANGUAGES, subject_form, unchained, words
from context_bench.memory.systems.bridge import NOT_MENTIONED

_VALUE = r"[^.,:;!?。，：？！《》«»]+?"
_HEADING = re.compile(r"\[session [^\]]*\]\s*(\S*)")
_DATED = re.compile(r"\[(\d{4}-\d\d-\d\d[^\]]*)\]\s*(.*)")


class LabReader:
    """Answers questions of the lab from its sentences in `context`, whoever put them there; "Not mentioned" where they
    do not say.

    It knows who spoke and when only where the context says so (`[time] Name: …`, or a session's heading).
    """

    name = "lab-reader"

    def process(self, example: Example) -> Example:
        """The example with the `response`."""
        return {**example, "response": read(str(example.get("context") or ""), str(example.get("question") or ""))}


@dataclass(frozen=True, slots=True)
class LabStatement:
    """One statement, understood. `when` is "" if nobody said; `by`: whether the assistant said it."""

    relation: str
    who: str
    value: str
    when: str
    by_assistant: bool
    observer: str = ""
    role: str = ""


def read(context: str, question: str) -> str:
    """The answer that the context gives to the question."""
    for code in LANGUAGES:
        for asking, pattern in _grammar(code).asked:
            if found := pattern.fullmatch(question.strip()):
                return _Answering(code, _statements(code, context)).to(asking, found.groupdict()) or NOT_MENTIONED
    return NOT_MENTIONED


@dataclass(frozen=True, slots=True)
class _Grammar:
    """The sentence forms of a language as patterns."""

    statements: tuple[tuple[str, re.Pattern[str]], ...]
    asked: tuple[tuple[str, re.Pattern[str]], ...]


@lru_cache(maxsize=len(LANGUAGES))
def _grammar(code: str) -> _Grammar:
    table = words(code)
    person = r"[^\W\d_]{3}" if code == "zh" else r"[^\W\d_]+ [^\W\d_]+"
    roles = "|".join(re.escape(form) for forms in table["roles"].values() for form in forms)
    slots = {"who": person, "gen": person, "witness": person, "role": roles, "date": r"\d{4}-\d\d-\d\d"}
    lead, tail = ("|".join(map(re.escape, table[name])) for name in ("leads", "tails"))
    before, after = f"(?:{lead})", f"{re.escape(table['stop'])}(?:{tail})"
    statements = [
        (relation, _pattern(form, slots | ({"value": person} if relation == "role" else {}), before, after))
        for relation, forms in table["say"].items()
        for form in forms
    ]
    described = slots | {"who": ".+?", "gen": ".+?"}  # the dentist of the landlord of …
    asked = [(asking, _pattern(form, described)) for asking, forms in table["ask"].items() for form in forms]
    return _Grammar(tuple(statements), tuple(asked))


def _pattern(form: str, slots: Mapping[str, str], before: str = "", after: str = "") -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", form)
    body = "".join(
        f"(?P<{part}>{slots.get(part, _VALUE)})" if i % 2 else re.escape(part) for i, part in enumerate(parts)
    )
    return re.compile(f"{before}{body}{after}", re.IGNORECASE)


@lru_cache(maxsize=4)
def _statements(code: str, context: str) -> tuple[LabStatement, ...]:
    """All of a context, in the order of their dates; what is said twice counts once."""
    return tuple(sorted(dict.fromkeys(_understood_lines(code, context)), key=lambda each: each.when))


def _understood_lines(code: str, context: str) -> Iterator[LabStatement]:
    """The statements of a context; a date holds until the next empty line."""
    when, assistant = "", {words(code)["assistant"], "assistant"}
    for line in context.splitlines():
        if not line.strip():
            when = ""
        elif heading := _HEADING.fullmatch(line):
            when = heading[1]
        else:
            if dated := _DATED.fullmatch(line):
                when, line = dated[1], dated[2]
            speaker, _, rest = line.partition(": ")
            told = _understood(code, rest, when, speaker in assistant) or _understood(code, line, when, False)
            if told is not None:
                yield told


def _understood(code: str, text: str, when: str, by_assistant: bool) -> LabStatement | None:
    for relation, pattern in _grammar(code).statements:
        if found := pattern.fullmatch(text):
            slots = found.groupdict()
            who = subject_form(code, slots.get("who") or slots["gen"], "gen" in slots)
            return LabStatement(
                relation,
                who,
                slots["value"],
                when,
                by_assistant,
                slots.get("witness", ""),
                slots.get("role", "").lower(),
            )
    return None


class _Answering:
    """Conclusions from some statements."""

    def __init__(self, code: str, statements: Sequence[LabStatement]) -> None:
        self._table, self._code = words(code), code
        self._statements = statements

    def to(self, asking: str, slots: Mapping[str, str]) -> str | None:
        """The answer to a question of this form; `None` if there is none."""
        who = self._meant(slots)
        if who is None:
            return None
        relation, _, what = asking.partition("_")
        if what:
            answer: Callable[[list[LabStatement], Mapping[str, str]], str | None] = getattr(self, f"_{what}")
            return answer(self._about(relation, who), slots)
        if relation in ("goods", "gift"):
            values = [each.value for each in self._about(relation, who)]
            return (
                None
                if not values
                else str(len(values))
                if relation == "goods"
                else self._unit("coins", sum(map(int, values)))
            )
        return self._last(relation, who, slots)

    def _last(self, relation: str, who: str, slots: Mapping[str, str]) -> str | None:
        found = self._about("dish" if relation == "preference" else relation, who)
        if relation == "book":
            found = [each for each in found if each.by_assistant]
        if relation == "key":
            found = [each for each in found if each.observer == slots["witness"]]
        if relation == "allergy":
            found += self._about("correction", who)
        return found[-1].value if found else None

    def _latest(self, found: list[LabStatement], slots: Mapping[str, str]) -> str | None:
        return found[-1].value if found else None

    def _previous(self, found: list[LabStatement], slots: Mapping[str, str]) -> str | None:
        return found[-2].value if len(found) > 1 else None

    def _count(self, found: list[LabStatement], slots: Mapping[str, str]) -> str | None:
        return str(len(found)) if found else None

    def _as_of(self, found: list[LabStatement], slots: Mapping[str, str]) -> str | None:
        return self._latest([each for each in found if each.when and each.when[:10] <= slots["date"]], slots)

    def _next(self, found: list[LabStatement], slots: Mapping[str, str]) -> str | None:
        return dict(pairwise([each.value for each in found])).get(slots["other"])

    def _days(self, found: list[LabStatement], slots: Mapping[str, str]) -> str | None:
        when = {each.value: date.fromisoformat(each.when[:10]) for each in found if each.when}
        if slots["other"] not in when or slots["value"] not in when:
            return None
        return self._unit("days", abs((when[slots["value"]] - when[slots["other"]]).days))

    def _about(self, relation: str, who: str) -> list[LabStatement]:
        return [each for each in self._statements if each.relation == relation and each.who == who]

    def _meant(self, slots: Mapping[str, str]) -> str | None:
        """The person whom the question describes."""
        roles, who = unchained(self._code, slots.get("who") or slots["gen"], "gen" in slots)
        for role in roles:
            others = [each.value for each in self._about("role", who) if each.role in self._table["roles"][role]]
            if not others:
                return None
            who = others[-1]
        return who

    def _unit(self, name: str, n: int) -> str:
        return str(self._table["units"][name].format(n=n))
