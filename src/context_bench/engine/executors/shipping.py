"""Systems and evaluators on their way to a node: pickled, without keys and without what only the driver has."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.engine.store.replies import StoredReplies
from context_bench.llm.limits import AdaptiveLimiter, FixedLimiter, Limiter


@dataclass(slots=True)
class Parcel:
    """`data`: everything but `keys`, texts that hold a secret and travel apart; `limiters` and `replies` stay with the driver."""

    data: bytes = b""
    keys: list[str] = field(default_factory=list)
    limiters: list[Limiter] = field(default_factory=list)
    replies: StoredReplies | None = None


def packed(arms: Sequence[Any], evaluators: Sequence[Any], about: dict[str, Any], secrets: Sequence[str]) -> Parcel:
    """Everything a node needs to do this run's work. Raises `BadInput` that names what cannot be sent."""
    parcel = Parcel()
    try:
        parcel.data = _dumped((list(arms), list(evaluators), about), parcel, secrets)
    except Exception as error:
        plugins = [("system", each.name, each.system) for each in arms]
        plugins += [("evaluator", each.name, each.evaluator) for each in evaluators]
        raise _blamed(plugins, secrets, error) from error
    return parcel


def unpacked(data: bytes, known: Callable[[tuple[str, int]], Any]) -> Any:
    """What was packed. `known` gives what did not travel with it: `("key", n)`, `("limiter", n)`, `("replies", 0)`."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            return known(pid)

    return Unpickler(io.BytesIO(data)).load()


def _dumped(value: Any, parcel: Parcel, secrets: Sequence[str]) -> bytes:
    from ray import cloudpickle as untyped

    cloudpickle: Any = untyped

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def persistent_id(self, found: Any) -> tuple[str, int] | None:
            return _stays(found, parcel, secrets)

    buffer = io.BytesIO()
    carried = [name for name, module in list(sys.modules.items()) if _own(module)]
    for name in carried:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    finally:
        for name in carried:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])
    return buffer.getvalue()


def _stays(found: Any, parcel: Parcel, secrets: Sequence[str]) -> tuple[str, int] | None:
    if isinstance(found, str):
        if len(found) < 8 or not any(secret in found for secret in secrets):
            return None
        parcel.keys.append(found)
        return "key", len(parcel.keys) - 1
    if isinstance(found, AdaptiveLimiter | FixedLimiter):
        if not any(found is each for each in parcel.limiters):
            parcel.limiters.append(found)
        return "limiter", next(number for number, each in enumerate(parcel.limiters) if each is found)
    if isinstance(found, StoredReplies):
        parcel.replies = found
        return "replies", 0
    return None


def _own(module: Any) -> bool:
    """A module of the user's, in no installed package: a node has no such file, so its code goes along."""
    file = getattr(module, "__file__", None)
    if not file or getattr(module, "__name__", "").partition(".")[0] in ("context_bench", "__main__", "__mp_main__"):
        return False
    path = Path(file)
    installed = (sys.prefix, sys.base_prefix)
    return path.suffix == ".py" and "site-packages" not in path.parts and not any(path.is_relative_to(place) for place in installed)


def _blamed(plugins: Sequence[tuple[str, str, Any]], secrets: Sequence[str], error: Exception) -> BadInput:
    for kind, name, plugin in plugins:
        found = _fails(plugin, secrets)
        if found is None:
            continue
        parts = (f"its attribute `{key}`: {why}" for key, item in _attributes(plugin) if (why := _fails(item, secrets)))
        why = next(parts, found)
        return BadInput(
            f"{kind} {name!r} ({type(plugin).__qualname__}) cannot be sent to the nodes: {why}. Make such things when they are first "
            "used, or leave them out in __getstate__(); or run with --executor local"
        )
    return BadInput(f"this run cannot be sent to the nodes: {error}")


def _attributes(plugin: Any) -> list[tuple[str, Any]]:
    return list(vars(plugin).items()) if hasattr(plugin, "__dict__") else []


def _fails(value: Any, secrets: Sequence[str]) -> str | None:
    try:
        _dumped(value, Parcel(), secrets)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
