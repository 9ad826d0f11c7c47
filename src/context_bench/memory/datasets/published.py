"""Sources of published memory data, and the documents of files and folders of one's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput, PreflightFailed, UnknownName
from context_bench.core.keys import hash_file, stable_hash
from context_bench.core.machine import expanded
from context_bench.datasets import hub
from context_bench.datasets.readers import KINDS, rows_of
from context_bench.memory.datasets.formats import shapes, sniff
from context_bench.memory.datasets.memory_records import Document

_LONGMEMEVAL = ("xiaowu0162/longmemeval-cleaned", "98d7416c24c778c2fee6e6f3006e7a073259d48f")
_BEAM = ("Mohammadta/BEAM", "3205395e897e7318c7b094ef4e6047b9b82dbb03")
_CONVOMEM = "core_benchmark/evidence_questions"


@dataclass(frozen=True, slots=True)
class HubFiles:
    """Files of one repository on the hub."""

    repo: str
    pattern: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """A benchmark's published data. `configs`: name → parts, whose haystacks are taken in turn; `authors_sha256`: of
    the authors' own file.

    `size`: questions of the configuration that is taken when none is named. `elsewhere`: how to get what no hub
    carries.
    """

    name: str
    about: str
    licence: str
    citation: str
    configs: dict[str, tuple[HubFiles, ...]]
    size: int | None = None
    evaluators: tuple[str, ...] = ("answer",)
    authors_sha256: str | None = None
    elsewhere: str = ""
    note: str | None = None

    @property
    def config(self) -> str:
        return next(iter(self.configs), "")

    def source(self, config: str | None = None) -> str:
        """`hf:OWNER/NAME`, or where else it is to be had."""
        parts = self.configs.get(config or self.config, ())
        return f"hf:{parts[0].repo}" if parts else self.elsewhere


_KINDS = ("user", "assistant_facts", "changing", "abstention", "preference", "implicit_connection")
_SPLITS = ("Accurate_Retrieval", "Test_Time_Learning", "Long_Range_Understanding", "Conflict_Resolution")
_MAB = {
    split.lower().replace("_", "-"): (HubFiles("ai-hyz/MemoryAgentBench", f"data/{split}-*.parquet"),)
    for split in _SPLITS
}
_CONVO = {
    kind.replace("_", "-"): (HubFiles("Salesforce/ConvoMem", f"{_CONVOMEM}/{kind}*_evidence/*.json"),)
    for kind in _KINDS
}
PUBLISHED = {
    each.name: each
    for each in (
        Published(
            "locomo",
            "Ten conversations of two people over months; questions on one or several turns, on time, and on what was "
            "never said.",
            "CC BY-NC 4.0: not for commercial use; never shipped with this tool, downloaded when you ask for it",
            "Maharana et al. 2024, arXiv:2402.17753",
            {
                "official": (HubFiles("KimmoZZZ/locomo", "locomo10.json"),),
                "preprocessed": (HubFiles("KhangPTT373/locomo_preprocess", "*test*"),),
            },
            size=1986,
            authors_sha256="79fa87e90f04081343b8c8debecb80a9a6842b76a7aa537dc9fdf651ea698ff4",
            note="the authors publish on GitHub only (snap-research/locomo); this is a copy that others keep on the "
            "hub",
        ),
        Published(
            "longmemeval",
            "500 questions, each with a history of chats with an assistant: facts, updates, time, several sessions, "
            "and abstention.",
            "MIT",
            "Wu et al. 2024, arXiv:2410.10813",
            {
                "s": (HubFiles(_LONGMEMEVAL[0], "longmemeval_s_cleaned.json", _LONGMEMEVAL[1]),),
                "m": (HubFiles(_LONGMEMEVAL[0], "longmemeval_m_cleaned.json", _LONGMEMEVAL[1]),),
                "oracle": (HubFiles(_LONGMEMEVAL[0], "longmemeval_oracle.json", _LONGMEMEVAL[1]),),
            },
            size=500,
        ),
        Published(
            "dmr",
            "MSC-Self-Instruct, called deep memory retrieval: 500 dialogues of five sessions, one question each.",
            "see the dataset's page: made from Multi-Session Chat",
            "Packer et al. 2023, arXiv:2310.08560",
            {"test": (HubFiles("MemGPT/MSC-Self-Instruct", "msc_self_instruct.jsonl"),)},
            size=500,
        ),
        Published(
            "beam",
            "Conversations of 100 thousand to 10 million tokens; ten abilities, judged by rubrics.",
            "CC BY-SA 4.0",
            "Tavakoli et al. 2025, arXiv:2510.27246",
            {
                **{size: (HubFiles(_BEAM[0], f"data/{size}-*.parquet", _BEAM[1]),) for size in ("100K", "500K", "1M")},
                "10M": (HubFiles("Mohammadta/BEAM-10M", "data/10M-*.parquet"),),
            },
            size=400,
        ),
        Published(
            "convomem",
            "75,336 questions of six kinds on conversations at work; this is the evidence without the filler "
            "conversations.",
            "CC BY-NC 4.0 by its page on the hub (its code says Apache 2.0): not for commercial use; never shipped "
            "with this tool",
            "Pakhomov et al. 2025, arXiv:2511.10523",
            {"all": tuple(part for parts in _CONVO.values() for part in parts), **_CONVO},
            size=75336,
        ),
        Published(
            "membench",
            "Facts and reflections, told or observed; multiple choice, so that no judge is needed.",
            "MIT (code); see its page for the data",
            "Tan et al. 2025, arXiv:2506.21605",
            {},
            evaluators=("multiple_choice", "answer"),
            elsewhere="github.com/import-myself/Membench (links in its README); then --dataset ./FOLDER or ./FILE.json",
        ),
        Published(
            "memoryagentbench",
            "Long texts taken in piece by piece: retrieval, learning while used, long-range understanding, "
            "conflicting facts.",
            "MIT",
            "Hu et al. 2025, arXiv:2507.05257",
            {"all": tuple(part for parts in _MAB.values() for part in parts), **_MAB},
        ),
    )
}


@dataclass
class MemorySource:
    """Documents of a source.

    `streams(wanted)` opens its parts, whose haystacks are taken in turn; about `wanted` documents will be used.
    `facts()`: what was read, `sha256s()`: the hashes of the files as far as they are known.
    """

    streams: Callable[[int | None], list[Iterator[Document]]]
    facts: Callable[[], dict[str, Any]]
    sha256s: Callable[[], list[str]]
    skipped: list[str] = field(default_factory=list)


# --- the hub ---
def published(known: Published, config: str | None) -> MemorySource:
    """The parts that the hub carries; finds the files and their commit now. Raises `PreflightFailed` or
    `UnknownName`.
    """
    if not known.configs:
        raise PreflightFailed(f"no hub carries {known.name}: get it from {known.elsewhere}")
    wanted = next((name for name in known.configs if name.lower() == (config or known.config).lower()), None)
    if wanted is None:
        raise UnknownName(f"configuration of {known.name}", config or "", list(known.configs))
    found = [hub.snapshot(part.repo, part.pattern, part.revision) for part in known.configs[wanted]]
    pinned = all(part.revision is not None for part in known.configs[wanted])

    def facts() -> dict[str, Any]:
        files = [{"path": f.path, "bytes": f.size, "sha256": f.sha256} for snapshot in found for f in snapshot.files]
        facts: dict[str, Any] = {
            "source": known.source(wanted),
            "config": wanted,
            "revision": found[0].commit,
            "pinned": pinned,
        }
        facts |= {"files": files, "licence": known.licence, "citation": known.citation}
        facts["sha256"] = stable_hash([facts["source"], facts["revision"], files], 64)
        notes = [snapshot.note for snapshot in found if snapshot.note]
        if known.note and wanted == known.config:
            notes.append(known.note)
            if known.authors_sha256 and (there := [f["sha256"] for f in files if f["sha256"]]):
                same = known.authors_sha256 in there
                notes.append(
                    "its bytes are the authors' own" if same else "its bytes are NOT those that the authors published"
                )
        return {**facts, "notes": notes}

    def streams(wanted_rows: int | None) -> list[Iterator[Document]]:
        each = None if wanted_rows is None else -(-wanted_rows // len(found))
        return [_of_snapshot(snapshot, each) for snapshot in found]

    return MemorySource(streams, facts, lambda: [f.sha256 for snapshot in found for f in snapshot.files if f.sha256])


def _of_snapshot(found: hub.HubSnapshot, wanted: int | None) -> Iterator[Document]:
    for file in found.files:
        for number, row in enumerate(replace(found, files=(file,)).rows(wanted)):
            yield Document(row, file.path, number)


# --- files of one's own ---
def local(spec: str) -> MemorySource:
    """A file, or a folder with everything readable below it. Raises `BadInput` if there is nothing of a known shape."""
    path = expanded(spec)
    if not path.exists():
        raise BadInput(
            f"no memory data at {spec}: there is no such file or folder. Known by name: {', '.join(PUBLISHED)}, "
            "bundled:recall-lab"
        )
    paths, skipped = _readable(path)
    reading = _Files(path if path.is_dir() else path.parent, paths)
    return MemorySource(lambda _: [reading.documents()], reading.facts, lambda: list(reading.hashes.values()), skipped)


def _readable(path: Path) -> tuple[list[Path], list[str]]:
    """(files to read, files left aside because their first document has no known shape)."""
    if path.is_file():
        if (why := _why_unusable(path)) is not None:
            raise BadInput(f"{path.name} holds no memory data that is known here: {why}. Known shapes:\n{shapes()}")
        return [path], []
    there = sorted(
        (p for p in path.rglob("*") if p.is_file() and p.name.lower().endswith((*_NAMES, *_PACKED))), key=_natural
    )
    good: list[Path] = []
    skipped: list[str] = []
    for each in there:
        if each.name == "probing_questions.json" or (each.name == "chat.json" and (each.parent / _CUT).exists()):
            continue  # read with the chat they belong to; a chat that was cut to size stands for the whole one
        if _why_unusable(each) is None:
            good.append(each)
        else:
            skipped.append(each.relative_to(path).as_posix())
    if not good:
        shown = ", ".join(skipped[:5]) or "no data files"
        raise BadInput(f"{path} holds no memory data that is known here; there: {shown}. Known shapes:\n{shapes()}")
    return good, skipped


_NAMES = tuple(kind for kind in KINDS if kind not in (".csv", ".tsv", ".txt"))
_PACKED = tuple(f"{kind}{packing}" for kind in _NAMES for packing in (".gz", ".zst") if kind != ".parquet")
_CUT = "chat_trunecated.json"  # as the authors spell it


def _natural(path: Path) -> list[Any]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d{1,9})", path.as_posix())]


def _why_unusable(path: Path) -> str | None:
    """The reason for which a file is of no use; `None` if it is of use."""
    try:
        first = next(_of_file(path, path.name), None)
    except BadInput as error:
        return str(error)
    if first is None:
        return "it is empty"
    return None if sniff(first.value) else f"its first entry has {_seen(first.value)}"


def _seen(value: Any) -> str:
    return f"the fields {', '.join(map(repr, list(value)[:8]))}" if value else "no fields"


@dataclass
class _Files:
    folder: Path
    paths: Sequence[Path]

    def documents(self) -> Iterator[Document]:
        for path in self.paths:
            yield from _of_file(path, path.relative_to(self.folder).as_posix())

    def facts(self) -> dict[str, Any]:
        files = [
            {"path": name, "bytes": (self.folder / name).stat().st_size, "sha256": sha}
            for name, sha in self.hashes.items()
        ]
        name = files[0]["path"] if len(files) == 1 else f"{self.folder.name}/ ({len(files)} files)"
        return {
            "source": f"file:{name}",
            "files": files,
            "sha256": files[0]["sha256"] if len(files) == 1 else stable_hash(files, 64),
        }

    @cached_property
    def hashes(self) -> dict[str, str]:
        return {path.relative_to(self.folder).as_posix(): hash_file(path) for path in self.paths}


def _of_file(path: Path, name: str) -> Iterator[Document]:
    if path.name in ("chat.json", _CUT) and (beam := _beam(path)) is not None:
        yield Document(beam, name)
    elif (whole := _object(path)) is not None:
        yield Document(whole, name)
    else:
        for number, row in enumerate(rows_of(path)):
            yield Document(row, name, number)


def _beam(chat: Path) -> dict[str, Any] | None:
    """A chat of BEAM's own folders with its questions, which lie beside it in another file."""
    beside = (chat.parent / "probing_questions" / "probing_questions.json", chat.parent / "probing_questions.json")
    probes = next((each for each in beside if each.is_file()), None)
    if probes is None:
        return None
    try:
        return {
            "conversation_id": "-".join(chat.parent.parts[-2:]),
            "chat": json.loads(chat.read_text("utf-8-sig")),
            "probing_questions": json.loads(probes.read_text("utf-8-sig")),
        }
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{chat.parent.name}: {chat.name} or {probes.name} is not JSON: {error}") from error


def _object(path: Path) -> dict[str, Any] | None:
    """The one object that a `.json` file holds, if it is of a known shape; `None` if the file is something else."""
    if not path.name.lower().endswith(".json"):
        return None
    try:
        with path.open("rb") as file:
            if not file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
                return None
        value = json.loads(path.read_text("utf-8-sig"), parse_constant=lambda _: None)
    except (OSError, ValueError, RecursionError):
        return None  # the ordinary reader says what is wrong with it, or reads it line by line
    return value if isinstance(value, dict) and sniff(value) else None
