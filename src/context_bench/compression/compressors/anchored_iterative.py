"""A summary in sections that a model adds to: what stands is never written anew, only struck out where it is no longer
true.
"""

from __future__ import annotations

import re
from typing import Any

from context_bench.compression.compressors.model_summaries import (
    SECTIONS,
    SummarySections,
    WrittenByModel,
    newly,
    seen,
    summary_message,
)
from context_bench.compression.compressors.texts import Messages
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadReply
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for

ADAPTED = {"anchored_iterative": "AnchoredIterative"}

_RULES = f"""You keep the summary of a working session between a user and an assistant with tools, so that the work can go on without it.
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
    rules = _RULES

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
