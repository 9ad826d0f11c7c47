"""Settings of a scoring run, and the work of one process: gold and repository of each run, its patch, its row.

`Settings` holds all that a row depends on; a row is made again only when its hash differs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from context_bench.core.errors import Stop, describe
from context_bench.shell.repo import Repo
from context_bench.traces.gold import Gold, GoldSet
from context_bench.traces.rows import TraceRow
from context_bench.traces.score_one import billed, gold_sha, score_trace, statistics, trace_sha
from context_bench.traces.symbols import Repositories, grammar_versions
from context_bench.transcripts.trace import Trace
from context_bench.transcripts.traces import load_traces

#: Part of every key: rows made by another state of this code are made again.
_VERSION = 3


@dataclass(frozen=True)
class Settings:
    """All that a row depends on beside its log and its gold."""

    policy: str
    counted: tuple[str, ...]
    by: Literal["call", "turn"]
    dilate: int
    longest: int | None
    repos: tuple[str, ...]
    tools: str | None
    instance: str | None
    cache: str | None
    patches: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def sha(self, golds: GoldSet) -> str:
        """A hash of them, of the gold and of the grammars."""
        files = [
            (spec, content_sha(Path(spec)) if Path(spec).is_file() else _stamps(Path(spec))) for spec in self.repos
        ]
        tools = content_sha(Path(self.tools)) if self.tools else ""
        parts = [
            _VERSION,
            self.policy,
            self.counted,
            self.by,
            self.dilate,
            self.longest,
            files,
            tools,
            self.instance,
            golds_sha(golds),
            grammar_versions(),
            *([self.patches] if self.patches else []),
        ]
        return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def golds_sha(golds: GoldSet) -> str:
    """A hash of all golds, whatever their order."""
    return hashlib.sha256(
        "".join(sorted(f"{one.instance_id}\0{gold_sha(one)}\n" for one in golds)).encode()
    ).hexdigest()[:16]


def content_sha(path: Path) -> str:
    """A hash of a file's bytes, or of all files of a folder."""
    found = hashlib.sha256()
    for one in sorted(child for child in path.rglob("*") if child.is_file()) if path.is_dir() else [path]:
        found.update(one.name.encode("utf-8", "surrogateescape") + b"\0")
        with one.open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    return found.hexdigest()


def _stamps(folder: Path) -> str:
    """A hash of names, sizes and times of a folder's files, which is much cheaper than their content; of git, where its
    branches are.
    """
    found = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        if "HEAD" in files and "objects" in folders:
            folders[:], files = ["refs"], ["HEAD", "packed-refs"]
        folders.sort()
        for name in sorted(files):
            with suppress(OSError):
                stat = (Path(place) / name).stat()
                found.update(
                    f"{place}\0{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode("utf-8", "surrogateescape")
                )
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class TraceItem:
    """A file of one or more runs, or a folder that is one run. `run`: the label of its set; `within`: the folder it was
    found in.
    """

    run: str
    path: str
    within: str | None = None


class ScoringJob:
    """All that a process needs to score files."""

    def __init__(self, settings: Settings, golds: GoldSet) -> None:
        self.settings, self.golds = settings, golds
        self.sha = settings.sha(golds)
        self.repos = Repositories(settings.repos, cache=Path(settings.cache) if settings.cache else None)
        self._keys: dict[TraceItem, str] = {}

    def key(self, unit: TraceItem) -> str:
        """A hash of everything the rows of a file depend on."""
        if unit not in self._keys:
            parts = f"{self.sha}\0{unit.run}\0{Path(unit.path).name}\0{Path(unit.path).parent.name}\0{content_sha(Path(unit.path))}"  # noqa: E501
            self._keys[unit] = hashlib.sha256(parts.encode("utf-8", "backslashreplace")).hexdigest()[:24]
        return self._keys[unit]

    def learn(self, unit: TraceItem, key: str) -> None:
        """Take a key that another process made."""
        self._keys[unit] = key

    def rows(self, unit: TraceItem, known: Collection[tuple[str, str]] = ()) -> Iterator[TraceRow]:
        """The rows of one file; those whose instance and trace are `known` already are passed over."""
        key = self.key(unit)
        path = Path(unit.path)

        def gold_of(trace: Trace) -> Gold | None:
            if self.settings.instance is not None:
                return self.golds.find(self.settings.instance)
            return self.golds.find(*_names(trace.instance_id, path, unit.within))

        def repo_of(trace: Trace) -> Repo | None:
            gold = gold_of(trace)
            found = self.repos.find(gold, trace.repo, trace.commit) if gold is not None else ""
            return None if isinstance(found, str) else found[0]

        for trace in load_traces(unit.path, tools=self.settings.tools, repo=repo_of):
            gold = gold_of(trace)
            trace = self.patched(unit.run, trace, gold)
            if gold is not None and known and (gold.instance_id, trace_sha(trace)) in known:
                continue
            row = self.row(unit.run, trace, gold)
            if gold is None and trace.instance_id == path.name.split(".")[0]:
                row.instance_id = (
                    f"{path.parent.name}/{trace.instance_id}"  # a log that names no task is found again by its folder
                )
            row.key = key
            yield row

    def patched(self, run: str, trace: Trace, gold: Gold | None) -> Trace:
        """With the patch that was handed in, where the log holds none."""
        if gold is None or (trace.patch or "").strip():
            return trace
        told = next(
            (
                of[gold.instance_id]
                for name in (run, "")
                if gold.instance_id in (of := self.settings.patches.get(name, {}))
            ),
            None,
        )
        return (
            trace if told is None else replace(trace, patch=told, notes=[*trace.notes, "patch: from the predictions"])
        )

    def row(self, run: str, trace: Trace, gold: Gold | None) -> TraceRow:
        """One run. What goes wrong with it is its row's error and nobody else's."""
        if gold is None:
            return _unscored(run, trace, self.settings, "no_gold")
        found = self.repos.find(gold, trace.repo, trace.commit)
        rules, options = self.settings.policy, self.settings
        more = {"count": options.counted, "by": options.by, "dilate": options.dilate, "longest": options.longest}
        try:
            row = score_trace(gold, trace, None if isinstance(found, str) else found[1], rules, run=run, **more)  # type: ignore[arg-type]
        except Stop:
            raise
        except Exception as error:
            row = _unscored(run, trace, self.settings, describe(error))
            row.instance_id, row.repo, row.language = gold.instance_id, gold.repo, gold.language
        if isinstance(found, str):
            row.notes.append(f"no_repo: {found}")
        return row


class OneRepository(Repositories):
    """A repository that is open already, for every gold."""

    def __init__(self, repo: Repo) -> None:
        from context_bench.traces.symbols import CodeFiles

        super().__init__()
        self._found = (repo, CodeFiles(repo))

    def find(self, gold: Gold, repo: str | None = None, commit: str | None = None) -> Any:
        return self._found


def _names(instance_id: str, path: Path, within: str | None) -> list[str]:
    """Candidate ids of a run's task: those in the log, else the folders it lies in, up to the one that was named."""
    names = [instance_id, instance_id.rsplit("/", 1)[0]]
    top = Path(within) if within else path.parent
    for parent in path.parents:
        if parent == top or parent == parent.parent:
            break
        names.append(parent.name)
    if top.name:
        names.append(top.name)
    return [name for name in names if name]


def _unscored(run: str, trace: Trace, settings: Settings, error: str) -> TraceRow:
    seconds = trace.ended - trace.started if trace.started is not None and trace.ended is not None else None
    return TraceRow(
        run,
        trace.instance_id,
        trace.repo,
        agent=trace.agent,
        model=trace.model,
        statistics=statistics(trace),
        error=error,
        usage=trace.usage,
        cost=billed(trace),
        seconds=seconds,
        trace_sha=trace_sha(trace),
        policy=settings.policy,
        counted=list(settings.counted),
        skipped=dict(trace.skipped),
        notes=list(trace.notes),
        commit=trace.commit,
    )
