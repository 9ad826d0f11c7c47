"""Examine a proxy: the routes it speaks, what it keeps and what it changes, before a benchmark blames the wrong thing.

With a recorder (a tap that stands where the proxy's provider would stand) what arrived there is compared with what was
sent. Without one, only what the proxy itself shows can be told, and the findings say so.
"""

from __future__ import annotations

from context_bench.core.protocols import Recorder
from context_bench.llm.chat import ChatClient
from context_bench.session.activity import ROUTES, Asker, Finding, activity, positive_control
from context_bench.traffic.doctor.proxy_checks import (
    count_tokens,
    kept,
    marks,
    nothing_arrived,
    own_cache,
    packed,
    reachable,
    route,
    streaming,
)

__all__ = ["Finding", "examine", "positive_control"]

_TAP = "give --tap PORT and point the proxy's own upstream setting at it"


async def examine(
    proxy_url: str,
    recorder: Recorder | None = None,
    *,
    model: str = "gpt-4o-mini",
    api_key: str | None = None,
    proxy_key: str | None = None,
    timeout: float = 30.0,
) -> list[Finding]:
    """Examine the proxy at `proxy_url` (with or without `/v1`); about 50 short and 24 medium requests (1,500 tokens)
    with a recorder.

    `recorder` must stand behind the proxy: the proxy's own upstream setting is its URL. Never raises for what the proxy
    does.
    """
    client = ChatClient(proxy_url, api_key=api_key, proxy_key=proxy_key, timeout=timeout, max_retries=0)
    try:
        asker = Asker(client, recorder, model, api_key, proxy_key)
        found, reached = await reachable(asker)
        if not reached:
            return found
        asked = {name: await asker.ask(f"route {name}", asker.short(shape)) for name, shape in ROUTES.items()}
        found += [route(name, seen, asker) for name, seen in asked.items()]
        found.append(await count_tokens(asker))
        if recorder is not None and not any(seen.records for seen in asked.values()):
            return [*found, nothing_arrived(asker, recorder, asked)]
        working = [shape for name, shape in ROUTES.items() if asked[name].error is None]
        if working:
            found += [await streaming(asker, working), await packed(asker, working)]
        if recorder is None:
            return [*found, Finding("what it forwards", "unknown", "not visible from this side", _TAP)]
        found += await marks(asker, working)
        if working:
            found += [await own_cache(asker, working), *await kept(asker, working), *await activity(asker, working)]
        return found
    finally:
        await client.aclose()
