"""From options to the parts of a run: datasets, evaluators, metrics, prices, spend limit, manifest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.plugins import build, imported, parse_spec
from context_bench.llm.redact import bare_url, key_in
from context_bench.session.options import RunOptions
from context_bench.wire.words import evidence_of

#: Examples that are looked at for evidence; and of which, where no model is asked, so many are under way.
_LOOKED_AT, _AT_ONCE = 200, 8
#: Evaluators that ask a model.
_JUDGES = ("llm_judge", "memory_judge", "false_memory", "rubric_judge")


def import_modules(names: Iterable[str]) -> None:
    """Load the modules of `--import`, so that their `register_*` calls are made."""
    for name in names:
        try:
            imported(name)
        except BadInput as error:
            raise BadInput(f"--import {name}: {error}") from error


def remark(title: str | None, tags: Sequence[str] | None) -> Any:
    """Title and tags as `--title` and `--tag` give them, `None` without. Raises `BadInput` for what is too long or no
    text.
    """
    if title is None and not tags:
        return None
    from context_bench.engine.store.remarks import Remark

    return Remark.of_run(",".join(tags or []), title or "")


def datasets(options: RunOptions) -> list[Any]:
    """The datasets in flag order, each limited by `-n`."""
    from context_bench.datasets import load

    return [load(spec, n=options.max_examples, seed=options.seed) for spec in options.dataset]


def evaluators(options: RunOptions, data: list[Any], prices: Any = None, accounts: Any = None) -> list[Any]:
    """The evaluators that the datasets name, then `--evaluator`, then the judge; each once, in this order. `accounts`:
    the limits of the judge's requests.

    What only some datasets name has no say in the others, though their examples may have all it needs: that a story's
    answer is no formula does not make it wrong.
    """
    from context_bench.evaluators import BUILTINS

    if options.evidence_only:
        return [_evaluator(options, "evidence", BUILTINS, prices, accounts)]
    names = list(
        dict.fromkeys(["answer", *(name for dataset in data for name in dataset.evaluators), *options.evaluator])
    )
    if options.judge_url and not any(parse_spec(name).target in ("llm_judge", "rubric_judge") for name in names):
        names.append("llm_judge")
    made = [_evaluator(options, name, BUILTINS, prices, accounts) for name in names]
    everywhere = {"answer", "llm_judge", *options.evaluator}
    for dataset in data:
        dataset.among_others = len(data) > 1
    for name, evaluator in zip(names, made, strict=True):
        others = [dataset.name for dataset in data if name not in dataset.evaluators]
        if others and name not in everywhere:
            evaluator.not_for = others
    return list({evaluator.name: evaluator for evaluator in made}.values())


def _evaluator(options: RunOptions, spec: str, builtins: dict[str, str], prices: Any, accounts: Any) -> Any:
    """One evaluator; a judge gets endpoint, model and key of the `--judge-…` options, unless its specification says
    otherwise.
    """
    defaults: dict[str, Any] = {}
    if parse_spec(spec).target in _JUDGES and options.judge_url:
        key = key_in(options.judge_key_env or options.api_key_env)
        defaults = {"base_url": options.judge_url, "model": options.judge_model, "prices": prices, "api_key": key}
        if accounts is not None and (limiter := accounts.of_judge(options.judge_url)) is not None:
            defaults["limiter"] = limiter
        defaults |= patience(options)
    return build("evaluator", spec, builtins, lambda found: hasattr(found, "score"), defaults)


def patience(options: RunOptions) -> dict[str, Any]:
    """`--timeout` and `--retries`, for whoever has defaults of its own: only what was really said."""
    given = {"timeout": options.timeout, "max_retries": options.retries}
    return {name: value for name, value in given.items() if name.removeprefix("max_") in options.given}


def settle_score(options: RunOptions, data: list[Any], evaluators: list[Any]) -> str | None:
    """Choose the score that verdicts are about where the user did not: `f1`, unless no dataset here has answers to
    compare with.

    Then it is the first score of the first evaluator that the datasets name (or of the judge). Returns a sentence about
    it.
    """
    if options.evidence_only:
        return None
    if "score_field" in options.given or any("answer" in dataset.evaluators for dataset in data):
        return None
    by_data = {name for dataset in data for name in dataset.evaluators}
    mine = [each for each in evaluators if each.name == "llm_judge" or _named(each) in by_data or options.evaluator]
    fields = [name for each in mine for name in getattr(each, "fields", ())]
    if mine and not fields:
        return None  # the user's own evaluators, which do not say what they give
    if not mine:
        names = ", ".join(dataset.name for dataset in data)
        return f"nothing here scores {names}: no gold answers; give a judge (--judge-url URL) or --evaluator SPEC"
    options.score_field = fields[0]
    return f"the report is about {fields[0]} (no dataset here has gold answers for f1); --score-field names another"


def _named(evaluator: Any) -> str | None:
    """The plug-in name of a built-in evaluator."""
    from context_bench.evaluators import BUILTINS

    kind = type(evaluator)
    return next((name for name, path in BUILTINS.items() if path == f"{kind.__module__}:{kind.__qualname__}"), None)


def metrics(options: RunOptions, *, several_datasets: bool) -> list[Any]:
    """The documented metrics in the documented order, then `--metric`."""
    from context_bench.metrics import (
        BUILTINS,
        CompressionRatio,
        CostOfPass,
        Latency,
        MeanScore,
        PassRate,
        PerDatasetBreakdown,
    )

    field, threshold = options.score_field, options.threshold
    made = [
        MeanScore(score_field=field),
        PassRate(threshold=threshold, score_field=field),
        CompressionRatio(),
        CostOfPass(threshold=threshold, score_field=field),
        Latency(),
        *([PerDatasetBreakdown(score_field=field)] if several_datasets else []),
    ]
    return [
        *made,
        *(build("metric", name, BUILTINS, lambda found: hasattr(found, "compute")) for name in options.metric),
    ]


def prices(options: RunOptions, on: str | None = None) -> Any:
    """Dated offline prices, with the user's own on top, or all money at one named model's price. `on`: the day whose
    prices hold, as an ISO date; default today.
    """
    from datetime import date

    from context_bench.llm.prices import GenaiPrices, PricedAs

    known = GenaiPrices(own_prices(options), date.fromisoformat(on) if on else None)
    return PricedAs(known, options.price_model) if options.price_model else known


def own_prices(options: RunOptions) -> dict[str, dict[str, float]]:
    """Model → price, as `--price` gives them."""
    return dict(_price(item) for item in options.price)


def _price(item: str) -> tuple[str, dict[str, float]]:
    model, equals, numbers = item.rpartition("=")
    try:
        values = [float(number) for number in numbers.split(",")]
    except ValueError:
        values = []
    if not (equals and model and 2 <= len(values) <= 4):
        raise BadInput(
            f"--price {item!r}: expected MODEL=INPUT,OUTPUT[,CACHE_READ[,CACHE_WRITE]] in USD per million tokens"
        )
    return model, dict(zip(("input", "output", "cache_read", "cache_write"), values, strict=False))


def spend(options: RunOptions, store: Any, *names: str | None) -> Any:
    """The money limit of `--max-cost`, if there is one. What runs of these names have spent before counts."""
    if options.max_cost is None:
        return None
    from context_bench.engine import list_runs, spent
    from context_bench.llm.spend import SpendLimit

    earlier = [run.id for run in list_runs(store) if run.name in names] if any(names) else []
    return SpendLimit(options.max_cost, sum(spent(store, run) for run in earlier))


def manifest(options: RunOptions, data: list[Any], cells: list[Any], extra: dict[str, Any]) -> dict[str, Any]:
    """The run's options, complete enough to do it again; never a key."""
    how = {"store", "out", "output", "full", "quiet", "dry_run", "run", "resume", "executor", "ray_address"}
    asked = options.as_json(how)
    return {
        "options": asked,
        "datasets": [dataset.manifest() for dataset in data],
        "cells": [cell.manifest() for cell in cells],
        "margin": {
            "value": options.margin,
            "rule": "given" if options.margin is not None else "min(0.02, 10 % of full − none)",
            "score_field": options.score_field,
        },
        **design(options, cells),
        **extra,
    }


def design(options: RunOptions, cells: list[Any]) -> dict[str, Any]:
    """The designs by which the run decides sooner, for its manifest, before anything is asked; empty if none."""
    from context_bench.engine.looks import PILOT, PILOT_LEVEL

    found: dict[str, Any] = {}
    if paired := {cell.baseline: cell.paired for cell in cells if getattr(cell, "paired", None)}:
        found["untouched"] = {
            "counts_as": 0,
            "asked_first": list(paired),
            "systems": [name for names in paired.values() for name in names],
            "replies": "copied" if options.copy_replies else "asked anyway",
        }
    if options.only_lost:
        found["only_lost"] = "rows in which all evidence arrived are taken for unchanged, and not asked: an assumption"
    if options.evidence_only:
        found["evidence_only"] = {"score_field": options.score_field, "asked": "nobody"}
    if options.pilot:
        found["pilot"] = {
            "examples": PILOT,
            "level": PILOT_LEVEL,
            "then": "the plan that decides at least money, reckoned from these; its verdicts count them too",
        }
    return {"design": found} if found else {}


def settle_evidence(options: RunOptions, data: list[Any]) -> str | None:
    """Check `--only-lost`, and set up `--evidence-only`, which only asks what arrives of the evidence: in the
    provider's place stands an echo behind a tap, and nothing is sent on. Returns a sentence about what is left out;
    raises `BadInput` for what cannot be done so.
    """
    if options.only_lost and (options.evidence_only or not options.copy_replies or options.tap is None):
        raise BadInput(
            "--only-lost needs --tap and --controls, and goes neither with --no-copy nor with --evidence-only: it "
            "takes rows in which all evidence arrived for unchanged"
        )
    if options.only_lost:
        _require_evidence("--only-lost", data)
    if not options.evidence_only:
        return None
    if options.tap is not None and options.tap_port is None:
        raise BadInput(f"--evidence-only with --tap {options.tap}: a running tap sends on; give --tap a port")
    if options.tap is None and options.all_proxies:
        raise BadInput("--evidence-only needs --tap PORT: the port that the proxies have as their upstream")
    if options.record != "full":
        raise BadInput(f"--evidence-only with --record {options.record}: what arrived is read; it must be kept: full")
    _require_evidence("--evidence-only", data)
    left_out = options.upstream if options.upstream and not is_local(options.upstream) else None
    options.tap, options.upstream, options.reader, options.judge_url = options.tap or "0", "echo", None, None
    options.score_field, options.max_cost = "evidence_all", None
    if "max_workers" not in options.given:
        options.max_workers = _AT_ONCE
    return f"nothing is sent to {bare_url(left_out)}: no model is asked for what arrives" if left_out else None


def _require_evidence(flag: str, data: list[Any]) -> None:
    first = (example for dataset in data for example in islice(dataset.examples(), _LOOKED_AT))
    if not any(evidence_of(example) for example in first):
        raise BadInput(
            f"{flag}: none of the first {_LOOKED_AT} examples carries evidence that its context holds; "
            'expected "evidence": a text, a list of texts, or of places [from, to] in the context'
        )


LOCAL = ("embedded", "echo", "scripted:", "sentence")


def is_local(upstream: str) -> bool:
    """An upstream that we start ourselves: no key, no money, no prompt cache shared between arms."""
    return upstream.startswith(LOCAL)


@asynccontextmanager
async def started_upstream(upstream: str) -> AsyncIterator[str]:
    """The base URL of `upstream`; a local model is started before and stopped after."""
    if not is_local(upstream):
        yield upstream
        return
    from context_bench.llm.servers import ModelServer

    responder = _responder(upstream)
    if isinstance(responder, str):
        yield responder
        return
    async with ModelServer(responder) as server:
        yield server.url


def _responder(upstream: str) -> Any:
    """The responder of an upstream: a model of `llm`, or the sentence reader, which a family brings."""
    if upstream == "sentence":
        from context_bench.core.families import offered

        return offered("sentence_model")()
    from context_bench.llm.servers import upstream_of

    return upstream_of(upstream)


class Accounts:
    """The limiters of a run, made when first asked for.

    With `--fixed-concurrency` one for all endpoints, so that the number under way is the provider's; else one for each
    endpoint, which adapts. `--rpm` and `--tpm` hold for all of them together: they are the account's, whose key goes to
    every endpoint. A judge with a key of its own (`--judge-key-env`), or a pace of its own (`--judge-rpm`,
    `--judge-tpm`), is another account.
    """

    def __init__(self, options: RunOptions) -> None:
        from context_bench.llm.limits import Pace

        self._options, self._made = options, dict[str, Any]()
        self._pace = Pace(options.rpm, options.tpm)
        paced = options.judge_rpm or options.judge_tpm
        self._judge_pace = Pace(options.judge_rpm, options.judge_tpm) if paced else None
        self._workers = options.max_workers or 1

    def of(self, url: str) -> Any:
        """The limiter of an endpoint of the systems; `None` where one request at a time needs none."""
        from context_bench.llm.limits import FixedLimiter

        if self._options.fixed_concurrency is None:
            return (
                self._adaptive(url, self._pace) if self._workers > 1 or self._options.rpm or self._options.tpm else None
            )
        if "all endpoints" not in self._made:
            self._made["all endpoints"] = FixedLimiter(self._options.fixed_concurrency, pace=self._pace)
        return self._made["all endpoints"]

    def of_judge(self, url: str) -> Any:
        """The limiter of a judge's endpoint: never the fixed one, for its requests are not what is measured."""
        own = self._judge_pace is not None or self._options.judge_key_env not in (None, self._options.api_key_env)
        paced = self._judge_pace is not None or (not own and (self._options.rpm or self._options.tpm))
        if not (self._workers > 1 or paced):
            return None
        return self._adaptive(url, self._judge_pace, " (judge)") if own else self._adaptive(url, self._pace)

    def _adaptive(self, url: str, pace: Any, whose: str = "") -> Any:
        from context_bench.llm.limits import AdaptiveLimiter
        from context_bench.llm.redact import bare_url

        return self._made.setdefault(
            f"{bare_url(url)}{whose}", AdaptiveLimiter(max(20, self._workers // 4), high=self._workers, pace=pace)
        )

    def load(self) -> dict[str, Any]:
        """The load settings for the run's manifest, see `core.rows`."""
        options = self._options
        mode = "fixed" if options.fixed_concurrency else "adaptive" if self._workers > 1 else "single"
        told = {
            "mode": mode,
            "at_once": self._workers,
            "stream": options.stream,
            "rpm": options.rpm,
            "tpm": options.tpm,
        }
        return {name: value for name, value in told.items() if value is not None}

    def limit_changes(self) -> dict[str, list[list[Any]]]:
        """Every change of every limit, by endpoint: `[at, limit, reason]`."""
        return {url: _rows(limiter.history) for url, limiter in self._made.items()}


def _rows(history: Iterable[Any]) -> list[list[Any]]:
    return [[round(change.at, 3), change.limit, change.reason] for change in list(history)]  # others go on writing
