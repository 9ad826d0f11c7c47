"""Summaries that a model writes: its arguments, the parts in which it reads a long prefix, and summaries in fixed
sections.

Entries of a section are added and struck out, never written anew. `SummarySections` also shows as much of itself as a
budget allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.compression.compressors.texts import head
from context_bench.compression.probes import rendered
from context_bench.core.iterables import by_size
from context_bench.core.keys import stable_hash
from context_bench.core.protocols import Prices
from context_bench.core.tokens import VocabularyCounter, counter_for
from context_bench.systems.context import check_limit
from context_bench.systems.text_model import TextModel
from context_bench.wire.conversation import ChatMessage


class WrittenByModel(TextModel):
    """A compressor that asks a model behind `relay` (an OpenAI-compatible URL; `api_key` defaults to `OPENAI_API_KEY`),
    at temperature 0.

    What is to be summarised is put to it in parts of at most `part_tokens` (o200k_base), so that it fits a small
    window; its reply has at most `max_tokens`. `budget`: tokens of the summary; the model is told, and what is longer
    all the same is cut, with a warning. A call that fails is the failure of the compression. `prices`: what calls cost.
    `limiter`: whose turn it is to ask.
    """

    def __init__(
        self,
        relay: str | None = None,
        model: str = "gpt-4o-mini",
        api_key: str | None = None,
        *,
        budget: int | None = None,
        part_tokens: int = 4000,
        max_tokens: int = 1200,
        timeout: float = 120.0,
        max_retries: int = 3,
        prices: Prices | None = None,
        limiter: Any = None,
    ) -> None:
        settings = {"timeout": timeout, "max_retries": max_retries, "prices": prices, "limiter": limiter}
        super().__init__(
            relay, model, api_key, "--responder", part_tokens=part_tokens, max_tokens=max_tokens, **settings
        )
        check_limit(self.name, budget, 0)
        self.budget = budget

    def fingerprint(self) -> dict[str, Any]:
        """The settings on which its texts depend; no key."""
        return super().fingerprint() | {"budget": self.budget}

    def _parts(self, messages: Sequence[ChatMessage]) -> Iterator[str]:
        """The messages as text, in parts; one that is longer than a part is cut into several."""
        counter = counter_for()
        pieces = (piece for message in messages for piece in _pieces(rendered([message]), self.part_tokens, counter))
        return ("\n\n".join(part) for part in by_size(pieces, counter.count, self.part_tokens))


def _pieces(text: str, tokens: int, counter: VocabularyCounter) -> Iterator[str]:
    while counter.count(text) > tokens:
        first = head(text, tokens, counter) or counter.truncate(text, tokens) or text[:1]
        yield first
        text = text[len(first) :].lstrip()
    if text.strip():
        yield text


#: Section → its heading, in the order in which they are shown.
SECTIONS = {
    "intent": "Intent",
    "created": "Files created",
    "modified": "Files modified",
    "deleted": "Files deleted",
    "read": "Files read, not changed",
    "decisions": "Decisions",
    "state": "State",
    "next": "Next steps",
}
#: Entries say what they are, for readers who see a line and not its heading.
_SAID = {
    "created": "Created the new file {}",
    "modified": "Modified the existing file {}",
    "deleted": "Deleted the file {}",
    "read": "Read or examined, not changed: {}",
    "next": "Still left to do: {}",
}
#: What is left out last when room is short: the first of these is kept longest.
_WORTH = ("intent", "next", "modified", "created", "decisions", "deleted", "state", "read")
TITLE = "Summary of the session up to here"


@dataclass(slots=True)
class SummarySections:
    """Entries by section, each under a key (an entry with a key that is there already takes its place, at the end)."""

    entries: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in SECTIONS})

    def put(self, section: str, text: str, key: str | None = None, *, first: bool = False) -> None:
        """Add an entry. `first`: an entry that is there under this key stays."""
        text = " ".join(text.split())
        key = text.casefold() if key is None else key
        held = self.entries[section]
        if not text or (first and key in held) or text in held.values():
            return
        held.pop(key, None)
        held[key] = text

    def strike(self, section: str, key: str) -> bool:
        """Take an entry out; whether there was one."""
        return self.entries[section].pop(key, None) is not None

    def rendered(self) -> str:
        """All of it as text; nothing if there is no entry."""
        return _text(self.entries)

    def fitting(self, budget: int | None, counter: VocabularyCounter) -> tuple[str, int]:
        """As much of it as `budget` tokens hold, whole entries only, and how many entries were left out."""
        whole = self.rendered()
        if budget is None or counter.count(whole) <= budget:
            return whole, 0
        order = self._by_worth()
        low, high = 0, len(order)  # that more entries are more tokens makes the search right
        while low < high:
            middle = (low + high + 1) // 2
            if counter.count(_text(self._only(order[:middle]))) <= budget:
                low = middle
            else:
                high = middle - 1
        kept = order[:low]
        for place in order[low:]:  # later ones may be shorter
            if counter.count(_text(self._only([*kept, place]))) <= budget:
                kept.append(place)
        return _text(self._only(kept)), len(order) - len(kept)

    def _by_worth(self) -> list[tuple[str, str]]:
        """Entries, the one to keep longest first: the first of each section in turn by worth, the newest before older
        ones.
        """
        ranked = []
        for worth, section in enumerate(_WORTH):
            keys = list(self.entries[section])
            order = [*keys[:1], *reversed(keys[1:])] if section == "intent" else list(reversed(keys))
            ranked += [(depth, worth, section, key) for depth, key in enumerate(order)]
        return [(section, key) for _, _, section, key in sorted(ranked, key=lambda each: each[:2])]

    def _only(self, places: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
        wanted = set(places)
        return {
            name: {key: text for key, text in held.items() if (name, key) in wanted}
            for name, held in self.entries.items()
        }

    def to_json(self) -> dict[str, dict[str, str]]:
        """As JSON values."""
        return {name: dict(held) for name, held in self.entries.items() if held}

    @classmethod
    def from_json(cls, value: dict[str, dict[str, str]] | None) -> SummarySections:
        """Sections from the result of `to_json`; nothing gives empty sections."""
        made = cls()
        for name, held in (value or {}).items():
            made.entries[name].update(held)
        return made


def _text(entries: dict[str, dict[str, str]]) -> str:
    parts = [
        f"{SECTIONS[name]}:\n" + "\n".join("- " + _SAID.get(name, "{}").replace("{}", text) for text in held.values())
        for name, held in entries.items()
        if held
    ]
    return "\n\n".join([f"[{TITLE}]", *parts]) if parts else ""


def summary_message(text: str) -> list[ChatMessage]:
    """The message that stands for what was summarised; none for no text."""
    return [{"role": "user", "content": text}] if text else []


def newly(prefix: Sequence[ChatMessage], state: Any) -> list[ChatMessage]:
    """The messages of the prefix that are not in the summary of `state`: those after that summary, or after the
    messages it was made of.
    """
    messages = list(prefix)
    for seen in ("gave", "got"):
        count, mark = (state or {}).get(seen) or (0, "")
        if count and len(messages) >= count and stable_hash(messages[:count]) == mark:
            return messages[count:]
    return messages


def seen(prefix: Sequence[ChatMessage], made: Sequence[ChatMessage]) -> dict[str, Any]:
    """The state that `newly` needs next time: the messages that were given, and those that were made of them."""
    return {"got": [len(prefix), stable_hash(list(prefix))], "gave": [len(made), stable_hash(list(made))]}
