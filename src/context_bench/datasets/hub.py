"""Files of a dataset repository on the Hugging Face Hub, or on anything that speaks its REST API (`HF_ENDPOINT`).

Whole files go to the client's ordinary cache (`HF_HOME`), so copies made by other tools are used and ours are found by
them. What a repository holds at a commit, and the first rows of large files, are kept in `HF_HOME/context-bench`: with
these, a run that went through once goes through again with no network. No code of a repository is ever run.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import PreflightFailed, Stop, needed
from context_bench.core.keys import hash_file
from context_bench.core.machine import expanded
from context_bench.datasets.readers import rows_from, rows_of

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TIMEOUT = 8.0  # seconds until an unreachable hub is given up
SLICE_ABOVE = 4 * 2**20  # bytes: of larger files only what the rows wanted need is read, where the format allows it
BLOCK = 2**18  # bytes asked for at once then


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file at one commit. `sha256` is known for files in large-file storage; `inside`: of an archive, only members
    that match.
    """

    path: str
    size: int
    sha256: str | None = None
    inside: str | None = None

    @property
    def name(self) -> str:
        """Its name in `readers`."""
        return f"{self.path}!{self.inside}" if self.inside else self.path


@dataclass(frozen=True, slots=True)
class HubSnapshot:
    """The data files of one dataset at one commit. `note` says when the hub could not be asked."""

    repo: str
    commit: str
    files: tuple[HubFile, ...]
    note: str | None = None

    def rows(self, n: int | None) -> Iterator[dict[str, Any]]:
        """Raw rows in order, of which about `n` are wanted; files are fetched as they are reached."""
        left = n
        for file in self.files:
            for row in _file_rows(self, file, left):
                yield row
                left = None if left is None else max(0, left - 1)

    def file_facts(self) -> list[dict[str, Any]]:
        """Facts about its files for a manifest."""
        return [{"path": file.path, "bytes": file.size, "sha256": file.sha256} for file in self.files]

    def identity(self) -> list[Any]:
        """Facts that determine the content of its files."""
        return [self.commit, [[file.path, file.size, file.sha256] for file in self.files]]

    def whole(self, path: str) -> Path:
        """A file of this snapshot in the client's cache, downloaded if it was not there."""
        return _fetch(self, next(file for file in self.files if file.path == path))


def snapshot(repo: str, patterns: str | Sequence[str], revision: str | None) -> HubSnapshot:
    """Find the files of `repo` that match `patterns` (in their order) at `revision` (default: the newest). Raises
    `PreflightFailed`.

    A pattern `FILE.zip!INSIDE` means members of an archive. A commit that was listed before is not asked about again,
    since it cannot have changed.
    """
    asked = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    kept = _recall(repo, asked, revision)
    if kept and revision and re.fullmatch(r"[0-9a-f]{40}", revision):
        return kept
    if _offline():
        if kept or (kept := _from_cache(repo, asked, revision)):
            return kept
        raise PreflightFailed(
            f"HF_HUB_OFFLINE is set and dataset {repo} ({', '.join(asked)}) is not in the cache {_cache_dir()}. "
            f"{_ways(repo)}"
        )
    try:
        listed = _ask(repo, asked, revision)
    except _NotReached as error:
        if kept or (kept := _from_cache(repo, asked, revision)):
            return replace(kept, note=f"the hub could not be reached ({error}); the cached copy was used")
        raise PreflightFailed(
            f"cannot reach the hub at {_shown_endpoint()} for dataset {repo}: {error}. {_ways(repo)}"
        ) from error
    _remember(listed, asked, revision)
    return listed


class _NotReached(Exception):
    """No usable answer from the hub: no connection, a timeout, or an error of its own (5xx, 429)."""


def _ask(repo: str, patterns: Sequence[str], revision: str | None) -> HubSnapshot:
    commit, trees = listing(repo, revision, [_folder(pattern) for pattern in patterns])
    wanted: dict[str, HubFile] = {}
    for pattern in patterns:
        outer, _, inside = pattern.partition("!")
        there = trees[_folder(pattern)]
        matching = sorted((f for f in there if fnmatch.fnmatchcase(f.path, outer)), key=lambda f: f.path)
        if not matching:
            shown = ", ".join(sorted(f.path for f in there)[:10]) or "nothing"
            raise PreflightFailed(f"dataset {repo} has no files {outer!r} at {commit}; in that folder: {shown}")
        for file in matching:
            wanted.setdefault(f"{file.path}!{inside}", replace(file, inside=inside or None))
    return HubSnapshot(repo, commit, tuple(wanted.values()))


def _folder(pattern: str) -> str:
    return re.split(r"[*?\[!]", pattern)[0].rpartition("/")[0]


def listing(repo: str, revision: str | None, folders: Sequence[str] = ("",)) -> tuple[str, dict[str, list[HubFile]]]:
    """The commit that `revision` stands for (default: the newest) and all files below each folder at it."""
    from huggingface_hub.hf_api import RepoFile

    trees: dict[str, list[HubFile]] = {}
    folder = ""
    try:
        commit = _api().dataset_info(repo, revision=revision, timeout=TIMEOUT).sha or ""
        for folder in dict.fromkeys(folders):
            tree = _api().list_repo_tree(repo, folder or None, recursive=True, revision=commit, repo_type="dataset")
            trees[folder] = [
                HubFile(i.path, i.size, i.lfs.sha256 if i.lfs else None) for i in tree if isinstance(i, RepoFile)
            ]
    except Exception as error:
        raise _explained(error, repo, revision, folder) from error
    paths = [file.path for tree in trees.values() for file in tree]
    if not re.fullmatch(r"[0-9a-f]{40}", commit) or any(
        ".." in path.split("/") or path.startswith("/") for path in paths
    ):
        # Both become parts of a path in the cache, and a mirror may be anybody's.
        raise PreflightFailed(
            f"the hub at {_shown_endpoint()} gave an impossible commit or file name for dataset {repo}; check "
            "HF_ENDPOINT"
        )
    return commit, trees


def _explained(error: Exception, repo: str, revision: str | None, thing: str) -> Exception:
    """Explanation to the user of an error of the client."""
    from huggingface_hub import errors

    page = f"{_shown_endpoint()}/datasets/{repo}"
    if isinstance(error, Stop):
        return error
    if isinstance(error, errors.GatedRepoError):
        return PreflightFailed(
            f"dataset {repo} is gated: sign in at {page}, accept its terms, then set HF_TOKEN to a read token of that "
            "account "
            "(or run `hf auth login`)"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return PreflightFailed(f"dataset {repo} has no revision {revision!r}; see {page}/commits/main for those it has")
    if isinstance(error, errors.RepositoryNotFoundError):
        return PreflightFailed(
            f"the hub at {_shown_endpoint()} knows no dataset {repo}, or keeps it private. "
            "If you have access, set HF_TOKEN; else check HF_ENDPOINT"
        )
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return PreflightFailed(
            f"dataset {repo} has no {thing!r} at revision {revision or 'main'}; see {page}/tree/main"
        )
    # Addresses of a store behind the hub carry signatures in their query.
    return _NotReached(re.sub(r"\?\S+", "?…", " ".join(str(error).split()))[:300] or type(error).__name__)


def _file_rows(at: HubSnapshot, file: HubFile, wanted: int | None) -> Iterator[dict[str, Any]]:
    given = 0
    while (part := _part(at, file, wanted)) is not None:
        for row in islice(rows_of(part), given, None):
            given += 1
            yield row
        if part.stem == _ALL:
            return
        wanted = 2 * given  # whoever asks on skips rows, and may need many more
    yield from islice(rows_of(_fetch(at, file), file.name), given, None)


_ALL = "all"


def _part(at: HubSnapshot, file: HubFile, wanted: int | None) -> Path | None:
    """The first `wanted` rows (or more) of a large file as a file of its own, or `None` where the whole file is the
    better choice.

    What is wanted of an archive is always read from its place: the rest of it is other data.
    """
    if (
        file.size <= SLICE_ABOVE
        or (wanted is None and not file.inside)
        or not _sliceable(file.path)
        or _cached(at, file)
    ):
        return None
    # What is inside is named by whoever wrote the description, and must not become a path.
    inside = f"!{hashlib.sha256(file.inside.encode()).hexdigest()[:16]}" if file.inside else ""
    folder = _notes_dir() / "first-rows" / at.repo.replace("/", "--") / at.commit / f"{file.path}{inside}"
    least = None if wanted is None else max(1, wanted)
    if enough := _kept(folder, least):
        return enough
    if _offline():
        return None
    try:
        return _read_first(at, file, least, folder)
    except Stop:
        raise
    except Exception as error:
        raise _failed(error, at, file) from error


def _sliceable(path: str) -> bool:
    return (
        path.endswith((".parquet", ".zip"))
        or re.search(r"\.(jsonl?|ndjson|csv|tsv|src|tgt|cleaned)(\.gz|\.zst)?$", path) is not None
    )


def _kept(folder: Path, wanted: int | None) -> Path | None:
    parts = list(folder.glob("*.*")) if folder.is_dir() else []
    counted = sorted((int(p.stem), p) for p in parts if p.stem.isdigit() and p.suffix in (".parquet", ".jsonl"))
    enough = [p for rows, p in counted if wanted is not None and rows >= wanted]
    return next(iter(enough), None) or next((p for p in parts if p.name == f"{_ALL}.jsonl"), None)


def _read_first(at: HubSnapshot, file: HubFile, wanted: int | None, folder: Path) -> Path | None:
    from huggingface_hub import HfFileSystem

    system = HfFileSystem(endpoint=_endpoint(), skip_instance_cache=True, use_listings_cache=False)
    with system.open(f"datasets/{at.repo}@{at.commit}/{file.path}", "rb", block_size=BLOCK) as remote:
        if file.path.endswith(".parquet"):
            return _first_groups(remote, wanted or 1, folder)
        plain = io.BufferedReader(remote)  # the hub's own file cannot read a line of at most so many bytes
        return _first_lines(islice(rows_from(plain, file.name), wanted), wanted, folder, file.inside is not None)


def _first_lines(rows: Iterator[dict[str, Any]], wanted: int | None, folder: Path, member: bool) -> Path | None:
    """`rows` as a file of JSON lines; `None` where they are all that an ordinary file holds, which is better fetched
    whole then.
    """
    with tempfile.TemporaryDirectory(prefix="context-bench-") as place:
        rows_file, count = Path(place) / "rows", 0
        with rows_file.open("w", encoding="utf-8") as lines:
            for row in rows:
                lines.write(json.dumps(row) + "\n")
                count += 1
        complete = wanted is None or count < wanted
        if complete and not member:
            return None
        return _keep(folder, f"{_ALL if complete else count}.jsonl", lambda path: shutil.copyfile(rows_file, path))


def _first_groups(remote: Any, wanted: int, folder: Path) -> Path | None:
    parquet = needed("pyarrow.parquet", "a Parquet file of the hub", "parquet")
    source = parquet.ParquetFile(remote)
    rows = groups = 0
    while rows < wanted and groups < source.num_row_groups:
        rows += source.metadata.row_group(groups).num_rows
        groups += 1
    if groups == source.num_row_groups:
        return None
    table = source.read_row_groups(list(range(groups)))
    return _keep(folder, f"{rows}.parquet", lambda path: parquet.write_table(table, path))


def _keep(folder: Path, name: str, write: Callable[[Path], object]) -> Path:
    """A file that is there whole or not at all, whoever else writes it at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{name}.{os.getpid()}.partial"
    write(partial)
    return partial.replace(folder / name)


def _fetch(at: HubSnapshot, file: HubFile) -> Path:
    """The whole file in the client's cache; a fresh download is checked against its known SHA-256."""
    if (cached := _cached(at, file)) is not None:
        return cached
    if _offline():
        raise PreflightFailed(
            f"HF_HUB_OFFLINE is set and {file.path} of dataset {at.repo} is not in the cache {_cache_dir()}. "
            f"{_ways(at.repo)}"
        )
    try:
        path = Path(
            _api().hf_hub_download(
                at.repo,
                file.path,
                repo_type="dataset",
                revision=at.commit,
                cache_dir=str(_cache_dir()),
                etag_timeout=TIMEOUT,
            )
        )
    except Exception as error:
        raise _failed(error, at, file) from error
    if file.sha256 and hash_file(path) != file.sha256:
        path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise PreflightFailed(
            f"{file.path} of dataset {at.repo} arrived damaged (wrong SHA-256) and was deleted; run the command again"
        )
    return path


def _failed(error: Exception, at: HubSnapshot, file: HubFile) -> Exception:
    explained = _explained(error, at.repo, at.commit, file.path)
    if isinstance(explained, _NotReached):
        return PreflightFailed(
            f"{file.path} of dataset {at.repo} could not be downloaded whole: {explained}. Run the command again; "
            "it goes on where it stopped"
        )
    return explained


def _cached(at: HubSnapshot, file: HubFile) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(
        at.repo, file.path, cache_dir=str(_cache_dir()), revision=at.commit, repo_type="dataset"
    )
    return Path(path) if isinstance(path, str) else None


def _note_path(repo: str, patterns: Sequence[str], revision: str | None) -> Path:
    name = hashlib.sha256("\n".join([*patterns, revision or "main"]).encode()).hexdigest()[:16]
    return _notes_dir() / "listings" / repo.replace("/", "--") / f"{name}.json"


def _remember(snapshot: HubSnapshot, patterns: Sequence[str], revision: str | None) -> None:
    path = _note_path(snapshot.repo, patterns, revision)
    note = {"commit": snapshot.commit, "patterns": patterns, "files": [asdict(f) for f in snapshot.files]}
    try:
        _keep(path.parent, path.name, lambda partial: partial.write_text(json.dumps(note), "utf-8"))
    except OSError:
        return  # a cache that cannot be written costs a question to the hub next time, nothing else


def _recall(repo: str, patterns: Sequence[str], revision: str | None) -> HubSnapshot | None:
    try:
        note = json.loads(_note_path(repo, patterns, revision).read_text("utf-8"))
        return HubSnapshot(repo, note["commit"], tuple(HubFile(**f) for f in note["files"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _from_cache(repo: str, patterns: Sequence[str], revision: str | None) -> HubSnapshot | None:
    """Files that another tool (`hf download`) left in the cache; shards that its names promise (`-of-00003`) are listed
    too.
    """
    folder = _cache_dir() / f"datasets--{repo.replace('/', '--')}"
    commit = revision or "main"
    if not (folder / "snapshots" / commit).is_dir():
        try:
            commit = (folder / "refs" / commit).read_text("utf-8").strip()
        except OSError:
            return None
    root = folder / "snapshots" / commit
    there = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()] if root.is_dir() else []
    files: dict[str, HubFile] = {}
    for pattern in patterns:
        outer, _, inside = pattern.partition("!")
        names = sorted({name for path in there if fnmatch.fnmatchcase(path, outer) for name in _shards(path)})
        if not names:
            return None
        for name in names:
            size = (root / name).stat().st_size if (root / name).exists() else 0
            files.setdefault(f"{name}!{inside}", HubFile(name, size, inside=inside or None))
    return HubSnapshot(
        repo, commit, tuple(files.values()), "the hub was not asked; files found in the client's cache were used"
    )


def _shards(name: str) -> list[str]:
    match = re.fullmatch(r"(.*-)(\d{5})(-of-)(\d{5})(.*)", name)
    if not match:
        return [name]
    head, _, of, count, tail = match.groups()
    return [f"{head}{i:05}{of}{count}{tail}" for i in range(int(count))]


def _ways(repo: str) -> str:
    return (
        "Ways on: run once with a network; copy the folder HF_HOME of a machine that did; `hf download --repo-type "
        f"dataset {repo}`; "
        "set HF_ENDPOINT to a mirror; or use bundled:pydocs-qa or a ./file.jsonl, which need none"
    )


def _api() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(endpoint=_endpoint(), library_name="context-bench")


def _endpoint() -> str:
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def _shown_endpoint() -> str:
    """The endpoint without credentials that its address may carry."""
    return re.sub(r"//[^/@]*@", "//", _endpoint())


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "yes", "true")


def _home() -> Path:
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return expanded(os.environ.get("HF_HOME") or default)


def _cache_dir() -> Path:
    return expanded(os.environ.get("HF_HUB_CACHE") or _home() / "hub")


def _notes_dir() -> Path:
    return _home() / "context-bench"
