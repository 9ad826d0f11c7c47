"""Output of a finished run: the report, the place it went to, the exit code; and `export`, which writes whole rows for
other programs.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from copy import copy
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.families import Export, families, families_of, large_controls
from context_bench.core.measures import dollars, percent
from context_bench.session import interrupts
from context_bench.session.offers import DEFAULT_STORE
from context_bench.session.options import RunOptions
from context_bench.session.output_files import destination, harmless, replacing, say, write_out

if TYPE_CHECKING:
    from context_bench.core.records import EvalRow
    from context_bench.reports.inspect_export import LogFacts
    from context_bench.reports.json_document import Answered


def write_report(
    result: Any,
    output: str,
    out: Path | None,
    *,
    full: bool = False,
    place: str = "",
    page: Any = None,
    details: Any = None,
    **options: Any,
) -> None:
    """Render `result`, or the `page` that was made of it, in a format and put it where it belongs.

    `full`: a table with everything, not the short one; `place`: the store that the run is in, for the commands that the
    report names.
    """
    from context_bench.reports import build_page, write
    from context_bench.reports.renderers import takes_page

    shown = result
    if takes_page(output):
        shown = page if page is not None else build_page(result, details=details, store=named(place))
        options |= {"full": full} if output == "table" else {}
    else:
        options |= {"details": details}
    if out is None:
        if output == "table" and sys.stdout.isatty():
            options |= terminal()
        write(
            shown,
            output,
            harmless(sys.stdout) if output in ("csv", "json", "html", "markdown") else sys.stdout,
            **options,
        )
        own = families_of(result.manifest) if output == "table" and full else []
        told = copy(result)
        told.manifest = with_store(result.manifest, shown.store if takes_page(output) else "")
        sys.stdout.write("".join(family.sections.below(told) for family in own))
        return
    with replacing(out, "w", encoding="utf-8", newline="") as file:
        write(shown, output, file, **options)
    say(f"report written to {out}")


def named(store: str) -> str:
    """The store as a command names it: nothing for the usual one, and never a password."""
    from context_bench.llm.redact import redact

    return "" if store in ("", DEFAULT_STORE) else redact(store)


def with_store(manifest: Mapping[str, Any], store: str) -> dict[str, Any]:
    """A manifest whose run says which store it is in, as commands name it; of the usual one nothing is said."""
    run = manifest.get("run")
    return {**manifest, "run": {**run, "store": store}} if store and isinstance(run, Mapping) else dict(manifest)


def terminal() -> dict[str, Any]:
    """The width of stdout, and colours or not: 80 columns where it is no terminal, at most 120."""
    if not sys.stdout.isatty():
        return {"width": None, "color": False}
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return {"width": min(120, shutil.get_terminal_size().columns), "color": not plain}


def exit_code(result: Any, executed: Any, max_failures: float, store: object = None) -> int:
    """0, or what happened: the stop's own code, 130 if interrupted, 1 if a system (or its judge) failed too often.

    `store`: where the rows are, for the sentence about an interrupted run.
    """
    if executed.stopped is not None:
        say(f"{executed.stopped}")
        return int(executed.stopped.exit_code)
    if not executed.completed:
        known = result.manifest.get("run") or {}
        print(
            interrupts.kept(executed.name, store, known.get("rows"), known.get("owed") if executed.planned else None),
            file=sys.stderr,
        )
        return interrupts.CODE
    return 1 if too_many_failures(result, max_failures) else 0


def too_many_failures(result: Any, max_failures: float) -> bool:
    """Say which systems failed on more than the allowed share of their examples; true if there is one.

    That a whole conversation does not fit the reader is no fault of a run of memories: as a floor or ceiling it may be
    too long.
    """
    if not any(result.failures.values()):
        return False  # no need to read all rows for it
    floors = large_controls(result.manifest)
    rows: dict[str, int] = {}
    failed: dict[str, int] = {}
    for row in result.rows:
        rows[row.system] = rows.get(row.system, 0) + 1
        failed[row.system] = failed.get(row.system, 0) + (
            bool(row.errors)
            and not (row.system in floors and str(row.errors.get("system", "")).startswith("ContextTooLong"))
        )
    over = {name: count for name, count in failed.items() if count > max_failures * rows[name]}
    for name, count in over.items():
        say(f"{name} failed on {count} of {rows[name]} rows, more than --max-failures {max_failures:g}")
    return bool(over)


def publish(
    document: Mapping[str, Any],
    grids: Any,
    output: str,
    out: Path | None,
    minimum: list[str] | None,
    maximum: list[str] | None,
) -> None:
    """Write the result, then hold it against the limits."""
    if output not in ("table", "json", "markdown"):
        raise BadInput(f"--output {output!r}: expected table, json or markdown")
    from context_bench.reports.table import as_markdown, as_table
    from context_bench.session.gate import hold, limits

    if output == "json":
        text = json_text(document)
    else:
        text = as_markdown(grids()) if output == "markdown" else as_table(grids(), width=_width(out))
    write_out(text, out)
    hold(limits(document, minimum or [], maximum or []))


def json_text(value: Any) -> str:
    """A document for other programs: indented, and JSON by the letter (what is no number is null)."""
    from context_bench.reports.visible_text import json_ready

    return json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _width(out: Path | None) -> int:
    return max(80, shutil.get_terminal_size((120, 24)).columns) if out is None else 120


_FIRST = 5  # so many damaged rows are named


class Damage:
    """Notes which rows of an export are damaged in the store, as they pass."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], str] = {}

    def of(self, whole: Iterable[Answered]) -> Iterator[Answered]:
        """The same rows, noted."""
        for each in whole:
            self.note(each.row)
            yield each

    def among(self, rows: Iterable[EvalRow]) -> Iterator[EvalRow]:
        """The same rows of a page, noted."""
        for row in rows:
            if row.errors:
                self.note(row)
            yield row

    @staticmethod
    def _mark() -> str:
        from context_bench.engine.store.reading import DAMAGED

        return DAMAGED

    def note(self, row: EvalRow) -> None:
        """Take one row; the same one again counts once."""
        if row.errors and self._mark() in row.errors:
            self._found[row.system, str(row.example_id), row.trial] = f"{row.example_id} ({row.system})"

    def say(self) -> None:
        """Say on stderr how many there are, and the first of them."""
        if not self._found:
            return
        first = ", ".join(list(self._found.values())[:_FIRST])
        number = len(self._found)
        rows = (
            "1 row is damaged and is written as a failure"
            if number == 1
            else f"{number:,} rows are damaged and are written as failures"
        )
        say(f"{rows}: first ids {first}")


def export_rows(store: Any, record: Any, format: str, out: Path | None, system: str | None) -> None:  # noqa: A002
    """Write a stored run, or one of its systems, in one of `formats()`."""
    if system is not None and system not in record.systems:
        raise UnknownName("system", system, record.systems)
    damage = Damage()
    if format in _WRITERS:
        _WRITERS[format](store, record, out, system, damage)
    else:
        _of_family(format, _exports()[format], (store, record), out, system, damage)
    damage.say()


def _jsonl(store: Any, record: Any, out: Path | None, system: str | None, damage: Damage) -> None:
    """The rows with question, context, answer, scores and their reasons, one JSON object a line."""
    from context_bench.engine.store.remarks import remarks_by_row
    from context_bench.reports.json_document import write_jsonl
    from context_bench.runner import answered

    with destination(out) as stream:
        write_jsonl(damage.of(answered(store, record.id, system)), stream, remarks_by_row(store, record.number))


def _parquet(store: Any, record: Any, out: Path | None, system: str | None, damage: Damage) -> None:
    """The rows as one Parquet table, for data frames."""
    from context_bench.engine.store.reading import score_names
    from context_bench.engine.store.remarks import remarks_by_row
    from context_bench.reports.frames import write_parquet
    from context_bench.runner import answered

    if out is None and sys.stdout.isatty():
        raise BadInput("Parquet is not for terminals; give --out FILE.parquet")
    names = sorted(score_names(store, record.number, system))
    with destination(out, "wb") as sink:
        whole = damage.of(answered(store, record.id, system))
        write_parquet(whole, names, sink, remarks_by_row(store, record.number))


def _inspect(store: Any, record: Any, out: Path | None, system: str | None, damage: Damage) -> None:
    """Inspect's logs (`.eval`), one for each system and dataset; its viewer and tools read them."""
    from context_bench.reports.inspect_export import write_log
    from context_bench.runner import answered

    logs = list(_logs(store, record, system))
    if not logs:
        raise BadInput(f"run {record.name} has no rows yet")
    one_file = out is not None and not out.is_dir() and out.suffix == ".json"
    if len(logs) > 1 and (out is None or one_file):
        raise BadInput(
            f"an Inspect log is one task on one model, and this run makes {len(logs)} of them: give --out DIR, or "
            "--system NAME"
        )
    for facts in logs:
        place = out if out is None or one_file else out / facts.file_name
        rows = (row for row in _rows(store, record, facts.system) if row.dataset == facts.dataset)
        whole = (
            each
            for each in damage.of(answered(store, record.id, facts.system, requests=True))
            if each.row.dataset == facts.dataset
        )
        with destination(place) as stream:
            write_log(facts, rows, whole, stream)


def _logs(store: Any, record: Any, system: str | None) -> Iterator[LogFacts]:
    from context_bench import __version__
    from context_bench.reports.inspect_export import LogFacts

    for name in [system] if system else record.systems:
        for dataset in dict.fromkeys(row.dataset for row in _rows(store, record, name)):
            yield LogFacts(
                record.name, record.id, record.status, record.created, record.updated, name, dataset, __version__
            )


def _rows(store: Any, record: Any, system: str) -> Any:
    from context_bench.engine import rows

    return rows(store, record.id, system)


def _of_family(
    format: str,  # noqa: A002
    export: Export,
    run: tuple[Any, Any],
    out: Path | None,
    system: str | None,
    damage: Damage,
) -> None:
    """A form that only runs of one family have."""
    from context_bench.runner import answered
    from context_bench.session.runs import result_of

    store, record = run
    result = result_of(store, record)
    if not any(format in family.exports for family in families_of(result.manifest)):
        raise BadInput(f"run {record.name} {export.refusal}")

    def answers(name: str | None) -> Iterator[Answered]:
        return damage.of(answered(store, record.id, name))

    with destination(out) as stream:
        export.write(result, answers, [system] if system else None, stream)
        stream.write("\n" if out is None and export.newline else "")


#: Forms that every run has.
_WRITERS: dict[str, Callable[[Any, Any, Path | None, str | None, Damage], None]] = {
    "jsonl": _jsonl,
    "parquet": _parquet,
    "inspect": _inspect,
}


def _exports() -> dict[str, Export]:
    return {name: export for family in families() for name, export in family.exports.items()}


def writers() -> dict[str, Callable[..., None]]:
    """Form of whole rows → the function that writes it: the forms of every run, then those of families."""
    return {**_WRITERS, **{name: export.write for name, export in _exports().items()}}


def formats() -> list[str]:
    """Every form of whole rows."""
    return list(writers())


class Pilot:
    """The pilot of a run: 40 examples, what is reckoned from them (`engine.looks`), and whether the run goes on.

    All of that stands in the run's manifest, so a run that is killed goes on as it was agreed to.
    """

    def __init__(self, options: RunOptions) -> None:
        self._options, self._environment = options, None
        self._of = options.as_json({"run", "resume", "go_on", "quiet", "out", "output"})
        self._there = self._limit = 0
        self._evidence = False

    def first(self, environment: Any, data: list[Any]) -> RunOptions:
        """The options to begin with: those of the pilot; of a run that is past it, those of its plan."""
        from context_bench.engine.looks import PILOT
        from context_bench.stats.verdict.forecast import MOST_TIMES
        from context_bench.wire.words import evidence_of

        options, self._environment = self._options, environment
        if options.until_decided or options.evidence_only:
            raise BadInput("--pilot chooses among the designs itself; leave --until-decided and --evidence-only out")
        if not options.controls and len(options.all_proxies) + len(options.system) < 2:
            raise BadInput("--pilot needs something to compare with, such as --controls: one system has no verdict")
        self._there = sum(sum(1 for _ in islice(each.examples(), MOST_TIMES * PILOT)) for each in data)
        if self._there <= PILOT:
            raise BadInput(f"--pilot needs more than {PILOT} examples, and there are {self._there}; leave it out")
        self._limit = -(-PILOT // len(data))
        some = (example for each in data for example in islice(each.examples(), PILOT))
        self._evidence = options.tap_port is not None and any(evidence_of(example) for example in some)
        if (begun := self._begun()) is not None:
            return begun
        environment.before_report = self.plan
        return options.replaced(max_examples=self._limit)

    def _begun(self) -> RunOptions | None:
        """The options of the plan of a run that is past its pilot, if it was agreed to then or is now; else `None`."""
        from context_bench.engine import list_runs, open_store
        from context_bench.engine.looks import is_pilot
        from context_bench.session.run_session import run_name, store_of

        with closing(open_store(store_of(self._options))) as store:
            name = run_name(store, self._options)
            runs = list_runs(store)
        for run in runs:
            past = run.manifest.get("pilot") or {}
            if not past.get("plan") or not (past["agreed"] or self._options.go_on):
                continue
            if run.name != name if name is not None else (run.status == "done" and not is_pilot(run.manifest)):
                continue
            if past["of"] == self._of:
                return self._following(past["plan"], run.name)
            if name is not None:
                raise BadInput(f"run {name!r} is past its pilot, which was asked for with other options; repeat those")
        return None

    async def plan(self, result: Any, store: Any, run: str) -> None:
        """Reckon what would decide, say and keep it, and let the run go on with it if that is wanted."""
        from context_bench.engine import run_of, set_manifest

        name = run_of(store, run).name
        best, told = self._reckoned(result, store, run)
        for line in told:
            say(line)
        agreed = best is not None and (self._options.go_on or await _agreed())
        kept = {"plan": best, "told": told, "of": self._of, "agreed": agreed}
        set_manifest(store, run, {**run_of(store, run).manifest, "pilot": kept})
        result.manifest["pilot"] = kept
        result.notes += told
        if best is not None and agreed:
            assert self._environment is not None, "`first` was called"
            self._environment.goes_on = self._following(best, name)
        elif best is not None:
            say(f"Go on with it, in the same run, by\n  {interrupts.again(name)} --go-on")

    def _reckoned(self, result: Any, store: Any, run: str) -> tuple[dict[str, Any] | None, list[str]]:
        """The plan that takes least, `None` if there is none; and all of it in sentences."""
        from dataclasses import asdict

        from context_bench.comparison import spreads
        from context_bench.engine.looks import DECIDED, SPREAD_OF_TWO, plans_after_pilot
        from context_bench.engine.store.run_records import calls_made, spent
        from context_bench.stats.verdict.forecast import MOST_TIMES, assurance, for_chance

        verdicts = {one.system: one for one in result.comparisons if not one.dataset}
        margin = next((one.margin for one in verdicts.values() if one.margin), None) or self._options.margin or 0.02
        known = {one["system"]: one for one in spreads(result, self._options.score_field, margin)}
        still = {name: one for name, one in known.items() if name in verdicts and verdicts[name].verdict not in DECIDED}
        n = max(one["n"] for one in known.values())
        calls, money = calls_made(store, run), spent(store, run)
        paid = dollars(money) if money else "no price known"
        told = [f"Pilot of {n} examples: {calls:,} calls, {paid}."]
        if not still:
            return None, [*told, "Every system has its verdict; nothing more is needed."]
        most = min(MOST_TIMES * n, self._there)
        ahead = {name: one["forecast"] for name, one in still.items() if "forecast" in one}
        needed = {
            twice: [for_chance(each, n, SPREAD_OF_TWO if twice else 1.0) for each in ahead.values()]
            for twice in (False, True)
        }
        plans = plans_after_pilot(n, needed, calls / n, money / n if money else None, self._second(result, n))
        plans = [plan for plan in plans if plan.examples <= most]
        open_names = ", ".join(still)
        if not plans:
            chance = min((assurance(abs(each.apart), most / n) for each in ahead.values()), default=0.0)
            limit = f"{most:,} examples" + (" (all there are)" if most == self._there else f" ({MOST_TIMES} n)")
            return None, [
                *told,
                f"Nothing would decide on {open_names} within {limit} with an 80 % chance: as far as the pilot tells, "
                f"all of them would with {percent(chance)}. A larger --margin, a less noisy score or "
                "--evidence-only may.",
            ]
        told.append(f"With an 80 % chance, as far as the pilot tells, this would decide on {open_names}:")
        told += [f"  {'→' if plan is plans[0] else ' '} {plan}" for plan in plans]
        if self._evidence:
            told.append("    --evidence-only: no call, $0; decides what arrives of the evidence, not what is answered")
        best = {**asdict(plans[0]), "limit": max(1, math.ceil(plans[0].examples * self._limit / n))}
        return best, told

    def _second(self, result: Any, n: int) -> tuple[float, float] | None:
        """Calls and US dollars, for one example, of one more answer of `full`; `None` where there can be none."""
        from context_bench.session.arms import controls_of

        if "full" not in (names := controls_of(self._options)) or "full#2" in names:
            return None
        if any(one.baseline != "full" for one in result.comparisons if not one.dataset):
            return None
        costs = [row.usage.get("cost") or 0.0 for row in result.rows if row.system == "full"]
        return float(self._options.trials), sum(costs) / n

    def _following(self, plan: dict[str, Any], name: str) -> RunOptions:
        """The options of the rest of the run."""
        from context_bench.session.arms import controls_of

        controls = {"controls": [*controls_of(self._options), "full#2"]} if plan["second"] else {}
        asked = {"max_examples": plan["limit"], "until_decided": plan["looks"], "run": name, "resume": None}
        return self._options.replaced(**asked, **controls, pilot=False)


async def _agreed() -> bool:
    """Does somebody at a terminal press y?"""
    import asyncio
    import threading

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    loop, typed = asyncio.get_running_loop(), asyncio.Future[str]()

    def read() -> None:  # in a thread that ends nothing by waiting, so that Ctrl-C is heard meanwhile
        line = sys.stdin.readline()
        loop.call_soon_threadsafe(lambda: None if typed.done() else typed.set_result(line))

    print("Go on with it? [y/N] ", end="", file=sys.stderr, flush=True)
    threading.Thread(target=read, daemon=True).start()
    return (await typed).strip().lower() in ("y", "yes")
