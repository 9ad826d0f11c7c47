"""A rubric: criteria in dimensions, and what becomes of a judge's reply to it.

```python
reply = parse_rubric_reply(text, ["accuracy_factual", "completeness_coverage"])
reply.scores, reply.missing, reply.status        # {"accuracy_factual": 4.0, …}, [], "ok"
aggregate_rubric(reply.scores).overall           # mean of the dimensions; `None` if nothing was scored
```

The aggregates that a judge writes down are never used: they are worked out again from its criterion scores.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any, NamedTuple

from context_bench.core.errors import BadInput
from context_bench.core.keys import load_json, stable_hash
from context_bench.core.numbers import amount

LOWEST, HIGHEST = 0.0, 5.0
Weights = Mapping[str, Mapping[str, float]]

_OPENING = re.compile(r'\{\s*["}]')


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that is judged, from 0 to 5. `anchors`: what a 0, a 3 and a 5 look like. `weight`: within its
    dimension.
    """

    id: str
    dimension: str
    question: str
    anchors: Mapping[str, str]
    weight: float


@dataclass(frozen=True, slots=True)
class Dimension:
    """Criteria that are averaged together. `title`: its column. `probes`: types of probe that it is asked of (empty: of
    all).
    """

    id: str
    title: str
    probes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rubric:
    """Dimensions and criteria in order. Its `hash` belongs with every result."""

    name: str
    dimensions: tuple[Dimension, ...]
    criteria: tuple[Criterion, ...]

    @property
    def weights(self) -> dict[str, dict[str, float]]:
        """Dimension → criterion → weight."""
        return {d.id: {c.id: c.weight for c in self.criteria if c.dimension == d.id} for d in self.dimensions}

    @property
    def hash(self) -> str:
        """Changes with any text or weight."""
        told = [[c.id, c.dimension, c.question, dict(c.anchors), c.weight] for c in self.criteria]
        return stable_hash(["rubric", told, [[d.id, d.title, list(d.probes)] for d in self.dimensions]])

    def asked_of(self, probe_type: str, mode: str = "by_probe") -> list[Criterion]:
        """The criteria for a probe: `all` of them, or those of the dimensions that its type is about (`by_probe`)."""
        if mode not in ("all", "by_probe"):
            raise BadInput(f"criteria mode is {mode!r}; expected all or by_probe")
        about = {d.id for d in self.dimensions if mode == "all" or not d.probes or probe_type in d.probes}
        return [criterion for criterion in self.criteria if criterion.dimension in about]


class Aggregate(NamedTuple):
    """`dimensions`: weighted mean of its scored criteria, where any was; `overall`: unweighted mean of these, `None`
    without any.
    """

    dimensions: dict[str, float]
    overall: float | None


@dataclass(frozen=True, slots=True)
class RubricReply:
    """The readable part of a judge's reply. `status`: `ok` (all that was asked), `partial`, or `failed` (none: nothing
    to average).
    """

    scores: dict[str, float]
    missing: list[str]
    status: str
    reasons: dict[str, str] = field(default_factory=dict)
    error: str | None = None


@lru_cache(maxsize=1)
def default_rubric() -> Rubric:
    """Six dimensions and 14 criteria with the weights of compression.md §2.4."""
    return read_rubric(
        tomllib.loads(resources.files("context_bench.core").joinpath("rubric.toml").read_text("utf-8")),
        "the built-in rubric",
    )


def read_rubric(data: Mapping[str, Any], where: str) -> Rubric:
    """A rubric from a decoded file: `[[dimension]]` with `id`, `title`, optional `probes`; `[[dimension.criterion]]`
    with `id`, `question`, `weight` and `anchors`. `BadInput` names what is wrong.
    """
    dimensions, criteria = [], []
    for number, raw in enumerate(_tables(data, "dimension", where), 1):
        name = _text(raw, "id", f"{where}: dimension {number}")
        probes = raw.get("probes") or []
        if not isinstance(probes, list):
            raise BadInput(
                f'{where}: probes of {name} are {probes!r:.60}; expected a list of names, such as probes = ["recall"]'
            )
        dimensions.append(Dimension(name, str(raw.get("title") or name), tuple(map(str, probes))))
        criteria += [
            _criterion(each, name, f"{where}: {name}") for each in _tables(raw, "criterion", f"{where}: {name}")
        ]
    for kind, names in (("dimension", [d.id for d in dimensions]), ("criterion", [c.id for c in criteria])):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadInput(f"{where}: {kind} {twice[0]!r} is there twice; each name may stand once")
    return Rubric(str(data.get("name") or where), tuple(dimensions), tuple(criteria))


def aggregate_rubric(scores: Mapping[str, float], weights: Weights | None = None) -> Aggregate:
    """Dimensions as weighted means of their scored criteria, and their unweighted mean (seed 3; compression.md §2.3).

    A criterion without a score is left out and the weights of the others count for it; a dimension without any is
    absent. Criteria that no dimension has are ignored. `weights`: dimension → criterion → weight; without, those of the
    built-in rubric.
    """
    dimensions = {}
    for name, parts in (default_rubric().weights if weights is None else weights).items():
        scored = {
            criterion: weight for criterion, weight in parts.items() if _is_score(scores.get(criterion)) and weight > 0
        }
        if whole := sum(scored.values()):
            dimensions[name] = sum(weight * float(scores[criterion]) for criterion, weight in scored.items()) / whole
    return Aggregate(dimensions, sum(dimensions.values()) / len(dimensions) if dimensions else None)


def parse_rubric_reply(reply: str, requested: Sequence[str]) -> RubricReply:
    """Read a judge's reply strictly: the first JSON object with `criterionResults` (the whole reply, else a fenced
    block, else the first balanced object that stands outside of any string). Never digits out of prose.

    Numbers may be written as text. What is no number from 0 to 5 is not a score (it is not clamped); criteria that were
    not asked for are ignored; one scored twice with different numbers has no score; JSON that was cut off is a failure.
    """
    results = next((found for text in _places(reply) if (found := _results(text)) is not None), None)
    if results is None:
        return RubricReply({}, list(requested), "failed", error="no JSON object with criterionResults")
    given: dict[str, list[float]] = {}
    reasons: dict[str, str] = {}
    for result in results:
        name = result.get("criterionId") if isinstance(result, Mapping) else None
        if not isinstance(name, str) or name not in requested:
            continue
        reasons.setdefault(name, str(result.get("reasoning") or ""))
        score = _score(result.get("score"))
        given.setdefault(name, []).append(math.nan if score is None else score)
    scores = {
        name: values[0]
        for name in requested
        if (values := given.get(name)) and len(set(values)) == 1 and not math.isnan(values[0])
    }
    missing = [name for name in requested if name not in scores]
    status = "ok" if not missing else "partial" if scores else "failed"
    return RubricReply(scores, missing, status, reasons, None if scores else "no criterion has a score")


def verdicts_in(text: str) -> list[str]:
    """The JSON objects with `criterionResults` that stand in a text, as they stand there."""
    return [found for found in _objects(text) if _results(found) is not None] if "criterionResults" in text else []


def _tables(data: Mapping[str, Any], name: str, where: str) -> Iterable[Mapping[str, Any]]:
    found = data.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(each, Mapping) for each in found):
        raise BadInput(f"{where}: no {name}; expected a list of tables [[{name}]]")
    return found


def _text(raw: Mapping[str, Any], name: str, where: str) -> str:
    if not isinstance(raw.get(name), str) or not raw[name].strip():
        raise BadInput(f"{where}: {name} is {raw.get(name)!r}; expected text")
    return str(raw[name])


def _criterion(raw: Mapping[str, Any], dimension: str, where: str) -> Criterion:
    name = _text(raw, "id", where)
    weight, anchors = amount(raw.get("weight", 1.0)), raw.get("anchors")
    if weight is None:
        raise BadInput(f"{where}: the weight of {name} is {raw['weight']!r:.60}; expected a number of at least 0")
    if not isinstance(anchors, Mapping) or not anchors:
        raise BadInput(f"{where}: {name} has no anchors; expected what its scores mean, such as 0, 3 and 5")
    return Criterion(
        name, dimension, _text(raw, "question", where), {str(at): str(what) for at, what in anchors.items()}, weight
    )


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and LOWEST <= value <= HIGHEST


def _score(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value.strip()) if re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", value, re.ASCII) else None
        except ValueError:
            return None
    return float(value) if _is_score(value) else None


def _places(reply: str) -> Iterable[str]:
    """Places where the object may be, in the order of the search."""
    whole = reply.strip()
    yield whole
    if not whole.startswith("{"):  # else a fence stands within it
        yield from re.findall(r"```[\w-]*[ \t]*\n(.*?)```", reply, re.DOTALL)
    yield from _objects(reply)


def _objects(text: str) -> Iterable[str]:
    """The outermost balanced objects of a text, strings and their escapes minded. A brace of prose (no string behind
    it) opens nothing.
    """
    depth = start = 0
    quoted = escaped = False
    for at, char in enumerate(text):
        if quoted:
            quoted, escaped = (escaped or char != '"'), (char == "\\" and not escaped)
        elif char == '"' and depth:
            quoted = True
        elif char == "{" and (depth or _OPENING.match(text, at)):
            start, depth = (at if not depth else start), depth + 1
        elif char == "}" and depth:
            depth -= 1
            if not depth:
                yield text[start : at + 1]


def _results(text: str) -> list[Any] | None:
    if "criterionResults" not in text:
        return None
    try:
        value = load_json(text)
    except ValueError:
        return None
    found = value.get("criterionResults") if isinstance(value, Mapping) else None
    return found if isinstance(found, list) else None
