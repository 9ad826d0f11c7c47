"""Sections on the replay of recorded sessions: prompt cache, money, violations, loss, and whether the agent would have
done the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from context_bench.core.numbers import number
from context_bench.reports.declared import figure, mapping
from context_bench.reports.page import Cell, Chart, Column, Section, Sentence, Table, Tone
from context_bench.reports.plotting import turns_of
from context_bench.reports.report_context import ReportContext, interval_of
from context_bench.wire.violations import phrase

AS_SENT = "as sent"
_FROM_REPLIES = "as replies told"
#: Ratios so near to 1 are the same cost; nearer where requests had to be rebuilt, which is right to about 2 %.
_SAME, _SAME_REBUILT = 0.0005, 0.02
_RECORDED = (
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
_CACHE = (
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
_COST = (
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
_LOSS = (
    ("atoms", "atoms", "count", "different ones in the conversations"),
    ("retained", "retained", "share", "share of the atoms that still arrive"),
    ("macro", "mean of kinds", "share", "mean over kinds with at least five atoms"),
    ("fabricated", "made up", "share", "share of the arriving atoms that were never sent"),
    ("word_damage", "broken words", "share", "share of the arriving words that were never sent"),
)
_MATCHES = (("tool_match", "tool"), ("argument_match", "arguments"), ("text_f1", "text F1"))


def replay(material: ReportContext) -> list[Section | None]:
    """The sections of a replay; none for any other run."""
    told = mapping(material.result.replay)
    systems = {name: facts for name, facts in mapping(told.get("systems")).items() if isinstance(facts, dict)}
    if not systems:
        return []
    cache = _cache(systems)
    if cache is not None and (chart := _waterfall(systems)).data:
        cache.charts = [chart]
    return [
        _agreement(material, told),
        cache,
        _cost(systems, told),
        _violations(systems),
        _loss(systems),
        _examples(systems),
        _sessions(systems),
    ]


def replay_sentences(material: ReportContext) -> list[Sentence]:
    """The cost of replayed sessions through each system, in words: what its shorter prompts save, and what the lost
    cache takes back.
    """
    systems = mapping(mapping(material.result.replay).get("systems"))
    found = (
        (str(name), mapping(mapping(facts).get("cost")), mapping(mapping(facts).get("recorded")))
        for name, facts in systems.items()
    )
    return [
        _no_verdict_sentence(name, cost, recorded) if "no_verdict" in recorded else _cost_sentence(name, cost, recorded)
        for name, cost, recorded in found
        if "no_verdict" in recorded or number(cost.get("net_cost_ratio")) is not None
    ]


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
        parts.append(f"{abs(saved):.1%} {'fewer' if saved >= 0 else 'more'} prompt tokens".replace("%", " %"))
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
        yield f"{rebuilt:.0%} of the billed prompt tokens could be rebuilt from the log, the rest is taken to pass unchanged".replace(  # noqa: E501
            "%", " %"
        )
    predicted, stated = (number(recorded.get(key)) for key in ("predicted_read_share", "stated_read_share"))
    if predicted is not None and stated is not None:
        yield f"read from the cache as sent: {predicted:.0%} predicted, {stated:.0%} stated by the log".replace(
            "%", " %"
        )


def _agreement(material: ReportContext, told: dict[str, Any]) -> Section | None:
    baseline = told.get("passthrough")
    matched = [(line, each) for line, each in material.lines if "action_match" in each.scores]
    if not matched:
        return None
    columns = [
        Column("System", False),
        Column("with the recording (95 %)"),
        Column(f"with {baseline} (95 %)"),
        Column("n"),
    ]
    columns += [Column(title, about=f"{name} against the recording") for name, title in _MATCHES]
    rows: list[list[Cell]] = []
    for line, each in matched:
        scores = {name: mean.value for name, mean in each.scores.items()}
        cells: list[Cell] = [
            interval_of(material, line, "action_match", scores["action_match"], "score"),
            interval_of(material, line, "agreement_with_passthrough", None, "score"),
            figure(each.scores["action_match"].n, "count"),
        ]
        cells += [figure(scores.get(name), "score") for name, _ in _MATCHES]
        rows.append([material.label(line), *cells])
    about = (
        "Does the next action agree: the same tool calls with the same normalised arguments, or else the token F1 of "
        "what is said. "
        f"The same request gives differing replies: {baseline}#2, passthrough again, shows with {baseline} how much "
        "(the noise floor)."
    )
    return Section("agreement", "Next action", tables=[Table("agreement", columns, rows, about=about)])


def _cache(systems: dict[str, Any]) -> Section:
    columns = [
        Column("System", False),
        *(Column(title, about=about) for _, title, _, about in _CACHE),
        Column("requests"),
    ]
    whole = next(
        (facts for facts in systems.values() if not facts.get("failed") and not facts.get("unseen")),
        next(iter(systems.values())),
    )
    rows = [_cells(AS_SENT, mapping(whole.get("cache_alone")), _CACHE, whole)]
    rows += [_cells(name, mapping(facts.get("cache")), _CACHE, facts) for name, facts in systems.items()]
    tables = [
        Table(
            "prefix-cache",
            columns,
            rows,
            about=f"Predicted from the texts that went on to the provider. {_rules(systems)}".strip(),
        )
    ]
    if measured := list(_measured(systems)):
        titles = ("predicted read", "measured read", "predicted written", "measured written", "replies that told")
        about = "Measured: what the provider's replies say of its cache."
        tables.append(Table("measured-cache", [Column("System", False), *map(Column, titles)], measured, about=about))
    return Section("prefix-cache", "Prompt cache", tables=tables)


def _rules(systems: dict[str, Any]) -> str:
    gone = sum((facts.get("failed") or 0) + (facts.get("unseen") or 0) for facts in systems.values())
    return (
        f"{gone:,} request(s) failed or were not seen behind their system; they are left out on both sides."
        if gone
        else ""
    )


def _cells(label: str, values: dict[str, Any], entries: Any, facts: dict[str, Any]) -> list[Cell]:
    seen = (facts.get("requests") or 0) - (facts.get("failed") or 0) - (facts.get("unseen") or 0)
    return [
        label,
        *(figure(values.get(key), unit, digits=3 if unit == "number" else None) for key, _, unit, _ in entries),
        figure(seen, "count"),
    ]


def _measured(systems: dict[str, Any]) -> Iterator[list[Cell]]:
    for name, facts in systems.items():
        told, cache = mapping(facts.get("measured")), mapping(facts.get("cache"))
        if told:
            values = (
                cache.get("read"),
                told.get("cache_read"),
                cache.get("write"),
                told.get("cache_write"),
                told.get("requests"),
            )
            yield [name, *(figure(value, "count") for value in values)]


def _waterfall(systems: dict[str, dict[str, Any]]) -> Chart:
    """Prompt tokens read from the cache, paid again and new, request by request."""
    whole = next((facts for facts in systems.values() if not facts.get("failed") and not facts.get("unseen")), None)
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


def _cost(systems: dict[str, Any], told: dict[str, Any]) -> Section:
    priced = all(facts.get("priced") for facts in systems.values())
    several = any((facts.get("sessions") or 0) > 1 for facts in systems.values())
    entries = [e for e in _COST if (priced or not e[0].endswith("_usd")) and (several or not e[0].endswith("_mean"))]
    columns = [
        Column("System", False),
        *(Column(title, about=about) for _, title, _, about in entries),
        Column("requests"),
    ]
    rows = [_cells(name, mapping(facts.get("cost")), entries, facts) for name, facts in systems.items()]
    about = "Below 1 the system makes the sessions cheaper. Replies cost what the recorded ones would. " + _priced(
        told, priced
    )
    tables = [Table("replay-cost", columns, rows, about=about.strip())]
    if (stated := _as_stated(systems)) is not None:
        tables.append(stated)
    return Section("replay-cost", "Cost of the sessions", tables=tables)


def _as_stated(systems: dict[str, Any]) -> Table | None:
    """The sessions' bill as the logs state it, by the system that the most requests went through."""
    every = [mapping(facts.get("recorded")) for facts in systems.values()]
    whole = max(every, key=lambda recorded: recorded.get("requests") or 0)
    if not whole.get("stated"):
        return None
    entries = [entry for entry in _RECORDED if whole.get(entry[0])]
    about = "What the logs state; the dollars of the table above are these times the predicted ratio."
    if clients := whole.get("clients"):
        about += (
            f" Logs of {', '.join(map(str, clients))} leave out "
            f"{', '.join(map(str, whole.get('missing') or ['nothing']))}."
        )
    cells: list[Cell] = [figure(whole.get(key), unit) for key, _, unit, _ in entries]
    if whole.get("predicted_outputs") and whole.get("usd") is not None:
        cells[-1] = f"≈${whole['usd']:,.4f}"
    return Table(
        "recorded-bill", [Column(title, about=about_it) for _, title, _, about_it in entries], [cells], about=about
    )


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


def _violations(systems: dict[str, Any]) -> Section:
    columns = [Column("System", False), Column("what", False), Column("times"), Column("requests"), Column("share")]
    rows: list[list[Cell]] = []
    for name, facts in systems.items():
        seen = (facts.get("requests") or 0) - (facts.get("failed") or 0) - (facts.get("unseen") or 0)
        for kind, counts in mapping(facts.get("violations")).items():
            share = counts["requests"] / seen if seen else None
            what = phrase(kind, mapping(counts.get("tools")))
            rows.append(
                [
                    name,
                    what,
                    figure(counts["times"], "count"),
                    figure(counts["requests"], "count"),
                    figure(share, "share"),
                ]
            )
        if not facts.get("violations"):
            rows.append([name, "none", figure(0, "count"), figure(0, "count"), figure(0.0 if seen else None, "share")])
    about = "What was done to the requests that shortening their texts does not explain."
    return Section(
        "violations", "Changes that are no compression", tables=[Table("violations", columns, rows, about=about)]
    )


def _loss(systems: dict[str, Any]) -> Section | None:
    told = {
        name: mapping(facts.get("fidelity"))
        for name, facts in systems.items()
        if mapping(facts.get("fidelity")).get("pairs")
    }
    if not told:
        return None
    columns = [Column("System", False), *(Column(title, about=about) for _, title, _, about in _LOSS)]
    rows = [
        [name, *(figure(_atoms(facts) if key == "atoms" else facts.get(key), unit) for key, _, unit, _ in _LOSS)]
        for name, facts in told.items()
    ]
    about = (
        "What of each conversation still arrived with its last request (and before each compaction of its own). "
        "Atoms: paths, numbers, names, errors, commands, constraints and the like."
    )
    tables = [Table("loss", columns, rows, about=about)]
    if lost := [line for name, facts in told.items() for line in _lost(name, facts)]:
        titles = [Column("System", False), Column("kind", False), Column("atoms"), Column("lost"), Column("share")]
        tables.append(Table("lost-atoms", titles, lost, title="Lost by kind"))
    return Section("loss", "Lost on the way", tables=tables)


def _atoms(facts: dict[str, Any]) -> int:
    return sum(each.get("atoms") or 0 for each in mapping(facts.get("kinds")).values())


def _lost(name: str, facts: dict[str, Any]) -> Iterator[list[Cell]]:
    for kind, each in mapping(facts.get("kinds")).items():
        if each.get("lost"):
            yield [
                name,
                kind,
                figure(each["atoms"], "count"),
                figure(each["lost"], "count"),
                figure(each["lost"] / each["atoms"], "share"),
            ]


def _examples(systems: dict[str, Any]) -> Section | None:
    rows: list[list[Cell]] = []
    for name, facts in systems.items():
        found = mapping(facts.get("fidelity"))
        rows += [
            [name, "lost", str(each["kind"]), str(each["atom"]), str(each["role"])]
            for each in found.get("lost_atoms") or []
        ]
        rows += [
            [name, "made up", str(each["kind"]), str(each["atom"]), None] for each in found.get("invented_atoms") or []
        ]
    if not rows:
        return None
    columns = [Column(title, False) for title in ("System", "what", "kind", "atom", "said by")]
    return Section(
        "lost-examples", "Lost and made up, for instance", tables=[Table("lost-examples", columns, rows)], brief=False
    )


def _sessions(systems: dict[str, Any]) -> Section:
    titles = ("requests", "sent", "forwarded", "saved", "cost ratio", "prefix stability", "breaks")
    columns = [Column("System", False), Column("session", False), *map(Column, titles)]
    rows: list[list[Cell]] = []
    for name, facts in systems.items():
        for each in facts.get("by_session") or []:
            cells = [
                figure(each.get("requests"), "count"),
                figure(each.get("sent"), "count"),
                figure(each.get("forwarded"), "count"),
                figure(each.get("token_saving"), "share"),
                figure(each.get("net_cost_ratio"), "number", digits=3),
                figure(each.get("prefix_stability"), "share"),
                figure(each.get("prefix_breaks"), "count"),
            ]
            rows.append([name, str(each.get("session")), *cells])
    return Section(
        "replay-sessions", "Session by session", tables=[Table("replay-sessions", columns, rows)], brief=False
    )
