"""One JSON request to a service that is no chat: the reply as a document, failures under the house's names, attempts in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from context_bench.core.clock import SYSTEM_CLOCK
from context_bench.core.errors import BadReply, TimedOut, describe
from context_bench.core.jsontext import load_body
from context_bench.core.ledger import current_ledger
from context_bench.core.records import Call, Usage
from context_bench.llm.failures import Failure, RetryPolicy, not_json, of_error_in_reply, of_exception, of_status
from context_bench.llm.redact import bare_url, secrets_in
from context_bench.llm.sessions import of_aiohttp, session_for

_LARGEST = 64 * 2**20
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


async def post_json(
    user: object,
    url: str,
    body: Any,
    *,
    headers: Mapping[str, str],
    timeout: float,
    model: str | None = None,
    usage: Any = None,
    policy: RetryPolicy | None = None,
) -> Any:
    """The document that `url` sends for `body`.

    `headers` may hold keys; none is shown anywhere. Failures that pass are tried again as `policy` says (by default three times).
    `model`: whose call it is in the ledger (none: the service is no model, and nothing is booked); `usage(document)` reads what it used.
    """
    policy, attempt = policy or RetryPolicy(3, 0.5, 20.0), 1
    ledger = current_ledger()
    while True:
        left = None if ledger is None or ledger.deadline is None else ledger.deadline - SYSTEM_CLOCK.monotonic()
        allowed = timeout if left is None else max(0.001, min(timeout, left))
        began, start = SYSTEM_CLOCK.now(), SYSTEM_CLOCK.monotonic()
        found = await _once(user, url, body, headers, allowed)
        failure = found if isinstance(found, Failure) else None
        if ledger is not None and model is not None:
            call = Call(ledger.account, model, bare_url(url), began, SYSTEM_CLOCK.monotonic() - start, attempt=attempt, request=body)
            call.error = None if failure is None else describe(failure.error)
            used: Usage | None = usage(found) if usage is not None and failure is None else None
            call.usage = used
            ledger.record(call)
        if failure is None:
            return found
        if not failure.again or attempt > policy.max_retries:
            raise failure.error
        await SYSTEM_CLOCK.sleep(policy.delay(attempt, failure.asked))
        attempt += 1


async def _once(user: object, url: str, body: Any, headers: Mapping[str, str], seconds: float) -> Any:
    where, secrets = bare_url(url), secrets_in(dict(headers), url)
    session = await session_for(user, trust_env=urlsplit(url).hostname not in _LOOPBACK)
    try:
        async with asyncio.timeout(seconds), session.post(url, json=body, headers=dict(headers), allow_redirects=False) as reply:
            data = bytearray()
            async for chunk in reply.content.iter_any():
                data += chunk
                if len(data) > _LARGEST:
                    return Failure(BadReply(f"{where} sent more than {_LARGEST:,} bytes"))
            status, kind = reply.status, reply.content_type
            told = {name.lower(): value for name, value in reply.headers.items()}
    except TimeoutError:
        return Failure(TimedOut(f"no whole reply from {where} within {seconds:g} s"), again=True)
    except (aiohttp.ClientError, OSError) as error:
        return of_exception(of_aiohttp(error), where=where, seconds=seconds, deadline=False, secrets=secrets)
    if not 200 <= status < 300:
        return of_status(status, told, bytes(data), where=where, now=SYSTEM_CLOCK.now(), secrets=secrets)
    try:
        document = load_body(bytes(data), _LARGEST)
    except ValueError:
        return not_json(bytes(data), kind, where=where, secrets=secrets)
    if isinstance(document, Mapping) and document.get("error"):
        return of_error_in_reply(document["error"], told, where=where, now=SYSTEM_CLOCK.now(), secrets=secrets)
    return document
