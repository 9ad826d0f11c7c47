"""Rating by hand in a terminal, and what the judge is worth beside it."""

from __future__ import annotations

import json
import re
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.judge.calibration import Calibration, Labelled, calibrate
from context_bench.reports.visible_text import visible
from context_bench.session.judged import JudgedOutput, Loaded, fingerprint_of, loaded, sample
from context_bench.session.output_files import say

_WIDTH = 78
_RATINGS = "012345"
_HELP = "0 wrong or nothing · 1 · 2 · 3 mostly right, gaps · 4 · 5 fully right   c context · s skip · q quit"
#: What would move the cursor, colour the screen or turn the direction of the text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def label_answers(run: str, store: str, labels: Path, rater: str, items: int, score: str, seed: int) -> int:
    """Show one answer after the other and keep each rating at once; returns the exit code."""
    from context_bench.engine import set_manifest
    from context_bench.engine.manifest import blinding

    with loaded(store, run, score) as found:
        chosen = sample(found.outputs, items, seed)
        done = {row["id"] for row in read_labels([labels]) if row["rater"] == rater} if labels.exists() else set()
        left = [each for each in chosen if each.item.id not in done]
        say(f"{len(chosen)} answers to rate, {len(chosen) - len(left)} of them done; every rating is kept in {labels}")
        if "blinding" not in found.record.manifest:  # the ids must stay what they are now
            set_manifest(
                found.store, found.record.id, {**found.record.manifest, "blinding": blinding(found.record.manifest)}
            )
        _mend(labels)
        with labels.open("a", encoding="utf-8") as file:
            for number, each in enumerate(left, len(chosen) - len(left) + 1):
                rating = _asked(each, number, len(chosen))
                if rating is None:
                    say(f"Stopped. The same command goes on with item {number}.")
                    return 0
                if rating == "s":
                    continue
                row = {
                    "id": each.item.id,
                    "rating": int(rating),
                    "rater": rater,
                    "run": found.record.id,
                    "at": round(time.time(), 3),
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
    say(f"Done. What the judge is worth beside it: context-bench judge calibrate {run} {labels}")
    return 0


def _mend(labels: Path) -> None:
    """Take away a last line that was cut off while it was written."""
    if labels.exists() and not (data := labels.read_bytes()).endswith(b"\n"):
        labels.write_bytes(data[: data.rfind(b"\n") + 1])


def _asked(each: JudgedOutput, number: int, of: int) -> str | None:
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
    """The ratings of files, checked; `BadInput` names file and line of what is none. A last line that was cut off is
    passed over.
    """
    rows = []
    for path in files:
        try:
            lines = path.read_text("utf-8", "replace").split("\n")
        except OSError as error:
            raise BadInput(
                f"{path}: {error.strerror or error}; expected a file that `context-bench judge label` wrote"
            ) from None
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
                raise BadInput(
                    f"{path}, line {number}: {line[:80]!r} is no rating; expected an object with id and a rating from "
                    "0 to 5"
                )
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
        written = {
            **result.as_dict(),
            "score": score,
            "passed": passed,
            "raters": sorted({row["rater"] for row in rows}),
        }
        written["judge"] = fingerprint_of(found.record.manifest, "rubric_judge") or None
        set_manifest(found.store, found.record.id, {**found.record.manifest, "judge_calibration": written})
        if out is not None:
            out.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return 0


def _labelled(found: Loaded, rows: Sequence[dict[str, Any]], score: str) -> list[Labelled]:
    """The labelled outputs of this run that the judge has a score of; of a rater who rated an item twice the last
    rating counts.
    """
    raters = sorted({row["rater"] for row in rows})
    by_item: dict[str, dict[str, float]] = {}
    for row in rows:
        by_item.setdefault(row["id"], {})[row["rater"]] = float(row["rating"])
    known = [each for each in found.outputs if each.item.id in by_item]
    if not known:
        raise BadInput(
            f"none of the {len(by_item)} rated items is of run {found.record.name!r}; name the run that they were "
            "shown from"
        )
    if len(known) < len(by_item):
        say(f"{len(by_item) - len(known)} of {len(by_item)} rated items are not of this run and are left out")
    told = [
        Labelled(
            each.item.id, each.item.system, each.score, tuple(by_item[each.item.id].get(rater) for rater in raters)
        )
        for each in known
        if each.score is not None
    ]
    if not told:
        raise BadInput(
            f"the judge has no {score!r} of any rated item; judge the run first: context-bench rescore RUN "
            "--judge-url URL"
        )
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
