"""Six ways to keep a long session short, and what each of them costs at a provider that caches prompts.

`simulate_strategies()` runs them over a session made up of round numbers (40 turns; a head of 2,000 tokens; 900 tokens
in and 100 out per turn), or over a recorded one. Nothing is sent anywhere: a strategy is a rule for which chunks of the
session stand in which request. The compressor's own calls are not in the bill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.transcripts.session import Session
from context_bench.wire.cache import CacheProfile, PrefixCache, break_even_turns, common_prefix, session_cache
from context_bench.wire.conversation import ChatMessage, message_text
from context_bench.wire.request import SYSTEM_ROLES

#: Three ways of billing: any prefix, reads at a tenth; the same with writes at 1.25; only whole earlier prompts. Output
#: at 8, 5 and 5 times the input price.
PROFILES: dict[str, CacheProfile] = {
    "automatic": CacheProfile("block", 1024, 128, p_in=1.25, p_out=10.0, r=0.1, w=None),
    "+ write 1.25": CacheProfile("block", 1024, 128, p_in=5.0, p_out=25.0, r=0.1, w=1.25),
    "unit, write 1.25": CacheProfile("unit", 1024, 1, p_in=3.0, p_out=15.0, r=0.1, w=1.25),
}
_CHUNK = 50  # tokens of a chunk in the made-up session


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """The effect of a strategy on a session under one cache model. Ratios are against leaving the session alone;
    `None`: undefined.

    `break_even`: how many more turns its first rewrite of history needs to pay for itself. `cache_penalty`: cost ratio
    less the share of tokens left, so what rewriting gave back of the saving. See `wire.cache.PrefixCache` for the rest.
    """

    strategy: str
    tokens: int
    token_saving: float
    cacheable_prefix_share: float | None
    prefix_stability: float | None
    prefix_breaks: int
    rewritten_tokens: int
    cost_usd: float
    cost_ratio: float | None
    cache_penalty: float | None
    break_even: float | None


@dataclass(slots=True)
class Turns:
    """A session in chunks: `weights[i]` tokens of chunk i; what stands before all turns; per turn what goes in and what
    comes out.

    `results`: chunks that a tool gave back, the only ones that are clipped.
    """

    weights: list[int] = field(default_factory=list)
    head: list[int] = field(default_factory=list)
    turns: list[tuple[list[int], list[int]]] = field(default_factory=list)
    results: set[int] = field(default_factory=set)
    marked: bool = False  # the end of the head is marked for caching, as clients do

    def chunk(self, tokens: int) -> int:
        """A new chunk."""
        self.weights.append(tokens)
        return len(self.weights) - 1

    def tokens(self, chunks: Sequence[int]) -> int:
        """Tokens of some chunks."""
        return sum(self.weights[chunk] for chunk in chunks)

    def prompt(self, t: int) -> list[int]:
        """Request t with nothing left out."""
        return [*self.head, *self.history(t), *self.turns[t][0]]

    def history(self, t: int, first: int = 0) -> list[int]:
        """Everything between the head and the newest turn."""
        return [chunk for said, answer in self.turns[first:t] for chunk in (*said, *answer)]


def made_up(turns: int = 40, head: int = 2000, given: int = 900, answered: int = 100) -> Turns:
    """The session of round numbers, in chunks of 50 tokens; all that goes in counts as a tool's result."""
    made = Turns()

    def chunks(tokens: int) -> list[int]:
        return [made.chunk(_CHUNK) for _ in range(tokens // _CHUNK)]

    made.head = chunks(head)
    for _ in range(turns):
        made.turns.append((chunks(given), chunks(answered)))
        made.results.update(made.turns[-1][0])
    return made


def turns_of(session: Session, counter: TokenCounter | None = None) -> Turns:
    """A recorded session in chunks of one line each. A turn is what was said since the assistant's last words, and its
    next words.
    """
    counter = counter or counter_for(next((str(r.body.get("model")) for r in session.requests[:1]), None))
    recorded = Turns()
    given: list[int] = []
    for message in session.messages:
        chunks = [recorded.chunk(counter.count(line)) for line in _lines(message)]
        if message.get("role") == "assistant":
            recorded.turns.append((given, chunks))
            given = []
        elif not recorded.turns and message.get("role") in SYSTEM_ROLES:
            recorded.head += chunks
        else:
            given += chunks
            if message.get("role") == "tool":
                recorded.results.update(chunks)
    if given:
        recorded.turns.append((given, []))
    if session.requests and (tools := session.requests[0].chat.tools):
        recorded.head.insert(0, recorded.chunk(counter.count(canonical_json(tools))))
    recorded.marked = "account" in session.meta and bool(recorded.head)
    if not recorded.turns:
        raise BadInput(f"session {session.id}: it has no turn, so there is nothing to simulate")
    return recorded


def _lines(message: ChatMessage) -> Iterator[str]:
    yield from message_text(message).splitlines(keepends=True)
    if message.get("tool_calls"):
        yield canonical_json(message["tool_calls"])


# The strategies: each gives the prompts it would send
Prompts = list[list[int]]


def passthrough(session: Turns) -> Prompts:
    """Everything, every time."""
    return [session.prompt(t) for t in range(len(session.turns))]


def window(session: Turns, last: int = 10) -> Prompts:
    """The head and the last turns, the newest among them."""
    return [
        [*session.head, *session.history(t, max(0, t + 1 - last)), *session.turns[t][0]]
        for t in range(len(session.turns))
    ]


def summary(session: Turns, limit: int = 16_000, keep: int = 3, size: int = 1000) -> Prompts:
    """Once a prompt would be longer than `limit` tokens: all but the last `keep` turns becomes a summary of `size`
    tokens.
    """
    prompts: Prompts = []
    replaced: list[int] = []
    first = 0
    for t in range(len(session.turns)):
        prompt = [*session.head, *replaced, *session.history(t, first), *session.turns[t][0]]
        if session.tokens(prompt) > limit and t - keep > first:
            first, replaced = t - keep, [session.chunk(size)]
            prompt = [*session.head, *replaced, *session.history(t, first), *session.turns[t][0]]
        prompts.append(prompt)
    return prompts


def clip_later(session: Turns, keep: float = 1 / 3) -> Prompts:
    """Each tool result whole when it is new, cut to its beginning one turn later."""
    clipped = [(_clip(session, said, keep), answer) for said, answer in session.turns]
    return [
        [*session.head, *(chunk for said, answer in clipped[:t] for chunk in (*said, *answer)), *session.turns[t][0]]
        for t in range(len(session.turns))
    ]


def clip_first(session: Turns, keep: float = 1 / 2) -> Prompts:
    """Each tool result cut to its beginning before it is sent for the first time, and never touched again."""
    clipped = [(_clip(session, said, keep), answer) for said, answer in session.turns]
    return [
        [*session.head, *(chunk for said, answer in clipped[:t] for chunk in (*said, *answer)), *clipped[t][0]]
        for t in range(len(session.turns))
    ]


def half_by_query(session: Turns) -> Prompts:
    """Another half of the history each turn, as a compressor chooses that looks at the newest question."""
    prompts = []
    for t in range(len(session.turns)):
        history = session.history(t)
        prompts.append([*session.head, *history[(t + 1) % 2 :: 2], *session.turns[t][0]])
    return prompts


def _clip(session: Turns, chunks: Sequence[int], keep: float) -> list[int]:
    """The chunks with the tool results among them cut to the share `keep` of their tokens."""
    room = session.tokens([chunk for chunk in chunks if chunk in session.results]) * keep
    kept: list[int] = []
    for chunk in chunks:
        if chunk in session.results:
            room -= session.weights[chunk]
            if room < -1e-6:
                continue
        kept.append(chunk)
    return kept


def strategies_for(session: Turns) -> dict[str, Callable[[Turns], Prompts]]:
    """The six strategies by name, their thresholds fitted to the session's length (a quarter of its turns; two fifths
    of its prompt).
    """
    last = max(2, round(len(session.turns) / 4))
    longest = session.tokens(session.prompt(len(session.turns) - 1))
    limit = max(1, round(longest * 16 / 41.9 / 1000)) * 1000 if longest >= 2500 else max(100, longest // 2)
    size = min(1000, limit // 16)
    return {
        "passthrough": passthrough,
        f"window of last {last} turns": lambda turns: window(turns, last),
        f"summary at {limit / 1000:g}k, keep 3 turns": lambda turns: summary(turns, limit, 3, size),
        "clip each tool result one turn later": clip_later,
        "clip tool result before first send": clip_first,
        "query-aware half of history each turn": half_by_query,
    }


# What they cost
def simulate_strategies(
    session: Session | Turns | None = None,
    profile: CacheProfile | Mapping[str, Any] | None = None,
    *,
    counter: TokenCounter | None = None,
) -> list[StrategyRow]:
    """Every strategy on a session (default: the made-up one), passthrough first, under one cache model (default:
    `automatic`). `counter` counts a recorded session (default: as its model does).
    """
    turns = made_up() if session is None else session if isinstance(session, Turns) else turns_of(session, counter)
    rules = (
        profile
        if isinstance(profile, CacheProfile)
        else CacheProfile(**profile)
        if profile
        else next(iter(PROFILES.values()))
    )
    output = [turns.tokens(answer) for _, answer in turns.turns]
    base: tuple[PrefixCache, list[int]] | None = None
    rows = []
    for name, strategy in strategies_for(turns).items():
        prompts = strategy(turns)
        sums = [[0, *accumulate(turns.weights[chunk] for chunk in prompt)] for prompt in prompts]
        lengths = [found[-1] for found in sums]
        shared = _Shared(prompts, sums)
        found = session_cache(lengths, shared, output, rules, head=turns.tokens(turns.head) if turns.marked else 0)
        base = base or (found, lengths)
        rows.append(_row(name, found, lengths, shared, base, rules))
    return rows


@dataclass(frozen=True, slots=True)
class _Shared:
    prompts: Prompts
    sums: list[list[int]]

    def __call__(self, s: int, t: int) -> int:
        return self.sums[s][common_prefix(self.prompts[s], self.prompts[t])]


def _row(
    name: str,
    found: PrefixCache,
    lengths: list[int],
    shared: _Shared,
    base: tuple[PrefixCache, list[int]],
    rules: CacheProfile,
) -> StrategyRow:
    plain, whole = base
    saving = 1 - sum(lengths) / sum(whole) if sum(whole) else 0.0
    ratio = found.cost_usd / plain.cost_usd if plain.cost_usd else None
    return StrategyRow(
        strategy=name,
        tokens=sum(lengths),
        token_saving=saving,
        cacheable_prefix_share=found.cacheable_prefix_share,
        prefix_stability=found.prefix_stability,
        prefix_breaks=found.prefix_breaks,
        rewritten_tokens=found.rewritten_tokens,
        cost_usd=found.cost_usd,
        cost_ratio=ratio,
        cache_penalty=None if ratio is None else ratio - (1 - saving),
        break_even=_first_rewrite(lengths, whole, shared, rules),
    )


def _first_rewrite(lengths: list[int], whole: list[int], shared: _Shared, rules: CacheProfile) -> float | None:
    for t in range(1, len(lengths)):
        unchanged = shared(t - 1, t)
        if unchanged < lengths[t - 1] and whole[t] > lengths[t]:
            return break_even_turns(whole[t], unchanged, whole[t] - lengths[t], rules.r, rules.w)
    return None
