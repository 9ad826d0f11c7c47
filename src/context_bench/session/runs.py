"""Commands on a store: list runs, show one, score it again, compare two; and finding stores, runs, their results and
pages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.core.machine import file_bytes
from context_bench.core.records import Call
from context_bench.session import interrupts, run_parts
from context_bench.session.flags import own, takes
from context_bench.session.offers import runs
from context_bench.session.options import StoredOptions

if TYPE_CHECKING:
    from context_bench.reports import Page
    from context_bench.results import EvalResult

#: Rows of a run from which its page is kept: of fewer it is worked out as fast.
KEPT_FROM = 1_000


@takes(StoredOptions, deleted=own("Those that were marked as deleted instead."))
def list_runs(store: str, json: bool, deleted: bool) -> int:
    """The runs and watches in a store, newest first."""
    from context_bench.engine import list_runs as stored_runs, list_watches

    with opened_store(store) as opened:
        records: list[Any] = [*stored_runs(opened, deleted=deleted)]
        if not deleted:  # no watch can be marked so
            records += [watch for watch in list_watches(opened) if watch.status != "copying"]
    found = [record.describe() for record in sorted(records, key=lambda record: -record.created)]
    if json:
        import json as library

        print(library.dumps(found, indent=2))
        return 0
    from context_bench.session.output_files import run_list
    from context_bench.session.reporting import terminal

    none = (
        "no run is marked as deleted" if deleted else "no runs yet: context-bench --proxy URL --dataset NAME makes one"
    )
    print(run_list(found, **terminal()) if found else none)
    return 0


@takes(
    StoredOptions,
    full=own("The whole report as a table, not the short one."),
    score_field=own("Another score than the run's own.", note=""),
    threshold=own("Another pass mark than the run's own.", note=""),
)
def show(
    run: Annotated[str, typer.Argument(help="Name or id (its beginning is enough), or `last`.")],
    store: str,
    output: str,
    out: Path | None,
    full: bool,
    score_field: str | None,
    threshold: float | None,
    imports: list[str] | None,
) -> int:
    """The report of a stored run, in any format, without running anything."""
    from context_bench.reports.renderers import takes_page
    from context_bench.runner import details
    from context_bench.session.reporting import write_report

    run_parts.import_modules(imports or [])
    with opened_store(store) as opened:
        record = found_in(opened, run)
        if score_field is None and threshold is None and takes_page(output):
            page = page_of(opened, record, store)
            write_report(page, output, out, full=full, page=page)
        else:
            result = result_of(opened, record, score_field, threshold)
            write_report(result, output, out, full=full, place=store, details=details(opened, record.id))
    return 0


@takes(
    StoredOptions,
    evaluator=own("Evaluator to add or to score with again.", rare=False),
    max_workers=own("Answers judged at once.", least=1),
    score_field=own("Score that the report is about.", note=""),
    max_failures=own(rare=False),
    output=own("table, markdown, json, html, csv."),
)
def rescore(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="Name or id of the run, or `last`.")],
    store: str,
    evaluator: list[str] | None,
    judge_url: str | None,
    judge_model: str | None,
    judge_key_env: str,
    max_workers: int,
    max_cost: float | None,
    price: list[str] | None,
    timeout: float | None,
    retries: int | None,
    example_timeout: float | None,
    run_timeout: float | None,
    rpm: float | None,
    tpm: float | None,
    score_field: str | None,
    max_failures: float,
    output: str,
    out: Path | None,
    imports: list[str] | None,
) -> int:
    """Judge the stored answers again: no system is called."""
    from context_bench.engine import RunSettings, rescore as score_again
    from context_bench.runner import details
    from context_bench.session import preflight
    from context_bench.session.flags import read_options
    from context_bench.session.options import RunOptions
    from context_bench.session.reporting import too_many_failures, write_report
    from context_bench.session.run_parts import Accounts

    run_parts.import_modules(imports or [])
    of_models = set(RunOptions.flags) - {"store", "output", "out", "imports", "score_field", "max_failures"}
    given = {name: value for name, value in context.params.items() if name in of_models and value not in (None, [], ())}
    asked = read_options({**given, "api_key_env": judge_key_env}, None, RunOptions)
    with opened_store(store) as opened:
        record = found_in(opened, run)
        prices = run_parts.prices(asked)
        spend = run_parts.spend(asked, opened, record.name)
        evaluators = _judges_again(asked, record, prices, Accounts(asked))
        overhead: list[Call] = []
        interrupts.run(preflight.check_evaluators(evaluators, spend, overhead))
        settings = RunSettings(
            max_workers=asked.max_workers, example_timeout=asked.example_timeout, run_timeout=asked.run_timeout
        )
        judged = interrupts.run(
            score_again(opened, record.id, evaluators, settings=settings, spend=spend, overhead=overhead)
        )
        if judged.stopped is not None:
            raise judged.stopped
        result = result_of(opened, found_in(opened, record.id), score_field)
        if score_field is None:
            report_stored(opened, record.id, result, output, out, full=True, place=store)
        else:  # a list of runs tells what a run was made for
            write_report(result, output, out, full=True, place=store, details=details(opened, record.id))
        return int(too_many_failures(result, max_failures))


def _judges_again(asked: Any, record: Any, prices: Any, accounts: Any) -> list[Any]:
    """The evaluators that judge stored answers again: those asked for, as the run's family changes them."""
    from context_bench.core.families import families_of
    from context_bench.core.plugins import load_object

    made = run_parts.evaluators(asked, [], prices, accounts)
    for family in families_of(record.manifest):
        if family.judges:
            made = load_object(family.judges)(asked, record, made)
    return made


def left_behind(store: Any, before: Any, run: str) -> str | None:
    """A sentence on rows that a run (id) showed `before` a command went on with it, and does not show any more; `None`
    if it shows them all. They stay in the store.
    """
    from context_bench.engine import run_of

    if before is None or not before.rows:
        return None
    now = run_of(store, run)
    ours, theirs = (
        {each["name"]: each["fingerprint"] for each in (one.manifest.get("engine") or {}).get("systems") or []}
        for one in (before, now)
    )
    told = [f"{name} is no part of it" for name in before.systems if name not in now.systems]
    told += [f"{name} is set otherwise" for name in now.systems if ours.get(name, theirs[name]) != theirs[name]]
    if not told and now.rows >= before.rows:
        return None
    because = f": {'; '.join(told)}" if told else ""
    return (
        f"run {now.name!r} now holds {now.rows:,} rows{because}. The {before.rows:,} rows that it held before stay in "
        "the store, for the command that made them; reports show those of now"
    )


@contextmanager
def opened_result(store: str, run: str) -> Iterator[Any]:
    """The result of a stored run, for as long as its store is open."""
    with opened_store(store) as opened:
        yield result_of(opened, found_in(opened, run))


def version() -> int:
    """The version of this program."""
    from context_bench import __version__

    print(f"context-bench {__version__}")
    return 0


def opened_store(url: str) -> Any:
    """A store that is there, as a context; `BadInput` if it is not."""
    from contextlib import closing

    from context_bench.engine import open_store

    if "://" in url:
        return closing(open_store(url))
    path = Path(url)
    if not path.exists():
        raise BadInput(f"no store at {url}; a run makes one there, or name another with --store")
    if path.is_file() and not (
        os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    ):  # such as one on a read-only disk
        from context_bench.engine.store.browsing import open_reading

        return closing(open_reading(url))
    return closing(open_store(url))


def found_in(store: Any, run: str) -> Any:
    """The record of a run: its name, the beginning of its id, or `last`."""
    from context_bench.engine import list_runs as stored_runs, run_of

    if run != "last":
        return run_of(store, run)
    newest = next((run for run in stored_runs(store) if run.status != "copying"), None)
    if newest is None:
        raise BadInput("the store holds no run yet")
    return newest


def result_of(store: Any, record: Any, score_field: str | None = None, threshold: float | None = None) -> Any:
    """The result of a stored run, by its own options where none are given."""
    from context_bench.runner import collect
    from context_bench.session.options import RunOptions

    kept = record.manifest.get("options", {})
    options = RunOptions(
        score_field=score_field or kept.get("score_field", "f1"),
        threshold=threshold if threshold is not None else kept.get("threshold", 0.7),
        metric=kept.get("metric", []),
    )
    metrics = run_parts.metrics(options, several_datasets=len(record.manifest.get("datasets", [])) > 1)
    return collect(store, record.id, metrics, score_field=score_field)


def page_of(store: Any, record: Any, place: str = "") -> Page:
    """The page of a stored run: as it was kept with it if nothing has changed since, else worked out from its rows.
    `place`: the store as it was named, for the commands that the page names.
    """
    from context_bench.engine.store.run_writer import kept_page
    from context_bench.reports import build_page
    from context_bench.runner import details
    from context_bench.session.reporting import named

    if (page := kept_page_of(store, record.id, place)) is not None:
        return page
    state, _ = kept_page(store, record.id)
    result = result_of(store, record)
    page = build_page(result, details=details(store, record.id), store=named(place))
    _keep(store, record.id, state, page, result, place)
    return page


def kept_page_of(store: Any, run: str, place: str = "") -> Page | None:
    """The page that was kept with a stored run (id), `None` without one of its present state."""
    from context_bench.engine import rows
    from context_bench.engine.store.run_writer import kept_page
    from context_bench.reports.renderers import page_from
    from context_bench.runner import details
    from context_bench.session.reporting import named

    _, text = kept_page(store, run)
    return None if text is None else page_from(text, rows(store, run), details(store, run), store=named(place))


def _keep(store: Any, run: str, state: str, page: Page, result: EvalResult, place: str) -> None:
    """Keep the page of a long run, where it is of this package alone: what users bring may say something else
    tomorrow. Of a longer one also the numbers of its rows by column.
    """
    if len(result.rows) < KEPT_FROM:
        return

    from context_bench.core.errors import StoreUnusable
    from context_bench.engine.store.browsing import COLUMNS_FROM, keep_columns_of
    from context_bench.engine.store.run_writer import keep_page
    from context_bench.reports.renderers import page_text
    from context_bench.session.reporting import named

    ours = all(type(metric).__module__.startswith("context_bench.") for metric in result.metrics)
    if ours and (text := page_text(page, store=named(place))) is not None:
        with suppress(StoreUnusable):  # it is read only, or busy: who asks next works it out again
            keep_page(store, run, state, text)
    if len(result.rows) >= COLUMNS_FROM:
        with suppress(StoreUnusable):
            keep_columns_of(store, run, state)


def report_stored(
    store: Any,
    run: str,
    result: Any,
    output: str,
    out: Path | None,
    *,
    full: bool = False,
    place: str = "",
    as_stored: bool = True,
) -> None:
    """Write the report of a stored run (id) that has just changed, and keep with it its verdicts, for lists of runs,
    and its page.

    `full` and `place` are those of `write_report`. `as_stored`: nothing was added to the result that is not in the
    store.
    """
    from context_bench.core.errors import StoreUnusable
    from context_bench.engine import run_of
    from context_bench.engine.store.run_writer import keep_summary, kept_page
    from context_bench.reports import build_page
    from context_bench.reports.renderers import summarized
    from context_bench.runner import details
    from context_bench.session.reporting import named, write_report

    behind = details(store, run)
    page = build_page(result, details=behind, store=named(place))
    write_report(result, output, out, full=full, page=page, details=behind)
    with suppress(StoreUnusable):  # the report is out; whoever lists the runs works the verdicts out again
        keep_summary(store, run, summarized(page))
        state, _ = kept_page(store, run)
        record, told = run_of(store, run), result.manifest
        same = all(told.get(name) == value for name, value in record.manifest.items() if name != "margin")
        if as_stored and same and told.get("run") == record.describe():
            _keep(store, run, state, page, result, place)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; `BadInput` for anything else."""
    from context_bench.core.keys import load_json

    try:
        document = load_json(file_bytes(path))
    except ValueError as error:
        raise BadInput(f"{path} is not JSON: {error}") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    if not isinstance(document, dict):
        raise BadInput(f"{path}: expected an object, as --output json writes it, found a {type(document).__name__}")
    return document


@contextmanager
def found_run(run: str, store: str) -> Iterator[EvalResult]:
    """The result of an exported run (a file) or of a stored one (its name, the beginning of its id, `last`)."""
    from context_bench.results import EvalResult

    path = Path(run)
    if path.is_file():
        try:
            yield EvalResult.from_json(read_json(path))
        except BadInput as error:
            raise BadInput(f"{run}: {error}") from None
        return

    with opened_result(store, run) as result:
        yield result


@takes(
    StoredOptions,
    metric=own(
        "The score to compare.", unit=None, names="--metric --score-field", rare=False, note="what the runs were about"
    ),
    margin=own(note="as in a run"),
    system=own("Compare only this system; repeatable.", unit=None, note="all that both have"),
)
def compare_runs(
    first: Annotated[
        str,
        typer.Argument(
            help="The earlier run: its name, `last`, or an exported JSON file.",
            metavar="RUN",
            autocompletion=runs,
        ),
    ],
    second: Annotated[
        str | None,
        typer.Argument(
            help="The later run. Without it, the first run's systems against its baseline.", autocompletion=runs
        ),
    ] = None,
    *,
    metric: str | None,
    margin: float | None,
    system: list[str] | None,
    output: str,
    out: Path | None,
    force: bool,
    any_load: bool,
    full: bool,
    store: str,
) -> int:
    """Pair rows by dataset, example and trial, and say what may be said.

    Exit code 3 if the two runs measured different things (other data, model, prompt, evaluator) and `--force` is not
    given.
    """
    from context_bench.comparison import compare, within
    from context_bench.session.reporting import write_report

    with found_run(first, store) as before:
        if second is None:
            found = within(before, metric=metric, margin=margin)
            write_report(found, output, out, full=full, place=store)
            return 0
        with found_run(second, store) as after:
            found = compare(before, after, metric=metric, margin=margin, systems=system, force=force, any_load=any_load)
            write_report(found, output, out, full=full, place=store)
    if output == "table" and not full:
        from context_bench.session.output_files import say

        say("all tables: the same command with --full")
    return 0
