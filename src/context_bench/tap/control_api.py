"""Control a tap over HTTP: begin and end windows, collect records; who is let in. Records as JSON, and as lines of a
file for its owner alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import secrets
import socket
import stat
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from context_bench.core.addresses import fault_of, host_of, is_loopback, page_refusal, shown
from context_bench.core.errors import BadInput, ContextBenchError, PreflightFailed, StoreUnusable, Unreachable
from context_bench.core.ledger import BaselinePairing, Mark
from context_bench.core.machine import opener
from context_bench.core.numbers import forwarded_of
from context_bench.core.records import Forwarded, Usage
from context_bench.tap.tap_relay import tap_error
from context_bench.wire.apis.shared import dump, load_json


def as_json(record: Forwarded) -> dict[str, Any]:
    """A record as JSON values, bodies untouched (absent parts of a body stay `null`). `core.numbers.forwarded_of` reads
    it back.
    """
    values = {one.name: getattr(record, one.name) for one in fields(Forwarded)}
    if record.usage is not None:
        values["usage"] = {one.name: getattr(record.usage, one.name) for one in fields(Usage)}
    return values


def pairing_of(given: Any) -> BaselinePairing | None:
    """The pairing that a control names; `None` for none."""
    if not isinstance(given, Mapping) or not isinstance(given.get("example"), str):
        return None
    aside, evidence, arms = given.get("aside"), given.get("evidence"), given.get("arms")
    return BaselinePairing(
        given["example"],
        given.get("first") is True,
        given.get("copies") is True,
        aside if isinstance(aside, str) else "",
        [piece for piece in evidence if isinstance(piece, str)] if isinstance(evidence, list) else [],
        arms if isinstance(arms, int) and not isinstance(arms, bool) and arms >= 0 else None,
    )


@contextlib.contextmanager
def record_file(path: Path) -> Iterator[Callable[[Forwarded], None]]:
    """A sink that appends each record as one line of JSON to a file that only its owner may read (mode 0600). Raises
    `StoreUnusable`.
    """
    try:
        if path.is_fifo():
            file, size = opener(str(path), os.O_APPEND), 0
        else:
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
            found = os.fstat(file)
            if stat.S_ISREG(found.st_mode):  # a device belongs to everybody
                os.fchmod(file, 0o600)
            size = found.st_size
        torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    except OSError as error:
        raise StoreUnusable(f"records cannot be written to {path}: {error.strerror or error}") from None

    def write(record: Forwarded) -> None:
        nonlocal torn
        line = dump(as_json(record)) + b"\n"
        if torn:  # an earlier writer was killed within a line: that line is lost, this one must not be
            line = b"\n" + line
        torn = os.write(file, line) != len(line)

    try:
        yield write
    finally:
        os.close(file)


PREFIX = "/_context_bench/"
HEADER = "x-context-bench-control"


async def answer_control(
    request: web.BaseRequest, do: Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]
) -> web.Response:
    """Answer a request of the control API: what `do(METHOD NAME, body)` gives, or why it is refused."""
    refusal = _refusal(request)
    if refusal:
        return _refused(refusal, 403)
    try:
        given = load_json(await request.read()) if request.body_exists else {}
        control = f"{request.method} {request.path.removeprefix(PREFIX)}"
        answer = await do(control, given if isinstance(given, Mapping) else {})
    except ContextBenchError as error:
        return _refused(str(error), 409)
    except ValueError:
        return _refused("the body is not JSON", 400)
    except KeyError as error:
        return _refused(f"the body has no {error}", 400)
    if answer is None:
        return _refused("no such control", 404)
    return web.Response(body=dump(answer), content_type="application/json")


def _refusal(request: web.BaseRequest) -> str | None:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    if not peer or not is_loopback(str(peer[0])) or not is_loopback(_name(request.headers.get("Host", ""))):
        return "the tap is controlled from its own machine only, by a loopback name"
    if "Origin" in request.headers or request.headers.get(HEADER) != "1":
        return f"the tap is not controlled by web pages; programs send the header {HEADER}: 1"
    return None


def _name(host: str) -> str:
    return host[: host.rindex("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]


def _refused(text: str, status: int) -> web.Response:
    return tap_error(text, "control", status)


class RemoteTap:
    """A tap that runs elsewhere (`context-bench tap`), as a `core.protocols.Recorder`.

    `url`: what `context-bench tap` printed; a path such as `/v1` after it does no harm. `marker` overrides the tap's
    own. Use it as `async with`, which also learns the tap's settings (`about`) and raises `PreflightFailed` when nobody
    answers there; without it the first call does. Raises `Unreachable` when nobody answers any more, `BadInput` when it
    is no tap or refuses. Conversations of two `RemoteTap`s never share a token.
    """

    def __init__(self, url: str, *, marker: str | None = None, timeout: float = 30.0) -> None:
        given = url.strip() if "://" in url else f"http://{url.strip()}"
        fault = fault_of(given) or (None if given.lower().startswith("http://") else "taps speak http://")
        if fault is not None:
            raise BadInput(f"{shown(url)!r} is not the URL of a tap: {fault}; expected http://127.0.0.1:PORT")
        origin = URL(given)
        self.url = str(origin.origin())
        self.marker = marker or "key"
        self.about: dict[str, Any] = {}
        self._chosen = marker
        self._owner = secrets.token_hex(8)
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except Unreachable as error:
            await self.aclose()
            raise PreflightFailed(str(error)) from error
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __getstate__(self) -> dict[str, Any]:
        """On its way to another process: the same owner, so that all of them ask for the same conversations;
        connections stay.
        """
        return {**self.__dict__, "_sessions": {}}

    async def connect(self) -> dict[str, Any]:
        """Make sure a tap is there and learn what it is: `upstream`, `marker`, `record`, counts."""
        about = await self._ask("POST", "hello")
        if about.get("tap") != 1:
            raise BadInput(f"{self.url} answers, but is not a tap of this version of context-bench")
        self.about, self.marker = about, self._chosen or str(about["marker"])
        return about

    async def status(self) -> dict[str, Any]:
        """The tap's settings and counts, now."""
        return await self._ask("GET", "status")

    async def begin(self, conversation: str, pairing: BaselinePairing | None = None) -> Mark:
        if not self.about:
            await self.connect()
        goes_with = None if pairing is None else asdict(pairing)
        given = await self._ask("POST", "begin", conversation=conversation, marker=self._chosen, pairing=goes_with)
        return Mark(str(given["mode"]), str(given["token"]))

    async def end(self, mark: Mark) -> list[Forwarded]:
        return self._read(await self._ask("POST", "end", mode=mark.mode, token=mark.token))

    async def late(self) -> list[Forwarded]:
        return self._read(await self._ask("POST", "late"))

    async def unmatched(self) -> list[Forwarded]:
        return self._read(await self._ask("POST", "unmatched"))

    async def aclose(self) -> None:
        """Close the connections of this loop."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    def _read(self, given: Mapping[str, Any]) -> list[Forwarded]:
        return [forwarded_of(values) for values in given["records"]]

    async def _ask(self, method: str, what: str, **body: Any) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            self._sessions[loop] = aiohttp.ClientSession(
                timeout=self._timeout, headers={HEADER: "1"}, cookie_jar=aiohttp.DummyCookieJar()
            )
        data = dump({"owner": self._owner, **body}) if method == "POST" else None
        try:
            async with self._sessions[loop].request(method, f"{self.url}{PREFIX}{what}", data=data) as reply:
                raw = await reply.read()
                status = reply.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(
                f"no tap answers at {self.url} ({type(error).__name__}); start one: context-bench tap --port PORT "
                "--upstream URL"
            ) from None
        return _answer(raw, status, self.url)


def _answer(raw: bytes, status: int, url: str) -> dict[str, Any]:
    """The JSON object in a tap's answer. Raises `BadInput` for an error, and for what no tap says."""
    try:
        answer = load_json(raw)
    except ValueError:
        answer = None
    if status == 200 and isinstance(answer, dict):
        return answer
    error = answer.get("error") if isinstance(answer, dict) else None
    no_tap = f"{url} answers, but is not a tap (HTTP {status})"
    raise BadInput(str(error.get("message")) if isinstance(error, dict) else no_tap)


#: Names under which a container reaches its host; let in only when the tap listens beyond loopback.
_CONTAINER_NAMES = frozenset({"host.docker.internal", "host.containers.internal", "gateway.docker.internal"})


class AccessCheck:
    """The access check of the tap. A web page must not: not by a name of its own that points here, and not from another
    origin.
    """

    def __init__(self, host: str, names: Collection[str] = ()) -> None:
        self._far = not is_loopback(host)
        self._names = {name.lower() for name in names} | (
            {host.lower(), socket.gethostname().lower(), *_CONTAINER_NAMES} if self._far else set()
        )

    def refusal(self, request: web.BaseRequest) -> str | None:
        """The reason for which the request is refused, or `None`."""
        given = request.headers.get(hdrs.HOST)  # absent in HTTP/1.0, which no browser speaks
        host = "" if given is None else host_of(f"//{given}")
        if given is not None and not self._knows(host):
            return (
                f"Host {host[:100]!r} is not a name of this tap (loopback names only, unless it was started "
                "with another --host)"
            )
        return page_refusal(request.headers)

    def _knows(self, host: str) -> bool:
        if is_loopback(host) or host.lower() in self._names:
            return True
        with contextlib.suppress(ValueError):
            return self._far and bool(ipaddress.ip_address(host))  # a rebound name is never an address
        return False
