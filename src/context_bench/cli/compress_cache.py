"""`context-bench compress cache`: what shorter sessions do to the prompt cache and the bill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.cli.files import write_out
from context_bench.cli.gate import MaxOption, MinOption, hold, limits
from context_bench.cli.publishing import OutputOption, publish
from context_bench.core.errors import BadInput

if TYPE_CHECKING:
    from context_bench.core.cachecost import CacheProfile
    from context_bench.core.session import Session
    from context_bench.core.strategies import StrategyRow


#: What the short names of `--profile` stand for.
PROFILES = {"openai": "gpt-5", "openai-5.6": "gpt-5.6", "anthropic": "claude-sonnet-5", "vllm": "vllm", "deepseek": "deepseek-chat"}
_CACHE = ("cost_ratio", "token_saving", "cacheable_prefix_share", "prefix_stability", "prefix_breaks", "cost_usd")


def cache(
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
    from context_bench.reports.strategies import cache_grids

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
    publish(document, lambda: cache_grids(recorded, tables), output, out, minimum, maximum)
    return 0


def _profile(name: str, price: str | None) -> CacheProfile:
    from dataclasses import replace

    from context_bench.core.cachecost import CacheProfile
    from context_bench.llm.cacherules import profile_for
    from context_bench.llm.prices import GenaiPrices

    path = Path(name)
    if path.suffix == ".toml":
        from context_bench.core.tables import load_toml

        if not path.is_file():
            raise BadInput(f"--profile {name}: no such file")
        try:
            given = load_toml(path.read_text("utf-8"))
        except ValueError as error:
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


def _draw(table: Mapping[str, Sequence[StrategyRow]], name: str, out: Path) -> None:
    from context_bench.reports.charts import standalone
    from context_bench.reports.strategies import strategies_chart, strategies_page

    title = f"Strategies on {name}"
    chart = strategies_chart(table, title)
    text = standalone(chart) if out.suffix == ".svg" else strategies_page(table, title)
    write_out(text, out, "picture")
