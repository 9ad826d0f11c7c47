"""`context-bench compress cache`: what shorter sessions do to the prompt cache and the bill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.session.files import write_out
from context_bench.session.flags import own, takes
from context_bench.session.gate import hold, limits
from context_bench.session.options import StoredOptions
from context_bench.session.reporting import publish

if TYPE_CHECKING:
    from context_bench.compression.strategies import StrategyRow
    from context_bench.llm.prices import GenaiPrices
    from context_bench.transcripts.account import Account
    from context_bench.transcripts.session import Session
    from context_bench.wire.cache import CacheProfile


_CACHE = ("cost_ratio", "token_saving", "cacheable_prefix_share", "prefix_stability", "prefix_breaks", "cost_usd")


@takes(
    StoredOptions,
    profile=own(
        "Billing rules: a model's name; openai, openai-5.6, anthropic, vllm or deepseek (at the recorded model's "
        "prices); "
        "or a TOML file; repeatable. Default: those of the recorded model.",
        unit=None,
        note="",
    ),
    price=own("INPUT,OUTPUT in USD per million tokens, instead of the price table.", rare=False),
    output=own("table, json, markdown."),
    out=own("Write to this file; .svg and .html give the picture."),
)
def cache(
    sessions: Annotated[
        list[str] | None, typer.Argument(help="Recorded sessions: files, folders, or bundled:sessions/NAME.")
    ] = None,
    *,
    simulate: bool,
    profile: list[str] | None,
    price: str | None,
    output: str,
    out: Path | None,
    minimum: list[str] | None,
    maximum: list[str] | None,
) -> int:
    """What keeping a session short does to the prompt cache and the bill: each session as recorded, and six strategies
    on it.

    Ratios are against the untouched session. A session with the id of one in an earlier file (another arm of it) is
    also compared with that one. Metrics for gates: `cost_ratio`, `token_saving`, `cacheable_prefix_share`,
    `prefix_stability`, `prefix_breaks` (the worst session), as recorded.
    """
    from context_bench.compression.sections.strategies import cache_grids
    from context_bench.compression.strategies import PROFILES as KNOWN
    from context_bench.compression.strategies import simulate_strategies
    from context_bench.core.tokens import counter_for
    from context_bench.datasets.recorded import accounted
    from context_bench.transcripts.account import weighing

    if simulate == bool(sessions):
        raise BadInput("give recorded sessions, or --simulate for the made-up one")
    if simulate and price is not None and not profile:
        raise BadInput(
            "--price goes with --profile: the three billings of the made-up session have prices of their own"
        )
    recorded: list[dict[str, Any]] = []
    if simulate:
        profiles = {name: _billing(name, price, "").profile for name in profile} if profile else dict(KNOWN)
        tables = {"the made-up session": {name: simulate_strategies(None, rule) for name, rule in profiles.items()}}
    else:
        profiles, tables = {}, {}
        names: Sequence[str | None] = profile or [None]
        for session, account in map(accounted, _sessions(sessions or [])):
            billings = [_billing(name, price, _model(session), account.hour) for name in names]
            profiles |= {billing.name: billing.profile for billing in billings}
            recorded += _as_recorded(session, account, billings, recorded)
            billed = recorded[-len(billings) :]
            if session.id not in tables and not any("no_verdict" in row["recorded"] for row in billed):
                counter = weighing(counter_for(_model(session)), account)
                tables[session.id] = {
                    b.name: simulate_strategies(session, b.profile, counter=counter) for b in billings
                }
        if not recorded:
            raise BadInput(f"no requests in {', '.join(sessions or [])}: nothing to price")
    document: dict[str, Any] = {
        "schema": "context-bench/compress-cache/1",
        "profiles": {n: asdict(r) for n, r in profiles.items()},
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


@dataclass(frozen=True, slots=True)
class _Billing:
    """Rules and prices under a name. `own`: they are the recorded model's, so that what its log states is the bill."""

    name: str
    profile: CacheProfile
    marked: bool
    own: bool
    prices: GenaiPrices
    priced: bool = True


def _model(session: Session) -> str:
    """The model that a session was recorded with; "" where its log does not name it."""
    return next((str(model) for request in session.requests if (model := request.body.get("model"))), "")


def _billing(name: str | None, price: str | None, model: str, hour: bool = False) -> _Billing:
    from context_bench.llm.prices import FAMILIES, GenaiPrices, check_profile, rules_of

    prices = GenaiPrices()
    if name is not None and Path(name).suffix == ".toml":
        found = _Billing(name, _read_profile(Path(name)), False, False, prices)
    else:
        if name is not None:
            check_profile(name, prices)
        asked = model or FAMILIES.get(name or "", "")
        rules = rules_of(asked, prices, named=name, hour=hour)
        label = name or model or "no model named"
        found = _Billing(label, rules.profile, rules.rule.trigger == "marked", rules.own, prices, rules.priced)
    if price is None:
        return found
    try:
        p_in, p_out = (float(part) for part in price.split(","))
    except ValueError:
        raise BadInput(f"--price {price!r}: expected INPUT,OUTPUT in USD per million tokens") from None
    return replace(found, profile=replace(found.profile, p_in=p_in, p_out=p_out), own=False, priced=True)


def _read_profile(path: Path) -> CacheProfile:
    from context_bench.core.templates import load_toml
    from context_bench.wire.cache import CacheProfile

    if not path.is_file():
        raise BadInput(f"--profile {path}: no such file")
    try:
        given = load_toml(path.read_text("utf-8"))
    except ValueError as error:
        raise BadInput(f"--profile {path} is not TOML: {error}") from None
    unknown = given.keys() - CacheProfile.__dataclass_fields__.keys()
    if unknown or given.get("mode", "block") not in ("block", "unit"):
        raise BadInput(
            f"--profile {path}: expected {', '.join(CacheProfile.__dataclass_fields__)}, mode being block or unit"
        )
    return CacheProfile(**given)


def _sessions(names: Sequence[str]) -> Iterable[Session]:
    from context_bench.datasets import sessions
    from context_bench.transcripts import read_sessions

    for name in names:
        if name.startswith("bundled:"):
            yield sessions.load_session(name)
        elif not Path(name).exists():
            raise BadInput(f"no file or folder {name}; bundled sessions: {', '.join(sessions.bundled())}")
        else:
            yield from read_sessions(name)


def _as_recorded(
    session: Session, account: Account, billings: Sequence[_Billing], before: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The session under each billing, against the first session of its id: what its log states, else what the cache
    rules predict.
    """
    from context_bench.core.tokens import counter_for
    from context_bench.metrics.cache_pricing import SessionCache, StatedBill, recorded_facts, session_cost
    from context_bench.transcripts.account import weighing
    from context_bench.transcripts.session import reply_tokens
    from context_bench.wire.apis.read import parse_request

    counter = weighing(counter_for(_model(session)), account)
    timed = bool(session.requests) and all(request.at is not None for request in session.requests)
    rows: list[dict[str, Any]] = []
    for billing in billings:
        marked = billing.marked and session.wire == "anthropic"
        cache, bill, output = SessionCache(billing.profile, counter, marked, timed, account.warm), StatedBill(), 0
        for request in session.requests:
            tokens = cache.add(parse_request(request.wire, request.body), request.at)
            reply = request.recorded_reply
            usage = reply.usage if reply else None
            counted = usage.output_tokens if usage else None
            if counted is None:
                counted = reply_tokens(reply.text, reply.tool_calls, counter.count) if reply else 0
            output += counted
            bill.add(
                usage,
                counted,
                partial(billing.prices.cost, model=str(request.body.get("model") or "")),
                tokens,
                cache.read_per_request[-1],
            )
        figures = cache.figures
        cost = session_cost(figures, figures, output, billing.profile, scale=account.scale)
        row: dict[str, Any] = {"session": session.id, "source": session.source, "profile": billing.name}
        row |= {
            "requests": figures.requests,
            "tokens": figures.tokens,
            "cacheable_prefix_share": None,
            "prefix_stability": None,
        }
        row |= figures.as_dict()
        row |= {"times_known": timed, "recorded": recorded_facts(bill, [account], own_rules=billing.own)}
        stated = billing.own and bill.whole and bill.usd is not None
        known = billing.priced and "no_verdict" not in row["recorded"]
        row["cost_usd"] = bill.usd if stated else cost.alone if known else None
        row["cost_from"] = "log" if stated else "rules" if known else None
        row["relative_cost"] = (
            None if "no_verdict" in row["recorded"] else cost.billed(bill.usd if stated else None).alone
        )
        row["measured_read"] = bill.usage.cache_read if bill.whole else None
        base = next(
            (each for each in (*before, *rows) if (each["session"], each["profile"]) == (session.id, billing.name)),
            None,
        )
        if base is not None:
            saved = 1 - row["tokens"] / base["tokens"] if base["tokens"] else None
            comparable = base["relative_cost"] and row["relative_cost"] is not None
            row |= {
                "token_saving": saved,
                "cost_ratio": row["relative_cost"] / base["relative_cost"] if comparable else None,
            }
        rows.append(row)
    return rows


def _cache_metrics(
    recorded: Sequence[Mapping[str, Any]], tables: Mapping[str, Mapping[str, Sequence[StrategyRow]]]
) -> dict[str, float]:
    worst = {
        "cost_ratio": max,
        "token_saving": min,
        "cacheable_prefix_share": min,
        "prefix_stability": min,
        "prefix_breaks": max,
    }
    found: dict[str, float] = {}
    for name, choose in worst.items():
        values = [row[name] for row in recorded if row.get(name) is not None]
        if values:
            found[name] = choose(values)
    if recorded and all(row["cost_usd"] is not None for row in recorded):
        found["cost_usd"] = sum(row["cost_usd"] for row in recorded)
    return found


def _draw(table: Mapping[str, Sequence[StrategyRow]], name: str, out: Path) -> None:
    from context_bench.compression.sections.strategies import strategies_chart, strategies_page
    from context_bench.reports.charts import standalone

    title = f"Strategies on {name}"
    chart = strategies_chart(table, title)
    text = standalone(chart) if out.suffix == ".svg" else strategies_page(table, title)
    write_out(text, out, "picture")
