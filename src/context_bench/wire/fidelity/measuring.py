"""One pair of texts, measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.jsontext import load_json
from context_bench.core.text import contains, recall_score
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.wire.atoms import atoms
from context_bench.wire.conversation import message_text
from context_bench.wire.fidelity.extracts import fragments, line_order
from context_bench.wire.fidelity.findings import Fidelity, LostAtom, NearMiss, Tally
from context_bench.wire.fidelity.scripts import script_of, word_damage
from context_bench.wire.fidelity.survivors import Survivors

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

    `retrievable`: markers as they stand in the compressed text → the text that asking for them brings back. `answers`: gold answers to
    the question the context is for; `evidence`: its supporting sentences. Messages that end both lists alike were not compressed: their
    atoms are not counted, unless nothing else is there.
    """
    before, after = _spoken(original), _spoken(compressed)
    whole, made = "\n".join(text for _, text in before), "\n".join(text for _, text in after)
    counter = counter or counter_for()
    found = Fidelity(requested_keep=requested_keep)
    source, survivors = Survivors(whole), Survivors(made)
    worked_on = [(role, text, source.kinds if text == whole else atoms(text)) for role, text in _worked_on(before, after)]
    _retention(found, worked_on, survivors, _reach(retrievable, made))
    _fabrication(found, source, survivors)
    found.fragments = fragments(whole, made)
    found.verbatim_lines, found.order = line_order(whole, made)
    found.words = word_damage(whole, made)
    found.utf8_ok = _is_utf8(made) or not _is_utf8(whole)
    found.replacement_chars = max(0, made.count("\ufffd") - whole.count("\ufffd"))
    found.tokens_before, found.tokens_after = counter.count(whole), counter.count(made)
    found.json_ok = _parses(made) if _parses(whole) else None
    if answers:
        had, has = any(contains(whole, answer) for answer in answers), any(contains(made, answer) for answer in answers)
        found.answer_in_context, found.answer_introduced = (has if had else None), has and not had
    if evidence:
        found.evidence_recall = sum(recall_score(made, sentence) >= EVIDENCE for sentence in evidence) / len(evidence)
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
    found: Fidelity, spoken: list[tuple[str, str, dict[str, dict[str, int]]]], survivors: Survivors, reach: Survivors | None
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
                state = "retained" if survivors.holds(kind, atom) else "recoverable" if reach and reach.holds(kind, atom) else "lost"
                decile = min(9, (passed + place) * 10 // length)
                script = "latin" if ascii_only else script_of(_line_at(text, place))
                counts[kind, role, decile, script, state] += 1
                if state == "lost":
                    found.lost.append(LostAtom(kind, atom, role, decile, script))
        passed += len(text)
    for (kind, role, decile, script, state), count in counts.items():
        found.kinds.setdefault(kind, Tally()).add(state, count)
        found.roles.setdefault(role, Tally()).add(state, count)
        found.deciles.setdefault(decile, Tally()).add(state, count)
        found.scripts.setdefault(script, Tally()).add(state, count)


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
