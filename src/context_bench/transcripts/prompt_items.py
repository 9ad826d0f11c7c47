"""Items of the prompts of a session: what each prompt keeps of the one before, what it drops and what it adds.

An *item* is a part of the conversation with a source (`transcripts.sources`): a tool's definition, a result, a text.
Only what changes between two prompts is looked at, so that the time grows with the log and not with its square. Tokens
are our count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.keys import canonical_json, digest_of, stable_hash
from context_bench.core.records import Usage
from context_bench.core.tokens import counter_for
from context_bench.transcripts.session import Session, SessionRequest
from context_bench.transcripts.sources import SourcedPart, SourceReader, TokenSource, tool_label
from context_bench.wire.cache import common_characters, common_prefix
from context_bench.wire.conversation import ITEMS

#: Fields of a body that are no part of what a cache holds, or are compared on their own.
_NOT_SETTINGS = frozenset(
    (
        *("model", "messages", "input", "system", "instructions", "tools", "stream", "stream_options", "metadata"),
        *("user", "max_tokens", "max_output_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "store"),
        *("service_tier", "prompt_cache_key", "previous_response_id"),
    )
)


_SYSTEM, _TALK = object(), object()  # stand between the tools, the system prompt and the conversation


@dataclass(slots=True)
class Amounts:
    """Billed tokens, and what they cost in US dollars (0 where no price is known). `new + carried` = `read + written +
    plain` = the prompt tokens; `output` are tokens of replies.
    """

    new: float = 0.0
    carried: float = 0.0
    read: float = 0.0
    written: float = 0.0
    plain: float = 0.0
    output: float = 0.0
    usd: float = 0.0

    @property
    def input(self) -> float:
        """Prompt tokens."""
        return self.read + self.written + self.plain

    def __iadd__(self, other: Amounts) -> Amounts:
        for name in Amounts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


@dataclass(slots=True)
class PromptItem:
    """One part of the conversation. `tokens` by our count; `first` and `last`: turns in which it stood, of which there
    are `turns`. `again`: the same text of the same source stood in the prompt before it, as another item; `call`: hash
    of the call that it answers; `digest`: of its text. `billed`: summed over the turns.
    """

    source: TokenSource
    tokens: int
    first: int
    digest: str
    again: bool = False
    call: str = ""
    last: int = 0
    turns: int = 0
    billed: Amounts = field(default_factory=Amounts)
    text: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class BilledTurn:
    """One request and its reply. `usage` is what was billed, `stated` by the log or predicted. `ours`: tokens of the
    items by our count; `scale`: billed tokens for one of them; `missing`: prompt tokens that the log does not hold.

    The first `kept` items are those of the prompt before; `dropped` are its others, `added` this one's, as places in
    `Itemised.items`. `by_kind`: prompt tokens, `output` the reply's, by kind of source. `predicted_read`: tokens that
    the cache rules would have served. `head`: hashes of the tools, and of the system prompt; `settings`: hash of the
    fields that belong to the cached prefix; `marks`: after how many items the client marked the prompt.
    """

    at: float | None
    model: str
    usage: Usage = field(default_factory=Usage)
    stated: bool = True
    output_stated: bool = True
    ours: int = 0
    scale: float = 1.0
    missing: float = 0.0
    kept: int = 0
    shared: int = 0
    dropped: list[int] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    by_kind: dict[str, float] = field(default_factory=dict)
    output: dict[str, float] = field(default_factory=dict)
    predicted_read: int = 0
    usd: float | None = None
    head: tuple[tuple[str, ...], str] = ((), "")
    settings: str = ""
    marks: list[int] = field(default_factory=list)
    replied: list[tuple[TokenSource, int]] = field(default_factory=list)


class PromptItems:
    """The prompts of a session, each as what it keeps of the one before and what it adds."""

    def __init__(self, session: Session, texts: bool) -> None:
        self.reader = SourceReader(session.wire)
        self.count = counter_for(
            next((str(m) for request in session.requests if (m := request.body.get("model"))), "") or None
        ).count
        self.turns: list[BilledTurn] = []
        self.items: list[PromptItem] = []
        self.stack: list[int] = []  # places in `items` of the latest prompt
        self._ends: list[int] = []  # items after each unit of it
        self._marks: list[list[int]] = []  # of each unit, after how many items it marks the prompt
        self._texts, self._kept_texts = texts, dict[int, str]()
        self._made_up_tools = "tools" in (session.meta.get("assumed") or ())  # definitions that no log held
        self._units: list[Any] = []
        self._read: dict[int, tuple[Any, list[SourcedPart]]] = {}
        self._hashes: dict[int, str] = {}
        self._ours = 0
        self._tokens: dict[tuple[TokenSource, bytes], int] = {}
        self._places: dict[tuple[TokenSource, bytes, int], int] = {}
        self._standing: Counter[tuple[TokenSource, bytes]] = Counter()
        self._keys: list[tuple[TokenSource, bytes]] = []  # of the items

    def add(self, request: SessionRequest) -> None:
        """Take the next request in."""
        body = request.body
        turn = BilledTurn(request.at, str(body.get("model") or ""))
        tools = None if self._made_up_tools else body.get("tools")
        given = body.get("instructions" if request.wire == "openai-responses" else "system")
        messages = body.get(ITEMS.get(request.wire, "")) or []
        units: list[Any] = [*(tools if isinstance(tools, list) else ()), _SYSTEM]
        units += given if isinstance(given, list) else [given] if given else []
        units += [_TALK, *(messages if isinstance(messages, list) else [{"role": "user", "content": messages}])]
        turn.settings = stable_hash({key: value for key, value in body.items() if key not in _NOT_SETTINGS}, 16)
        self._take(turn, units)
        turn.head = self._head(tools, given)
        reply = request.recorded_reply
        if reply is not None:
            told = [(TokenSource("assistant"), self.count(reply.text))] if reply.text else []
            for call in reply.tool_calls:
                label = tool_label(str(call.get("name") or "")[:80], call.get("arguments"))
                told.append((TokenSource("calls", label), self.count(canonical_json(call))))
            turn.replied = told
        self.turns.append(turn)

    def close(self) -> None:
        """Let go of what only the reading needed."""
        self._read.clear()
        for at, text in self._kept_texts.items():
            self.items[at].text = text

    def _take(self, turn: BilledTurn, units: list[Any]) -> None:
        system, talk = units.index(_SYSTEM), units.index(_TALK)
        same = common_prefix(self._units, units)
        del self._ends[same:], self._marks[same:]
        end = self._ends[-1] if same else 0
        coming: list[SourcedPart] = []
        for place in range(same, len(units)):
            parts = self._parts(units[place], place, system, talk)
            coming += parts
            self._ends.append(end + len(coming))
            self._marks.append([self._ends[-1] - len(parts) + n + 1 for n, part in enumerate(parts) if part.marked])
        kept, at = end, 0
        while at < len(coming) and kept < len(self.stack) and self._key(coming[at]) == self._keys[self.stack[kept]]:
            kept, at = kept + 1, at + 1
        turn.kept, turn.dropped = kept, self.stack[kept:]
        turn.shared = self._partly(turn.dropped, coming[at:])
        for item in turn.dropped:
            self._standing[self._keys[item]] -= 1
        del self.stack[kept:]
        turn.added = [self._push(part) for part in coming[at:]]
        self._units = units
        turn.marks = [mark for marks in self._marks if marks for mark in marks]
        self._ours += sum(self.items[n].tokens for n in turn.added) - sum(self.items[n].tokens for n in turn.dropped)
        turn.ours = self._ours

    def _parts(self, raw: Any, place: int, system: int, talk: int) -> list[SourcedPart]:
        """The parts of a tool, a block of the system prompt or a message; of each object once."""
        if place in (system, talk):
            return []
        known = self._read.get(id(raw))
        if known is None or known[0] is not raw:
            if place < system:
                found = [self.reader.tool(raw)]
            elif place < talk:
                found = self.reader.system(raw if isinstance(raw, str) else [raw])
            else:
                found = self.reader.message(raw)
            known = self._read[id(raw)] = (raw, found)
        return known[1]

    def _key(self, piece: SourcedPart) -> tuple[TokenSource, bytes]:
        return piece.source, digest_of(piece.source.kind, piece.text if piece.text is not None else piece.digest)

    def _push(self, piece: SourcedPart) -> int:
        key = self._key(piece)
        self._standing[key] += 1
        place = self._places.setdefault((*key, self._standing[key]), len(self.items))
        if place == len(self.items):
            if key not in self._tokens:
                self._tokens[key] = piece.tokens if piece.text is None else self.count(piece.text)
            made = PromptItem(piece.source, self._tokens[key], len(self.turns), key[1].hex(), call=piece.call)
            made.again = self._standing[key] > 1
            self.items.append(made)
            self._keys.append(key)
            if (self._texts and piece.text is not None) or (
                piece.source.kind in ("system", "tools") and piece.text is not None
            ):
                self._kept_texts[place] = piece.text
        self.stack.append(place)
        return place

    def _partly(self, dropped: list[int], coming: list[SourcedPart]) -> int:
        """Tokens of the beginning that the first item that differs shares with the one that stood there."""
        if not dropped or not coming or coming[0].text is None:
            return 0
        old = self._kept_texts.get(dropped[0])
        if old is None or self.items[dropped[0]].source.kind != coming[0].source.kind:
            return 0
        text = str(coming[0].text)
        return self.count(text[:same]) if (same := common_characters(old, text)) else 0

    def _head(self, tools: Any, given: Any) -> tuple[tuple[str, ...], str]:
        defined = tools if isinstance(tools, list) else []
        return tuple(self._hash(tool) for tool in defined), self._hash(given) if isinstance(given, str) else (
            stable_hash([self._hash(block) for block in given], 16) if isinstance(given, list) else ""
        )

    def _hash(self, raw: Any) -> str:
        if (found := self._hashes.get(id(raw))) is None:
            found = self._hashes[id(raw)] = stable_hash(_unmarked(raw), 12)
        return found


def _unmarked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _unmarked(each) for key, each in value.items() if key != "cache_control"}
    return [_unmarked(each) for each in value] if isinstance(value, list) else value
