"""`context-bench compress …`: measure what a compressor did to recorded texts and sessions. No model and no network are needed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.cli import compress_run
from context_bench.cli.gate import MaxOption, MinOption, hold, limits
from context_bench.core.errors import BadInput

if TYPE_CHECKING:
    from context_bench.core.cachecost import CacheProfile
    from context_bench.core.fidelity import Fidelity, Summary
    from context_bench.core.session import Session
    from context_bench.core.strategies import StrategyRow
    from context_bench.reports.grids import Grid

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure what a compressor did to recorded texts and sessions.")
app.command("run")(compress_run.run)
app.command("probe")(compress_run.probe)

OutputOption = Annotated[str, typer.Option("--output", help="table, json, markdown.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Write to this file instead of stdout.")]

#: What the short names of `--profile` stand for.
PROFILES = {"openai": "gpt-5", "openai-5.6": "gpt-5.6", "anthropic": "claude-sonnet-5", "vllm": "vllm", "deepseek": "deepseek-chat"}
_FIDELITY = (
    *("retained", "recoverable", "lost", "macro", "fabricated", "near_misses", "word_damage", "coverage", "density", "verbatim_lines"),
    *("order", "utf8_ok", "replacement_chars", "json_ok", "keep", "removal", "fold", "mean_keep", "keep_error", "expansion_share"),
    *("unchanged_share", "answer_in_context", "answer_introduced", "evidence_recall"),
)
_LESS = ("lost", "fabricated", "near_misses", "word_damage", "replacement_chars", "keep", "mean_keep", "keep_error", "expansion_share")


@app.command("fidelity")
def fidelity_command(
    original: Annotated[Path, typer.Argument(help="JSON lines of pairs; or the original text, if a second file is given.")],
    compressed: Annotated[Path | None, typer.Argument(help="What was made of it.")] = None,
    output: OutputOption = "table",
    out: OutOption = None,
    minimum: MinOption = None,
    maximum: MaxOption = None,
    examples: Annotated[int, typer.Option(help="How many lost atoms to show.")] = 20,
    model: Annotated[str | None, typer.Option(help="Count tokens as this model does.")] = None,
) -> int:
    """What was kept, lost and made up: atoms by kind, role, position and script; fragments; lines; words; size.

    A line of the JSONL has `original` and `compressed` (texts or message lists), and may have `id`, `requested_keep`, `answers`,
    `evidence`, and `retrievable` (marker in the compressed text → the text that asking for it brings back).
    """
    from context_bench.core.fidelity import summarise

    summary = summarise(_measured(original, compressed, model), examples=examples)
    document = {
        "schema": "context-bench/compress-fidelity/1",
        "pairs": summary.pairs,
        "metrics": summary.metrics,
        "known": list(_FIDELITY),
        "less_is_better": list(_LESS),
        **{name: _tallies(getattr(summary, name)) for name in ("kinds", "roles", "deciles", "scripts")},
        "lost": [asdict(one) for one in summary.lost],
        "near_misses": [asdict(one) for one in summary.near_misses],
        "invented": [{"kind": kind, "atom": atom} for kind, atom in summary.invented],
    }
    _publish(document, lambda: _fidelity_grids(summary), output, out, minimum, maximum)
    return 0


def _measured(original: Path, compressed: Path | None, model: str | None) -> Iterable[Fidelity]:
    from context_bench.cli import pairs
    from context_bench.core.fidelity import fidelity
    from context_bench.core.tokens import counter_for

    counter = counter_for(model)
    if compressed is not None:
        yield fidelity(_text(original), _text(compressed), counter=counter)
        return
    for pair in pairs.read(original):
        where = f"{original}, pair {pair.id}"
        answers = pair.more.get("answers", pair.more.get("answer", []))
        found = fidelity(
            pairs.text_or_messages(pair.before, where),
            pairs.text_or_messages(pair.after, where),
            retrievable=_object(pair.more.get("retrievable")),
            answers=[answers] if isinstance(answers, str) else [str(answer) for answer in answers],
            evidence=[str(sentence) for sentence in pair.more.get("evidence") or []],
            requested_keep=_number(pair.more.get("requested_keep")),
            counter=counter,
        )
        found.id = pair.id
        yield found


def _text(path: Path) -> str:
    if not path.is_file():
        raise BadInput(f"no file {path}")
    return path.read_bytes().decode("utf-8", "replace")


def _object(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _tallies(tallies: Mapping[Any, Any]) -> dict[str, dict[str, int]]:
    return {
        str(key): {"total": tally.total, "retained": tally.retained, "recoverable": tally.recoverable, "lost": tally.lost}
        for key, tally in sorted(tallies.items())
    }


def _fidelity_grids(summary: Summary) -> list[Grid]:
    from context_bench.reports.grids import Grid, number, share

    grids = []
    deciles = {f"{decile * 10}-{decile * 10 + 10} %": tally for decile, tally in sorted(summary.deciles.items())}
    for name, tallies in (("kind", summary.kinds), ("role", summary.roles), ("position", deciles), ("script", summary.scripts)):
        rows: list[Sequence[str]] = []
        for label, tally in tallies.items() if tallies is deciles else sorted(tallies.items()):
            counts = [f"{count:,}" for count in (tally.total, tally.retained, tally.recoverable, tally.lost)]
            rows.append((label, *counts, share(tally.share)))
        grids.append(Grid(f"Atoms by {name}", (name, "all", "retained", "recoverable", "lost", "share"), rows))
    shares = {"retained", "recoverable", "lost", "macro", "fabricated", "word_damage", "coverage", "verbatim_lines", "keep", "removal"}
    shares |= {
        "mean_keep",
        "expansion_share",
        "unchanged_share",
        "answer_in_context",
        "answer_introduced",
        "evidence_recall",
        "utf8_ok",
        "json_ok",
    }
    told = [(name, value) for name, value in summary.metrics.items() if not name.startswith(("retained.", "fabricated."))]
    measures = [(name, share(value) if name.partition(".")[0] in shares else number(value)) for name, value in told]
    grids.append(Grid(f"{summary.pairs:,} pairs", ("measure", "value"), list(measures)))
    if summary.lost:
        lost = [(one.kind, one.role, f"{one.decile * 10} %", one.atom) for one in summary.lost]
        grids.append(Grid("Lost, the first of them", ("kind", "role", "at", "atom"), list(lost), words=True))
    if summary.near_misses:
        changed = [(miss.key, miss.before, miss.after) for miss in summary.near_misses]
        grids.append(Grid("The same key with another value", ("key", "before", "after"), list(changed), words=True))
    return grids


# On the wire ----------------------------------------------------------------------------------------------------------------------------


@app.command("wire")
def wire_command(
    given: Annotated[
        list[str],
        typer.Argument(
            help="JSON lines with `original` and `compressed`: message lists or whole request bodies. With --proxy: recorded sessions.",
            metavar="PAIRS|SESSIONS...",
        ),
    ],
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Send sessions through this proxy, whose own upstream is the tap, and look at what arrives.", metavar="URL"),
    ] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of the proxy at the same position; default host:port.")] = None,
    tap: Annotated[str, typer.Option(help="With --proxy: port to start the tap on, or the URL of a running one.")] = "9090",
    wire: Annotated[str | None, typer.Option(help="With --proxy: render sessions for openai, anthropic or responses.")] = None,
    max_sessions: Annotated[int | None, typer.Option("-n", "--max-sessions", help="With --proxy: most sessions to send.")] = None,
    store: Annotated[str | None, typer.Option(help="With --proxy: where results are kept.", metavar="URL")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    output: OutputOption = "table",
    out: OutOption = None,
    minimum: MinOption = None,
    maximum: MaxOption = None,
) -> int:
    """What was done to requests that is no compression: roles, tool calls, parameters, marks, signed blocks, bytes.

    Also read of pairs: `original_headers` and `compressed_headers`, `original_raw` and `compressed_raw` (bodies as text). Every kind of
    violation is a metric (how often it occurred), `violations` their sum: `--max violations=0` is a gate. With --proxy nothing is asked of
    a model (`replay --upstream echo`): also tokens, prefix stability, cache, money, and what was lost; these are metrics as well.
    """
    if proxy:
        told: dict[str, Any] = {"proxy": proxy, "name": name, "tap": tap, "wire": wire, "max_examples": max_sessions, "store": store}
        told |= {"sessions": given, "quiet": quiet, "output": output, "out": out}
        return _wire_of_proxies({key: value for key, value in told.items() if value}, minimum or [], maximum or [])
    if len(given) != 1:
        raise BadInput(f"{len(given)} files of pairs; give one, or --proxy URL to send recorded sessions through a proxy")
    pairs = Path(given[0])
    from context_bench.core.violations import KINDS

    kinds: Counter[str] = Counter()
    affected: Counter[str] = Counter()
    listed: list[dict[str, Any]] = []
    count = 0
    for ident, found in _violations(pairs):
        count += 1
        kinds.update(violation.kind for violation in found)
        affected.update({violation.kind for violation in found})
        listed += [{"id": ident, **asdict(violation)} for violation in found]
    document = {
        "schema": "context-bench/compress-wire/1",
        "pairs": count,
        "metrics": {"violations": kinds.total(), **{kind: kinds[kind] for kind in KINDS}},
        "less_is_better": ["violations", *KINDS],
        "violations": listed,
    }

    def grids() -> list[Grid]:
        from context_bench.reports.grids import Grid

        rows = [(kind, f"{kinds[kind]:,}", f"{affected[kind]:,}") for kind in KINDS if kinds[kind]]
        shown = [(one["kind"], one["id"], one["detail"]) for one in listed[:20]]
        summary = Grid(f"Violations (requests: {count:,})", ("kind", "times", "requests"), list(rows), "" if rows else "none")
        return [summary, Grid("The first of them", ("kind", "request", "what"), list(shown), words=True)] if shown else [summary]

    _publish(document, grids, output, out, minimum, maximum)
    return 0


def _wire_of_proxies(told: dict[str, Any], minimum: list[str], maximum: list[str]) -> int:
    """A replay at level 0; its figures are held against the limits, proxy by proxy."""
    from context_bench.cli.options import read_options
    from context_bench.cli.replaying import ReplayOptions, replay_sessions

    def held(result: Any) -> None:
        documents = [_replayed(system, facts) for system, facts in result.replay["systems"].items()]
        hold([check for document in documents for check in limits(document, minimum, maximum)])

    tap = told["tap"]
    upstream = {"upstream": "echo"} if tap.isdigit() else {}
    return replay_sessions(read_options({**told, **upstream, "level": 0}, None, ReplayOptions), held)


def _replayed(system: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one proxy as a document for gates: violations by kind, cache, saving, loss."""
    from context_bench.core.violations import KINDS

    times = {kind: told["times"] for kind, told in facts["violations"].items()}
    shares = {**facts["cache"], **facts["cost"], **facts["fidelity"], "forwarded": facts["tokens"]["forwarded"]}
    figures = {name: value for name, value in shares.items() if isinstance(value, int | float)}
    metrics = {**figures, "violations": sum(times.values()), **{kind: times.get(kind, 0) for kind in KINDS}}
    return {"system": system, "metrics": metrics}


def _violations(path: Path) -> Iterable[tuple[str, list[Any]]]:
    from context_bench.cli import pairs
    from context_bench.compression import compare_requests, read_request

    for pair in pairs.read(path):
        if isinstance(pair.before, str) or isinstance(pair.after, str):
            raise BadInput(f"{path}, pair {pair.id}: a text has no roles; expected message lists or whole request bodies")
        headers = [_object(pair.more[name]) if name in pair.more else None for name in ("original_headers", "compressed_headers")]
        raw = [str(pair.more[name]).encode() if name in pair.more else None for name in ("original_raw", "compressed_raw")]
        yield (
            pair.id,
            compare_requests(
                read_request(pair.before),
                read_request(pair.after),
                sent_headers=headers[0],
                received_headers=headers[1],
                sent_raw=raw[0],
                received_raw=raw[1],
            ),
        )


# Caches and money -----------------------------------------------------------------------------------------------------------------------


@app.command("cache")
def cache_command(
    sessions: Annotated[list[str] | None, typer.Argument(help="Recorded sessions: files, folders, or bundled:sessions/NAME.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="The made-up session: 40 turns, 2,000 tokens of head, 1,000 per turn.")
    ] = False,
    profile: Annotated[
        list[str] | None,
        typer.Option(help="Billing rules: openai, openai-5.6, anthropic, vllm, deepseek, a model's name, or a TOML file; repeatable."),
    ] = None,
    price: Annotated[str | None, typer.Option(help="INPUT,OUTPUT in USD per million tokens, instead of the price table.")] = None,
    output: OutputOption = "table",
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file; .svg and .html give the picture.")] = None,
    minimum: MinOption = None,
    maximum: MaxOption = None,
) -> int:
    """What keeping a session short does to the prompt cache and the bill: each session as recorded, and six strategies on it.

    Ratios are against the untouched session. A session with the id of one in an earlier file (another arm of it) is also compared
    with that one. Metrics for gates: `cost_ratio`, `token_saving`, `cacheable_prefix_share`, `prefix_stability`, `prefix_breaks` (the
    worst session), as recorded.
    """
    from context_bench.core.strategies import PROFILES as KNOWN
    from context_bench.core.strategies import simulate_strategies

    if simulate == bool(sessions):
        raise BadInput("give recorded sessions, or --simulate for the made-up one")
    if simulate and price is not None and not profile:
        raise BadInput("--price goes with --profile: the three billings of the made-up session have prices of their own")
    rules = (
        {name: _profile(name, price) for name in profile} if profile else dict(KNOWN) if simulate else {"openai": _profile("openai", price)}
    )
    document: dict[str, Any] = {"schema": "context-bench/compress-cache/1", "profiles": {n: asdict(r) for n, r in rules.items()}}
    if simulate:
        tables = {"the made-up session": {name: simulate_strategies(None, rule) for name, rule in rules.items()}}
        recorded: list[dict[str, Any]] = []
    else:
        found = list(_sessions(sessions or []))
        recorded = _as_recorded(found, rules)
        firsts = {session.id: session for session in reversed(found)}
        tables = {
            ident: {name: simulate_strategies(firsts[ident], rule) for name, rule in rules.items()}
            for ident in dict.fromkeys(s.id for s in found)
        }
    document |= {
        "recorded": recorded,
        "strategies": {k: {n: [asdict(r) for r in rows] for n, rows in t.items()} for k, t in tables.items()},
    }
    document |= {
        "metrics": _cache_metrics(recorded, tables),
        "known": list(_CACHE),
        "less_is_better": ["cost_ratio", "prefix_breaks", "cost_usd"],
    }
    if out is not None and out.suffix in (".svg", ".html"):
        _draw(next(iter(tables.values())), next(iter(tables)), out)
        hold(limits(document, minimum or [], maximum or []))
        return 0
    _publish(document, lambda: _cache_grids(recorded, tables), output, out, minimum, maximum)
    return 0


_CACHE = ("cost_ratio", "token_saving", "cacheable_prefix_share", "prefix_stability", "prefix_breaks", "cost_usd")


def _profile(name: str, price: str | None) -> CacheProfile:
    from dataclasses import replace

    from context_bench.core.cachecost import CacheProfile
    from context_bench.llm.cacherules import profile_for
    from context_bench.llm.prices import GenaiPrices

    path = Path(name)
    if path.suffix == ".toml":
        import tomllib

        if not path.is_file():
            raise BadInput(f"--profile {name}: no such file")
        try:
            given = tomllib.loads(path.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"--profile {name} is not TOML: {error}") from None
        unknown = given.keys() - CacheProfile.__dataclass_fields__.keys()
        if unknown or given.get("mode", "block") not in ("block", "unit"):
            raise BadInput(f"--profile {name}: expected {', '.join(CacheProfile.__dataclass_fields__)}, mode being block or unit")
        found = CacheProfile(**given)
    else:
        found = profile_for(PROFILES.get(name, name), GenaiPrices())
    if price is None:
        return found
    try:
        p_in, p_out = (float(part) for part in price.split(","))
    except ValueError:
        raise BadInput(f"--price {price!r}: expected INPUT,OUTPUT in USD per million tokens") from None
    return replace(found, p_in=p_in, p_out=p_out)


def _sessions(names: Sequence[str]) -> Iterable[Session]:
    from context_bench.datasets import sessions
    from context_bench.logs import read_sessions

    for name in names:
        if name.startswith("bundled:"):
            yield sessions.load_session(name)
        elif not Path(name).exists():
            raise BadInput(f"no file or folder {name}; bundled sessions: {', '.join(sessions.bundled())}")
        else:
            yield from read_sessions(name)


def _as_recorded(sessions: Sequence[Session], profiles: Mapping[str, CacheProfile]) -> list[dict[str, Any]]:
    """Each session under each profile, and against the first session of its id."""
    from context_bench.compression import read_request
    from context_bench.core.cachecost import session_cache
    from context_bench.core.prefix import Prompts, segments
    from context_bench.core.tokens import counter_for

    rows: list[dict[str, Any]] = []
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for session in sessions:
        requests = [read_request(request.body) for request in session.requests]
        counter = counter_for(requests[0].model if requests else None)
        prompts = Prompts(counter.count)
        for request in requests:
            prompts.add(segments(request))
        replies = [request.recorded_reply for request in session.requests]
        output = [counter.count(reply.text or "") if reply else 0 for reply in replies]
        at = [request.at for request in session.requests]
        times = [time for time in at if time is not None] if None not in at else None
        reads = [reply.usage.cache_read for reply in replies if reply and reply.usage and reply.usage.cache_read is not None]
        for name, rules in profiles.items():
            cache = session_cache(prompts.lengths, prompts.shared, output, rules, times=times)
            row = {
                "session": session.id,
                "source": session.source,
                "profile": name,
                "requests": len(requests),
                "tokens": sum(prompts.lengths),
            }
            row |= {key: value for key, value in cache.as_dict().items() if not key.endswith("per_request")}
            row |= {"times_known": times is not None, "measured_read": sum(reads) if len(reads) == len(replies) and reads else None}
            base = first.setdefault((session.id, name), row)
            if base is not row:
                saved = 1 - row["tokens"] / base["tokens"] if base["tokens"] else None
                row |= {"token_saving": saved, "cost_ratio": row["cost_usd"] / base["cost_usd"] if base["cost_usd"] else None}
            rows.append(row)
    return rows


def _cache_metrics(recorded: Sequence[Mapping[str, Any]], tables: Mapping[str, Mapping[str, Sequence[StrategyRow]]]) -> dict[str, float]:
    worst = {"cost_ratio": max, "token_saving": min, "cacheable_prefix_share": min, "prefix_stability": min, "prefix_breaks": max}
    found: dict[str, float] = {}
    for name, choose in worst.items():
        values = [row[name] for row in recorded if row.get(name) is not None]
        if values:
            found[name] = choose(values)
    if recorded:
        found["cost_usd"] = sum(row["cost_usd"] for row in recorded)
    return found


def _cache_grids(recorded: Sequence[Mapping[str, Any]], tables: Mapping[str, Mapping[str, Sequence[StrategyRow]]]) -> list[Grid]:
    from context_bench.reports.grids import Grid, number, share

    grids = []
    if recorded:
        rows = [
            (
                f"{row['session']} ({row['profile']})",
                f"{row['requests']:,}",
                f"{row['tokens']:,}",
                share(row.get("token_saving")),
                number(row["cacheable_prefix_share"], 3),
                number(row["prefix_stability"], 3),
                f"{row['prefix_breaks']:,}",
                f"{row['rewritten_tokens']:,}",
                f"${row['cost_usd']:,.4f}",
                number(row.get("cost_ratio")),
            )
            for row in recorded
        ]
        columns = ("session", "requests", "tokens", "saved", "CPS", "PS", "breaks", "rewritten", "cost", "ratio")
        about = "CPS: share of prompt tokens that the cache can serve; PS: share of the previous prompt repeated at the start of the next."
        if not all(row["times_known"] for row in recorded):
            about += " Where times of requests are not known, cache entries are taken to live on."
        grids.append(Grid("As recorded", columns, list(rows), about))
    for name, table in tables.items():
        head, *lines = strategy_table(table)
        about = (
            "Under each billing: cost as a multiple of the untouched session's, without the compressor's own calls; each prompt is stored"
            " whole. Break-even: turns until the first rewrite has paid for itself."
        )
        grids.append(Grid(f"Strategies on {name}", head, list(lines), about))
    return grids


def strategy_table(table: Mapping[str, Sequence[StrategyRow]]) -> list[tuple[str, ...]]:
    """Strategies by row, what they do to tokens and prefixes, then their cost ratio under each billing; the head first."""
    from context_bench.reports.grids import number, share

    first = next(iter(table.values()))
    head = ("strategy", "saving", "CPS", "PS", "breaks", "rewritten", *table, "break-even")
    rows = []
    for position, row in enumerate(first):
        costs = [number(rows[position].cost_ratio) for rows in table.values()]
        measures = (share(row.token_saving), number(row.cacheable_prefix_share, 3), number(row.prefix_stability, 3))
        rows_of = (row.strategy, *measures, f"{row.prefix_breaks:,}", f"{row.rewritten_tokens:,}", *costs, number(row.break_even, 1))
        rows.append(rows_of)
    return [head, *rows]


def _draw(table: Mapping[str, Sequence[StrategyRow]], name: str, out: Path) -> None:
    from context_bench.reports.charts import standalone
    from context_bench.reports.strategies import strategies_chart, strategies_page

    title = f"Strategies on {name}"
    chart = strategies_chart(table, title)
    text = standalone(chart) if out.suffix == ".svg" else strategies_page(table, strategy_table(table), title)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(f"context-bench: picture written to {out}", file=sys.stderr)


# Output ---------------------------------------------------------------------------------------------------------------------------------


def _publish(
    document: Mapping[str, Any], grids: Any, output: str, out: Path | None, minimum: list[str] | None, maximum: list[str] | None
) -> None:
    """Write the result, then hold it against the limits."""
    if output not in ("table", "json", "markdown"):
        raise BadInput(f"--output {output!r}: expected table, json or markdown")
    from context_bench.reports.grids import as_markdown, as_table
    from context_bench.reports.text import json_ready

    if output == "json":
        text = json.dumps(json_ready(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        text = as_markdown(grids()) if output == "markdown" else as_table(grids(), width=_width(out))
    if out is None:
        sys.stdout.write(text)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        print(f"context-bench: written to {out}", file=sys.stderr)
    hold(limits(document, minimum or [], maximum or []))


def _width(out: Path | None) -> int:
    import shutil

    return max(80, shutil.get_terminal_size((120, 24)).columns) if out is None else 120
