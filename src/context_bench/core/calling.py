"""The one place that decides how a plug-in's plain or async method is called."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
from collections.abc import Callable
from concurrent.futures import Executor
from functools import cache
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import hash_text


async def call(function: Callable[..., Any], *args: Any, pool: Executor | None = None, **kwargs: Any) -> Any:
    """Await `function` if it is async; else run it in a thread (with the current context variables) so the loop stays
    free.
    """
    pid = os.getpid()
    code = getattr(function, "__code__", None)  # of a method, too: asking `inspect` takes three times as long
    if (code is not None and code.co_flags & inspect.CO_COROUTINE) or inspect.iscoroutinefunction(function):
        result = await function(*args, **kwargs)
    else:
        context = contextvars.copy_context()
        result = await asyncio.get_running_loop().run_in_executor(
            pool, _in_thread, pid, lambda: context.run(function, *args, **kwargs)
        )
        if inspect.isawaitable(result):
            result = await result
    _only_in(pid)
    return result


def _in_thread(pid: int, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (
        StopIteration,
        GeneratorExit,
    ) as error:  # these mean something else where a coroutine waits: it would never hear of them
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
    finally:
        _only_in(pid)


def _only_in(pid: int) -> None:
    """A plug-in that forks may come back twice; the copy of this program that the child then is must not go on with the
    work.
    """
    if os.getpid() != pid:
        os._exit(0)


def method(plugin: Any, *names: str) -> Callable[..., Any] | None:
    """The first of `names` that `plugin` has as something callable."""
    for name in names:
        found = getattr(plugin, name, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
    return None


def misfit(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """The reason why `function` cannot be called so, with its own signature; `None` if it can, or has no signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built in
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(function, "__name__", "it")
        return f"{name}() takes no argument" if not signature.parameters else f"{name}{signature}: {error}"
    return None


#: Kind of plug-in → its methods, the first of which is called; with what; how that is written.
_CALLED: dict[str, tuple[tuple[str, ...], tuple[Any, ...], str]] = {
    "system": (("aprocess", "process"), ({},), "process(example) -> dict"),
    "evaluator": (("ascore", "score"), ({}, {}), "score(example, output) -> dict"),
    "metric": (("compute",), ([],), "compute(rows) -> dict"),
}


def check(kind: str, plugin: Any) -> None:
    """Raises `BadInput` for a plug-in whose method takes other arguments than it is called with: once, and not row by
    row.
    """
    if kind not in _CALLED:
        return
    names, arguments, written = _CALLED[kind]
    function = method(plugin, *names)
    if function is not None and (why := misfit(function, *arguments)) is not None:
        raise BadInput(f"{kind} {name_of(plugin)} cannot be called: {why}; expected {written}")


def name_of(plugin: Any) -> str:
    """Its name, else that of its class."""
    name = getattr(plugin, "name", None)
    return name if isinstance(name, str) and name else type(plugin).__name__


def recorded_name(kind: type) -> str:
    """`module.Class` as runs record it.

    A class of this package keeps the path under which the first runs recorded it, so that a stored run is resumed after
    its module moved.
    """
    path = f"{kind.__module__}.{kind.__qualname__}"
    first = _first_names().get(path) if path.startswith("context_bench.") else None
    return f"context_bench.{first}" if first else path


@cache
def _first_names() -> dict[str, str]:
    import tomllib
    from importlib.resources import files

    names: dict[str, str] = tomllib.loads((files("context_bench.core") / "recorded_names.toml").read_text("utf-8"))
    return names


def function_identity(function: Callable[..., Any] | None) -> str | None:
    """Fingerprint of a function: `module:name:hash of the source`; without a source to read, `module:name`."""
    if function is None:
        return None
    name = f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', type(function).__name__)}"
    try:
        return f"{name}:{hash_text(inspect.getsource(function), 12)}"
    except (OSError, TypeError):
        return name


def fingerprint(plugin: Any) -> dict[str, Any]:
    """Identity of a plug-in's results: its own `fingerprint()`, else class, name, version and plain public
    attributes.
    """
    own = method(plugin, "fingerprint")
    if own is not None:
        found = own()
        return dict(found) if isinstance(found, dict) else {"fingerprint": found}
    kind = type(plugin)
    public = {
        key: value
        for key, value in getattr(plugin, "__dict__", {}).items()
        if not key.startswith("_")
        and "key" not in key.lower()
        and isinstance(value, str | int | float | bool | list | dict | tuple | None)
    }
    return {
        "class": recorded_name(kind),
        "name": name_of(plugin),
        "version": getattr(plugin, "version", None),
        **public,
    }
