"""The one model that feeds every output. It is built once; renderers only read it, so no two outputs can disagree.

A page is: verdict sentences, then sections of tables and charts in reading order, notes, the rows, and the run's
manifest. A new kind of content is a new section or a new `Chart.kind`; no renderer needs to know the sections by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from context_bench.core.measures import Unit as Unit, dollars, percent, took
from context_bench.core.records import Comparison, Estimate, EvalRow, Result, SetupRecord, figures_of


@dataclass(frozen=True, slots=True)
class Point:
    """One system in the quality–price plane (`pareto`)."""

    name: str
    quality: Figure
    cost: Figure
    front: bool = False  # nobody is both better and cheaper, by more than noise
    baseline: bool = False


@dataclass(frozen=True, slots=True)
class LinePoint:
    """A point of the line of `name` (`rates`, `recall`, `coverage`). `panel`: the plot it stands in, where there are
    several.
    """

    name: str
    x: float
    y: Figure
    panel: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of `n` values (`distribution`). `values`: all of them if they are few, else quantiles at even distances,
    in order.
    """

    name: str
    n: int
    median: Figure
    p95: Figure
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """A paired difference to the baseline (`forest`). `group`: the part of the data it is about, "" for all of it."""

    name: str
    difference: Figure
    verdict: str
    tone: Tone
    n: int
    margin: float | None = None
    group: str = ""


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """Examples of `name` whose score is by more than `low` and up to `high` from the baseline's (`changes`); both 0:
    the same.
    """

    name: str
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class TurnBar:
    """Prompt tokens of requests number `first` to `last` of a session, mean per request (`waterfall`).

    `cached`: read from the prompt cache; `rewritten`: as much as stood in the request before and was changed, or moved
    by a change in front of it; `new`: the rest.
    """

    name: str
    first: int
    last: int
    cached: float
    rewritten: float
    new: float


@dataclass(frozen=True, slots=True)
class Rated:
    """The score of `name` in one dimension (`dots`)."""

    name: str
    dimension: str
    score: Figure


@dataclass(frozen=True, slots=True)
class BarPart:
    """A bar, or a part of one: `part` of `name` (`failures`, `strategies`). `of`: what the amount is a share of, where
    that is counted.
    """

    name: str
    part: str
    amount: Figure
    of: int | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """The answer on one system of the user. Every output shows it from here, so that no two can differ.

    Attributes:
        system: Name, with shape and dataset where it was measured in several.
        title: One plain sentence: the savings, and what became of quality.
        chip: The verdict for people, such as "no loss ≥ 2 points" or "can't tell yet"; empty where nothing is judged.
        verdict: The formal word behind the chip.
        tone: Colour of the chip.
        baseline: The system that it is compared with.
        difference: Mean difference on the same examples, with its 95 % interval.
        margin: The loss that would still be acceptable.
        saved: Shares of tokens and of money that it saves, by name; negative where it takes more.
        lift: The verdict against truncation to the same size; empty without one.
        cost_ratio: Its bill as a multiple of the baseline's.
        command: The next command, to copy; empty where the run has no name.
        figures: The numbers behind the title in one line: difference, lift over truncation, bill.
        terms: The full statements, in the words of statistics.
    """

    system: str
    title: str
    chip: str
    verdict: str
    tone: Tone
    baseline: str = ""
    difference: Figure | None = None
    margin: float | None = None
    saved: dict[str, Figure] = field(default_factory=dict)
    lift: str = ""
    cost_ratio: Figure | None = None
    command: str = ""
    figures: str = ""
    terms: tuple[str, ...] = ()


Mark = Point | LinePoint | Spread | Gap | ScoreChange | TurnBar | Rated | BarPart | Card
M = TypeVar("M", Point, LinePoint, Spread, Gap, ScoreChange, TurnBar, Rated, BarPart, Card)


@dataclass(slots=True)
class Chart:
    """Content of one chart: `kind` is known to `reports.charts`, and says which record `data` consists of.

    `about` says in a sentence or two how to read it; `x` and `y` title the axes. `names`: all systems of the page in
    their order, so that each has the same colour in every chart. `span`: the ends of the scale, where values have them
    by definition.
    """

    id: str
    kind: str
    title: str
    about: str
    x: str
    y: str
    data: Sequence[Mark] = ()
    names: Sequence[str] = field(default_factory=list)
    span: tuple[float, float] | None = None

    def of(self, kind: type[M]) -> list[M]:
        """The data, which must consist of records of this kind: `TypeError` if it does not."""
        found = [each for each in self.data if isinstance(each, kind)]
        if len(found) < len(self.data):
            raise TypeError(f"a chart of kind {self.kind!r} is drawn from {kind.__name__} records only")
        return found


MISSING = "—"  # what was not measured
Tone = Literal["good", "bad", "neutral"]
Details = Callable[[EvalRow], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number, with its 95 % interval where there is one, and how to print it.

    `approximate`: counted by a tokenizer that is not the model's (printed with `≈`). `digits` overrides the unit's
    decimals. `n`: how many values it rests on, where that is not what the row says (printed behind it).
    """

    value: float
    unit: Unit = "number"
    low: float | None = None
    high: float | None = None
    signed: bool = False
    approximate: bool = False
    digits: int | None = None
    n: int | None = None

    @property
    def text(self) -> str:
        """`0.712 [0.601, 0.801]`, or without the bracket where no interval can be given; `0.712, n 12` where the number
        is its own.
        """
        n = None if self.n is None else f"n {self.n:,}"
        return ", ".join(part for part in (f"{self.short} {self.interval or ''}".rstrip(), n) if part)

    @property
    def short(self) -> str:
        """The number alone."""
        return ("≈" if self.approximate else "") + self._one(self.value)

    @property
    def interval(self) -> str | None:
        """`[low, high]`, without units where they are those of the number."""
        if self.low is None or self.high is None:
            return None
        ends = [self._one(end) for end in (self.low, self.high)]
        units = {text.partition(" ")[2] for text in (self._one(self.value), *ends)}
        if len(units) == 1:
            ends = [text.partition(" ")[0] for text in ends]
        return f"[{', '.join(ends)}]"

    def _one(self, value: float) -> str:
        if self.digits is None:
            text = _PRINT[self.unit](value)
        else:
            text = f"{100 * value:.{self.digits}f} %" if self.unit == "share" else f"{value:.{self.digits}f}"
        if text.startswith("-") and not any(digit in "123456789" for digit in text):
            text = text[1:]  # no minus zero
        return f"+{text}" if self.signed and value > 0 else text


def _tokens(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value % 1 == 0 else f"{value:,.1f}"


def _number(value: float) -> str:
    if (value == int(value) and abs(value) < 1e15) or 1e4 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.4f}" if 1e-3 <= abs(value) < 1e9 else f"{value:.4g}"


_PRINT: dict[str, Callable[[float], str]] = {
    "score": lambda value: f"{value:.3f}",
    "share": percent,
    "tokens": _tokens,
    "usd": dollars,
    "seconds": took,
    "count": lambda value: f"{value:,.0f}",
    "number": _number,
    "p": lambda value: f"{value:.3f}" if value >= 0.001 else "<0.001",
}
Cell = Figure | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """`repeated`: its numbers stand in another table of the page too, so a terminal may leave it out."""

    title: str
    numeric: bool = True
    about: str = ""
    repeated: bool = False


@dataclass(slots=True)
class Table:
    """Rows of cells under columns; the first `keys` columns say what a row is about. `None` cells were not measured.

    `about` explains the columns.
    """

    id: str
    columns: list[Column]
    rows: list[list[Cell]]
    title: str = ""
    about: str = ""
    keys: int = 1


@dataclass(slots=True)
class Section:
    """A part of the page. `brief` sections are meant for the terminal too."""

    id: str
    title: str
    about: str = ""
    tables: list[Table] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    brief: bool = True


@dataclass(frozen=True, slots=True)
class Sentence:
    """The verdict on one system, in words; `tone` only colours what the words already say.

    What it rests on, where it is known: `difference` to `baseline` and the `margin` it is held against; `saved`: shares
    of tokens and of money, by name; `n` examples, of which `needed` would decide. `control`: a system that only shows
    what the others are to be measured against. `kind`: a verdict on quality, one against truncation to the same size,
    a fact about the whole run, or what a family says of a system. `label`: the system with its shape and dataset, where
    it was measured in several. `but`: what the system did besides, where that spoils what it saves.
    """

    system: str
    verdict: str
    text: str
    tone: Tone = "neutral"
    baseline: str = ""
    difference: Figure | None = None
    margin: float | None = None
    saved: dict[str, Figure] = field(default_factory=dict)
    control: bool = False
    kind: Literal["quality", "lift", "run", "family"] = "quality"
    label: str = ""
    n: int = 0
    needed: int | None = None
    but: str = ""


@dataclass(frozen=True, slots=True)
class SystemChanges:
    """Number of a system's requests that did not go on as they were sent, and the first such row (`place` among all
    rows) to look at.
    """

    system: str
    changed: int
    compared: int
    place: int | None = None
    row: EvalRow | None = None


@dataclass
class Page:
    """Everything a report shows. `summary` and `estimates` hold only what was measured; `rows` are read lazily and in
    plan order.

    `facts` are short (label, text) pairs about the run for the head of the page. `details` gives the example behind a
    row, if bodies are at hand: a mapping such as `{"question", "answer", "response"}`. `setups`: every set-up of a
    group; `setup` sums them up by system. `families[manifest key]`: figures of the family that the run belongs to.
    `changes`: what became of requests on their way, by system, where anything can be said of it. `cards`: the answer,
    one for each system of the user; `checks`: one line that says whether the controls did what they must; `headline`:
    facts that make the cards pointless; `overview`: the table with one line for each system.
    `whole`: the command that shows everything. `store`: where the run is kept, as commands name it; empty for the usual
    place.
    """

    title: str
    facts: list[tuple[str, str]]
    systems: list[str]
    baseline: str | None
    score_field: str | None
    verdicts: list[Sentence]
    sections: list[Section]
    notes: list[str]
    rows: Sequence[EvalRow]
    score_names: list[str]
    examples: int
    summary: dict[str, dict[str, float]]
    estimates: dict[str, dict[str, Estimate]]
    comparisons: list[Comparison]
    wire: dict[str, dict[str, Any]]
    failures: dict[str, dict[str, dict[str, int]]]
    timing: dict[str, float]
    config: dict[str, Any]
    manifest: dict[str, Any]
    details: Details | None = None
    families: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    replay: dict[str, Any] = figures_of("replay")
    setup: dict[str, dict[str, Any]] = field(default_factory=dict)
    setups: list[SetupRecord] = field(default_factory=list)
    agents: dict[str, Any] = figures_of("agents")
    compression: dict[str, Any] = figures_of("compression")
    by_type: list[Comparison] = field(default_factory=list)
    lifts: list[Comparison] = field(default_factory=list)
    changes: list[SystemChanges] = field(default_factory=list)
    cards: list[Card] = field(default_factory=list)
    checks: str = ""
    headline: list[str] = field(default_factory=list)
    overview: Section | None = None
    whole: str = ""
    store: str = ""

    def section(self, name: str) -> Section | None:
        """The section with this id, if the page has it."""
        return next((each for each in self.sections if each.id == name), None)


def build_page(result: Result, *, title: str | None = None, details: Details | None = None, store: str = "") -> Page:
    """Everything reports show of `result`, computed once. Reads the rows once, in bounded memory. `store`: where the
    run is kept, for the commands that the page names, unless that is the usual place.
    """
    from context_bench.reports.sections import assemble

    return assemble(result, title=title or "Evaluation Results", details=details, store=store)


def shared_commands(cards: Sequence[Card]) -> dict[str, list[str]]:
    """Commands that are the next of several systems, and the systems: they are said once, below the cards."""
    found: dict[str, list[str]] = {}
    for each in cards:
        found.setdefault(each.command, []).append(each.system)
    return {command: systems for command, systems in found.items() if command and len(systems) > 1}


def card_chart(page: Page) -> Chart | None:
    """The cards as a picture that travels: names, verdicts and figures, and no word of what was asked or answered.
    `None` where nothing is said of any system of the user.
    """
    if not page.cards:
        return None
    first, many = page.cards[0], len(page.cards)
    against = f" Against {page.baseline}." if page.baseline else ""
    about = (
        f"{page.examples:,} example{'s' * (page.examples != 1)}.{against} Stroke: the mean difference with its 95 % "
        "interval; line: none; dashed: the loss that would still be acceptable. Measured with context-bench."
    )
    title = f"What {many} systems do to answers and costs" if many > 1 else f"What {first.system} does"
    return Chart("card", "card", title, about, f"{page.score_field or 'score'}, difference", "", page.cards)
