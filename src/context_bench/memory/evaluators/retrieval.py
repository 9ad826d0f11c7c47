"""Score what a memory found against the evidence of the question.

Of facts that changed: does it give the value that holds, or one that held before? Of questions that the conversation
cannot answer: does it decline them (`declines`), and no others?
"""

from __future__ import annotations

import json
import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.numbers import real
from context_bench.core.records import Example
from context_bench.core.text import contains, normalise
from context_bench.core.tokens import count_tokens
from context_bench.memory import ranking as measure
from context_bench.memory.protocol import dated, iter_packed
from context_bench.memory.ranking import duplicate_share, echoes, near_duplicates, repeats_question

EVALUATORS = {
    "abstention": "Abstention",
    "retrieval": "Retrieval",
    "memory_use": "MemoryUse",
    "updates": "Updates",
}
MEASURES = {
    "abstained": {"unit": "share", "place": "memory"},
    "abstention_recall": {"unit": "share", "better": "higher", "place": "memory"},
    "needless_abstention": {"unit": "share", "better": "lower", "place": "memory"},
    "hit_at_* recall_at_* all_at_* ndcg_at_*": {"unit": "score", "better": "higher", "place": "memory"},
    "precision_*at_* mrr map": {"unit": "score", "better": "higher", "place": "memory"},
    "session_*_at_* session_mrr": {"unit": "score", "better": "higher", "place": "memory"},
    "evidence_recall session_evidence_recall": {"unit": "score", "better": "higher", "place": "memory"},
    "evidence_items": {"unit": "count", "place": "memory"},
    "evidence_found": {"unit": "count", "better": "higher", "place": "memory"},
    "retrieved_tokens": {"unit": "tokens", "better": "lower", "place": "memory"},
    "context_share": {"unit": "share", "better": "lower", "place": "memory"},
    "near_duplicate_share duplicate_source_share": {"unit": "share", "better": "lower", "place": "memory"},
    "recall_loop_share query_echo_share": {"unit": "share", "better": "lower", "place": "memory"},
    "hit_count": {"unit": "count", "place": "memory"},
    "search_seconds answer_seconds overhead_seconds": {"unit": "seconds", "better": "lower", "place": "memory"},
    "current_at_1 as_of_at_1 current_above_stale": {"unit": "score", "better": "higher", "place": "memory"},
    "answer_current": {"unit": "score", "better": "higher", "place": "memory"},
    "stale_in_top_k stale_over_current answer_stale": {"unit": "score", "better": "lower", "place": "memory"},
}

_LONG = 3  # turns from which a hit that is a whole session can no longer be taken for a pair of turns


class Retrieval:
    """`hit_at_K`, `recall_at_K`, `all_at_K`, `precision_at_K`, `precision_of_returned_at_K`, `ndcg_at_K`, `mrr`, `map`
    of the ranked `hits` against `evidence` (ids of items), and `recall_at_B_tokens`, `all_at_B_tokens` of the longest
    first part with at most `B` tokens, each hit's `tokens` as the system counted them; definitions in `memory.ranking`.
    `evidence_recall`: recall of everything that was given, for memories that do not keep to `k`. `evidence_items`,
    `evidence_found`: how many ids of evidence there are, and how many any hit covers.

    `session_hit_at_K`, `session_recall_at_K`, … say the same of sessions, of `evidence_sessions` or the evidence's own:
    never mixed with items. They are the only ones where just the sessions are known, and for hits that are whole
    sessions (three turns or more): those are scored at their own size. Not applicable where no evidence is known, and
    where hits do not say what they come from (`provenance` "none"). An unanswerable question counts if its dataset
    names evidence, as LoCoMo does for its adversarial ones.
    """

    name = "retrieval"
    version = "1"
    needs = ("evidence",)

    def __init__(self, ks: Sequence[int] = (1, 5, 10), budgets: Sequence[int] = ()) -> None:
        if not ks or any(number < 1 for number in (*ks, *budgets)):
            raise BadInput(
                f"retrieval is scored at numbers of hits and tokens from 1 on, not ks={tuple(ks)}, "
                f"budgets={tuple(budgets)}"
            )
        self.ks, self.budgets = tuple(sorted(set(ks))), tuple(sorted(set(budgets)))
        last = self.ks[-1]
        # What reports take for the one that matters comes first.
        names = [
            f"recall_at_{last}",
            *(f"{kind}_at_{k}" for k in self.ks for kind in (*_AT_K, *_AT_K_ITEMS)),
            "mrr",
            "map",
        ]
        names += [f"{kind}_at_{budget}_tokens" for budget in self.budgets for kind in ("recall", "all")]
        sessions = [f"session_{kind}_at_{k}" for k in self.ks for kind in _AT_K]
        sessions += [
            "session_mrr",
            "session_evidence_recall",
            *(f"session_{kind}_at_{budget}_tokens" for budget in self.budgets for kind in ("recall", "all")),
        ]
        self.fields = tuple(dict.fromkeys([*names, *sessions, "evidence_recall", "evidence_items", "evidence_found"]))

    def fingerprint(self) -> dict[str, Any]:
        return {"class": "Retrieval", "version": self.version, "ks": list(self.ks), "budgets": list(self.budgets)}

    def applies(self, example: Example, output: Example) -> bool:
        """Evidence is known, and the hits say what they come from."""
        return why_not(example, output) is None

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        if why_not(original, processed) is not None:
            return {}
        sought = _Sought.of(original, processed)
        hits = [frozenset(_strings(hit.get("source_ids"))) for hit in processed["hits"]]
        tokens = [_tokens(hit) for hit in processed["hits"]]
        found: dict[str, float] = {}
        if sought.items:
            found |= self._measures(sought.items, hits, tokens)
            for k in self.ks:
                found[f"precision_at_{k}"] = measure.precision_at(sought.items, hits, k)
                found[f"precision_of_returned_at_{k}"] = measure.precision_at(sought.items, hits, k, of_returned=True)
            found["map"] = measure.average_precision(sought.items, hits)
            found["evidence_items"] = float(len(sought.items))
            found["evidence_found"] = float(len(sought.items & frozenset().union(*hits)))
        if sought.sessions:
            of_sessions = [frozenset(sought.session_of[one] for one in ids if one in sought.session_of) for ids in hits]
            found |= {
                f"session_{name}": value for name, value in self._measures(sought.sessions, of_sessions, tokens).items()
            }
        return found

    def _measures(self, gold: frozenset[str], hits: list[frozenset[str]], tokens: list[int | None]) -> dict[str, float]:
        found = {f"{kind}_at_{k}": at(gold, hits, k) for k in self.ks for kind, at in _AT_K.items()}
        found["mrr"] = measure.reciprocal_rank(gold, hits)
        found["evidence_recall"] = measure.recall_at(gold, hits, max(1, len(hits)))
        known = [count for count in tokens if count is not None]
        for budget in self.budgets if len(known) == len(hits) else ():
            first = hits[: measure.within(known, budget)]
            depth = max(1, len(first))
            found[f"recall_at_{budget}_tokens"] = measure.recall_at(gold, first, depth)
            found[f"all_at_{budget}_tokens"] = measure.all_at(gold, first, depth)
        return found


_AT_K = {"hit": measure.hit_at, "recall": measure.recall_at, "all": measure.all_at, "ndcg": measure.ndcg_at}
_AT_K_ITEMS = ("precision", "precision_of_returned")


def why_not(example: Example, output: Example) -> str | None:
    """The reason for which a row has no retrieval scores, as a report counts it; `None` if it has."""
    if not isinstance(output.get("hits"), list):
        return "the system searches nothing that could be seen"
    if not _strings(example.get("evidence")) and not _strings(example.get("evidence_sessions")):
        return "no evidence is known"
    hits = output["hits"]
    if any(not isinstance(hit, Mapping) for hit in hits):
        return "hits without sources"
    if output.get("provenance") == "none" or (hits and not any(_strings(hit.get("source_ids")) for hit in hits)):
        return "hits do not say what they come from"
    sought = _Sought.of(example, output)
    return (
        None
        if sought.items or sought.sessions
        else "hits are whole sessions, and the evidence's sessions are not known"
    )


@dataclass(frozen=True, slots=True)
class _Sought:
    """The evidence at the sizes at which these hits can be scored; empty = not at this size."""

    items: frozenset[str]
    sessions: frozenset[str]
    session_of: Mapping[
        str, str
    ]  # id of an item, or of a session, → id of its session; a view: there may be 100,000 items

    @classmethod
    def of(cls, example: Example, output: Example) -> _Sought:
        items = frozenset(_strings(example.get("evidence")))
        session_of: Mapping[str, str]
        session_of, sizes = _sittings(example.get("items"))
        sessions = frozenset(_strings(example.get("evidence_sessions")))
        if not sessions and items and all(one in session_of for one in items):
            sessions = frozenset(session_of[one] for one in items)
        if sessions:
            session_of = ChainMap(session_of, {one: one for one in (*sizes, *sessions)})
        return cls(frozenset() if _whole_sessions(output, session_of, sizes) else items, sessions, session_of)


@dataclass(frozen=True, slots=True)
class GoldTurns:
    """The evidence of a question for showing: ids of items, or of sessions where only those are known (`sessions`)."""

    ids: tuple[str, ...]
    sessions: bool
    items: str
    answerable: bool

    @classmethod
    def of(cls, example: Mapping[str, Any]) -> GoldTurns:
        """From an example as it is stored."""
        items, sessions = _strings(example.get("evidence")), _strings(example.get("evidence_sessions"))
        packed = example.get("items")
        text = packed if isinstance(packed, str) else ""
        return cls(tuple(dict.fromkeys(items or sessions)), not items, text, example.get("answerable") is not False)

    def of_sources(self, sources: Any) -> list[str]:
        """The evidence that a hit with these sources holds."""
        named = set(_strings(sources))
        if self.sessions and self.ids:
            session_of = _sittings(self.items)[0]
            named |= {session_of[one] for one in named if one in session_of}
        return [one for one in self.ids if one in named]

    def text_of(self, ident: str) -> tuple[str | None, str]:
        """The time and the words of a piece of evidence; of a whole session all of its words."""
        if self.sessions:
            told = [item for item in iter_packed(self.items) if item.session == ident] if self.items else []
        else:
            start = self.items.find('{"id": ' + json.dumps(ident, ensure_ascii=False) + ",")
            told = list(iter_packed(self.items[start:].partition("\n")[0])) if start >= 0 else []
        if not told:
            return None, "(the conversation that is kept with the run has no such item)"
        return told[0].time, "\n".join(item.line for item in told)

    def note(self, provenance: Any, hits: int) -> str:
        """The reason for missing ticks, or how far they can be believed."""
        if not self.ids:
            asked = "The data names no gold evidence for this question, so no hit can be ticked."
            return asked if self.answerable else "The conversation does not hold the answer, so there is no gold."
        if hits and provenance == "none":
            return "The hits do not say which items they come from, so none can be ticked."
        if hits and provenance == "text match":
            return "The memory does not name its sources: they were found by the words of the hits."
        return "" if hits else "Nothing came back."


def _whole_sessions(output: Example, session_of: Mapping[str, str], sizes: Mapping[str, int]) -> bool:
    """True if the memory's items were sessions: as it says, or by a hit that has all turns of a long one."""
    said = output.get("granularity")
    if isinstance(said, str):
        return said == "session"
    for hit in output["hits"]:
        ids = set(_strings(hit.get("source_ids")))
        sittings = {session_of.get(one, "") for one in ids}
        if len(ids) >= _LONG and len(sittings) == 1 and sizes.get(sittings.pop()) == len(ids):
            return True
    return False


@lru_cache(maxsize=4)
def _sittings(packed: Any) -> tuple[dict[str, str], dict[str, int]]:
    """Item → session, and session → number of its items. Of the items nothing else is held: about 13 MB for 100,000."""
    session_of: dict[str, str] = {}
    sizes: dict[str, int] = {}
    names: dict[str, str] = {}  # one text for a session, not one an item
    for item in iter_packed(packed) if isinstance(packed, str) else ():
        if item.session is not None:
            session_of[item.id] = names.setdefault(item.session, item.session)
    for session in session_of.values():
        sizes[session] = sizes.get(session, 0) + 1
    return session_of, sizes


def _strings(value: Any) -> list[str]:
    """Ids as texts; numbers count as their digits."""
    found = value if isinstance(value, list | tuple | set | frozenset) else [value] if value is not None else []
    return [str(one) for one in found if isinstance(one, str | int) and str(one)]


def _tokens(hit: Mapping[str, Any]) -> int | None:
    count = hit.get("tokens")
    return count if isinstance(count, int) and count >= 0 else None


_TOLD = ("retrieved_tokens", "search_seconds", "answer_seconds", "overhead_seconds")


class MemoryUse:
    """`retrieved_tokens` (of what was found), `context_share` (of what the whole conversation as hits would have,
    o200k_base), `hit_count`, `search_seconds`, `answer_seconds`, `overhead_seconds` (this tool's own part of the
    question); of the hits the shares in [0, 1] that `near_duplicate_share` say nearly the same as an earlier one,
    `duplicate_source_share` stand for nothing but items that earlier ones stood for, `recall_loop_share` hold the whole
    text of another one (what a memory does that stores what it recalled), `query_echo_share` only repeat the question.

    Facts, not verdicts: they apply to every answer of a memory that says them, evidence or not.
    """

    name = "memory_use"
    version = "2"
    needs = ("items",)
    fields = (
        *("retrieved_tokens", "context_share", "hit_count", "search_seconds", "answer_seconds", "overhead_seconds"),
        *("near_duplicate_share", "duplicate_source_share", "recall_loop_share", "query_echo_share"),
    )

    def applies(self, example: Example, output: Example) -> bool:
        """The system says what it found, or how much."""
        return isinstance(output.get("hits"), list) or real(output.get("retrieved_tokens")) is not None

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        told = {name: real(processed.get(name)) for name in _TOLD}
        found = {name: value for name, value in told.items() if value is not None}
        if "retrieved_tokens" in found and (tokens := _whole(original.get("items"), original.get("context"))):
            found["context_share"] = found["retrieved_tokens"] / tokens
        hits = processed.get("hits")
        return found | _junk(hits, str(original.get("question") or "")) if isinstance(hits, list) else found


@lru_cache(maxsize=8)
def _whole(packed: Any, context: Any) -> int:
    """Tokens of the whole conversation, counted as hits are: every turn by itself, with its date; of its text where no
    turns are known.
    """
    if isinstance(packed, str) and packed:
        return sum(count_tokens(dated(item.line, item.time)) for item in iter_packed(packed))
    return count_tokens(context) if isinstance(context, str) else 0


def _junk(hits: list[Any], question: str) -> dict[str, float]:
    """Nothing is said of the quality of no hits."""
    if not hits:
        return {"hit_count": 0.0}
    known = [hit if isinstance(hit, Mapping) else {} for hit in hits]
    texts = [str(hit.get("text") or "") for hit in known]
    sources = [frozenset(str(one) for one in hit.get("source_ids") or ()) for hit in known]
    return {
        "hit_count": float(len(hits)),
        "near_duplicate_share": near_duplicates(texts),
        "duplicate_source_share": duplicate_share(sources),
        "recall_loop_share": echoes(texts),
        "query_echo_share": repeats_question(texts, question),
    }


class Updates:
    """Of examples with `versions` (a list of `{"value", "source", "current"}`: all values a fact has had, the ids of
    the items that said so, and whether it is the one that holds at the moment the question is about), each 0.0 or 1.0:

    - `current_at_1`: the first hit has the current value (`as_of_at_1` instead for questions about an earlier moment,
    those with `as_of`).
    - `stale_in_top_k`: any hit has only a value that does not hold.
    - `current_above_stale`: the current value comes before every other; `stale_over_current`: it does not, or is
    missing. Only where any
      value was found.
    - `answer_current`, `answer_stale`: the response names the current value; it names another and not the current one.

    A hit has the values whose sources it names; hits without sources those that it contains in words.
    """

    name = "updates"
    version = "1"
    needs = ("versions",)
    fields = (
        *("current_at_1", "as_of_at_1", "stale_in_top_k", "current_above_stale", "stale_over_current"),
        *("answer_current", "answer_stale"),
    )

    def applies(self, example: Example, output: Example) -> bool:
        """All versions are known, one of them current and one not, and there is something to look at."""
        versions = _versions(example)
        return {bool(each.get("current")) for each in versions} == {True, False} and (
            "hits" in output or "response" in output
        )

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        if not self.applies(original, processed):
            return {}
        current, stale = (
            [each for each in _versions(original) if bool(each.get("current")) is wanted] for wanted in (True, False)
        )
        found: dict[str, float] = {}
        if isinstance(processed.get("hits"), list):
            found = _ranked(
                [(_has(hit, current), _has(hit, stale)) for hit in processed["hits"]], bool(original.get("as_of"))
            )
        if "response" in processed:
            said = str(processed.get("response") or "")
            right, wrong = _named(said, current), _named(said, stale)
            found |= {"answer_current": float(right), "answer_stale": float(wrong and not right)}
        return found


def _ranked(hits: Sequence[tuple[bool, bool]], history: bool) -> dict[str, float]:
    """`hits`: whether each has the current value, and whether it has a stale one."""
    found = {
        "as_of_at_1" if history else "current_at_1": float(bool(hits) and hits[0][0]),
        "stale_in_top_k": float((False, True) in hits),
    }
    first = next((hit for hit in hits if any(hit)), None)
    if first is not None:
        found |= {"current_above_stale": float(first[0]), "stale_over_current": float(not first[0])}
    return found


def _has(hit: Any, versions: Sequence[Mapping[str, Any]]) -> bool:
    if not isinstance(hit, Mapping):
        return False
    sources = {str(one) for one in hit.get("source_ids") or ()}
    if sources:
        return any(not sources.isdisjoint(_sources(each)) for each in versions)
    return _named(str(hit.get("text") or ""), versions)


def _named(text: str, versions: Sequence[Mapping[str, Any]]) -> bool:
    return any(contains(text, str(each["value"])) for each in versions)


def _sources(version: Mapping[str, Any]) -> list[str]:
    told = version.get("source")
    return [str(one) for one in told] if isinstance(told, list | tuple) else [] if told is None else [str(told)]


def _versions(example: Example) -> list[Mapping[str, Any]]:
    told = example.get("versions")
    return [each for each in told if isinstance(each, Mapping) and each.get("value")] if isinstance(told, list) else []


# Questions that cannot be answered
# ------------------------------------------------------------------------

# Patterns see the answer as `normalise` leaves it: small letters, no articles, "isnt" for "isn't".
_NEWS = (
    r"(?:(?:relevant|specific|such|further|any|enough|that|this) )*"
    r"(?:information|info|mention|record|memory|memories|reference)"
)
_NOT = r"(?:not|never|(?:is|was|has|have|its|thats) (?:not|never)|isnt|wasnt|hasnt)(?: been)?"
_UNABLE = (
    r"(?:cannot|can not|cant|could not|couldnt|(?:am |was )?(?:unable|not able) to|(?:its |is |was )?not possible to)"
)
_STATED = r"(?:mentioned|specified|stated|provided|known|available|answerable|recorded)"
_TELL = r"(?:determined?|answer(?:ed)?|known?|found?|find|say|tell|recall|provide)"
_OPENING = re.compile(
    r"(?:(?:im |i am )?sorry(?: but)? |unfortunately |answer (?:is )?|based on [\w ]{0,60}? |as far as i know )?"
    r"(?:"
    rf"(?:(?:it|that|this|{_NEWS}) )?{_NOT} {_STATED}|"
    r"not (?:enough (?:information|info|context)|in memories|sure)|insufficient (?:information|info|context)|"
    r"(?:(?:it is|that is|its|thats) )?(?:unknown|unanswerable)(?=$| (?:to|from|in|based|given|as|because|since)\b)|"
    r"na$|"
    rf"no (?:answer|{_NEWS})|"
    rf"there(?:s| is| was| are| were)? (?:(?:no|not) {_NEWS}|nothing (?:about|on))|there (?:isnt|wasnt|arent) {_NEWS}|"
    r"(?:i|we) (?:do not|dont|did not|didnt) (?:know|see|find|recall|remember)|"
    rf"(?:i|we) (?:(?:do not|dont|did not|didnt) have|have no|had no) (?:idea|access|answer|details|{_NEWS})|"
    r"i ?a?m not sure|i (?:have not|havent|was not|wasnt) (?:been )?told|"
    r"you (?:never|have not|havent|did not|didnt) (?:mention(?:ed)?|tell me|told me|specif(?:y|ied))|"
    rf"(?:(?:i|we|it|question) )?{_UNABLE} (?:be )?{_TELL}"
    r")\b"
)
_ANYWHERE = re.compile(
    r"\b(?:no information available|not mentioned in|cannot be (?:determined|answered|known)|not enough information|"
    r"(?:memories|conversations?|context|information|user|history|provided text) (?:(?:do|does|did)(?: not|nt)|never) "
    r"(?:mention(?:ed)?|say|contain|hold|specify|state|provide|include|indicate|tell|have)|"
    r"none of (?:\w+ ){0,3}(?:memories|messages|conversations|documents) (?:mention|say|contain|state|tell))\b"
)


def declines(answer: str) -> bool:
    """True if the answer opens by saying that it is not known, or says in its first sentence that what was given does
    not tell.

    English phrases; an empty answer is no refusal but a failure. A refusal after which an answer is given all the same
    counts as one.
    """
    if _OPENING.match(normalise(answer)):
        return True
    return bool(_ANYWHERE.search(normalise(re.split(r"(?<=[.!?])\s", answer.strip(), maxsplit=1)[0])))


class Abstention:
    """Of examples that say whether they are `answerable`: `abstained` (1.0 or 0.0) for all, `abstention_recall` the
    same for unanswerable questions only (their mean is the share rightly declined), `needless_abstention` for
    answerable ones only (1 − coverage).

    An answer declines if the system says so (`abstained`) or its words do (`declines`). The metric `abstention` makes
    precision, F1, coverage and the accuracy of what was answered of these, so that neither never nor always declining
    looks good.
    """

    name = "abstention"
    version = "1"
    needs = ("answerable",)
    fields = ("abstained", "abstention_recall", "needless_abstention")

    def applies(self, example: Example, output: Example) -> bool:
        """It is known whether the question can be answered, and a reply was given."""
        return isinstance(example.get("answerable"), bool) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        if not self.applies(original, processed):
            return {}
        abstained = float(processed.get("abstained") is True or declines(str(processed.get("response") or "")))
        return {
            "abstained": abstained,
            "needless_abstention" if original["answerable"] else "abstention_recall": abstained,
        }
