"""Match of the class that a reply names with the gold class of an inference.

Schemes say entailment/contradiction/neutral, SUPPORTS/REFUTES/NOT_ENOUGH_INFO, Entailment/Contradiction/Not mentioned,
true/false/unknown, yes/no/…; they mean the same three classes. A reply is read in this order: it is a label; its last
"the answer (label, verdict …) is X"; a label at its beginning or alone on its last line; "therefore X"; the last class
mentioned and not denied. "No" counts only where it answers ("No, …"), not in "no doubt" or "no party may"; "does not
mention" and "neither supports nor refutes" are the third class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from context_bench.core.records import Example
from context_bench.evaluators.answer_quality import golds

EVALUATORS = {"nli": "NLILabelMatch"}
MEASURES = {"nli_accuracy": {"unit": "score", "better": "higher", "place": "quality"}}

ENTAILMENT, CONTRADICTION, NEUTRAL = "entailment", "contradiction", "not mentioned"
_YES_NO = {"yes": ENTAILMENT, "y": ENTAILMENT, "no": CONTRADICTION, "n": CONTRADICTION}
_NOT = r"(?:not|n[o']t|never|cannot|hardly|fails?\s+to|without)"
_SAY = (
    r"(?:mention(?:s|ed|ing)?|address(?:es|ed)?|discuss(?:es|ed)?|state[sd]?|specif(?:y|ies|ied)|say(?:s)?|said|cover(?:s|ed)?|provide[sd]?|"
    r"contain(?:s|ed)?|include[sd]?|determine[sd]?|conclude[sd]?|establish(?:es|ed)?|clear|known|verif(?:y|ied)|decide[sd]?|infer(?:red)?|"
    r"tell|possible\s+to|enough|sufficient|speak|touch)"
)
_DOES_NOT = r"(?:not|cannot|never|fails?\s+to|(?:do|does|did|is|are|was|were|has|have|ca|could|can|would)n['’]?t)"
_ADVERBS = (
    r"(?:\s+(?:be|been|explicitly|directly|specifically|clearly|really|actually|even|necessarily|anywhere|ever))*"
)
_PATTERNS = [
    (
        NEUTRAL,
        rf"\bnot[\s_-]*mentioned\b|\bnot[\s_-]*enough[\s_-]*(?:info\w*|evidence|context|data)\b|\bnei\b|\bneutral\b|\bunknown\b|\bundetermined\b|"
        rf"\bneither\b(?!\s+part)|\binconclusive\b|\bunverifiable\b|\bunrelated\b|\birrelevant\b|\binsufficient\b(?:\s+(?:evidence|information))?|"
        rf"\b(?:no|lack(?:s|ing)?(?:\s+of)?|without)\s+(?:\w+\s+)?(?:evidence|information|mention|info|indication|reference|relation)\b"
        r"(?!\s+(?:may|shall|must|can|will|against|to\s+the\s+contrary)\b)|\bsilent\b|"
        rf"\bunclear\b|\bno[\s_]*relation\b|\bcan(?:not|['’]t)\s+(?:tell|say|know)\b|\b(?:impossible|unable|hard)\s+to\s+(?:determine|tell|say|verify)\b|"
        rf"\b{_DOES_NOT}{_ADVERBS}\s+{_SAY}\b|\bmakes?\s+no\s+mention\b|\bsays?\s+nothing\b|\bnothing\s+(?:about|on)\b",
    ),
    (
        ENTAILMENT,
        r"\bentail(?:s|ed|ing|ment)?\b|\bsupport(?:s|ed|ing|ive)?\b|\btrue\b|\bconfirm(?:s|ed|ing)?\b|\bverified\b|\bcorrect\b|\bimplie[sd]\b",
    ),
    (
        CONTRADICTION,
        r"\bcontradict(?:s|ed|ing|ion|ions|ory)?\b|\brefut(?:e|es|ed|ing|ation)\b|\bfalse\b|\bdisprove[sdn]?\b|\bincorrect\b|\bdebunk(?:s|ed)?\b|"
        r"\buntrue\b|\bnot\s+true\b|\bnot\s+correct\b|\bunsupported\s+and\s+contradicted\b",
    ),
]
_MENTION = re.compile(
    "|".join(f"(?P<c{place}>{pattern})" for place, (_, pattern) in enumerate(_PATTERNS)), re.IGNORECASE
)
_DENIED = re.compile(
    rf"(?:\b{_NOT}|n['’]t|\bnot|\bno|\bneither|\bnor|\brather\s+than|\binstead\s+of)(?:\s+(?:be|been|directly|explicitly|a|an|the|any|clearly|strictly|necessarily|fully))*\s+\Z",
    re.IGNORECASE,
)
_BOTH = re.compile(
    rf"\bneither\b[^.\n]{{0,40}}?\b(?:support|entail|confirm|contradict|refut)\w*[^.\n]{{0,40}}?\bnor\b[^.\n]{{0,20}}?\b(?:support|entail|confirm|contradict|refut|den)\w*|"
    rf"\b{_DOES_NOT}{_ADVERBS}\s+(?:support|entail|confirm|contradict|refut)\w*(?:\s+(?:it|this|the\s+\w+))?,?\s*(?:or|nor)\s+(?:\w+\s+)?(?:support|entail|confirm|contradict|refut|den)\w*",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"\b(?:answer|label|verdict|classification|judge?ment|relation(?:ship)?|class|category|decision|conclusion|result|response)\b[^.:\n=]{0,60}?"
    r"(?:\bis\b|\bwould\s+be\b|:|=|->|→)\s*",
    re.IGNORECASE,
)
_CONCLUDED = re.compile(
    r"\b(?:therefore|thus|hence|so|consequently|in\s+conclusion|overall|accordingly)\b[,:]?\s*", re.IGNORECASE
)
_END = re.compile(r"[.;!?\n]")
_FIRST = re.compile(r"\s*[\"'(\[]*([A-Za-z][A-Za-z _-]{0,24}?)[\"')\]]*\s*(?:[.:;,!\n—–-]|$)")
_THOUGHT = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_MARKS = re.compile(r"\*+|`+|~~|#+|\\boxed|\\text|[{}$]")
_ALTERNATIVES = re.compile(r"\s*[\"']?\s*(?:,\s*(?:or|and)?|/|\bor\b)\s*[\"']?\s*\Z", re.IGNORECASE)


class Mention(NamedTuple):
    """A class named from `start` to `end` of a text."""

    label: str
    start: int
    end: int


def label_of(gold: str) -> str:
    """The class of a gold label, whatever its scheme; a label of no known scheme as it is, in small letters."""
    bare = _bare(gold)
    return _exact(bare) or bare


def is_label(gold: str) -> bool:
    """True if a gold answer is a label of a known scheme."""
    return bool(_exact(_bare(gold)))


def read_label(reply: str) -> str:
    """The class that a reply decides for, or "" if it names none or only lists them."""
    text = _plain(reply)
    if whole := _exact(_bare(text)):
        return whole
    first = _first_label(text)
    for found in (
        _last_stated(text, _STATED),
        first if first[1] else "",
        _last_line(text),
        _last_stated(text, _CONCLUDED),
    ):
        label = found[0] if isinstance(found, tuple) else found
        if label:
            return label
    opening = _END.split(text, maxsplit=1)[0]
    return (first[0] and (_last_mentioned(opening) or first[0])) or _last_mentioned(text)


def _plain(reply: str) -> str:
    text = _THOUGHT.sub("", reply, count=1) if "</think" in reply.lower() else reply
    return _MARKS.sub("", text).strip()


def _bare(text: str) -> str:
    return " ".join(re.sub(r"[_\s-]+", " ", text.lower()).strip(" .!,:;\"'()[]").split())


@lru_cache(maxsize=256)
def _exact(bare: str) -> str:
    """The class if `bare` is a label and nothing else."""
    if len(bare) > 40:
        return ""
    if bare in _YES_NO:
        return _YES_NO[bare]
    whole = _MENTION.fullmatch(bare)
    return _label(whole) if whole else ""


def _label(match: re.Match[str]) -> str:
    return next(label for place, (label, _) in enumerate(_PATTERNS) if match[f"c{place}"])


def _first_label(text: str) -> tuple[str, bool]:
    """A label that the reply begins with, and whether it is more than a yes or no."""
    first = _FIRST.match(text)
    if first is None:
        return "", False
    bare = _bare(first[1])
    return _exact(bare), bare not in _YES_NO


def _last_line(text: str) -> str:
    lines = text.rsplit("\n", 1)
    return _exact(_bare(lines[1])) if len(lines) == 2 else ""


def _last_stated(text: str, cue: re.Pattern[str]) -> str:
    """The class of the last statement that `cue` introduces and that names one."""
    for found in reversed(list(cue.finditer(text))[-20:]):
        rest = text[found.end() : found.end() + 200].lstrip(" \n\"'(")
        said = _END.split(rest, maxsplit=1)[0]
        label = _exact(_bare(said)) or _first_label(said)[0] or _last_mentioned(said)
        if label:
            return label
    return ""


def _last_mentioned(text: str) -> str:
    mentions = list(_undenied(text))
    return mentions[-1].label if mentions else ""


def _undenied(text: str) -> Iterator[Mention]:
    """Classes named as the case, but for lists of the alternatives ("entailment, contradiction or neutral")."""
    both = [match.span() for match in _BOTH.finditer(text)]
    mentions = [Mention(_label(match), *match.span()) for match in _MENTION.finditer(text)]
    mentions = [each for each in mentions if not any(start <= each.start < end for start, end in both)]
    mentions = sorted([*mentions, *(Mention(NEUTRAL, *span) for span in both)], key=lambda each: each.start)
    listed: set[int] = set()
    for place, (one, other) in enumerate(pairwise(mentions)):
        if one.label != other.label and _ALTERNATIVES.match(text[one.end : other.start]):
            listed |= {place, place + 1}
    for place, each in enumerate(mentions):
        if place in listed:
            continue
        if each.label == NEUTRAL or not _DENIED.search(text[max(0, each.start - 60) : each.start]):
            yield each


class NLILabelMatch:
    """`nli_accuracy`: 1 if the class that the reply decides for is the class of a gold label, else 0.

    Labels of different schemes that mean the same are equal (SUPPORTS, Entailment, true, yes …); how a reply is read is
    told in `_labels`. Called directly, a missing gold label scores 1.0 and an empty response 0.0, as documented; in a
    run an example whose answer is no label of any known scheme is not scored.
    """

    name = "nli_label_match"
    version = "1"
    quick = True
    needs = ("answer",)
    fields = ("nli_accuracy",)

    def applies(self, example: Example, output: Example) -> bool:
        """The gold answer is a label, and an answer was given."""
        return any(map(is_label, golds(example))) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        wanted = {label_of(gold) for gold in golds(original)}
        if not wanted:
            return {"nli_accuracy": 1.0}
        response = processed.get("response")
        reply = "" if response is None else str(response)
        return {
            "nli_accuracy": float(bool(reply.strip()) and (read_label(reply) in wanted or label_of(reply) in wanted))
        }
