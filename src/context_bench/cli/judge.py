"""`context-bench judge`: is the judge of a run to be trusted? Audits, ratings by hand in a terminal, agreement with
them, answers side by side.
"""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.core.keys import load_json
from context_bench.core.machine import file_bytes, file_text, quoted
from context_bench.core.measures import percent
from context_bench.core.numbers import real, whole
from context_bench.judge.calibration import Calibration, JudgedUnit, Labelled, calibrate as calibrated
from context_bench.reports.visible_text import visible
from context_bench.session.flags import flag, own, takes
from context_bench.session.judged import (
    JudgedOutput,
    Loaded,
    bands_of,
    baseline_of,
    fingerprint_of,
    labelled_systems,
    loaded,
    rating_scale,
    sample_for_labels,
)
from context_bench.session.options import Common
from context_bench.session.output_files import say
from context_bench.stats.agreement import Corrected

if TYPE_CHECKING:
    from context_bench.session.options import RunOptions


class JudgeOptions(Common):
    """Options of `context-bench judge …`."""

    items: int = own(
        "Answers to try it on.",
        of="max_examples",
        default=20,
        names="-n --max-examples --items",
        note=None,
        bounds={},
        least=1,
    )
    only: str = flag(
        "Parts: marks, attacks, repeats, order, leak, views, drift. marks asks nobody.",
        "marks,attacks,repeats,order,leak,views,drift",
        unit="A,B",
    )
    describe: list[str] | None = flag(
        "What a method does, for the leak audit, in words that do not name it.", unit="SYSTEM=TEXT"
    )
    cache_only: bool = flag("Send nothing; what is not remembered counts as failed.", False)
    labels: Path = flag("Where ratings are kept; goes on where it stopped.", Path("labels.jsonl"), unit="FILE")
    rater: str = flag("Who rates, where several do.", "me")
    passed: float = flag("Rating from which an answer counts as passed.", 3.0, least=0, most=5)


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Is the judge of a run to be trusted: audit, label by hand, calibrate, pairs.",
)
RunArgument = Annotated[str, typer.Argument(help="Name or id of the run, or `last`.")]


@app.command("audit")
@takes(
    JudgeOptions,
    judge_url=own("The judge's endpoint.", note="that of the run"),
    judge_model=own(note="that of the run"),
    replicates=own("Times each item is judged, to see whether it says the same.", least=2, default=3),
    seed=own("Seed of the sample and of everything random."),
    max_workers=own("Items in flight.", least=1, default=4),
    json=own("Also write all figures to this file.", unit="FILE"),
)
def audit(
    context: typer.Context,
    run: RunArgument,
    store: str,
    judge_url: str | None,
    judge_model: str | None,
    judge_key_env: str,
    items: int,
    only: str,
    replicates: int,
    describe: list[str] | None,
    seed: int,
    max_workers: int,
    max_cost: float | None,
    price: list[str] | None,
    timeout: float | None,
    retries: int | None,
    rpm: float | None,
    tpm: float | None,
    cache_only: bool,
    json: Path | None,
) -> int:
    """Failures, marks that give methods away, attacks, agreement with itself, order, leak, views, drift. Exit code 4 if
    it must not judge.

    It must not if an attack gains more than 0.5 of 5 points or succeeds in more than 5 % of the answers (by the lower
    end of the interval), if it contradicts itself (alpha below 0.667), if more than 10 % of its verdicts cannot be
    read, or if twenty known items have moved by more than 0.2 since it was first asked.
    """
    from context_bench.cli.judge_audit import AuditOptions, run_audit

    parts = [part.strip() for part in only.split(",") if part.strip()]
    options = AuditOptions(items, parts, replicates, describe or [], seed, max_workers, cache_only, json)
    return run_audit(run, store, (judge_url, judge_model, judge_key_env), options, _limits(context))


@app.command("label")
@takes(
    JudgeOptions,
    items=own("Answers to rate.", default=40),
    score_field=own("Score over whose range the answers are chosen.", default="rubric_overall"),
    seed=own("Seed of the sample and of everything random."),
)
def label(run: RunArgument, store: str, labels: Path, rater: str, items: int, score_field: str, seed: int) -> int:
    """Rate answers by hand, 0 to 5, without knowing whose they are. Every key is kept at once; the same command goes
    on.
    """
    from context_bench.engine import set_manifest
    from context_bench.engine.manifest import blinding

    with loaded(store, run, score_field) as found:
        chosen = sample_for_labels(found.outputs, labelled_systems(found), items, seed, rating_scale(score_field))
        if not chosen:
            raise BadInput(
                f"run {found.record.name!r} has no example that all of {', '.join(labelled_systems(found))} answered; "
                "labels are drawn from examples whose answers can be compared"
            )
        done = {row["id"] for row in read_labels([labels]) if row["rater"] == rater} if labels.exists() else set()
        left = [each for each in chosen if each.output.item.id not in done]
        say(f"{len(chosen)} answers to rate, {len(chosen) - len(left)} of them done; every rating is kept in {labels}")
        if "blinding" not in found.record.manifest:  # the ids must stay what they are now
            set_manifest(
                found.store, found.record.id, {**found.record.manifest, "blinding": blinding(found.record.manifest)}
            )
        _mend(labels)
        with labels.open("a", encoding="utf-8") as file:
            for number, each in enumerate(left, len(chosen) - len(left) + 1):
                rating = _asked(each.output, number, len(chosen))
                if rating is None:
                    say(f"Stopped. The same command goes on with item {number}.")
                    return 0
                if rating == "s":
                    continue
                row = {
                    "id": each.output.item.id,
                    "rating": int(rating),
                    "rater": rater,
                    "run": found.record.id,
                    "band": each.band,
                    "share": each.share,
                    "at": round(time.time(), 3),
                }
                file.write(dumps(row, ensure_ascii=False) + "\n")
                file.flush()
    from context_bench.reports.cards import store_option
    from context_bench.session.reporting import named

    told = f"context-bench judge calibrate {quoted(run)} {quoted(str(labels))}{store_option(named(store))}"
    say(f"Done. What the judge is worth beside it: {told}")
    return 0


@app.command("calibrate")
@takes(
    JudgeOptions,
    score_field=own("The judge's score.", default="rubric_overall"),
    json=own("Also write all figures to this file.", unit="FILE"),
)
def calibrate(
    run: RunArgument,
    labels: Annotated[
        list[Path],
        typer.Argument(help="Files that `judge label` wrote, of one rater or of several.", metavar="LABELS..."),
    ],
    store: str,
    score_field: str,
    passed: float,
    json: Path | None,
) -> int:
    """Hold the judge against people: agreement, bias by system, means corrected by it. The run is labelled with what
    was found.
    """
    from context_bench.engine import set_manifest

    rows = read_labels(labels)
    with loaded(store, run, score_field) as found:
        scale = rating_scale(score_field)
        bands = bands_of(found.outputs, labelled_systems(found), scale)
        judged = {
            name: [
                JudgedUnit(each.unit, scale * each.score, each.cluster, bands.get(each.unit))
                for each in found.of(name)
                if each.score is not None
            ]
            for name in found.systems
        }
        result = calibrated(_labelled(found, rows, score_field), judged, passed, baseline=baseline_of(found))
        _print(result)
        written = {
            **result.as_dict(),
            "score": score_field,
            "passed": passed,
            "scale": scale,
            "raters": sorted({row["rater"] for row in rows}),
        }
        written["judge"] = fingerprint_of(found.record.manifest, "rubric_judge") or None
        set_manifest(found.store, found.record.id, {**found.record.manifest, "judge_calibration": written})
        if json is not None:
            json.write_text(dumps(written, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return 0


@app.command("pairs")
@takes(
    JudgeOptions,
    judge_url=own("The judge's endpoint.", note="that of the run"),
    judge_model=own(note="that of the run"),
    items=own("Most questions to ask about.", note="all"),
    seed=own("Seed of the sample and of everything random."),
    max_workers=own("Items in flight.", least=1, default=4),
    json=own("Also write all figures to this file.", unit="FILE"),
)
def pairs(
    context: typer.Context,
    run: RunArgument,
    system: Annotated[str, typer.Argument(help="System of the run.")],
    baseline: Annotated[str, typer.Argument(help="System that it is set beside.")],
    store: str,
    judge_url: str | None,
    judge_model: str | None,
    judge_key_env: str,
    items: int | None,
    seed: int,
    max_workers: int,
    max_cost: float | None,
    price: list[str] | None,
    timeout: float | None,
    retries: int | None,
    rpm: float | None,
    tpm: float | None,
    cache_only: bool,
    json: Path | None,
) -> int:
    """Which of two systems' answers is better, asked in both orders: a win counts only where both agree."""
    from context_bench.cli.judge_audit import run_pairs

    asked = (judge_url, judge_model, judge_key_env)
    return run_pairs(run, store, asked, (system, baseline), items, seed, _limits(context), cache_only, json)


def _limits(context: typer.Context) -> RunOptions:
    """Settings by which the judge is asked: its own account, as if it were a run's only one."""
    from context_bench.session.flags import read_options
    from context_bench.session.options import RunOptions

    names = ("max_workers", "max_cost", "price", "timeout", "retries", "rpm", "tpm")
    given = {name: context.params[name] for name in names if context.params.get(name) not in (None, [], ())}
    return read_options(given, None, RunOptions)


_WIDTH = 78
_RATINGS = "012345"
_HELP = "0 wrong or nothing · 1 · 2 · 3 mostly right, gaps · 4 · 5 fully right   c context · s skip · q quit"
#: What would move the cursor, colour the screen or turn the direction of the text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def _mend(labels: Path) -> None:
    """Take away a last line that was cut off while it was written."""
    if labels.exists() and not (data := file_bytes(labels)).endswith(b"\n"):
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
            lines = file_text(path, "replace").split("\n")
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
            rows.append({"rater": "me", **row} | {"band": _band(row), "share": _share(row)})
    return rows


def _band(row: dict[str, Any]) -> int | None:
    band = whole(row.get("band"))
    return band if band is not None and -1 <= band <= 5 else None


def _share(row: dict[str, Any]) -> float | None:
    """The share of all examples in the row's band; `None` for files from before labels kept it, or without a band."""
    share = real(row.get("share"))
    return share if share is not None and 0 < share <= 1 and _band(row) is not None else None


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
    drawn = {row["id"]: (row["band"], row["share"]) for row in rows}
    labelled = [
        Labelled(
            each.item.id,
            each.item.system,
            rating_scale(score) * each.score,
            tuple(by_item[each.item.id].get(rater) for rater in raters),
            each.unit,
            *drawn[each.item.id],
        )
        for each in known
        if each.score is not None
    ]
    if not labelled:
        raise BadInput(
            f"the judge has no {score!r} of any rated item; judge the run first: context-bench rescore RUN "
            "--judge-url URL"
        )
    return labelled


def _print(found: Calibration) -> None:
    print(f"\nThe judge beside people, {found.n} answers: {found.label}")
    for name, value, sense in (
        ("alpha (Krippendorff, ordinal)", found.alpha, ""),
        ("its 90 % interval, from", found.alpha_low, "0.667 tentative, 0.8 firm"),
        ("to", found.alpha_high, ""),
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
        low, high = mean.interval() if mean else (0.0, 0.0)
        shown = f"{mean.value:.2f} ± {(high - low) / 2:.2f}" if mean else "-"
        print(f"  {visible(name)[:25]:<26}{error:>+15.2f}{shown:>22}{percent(rate.value) if rate else '-':>10}")
    for name, gap in found.differences.items():
        low, high = Corrected(gap.value, gap.se, gap.df).interval()
        by = f"{gap.labels} of {gap.n} examples, both answers rated"
        print(f"\n  {visible(name)} less {visible(gap.baseline)}, as people would rate: {gap.value:+.2f}")
        print(f"  (95 % interval {low:+.2f} to {high:+.2f}; {by})")
    for note in found.notes:
        print(f"  note: {visible(note, 2_000)}")
