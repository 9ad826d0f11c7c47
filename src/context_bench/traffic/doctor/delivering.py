"""How replies come back through a proxy: streams as they come or held back, packed ones readable or broken."""

from __future__ import annotations

import aiohttp

from context_bench.core.errors import BadReply
from context_bench.core.records import Example
from context_bench.llm.coding import decode
from context_bench.llm.echo import PACKED, SLOWLY
from context_bench.llm.redact import redact
from context_bench.llm.shapes import ShapedRequest, build
from context_bench.traffic.doctor.asking import Asker, Finding, Seen, Status, first, route_of
from context_bench.wire.apis.read import StreamReader, parse_reply
from context_bench.wire.apis.shared import load_json

#: A stream that takes fewer seconds from its first token to its end tells nothing.
_LONG_ENOUGH = 0.1
_CODINGS = ("gzip", "deflate")
_LONG: Example = {"id": "doctor, streaming", "context": "", "question": SLOWLY}
_SHORT: Example = {"id": "doctor, packed", "context": "", "question": PACKED}
_WORST: tuple[Status, ...] = ("fail", "warn", "unknown", "ok")


async def streaming(asker: Asker, working: list[str]) -> Finding:
    """Are streams passed on as they come, on every route that works?"""
    found = {}
    for shape in working:
        request = build(shape, _LONG, asker.model, stream=True)
        found[route_of(shape)] = _stream(await asker.ask(f"streaming {shape}", request))
    worst = min((finding.status for finding in found.values()), key=_WORST.index)
    if worst in ("fail", "warn"):
        bad = {route: finding for route, finding in found.items() if finding.status == worst}
        detail = first([f"{route}: {finding.detail}" for route, finding in bad.items()], 3)
        return Finding("streaming", worst, detail, next(finding.advice for finding in bad.values()))
    seen = [f"{route}: {finding.detail}" for route, finding in found.items() if finding.status == "ok"]
    short = ", ".join(route for route, finding in found.items() if finding.status == "unknown")
    if short:
        seen.append(f"{short}: streams; the upstream's stream was too short to tell whether it is held back")
    return Finding("streaming", "ok", first(seen, 3))


def _stream(seen: Seen) -> Finding:
    """One stream. `unknown`: it came, and its end too soon after its beginning."""
    call, main = seen.call, seen.main
    if seen.error is not None or call is None:
        return Finding("streaming", "fail", seen.error or "no answer", "run without --stream; agents that stream will not work")
    if call.ttft is None:
        return Finding("streaming", "fail", "a stream was asked for, the reply came whole", "run without --stream")
    if main is not None and not main.stream:
        return Finding("streaming", "warn", "the provider is asked without streaming", "time to first token is not the model's")
    if main is None or main.ttft is None or main.seconds - main.ttft < _LONG_ENOUGH:
        return Finding("streaming", "unknown", "streams")
    if call.started + call.ttft >= main.started + main.seconds:
        advice = "time to first token through this proxy is the total time"
        return Finding("streaming", "warn", "the stream is held back until it is whole", advice)
    return Finding("streaming", "ok", f"passed on as it comes (first token {call.ttft:.2f} s, end {call.seconds:.2f} s)")


async def packed(asker: Asker, working: list[str]) -> Finding:
    """Can replies be read that the provider packs, as clients allow it to? Providers pack streams more seldom than other replies."""
    broken: dict[bool, list[str]] = {False: [], True: []}
    codings = set()
    for shape in working:
        for stream, found in broken.items():
            for coding in _CODINGS if shape == working[0] else _CODINGS[:1]:
                request = build(shape, _SHORT, asker.model, params={"stream": stream})
                arrived, why = await _unpacked(asker, request, coding)
                codings |= {arrived}
                if why:
                    found.append(f"{route_of(shape)}, {'a stream' if stream else 'a reply'} with {coding}: {why}")
    if lost := [*broken[False], *broken[True]]:
        advice = "clients that accept packed replies, which most do, cannot read these"
        return Finding("packed replies", "fail" if broken[False] else "warn", first(lost, 3), advice)
    passed = " and ".join(coding for coding in _CODINGS if coding in codings)
    if passed:
        return Finding("packed replies", "ok", f"{passed} passed on, and readable")
    return Finding("packed replies", "ok", "replies arrive unpacked: the upstream does not pack them, or the proxy unpacks them")


async def _unpacked(asker: Asker, request: ShapedRequest, coding: str) -> tuple[str, str]:
    """The coding in which a reply arrived, and why it cannot be read; empty if it can."""
    try:
        reply = await asker.raw("POST", request.path, request.body, {**request.headers, "accept-encoding": coding})
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return "", f"no whole reply ({redact(str(error))[:200] or type(error).__name__})"
    if reply.status >= 400:
        return reply.coding, f"HTTP {reply.status}, which the same request without packing does not get"
    try:
        told = decode(reply.body, reply.coding)
        if not request.stream:
            parse_reply(request.wire, load_json(told))
            return reply.coding, ""
        reader = StreamReader(request.wire)
        reader.feed(told)
        reader.close()
    except (ValueError, BadReply) as error:
        return reply.coding, f"marked {reply.coding or 'as not packed'}, and cannot be read ({redact(str(error))[:200]})"
    return reply.coding, "" if reader.complete and not reader.error else f"marked {reply.coding or 'as not packed'}, and not whole"
