"""Texts that go to judges and their replies.

Replies: a rating from 1 to 5 in a text, the scores in the JSON of a rubric judge with their certainty, judges that
answer YES or NO. Blinding: opaque ids, texts without the marks of the method that made them, and how much such marks
give away.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from context_bench.core.errors import EvaluatorFailed, PreflightFailed
from context_bench.core.machine import SYSTEM_CLOCK, Clock
from context_bench.core.protocols import Prices, ReplyCache
from context_bench.core.records import Example
from context_bench.judge.base import Judge, response_of
from context_bench.llm.background import run_sync
from context_bench.llm.limits import Limiter
from context_bench.stats.agreement import WeightedRating, weighted_rating
from context_bench.wire.apis import Reply

_WHOLE = re.compile(r"[\s*_`\"'(\[]*([1-5])(?:\s*/\s*5)?[\s*_`\"')\].]*")
_BRACKETS = re.compile(r"\[\[\s*([1-5])\s*\]\]")
_LABELLED = re.compile(
    r"\b(?:rating|score)\b\W{0,4}(?:is\b|:|=)\W{0,4}([1-5])(?:\s*/\s*5\b|\s+out\s+of\s+5\b)?(?!\d|\s*[./%]\s*\d|\s*%|\s+out\s+of)",
    re.IGNORECASE,
)
_OBJECT = re.compile(r"\{[^{}]*\}")
_FIRST = re.compile(r"[1-5]")


def first_rating(text: str) -> int | None:
    """The documented rule: the first character 1–5 (ASCII) anywhere."""
    found = _FIRST.search(text)
    return int(found.group()) if found else None


def strict_rating(text: str) -> int | None:
    """A rating that cannot be mistaken: the whole reply, `[[n]]`, JSON with `rating` or `score`, or a labelled "rating:
    n"; after the last `</think>` if there is one.
    """
    said = text.rpartition("</think>")[2]
    whole = _WHOLE.fullmatch(said)
    if whole:
        return int(whole.group(1))
    bracketed = _BRACKETS.findall(said)
    if bracketed:
        return int(bracketed[-1])
    told = _json_rating(said)
    if told is not None:
        return told
    labelled = _LABELLED.findall(said)
    return int(labelled[-1]) if labelled else None


def _json_rating(text: str) -> int | None:
    for piece in _OBJECT.findall(text):
        try:
            found = json.loads(piece)
        except (ValueError, RecursionError):
            continue
        for name in ("rating", "score"):
            value = found.get(name)
            if not isinstance(value, bool) and str(value).strip() in (
                "1",
                "2",
                "3",
                "4",
                "5",
                "1.0",
                "2.0",
                "3.0",
                "4.0",
                "5.0",
            ):
                return int(float(value))
    return None


def weighted(logprobs: Any) -> WeightedRating | None:
    """The weighted rating at the first generated token that is a digit 1–5; `None` where the endpoint tells no
    probabilities.
    """
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    for token in content if isinstance(content, list) else []:
        if isinstance(token, dict) and str(token.get("token")).strip() in ("1", "2", "3", "4", "5"):
            return weighted_rating(shares_of(token))
    return None


def shares_of(token: Mapping[str, Any]) -> dict[str, float]:
    """Token → probability, of what might have stood where a generated token stands; what is told as no number is not
    told.
    """
    told = token.get("top_logprobs") or [token]
    shares: dict[str, float] = {}
    for other in told if isinstance(told, list) else [token]:
        if isinstance(other, Mapping) and isinstance(other.get("logprob"), int | float):
            shares[str(other.get("token"))] = math.exp(min(0.0, max(-1e6, other["logprob"])))
    return shares


_YES_OR_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_VERDICT = re.compile(
    r"[\W_]*(?i:(?:the\s+|my\s+|final\s+)*(?:answer|verdict|judge?ment)\W{0,4}(?:is\b)?\W{0,6})?"
    r"(?:(YES|NO|(?i:yes))\b|((?i:no))\b(?=\s*(?:[^\w\s]|$)))"  # "No doubt …" is no verdict
    r"(?i:(?!\W{0,3}(?:or|and)?\W{0,3}(?:yes|no)\b))"  # nor are "yes/no" and "yes and no"
)


def first_word(text: str) -> bool | None:
    """The documented rule: the first standalone YES or NO, in any case."""
    found = _YES_OR_NO.search(text)
    return None if found is None else found.group(1).lower() == "yes"


def verdict(text: str) -> bool | None:
    """A verdict that cannot be mistaken: the first line begins with it, or the last, after the last `</think>` if there
    is one.
    """
    lines = [line for line in text.rpartition("</think>")[2].split("\n") if line.strip(" \t*_`#>-")]
    for line in (*lines[:1], *lines[-1:]):
        found = _VERDICT.match(line)
        if found is not None:
            return (found.group(1) or found.group(2)).lower() == "yes"
    return None


class YesNoJudge(Judge):
    """Base of judges that answer YES or NO: their arguments, how a reply is read, and how they are tried out."""

    #: Pairs with a known verdict: (original, processed, yes).
    _sample_verdicts: tuple[tuple[Example, Example, bool], ...] = ()
    fields: tuple[str, ...] = ()

    def __init__(
        self,
        base_url: str,
        model: str = "claude-haiku-4-5-20251001",
        api_key: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 3,
        retry_base_delay: float = 1.0,
        *,
        adapt: bool = False,
        max_completion_tokens: int = 2048,
        prices: Prices | None = None,
        limiter: Limiter | None = None,
        cache: ReplyCache | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(
            base_url,
            model,
            api_key,
            timeout,
            max_tokens=64,
            max_completion_tokens=max_completion_tokens,
            adapt=adapt,
            max_retries=max_retries,
            retry_base_delay=retry_base_delay,
            prices=prices,
            limiter=limiter,
            cache=cache,
            clock=clock,
        )

    async def preflight(self) -> None:
        """The judge must tell a known yes from a known no; else `PreflightFailed`."""
        prompts = {str(number): self.prompt_for(*pair[:2]) for number, pair in enumerate(self._sample_verdicts)}
        given = [_yes_or_no(yes) for yes in (await self._try_out(prompts, self._strictly)).values()]
        wanted = [_yes_or_no(yes) for *_, yes in self._sample_verdicts]
        if given != wanted:
            raise PreflightFailed(
                f"the judge {self.model} does not tell a right answer from a wrong one for {self.name} (it said "
                f"{', '.join(given)} instead of {', '.join(wanted)}); use another judge"
            )

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """1.0 for YES and 0.0 for NO, by the first such word of the reply; 0.0 for any failure."""
        value: float | None = self._certain(original, processed)
        try:
            if value is None:
                value = run_sync(self._ask(self.prompt_for(original, processed), self._as_documented))
        except EvaluatorFailed:
            value = 0.0
        return dict.fromkeys(self.fields, float(value))

    async def ascore(self, original: Example, processed: Example) -> dict[str, float]:
        """As `score`, but a failure raises `EvaluatorFailed` (`JudgeUnreadable` for a reply without a clear
        verdict).
        """
        value: float | None = self._certain(original, processed)
        if value is None:
            value = await self._ask(self.prompt_for(original, processed), self._strictly)
        return dict.fromkeys(self.fields, float(value))

    def _certain(self, original: Example, processed: Example) -> float | None:
        """The value of a case that needs no judge: there is no answer."""
        return None if response_of(processed).strip() else 0.0

    def _strictly(self, reply: Reply) -> bool:
        return self._read(reply, verdict(reply.text or ""))

    def _as_documented(self, reply: Reply) -> bool:
        return self._read(reply, first_word(reply.text or ""))

    def _read(self, reply: Reply, said: bool | None) -> bool:
        if said is None:
            raise self._unread("no clear YES or NO in the judge's reply", reply)
        return said


def _yes_or_no(yes: bool) -> str:
    return "YES" if yes else "NO"


RATINGS = (0, 1, 2, 3, 4, 5)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|-?\d+(?:\.\d+)?', re.DOTALL)


def weighted_scores(text: str | None, logprobs: Any) -> dict[str, WeightedRating]:
    """Criterion → its rating weighted by the judge's own probabilities, for whole-number scores whose tokens the
    endpoint told.
    """
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not text or not isinstance(content, list):
        return {}
    starts: dict[int, Mapping[str, Any]] = {}
    said = ""
    for token in content:
        if not isinstance(token, Mapping) or not isinstance(token.get("token"), str):
            return {}
        piece = token["token"]
        starts[len(said) + len(piece) - len(piece.lstrip())] = token
        said += piece
    found: dict[str, WeightedRating] = {}
    for criterion, (start, end) in _score_places(said).items() if said.strip() == text.strip() else ():
        if end - start == 1 and start in starts and (rating := _rating(starts[start])) is not None:
            found[criterion] = rating
    return found


def _rating(token: Mapping[str, Any]) -> WeightedRating | None:
    return weighted_rating(shares_of(token), RATINGS)


def _score_places(text: str) -> dict[str, tuple[int, int]]:
    """Criterion → where the value of its `score` stands, read from the JSON's own structure (a text in a string is no
    score).
    """
    places: dict[str, tuple[int, int]] = {}
    objects: list[dict[str, Any]] = []
    key: str | None = None
    before = ""
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token == "{":
            objects.append({})
            key = None
        elif token == "}" and objects:
            closed = objects.pop()
            if "id" in closed and "score" in closed:
                places.setdefault(closed["id"], closed["score"])
        elif token == "," or token in "[]":
            key = None
        elif token == ":":
            key = before
        elif objects and key == '"criterionId"' and token.startswith('"'):
            objects[-1]["id"] = token[1:-1]
        elif objects and key == '"score"':
            quoted = token.startswith('"')
            objects[-1]["score"] = (found.start() + quoted, found.end() - quoted)
        before = token
    return places


VISIBILITIES = ("context", "normalised", "response_only")

#: What betrays a method in a compressed text → pattern. Each is anchored or bounded, so that hostile text costs linear
#: time.
_MARKS = {
    "heading": re.compile(r"^[ \t]*(?:#{1,6}[ \t]+\S|\*\*[^*\n]{1,60}\*\*:?[ \t]*$)", re.MULTILINE),
    "wrapper": re.compile(
        r"</?(?:summary|conversation_summary|compacted|compaction|compressed|context|memory|state|session_summary|history)(?:\s[^<>\n]{0,200})?>",
        re.IGNORECASE,
    ),
    "retrieval marker": re.compile(
        r"\[[^\[\]\n]{0,200}(?:compressed to|retrieve|hash=|cached as|expand with)[^\[\]\n]{0,200}\]", re.IGNORECASE
    ),
    "elision marker": re.compile(
        r"[\[(<][^\[\]()<>\n]{0,80}\b(?:omitted|left out|elided|truncated|filtered|removed|masked|trimmed|snipped)\b"
        r"[^\[\]()<>\n]{0,80}[\])>]",
        re.IGNORECASE,
    ),
    "opaque": re.compile(r"\[opaque, \d+ tokens\]"),
}
_PROSE = re.compile(
    r"^[ \t]*[A-Za-z0-9' ,.;:-]{40,}$", re.MULTILINE
)  # code has other characters, and few function words anyway
_WORDS = re.compile(r"[A-Za-z]+")
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "the a an of to in on at for and or but is are was were be been it its this that with as by from not we i you "
        "they",
    )
)
_SPARSE, _ENOUGH = 0.06, 80  # share of function words below which prose was thinned out, and words it takes to tell

#: Headings as different methods write them → one word for all of them.
_SECTIONS = {
    "goal": r"goal|intent|objective|task|request|primary request",
    "changed files": r"files? (?:modified|changed|edited|created)|modified files|changes|artifacts?",
    "read files": r"files? (?:read|examined|viewed|seen)|read files",
    "decisions": r"decisions?|choices|rationale|key decisions",
    "errors": r"errors?|problems?|issues|errors and fixes",
    "state": r"state|status|current work|progress|where we are",
    "next": r"next|next steps?|to-?dos?|pending|pending tasks|open|remaining|plan",
    "facts": r"facts?|notes|key (?:facts|details|technical concepts)|details",
}
_HEADING_LINE = re.compile(r"^[ \t]*(?:#{1,6}[ \t]+([^\n]{1,200})|\*\*([^*\n]{1,60})\*\*:?[ \t]*)$", re.MULTILINE)
_CANONICAL = [
    (name, re.compile(rf"\W*(?:\d+\W+)?(?:the )?(?:{pattern})\W*", re.IGNORECASE))
    for name, pattern in _SECTIONS.items()
]


def opaque_id(run_key: str, system: str, session: str, point: object, probe: str) -> str:
    """Twelve hex digits by which an item is known while it is judged: HMAC-SHA256 of who made it and what it
    answers.
    """
    told = "|".join((system, session, str(point), probe)).encode("utf-8", "surrogatepass")
    return hmac.new(run_key.encode("utf-8", "surrogatepass"), told, hashlib.sha256).hexdigest()[:12]


def fingerprints(text: str) -> list[str]:
    """Kinds of marks in a compressed text that tell how it was made; `thinned` = hardly a function word is left. In a
    fixed order.
    """
    found = [name for name, pattern in _MARKS.items() if pattern.search(text)]
    words = [word.lower() for line in _PROSE.findall(text) for word in _WORDS.findall(line)]
    if len(words) >= _ENOUGH and sum(word in _FUNCTION_WORDS for word in words) < _SPARSE * len(words):
        found.append("thinned")
    return found


def normalised(text: str) -> str:
    """The text with its marks made alike: headings as `Section: name` under common names, wrappers gone, every marker
    as `[...]`.
    """
    text = _MARKS["wrapper"].sub("", text)
    text = _MARKS["retrieval marker"].sub("[...]", text)
    text = _MARKS["elision marker"].sub("[...]", text)
    text = _HEADING_LINE.sub(lambda found: f"Section: {_section(found[1] or found[2])}", text)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in text.strip().split("\n")))


def _section(heading: str) -> str:
    return next(
        (name for name, pattern in _CANONICAL if pattern.fullmatch(heading)), heading.strip().strip("#*: ").lower()
    )


def leak(accuracy: float, choices: int) -> float | None:
    """(acc − 1/K) / (1 − 1/K): 0 where the judge guesses which of K methods made an item, 1 where it always knows;
    `None` for K < 2.
    """
    return None if choices < 2 else (accuracy - 1 / choices) / (1 - 1 / choices)


@dataclass(frozen=True, slots=True)
class MarkRates:
    """Share of a system's compressed texts with any mark, and by kind."""

    any: float
    kinds: dict[str, float]
    n: int


def mark_rates(texts_by_system: Mapping[str, Iterable[str]]) -> dict[str, MarkRates]:
    """Rate at which each system's compressed texts carry marks of their method: the leak that needs no judge to be
    seen.
    """
    rates = {}
    for system, texts in texts_by_system.items():
        found = [fingerprints(text) for text in texts]
        counts = {kind: sum(kind in each for each in found) for kind in (*_MARKS, "thinned")}
        if found:
            rates[system] = MarkRates(
                sum(map(bool, found)) / len(found),
                {kind: n / len(found) for kind, n in counts.items() if n},
                len(found),
            )
    return rates
