"""Prompt-cache money when history is rewritten: prefix metrics, two cache models, the bill, and the break-even point.

Definitions: P_t is the token sequence of request t, n_t its length, LCP the longest common prefix. Two cache models
cover the documented rules of providers: *block* (automatic, prefixes in steps of `b` tokens, at least `m`) and *unit*
(a whole stored prefix or nothing: explicit breakpoints). A prompt is read as providers hash it: tools, then messages in
order. Tokenizers that only count cannot compare token ids, so a common prefix is the longest common text in this order,
counted in tokens. Nothing here does I/O; prices are numbers given by the caller, in US dollars per million tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Literal

from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json, digest_of, packed, stable_hash, unpacked
from context_bench.wire.request import WireRequest


@dataclass(frozen=True, slots=True)
class CacheProfile:
    """A provider's rules for caching and billing prompts.

    `mode` "block" or "unit"; `m` fewest tokens that are cached at all; `b` step of the block model; `p_in`, `p_out` USD
    per million tokens; `r` price of a cache read and `w` of a cache write as multiples of `p_in` (`w = None`: writes
    are free); `ttl` seconds an entry lives after its last use (`None`: for ever).
    """

    mode: Literal["block", "unit"] = "block"
    m: int = 1024
    b: int = 128
    p_in: float = 1.0
    p_out: float = 0.0
    r: float = 0.1
    w: float | None = None
    ttl: float | None = None


@dataclass(slots=True)
class PrefixCache:
    """Use of a prompt cache by a session of prompts. Undefined numbers (a single request) are `None`.

    `cacheable_prefix_share`: cached tokens over all tokens, from the second request on. `prefix_stability`: mean share
    of the previous prompt that the next one repeats at its start (1 = only ever appended to). `rewritten_tokens`:
    tokens of earlier prompts that were changed or dropped. `read + write + uncached` = all prompt tokens.
    """

    cached_per_request: list[int] = field(default_factory=list)
    cacheable_prefix_share: float | None = None
    prefix_stability: float | None = None
    prefix_breaks: int = 0
    rewritten_tokens: int = 0
    read: int = 0
    write: int = 0
    uncached: int = 0
    cost_usd: float = 0.0
    written_per_request: list[int] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All figures by name."""
        return asdict(self)


def common_prefix(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Length of the longest common prefix of two sequences; O(log n) slice comparisons."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def prefix_cache(
    prompts: Sequence[Sequence[int]],
    output_tokens: Sequence[int],
    profile: CacheProfile | Mapping[str, Any],
    *,
    times: Sequence[float] | None = None,
) -> PrefixCache:
    """Run a session of prompts (token id lists) through a cache model.

    `times`: seconds at which the requests were made; without them every entry is taken to be alive.
    """
    return session_cache(
        [len(prompt) for prompt in prompts],
        lambda a, b: common_prefix(prompts[a], prompts[b]),
        output_tokens,
        profile,
        times=times,
    )


def session_cache(
    lengths: Sequence[int],
    shared: Callable[[int, int], int],
    output_tokens: Sequence[int],
    profile: CacheProfile | Mapping[str, Any],
    *,
    times: Sequence[float] | None = None,
    head: int = 0,
) -> PrefixCache:
    """The same for prompts known only by their lengths and by `shared(s, t)`, the tokens that prompts s and t share at
    their start. `head`: in the unit model the first so many tokens of each prompt are stored too, as clients mark the
    end of their instructions.
    """
    rules = profile if isinstance(profile, CacheProfile) else _profile(profile)
    if len(output_tokens) != len(lengths):
        raise BadInput(f"{len(lengths)} prompts but {len(output_tokens)} output token counts; give one per prompt")
    found, live = PrefixCache(), LiveCache(rules)

    def served(t: int, n: int) -> tuple[int, int]:
        at, stops = times[t] if times is not None else 0.0, (head, n) if 0 < head < n else (n,)
        return live.add(n, lambda s: shared(s, t), at=at, stops=stops)

    requests = [served(t, n) for t, n in enumerate(lengths)]
    found.cached_per_request = [read for read, _ in requests]
    found.written_per_request = [written for _, written in requests]
    _bill(found, lengths, output_tokens, rules)
    _stability(found, lengths, shared)
    return found


class LiveCache:
    """The same, request by request, for traffic that is still going on: what a cache would serve of each, given what
    came before.
    """

    def __init__(self, profile: CacheProfile) -> None:
        self.profile = profile
        self._lengths: list[int] = []
        self._stops: list[tuple[int, ...]] = []
        self._last_use: list[float] = []

    def add(
        self,
        length: int,
        shared: Callable[[int], int],
        *,
        at: float = 0.0,
        stops: Sequence[int] | None = None,
        warm: int = 0,
        falling: bool = False,
    ) -> tuple[int, int]:
        """Tokens read from and written to the cache by the next request of `length` tokens, which came `at` seconds.

        `shared(s)`: tokens that it shares at its start with request s of those added before (from 0). `stops`: the ends
        of its marked prefixes, in tokens, for caches that store only those; default: its whole length. `warm`: tokens
        at its start that the cache held already, from an earlier session. `falling`: `shared` never grows towards
        earlier requests, so that the search ends where it is no more than what was found.
        """
        rules, ends = self.profile, tuple(sorted(stops)) if stops is not None else (length,)
        read, source = self._served(shared, ends, at, falling)
        if warm and (kept := self._warm(min(warm, length), stops)) > read:
            read, source = kept, None
        written = _written(ends[-1], read, rules) if ends else 0
        if source is not None:
            self._last_use[source] = at
        self._lengths.append(length)
        self._stops.append(ends)
        self._last_use.append(at)
        return read, written

    def _warm(self, warm: int, stops: Sequence[int] | None) -> int:
        """Part of a warm start that the rules can serve: where prefixes are marked, up to the last mark that is not (5
        %) beyond it.
        """
        rules = self.profile
        if stops is not None:
            warm = max((end for end in stops if end <= 1.05 * warm), default=0)
        kept = rules.b * (warm // rules.b) if rules.mode == "block" else warm
        return kept if kept >= rules.m else 0

    def _served(
        self, shared: Callable[[int], int], ends: tuple[int, ...], at: float, falling: bool
    ) -> tuple[int, int | None]:
        rules, best, source = self.profile, 0, None
        most = ends[-1] if ends else 0
        for s in range(len(self._lengths) - 1, -1, -1):
            if best >= most:
                break
            if rules.ttl is not None and at - self._last_use[s] > rules.ttl:
                continue
            if (length := min(shared(s), most)) <= best and falling:
                break
            if rules.mode == "unit":  # a stored prefix counts whole or not at all
                length = max((end for end in self._stops[s] if end <= length), default=0)
            if length > best:
                best, source = length, s
        cached = rules.b * (best // rules.b) if rules.mode == "block" else best
        return (cached, source) if cached >= rules.m else (0, None)


def _profile(values: Mapping[str, Any]) -> CacheProfile:
    unknown = values.keys() - CacheProfile.__dataclass_fields__.keys()
    if unknown:
        raise BadInput(
            f"cache profile: no field {sorted(unknown)[0]!r}; known: {', '.join(CacheProfile.__dataclass_fields__)}"
        )
    return CacheProfile(**values)


def _written(n: int, cached: int, rules: CacheProfile) -> int:
    if rules.w is None or n < rules.m:
        return 0
    return max(0, (rules.b * (n // rules.b) if rules.mode == "block" else n) - cached)


def _bill(found: PrefixCache, lengths: Sequence[int], output_tokens: Sequence[int], rules: CacheProfile) -> None:
    found.read, found.write = sum(found.cached_per_request), sum(found.written_per_request)
    found.uncached = sum(lengths) - found.read - found.write
    prompt = found.uncached + rules.r * found.read + (rules.w or 0.0) * found.write
    found.cost_usd = (rules.p_in * prompt + rules.p_out * sum(output_tokens)) / 1e6


def _stability(found: PrefixCache, lengths: Sequence[int], shared: Callable[[int, int], int]) -> None:
    pairs = [(shared(t - 1, t), lengths[t - 1]) for t in range(1, len(lengths))]
    if not pairs:
        return
    later = sum(lengths[1:])
    found.cacheable_prefix_share = sum(found.cached_per_request[1:]) / later if later else None
    shares = [length / before for length, before in pairs if before]
    found.prefix_stability = sum(shares) / len(shares) if shares else None
    found.prefix_breaks = sum(length < before for length, before in pairs)
    found.rewritten_tokens = sum(before - length for length, before in pairs)


def break_even_turns(
    history_tokens: float,
    unchanged_prefix_tokens: float,
    removed_tokens: float,
    read_mult: float,
    write_mult: float | None,
    *,
    compressor_cost: float = 0.0,
    p_in: float = 1.0,
) -> float:
    """Number of further turns after which one rewrite of a session's history has paid for itself.

    R* = ((w - r) / r) · (H - K - D) / D - 1, plus `compressor_cost` / (p_in · r · D), where H = history, K = unchanged
    head, D = removed, all in tokens. `write_mult=None` (writes are free) bills the new tokens at the input price, w =
    1. A negative value means: at once.
    """
    if removed_tokens <= 0:
        raise BadInput(f"removed_tokens = {removed_tokens}: a rewrite that removes nothing never pays for itself")
    if read_mult <= 0:
        raise BadInput(f"read_mult = {read_mult}: with free cache reads, removing tokens never saves anything")
    w = 1.0 if write_mult is None else write_mult
    again = (w - read_mult) / read_mult * (history_tokens - unchanged_prefix_tokens - removed_tokens) / removed_tokens
    return again - 1.0 + compressor_cost * 1e6 / (p_in * read_mult * removed_tokens)


Segment = tuple[str, str]  # (what it is, its text)
Segments = list[Segment]
_SEGMENT, _PROMPT = 300, 200  # bytes of Python's own for each, roughly


def segments(request: WireRequest) -> Segments:
    """The request as a provider's cache reads it: tools, then messages in order. Parts that are no text stand as
    hashes.
    """
    found: Segments = [("tools", canonical_json(request.tools))] if request.tools else []
    for message in request.messages:
        for part in message.parts:
            text = part.text
            found.append(
                (message.role, text)
                if text is not None
                else (f"{message.role} {part.kind} {stable_hash(part.raw)}", "")
            )
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
    """Length of the longest common prefix of two texts, by doubling, then halving, so that each step is one fast
    comparison.
    """
    low, step = 0, 64
    while low + step < min(len(a), len(b)) and a[low : low + step] == b[low : low + step]:
        low, step = low + step, step * 2
    return low + common_prefix(a[low : low + step], b[low : low + step])


class Prompts:
    """The prompts of one session in order. Each different segment is held, packed, and counted once, however many
    prompts repeat it.

    `lengths`: tokens of each prompt, by the rule of `wire.request.count_request`. `held`: bytes that all of it takes,
    roughly. `again`: keep the texts of the last prompt too, beside what `held` says, and look for none of them that
    stands at the start of the next one.
    """

    def __init__(self, count: Callable[[str], int], *, again: bool = False) -> None:
        self.lengths: list[int] = []
        self.held = 0
        self._count = count
        self._again, self._last = again, Segments()
        self._numbers: dict[bytes, int] = {}
        self._segments: list[tuple[str, bytes]] = []
        self._tokens: list[int] = []
        self._prompts: list[array[int]] = []
        self._sums: list[array[int]] = []  # of each prompt: tokens before each segment, and in all

    def add(self, prompt: Segments) -> int:
        """Take the next prompt in; returns its tokens."""
        same = next((i for i, (a, b) in enumerate(zip(prompt, self._last, strict=False)) if a != b), None)
        if same is None:
            same = min(len(prompt), len(self._last))
        numbers = self._prompts[-1][:same] if same else array("l")
        numbers.extend(self._number(*segment) for segment in prompt[same:])
        self._last = prompt if self._again else self._last
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
        (kind, data), (other_kind, other_data) = self._segments[one[whole]], self._segments[other[whole]]
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
        number = self._numbers.setdefault(digest, len(self._segments))
        if number == len(self._segments):
            self._segments.append((kind, packed(text)))
            self._tokens.append(self._count(text))
            self.held += _SEGMENT + len(self._segments[-1][1])
        return number
