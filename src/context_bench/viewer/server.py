"""The server: routes, and what holds for every answer. Loopback only, `GET` only; nothing is written unless it was
started to edit (`editing`).

The viewer admits whoever has the address with the token, through a loopback name, and no other web page. Progress of a
run is sent for as long as it goes on.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from cachetools import FIFOCache

from context_bench.core.addresses import is_loopback, listening_port
from context_bench.core.errors import BadInput, ContextBenchError, StoreUnusable, UnknownName
from context_bench.core.machine import home_folder
from context_bench.engine.store.browsing import ListedRun, Place, open_reading
from context_bench.llm.responders import SERVER_LOG
from context_bench.reports.cards import store_option
from context_bench.reports.visible_text import visible
from context_bench.session.reporting import named
from context_bench.viewer import pages
from context_bench.viewer.editing import MOST_SENT, Handler, RunEditor
from context_bench.viewer.example_lines import FORMS
from context_bench.viewer.pages import Library, Query, pair_url, read_pair, whole_number
from context_bench.viewer.working import EVERY, ListedEntry, ResultOf, Tracker, WatchPage, Worked, Worker, turn_of

TOKEN = "token"


class Door:
    """Looks at every request before anything else does. `port` is known once the server listens.

    The token is exchanged for a cookie that other sites cannot have sent (`SameSite=Strict`) and no script can read.
    Cookies know no ports, so its name has the port in it.
    """

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self._session = secrets.token_urlsafe(24)
        self.port = 0

    def refusal(self, request: web.BaseRequest) -> str | None:
        """Reason to refuse a request, or `None`: a foreign `Host` (a rebound name), another page's `Origin` or
        subrequest.
        """
        host = request.headers.get(hdrs.HOST, "")
        if not self._own(host):
            return (
                f"Host {host[:100]!r} is not this viewer's: open it under the address that `context-bench "
                "view` printed."
            )
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and not (origin.startswith("http://") and self._own(origin.removeprefix("http://"))):
            return f"Origin {origin[:100]!r} may not use this viewer: no other web page may."
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("same-origin", "none") and not _follows_link(request):
            return "Other web pages may link to this viewer, and nothing else."
        return None

    def refuses_write(self, request: web.BaseRequest) -> bool:
        """True for a request to write that does not say that it comes from a page of ours. `refusal` was asked
        before.
        """
        site = request.headers.get("Sec-Fetch-Site", "none")
        return hdrs.ORIGIN not in request.headers or site not in ("same-origin", "none")

    def _own(self, netloc: str) -> bool:
        try:
            parts = urlsplit(f"//{netloc}")
            return (
                parts.netloc == netloc
                and is_loopback(parts.hostname or "")
                and (parts.port or 80) == self.port
                and "@" not in netloc
            )
        except ValueError:
            return False

    def has_cookie(self, request: web.BaseRequest) -> bool:
        """Was the token shown before?"""
        return _equal(request.cookies.get(self._cookie, ""), self._session)

    def shows_token(self, request: web.BaseRequest) -> bool:
        """Is the right token in the address?"""
        return _equal(request.query.get(TOKEN, ""), self.token)

    def let_in(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Give the cookie."""
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="Strict", path="/")

    @property
    def _cookie(self) -> str:
        return f"context_bench_{self.port}"


def _follows_link(request: web.BaseRequest) -> bool:
    headers = request.headers
    return headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


T = TypeVar("T")
#: A part as it is now, how the thing ended (`""`: it goes on), and the seconds until the next look.
Look = tuple[str, str, float]

#: Seconds between two signs of life on a stream, and how many streams there may be.
HEARTBEAT, MOST_STREAMS = 15.0, 32
_log = logging.getLogger("context_bench.viewer")
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def shown_place(name: str) -> str:
    """A store's name as it is shown: below the current folder relative to it, below the home folder with `~`; addresses
    as they are.
    """
    path = Path(name)
    for folder, mark in ((Path.cwd(), Path()), (home_folder(), Path("~"))):
        if folder is not None and path.is_absolute() and path.is_relative_to(folder) and folder != Path("/"):
            return str(mark / path.relative_to(folder))
    return name


class Viewer:
    """The pages of one store on loopback: `async with Viewer(path, result_of=...) as viewer: viewer.url`.

    `result_of(store, record)`: how a stored run becomes a result; a function of a module, since another process calls
    it. `port` 0 takes a free one. `edit`: titles, tags, notes and deletions can be written. Raises `StoreUnusable` for
    a store that cannot be read (or written, to edit) and `BadInput` for a port that cannot be had.
    """

    def __init__(
        self, where: str | Path, *, result_of: ResultOf, port: int = 0, token: str | None = None, edit: bool = False
    ) -> None:
        self._where, self._port = str(where), listening_port(port, "the port")
        self._door = Door(token)
        self._worker = Worker(self._where, result_of)
        self._library: Library | None = None
        self._editor = RunEditor(self._where, lambda: self.library, self._read, self._page) if edit else None
        self._trackers: FIFOCache[str, Tracker] = FIFOCache(MOST_STREAMS)  # a stream goes on with its own
        self._streams = 0
        self._runner: web.AppRunner | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def url(self) -> str:
        """The address with the token; once started."""
        return f"{self.address}/?{TOKEN}={self._door.token}"

    @property
    def address(self) -> str:
        """`http://127.0.0.1:PORT`; once started."""
        return f"http://127.0.0.1:{self._door.port}"

    async def start(self) -> Viewer:
        """Open the store, bind, serve."""
        if self._editor is not None:
            self._editor.open()
        store = open_reading(self._where)
        app = web.Application(middlewares=[self._guarded], client_max_size=MOST_SENT)
        app.on_response_prepare.append(self._with_headers)
        for path, handler in (self._routes() | (self._editor.routes() if self._editor else {})).items():
            app.router.add_route("*", path, handler)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2, logger=SERVER_LOG)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
        except OSError as error:
            await runner.cleanup()
            store.close()
            self._close_editor()
            raise BadInput(
                f"cannot listen on 127.0.0.1:{self._port} ({error.strerror or error}); choose another --port"
            ) from None
        self._door.port = runner.addresses[0][1]
        self._runner, self._library = runner, Library(store, named(self._where))
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="context-bench-view")
        return self

    async def stop(self) -> None:
        """Close every connection, the other process and the store."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
            await self._worker.close()
            assert self._threads is not None
            self._threads.shutdown(wait=True, cancel_futures=True)
            self.library.store.close()
            self._close_editor()

    def _close_editor(self) -> None:
        if self._editor is not None:
            self._editor.close()

    async def __aenter__(self) -> Viewer:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def library(self) -> Library:
        """The library that pages are read from."""
        assert self._library is not None
        return self._library

    def _routes(self) -> dict[str, Handler]:
        run = "/runs/{run}"
        return {
            "/": self._list,
            run: self._run,
            f"{run}/summary": self._summary,
            f"{run}/verdicts": self._verdicts,
            f"{run}/events": self._events,
            f"{run}/rows.{{form:csv|jsonl|json}}": self._download,
            f"{run}/rows/{{place}}": self._row,
            "/compare": self._compare,
            "/pair": self._pair,
            "/watch": self._watch,
            "/watch/events": self._watch_events,
            "/watch/turn": self._turn,
            "/static/style.css": _style,
            "/static/viewer.js": _script,
        }

    async def _read(self, function: Callable[..., T], *args: Any) -> T:
        """In a thread: the loop never waits for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def _with_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)
        if self._editor is not None:  # with `no-referrer` a browser would say of our own forms that they are nobody's
            response.headers["Referrer-Policy"] = "same-origin"

    # Who and how

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if (reason := self._door.refusal(request)) is not None:
            return web.Response(text=reason, status=403)
        if request.method != hdrs.METH_GET and not (self._editor is not None and self._editor.takes(request)):
            starts = f"context-bench view --edit{store_option(self.library.named)}"
            said = f"This viewer only shows: GET and nothing else. `{starts}` starts one that writes."
            if self._editor is not None:
                said = "Nothing is written here; the forms of this viewer say where."
            return web.Response(text=said, status=405, headers={hdrs.ALLOW: "GET"})
        if request.method != hdrs.METH_GET and self._door.refuses_write(request):
            return web.Response(text="Only pages of this viewer may write: a form names it as its Origin.", status=403)
        if request.path.startswith("/static/"):
            return await handler(request)
        if TOKEN in request.query:
            return self._entered(request)
        if not self._door.has_cookie(request):
            return self._page("closed.html.j2", status=403, again=str(request.rel_url))
        return await self._answered(request, handler)

    def _entered(self, request: web.Request) -> web.StreamResponse:
        if not self._door.shows_token(request):
            return self._page("closed.html.j2", status=403, again=None)
        there = str(request.rel_url.without_query_params(TOKEN))
        if not there.startswith("/") or there.startswith("//"):
            there = "/"
        if request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin"):
            response: web.Response = web.Response(status=303, headers={hdrs.LOCATION: there})
        else:  # a strict cookie is not sent on a redirect of another site's link, but on the next step of our own page
            response = self._page("enter.html.j2", there=there)
        self._door.let_in(request, response)
        return response

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return self._fault(404, "There is no such page here.")
        except UnknownName as error:
            return self._fault(404, str(error))
        except BadInput as error:
            return self._fault(400, str(error))
        except StoreUnusable as error:
            return self._fault(503, str(error))
        except ContextBenchError as error:
            return self._fault(500, str(error))
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            _log.exception("a page failed")
            return self._fault(500, f"This page failed: {type(error).__name__}: {error}")

    def _fault(self, status: int, text: str) -> web.Response:
        return self._page("fault.html.j2", status=status, code=status, text=text)

    def _page(self, template: str, *, status: int = 200, **values: Any) -> web.Response:
        key = self._editor.key if self._editor is not None else None
        place, option = shown_place(self.library.store.name), store_option(self.library.named)
        html = pages.render(template, store=place, store_option=option, key=key, **values)
        return web.Response(
            body=html.encode("utf-8", "replace"), status=status, content_type="text/html", charset="utf-8"
        )

    # Pages

    async def _list(self, request: web.Request) -> web.StreamResponse:
        found = await self._read(self.library.runs, Query.read(request.query))
        return self._page("runs.html.j2", found=found, query=found.query, told_of=await self._summaries(found.runs))

    async def _summaries(self, listed: list[ListedEntry]) -> dict[str, dict[str, Any] | None]:
        """Verdicts of each run as far as they need no work: kept with it, or worked out before."""
        runs = [each.run for each in listed if each.run is not None]
        worked = {run.id: self._worker.finished(run) for run in runs}
        return {run.id: run.summary or (each.summary if (each := worked[run.id]) else None) for run in runs}

    async def _run(self, request: web.Request) -> web.StreamResponse:
        query = Query.read(request.query)
        run = await self._read(self.library.run, request.match_info["run"])
        page = await self._read(self.library.rows, run, query)
        going = (await self._tracker(run).now())[1] if run.running else []
        return self._page("run.html.j2", run=run, page=page, query=query, known=self._worker.finished(run), going=going)

    async def _summary(self, request: web.Request) -> web.StreamResponse:
        run = await self._read(self.library.run, request.match_info["run"])
        worked = await self._worker.summary(run, fresh="fresh" in request.query)
        return self._part(request, "summary_part.html.j2", f"{visible(run.name)}: summary", run=run, worked=worked)

    async def _verdicts(self, request: web.Request) -> web.StreamResponse:
        run = await self._read(self.library.run, request.match_info["run"])
        worked = await self._worker.summary(run)
        title = f"{visible(run.name)}: verdicts"
        return self._part(request, "verdicts_part.html.j2", title, run=run, told=worked.summary)

    def _part(self, request: web.Request, template: str, title: str, **values: Any) -> web.Response:
        """A part for the script, or a page of its own for a reader without one."""
        if "part" in request.query:
            return self._page(template, **values)
        return self._page("alone.html.j2", part=template, title=title, **values)

    async def _row(self, request: web.Request) -> web.StreamResponse:
        query, place = Query.read(request.query), Place.parse(request.match_info["place"])
        run = await self._read(self.library.run, request.match_info["run"])
        view = await self._read(self.library.row, run, place, query)
        return self._page("row.html.j2", view=view, run=run, query=query)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        """The rows asked for, as a file."""
        form, run = request.match_info["form"], await self._read(self.library.run, request.match_info["run"])
        parts = await self._read(self.library.written, run, Query.read(request.query), form)
        part = await self._read(next, parts, "")  # what cannot be asked is refused before the file begins
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: f"{FORMS[form]}; charset=utf-8"})
        response.headers[hdrs.CONTENT_DISPOSITION] = f'attachment; filename="rows.{form}"'
        await response.prepare(request)
        while part:
            await response.write(part.encode("utf-8", "replace"))
            part = await self._read(next, parts, "")
        return response

    async def _pair(self, request: web.Request) -> web.StreamResponse:
        asked = [read_pair(text) for text in request.query.getall("row", [])]
        if len(asked) != 2:
            raise BadInput("Two rows are held side by side; the address names another number of them.")
        views = await self._read(self.library.pair, *asked)
        return self._page("pair.html.j2", views=views)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        asked = Query.read(request.query)
        found = await self._read(WatchPage.read, self.library.store, request.query.get("name", ""), asked.page)
        return self._page("watch.html.j2", found=found)

    async def _turn(self, request: web.Request) -> web.StreamResponse:
        number = whole_number(request.query, "number", 1)
        watch, turn = await self._read(turn_of, self.library.store, request.query.get("name", ""), number)
        return self._page("turn.html.j2", watch=watch, turn=turn)

    async def _compare(self, request: web.Request) -> web.StreamResponse:
        force, metric = "force" in request.query, request.query.get("metric", "")[:200]
        before, after = await self._read(self.library.two_runs, request.query.getall("run", []))
        values: dict[str, Any] = {"before": before, "after": after, "force": force, "metric": metric}
        if "part" not in request.query and "wait" not in request.query:
            return self._page("compare.html.j2", worked=None, links={}, **values)
        worked = await self._worker.comparison(before, after, force=force, metric=metric)
        links = await self._read(self._links, before, after, worked)
        return self._page(
            "compare_part.html.j2" if "part" in request.query else "compare.html.j2",
            worked=worked,
            links=links,
            **values,
        )

    def _links(self, before: ListedRun, after: ListedRun, worked: Worked) -> dict[int, str]:
        """Addresses of changed examples, side by side, by their place in the list."""
        from context_bench.engine.store.row_lists import places_of

        ones = places_of(self.library.store, before, [each.earlier for each in worked.changed])
        others = places_of(self.library.store, after, [each.later for each in worked.changed])
        return {
            number: pair_url((before.id, ones[each.earlier]), (after.id, others[each.later]))
            for number, each in enumerate(worked.changed)
            if each.earlier in ones and each.later in others
        }

    # Progress

    def _tracker(self, run: ListedRun) -> Tracker:
        if run.id not in self._trackers:
            self._trackers[run.id] = Tracker(lambda: self._read(self.library.live, run.id))
        return self._trackers[run.id]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Progress events of a run until it ends."""
        run = await self._read(self.library.run, request.match_info["run"])
        tracker = self._tracker(run)

        async def progress() -> tuple[str, str, float]:
            now, going = await tracker.now()
            html = pages.render("progress_part.html.j2", run=now, going=going)
            return html, "" if now.running else now.status, tracker.pause

        return await self._stream(request, progress)

    async def _watch_events(self, request: web.Request) -> web.StreamResponse:
        """The latest turns of a watch, until it ends."""
        name = request.query.get("name", "")

        async def turns() -> tuple[str, str, float]:
            began = time.monotonic()
            found = await self._read(WatchPage.read, self.library.store, name)
            pause = max(EVERY, 10 * (time.monotonic() - began))
            html = pages.render("turns_part.html.j2", found=found)
            return html, "" if found.watch.status == "running" else found.watch.status, pause

        return await self._stream(request, turns)

    async def _stream(self, request: web.Request, look: Callable[[], Awaitable[Look]]) -> web.StreamResponse:
        if self._streams >= MOST_STREAMS:
            return self._fault(503, f"{MOST_STREAMS} pages watch already; close some of them.")
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        self._streams += 1
        try:
            await self._tell(response, look)
        except ConnectionError:
            pass  # nobody is looking any more
        finally:
            self._streams -= 1
            if not self._streams:
                self._trackers.clear()
        return response

    async def _tell(self, response: web.StreamResponse, look: Callable[[], Awaitable[Look]]) -> None:
        loop = asyncio.get_running_loop()
        told, spoke = "", loop.time()
        while True:
            html, ended, pause = await look()
            if html != told:
                await response.write(_event("progress", html))
                told, spoke = html, loop.time()
            elif loop.time() - spoke > HEARTBEAT:
                await response.write(b": still here\n\n")
                spoke = loop.time()
            if ended:
                await response.write(_event("end", ended))
                return
            await asyncio.sleep(pause)


def _event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode("utf-8", "replace")


async def _style(_: web.Request) -> web.StreamResponse:
    return web.Response(text=pages.style(), content_type="text/css", charset="utf-8")


async def _script(_: web.Request) -> web.StreamResponse:
    return web.Response(text=pages.script(), content_type="text/javascript", charset="utf-8")
