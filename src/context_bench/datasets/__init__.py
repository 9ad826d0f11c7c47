"""Sources of examples: files of the user's, the catalogue, bundled sets, registered loaders.

```python
from context_bench.datasets import load, load_jsonl, hotpotqa

load("mmlu:anatomy", n=20).examples()   # lazily, as the command line does
hotpotqa(n=10)                           # any catalogue dataset is a function: a list of examples
```
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.core.records import Example
    from context_bench.datasets.examples import (
        LoadedDataset as LoadedDataset,
        examples_from as examples_from,
        load_jsonl as load_jsonl,
    )
    from context_bench.datasets.loading import (
        catalogue_names as catalogue_names,
        datasets_known as datasets_known,
        describe as describe,
        load as load,
    )

__all__ = ["LoadedDataset", "catalogue_names", "datasets_known", "describe", "examples_from", "load", "load_jsonl"]

_public, _ = lazy(
    __name__,
    [
        ".examples:LoadedDataset",
        ".loading:load",
        ".loading:datasets_known",
        ".loading:describe",
        ".loading:catalogue_names",
        ".examples:load_jsonl",
        ".examples:examples_from",
    ],
)


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name not in __all__:
        dataset = name.replace("_", "-")
        if dataset in importlib.import_module("context_bench.datasets.spec").names():
            return _function(dataset)
    return _public(name)


def __dir__() -> list[str]:
    catalogue = importlib.import_module("context_bench.datasets.spec").names()
    return sorted([*__all__, *(name.replace("-", "_") for name in catalogue)])


def _function(dataset: str) -> Callable[..., list[Example]]:
    def examples(n: int | None = None, config: str | None = None) -> list[Example]:
        from context_bench.datasets.loading import load

        return list(load(f"{dataset}:{config}" if config else dataset, n=n).examples())

    examples.__name__ = examples.__qualname__ = dataset.replace("-", "_")
    examples.__doc__ = f"The first `n` examples (default all) of the catalogue dataset {dataset!r}."
    return examples
