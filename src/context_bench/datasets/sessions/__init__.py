"""Synthetic sessions of coding agents at work, written by hand and by seed, free to use. Nothing is fetched.

```python
from context_bench.datasets import sessions

sessions.bundled()                                            # ["bundled:sessions/invoice-service-en", …]
sessions.load_session("bundled:sessions/lagerverwaltung-de")  # a core.session.Session
```

Each only ever appends to its history, so an unchanged replay has a prefix stability of 1. `session.meta["truth"]` is
the ground truth: files created, modified, deleted, only read; open tasks; decisions, errors, facts; statements that
were taken back later. A file holds one session, a line a message; `scripts/story.py` writes new ones.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from context_bench.core.errors import UnknownName
from context_bench.transcripts.formats.derived_traces import STORY_MODEL, timed_requests
from context_bench.transcripts.session import Session, SessionRequest
from context_bench.wire.conversation import to_body

PREFIX = "bundled:sessions/"
_NAMES = (
    "invoice-service-en",
    "lagerverwaltung-de",
    "rate-limiter-en",
    "upload-traversal-en",
    "search-latency-en",
    "address-migration-en",
    "react-upgrade-en",
    "cluster-move-en",
    "statement-import-en",
    "notice-refactor-en",
    "order-sync-zh",
    "clinic-booking-ar",
)
MODEL = STORY_MODEL
_MARK = {"type": "ephemeral"}


def bundled() -> list[str]:
    """Names of the sessions that come with the package; the first is by far the longest."""
    return [PREFIX + name for name in _NAMES]


def load_session(name: str, *, wire: str = "openai-chat", model: str = MODEL) -> Session:
    """The bundled session `name` (with or without `bundled:sessions/`), on the wire asked for.

    On the Anthropic wire requests carry the cache marks that an agent sets: on the instructions and on the last two
    user messages. Raises `UnknownName`, and `BadInput` for a wire that is none.
    """
    short = name.removeprefix(PREFIX)
    if short not in _NAMES:
        raise UnknownName("session", name, bundled())
    header, *lines = _lines(short)
    params = {"max_tokens": 8192} if wire == "anthropic" else {"tool_choice": "auto"}
    requests = timed_requests(header, lines, model=model, params=params)
    meta = {
        "format": "bundled",
        "reconstructed": False,
        "synthetic": True,
        "language": header["language"],
        "cwd": header["cwd"],
        "truth": header["truth"],
        "skipped": {},
    }
    session = Session(PREFIX + short, PREFIX + short, "openai-chat", requests, meta)
    if wire == "anthropic":
        return replace(session, wire=wire, requests=[_marked(request) for request in requests])
    return session.on(wire)


@lru_cache(maxsize=16)
def _lines(name: str) -> list[Any]:
    """The lines of a session's file: its header (language, folder, tools, truth), then each message with the second of
    its writing.
    """
    data = (files(__package__) / f"{name}.jsonl.gz").read_bytes()
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]


def _marked(request: SessionRequest) -> SessionRequest:
    """The request on the Anthropic wire, with cache marks where a coding agent sets them."""

    def body() -> dict[str, Any]:
        sent = to_body("anthropic", request.chat)
        spoken = [message["content"] for message in sent["messages"] if message["role"] == "user"]
        for blocks in (sent["system"], *spoken[-2:]):
            blocks[-1] = {**blocks[-1], "cache_control": dict(_MARK)}
        return sent

    return replace(request.on("anthropic"), make_body=body, exact=True)
