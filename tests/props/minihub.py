"""A miniature dataset hub on loopback, for tests of loaders.

```python
with MiniHub(catalogue_fixtures()) as hub:
    os.environ["HF_ENDPOINT"] = hub.url
    load("hotpotqa", n=3)
```

It speaks the part of the Hub's REST API that `huggingface_hub` uses to read: repository info, revisions, trees,
`paths-info` and `resolve` (HEAD, GET, byte ranges, ETag, error codes), for datasets and models. Faults can be switched
on per file or repository.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from aiohttp import web

from context_bench.core import addresses
from context_bench.llm.responders import SERVER_LOG

_FIXTURES = Path(__file__).with_name("hub_fixtures")

Fault = Literal["cut", "cut-once", "corrupt", "error"]


@dataclass(slots=True)
class MiniRepo:
    """One repository: its newest commit, its files, and other names (branches, older commits) under which it is known.

    `gated`: only known tokens may read it. `private`: nobody without a token learns that it exists. `small`: files
    below that size are plain git files, without a SHA-256 in listings. `branches` are other states of it with files of
    their own.
    """

    files: dict[str, bytes]
    commit: str = ""
    refs: tuple[str, ...] = ("main",)
    gated: bool = False
    private: bool = False
    small: int = 64
    branches: dict[str, MiniRepo] = field(default_factory=dict)

    def at(self, revision: str) -> MiniRepo | None:
        """The state that a revision names."""
        if revision in (self.commit, *self.refs):
            return self
        return next((state for name, state in self.branches.items() if revision in (name, state.commit)), None)

    def __post_init__(self) -> None:
        if not self.commit:
            content = b"\0".join(name.encode() + b"\0" + data for name, data in sorted(self.files.items()))
            self.commit = hashlib.sha1(content, usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class Seen:
    """One request that the hub answered."""

    method: str
    path: str
    range: str | None
    status: int
    sent: int = 0


_NOTE: ContextVar[Seen] = ContextVar("the request being answered")


def parquet_bytes(rows: list[dict[str, Any]], row_group_size: int | None = None) -> bytes:
    """A Parquet file of `rows`; the schema is inferred from them."""
    import pyarrow
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), out, row_group_size=row_group_size or max(1, len(rows)))
    return out.getvalue()


def fixture_rows(repo: str, path: str) -> list[dict[str, Any]]:
    """Invented rows in the real schema of one Parquet file of `repo`, from `hub_fixtures/`."""
    text = (_FIXTURES / repo.replace("/", "--") / f"{path}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def catalogue_fixtures(shards: int = 1) -> dict[str, MiniRepo]:
    """A repository for each folder of `hub_fixtures/`, known by the commits and refs that the catalogue asks for.

    The folder has the repository's own tree, except that rows in `X.parquet.jsonl` become the Parquet file `X.parquet`
    (or `shards` of them, where it is named as the one of one), and the folder `X.zip/` an archive.
    """
    from context_bench.datasets import spec

    asked: dict[str, set[str]] = {}
    for known in map(spec.named, spec.names()):
        asked.setdefault(known.source.removeprefix("hf:"), set()).update({known.revision} if known.revision else ())
    repos = {}
    for folder in _FIXTURES.iterdir():
        repo = folder.name.replace("--", "/", 1)
        data = {"README.md": b"---\nlicense: mit\n---\nInvented rows.\n", **_served(dict(_tree(folder)), shards)}
        revisions = sorted(asked.get(repo, ()))
        commit = next((r for r in revisions if re.fullmatch(r"[0-9a-f]{40}", r)), "")
        repos[repo] = MiniRepo(data, commit=commit, refs=("main", *(r for r in revisions if r != commit)))
    return repos


def _tree(folder: Path, above: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _tree(entry, f"{above}{entry.name}/")
        else:
            yield f"{above}{entry.name}", entry.read_bytes()


def _served(tree: Mapping[str, bytes], shards: int) -> dict[str, bytes]:
    served: dict[str, bytes] = {}
    archives: dict[str, dict[str, bytes]] = {}
    for path, content in tree.items():
        head, zipped, inside = path.partition(".zip/")
        if zipped:
            archives.setdefault(f"{head}.zip", {})[inside] = content
        elif path.endswith(".parquet.jsonl"):
            rows = [json.loads(line) for line in content.decode("utf-8").splitlines()]
            count = shards if "-00000-of-00001." in path else 1
            for i, part in enumerate(_parts(rows, count)):
                served[path.removesuffix(".jsonl").replace("-00000-of-00001.", f"-{i:05}-of-{count:05}.")] = (
                    parquet_bytes(part)
                )
        else:
            served[path] = content
    return {**served, **{path: zip_bytes(members) for path, members in archives.items()}}


def zip_bytes(members: Mapping[str, bytes]) -> bytes:
    """An archive of `members`, the same bytes at each call."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _parts(rows: list[dict[str, Any]], count: int) -> Iterable[list[dict[str, Any]]]:
    size = -(-len(rows) // count)
    return (rows[i * size : (i + 1) * size] for i in range(count))


def repos_in(folder: Path) -> dict[str, MiniRepo]:
    """A repository for each `folder/owner/name/`, holding the files below it."""
    found = {}
    for place in sorted(p for p in folder.glob("*/*") if p.is_dir()):
        content = {p.relative_to(place).as_posix(): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}
        found[f"{place.parent.name}/{place.name}"] = MiniRepo(content)
    return found


@dataclass
class MiniHub:
    """Serves `repos` (a dict, or a folder of `owner/name/` folders) at `url` from a thread of its own, as a context
    manager.

    `tokens` may read gated and private repositories. `faults` maps a file's path to what goes wrong with it: `cut` (the
    connection breaks half way, always), `cut-once`, `corrupt` (right size, wrong bytes), `error` (500). `seen` lists
    the requests.
    """

    repos: dict[str, MiniRepo] | Path
    tokens: frozenset[str] = frozenset({"hf_reader"})
    faults: dict[str, Fault] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> MiniHub:
        self._known = repos_in(self.repos) if isinstance(self.repos, Path) else self.repos
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def sent(self, path: str = "") -> int:
        """Bytes of file content sent so far, of files whose request path contains `path`."""
        return sum(s.sent for s in self.seen if path in s.path)

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1, logger=SERVER_LOG)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(runner.cleanup())
            self._loop.close()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._record])
        repo = "{owner}/{name}"
        for kind, prefix in (("datasets", "/datasets"), ("models", "")):
            app.router.add_get(f"/api/{kind}/{repo}", self._info)
            app.router.add_get(f"/api/{kind}/{repo}/revision/{{revision}}", self._info)
            app.router.add_get(f"/api/{kind}/{repo}/tree/{{revision}}", self._tree)
            app.router.add_get(f"/api/{kind}/{repo}/tree/{{revision}}/{{path:.*}}", self._tree)
            app.router.add_post(f"/api/{kind}/{repo}/paths-info/{{revision}}", self._paths_info)
            app.router.add_get(f"{prefix}/{repo}/resolve/{{revision}}/{{path:.+}}", self._resolve)
        return app

    @web.middleware
    async def _record(self, request: web.Request, handler: Any) -> web.StreamResponse:
        foreign = addresses.refusal(request.headers)
        if foreign:
            raise web.HTTPForbidden(text=foreign)
        note = Seen(request.method, request.path, request.headers.get("Range"), 0)
        self.seen.append(note)
        _NOTE.set(note)
        try:
            response: web.StreamResponse = await handler(request)
        except _Refused as refusal:
            response = refusal.response()
        except web.HTTPException as unknown:
            note.status = unknown.status
            raise
        note.status = response.status
        return response

    def _repo(self, request: web.Request) -> MiniRepo:
        repo = self._known.get(f"{request.match_info['owner']}/{request.match_info['name']}")
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo is None or (repo.private and token not in self.tokens):
            # The real hub does not tell strangers whether a repository exists.
            raise _Refused(404 if token in self.tokens else 401, "RepoNotFound", "Repository not found")
        revision = request.match_info.get("revision", "main")
        if (state := repo.at(revision)) is None:
            raise _Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return replace(state, gated=repo.gated, private=repo.private)

    def _readable(self, request: web.Request) -> MiniRepo:
        repo = self._repo(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo.gated and token not in self.tokens:
            raise _Refused(
                403 if token else 401, "GatedRepo", "Access to this dataset is restricted. Ask for access on its page."
            )
        return repo

    async def _info(self, request: web.Request) -> web.Response:
        repo = self._repo(request)
        name = f"{request.match_info['owner']}/{request.match_info['name']}"
        siblings = [{"rfilename": path} for path in sorted(repo.files)]
        gated = "auto" if repo.gated else False
        facts = {"id": name, "sha": _commit(repo, request), "private": repo.private, "gated": gated}
        return web.json_response({**facts, "siblings": siblings, "tags": []})

    async def _tree(self, request: web.Request) -> web.Response:
        repo = self._readable(request)
        folder = request.match_info.get("path", "").strip("/")
        inside = [path for path in sorted(repo.files) if not folder or path.startswith(f"{folder}/")]
        if not inside:
            raise _Refused(404, "EntryNotFound", f"{folder} does not exist")
        deep = request.query.get("recursive", "").lower() in ("true", "1")
        return web.json_response(list(_entries(repo, inside, folder, deep)))

    async def _paths_info(self, request: web.Request) -> web.Response:
        repo = self._readable(request)
        asked = (await request.post()).getall("paths", [])
        found: list[dict[str, Any]] = []
        for path in map(str, asked):
            if path in repo.files:
                found.append(_entry(repo, path))
            elif any(name.startswith(f"{path}/") for name in repo.files):
                found.append({"type": "directory", "path": path, "oid": _oid(path.encode()), "size": 0})
        return web.json_response(found)

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        repo, path = self._readable(request), request.match_info["path"]
        if path not in repo.files:
            raise _Refused(404, "EntryNotFound", f"{path} does not exist")
        fault = self.faults.get(path)
        if fault == "error":
            raise _Refused(500, "", "Internal error")
        data = repo.files[path]
        entry = _entry(repo, path)
        tag = f'"{entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]}"'
        headers = {"ETag": tag, "X-Repo-Commit": _commit(repo, request), "Accept-Ranges": "bytes"}
        headers |= {"X-Linked-Size": str(len(data)), "X-Linked-ETag": tag}
        start, end, status = _range(request.headers.get("Range"), len(data))
        if status == 416:
            return web.Response(status=416, headers={"Content-Range": f"bytes */{len(data)}"})
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        headers["Content-Length"] = str(end - start)
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)
        if request.method != "HEAD":
            await self._send(request, response, _spoilt(data, fault)[start:end], start, len(data), path)
        return response

    async def _send(
        self, request: web.Request, response: web.StreamResponse, data: bytes, start: int, size: int, path: str
    ) -> None:
        note = _NOTE.get()
        if self.faults.get(path) in ("cut", "cut-once"):
            if self.faults[path] == "cut-once":
                del self.faults[path]
            data = data[: max(0, size // 2 - start)]
            await response.write(data)
            note.sent += len(data)
            if request.transport is not None:
                request.transport.close()
            return
        await response.write(data)
        await response.write_eof()
        note.sent += len(data)


def _commit(repo: MiniRepo, request: web.Request) -> str:
    """What the asked revision resolves to; an older commit is itself."""
    asked = request.match_info.get("revision", "main")
    return asked if re.fullmatch(r"[0-9a-f]{40}", asked) else repo.commit


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        self._status, self._code, self._message = status, code, message

    def response(self) -> web.Response:
        headers = {"X-Error-Message": self._message, **({"X-Error-Code": self._code} if self._code else {})}
        return web.json_response({"error": self._message}, status=self._status, headers=headers)


def _entries(repo: MiniRepo, paths: list[str], folder: str, deep: bool) -> Iterator[Mapping[str, Any]]:
    told = set()
    for path in paths:
        rest = path.removeprefix(f"{folder}/") if folder else path
        head, slash, _ = rest.partition("/")
        if slash and head not in told:
            told.add(head)
            yield {
                "type": "directory",
                "path": f"{folder}/{head}" if folder else head,
                "oid": _oid(head.encode()),
                "size": 0,
            }
        if deep or not slash:
            yield _entry(repo, path)


def _entry(repo: MiniRepo, path: str) -> dict[str, Any]:
    data = repo.files[path]
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": _oid(data)}
    if len(data) >= repo.small:
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 131}
    return entry


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _range(header: str | None, size: int) -> tuple[int, int, int]:
    """(start, end, status) of a `Range` header; only single ranges are understood, as by the real store."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if not match or match.groups() == ("", ""):
        return 0, size, 200
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size, 206
    if int(first) >= size:
        return 0, 0, 416
    return int(first), min(size, int(last) + 1) if last else size, 206


def _spoilt(data: bytes, fault: Fault | None) -> bytes:
    return bytes(len(data)) if fault == "corrupt" else data
