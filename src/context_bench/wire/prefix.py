"""How much of one prompt another one repeats at its start: what a provider's prompt cache could use again.

A prompt is read as providers hash it: tools, then messages in order. Tokenizers that only count cannot compare token ids, so a common
prefix is the longest common text in this order, counted in tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from itertools import accumulate

from context_bench.core.keys import canonical_json, stable_hash
from context_bench.core.packed import digest_of, packed, unpacked
from context_bench.wire.cache import common_prefix
from context_bench.wire.request import WireRequest

Segment = tuple[str, str]  # (what it is, its text)
Segments = list[Segment]

_SEGMENT, _PROMPT = 300, 200  # bytes of Python's own for each, roughly


def segments(request: WireRequest) -> Segments:
    """The request as a provider's cache reads it: tools, then messages in order. Parts that are no text stand as hashes."""
    found: Segments = [("tools", canonical_json(request.tools))] if request.tools else []
    for message in request.messages:
        for part in message.parts:
            text = part.text
            found.append((message.role, text) if text is not None else (f"{message.role} {part.kind} {stable_hash(part.raw)}", ""))
        if message.tool_calls:
            found.append((f"{message.role} calls", canonical_json(message.tool_calls)))
    return found


def marks(request: WireRequest) -> list[int]:
    """After how many of its `segments` each prefix ends that the request marks for caching with `cache_control`."""
    found: list[int] = []
    at = 0
    if request.tools:
        at += 1
        if any(isinstance(tool, Mapping) and tool.get("cache_control") for tool in request.tools):
            found.append(at)
    for message in request.messages:
        for part in message.parts:
            at += 1
            if part.cache_control:
                found.append(at)
        at += bool(message.tool_calls)
    if request.params.get("cache_control") and at not in found:  # the one automatic mark: at the end
        found.append(at)
    return found


def common(a: Segments, b: Segments) -> tuple[int, int]:
    """The longest common prefix: how many whole segments, then how many characters of the next one."""
    whole = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            return whole, common_characters(one[1], other[1]) if one[0] == other[0] else 0
        whole += 1
    return whole, 0


def common_characters(a: str, b: str) -> int:
    """Length of the longest common prefix of two texts, by doubling, then halving, so that each step is one fast comparison."""
    low, high = 0, min(len(a), len(b))
    step = 64
    while low + step < high and a[low : low + step] == b[low : low + step]:
        low, step = low + step, step * 2
    high = min(high, low + step)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Prompts:
    """The prompts of one session in order. Each different segment is held, packed, and counted once, however many prompts repeat it.

    `lengths`: tokens of each prompt, by the rule of `core.wire.count_request`. `held`: bytes that all of it takes, roughly.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self.lengths: list[int] = []
        self.held = 0
        self._count = count
        self._numbers: dict[bytes, int] = {}
        self._known: list[tuple[str, bytes]] = []
        self._tokens: list[int] = []
        self._prompts: list[array[int]] = []
        self._sums: list[array[int]] = []  # of each prompt: tokens before each segment, and in all

    def add(self, prompt: Segments) -> int:
        """Take the next prompt in; returns its tokens."""
        numbers = array("l", (self._number(*segment) for segment in prompt))
        sums = array("q", [0, *accumulate(self._tokens[number] for number in numbers)])
        self._prompts.append(numbers)
        self._sums.append(sums)
        self.held += _PROMPT + 16 * len(sums)
        self.lengths.append(sums[-1])
        return sums[-1]

    def shared(self, s: int, t: int) -> int:
        """Tokens of the longest common prefix of prompts s and t."""
        one, other = self._prompts[s], self._prompts[t]
        whole = common_prefix(one, other)
        tokens = self._sums[s][whole]
        if whole == min(len(one), len(other)):
            return tokens
        (kind, data), (other_kind, other_data) = self._known[one[whole]], self._known[other[whole]]
        if kind != other_kind:
            return tokens
        text = unpacked(data)
        partial = common_characters(text, unpacked(other_data))
        return tokens + (self._count(text[:partial]) if partial else 0)

    def before(self, t: int, whole: int) -> int:
        """Tokens of the first `whole` segments of prompt t."""
        return self._sums[t][whole]

    def _number(self, kind: str, text: str) -> int:
        digest = digest_of(kind, text)
        number = self._numbers.setdefault(digest, len(self._known))
        if number == len(self._known):
            self._known.append((kind, packed(text)))
            self._tokens.append(self._count(text))
            self.held += _SEGMENT + len(self._known[-1][1])
        return number
