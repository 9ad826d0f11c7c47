"""`context-bench compress cache`: what shorter sessions do to the prompt cache and the bill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from context_bench.core.errors import BadInput
from context_bench.core.machine import file_text
from context_bench.reports.visible_text import visible
from context_bench.session.flags import own, takes
from context_bench.session.gate import hold, limits
from context_bench.session.options import StoredOptions
from context_bench.session.output_files import write_out
from context_bench.session.reporting import publish

if TYPE_CHECKING:
    from context_bench.compression.cache_strategies import StrategyRow
    from context_bench.llm.prices import GenaiPrices
    from context_bench.reports.page import BarPart, Chart
    from context_bench.reports.table import Grid
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
    price=own("[MODEL=]INPUT,OUTPUT in USD per million tokens, instead of the price table.", rare=False),
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
    from context_bench.compression.cache_strategies import PROFILES, simulate_strategies
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
        profiles = {name: _billing(name, price, "").profile for name in profile} if profile else dict(PROFILES)
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
        p_in, p_out = (float(part) for part in price.rpartition("=")[2].split(","))
    except ValueError:
        raise BadInput(
            f"--price {price!r}: expected INPUT,OUTPUT or MODEL=INPUT,OUTPUT in USD per million tokens"
        ) from None
    return replace(found, profile=replace(found.profile, p_in=p_in, p_out=p_out), own=False, priced=True)


def _read_profile(path: Path) -> CacheProfile:
    from context_bench.core.templates import load_toml
    from context_bench.wire.cache import CacheProfile

    if not path.is_file():
        raise BadInput(f"--profile {path}: no such file")
    try:
        given = load_toml(file_text(path))
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
    from context_bench.wire.apis import parse_request

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
    from context_bench.reports.charts import standalone

    title = f"Strategies on {name}"
    chart = strategies_chart(table, title)
    text = standalone(chart) if out.suffix == ".svg" else strategies_page(table, title)
    write_out(text, out, "picture")


TITLE = "Tokens saved and money spent, by strategy"
ABOUT = (
    "Grey: tokens sent, as a share of those of the untouched session. Colours: what the session costs, as a "
    "share of the same, by billing."
)


def strategies_chart(rows: Mapping[str, Sequence[StrategyRow]], title: str = TITLE) -> Chart:
    """Tokens and cost of each strategy; `rows`: name of the billing → its rows, the same strategies in each."""
    from context_bench.reports.page import BarPart, Chart, Figure

    def part(row: StrategyRow, what: str, share: float) -> BarPart:
        return BarPart(row.strategy, what, Figure(share, "number", digits=3))

    parts: list[BarPart] = []
    for place, row in enumerate(next(iter(rows.values()))):
        parts.append(part(row, "tokens sent", 1 - row.token_saving))
        parts += [
            part(billed[place], f"cost: {visible(name, 40)}", billed[place].cost_ratio or 0.0)
            for name, billed in rows.items()
        ]
    return Chart(
        "strategies", "strategies", title, ABOUT, x="share of the untouched session (1 = the same)", y="", data=parts
    )


def strategies_page(rows: Mapping[str, Sequence[StrategyRow]], title: str = TITLE) -> str:
    """The picture with its table as one HTML file that needs no network and no script."""
    from context_bench.reports.charts import svg

    table = strategy_table(rows)
    head = "".join(f"<th>{escape(visible(cell))}</th>" for cell in table[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(visible(cell))}</td>" for cell in row) + "</tr>" for row in table[1:])
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color-scheme:light "
        "dark}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
        "th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #8884}"
        "th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}div{overflow-x:auto}"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(visible(title))}</title><style>{style}</style></head><body><h1>{escape(visible(title))}</h1>"
        f"<p>{escape(ABOUT)}</p><div>{svg(strategies_chart(rows))}</div><div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        "</body></html>\n"
    )


def strategy_table(table: Mapping[str, Sequence[StrategyRow]]) -> list[tuple[str, ...]]:
    """Strategies by row, what they do to tokens and prefixes, then their cost ratio under each billing; the head
    first.
    """
    from context_bench.reports.table import number, share

    first = next(iter(table.values()))
    head = ("strategy", "saving", "CPS", "PS", "breaks", "rewritten", *table, "break-even")
    rows = []
    for position, row in enumerate(first):
        costs = [number(rows[position].cost_ratio) for rows in table.values()]
        measures = (share(row.token_saving), number(row.cacheable_prefix_share, 3), number(row.prefix_stability, 3))
        rows_of = (
            row.strategy,
            *measures,
            f"{row.prefix_breaks:,}",
            f"{row.rewritten_tokens:,}",
            *costs,
            number(row.break_even, 1),
        )
        rows.append(rows_of)
    return [head, *rows]


def _cost(row: Mapping[str, Any]) -> str:
    """The session's cost, and where it is from."""
    if row["cost_usd"] is None:
        return "—"
    counted = "≈" if row["cost_from"] == "log" and row["recorded"].get("predicted_outputs") else ""
    return f"{counted}${row['cost_usd']:,.4f}{' (rules)' if row['cost_from'] == 'rules' else ''}"


def cache_grids(
    recorded: Sequence[Mapping[str, Any]], tables: Mapping[str, Mapping[str, Sequence[StrategyRow]]]
) -> list[Grid]:
    """Sessions as recorded, and strategies on each. `tables`: session → billing → its strategies."""
    from context_bench.reports.table import Grid, number, share

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
                share(row["recorded"].get("stated_read_share")),
                share(row["recorded"].get("rebuilt_share")),
                _cost(row),
                number(row.get("cost_ratio")),
            )
            for row in recorded
        ]
        columns = (
            "session",
            "requests",
            "tokens",
            "saved",
            "CPS",
            "PS",
            "breaks",
            "rewritten",
            "cache (log)",
            "rebuilt",
            "cost",
            "ratio",
        )
        about = (
            "CPS: share of prompt tokens that the cache can serve; PS: share of the previous prompt repeated "
            "at the start of the next."
        )
        about += (
            " Cache (log): share of the prompt that came from the cache, as the log states; rebuilt: share of the "
            "billed prompt that its"
            " texts explain. Cost: what the log says was billed (≈: some replies were counted here); (rules): "
            "predicted by the cache"
            " rules; —: not known."
        )
        without = [(row["session"], why) for row in recorded if (why := row["recorded"].get("no_verdict"))]
        about += "".join(f" {session}: no strategy is priced, {why}." for session, why in without)
        if without:
            about += (
                " Record one session's requests with 'context-bench watch --record full --records FILE', and "
                "give FILE here."
            )
        if not all(row["times_known"] for row in recorded):
            about += " Where times of requests are not known, cache entries are taken to live on."
        grids.append(Grid("As recorded", columns, list(rows), about))
    for name, table in tables.items():
        head, *lines = strategy_table(table)
        about = (
            "Under each billing: cost as a multiple of the untouched session's, without the compressor's own calls; "
            "each prompt is stored"
            " whole. Break-even: turns until the first rewrite has paid for itself."
        )
        grids.append(Grid(f"Strategies on {name}", head, list(lines), about))
    return grids
