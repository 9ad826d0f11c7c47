"""Reading a rating from 1 to 5 out of a judge's reply."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from context_bench.stats.agreement import WeightedRating, weighted_rating

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
    """A rating that cannot be mistaken: the whole reply, `[[n]]`, JSON with `rating` or `score`, or a labelled "rating: n"; after the last
    `</think>` if there is one.
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
            if not isinstance(value, bool) and str(value).strip() in ("1", "2", "3", "4", "5", "1.0", "2.0", "3.0", "4.0", "5.0"):
                return int(float(value))
    return None


def weighted(logprobs: Any) -> WeightedRating | None:
    """The weighted rating at the first generated token that is a digit 1–5; `None` where the endpoint tells no probabilities."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    for token in content if isinstance(content, list) else []:
        if isinstance(token, dict) and str(token.get("token")).strip() in ("1", "2", "3", "4", "5"):
            return weighted_rating(shares_of(token))
    return None


def shares_of(token: Mapping[str, Any]) -> dict[str, float]:
    """Token → probability, of what might have stood where a generated token stands; what is told as no number is not told."""
    told = token.get("top_logprobs") or [token]
    shares: dict[str, float] = {}
    for other in told if isinstance(told, list) else [token]:
        if isinstance(other, Mapping) and isinstance(other.get("logprob"), int | float):
            shares[str(other.get("token"))] = math.exp(min(0.0, max(-1e6, other["logprob"])))
    return shares
