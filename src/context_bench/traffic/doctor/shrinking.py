"""Which kinds of text a proxy shortens, in which shapes of requests."""

from __future__ import annotations

import random

from context_bench.core.keys import seed_of
from context_bench.core.protocols import Recorder
from context_bench.llm.chat import ChatClient
from context_bench.llm.shapes import build
from context_bench.systems._payloads import PAYLOADS
from context_bench.traffic.doctor.asking import Asker, Finding, Seen, shapes_of

#: A change of fewer tokens, in share and number, is no shrinking.
NOTICEABLE = 0.02
_FEW_TOKENS = 12


async def activity(asker: Asker, working: list[str]) -> list[Finding]:
    """Which kinds of text are shortened in which shapes; each request has text of its own, so that no memory of the proxy's interferes."""
    shapes = shapes_of(working)
    seen: dict[str, dict[str, Seen]] = {}
    for shape in shapes:
        seen[shape] = {}
        for kind, make in PAYLOADS.items():
            text = make(random.Random(seed_of("doctor", shape, kind)))
            example = {"id": f"{shape} {kind}", "context": text, "question": "What is the largest number in it?"}
            seen[shape][kind] = await asker.ask(f"activity {shape} {kind}", build(shape, example, asker.model))
    control = _positive_control(seen)
    return [_shape_finding(shape, seen[shape], control) for shape in shapes]


def _positive_control(seen: dict[str, dict[str, Seen]]) -> str | None:
    """A payload that was shortened somewhere, plain shapes first, as words."""
    for shape, by_kind in seen.items():
        for kind, one in by_kind.items():
            if _did_shrink(one):
                return f"{kind} sent as {shape} shrank by {one.shrunk:.0%}"
    return None


def _did_shrink(seen: Seen) -> bool:
    share = seen.shrunk
    return share is not None and share >= NOTICEABLE and share * seen.sent >= _FEW_TOKENS


def _shape_finding(shape: str, by_kind: dict[str, Seen], control: str | None) -> Finding:
    name = f"shape {shape}"
    errors = [seen.error for seen in by_kind.values() if seen.error]
    if errors:
        return Finding(name, "fail", errors[0], "this shape cannot be measured through the proxy as it is")
    shares = {kind: seen.shrunk for kind, seen in by_kind.items()}
    known = {kind: share for kind, share in shares.items() if share is not None}
    if not known:
        return Finding(name, "unknown", "nothing of it arrived at the tap", "does the proxy send this route to another upstream?")
    grown = [f"{kind} +{-share:.0%}" for kind, share in known.items() if share <= -NOTICEABLE]
    shrunk = [f"{kind} −{share:.0%}" for kind, share in known.items() if _did_shrink(by_kind[kind])]
    if shrunk or grown:
        untouched = [kind for kind in known if kind not in " ".join([*shrunk, *grown])]
        detail = ", ".join([*shrunk, *grown]) + (f"; untouched: {', '.join(untouched)}" if untouched else "")
        return Finding(name, "warn" if grown else "ok", detail, "requests grow on the way" if grown else "")
    if control is None:
        return Finding(
            name, "unknown", "inactive or degraded here: nothing was shortened in any shape", "is the proxy's compression switched on?"
        )
    return Finding(name, "warn", f"does nothing here ({control})", "clients of this shape save nothing")


async def positive_control(proxy_url: str, recorder: Recorder, *, model: str, api_key: str | None = None) -> str | None:
    """Does the proxy shorten anything at all? Sends one text of each kind that compressors say they shorten, as plain requests.

    Returns what shrank, in words, or `None`: then "it does nothing" must not be said, for it may be switched off or degraded.
    """
    client = ChatClient(proxy_url, api_key=api_key, max_retries=0)
    try:
        asker = Asker(client, recorder, model, api_key, None)
        seen: dict[str, Seen] = {}
        for kind, make in PAYLOADS.items():
            example = {
                "id": kind,
                "context": make(random.Random(seed_of("control", kind))),
                "question": "What is the largest number in it?",
            }
            seen[kind] = await asker.ask(f"control {kind}", build("plain-user", example, model))
        return _positive_control({"plain-user": seen})
    finally:
        await client.aclose()
