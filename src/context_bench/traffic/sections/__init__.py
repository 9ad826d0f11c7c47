"""Sections on traffic. Here the bill by source, beside whatever a run or a watch is about: where its tokens went, why
the prompt cache broke, the dearest items, and what a system achieved of what it could save. `explain` tells all of it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.records import Forwarded, Result
from context_bench.reports.declared import FigureColumn, ReportContext, columns, declared_table, mapping, section_of
from context_bench.reports.page import Section
from context_bench.reports.visible_text import command_on
from context_bench.traffic import BILL
from context_bench.transcripts.session import RecordedReply, SeenSession, SessionRequest, verbatim
from context_bench.transcripts.sources import KINDS
from context_bench.wire.conversation import WIRES, reply_message
from context_bench.wire.lossless import REWRITINGS
from context_bench.wire.turns import Turn

REACHES = ("bash", "tool-results", "mcp", "tools-unused", "history", "reread", "thinking", *REWRITINGS)
#: Tokens of one system that are counted, and its sessions: a report is to be there at once. `explain` counts all.
MOST_TOKENS, MOST_SESSIONS = 200_000, 200
_OF_SESSIONS = 10  # times as many where recorded sessions were sent again
_DEAREST = 10
_DIGITS = 9
_MOST_BYTES = 64 * 2**20  # of the requests of a watch that are held at once


def add_bill(result: Result, stored: Any) -> None:
    """Fill in `result.families["bill"]`: by system the bill of what arrived at the provider, from the stored traffic of
    a run of whatever family. Nothing is there where no tap kept the requests.
    """
    from context_bench.traffic.explain.logs import sessions_of

    options, day = mapping(result.manifest.get("options")), mapping(result.manifest.get("prices")).get("date")
    prices = prices_of(options.get("price"), options.get("price_model"), day)
    most = MOST_TOKENS * (_OF_SESSIONS if result.manifest.get("replay") else 1)
    bills = {name: bill_of(sessions_of(stored.store, stored.id, name), prices, most) for name in result.summary}
    if any(bills.values()):
        result.families[BILL] = {name: bill for name, bill in bills.items() if bill}


def prices_of(own: Any, model: Any, day: Any) -> Any:
    """The prices that held when something was measured, by its own record: `--price`, `--price-model` and the day."""
    from context_bench.session.options import RunOptions
    from context_bench.session.run_parts import prices

    given = [each for each in own if isinstance(each, str)] if isinstance(own, list) else []
    options = RunOptions(price=given, price_model=model if isinstance(model, str) else None)
    return prices(options, day if isinstance(day, str) else None)


def bill_of(sessions: Iterable[SeenSession], prices: Any = None, most: int = MOST_TOKENS) -> dict[str, Any]:
    """The bill of sessions, of what was seen to arrive of each; empty if nothing was.

    `total`, `by_kind`, `breaks` and `cache`, `dearest`: as `explain` has them. `reach`: by name `sent`, the share of
    all tokens that were sent, and `achieved`, the share of these that did not arrive (both by our count, of the
    requests that were seen). `unseen_turns`: requests for which no answered call was seen, which are in no sum;
    `unseen_sessions`: sessions of such requests alone. `partial`: true if sessions were left out since there were many.
    """
    from context_bench.traffic.explain import Explained, achieved, reach_of, summary
    from context_bench.transcripts.itemised import itemised

    named = {name: reach_of(name) for name in REACHES}
    told, counted, unseen, partial = Explained(), 0, Counter[str](), False
    for one in sessions:
        if counted > most or told.sessions >= MOST_SESSIONS:
            partial = True
            break
        unseen.update(turns=one.unseen, sessions=not (one.arrived or one.beside))
        sides = [itemised(one.session(list(side)), prices, texts=True) for side in zip(*one.pairs, strict=True)]
        alone = len(one.arrived) == len(one.pairs)
        made = sides[1:] if alone else [itemised(one.session(one.arrived), prices, texts=True)]
        made += [itemised(one.session(one.beside, beside=True), prices, texts=True)] if one.beside else []
        reach = {"reach": achieved(sides[0], sides[1], named)} if sides else {}
        for each in made:
            told.add(summary(each) | reach)
            reach = {}
        counted += sum(item.tokens for each in (*sides, *made) for item in each.items)
    if not told.turns:
        return {}
    whole = told.document()
    kept = ("sessions", "turns", "approximate", "unpriced_turns", "total", "by_kind", "breaks", "cache", "dearest")
    return {
        **_rounded({name: whole[name] for name in kept}),
        "reach": {
            name: {"sent": row["sent_tokens"] / row["all_tokens"], "achieved": row["saved_tokens"] / row["sent_tokens"]}
            for name, row in told.reach.items()
            if row["sent_tokens"] > 0
        },
        **{f"unseen_{name}": number for name, number in unseen.items() if number},
        **({"partial": True} if partial else {}),
    }


def _rounded(value: Any) -> Any:
    """Sums of many shares, without what is left of their rounding."""
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, _DIGITS) + 0.0 if isinstance(value, float) else value


def watched_bills(turns: Iterable[Turn], prices: Any = None, *, between: bool = True) -> dict[str, dict[str, Any]]:
    """Arm → the bill of the sessions in the records of a watch, with their bodies. `between`: a proxy stands there, and
    its own calls are what arrived.
    """
    arms: dict[str, dict[tuple[str, str], list[_Asked]]] = {}
    size, left_out = 0, False
    for turn in turns:
        one = _asked(turn, between)
        if one is None:
            continue
        size += (turn.front or turn.calls[0]).bytes_in
        if size > _MOST_BYTES:
            left_out = True
            break
        group = arms.setdefault(turn.arm, {}).setdefault((turn.session, turn.context), [])
        own = next((each for each in reversed(group) if each.turn == one.turn), None) if one.sent is None else None
        if own is not None:
            own.calls += one.calls
        else:
            group.append(one)
    found = {arm: bill_of(_sessions(arm, own), prices, MOST_TOKENS * _OF_SESSIONS) for arm, own in arms.items()}
    return {arm: bill | ({"partial": True} if left_out else {}) for arm, bill in found.items() if bill}


def bills_in_short(bills: Mapping[str, dict[str, Any]], *, between: bool) -> str:
    """The bill of what the clients of a watch asked for, as text; empty where there is none."""
    if "main" not in bills:
        return ""
    from context_bench.reports.table import as_table
    from context_bench.traffic.explain.bill_page import in_short

    return "\n" + as_table(in_short(bills["main"], between=between), width=80)


@dataclass(slots=True)
class _Asked:
    """A request of a client, as it was sent (`None`: calls that came late, or that nobody can be named for), and the
    calls that the provider answered for it. `turn`: its place in the session.
    """

    turn: int
    sent: SessionRequest | None
    calls: list[SessionRequest]


def _asked(turn: Turn, between: bool) -> _Asked | None:
    """A request to a model by a record of a watch; `None` where its bodies were not kept."""
    front = turn.front if turn.front is not None or between else next(iter(turn.calls), None)  # one tap has no front
    front = front if turn.kind == "turn" else None
    calls = [
        verbatim(call.wire, dict(call.request), recorded_reply=_reply(call), at=call.started)
        for call in turn.calls
        if call.wire in WIRES and isinstance(call.request, Mapping) and call.error is None and (call.status or 0) < 400
    ]
    if front is None or not isinstance(front.request, Mapping) or front.wire not in WIRES:
        return _Asked(turn.turn, None, calls) if calls else None
    return _Asked(turn.turn, verbatim(front.wire, dict(front.request), at=front.started), calls)


def _reply(call: Forwarded) -> RecordedReply:
    return RecordedReply.of(reply_message(call.wire, call.reply) or {}, usage=call.usage, model=call.model)


def _sessions(arm: str, groups: Mapping[tuple[str, str], Sequence[_Asked]]) -> Iterator[SeenSession]:
    for (name, context), asked in groups.items():
        meta = {"format": "watch", **({"sidechain": True} if context != "main" else {})}
        found = SeenSession(name if context == "main" else f"{name} ({context})", arm, meta)
        for one in asked:
            found.add(one.sent, one.calls)
        yield found


def bill_pointer(result: Result) -> str:
    """Name the place of the bill, for a report on a terminal."""
    from context_bench.reports.cards import store_option

    run = mapping(result.manifest.get("run"))
    name, store = str(run.get("name") or "last"), store_option(str(run.get("store") or ""))
    whole = command_on("context-bench show", [name], f" --output html{store}")
    return (
        "The whole bill, with its dearest items (or as markdown, json):\n"
        f"  {whole}\n"
        "In short, where the tokens went and why the cache broke:\n"
        f"  {command_on('context-bench explain', [name], store)}\n"
    )


def bill_sections(report: ReportContext) -> list[Section | None]:
    """One section on the bill of each system; none where no traffic was kept."""
    bills = {name: mapping(bill) for name, bill in mapping(report.result.families.get(BILL)).items()}
    if not bills:
        return []
    made = section_of(
        "bill",
        "Where the tokens went",
        declared_table(
            "bill-sources",
            _sources(bills),
            ((name, _shares(bill)) for name, bill in bills.items()),
            about=_about(bills),
        ),
        declared_table(
            "bill-breaks",
            _BREAKS,
            _rows(bills, _of_breaks),
            keys=("System", "cause"),
            title="Why the cache broke",
        ),
        declared_table(
            "bill-dearest",
            _ITEMS,
            _rows(bills, _of_items),
            keys=("System", "item"),
            title="Dearest items, ten at most of a system",
            about="Without an item the bill would have been so much less; what the model would have done is not known.",
        ),
        declared_table(
            "bill-reach",
            _REACH,
            _rows(bills, _of_reach),
            keys=("System", "reach"),
            title="What a tool could save at most, and what was achieved",
            about="Achieved: of the tokens of the reach that were sent, those that did not arrive. By our count.",
        ),
        brief=False,
    )
    return [made]


_BREAKS = columns(
    ("breaks", "breaks", "count", "requests whose cache entry served less than it held"),
    ("lost", "tokens", "count", "prompt tokens that were paid for again"),
    ("usd", "money", "usd", "what they cost more than tokens read from the cache"),
)
_ITEMS = (
    *columns(("turn", "first in request", "count", ""), ("tokens", "tokens", "count", "")),
    *columns(("times", "sent", "count", "requests that it stood in"), ("input", "billed", "count", "")),
    *columns(("usd", "money", "usd", ""), ("share", "of the bill", "share", "")),
)
_REACH = columns(
    ("sent", "of what was sent", "share", "prompt tokens of the reach, of all that were sent"),
    ("achieved", "achieved", "share", "tokens that the system did not send on, of these"),
)


def _sources(bills: Mapping[str, Mapping[str, Any]]) -> list[FigureColumn]:
    kinds = [kind for kind in KINDS if any(kind in mapping(bill.get("by_kind")) for bill in bills.values())]
    return [
        *columns(
            ("requests", "requests", "count", ""),
            ("input", "prompts", "count", "tokens over all requests, without those that frame messages"),
        ),
        *columns(("usd", "money", "usd", "prompts and replies")),
        *columns(("carried", "sent before", "share", "prompt tokens that stood in an earlier request, too")),
        *columns(("read", "from cache", "share", "prompt tokens that were read from the cache")),
        *(FigureColumn(kind, KINDS[kind], "share", "share of the prompt tokens") for kind in kinds),
    ]


def _shares(bill: Mapping[str, Any]) -> dict[str, Any]:
    total = mapping(bill.get("total"))
    whole = total.get("input") or 0
    if not whole:
        return {}
    kinds = mapping(bill.get("by_kind"))
    return {
        **{"requests": bill.get("turns"), "input": whole, "usd": total.get("usd") or None},
        **{"carried": total.get("carried", 0) / whole, "read": total.get("read", 0) / whole},
        **{kind: sum(row.get(name, 0) for name in ("read", "written", "plain")) / whole for kind, row in kinds.items()},
    }


def _rows(
    bills: Mapping[str, Mapping[str, Any]],
    lines: Callable[[Mapping[str, Any]], Iterable[tuple[str, dict[str, Any]]]],
) -> Iterator[tuple[Sequence[str], dict[str, Any]]]:
    yield from ((((name, what)), figures) for name, bill in bills.items() for what, figures in lines(bill))


def _of_breaks(bill: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    found = mapping(bill.get("breaks"))
    yield from sorted(found.items(), key=lambda pair: (-pair[1].get("usd", 0), -pair[1].get("lost", 0), pair[0]))


def _of_items(bill: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    from context_bench.traffic.explain.bill_page import title_of

    whole = mapping(bill.get("total")).get("usd") or 0
    for item in (bill.get("dearest") or [])[:_DEAREST]:
        yield title_of(item["kind"], item["name"]), {**item, "share": item["usd"] / whole if whole else None}


def _of_reach(bill: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from mapping(bill.get("reach")).items()


def _about(bills: Mapping[str, Mapping[str, Any]]) -> str:
    from context_bench.traffic.explain.bill_page import unseen_sentence

    found = "Prompt tokens of what arrived at the provider, by source, without the few that frame each message."
    if any(bill.get("approximate") for bill in bills.values()):
        found += " Where the provider billed otherwise than we count, our counts are scaled to the bill, or predicted."
    unseen = unseen_sentence({name: bill.get("unseen_turns", 0) for name, bill in bills.items()})
    found += f" {unseen}" if unseen else ""
    if any(bill.get("partial") for bill in bills.values()):
        found += " Of many sessions only the first were counted; context-bench explain counts all."
    return found


# The report of a watch
# ------------------------------------------------------------------------


def _about_watch(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "watch": name,
        **{
            key: settings.get(key)
            for key in (
                "via",
                "back",
                "upstream",
                "record",
                "prices",
                "prices_of",
                "cache_rules_of",
                "holdout",
                "spend",
            )
        },
    }


def print_report(store: str, name: str, output: str, out: Path | None) -> int:
    """Print the report of a stored watch: its name, or `last`."""
    from context_bench.engine import open_store, watch_of
    from context_bench.engine.store import there

    if not there(store):
        raise BadInput(f"watch: there is no store at {store}")
    with open_store(store) as kept:
        found = watch_of(kept, name)
        notes = [*found.settings.get("notes", []), *_of_killed(found)]
        publish_watch(kept, found.name, found.settings, notes, output, out, status=found.status)
    return 0


def publish_watch(
    kept: Any, name: str, settings: dict[str, Any], notes: list[str], output: str, out: Path | None, **more: Any
) -> None:
    """Print the report of a watch in a store, or write it to `out`."""
    from context_bench.engine import watched
    from context_bench.traffic.sections.watch_board import as_json, counted_sentences, summary

    between, bodies = settings.get("via") is not None, settings.get("record") in ("redacted", "full")
    prices = prices_of(settings.get("price"), settings.get("price_model"), settings.get("prices_of"))
    bills = watched_bills(watched(kept, name, bodies=True), prices, between=between) if bodies else {}
    counted = settings.get("provider_count")
    notes = [*counted_sentences(counted), *notes] if isinstance(counted, dict) else notes
    about, turns = {**_about_watch(name, settings), **more}, watched(kept, name)
    if output == "json":
        about |= {name: settings[name] for name in ("title", "tags") if name in settings}
        text = as_json(turns, about, notes, settings.get("limits"), bills, counted)
    else:
        text = summary(turns, about, notes) + bills_in_short(bills, between=between)
    if out is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        out.touch(0o600)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"watch: the report cannot be written to {out}: {error.strerror or error}") from None


def _of_killed(found: Any) -> list[str]:
    """A sentence on what the records of a watch lack that was ended in the middle."""
    count = found.settings.get("under_way")
    if found.status != "interrupted" or not isinstance(count, int):
        return []
    if not count:
        return ["It was killed while no turn was under way: every turn is here."]
    return [
        f"It was killed with {count:,} turn{'s' * (count != 1)} under way, which {'are' if count != 1 else 'is'} not "
        "here: the provider may"
        " have been asked and paid for them; no client had the end of an answer, but for those that were still "
        "waiting for calls behind."
    ]
