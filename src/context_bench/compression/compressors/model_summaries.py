"""Summaries that a model writes: one written anew each time, or one in sections that the model adds to.

Of a summary written anew, what it leaves out once is gone, and what it words anew may change. In sections, what stands
is never written anew, only struck out where it is no longer true; `anchored` fills the same sections by rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.compression.compressors.texts import Messages, head
from context_bench.compression.probes import rendered, tokens_of
from context_bench.core.errors import BadReply
from context_bench.core.keys import stable_hash
from context_bench.core.protocols import Compressed, Prices
from context_bench.core.rows import by_size
from context_bench.core.tokens import VocabularyCounter, counter_for
from context_bench.systems.context import check_limit
from context_bench.systems.openai_proxy import TextModel
from context_bench.wire.conversation import ChatMessage

ADAPTED = {
    "regenerative": "Regenerative",
    "anchored_iterative": "AnchoredIterative",
}


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
        super().__init__(relay, model, api_key, "--reader", part_tokens=part_tokens, max_tokens=max_tokens, **settings)
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


_RULES_ANEW = """You summarise a working session between a user and an assistant with tools, so that the work can go on without the session.
You get the summary so far, if there is one, and the next part of the session. Write the new summary of both; it takes the old one's place.
Say what the user wants, which files were created, changed or only read, what was decided and why, and against what, which errors and
results there were, and what is left to do. Copy names, paths, numbers, versions and error messages exactly. Leave out what was only
tried and everything that can be looked up again. Write nothing but the summary."""  # noqa: E501


class Regenerative(WrittenByModel):
    """The whole prefix, an earlier summary in it included, becomes one new summary. It has no state."""

    name = "regenerative"
    rules = _RULES_ANEW

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The summary as one message."""
        counter, limit = counter_for(self.model), self.budget if budget is None else budget
        title = f"[{TITLE}]\n\n"
        room = None if limit is None else limit - counter.count(title)
        before = tokens_of(prefix, counter)
        if room is not None and room <= 0:
            return Compressed(
                [], before, 0, warnings=[f"{limit} tokens are too few for a summary"] if prefix else []
            ), state
        summary = ""
        for part in self._parts(prefix):
            summary = await self._ask(
                f"Summary so far:\n{summary or '(none)'}\n\nNext part:\n{part}\n\nNew summary:", room
            )
        warnings = []
        if summary and room is not None and counter.count(summary) > room:
            summary = await self._ask(
                f"Summary so far:\n{summary}\n\nNext part:\n(none: only make it shorter)\n\nNew summary:", room
            )
            if (size := counter.count(summary)) > room:
                warnings.append(f"the model wrote {size} tokens where {room} were asked for; the end was cut off")
                summary = head(summary, room, counter)
        made = summary_message(title + summary if summary else "")
        while (
            made and limit is not None and tokens_of(made, counter) > limit
        ):  # tokens of joined texts may be more than their sum
            summary = head(summary, counter.count(summary) - 1, counter)
            made = summary_message(title + summary if summary else "")
        return Compressed(made, before, tokens_of(made, counter), warnings=warnings), state


_RULES_OF_SECTIONS = f"""You keep the summary of a working session between a user and an assistant with tools, so that the work can go on without it.
The summary has these sections: {", ".join(SECTIONS.values())}.
You get the summary as it stands, its entries numbered, and the next part of the session. Write only what is to be added: the heading of a
section on a line of its own after two hash marks, and under it one entry to a line after a dash. Example:
## Decisions
- One connection pool for all workers instead of one each, because Postgres allows 40 connections
Copy names, paths, numbers, versions and error messages exactly. Of a changed file say what changed. A file stands in one section only.
Where an entry is no longer true or is done, write a line with a tilde and its number, as in: ~ 7
Do not repeat entries and do not word them anew. If there is nothing to add, write: - nothing"""  # noqa: E501
_HEADING = re.compile(r"^[ \t]*#{1,4}[ \t]*(.+?)[ \t:]*$")
_ENTRY = re.compile(r"^[ \t]*[-*•][ \t]+(.+?)[ \t]*$")
_STRUCK = re.compile(r"^[ \t]*~[ \t]*(\d{1,6})\b")
_LONGEST = 1000  # characters of an entry
_BY_HEADING = {heading.casefold(): name for name, heading in SECTIONS.items()}


class AnchoredIterative(WrittenByModel):
    """`state` holds the sections (see `anchored`): the model sees them and what came since, and says what to add and
    what to strike.

    A reply in which no entry can be read is a failure. With a budget the most useful and newest entries are shown; none
    is forgotten.
    """

    name = "anchored_iterative"
    rules = _RULES_OF_SECTIONS

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The sections as one message."""
        counter, limit = counter_for(self.model), self.budget if budget is None else budget
        sections = SummarySections.from_json((state or {}).get("sections"))
        for part in self._parts(newly(prefix, state)):
            shown, places = _numbered(sections)
            said = await self._ask(
                f"The summary as it stands:\n{shown or '(empty)'}\n\nNext part:\n{part}\n\nTo be added:", limit
            )
            _merge(sections, said, places)
        text, left_out = sections.fitting(limit, counter)
        made = summary_message(text)
        warnings = [f"{left_out} entries of the summary did not fit"] if left_out else []
        after = {"sections": sections.to_json(), **seen(prefix, made)}
        return Compressed(made, tokens_of(prefix, counter), tokens_of(made, counter), warnings=warnings), after


def _numbered(sections: SummarySections) -> tuple[str, list[tuple[str, str]]]:
    """The sections with their entries numbered from 1, and where each of these is."""
    lines, places = list[str](), list[tuple[str, str]]()
    for name, held in sections.entries.items():
        if held:
            lines.append(f"## {SECTIONS[name]}")
        for key, text in held.items():
            places.append((name, key))
            lines.append(f"{len(places)}. {text}")
    return "\n".join(lines), places


def _merge(sections: SummarySections, said: str, places: list[tuple[str, str]]) -> None:
    """Do what the model said; `BadReply` if nothing in it can be read."""
    section, read = None, False
    for line in (each[:_LONGEST] for each in said.splitlines()):
        if struck := _STRUCK.match(line):
            read = True
            if 0 < int(struck[1]) <= len(places):
                sections.strike(*places[int(struck[1]) - 1])
        elif heading := _HEADING.match(line):
            section = _section(heading[1])
        elif entry := _ENTRY.match(line):
            nothing = entry[1].strip(" .").casefold() in ("nothing", "none")
            read = read or nothing or section is not None
            if section is not None and not nothing:
                sections.put(section, entry[1])
    if not read:
        raise BadReply(f"no entry of a summary can be read in what the model wrote: {said[:200]!r}")


def _section(heading: str) -> str | None:
    told = heading.casefold().strip("*_: ")
    if told in _BY_HEADING:
        return _BY_HEADING[told]
    return next((name for known, name in _BY_HEADING.items() if known.startswith(told) or told.startswith(known)), None)
