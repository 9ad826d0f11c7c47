"""Which routes a proxy answers, and why one does not: the address, the key, the model, or the proxy itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp

from context_bench.core.protocols import Recorder
from context_bench.llm.redact import redact
from context_bench.traffic.doctor.asking import Asker, Finding, Seen
from context_bench.wire.apis.shared import load_json

#: What proxies and providers say of a model that they do not know.
_UNKNOWN_MODEL = re.compile(
    r"model_not_found|model_not_supported|(?:invalid|unknown|unsupported|no such|not a valid) model"
    r"|\bmodels?\b.{0,120}?\b(?:not (?:be )?(?:found|exist|configured|available|supported|allowed|recogni[sz]ed|registered)"
    r"|does ?n.?t exist|is ?n.?t (?:configured|available|supported)|unknown|unavailable)",
    re.IGNORECASE | re.DOTALL,
)
_NO_ROUTE = (404, 405, 501)


async def reachable(asker: Asker) -> tuple[list[Finding], bool]:
    """Does anything answer, and does it list its models?"""
    base = asker.client.base_url
    try:
        reply = await asker.raw("GET", "/v1/models")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = redact(str(error)) or type(error).__name__
        return [Finding("reachable", "fail", f"nothing answers at {base}: {reason}", "start the proxy, or check host and port")], False
    found = [Finding("reachable", "ok", f"{base} answers")]
    if reply.status == 200:
        asker.offered = _listed(reply.body)
        return [*found, Finding("route models", "ok", "GET /v1/models answers")], True
    return [
        *found,
        Finding("route models", "warn", f"GET /v1/models gives HTTP {reply.status}", "clients that list models will not work"),
    ], True


def _listed(body: bytes) -> list[str]:
    """The first ids in a list of models, in whatever form."""
    try:
        told = load_json(body)
    except ValueError:
        return []
    listed = told.get("data") if isinstance(told, Mapping) else told
    found = [item.get("id") for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
    return [name[:80] for name in found if isinstance(name, str)][:5]


def refuses_model(seen: Seen) -> bool:
    """Whether the reply says that the model is not known, or not allowed."""
    refused = seen.call is not None and seen.call.status is not None and 400 <= seen.call.status < 600
    return refused and _UNKNOWN_MODEL.search(_words(seen)) is not None


def _words(seen: Seen) -> str:
    """What was said, without the address before it."""
    return (seen.error or "").partition(": ")[2]


def route(name: str, seen: Seen, asker: Asker) -> Finding:
    """Does one route answer?"""
    title = f"route {name}"
    if seen.error is None:
        calls = len(seen.records)
        if calls > 1:
            advice = "its own calls cost money and time"
            return Finding(title, "warn", f"answers, with {calls} calls to the provider for one request", advice)
        wires = {record.wire for record in seen.records} - {seen.request.wire}
        return Finding(title, "ok", f"answers, and asks the provider over {wires.pop()}" if wires else "answers")
    status = seen.call.status if seen.call is not None else None
    if refuses_model(seen):
        return Finding(title, "fail", f"the model {asker.model!r} is not configured: {seen.error}", other_model(asker))
    if status in _NO_ROUTE:
        return Finding(title, "warn", f"not offered (HTTP {status})", "shapes that need it cannot be measured through this proxy")
    return Finding(title, "fail", seen.error, "check the proxy's own upstream setting and key")


def other_model(asker: Asker) -> str:
    """What to do where the model is the cause."""
    offered = ", ".join(name for name in asker.offered if name != asker.model)
    return f"give --model NAME, one that the proxy has{': ' if offered else ''}{offered}"


async def count_tokens(asker: Asker) -> Finding:
    """Does it count tokens for clients that ask before they send?"""
    body = {"model": asker.model, "messages": [{"role": "user", "content": "hello"}]}
    try:
        status = (await asker.raw("POST", "/v1/messages/count_tokens", body)).status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return Finding("route count_tokens", "warn", f"no answer: {redact(str(error)) or type(error).__name__}")
    if status == 200:
        return Finding("route count_tokens", "ok", "answers")
    return Finding("route count_tokens", "warn", f"HTTP {status}", "clients that count before they send will guess")


def nothing_arrived(asker: Asker, recorder: Recorder, asked: dict[str, Seen]) -> Finding:
    """Why the recorder saw nothing: what the proxy itself refused never went on."""
    where = getattr(recorder, "url", "the tap's URL")
    upstream = f"set the proxy's own upstream base URL to {where} (or {where}/v1) and start it again"
    name = "seen by the tap"
    if any(refuses_model(seen) for seen in asked.values()) and all(seen.error is not None for seen in asked.values()):
        detail = f"nothing went on to the tap: the proxy answered that the model {asker.model!r} is not configured"
        return Finding(name, "fail", detail, other_model(asker))
    return Finding(name, "fail", "nothing of what was sent arrived at the tap", upstream)
