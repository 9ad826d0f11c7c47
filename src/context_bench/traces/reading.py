"""Files that an agent read, told from its log alone, without gold: their tokens, what was read again unchanged, what
was never used, searches that found nothing, results that were cut.

A read was *used* if its file was edited later, or if a later answer or call of the model names the file or repeats a
line of what was shown. Tokens are those of the results, by our counter; a result that shows several files is shared
among them by their lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.core.ledger import merged, size, without
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.transcripts.format import texts
from context_bench.transcripts.trace import Event
from context_bench.transcripts.traces import Vocabulary, trace_of, transcripts_in
from context_bench.transcripts.transcript import ToolCall, Transcript

if TYPE_CHECKING:
    from context_bench.reports.table import Grid

#: A line that is repeated word for word is evidence of use from this length on.
_QUOTED = 20
_NUMBERED = re.compile(r"^ *(\d+)[\t→](.*?)\s*$", re.MULTILINE)  # a line with its number, as `cat -n` shows it
_MOST_LINES = 2_000
_SHOWN = 10
_BAR = 12  # characters of the longest bar
_NOTHING = re.compile(
    r"^\W*(?:no (?:matches|files|results|matching files)\b.{0,40}|found 0 \w+|0 (?:matches|results|files)\b.{0,20})"
    r"\W*$",
    re.IGNORECASE,
)


@dataclass(slots=True)
class FileReading:
    """Reads of one file. `again`: those that showed nothing new and followed no change of it; `tokens_again`: theirs.
    `used`: it was edited, named or quoted later.
    """

    path: str
    reads: int = 0
    tokens: int = 0
    again: int = 0
    tokens_again: int = 0
    edited: bool = False
    used: bool = False


@dataclass(frozen=True, slots=True)
class ResultSize:
    """The result of a call: tool, what it was of, tokens, and the replies of the model that carried it afterwards."""

    tool: str
    about: str
    tokens: int
    carried: int


@dataclass(slots=True)
class RunReading:
    """The reading of a run, or of several. `tokens`: of all results of tools, `tokens_read` those that showed files.
    `empty`: searches that found nothing, with how often; `cut`: results of which a part was missing.
    """

    run: str
    repository: str = ""
    runs: int = 1
    calls: int = 0
    tokens: int = 0
    files: list[FileReading] = field(default_factory=list)
    empty: dict[str, int] = field(default_factory=dict)
    cut: int = 0
    dearest: list[ResultSize] = field(default_factory=list)

    @property
    def tokens_read(self) -> int:
        """Tokens of results that showed files."""
        return sum(file.tokens for file in self.files)

    @property
    def tokens_again(self) -> int:
        """Tokens of reads that showed nothing new."""
        return sum(file.tokens_again for file in self.files)

    @property
    def tokens_unused(self) -> int:
        """Tokens of files that were read and neither edited, named nor quoted afterwards."""
        return sum(file.tokens for file in self.files if not file.used)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, with the sums."""
        sums = {name: getattr(self, name) for name in ("tokens_read", "tokens_again", "tokens_unused")}
        return {**asdict(self), **sums}


def readings(
    path: str | Path,
    *,
    vocabulary: Vocabulary | None = None,
    counter: TokenCounter | None = None,
    on_skip: Callable[[BadInput], None] | None = None,
) -> Iterator[RunReading]:
    """The reading of every run in a log or a folder of logs. `BadInput` where there is none; a file of a folder that
    cannot be read is told to `on_skip`.
    """
    for one in transcripts_in(Path(path), on_skip, "whole"):
        yield reading_of(one, vocabulary=vocabulary, counter=counter)


def reading_of(
    one: Transcript, *, vocabulary: Vocabulary | None = None, counter: TokenCounter | None = None
) -> RunReading:
    """The reading of one run, from its calls."""
    known, count = vocabulary or Vocabulary.load(), (counter or counter_for(one.model)).count
    trace = trace_of(one, known)
    by_step: dict[int, list[Event]] = {}
    for event in trace.events:
        by_step.setdefault(event.step, []).append(event)
    first = (trace.steps or 0) - len(one.calls) + 1
    found = RunReading(one.ident, one.repo or trace.cwd or "", calls=len(one.calls))
    files: dict[str, FileReading] = {}
    shown: dict[str, list[tuple[int, int]]] = {}
    texts_shown: dict[str, dict[int | str, int]] = {}
    results: list[ResultSize] = []
    looks = {(event.step - first, event.path) for event in trace.events if event.kind != "edit"}
    later = _Later(one, looks)
    for place, call in enumerate(one.calls):
        events, tokens = by_step.get(first + place, []), count(call.output) if call.output else 0
        found.tokens += tokens
        found.cut += any(event.truncated for event in events) or call.cut
        if _found_nothing(call, events):
            found.empty[_about(call, events)] = found.empty.get(_about(call, events), 0) + 1
        if tokens:
            results.append(ResultSize(call.tool, _about(call, events), tokens, later.replies(call)))
        read = list(_shared(events, tokens))
        for event, part in read:
            file = files.setdefault(str(event.path), FileReading(str(event.path)))
            if len(read) == 1 and _changed(call, texts_shown.setdefault(str(event.path), {})):
                shown.pop(str(event.path), None)  # by something that the log does not show
            new = _news(event, shown)
            file.reads, file.tokens = file.reads + 1, file.tokens + part
            if not new:
                file.again, file.tokens_again = file.again + 1, file.tokens_again + part
            file.used = file.used or later.uses(place, str(event.path), call.output or "")
        for event in events:
            if event.kind == "edit" and event.ok and event.path:
                shown.pop(event.path, None)
                texts_shown.pop(event.path, None)
                if event.path in files:
                    files[event.path].edited = files[event.path].used = True
    found.files = sorted(files.values(), key=lambda file: -file.tokens)
    found.dearest = sorted(results, key=lambda one: -one.tokens)[:_SHOWN]
    return found


def by_repository(found: Iterable[RunReading]) -> list[RunReading]:
    """Readings of many runs summed by repository, those with the most tokens first."""
    groups: dict[str, RunReading] = {}
    for one in found:
        own = groups.setdefault(one.repository, RunReading(one.repository or "(unknown)", one.repository, runs=0))
        own.runs, own.calls, own.tokens, own.cut = (
            own.runs + one.runs,
            own.calls + one.calls,
            own.tokens + one.tokens,
            own.cut + one.cut,
        )
        own.empty = dict(Counter(own.empty) + Counter(one.empty))
        own.files = _summed([*own.files, *one.files])
        own.dearest = sorted([*own.dearest, *one.dearest], key=lambda each: -each.tokens)[:_SHOWN]
    return sorted(groups.values(), key=lambda one: -one.tokens)


def _summed(files: Iterable[FileReading]) -> list[FileReading]:
    found: dict[str, FileReading] = {}
    for file in files:
        own = found.setdefault(file.path, FileReading(file.path))
        own.reads, own.tokens = own.reads + file.reads, own.tokens + file.tokens
        own.again, own.tokens_again = own.again + file.again, own.tokens_again + file.tokens_again
        own.edited, own.used = own.edited or file.edited, own.used or file.used
    return sorted(found.values(), key=lambda file: -file.tokens)


def _shared(events: Sequence[Event], tokens: int) -> Iterator[tuple[Event, int]]:
    """The files that a result shows, each with its part of the tokens: by known lines, else in equal parts."""
    seen = [one for one in events if one.ok and one.path and one.strength == "shown" and one.kind in ("read", "search")]
    lines = [size(merged(list(one.ranges))) if isinstance(one.ranges, tuple) else 0 for one in seen]
    weights = lines if all(lines) else [1] * len(seen)
    whole, left = sum(weights), tokens
    for place, (event, weight) in enumerate(zip(seen, weights, strict=True)):
        part = left if place == len(seen) - 1 else tokens * weight // whole
        left -= part
        yield event, part


def _news(event: Event, shown: dict[str, list[tuple[int, int]]]) -> bool:
    """True if a read showed a line that had not been shown since the last edit; unknown lines are news."""
    path = str(event.path)
    if event.ranges is None:
        return True
    lines = [(1, 2**53)] if event.ranges == "all" else merged(list(event.ranges))
    before = shown.get(path, [])
    shown[path] = merged([*before, *lines])
    return bool(without(lines, before)) or not lines


def _changed(call: ToolCall, before: dict[int | str, int]) -> bool:
    """True if a result shows a numbered line, or answers the same call, with other text than `before` has; `before`
    then has what it shows. By number, and by arguments, the hash of a text.
    """
    output = call.output or ""
    now: dict[int | str, int] = {int(number): hash(text) for number, text in _NUMBERED.findall(output)}
    now[f"{call.tool} {call.arguments}"] = hash(output)
    changed = any(key in before and before[key] != text for key, text in now.items())
    if changed:
        before.clear()
    before.update(now)
    return changed


def _found_nothing(call: ToolCall, events: Sequence[Event]) -> bool:
    looked = any(event.kind in ("search", "list") for event in events)
    text = (call.output or "").strip()
    return looked and call.output is not None and (not text or bool(_NOTHING.match(text)))


def _about(call: ToolCall, events: Sequence[Event]) -> str:
    """A few words on a call: its command or pattern, else the files that it shows, else its tool."""
    given = call.arguments if isinstance(call.arguments, Mapping) else {"command": call.arguments}
    said = next((given[name] for name in ("command", "cmd", "pattern", "query") if given.get(name)), None)
    if isinstance(said, list):
        said = " ".join(map(str, said))
    paths = list(dict.fromkeys(event.path for event in events if event.path))
    return " ".join(str(said).split())[:100] if said else ", ".join(paths[:3]) or call.tool


class _Later:
    """Answers and calls of a run, ready to be asked what of a result came back in them."""

    def __init__(self, one: Transcript, looks: Collection[tuple[int, str | None]]) -> None:
        self.looks = looks  # calls that only look at a file: to name it there is no use of it
        places = {id(call): place for place, call in enumerate(one.calls)}
        self.last = max((call.turn or 0 for call in one.calls), default=0)
        self.last = max(self.last, one.turns)
        spoken: list[tuple[int, str]] = [(place, _arguments(call)) for place, call in enumerate(one.calls)]
        at = -1
        boundaries = [context.boundary for context in one.contexts if context.boundary is not None]
        summaries = {id(each.made) for each in boundaries}  # what they name is not used by that
        for part in one.family():
            for message in part.messages() if part.contexts else ():
                own = [places[id(call)] for call in message.calls if id(call) in places]
                if message.made and id(message) not in summaries:
                    words = texts(message.content) or texts(list(message.items or ())) or ""
                    spoken.append((min(own, default=at + 1), words))
                at = max([at, *own])
        self.said = sorted(spoken, key=lambda pair: pair[0])

    def replies(self, call: ToolCall) -> int:
        """Replies of the model after a call."""
        return max(0, self.last - call.turn) if call.turn is not None else 0

    def uses(self, place: int, path: str, output: str) -> bool:
        """True if anything after a call names the file, or repeats a line of its result."""
        name = path.rsplit("/", 1)[-1]
        lines = {bare for line in output.split("\n")[:_MOST_LINES] if len(bare := _bare(line)) >= _QUOTED}
        for at, text in self.said:
            if (
                at > place
                and (at, path) not in self.looks
                and (_names(text, path, name) or any(line in text for line in lines))
            ):
                return True
        return False


def _arguments(call: ToolCall) -> str:
    """The arguments of a call that change or run something; a read that only names its file is no use of it."""
    given = call.arguments
    if not isinstance(given, Mapping):
        return str(given)
    return "\n".join(str(value) for name, value in given.items() if name not in ("file_path", "path", "filePath"))


def _names(text: str, path: str, name: str) -> bool:
    return path in text or bool(re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w-])", text))


def _bare(line: str) -> str:
    """A line of a file without its number."""
    return re.sub(r"^\s*\d+(?:[\t:|→]\s?|-\s)", "", line).strip()


# Tables
# ------------------------------------------------------------------------


def reading_grids(one: RunReading) -> list[Grid]:
    """Tables of one reading: its sums, a bar for each file, the dearest results, searches that found nothing."""
    from context_bench.reports.table import Grid, share
    from context_bench.reports.visible_text import plural

    whole = one.tokens_read
    sums = [
        ("results of tools", f"{one.tokens:,}", ""),
        ("that showed files", f"{whole:,}", share(whole / one.tokens) if one.tokens else "—"),
        ("read again unchanged", f"{one.tokens_again:,}", share(one.tokens_again / whole) if whole else "—"),
        ("never used afterwards", f"{one.tokens_unused:,}", share(one.tokens_unused / whole) if whole else "—"),
    ]
    about = f"{one.runs:,} {plural(one.runs, 'run')}, {one.calls:,} {plural(one.calls, 'call')}; "
    about += f"{sum(one.empty.values()):,} searches found nothing, {one.cut:,} "
    most = max((file.tokens for file in one.files), default=0)
    bars = [
        (
            file.path,
            f"{file.tokens:,}",
            f"{file.reads:,}",
            f"{file.again:,}",
            "edited" if file.edited else "used" if file.used else "not used",
            "█" * max(1, round(_BAR * file.tokens / most)) if most else "",
        )
        for file in one.files[: 4 * _SHOWN]
    ]
    dear = [(f"{each.tool}: {each.about}", f"{each.tokens:,}", f"{each.carried:,}") for each in one.dearest]
    empty = sorted(one.empty.items(), key=lambda pair: -pair[1])[:_SHOWN]
    tables = [
        Grid(f"What was read: {one.run}", ("tokens of", "tokens", "share"), list(sums), f"{about}results were cut."),
        Grid("Files", ("file", "tokens", "reads", "again", "after", ""), list(bars), words=True),
        Grid("The dearest results", ("result", "tokens", "carried by replies"), list(dear)),
    ]
    if empty:
        tables.append(Grid("Searches that found nothing", ("search", "times"), [(k, f"{n:,}") for k, n in empty]))
    return [Grid(answer(one), ()), *(table for table in tables if table.rows)]


def answer(one: RunReading) -> str:
    """Say in a sentence how much of what was read was read in vain."""
    from context_bench.reports.table import share

    if not one.tokens_read:
        return f"No result of {one.runs:,} run{'s' * (one.runs != 1)} showed a file."
    again, unused = (f"{n:,} ({share(n / one.tokens_read)})" for n in (one.tokens_again, one.tokens_unused))
    idle = sum(not (file.edited or file.used) for file in one.files)
    return (
        f"Of {one.tokens_read:,} tokens of files that were read, {again} had been read before, unchanged, and {unused} "
        f"were never used afterwards: {idle:,} of {len(one.files):,} files."
    )


def repository_grid(found: Sequence[RunReading]) -> Grid:
    """A line for each repository, its runs summed."""
    from context_bench.reports.table import Grid, share

    rows = [
        (
            one.run,
            f"{one.runs:,}",
            f"{one.tokens_read:,}",
            f"{len(one.files):,}",
            share(one.tokens_again / one.tokens_read) if one.tokens_read else "—",
            share(one.tokens_unused / one.tokens_read) if one.tokens_read else "—",
            f"{sum(one.empty.values()):,}",
            f"{one.cut:,}",
        )
        for one in found
    ]
    head = ("repository", "runs", "tokens read", "files", "again", "not used", "empty searches", "cut")
    return Grid("What was read, by repository", head, list(rows))


_FIGURES: dict[str, Callable[[RunReading], float]] = {
    "tokens of results": lambda one: float(one.tokens),
    "tokens that showed files": lambda one: float(one.tokens_read),
    "tokens read again": lambda one: float(one.tokens_again),
    "tokens never used": lambda one: float(one.tokens_unused),
    "files read": lambda one: float(len(one.files)),
    "searches that found nothing": lambda one: float(sum(one.empty.values())),
    "results that were cut": lambda one: float(one.cut),
}


def compare_readings(first: Sequence[RunReading], second: Sequence[RunReading]) -> dict[str, dict[str, Any]]:
    """Means a run of two sets of runs and their difference, second less first, with a 95 % interval (Welch's t) where
    each set has six runs or more.
    """
    from context_bench.stats.distributions import quantile

    if not first or not second:
        raise BadInput("no runs on one side; expected logs of agents on both")
    compared: dict[str, dict[str, Any]] = {}
    for name, figure in _FIGURES.items():
        sides = [[figure(one) for one in side] for side in (first, second)]
        (a, va), (b, vb) = (_mean_variance(side) for side in sides)
        row: dict[str, Any] = {"a": a, "b": b, "difference": b - a}
        if min(map(len, sides)) >= 6 and va + vb > 0:
            terms = [va / len(sides[0]), vb / len(sides[1])]
            freedom = sum(terms) ** 2 / sum(t**2 / (len(side) - 1) for t, side in zip(terms, sides, strict=True))
            half = quantile(0.975, freedom) * sum(terms) ** 0.5
            row |= {"low": b - a - half, "high": b - a + half}
        compared[name] = row
    return compared


def _mean_variance(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / (len(values) - 1) if len(values) > 1 else 0.0


def comparison_grid(compared: Mapping[str, Mapping[str, Any]], runs: tuple[int, int]) -> Grid:
    """The comparison of two sets as a table."""
    from context_bench.reports.table import Grid

    rows = []
    for name, row in compared.items():
        interval = f" [{row['low']:+,.0f}, {row['high']:+,.0f}]" if "low" in row else ""
        rows.append((name, f"{row['a']:,.1f}", f"{row['b']:,.1f}", f"{row['difference']:+,.1f}{interval}"))
    about = f"Means a run over {runs[0]:,} and {runs[1]:,} runs; intervals (Welch's t, 95 %) from six runs a side on."
    return Grid("What was read", ("mean a run", "A", "B", "B − A"), list(rows), about)
