"""Give your own datasets, systems, evaluators, metrics and reporters a name that the command line knows.

In Python: `register_*` (and `--import MODULE` on the command line, so that the module is loaded). In a package: entry
points in the groups `context_bench.datasets`, `.systems`, `.evaluators`, `.metrics`, `.reporters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.lazy import Registry, registry

__all__ = [
    "Registry",
    "get_metric",
    "load_dataset",
    "register_dataset",
    "register_evaluator",
    "register_metric",
    "register_reporter",
    "register_system",
    "registry",
]


def register_dataset(name: str, loader: Callable[..., Iterable[dict[str, Any]]], *, replace: bool = False) -> None:
    """Make `loader(n=None, …) -> iterable of examples` usable as `--dataset name`.

    A name of the built-in catalogue is refused unless `replace=True`.
    """
    from context_bench.datasets import catalogue_names

    if not replace and name in catalogue_names():
        raise BadInput(
            f"{name!r} is a built-in dataset; choose another name, or pass replace=True to put your loader in its place"
        )
    registry.register("dataset", name, loader)


def load_dataset(name: str, **options: Any) -> Any:
    """The examples of a registered dataset, an entry point, or a built-in one, in this order."""
    loader = registry.find("dataset", name)
    if loader is not None:
        return loader(**options)
    from context_bench.datasets import load

    n = options.pop("n", None)
    config = options.pop("config", None)
    return list(load(f"{name}:{config}" if config else name, n=n, **options).examples())


def register_metric(name: str, metric: Any) -> None:
    """Make a metric (an object, or a class taking options) known as `--metric name`."""
    registry.register("metric", name, metric)


def get_metric(name: str) -> Any:
    """The metric registered as `name`; `KeyError` if there is none."""
    return registry.get("metric", name)


def register_system(name: str, system: Any) -> None:
    """Make a system (an object, or a class taking options) known as `--system name`."""
    registry.register("system", name, system)


def register_evaluator(name: str, evaluator: Any) -> None:
    """Make an evaluator (an object, or a class taking options) known as `--evaluator name`."""
    registry.register("evaluator", name, evaluator)


def register_reporter(name: str, reporter: Any) -> None:
    """Make a reporter (an object with `render(page)`, or a function of the result) known as `--output name`."""
    registry.register("reporter", name, reporter)
