"""Meters: what a tool says of itself, beside what the same work comes to and what the provider billed.

A format is a file of `meter_formats/` that says where a tool's JSON has its figures, what they are shares of, and how
the tool counts. `read_meter` reads a file, a URL or the output of a command. `explained` goes from the honest figure
to the tool's claim, one named reason after the other: each reason is a way of counting that the tool may have, and its
tokens are the difference that it makes on the same work. What no reason accounts for stays as the rest.
"""

from __future__ import annotations

import shlex
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import load_json
from context_bench.core.measures import percent
from context_bench.core.numbers import real
from context_bench.core.records import Usage
from context_bench.core.templates import at
from context_bench.core.tokens import counter_for
from context_bench.llm.redact import bare_url, redact

if TYPE_CHECKING:
    from context_bench.reports.table import Grid

#: The four denominators of "saved": a share is told with the one that it is of.
DENOMINATORS = {
    "passed": "of what passed the tool",
    "results": "of all results of tools",
    "prompts": "of the prompts sent",
    "bill": "of the bill",
}
_LARGEST = 16 * 1024 * 1024
_TIMEOUT = 30.0
#: Characters after which clients cut a result themselves (Claude Code's BASH_MAX_OUTPUT_LENGTH).
CEILING = 30_000
_HUGE = 0.5
_NUMBERS = ("before", "after", "saved", "share", "items", "usd", "output", "read", "written", "excluded")


@dataclass(frozen=True, slots=True)
class Meter:
    """Account of a tool by itself. Tokens: `before`, `after`, `saved`, or, of a meter of usage, `spent` (input), of
    which `read` and `written` from and to the cache, and `output`; `usd` at whatever price it takes; `items` counted,
    `excluded` left out by itself. `share` in [0, 1], of the `denominator`. `tokenizer`, `floored`: how it counts.
    """

    name: str
    denominator: str
    saved: float | None = None
    before: float | None = None
    after: float | None = None
    share: float | None = None
    spent: float | None = None
    output: float | None = None
    read: float | None = None
    written: float | None = None
    usd: float | None = None
    items: float | None = None
    excluded: float | None = None
    tokenizer: str = ""
    floored: bool = False

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; what the tool does not say is left out."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


@dataclass(frozen=True, slots=True)
class MeteredWork:
    """One thing that a tool shortened: the text before and after, `sent`: it reached the model."""

    name: str
    before: str
    after: str
    sent: bool = True


@dataclass(slots=True)
class GapReport:
    """A claim beside the same work recomputed. `reasons`: name → tokens, from the recomputed figure to the claim;
    `rest` is what they leave. `notes` say what else is to be known of the claim.
    """

    meter: Meter
    claimed: float
    recomputed: float
    billed: float | None = None
    reasons: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def rest(self) -> float:
        """Tokens of the gap that no reason accounts for."""
        return self.claimed - self.recomputed - sum(self.reasons.values())

    @property
    def rest_share(self) -> float:
        """The rest as a share of the claim (of the recomputed figure where the claim is 0)."""
        return abs(self.rest) / (abs(self.claimed) or abs(self.recomputed) or 1.0)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        told = {"meter": self.meter.as_dict(), "claimed": self.claimed, "recomputed": self.recomputed}
        return {**told, "billed": self.billed, "reasons": self.reasons, "rest": self.rest, "notes": self.notes}


@cache
def meter_formats() -> dict[str, dict[str, Any]]:
    """Formats by name: a file of `meter_formats/` each."""
    folder = Path(__file__).with_name("meter_formats")
    return {file.stem: tomllib.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.toml"))}


def read_meter(source: str) -> Meter:
    """The meter in a file, behind a URL, or printed by a command. `SOURCE#saved=a.b,before=c.d` names the places of
    figures in JSON of no known format. `BadInput` for what cannot be read, or is no meter's.
    """
    place, mark, generic = (
        source.rpartition("#") if "#" in source and "=" in source.rpartition("#")[2] else (source, "", "")
    )
    document = _document(place)
    if mark:
        return _generic(place, generic, document)
    if isinstance(document, Mapping) and ("resourceMetrics" in document or "resource_metrics" in document):
        return _open_telemetry(document)
    for name, form in meter_formats().items():
        if all(at(document, path) is not None for path in form["has"]):
            return _meter(name, form, document)
    keys = ", ".join(list(map(str, document))[:8]) if isinstance(document, Mapping) else type(document).__name__
    raise BadInput(
        f"--meter {redact(place)[:200]}: no meter that is known, its JSON has {keys or 'nothing'}; known are "
        f"{', '.join(meter_formats())} and OpenTelemetry metrics; for another write SOURCE#saved=PATH,before=PATH"
    )


def _document(place: str) -> Any:
    """The JSON of a file, a URL or a command."""
    shown = bare_url(place) if place.startswith(("http://", "https://")) else redact(place)[:200]
    try:
        if place.startswith(("http://", "https://")):
            with urllib.request.urlopen(place, timeout=_TIMEOUT) as answer:
                data = answer.read(_LARGEST + 1)
        elif Path(place).is_file():
            with Path(place).open("rb") as file:
                data = file.read(_LARGEST + 1)
        else:
            data = _printed(place)
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise BadInput(f"--meter {shown}: cannot be read: {redact(str(error))[:200]}") from error
    if len(data) > _LARGEST:
        raise BadInput(f"--meter {shown}: more than {_LARGEST >> 20} MiB; expected a tool's summary as JSON")
    try:
        return load_json(data)
    except ValueError:
        said = redact(data[:200].decode("utf-8", "replace"))
        raise BadInput(f"--meter {shown}: expected JSON, found {said[:120]!r}") from None


def _printed(command: str) -> bytes:
    from context_bench.core.errors import SystemFailed
    from context_bench.sandbox.vendors import run_program

    argv = shlex.split(command)
    if not argv:
        raise BadInput("--meter is empty; expected a file, a URL or a command that prints JSON")
    try:
        done = run_program(argv, _TIMEOUT)
    except SystemFailed as error:
        raise BadInput(f"--meter {redact(command)[:200]}: {redact(str(error))[:200]}") from error
    if done.status != 0:
        said = redact(done.err[-400:].decode("utf-8", "replace")).strip() or "it said nothing"
        raise BadInput(f"--meter {redact(command)[:200]}: ended with exit status {done.status}: {said}")
    return bytes(done.out)


def _meter(name: str, form: Mapping[str, Any], document: Any) -> Meter:
    stated: dict[str, Any] = {key: real(at(document, form.get(key))) for key in _NUMBERS if form.get(key)}
    if "share" in stated and form.get("percent") and stated["share"] is not None:
        stated["share"] /= 100
    if form.get("spent"):
        parts = [real(at(document, path)) for path in form["spent"]]
        stated["spent"] = sum(part for part in parts if part is not None)
    return _completed(
        Meter(
            str(form.get("title", name)),
            str(form["denominator"]),
            tokenizer=str(form.get("tokenizer", "")),
            floored=bool(form.get("floored")),
            **stated,
        )
    )


def _completed(meter: Meter) -> Meter:
    """With the saving or the share that follows from what the tool says."""
    from dataclasses import replace

    before, after, saved = meter.before, meter.after, meter.saved
    if saved is None and before is not None and after is not None:
        saved = before - after
    if after is None and before is not None and saved is not None:
        after = before - saved
    share = meter.share if meter.share is not None else saved / before if saved is not None and before else None
    return replace(meter, saved=saved, after=after, share=share)


def _generic(place: str, paths: str, document: Any) -> Meter:
    """A meter of no known format, by the places that the user names."""
    stated: dict[str, Any] = {}
    denominator = "passed"
    for pair in paths.split(","):
        name, _, path = pair.partition("=")
        if name == "of":
            denominator = path
        elif name not in (*_NUMBERS, "spent"):
            raise BadInput(f"--meter …#{name}=: expected {', '.join((*_NUMBERS, 'spent', 'of'))}, found {name!r}")
        elif (value := real(at(document, path))) is None:
            raise BadInput(f"--meter {redact(place)[:200]}: no number at {path!r} (for {name})")
        else:
            stated[name] = value
    if denominator not in DENOMINATORS:
        raise BadInput(f"--meter …#of={denominator}: expected one of {', '.join(DENOMINATORS)}")
    return _completed(Meter(Path(place).name[:60], denominator, **stated))


def _open_telemetry(document: Mapping[str, Any]) -> Meter:
    """Sums of tokens and dollars in an OTLP/JSON export of metrics: `gen_ai.client.token.usage` of the GenAI
    convention, `claude_code.token.usage` and `claude_code.cost.usage` of Claude Code.
    """
    sums: dict[str, float] = {}
    for resource in _listed(document, "resourceMetrics", "resource_metrics"):
        for scope in _listed(resource, "scopeMetrics", "scope_metrics"):
            for metric in _listed(scope, "metrics"):
                name = str(metric.get("name"))
                held: Any = next((metric[kind] for kind in ("sum", "histogram", "gauge") if kind in metric), {})
                for point in _listed(held, "dataPoints", "data_points"):
                    kind = _attribute(point, "gen_ai.token.type") or _attribute(point, "type") or ""
                    value = point.get("asInt", point.get("asDouble", point.get("sum")))
                    number = real(float(value)) if isinstance(value, str | int | float) else None
                    key = "usd" if name.endswith("cost.usage") else kind if name.endswith("token.usage") else ""
                    if key and number is not None:
                        sums[key] = sums.get(key, 0.0) + number
    read, written = sums.get("cacheRead"), sums.get("cacheCreation")
    spent = sums.get("input", 0.0) + (read or 0.0) + (written or 0.0)
    return Meter(
        "OpenTelemetry", "bill", spent=spent, output=sums.get("output"), read=read, written=written, usd=sums.get("usd")
    )


def _listed(value: Any, *names: str) -> list[Mapping[str, Any]]:
    found: Any = next((value[name] for name in names if isinstance(value, Mapping) and name in value), [])
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _attribute(point: Mapping[str, Any], name: str) -> str | None:
    for each in _listed(point, "attributes"):
        if each.get("key") == name and isinstance(each.get("value"), Mapping):
            return str(each["value"].get("stringValue"))
    return None


# The claim and the same work
# ------------------------------------------------------------------------


def explained(
    meter: Meter, work: Sequence[MeteredWork], *, model: str | None = None, ceiling: int = CEILING, overhead: int = 0
) -> GapReport:
    """The tool's saving beside that of the same work, and the gap by reasons. `overhead`: tokens that the tool itself
    adds to prompts. The recomputed figure takes texts that were sent, as the client would have cut them at `ceiling`
    characters, in the model's tokens, growth included, less the overhead.
    """
    if meter.saved is None:
        raise BadInput(f"{meter.name} tells no saving; a meter of usage is held to the log (`explained_usage`)")
    count = counter_for(model).count
    own = _other(meter.tokenizer) or count
    sent = [item for item in work if item.sent]
    kept = [item for item in work if not (meter.excluded and len(item.before) > ceiling)]
    stages = [
        ("own overhead left out", _saved(sent, count, ceiling)),
        ("output never sent", _saved(work, count, ceiling)),
        ("the client would have cut anyway", _saved(work, count)),
        ("items that the meter leaves out", _saved(kept, count)),
        (f"another tokenizer ({meter.tokenizer or 'the same'})", _saved(kept, own)),
    ]
    honest = stages[0][1] - overhead
    report, before = GapReport(meter, meter.saved, honest), honest
    for name, now in stages:
        report.reasons[name], before = now - before, now
    report.reasons |= _own_sums(meter, kept, own)
    report.reasons = {name: tokens for name, tokens in report.reasons.items() if tokens}
    report.notes = _notes(meter, work, count, ceiling)
    return report


def _saved(work: Sequence[MeteredWork], count: Callable[[str], float], ceiling: int | None = None) -> float:
    return sum(count(item.before[:ceiling]) - count(item.after) for item in work)


def _own_sums(meter: Meter, work: Sequence[MeteredWork], count: Callable[[str], float]) -> dict[str, float]:
    """The rest of the gap by what the meter itself states: texts before and after that are others than the work's, and
    what it makes of losses.
    """
    if not meter.before or meter.after is None or meter.saved is None:
        losses = [count(item.after) - count(item.before) for item in work]
        return {"floored at zero": sum(max(0.0, loss) for loss in losses) if meter.floored else 0.0}
    return {
        "another baseline: its texts before are not the command's": meter.before - sum(count(i.before) for i in work),
        "its texts after are not those given back": sum(count(i.after) for i in work) - meter.after,
        "floored at zero": meter.saved - (meter.before - meter.after),
    }


def _other(tokenizer: str) -> Callable[[str], float] | None:
    if tokenizer == "characters / 4":
        return lambda text: -(-len(text) // 4)
    if tokenizer == "bytes / 4":
        return lambda text: -(-len(text.encode()) // 4)
    return counter_for("gpt-4o").count if tokenizer == "o200k_base" else None


def _notes(meter: Meter, work: Sequence[MeteredWork], count: Callable[[str], float], ceiling: int) -> list[str]:
    notes = []
    sizes = {item.name: count(item.before[:ceiling]) - count(item.after) for item in work}
    whole = sum(max(0, size) for size in sizes.values())
    top = max(sizes, key=lambda name: sizes[name], default=None)
    if top is not None and whole and len(sizes) > 1 and sizes[top] > _HUGE * whole:
        notes.append(f"one huge item: {top[:80]} is {percent(sizes[top] / whole)} of the saving")
    if grown := sum(size < 0 for size in sizes.values()):
        notes.append(
            f"{grown} of {len(sizes)} items grew; the meter {'shows none of that' if meter.floored else 'counts it'}"
        )
    if meter.excluded:
        notes.append(f"the meter itself left {meter.excluded:,.0f} items out")
    if meter.items is not None and meter.items != len(work):
        notes.append(f"the meter counted {meter.items:,.0f} items, the work has {len(work):,}")
    if meter.usd:
        notes.append("its dollars are at list price; what the cache would have read anyway costs a tenth or less")
    return notes


def shares_of(saved: float, *, passed: float, results: float | None, prompts: float | None) -> dict[str, float]:
    """A saving in tokens as a share of each denominator that is known; that of the bill is money, not tokens."""
    known = {"passed": passed, "results": results, "prompts": prompts}
    return {name: saved / whole for name, whole in known.items() if whole}


def explained_usage(meter: Meter, logged: Usage, billed: Usage | None = None) -> GapReport:
    """A meter of usage beside the log that it read, and beside the provider's bill where somebody kept it."""
    if meter.spent is None:
        raise BadInput(f"{meter.name} tells no usage; a meter of savings is held to the work (`explained`)")
    whole = billed.input_tokens if billed is not None else None
    report = GapReport(meter, meter.spent, float(logged.input_tokens or 0), float(whole) if whole is not None else None)
    for name, own, stated in (
        ("tokens written to the cache left out", meter.written, logged.cache_write),
        ("tokens read from the cache left out", meter.read, logged.cache_read),
    ):
        if own is not None and stated and own < stated:
            report.reasons[name] = own - stated
    missing = (whole or 0) - (logged.input_tokens or 0)
    if missing > 0:
        report.notes.append(
            f"the log lacks {missing:,} input tokens that were billed: calls that the client does not log"
        )
    return report


def meter_grids(reports: Sequence[GapReport]) -> list[Grid]:
    """Tables: claimed beside recomputed and billed, and the gap of each meter by reasons."""
    from context_bench.reports.table import Grid, share

    if not reports:
        return []
    rows = [
        (
            one.meter.name,
            "used" if one.meter.spent is not None else "saved",
            f"{one.claimed:,.0f}",
            f"{one.recomputed:,.0f}",
            "—" if one.billed is None else f"{one.billed:,.0f}",
            f"{one.rest:+,.0f}",
            DENOMINATORS[one.meter.denominator],
        )
        for one in reports
    ]
    head = ("meter", "tokens", "claimed", "recomputed", "billed", "unexplained", "its share is")
    gaps = [
        (one.meter.name, name, f"{tokens:+,.0f}", share(tokens / one.claimed) if one.claimed else "—")
        for one in reports
        for name, tokens in one.reasons.items()
    ] + [(one.meter.name, note, "", "") for one in reports for note in one.notes]
    grids = [Grid("What tools say of themselves", head, list(rows), words=True)]
    return (
        [*grids, Grid("Why", ("meter", "reason", "tokens", "of the claim"), list(gaps), words=True)] if gaps else grids
    )
