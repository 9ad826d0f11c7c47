"""Where in a judge's JSON its scores stand, and how sure it was of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from context_bench.judge.ratings import shares_of
from context_bench.stats.agreement import WeightedRating, weighted_rating

RATINGS = (0, 1, 2, 3, 4, 5)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|-?\d+(?:\.\d+)?', re.DOTALL)


def weighted_scores(text: str | None, logprobs: Any) -> dict[str, WeightedRating]:
    """Criterion → its rating weighted by the judge's own probabilities, for whole-number scores whose tokens the endpoint told."""
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
    """Criterion → where the value of its `score` stands, read from the JSON's own structure (a text in a string is no score)."""
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
