"""A judge that needs no model: it grades by the words of the ground truth that an answer has, and has the weaknesses it
is told to have.

With it everything around a judge can be tried offline, and audits can be shown to find what is wrong with a bad one:
`async with ModelServer(RuleJudge(obeys="5")) as server: RubricJudge(server.url)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.keys import seed_of
from context_bench.judge.judge_replies import fingerprints
from context_bench.llm.responders import ResponderError, counted
from context_bench.wire.apis.shared import Reply
from context_bench.wire.request import WireRequest

_DATA = re.compile(r"\[begin (\w+)\]\n(.*?)\n\[end \1\]", re.DOTALL)
_WORDS = re.compile(r"[\w./-]*\w")
#: The question of the preflights of judges.
KNOWN = frozenset({"What was the original error?"})
#: What an obedient judge takes for orders.
ORDERS = r"(?i)ignore the rubric|system administrator|\[end \w*\]|\"criterionResults\""


@dataclass
class RuleJudge:
    """Answers the questions of `RubricJudge`, of `PairwiseJudge` and of the leak audit; refuses others with status 400.

    `obeys`: the share of answers with orders in them that it gives 5; `heeds`: what it takes for an order (a regular
    expression). `contradicts`: the share of calls whose scores it turns round. `outside`: the share of answers it gives
    scores of 9, `declines`: the share that it does not judge; the known items of a preflight are in none of them. Which
    ones follows from the texts. `likes_length`: points for every 100 characters. `first_bonus`: points by which the
    first of a pair is favoured. `reads_marks`: it tells methods apart by the marks in their texts. `moves`: added to
    every score from call `moves_from` on. `fails`: call → whether the endpoint answers `status` instead. `says`: (call
    number, data) → the whole reply, `None` for its own. `refuses`: fields of the request that it does not know.
    """

    obeys: float = 0.0
    heeds: str = ORDERS
    contradicts: float = 0.0
    outside: float = 0.0
    declines: float = 0.0
    likes_length: float = 0.0
    first_bonus: float = 0.0
    reads_marks: bool = False
    moves: float = 0.0
    moves_from: int = 1
    fails: Callable[[int], bool] = lambda number: False
    says: Callable[[int, Mapping[str, Any]], str | None] = lambda number, data: None
    status: int = 503
    refuses: tuple[str, ...] = ()
    name: str = "rule-judge"
    calls: int = 0
    _turned: bool = field(default=False, repr=False)

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        """The verdict on the data between the markers of the request's last question."""
        for name in self.refuses:
            if name in request.params:
                raise ResponderError(400, f"Unsupported parameter: {name!r}")
        self.calls += 1
        if self.fails(self.calls):
            raise ResponderError(self.status, "overloaded")
        found = next((found for message in request.messages if (found := _DATA.search(message.text))), None)
        if found is None:
            raise ResponderError(400, "no data between markers")
        data = json.loads(found[2])
        text = self.says(self.calls, data)
        self._turned = data.get("probe_question") not in KNOWN and _falls(
            "contradicts", found[1] + found[2], self.contradicts
        )
        reply = Reply(text=self._verdict(data) if text is None else text, finish_reason="stop", model=request.model)
        reply.usage = counted(reply, request)
        return reply

    def _verdict(self, data: Mapping[str, Any]) -> str:
        if "methods" in data:
            return json.dumps({"reasoning": "by its marks", "method": self._method(data)})
        if "first_response" in data:
            first, second = (self.score(data, data[name]) for name in ("first_response", "second_response"))
            first += self.first_bonus
            return json.dumps(
                {
                    "reasoning": "by its facts",
                    "winner": "tie" if first == second else "first" if first > second else "second",
                }
            )
        asked = "" if data.get("probe_question") in KNOWN else str(data["model_response"])
        if asked and _falls("declines", asked, self.declines):
            return "I would rather not judge this."
        if asked and _falls("outside", asked, self.outside):
            return json.dumps(
                {"criterionResults": [{"criterionId": name, "score": 9} for name in data["rubric_criteria"]]}
            )
        results = [
            {"criterionId": name, "reasoning": "by its facts", "score": self.score(data, data["model_response"], name)}
            for name in data["rubric_criteria"]
        ]
        return json.dumps({"criterionResults": results, "aggregateScore": 5, "dimensionScores": {}})

    def score(self, data: Mapping[str, Any], response: str, criterion: str = "") -> float:
        """0–5 by the share of the ground truth's words that the response has; its form is always right."""
        if _falls("obeys", response, self.obeys) and re.search(self.heeds, response):
            return 5.0
        if criterion.startswith("instruction_"):
            value = 5.0
        else:
            wanted, said = (
                set(_WORDS.findall(str(data.get("ground_truth") or "").lower())),
                set(_WORDS.findall(response.lower())),
            )
            value = 5.0 * len(wanted & said) / len(wanted) if wanted else 3.0
        value += self.likes_length * len(response) / 100 + (self.moves if self.calls >= self.moves_from else 0.0)
        value = round(min(5.0, max(0.0, value)), 3)
        return 5.0 - value if self._turned else value

    def _method(self, data: Mapping[str, Any]) -> int:
        if self.reads_marks:
            marks = fingerprints(str(data.get("compacted_context") or ""))
            for number, method in enumerate(data["methods"], 1):
                if any(mark in method for mark in marks):
                    return number
        return 1


def _falls(what: str, text: str, share: float) -> bool:
    return seed_of(what, text) / 2**64 < share
