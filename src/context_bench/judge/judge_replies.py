"""Readers of judges' replies: a rating from 1 to 5 in a text.

Beside it: the scores in the JSON of a rubric judge with their certainty, and judges that answer YES or NO.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from context_bench.core.clock import SYSTEM_CLOCK, Clock
from context_bench.core.errors import PreflightFailed
from context_bench.core.protocols import Prices, ReplyCache
from context_bench.core.records import Example
from context_bench.judge.base import Judge
from context_bench.llm.limits import Limiter
from context_bench.stats.agreement import WeightedRating, weighted_rating
from context_bench.wire.apis.read import Reply

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
    known: tuple[tuple[Example, Example, bool], ...] = ()

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
        prompts = {str(number): self.prompt_for(*pair[:2]) for number, pair in enumerate(self.known)}
        said = list((await self._try_out(prompts, self._strictly)).values())
        if said != [yes for _, _, yes in self.known]:
            wrong = ", ".join("YES" if yes else "NO" for yes in said)
            raise PreflightFailed(
                f"the judge {self.model} does not tell a right answer from a wrong one for {self.name} (it said "
                f"{wrong} "
                f"instead of {', '.join('YES' if yes else 'NO' for _, _, yes in self.known)}); use another judge"
            )

    def _strictly(self, reply: Reply) -> bool:
        return self._read(reply, verdict(reply.text or ""))

    def _as_documented(self, reply: Reply) -> bool:
        return self._read(reply, first_word(reply.text or ""))

    def _read(self, reply: Reply, said: bool | None) -> bool:
        if said is None:
            raise self._unread("no clear YES or NO in the judge's reply", reply)
        return said


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
