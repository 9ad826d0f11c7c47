"""The checks of a grade for what stands between a client and a provider: our client before it, our provider behind it.

The provider plays what a check orders, so that what the client gets can be held against what was said, and what arrived
against what was sent. One check is asked after the other. Nothing leaves this machine, no key is a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import IO, Any

from context_bench.core.errors import BadInput
from context_bench.core.families import GradeAnswer, GradeCheck, GradeFault, GradeTarget
from context_bench.core.keys import canonical_json
from context_bench.core.machine import started
from context_bench.core.records import Usage
from context_bench.llm.chat import endpoint
from context_bench.llm.coding import decode
from context_bench.llm.redact import redact
from context_bench.llm.responders import Delivery, Staged
from context_bench.llm.servers import ModelServer, Received
from context_bench.traffic.client import dummy_environment
from context_bench.wire.apis import Ending, ShapedRequest, read_reply
from context_bench.wire.apis.shared import Reply, dump
from context_bench.wire.request import WireRequest
from context_bench.wire.violations import closest

WIRES = {"openai-chat": "chat completions", "anthropic": "messages", "openai-responses": "responses"}
_PATHS = {
    "openai-chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "openai-responses": "/v1/responses",
}
_MODELS = {"openai-chat": "gpt-4o-mini", "anthropic": "claude-sonnet-4-5", "openai-responses": "gpt-4o-mini"}
#: Keys that nobody has: what is done with a key can be seen without one.
KEY, OTHER_KEY = "sk-contextbench-grade-first-0000000000000001", "sk-contextbench-grade-other-0000000000000002"
_PASSED = ("content-type", "content-encoding", "accept-encoding", "anthropic-version")
_LARGEST_REPLY = 16 * 2**20
#: Seconds in which a started proxy has to answer, and between two looks.
_START_SECONDS, _LOOK_SECONDS = 60.0, 0.2
#: Further attempts where a proxy says of its own that it is asked too much, and seconds before each.
_PATIENCE, _WAIT_SECONDS = 5, 1.0
#: Further attempts of the first request on a route where it gets no reply in time.
_FIRST_ATTEMPTS = 3

Script = Callable[[WireRequest, Mapping[str, str]], Staged]


def plain(text: str = "The gate opens at nine.", **fields: Any) -> Reply:
    """A reply in neutral form, with usage."""
    return Reply(text=text, finish_reason="stop", usage=Usage(input_tokens=120, output_tokens=9), **fields)


def says(reply: Reply, **delivery: Any) -> Script:
    """The script that always gives this reply, delivered so."""
    return lambda request, headers: Staged(replace(reply, model=request.model), Delivery(**delivery))


class ProbeProvider:
    """A responder that plays what the check of the moment orders."""

    name = "grade"

    def __init__(self) -> None:
        self.script: Script = says(plain())

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Staged:
        """The reply that is ordered; it may refuse."""
        return self.script(request, headers)

    async def models(self) -> list[str]:
        """The models that are asked for."""
        return sorted(set(_MODELS.values()))


@dataclass(slots=True)
class Heard:
    """A reply as the client got it. `pieces`: seconds since the request and bytes; `error`: why it is not whole."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    error: str = ""

    @property
    def raw(self) -> bytes:
        """The body as it came."""
        return b"".join(piece for _, piece in self.pieces)

    @property
    def body(self) -> bytes:
        """The body, unpacked; as it came where that cannot be done."""
        with contextlib.suppress(ValueError):
            return decode(self.raw, self.headers.get("content-encoding", ""))
        return self.raw

    @property
    def text(self) -> str:
        """The same for people, without keys."""
        return redact(self.body.decode("utf-8", "replace"), (KEY, OTHER_KEY))

    def reply(self, wire: str) -> Reply:
        """The reply as a client of that API reads it, whole or not; unpacked before."""
        packed = self.headers.get("content-encoding", "")
        pieces = [(0.0, self.body)] if packed else self.pieces
        how: Ending = "broken" if self.error else "whole"
        return read_reply(wire, pieces, status=self.status, headers=self.headers.items(), ended=how)


@dataclass(slots=True)
class ProbeExchange:
    """A request with all that became of it: what the client got, and what arrived at the provider in its time."""

    request: ShapedRequest
    heard: Heard
    arrived: list[Received]

    @property
    def main(self) -> Received | None:
        """The request itself as it arrived, where a proxy also makes calls of its own."""
        if not self.arrived:
            return None
        return self.arrived[closest(self.request.parsed(), [each.request for each in self.arrived])]

    @property
    def sent_text(self) -> str:
        """The request's body for people."""
        return canonical_json(self.request.body)

    @property
    def arrived_text(self) -> str:
        """The body that arrived, for people; empty where nothing did."""
        main = self.main
        return "" if main is None else redact(main.raw.decode("utf-8", "replace"), (KEY, OTHER_KEY))


class ProbeRig:
    """The client before a proxy and the provider behind it. `url`: of the proxy."""

    def __init__(
        self, target: GradeTarget, url: str, stage: ProbeProvider, provider: ModelServer, session: Any
    ) -> None:
        self.target, self.url, self.stage, self.provider = target, url, stage, provider
        self._session = session
        self._routes: dict[str, str] = {}
        self._run, self._count = secrets.token_hex(4), 0

    def unique(self) -> str:
        """A mark of the same length each time, for texts that no cache of the proxy's own may know already."""
        self._count += 1
        return f"{self._run}-{self._count:05}"

    def request(
        self, wire: str, body: Mapping[str, Any], *, stream: bool = False, headers: Mapping[str, str] | None = None
    ) -> ShapedRequest:
        """A request on a wire; `body` without model, which is the target's or the wire's usual one."""
        whole = {"model": self.target.model or _MODELS[wire], **body, **({"stream": True} if stream else {})}
        if wire == "anthropic":
            whole.setdefault("max_tokens", 4096)
            headers = {"anthropic-version": "2023-06-01", **(headers or {})}
        elif stream and wire == "openai-chat":
            whole["stream_options"] = {"include_usage": True}
        return ShapedRequest(wire, _PATHS[wire], dict(headers or {}), whole)

    def short(self, wire: str, text: str = "", **more: Any) -> ShapedRequest:
        """A request of a few words, which nobody has asked before if no `text` is given; `stream=True` for a stream,
        other fields go into the body.
        """
        stream, text = bool(more.pop("stream", False)), text or f"When does the gate open? ({self.unique()})"
        field_name = "input" if wire == "openai-responses" else "messages"
        return self.request(wire, {field_name: [{"role": "user", "content": text}], **more}, stream=stream)

    async def ask(self, request: ShapedRequest, script: Script | None = None, *, key: str = KEY) -> ProbeExchange:
        """Send one request while the provider plays `script`; never raises for what comes back."""
        if script is not None:
            self.stage.script = script
        before = self.provider.seen
        heard = await self.send(request, key=key)
        for _ in range(_PATIENCE):
            if heard.status != 429 or self.since(before):
                break
            await asyncio.sleep(_WAIT_SECONDS)  # a limit of the proxy's own: what is asked here is another thing
            heard = await self.send(request, key=key)
        return ProbeExchange(request, heard, self.since(before))

    def since(self, before: int) -> list[Received]:
        """The model calls that arrived after the first `before` requests."""
        count = self.provider.seen - before
        latest = list(self.provider.requests)[-count:] if count else []
        return [each for each in latest if each.wire in WIRES]

    async def send(self, request: ShapedRequest, *, key: str = KEY) -> Heard:
        """The reply to one request, with the time of each piece."""
        key = self.target.key or key
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", **request.headers}
        if request.wire == "anthropic":
            headers["x-api-key"] = key
        return await self._post(
            endpoint(self.url, request.path), dump(request.body), {**headers, **self.target.headers}
        )

    async def direct(self, received: Received) -> Heard:
        """The reply that the provider itself gives to a request that arrived, by the script of the moment."""
        kept = {name: value for name, value in received.headers.items() if name in _PASSED}
        return await self._post(f"{self.provider.url}{received.path}", received.raw, kept)

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Heard:
        import aiohttp

        heard, began = Heard(), time.monotonic()
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as reply:
                heard.status = reply.status
                heard.headers = {name.lower(): value for name, value in reply.headers.items()}
                size = 0
                async for piece in reply.content.iter_any():
                    heard.pieces.append((time.monotonic() - began, piece))
                    size += len(piece)
                    if size > _LARGEST_REPLY:
                        heard.error = f"more than {_LARGEST_REPLY:,} bytes"
                        break
        except aiohttp.ClientPayloadError:
            heard.error = "the reply breaks off before its end"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            heard.error = redact(str(error), (KEY, OTHER_KEY)) or (
                f"no end within {self.target.timeout:g} s" if isinstance(error, TimeoutError) else type(error).__name__
            )
        return heard

    async def missing(self, wire: str) -> GradeAnswer | None:
        """The reason for which nothing can be asked on a route; `None` if it works. It is tried once."""
        if wire not in self._routes:
            asked = await self.ask(self.short(wire), says(plain()))
            for _ in range(_FIRST_ATTEMPTS):  # a proxy may load models when it is first asked
                if asked.heard.status is not None or "within" not in asked.heard.error:
                    break
                asked = await self.ask(self.short(wire))
            heard, said = asked.heard, ""
            if heard.error or heard.status is None:
                said = f"a plain request gets no reply ({heard.error})"
            elif heard.status in (404, 405, 501):
                said = "not offered"
            elif heard.status >= 400:
                said = f"a plain request gets HTTP {heard.status}: {heard.text[:200]}"
            elif not asked.arrived:
                said = f"the answer came without our provider: set the proxy's own upstream to {self.provider.url}"
            self._routes[wire] = said
        said = self._routes[wire]
        if not said:
            return None
        if said == "not offered":
            return GradeAnswer(offered=False)
        return GradeAnswer(not_asked=said)


@asynccontextmanager
async def proxy_checks(target: GradeTarget) -> AsyncIterator[Sequence[GradeCheck]]:
    """All checks of a proxy: one that runs, one that is started, or a compressor behind our own relay."""
    import aiohttp

    from context_bench.traffic.probes.conduct import conduct_checks, request_checks
    from context_bench.traffic.probes.reply_checks import error_checks, reply_checks

    stage = ProbeProvider()
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(ModelServer(stage, port=target.back))
        url = await _front(stack, target, provider.url)
        session = await stack.enter_async_context(
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=target.timeout),
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0, force_close=True),  # one that was closed says nothing
            )
        )
        headers = {name: value.replace("{back}", provider.url) for name, value in target.headers.items()}
        rig = ProbeRig(replace(target, headers=headers), url, stage, provider, session)
        yield [*request_checks(rig), *reply_checks(rig), *conduct_checks(rig), *error_checks(rig)]


async def _front(stack: AsyncExitStack, target: GradeTarget, back: str) -> str:
    """The URL to ask: the proxy's own, or that of what is started here."""
    if target.subject == "system":
        from context_bench.systems.serve import Served

        return (await stack.enter_async_context(Served(target.value, back))).url
    if not target.start:
        return target.value
    port = _free_port()
    log = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    await stack.enter_async_context(_started(target.start, port, back, log))
    return target.value or f"http://127.0.0.1:{port}"


def _free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


@asynccontextmanager
async def _started(line: str, port: int, back: str, log: IO[bytes]) -> AsyncIterator[None]:
    """A proxy that runs until the end, with all that it started; `BadInput` if it does not come up."""
    words = [word.replace("{port}", str(port)).replace("{back}", back) for word in shlex.split(line)]
    try:
        process = await started(
            *words,
            env=dummy_environment(KEY, HF_HUB_OFFLINE="1"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    except OSError as error:
        raise BadInput(f"--proxy-command: {words[0]!r} cannot be started: {error.strerror or error}") from None
    try:
        await _up(process, port, log)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 5.0)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _up(process: asyncio.subprocess.Process, port: int, log: IO[bytes]) -> None:
    """Wait until something listens on the port."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.returncode is not None:
            raise BadInput(f"--proxy-command ended with exit code {process.returncode}: {_last_words(log)}")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise BadInput(
        f"--proxy-command: nothing listens on port {port} after {_START_SECONDS:g} s; put {{port}} where the command "
        f"names its port: {_last_words(log)}"
    )


def _last_words(log: IO[bytes]) -> str:
    log.flush()
    size = os.fstat(log.fileno()).st_size
    return redact(os.pread(log.fileno(), 600, max(0, size - 600)).decode("utf-8", "replace")).strip() or "no output"


def fault(kind: str, detail: str, asked: ProbeExchange | None = None, *, tokens: bool = False) -> GradeFault:
    """A fault with the bytes that show it: of a request, what was sent and what arrived."""
    if asked is None:
        return GradeFault(kind, detail)
    count = asked.request.tokens() if tokens else None
    return GradeFault(kind, detail, asked.sent_text, asked.arrived_text, count)


def refused(asked: ProbeExchange, kind: str = "request_refused") -> GradeAnswer | None:
    """The answer for a request that got no reply, or did not go on; `None` if it was answered and arrived."""
    heard = asked.heard
    said = heard.error or (f"HTTP {heard.status}: {heard.text[:300]}" if (heard.status or 0) >= 400 else "")
    if said:
        return GradeAnswer((GradeFault(kind, f"the client gets {said}", asked.sent_text, asked.arrived_text),))
    if not asked.arrived:
        return GradeAnswer((fault("request_not_forwarded", "it was answered, and the provider was not asked", asked),))
    return None
