"""The manifest of a run, with which it can be repeated: programs, machine, settings, systems, evaluators. Never a
secret.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from context_bench.core.keys import stable_hash
from context_bench.core.lazy import version_of
from context_bench.core.roles import roles_of_cell
from context_bench.engine.plan import PlannedArm, PlannedEvaluator, RunSettings
from context_bench.engine.store.run_records import RunRecord

#: Packages whose version can change a number in a report.
_MATTER = (
    "aiohttp",
    "genai-prices",
    "huggingface-hub",
    "numpy",
    "onnxruntime",
    "orjson",
    "pyarrow",
    "rapidfuzz",
    "scipy",
    "splintr-rs",
    "sqlalchemy",
    "xllamacpp",
)
PACKAGE = "context-bench-tool"


def without_context(manifest: Mapping[str, Any]) -> list[str]:
    """The run's datasets whose text is the question itself, which tell nothing of a loss of context; none if the user
    said they do.
    """
    if (manifest.get("options") or {}).get("force"):
        return []
    return [str(one["name"]) for one in manifest.get("datasets") or [] if one.get("has_context") is False]


def environment() -> dict[str, Any]:
    """Python, platform, this package and the packages that matter, with their versions."""
    return {
        "python": sys.version.split()[0],
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "package": program(),
        "dependencies": {name: found for name in _MATTER if (found := version_of(name)) is not None},
    }


def program() -> str | None:
    """The version of this package."""
    return version_of(PACKAGE)


def configuration(run: RunRecord, metrics: Sequence[Any], examples: int) -> dict[str, Any]:
    """The documented `config` of a stored run's result: names, counts, and nothing that a second look would change.
    Evaluators that judged stored answers again are among its own.
    """
    engine = run.manifest.get("engine") or {}
    later = [name for judging in run.manifest.get("rescored", []) for name in judging["evaluators"]]
    return {
        "systems": run.systems,
        "evaluators": list(dict.fromkeys([*(each["name"] for each in engine.get("evaluators") or []), *later])),
        "metrics": [metric.name for metric in metrics],
        "num_examples": examples,
        "max_workers": (engine.get("settings") or {}).get("max_workers") or 1,
    }


def described(
    manifest: dict[str, Any],
    arms: Sequence[PlannedArm],
    evaluators: Sequence[PlannedEvaluator],
    settings: RunSettings,
    recorder: Any,
) -> dict[str, Any]:
    """The caller's manifest with the engine's own part under `engine`, and the margin with its hash: what was asked
    before anything ran.
    """
    margin = manifest.get("margin")
    whole = {
        **manifest,
        **({"margin": {**margin, "hash": stable_hash(margin)}} if isinstance(margin, dict) else {}),
        "engine": {
            "environment": environment(),
            "settings": asdict(settings),
            "systems": [
                {"name": arm.name, "fingerprint": arm.fingerprint, "budget_from": arm.arm.budget_from, "key": arm.key}
                for arm in arms
            ],
            "evaluators": [
                {
                    "name": each.name,
                    "version": getattr(each.evaluator, "version", None),
                    "fingerprint": each.fingerprint,
                }
                for each in evaluators
            ],
            "marker": getattr(recorder, "marker", None),
        },
    }
    design = {**(manifest.get("design") or {}), **_second_baselines(manifest, arms)}
    whole |= {"design": design} if design else {}
    return whole | ({"blinding": blinding(whole)} if any(each.after for each in evaluators) else {})


def _second_baselines(manifest: Mapping[str, Any], arms: Sequence[PlannedArm]) -> dict[str, dict[str, str]]:
    """The entry of the design that names, for a baseline, the arm that is its second answer: the first that repeats it
    on every example.
    """
    whole, found = {arm.name for arm in arms if arm.arm.every == 1}, dict[str, str]()
    for cell in manifest.get("cells") or []:
        base = cell.get("baseline")
        for name, own in roles_of_cell(cell).items():
            if base in whole and name in whole and own.role == "noise_floor" and own.of in (None, base):
                found.setdefault(base, name)
    return {"second_baseline": found} if found else {}


def blinding(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The key behind the opaque ids under which a run's outputs are judged (`judge.judge_replies.opaque_id`), and the
    seed of their order.

    The key follows from the systems and the seed: equal runs are written alike, and who judges, or judges again,
    changes no id.
    """
    if isinstance(sealed := manifest.get("blinding"), dict):
        return sealed
    engine = manifest.get("engine") or {}
    keys = sorted(str(each.get("key")) for each in engine.get("systems") or [])
    seed = int((engine.get("settings") or {}).get("seed") or 0)
    # Not called a key: what is called so is taken for a secret and left out of manifests.
    return {"seal": stable_hash(["blinding", keys, seed]), "seed": seed}


def continued(manifest: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The manifest of a resumed run: earlier ones that said something else are kept under `earlier`, oldest first."""
    if "blinding" in before:  # what was shown under an id keeps it, whatever joins the run
        manifest = {**manifest, "blinding": before["blinding"]}
    manifest = {
        **manifest,
        **{name: before[name] for name in ("limits", "loads", "walls", "looks", "pilot") if name in before},
    }  # what happened then happened
    if before:  # what is declared after the first call was not declared
        after_pilot = manifest.get("design") or {} if "pilot" in (before.get("design") or {}) else {}
        manifest = {key: value for key, value in manifest.items() if key != "design"}
        manifest |= {"design": {**after_pilot, **before["design"]}} if "design" in before else {}
    if "notes" in before:  # they were added when it ended
        manifest = {"notes": before["notes"], **manifest}
    earlier = list(before.get("earlier", []))
    past = {key: value for key, value in before.items() if key != "earlier"}
    if past and past != manifest:
        earlier.append(past)
    return {**manifest, "earlier": earlier} if earlier else manifest


def judged_again(
    manifest: Mapping[str, Any], evaluators: Sequence[PlannedEvaluator], walls: list[str], *, at: float
) -> dict[str, Any]:
    """The manifest of a run whose stored answers were judged by these evaluators. `walls`: what stood around code that
    evaluators ran.
    """
    late = {each.name: each.fingerprint for each in evaluators if each.after}
    judging = {"at": at, "evaluators": [each.name for each in evaluators]} | ({"fingerprints": late} if late else {})
    sealed = {"blinding": blinding(manifest)} if late else {}
    changed = {**manifest, **sealed, "rescored": [*manifest.get("rescored", []), judging]}
    for name in ("judge_calibration", "judge_audit"):
        if late and (changed.get(name) or {}).get("judge") not in late.values():
            changed.pop(name, None)  # it was about another judge
    return changed | ({"walls": walls} if walls else {})
