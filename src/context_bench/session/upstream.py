"""Upstream of a run: a real URL, or a local model served on loopback while it is needed; limits and pace of each
endpoint.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from context_bench.session.options import RunOptions


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
