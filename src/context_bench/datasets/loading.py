"""From a dataset's name, as typed, to its examples."""

from __future__ import annotations

import glob
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_bench.core.errors import BadInput, UnknownName
from context_bench.core.families import Datasets, families
from context_bench.core.keys import stable_hash
from context_bench.core.lazy import registry
from context_bench.core.records import Example
from context_bench.datasets.examples import (
    Content,
    IdentifiedExamples,
    LoadedDataset,
    Origin,
    examples_from,
    tidy,
)
from context_bench.datasets.readers import KINDS, rows_of
from context_bench.datasets.undescribed import any_context, guess_evaluators

if TYPE_CHECKING:
    from context_bench.datasets.hub import HubSnapshot
    from context_bench.datasets.spec import DatasetSpec

PYDOCS, LONG_CONTEXT = "bundled:pydocs-qa", "bundled:long-context"


def load(spec_text: str, *, n: int | None = None, seed: int = 0) -> LoadedDataset:
    """Find the dataset that `spec_text` names and make it ready; at most `n` examples are given.

    `./file.jsonl` (`.parquet`, `.csv`, `.json` …), `./dataset.toml`, `hf:OWNER/NAME[:config][:split][@revision]`, a
    name registered by the user or by an installed package, a `bundled:` one, memory data (`locomo` …, `memory:PATH`)
    with the whole conversation as context, or `NAME[:config]` of the catalogue, in this order. Where nobody said what
    the columns mean it is guessed by their names, and the manifest says how. `seed` matters to datasets that are made
    rather than read. Raises `UnknownName`, `BadInput`, `BadSpec` or `PreflightFailed`, all before anything is spent.
    """
    if n is not None and n < 0:
        raise BadInput(f"n is {n}; expected the number of examples wanted")
    if (family := _prefixed(spec_text)) is not None:
        return _opened(family, spec_text, n, seed)
    from context_bench.datasets.undescribed import lines, on_hub, table

    if spec_text.endswith(".jsonl"):
        return lines(spec_text, n)
    if spec_text.startswith("hf:"):
        return on_hub(spec_text, n)
    if spec_text.lower().removesuffix(".gz").removesuffix(".zst").endswith(KINDS):
        return table(spec_text, n)
    from context_bench.datasets import spec

    if spec_text.endswith(".toml"):
        return _described(spec_text, spec_text, spec.read(Path(spec_text)), None, n, seed, Path(spec_text).parent)
    base, _, config = spec_text.partition(":")
    for name, asked in ((spec_text, ""), (base, config)):
        if (loader := registry.find("dataset", name)) is not None:
            return _registered(spec_text, name, loader, asked, n, seed)
    for name, bundled in _BUNDLED.items():
        if spec_text == name or spec_text.startswith(f"{name}:"):
            return bundled(spec_text, spec_text[len(name) + 1 :], n, seed)
    for family in _of_families():
        if family.owns(spec_text):
            return _opened(family, spec_text, n, seed)
    if base in spec.names():
        return _described(spec_text, base, spec.named(base), config or None, n, seed, Path())
    raise unknown_dataset(spec_text)


def unknown_dataset(name: str) -> UnknownName:
    """The error for a name that is no dataset: all names, the nearest first, and the command that describes them."""
    more = "`context-bench datasets` tells what each is; ./FILE.jsonl and hf:OWNER/NAME are taken as well."
    return UnknownName("dataset", name, dataset_names(), more)


def dataset_names() -> list[str]:
    """Every name that `load` takes besides file names, sorted: catalogue, bundled and registered ones."""
    return sorted({*catalogue_names(), *registry.names("dataset")})


datasets_known = dataset_names  # the documented name


def catalogue_names() -> list[str]:
    """Names of the catalogue, of memory data and of bundled datasets, sorted: those that a registration must not
    replace unasked.
    """
    from context_bench.datasets import spec

    return sorted([*spec.names(), *_BUNDLED, *(name for family in _of_families() for name in family.names())])


def describe(name: str) -> dict[str, Any]:
    """Facts about a dataset without reading it: name, about and, where known, evaluators, has_context, source, configs,
    licence …
    """
    base = name.partition(":")[0]
    if (loader := registry.find("dataset", name)) is not None:
        return {"name": name, "about": (inspect.getdoc(loader) or "Registered by the user.").splitlines()[0]}
    if name == LONG_CONTEXT or name.startswith(f"{LONG_CONTEXT}:"):
        from context_bench.datasets import synthetic

        return synthetic.about()
    if name == PYDOCS:
        from context_bench.datasets import pydocs

        about = (
            "Our own questions about the documentation that every CPython carries; names, versions and "
            "numbers renamed by seed."
        )
        facts = {"source": "pydoc_data.topics", "evaluators": ["answer"], "has_context": True, "size": pydocs.size()}
        return {"name": name, "about": about, **facts}
    from context_bench.datasets import spec

    for family in _of_families():
        if _prefixed(name) is None and family.owns(name):
            return family.describe(name)
    if base not in spec.names():
        raise unknown_dataset(name)
    dataset = spec.named(base)
    facts = dataset.model_dump(exclude={"fields", "sample"}, exclude_none=True, exclude_defaults=False)
    sample = tidy(dataset.sample.example, 0, base, f"sample of {base}")
    fields = sorted({*dataset.fields, *sample})
    return {"name": base, **facts, "configs": list(dataset.configs), "fields": fields, "sample": sample}


def _of_families() -> list[Datasets]:
    return [family.datasets for family in families() if family.datasets is not None]


def _opened(family: Datasets, name: str, n: int | None, seed: int) -> LoadedDataset:
    dataset = family.load(name, n, seed)
    if not isinstance(dataset, LoadedDataset):
        raise BadInput(f"the family that opens {name!r} gave a {type(dataset).__name__}; expected a LoadedDataset")
    return dataset


def _prefixed(name: str) -> Datasets | None:
    """The data of the family whose prefix the name has."""
    return next((data for data in _of_families() if data.prefix and name.startswith(data.prefix)), None)


def _pydocs(name: str, options: str, n: int | None, seed: int) -> LoadedDataset:
    if options:
        raise BadInput(f"dataset {PYDOCS!r} does not accept a :config suffix (got {options!r})")
    from context_bench.datasets import pydocs

    built = pydocs.build(seed)

    def read() -> Iterator[Example]:
        return ({**example, "dataset": PYDOCS} for example in built.examples[:n])

    return LoadedDataset(PYDOCS, PYDOCS, ["answer"], True, read, lambda: pydocs.facts(built, seed))


def _synthetic(name: str, options: str, n: int | None, seed: int) -> LoadedDataset:
    from context_bench.datasets import synthetic

    suite = synthetic.suite(options, n=n, seed=seed)
    return LoadedDataset(name, LONG_CONTEXT, ["answer"], True, suite.examples, suite.facts)


#: Bundled datasets: name → what opens it, given the whole text, what follows the name, n and seed.
_BUNDLED: dict[str, Callable[[str, str, int | None, int], LoadedDataset]] = {PYDOCS: _pydocs, LONG_CONTEXT: _synthetic}


def _described(
    name: str, base: str, dataset: DatasetSpec, config: str | None, n: int | None, seed: int, folder: Path
) -> LoadedDataset:
    if config and not dataset.configs:
        raise BadInput(f"dataset {base!r} does not accept a :config suffix (got {config!r})")
    if config and config not in dataset.configs:
        raise UnknownName(f"configuration of {base}", config, dataset.configs)
    source = _Source(dataset, config or dataset.config, n, seed, folder)

    def read() -> Iterator[Example]:
        examples = dataset.examples(source.data(), source)
        return (tidy(example, i, name, f"{name}, example {i}") for i, example in enumerate(islice(examples, n)))

    return LoadedDataset(
        name, base, list(dataset.evaluators), dataset.has_context, IdentifiedExamples(read, source.origin), source.facts
    )


def _snapshot(repo: str, patterns: Sequence[str], revision: str | None) -> HubSnapshot:
    from context_bench.datasets import hub

    return hub.snapshot(repo, patterns, revision)


class _Source:
    """Source of a described dataset's rows; found when made, so that what is missing shows before the run."""

    def __init__(self, dataset: DatasetSpec, config: str | None, n: int | None, seed: int, folder: Path) -> None:
        self._spec, self._asked, self._n, self._folder = dataset, config, n, folder
        self.split, self.seed = dataset.split, seed
        self.config = dataset.config_value(config)
        scheme, _, self._target = dataset.source.partition(":")
        self._remote = _snapshot(self._target, dataset.patterns(config), dataset.revision) if scheme == "hf" else None
        self._paths = [] if self._remote else self._local(self._target)
        self._contents = [Content(path) for path in self._paths]

    def _local(self, pattern: str) -> list[Path]:
        paths = sorted(Path(p) for p in glob.glob(str(self._folder / pattern)))  # noqa: PTH207 (may be absolute)
        if not paths:
            raise BadInput(f"no file matches {'files:' + pattern!r} (looked in {self._folder.resolve()})")
        return paths

    def data(self) -> Iterator[dict[str, Any]]:
        if self._remote:
            return self._remote.rows(self._n)
        return (row for path in self._paths for row in rows_of(path))

    def paths(self, pattern: str) -> list[str]:
        if self._remote:
            return [file.path for file in self._further(pattern).files]
        return [path.relative_to(self._folder).as_posix() for path in self._local(pattern)]

    def text(self, path: str) -> str:
        return (self._further(path).whole(path) if self._remote else self._local(path)[0]).read_text("utf-8")

    def rows(self, pattern: str) -> Iterator[dict[str, Any]]:
        if self._remote:
            return self._further(pattern).rows(None)
        return (row for path in self._local(pattern) for row in rows_of(path))

    def _further(self, pattern: str) -> HubSnapshot:
        assert self._remote
        return _snapshot(self._target, [pattern], self._remote.commit)

    def facts(self) -> dict[str, Any]:
        dataset = self._spec
        facts: dict[str, Any] = {
            "source": dataset.source,
            "config": self._asked,
            "split": dataset.split,
            "licence": dataset.licence,
            "citation": dataset.citation,
            "size": dataset.size if self._asked == dataset.config else None,
        }
        if self._remote:
            facts |= {"revision": self._remote.commit, "pinned": dataset.revision is not None}
            facts |= {"files": self._remote.file_facts(), "note": self._remote.note}
        else:
            facts["files"] = [
                {"path": file.path.name, "bytes": file.size, "sha256": file.sha256} for file in self._contents
            ]
        facts["sha256"] = stable_hash([dataset.source, facts.get("revision"), facts["files"]], 64)
        return {key: value for key, value in facts.items() if value is not None}

    def origin(self) -> Origin | None:
        """Origin of the examples, unless the preparation reads further files."""
        if self._spec.prepare is not None:
            return None
        described = self._spec.model_dump(mode="json", exclude={"sample"})
        facts = ["described", described, self._asked, self._n, self.seed]
        if self._remote:
            return Origin([*facts, *self._remote.identity()])
        hashes = [file.sha256 for file in self._contents]
        return Origin([*facts, hashes], lambda: all(file.unchanged() for file in self._contents))


def _registered(name: str, base: str, loader: Any, config: str, n: int | None, seed: int) -> LoadedDataset:
    if not callable(loader):
        raise BadInput(
            f"dataset {base!r} is registered as a {type(loader).__name__}; expected a function that gives examples"
        )
    parameters = _parameters(loader)
    if config and "config" not in parameters:
        raise BadInput(f"dataset {base!r} does not accept a :config suffix (got {config!r})")
    wanted = {"n": n, "seed": seed, **({"config": config} if config else {})}
    loaded = loader(**{key: value for key, value in wanted.items() if key in parameters})
    if isinstance(loaded, LoadedDataset):
        return loaded
    if not isinstance(loaded, Iterable) or isinstance(loaded, str | bytes | dict):
        raise BadInput(f"the loader of dataset {base!r} gave a {type(loaded).__name__}; expected an iterable of dicts")
    examples = [tidy(e, i, name, f"{name}, example {i}") for i, e in enumerate(examples_from(loaded, n))]
    evaluators, has_context = guess_evaluators(examples), any_context(examples)
    facts = {
        "source": f"registered loader {getattr(loader, '__qualname__', type(loader).__name__)}",
        "sha256": stable_hash(examples, 64),
    }
    return LoadedDataset(name, base, evaluators, has_context, lambda: (dict(e) for e in examples), lambda: facts)


def _parameters(loader: Callable[..., Any]) -> set[str]:
    try:
        parameters = inspect.signature(loader).parameters.values()
    except (TypeError, ValueError):
        return {"n"}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return {"n", "seed", "config"}
    return {p.name for p in parameters if p.kind is not p.VAR_POSITIONAL and p.kind is not p.POSITIONAL_ONLY}
