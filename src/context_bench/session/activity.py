"""Find out whether a proxy changes requests at all. A report says "does nothing" only if the proxy was seen to do
something elsewhere.

Requests are sent through the proxy, each as a conversation of its own, and compared with what the recorder behind the
proxy saw. Texts of about 1,500 tokens of the kinds that compressing proxies say they shorten are the positive control.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from context_bench.core.errors import SystemFailed, Unreachable
from context_bench.core.keys import seed_of
from context_bench.core.ledger import Ledger, Mark, open_ledger
from context_bench.core.measures import percent
from context_bench.core.protocols import Recorder
from context_bench.core.records import Call, Example, Forwarded
from context_bench.core.tokens import counter_for
from context_bench.llm.chat import ChatClient, endpoint
from context_bench.llm.redact import key_in
from context_bench.llm.shapes import SHAPES, build
from context_bench.session.offers import DEFAULT_MODEL
from context_bench.session.options import RunOptions
from context_bench.wire.apis import ShapedRequest, parse_request
from context_bench.wire.request import Change, changes, count_request, facts

if TYPE_CHECKING:
    from context_bench.wire.violations import Violation

#: Compression below this share counts as none, above the second as some.
NOTHING, SOMETHING = 0.01, 0.05


async def activity_notes(options: RunOptions, tap: Any, cells: list[Any], result: Any) -> list[str]:
    """One sentence per proxy and shape that left the requests as long as they were. Sends a positive control where the
    run holds none.
    """
    may_send = tap is not None and options.max_cost is None
    urls = {arm.system.name: arm.system.base_url for cell in cells for arm in cell.arms if _is_proxy(arm, cell)}
    ratios = {name: result.summary.get(name, {}).get("compression_ratio") for name in urls}
    notes = []
    for cell in cells:
        for name in (name for name in cell.names if name in urls):
            ratio = ratios[name]
            if ratio is None or abs(ratio) >= NOTHING:
                continue
            control = _in_the_run(urls, ratios, name) or (
                await _sent_now(options, tap, urls[name]) if may_send else None
            )
            notes.append(_sentence(name, cell.labels.get("shape", ""), control, sent=may_send))
    return notes


def _is_proxy(arm: Any, cell: Any) -> bool:
    return getattr(arm.system, "base_url", None) is not None and arm.system.name not in cell.controls


def _in_the_run(urls: dict[str, str], ratios: dict[str, Any], name: str) -> str | None:
    """The same proxy in another cell, where it did shorten."""
    for other, ratio in ratios.items():
        if other != name and urls[other] == urls[name] and ratio is not None and ratio >= SOMETHING:
            return f"{other} in this run: {percent(ratio)} less"
    return None


async def _sent_now(options: RunOptions, tap: Any, url: str) -> str | None:
    return await positive_control(
        url, tap, model=(options.model or [DEFAULT_MODEL])[0], api_key=key_in(options.api_key_env)
    )


def _sentence(name: str, shape: str, control: str | None, *, sent: bool) -> str:
    if control is not None:
        return f"{name} does nothing with {shape} requests of this data (it does work: {control})."
    why = (
        "nor did it shorten a text that compressors usually do"
        if sent
        else "and no positive control was sent (that needs --tap, and is left out under --max-cost)"
    )
    return f"{name} is inactive or degraded here: with {shape} requests as many tokens went on as were sent, {why}."


Status = Literal["ok", "warn", "fail", "unknown"]
SHORT: Example = {"id": "doctor", "context": "The gate opens at nine.", "question": "When does the gate open?"}
#: Each route by its name, and the shape that asks on it.
ROUTES = {"chat completions": "plain-user", "messages": "claude-code", "responses": "codex"}
_LARGEST_REPLY = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found out. `status`: ok, warn, fail, unknown; `advice`: what to do about it, if anything."""

    name: str
    status: Status
    detail: str
    advice: str = ""


@dataclass(slots=True)
class Seen:
    """One request with all that is known of it."""

    request: ShapedRequest
    error: str | None = None
    call: Call | None = None
    records: list[Forwarded] = field(default_factory=list)

    @property
    def main(self) -> Forwarded | None:
        """The record of the request itself: the largest, if the proxy made calls of its own."""
        return max(self.records, key=lambda record: record.tokens or 0, default=None)

    @property
    def compared(self) -> Forwarded | None:
        """The same if it arrived on the wire on which it was sent: nothing is compared across wires."""
        main = self.main
        return main if main is not None and main.wire == self.request.wire else None

    @property
    def sent(self) -> int:
        """Tokens of what we sent."""
        parsed = self.request.parsed()
        return count_request(parsed, counter_for(parsed.model)).total

    @property
    def shrunk(self) -> float | None:
        """The share of tokens that did not arrive; negative when there were more. `None` if that was not seen."""
        main = self.main
        if main is None or main.tokens is None or not self.sent:
            return None
        return 1 - main.tokens / self.sent

    @property
    def changes(self) -> list[Change]:
        """The changes to the request apart from its texts."""
        main = self.compared
        return changes(facts(self.request.parsed()), main.facts) if main is not None and main.facts else []

    @property
    def violations(self) -> list[Violation] | None:
        """The same by kind, where the recorder keeps bodies as they are; else `None`."""
        main = self.compared
        if main is None or main.facts.get("policy", "full") != "full" or not isinstance(main.request, Mapping):
            return None
        from context_bench.wire.violations import compare_requests

        return compare_requests(self.request.parsed(), parse_request(main.wire, main.request))

    @property
    def faults(self) -> list[Violation] | None:
        """Faults that the provider may refuse, answer worse or bill more for, and that were not sent like that; and
        losses on the way to another API; `None` where no bodies are kept as they are.
        """
        main, request = self.main, self.request
        if main is None or main.facts.get("policy", "full") != "full" or not isinstance(main.request, Mapping):
            return None
        from context_bench.wire.violations import NOTES, compare_requests, lint_changes

        found = list(lint_changes(request.body, main.request, sent_wire=request.wire, wire=main.wire))
        if main.wire == request.wire:
            return found
        across = compare_requests(request.parsed(), parse_request(main.wire, main.request))
        return [*found, *(one for one in across if one.kind not in (*NOTES, "wire_changed"))]


@dataclass(frozen=True, slots=True)
class Raw:
    """A reply as it came. `coding`: its `Content-Encoding`."""

    status: int
    coding: str
    body: bytes


@dataclass(slots=True)
class Asker:
    """Sends requests, each as a conversation of its own, and collects what the recorder saw of them. `offered`: models,
    if it lists any.
    """

    client: ChatClient
    recorder: Recorder | None
    model: str
    key: str | None = None
    proxy_key: str | None = None
    offered: list[str] = field(default_factory=list)

    @property
    def mode(self) -> str:
        """The mode of marking: a proxy that checks a key of its own must get that key."""
        return "header" if self.proxy_key else "key"

    async def ask(self, name: str, request: ShapedRequest, mode: str | None = None) -> Seen:
        """Send one request, marked by `mode` where there is a recorder.

        A server that failed may end the connection a moment later: a request that was lost with it says nothing, and is
        sent once more on a new one.
        """
        seen = await self._ask(name, request, mode)
        lost = (
            seen.call is not None and seen.call.status is None and str(seen.call.error).startswith(Unreachable.__name__)
        )
        return await self._ask(name, request, mode) if lost else seen

    async def _ask(self, name: str, request: ShapedRequest, mode: str | None) -> Seen:
        seen = Seen(request)
        mark = await self.recorder.begin(f"doctor: {name}") if self.recorder else None
        ledger = Ledger("preflight", Mark(mode or self.mode, mark.token) if mark else None)
        try:
            with open_ledger(ledger):
                await self.client.send(request, tool_calls_ok=True)
        except SystemFailed as error:
            seen.error = str(error)
        finally:
            if self.recorder is not None and mark is not None:
                seen.records = await self.recorder.end(mark)
        seen.call = ledger.calls[-1] if ledger.calls else None
        return seen

    async def raw(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Raw:
        """The reply to a request, untouched. Raises what aiohttp does."""
        import aiohttp

        async with self._marked(f"doctor: {method} {path}") as own:
            timeout = aiohttp.ClientTimeout(total=self.client.timeout)
            url = endpoint(self.client.base_url, path)
            async with (
                aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
                session.request(
                    method, url, json=body, headers={**(headers or {}), **own}, allow_redirects=False
                ) as reply,
            ):
                told = bytearray()
                async for piece in reply.content.iter_any():
                    told += piece
                    if len(told) > _LARGEST_REPLY:
                        break
                return Raw(reply.status, reply.headers.get("Content-Encoding", "").strip().lower(), bytes(told))

    @asynccontextmanager
    async def _marked(self, name: str) -> AsyncIterator[dict[str, str]]:
        """The headers that a request needs to be let in and known again."""
        mark = await self.recorder.begin(name) if self.recorder else None
        key = self.proxy_key or (mark.token if mark else self.key)
        try:
            yield {
                **({"Authorization": f"Bearer {key}", "x-api-key": key} if key else {}),
                **({"x-context-bench": mark.token} if mark is not None else {}),
            }
        finally:
            if self.recorder is not None and mark is not None:
                await self.recorder.end(mark)

    def short(self, shape: str, **options: Any) -> ShapedRequest:
        """A request of a few words."""
        return build(shape, SHORT, self.model, **options)


def route_of(shape: str) -> str:
    """The route on which a shape is sent."""
    return next(route for route, plain in ROUTES.items() if plain == home(shape))


def home(shape: str) -> str:
    """The shape that stands for a shape's route."""
    return shape if shape in ("claude-code", "codex") else "plain-user"


def shapes_of(working: Iterable[str]) -> list[str]:
    """The shapes whose route works, plain ones first."""
    return [shape for shape in SHAPES if home(shape) in working]


def first(items: list[str], count: int) -> str:
    """The first of some phrases, and how many more there are."""
    more = len(items) - count
    return "; ".join(items[:count]) + (f"; and {more} more" if more > 0 else "")


def _rows(chance: random.Random) -> str:
    cities = ["Arden", "Brill", "Corran", "Dunmore", "Elvas"]
    rows = (
        f'{{"id": {i}, "city": "{chance.choice(cities)}", "status": "delivered", "weight_kg": '
        f'{chance.randint(1, 40)}, "note": null}}'
        for i in range(60)
    )
    return "[" + ",\n ".join(rows) + "]"


def _log(chance: random.Random) -> str:
    lines = [
        f"2031-04-{i // 24 + 1:02} {i % 24:02}:00:00 INFO worker-{chance.randint(1, 4)} heartbeat ok" for i in range(70)
    ]
    lines[chance.randint(20, 60)] = "2031-04-02 11:00:00 ERROR worker-3 disk full on /var/spool"
    return "\n".join(lines)


def _prose(chance: random.Random) -> str:
    things = ["the ferry", "the mill", "the school", "the bridge", "the market"]
    return " ".join(
        f"In the year {1800 + 3 * i} {chance.choice(things)} was repaired, as the council had decided, "
        f"at a cost of {chance.randint(10, 900)} crowns."
        for i in range(50)
    )


def _code(chance: random.Random) -> str:
    return "\n\n".join(
        f"def step_{i}(value: int) -> int:\n"
        f'    """Add {chance.randint(1, 99)} and pass the value on."""\n'
        f"    # nothing else happens here\n"
        f"    return value + {i}"
        for i in range(35)
    )


#: Kind → maker of such a text; the same seed gives the same text.
PAYLOADS: dict[str, Callable[[random.Random], str]] = {
    "JSON rows": _rows,
    "log lines": _log,
    "prose": _prose,
    "code": _code,
}


#: A change of fewer tokens, in share and number, is no shrinking.
NOTICEABLE = 0.02
_FEW_TOKENS = 12


async def activity(asker: Asker, working: list[str]) -> list[Finding]:
    """Find the kinds of text that are shortened, by shape; each request has text of its own, so that no memory of the
    proxy's interferes.
    """
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
                return f"{kind} sent as {shape} shrank by {percent(one.shrunk or 0.0)}"
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
        return Finding(
            name, "unknown", "nothing of it arrived at the tap", "does the proxy send this route to another upstream?"
        )
    grown = [f"{kind} +{percent(-share)}" for kind, share in known.items() if share <= -NOTICEABLE]
    shrunk = [f"{kind} −{percent(share)}" for kind, share in known.items() if _did_shrink(by_kind[kind])]
    if shrunk or grown:
        untouched = [kind for kind in known if kind not in " ".join([*shrunk, *grown])]
        detail = ", ".join([*shrunk, *grown]) + (f"; untouched: {', '.join(untouched)}" if untouched else "")
        return Finding(name, "warn" if grown else "ok", detail, "requests grow on the way" if grown else "")
    if control is None:
        return Finding(
            name,
            "unknown",
            "inactive or degraded here: nothing was shortened in any shape",
            "is the proxy's compression switched on?",
        )
    return Finding(name, "warn", f"does nothing here ({control})", "clients of this shape save nothing")


async def positive_control(proxy_url: str, recorder: Recorder, *, model: str, api_key: str | None = None) -> str | None:
    """Does the proxy shorten anything at all? Sends one text of each kind that compressors say they shorten, as plain
    requests.

    Returns what shrank, in words, or `None`: then "it does nothing" must not be said, for it may be switched off or
    degraded.
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
