"""A page on loopback that takes a log and shows where its tokens went.

The log goes to this process only, is held in memory while it is read, and is gone afterwards: nothing is written, no
index is kept, nothing leaves the machine. The page is shown under a loopback name alone, and no other web page may send
it anything (`viewer.server.Door`).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import hdrs, web

from context_bench.core.addresses import listening_port
from context_bench.core.errors import BadInput
from context_bench.llm.responders import SERVER_LOG
from context_bench.traffic.explain import Explained, shareable
from context_bench.traffic.explain.bill_page import drop_page, html
from context_bench.traffic.explain.logs import summarised
from context_bench.transcripts.format import plain_bytes
from context_bench.transcripts.session_files import read_sessions
from context_bench.viewer.server import Door

MOST = 256 * 2**20  # bytes of a log
_SCRIPT = """
const drop=document.getElementById("drop"),file=document.getElementById("file"),found=document.getElementById("found");
async function explain(log){found.textContent="Reading…";
const answer=await fetch("/explain",{method:"POST",body:log,headers:{"Content-Type":"application/octet-stream"}});
const text=await answer.text();
if(answer.ok){const page=new DOMParser().parseFromString(text,"text/html");
found.replaceChildren(...Array.from(page.body.childNodes).slice(1))}else found.textContent=text}
file.onchange=()=>file.files[0]&&explain(file.files[0]);
drop.ondragover=e=>e.preventDefault();
drop.ondrop=e=>{e.preventDefault();e.dataTransfer.files[0]&&explain(e.dataTransfer.files[0])};
"""
_DIGEST = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_DIGEST}'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    **{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"},
    **{"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"},
    **{"Cache-Control": "no-store", "Content-Security-Policy": f"{_POLICY}; frame-ancestors 'none'"},
}


class HeldLog(type(Path())):  # type: ignore[misc]
    """A path of a log that is on no disk: what is read of it comes from memory."""

    contents: ClassVar[dict[str, bytes]] = {}

    def open(self, *given: Any, **how: Any) -> Any:
        """Its bytes, as a file."""
        held = self.contents.get(str(self))
        return super().open(*given, **how) if held is None else io.BytesIO(held)

    def read_bytes(self) -> bytes:
        """Its bytes."""
        held = self.contents.get(str(self))
        return super().read_bytes() if held is None else held

    def is_file(self) -> bool:
        """True while it is held."""
        return str(self) in self.contents or super().is_file()

    def is_dir(self) -> bool:
        """False: it is a log."""
        return False

    def stat(self, **how: Any) -> os.stat_result:
        """Its size; nothing else is known."""
        held = self.contents.get(str(self))
        return super().stat(**how) if held is None else os.stat_result((0o100600, 0, 0, 1, 0, 0, len(held), 0, 0, 0))


def explained_page(data: bytes, number: int, reaches: Sequence[str], *, texts: bool) -> str:
    """The page about the sessions in a log's bytes. Raises `BadInput`."""
    path = HeldLog(f"dropped-{number}.jsonl")
    HeldLog.contents[str(path)] = plain_bytes(data, MOST)
    told = Explained()
    try:
        for session in read_sessions([path]):
            told.add(summarised(session, reaches, texts=texts))
    finally:
        del HeldLog.contents[str(path)]
    return html(told if texts else shareable(told), texts=texts)


class DropPage:
    """The server: `async with DropPage(...) as page: page.url`. `port` 0 takes a free one."""

    def __init__(self, port: int = 0, reaches: Sequence[str] = (), *, texts: bool = False) -> None:
        self._port, self._reaches, self._texts = listening_port(port, "the port"), reaches, texts
        self._door, self._count = Door(), 0
        self._reading = asyncio.Lock()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`; once started."""
        return f"http://127.0.0.1:{self._door.port}"

    async def __aenter__(self) -> DropPage:
        app = web.Application(middlewares=[self._guarded], client_max_size=MOST)
        app.router.add_get("/", self._front)
        app.router.add_post("/explain", self._explain)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, logger=SERVER_LOG)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
        except OSError as error:
            await runner.cleanup()
            raise BadInput(
                f"cannot listen on 127.0.0.1:{self._port} ({error.strerror or error}); choose another --port"
            ) from None
        self._runner, self._door.port = runner, runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        refusal = self._door.refusal(request)
        if refusal is not None:
            return _with_headers(web.Response(status=403, text=refusal))
        try:
            response: web.StreamResponse = await handler(request)
        except web.HTTPException as fault:
            response = web.Response(status=fault.status, text=fault.reason)
        return _with_headers(response)

    async def _front(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text=drop_page(f"<script>{_SCRIPT}</script>", _POLICY), content_type="text/html")

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get(hdrs.ORIGIN) is None and request.headers.get("Sec-Fetch-Site") is None:
            return web.Response(status=403, text="Only the page itself may send a log.")
        data = await request.read()
        self._count += 1
        try:
            async with self._reading:
                page = await asyncio.to_thread(explained_page, data, self._count, self._reaches, texts=self._texts)
        except BadInput as error:
            return web.Response(status=400, text=str(error).partition(". Formats tried")[0])
        return web.Response(text=page, content_type="text/html")


def _with_headers(response: web.StreamResponse) -> web.StreamResponse:
    response.headers.update(_HEADERS)
    return response


async def serve(port: int, reaches: Sequence[str], *, texts: bool, browser: bool) -> None:
    """Show the page until the command is ended."""
    from context_bench.session.output_files import say

    async with DropPage(port, reaches, texts=texts) as page:
        say(f"explain: {page.url} (Ctrl-C ends it)")
        if browser and sys.stdout.isatty():
            import webbrowser

            await asyncio.to_thread(webbrowser.open, page.url)
        await asyncio.Event().wait()
