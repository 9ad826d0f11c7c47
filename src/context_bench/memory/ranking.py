"""Measures of a ranking, given the items that hold the answer.

`gold` are the ids of the evidence, `hits` the ranked hits, best first, each as the set of ids it stands for (a summary
or a pair of turns stands for several, an invention for none). Every measure is in [0, 1]. Without gold nothing can be
said: `BadInput`, never 1.0. An id counts once, the first time it is covered. Where every hit stands for one id and none
comes twice, precision, recall, MRR, MAP and nDCG are those of trec_eval.

The `official_…` functions repeat the scorers of LoCoMo and LongMemEval, whose rules differ from these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import NamedTuple

from context_bench.core.errors import BadInput
from context_bench.core.text import normalise, tokens

Ids = set[str] | frozenset[str]


def hit_at(gold: Ids, hits: Sequence[Ids], k: int) -> float:
    """1 if the first `k` hits cover any evidence."""
    return float(_left(gold, hits, k) < len(gold))


def recall_at(gold: Ids, hits: Sequence[Ids], k: int) -> float:
    """The share of the evidence that the first `k` hits cover."""
    return (len(gold) - _left(gold, hits, k)) / len(gold)


def all_at(gold: Ids, hits: Sequence[Ids], k: int) -> float:
    """1 if the first `k` hits cover all evidence."""
    return float(not _left(gold, hits, k))


def precision_at(gold: Ids, hits: Sequence[Ids], k: int, *, of_returned: bool = False) -> float:
    """The share of the first `k` places that touch evidence. Fewer hits than `k` count as misses; with `of_returned`
    only the hits that there are count (no hits: 0).
    """
    _check(gold, k)
    first = hits[:k]
    places = len(first) if of_returned else k
    return sum(not gold.isdisjoint(ids) for ids in first) / places if places else 0.0


def reciprocal_rank(gold: Ids, hits: Sequence[Ids]) -> float:
    """1 / rank of the first hit that touches evidence; 0 if none does. Its mean over questions is MRR."""
    _check(gold, 1)
    return next((1 / rank for rank, ids in enumerate(hits, 1) if not gold.isdisjoint(ids)), 0.0)


def average_precision(gold: Ids, hits: Sequence[Ids]) -> float:
    """For every id of the evidence the share of hits that brought new evidence, down to the hit that covers it (0 if
    none does), averaged over the ids. Its mean over questions is MAP.
    """
    _check(gold, 1)
    return math.fsum(new * useful / rank for useful, (rank, new) in enumerate(_new(gold, hits), 1)) / len(gold)


def ndcg_at(gold: Ids, hits: Sequence[Ids], k: int) -> float:
    """Every id of the evidence gains 1 / log2(rank + 1) at the first of `k` hits that covers it; relative to
    min(|gold|, `k`) hits with one id each at the top. Hits with several ids could pass that, which counts as 1.
    """
    if not gold or k < 1:
        _check(gold, k)
    left, gains = set(gold), []
    for place, ids in enumerate(hits[:k], 2):  # a loop of its own: every hit of every question passes here
        if left.isdisjoint(ids):
            continue
        before = len(left)
        left -= ids
        gains.append((before - len(left)) / math.log2(place))
        if not left:
            break
    gained = math.fsum(gains) / _ideal(min(len(gold), k))
    return gained if gained < 1.0 else 1.0


def duplicate_share(hits: Sequence[Ids]) -> float:
    """The share of hits that stand for known items, all of which earlier hits already stood for; 0 without hits."""
    seen: set[str] = set()
    again = 0
    for ids in hits:
        again += bool(ids) and seen.issuperset(ids)
        seen |= ids
    return again / len(hits) if hits else 0.0


def within(tokens: Iterable[int], budget: int) -> int:
    """Count the first hits that fit into `budget` tokens together.

    The first that does not fit ends the prefix; nothing behind it is moved up.
    """
    return sum(1 for _ in takewhile(lambda spent: spent <= budget, accumulate(tokens)))


@lru_cache(maxsize=1024)
def _ideal(hits: int) -> float:
    """The gain of so many hits at the top, with one id of the evidence each."""
    return math.fsum(1 / math.log2(rank + 1) for rank in range(1, hits + 1))


def _left(gold: Ids, hits: Sequence[Ids], k: int) -> int:
    """Count the ids of the evidence that the first `k` hits do not cover."""
    if not gold or k < 1:
        _check(gold, k)
    return len(gold.difference(*hits[:k]))


def _new(gold: Ids, hits: Sequence[Ids]) -> list[tuple[int, int]]:
    """(rank, evidence ids covered here for the first time) of the hits that cover any."""
    left, found = gold, []
    for rank, ids in enumerate(hits, 1):
        if not left.isdisjoint(ids):
            new = left & ids
            left = left - new
            found.append((rank, len(new)))
            if not left:
                break
    return found


def _check(gold: Ids, k: int) -> None:
    if not gold:
        raise BadInput("no evidence is known for this question, so nothing can be said of what was found")
    if k < 1:
        raise BadInput(f"k counts hits, from 1; got {k}")


# --- official scorers
# ------------------------------------------------------------------------
class LongMemEvalScores(NamedTuple):
    """LongMemEval's measures of one ranking."""

    recall_any: float
    recall_all: float
    ndcg_any: float


def official_longmemeval(
    ranked: Sequence[str], correct: Iterable[str], corpus: Sequence[str], k: int
) -> LongMemEvalScores:
    """LongMemEval's retrieval scores. `ranked`: ids of the corpus, best first; `corpus`: all ids.

    Ranks 1 and 2 weigh the same; the ideal counts only evidence that the corpus holds, once for every time it does.
    Without evidence `recall_all` is 1.0, as there. Source: `src/retrieval/eval_utils.py` of xiaowu0162/LongMemEval.
    """
    wanted, found = set(correct), set(ranked[:k])
    ideal = _lenient_dcg(sorted((one in wanted for one in corpus), reverse=True)[:k])
    ndcg = _lenient_dcg([one in wanted for one in ranked[:k]]) / ideal if ideal else 0.0
    return LongMemEvalScores(float(not wanted.isdisjoint(found)), float(wanted <= found), ndcg)


def official_longmemeval_sessions(
    ranked: Sequence[str], correct: Iterable[str], corpus: Sequence[str], k: int
) -> LongMemEvalScores:
    """The same of a ranking of turns (`SESSION_N`), scored as sessions: so many first turns count that they are of `k`
    sessions, and a session counts once for every turn of it among them.
    """
    sessions = [_session(one) for one in ranked]
    depth = k
    while depth <= len(corpus) and len(set(sessions[:depth])) < k:
        depth += 1
    return official_longmemeval(sessions, {_session(one) for one in correct}, [_session(one) for one in corpus], depth)


def _session(turn: str) -> str:
    return turn.rpartition("_")[0]


def _lenient_dcg(relevant: Sequence[bool]) -> float:
    return math.fsum(one / (math.log2(rank) if rank > 1 else 1.0) for rank, one in enumerate(relevant, 1))


def official_locomo_recall(evidence: Sequence[str], context: Sequence[str]) -> float:
    """LoCoMo's recall: the share of `evidence` (ids such as `D3:4`) in `context`, the ids of what was found; session
    ids (`S3`) count for every turn of theirs if the first id is one. 1.0 without evidence, as there; `BadInput` with
    evidence and nothing found, where the original stops with an `IndexError`. Source: `task_eval/evaluation.py` of
    snap-research/locomo.
    """
    if not evidence:
        return 1.0
    if not context:
        raise BadInput("LoCoMo's scorer has no value for an empty list of found ids")
    if context[0].startswith("S"):
        sessions = {one[1:] for one in context}
        return sum(one.partition(":")[0][1:] in sessions for one in evidence) / len(evidence)
    found = set(context)
    return sum(one in found for one in evidence) / len(evidence)


NEAR = 0.9  # share of common words from which two texts count as the same memory
LOOKED_AT = 200  # first texts that are compared with one another; more would take quadratic time
_SHORTEST = 12  # characters of a text whose occurrence in another one means anything


def near_duplicates(texts: Sequence[str]) -> float:
    """The share of texts whose set of words has a Jaccard similarity ≥ `NEAR` with that of an earlier one. 0 of
    nothing.
    """
    bags = [frozenset(tokens(text)) for text in texts[:LOOKED_AT]]
    again = sum(any(_alike(bag, other) for other in bags[:at]) for at, bag in enumerate(bags))
    return again / len(bags) if bags else 0.0


def echoes(texts: Sequence[str]) -> float:
    """The share of texts that hold the whole text of another, shorter one: what is left of something recalled and
    stored again.
    """
    plain = [f" {normalise(text)} " for text in texts[:LOOKED_AT]]
    inside = {text for text in plain if len(text) >= _SHORTEST + 2}
    return (
        sum(any(len(other) < len(text) and other in text for other in inside) for text in plain) / len(plain)
        if plain
        else 0.0
    )


def repeats_question(texts: Sequence[str], question: str) -> float:
    """The share of texts that say the question, and next to nothing beyond it."""
    asked = frozenset(tokens(question))
    return sum(_alike(frozenset(tokens(text)), asked) for text in texts) / len(texts) if texts and asked else 0.0


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    both = len(one & other)
    return both > 0 and both >= NEAR * (len(one) + len(other) - both)
