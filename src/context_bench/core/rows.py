"""Facts that metrics, summaries and reports read from rows, set-ups and manifests beyond their fields. `None`: not
measured.

Set-ups of groups: the attempt that holds, and totals over every attempt, since each was paid for once. Scores that
depend on the order of hits, and the memories whose order of hits means nothing.

The load under which times were measured: how many requests were under way, how often, and what changed about it. A
manifest's `load`: `{"mode": "fixed" | "adaptive" | "single", "at_once": N, "rpm": …, "tpm": …, "stream": …}`; its
`loads`: those that rows were made under, more than one if the run went on with other settings; its `limits`: one entry
per execution of the run, endpoint → list of `[at, limit, reason]` (seconds since the epoch, requests at once, why).

Rows and other values are read in groups, by count or by size.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any, Protocol, TypeVar

from context_bench.core.families import families_of
from context_bench.core.numbers import real
from context_bench.core.records import EvalRow, SetupRecord, plain
from context_bench.core.roles import roles_in

#: Names of facts in `EvalRow.usage`, the first that is a number counts.
COMPLETION, COST, TTFT = ("output_tokens", "completion_tokens"), ("cost", "cost_usd", "usd"), ("ttft",)
#: Rows that are looked at together: what is done once for all of them costs nothing, and they take no room.
TOGETHER = 128
T = TypeVar("T")


def by_count(values: Iterable[T], most: int) -> Iterator[list[T]]:
    """`most` at a time; the last group may be smaller."""
    ahead = iter(values)
    while group := list(islice(ahead, most)):
        yield group


def by_size(values: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """As many at a time as are `most` large together; a larger one is alone. `size` is asked once for each."""
    group, total = list[T](), 0
    for value in values:
        more = size(value)
        if group and total + more > most:
            yield group
            group, total = [], 0
        group.append(value)
        total += more
    if group:
        yield group


def skip(values: Iterator[Any], count: int) -> int:
    """Pass over `count` values, by `values.skip(count)` where there is one; returns how many there were."""
    own = getattr(values, "skip", None)
    if own is not None:
        return int(own(count))
    counted = enumerate(islice(values, count), 1)
    last = deque(counted, maxlen=1)
    return last[0][0] if last else 0


def in_pieces(rows: Iterable[EvalRow]) -> Iterator[list[EvalRow]]:
    """Rows in their order, a hundred or so at a time."""
    return by_count(rows, TOGETHER)


def first(facts: dict[str, Any], *names: str) -> float | None:
    """The first of these that is a number."""
    for name in names if facts else ():
        value = facts.get(name)
        if value is not None and (found := real(value)) is not None:
            return found
    return None


def completion_tokens(row: EvalRow) -> float | None:
    """Tokens of the reply, as billed."""
    return first(row.usage, *COMPLETION)


def cost_usd(row: EvalRow) -> float | None:
    """US dollars of all attempts of the row, judges not included."""
    return first(row.usage, *COST)


def ttft(row: EvalRow) -> float | None:
    """Seconds to the first token of a streamed reply."""
    return first(row.usage, *TTFT)


def latency(row: EvalRow) -> float | None:
    """Seconds until the reply; `None` for failed rows: how long a failure took is no latency."""
    return None if row.failed else real(row.latency)


def score(row: EvalRow, name: str) -> float | None:
    """The score of that name."""
    return real(row.scores.get(name))


def qa_type(row: EvalRow) -> str:
    """Kind of the row's question, as its dataset names it."""
    return kind_in(row.metadata)


def kind_in(metadata: Mapping[str, Any]) -> str:
    """Kind of the question that the metadata of a row tell of."""
    kind = metadata.get("qa_type")
    return "unknown" if kind is None or kind == "" else str(kind)


def ordered(values: Sequence[float]) -> Sequence[float]:
    """The values sorted; of many as an array too, since a list of a million numbers takes 40 MB."""
    if len(values) < 50_000:
        return sorted(values)
    import numpy as np

    found = array("d", values)
    np.frombuffer(found).sort()
    return found


def attributed(wire: dict[str, Any]) -> dict[str, Any]:
    """A system's sums of what the tap saw, without "0 calls" where none could be attributed to it although some belong
    to nobody.
    """
    if not wire.get("unmatched") or wire.get("calls") != 0:
        return wire
    return {
        name: value
        for name, value in wire.items()
        if name not in ("calls", "calls_per_request", "extra_calls", "other_calls")
    }


class RowTally(Protocol):
    """A metric half-way through its rows."""

    def add(self, row: EvalRow) -> None:
        """Take one row in."""

    def result(self) -> dict[str, float]:
        """The metric's numbers for the rows so far."""


def tallied(tally: RowTally, rows: Iterable[EvalRow]) -> dict[str, float]:
    """The result of a tally that has seen all `rows`."""
    for row in rows:
        tally.add(row)
    return tally.result()


#: A generator that is sent row after row, then `None`, and returns the numbers.
Fold = Generator[None, EvalRow | None, dict[str, float]]


class OnePass:
    """Base of metrics that hold no rows. A metric has `_fold`, which reads them."""

    def _fold(self) -> Fold:
        raise NotImplementedError

    def tally(self) -> RowTally:
        """For computing in one pass, without holding rows."""
        return _Folding(self._fold())

    def compute(self, rows: Iterable[EvalRow]) -> dict[str, float]:
        """The metric's numbers for `rows`."""
        return tallied(self.tally(), rows)


class _Folding:
    """A fold as a tally."""

    def __init__(self, fold: Fold) -> None:
        next(fold)
        self.add = fold.send
        self._numbers: dict[str, float] | None = None

    def result(self) -> dict[str, float]:
        if self._numbers is None:
            try:
                self.add(None)
            except StopIteration as end:
                self._numbers = end.value
        return self._numbers or {}


def _place(record: SetupRecord) -> tuple[str, int, str | int]:
    """Key of a group in a trial of a system; a group without a name is known by its number."""
    return record.system, record.trial, record.number if record.group is None else record.group


def standing(records: Iterable[SetupRecord]) -> list[SetupRecord]:
    """The last attempt at each group: the one that its rows speak of."""
    last: dict[tuple[str, int, str | int], SetupRecord] = {}
    for record in records:
        known = last.get(_place(record))
        if known is None or record.attempt >= known.attempt:
            last[_place(record)] = record
    return list(last.values())


def totals(records: Sequence[SetupRecord]) -> dict[str, float]:
    """One system's set-ups under the names of the summary; empty without any.

    `groups`, `setups_failed` (groups whose last attempt failed), `setup_seconds`, `setup_calls`, `setup_input_tokens`,
    `setup_output_tokens`, `setup_cost` (US dollars). What nobody told is absent.
    """
    if not records:
        return {}
    last = standing(records)
    told = {
        "setup_seconds": [record.seconds for record in records],
        "setup_input_tokens": [record.usage.get("input_tokens") for record in records],
        "setup_output_tokens": [record.usage.get("output_tokens") for record in records],
        "setup_cost": [record.cost for record in records],
    }
    sums = {
        name: float(sum(known))
        for name, values in told.items()
        if (known := [value for value in values if value is not None])
    }
    return {
        "groups": float(len(last)),
        "setups_failed": float(sum(record.error is not None for record in last)),
        "setup_calls": float(sum(record.calls for record in records)),
        **sums,
    }


def set_up_again(records: Sequence[SetupRecord]) -> int:
    """Groups that took more than one attempt."""
    return len({_place(record) for record in records if record.attempt > 1})


def note(records: Sequence[SetupRecord]) -> str | None:
    """The sentence a report must show where groups were set up more than once."""
    again = set_up_again(records)
    if not again:
        return None
    known = (
        "what every attempt cost is counted"
        if all(record.seconds is not None for record in records)
        else ("what every attempt cost is counted, but for those that never ended, of which it is not known")
    )
    return (
        f"{again:,} group{'s were' if again > 1 else ' was'} set up again after an interruption or a failure; {known}."
    )


_OF_RANK = re.compile(
    r"(?:session_)?(?:hit|recall|all|ndcg|precision|precision_of_returned)_at_\d+(?:_tokens)?|(?:session_)?mrr|map"
    r"|current_at_1|as_of_at_1|current_above_stale|stale_over_current|stale_in_top_k"
)


def of_rank(name: str | None) -> bool:
    """True if a score depends on which hits come first."""
    return name is not None and _OF_RANK.fullmatch(name) is not None


def unranked(manifest: Mapping[str, Any], systems: Iterable[str] = ()) -> frozenset[str]:
    """The arms whose hits have no order: the whole conversation and the oracle, in a run of memories. `systems`: as in
    `roles_in`.
    """
    kinds = {kind for family in families_of(manifest) for kind in family.in_order}
    if not kinds:
        return frozenset()
    return frozenset(name for name, own in roles_in(manifest, systems).items() if own.kind in kinds)


def in_order(row: EvalRow, unordered: Collection[str]) -> EvalRow:
    """The row as it is shown: of systems in `unordered` (`unranked`) without scores of the order of hits."""
    return next(without_ranks([row])) if row.system in unordered else row


def without_ranks(rows: Iterable[EvalRow]) -> Iterator[EvalRow]:
    """The rows without scores of the order of hits."""
    for row in rows:
        yield replace(row, scores={name: value for name, value in row.scores.items() if not of_rank(name)})


# --- equal content ---
_TIMED = ("ttft", "in_flight", "waited", "seconds", "calls", "prefix_tokens")
_KEYED = ("arrived_as",)  # made by a tap with a key that ends with it


def canonical(row: EvalRow) -> dict[str, Any]:
    """Content of a row without what differs between two equal runs: times, numbers of attempts, order of arrival,
    digests by the key of one tap.
    """
    facts: dict[str, Any] = plain(row)
    facts.pop("latency", None)
    return facts | {name: _untimed(facts[name]) for name in ("usage", "wire", "metadata")}


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untimed(item) for key, item in value.items() if key not in (*_TIMED, *_KEYED)}
    return value


def differences(first: Iterable[EvalRow], second: Iterable[EvalRow], limit: int = 20) -> list[str]:
    """Differences in content between two runs, as sentences (at most `limit`); empty = equal content."""
    sentences: list[str] = []
    for number, (a, b) in enumerate(zip_longest(first, second)):
        if len(sentences) >= limit:
            break
        if a is None or b is None:
            sentences.append(f"row {number}: only in the {'first' if b is None else 'second'} run")
            break
        left, right = canonical(a), canonical(b)
        sentences += [
            f"row {number} ({a.system}, {a.example_id!r}, trial {a.trial}): {key} {left.get(key)!r} ≠ "
            f"{right.get(key)!r}"
            for key in left.keys() | right.keys()
            if left.get(key) != right.get(key)
        ]
    return sentences


def load_of(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The load a run was made under; for runs that do not say so, from their number of workers. `None`: nothing is
    known.
    """
    if isinstance(known := manifest.get("load"), Mapping):
        return dict(known)
    options = manifest.get("options") or {}
    if "max_workers" not in options:
        return None
    workers = int(options["max_workers"] or 1)
    return {"mode": "adaptive" if workers > 1 else "single", "at_once": workers, "stream": bool(options.get("stream"))}


def loads_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every load that rows of a run were made under; empty if nothing is known."""
    if known := [dict(load) for load in manifest.get("loads") or [] if isinstance(load, Mapping)]:
        return known
    return [] if (found := load_of(manifest)) is None else [found]


def in_words(load: Mapping[str, Any]) -> str:
    """The load in a few words."""
    at_once = load.get("at_once")
    told = {"fixed": f"{at_once} at once", "adaptive": f"up to {at_once} at once, adapting"}.get(
        str(load.get("mode")), "one at a time"
    )
    limits = [
        f"at most {load[key]:g} {what} a minute"
        for key, what in (("rpm", "requests"), ("tpm", "tokens"))
        if load.get(key)
    ]
    return ", ".join([told, *limits, *(["streamed"] if load.get("stream") else [])])


def different_load(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """The reason why the times of two runs (by their manifests) cannot be compared; `None` if they can, or if nothing
    is known.
    """
    ours, theirs = loads_of(before), loads_of(after)
    if not ours or not theirs or (ours == theirs and len(ours) == 1):
        return None
    return (
        f"the runs were made under different load: {_then(ours)} before, {_then(theirs)} now; latency and time to "
        "first token belong to "
        "their load."
    )


#: Options that differ between any two runs without changing what either measured.
_PLACES = frozenset(("run", "out", "store", "output", "quiet", "tap", "name", "full", "resume", "imports", "force"))
_MOST_DIFFERENCES = 12


def what_differs(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Differences between two runs, by their manifests, as phrases: data, options, the systems' own settings, versions.
    At most 12; the last then says how many more there are.
    """
    found = [*_in_data(before, after), *_in_settings(before, after), *_in_versions(before, after)]
    if len(found) <= _MOST_DIFFERENCES:
        return found
    return [*found[: _MOST_DIFFERENCES - 1], f"{len(found) - _MOST_DIFFERENCES + 1} more"]


def _in_data(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    ours, theirs = ({str(each.get("name")): each for each in _listed(one, "datasets")} for one in (before, after))
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in ours or name not in theirs:
            yield f"data {name[:80]} only in the {'earlier' if name in ours else 'later'} one"
        elif ours[name].get("sha256") != theirs[name].get("sha256"):
            yield f"the content of {name[:80]}"


def _in_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Options, then the settings of each system and evaluator that both runs have."""
    first, second = (_mapped(one.get("options")) for one in (before, after))
    for name in sorted((first.keys() | second.keys()) - _PLACES):
        yield from _changed(name, first.get(name), second.get(name))
    for kind in ("systems", "evaluators"):
        ours, theirs = (
            {str(each.get("name")): _mapped(each.get("fingerprint")) for each in _listed(one.get("engine"), kind)}
            for one in (before, after)
        )
        for name in (name for name in ours if name in theirs):
            for key in sorted((ours[name].keys() | theirs[name].keys()) - {"url"}):
                one, other = ours[name].get(key), theirs[name].get(key)
                if isinstance(one, Mapping) and isinstance(other, Mapping):  # a system within it, wherever that stands
                    if {**one, "url": ""} != {**other, "url": ""}:
                        yield f"{key} of {name[:80]}"
                else:
                    yield from _changed(f"{key} of {name[:80]}", one, other)


def _in_versions(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    first, second = (_mapped(_mapped(one.get("engine")).get("environment")) for one in (before, after))
    for name in sorted((first.keys() | second.keys()) - {"dependencies"}):
        if first.get(name) != second.get(name):
            told = "context-bench" if name == "package" else name
            yield f"{told} {_shown(first.get(name))}, then {_shown(second.get(name))}"
    ours, theirs = (_mapped(one.get("dependencies")) for one in (first, second))
    if moved := [name for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]]:
        yield f"versions of {', '.join(str(name)[:40] for name in moved[:6])}{' …' * (len(moved) > 6)}"


def _mapped(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: Any, key: str) -> list[Mapping[str, Any]]:
    found = _mapped(value).get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


_NONE = "none"


def _changed(name: str, before: Any, after: Any) -> Iterator[str]:
    """The phrase for a setting that changed: an empty one is as good as none."""
    was, now = _shown(before), _shown(after)
    if before != after and (was, now) != (_NONE, _NONE):
        yield f"{name} {was}, then {now}"


def _shown(value: Any) -> str:
    """An option's value in few words."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value[:6])) or _NONE
    return _NONE if value in (None, "", {}) else str(value)[:60]


def _then(loads: Sequence[Mapping[str, Any]]) -> str:
    return ", then ".join(map(in_words, loads))


def limit_notes(manifest: Mapping[str, Any]) -> list[str]:
    """Changes of the number of requests sent to an endpoint at once: new settings, and where it was cut or slowed
    down.
    """
    loads = loads_of(manifest)
    mixed = (
        [f"Times mix different load, for the run went on with other settings: {_then(loads)}."]
        if len(loads) > 1
        else []
    )
    return mixed + [
        note
        for execution in manifest.get("limits") or []
        for endpoint, changes in execution.items()
        if (note := _note(str(endpoint), changes)) is not None
    ]


def _note(endpoint: str, changes: Sequence[Sequence[Any]]) -> str | None:
    reasons = Counter(_kind(str(reason)) for _, _, reason in changes)
    held = [f"{reasons[kind]} × {kind}" for kind in ("refused for quota", "little left of a quota") if reasons[kind]]
    if not held:
        return None
    limits = [int(limit) for _, limit, _ in changes]
    return (
        f"{endpoint}: asked less on the way ({', '.join(held)}); requests at once {limits[0]} at the start, "
        f"{min(limits)} to "
        f"{max(limits)}, {limits[-1]} at the end."
    )


def _kind(reason: str) -> str:
    if reason.startswith("refused for quota"):
        return "refused for quota"
    return "little left of a quota" if " left, spread over " in reason else reason
