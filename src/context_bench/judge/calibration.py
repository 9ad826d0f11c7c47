"""Calibration of judges: against people's ratings of the same items, and on answers that are known to be right or
wrong.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from context_bench.core import calling
from context_bench.core.errors import BadInput, EvaluatorFailed, describe
from context_bench.core.records import Estimate, Example
from context_bench.core.text import contains, f1_score, tokens
from context_bench.evaluators.answer_quality import golds
from context_bench.stats.agreement import (
    Corrected,
    alpha_ordinal,
    kendall_tau,
    prediction_powered,
    rogan_gladen,
    spearman,
    weighted_kappa,
)

FIRM, TENTATIVE = 0.8, 0.667
ENOUGH = 100  # labels below which agreement is a rough figure
PER_SYSTEM = 5  # labels of a system below which its mean is not corrected
PASSED = 3.0  # rating from which an answer counts as passed

#: Beginnings and parts of model names → who made them.
_FAMILIES = {
    "openai": r"gpt|chatgpt|o[134](?:-|$)|davinci|codex",
    "anthropic": r"claude",
    "google": r"gemini|gemma|palm",
    "meta": r"llama",
    "mistral": r"mi[sx]tral|codestral|magistral|devstral|ministral",
    "qwen": r"qwen|qwq",
    "deepseek": r"deepseek",
    "xai": r"grok",
    "cohere": r"command|cohere|aya",
    "microsoft": r"phi-|phi\d",
    "zhipu": r"glm",
    "moonshot": r"kimi|moonshot",
    "huggingface": r"smollm",
}


@dataclass(frozen=True, slots=True)
class Labelled:
    """One item that people rated, 0–5: `humans` one rating for each rater (`None`: not rated by that one), `judge` the
    judge's.
    """

    id: str
    system: str
    judge: float
    humans: tuple[float | None, ...]

    @property
    def human(self) -> float | None:
        """Mean of the ratings there are."""
        given = [rating for rating in self.humans if rating is not None]
        return fmean(given) if given else None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Agreement of a judge and people on `n` items.

    `kappa` (quadratic weights) and `alpha` (Krippendorff, ordinal, all raters and the judge) of whole ratings;
    `alpha_humans` among people where there are several; `spearman` of ratings as they are; `signed_error` by system:
    mean of judge − human, a bias for or against it; `tau` of the order of systems. `label`: `firm` from α = 0.8,
    `tentative` from 0.667, else `uncalibrated`. `corrected`: by system, the mean rating as people would give it
    (prediction-powered, from 5 labels on, held within 0 and 5) and the share of ratings of at least 3 (Rogan–Gladen),
    where they can be had.
    """

    n: int
    kappa: float | None
    alpha: float | None
    alpha_humans: float | None
    spearman: float | None
    signed_error: dict[str, float]
    tau: float | None
    label: str
    corrected: dict[str, dict[str, Corrected | None]]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def calibrate(labels: Sequence[Labelled], judged: Mapping[str, Sequence[float]], passed: float = PASSED) -> Calibration:
    """Hold a judge against people. `judged`: by system, all of the judge's ratings in the run; the labelled items are a
    sample of them.
    """
    pairs = [(each, mean) for each in labels if (mean := each.human) is not None]
    judge, human = [each.judge for each, _ in pairs], [value for _, value in pairs]
    whole = [float(round(value)) for value in judge]
    raters = list(zip(*(each.humans for each, _ in pairs), strict=True)) if pairs else []
    alpha = alpha_ordinal([whole, *raters]) if pairs else None
    by_system: dict[str, list[tuple[float, float]]] = {}
    for each, value in pairs:
        by_system.setdefault(each.system, []).append((each.judge, value))
    means = {name: (fmean(f for f, _ in found), fmean(y for _, y in found)) for name, found in by_system.items()}
    notes = [] if len(pairs) >= ENOUGH else [f"{len(pairs)} labels; below {ENOUGH} agreement is a rough figure"]
    if thin := sorted(set(judged) - set(by_system)):
        notes.append(f"no label of {', '.join(thin)}")
    return Calibration(
        n=len(pairs),
        kappa=weighted_kappa(whole, [float(round(value)) for value in human]),
        alpha=alpha,
        alpha_humans=alpha_ordinal(raters) if len(raters) > 1 else None,
        spearman=spearman(judge, human),
        signed_error={name: f - y for name, (f, y) in means.items()},
        tau=kendall_tau([f for f, _ in means.values()], [y for _, y in means.values()]) if len(means) > 2 else None,
        label=label_of(alpha),
        corrected={name: _corrected(judged.get(name, ()), found, pairs, passed) for name, found in by_system.items()},
        notes=notes,
    )


def label_of(alpha: float | None) -> str:
    """The label of a judge with this agreement."""
    return "uncalibrated" if alpha is None or alpha < TENTATIVE else "tentative" if alpha < FIRM else "firm"


def _corrected(
    judged: Sequence[float], own: Sequence[tuple[float, float]], pairs: Sequence[tuple[Labelled, float]], passed: float
) -> dict[str, Corrected | None]:
    """A system's mean by its own labels, its pass rate by the judge's errors on all of them."""
    good = [each.judge >= passed for each, value in pairs if value >= passed]
    bad = [each.judge < passed for each, value in pairs if value < passed]
    rate = None
    if good and bad and judged:
        share = sum(value >= passed for value in judged) / len(judged)
        rate = rogan_gladen(share, len(judged), sum(good) / len(good), len(good), sum(bad) / len(bad), len(bad))
    enough = len(own) >= PER_SYSTEM
    mean = prediction_powered(judged, [f for f, _ in own], [y for _, y in own]) if enough else None
    return {"mean": mean and Corrected(min(5.0, max(0.0, mean.value)), mean.se), "pass_rate": rate}


def family_of(model: str | None) -> str | None:
    """Maker of a model, by its name (`anthropic/claude-x` and `claude-x` alike); `None` where the name does not
    tell.
    """
    name = (model or "").lower().rpartition("/")[2]
    return next((family for family, pattern in _FAMILIES.items() if re.match(pattern, name)), None)


def same_family(judge: str | None, others: Mapping[str, str | None]) -> list[str]:
    """Warnings where the judge judges its own kin. `others`: role → model."""
    family = family_of(judge)
    kin = [role for role, model in others.items() if family and family_of(model) == family]
    return [f"the judge and the {role} are of one family ({family}): it may favour its own" for role in kin]


def self_preference(scores: Mapping[str, Mapping[str, float]], family: str) -> float | None:
    """Mean over shared items of (score of the judge's own family − mean score of the others). `scores`: family → item →
    score.

    `None` where one side is missing or they share no item.
    """
    own, others = scores.get(family, {}), [found for name, found in scores.items() if name != family]
    shared = [item for item in own if others and all(item in found for found in others)]
    return fmean(own[item] - fmean(found[item] for found in others) for item in shared) if shared else None


_SMALL = frozenset(
    (
        *(
            "who",
            "what",
            "when",
            "where",
            "which",
            "why",
            "how",
            "did",
            "do",
            "does",
            "is",
            "was",
            "were",
            "are",
            "will",
            "would",
            "can",
        ),
        *("has", "have", "had", "s", "of", "on", "in", "to", "for", "and", "or"),
    )
)


@dataclass(slots=True)
class AnswerCalibration:
    """A judge on answers whose worth is known. `specific`: share accepted of other questions' gold answers; `vague`: of
    answers that touch the subject without saying anything; `right`: of the gold answers themselves. Wilson intervals;
    `failures`: pairs it gave no verdict on.
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


async def calibrate_answers(
    judge: Any, examples: Iterable[Example], *, most: int = 30, seed: int = 0
) -> AnswerCalibration:
    """Ask `judge` (an evaluator such as `MemoryJudge`) about known answers to at most `most` of the examples: up to
    three calls each.

    An answer counts as accepted from a score of 0.5 on, by the first of the judge's `fields`. Wrong answers that share
    a word with the gold are not used. Raises `BadInput` if no example has a question and a gold answer.
    """
    known = [example for example in examples if golds(example) and example.get("question")]
    if not known:
        raise BadInput("a judge is calibrated on questions with gold answers; these examples have none")
    rng = random.Random(seed)
    chosen = rng.sample(known, min(most, len(known)))
    found = AnswerCalibration(getattr(judge, "name", type(judge).__name__))
    found.specific = await _accepted(
        judge, [(one, wrong) for one in chosen if (wrong := _other_gold(one, known, rng))], found
    )
    found.vague = await _accepted(judge, [(one, vague(one)) for one in chosen], found)
    found.right = await _accepted(judge, [(one, golds(one)[0]) for one in chosen], found)
    return found


def vague(example: Example) -> str:
    """An answer that touches the subject and says nothing."""
    subject = [word for word in dict.fromkeys(tokens(str(example["question"]))) if word not in _SMALL]
    return f"It had to do with {' '.join(subject) or 'that'}, as they said when it came up."


def _other_gold(example: Example, known: Sequence[Example], rng: random.Random) -> str | None:
    """The gold answer of another question, of the same type if there is one, that has nothing of this one's; `None` if
    there is none.
    """
    own = golds(example)
    others = [
        gold
        for other in known
        for gold in golds(other)[:1]
        if all(f1_score(gold, mine) == 0 and not contains(gold, mine) and not contains(mine, gold) for mine in own)
    ]
    alike = [
        gold
        for other in known
        if other.get("qa_type") == example.get("qa_type")
        for gold in golds(other)[:1]
        if gold in set(others)
    ]
    return rng.choice(alike or others) if others else None


async def _accepted(judge: Any, pairs: Sequence[tuple[Example, str]], found: AnswerCalibration) -> Estimate | None:
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
