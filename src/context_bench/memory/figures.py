"""Figures of a memory run and the sentences that stand above its numbers, to be read before anybody quotes them.

Figures of set-ups, harm and help against no memory. The sentences say where a number is no achievement: `k` empties the
store, random picks do as well, the reader is too weak, or the whole conversation fits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.core.measures import percent
from context_bench.core.numbers import real
from context_bench.core.records import Estimate, EvalRow, SetupRecord
from context_bench.core.roles import ArmRole, of_kind
from context_bench.core.rows import standing, totals
from context_bench.stats.intervals import Scored, estimate, scored

_EASY = 0.5  # recall of random picks from which finding something is no achievement
_WEAK = 0.7  # score with exactly the evidence below which losses are more the reader's than a memory's
_RANK = ("mrr", "session_mrr")
_ENDS = ("none", "random", "full_context", "oracle")  # kinds of floors and ceilings

Scores = Mapping[str, Scored]  # name of a score → its questions


# --- set-ups ---


def setup_figures(records: Sequence[SetupRecord]) -> dict[str, float]:
    """One system's set-ups: `items` there were, `items_lost` (share not acknowledged), `stored` and `bytes` as the
    memory tells, `bytes_per_item`, `write_loss` (where exact texts were looked for again: 1 − found / acknowledged),
    `ingest_seconds_per_item`, `ingest_items_per_second`, `ingest_p50`, `ingest_p95`, `ingest_p99` of single calls in
    the slowest haystack, `ingest_first` (the slowest first call), and `setup_…` sums over all attempts.
    """
    outputs = [record.output for record in standing(records) if record.error is None]
    sums = {name: _sum(outputs, name) for name in _SUMMED}
    items, parts, probed = sums["items"], sums["parts"], sums["probed"]
    figures = dict(totals(records))
    if items is not None:
        figures["items"] = items
    if items and (adding := sums["seconds_add"]) is not None:
        flushing = sum(real(output.get("seconds_flush")) or 0.0 for output in outputs)  # none: nothing to wait for
        figures["ingest_seconds_per_item"] = (adding + flushing) / items
        if adding + flushing:
            figures["ingest_items_per_second"] = items / (adding + flushing)
    if parts and (failed := sums["failed"]) is not None:
        figures["items_lost"] = failed / parts
    figures |= {name: value for name in ("stored", "bytes") if (value := sums[name]) is not None}
    if items and "bytes" in figures:
        figures["bytes_per_item"] = figures["bytes"] / items
    if probed and (again := sums["probe_found"]) is not None:
        figures["write_loss"] = 1 - again / probed
    times = [{"first": output.get("seconds_first"), **(output.get("seconds_each") or {})} for output in outputs]
    for label in ("p50", "p95", "p99", "first"):
        if values := [value for each in times if (value := real(each.get(label))) is not None]:
            figures[f"ingest_{label}"] = max(values)
    return figures


_SUMMED = ("items", "parts", "failed", "stored", "bytes", "probed", "probe_found", "seconds_add")


def _sum(outputs: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """`None` if any of them does not say."""
    values = [value for output in outputs if (value := real(output.get(name))) is not None]
    return sum(values) if values and len(values) == len(outputs) else None


# --- harm and help ---


@dataclass(frozen=True, slots=True)
class Harm:
    """Effect of a memory on the same questions, as shares of those both answered: `harmed` were right without it and
    are wrong with it, `helped` the other way round.
    """

    system: str
    without: str
    harmed: Estimate
    helped: Estimate
    right_without: int

    @property
    def sentence(self) -> str:
        harmed, helped = (_text(share, percent) for share in (self.harmed, self.helped))
        return (
            f"{self.system}: of {self.harmed.n:,} questions {helped} are right with it and wrong without any memory, "
            f"{harmed} the other way round."
        )


def harm(system: str, with_it: Scored, without: str, without_it: Scored, threshold: float) -> Harm | None:
    """Compare a memory with the arm that has none; an answer is right from `threshold` on. `None` if they share no
    question.
    """
    mine, theirs = with_it.values, without_it.values
    both = [key for key in mine if key in theirs]
    if not both:
        return None
    right = [(mine[key] >= threshold, theirs[key] >= threshold) for key in both]
    clusters = [with_it.clusters[key] for key in both]
    harmed = estimate([float(other and not own) for own, other in right], clusters)
    helped = estimate([float(own and not other) for own, other in right], clusters)
    return Harm(system, without, harmed, helped, sum(other for _, other in right))


def harms(
    scores: Mapping[str, Scores], roles: Mapping[str, ArmRole], systems: Sequence[str], field: str, threshold: float
) -> list[Harm]:
    """The effect of each of `systems` against the arm without memory; empty without that arm or its answers."""
    none = of_kind(roles, "none")
    without = scores.get(none, {}).get(field) if none is not None else None
    if none is None or without is None:
        return []
    answered = [(system, scores[system][field]) for system in systems if system != none and field in scores[system]]
    changes = (harm(system, own, none, without, threshold) for system, own in answered)
    return [change for change in changes if change is not None]


# --- sentences ---


def memory_notes(
    rows_by_system: Mapping[str, Iterable[EvalRow]],
    about: Mapping[str, Any],
    *,
    score_field: str | None = None,
    setups: Sequence[SetupRecord] = (),
    threshold: float = 0.7,
    roles: Mapping[str, ArmRole],
) -> list[str]:
    """Sentences for the head of a report, the gravest first.

    `about` is what the run's manifest says of it: `k` (list; the last is what memories were asked for), `reader`
    (whether anybody answered). `roles`: floors and ceilings are all controls, and all arms of a kind (`none`, `random`,
    `full_context`, `oracle`). `score_field`: the answers' score. Says: haystacks that `k` empties; random picks that do
    as well or nearly everything; a reader too weak to show anything; a whole conversation that does no worse; what
    could not be scored; harm.
    """
    ks = [int(k) for k in about.get("k") or ()]
    levels = [f"{level}recall_at_{k}" for k in ks for level in ("", "session_")]
    names = dict.fromkeys([*levels, *_RANK, "hit_count", "retrieved_tokens", *filter(None, [score_field])])
    scores = {system: scored(rows, list(names)) for system, rows in rows_by_system.items()}
    memories = [system for system in scores if not (roles[system].is_control or roles[system].kind in _ENDS)]
    ends = {kind: scores[name] for kind in _ENDS if (name := of_kind(roles, kind)) is not None and name in scores}
    compared = {system: scores[system] for system in memories}
    notes = [*_emptied(ks, setups, memories or list(scores)), *_against_chance(compared, ends, levels[-2:])]
    if about.get("reader", True) and score_field and "recall_at_" not in score_field:
        notes += [*_reader(ends, score_field), *_whole(compared, ends, score_field)]
        changes = harms(scores, roles, memories, score_field, threshold)
        notes += [change.sentence for change in changes if change.harmed.value > 0]
    return [*notes, *_unscored(scores, memories)]


def dirt_note(dataset: Mapping[str, Any]) -> str | None:
    """The faults mended or left out of a dataset, as its manifest counts it; `None` where nothing had to be."""
    dirt = dataset.get("dirt")
    if not isinstance(dirt, Mapping) or not dirt:
        return None
    return f"{dataset.get('name')}: as it was read, {'; '.join(f'{count:,} {what}' for what, count in dirt.items())}."


def _emptied(ks: Sequence[int], setups: Sequence[SetupRecord], systems: Sequence[str]) -> list[str]:
    """`k` ≥ items in store: everything is returned, and no ranking can be seen."""
    sizes: defaultdict[str, list[float]] = defaultdict(list)
    for record in standing(setups):
        counts = (record.output.get(name) for name in ("stored", "parts", "items"))
        size = next((count for count in counts if isinstance(count, int | float) and count), None)
        if size is not None and record.system in systems:
            sizes[record.system].append(size)
    notes: defaultdict[str, list[str]] = defaultdict(list)
    for system, held in sizes.items():
        reached = [(k, sum(size <= k for size in held)) for k in ks]
        parts = [f"k = {k} returns everything in {count} of {len(held)} haystacks" for k, count in reached if count]
        span = " to ".join(f"{size:,.0f}" for size in dict.fromkeys((min(held), max(held))))
        if parts:
            notes[f"{', '.join(parts)} (they hold {span} items)"].append(system)
    return [
        f"Not a headline: {what}, so retrieval scores there say nothing of ranking ({', '.join(names)})."
        for what, names in notes.items()
    ]


def _against_chance(memories: Mapping[str, Scores], ends: Mapping[str, Scores], names: Sequence[str]) -> list[str]:
    """Random picks: how far they get, and which memories are not shown to be better."""
    picks = ends.get("random", {})
    name = next((name for name in names if name in picks), None)
    mean = picks[name].mean() if name else None
    if name is None or mean is None:
        return []
    notes = []
    if mean.value >= _EASY:
        notes.append(
            f"Random picks reach {name} = {_text(mean)}: at this k finding the evidence is little of an achievement."
        )
    if worse := _those(memories, name, picks[name], _not_above):
        notes.append(f"Not shown to be better than random picks ({_text(mean)}) in {name}: {', '.join(worse)}.")
    return notes


def _not_above(difference: Estimate) -> bool:
    """True where a paired difference does not show that the first is better."""
    return (difference.value if difference.low is None else difference.low) <= 0


def _those(memories: Mapping[str, Scores], name: str, other: Scored, meets: Callable[[Estimate], bool]) -> list[str]:
    """Memories whose paired difference to `other` meets a condition, each with its mean."""
    named = []
    for system, own in memories.items():
        difference, mean = (own[name].against(other), own[name].mean()) if name in own else (None, None)
        if difference is not None and mean is not None and meets(difference):
            named.append(f"{system} {_text(mean)}")
    return named


def _mean(scores: Scores | None, field: str) -> tuple[Scored, Estimate] | None:
    own = scores.get(field) if scores else None
    mean = own.mean() if own else None
    return None if own is None or mean is None else (own, mean)


def _reader(ends: Mapping[str, Scores], field: str) -> list[str]:
    """With exactly the evidence: what the reader can show at all."""
    if (oracle := _mean(ends.get("oracle"), field)) is None:
        return []
    given, mean = oracle
    notes = []
    if mean.value < _WEAK:
        notes.append(
            f"With exactly the evidence the reader reaches only {field} = {_text(mean)}: what memories lose below "
            "that is the reader's or the questions' fault, and differences between memories come out too small."
        )
    nothing = ends.get("none", {}).get(field)
    gain = given.against(nothing) if nothing else None
    if gain is not None and _not_above(gain):
        notes.append(
            "The reader is not shown to answer better with the evidence than without anything: its answers say "
            "nothing of memories."
        )
    return notes


def _whole(memories: Mapping[str, Scores], ends: Mapping[str, Scores], field: str) -> list[str]:
    """The whole conversation fits, and is not beaten."""
    if (full := _mean(ends.get("full_context"), field)) is None:
        return []
    given, mean = full
    if (none := _mean(ends.get("none"), field)) is not None:
        nothing, floor = none
        gain = given.against(nothing)
        if gain is not None and gain.value <= 0:
            return [
                f"The reader makes nothing of the whole conversation: {field} = {_text(mean)}, without any "
                f"{_text(floor)}. So full_context is no ceiling here, and being better than it is no achievement; "
                "look at the oracle."
            ]
    names = _those(memories, field, given, lambda difference: difference.value <= 0)
    if not names:
        return []
    lengths = ends["full_context"]["retrieved_tokens"].values if "retrieved_tokens" in ends["full_context"] else {}
    tokens = f" ({sum(lengths.values()) / len(lengths):,.0f} tokens a question)" if lengths else ""
    return [
        f"The whole conversation{tokens} fits the reader, which then reaches {field} = {_text(mean)}; "
        f"no better on the same questions: {', '.join(names)}. At this length a memory can save tokens, not improve "
        "answers."
    ]


def _unscored(scores: Mapping[str, Scores], memories: Sequence[str]) -> list[str]:
    """Questions whose evidence is known (others have a score on them) and on which a memory's hits could not be
    placed.
    """

    def questions(system: str, name: str) -> set[Hashable]:
        return set(scores[system][name].values) if name in scores[system] else set()

    items, sessions = (set().union(*(questions(system, name) for system in scores)) for name in _RANK)
    notes = []
    for system in memories:
        asked, own, of_sessions = (questions(system, name) for name in ("hit_count", *_RANK))
        whole_sessions = (items & asked & of_sessions) - own
        unknown = ((items | sessions) & asked) - own - of_sessions
        if whole_sessions:
            notes.append(
                f"{system}: hits are whole sessions on {len(whole_sessions):,} question(s); they are scored as "
                "sessions only (session_… columns), for a session is not a turn."
            )
        if unknown:
            notes.append(
                f"{system}: hits do not say what they come from on {len(unknown):,} question(s); these have no "
                "retrieval scores."
            )
    return notes


def _text(estimate: Estimate, form: Callable[[float], str] = "{:.3f}".format) -> str:
    ends = (estimate.low, estimate.high)
    interval = "" if None in ends else f" [{', '.join(form(end) for end in ends if end is not None)}]"
    return form(estimate.value) + interval
