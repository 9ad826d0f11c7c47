"""The bill of recorded sessions by source: one summary of counts for each session, and their sum.

A summary is a JSON object without any text of the session: names of sources (tools, commands, servers), hashes, counts
and dollars. Summaries are what the index keeps, what is added up, and what every table and picture is made of.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import canonical_json, hash_text
from context_bench.core.tokens import counter_for
from context_bench.reports.visible_text import visible
from context_bench.transcripts.cache_breaks import CacheReport, cache_breaks
from context_bench.transcripts.format import NOT_JSON
from context_bench.transcripts.itemised import MISSING, Itemised
from context_bench.transcripts.prompt_items import Amounts, PromptItem
from context_bench.transcripts.session import UNNAMED
from context_bench.transcripts.sources import KINDS, SHELLS, TokenSource, is_reader
from context_bench.wire.cache import break_even_turns
from context_bench.wire.lossless import REWRITINGS, rewritten

SCHEMA = "context-bench/explain/1"
AMOUNTS = ("new", "carried", "read", "written", "plain", "output", "usd")
POINTS = 60  # of a series over turns
DEAREST = 10  # items that are listed
BEGINNING = 120  # characters of a text, where texts are asked for


def summary(
    made: Itemised, report: CacheReport | None = None, *, turns: bool = False, texts: bool = False
) -> dict[str, Any]:
    """The summary of one session. `turns`: with the account of each turn too; `texts`: with how dear items begin."""
    found = report or cache_breaks(made)
    billed = made.billed
    items = Counter(item.source for item in made.items)
    standing: Counter[TokenSource] = Counter()
    for item in made.items:
        standing[item.source] += max(0, item.turns - 1)
    rows = [
        {
            **{"kind": source.kind, "name": source.name, "items": items[source], "carried_times": standing[source]},
            **{name: getattr(amounts, name) for name in AMOUNTS},
        }
        for source, amounts in made.sources.items()
        if amounts.input or amounts.output
    ]
    counts: dict[str, Any] = {
        **{"id": made.id, "part": made.part, "model": made.model, "format": made.meta.get("format", "")},
        **{"turns": len(made.turns), "stated": sum(turn.stated for turn in made.turns), "unpriced": made.unpriced},
        **{"outputs_counted": sum(not turn.output_stated for turn in made.turns), "≈": made.approximate},
        **{"input": billed.input, "output": billed.output, "usd": billed.usd, "read": billed.read},
        **{"written": billed.written, "rules": made.rules.rule.name, "sources": rows, "dearest": _dearest(made, texts)},
        **{name: made.meta[name] for name in ("unseen", "skipped") if made.meta.get(name)},
        **({"content": _content_hash(made)} if made.meta.get(UNNAMED) else {}),
        "series": _series(made),
        "breaks": [asdict(one) for one in found.breaks],
        "cache": {name: getattr(found, name) for name in _CACHE},
    }
    if turns:
        counts["by_turn"] = [_turn(made, number) for number in range(len(made.turns))]
    return counts


_CACHE = ("predicted", "stated", "prompt", "hour_saves", "hour_costs")


def _content_hash(made: Itemised) -> str:
    """A hash of what was said and billed in a session, and when it began where that is known."""
    items = [[item.source.kind, item.source.name, item.digest, item.first, item.turns] for item in made.items]
    billed = [[turn.model, turn.usage.input_tokens, turn.usage.output_tokens] for turn in made.turns]
    return hash_text(canonical_json([made.meta.get("began"), items, billed]), 24)


def _dearest(made: Itemised, texts: bool) -> list[dict[str, Any]]:
    ranked = sorted(made.items, key=lambda item: (-item.billed.usd, -item.billed.input, item.first))
    begins = [{"text": item.text[:BEGINNING]} if texts and item.text else {} for item in ranked[:DEAREST]]
    return [_item(made, item) | more for item, more in zip(ranked, begins, strict=False)]


def _item(made: Itemised, item: PromptItem) -> dict[str, Any]:
    return {
        **{"session": made.id, "kind": item.source.kind, "name": item.source.name, "turn": item.first + 1},
        **{"tokens": item.tokens * made.turns[item.first].scale, "times": item.turns, "input": item.billed.input},
        **{"usd": item.billed.usd, "digest": item.digest[:12], "again": item.again},
    }


def _series(made: Itemised) -> dict[str, list[float]]:
    """Prompt tokens by kind over the turns, means of at most `POINTS` equal stretches."""
    count = len(made.turns)
    stretches = min(POINTS, count)
    found: dict[str, list[float]] = {}
    for kind in KINDS:
        values = [turn.by_kind.get(kind, 0.0) for turn in made.turns]
        if any(values):
            cuts = [round(n * count / stretches) for n in range(stretches + 1)]
            found[kind] = [round(sum(values[a:b]) / (b - a)) for a, b in pairwise(cuts)]
    return found


def _turn(made: Itemised, number: int) -> dict[str, Any]:
    turn = made.turns[number]
    new: defaultdict[str, float] = defaultdict(float)
    for place in turn.added:
        if made.items[place].first == number:
            new[made.items[place].source.kind] += made.items[place].tokens * turn.scale
    usage = turn.usage
    return {
        **{"turn": number + 1, "at": turn.at, "model": turn.model, "stated": turn.stated, "usd": turn.usd},
        **{"input": usage.input_tokens, "read": usage.cache_read, "written": usage.cache_write},
        **{"predicted_read": turn.predicted_read, "output": usage.output_tokens, "scale": turn.scale},
        **{"prompt_by_kind": turn.by_kind, "new_by_kind": dict(new), "output_by_kind": turn.output},
    }


@dataclass(slots=True)
class Explained:
    """Sums over summaries. `sources` by (kind, name); `parts` by part of a session; `breaks` by cause.

    `unseen`: requests for which no answered call was seen at the provider, which are in none of the sums; `skipped`:
    reason → lines of the logs that were passed over.
    """

    sessions: int = 0
    turns: int = 0
    stated: int = 0
    unpriced: int = 0
    outputs_counted: int = 0
    unseen: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    approximate: bool = False
    sources: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    models: dict[str, float] = field(default_factory=dict)
    breaks: dict[str, dict[str, float]] = field(default_factory=dict)
    cache: dict[str, float] = field(default_factory=dict)
    dearest: list[dict[str, Any]] = field(default_factory=list)
    longest: dict[str, Any] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)
    reach: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, told: Mapping[str, Any]) -> None:
        """Take in the summary of a session."""
        self.unseen += told.get("unseen", 0)
        self.skipped.update(told.get("skipped", {}))
        if told.get("unseen") and not told["turns"]:
            return
        self.sessions += 1
        self.approximate |= bool(told["≈"])
        for name in ("turns", "stated", "unpriced", "outputs_counted"):
            setattr(self, name, getattr(self, name) + told[name])
        for row in told["sources"]:
            _plus(self.sources.setdefault((row["kind"], row["name"]), {}), row, (*AMOUNTS, "items", "carried_times"))
        part = self.parts.setdefault(told["part"], {})
        _plus(part, {**told, "sessions": 1}, ("sessions", "turns", "input", "output", "usd"))
        self.models[told["model"]] = self.models.get(told["model"], 0.0) + told["usd"]
        for one in told["breaks"]:
            row = self.breaks.setdefault(one["cause"], {})
            _plus(row, {"breaks": 1, "lost": one["lost"], "usd": one["usd"] or 0.0}, ("breaks", "lost", "usd"))
        _plus(self.cache, told["cache"], _CACHE)
        for name, bound in told.get("reach", {}).items():
            _plus(self.reach.setdefault(name, {}), bound, tuple(bound))
        self.dearest = sorted([*self.dearest, *told["dearest"]], key=_by_money)[:DEAREST]
        if told["usd"] >= self.longest.get("usd", -1.0):
            self.longest = dict(told)
        self.listed.append({name: told[name] for name in ("id", "part", "model", "turns", "input", "output", "usd")})
        self.listed.sort(key=_by_money)
        del self.listed[MOST_LISTED:]

    @property
    def total(self) -> dict[str, float]:
        """All amounts, summed over the sources; `input` too."""
        whole: dict[str, float] = {}
        for row in self.sources.values():
            _plus(whole, row, AMOUNTS)
        return {**dict.fromkeys(AMOUNTS, 0.0), **whole, "input": sum(whole.get(n, 0.0) for n in AMOUNTS[2:5])}

    def by_kind(self) -> dict[str, dict[str, float]]:
        """Amounts by kind of source, in the order of `KINDS`."""
        found: dict[str, dict[str, float]] = {}
        for (kind, _), row in self.sources.items():
            _plus(found.setdefault(kind, {}), row, (*AMOUNTS, "items", "carried_times"))
        return {kind: found[kind] for kind in KINDS if kind in found}

    @property
    def reached_nothing(self) -> list[str]:
        """A sentence for each reach that takes in nothing of these sessions; of a server with the names there are."""
        servers = sorted({server for key in self.sources if (server := TokenSource(*key).server)})
        shown = ", ".join(visible(each, 40) for each in servers[:MOST_LISTED])
        more = f" and {len(servers) - MOST_LISTED} more" if len(servers) > MOST_LISTED else ""
        there = f"there are: {shown}{more}" if servers else "no tool in these sessions is of an MCP server"
        found = []
        for name, row in self.reach.items():
            if "items" in row and not any(row.get(each) for each in ("items", "output", "sent_tokens")):
                _, _, server = name.partition("mcp:")
                why = f"no MCP server of that name stands in these sessions; {there}" if server and servers else there
                known = why if name.startswith("mcp") else "nothing of that kind stands in these sessions"
                found.append(f"{visible(name, 60)} reaches nothing: {known}.")
        return found

    def ranked(self) -> list[tuple[tuple[str, str], dict[str, float]]]:
        """Sources, the dearest first; without prices the largest."""
        return sorted(self.sources.items(), key=lambda pair: (-pair[1]["usd"], -_tokens(pair[1]), pair[0]))

    def document(self, sessions: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """All of it, JSON-ready. `sessions`: summaries to be given in full."""
        ranked = [
            {
                "kind": kind,
                "name": name,
                "title": TokenSource(kind, name).title,
                "server": TokenSource(kind, name).server,
            }
            | row
            for (kind, name), row in self.ranked()
        ]
        return {
            **{"schema": SCHEMA, "sessions": self.sessions, "turns": self.turns, "turns_stated": self.stated},
            **{"approximate": self.approximate, "unpriced_turns": self.unpriced, "total": self.total},
            **{"outputs_counted": self.outputs_counted, "by_kind": self.by_kind(), "sources": ranked},
            **{"parts": self.parts, "models": self.models, "breaks": self.breaks, "cache": self.cache},
            **{"dearest": self.dearest, "reach": self.reach, "dearest_sessions": self.listed},
            **({"unseen_turns": self.unseen} if self.unseen else {}),
            **({"skipped": dict(sorted(self.skipped.items()))} if self.skipped else {}),
            "reach_notes": self.reached_nothing,
            "by_session": list(sessions),
        }


MOST_LISTED = 20


def _tokens(row: Mapping[str, float]) -> float:
    return sum(row.get(name, 0.0) for name in ("read", "written", "plain", "output"))


def _by_money(row: Mapping[str, Any]) -> tuple[float, float]:
    return -row["usd"], -row["input"]


def _plus(into: dict[str, float], row: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        into[name] = into.get(name, 0.0) + (row.get(name) or 0)


#: Names that nobody chose for themselves: tools of known clients, usual programs, and what these are told to do.
_NAMES = """
AskUserQuestion Bash BashOutput Edit ExitPlanMode Glob Grep KillShell LS MultiEdit NotebookEdit NotebookRead Read Skill
SlashCommand Task TodoRead TodoWrite ToolSearch WebFetch WebSearch Write apply_patch bash edit exec_command glob
google_web_search grep list list_directory local_shell patch read read_file replace run_shell_command save_memory
search_file_content shell task todoread todowrite update_plan view view_image web_fetch web_search webfetch write
write_file write_stdin
apt awk bun cargo cat chmod cmake cp curl cut date df diff docker du echo env false file find gh git go gradle head helm
java jq kill kubectl less ls make mkdir mvn mv mypy node npm npx pip pip3 pnpm poetry ps psql pwd pytest python python3
rg rm ruff rustc sed sh sleep sort ssh stat tail tar terraform test touch tree true tsc uniq unzip uv uvx wc wget which
xargs yarn
add apply blame branch build check checkout ci clean clone commit compose config exec fetch fmt get init install logs
ls-files merge pull push rebase reset restore rev-parse run show stash status switch tag vet log freeze
"""
_KNOWN = frozenset({*_NAMES.split(), "memory files", "reminders"})


def public_name(name: str) -> str:
    """A name of a source as a page to share shows it: what is not known to be nobody's own is a hash of it."""

    def shown(word: str) -> str:
        return word if word in _KNOWN else f"#{hash_text(word, 6)}"

    if not name or name in _KNOWN:
        return name
    if name.startswith("mcp__") and name.count("__") >= 2:
        _, server, tool = name.split("__", 2)
        return f"mcp__{shown(server)}__{shown(tool)}"
    head, _, rest = name.partition(": ")
    return f"{shown(head)}: {' '.join(map(shown, rest.split()))}" if rest else shown(head)


_NOT_SHARED = frozenset({"text", "digest", "sources", "breaks", "dearest", "by_turn"})


def shareable(told: Explained) -> Explained:
    """The same without names that a user chose: of sessions, servers, tools and programs of one's own."""

    def plain(row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: public_name(value)
            if key == "name"
            else f"#{hash_text(value, 6)}"
            if key in ("id", "session")
            else value
            for key, value in row.items()
            if key not in ("text", "digest", "sources", "breaks", "dearest", "by_turn")
        }

    sources: dict[tuple[str, str], dict[str, float]] = {}
    for (kind, name), row in told.sources.items():
        _plus(sources.setdefault((kind, public_name(name)), {}), row, row)
    reach = {
        f"mcp:{public_name(name[4:])}" if name.startswith("mcp:") else name.partition(":")[0]: row
        for name, row in told.reach.items()
    }
    broken = told.skipped[NOT_JSON]
    return replace(
        told,
        sources=sources,
        reach=reach,
        dearest=[plain(item) for item in told.dearest],
        listed=[plain(row) for row in told.listed],
        longest=plain(told.longest),
        skipped=+Counter({NOT_JSON: broken, "of other kinds": told.skipped.total() - broken}),
    )


# Reach
# ------------------------------------------------------------------------
#
# The most that a tool could save which touches only some of a prompt, in tokens and in money after the cache. A reach
# is a set of items. The bound is what these items were billed, in every turn that they stood in, at the prices that
# they were paid at: a tool that takes them away whole, where they come in, and costs nothing itself, saves so much and
# no more. One that takes them out of a history that the cache holds pays for the rewrite of what follows.

Reach = Callable[[Itemised, PromptItem], float]  # share of the item's tokens that can be reached, 0 to 1
NAMES = ("bash", "tool-results", "mcp", "tools-unused", "history", "reread", "thinking", *REWRITINGS)
_LARGER = re.compile(r"(?P<name>tool-results|bash)>(?P<count>\d+(?:\.\d+)?)(?P<unit>[kM]?)")
_EXPECTED = (
    "bash, tool-results, tool-results>2k, mcp, mcp:NAME, tools-unused, history, reread, thinking, minify, csv, toon, "
    "or py:MODULE:FUNCTION"
)


def reach_of(spec: str) -> Reach:
    """The reach that `--reach` names. Raises `BadInput`."""
    if spec.startswith("py:"):
        return _own(spec)
    if spec.startswith("mcp:") and len(spec) > 4:
        return lambda _, item: float(item.source.server == spec[4:])
    if (found := _LARGER.fullmatch(spec)) is not None:
        least = float(found["count"]) * {"": 1, "k": 1e3, "M": 1e6}[found["unit"]]
        return lambda made, item: _reached(found["name"], made, item) * (item.tokens * made.account.scale > least)
    if spec not in NAMES:
        raise BadInput(f"--reach {spec!r}: expected {_EXPECTED}")
    return lambda made, item: _reached(spec, made, item)


def needs_texts(specs: Iterable[str]) -> bool:
    """True if one of the reaches looks at the texts."""
    return any(spec in REWRITINGS or spec.startswith("py:") for spec in specs)


def _own(spec: str) -> Reach:
    """A predicate of one's own: a function of a `PromptItem` that gives true, false or a share."""
    from context_bench.core.plugins import load_object

    function = load_object(spec.removeprefix("py:"))
    if not callable(function):
        raise BadInput(f"--reach {spec}: no function; expected one that takes an item and gives true, false or a share")

    def reach(_: Itemised, item: PromptItem) -> float:
        try:
            share = float(function(item))
        except Exception as error:
            raise BadInput(f"--reach {spec} failed on an item of {item.source.title}: {error!r}") from error
        if not 0 <= share <= 1:
            raise BadInput(f"--reach {spec} gave {share!r}; expected true, false, or a share from 0 to 1")
        return share

    return reach


def _reached(name: str, made: Itemised, item: PromptItem) -> float:
    source = item.source
    if name in REWRITINGS:
        return _lossless(name, item, made.model) if source.kind == "results" else 0.0
    found = {
        "bash": source.kind == "results" and source.name.partition(":")[0].lower() in SHELLS,
        "tool-results": source.kind == "results",
        "mcp": source.server is not None,
        "tools-unused": source.kind == "tools" and source.name not in _used(made),
        "history": source.kind not in ("tools", "system", "missing"),
        "reread": item.again and is_reader(source),
        "thinking": source.kind == "thinking",
    }
    return float(found[name])


def _used(made: Itemised) -> frozenset[str]:
    """Tools that were called in the session."""
    names = {source.name.partition(": ")[0] for source in made.sources if source.kind == "calls"}
    return frozenset(names)


def bounds(made: Itemised, reaches: Mapping[str, Reach]) -> dict[str, dict[str, float]]:
    """Reach → what it could save in one session: `items`, `tokens` (prompt tokens over all turns), `read` (of these,
    from the cache), `usd`; of replies `output`. `rewrite_tokens`, `pays_after_turns_sum`: see `pays_after`.
    """
    return {name: _bound(made, name, reach) for name, reach in reaches.items()}


def achieved(sent: Itemised, arrived: Itemised, reaches: Mapping[str, Reach]) -> dict[str, dict[str, float]]:
    """Reach → what a system made of it: `sent_tokens`, the prompt tokens over all requests that it could have taken
    away, `saved_tokens`, those of them that did not arrive, and `all_tokens`, all that were sent. By our own count on
    both sides: the bill is of what arrived.
    """
    everything = float(sum(item.tokens * item.turns for item in sent.items))
    found = {}
    for name, reach in reaches.items():
        before, after = (_reachable(made, name, reach) for made in (sent, arrived))
        found[name] = {"sent_tokens": before, "saved_tokens": before - after, "all_tokens": everything}
    return found


def _reachable(made: Itemised, name: str, reach: Reach) -> float:
    """Prompt tokens over all requests that a reach takes in, by our own count."""
    return sum(reach(made, item) * item.tokens * (item.turns - (name == "history")) for item in made.items)


def _bound(made: Itemised, name: str, reach: Reach) -> dict[str, float]:
    row = dict.fromkeys(("items", "tokens", "read", "usd", "output", "once"), 0.0)
    last = len(made.turns) - 1
    standing = 0.0
    for item in made.items:
        share = reach(made, item)
        if not share:
            continue
        billed = item.billed
        new = billed.new if name == "history" else 0.0  # what is new is no history yet
        part = share * (1 - new / billed.input) if billed.input else 0.0
        row["items"] += 1
        row["tokens"] += part * billed.input
        row["read"] += share * billed.read
        row["usd"] += part * billed.usd
        row["once"] += share * item.tokens * made.account.scale
        standing += share * item.tokens * made.account.scale if item.last == last else 0.0
    if name == "thinking":
        output = [amounts for source, amounts in made.sources.items() if source.kind == "thinking"]
        items = sum(item.billed.usd for item in made.items if item.source.kind == "thinking")
        row["output"] = sum(amounts.output for amounts in output)
        row["usd"] += sum(amounts.usd for amounts in output) - items
    row |= _pays(made, standing)
    return row


def _pays(made: Itemised, removed: float) -> dict[str, float]:
    """Further turns until one rewrite of the last prompt has paid for itself, weighed by what it takes away."""
    if removed <= 0 or not made.turns:
        return {"standing": 0.0, "turns_weighed": 0.0}
    total = float(made.turns[-1].usage.input_tokens or 0)
    head = made.turns[-1].missing + sum(
        item.tokens * made.turns[-1].scale
        for item in made.items
        if item.source.kind in ("tools", "system", "missing") and item.last == len(made.turns) - 1
    )
    profile = made.rules.profile
    turns = break_even_turns(total, min(head, total - removed), removed, profile.r, profile.w) if profile.r else 0.0
    return {"standing": removed, "turns_weighed": max(0.0, turns) * removed}


def _lossless(name: str, item: PromptItem, model: str) -> float:
    """Share of a result's tokens that a rewriting without loss would save."""
    if not item.text or not item.tokens or (shorter := rewritten(item.text, name)) == item.text:
        return 0.0
    return max(0.0, 1 - counter_for(model or None).count(shorter) / item.tokens)


__all__ = ["AMOUNTS", "MISSING", "SCHEMA", "Amounts", "Explained", "public_name", "shareable", "summary"]
