"""Repositories of golds: where each of them is found, which are open, and traces written as JSON lines by them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
from cachetools import LRUCache

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Repo, no_repository, open_repo
from context_bench.traces.coverage import selections
from context_bench.traces.coverage.selection import Selection
from context_bench.traces.gold import Gold, clean_path, load_gold
from context_bench.traces.symbols import CodeFiles
from context_bench.transcripts.trace import Trace, dump_traces, utf8_clean
from context_bench.transcripts.traces import load_traces

#: So many are kept open at once.
_OPEN = 8
_ARCHIVES = (".json", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".git")


class _Opened(LRUCache[tuple[str, str | None], tuple[Repo, CodeFiles]]):
    """Closes a repository when it lets go of it."""

    def popitem(self) -> tuple[tuple[str, str | None], tuple[Repo, CodeFiles]]:
        key, opened = super().popitem()
        opened[0].close()
        return key, opened


class Repositories:
    """The repositories that `--repo` names: a folder, a git clone (also `PATH@COMMIT`), an archive, a JSON snapshot, or
    a folder of such.

    In a folder of repositories that of `owner/name` is found as `owner__name`, `owner/name`, `owner-name` or `name`,
    alone, with the commit (`owner__name@4f2a91c`), with an ending (`.git`, `.json`, `.zip`, `.tar.gz`), or under the
    instance's id; one that the gold names without its owner, under any owner. A repository that holds none of the files
    of a gold is not its repository.
    """

    def __init__(self, specs: Iterable[str | Path] = (), *, cache: Path | None = None) -> None:
        self.specs = [str(spec) for spec in specs]
        self._cache = cache
        self._kinds = [(spec, _is_collection(Path(spec))) for spec in self.specs]
        for spec, collection in self._kinds:
            if not collection and not Path(spec).exists() and not Path(spec.rpartition("@")[0] or spec).exists():
                raise BadInput(
                    f"{spec}: no such repository (expected a folder, a git clone, a zip or tar, a JSON snapshot, or a "
                    "folder of them)"
                )
            if Path(spec).is_file() and (fault := no_repository(Path(spec))):
                raise BadInput(fault)
        self._known = _Opened(_OPEN)

    def __bool__(self) -> bool:
        return bool(self.specs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all that are open."""
        while self._known:
            self._known.popitem()

    def find(self, gold: Gold, repo: str | None = None, commit: str | None = None) -> tuple[Repo, CodeFiles] | str:
        """The repository of a gold and what is known of its files; a reason (a text) where there is none.

        `repo`, `commit`: what the trace says where the gold does not.
        """
        slug, commit = gold.repo or repo, gold.commit or commit
        if not self.specs:
            return "no repository was given"
        reasons: list[str] = []
        for spec, collection in self._kinds:
            place = _in_collection(Path(spec), slug, commit, (gold.instance_id, *gold.ids)) if collection else spec
            found = (
                self._holding(place, commit, gold)
                if place is not None
                else f"no repository of {slug or gold.instance_id} in {spec}"
            )
            if isinstance(found, str) and collection and slug and "/" not in slug:
                found = (
                    self._of_any_owner(
                        [one for one in _of_any_owner(Path(spec), slug, commit) if one != place], commit, gold
                    )
                    or found
                )
            if not isinstance(found, str):
                return found
            reasons.append(found)
        return reasons[0] if len(set(reasons)) == 1 else "; ".join(dict.fromkeys(reasons))

    def _of_any_owner(self, places: Iterable[str], commit: str | None, gold: Gold) -> tuple[Repo, CodeFiles] | str:
        """Of repositories of one name the one that holds files of the gold, else a reason; nothing where there are no
        such places.
        """
        found = {place: self._holding(place, commit, gold) for place in places}
        holding = [place for place, one in found.items() if not isinstance(one, str)]
        if len(holding) == 1:
            return self._opened(holding[0], commit)
        if holding:
            named = ", ".join(Path(place).name for place in holding)
            return (
                f"repositories of several owners have the name that the gold gives ({named}); let its `repo` "
                "say owner/name"
            )
        return "; ".join(dict.fromkeys(one for one in found.values() if isinstance(one, str)))

    def _holding(self, place: str, commit: str | None, gold: Gold) -> tuple[Repo, CodeFiles] | str:
        """The repository at a place if it holds any file of the gold, else why it does not."""
        try:
            found = self._opened(place, commit)
        except BadInput as error:
            return str(error).splitlines()[0]
        paths = found[0].paths()
        return (
            found
            if any(clean_path(item.file) in paths for item in gold.items)
            else f"none of the gold's files is in {place}"
        )

    def _opened(self, place: str, commit: str | None) -> tuple[Repo, CodeFiles]:
        at = commit if _is_git(Path(place)) else None
        key = (place, at)
        if key not in self._known:
            repo = open_repo(place, at)
            self._known[key] = (repo, CodeFiles(repo, self._cache))
        return self._known[key]


class OneRepository(Repositories):
    """A repository that is open already, for every gold."""

    def __init__(self, repo: Repo) -> None:
        super().__init__()
        self._found = (repo, CodeFiles(repo))

    def find(self, gold: Gold, repo: str | None = None, commit: str | None = None) -> tuple[Repo, CodeFiles]:
        return self._found


def _is_git(path: Path) -> bool:
    return (path / ".git").exists() or ((path / "HEAD").is_file() and (path / "objects").is_dir())


def _is_collection(path: Path) -> bool:
    """True if a folder holds repositories and is none: a clone, an archive or snapshot, or `owner__name`, and no other
    files.
    """
    if not path.is_dir() or _is_git(path):
        return False
    children = [child for child in path.iterdir() if not child.name.startswith(".")]
    if any(child.is_file() and not child.name.endswith(_ARCHIVES) for child in children):
        return False
    folders = [child for child in children if child.is_dir()]
    packed = [child for child in children if child.is_file()]
    if folders:
        return any(
            _is_git(child) or "__" in child.name.strip("_") or any(map(_is_git, _subfolders(child)))
            for child in folders
        )
    return bool(packed)


def _subfolders(path: Path) -> list[Path]:
    return [child for child in path.iterdir() if child.is_dir()]


def _in_collection(folder: Path, slug: str | None, commit: str | None, ids: Iterable[str]) -> str | None:
    """The place of a repository in a folder of them; the most particular name first."""
    stems = [name.replace("/", "__") for name in ids]
    owner, _, name = (slug or "").rpartition("/")
    if name:
        owned = [
            f"{owner}__{name}",
            f"{owner}/{name}",
            f"{owner}-{name}",
            f"{owner}_{name}",
            f"github.com__{owner}__{name}",
        ]
        plain = [*owned, name] if owner else [name]
        at = [f"{stem}{mark}{commit}" for stem in plain for mark in ("@", "-", "__")] if commit else []
        short = (
            [f"{stem}{mark}{commit[:n]}" for stem in plain for mark in ("@", "-", "__") for n in (12, 10, 8, 7)]
            if commit
            else []
        )
        stems = [*stems, *at, *short, *plain]
    for stem in dict.fromkeys(
        stem for stem in stems if re.fullmatch(r"[\w.@-]+(/[\w.@-]+)?", stem) and ".." not in stem
    ):
        for ending in ("", *_ARCHIVES):
            if (place := folder / f"{stem}{ending}").exists():
                return str(place)
    return None


def _of_any_owner(folder: Path, name: str, commit: str | None) -> list[str]:
    """The places of repositories of this name, whoever owns them: those of the commit if there are any."""
    at = rf"(?:@|-|__){re.escape(commit[:7])}[0-9a-f]*" if commit else "(?!)"
    form = re.compile(rf"(?:[\w.-]+__)?{re.escape(name)}(?P<at>{at})?(?:{'|'.join(map(re.escape, _ARCHIVES))})?")
    owners = (child for child in folder.iterdir() if child.is_dir() and "__" not in child.name and not _is_git(child))
    known = [child for parent in (folder, *owners) for child in parent.iterdir() if form.fullmatch(child.name)]
    particular = [child for child in known if (hit := form.fullmatch(child.name)) and hit["at"]]
    return sorted(str(child) for child in particular or known)


def convert_traces(
    traces: Iterable[str | Path],
    *,
    to: str = "events",
    repos: Iterable[str | Path] = (),
    gold: str | Path | None = None,
    instance: str | None = None,
    tools: str | Path | None = None,
    on_skip: Callable[[BadInput], None] | None = None,
) -> Iterator[bytes]:
    """Lines of JSON of every run in these files and folders: our events, or the original's predictions.

    `gold` tells which repository among `repos` belongs to a run, and gives it the name of its task; with one repository
    and no gold it is that of all. `instance`: what the runs are called.
    """
    golds = load_gold(gold) if gold is not None else None
    places = list(repos)
    with Repositories(places) as known, ExitStack() as stack:
        alone = stack.enter_context(open_repo(places[0])) if golds is None and len(places) == 1 else None

        def task_of(trace: Trace) -> Gold | None:
            if golds is None or instance is not None:
                return None if golds is None else golds.find(instance)
            return golds.find(*task_names(trace.instance_id, Path(trace.path or ""), within))

        def repo_of(trace: Trace) -> Repo | None:
            task = task_of(trace)
            if task is None:
                return alone
            found = known.find(task, trace.repo, trace.commit)
            return None if isinstance(found, str) else found[0]

        for place in traces:
            within = str(place) if Path(place).is_dir() else None
            for trace in load_traces(place, tools=tools, repo=repo_of, on_skip=on_skip):
                task, repo = task_of(trace), repo_of(trace)
                trace.instance_id = task.instance_id if task is not None else instance or trace.instance_id
                if to == "events":
                    yield from dump_traces([trace])
                else:
                    yield orjson.dumps(utf8_clean(unified_prediction(trace, repo)), option=orjson.OPT_APPEND_NEWLINE)


def task_names(instance_id: str, path: Path, within: str | None) -> list[str]:
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


def unified_prediction(trace: Trace, repo: Repo | CodeFiles | None = None) -> dict[str, Any]:
    """A unified prediction: what was shown, step by step, and the union of it or the context the agent named itself.

    Their format knows no whole files, so with `repo` a file read whole gets the lines it has, and without it only its
    name.
    """
    files = repo if isinstance(repo, CodeFiles) else CodeFiles(repo) if repo is not None else None
    steps, final = selections(trace)
    rows = [_part(step, files, "") for step in steps]
    union = Selection()
    for step in steps if final is None else [final]:
        union.files += step.files
        union.spans += step.spans
        for path, names in step.symbols.items():
            union.symbols.setdefault(path, []).extend(names)
    out = {
        "instance_id": trace.instance_id,
        "repo_url": trace.repo,
        "commit": trace.commit,
        "model_patch": trace.patch or "",
        "traj_data": {"pred_steps": rows, **_part(union, files, "pred_")},
    }
    return {name: value for name, value in out.items() if value is not None}


def _part(selection: Selection, files: CodeFiles | None, prefix: str) -> dict[str, Any]:
    spans: dict[str, list[dict[str, Any]]] = {}
    for path, ranges in selection.spans:
        pairs = ranges
        if ranges == "all":
            table = files.table(path) if files is not None else None
            pairs = table.everything() if table is not None else None
        for first, last in pairs if pairs is not None and pairs != "all" else ():
            spans.setdefault(path, []).append({"type": "line", "start": first, "end": last})
    out: dict[str, Any] = {f"{prefix}files": list(dict.fromkeys(selection.files)), f"{prefix}spans": spans}
    if selection.symbols:
        out[f"{prefix}symbols"] = {path: list(dict.fromkeys(names)) for path, names in selection.symbols.items()}
    return out
