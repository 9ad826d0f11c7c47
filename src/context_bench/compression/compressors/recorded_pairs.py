"""Recorded results of a compressor for these very messages, from a file: nothing runs or costs, and the numbers can be
repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from context_bench.compression.compressors.texts import Messages
from context_bench.compression.probes import tokens_of
from context_bench.core.errors import BadInput
from context_bench.core.keys import stable_hash
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for
from context_bench.systems.recorded_answers import NotRecorded
from context_bench.wire.conversation import ChatMessage, message_text, tool_calls_of
from context_bench.wire.request import SYSTEM_ROLES

SCHEMES = {"pairs": "RecordedPairs"}


class RecordedPairs:
    """`pairs:FILE.jsonl`: lines of `{id, original_messages, compressed_messages}`, found by what the original says.

    System messages are left aside on both sides. A pair of a whole request (prefix and tail) fits too, if the recorded
    result ends with the tail. What is not in the file is the counted failure `NotRecorded`; two results for one
    original are `BadInput`.
    """

    deterministic = True

    def __init__(self, path: str) -> None:
        from context_bench.transcripts.session_files import read_pairs

        self.name = "pairs"
        self._path = path
        self._results: dict[str, Messages] = {}
        for pair in read_pairs(path):
            key, made = _key(pair.original), _spoken(pair.compressed)
            if self._results.setdefault(key, made) != made:
                raise BadInput(
                    f"{path}: {pair.id!r} has another result for an original that was there before; give one file per "
                    "compressor"
                )
        if not self._results:
            raise BadInput(f"{path} holds no pairs; expected lines of {{id, original_messages, compressed_messages}}")

    def fingerprint(self) -> dict[str, Any]:
        """The content of the file, not its place."""
        return {"class": "RecordedPairs", "pairs": stable_hash(self._results)}

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The recorded result; a budget changes nothing."""
        counter = counter_for()
        made = [] if not prefix else self._found(prefix, tail)
        left = tokens_of(made, counter)
        over = budget is not None and left > budget
        warnings = [f"the recorded result has {left} tokens where {budget} were allowed"] if over else []
        return Compressed(made, tokens_of(prefix, counter), left, warnings=warnings), state

    def _found(self, prefix: Messages, tail: Messages) -> Messages:
        if (made := self._results.get(_key(prefix))) is not None:
            return made
        whole = self._results.get(_key([*prefix, *tail])) if tail else None
        if whole is not None and _key(whole[len(whole) - len(tail) :]) == _key(tail):
            return whole[: len(whole) - len(tail)]
        raise NotRecorded(
            f"{self._path} has no result for these {len(prefix)} messages ({len(self._results)} originals are in it)"
        )


def _spoken(messages: Sequence[ChatMessage]) -> Messages:
    return [message for message in messages if message.get("role") not in SYSTEM_ROLES]


def _key(messages: Sequence[ChatMessage]) -> str:
    """The texts of messages, however their content is written."""
    return stable_hash(
        [[m.get("role"), message_text(m), tool_calls_of(m), m.get("tool_call_id")] for m in _spoken(messages)]
    )
