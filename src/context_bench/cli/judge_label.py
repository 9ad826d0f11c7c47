"""`judge label` and `judge calibrate`: ratings by hand in a terminal, and the judge's agreement with them.

All `judge` commands share the rest: the outputs of a stored run under opaque ids, a sample of them, and the run's judge.
"""

from __future__ import annotations

import json
import random
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.core.keys import seed_of
from context_bench.core.roles import CANDIDATE, ArmRole
from context_bench.judge.blinding import opaque_id
from context_bench.judge.calibration import Calibration, Labelled, calibrate
from context_bench.llm.keyring import key_in
from context_bench.reports.text import visible
from context_bench.session.files import say

if TYPE_CHECKING:
    from context_bench.judge.audit import Item
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
class Judged:
    """One output of a run: the item, what a judge made of it, and where it stands. `cluster`: its session."""

    item: Item
    score: float | None
    failed: bool
    cluster: str
    example_id: str
    trial: int


@dataclass(slots=True)
class Loaded:
    """A stored run as judges see it."""

    store: Any
    record: Any
    run_key: str
    outputs: list[Judged] = field(default_factory=list)

    @property
    def systems(self) -> list[str]:
        """Those that gave an answer, in order."""
        return list(dict.fromkeys(each.item.system for each in self.outputs))

    def of(self, system: str) -> list[Judged]:
        """The outputs of one system."""
        return [each for each in self.outputs if each.item.system == system]


@contextmanager
def loaded(store: str, run: str, score: str = SCORE) -> Iterator[Loaded]:
    """A run's answered probes; `BadInput` if it has none."""
    from context_bench.engine.manifest import blinding
    from context_bench.engine.store.reading import stored
    from context_bench.judge.audit import Item
    from context_bench.session.runs import found_in, opened_store

    with opened_store(store) as opened:
        record = found_in(opened, run)
        found = Loaded(opened, record, str(blinding(record.manifest)["seal"]))
        for each in stored(opened, record.number):
            if each.row.failed or not each.example or not isinstance(each.output.get("response"), str) or not each.example.get("question"):
                continue
            example, row = each.example, each.row
            session, point = str(example.get("cluster") or row.cluster or ""), str(example.get("group") or row.group or "")
            probe = f"{row.example_id}|{row.trial}"
            name = opaque_id(found.run_key, each.system, session, point, probe)
            kept = {key: value for key, value in example.items() if key != "session"}  # no judge is shown it, and it is long
            item = Item(name, each.system, kept, _output(example, each.output))
            score_found = row.scores.get(score)
            found.outputs.append(
                Judged(item, score_found, "rubric_judge" in row.errors, session or str(row.example_id), str(row.example_id), row.trial)
            )
        if not found.outputs:
            raise BadInput(
                f"run {record.name!r} holds no answer to a question that could be judged; it needs examples with a question and "
                "outputs with a response, and must not have been made with --bodies none"
            )
        yield found


def _output(example: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
    """What a judge is shown of an output: the rest of it is not kept in memory."""
    return {"response": output["response"], "context": output.get("context", example.get("context"))}


def sample(outputs: Sequence[Judged], n: int, seed: int) -> list[Judged]:
    """So many outputs, as evenly as can be over systems, and within each over the range of its scores, in seeded order."""
    systems: dict[str, list[Judged]] = {}
    for each in sorted(outputs, key=lambda one: one.item.id):
        systems.setdefault(each.item.system, []).append(each)
    queues = {name: _spread(mine, seed) for name, mine in sorted(systems.items())}
    chosen: list[Judged] = []
    while len(chosen) < n and any(queues.values()):
        for queue in queues.values():
            if queue and len(chosen) < n:
                chosen.append(queue.pop(0))
    random.Random(seed_of("sample", seed)).shuffle(chosen)
    return chosen


def _spread(outputs: list[Judged], seed: int) -> list[Judged]:
    """The outputs of one system in an order whose every beginning covers its scores: one from each band of one point in turn."""
    bands: dict[float, list[Judged]] = {}
    for each in outputs:
        bands.setdefault(-1.0 if each.score is None else round(each.score), []).append(each)
    for name, band in bands.items():
        random.Random(seed_of("band", seed, name)).shuffle(band)
    order: list[Judged] = []
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
    """The rubric judge that a run had, or one at `url`; settings that are not given are those of the run. `limits`: how it is asked."""
    from context_bench.judge.rubric_judge import RubricJudge

    had = fingerprint_of(record.manifest, "rubric_judge")
    options = record.manifest.get("options") or {}
    base = url or had.get("base_url")
    if not base:
        raise BadInput("this run was not judged by a rubric judge that could be asked; name one with --judge-url URL (and --judge-model)")
    known = {"criteria": had.get("criteria"), "visibility": had.get("visibility"), "seed": had.get("seed")}
    known |= {"rubric": options.get("rubric"), "replicates": had.get("replicates")}
    chosen = {name: value for name, value in (known | settings).items() if value is not None}
    name = model or had.get("model") or options.get("judge_model") or "gpt-4"
    return RubricJudge(str(base), name, key_in(key_env), cache=cache, cache_only=cache_only, **chosen, **asked_by(limits, str(base)))


def asked_by(limits: RunOptions | None, url: str) -> dict[str, Any]:
    """How options have a judge at `url` asked: patience, prices, and whose turn it is."""
    if limits is None:
        return {}
    from context_bench.session import parts
    from context_bench.session.upstream import Accounts

    return {**parts.patience(limits), "prices": parts.prices(limits), "limiter": Accounts(limits).of_judge(url)}


@contextmanager
def under_limits(limits: RunOptions) -> Iterator[None]:
    """What a judge spends in the block is held below `--max-cost`."""
    from context_bench.core.ledger import Ledger, open_ledger
    from context_bench.llm.spend import SpendLimit

    spend = SpendLimit(limits.max_cost) if limits.max_cost is not None else None
    with open_ledger(Ledger(account="judge", spend=spend)):
        yield


def fingerprint_of(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a run says of an evaluator of its own, or of the latest that judged its answers again; empty without one."""
    own = [each for each in (manifest.get("engine") or {}).get("evaluators") or [] if each.get("name") == name]
    again = [found for each in manifest.get("rescored") or [] for key, found in (each.get("fingerprints") or {}).items() if key == name]
    return dict(again[-1] if again else own[-1]["fingerprint"] if own else {})


def methods_of(systems: Sequence[str], told: Mapping[str, str], roles: Mapping[str, ArmRole]) -> dict[str, str]:
    """System → what it does, where that is known: as told, else for methods built in. Descriptions that two share tell nothing apart."""
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


_WIDTH = 78
_RATINGS = "012345"
_HELP = "0 wrong or nothing · 1 · 2 · 3 mostly right, gaps · 4 · 5 fully right   c context · s skip · q quit"
#: What would move the cursor, colour the screen or turn the direction of the text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def label_by_hand(run: str, store: str, labels: Path, rater: str, items: int, score: str, seed: int) -> int:
    """Show one answer after the other and keep each rating at once; returns the exit code."""
    from context_bench.engine import set_manifest
    from context_bench.engine.manifest import blinding

    with loaded(store, run, score) as found:
        chosen = sample(found.outputs, items, seed)
        done = {row["id"] for row in read_labels([labels]) if row["rater"] == rater} if labels.exists() else set()
        left = [each for each in chosen if each.item.id not in done]
        say(f"{len(chosen)} answers to rate, {len(chosen) - len(left)} of them done; every rating is kept in {labels}")
        if "blinding" not in found.record.manifest:  # the ids must stay what they are now
            set_manifest(found.store, found.record.id, {**found.record.manifest, "blinding": blinding(found.record.manifest)})
        _mend(labels)
        with labels.open("a", encoding="utf-8") as file:
            for number, each in enumerate(left, len(chosen) - len(left) + 1):
                rating = _asked(each, number, len(chosen))
                if rating is None:
                    say(f"Stopped. The same command goes on with item {number}.")
                    return 0
                if rating == "s":
                    continue
                row = {"id": each.item.id, "rating": int(rating), "rater": rater, "run": found.record.id, "at": round(time.time(), 3)}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
    say(f"Done. What the judge is worth beside it: context-bench judge calibrate {run} {labels}")
    return 0


def _mend(labels: Path) -> None:
    """Take away a last line that was cut off while it was written."""
    if labels.exists() and not (data := labels.read_bytes()).endswith(b"\n"):
        labels.write_bytes(data[: data.rfind(b"\n") + 1])


def _asked(each: Judged, number: int, of: int) -> str | None:
    """A rating, `s` for none, `None` to stop."""
    example, output = each.item.example, each.item.output
    print(f"\n{'─' * _WIDTH}\nitem {number} of {of} · {visible(str(each.item.id))}")
    _part("question", example.get("question"))
    _part("what is true", example.get("answer") or "(not known)")
    _part("answer", output.get("response") or "(empty)")
    print(f"\n{_HELP}")
    while True:
        key = _key("rating> ")
        if key in (None, "q"):
            return None
        if key in [*_RATINGS, "s"]:
            return key
        if key == "c":
            _part("context it was read from", output.get("context") or "(none)")
        else:
            print("0 to 5, c, s or q")


def _part(title: str, text: Any) -> None:
    print(f"\n[{title}]")
    for line in _CONTROL.sub("·", str(text)).split("\n"):
        print("\n".join(textwrap.wrap(line, _WIDTH, break_on_hyphens=False)) or "")


def _key(prompt: str) -> str | None:
    """One key from a terminal, the first character of a line from anything else; `None` at the end of the input."""
    print(prompt, end="", flush=True)
    if sys.stdin.isatty():
        import click

        try:
            key = click.getchar()
        except (KeyboardInterrupt, EOFError):
            return None
        print(key if key.isprintable() else "")
        return key.lower()
    line = sys.stdin.readline()
    print()
    return line.strip()[:1].lower() if line else None


def read_labels(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The ratings of files, checked; `BadInput` names file and line of what is none. A last line that was cut off is passed over."""
    rows = []
    for path in files:
        try:
            lines = path.read_text("utf-8", "replace").split("\n")
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror or error}; expected a file that `context-bench judge label` wrote") from None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = load_json(line)
            except ValueError:
                if number == len(lines):
                    continue
                row = None
            rating = row.get("rating") if isinstance(row, dict) else None
            fits = isinstance(rating, int | float) and not isinstance(rating, bool) and 0 <= rating <= 5
            if not fits or not isinstance(row.get("id"), str):
                raise BadInput(f"{path}, line {number}: {line[:80]!r} is no rating; expected an object with id and a rating from 0 to 5")
            rows.append({"rater": "me", **row})
    return rows


def calibrate_run(run: str, store: str, labels: Sequence[Path], score: str, passed: float, out: Path | None) -> int:
    """Print the judge's agreement with people, write it into the run; returns the exit code."""
    from context_bench.engine import set_manifest

    rows = read_labels(labels)
    with loaded(store, run, score) as found:
        told = _labelled(found, rows, score)
        judged = {name: [each.score for each in found.of(name) if each.score is not None] for name in found.systems}
        result = calibrate(told, judged, passed)
        _print(result)
        written = {**result.as_dict(), "score": score, "passed": passed, "raters": sorted({row["rater"] for row in rows})}
        written["judge"] = fingerprint_of(found.record.manifest, "rubric_judge") or None
        set_manifest(found.store, found.record.id, {**found.record.manifest, "judge_calibration": written})
        if out is not None:
            out.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return 0


def _labelled(found: Loaded, rows: Sequence[dict[str, Any]], score: str) -> list[Labelled]:
    """The labelled outputs of this run that the judge has a score of; of a rater who rated an item twice the last rating counts."""
    raters = sorted({row["rater"] for row in rows})
    by_item: dict[str, dict[str, float]] = {}
    for row in rows:
        by_item.setdefault(row["id"], {})[row["rater"]] = float(row["rating"])
    known = [each for each in found.outputs if each.item.id in by_item]
    if not known:
        raise BadInput(f"none of the {len(by_item)} rated items is of run {found.record.name!r}; name the run that they were shown from")
    if len(known) < len(by_item):
        say(f"{len(by_item) - len(known)} of {len(by_item)} rated items are not of this run and are left out")
    told = [
        Labelled(each.item.id, each.item.system, each.score, tuple(by_item[each.item.id].get(rater) for rater in raters))
        for each in known
        if each.score is not None
    ]
    if not told:
        raise BadInput(f"the judge has no {score!r} of any rated item; judge the run first: context-bench rescore RUN --judge-url URL")
    return told


def _print(found: Calibration) -> None:
    print(f"\nThe judge beside people, {found.n} answers: {found.label}")
    for name, value, sense in (
        ("alpha (Krippendorff, ordinal)", found.alpha, "0.667 tentative, 0.8 firm"),
        ("alpha among people", found.alpha_humans, "what there is to be reached"),
        ("kappa (quadratic weights)", found.kappa, ""),
        ("Spearman", found.spearman, ""),
        ("order of systems (tau)", found.tau, ""),
    ):
        if value is not None or name.startswith("alpha (K"):
            print(f"  {name:<32}{'-' if value is None else f'{value:6.3f}'}   {sense}".rstrip())
    print(f"\n  {'system':<26}{'judge - people':>15}{'mean corrected':>22}{'passed':>10}")
    for name, error in found.signed_error.items():
        mean, rate = found.corrected[name]["mean"], found.corrected[name]["pass_rate"]
        shown = f"{mean.value:.2f} ± {1.96 * mean.se:.2f}" if mean else "-"
        print(f"  {visible(name)[:25]:<26}{error:>+15.2f}{shown:>22}{f'{rate.value:.0%}' if rate else '-':>10}")
    for note in found.notes:
        print(f"  note: {visible(note, 2_000)}")
