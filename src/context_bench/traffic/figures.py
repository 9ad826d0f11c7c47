"""Figures of a replay of recorded sessions, beside rows and scores, read from the stored traffic.

`Result.lifts`: does each system that shortened keep more of the conversations' atoms than truncation to the same size?
`Result.replay` of such a run: `level`, `passthrough` (name of the arm, at level 1), `cache_rules`, and `systems[name]`
= `requests`, `failed`, `unseen` (requests that the tap did not see), `sessions`, `tokens`, `cache` and `cache_alone`
(behind the system, and as sent), `cost`, `measured` (what replies told of the provider's cache), `violations[kind]`,
`by_session`, `by_turn`, `by_turn_alone` and `by_turn_told` (of the first, second … request of sessions: how many, and
tokens read from the cache, rewritten, new; summed up; the last of those whose replies told what was read).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from context_bench.core.measures import percent
from context_bench.core.records import Comparison, Result
from context_bench.reports.visible_text import plural
from context_bench.wire.violations import total

if TYPE_CHECKING:
    from context_bench.stats.lift import Lift
    from context_bench.traffic.session_limits import SessionCounts

__all__ = [
    "add_replay",
]

CANNOT_SEE = (
    "A replay sends every request as it was recorded, whatever the reply: turns that a changed prompt would add, save "
    "or lead elsewhere "
    "cannot be seen. No tool was executed."
)


def add_replay(result: Result, store: Any, run: str, told: Mapping[str, Any]) -> None:
    """Fill in `result.replay`, the systems' figures in `summary` and `estimates`, and notes. `told`: `replay` of the
    run's manifest.
    """
    from context_bench.engine.store.row_details import export
    from context_bench.traffic.evaluators.next_action import Agreement, actions_by_request
    from context_bench.traffic.metrics.replayed import SystemFigures
    from context_bench.wire.diff import RepeatedRuns

    rules, kept = _Rules(told), {}
    once = result.manifest.get("options", {}).get("trials") == 1  # no later run of a session is to be compared
    passthrough = told.get("passthrough")
    wanted = actions_by_request(export(store, run, passthrough)) if passthrough else {}
    systems: dict[str, Any] = {}
    for name in result.summary:
        repeats = RepeatedRuns(space=-1) if once else RepeatedRuns()
        figures = SystemFigures(rules, clean=_masked, truncate=_truncated, repeats=repeats)
        against = Agreement(wanted if name != passthrough else {})
        for item in export(store, run, name):
            figures.add(item)
            against.add(item)
        systems[name] = figures.as_dict()
        kept[name] = figures.against_truncation
        _summarise(result, name, systems[name])
        if (estimate := against.estimate()) is not None:
            result.summary[name]["agreement_with_passthrough"] = estimate.value
            result.estimates.setdefault(name, {})["agreement_with_passthrough"] = estimate
        rules.untimed += figures.untimed
        if changed := _beside_shortening(systems[name]):
            result.notes.append(f"{name} did more than shorten: {changed}.")
        if 0 < systems[name]["requests"] == systems[name]["unseen"] + systems[name]["failed"]:
            result.notes.append(
                f"{name}: nothing could be read of what arrived behind it; the tap must see it and keep bodies "
                "(--record full)."
            )
    result.lifts += _against_truncation(kept)
    if not told.get("level"):
        _without_scores(result)
    result.replay = {
        "level": told.get("level"),
        "passthrough": passthrough,
        "cache_rules": rules.as_dict(),
        "systems": systems,
    }
    options = {name: value for name, value in result.manifest.get("options", {}).items() if name not in _OF_OTHER_RUNS}
    result.manifest = {**result.manifest, "options": options}
    result.notes[:0] = [CANNOT_SEE, *_about_the_sets(result.manifest.get("datasets") or [])]


def session_counts(store: Any, run: str, told: Mapping[str, Any], name: str) -> Iterator[SessionCounts]:
    """The sessions of a replay through the system `name`, each as limits read it. `told`: `replay` of the run's
    manifest.

    A bill is not known where a request failed or was not seen, where there is no price, or where the log says too
    little for a verdict on money.
    """
    from itertools import groupby

    from context_bench.engine.store.row_details import export
    from context_bench.traffic.metrics.replayed import SystemFigures
    from context_bench.traffic.session_limits import SessionCounts

    rules = _Rules(told)
    by_group = groupby(
        export(store, run, name), lambda item: str(item["row"].get("group") or item["row"]["example_id"])
    )
    for group, items in by_group:
        figures, violated = SystemFigures(rules, clean=_masked), 0
        for item in items:
            before = total(figures.violations)
            figures.add(item)
            violated += total(figures.violations) > before
        facts = figures.as_dict()
        whole = facts["priced"] and not facts["failed"] and not facts["unseen"]
        alone, through = (facts["cost"].get(key) if whole else None for key in ("alone_usd", "through_usd"))
        kinds = dict(figures.violated)
        yield SessionCounts(group, facts["requests"], violated, alone, through, kinds=kinds)


def _masked(body: Any) -> Any:
    """A body that was sent, as the tap wrote down what arrived: without anything that looks like a key."""
    from context_bench.engine.encoding import HIDDEN
    from context_bench.tap.masking import MASK, map_text, mask_names, mask_text

    return map_text(mask_names(body), lambda text: mask_text(text.replace(HIDDEN, MASK)))


_TRUNCATION = "truncation to the same size"


def _truncated(messages: list[dict[str, str]], tokens: int, model: str | None) -> list[dict[str, str]]:
    """The conversation with its middle cut out, of so many tokens; instructions stay, as whoever cuts leaves them."""
    from context_bench.core.families import built_in_names
    from context_bench.core.plugins import load_object
    from context_bench.core.tokens import counter_for
    from context_bench.wire.request import SYSTEM_ROLES

    head = [message for message in messages if message["role"] in SYSTEM_ROLES]
    rest = [message for message in messages if message["role"] not in SYSTEM_ROLES]
    count = counter_for(model).count
    budget = max(0, tokens - sum(count(message["content"]) for message in head))
    head_tail = load_object(built_in_names("system")["head_tail"])(model=model)
    cut, _ = head_tail.compress(
        [{"role": "user", "content": message["content"]} for message in rest], [], budget=budget
    )
    return [*head, *({"role": "user", "content": str(message.get("content") or "")} for message in cut.messages)]


def _against_truncation(kept: Mapping[str, Sequence[tuple[str, float, float]]]) -> list[Comparison]:
    """Does more of the sessions' facts arrive than truncation to the same size would leave? Nothing is sent for it, and
    money is not in it.

    One family over the systems; an arm that keeps nothing stands for what must lose.
    """
    from context_bench.stats.lift import Lift, lifts
    from context_bench.stats.verdict import default_margin

    pairs = [
        Lift(
            name,
            _TRUNCATION,
            [own for _, own, _ in told],
            [cut for *_, cut in told],
            [session for session, *_ in told],
            {"nothing": [0.0] * len(told)},
        )
        for name, told in kept.items()
        if told
    ]
    found = lifts(pairs, metric="share of atoms kept", margin=default_margin())
    return [replace(one, sentence=_leading(pair) + one.sentence) for one, pair in zip(found, pairs, strict=True)]


def _leading(pair: Lift) -> str:
    own, cut = (sum(shares) / len(shares) for shares in (pair.scores, pair.truncated))
    kept = f"{pair.system} keeps {percent(own)} of a conversation's atoms (names, numbers, paths …)"
    return f"{kept}, {_TRUNCATION} {percent(cut)}. "


def _about_the_sets(sets: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Facts about the recordings that a reader must know."""
    for told in sets:
        if rebuilt := told.get("reconstructed"):
            sessions = told.get("sessions", rebuilt)
            what = (
                "is a transcript without the requests' bodies: it was"
                if rebuilt == 1
                else "are transcripts without the requests' bodies: these were"
            )
            yield (
                f"{rebuilt:,} of {sessions:,} {plural(sessions, 'session')} {what} rebuilt. "
                "Instructions and tools that the log does not hold are stood in for, sized by the usage that it states."
            )
        if skipped := told.get("skipped"):
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in skipped.items())
            yield f"{sum(skipped.values()):,} line(s) of the recordings were passed over ({reasons})."


def _summarise(result: Result, name: str, facts: Mapping[str, Any]) -> None:
    """The headline figures, for gates and for other programs."""
    for group, names in (
        ("cost", ("net_cost_ratio", "token_saving", "cache_penalty")),
        ("cache", ("prefix_stability", "cacheable_prefix_share")),
    ):
        result.summary[name].update({key: facts[group][key] for key in names if key in facts[group]})
    result.wire.setdefault(name, {})["violations"] = total(
        {kind: counts["times"] for kind, counts in facts["violations"].items()}
    )


def _beside_shortening(facts: Mapping[str, Any]) -> str:
    """The most frequent changes of a system that are no compression, with their requests; empty without any."""
    seen = facts["requests"] - facts["unseen"] - facts["failed"]
    kinds = {kind: each["requests"] for kind, each in facts["violations"].items() if total({kind: each["times"]})}
    most = sorted(kinds, key=lambda kind: (-kinds[kind], kind))[:3]
    told = ", ".join(f"{kind} in {kinds[kind]:,} of {seen:,} requests" for kind in most)
    return told + (f" and {len(kinds) - 3:,} more kinds" if len(kinds) > 3 else "")


#: Options that other runs have and a replay has no use for.
_OF_OTHER_RUNS = frozenset(
    ("dataset", "shape", "prompt", "system_prompt", "budget", "keep", "judge_url", "judge_model", "system", "reader")
)
_OF_SCORES = frozenset(("score_field", "threshold", "margin"))


def _without_scores(result: Result) -> None:
    """At level 0 nothing is judged: no report is to ask for a score."""
    options = {name: value for name, value in result.manifest.get("options", {}).items() if name not in _OF_SCORES}
    result.manifest = {
        **{name: value for name, value in result.manifest.items() if name != "margin"},
        "options": options,
    }


class _Rules:
    """Cache rules and prices by model, as they were on the day of the run."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        from context_bench.llm.prices import GenaiPrices

        day = told.get("prices_on")
        self._prices = GenaiPrices(
            told.get("prices") or {}, on=datetime.date.fromisoformat(day) if isinstance(day, str) else None
        )
        self._named = told.get("profile")
        self._known: dict[tuple[str, bool], Any] = {}
        self._seen: dict[str, Any] = {}
        self.untimed = 0

    def __call__(self, model: str, hour: bool = False) -> Any:
        from context_bench.llm.prices import FAMILIES, rules_of
        from context_bench.traffic.metrics.replayed import CacheRules

        if (model, hour) not in self._known:
            named = str(self._named) if self._named else None
            found = rules_of(model, self._prices, named=named, hour=hour)
            rule, profile = found.rule, found.profile
            price = partial(self._prices.cost, model=model)
            self._known[model, hour] = CacheRules(profile, rule.trigger == "marked", found.priced, found.own, price)
            name = f"{model} as {named}" if named in FAMILIES else named or model
            told = {
                "rule": rule.name,
                "mode": profile.mode,
                "minimum": profile.m,
                "step": profile.b,
                "read": profile.r,
                "write": profile.w,
            }
            told |= {
                "input_usd": profile.p_in,
                "output_usd": profile.p_out,
                "lifetime": profile.ttl,
                "sure": rule.sure,
                "note": rule.note,
            }
            self._seen[name] = {key: value for key, value in told.items() if value not in (None, "")}
        return self._known[model, hour]

    def as_dict(self) -> dict[str, Any]:
        from context_bench.llm.prices import rules_date

        found: dict[str, Any] = {"date": rules_date(), "models": self._seen}
        if self.untimed:
            found["lifetimes"] = "Where a session has no times, every cache entry is taken to be alive."
        return found
