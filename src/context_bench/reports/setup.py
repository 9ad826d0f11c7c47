"""What it took to get groups ready before their first question: ingest, compression. Paid once, and in no question's figures."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from context_bench.core.numbers import number
from context_bench.core.records import SetupRecord
from context_bench.core.rows import set_up_again, standing, totals
from context_bench.reports.material import figure
from context_bench.reports.page import Cell, Column, Section, Table
from context_bench.reports.tally import quantile

#: What systems tell of the items they were given, and the names under which it is summed.
_ITEMS = (("items", "items"), ("acknowledged", "acknowledged"), ("failed", "items_failed"))


def setup_facts(records: Sequence[SetupRecord]) -> dict[str, dict[str, Any]]:
    """By system: `groups`, `failed` and `again` (groups), `items`, `acknowledged` and `items_failed` as its set-ups tell (of the attempts
    that hold), `seconds`, `seconds_p50` and `seconds_p95` of an attempt, and `calls`, `input_tokens`, `output_tokens`, `cost` of all
    attempts. What nobody told is absent.
    """
    return {system: _facts([each for each in records if each.system == system]) for system in dict.fromkeys(r.system for r in records)}


def _facts(records: list[SetupRecord]) -> dict[str, Any]:
    sums = totals(records)
    seconds = array("d", [each.seconds for each in records if each.seconds is not None])
    found: dict[str, Any] = {
        "groups": int(sums["groups"]),
        "failed": int(sums["setups_failed"]),
        "again": set_up_again(records),
        **_items(standing(records)),
        "seconds": sums.get("setup_seconds"),
        "seconds_p50": quantile(seconds, 0.5),
        "seconds_p95": quantile(seconds, 0.95),
        "calls": int(sums["setup_calls"]),
        "input_tokens": sums.get("setup_input_tokens"),
        "output_tokens": sums.get("setup_output_tokens"),
        "cost": sums.get("setup_cost"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _items(records: Iterable[SetupRecord]) -> dict[str, float]:
    """Sums of the whole numbers that set-ups tell; a system may tell anything under these names."""
    sums: dict[str, float] = {}
    for record in records:
        for told, ours in _ITEMS:
            value = record.output.get(told)
            if isinstance(value, int | float) and not isinstance(value, bool) and number(value) is not None and value >= 0:
                sums[ours] = sums.get(ours, 0) + value
    return sums


_COLUMNS: tuple[tuple[str, str, Any, str], ...] = (
    ("groups", "groups", "count", "groups of examples that share what was set up, in each trial"),
    ("failed", "failed", "count", "groups that could not be set up: all their rows failed"),
    ("again", "again", "count", "groups that took more than one attempt, since the run was interrupted or the first one failed"),
    ("acknowledged", "items stored", "count", "items of which the system said that it has them"),
    ("items_failed", "items lost", "count", "items that it did not take"),
    ("seconds_p50", "median", "seconds", "time on the clock for one group"),
    ("seconds_p95", "p95", "seconds", ""),
    ("calls", "calls", "count", "calls of models that were seen"),
    ("input_tokens", "tokens in", "tokens", "billed prompt tokens of all set-ups"),
    ("output_tokens", "tokens out", "tokens", "billed completion tokens of all set-ups"),
    ("cost", "money", "usd", "US dollars of all attempts"),
)
_OFTEN_NOTHING = ("failed", "again", "items_failed")  # no column for what did not happen


def setup(facts: dict[str, dict[str, Any]]) -> Section | None:
    """One line per system that was set up."""
    if not facts:
        return None
    shown = [
        entry
        for entry in _COLUMNS
        if any(entry[0] in told and (told[entry[0]] or entry[0] not in _OFTEN_NOTHING) for told in facts.values())
    ]
    columns = [Column("System", False), *(Column(title, about=about) for _, title, _, about in shown)]
    rows: list[list[Cell]] = [[system, *(figure(told.get(name), unit) for name, _, unit, _ in shown)] for system, told in facts.items()]
    about = "Before a group's first question, once. It is in no question's latency, tokens or money."
    return Section("setup", "Set-up", tables=[Table("setup", columns, rows, about=about)])
