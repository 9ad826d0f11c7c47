"""Memories whose packages live in environments of their own, each served by a process of the Python that has it.

mem0 (`mem0ai`) has its own Qdrant folder, and a model only where it is to extract facts. LangGraph's store is measured
as it is and through the tools of LangMem. All of them run offline with the bundled embedder.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from context_bench.core import numbers
from context_bench.core.errors import BadInput, BadReply, Failed, Refused, TimedOut, Unreachable
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.core.tokens import utf8_safe
from context_bench.llm.background import run_sync
from context_bench.llm.embedder import DIMENSIONS
from context_bench.llm.servers import ModelServer, ResponderError
from context_bench.memory.protocol import Capability, Hit, Item, NotSupported, Receipt
from context_bench.memory.systems.baselines import Isolated, dated_text, spoken
from context_bench.memory.systems.built_memories import bundled
from context_bench.sandbox.vendors import Vendor, VendorProcess, deadline, versioned
from context_bench.wire.apis.shared import Reply
from context_bench.wire.request import WireRequest

MEMORIES = {
    "mem0": "Mem0",
    "langgraph": "LangGraphStore",
    "langmem": "LangMem",
}

_PROGRAM = Path(__file__).parent / "worker" / "vendor_worker.py"
_FAREWELL = 5.0  # seconds in which a process may take its store away


class _Embedder:
    """The bundled embedder behind an OpenAI-compatible endpoint; it answers nothing else."""

    name = "all-minilm-l6-v2"

    async def reply(self, request: WireRequest, headers: Mapping[str, str]) -> Reply:
        raise ResponderError(404, "this endpoint offers embeddings only; a memory that asks a model needs a relay")

    async def embed(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(bundled().embed, texts)


class MemoryProcess:
    """The process of one memory: started at the first call, one call at a time, ended by `close`. It ends by itself
    when we do.

    A call that takes longer than `timeout` seconds, or than the run or example has left, ends the process with
    `TimedOut`; the memories in it are lost, and later calls say so. What the package raises is `Refused`, under the
    package's own name for it.
    """

    def __init__(
        self, kind: str, python: str, settings: Mapping[str, Any], keys: Mapping[str, str | None], timeout: float
    ) -> None:
        self.kind, self._python, self._settings, self._timeout, self._keys = kind, python, dict(settings), timeout, keys
        self._lock = threading.Lock()
        self._process: VendorProcess | None = None
        self._server: ModelServer | None = None
        self._lost: str | None = None
        self._folder: str | None = (
            None  # ours to take away; the process does it where we cannot, because we were killed
        )

    def call(self, what: str, **args: Any) -> Any:
        end = deadline(self._timeout)
        if not self._lock.acquire(timeout=max(0.0, end - SYSTEM_CLOCK.monotonic())):
            raise TimedOut(f"{self.kind}: {what} had to wait for other calls until no time was left")
        try:
            return self._asked(self._started(end), what, {"call": what, "args": args}, end)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process and what it was given."""
        with self._lock:
            self._stop()

    def _started(self, end: float) -> VendorProcess:
        if self._lost is not None:
            raise Unreachable(f"{self.kind}: its process has ended, and so has what it held: {self._lost}")
        if self._process is not None:
            return self._process
        settings = dict(self._settings)
        if settings["embeddings"] is None:
            self._server = ModelServer(_Embedder(), keep=1)
            run_sync(self._server.start())
            settings["embeddings"] = f"{self._server.url}/v1"
        if not settings.get("folder"):
            self._folder = settings["folder"] = tempfile.mkdtemp(prefix="context-bench-memory-")
        settings["keep"] = self._folder is None
        settings["relay"] = settings["relay"] or settings["embeddings"]  # the package wants some address
        try:
            process = self._process = VendorProcess(self.kind, self._python, _PROGRAM, self._keys)
            self._asked(process, "its start", settings, end)
        except (Refused, Unreachable) as error:
            self._stop(str(error))
            raise Unreachable(f"{self.kind} could not be started: {error}") from None
        return process

    def _asked(self, process: VendorProcess, what: str, line: Mapping[str, Any], end: float) -> Any:
        try:
            return process.ask(what, line, end)
        except Refused:
            raise
        except Failed as error:
            self._stop(str(error))
            raise type(error)(f"{error}; the memories that it held are lost") from None

    def _stop(self, lost: str | None = None) -> None:
        """End the process. `lost`: the reason, unless it was to end."""
        process, self._process = self._process, None
        self._lost = self._lost or lost
        if process is not None:
            process.close(_FAREWELL if lost is None else 0.0)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._server is not None:
            server, self._server = self._server, None
            run_sync(server.stop())


class VendorMemory(Isolated):
    """A memory in a vendor's process. Namespaces share the process; the vendor keeps them apart by its own means. One
    call at a time.

    `embedder`: "minilm" (the bundled one, free and offline) or "relay" (the relay's `/v1/embeddings`, with
    `embedding_model` of `dimensions`). `python`: a Python that has the package.
    """

    vendor: Vendor
    kind: str
    capabilities: frozenset[Capability] = frozenset(
        {
            "add",
            "search",
            "delete",
            "delete_all",
            "timestamps",
            "metadata",
            "source_ids",
            "scores",
            "namespaces",
            "stats",
            "list",
            "by_id",
        }
    )
    batch: int | None = 1
    granularity = "turn"
    _space = "root"

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        relay: str | None,
        api_key: str | None,
        embedder: str,
        python: str | None,
        timeout: float,
    ) -> None:
        if embedder not in ("minilm", "relay"):
            raise BadInput(f"{self.kind}: embedder is minilm (bundled) or relay, not {embedder!r}")
        if embedder == "relay" and not relay:
            raise BadInput(f"{self.kind}: embedder=relay needs a relay: give relay=URL, or --relay")
        base = None if relay is None else versioned(relay)
        own = {"embedding_model": _Embedder.name, "dimensions": DIMENSIONS} if embedder == "minilm" else {}
        self.name = self.kind
        self._embedder = embedder
        self._settings = {**settings, **own, "relay": base, "embeddings": base if embedder == "relay" else None}
        interpreter = self.vendor.python(python)
        self.version = self.vendor.version_in(interpreter)
        keys = {"RELAY": api_key, "EMBEDDINGS": api_key if embedder == "relay" else None}
        self._worker = MemoryProcess(self.kind, interpreter, self._settings, keys, timeout)

    @staticmethod
    def own_calls(options: Mapping[str, Any]) -> bool:
        """True if a memory with these options calls a model by its own means."""
        return options.get("embedder") == "relay"

    def fingerprint(self) -> dict[str, Any]:
        """Everything its hits depend on: the package's version among it, the address of the relay not."""
        elsewhere = ("relay", "embeddings", "folder")
        return {
            "class": type(self).__name__,
            "package": self.vendor.package,
            "version": self.version,
            "embedder": self._embedder,
            **{name: value for name, value in self._settings.items() if name not in elsewhere},
        }

    def add(self, items: Sequence[Item]) -> list[Receipt]:
        """Remember the items, one call each; what the package refuses is on the receipt."""
        return [self._add(item) for item in items]

    def search(self, query: str, k: int, *, as_of: str | None = None) -> list[Hit]:
        """The package cannot be told when a question is asked. A blank question finds nothing."""
        if not query.strip() or k < 1:
            return []
        hits = self._call("search", query=utf8_safe(query), k=k)
        if not isinstance(hits, list):
            raise BadReply(f"{self.kind}: its process answered a search with a {type(hits).__name__}; expected a list")
        return [_hit(self.kind, hit) for hit in hits]

    def delete(self, memory_id: str) -> bool:
        return bool(self._call("delete", ident=memory_id))

    def update(self, memory_id: str, text: str) -> bool:
        return bool(self._call("update", ident=memory_id, text=utf8_safe(text)))

    def delete_all(self) -> None:
        self._call("delete_all")

    def list_all(self) -> list[Hit]:
        """Everything of this namespace, as the package lists it."""
        return [_hit(self.kind, hit) for hit in self._call("list_all")]

    def get(self, memory_id: str) -> Hit | None:
        """One memory by its id; `None` if there is none."""
        found = self._call("get", ident=memory_id)
        return None if found is None else _hit(self.kind, found)

    def stats(self) -> dict[str, int]:
        return dict(self._call("stats"))

    def close(self) -> None:
        """End the process, unless this is a namespace of one that lives on."""
        if self._owner:
            self._worker.close()

    def _text(self, item: Item) -> str:
        """The text that is remembered of an item."""
        return spoken(item)

    def _add(self, item: Item) -> Receipt:
        fields = {
            "text": utf8_safe(self._text(item)),
            "role": item.role,
            "source_id": item.id,
            "time": item.time,
            "session": item.session,
            "metadata": dict(item.metadata),
        }
        try:
            ids = self._call("add", item=fields)
        except Refused as error:
            return Receipt(item.id, error=str(error))
        if ids and not (isinstance(ids, list) and isinstance(ids[0], str)):
            raise BadReply(
                f"{self.kind}: its process did not tell the ids of what it remembers; expected a list of texts"
            )
        return Receipt(item.id, ids[0] if ids else None)

    def _call(self, what: str, **args: Any) -> Any:
        return self._worker.call(what, space=self._space, **args)

    def _begin(self, name: str) -> None:
        """Be the namespace `name`; a hash, because a vendor may refuse what is in a name."""
        self._space = "n" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _hit(kind: str, reply: Any) -> Hit:
    fields = reply if isinstance(reply, Mapping) else {}
    text, score = fields.get("text"), numbers.score(fields.get("score"))
    names = [fields.get(name) for name in ("id", "source_id", "time")]
    if not isinstance(text, str) or not all(isinstance(name, str | None) for name in names):
        raise BadReply(
            f"{kind}: its process told of a hit that is none; expected a text, and id, source_id and time as texts"
        )
    if score is None and fields.get("score") is not None:
        raise BadReply(
            f"{kind}: its process gave a hit the score {str(fields['score'])[:60]!r}; expected a finite number"
        )
    ident, source, time = names
    return Hit(text, score, () if source is None else (source,), ident, time)


class Mem0(VendorMemory):
    """The open-source `mem0.Memory`. Namespaces are its `user_id`s; hits name their turn by the metadata that mem0
    echoes.

    `infer=False` (as decided for offline runs) stores texts as they are and calls no model; `infer=True`, mem0's own
    default, has the relay's `model` extract facts from every turn: as many model calls as turns. Searches ask for
    threshold 0, the lowest that mem0 takes, since its own 0.1 leaves hits out; a hit whose cosine is negative is still
    left out. `path`: a folder to keep the store in; by default it goes with the process. `embedder`, `python`,
    `timeout`: see `VendorMemory`.
    """

    vendor = Vendor("mem0ai", "mem0", "2.2.1")
    kind = "mem0"

    def __init__(
        self,
        infer: bool = False,
        *,
        relay: str | None = None,
        model: str | None = None,
        api_key: str | None = None,
        embedder: str = "minilm",
        embedding_model: str = "text-embedding-3-small",
        dimensions: int = 1536,
        path: str | None = None,
        python: str | None = None,
        timeout: float = 120.0,
    ) -> None:
        if infer and not (relay and model):
            raise BadInput("mem0 with infer=true asks a model: give relay=URL and model=NAME, or --relay and --model")
        settings = {
            "infer": bool(infer),
            "model": model if infer else "none",
            "embedding_model": embedding_model,
            "dimensions": dimensions,
            "folder": path,
        }
        super().__init__(settings, relay=relay, api_key=api_key, embedder=embedder, python=python, timeout=timeout)
        self.infer = bool(infer)
        if not infer:
            self.capabilities |= {"update"}
        if path:
            self.capabilities |= {"persistent"}

    @property
    def owner(self) -> dict[str, str]:
        """The metadata by which mem0 knows whose a memory is."""
        return {"user_id": self._space}

    def update(self, memory_id: str, text: str, metadata: Mapping[str, Any] | None = None) -> bool:
        """Other text for one memory. `NotSupported` for metadata if this version of mem0 takes none."""
        if not metadata:
            return super().update(memory_id, text)
        if not self._call("can_update_metadata"):
            raise NotSupported(f"mem0 {self.version} takes no metadata in update()")
        return bool(self._call("update", ident=memory_id, text=utf8_safe(text), metadata=dict(metadata)))

    @staticmethod
    def own_calls(options: Mapping[str, Any]) -> bool:
        return bool(options.get("infer")) or VendorMemory.own_calls(options)

    def _text(self, item: Item) -> str:
        """A model that extracts facts has to see when a thing was said; a text kept as it is has its date beside it."""
        return dated_text(item) if self.infer else spoken(item)


class LangGraphStore(VendorMemory):
    """`langgraph.store.memory.InMemoryStore` with an index: nearest vectors, in memory only. Namespaces are the store's
    own.

    `embedder`, `embedding_model`, `dimensions`, `python`, `timeout`: see `VendorMemory`.
    """

    vendor = Vendor("langgraph", "langgraph", "1.2.22")
    kind = "langgraph"
    capabilities = VendorMemory.capabilities | {"update"}

    def __init__(
        self,
        *,
        relay: str | None = None,
        api_key: str | None = None,
        embedder: str = "minilm",
        embedding_model: str = "text-embedding-3-small",
        dimensions: int = 1536,
        python: str | None = None,
        timeout: float = 120.0,
    ) -> None:
        settings: dict[str, Any] = {"embedding_model": embedding_model, "dimensions": dimensions}
        super().__init__(settings, relay=relay, api_key=api_key, embedder=embedder, python=python, timeout=timeout)


class LangMem(LangGraphStore):
    """The same store, written and searched through LangMem's tools, as an agent does; a model that decides what to
    write is not part of it.

    The tools keep texts only: which turn a memory came from and when it was said is remembered beside them, by the id
    that they tell.
    """

    vendor = Vendor("langmem", "langgraph", "0.0.30")
    kind = "langmem"
