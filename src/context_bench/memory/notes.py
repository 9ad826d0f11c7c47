"""Sentences that stand above the numbers of a memory run, to be read before anybody quotes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from context_bench.core.records import Estimate, EvalRow, SetupRecord
from context_bench.core.roles import ArmRole, of_kind
from context_bench.core.rows import standing
from context_bench.memory.figures import Harm, harm
from context_bench.stats.intervals import Scored, scored

_EASY = 0.5  # recall of random picks from which finding something is no achievement
_WEAK = 0.7  # score with exactly the evidence below which losses are more the reader's than a memory's
_RANK = ("mrr", "session_mrr")
_ENDS = ("none", "random", "full_context", "oracle")  # kinds of floors and ceilings


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
    names = [
        *(f"{level}recall_at_{k}" for k in ks for level in ("", "session_")),
        *_RANK,
        "hit_count",
        "retrieved_tokens",
    ]
    if score_field and score_field not in names:
        names.append(score_field)
    found = {system: scored(rows, names) for system, rows in rows_by_system.items()}
    memories = [system for system in found if not (roles[system].is_control or roles[system].kind in _ENDS)]
    ends = {kind: found[name] for kind in _ENDS if (name := of_kind(roles, kind)) is not None and name in found}
    answers = score_field if about.get("reader", True) and score_field and "recall_at_" not in score_field else None
    notes = [*_emptied(ks, setups, memories or list(found)), *_against_chance(found, ends, memories, ks)]
    if answers:
        notes += [
            *_reader(ends, answers),
            *_whole(found, ends, memories, answers),
            *_harms(found, roles, memories, answers, threshold),
        ]
    return [*notes, *_unscored(found, memories)]


def dirt_note(dataset: Mapping[str, Any]) -> str | None:
    """The faults mended or left out of a dataset, as its manifest counts it; `None` where nothing had to be."""
    dirt = dataset.get("dirt")
    if not isinstance(dirt, Mapping) or not dirt:
        return None
    return f"{dataset.get('name')}: as it was read, {'; '.join(f'{count:,} {what}' for what, count in dirt.items())}."


# --- k and chance ---


def _emptied(ks: Sequence[int], setups: Sequence[SetupRecord], systems: Sequence[str]) -> list[str]:
    """`k` ≥ items in store: everything is returned, and no ranking can be seen."""
    sizes: dict[str, list[float]] = {}
    for record in standing(setups):
        held = [
            value
            for name in ("stored", "parts", "items")
            if isinstance(value := record.output.get(name), int | float) and value
        ]
        if held and record.system in systems:
            sizes.setdefault(record.system, []).append(held[0])
    notes: dict[str, list[str]] = {}
    for system, held in sizes.items():
        reached = [(k, sum(size <= k for size in held)) for k in ks]
        if told := ", ".join(
            f"k = {k} returns everything in {count} of {len(held)} haystacks" for k, count in reached if count
        ):
            span = f"{min(held):,.0f}" if min(held) == max(held) else f"{min(held):,.0f} to {max(held):,.0f}"
            notes.setdefault(f"{told} (they hold {span} items)", []).append(system)
    return [
        f"Not a headline: {told}, so retrieval scores there say nothing of ranking ({', '.join(names)})."
        for told, names in notes.items()
    ]


def _against_chance(
    found: Mapping[str, Mapping[str, Scored]],
    ends: Mapping[str, Mapping[str, Scored]],
    memories: Sequence[str],
    ks: Sequence[int],
) -> list[str]:
    """Random picks: how far they get, and which memories are not shown to be better."""
    named = [f"{level}recall_at_{ks[-1]}" for level in ("", "session_")] if ks else []
    name = next((name for name in named if name in ends.get("random", {})), None)
    mean = ends["random"][name].mean() if name else None
    if name is None or mean is None:
        return []
    notes = []
    if mean.value >= _EASY:
        notes.append(
            f"Random picks reach {name} = {_text(mean)}: at this k finding the evidence is little of an achievement."
        )
    notes += _no_better(found, memories, name, ends["random"][name], f"random picks ({_text(mean)})")
    return notes


def _no_better(
    found: Mapping[str, Mapping[str, Scored]], systems: Sequence[str], name: str, other: Scored, called: str
) -> list[str]:
    """Systems whose score is not shown to be above another's on the same questions."""

    def failed(difference: Estimate) -> bool:
        return difference.value <= 0 if difference.low is None else difference.low <= 0

    names = _those(found, systems, name, other, failed)
    return [f"Not shown to be better than {called} in {name}: {', '.join(names)}."] if names else []


def _those(
    found: Mapping[str, Mapping[str, Scored]],
    systems: Sequence[str],
    name: str,
    other: Scored,
    meets: Callable[[Estimate], bool],
) -> list[str]:
    """Systems whose paired difference to `other` meets a condition, each with its mean."""
    named = []
    for system in systems:
        mine = found[system].get(name)
        difference = mine.against(other) if mine else None
        mean = mine.mean() if mine else None
        if difference is not None and mean is not None and meets(difference):
            named.append(f"{system} {_text(mean)}")
    return named


# --- the reader ---


def _reader(ends: Mapping[str, Mapping[str, Scored]], answers: str) -> list[str]:
    """With exactly the evidence: what the reader can show at all."""
    given = ends.get("oracle", {}).get(answers)
    mean = given.mean() if given else None
    if given is None or mean is None:
        return []
    notes = []
    if mean.value < _WEAK:
        notes.append(
            f"With exactly the evidence the reader reaches only {answers} = {_text(mean)}: what memories lose below "
            "that is the reader's "
            "or the questions' fault, and differences between memories come out too small."
        )
    nothing = ends.get("none", {}).get(answers)
    gain = given.against(nothing) if nothing else None
    if gain is not None and (gain.value <= 0 if gain.low is None else gain.low <= 0):
        notes.append(
            "The reader is not shown to answer better with the evidence than without anything: its answers say "
            "nothing of memories."
        )
    return notes


def _whole(
    found: Mapping[str, Mapping[str, Scored]],
    ends: Mapping[str, Mapping[str, Scored]],
    memories: Sequence[str],
    answers: str,
) -> list[str]:
    """The whole conversation fits, and is not beaten."""
    given = ends.get("full_context", {}).get(answers)
    mean = given.mean() if given else None
    if given is None or mean is None:
        return []
    nothing = ends.get("none", {}).get(answers)
    gain, floor = (given.against(nothing), nothing.mean()) if nothing else (None, None)
    if gain is not None and floor is not None and gain.value <= 0:
        return [
            f"The reader makes nothing of the whole conversation: {answers} = {_text(mean)}, without any "
            f"{_text(floor)}. So full_context "
            "is no ceiling here, and being better than it is no achievement; look at the oracle."
        ]
    names = _those(found, memories, answers, given, lambda difference: difference.value <= 0)
    length = ends["full_context"].get("retrieved_tokens")
    tokens = (
        f" ({sum(length.values.values()) / len(length.values):,.0f} tokens a question)"
        if length and length.values
        else ""
    )
    if not names:
        return []
    return [
        f"The whole conversation{tokens} fits the reader, which then reaches {answers} = {_text(mean)}; "
        f"no better on the same questions: {', '.join(names)}. At this length a memory can save tokens, not improve "
        "answers."
    ]


def _harms(
    found: Mapping[str, Mapping[str, Scored]],
    roles: Mapping[str, ArmRole],
    memories: Sequence[str],
    answers: str,
    threshold: float,
) -> list[str]:
    changes = [each for each in harms(found, roles, memories, answers, threshold) if each.harmed.value > 0]
    return [each.sentence for each in changes]


def harms(
    found: Mapping[str, Mapping[str, Scored]],
    roles: Mapping[str, ArmRole],
    systems: Sequence[str],
    answers: str,
    threshold: float,
) -> list[Harm]:
    """The effect of each of `systems` against the arm without memory; empty without that arm or its answers."""
    none = of_kind(roles, "none")
    without = found.get(none, {}).get(answers) if none is not None else None
    if none is None or without is None:
        return []
    others = [system for system in systems if system != none]
    changes = [
        harm(system, mine, none, without, threshold)
        for system in others
        if (mine := found[system].get(answers)) is not None
    ]
    return [change for change in changes if change is not None]


# --- what is not in the numbers ---


def _unscored(found: Mapping[str, Mapping[str, Scored]], memories: Sequence[str]) -> list[str]:
    """Questions whose evidence is known (others have a score on them) and on which a memory's hits could not be
    placed.
    """
    known = {name: {key for by in found.values() if name in by for key in by[name].values} for name in _RANK}
    notes = []
    for system in memories:
        by = found[system]
        seen = set(by["hit_count"].values) if "hit_count" in by else set()
        own = {name: set(by[name].values) if name in by else set() for name in _RANK}
        as_sessions = (known["mrr"] & seen & own["session_mrr"]) - own["mrr"]
        unknown = ((known["mrr"] | known["session_mrr"]) & seen) - own["mrr"] - own["session_mrr"]
        if as_sessions:
            notes.append(
                f"{system}: hits are whole sessions on {len(as_sessions):,} question(s); they are scored as sessions "
                "only "
                "(session_… columns), for a session is not a turn."
            )
        if unknown:
            notes.append(
                f"{system}: hits do not say what they come from on {len(unknown):,} question(s); these have no "
                "retrieval scores."
            )
    return notes


def _text(known: Estimate) -> str:
    interval = f" [{known.low:.2f}, {known.high:.2f}]" if known.low is not None and known.high is not None else ""
    return f"{known.value:.2f}{interval}"
