"""Live traffic and its holdout on the terminal and at its end: lines of 80 columns, plain lines for logs, JSON."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from context_bench.core.measures import dollars, percent
from context_bench.core.records import Usage, not_compared
from context_bench.reports.visible_text import json_ready, plural, visible
from context_bench.wire.turns import Figures, Quotas, Turn
from context_bench.wire.violations import phrase

_ARMS = ("main", "holdout")


@dataclass(slots=True)
class HoldoutBills:
    """Bills by drawn conversation, US dollars, of those through the proxy (`main`) and those held out (`holdout`).

    `unpriced`: conversations with a call whose price is not known. `unnamed`: turns that name no conversation, and
    `strays`: calls that belong to none; both are in neither group.
    """

    bills: dict[str, dict[str, float]] = field(default_factory=lambda: {arm: {} for arm in _ARMS})
    unpriced: dict[str, set[str]] = field(default_factory=lambda: {arm: set() for arm in _ARMS})
    unnamed: int = 0
    strays: int = 0

    def add(self, turn: Turn) -> None:
        """Count one record in."""
        if turn.arm not in _ARMS or turn.kind == "other":
            return
        if not turn.unit:
            self.strays += turn.kind == "stray"
            self.unnamed += turn.kind == "turn"
            return
        bills = self.bills[turn.arm]
        bills[turn.unit] = bills.get(turn.unit, 0.0) + (turn.cost or 0.0) + (turn.guessed or 0.0)
        if turn.unpriced:
            self.unpriced[turn.arm].add(turn.unit)

    def as_dict(self, share: float) -> dict[str, Any]:
        """The result, JSON-ready, with its sentence. `share`: of conversations that were to be held out."""
        from context_bench.stats.anytime import FEWEST_OF_ARM, ratio_of_arms

        through, past = (self._billed(arm) for arm in _ARMS)
        found = ratio_of_arms(through, past, share=share)
        interval = {} if found is None or found.low is None else {"low": found.low, "high": found.high}
        result: dict[str, Any] = {
            "share": share,
            "through": len(through),
            "held_out": len(past),
            "fewest": FEWEST_OF_ARM,
            "left_out": {
                arm: len(self.bills[arm]) - len(bills) for arm, bills in zip(_ARMS, (through, past), strict=True)
            },
            "unnamed_turns": self.unnamed,
            "stray_calls": self.strays,
            "method": "ratio of geometric means of bills, by drawn conversation; asymptotic confidence sequence",
        }
        if interval and found is not None:
            result |= {"cost_ratio": found.value, **interval}
        return {**result, "sentence": _sentence(result)}

    def _billed(self, arm: str) -> list[float]:
        return [bill for unit, bill in self.bills[arm].items() if bill > 0 and unit not in self.unpriced[arm]]


def _sentence(result: Mapping[str, Any]) -> str:
    through, past, fewest = result["through"], result["held_out"], result["fewest"]
    if "cost_ratio" in result:
        text = (
            f"Holdout: a typical conversation through the proxy costs ×{result['cost_ratio']:.2f} of one past it (95 % "
            f"at any look: ×{result['low']:.2f} to ×{result['high']:.2f}; {through:,} against {past:,} held out, whole "
            "conversations drawn at random)."
        )
    else:
        few, where = (past, "held out") if past <= through else (through, "through the proxy")
        text = (
            f"Holdout: no saving is stated: {few:,} {plural(few, 'conversation')} {where} with a bill, and {fewest} "
            "are the fewest from which an interval holds. With fewer, one dear conversation decides the figure. "
            "Requests are no substitute: those of one conversation fall together."
        )
    return " ".join([text, *_left_out_of_holdout(result)])


def _left_out_of_holdout(result: Mapping[str, Any]) -> list[str]:
    counts = (
        (sum(result["left_out"].values()), "conversation", "without a known bill"),
        (result["unnamed_turns"], "request", "of no known conversation"),
        (result["stray_calls"], "call", "that came while no client waited"),
    )
    named = [f"{count:,} {plural(count, what)} {how}" for count, what, how in counts if count]
    return [f"In neither group: {', '.join(named)}."] if named else []


WIDTH = 80
_LIVE_SESSIONS = 8
_FOLDED = 3  # so many sessions of one request each are one line
_COLUMNS = (("turns", 5), ("sent", 6), ("forw.", 6), ("new", 6), ("read", 6), ("write", 6), ("out", 6), ("USD", 9))

Key = tuple[str, str]  # arm, session


@dataclass
class Board:
    """Figures that grow turn by turn, as something `rich` can show.

    `head`: lines above them. `contexts`: of each session the figures by what its requests are for.
    """

    head: list[str] = field(default_factory=list)
    figures: dict[Key, Figures] = field(default_factory=dict)
    contexts: dict[Key, dict[str, Figures]] = field(default_factory=dict)
    sums: dict[str, Figures] = field(default_factory=dict)
    bills: HoldoutBills = field(default_factory=HoldoutBills)
    quotas: Quotas = field(default_factory=Quotas)

    def add(self, turn: Turn) -> None:
        """Count one record."""
        for record in () if turn.arm == "shadow" else [*turn.calls, *([turn.front] if turn.front is not None else [])]:
            self.quotas.take(record.facts)
        key = (turn.arm, turn.session)
        figures = self.figures.pop(key, None) or Figures()
        figures.add(turn)
        self.figures[key] = figures  # the latest is last
        if turn.session:
            self.contexts.setdefault(key, {}).setdefault(turn.context, Figures()).add(turn)
        self.sums.setdefault(turn.arm, Figures()).add(turn)
        self.bills.add(turn)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.head:
            yield Text(visible(line, 400), style="dim")
        if not self.figures:
            yield Text("waiting for the first request …")
            return
        rows = [_Row(_name(*key), figures) for key, figures in self.figures.items() if _has_content(key, figures)]
        shown = rows[-_LIVE_SESSIONS:]
        yield from _tables(shown, brief=True)
        if len(rows) > len(shown):
            yield Text(f"and {len(rows) - len(shown):,} earlier sessions", style="dim")
        yield from self._ends(Counter(arm for arm, session in self.figures if session), brief=True)

    def final(self) -> Iterator[Table | Text]:
        """The lines of all sessions with their contexts, one-shot requests in one, and of each arm that has several."""
        rows: list[_Row] = []
        lines: Counter[str] = Counter()
        for arm in self.sums:
            single, several = self._shots(arm)
            for key in several:
                rows.append(_Row(_name(*key), self.figures[key], self._parts(key)))
            if single:
                folded = Figures()
                for key in single:
                    folded.absorb(self.figures[key])
                rows.append(_Row(_name(arm, f"{len(single):,} one-shots"), folded))
            lines[arm] = len(several) + bool(single)
        yield from _tables(rows, brief=False)
        yield from self._ends(lines, brief=False)

    def _shots(self, arm: str) -> tuple[list[Key], list[Key]]:
        """Sessions of one request each, if there are several such, and all others."""
        keys = [key for key, figures in self.figures.items() if key[0] == arm and _has_content(key, figures)]
        single = [key for key in keys if key[1] and self.figures[key].turns == 1 and not self.figures[key].repeats]
        if len(single) < _FOLDED:
            return [], keys
        folded = set(single)
        return single, [key for key in keys if key not in folded]

    def _parts(self, key: Key) -> list[tuple[str, Figures]]:
        found = self.contexts.get(key, {})
        return list(found.items()) if len(found) > 1 else []

    def _ends(self, lines: Mapping[str, int], *, brief: bool) -> Iterator[Table | Text]:
        """Lines about a whole arm: its sum where it has several lines, and figures that are in no line."""
        for arm, figures in self.sums.items():
            if lines.get(arm, 0) > 1:
                yield from _tables([_Row(_name(arm, "all"), figures)], brief=brief, heads=False)
            elif figures.other and not self.figures.get((arm, ""), Figures()).turns:
                yield Text(f"{figures.other:,} other {plural(figures.other, 'request')} (no prompts)", style="dim")

    def unreached(self, back: str | None) -> str | None:
        """Advice if requests were answered and none of them was seen behind the proxy. `back` is the tap's address."""
        figures = self.sums.get("main")
        if figures is None or not figures.silent:
            return None
        if not figures.calls:
            return f"nothing reached the back tap: set the proxy's upstream to {back or 'its address'}"
        return (
            f"{figures.silent:,} of {figures.turns + figures.repeats:,} turns were answered without a call "
            "that reached the back tap"
        )


def line(turn: Turn) -> str:
    """One record on one plain line."""
    where = {"turn": f"turn {turn.turn}", "late": "late call", "stray": "stray call", "other": turn.wire or "other"}[
        turn.kind
    ]
    again = f" again (after {turn.after})" if turn.after else " again" if turn.repeat else ""
    context = f" ({turn.context})" if turn.context != "main" else ""
    told = [f"{turn.session or '-'} {where}{context}{again}{'' if turn.arm == 'main' else f' ({turn.arm})'}"]
    status = f"{turn.status or '---'}"
    told.append(status if turn.failure in (None, status) else f"{status} {turn.failure}")
    told.append(f"{short(turn.sent)} → {short(turn.forwarded)} tokens{'' if turn.exact else ' (est.)'}")
    if turn.cost is not None or turn.guessed is not None:
        told.append(f"{'≈ ' if turn.guessed is not None else ''}{dollars((turn.cost or 0) + (turn.guessed or 0))}")
    if turn.added is not None:
        told.append(f"{round(turn.added * 1000):+,d} ms")
    counts = ((turn.extra, "extra"), (turn.retries, "retried"), (turn.pending, "still being answered behind"))
    told += [f"{count} {what}" for count, what in counts if count]
    told += [
        f"{phrase(kind, turn.tools.get(kind, ()))}{f' ×{count}' if count > 1 else ''}"
        for kind, count in turn.violations.items()
    ]
    told += [not_compared(turn.oversized)] if turn.oversized else []
    return visible(" · ".join(told), 400)


def summary(turns: Iterable[Turn], about: Mapping[str, Any], notes: Iterable[str] = ()) -> str:
    """The final report as text of at most 80 columns, without colour."""
    board = _counted(turns)
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, color_system=None, highlight=False, emoji=False)
    console.print(
        Text(" · ".join(visible(f"{name} {value}", 200) for name, value in about.items() if _is_short(value)))
    )
    if not board.figures:
        console.print("Nothing came through.")
    else:
        for part in board.final():
            console.print(part)
    for note in _notes(board, about, notes):
        console.print(Text(visible(note, 1000)))
    return "\n".join(text.rstrip() for text in stream.getvalue().splitlines()).strip("\n") + "\n"


def _is_short(value: Any) -> bool:
    """True if a setting can stand in the first lines; what has parts is told in a sentence of its own."""
    return value is not None and not isinstance(value, Mapping)


def as_json(
    turns: Iterable[Turn],
    about: Mapping[str, Any],
    notes: Iterable[str] = (),
    limits: Any = None,
    bills: Any = None,
    counted: Any = None,
) -> str:
    """The final report as JSON: `watch`, `total` and `sessions` by arm, `notes`; with limits, how they stand; where
    replies told them, `quotas`; the `bills` by arm, where bodies were kept; `provider_count`, where it was asked.
    """
    board = _counted(turns)
    arms: dict[str, Any] = {arm: {"total": figures.as_dict(), "sessions": {}} for arm, figures in board.sums.items()}
    for (arm, session), figures in board.figures.items():
        told = figures.as_dict()
        contexts = board.contexts.get((arm, session), {})
        if len(contexts) > 1:
            told["contexts"] = {name: part.as_dict() for name, part in contexts.items()}
        arms[arm]["sessions"][session or "-"] = told
    noted = _notes(board, about, notes)
    report = {"schema": 1, "watch": dict(about), "arms": arms, "notes": noted}
    if isinstance(share := about.get("holdout"), float):
        report["holdout"] = board.bills.as_dict(share)
    report |= {"quotas": quotas} if (quotas := board.quotas.as_dict()) else {}
    report |= {"bill": bills} if bills else {}
    report |= {"provider_count": counted} if counted else {}
    report |= {} if limits is None else {"limits": limits}
    return json.dumps(json_ready(report), indent=2) + "\n"


def counted_sentences(told: Mapping[str, Any]) -> Iterator[str]:
    """Say what was not sent by the provider's own count, beside ours, and what it did not count."""
    changed, counted = int(told.get("changed") or 0), int(told.get("counted") or 0)
    if counted:
        theirs, ours = told["provider"], told["ours"]
        share = f" ({percent(theirs['not_sent'] / theirs['counted'])})" if theirs["counted"] else ""
        yield (
            f"Not sent, by the provider's own count: {theirs['not_sent']:,} of {theirs['counted']:,} prompt tokens of "
            f"{counted:,} changed {plural(counted, 'request')}{share}; by our count of the same "
            f"{ours['not_sent']:,} of {ours['sent']:,}."
        )
    elif not changed:
        yield "The provider's own count was not asked: no request was seen that the proxy had changed."
    left = told.get("not_counted") or {}
    if left:
        number = sum(left.values())
        why = ", ".join(f"{count:,} × {visible(name, 60)}" for name, count in left.items())
        yield f"Not counted by the provider: {number:,} changed {plural(number, 'request')} ({why})."
    if stopped := told.get("stopped"):
        yield f"No more was asked of its count: {visible(str(stopped), 120)}."


def _notes(board: Board, about: Mapping[str, Any], notes: Iterable[str]) -> list[str]:
    unreached = board.unreached(about.get("back"))
    share = about.get("holdout")
    drawn = [str(board.bills.as_dict(share)["sentence"])] if isinstance(share, float) else []
    used = [sentence] if (sentence := board.quotas.sentence()) else []
    large = sum(figures.oversized for figures in board.sums.values())
    unread = [f"{not_compared(large)}."] if large else []
    return [*([f"Mind: {unreached}."] if unreached else []), *unread, *drawn, *used, *notes]


def _counted(turns: Iterable[Turn]) -> Board:
    """One pass, since a long watch does not fit the memory."""
    board, order = Board(), dict[tuple[str, str], None]()
    for turn in turns:
        order.setdefault((turn.arm, turn.session))
        board.add(turn)
    board.figures = {key: board.figures[key] for key in order}
    return board


def _has_content(key: Key, figures: Figures) -> bool:
    """Requests without a session may be no prompts at all: then there is no line to show."""
    return bool(key[1] or figures.turns or figures.repeats or figures.late or figures.stray)


def short(tokens: int | None) -> str:
    """A number of tokens in at most six characters; `–` for not known."""
    if tokens is None:
        return "–"
    if tokens < 10_000:
        return f"{tokens:,}"
    value, unit = next((tokens / size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if tokens >= size)
    return f"{value:.1f}{unit}" if value < 999.95 else f"{value:.0f}{unit}"


@dataclass(slots=True)
class _Row:
    """One session with what it consists of, or several in one."""

    name: str
    figures: Figures
    parts: list[tuple[str, Figures]] = field(default_factory=list)


def _tables(rows: list[_Row], *, brief: bool, heads: bool = True) -> Iterator[Table | Text]:
    """Per row its figures, and under them what else there is to say."""
    for number, row in enumerate(rows):
        table = _table(heads and not number)
        table.add_row(Text(row.name, style="bold"), *_cells(row.figures))
        for name, figures in row.parts:
            table.add_row(Text(f"  {visible(name, 40)}"), *_cells(figures))
        yield table
        for text in _more(row.figures, brief):
            yield Text(f"  {text}", style="dim")


def _table(heads: bool) -> Table:
    table = Table(box=None, show_header=heads, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("session", width=18, no_wrap=True, overflow="ellipsis")
    for name, width in _COLUMNS:
        table.add_column(name, width=width, justify="right", no_wrap=True)
    return table


def _name(arm: str, session: str) -> str:
    name = visible(session or "no session", 60)
    return name if arm == "main" else f"{name} {arm}"


def _cells(figures: Figures) -> list[str]:
    usage = figures.usage or Usage()
    billed = (figures.new_tokens, usage.cache_read, usage.cache_write, usage.output_tokens)
    counted = (figures.turns, figures.sent, figures.forwarded, *billed)
    return [*(short(value) for value in counted), _money(figures)]


def _money(figures: Figures) -> str:
    """US dollars as stated, with what is predicted of calls that told no usage: then marked."""
    if figures.cost is None and figures.guessed is None:
        return "–"
    amount = (figures.cost or 0) + (figures.guessed or 0)
    digits = 4 if amount < 100 else 2 if amount < 10_000 else 0
    return f"{'' if figures.guessed is None else '≈'}{amount:.{digits}f}"


def _more(figures: Figures, brief: bool) -> Iterator[str]:
    told = []
    if figures.added is not None:
        told.append(f"added {_seconds(figures.added)}")
    if figures.added_ttft is not None:
        told.append(f"to first token {_seconds(figures.added_ttft)}")
    if figures.added_pause is not None:
        told.append(f"longest pause {_seconds(figures.added_pause)}")
    counts = (
        (figures.extra, "extra calls", ""),
        (figures.retries, "sent again", _kinds("after", figures.refusals)),
        (figures.late, "late calls", ""),
        (figures.stray, "stray calls", ""),
        (figures.pending, "still being answered behind", ""),
        (figures.repeats, "repeated by the client", _kinds("after", figures.repeated_after)),
        (figures.failed, "failed", _kinds("", figures.failures)),
        (figures.other, f"other {plural(figures.other, 'request')}", ""),
        (figures.uncounted, f"{plural(figures.uncounted, 'part')} not counted", ""),
    )
    told += [f"{count:,} {what}{how}" for count, what, how in counts if count]
    if figures.compared and not brief:
        told.append(f"{figures.unchanged:,} of {figures.compared:,} byte for byte")
    if not figures.exact:
        told.append("tokens estimated")
    if told:
        yield " · ".join(told)
    yield from _cache(figures)
    if figures.violations:
        yield "wire: " + ", ".join(
            _kind(kind, count, figures.tools.get(kind, {})) for kind, count in sorted(figures.violations.items())
        )
    yield from _needles(figures)
    if brief and figures.oversized:
        yield not_compared(figures.oversized)  # of all sessions, in the report's notes
    if not brief:
        yield from _left_out(figures)


def _needles(figures: Figures) -> Iterator[str]:
    """Share of planted facts that arrived, by the turns since their tool result came; and what went without."""
    if planted := figures.needles_planted:
        ages = [(name, figures.needle_ages.get(name, {})) for name in sorted(figures.needle_ages, key=int)]
        shares = [
            f"{name} {plural(int(name), 'turn')} {percent(counts['kept'] / counts['planted'])}" for name, counts in ages
        ]
        arrived = f"needles: {planted - figures.needles_lost:,} of {planted:,} arrived"
        yield f"{arrived}; by age: {', '.join(shares[:8])}{', …' if len(shares) > 8 else ''}"
    if figures.needles_without:
        yield "without needles: " + ", ".join(
            f"{count:,} {plural(count, 'request')} ({visible(why, 60)})"
            for why, count in sorted(figures.needles_without.items())
        )
    if figures.needles_damaged:
        yield f"{figures.needles_damaged:,} {plural(figures.needles_damaged, 'piece')} of cut needles taken out behind"
    if figures.needles_shown:
        yield f"Mind: {figures.needles_shown:,} markers of needles stood in replies to the client"


def _left_out(figures: Figures) -> Iterator[str]:
    """Name the costs that are missing from the sum, or are there by our own count."""
    if figures.untold:
        told = f"{figures.untold:,} of {figures.answered:,} {plural(figures.answered, 'call')} told no usage"
        guess = (
            ""
            if figures.guessed is None
            else f": ≈ {dollars(figures.guessed)} is predicted, tokens counted here × price"
        )
        yield f"{told}{guess or f' and {_are(figures.untold)} not in the money'}"
    if figures.cost_stated is not None:
        usage = "" if figures.stated_for is None else f", by the provider's usage it is {dollars(figures.stated_for)}"
        yield f"told in headers: {dollars(figures.cost_stated)}{usage}"
    if figures.unpriced:
        calls = plural(figures.unpriced, "call")
        yield (
            f"{figures.unpriced:,} {calls} of a model without a known price {_are(figures.unpriced)} not in the money"
        )


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _kinds(word: str, counts: Counter[str]) -> str:
    """Counts of what happened, the most frequent first: ` (3 × 404, 1 × broken off)`."""
    told = ", ".join(f"{count:,} × {visible(kind, 40)}" for kind, count in counts.most_common())
    return f" ({word} {told})" if told and word else f" ({told})" if told else ""


def _kind(kind: str, count: int, tools: Mapping[str, int]) -> str:
    named = phrase("", [visible(name, 60) for name in tools]).strip()
    return f"{visible(kind, 60)} {count:,}{f' ({named})' if named else ''}"


def _cache(figures: Figures) -> Iterator[str]:
    if figures.predicted_read is None:
        return
    told = f"cold cache by the rules: read {short(figures.predicted_read)}, write {short(figures.predicted_write)}"
    usage = figures.usage
    if usage is None or (usage.cache_read is None and usage.cache_write is None):
        told += " · the provider told none"
    else:
        told += f" · told: read {short(usage.cache_read)}, write {short(usage.cache_write)}"
    if figures.prompt_cost_ratio is not None and figures.compared:
        told += f" · prompts ×{figures.prompt_cost_ratio:.2f} of as sent"
    yield told


def _seconds(value: float) -> str:
    return f"{round(value * 1000)} ms" if abs(value) < 1 else f"{value:.1f} s"
