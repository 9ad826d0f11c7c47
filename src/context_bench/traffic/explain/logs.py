"""Sessions to be explained: of logs, whose summaries are kept in an index, and of stored runs.

Folders of logs are read by two processes, and the next call reads only what has changed.

The index is a file of JSON lines in the user's cache folder, one line for each log: a hash of its path, its size and
time, and the summaries of its sessions. It holds hashes, counts and the names of tools and programs, and no text. A
line is written as soon as a log is read, so that a call that was broken off goes on where it ended; a line that is torn
or of another version is read as if it were not there. The file can be removed at any time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson

from context_bench import __version__
from context_bench.core.errors import BadInput
from context_bench.core.keys import hash_text
from context_bench.core.machine import cache_folder, opened
from context_bench.core.numbers import forwarded_of
from context_bench.core.records import Forwarded, Usage
from context_bench.llm.prices import GenaiPrices
from context_bench.traffic.explain import achieved, bounds, needs_texts, reach_of, summary
from context_bench.transcripts.itemised import itemised
from context_bench.transcripts.session import RecordedReply, SeenSession, Session, verbatim
from context_bench.transcripts.session_files import log_files, read_sessions
from context_bench.wire.conversation import WIRES
from context_bench.wire.turns import Quotas

FORM = 2  # of a line of the index
_PROCESSES = 2
_FEW = 8 * 2**20  # bytes of logs up to which another process is not worth its start
_WAITING = 4  # logs that are handed out ahead of time
Summaries = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log with what tells whether it has changed."""

    path: str
    size: int
    changed: int

    @property
    def key(self) -> str:
        """Name of the log in the index."""
        return hash_text(str(Path(self.path).absolute()), 24)


@dataclass(slots=True)
class LogScan:
    """A pass over logs. `on_progress` is told (files read, files in all, bytes read, bytes in all). `skipped` counts
    files that are no logs; `reread` those that were not in the index; `twice` sessions that another file holds too
    (a database and what was exported of it, a copy), which count once: known by their name, else by what was said.
    """

    reaches: Sequence[str] = ()
    index: Path | None = None
    on_progress: Callable[[int, int, int, int], None] | None = None
    processes: int = _PROCESSES
    texts: bool = False
    skipped: int = 0
    reread: int = 0
    twice: int = 0
    faults: list[str] = field(default_factory=list)

    def summaries(self, paths: Iterable[str | Path]) -> Iterator[dict[str, Any]]:
        """Summaries of every session in files and folders. Raises `BadInput` where there is none."""
        files = [_stated(path) for path in _every_log(paths)]
        total, done, read = sum(file.size for file in files), 0, 0
        found = False
        known = _Index(self.index, self.reaches) if self.index is not None else None
        seen: set[tuple[Any, ...]] = set()
        for file, told in self._each(files, known):
            done, read = done + 1, read + file.size
            if self.on_progress is not None:
                self.on_progress(done, len(files), read, total)
            if isinstance(told, str):
                self.skipped += 1
                self.faults += [told] if told and len(self.faults) < 5 else []
                continue
            found = True
            held: Counter[tuple[Any, ...]] = Counter()  # a session without a name may be in one file more than once
            for one in told:
                named = one.get("content") or one["id"]
                same = (named, one["part"], one["turns"], round(one["input"]), round(one["output"]))
                held[same] += "content" in one
                key = (*same, held[same])
                self.twice += key in seen
                if key not in seen:
                    seen.add(key)
                    yield one
        if not found:
            why = "\n".join(f"  - {fault}" for fault in self.faults) or "  - no file of a known ending in it"
            raise BadInput(f"no recorded sessions in {', '.join(map(str, paths))}:\n{why}")

    def _each(self, files: list[LogFile], known: _Index | None) -> Iterator[tuple[LogFile, Summaries | str]]:
        """Each log with its summaries, or why it has none; those of the index first."""
        left = []
        for file in files:
            told = known.get(file) if known is not None else None
            if told is None:
                left.append(file)
            else:
                yield file, told
        self.reread = len(left)
        left.sort(key=lambda file: -file.size)
        alone = len(left) < 2 or self.processes < 2 or sum(file.size for file in left) <= _FEW
        for file, told in self._here(left) if alone else self._apart(left):
            if known is not None:
                known.put(file, told)
            yield file, told

    def _here(self, files: Iterable[LogFile]) -> Iterator[tuple[LogFile, Summaries | str]]:
        for file in files:
            yield file, summaries_of(file.path, self.reaches, self.texts)

    def _apart(self, files: Sequence[LogFile]) -> Iterator[tuple[LogFile, Summaries | str]]:
        waiting: dict[Future[Summaries | str], LogFile] = {}
        rest = iter(files)
        with ProcessPoolExecutor(self.processes, mp_context=get_context("spawn")) as pool:
            try:
                while True:
                    while len(waiting) < _WAITING and (file := next(rest, None)) is not None:
                        waiting[pool.submit(summaries_of, file.path, tuple(self.reaches), self.texts)] = file
                    if not waiting:
                        return
                    for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                        yield waiting.pop(done), done.result()
            finally:
                for each in waiting:
                    each.cancel()


def summaries_of(path: str, reaches: Sequence[str] = (), texts: bool = False) -> Summaries | str:
    """Summaries of the sessions of one log, or why it has none."""
    try:
        return [summarised(session, reaches, texts=texts) for session in read_sessions(path)]
    except BadInput as error:
        return str(error).partition(". Formats tried")[0] or "no log"


def summarised(
    session: Session, reaches: Sequence[str] = (), *, turns: bool = False, texts: bool = False
) -> dict[str, Any]:
    """The summary of one session, with the bounds of some reaches."""
    made = itemised(session, _prices(), texts=texts or needs_texts(reaches))
    told = summary(made, turns=turns, texts=texts)
    if reaches:
        named = {name: reach_of(name) for name in reaches}
        told["reach"] = bounds(made, named)
        if (pair := session.meta.get(AS_SENT)) is not None:
            sent, arrived = (itemised(side, _prices(), texts=needs_texts(reaches)) for side in pair)
            told["reach"] = {name: told["reach"][name] | more for name, more in achieved(sent, arrived, named).items()}
    return told


_TABLE: list[GenaiPrices] = []


def _prices() -> GenaiPrices:
    """One price table for all sessions of a process."""
    if not _TABLE:
        _TABLE.append(GenaiPrices())
    return _TABLE[0]


def _every_log(paths: Iterable[str | Path]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_dir():
            yield from log_files(path)
        elif path.exists():
            yield path
        else:
            raise BadInput(f"no file or folder {path}")


def _stated(path: Path) -> LogFile:
    about = path.stat()
    return LogFile(str(path), about.st_size, about.st_mtime_ns)


def index_file() -> Path:
    """The file of the index."""
    return cache_folder() / f"explain-{FORM}.jsonl"


class _Index:
    """The index in memory, and the file that grows with it."""

    def __init__(self, path: Path, reaches: Sequence[str]) -> None:
        self._path = path
        # What depends on other things than the log is not taken from the index: other code, prices, reaches.
        self._made = hash_text("\n".join([__version__, version("genai-prices"), GenaiPrices().date[:7], *reaches]), 12)
        self._keep = not any(spec.startswith("py:") for spec in reaches)
        self._lines: dict[tuple[str, str], dict[str, Any]] = {}
        stale = 0
        with suppress(OSError), path.open("rb") as file:
            for line in file:
                with suppress(orjson.JSONDecodeError, KeyError, TypeError):
                    told = orjson.loads(line)
                    stale += (told["key"], told["made"]) in self._lines
                    self._lines[told["key"], told["made"]] = told
        if stale > len(self._lines):
            self._rewrite()

    def get(self, file: LogFile) -> Summaries | str | None:
        """Summaries of a log that has not changed since; `None` for any other."""
        told = self._lines.get((file.key, self._made))
        if told is None or (told.get("size"), told.get("changed")) != (file.size, file.changed):
            return None
        found = told.get("sessions")
        return "" if found is None else found if isinstance(found, list) else None

    def put(self, file: LogFile, told: Summaries | str) -> None:
        """Keep what was read of a log. A full or closed disk costs only the index."""
        if not self._keep:
            return
        line = {"key": file.key, "made": self._made, "size": file.size, "changed": file.changed}
        line["sessions"] = None if isinstance(told, str) else told
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(handle, orjson.dumps(line) + b"\n")
            finally:
                os.close(handle)

    def _rewrite(self) -> None:
        """Write each line once."""
        part = self._path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            part.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in self._lines.values()))
            part.chmod(0o600)
            part.replace(self._path)


# Held against the wire
# ------------------------------------------------------------------------
#
# A tap that stood beside the client saw every request and what the provider billed for it. A log may lack calls, and
# the usage that it states may be an early count of a stream. Calls are paired by equal counts as far as there are, then
# in their order.

FIELDS = ("input_tokens", "cache_read", "cache_write", "output_tokens")


@dataclass(slots=True)
class WireCheck:
    """A log held against what a tap recorded beside its client.

    `pairs`: (usage that the log states or `None`, the record) of calls that are in both; the last `by_order` of them
    were paired by their order alone. `missing`: records of calls that no log has. `extra`: usage of calls that no
    record has. `quotas`: what replies told of the account.
    """

    pairs: list[tuple[Usage | None, Forwarded]] = field(default_factory=list)
    by_order: int = 0
    missing: list[Forwarded] = field(default_factory=list)
    extra: list[Usage | None] = field(default_factory=list)
    quotas: Quotas = field(default_factory=Quotas)
    refused: int = 0

    def sums(self) -> dict[str, dict[str, int]]:
        """Field → `log` and `wire` over the calls in both, `missing` over those that the log lacks, `corrected`: what
        the wire states of all calls.
        """
        found = {}
        for name in FIELDS:
            paired = sum(getattr(one.usage, name, None) or 0 for _, one in self.pairs)
            missing = sum(getattr(one.usage, name, None) or 0 for one in self.missing)
            logged = sum(getattr(usage, name, None) or 0 for usage, _ in self.pairs)
            found[name] = {"log": logged, "wire": paired, "missing": missing, "corrected": paired + missing}
        return found

    def money(self, prices: GenaiPrices) -> dict[str, float]:
        """US dollars, as in `sums`; calls of models without a known price are in none of them."""

        def cost(usage: Usage | None, one: Forwarded) -> float:
            return (prices.cost(usage, one.model or "") or 0.0) if usage is not None else 0.0

        paired = sum(cost(one.usage, one) for _, one in self.pairs)
        missing = sum(cost(one.usage, one) for one in self.missing)
        logged = sum(cost(usage, one) for usage, one in self.pairs)
        return {"log": logged, "wire": paired, "missing": missing, "corrected": paired + missing}

    def as_dict(self, prices: GenaiPrices) -> dict[str, Any]:
        """JSON-ready."""
        return {
            **{"calls_in_both": len(self.pairs), "paired_by_order": self.by_order, "refused": self.refused},
            **{"missing_in_log": len(self.missing), "not_on_wire": len(self.extra)},
            **{"log_states_no_usage": sum(usage is None for usage, _ in self.pairs)},
            "wire_states_no_usage": sum(
                each.usage is None for each in (*(one for _, one in self.pairs), *self.missing)
            ),
            **{"fields": self.sums(), "usd": self.money(prices), "bill": "corrected to the wire"},
            "quotas": self.quotas.as_dict(),
        }


def held_against(paths: Iterable[str | Path], records: str | Path) -> WireCheck:
    """The sessions in `paths` held against the records of a tap. Raises `BadInput`."""
    check = WireCheck()
    seen: list[Forwarded] = []
    for one in _records(Path(records)):
        check.quotas.take(one.facts)
        refused = one.status is not None and one.status >= 400
        check.refused += refused and one.wire in WIRES
        answered = one.usage is not None or (one.status is not None and not refused)
        if one.wire in WIRES and answered and not refused and not one.facts.get("warm_up"):
            seen.append(one)
    seen.sort(key=lambda one: one.started)
    logged = [
        reply.usage if (reply := request.recorded_reply) is not None else None
        for path in paths
        for session in read_sessions(path)
        for request in session.requests
    ]
    return _paired(check, logged, seen)


def _paired(check: WireCheck, logged: list[Usage | None], seen: list[Forwarded]) -> WireCheck:
    for names in (FIELDS, FIELDS[:3], FIELDS[:1], FIELDS[3:]):
        places: dict[tuple[int, ...], list[Forwarded]] = {}
        for one in reversed(seen):
            places.setdefault(_counts(one.usage, names), []).append(one)
        left = []
        for usage in logged:
            same = places.get(_counts(usage, names))
            if same and (names is FIELDS or any(_counts(usage, names))):  # those that tell nothing go together
                check.pairs.append((usage, same.pop()))
            else:
                left.append(usage)
        taken = {id(one) for _, one in check.pairs}
        logged, seen = left, [one for one in seen if id(one) not in taken]
    check.by_order = min(len(logged), len(seen))
    check.pairs += zip(logged, seen, strict=False)
    check.missing, check.extra = seen[check.by_order :], logged[check.by_order :]
    return check


def _counts(usage: Usage | None, names: Sequence[str]) -> tuple[int, ...]:
    return tuple(getattr(usage, name, None) or 0 for name in names)


def _records(path: Path) -> Iterator[Forwarded]:
    """The records in a file of a tap, of whatever policy. Raises `BadInput`."""
    if not path.is_file():
        raise BadInput(f"--against {path}: no such file; expected what watch --records FILE wrote")
    found = False
    with opened(path) as file:
        for line in file:
            with suppress(orjson.JSONDecodeError, BadInput):
                value = orjson.loads(line)
                if isinstance(value, Mapping) and "matched_by" in value:
                    found = True
                    yield forwarded_of(value)
    if not found:
        raise BadInput(f"--against {path}: no record of a tap in it; expected what watch --records FILE wrote")


AS_SENT = "as sent"  # in the meta of a session as it arrived: (its requests as sent, and each as it arrived)
_CHAT = ("openai-chat", "openai-responses", "anthropic")
_THROUGH = " through "  # between the name of a conversation and that of the system


def sessions_of_run(store: str, run: str, systems: Sequence[str] | None) -> Iterator[Session]:
    """The sessions of a stored run as they reached the provider; of a run without a tap as they were sent. Requests
    that the tap did not see answered are counted in `meta["unseen"]`. Raises `BadInput` or `UnknownName`.
    """
    from context_bench.session.runs import found_in, opened_store

    with opened_store(store) as opened:
        record = found_in(opened, run)
        known = record.systems
        for name in systems or ():
            if name not in known:
                raise BadInput(f"--system {name}: the run has {', '.join(known)}")
        tapped, some, arrived = bool(record.manifest.get("tap")), False, False
        for name in systems or known:
            for one in sessions_of(opened, record.id, name):
                some, arrived = True, arrived or bool(one.arrived)
                yield from _through(one) if tapped else [_as_sent(one)]
        if not some:
            raise BadInput(f"{record.name}: no request was kept; run it again with --bodies all, which keeps them")
        if tapped and not arrived:
            raise BadInput(
                f"{record.name}: the tap saw no request of it answered by the provider; expected one at least: see "
                "whether the proxy's upstream is the tap, and what failed"
            )


def _as_sent(seen: SeenSession) -> Session:
    return replace(seen, id=seen.id.removesuffix(_THROUGH + seen.source)).session(seen.sent)


def _through(seen: SeenSession) -> Iterator[Session]:
    """A conversation as it arrived, and what was asked beside it."""
    as_sent = tuple(seen.session(list(side)) for side in zip(*seen.pairs, strict=True))
    more = {AS_SENT: as_sent} if as_sent else {}
    yield seen.session(seen.arrived, **more, **({"unseen": seen.unseen} if seen.unseen else {}))
    if seen.beside:
        yield seen.session(seen.beside, beside=True)


def sessions_of(store: Any, run: str, system: str) -> Iterator[SeenSession]:
    """Each session of one system, as it was sent and as it was seen to arrive, under the name of both."""
    from context_bench.engine.store.row_details import export

    items = export(store, run, system)
    for group, members in groupby(items, _group):
        found = SeenSession(f"{group[0]}{_THROUGH}{system}", system, {"format": "stored run"})
        account = None
        for item in members:
            account = (item["example"] or {}).get("account")
            _take(found, item)
        if not found.sent:
            continue
        stated = any(one.recorded_reply and _states_cache(one.recorded_reply.usage) for one in found.arrived)
        found.meta |= {"replayed": account} if account and not stated else {}
        yield found


def _group(item: Mapping[str, Any]) -> tuple[str, int]:
    row = item["row"]
    return str(row.get("group") or row["example_id"]), int(row.get("trial") or 0)


def _take(found: SeenSession, item: Mapping[str, Any]) -> None:
    calls = [call for call in item["calls"] if call["account"] == "system" and isinstance(call.get("request"), Mapping)]
    if not calls:
        return
    call, example = calls[-1], item["example"] or {}
    wire, at = str((example.get("request") or {}).get("wire") or "openai-chat"), example.get("at")
    answered = [
        one
        for one in item["forwarded"]
        if one["wire"] in _CHAT and isinstance(one.get("request"), Mapping) and one.get("error") is None
        if (one.get("status") or 0) < 400
    ]
    landed = [
        verbatim(str(one["wire"]), dict(one["request"]), recorded_reply=_recorded(item, one), at=at) for one in answered
    ]
    others = len(found.beside)
    found.add(verbatim(wire, dict(call["request"]), recorded_reply=_recorded(item, call, sent=True), at=at), landed)
    for beside in found.beside[others:]:  # the row's reply is not what came of these
        record = next(one for one, made in zip(answered, landed, strict=True) if made is beside)
        beside.recorded_reply = RecordedReply(usage=_usage(record))


def _recorded(item: Mapping[str, Any], call: Mapping[str, Any], *, sent: bool = False) -> RecordedReply:
    """The reply that is billed. Of a recorded session that was sent again to whoever states nothing of a cache (`echo`,
    a small model) it is the recorded one: as sent with the usage of its log, as arrived with no prompt tokens, for
    these are predicted.
    """
    example, reply = item["example"] or {}, _reply(item, call)
    if "turn" not in example or _states_cache(reply.usage):
        return reply
    told = example.get("recorded") or {}
    known = Usage(**told["usage"]) if isinstance(told.get("usage"), Mapping) else None
    return RecordedReply(
        told.get("text"),
        list(told.get("tool_calls") or ()),
        known if sent or known is None else Usage(output_tokens=known.output_tokens),
        finish_reason=told.get("finish_reason"),
    )


def _states_cache(usage: Usage | None) -> bool:
    return usage is not None and (usage.cache_read is not None or usage.cache_write is not None)


def _reply(item: Mapping[str, Any], call: Mapping[str, Any]) -> RecordedReply:
    output = item["output"] or {}
    text, calls = output.get("response"), output.get("tool_calls")
    return RecordedReply(
        text if isinstance(text, str) else None,
        [one for one in calls if isinstance(one, dict)] if isinstance(calls, list) else [],
        _usage(call),
        finish_reason="stop",
    )


def _usage(call: Mapping[str, Any]) -> Usage | None:
    usage = call.get("usage")
    return (
        Usage(**{name: usage.get(name) for name in Usage.__dataclass_fields__}) if isinstance(usage, Mapping) else None
    )
