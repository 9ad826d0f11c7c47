"""Calibration of judges: against people's ratings of the same items, and on answers that are known to be right or
wrong.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput, EvaluatorFailed, describe
from context_bench.core.measures import percent
from context_bench.core.records import Estimate, Example
from context_bench.core.text import contains, f1_score, tokens
from context_bench.evaluators.answer_quality import golds
from context_bench.stats.agreement import (
    Corrected,
    Label,
    alpha_ordinal,
    kendall_tau,
    labelled_mean,
    rogan_gladen,
    spearman,
    weighted_kappa,
)

FIRM, TENTATIVE = 0.8, 0.667
ENOUGH = 100  # labels below which agreement is a rough figure
PER_SYSTEM = 20  # labels of a system below which its mean is not corrected; of fewer an interval covers too little
RESAMPLES = 1_000  # of the labelled items, for the interval of α
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

    `unit`: the example that it answers (default: one of its own). `band`, `share`: the stratum that it was drawn from
    and the share of the units that lie in it; without a share the item counts as drawn from its system's answers of the
    same rounded score.
    """

    id: str
    system: str
    judge: float
    humans: tuple[float | None, ...]
    unit: str = ""
    band: int | None = None
    share: float | None = None

    @property
    def human(self) -> float | None:
        """Mean of the ratings there are."""
        given = [rating for rating in self.humans if rating is not None]
        return fmean(given) if given else None


@dataclass(frozen=True, slots=True)
class JudgedUnit:
    """The judge's rating of a system's answer to one example, and the cluster (session, document) that it lies in.

    `band`: the stratum of the example among those that labels are drawn from.
    """

    unit: str
    rating: float
    cluster: str = ""
    band: int | None = None


@dataclass(frozen=True, slots=True)
class PeoplesDifference:
    """Mean rating of a system less the baseline's as people would give it, by `labels` examples of which they rated
    both answers, out of `n` that the judge rated. `tuned`: by PPI++.
    """

    baseline: str
    value: float
    se: float
    df: float
    skew: float
    labels: int
    n: int
    tuned: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """Agreement of a judge and people on `n` items, each weighted by the share of answers that it stands for.

    `kappa` (quadratic weights) and `alpha` (Krippendorff, ordinal, all raters and the judge) of whole ratings, with
    α's 90 % interval over resampled examples; `alpha_humans` among people where there are several; `spearman` of
    ratings as they are; `signed_error` by system: mean of judge − human, a bias for or against it; `tau` of the order
    of systems. `label`, by α's lower end: `firm` from 0.8, `tentative` from 0.667, else `uncalibrated`. `corrected`: by
    system, the mean rating as people would give it (prediction-powered, from 20 labels on or where all are labelled,
    held within 0 and 5) and the share of ratings of at least 3 (Rogan–Gladen), where they can be had. `differences`: by
    system, what people would say of it beside the baseline.
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
    alpha_low: float | None = None
    alpha_high: float | None = None
    differences: dict[str, PeoplesDifference] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def calibrate(
    labels: Sequence[Labelled],
    judged: Mapping[str, Sequence[JudgedUnit]],
    passed: float = PASSED,
    *,
    baseline: str | None = None,
    seed: int = 0,
) -> Calibration:
    """Hold a judge against people. `judged`: by system, all of the judge's ratings in the run; the labelled items are a
    sample of them, drawn band by band. `baseline`: the system that the others are set beside.
    """
    pairs = [(each, mean) for each in labels if (mean := each.human) is not None]
    judge, human = [each.judge for each, _ in pairs], [value for _, value in pairs]
    whole = [float(round(value)) for value in judge]
    raters = list(zip(*(each.humans for each, _ in pairs), strict=True)) if pairs else []
    weights = _weights([each for each, _ in pairs], judged)
    alpha = alpha_ordinal([whole, *raters], weights) if pairs else None
    low, high = _alpha_interval([whole, *raters], weights, [each.unit or each.id for each, _ in pairs], seed)
    by_system: dict[str, list[tuple[Labelled, float]]] = {}
    for each, value in pairs:
        by_system.setdefault(each.system, []).append((each, value))
    weight_of = {each.id: weight for (each, _), weight in zip(pairs, weights, strict=True)}
    means = {
        name: (
            _mean([(weight_of[each.id], each.judge) for each, _ in own]),
            _mean([(weight_of[each.id], value) for each, value in own]),
        )
        for name, own in by_system.items()
    }
    notes = [] if len(pairs) >= ENOUGH else [f"{len(pairs)} labels; below {ENOUGH} agreement is a rough figure"]
    if thin := sorted(set(judged) - set(by_system)):
        notes.append(f"no label of {', '.join(thin)}")
    others = [name for name in by_system if baseline in by_system and name != baseline]
    differences = {name: _difference(by_system, judged, name, str(baseline)) for name in others}
    return Calibration(
        n=len(pairs),
        kappa=weighted_kappa(whole, [float(round(value)) for value in human], weights),
        alpha=alpha,
        alpha_humans=alpha_ordinal(raters, weights) if len(raters) > 1 else None,
        spearman=spearman(judge, human),
        signed_error={name: f - y for name, (f, y) in means.items()},
        tau=kendall_tau([f for f, _ in means.values()], [y for _, y in means.values()]) if len(means) > 2 else None,
        label=label_of(low),
        corrected={
            name: {
                "mean": _people_mean(judged.get(name, ()), own),
                "pass_rate": _pass_rate([each.rating for each in judged.get(name, ())], pairs, weights, passed),
            }
            for name, own in by_system.items()
        },
        notes=notes,
        alpha_low=low,
        alpha_high=high,
        differences={name: found for name, found in differences.items() if found is not None},
    )


def label_of(alpha: float | None) -> str:
    """The label of a judge whose agreement is at least this."""
    return "uncalibrated" if alpha is None or alpha < TENTATIVE else "tentative" if alpha < FIRM else "firm"


def _mean(weighed: Sequence[tuple[float, float]]) -> float:
    """The mean of values with their weights."""
    return sum(weight * value for weight, value in weighed) / sum(weight for weight, _ in weighed)


def _strata(own: Sequence[Labelled], judged: Sequence[JudgedUnit]) -> list[Label]:
    """The stratum of each labelled item of one system: the one it was drawn from, else its rounded score; `human` is
    left open.
    """
    sizes = Counter(round(each.rating) for each in judged)
    return [
        Label(0.0, each.band, each.share)
        if each.share is not None
        else Label(0.0, round(each.judge), sizes[round(each.judge)] / len(judged) if sizes[round(each.judge)] else 1.0)
        for each in own
    ]


def _weights(items: Sequence[Labelled], judged: Mapping[str, Sequence[JudgedUnit]]) -> list[float]:
    """Items that each labelled one stands for: its band's share of its system's answers over the labels there."""
    weights = [1.0] * len(items)
    for system in {each.system for each in items}:
        places = [place for place, each in enumerate(items) if each.system == system]
        strata = _strata([items[place] for place in places], judged.get(system, ()))
        drawn = Counter(each.band for each in strata)
        for place, stratum in zip(places, strata, strict=True):
            weights[place] = len(places) * stratum.share / drawn[stratum.band]
    return weights


def _alpha_interval(
    ratings: Sequence[Sequence[float | None]], weights: Sequence[float], units: Sequence[str], seed: int
) -> tuple[float | None, float | None]:
    """The 90 % interval of α: examples drawn again with all their items (percentiles of 1,000 draws). `None` where
    fewer than half of the draws have an α.
    """
    places: dict[str, list[int]] = {}
    for place, unit in enumerate(units):
        places.setdefault(unit, []).append(place)
    rng, found = random.Random(seed), []
    for _ in range(RESAMPLES if len(places) > 1 else 0):
        drawn = [place for unit in rng.choices(list(places), k=len(places)) for place in places[unit]]
        columns = [[column[place] for place in drawn] for column in ratings]
        if (alpha := alpha_ordinal(columns, [weights[place] for place in drawn])) is not None:
            found.append(alpha)
    if len(found) <= RESAMPLES / 2:
        return None, None
    found.sort()
    return found[len(found) // 20], found[len(found) - 1 - len(found) // 20]


def _people_mean(judged: Sequence[JudgedUnit], own: Sequence[tuple[Labelled, float]]) -> Corrected | None:
    """A system's mean rating as people would give it, by its own labels."""
    if len(own) < min(PER_SYSTEM, len(judged)):
        return None
    place = {each.unit: at for at, each in enumerate(judged)}
    strata = _strata([each for each, _ in own], judged)
    labels = {
        place[each.unit]: replace(stratum, human=value)
        for (each, value), stratum in zip(own, strata, strict=True)
        if each.unit in place
    }
    mean = labelled_mean([each.rating for each in judged], labels, _bands(judged, own), _clusters(judged))
    return mean and replace(mean, value=min(5.0, max(0.0, mean.value)))


def _bands(judged: Sequence[JudgedUnit], own: Sequence[tuple[Labelled, float]]) -> list[int | None]:
    """The stratum of every item of a system: that of its example where labels were drawn so, else its rounded score."""
    by_unit = all(each.share is not None for each, _ in own)
    return [each.band if by_unit else round(each.rating) for each in judged]


def _clusters(judged: Sequence[JudgedUnit]) -> list[str]:
    return [each.cluster or f"{at}" for at, each in enumerate(judged)]


def _difference(
    labelled: Mapping[str, Sequence[tuple[Labelled, float]]],
    judged: Mapping[str, Sequence[JudgedUnit]],
    system: str,
    baseline: str,
) -> PeoplesDifference | None:
    """The difference in people's eyes: the judge's paired difference over all examples, corrected by those of which
    people rated both answers; `None` below 20 of these, unless all were rated.
    """
    theirs = {each.unit: each.rating for each in judged.get(baseline, ())}
    both = [each for each in judged.get(system, ()) if each.unit in theirs]
    place = {each.unit: at for at, each in enumerate(both)}
    rated = {each.unit: value for each, value in labelled[baseline]}
    pairs = [(each, value) for each, value in labelled[system] if each.unit in rated and each.unit in place]
    if len(pairs) < min(PER_SYSTEM, len(both)):
        return None
    strata = _strata([each for each, _ in pairs], both)
    labels = {
        place[each.unit]: replace(stratum, human=value - rated[each.unit])
        for (each, value), stratum in zip(pairs, strata, strict=True)
    }
    tuned = len(pairs) >= ENOUGH
    gaps = [each.rating - theirs[each.unit] for each in both]
    mean = labelled_mean(gaps, labels, _bands(both, pairs), _clusters(both), tuned=tuned)
    if mean is None:
        return None
    return PeoplesDifference(baseline, mean.value, mean.se, mean.df, mean.skew, len(pairs), len(both), tuned)


def _pass_rate(
    judged: Sequence[float], pairs: Sequence[tuple[Labelled, float]], weights: Sequence[float], passed: float
) -> Corrected | None:
    """The share of a system's answers that people would pass, by the judge's errors on all labelled ones."""
    weighed = list(zip(pairs, weights, strict=True))
    good = [(each.judge >= passed, weight) for (each, value), weight in weighed if value >= passed]
    bad = [(each.judge < passed, weight) for (each, value), weight in weighed if value < passed]
    if not good or not bad or not judged:
        return None
    share = sum(value >= passed for value in judged) / len(judged)
    right, wrong = (sum(w for hit, w in side if hit) / sum(w for _, w in side) for side in (good, bad))
    return rogan_gladen(share, len(judged), right, len(good), wrong, len(bad))


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
    ends = ", ".join(percent(end) for end in (each.low, each.high) if end is not None)
    return f"{percent(each.value)} [{ends}]"
