"""Pages of the viewer that write: title and tags of runs and watches, tags and notes of rows, runs deleted, restored.

They are there only in a viewer that was started to edit. Beside what every request must show (`server.Door`), a write
is a `POST` of a form with the secret of this process, from a page of this viewer. Plain forms, without script.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import hdrs, web

from context_bench.core.errors import BadInput, ContextBenchError
from context_bench.engine.store import Store, open_store, remarks, there
from context_bench.engine.store.browsing import Place
from context_bench.engine.store.remarks import EditConflict, Remark
from context_bench.engine.store.watches import watch_of
from context_bench.viewer.pages import Library, Query, row_url, run_url, watch_url

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Bytes of a form: a note of four bytes a character, each sent as three.
MOST_SENT = 64 << 10
#: Addresses that forms are sent to.
_SENT_TO = re.compile(r"/runs/[^/]+/(?:edit|delete|restore|rows/[^/]+/note)|/watch/edit")


class _Refused(ContextBenchError):
    """A form that no page of this process made."""


class RunEditor:
    """Writes one store for whoever shows its `key`, which is in every form. `library`: what is read; `read` does work
    in a thread, `page` renders a template.
    """

    def __init__(
        self,
        where: str,
        library: Callable[[], Library],
        read: Callable[..., Awaitable[Any]],
        page: Callable[..., web.Response],
    ) -> None:
        self.key = secrets.token_urlsafe(24)
        self._where, self._library, self._read, self._page = where, library, read, page
        self._opened: Store | None = None

    def open(self) -> None:
        """Open the store to write; one that is older is brought up to date, one that is not there is not made. Raises
        `StoreUnusable`.
        """
        if there(self._where):
            self._opened = open_store(self._where)

    def close(self) -> None:
        """Close it."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _store(self) -> Store:
        assert self._opened is not None
        return self._opened

    def takes(self, request: web.BaseRequest) -> bool:
        """Is this a form that may be sent here?"""
        return request.method == hdrs.METH_POST and _SENT_TO.fullmatch(request.path) is not None

    def routes(self) -> dict[str, Handler]:
        """Handlers by address."""
        made = {
            "/deleted": self._deleted,
            "/watch/edit": self._edit_watch,
            "/runs/{run}/edit": self._edit,
            "/runs/{run}/delete": self._delete,
            "/runs/{run}/restore": self._restore,
            "/runs/{run}/rows/{place}/note": self._note,
        }
        return {path: self._checked(handler) for path, handler in made.items()}

    def _checked(self, handler: Callable[[web.Request, Mapping[str, str]], Awaitable[web.StreamResponse]]) -> Handler:
        async def checked(request: web.Request) -> web.StreamResponse:
            fields: Mapping[str, str] = {}
            try:
                if request.method == hdrs.METH_POST:
                    fields = await self._fields(request)
                return await handler(request, fields)
            except _Refused as error:
                return self._page("fault.html.j2", status=403, code=403, text=str(error))
            except EditConflict as error:
                return self._page("conflict.html.j2", status=409, reason=str(error), fields=fields)

        return checked

    async def _fields(self, request: web.Request) -> dict[str, str]:
        """The fields of a form of ours. Raises `_Refused` without the key and `BadInput` for what is no form."""
        if request.content_type != "application/x-www-form-urlencoded":
            raise _Refused("That is no form of this viewer: expected application/x-www-form-urlencoded.")
        sent = await request.read()
        try:
            fields = dict(parse_qsl(sent.decode("ascii"), keep_blank_values=True, max_num_fields=20, errors="strict"))
        except ValueError:
            raise BadInput("the form cannot be read: expected fields in UTF-8, percent-encoded") from None
        if not hmac.compare_digest(fields.pop("key", "").encode(), self.key.encode()):
            raise _Refused(
                "The form is not of this viewer, or the viewer was started anew since: load the page again. "
                "Nothing was written."
            )
        return fields

    async def _edit(self, request: web.Request, fields: Mapping[str, str]) -> web.StreamResponse:
        run = await self._read(self._library().run, request.match_info["run"])
        if request.method != hdrs.METH_POST:
            remark = Remark(tuple(run.tags), run.title)
            return self._page("edit.html.j2", watch=None, run=run, remark=remark)
        remark = Remark.of_run(fields.get("tags", ""), fields.get("title", ""))
        seen = fields.get("seen", "")
        await self._read(lambda: remarks.describe_run(self._store, run.id, remark, seen=seen))
        return _see(run_url(run.id))

    async def _edit_watch(self, request: web.Request, fields: Mapping[str, str]) -> web.StreamResponse:
        watch = await self._read(watch_of, self._library().store, request.query.get("name", ""))
        if request.method != hdrs.METH_POST:
            return self._page("edit.html.j2", watch=watch, remark=Remark(tuple(watch.tags), watch.title))
        remark = Remark.of_run(fields.get("tags", ""), fields.get("title", ""))
        seen = fields.get("seen", "")
        await self._read(lambda: remarks.describe_watch(self._store, watch.name, remark, seen=seen))
        return _see(watch_url(watch.name))

    async def _delete(self, request: web.Request, _: Mapping[str, str]) -> web.StreamResponse:
        """Asks on a page of its own; what is sent from there hides the run."""
        run = await self._read(self._library().run, request.match_info["run"])
        if request.method != hdrs.METH_POST:
            return self._page("delete.html.j2", run=run)
        await self._read(remarks.mark_deleted, self._store, run.id)
        return _see("/deleted")

    async def _restore(self, request: web.Request, _: Mapping[str, str]) -> web.StreamResponse:
        run = request.match_info["run"]
        if request.method != hdrs.METH_POST:
            return _see("/deleted")
        await self._read(remarks.restore, self._store, run)
        return _see(run_url(run))

    async def _deleted(self, _: web.Request, __: Mapping[str, str]) -> web.StreamResponse:
        return self._page("deleted.html.j2", runs=await self._read(remarks.deleted_runs, self._store))

    async def _note(self, request: web.Request, fields: Mapping[str, str]) -> web.StreamResponse:
        place, query = Place.parse(request.match_info["place"]), Query.read(request.query)
        run = await self._read(self._library().run, request.match_info["run"])
        here = row_url(run.id, place, query)
        if request.method == hdrs.METH_POST:
            await self._read(self._library().row_at, run, place)
            remark = Remark.of_row(fields.get("tags", ""), fields.get("note", ""))
            seen = fields.get("seen", "")
            await self._read(lambda: remarks.write_note(self._store, run.number, place, remark, seen=seen))
        return _see(f"{here}#note")


def _see(address: str) -> web.StreamResponse:
    """The page to look at after a write: loading it again writes nothing."""
    return web.Response(status=303, headers={hdrs.LOCATION: address})
