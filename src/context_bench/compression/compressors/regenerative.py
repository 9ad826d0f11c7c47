"""One summary that a model writes anew each time: what it leaves out once is gone, and what it words anew may
change.
"""

from __future__ import annotations

from typing import Any

from context_bench.compression.compressors.model_summaries import TITLE, WrittenByModel, summary_message
from context_bench.compression.compressors.texts import Messages, head
from context_bench.compression.probes import tokens_of
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for

ADAPTED = {"regenerative": "Regenerative"}

_RULES = """You summarise a working session between a user and an assistant with tools, so that the work can go on without the session.
You get the summary so far, if there is one, and the next part of the session. Write the new summary of both; it takes the old one's place.
Say what the user wants, which files were created, changed or only read, what was decided and why, and against what, which errors and
results there were, and what is left to do. Copy names, paths, numbers, versions and error messages exactly. Leave out what was only
tried and everything that can be looked up again. Write nothing but the summary."""  # noqa: E501


class Regenerative(WrittenByModel):
    """The whole prefix, an earlier summary in it included, becomes one new summary. It has no state."""

    name = "regenerative"
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
