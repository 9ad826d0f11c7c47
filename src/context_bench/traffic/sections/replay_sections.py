"""Sections on the replay of recorded sessions: prompt cache, money, violations, loss, and whether the agent would have
done the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from context_bench.core.measures import dollars, percent
from context_bench.core.numbers import number
from context_bench.reports.arm_aggregates import Line, LineAggregates
from context_bench.reports.declared import (
    ColumnUnit,
    FigureColumn,
    ReportContext,
    columns,
    declared_table,
    figure,
    interval_of,
    mapping,
    section_of,
)
from context_bench.reports.page import Chart, Section, Sentence, Table, Tone
from context_bench.reports.traffic import turns_of
from context_bench.wire.violations import phrase, total

AS_SENT = "as sent"
_FROM_REPLIES = "as replies told"
#: Ratios so near to 1 are the same cost; nearer where requests had to be rebuilt, which is right to about 2 %.
_SAME, _SAME_REBUILT = 0.0005, 0.02


def _three_digits(*rows: tuple[str, str, ColumnUnit, str]) -> tuple[FigureColumn, ...]:
    """Columns that are always shown; plain numbers have three decimals."""
    return tuple(replace(each, digits=3) if each.unit == "number" else each for each in columns(*rows))


_RECORDED = columns(
    ("requests", "requests", "count", "answered requests of the sessions"),
    ("stated", "with usage", "count", "of them, those whose log states the billed tokens"),
    ("input_tokens", "prompt", "count", "prompt tokens billed, as stated"),
    ("stated_read_share", "cached, stated", "share", "of the prompt tokens, as stated"),
    ("predicted_read_share", "cached, predicted", "share", "of the same prompts, by the cache rules"),
    ("cache_write", "written", "count", "tokens billed as written to the cache, as stated"),
    ("output_tokens", "replies", "count", "tokens of the replies, as stated"),
    ("predicted_outputs", "≈ replies", "count", "replies whose tokens the log does not state: counted by us"),
    ("rebuilt_share", "rebuilt", "share", "of the billed prompt tokens, those that the logs' own texts explain"),
    ("usd", "as billed", "usd", "the price of all this; ≈ where replies had to be counted"),
)
_CACHE = _three_digits(
    (
        "prefix_stability",
        "prefix stability",
        "share",
        "share of the previous prompt that the next one repeats at its start (mean)",
    ),
    (
        "cacheable_prefix_share",
        "from cache",
        "share",
        "prompt tokens that the provider's cache would serve, from the second request on",
    ),
    ("prefix_breaks", "breaks", "count", "requests that do not begin with all of the one before"),
    ("rewritten_tokens", "rewritten", "count", "tokens of earlier prompts that were changed or dropped"),
    ("read", "read", "count", "prompt tokens read from the cache"),
    ("write", "written", "count", "prompt tokens billed as written to the cache"),
    ("uncached", "new", "count", "prompt tokens at the plain input price"),
)
_COST = _three_digits(
    (
        "net_cost_ratio",
        "cost ratio",
        "number",
        "what the sessions cost through the system over what they cost as sent, same cache rules",
    ),
    ("token_saving", "tokens saved", "share", "1 - forwarded / sent"),
    ("cache_penalty", "cache penalty", "number", "cost ratio - (1 - tokens saved): what broken prefixes cost"),
    ("net_cost_ratio_mean", "ratio/session", "number", "mean of the sessions' cost ratios"),
    ("token_saving_mean", "saved/session", "share", "mean of the sessions' savings"),
    ("cache_penalty_mean", "penalty/session", "number", "cache penalty of these means"),
    ("alone_usd", "as sent", "usd", "cost of the sessions as sent"),
    ("through_usd", "through it", "usd", "cost of the sessions through the system"),
    ("extra_calls_usd", "extra calls", "usd", "the system's own calls, part of the cost through it"),
)
_LOSS = columns(
    ("atoms", "atoms", "count", "different ones in the conversations"),
    ("retained", "retained", "share", "share of the atoms that still arrive"),
    ("macro", "mean of kinds", "share", "mean over kinds with at least five atoms"),
    ("fabricated", "made up", "share", "share of the arriving atoms that were never sent"),
    ("word_damage", "broken words", "share", "share of the arriving words that were never sent"),
)
_REQUESTS = FigureColumn("seen", "requests")
_MATCHES = columns(
    ("tool_match", "tool", "score", "tool_match against the recording"),
    ("argument_match", "arguments", "score", "argument_match against the recording"),
    ("text_f1", "text F1", "score", "text_f1 against the recording"),
)
_MEASURED = columns(
    ("read", "predicted read", "count", ""),
    ("cache_read", "measured read", "count", ""),
    ("write", "predicted written", "count", ""),
    ("cache_write", "measured written", "count", ""),
    ("requests", "replies that told", "count", ""),
)
_VIOLATIONS = columns(
    ("what", "what", "text", ""),
    ("times", "times", "count", ""),
    ("requests", "requests", "count", ""),
    ("share", "share", "share", ""),
)
_REPEATS = columns(
    ("requests", "requests", "count", "requests of later runs that were compared"),
    ("differing", "other bytes", "count", "of them, those that did not arrive as the first time"),
    ("what", "cause", "text", "of the first difference of each"),
    ("where", "first at", "text", "in the first request that differs, as compact JSON"),
    ("lost_tokens", "cache lost", "count", "prompt tokens behind the first difference"),
    ("lost_usd", "for", "usd", "what they cost more than tokens read from the cache"),
)
_LOST = columns(
    ("kind", "kind", "text", ""),
    ("atoms", "atoms", "count", ""),
    ("lost", "lost", "count", ""),
    ("share", "share", "share", ""),
)
_EXAMPLES = columns(
    ("what", "what", "text", ""),
    ("kind", "kind", "text", ""),
    ("atom", "atom", "text", ""),
    ("role", "said by", "text", ""),
)
_SESSIONS = (
    *columns(
        ("session", "session", "text", ""),
        ("requests", "requests", "count", ""),
        ("sent", "sent", "count", ""),
        ("forwarded", "forwarded", "count", ""),
        ("token_saving", "saved", "share", ""),
    ),
    FigureColumn("net_cost_ratio", "cost ratio", "number", digits=3),
    *columns(("prefix_stability", "prefix stability", "share", ""), ("prefix_breaks", "breaks", "count", "")),
)


def replay(report: ReportContext) -> list[Section | None]:
    """The sections of a replay; none for any other run."""
    figures = mapping(report.result.replay)
    systems = {name: facts for name, facts in mapping(figures.get("systems")).items() if isinstance(facts, dict)}
    if not systems:
        return []
    return [
        _agreement(report, figures),
        _cache(systems),
        _cost(systems, figures),
        _violations(systems),
        _repeats(systems),
        _loss(systems),
        _examples(systems),
        section_of(
            "replay-sessions",
            "Session by session",
            declared_table("replay-sessions", _SESSIONS, _by_session(systems)),
            brief=False,
        ),
    ]


def replay_sentences(report: ReportContext) -> list[Sentence]:
    """The cost of replayed sessions through each system, in words: what its shorter prompts save, and what the lost
    cache takes back.
    """
    systems = mapping(mapping(report.result.replay).get("systems"))
    found = (
        (str(name), mapping(facts), mapping(mapping(facts).get("cost")), mapping(mapping(facts).get("recorded")))
        for name, facts in systems.items()
    )
    return [
        _no_verdict_sentence(name, cost, recorded)
        if "no_verdict" in recorded
        else _beside_what_it_changed(_cost_sentence(name, cost, recorded), facts)
        for name, facts, cost, recorded in found
        if "no_verdict" in recorded or number(cost.get("net_cost_ratio")) is not None
    ]


def _beside_what_it_changed(sentence: Sentence, facts: dict[str, Any]) -> Sentence:
    """Nothing saved is good news where requests ask something else."""
    kinds = {kind: mapping(counts) for kind, counts in mapping(facts.get("violations")).items()}
    counts = [int(each.get("requests") or 0) for kind, each in kinds.items() if total({kind: each.get("times") or 0})]
    changed, seen = max(counts, default=0), _seen(facts)
    if not changed:
        return sentence
    least = "at least " if len(counts) > 1 and changed < seen else ""
    but = f"changed more than the length of {least}{changed:,} of {seen:,} requests"
    return replace(sentence, but=but, tone="neutral" if sentence.tone == "good" else sentence.tone)


def _no_verdict_sentence(name: str, cost: dict[str, Any], recorded: dict[str, Any]) -> Sentence:
    """The reason, and the way to an answer."""
    saved = figure(number(cost.get("token_saving")), "share")
    text = (
        f"{name}: no verdict on money: {recorded['no_verdict']}. Record one session's requests with "
        "'context-bench watch --record full --records FILE', then replay FILE."
    )
    return Sentence(name, "no verdict on money", text, "neutral", saved={"tokens": saved} if saved is not None else {})


def _cost_sentence(name: str, cost: dict[str, Any], recorded: dict[str, Any]) -> Sentence:
    ratio, saved, penalty = (number(cost.get(key)) for key in ("net_cost_ratio", "token_saving", "cache_penalty"))
    assert ratio is not None
    same = _SAME_REBUILT if recorded.get("missing") else _SAME
    verdict, tone = (
        ("cheaper", "good") if ratio < 1 - same else ("dearer", "bad") if ratio > 1 + same else ("same cost", "neutral")
    )
    parts = [f"{name}: the sessions cost {ratio:.3f} times what they cost as sent"]
    if saved is not None:
        parts.append(f"{percent(abs(saved))} {'fewer' if saved >= 0 else 'more'} prompt tokens")
    if penalty is not None and penalty > 0.0005:
        parts.append(
            f"{penalty:.3f} of that bill is lost again, since less of the prompts comes from the provider's cache"
        )
    parts += _certainty(recorded)
    figures = {"tokens": figure(saved, "share"), "money": figure(1 - ratio, "share")}
    known = {what: each for what, each in figures.items() if each is not None}
    return Sentence(name, verdict, "; ".join(parts) + ".", cast(Tone, tone), saved=known)


def _certainty(recorded: dict[str, Any]) -> Iterator[str]:
    """Sentences on the share of the bill that the logs explain."""
    rebuilt = number(recorded.get("rebuilt_share"))
    if recorded.get("missing") and rebuilt is not None:
        share = percent(rebuilt)
        yield (
            f"{share} of the billed prompt tokens could be rebuilt from the log, the rest is taken to pass unchanged "
            "(tables of tokens by our own count leave the rest out, so their shares differ from these)"
        )
    predicted, stated = (number(recorded.get(key)) for key in ("predicted_read_share", "stated_read_share"))
    if predicted is not None and stated is not None:
        yield f"read from the cache as sent: {percent(predicted)} predicted, {percent(stated)} stated by the log"


def _agreement(report: ReportContext, figures: dict[str, Any]) -> Section | None:
    baseline = figures.get("passthrough")
    shown = (
        FigureColumn("action_match", "with the recording (95 %)", "score"),
        FigureColumn("agreement", f"with {baseline} (95 %)", "score"),
        FigureColumn("n", "n"),
        *_MATCHES,
    )
    lines = [
        (report.label(line), _agreement_facts(report, line, each))
        for line, each in report.lines
        if "action_match" in each.scores
    ]
    about = (
        "Does the next action agree: the same tool calls with the same normalised arguments, or else the token F1 of "
        "what is said. "
        f"The same request gives differing replies: {baseline}#2, passthrough again, shows with {baseline} how much "
        "(the noise floor)."
    )
    return section_of("agreement", "Next action", declared_table("agreement", shown, lines, about=about))


def _agreement_facts(report: ReportContext, line: Line, each: LineAggregates) -> dict[str, Any]:
    scores = {name: mean.value for name, mean in each.scores.items()}
    return {
        **scores,
        "action_match": interval_of(report, line, "action_match", scores["action_match"], "score"),
        "agreement": interval_of(report, line, "agreement_with_passthrough", None, "score"),
        "n": each.scores["action_match"].n,
    }


def _unharmed(systems: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """The first system through which every request went and was seen."""
    return next((facts for facts in systems.values() if not facts.get("failed") and not facts.get("unseen")), None)


def _seen(facts: dict[str, Any]) -> int:
    """Requests of a system that were answered and seen behind it."""
    return int((facts.get("requests") or 0) - (facts.get("failed") or 0) - (facts.get("unseen") or 0))


def _cache(systems: dict[str, Any]) -> Section | None:
    whole = _unharmed(systems) or next(iter(systems.values()))
    lines = [(AS_SENT, {**mapping(whole.get("cache_alone")), "seen": _seen(whole)})]
    lines += [(name, {**mapping(facts.get("cache")), "seen": _seen(facts)}) for name, facts in systems.items()]
    measured = [
        (name, {**mapping(facts.get("cache")), **replies})
        for name, facts in systems.items()
        if (replies := mapping(facts.get("measured")))
    ]
    predicted = f"Predicted from the texts that went on to the provider. {_rules(systems)}".strip()
    stated = "Measured: what the provider's replies say of its cache."
    return section_of(
        "prefix-cache",
        "Prompt cache",
        declared_table("prefix-cache", (*_CACHE, _REQUESTS), lines, about=predicted),
        declared_table("measured-cache", _MEASURED, measured, about=stated),
        charts=[_waterfall(systems)],
    )


def _rules(systems: dict[str, Any]) -> str:
    gone = sum((facts.get("failed") or 0) + (facts.get("unseen") or 0) for facts in systems.values())
    return (
        f"{gone:,} request(s) failed or were not seen behind their system; they are left out on both sides."
        if gone
        else ""
    )


def _waterfall(systems: dict[str, dict[str, Any]]) -> Chart:
    """Prompt tokens read from the cache, paid again and new, request by request."""
    whole = _unharmed(systems)
    turns = turns_of(AS_SENT, (whole or next(iter(systems.values()), {})).get("by_turn_alone"))
    for name, facts in systems.items():
        stated = _counted(facts.get("by_turn_told"))
        measured = 0 < stated == _counted(facts.get("by_turn"))
        turns += turns_of(
            f"{name}, {_FROM_REPLIES}" if measured else name, facts.get("by_turn_told" if measured else "by_turn")
        )
    about = (
        "Prompt tokens of the first, second … request of a session, mean over sessions. Blue: what the provider's "
        "cache would serve by "
        f"its rules, or, where it says '{_FROM_REPLIES}', what the provider said that it did serve. "
        "Orange: what stood in the request before and was changed or moved, so that it is paid again. Grey: what is "
        "new, or what the "
        "cache's rules do not hold. A good compressor makes bars shorter without turning blue into orange."
    )
    return Chart(
        "waterfall",
        "waterfall",
        "Prompt cache, request by request",
        about,
        "request of the session",
        "prompt tokens",
        turns,
    )


def _counted(sums: Any) -> float:
    """The number of requests that sums by request number are about."""
    return sum(number(each[0]) or 0.0 for each in sums or [] if isinstance(each, list) and each)


def _cost(systems: dict[str, Any], figures: dict[str, Any]) -> Section | None:
    priced = all(facts.get("priced") for facts in systems.values())
    several = any((facts.get("sessions") or 0) > 1 for facts in systems.values())
    shown = [
        each
        for each in _COST
        if (priced or not each.key.endswith("_usd")) and (several or not each.key.endswith("_mean"))
    ]
    lines = [(name, {**mapping(facts.get("cost")), "seen": _seen(facts)}) for name, facts in systems.items()]
    about = "Below 1 the system makes the sessions cheaper. Replies cost what the recorded ones would. " + _priced(
        figures, priced
    )
    table = declared_table("replay-cost", (*shown, _REQUESTS), lines, about=about.strip())
    return section_of("replay-cost", "Cost of the sessions", table, _as_stated(systems))


def _as_stated(systems: dict[str, Any]) -> Table | None:
    """The sessions' bill as the logs state it, by the system that the most requests went through."""
    every = [mapping(facts.get("recorded")) for facts in systems.values()]
    whole = max(every, key=lambda recorded: recorded.get("requests") or 0)
    if not whole.get("stated"):
        return None
    about = "What the logs state; the dollars of the table above are these times the predicted ratio."
    if clients := whole.get("clients"):
        about += (
            f" Logs of {', '.join(map(str, clients))} leave out "
            f"{', '.join(map(str, whole.get('missing') or ['nothing']))}."
        )
    usd: Any = whole.get("usd")
    if whole.get("predicted_outputs") and usd is not None:
        usd = f"≈{dollars(usd)}"
    shown = [each for each in _RECORDED if whole.get(each.key)]
    return declared_table("recorded-bill", shown, [((), {**whole, "usd": usd})], keys=(), about=about)


def _priced(told: dict[str, Any], priced: bool) -> str:
    rules = mapping(told.get("cache_rules"))
    named = ", ".join(
        f"{model or 'a model without a name'}: {mapping(rule).get('rule')}"
        for model, rule in mapping(rules.get("models")).items()
    )
    text = f"Cache rules ({rules.get('date')}): {named}. " if named else ""
    unpriced = (
        ""
        if priced
        else "No price is known for a model here: input counts 1, replies nothing, and only ratios mean anything. "
    )
    return text + unpriced + str(rules.get("lifetimes") or "")


def _violations(systems: dict[str, Any]) -> Section | None:
    lines = [(name, violation) for name, facts in systems.items() for violation in _violations_of(facts)]
    about = "Changes other than shortening."
    table = declared_table("violations", _VIOLATIONS, lines, about=about)
    return section_of("violations", "Changes that are no compression", table)


def _repeats(systems: dict[str, Any]) -> Section | None:
    """The same sessions sent more than once (`--repeat 2`)."""
    lines = [(name, told) for name, facts in systems.items() for told in _repeated(mapping(facts.get("repeats")))]
    about = (
        "What arrived of a session the second time against the first. Behind the first difference nothing is read from "
        "the cache that the first run wrote."
    )
    return section_of("repeats", "The same session twice", declared_table("repeats", _REPEATS, lines, about=about))


def _repeated(repeats: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not repeats:
        return
    causes = mapping(repeats.get("causes"))
    what = ", ".join(f"{cause} {times:,}" for cause, times in causes.items()) or "the same bytes"
    first = mapping(repeats.get("first"))
    where = f"byte {first['byte']:,} {first['path']}".strip() if first else ""
    yield {**repeats, "what": what, "where": where}


def _violations_of(facts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    seen, violations = _seen(facts), mapping(facts.get("violations"))
    if not violations:
        yield {"what": "none", "times": 0, "requests": 0, "share": 0.0 if seen else None}
    for kind, counts in violations.items():
        what = phrase(kind, mapping(counts.get("tools")))
        yield {**counts, "what": what, "share": counts["requests"] / seen if seen else None}


def _loss(systems: dict[str, Any]) -> Section | None:
    fidelity = {name: facts for name, own in systems.items() if (facts := mapping(own.get("fidelity"))).get("pairs")}
    about = (
        "How much of each conversation was still in its last request (and before each compaction of its own). "
        "Atoms: paths, numbers, names, errors, commands, constraints and the like."
    )
    lines = [(name, {**facts, "atoms": _atoms(facts)}) for name, facts in fidelity.items()]
    lost = [
        (name, {"kind": kind, **each, "share": each["lost"] / each["atoms"]})
        for name, facts in fidelity.items()
        for kind, each in mapping(facts.get("kinds")).items()
        if each.get("lost")
    ]
    return section_of(
        "loss",
        "Lost on the way",
        declared_table("loss", _LOSS, lines, about=about),
        declared_table("lost-atoms", _LOST, lost, title="Lost by kind"),
    )


def _atoms(facts: dict[str, Any]) -> int:
    return sum(each.get("atoms") or 0 for each in mapping(facts.get("kinds")).values())


def _examples(systems: dict[str, Any]) -> Section | None:
    lines: list[tuple[str, dict[str, Any]]] = []
    for name, facts in systems.items():
        fidelity = mapping(facts.get("fidelity"))
        lines += [(name, {**each, "what": "lost"}) for each in fidelity.get("lost_atoms") or []]
        lines += [(name, {**each, "what": "made up", "role": None}) for each in fidelity.get("invented_atoms") or []]
    table = declared_table("lost-examples", _EXAMPLES, lines)
    return section_of("lost-examples", "Lost and made up, for instance", table, brief=False)


def _by_session(systems: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, {**each, "session": str(each.get("session"))})
        for name, facts in systems.items()
        for each in facts.get("by_session") or []
    ]
