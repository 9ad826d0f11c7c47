"""Texts and sentences of a session with their places, the decisions that they name, and the questions that are asked
about them.

Questions are data, by key, in the language of the session.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from context_bench.compression.probes import ProbeAtom, ProbeType, Source
from context_bench.transcripts.session import users_words
from context_bench.wire.conversation import ChatMessage, message_text

_GERMAN = re.compile(
    r"\b(?:und|nicht|der|die|das|ist|eine?n?|bitte|wir|auf|mit|für|noch|dann|aber|auch|wird|von)\b", re.IGNORECASE
)
_ENGLISH = re.compile(
    r"\b(?:and|not|the|is|an?|please|we|on|with|for|then|but|also|will|of|to|it|that)\b", re.IGNORECASE
)
_LOOKED_AT = 20_000


@lru_cache(maxsize=1)
def _questions() -> dict[str, dict[str, str]]:
    return tomllib.loads(files("context_bench.compression.session_rules").joinpath("questions.toml").read_text("utf-8"))


def question_of(key: str, *fill: str, language: str = "en") -> str:
    """The question `key` in `language` (English where there is none of it), with its gaps filled."""
    known = _questions()
    return known.get(language, known["en"])[key].format(*fill)


def language_of(messages: Sequence[ChatMessage]) -> str:
    """`en`, `de`, `zh` or `ar`: what the user (else anybody) writes in, by script and small words; English where it is
    none of them.
    """
    spoken = [m for m in messages if m.get("role") == "user"] or list(messages)
    text = "\n".join(users_words(m)[:4000] for m in spoken[:40])[:_LOOKED_AT]
    letters = sum(char.isalpha() for char in text) or 1
    if sum("\u4e00" <= char <= "\u9fff" for char in text) > 0.2 * letters:
        return "zh"
    if sum("\u0600" <= char <= "\u06ff" for char in text) > 0.3 * letters:
        return "ar"
    return "de" if len(_GERMAN.findall(text)) > len(_ENGLISH.findall(text)) else "en"


#: Sentences end at full stops before a space, or at the end of a line.
_END = re.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[。！？؟])|\n+")


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text of a message: `at` in the session, `role` of who said it."""

    at: int
    role: str
    text: str

    def source(self, start: int, end: int) -> Source:
        """A piece of it as a place."""
        return Source(self.at, start, end)

    def sentences(self) -> Iterator[tuple[str, int]]:
        """Each sentence (or line) with where it begins."""
        start = 0
        for end in [*(found.span() for found in _END.finditer(self.text)), (len(self.text), len(self.text))]:
            piece = self.text[start : end[0]]
            if piece.strip():
                yield piece.strip(), start + len(piece) - len(piece.lstrip())
            start = end[1]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A probe before it is chosen and named; the lowest `rank` is asked first. `key` and `fill`: of its question
    (`asking`).
    """

    type: ProbeType
    question: str
    truth: str
    atoms: tuple[ProbeAtom, ...]
    rank: float
    key: str = ""
    fill: tuple[str, ...] = ()


def candidate(
    kind: ProbeType, key: str, fill: Sequence[str], truth: str, atoms: Sequence[ProbeAtom], rank: float
) -> Candidate:
    """A candidate that asks the question `key`, in English until somebody says otherwise."""
    return Candidate(kind, question_of(key, *fill), truth, tuple(atoms), rank, key, tuple(fill))


def utterances(messages: Sequence[ChatMessage], *roles: str) -> list[Utterance]:
    """The texts of these roles (all but system without any), in order; of the user only what is his own words."""
    wanted = roles or ("user", "assistant", "tool", "function")
    return [
        Utterance(at, str(m["role"]), text)
        for at, m in enumerate(messages)
        if m.get("role") in wanted and (text := users_words(m) if m["role"] == "user" else message_text(m)).strip()
    ]


def everything(messages: Sequence[ChatMessage]) -> str:
    """All texts and the arguments of all calls, as one text."""
    from context_bench.wire.conversation import tool_calls_of

    return "\n".join(
        part for m in messages for part in (message_text(m), *(call["arguments"] for call in tool_calls_of(m))) if part
    )


_IN = r"(?:[^.;:!?\n,—]|[.:,](?=\S))"  # within a clause; a point or comma inside of a name does not end it
_IN_LONG = r"(?:[^.;:!?\n]|[.:](?=\S))"
_WHY = rf"(?:\s*,?\s+(?:because|since|so that|as|otherwise|which would)\s+(?P<why>{_IN_LONG}{{8,240}}))?"
_END_OF_DECISIONS = r"(?=\s*[.;:!?,—](?:\s|$)|\s*\n|\s*$)"
_AGAINST = re.compile(
    rf"\b(?:instead of|rather than|in place of)\s+(?P<rejected>{_IN}{{1,140}}?){_WHY}{_END_OF_DECISIONS}", re.IGNORECASE
)
_OVER = re.compile(
    rf"\b(?:chose|choose|prefer(?:red)?|picked?|take)\s+(?P<chosen>{_IN}{{3,140}}?)\s+over\s+(?P<rejected>{_IN}{{2,140}}?){_WHY}{_END_OF_DECISIONS}",
    re.IGNORECASE,
)
_FIRST = re.compile(
    r"^(?:instead of|rather "
    rf"than)\s+(?P<rejected>{_IN}{{3,120}}?),\s+(?:I|we)\s+(?P<chosen>{_IN}{{3,140}}?){_WHY}{_END_OF_DECISIONS}",
    re.IGNORECASE,
)
_NOT = re.compile(
    rf"(?P<chosen>{_IN}{{8,140}}),\s+not\s+(?P<rejected>{_IN}{{3,100}}?)(?:\s*[,:]\s*|\s+)(?:because|since)\s+(?P<why>{_IN_LONG}{{8,220}})",
    re.IGNORECASE,
)
#: What has to be one way and not another.
_MUST = re.compile(
    rf"(?P<chosen>{_IN}{{3,100}}\b(?:has to|have "
    rf"to|must|should|shall)\s{_IN}{{3,100}}),\s+not\s+(?P<rejected>{_IN}{{3,100}}?){_END_OF_DECISIONS}",
    re.IGNORECASE,
)
_SINCE = re.compile(
    r"\b(?:we|I)\s+(?:have\s+)?(?:decided(?:\s+(?:to|on|for))?|chose|choose|settled on|opted for|went with|agreed "
    r"(?:on|to))\s+"
    rf"(?P<chosen>{_IN}{{3,140}}?),?\s+(?:because|since)\s+(?P<why>{_IN_LONG}{{8,220}})",
    re.IGNORECASE,
)
#: Advice against something; what is done instead is in the rest of the paragraph.
_ADVISED = re.compile(
    rf"\b(?:I\s+(?:would not|would advise against|advise against|do not recommend|did not)|let us not)\s+"
    rf"(?:use\s+)?(?P<rejected>{_IN}{{3,120}}?)(?:\s*:\s+|,?\s+(?:because|since)\s+)(?P<why>{_IN_LONG}{{8,220}})",
    re.IGNORECASE,
)
_GERMAN_OF_DECISIONS = (
    re.compile(
        rf"(?P<chosen>{_IN}{{3,140}}),?\s+(?:statt|anstelle von|anstatt)\s+(?P<rejected>{_IN}{{3,120}}?)"
        rf"(?:,\s+(?:weil|da)\s+(?P<why>{_IN_LONG}{{5,200}}))?{_END_OF_DECISIONS}"
    ),
)  # fmt: skip
_VON = re.compile(rf"\bVon\s+(?P<rejected>{_IN}{{3,100}}?)\s+rate ich ab:?\s*(?P<why>{_IN_LONG}{{8,200}})")
_STATTDESSEN = re.compile(rf"(?P<chosen>{_IN_LONG}{{3,60}}\bstattdessen\b{_IN}{{3,120}})")
_CHINESE = (
    re.compile(r"(?P<chosen>[^。；：，\n]{2,60})[，,]?\s*(?:而不是|而非|不采用)\s*(?P<rejected>[^。；：，\n]{2,60})"),
    re.compile(r"不(?:建议|推荐)(?:使?用)?\s*(?P<rejected>[^。；：，\n]{2,40})[：，:]\s*(?P<why>[^。；\n]{4,120})"),
)
_BEST_ZH = re.compile(
    r"(?:改?用|采用|改成)(?P<chosen>[^。；，\n]{3,60}?)(?:最可靠|更可靠|更好|最好|即可)?(?=[。；，\n]|$)"
)
_ARABIC = (re.compile(r"(?P<chosen>[^.؛:؟\n]{3,120}?)\s+بدلاً? من\s+(?P<rejected>[^.؛،:؟\n]{3,120})"),)
_BEST_AR = re.compile(
    r"(?P<rejected>[^.؛:؟\n،]{4,60}?)\s+يمنع[^.]{0,60}لكن(?P<why>[^.؛؟\n]{8,160})\.\s*الأفضل\s+(?P<chosen>[^.؛:؟\n]{4,80})"
)
_EDGES = " ,;:—–-\"'()"
_SUBJECT = re.compile(
    r"^(?:it\s+(?:uses|takes|keeps|needs|has)\s+)?(?:(?:and|but|so|then|now|instead|also|for (?:this|that))\s*,?\s+)*"
    r"(?:(?:I|we|let us)\s+(?:would|will|should|have|had|can|did)?\s*"
    r"(?:rather\s+|now\s+)?)?(?:decided (?:to|on|for)\s+|chose "
    r"to\s+|choose\s+|chose\s+|take\s+|took\s+|use\s+|used\s+|using\s+"
    r"|go with\s+|went with\s+|opted for\s+|switched to\s+|settled on\s+)?(?:(?:a|an|the|one)\s+)?",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:(?:a|an|the|one|our|its|use|using)\s+)+", re.IGNORECASE)
_VAGUE = re.compile(
    r"^(?:(?:it|them|that|this|these|those|they|he|she|him|her|us|me|one|each|all|both|so|in|on|at|by|with|for|to|the|a|an|of|is|are|was|not|no)\s*)+$|^[\d\s.,%]+$",
    re.IGNORECASE,
)
_LITTLE = re.compile(r"^(?:in|on|at|to)\s+(?:the|a|an)\s+\w+$|^\w+ (?:it|them|this|that)$", re.IGNORECASE)
_BEGINS_VAGUE = re.compile(r"^(?:them|it|that|this|these|those|they)\b", re.IGNORECASE)
_FIGURES = re.compile(r"^[\d.,]+(?:\s?(?:%|ms|s|min|h|[kMG]?B))?(?: \([^)]*\))?$")
_LONGEST = 1200


def decisions(prefix: Sequence[ChatMessage]) -> Iterator[Candidate]:
    """Sentences of the user and the assistant that name a choice together with what was left, or with the reason.

    A sentence speaks of a decision where it sets one thing against another (instead of, rather than, over, and advice
    against something with what is done instead in the next sentence), in English, German, Chinese and Arabic. Pronouns
    and bare numbers are no names of an option.
    """
    for one in utterances(prefix, "user", "assistant"):
        pieces = list(one.sentences())
        for number, (sentence, start) in enumerate(pieces):
            if len(sentence) > _LONGEST:
                continue
            rest = one.text[start : start + _LONGEST].split("\n\n")[0]
            if found := _choice(one, sentence, start) or (
                _advice(one, rest, start) if number + 1 <= len(pieces) else None
            ):
                yield found


def _choice(one: Utterance, sentence: str, start: int) -> Candidate | None:
    hit = _AGAINST.search(sentence)
    if hit is not None and hit.start() > 2:
        chosen = _clause(sentence[: hit.start()])
        if found := _made(one, sentence, start, chosen, hit["rejected"], hit["why"]):
            return found
    for pattern in (_FIRST, _OVER, _NOT, _MUST, _SINCE, *_GERMAN_OF_DECISIONS, _CHINESE[0], *_ARABIC):
        if hit := pattern.search(sentence):
            parts = hit.groupdict()
            if found := _made(one, sentence, start, parts["chosen"], parts.get("rejected"), parts.get("why")):
                return found
    return None


def _advice(one: Utterance, rest: str, start: int) -> Candidate | None:
    """Advice against something, with what is done instead in what follows."""
    first = min((end for mark in (". ", "。", ": ", "，") if (end := rest.find(mark)) > 0), default=len(rest))
    for against, better in ((_ADVISED, None), (_VON, _STATTDESSEN), (_CHINESE[1], _BEST_ZH), (_BEST_AR, _BEST_AR)):
        hit = against.search(rest)
        if hit is None or hit.start() > first:
            continue
        if better is None:
            follows = _AGAINST.search(rest, hit.end("rejected"))
            chosen = _clause(rest[: follows.start()]) if follows else None
        else:
            place = better.search(rest, 0 if better is against else hit.end("rejected"))
            chosen = place["chosen"] if place else None
        if chosen and (found := _made(one, rest, start, chosen, hit["rejected"], hit["why"])):
            return found
    return None


def _clause(text: str) -> str:
    """The last clause of a text: from its last mark on, or from before that where only a word is left."""
    parts = re.split(r"(?<=[.;:!?—,])\s+", text.strip(" ,"))
    last = parts[-1]
    return last if len(last.split()) >= 3 or len(parts) == 1 else f"{parts[-2]} {last}"


def _made(
    one: Utterance, whole: str, start: int, chosen: str | None, rejected: str | None, why: str | None
) -> Candidate | None:
    taken, left, reason = _named(chosen), _phrase(rejected, _ARTICLE), _phrase(why, None)
    if not taken or _LITTLE.match(taken) or (left[:1].isdigit() and not reason):
        return None
    known = len(left) >= 2 and not any(vague.match(left) for vague in (_VAGUE, _BEGINS_VAGUE, _LITTLE))
    if not (known or reason):
        return None
    atoms = [_atom(one, whole, start, taken, 2.0)]
    if known:
        atoms += [_atom(one, whole, start, reason, 1.0)] if reason else []
        return candidate("decision", "chosen", (left,), whole[:400], atoms, 0.0 if reason else 1.0)
    return candidate("decision", "reason", (reason,), whole[:400], atoms, 1.0)


def _named(text: str | None) -> str:
    """A phrase that names an option, or nothing: pronouns and figures alone do not."""
    found = _phrase(text, _SUBJECT)
    return "" if len(found) < 3 or _VAGUE.match(found) or _BEGINS_VAGUE.match(found) or _FIGURES.match(found) else found


def _phrase(text: str | None, head: re.Pattern[str] | None) -> str:
    bare = (text or "").strip(_EDGES)
    return (head.sub("", bare, count=1) if head else bare).strip(_EDGES)


def _atom(one: Utterance, whole: str, start: int, phrase: str, weight: float) -> ProbeAtom:
    at = start + max(0, whole.find(phrase))
    return ProbeAtom(phrase, kind="decision", sources=(one.source(at, at + len(phrase)),), weight=weight)
