"""Shared by the commands about judges: outputs of a stored run under opaque ids, a sample of them, the judge that a run
had.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import seed_of
from context_bench.core.roles import CANDIDATE, ArmRole, roles_in
from context_bench.judge.judge_replies import opaque_id
from context_bench.llm.redact import key_in
from context_bench.session import run_parts

if TYPE_CHECKING:
    from context_bench.judge.audit import AuditItem
    from context_bench.judge.rubric_judge import RubricJudge
    from context_bench.session.options import RunOptions

SCORE = "rubric_overall"

#: What the built-in methods do, for a judge that is asked which of them made something; never their names.
METHODS = {
    "full": "Nothing was shortened: the conversation stands as it was.",
    "none": "All of it was left out.",
    "tail_only": "All of it was left out.",
    "head_tail": "The beginning and the end were kept, the middle was cut out.",
    "random_drop": "Words or sentences were dropped at random.",
    "window": "Only the last few exchanges were kept.",
    "mask_observations": "Results of tools were replaced by short notes that they were left out.",
    "dedupe": "What had been shown before was left out.",
    "bm25": "Sentences or messages were picked by their words.",
    "embedding": "Passages were picked by their meaning.",
    "regenerative": "A model wrote a new summary of everything.",
    "anchored": "A model or a program kept one structured summary with fixed sections up to date.",
    "anchored_iterative": "A model or a program kept one structured summary with fixed sections up to date.",
}


@dataclass(slots=True)
class JudgedOutput:
    """One output of a run: the item, what a judge made of it, and where it stands. `cluster`: its session."""

    item: AuditItem
    score: float | None
    failed: bool
    cluster: str
    example_id: str
    trial: int

    @property
    def unit(self) -> str:
        """The example, which other systems answered too."""
        return f"{self.cluster}|{self.example_id}|{self.trial}"


@dataclass(slots=True)
class Loaded:
    """A stored run as judges see it."""

    store: Any
    record: Any
    run_key: str
    outputs: list[JudgedOutput] = field(default_factory=list)

    @property
    def systems(self) -> list[str]:
        """Those that gave an answer, in order."""
        return list(dict.fromkeys(each.item.system for each in self.outputs))

    def of(self, system: str) -> list[JudgedOutput]:
        """The outputs of one system."""
        return [each for each in self.outputs if each.item.system == system]


@contextmanager
def loaded(store: str, run: str, score: str = SCORE) -> Iterator[Loaded]:
    """A run's answered probes; `BadInput` if it has none."""
    from context_bench.engine.manifest import blinding
    from context_bench.engine.store.reading import stored
    from context_bench.judge.audit import AuditItem
    from context_bench.session.runs import found_in, opened_store

    with opened_store(store) as opened:
        record = found_in(opened, run)
        found = Loaded(opened, record, str(blinding(record.manifest)["seal"]))
        for each in stored(opened, record.number):
            if (
                each.row.failed
                or not each.example
                or not isinstance(each.output.get("response"), str)
                or not each.example.get("question")
            ):
                continue
            example, row = each.example, each.row
            session, point = (
                str(example.get("cluster") or row.cluster or ""),
                str(example.get("group") or row.group or ""),
            )
            probe = f"{row.example_id}|{row.trial}"
            name = opaque_id(found.run_key, each.system, session, point, probe)
            kept = {
                key: value for key, value in example.items() if key != "session"
            }  # no judge is shown it, and it is long
            item = AuditItem(name, each.system, kept, _output(example, each.output))
            score_found = row.scores.get(score)
            found.outputs.append(
                JudgedOutput(
                    item,
                    score_found,
                    "rubric_judge" in row.errors,
                    session or str(row.example_id),
                    str(row.example_id),
                    row.trial,
                )
            )
        if not found.outputs:
            raise BadInput(
                f"run {record.name!r} holds no answer to a question that could be judged; it needs examples with a "
                "question and "
                "outputs with a response, and must not have been made with --bodies none"
            )
        yield found


def _output(example: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an output that a judge is shown: the rest of it is not kept in memory."""
    return {"response": output["response"], "context": output.get("context", example.get("context"))}


def sample(outputs: Sequence[JudgedOutput], n: int, seed: int) -> list[JudgedOutput]:
    """So many outputs, as evenly as can be over systems, and within each over the range of its scores, in seeded
    order.
    """
    systems: dict[str, list[JudgedOutput]] = {}
    for each in sorted(outputs, key=lambda one: one.item.id):
        systems.setdefault(each.item.system, []).append(each)
    queues = {name: _spread(mine, seed) for name, mine in sorted(systems.items())}
    chosen: list[JudgedOutput] = []
    while len(chosen) < n and any(queues.values()):
        for queue in queues.values():
            if queue and len(chosen) < n:
                chosen.append(queue.pop(0))
    random.Random(seed_of("sample", seed)).shuffle(chosen)
    return chosen


@dataclass(frozen=True, slots=True)
class DrawnAnswer:
    """An answer that is to be labelled. `band`: the rounded mean of the judge's scores of its example's answers, −1
    without; `share`: of all examples, those in that band.
    """

    output: JudgedOutput
    band: int
    share: float


def sample_for_labels(
    outputs: Sequence[JudgedOutput], systems: Sequence[str], n: int, seed: int, scale: float = 1.0
) -> list[DrawnAnswer]:
    """The answers of `systems` to as many examples as make up `n` answers, at least one example: examples are drawn
    from each band in turn, and shuffled. Examples that not all of the systems answered are left out. `scale`: as of
    `rating_scale`.
    """
    bands = bands_of(outputs, systems, scale)
    by_band: dict[int, list[str]] = {}
    for unit, band in sorted(bands.items()):
        by_band.setdefault(band, []).append(unit)
    for band, units in by_band.items():
        random.Random(seed_of("band", seed, band)).shuffle(units)
    queues = {band: list(units) for band, units in sorted(by_band.items())}
    drawn: list[str] = []
    while len(drawn) < max(1, n // len(systems)) and any(queues.values()):
        drawn += [queue.pop(0) for queue in queues.values() if queue]
    chosen = set(drawn[: max(1, n // len(systems))])
    answers = [
        DrawnAnswer(each, bands[each.unit], len(by_band[bands[each.unit]]) / len(bands))
        for each in sorted(outputs, key=lambda one: one.item.id)
        if each.unit in chosen and each.item.system in systems
    ]
    random.Random(seed_of("sample", seed)).shuffle(answers)
    return answers


def rating_scale(score: str) -> float:
    """People rate from 0 to 5: points of theirs in one of the score (a rubric's scores are on their scale, others lie
    in [0, 1]).
    """
    return 1.0 if score.startswith("rubric_") else 5.0


def bands_of(outputs: Sequence[JudgedOutput], systems: Sequence[str], scale: float = 1.0) -> dict[str, int]:
    """Example that all of `systems` answered → its band, in people's points: the rounded mean of the judge's scores, −1
    where one is missing.
    """
    scores: dict[str, dict[str, float | None]] = {}
    for each in outputs:
        if each.item.system in systems:
            scores.setdefault(each.unit, {})[each.item.system] = each.score
    return {
        unit: -1 if None in own.values() else round(scale * fmean(score for score in own.values() if score is not None))
        for unit, own in scores.items()
        if len(own) == len(systems)
    }


def labelled_systems(found: Loaded) -> list[str]:
    """The systems whose answers people are asked about: those under test and the baseline; all of a run of controls."""
    roles = roles_in(found.record.manifest, found.systems)
    asked = [name for name in found.systems if roles[name].role in ("candidate", "baseline")]
    return asked if any(roles[name].role == "candidate" for name in asked) else found.systems


def baseline_of(found: Loaded) -> str | None:
    """The arm that the run's others are compared with; `None` without one."""
    roles = roles_in(found.record.manifest, found.systems)
    return next((name for name in found.systems if roles[name].role == "baseline"), None)


def _spread(outputs: list[JudgedOutput], seed: int) -> list[JudgedOutput]:
    """The outputs of one system in an order whose every beginning covers its scores: one from each band of one point in
    turn.
    """
    bands: dict[float, list[JudgedOutput]] = {}
    for each in outputs:
        bands.setdefault(-1.0 if each.score is None else round(each.score), []).append(each)
    for name, band in bands.items():
        random.Random(seed_of("band", seed, name)).shuffle(band)
    order: list[JudgedOutput] = []
    while any(bands.values()):
        order += [band.pop(0) for _, band in sorted(bands.items()) if band]
    return order


def judge_of(
    record: Any,
    url: str | None,
    model: str | None,
    key_env: str,
    *,
    limits: RunOptions | None = None,
    cache: Any = None,
    cache_only: bool = False,
    **settings: Any,
) -> RubricJudge:
    """The rubric judge that a run had, or one at `url`; settings that are not given are those of the run. `limits`: how
    it is asked.
    """
    from context_bench.judge.rubric_judge import RubricJudge

    had = fingerprint_of(record.manifest, "rubric_judge")
    options = record.manifest.get("options") or {}
    base = url or had.get("base_url")
    if not base:
        raise BadInput(
            "this run was not judged by a rubric judge that could be asked; name one with --judge-url URL (and "
            "--judge-model)"
        )
    known = {"criteria": had.get("criteria"), "visibility": had.get("visibility"), "seed": had.get("seed")}
    known |= {"rubric": options.get("rubric"), "replicates": had.get("replicates")}
    chosen = {name: value for name, value in (known | settings).items() if value is not None}
    name = model or had.get("model") or options.get("judge_model") or "gpt-4"
    return RubricJudge(
        str(base), name, key_in(key_env), cache=cache, cache_only=cache_only, **chosen, **asked_by(limits, str(base))
    )


def asked_by(limits: RunOptions | None, url: str) -> dict[str, Any]:
    """Settings of a client for the judge at `url`: patience, prices and limits."""
    if limits is None:
        return {}
    from context_bench.session.run_parts import Accounts

    return {**run_parts.patience(limits), "prices": run_parts.prices(limits), "limiter": Accounts(limits).of_judge(url)}


@contextmanager
def under_limits(limits: RunOptions) -> Iterator[None]:
    """Hold the money that a judge spends in the block below `--max-cost`."""
    from context_bench.core.ledger import Ledger, open_ledger
    from context_bench.llm.spend import SpendLimit

    spend = SpendLimit(limits.max_cost) if limits.max_cost is not None else None
    with open_ledger(Ledger(account="judge", spend=spend)):
        yield


def fingerprint_of(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A run's record of an evaluator of its own, or of the latest that judged its answers again; empty without one."""
    own = [each for each in (manifest.get("engine") or {}).get("evaluators") or [] if each.get("name") == name]
    again = [
        found
        for each in manifest.get("rescored") or []
        for key, found in (each.get("fingerprints") or {}).items()
        if key == name
    ]
    return dict(again[-1] if again else own[-1]["fingerprint"] if own else {})


def methods_of(systems: Sequence[str], told: Mapping[str, str], roles: Mapping[str, ArmRole]) -> dict[str, str]:
    """System → what it does, where that is known: as told, else for methods built in. Descriptions that two share tell
    nothing apart.
    """
    known = {name: told.get(name) or METHODS.get(roles.get(name, CANDIDATE).kind or "") for name in systems}
    found: dict[str, str] = {}
    for name, text in known.items():
        if text and text not in found.values():
            found[name] = text
    return found


def families_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """System → family of the model that answered for it, where a run says."""
    from context_bench.judge.calibration import family_of

    systems = (manifest.get("engine") or {}).get("systems") or []
    found = {str(each.get("name")): family_of(_model_in(each.get("fingerprint"))) for each in systems}
    return {name: family for name, family in found.items() if family}


def _model_in(told: Any) -> str | None:
    """The model of a fingerprint; of the reader rather than of the compressor."""
    if not isinstance(told, Mapping):
        return None
    if isinstance(told.get("model"), str):
        return str(told["model"])
    inner = [_model_in(told.get(name)) for name in ("reader", "inner", "system")]
    return next((model for model in inner if model), None)


def models_of(manifest: Mapping[str, Any]) -> dict[str, str | None]:
    """Role → model, as far as a run says."""
    options = manifest.get("options") or {}
    models = options.get("model") or []
    answered = options.get("responder") not in (None, "sentence")
    return {"responder": models[0] if models and answered else None}
