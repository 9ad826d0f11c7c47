"""Fidelity of a compressor to a text, without any model: kept, lost and invented atoms, fragments, lines, words.

`fidelity(original, compressed)` measures one pair, `summarise(pairs)` many. All shares are in [0, 1]; what cannot be
told is `None`. Three words for the size, never "ratio" alone: keep = tokens after / before, removal = 1 - keep, fold =
before / after. An atom survives letter for letter, with other marks, or as key and value. Words are counted in any
script, with those that a compressor damaged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import load_json
from context_bench.core.text import contains, recall_score
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.wire.atoms import atoms, plain_number
from context_bench.wire.conversation import message_text
from context_bench.wire.fidelity.findings import (
    AtomCounts,
    Fidelity,
    Fragments,
    LostAtom,
    NearMiss,
    SharedRuns,
    fragments,
    line_order,
)
from context_bench.wire.words import script_of, words

__all__ = [
    "Fidelity",
    "Fragments",
    "LostAtom",
    "NearMiss",
    "Summary",
    "AtomCounts",
    "Text",
    "fidelity",
    "fragments",
    "line_order",
    "script_of",
    "summarise",
    "word_damage",
    "words",
]

NUMBER = re.compile(r"\d[\d,.']*")


def _numbers(text: str) -> Iterator[str]:
    """Numbers of a text; between commas there may be a number of its own, as in a row of CSV."""
    for number in NUMBER.findall(text):
        yield number
        if "," in number:
            yield from number.split(",")


def word_damage(original: str, compressed: str) -> dict[str, tuple[int, int]]:
    """Script → (words of the compressed text that the original does not have, words). Numbers in another format are not
    damaged.

    In Chinese and Japanese a "word" is two neighbouring characters: characters that were dropped one by one, or broken,
    show.
    """
    return _damage(original, _vocabulary(original), compressed)


def _vocabulary(text: str) -> frozenset[str]:
    return frozenset(word for _, word in words(text))


def _damage(original: str, known: frozenset[str], compressed: str) -> dict[str, tuple[int, int]]:
    said = Counter(words(compressed))
    strange = [(script, word) for script, word in said if word not in known]
    if any(word[0].isdigit() for _, word in strange):
        numbers = {plain_number(number) for number in NUMBER.findall(original)}
        strange = [
            (script, word) for script, word in strange if not (word[0].isdigit() and plain_number(word) in numbers)
        ]
    damaged: Counter[str] = Counter()
    for script, word in strange:
        damaged[script] += said[script, word]
    total: Counter[str] = Counter()
    for (script, _), times in said.items():
        total[script] += times
    return {script: (damaged[script], times) for script, times in total.items()}


_CASES = re.compile(r"[\W_]+")
_PHRASES = frozenset(
    {"quote", "constraint", "command", "error", "date_time"}
)  # may be figures with other marks between the words


class Survivors:
    """Answers whether an atom is in a text: letter for letter, or after case and punctuation, or (numbers) key and
    value both.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.kinds = atoms(text)
        self._bare: dict[str, set[str]] = {}
        self._all: str | None = None
        self._words: set[str] | None = None
        self._numbers: set[str] | None = None

    def holds(self, kind: str, atom: str) -> bool:
        """True if the atom is still there."""
        if atom in self.kinds.get(kind, ()) or (atom in self._text and self._verbatim(atom)):
            return True
        if kind == "number":
            return self._has_number(atom)
        bare = _bare(atom)
        if not bare:
            return False
        if kind not in self._bare:
            self._bare[kind] = {_bare(other) for other in self.kinds.get(kind, ())}
        if bare in self._bare[kind]:
            return True
        if kind not in _PHRASES:
            if self._words is None:
                self._words = {_bare(word) for word in self._text.split()}
            return bare in self._words
        if self._all is None:
            self._all = f" {_CASES.sub(' ', self._text.lower())} "
        return f" {_CASES.sub(' ', atom.lower()).strip()} " in self._all

    def _verbatim(self, atom: str) -> bool:
        at = self._text.find(atom)
        while at >= 0:
            end = at + len(atom)
            if not (_joins(atom[0], self._text[at - 1 : at]) or _joins(atom[-1], self._text[end : end + 1])):
                return True
            at = self._text.find(atom, at + 1)
        return False

    def _has_number(self, atom: str) -> bool:
        """`key=value` and `value unit`: the value as a number of the text, and the other half as a word of it."""
        if self._numbers is None:
            self._numbers = {plain_number(number.rstrip(".,'")) for number in _numbers(self._text)}
        key, equals, rest = atom.partition("=")
        value = NUMBER.search(rest if equals else atom)
        if value is None or plain_number(value[0].rstrip(".,'")) not in self._numbers:
            return False
        other = key if equals else atom.replace(value[0], "").strip("- ")
        return (bool(other) and self._verbatim(other)) or other.lower() in self._text.lower().split()


def _joins(one: str, other: str) -> bool:
    if not other or one >= "\u2e80" or other >= "\u2e80" or (one.isdigit() and other.isalpha()):
        return False
    return (one.isalnum() or one == "_") and (other.isalnum() or other == "_")


def _bare(atom: str) -> str:
    return _CASES.sub("", atom.lower())


EVIDENCE = 0.8  # token recall from which a supporting sentence counts as kept
Text = str | Sequence[Mapping[str, Any]]


def fidelity(
    original: Text,
    compressed: Text,
    *,
    retrievable: Mapping[str, str] | None = None,
    answers: Sequence[str] = (),
    evidence: Sequence[str] = (),
    requested_keep: float | None = None,
    counter: TokenCounter | None = None,
) -> Fidelity:
    """Measure one pair of texts, or of lists of chat messages.

    `retrievable`: markers as they stand in the compressed text → the text that asking for them brings back. `answers`:
    gold answers to the question the context is for; `evidence`: its supporting sentences. Messages that end both lists
    alike were not compressed: their atoms are not counted, unless nothing else is there.
    """
    return Original(original).against(
        compressed,
        retrievable=retrievable,
        answers=answers,
        evidence=evidence,
        requested_keep=requested_keep,
        counter=counter,
    )


class Original:
    """A text, or a list of chat messages, that others are measured against: what is to be known of it is found out
    once, however many they are.
    """

    def __init__(self, text: Text) -> None:
        self._spoken = _spoken(text)
        self._whole = "\n".join(said for _, said in self._spoken)
        self._source = Survivors(self._whole)
        self._runs = SharedRuns(self._whole)
        self._atoms = {self._whole: self._source.kinds}

    @cached_property
    def _words(self) -> frozenset[str]:
        return _vocabulary(self._whole)

    def atoms_kept(self, compressed: Text) -> dict[str, AtomCounts]:
        """`kinds` of the findings on one compressed text (`against`), without finding out anything else."""
        found, after = Fidelity(), _spoken(compressed)
        self._retention(found, after, "\n".join(text for _, text in after))
        return found.kinds

    def _retention(
        self,
        found: Fidelity,
        after: list[tuple[str, str]],
        made: str,
        retrievable: Mapping[str, str] | None = None,
    ) -> Survivors:
        """Put into the findings what became of the atoms; gives what the compressed text holds."""
        survivors = self._source if made == self._whole else Survivors(made)
        worked_on = [(role, text, self._atoms_of(text)) for role, text in _worked_on(self._spoken, after)]
        _retention(found, worked_on, survivors, _reach(retrievable, made))
        return survivors

    def _atoms_of(self, text: str) -> dict[str, dict[str, int]]:
        if text not in self._atoms:
            self._atoms[text] = atoms(text)
        return self._atoms[text]

    def against(
        self,
        compressed: Text,
        *,
        retrievable: Mapping[str, str] | None = None,
        answers: Sequence[str] = (),
        evidence: Sequence[str] = (),
        requested_keep: float | None = None,
        counter: TokenCounter | None = None,
    ) -> Fidelity:
        """The findings on one compressed text; see `fidelity`."""
        after, whole = _spoken(compressed), self._whole
        made = "\n".join(text for _, text in after)
        counter = counter or counter_for()
        found = Fidelity(requested_keep=requested_keep)
        survivors = self._retention(found, after, made, retrievable)
        _fabrication(found, self._source, survivors)
        found.fragments = self._runs.within(made)
        found.verbatim_lines, found.order = line_order(whole, made)
        found.words = _damage(whole, self._words, made)
        found.utf8_ok = _is_utf8(made) or not _is_utf8(whole)
        found.replacement_chars = max(0, made.count("\ufffd") - whole.count("\ufffd"))
        found.tokens_before, found.tokens_after = counter.count(whole), counter.count(made)
        found.json_ok = _parses(made) if _parses(whole) else None
        if answers:
            had, has = (any(contains(text, answer) for answer in answers) for text in (whole, made))
            found.answer_in_context, found.answer_introduced = (has if had else None), has and not had
        if evidence:
            kept = sum(recall_score(made, sentence) >= EVIDENCE for sentence in evidence)
            found.evidence_recall = kept / len(evidence)
        return found


def _spoken(text: Text) -> list[tuple[str, str]]:
    if isinstance(text, str):
        return [("text", text)]
    if not isinstance(text, Sequence) or not all(isinstance(message, Mapping) for message in text):
        raise BadInput(f"expected a text or a list of chat messages, got {type(text).__name__}")
    return [(str(message.get("role")), message_text(message)) for message in text if isinstance(message, Mapping)]


def _worked_on(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The original without the messages that both end with."""
    same = 0
    while same < min(len(before), len(after)) and before[-1 - same] == after[-1 - same]:
        same += 1
    return before[: len(before) - same] or before


def _reach(retrievable: Mapping[str, str] | None, made: str) -> Survivors | None:
    texts = [text for marker, text in (retrievable or {}).items() if marker and marker in made]
    return Survivors("\n".join(texts)) if texts else None


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _parses(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        load_json(text)
    except ValueError:
        return False
    return True


def _retention(
    found: Fidelity,
    spoken: list[tuple[str, str, dict[str, dict[str, int]]]],
    survivors: Survivors,
    reach: Survivors | None,
) -> None:
    length = sum(len(text) for _, text, _ in spoken) or 1
    seen: set[tuple[str, str]] = set()
    counts: Counter[tuple[str, str, int, str, str]] = Counter()
    passed = 0
    for role, text, kinds in spoken:
        ascii_only = text.isascii()
        for kind, held in kinds.items():
            for atom, place in held.items():
                if (kind, atom) in seen:
                    continue
                seen.add((kind, atom))
                state = (
                    "retained"
                    if survivors.holds(kind, atom)
                    else "recoverable"
                    if reach and reach.holds(kind, atom)
                    else "lost"
                )
                decile = min(9, (passed + place) * 10 // length)
                script = "latin" if ascii_only else script_of(_line_at(text, place))
                counts[kind, role, decile, script, state] += 1
                if state == "lost":
                    found.lost.append(LostAtom(kind, atom, role, decile, script))
        passed += len(text)
    for (kind, role, decile, script, state), count in counts.items():
        found.kinds.setdefault(kind, AtomCounts()).add(state, count)
        found.roles.setdefault(role, AtomCounts()).add(state, count)
        found.deciles.setdefault(decile, AtomCounts()).add(state, count)
        found.scripts.setdefault(script, AtomCounts()).add(state, count)


def _line_at(text: str, place: int) -> str:
    start = max(text.rfind("\n", max(0, place - 100), place) + 1, place - 100, 0)
    end = text.find("\n", place, place + 100)
    return text[start : end if end >= 0 else place + 100]


def _fabrication(found: Fidelity, source: Survivors, made: Survivors) -> None:
    for kind, held in made.kinds.items():
        invented = [atom for atom in held if not source.holds(kind, atom)]
        found.fabricated[kind] = (len(invented), len(held))
        found.invented += [(kind, atom) for atom in invented]
    before: dict[str, list[str]] = {}
    for atom in source.kinds.get("number", ()):
        key, equals, value = atom.partition("=")
        if equals:
            before.setdefault(key.lower(), []).append(value)
    for kind, atom in found.invented:
        key, equals, value = atom.partition("=")
        if kind == "number" and equals and key.lower() in before:
            found.near_misses.append(NearMiss(key, before[key.lower()][0], value))


FEW = 5  # a kind with fewer atoms does not count in the macro mean
IDLE = 0.01  # a removal below this is none


@dataclass(slots=True)
class Summary:
    """Many pairs together: tallies pooled over all atoms, shares of pairs, and `metrics`, the flat form that a gate
    reads.
    """

    pairs: int = 0
    kinds: dict[str, AtomCounts] = field(default_factory=dict)
    roles: dict[str, AtomCounts] = field(default_factory=dict)
    deciles: dict[int, AtomCounts] = field(default_factory=dict)
    scripts: dict[str, AtomCounts] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    lost: list[LostAtom] = field(default_factory=list)
    near_misses: list[NearMiss] = field(default_factory=list)
    invented: list[tuple[str, str]] = field(default_factory=list)


def summarise(found: Iterable[Fidelity], *, examples: int = 20) -> Summary:
    """Pool pairs. `lost`, `near_misses` and `invented` hold at most `examples` each. Metrics that nothing tells of are
    left out.

    `retained`, `recoverable`, `lost`: shares of all atoms (also `retained.KIND`); `macro`: mean over kinds with at
    least five atoms; `word_damage` (also `.SCRIPT`): share of words; `coverage`, `density`, `verbatim_lines`, `order`:
    means over pairs; `keep`, `removal`, `fold`: of all tokens, `mean_keep`: mean over pairs; `expansion_share`,
    `unchanged_share`: pairs that grew, pairs that lost < 1 %.
    """
    total = Summary()
    pool = _Pool()
    for one in found:
        total.pairs += 1
        for name in ("kinds", "roles", "deciles", "scripts"):
            for key, tally in getattr(one, name).items():
                getattr(total, name).setdefault(key, AtomCounts()).plus(tally)
        for kept, more in (
            (total.lost, one.lost),
            (total.near_misses, one.near_misses),
            (total.invented, one.invented),
        ):
            kept.extend(more[: max(0, examples - len(kept))])  # type: ignore[arg-type]
        pool.add(one)
    total.metrics = {name: value for name, value in _metrics(total, pool).items() if value is not None}
    return total


class _Pool:
    """Sums over pairs."""

    def __init__(self) -> None:
        self.means: dict[str, list[float]] = {}
        self.words: dict[str, list[int]] = {}
        self.fabricated: dict[str, list[int]] = {}
        self.before = self.after = self.replaced = 0

    def add(self, one: Fidelity) -> None:
        keep = one.keep
        figures: dict[str, float | bool | None] = {
            "coverage": one.fragments.coverage,
            "density": one.fragments.density,
            "verbatim_lines": one.verbatim_lines,
            "order": one.order,
            "utf8_ok": one.utf8_ok,
            "json_ok": one.json_ok,
            "answer_in_context": one.answer_in_context,
            "answer_introduced": one.answer_introduced,
            "evidence_recall": one.evidence_recall,
            "mean_keep": keep,
            "expansion_share": None if keep is None else keep > 1,
            "unchanged_share": None if keep is None else abs(1 - keep) < IDLE,
            "keep_error": None if keep is None or one.requested_keep is None else abs(keep - one.requested_keep),
        }
        for name, value in figures.items():
            if value is not None:
                self.means.setdefault(name, []).append(float(value))
        for counts, more in ((self.words, one.words), (self.fabricated, one.fabricated)):
            for key, (part, whole) in more.items():
                tally = counts.setdefault(key, [0, 0])
                tally[0] += part
                tally[1] += whole
        self.before += one.tokens_before
        self.after += one.tokens_after
        self.replaced += one.replacement_chars


def _metrics(total: Summary, pool: _Pool) -> dict[str, float | None]:
    every = AtomCounts()
    for tally in total.kinds.values():
        every.plus(tally)
    big = [share for tally in total.kinds.values() if tally.total >= FEW and (share := tally.share) is not None]
    n = every.total
    found: dict[str, float | None] = {
        "retained": every.share,
        "recoverable": every.recoverable / n if n else None,
        "lost": every.lost / n if n else None,
        "macro": sum(big) / len(big) if big else None,
        "fabricated": _pooled(pool.fabricated.values()),
        "near_misses": float(len(total.near_misses)),
        "word_damage": _pooled(pool.words.values()),
        **{name: sum(values) / len(values) for name, values in pool.means.items()},
        "replacement_chars": float(pool.replaced),
        "keep": pool.after / pool.before if pool.before else None,
        "removal": 1 - pool.after / pool.before if pool.before else None,
        "fold": pool.before / pool.after if pool.after else None,
    }
    found |= {f"retained.{kind}": tally.share for kind, tally in sorted(total.kinds.items())}
    found |= {f"word_damage.{script}": _pooled([counts]) for script, counts in sorted(pool.words.items())}
    found |= {f"fabricated.{kind}": _pooled([counts]) for kind, counts in sorted(pool.fabricated.items())}
    return found


def _pooled(counts: Iterable[Sequence[int]]) -> float | None:
    parts = list(counts)
    whole = sum(count[1] for count in parts)
    return sum(count[0] for count in parts) / whole if whole else None
