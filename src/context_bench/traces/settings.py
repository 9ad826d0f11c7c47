"""All that a row depends on, and the hash of it: a row is made again only when one of these is another one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import orjson

from context_bench.traces.gold_files import GoldSet
from context_bench.traces.scoring import gold_sha
from context_bench.traces.symbols import grammar_versions

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
        files = [(spec, content_sha(Path(spec)) if Path(spec).is_file() else _stamps(Path(spec))) for spec in self.repos]
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
    return hashlib.sha256("".join(sorted(f"{one.instance_id}\0{gold_sha(one)}\n" for one in golds)).encode()).hexdigest()[:16]


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
    """A hash of names, sizes and times of a folder's files, which is much cheaper than their content; of git, where its branches are."""
    found = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        if "HEAD" in files and "objects" in folders:
            folders[:], files = ["refs"], ["HEAD", "packed-refs"]
        folders.sort()
        for name in sorted(files):
            with suppress(OSError):
                stat = (Path(place) / name).stat()
                found.update(f"{place}\0{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return found.hexdigest()
