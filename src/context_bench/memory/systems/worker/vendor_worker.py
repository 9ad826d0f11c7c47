"""A vendor's memory in a process of its own: run by the Python that has the vendor's package, never imported by
context-bench.

`python vendor_worker.py NAME`; the first line on standard input is the settings, every further one a request
`{"call": …, "args": {…}}`; each is answered by one line, `{"result": …}` or `{"error": {"kind": …, "message": …}}`. It
ends when its input ends, and takes its store with it unless that is to be kept. Nothing here may import context-bench:
it is not installed there.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TextIO


class Mem0Worker:
    """`mem0.Memory` over a Qdrant folder; every namespace is a `user_id`."""

    package = "mem0ai"

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        end = {
            "openai_base_url": settings["embeddings"],
            "api_key": _key("EMBEDDINGS"),
            "model": settings["embedding_model"],
        }
        model = {
            "openai_base_url": settings["relay"],
            "api_key": _key("RELAY"),
            "model": settings["model"],
            "temperature": 0,
        }
        config = {
            "vector_store": {
                "provider": "qdrant",
                "config": {
                    "path": str(folder / "qdrant"),
                    "embedding_model_dims": settings["dimensions"],
                    "on_disk": True,
                },
            },
            "embedder": {"provider": "openai", "config": end},
            "llm": {"provider": "openai", "config": model},
            "history_db_path": str(folder / "history.db"),
        }
        self._memory: Any = importlib.import_module("mem0").Memory.from_config(config)
        self._infer = bool(settings["infer"])

    def add(self, space: str, item: dict[str, Any]) -> list[str]:
        """Ids of what came of one item; none if nothing in it was found worth keeping."""
        role = item["role"] if item["role"] in ("user", "assistant") else "user"  # others are left out without a word
        turn = {"role": role, "content": item["text"]}
        added = self._memory.add([turn], user_id=space, metadata=_about(item), infer=self._infer)
        return [str(each["id"]) for each in added["results"]]

    def search(self, space: str, query: str, k: int) -> list[dict[str, Any]]:
        """`threshold=0`, the lowest there is: the package's own leaves hits out."""
        found = self._memory.search(query, threshold=0.0, **self._of(self._memory.search, space, k))["results"]
        return [_hit(str(each["id"]), each["memory"], each.get("score"), each.get("metadata") or {}) for each in found]

    @staticmethod
    def _of(function: Any, space: str, number: int) -> dict[str, Any]:
        """Arguments for so many memories of one user; they were others before 2.0."""
        if "top_k" in inspect.signature(function).parameters:
            return {"filters": {"user_id": space}, "top_k": number}
        return {"user_id": space, "limit": number}

    def update(self, space: str, ident: str, text: str, metadata: dict[str, Any] | None = None) -> bool:
        if not self._there(ident):
            return False
        self._memory.update(ident, text, **({"metadata": metadata} if metadata else {}))
        return True

    def can_update_metadata(self, space: str) -> bool:
        """True if this version of the package takes metadata in its updates."""
        return "metadata" in inspect.signature(self._memory.update).parameters

    def list_all(self, space: str) -> list[dict[str, Any]]:
        found = self._memory.get_all(**self._of(self._memory.get_all, space, 1_000_000))["results"]
        return [_hit(str(each["id"]), each["memory"], None, each.get("metadata") or {}) for each in found]

    def get(self, space: str, ident: str) -> dict[str, Any] | None:
        found = self._memory.get(ident) if self._there(ident) else None
        return found and _hit(str(found["id"]), found["memory"], None, found.get("metadata") or {})

    def delete(self, space: str, ident: str) -> bool:
        """Forget one memory; whether there was one. The package looks at the id alone, not at whose it is; so does
        this.
        """
        if not self._there(ident):
            return False
        self._memory.delete(ident)
        return True

    def delete_all(self, space: str) -> None:
        self._memory.delete_all(user_id=space)

    def stats(self, space: str) -> dict[str, int]:
        return _sizes(each["text"] for each in self.list_all(space))

    def _there(self, ident: str) -> bool:
        try:
            uuid.UUID(ident)
        except ValueError:
            return False
        return self._memory.get(ident) is not None


def _about(item: dict[str, Any]) -> dict[str, Any]:
    """The fields of an item that are kept beside its text."""
    kept = {name: item[name] for name in ("source_id", "time", "session") if item.get(name) is not None}
    return {**item.get("metadata", {}), **kept}


def _hit(ident: str, text: str, score: Any, about: dict[str, Any]) -> dict[str, Any]:
    return {"id": ident, "text": text, "score": score, "source_id": about.get("source_id"), "time": about.get("time")}


def _sizes(texts: Iterable[str]) -> dict[str, int]:
    """Size of a store: `items`, `bytes` of their texts."""
    lengths = [len(text.encode("utf-8", "replace")) for text in texts]
    return {"items": len(lengths), "bytes": sum(lengths)}


class LanggraphWorker:
    """`langgraph`'s `InMemoryStore` with an index; every namespace is one of the store's."""

    package = "langgraph"

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        self._url, self._model = settings["embeddings"], settings["embedding_model"]
        index = {"dims": settings["dimensions"], "embed": self._embed, "fields": ["content"]}
        self._store: Any = importlib.import_module("langgraph.store.memory").InMemoryStore(index=index)

    def add(self, space: str, item: dict[str, Any]) -> list[str]:
        """The key of the one entry an item makes."""
        ident = str(uuid.uuid4())
        self._store.put(_place(space), ident, {"content": item["text"], **_about(item)})
        return [ident]

    def search(self, space: str, query: str, k: int) -> list[dict[str, Any]]:
        return [_entry(each.dict()) for each in self._store.search(_place(space), query=query, limit=k)]

    def update(self, space: str, ident: str, text: str) -> bool:
        held = self._store.get(_place(space), ident)
        if held is None:
            return False
        self._store.put(_place(space), ident, {**held.value, "content": text})
        return True

    def delete(self, space: str, ident: str) -> bool:
        held = self._store.get(_place(space), ident) is not None
        self._store.delete(_place(space), ident)
        return held

    def delete_all(self, space: str) -> None:
        """Forget everything of one namespace, entry by entry: the store knows no other way."""
        for each in self._held(space):
            self._store.delete(_place(space), each.key)

    def list_all(self, space: str) -> list[dict[str, Any]]:
        return [_entry(each.dict()) for each in self._held(space)]

    def get(self, space: str, ident: str) -> dict[str, Any] | None:
        found = self._store.get(_place(space), ident)
        return None if found is None else _entry(found.dict())

    def stats(self, space: str) -> dict[str, int]:
        return _sizes(str(each.value["content"]) for each in self._held(space))

    def _held(self, space: str) -> list[Any]:
        return list(self._store.search(_place(space), limit=1_000_000_000))

    def _embed(self, texts: list[str]) -> list[list[float]]:
        body = json.dumps({"model": self._model, "input": list(texts), "encoding_format": "float"}).encode()
        headers = {"content-type": "application/json", "authorization": f"Bearer {_key('EMBEDDINGS')}"}
        request = urllib.request.Request(f"{self._url}/embeddings", body, headers)
        with urllib.request.urlopen(request, timeout=120) as reply:
            data = json.load(reply)["data"]
        return [each["embedding"] for each in sorted(data, key=lambda each: each["index"])]


def _place(space: str) -> tuple[str, str]:
    return ("memories", space)  # of one length, so that none is the beginning of another


def _entry(found: dict[str, Any]) -> dict[str, Any]:
    return _hit(found["key"], found["value"]["content"], found.get("score"), found["value"])


class LangmemWorker(LanggraphWorker):
    """The same store, written and searched with `langmem`'s tools, as an agent would; they keep texts and nothing
    else.
    """

    package = "langmem"

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        super().__init__(settings, folder)
        self._langmem: Any = importlib.import_module("langmem")
        self._about: dict[str, dict[str, Any]] = {}  # what the tools have no place for, by id

    def add(self, space: str, item: dict[str, Any]) -> list[str]:
        """The id that the tool tells at the end of what it says."""
        tool = self._langmem.create_manage_memory_tool(_place(space), store=self._store)
        ident = str(tool.invoke({"content": item["text"], "action": "create"})).split()[-1]
        self._about[ident] = {"source_id": item.get("source_id"), "time": item.get("time")}
        return [str(uuid.UUID(ident))]

    def search(self, space: str, query: str, k: int) -> list[dict[str, Any]]:
        """Hits of the search tool, with what was noted when it was added."""
        tool = self._langmem.create_search_memory_tool(_place(space), store=self._store)
        found = json.loads(tool.invoke({"query": query, "limit": k}))
        return [{**_entry(each), **self._about.get(each["key"], {})} for each in found]


KINDS = {"mem0": Mem0Worker, "langgraph": LanggraphWorker, "langmem": LangmemWorker}


def _key(name: str) -> str:
    """A key, from the environment; the packages insist on one."""
    return os.environ.get(f"CONTEXT_BENCH_WORKER_{name}_KEY") or "none"


def _asked(memory: Any, line: str) -> Any:
    request = json.loads(line)
    return getattr(memory, request["call"])(**request["args"])


def _reply(replies: TextIO, call: Callable[[], Any], word: str | None = None) -> Any:
    """Make a call and write its result, or `word` for it, as one line; the result is `None` if it failed."""
    result = None
    try:
        result = call()
        reply: dict[str, Any] = {"result": word or result}
    except Exception as error:  # of a package that we know nothing about: the next request may do better
        reply = {"error": {"kind": type(error).__name__, "message": str(error)[:2000]}}
    replies.write(json.dumps(reply) + "\n")
    replies.flush()
    return result


def main() -> None:
    """Serve until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what packages print is not a reply
    settings = json.loads(sys.stdin.readline() or "{}")
    if not settings:
        return
    folder = Path(settings["folder"])
    os.environ["MEM0_DIR"] = str(folder / "home")  # read when the package is imported; else it writes to the user's
    try:
        folder.mkdir(parents=True, exist_ok=True)
        memory = _reply(replies, lambda: KINDS[sys.argv[1]](settings, folder), "ready")
        for line in sys.stdin if memory is not None else ():
            _reply(replies, partial(_asked, memory, line))
    finally:
        if not settings["keep"]:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
