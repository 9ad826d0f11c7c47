"""Recorded sessions as a dataset: one example per request, in order, so that each can be sent again as it was.

A set is a file or folder of logs (any format that `context_bench.transcripts` reads), `bundled:sessions` (all of ours)
or `bundled:sessions/NAME`, or `hf:OWNER/NAME[@REVISION][:PATTERN]`, a dataset of conversations on the hub.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, PreflightFailed
from context_bench.core.keys import canonical_json
from context_bench.core.machine import expanded
from context_bench.core.records import Example, plain
from context_bench.core.tokens import counter_for
from context_bench.datasets import sessions as ours
from context_bench.transcripts import read_sessions
from context_bench.transcripts.account import BILLED_PARTS, Account, completed, fit
from context_bench.transcripts.session import RecordedReply, Session
from context_bench.wire.apis import parse_request
from context_bench.wire.cache import Prompts, segments
from context_bench.wire.request import sendable

_BUNDLED = ours.PREFIX.rstrip("/")
_HUB = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?(?::(?P<pattern>.+))?")
_PATTERNS = ("*.jsonl", "*.parquet")


@dataclass
class RecordedSessions:
    """Sets of recorded sessions, ready to be replayed. `n`: at most so many sessions; `wire`: render them for this
    wire. `on_skip` is told of files in folders that are no logs. `agents`: logs of agents that hold only tool calls
    too; they can be asked about, not replayed. `with_text`: a made text stands for a system prompt that a log does not
    hold (`transcripts.account`); not where a real model is asked.

    Has what `LoadedDataset` has. The ids of sessions are made unique over all sets (`NAME`, `NAME#2` …).
    """

    specs: Sequence[str]
    n: int | None = None
    wire: str | None = None
    evaluators: list[str] = field(default_factory=list)
    has_context: bool = True
    on_skip: Callable[[BadInput], None] | None = None
    agents: bool = False
    with_text: bool = True

    @property
    def name(self) -> str:
        """The sets as they were named."""
        return ", ".join(self.specs)

    base = name

    def sessions(self) -> Iterator[tuple[str, Session]]:
        """Each session with its name; read anew at each call. Raises `BadInput` or `UnknownName`."""
        yield from ((name, session) for name, _, session in self._named())

    def examples(self) -> Iterator[Example]:
        """One example per request; `dataset` is the set that it is from."""
        for name, spec, session in self._named(complete=True):
            yield from examples_of(session, name=name, dataset=spec)

    def _named(self, *, complete: bool = False) -> Iterator[tuple[str, str, Session]]:
        seen: dict[str, int] = {}
        every = ((spec, session) for spec in self.specs for session in self._of(spec))
        for spec, session in islice(every, self.n):
            seen[session.id] = seen.get(session.id, 0) + 1
            name = session.id if seen[session.id] == 1 else f"{session.id}#{seen[session.id]}"
            whole = accounted(session, self.with_text)[0] if complete else session
            yield name, spec, whole if self.wire is None else whole.on(self.wire)

    def manifest(self) -> dict[str, Any]:
        """Record of the input: sets with the hashes of their files, and how much of what is in them."""
        formats: Counter[str] = Counter()
        skipped: Counter[str] = Counter()
        requests = rebuilt = count = 0
        digest = hashlib.sha256()
        for name, session in self.sessions():
            count, requests = count + 1, requests + len(session.requests)
            formats[str(session.meta.get("format"))] += 1
            skipped.update(session.meta.get("skipped") or {})
            rebuilt += bool(session.meta.get("reconstructed"))
            digest.update(canonical_json([name, *_content(session)]).encode("utf-8", "surrogatepass"))
        return {
            "name": self.name,
            "sets": [self._set(spec) for spec in self.specs],
            "sessions": count,
            "requests": requests,
            "formats": dict(formats),
            "reconstructed": rebuilt,
            "skipped": dict(sorted(skipped.items())),
            "sha256": digest.hexdigest(),
        }

    def _set(self, spec: str) -> dict[str, Any]:
        local = not spec.startswith((_BUNDLED, "hf:"))
        return {"set": Path(spec).name if local else spec, "kind": "local" if local else spec.partition(":")[0]}

    def _of(self, spec: str) -> Iterator[Session]:
        if spec == _BUNDLED:
            for name in ours.bundled():
                yield from self._of(name)
        elif spec.startswith(ours.PREFIX):
            yield ours.load_session(spec, wire=self.wire or "openai-chat")
        elif spec.startswith("hf:"):
            yield from _of_hub(spec, self.n)
        else:
            yield from _of_files(spec, self.agents, self.on_skip)


def accounted(session: Session, with_text: bool = True) -> tuple[Session, Account]:
    """The session with what its log leaves out stood in for, and its account, which is in its `meta` too. See
    `transcripts.account`.
    """
    parts = session.meta.get("assumed") or ()
    stated = any(request.recorded_reply and request.recorded_reply.usage for request in session.requests)
    if not stated and not any(part in parts for part in BILLED_PARTS):  # nothing to hold against a count
        account = fit(session, [0] * len(session.requests), len)
        return (
            replace(session, meta={**session.meta, "account": account.as_dict()}) if account.hour else session
        ), account
    counter = counter_for(next((str(request.body.get("model") or "") for request in session.requests), None))
    prompts = Prompts(counter.count, again=True)
    for request in session.requests:
        prompts.add(segments(parse_request(request.wire, request.body)))
    account = fit(session, prompts.lengths, counter.count, with_text=with_text)
    whole = completed(session, account)
    whole.meta = {**whole.meta, "account": account.as_dict()}
    return whole, account


def _content(session: Session) -> Iterator[Any]:
    """Content that a replay sends and compares with. The last body of a rebuilt session holds those before it."""
    bodies = session.requests[-1:] if session.meta.get("reconstructed") else session.requests
    yield from (request.body for request in bodies)
    yield [
        (reply.text, reply.tool_calls) if (reply := request.recorded_reply) else None for request in session.requests
    ]


def _of_files(spec: str, agents: bool, on_skip: Callable[[BadInput], None] | None) -> Iterator[Session]:
    path = expanded(spec)
    if not path.exists():
        raise BadInput(f"no sessions at {spec}: give a file or folder of logs, {_BUNDLED}, or hf:OWNER/NAME")
    for session in read_sessions(path, agents=agents, on_skip=on_skip):
        if session.requests:
            yield session


def _of_hub(spec: str, n: int | None) -> Iterator[Session]:
    """The conversations of a dataset on the hub, made of its first `n` rows; they go through a file, as logs do."""
    match = _HUB.fullmatch(spec)
    if match is None:
        raise BadInput(f"{spec!r} is not a set of sessions on the hub; expected hf:OWNER/NAME[@REVISION][:PATTERN]")
    snapshot = _snapshot(match["repo"], match["pattern"], match["revision"])
    with tempfile.TemporaryDirectory(prefix="context-bench-") as folder:
        path = Path(folder) / f"{match['repo'].replace('/', '--')}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(canonical_json(row) + "\n" for row in snapshot.rows(n))
        for session in read_sessions(path):
            session.source = spec
            yield session


def _snapshot(repo: str, pattern: str | None, revision: str | None) -> Any:
    """The files of that pattern; without one, JSON lines or else Parquet."""
    from context_bench.datasets.hub import snapshot

    if pattern is None:
        try:
            return snapshot(repo, _PATTERNS[0], revision)
        except PreflightFailed:
            pattern = _PATTERNS[1]
    return snapshot(repo, pattern, revision)


def examples_of(session: Session, *, name: str | None = None, dataset: str = "") -> Iterator[Example]:
    """One example per request of `session`, in order.

    `id` is `NAME/t` with t from 0, `group` and `cluster` are NAME (default: the session's id), `request` holds `wire`,
    `path`, `headers`, `body`; `recorded` what came back (`text`, `tool_calls`, `usage`), where the recording says; `at`
    seconds since the session's first request, `cwd` its working directory, `account` what the log says of the session's
    bill (`transcripts.account`), where that was asked for.
    """
    named = name or session.id
    about = {"cwd": session.meta["cwd"]} if isinstance(session.meta.get("cwd"), str) else {}
    if "account" in session.meta:
        about["account"] = session.meta["account"]
    for turn, request in enumerate(session.requests):
        example: Example = {
            "id": f"{named}/{turn}",
            "dataset": dataset or session.source,
            "group": named,
            "cluster": named,
            "turn": turn,
            "request": {
                "wire": request.wire,
                "path": request.path,
                "headers": sendable(request.headers),
                "body": request.body,
            },
            **about,
        }
        if request.recorded_reply is not None:
            example["recorded"] = _recorded(request.recorded_reply)
        if request.at is not None:
            example["at"] = request.at
        yield example


def _recorded(reply: RecordedReply) -> dict[str, Any]:
    facts = {
        "text": reply.text or "",
        "tool_calls": list(reply.tool_calls),
        "finish_reason": reply.finish_reason,
        "usage": None if reply.usage is None else plain(reply.usage),
    }
    return {name: value for name, value in facts.items() if value is not None}
