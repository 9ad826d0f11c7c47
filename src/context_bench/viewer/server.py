"""The server: routes, and what holds for every answer. Loopback only, `GET` only, nothing is ever written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import hdrs, web

from context_bench.core.addresses import listening_port
from context_bench.core.errors import BadInput, ContextBenchError, StoreUnusable, UnknownName
from context_bench.engine.store.browsing import Listed, Place, open_reading
from context_bench.llm.delivery import SERVER_LOG
from context_bench.llm.paths import home_folder
from context_bench.reports.text import visible
from context_bench.viewer import pages
from context_bench.viewer.admission import TOKEN, Door
from context_bench.viewer.asking import Query, read_pair
from context_bench.viewer.library import Library
from context_bench.viewer.running import Tracker
from context_bench.viewer.working import ResultOf, Worked, Worker

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Rows of a run up to which its verdicts are worked out for the list of runs unasked.
UNASKED_ROWS = 5_000
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
    """A store's name as it is shown: below the current folder relative to it, below the home folder with `~`; addresses as they are."""
    path = Path(name)
    for folder, mark in ((Path.cwd(), Path()), (home_folder(), Path("~"))):
        if folder is not None and path.is_absolute() and path.is_relative_to(folder) and folder != Path("/"):
            return str(mark / path.relative_to(folder))
    return name


class Viewer:
    """The pages of one store on loopback: `async with Viewer(path, result_of=...) as viewer: viewer.url`.

    `result_of(store, record)`: how a stored run becomes a result; a function of a module, since another process calls it. `port` 0 takes a
    free one. Raises `StoreUnusable` for a store that cannot be read and `BadInput` for a port that cannot be had.
    """

    def __init__(self, where: str | Path, *, result_of: ResultOf, port: int = 0, token: str | None = None) -> None:
        self._where, self._port = str(where), listening_port(port, "the port")
        self._door = Door(token)
        self._worker = Worker(self._where, result_of)
        self._library: Library | None = None
        self._trackers: dict[str, Tracker] = {}
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
        store = open_reading(self._where)
        app = web.Application(middlewares=[self._guarded])
        app.on_response_prepare.append(_with_headers)
        for path, handler in self._routes().items():
            app.router.add_route("*", path, handler)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2, logger=SERVER_LOG)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
        except OSError as error:
            await runner.cleanup()
            store.close()
            raise BadInput(f"cannot listen on 127.0.0.1:{self._port} ({error.strerror or error}); choose another --port") from None
        self._door.port = runner.addresses[0][1]
        self._runner, self._library = runner, Library(store)
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

    async def __aenter__(self) -> Viewer:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def library(self) -> Library:
        """What is read from."""
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
            f"{run}/rows/{{place}}": self._row,
            "/compare": self._compare,
            "/pair": self._pair,
            "/static/style.css": _style,
            "/static/viewer.js": _script,
        }

    async def _read(self, function: Callable[..., T], *args: Any) -> T:
        """In a thread: the loop never waits for the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    # Who and how

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if (reason := self._door.refusal(request)) is not None:
            return web.Response(text=reason, status=403)
        if request.method != hdrs.METH_GET:
            return web.Response(text="This viewer only shows: GET and nothing else.", status=405, headers={hdrs.ALLOW: "GET"})
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
        html = pages.render(template, store=shown_place(self.library.store.name), **values)
        return web.Response(body=html.encode("utf-8", "replace"), status=status, content_type="text/html", charset="utf-8")

    # Pages

    async def _list(self, request: web.Request) -> web.StreamResponse:
        asked = Query.read(request.query)
        found = await self._read(self.library.runs, asked.words, asked.page)
        known = {run.id: self._worker.known(run) for run in found.runs}
        return self._page("runs.html.j2", found=found, known=known, query=asked, unasked=UNASKED_ROWS)

    async def _run(self, request: web.Request) -> web.StreamResponse:
        query = Query.read(request.query)
        run = await self._read(self.library.run, request.match_info["run"])
        page = await self._read(self.library.rows, run, query)
        going = (await self._tracker(run).now())[1] if run.running else []
        return self._page("run.html.j2", run=run, page=page, query=query, known=self._worker.known(run), going=going)

    async def _summary(self, request: web.Request) -> web.StreamResponse:
        run = await self._read(self.library.run, request.match_info["run"])
        worked = await self._worker.summary(run, fresh="fresh" in request.query)
        return self._part(request, "summary_part.html.j2", f"{visible(run.name)}: summary", run=run, worked=worked)

    async def _verdicts(self, request: web.Request) -> web.StreamResponse:
        run = await self._read(self.library.run, request.match_info["run"])
        worked = self._worker.known(run)
        if worked is None and run.rows <= UNASKED_ROWS:
            worked = await self._worker.summary(run)
        return self._part(request, "verdicts_part.html.j2", f"{visible(run.name)}: verdicts", run=run, worked=worked)

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

    async def _pair(self, request: web.Request) -> web.StreamResponse:
        asked = [read_pair(text) for text in request.query.getall("row", [])]
        if len(asked) != 2:
            raise BadInput("Two rows are held side by side; the address names another number of them.")
        views = await self._read(self.library.pair, *asked)
        return self._page("pair.html.j2", views=views)

    async def _compare(self, request: web.Request) -> web.StreamResponse:
        force, metric = "force" in request.query, request.query.get("metric", "")[:200]
        before, after = await self._read(self.library.two_runs, request.query.getall("run", []))
        values: dict[str, Any] = {"before": before, "after": after, "force": force, "metric": metric}
        if "part" not in request.query and "wait" not in request.query:
            return self._page("compare.html.j2", worked=None, links={}, **values)
        worked = await self._worker.comparison(before, after, force=force, metric=metric)
        links = await self._read(self._links, before, after, worked)
        return self._page("compare_part.html.j2" if "part" in request.query else "compare.html.j2", worked=worked, links=links, **values)

    def _links(self, before: Listed, after: Listed, worked: Worked) -> dict[int, str]:
        """Addresses of changed examples, side by side, by their place in the list."""
        from context_bench.engine.store.browsing import places_of
        from context_bench.viewer.asking import pair_url

        ones = places_of(self.library.store, before, [each.earlier for each in worked.changed])
        others = places_of(self.library.store, after, [each.later for each in worked.changed])
        return {
            number: pair_url((before.id, ones[each.earlier]), (after.id, others[each.later]))
            for number, each in enumerate(worked.changed)
            if each.earlier in ones and each.later in others
        }

    # Progress

    def _tracker(self, run: Listed) -> Tracker:
        if run.id not in self._trackers:
            while len(self._trackers) >= MOST_STREAMS:  # a stream goes on with its own
                del self._trackers[next(iter(self._trackers))]
            self._trackers[run.id] = Tracker(lambda: self._read(self.library.live, run.id))
        return self._trackers[run.id]

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """How far a run is, told until it ends."""
        run = await self._read(self.library.run, request.match_info["run"])
        if self._streams >= MOST_STREAMS:
            return self._fault(503, f"{MOST_STREAMS} pages watch already; close some of them.")
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        self._streams += 1
        try:
            await self._tell(response, self._tracker(run))
        except ConnectionError:
            pass  # nobody is looking any more
        finally:
            self._streams -= 1
            if not self._streams:
                self._trackers.clear()
        return response

    async def _tell(self, response: web.StreamResponse, tracker: Tracker) -> None:
        loop = asyncio.get_running_loop()
        told, spoke = "", loop.time()
        while True:
            run, going = await tracker.now()
            html = pages.render("progress_part.html.j2", run=run, going=going)
            if html != told:
                await response.write(_event("progress", html))
                told, spoke = html, loop.time()
            elif loop.time() - spoke > HEARTBEAT:
                await response.write(b": still here\n\n")
                spoke = loop.time()
            if not run.running:
                await response.write(_event("end", run.status))
                return
            await asyncio.sleep(tracker.pause)


def _event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in text.splitlines() or [""])
    return f"event: {name}\n{lines}\n".encode("utf-8", "replace")


async def _with_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


async def _style(_: web.Request) -> web.StreamResponse:
    return web.Response(text=pages.style(), content_type="text/css", charset="utf-8")


async def _script(_: web.Request) -> web.StreamResponse:
    return web.Response(text=pages.script(), content_type="text/javascript", charset="utf-8")
