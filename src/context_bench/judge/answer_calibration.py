"""How often a judge of answers accepts what is wrong: its error, to stand beside every score it gives."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core import calling
from context_bench.core.errors import BadInput, EvaluatorFailed, describe
from context_bench.core.records import Estimate, Example
from context_bench.core.text import contains, f1_score, tokens
from context_bench.evaluators.answer_quality import golds

_SMALL = frozenset(
    (
        *("who", "what", "when", "where", "which", "why", "how", "did", "do", "does", "is", "was", "were", "are", "will", "would", "can"),
        *("has", "have", "had", "s", "of", "on", "in", "to", "for", "and", "or"),
    )
)


@dataclass(slots=True)
class Calibration:
    """A judge on answers whose worth is known. `specific`: share accepted of other questions' gold answers; `vague`: of answers that
    touch the subject without saying anything; `right`: of the gold answers themselves. Wilson intervals; `failures`: pairs it gave no
    verdict on.
    """

    judge: str
    specific: Estimate | None = None
    vague: Estimate | None = None
    right: Estimate | None = None
    failures: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def false_accepts(self) -> Estimate | None:
        """Share of all wrong answers that it accepted."""
        both = [each for each in (self.specific, self.vague) if each is not None]
        n = sum(each.n for each in both)
        return _share(round(sum(each.value * each.n for each in both)), n) if n else None

    @property
    def sentence(self) -> str:
        """For a report, next to the judged score."""
        parts = [
            f"{_text(each)} of {each.n} {what}"
            for what, each in (
                ("wrong specific answers", self.specific),
                ("wrong vague answers", self.vague),
                ("right answers", self.right),
            )
            if each is not None
        ]
        said = f"{self.judge} accepts {', '.join(parts)}." if parts else f"{self.judge} could not be calibrated."
        return said + (f" It gave no verdict on {self.failures} more." if self.failures else "")


async def calibrate(judge: Any, examples: Iterable[Example], *, most: int = 30, seed: int = 0) -> Calibration:
    """Ask `judge` (an evaluator such as `MemoryJudge`) about known answers to at most `most` of the examples: up to three calls each.

    An answer counts as accepted from a score of 0.5 on, by the first of the judge's `fields`. Wrong answers that share a word with the
    gold are not used. Raises `BadInput` if no example has a question and a gold answer.
    """
    known = [example for example in examples if golds(example) and example.get("question")]
    if not known:
        raise BadInput("a judge is calibrated on questions with gold answers; these examples have none")
    rng = random.Random(seed)
    chosen = rng.sample(known, min(most, len(known)))
    found = Calibration(getattr(judge, "name", type(judge).__name__))
    found.specific = await _accepted(judge, [(one, wrong) for one in chosen if (wrong := _other_gold(one, known, rng))], found)
    found.vague = await _accepted(judge, [(one, vague(one)) for one in chosen], found)
    found.right = await _accepted(judge, [(one, golds(one)[0]) for one in chosen], found)
    return found


def vague(example: Example) -> str:
    """An answer that touches the subject and says nothing."""
    subject = [word for word in dict.fromkeys(tokens(str(example["question"]))) if word not in _SMALL]
    return f"It had to do with {' '.join(subject) or 'that'}, as they said when it came up."


def _other_gold(example: Example, known: Sequence[Example], rng: random.Random) -> str | None:
    """The gold answer of another question, of the same type if there is one, that has nothing of this one's; `None` if there is none."""
    own = golds(example)
    others = [
        gold
        for other in known
        for gold in golds(other)[:1]
        if all(f1_score(gold, mine) == 0 and not contains(gold, mine) and not contains(mine, gold) for mine in own)
    ]
    alike = [gold for other in known if other.get("qa_type") == example.get("qa_type") for gold in golds(other)[:1] if gold in set(others)]
    return rng.choice(alike or others) if others else None


async def _accepted(judge: Any, pairs: Sequence[tuple[Example, str]], found: Calibration) -> Estimate | None:
    accepted = n = 0
    score = calling.method(judge, "ascore", "score")
    assert score is not None, "checked: evaluators have score()"
    for example, answer in pairs:
        try:
            values = await calling.call(score, example, {**example, "response": answer})
            verdict = values[next(iter(getattr(judge, "fields", ())), next(iter(values), ""))]
        except (EvaluatorFailed, KeyError) as error:
            found.failures += 1
            if len(found.errors) < 3:
                found.errors.append(describe(error))
            continue
        accepted, n = accepted + (verdict >= 0.5), n + 1
    return _share(accepted, n) if n else None


def _share(count: int, n: int) -> Estimate:
    from context_bench.stats.intervals import wilson

    interval = wilson(count, n)
    return Estimate(count / n, interval.low, interval.high, n=n, clusters=n, method="Wilson")


def _text(each: Estimate) -> str:
    return f"{each.value:.0%} [{each.low:.0%}, {each.high:.0%}]"
