"""Protocols of plug-ins. Structural: nobody inherits from us, and every method may be plain or async.

`name` may be an attribute or a property. Optional members are listed in each docstring. How a plug-in's plain or async
method is called is decided here and nowhere else.
"""

from __future__ import annotations

import contextvars
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

from context_bench.core.errors import BadInput
from context_bench.core.keys import hash_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from context_bench.core.ledger import BaselinePairing, Mark
    from context_bench.core.records import EvalRow, Example, Forwarded, Usage


@runtime_checkable
class System(Protocol):
    """The thing under test: gets an example, gives it back with a `response` (and/or a changed `context`).

    Optional: `async aprocess(example)` · `process_conversation(turns) -> list[message]` · `fingerprint() -> dict`
    (everything that changes its answers, never secrets) · `async aclose()` · `played_back = True` (it repeats answers
    that were given elsewhere: its examples hold `trial`, and a row's latency is the `seconds` of the calls it records)
    · `calls_elsewhere = True` (a program of its own does the work: what the tap sees are the system's own calls, priced
    by its `prices`) · `stateful = True`: the examples of a `group` share state. Then also `namespace(name)` → an
    isolated twin for one group, else `reset()` between groups, and `setup(example)` or `async asetup(example)`: get the
    group of this example ready, once, before its first question; what it returns (a JSON-ready mapping) is kept.
    """

    @property
    def name(self) -> str: ...
    def process(self, example: Example) -> Example: ...


@runtime_checkable
class Evaluator(Protocol):
    """Judges one (example, output) pair: named numbers, `{}` where it does not apply.

    Optional: `version = "2"` · `needs = ("answer",)` (example fields) · `fields = ("f1",)` (names of its numbers) ·
    `applies(example, output) -> bool` · `async ascore(...)` which raises `EvaluatorFailed` · `fingerprint()` ·
    `stage = "after"` · `not_for = ("mmlu",)` (datasets that it has no say in, as they were given, or without that by
    the `dataset` of their examples) ·
    `quick = True` (`score` takes less than half a millisecond and does no I/O: it is called on the event loop from the
    first row) · `walls() -> str` (for the run's notes: what stands around code that it runs, in a sentence; "" while
    there was none).
    """

    @property
    def name(self) -> str: ...
    def score(self, original: Example, processed: Example) -> dict[str, float]: ...


@runtime_checkable
class Metric(Protocol):
    """Many rows of one system → a few numbers."""

    @property
    def name(self) -> str: ...
    def compute(self, rows: list[EvalRow]) -> dict[str, float]: ...


@runtime_checkable
class MemorySystem(Protocol):
    """A memory: `reset`, `ingest` turns, `query`. Optional: `namespace(name)` → an isolated twin, `seen()`."""

    @property
    def name(self) -> str: ...
    def reset(self) -> None: ...
    def ingest(self, turns: list[dict[str, Any]]) -> None: ...
    def query(self, question: str) -> Any: ...


@dataclass(slots=True)
class Compressed:
    """A prefix as a compressor returned it. `opaque`: something only the provider can read (then `messages` is empty).
    `warnings`: what it could not do as it was asked to, such as keep a budget by other means than cutting.
    """

    messages: list[dict[str, Any]]
    tokens_before: int | None = None
    tokens_after: int | None = None
    opaque: Any = None
    warnings: list[str] = field(default_factory=list)


@runtime_checkable
class Compressor(Protocol):
    """Shortens the messages before `tail`. Messages are OpenAI chat messages. `budget` is the most tokens of message
    text that may be left of the prefix (`None` = the compressor's own choice). Stateless ones return the state they
    got. Optional: `needs_query = True`: it looks at the question; `of_text = True`: it knows texts, not messages, and
    gets a session as one text; `ignores_budget = True` · `deterministic = True`: the same messages give the same result
    · `longest_context`: characters beyond which `serve` passes a context on as it came · `async answer(opaque,
    messages, question) -> {response}`: continues from an opaque result, with what came after the prefix.
    """

    @property
    def name(self) -> str: ...
    def compress(
        self,
        prefix: list[dict[str, Any]],
        tail: list[dict[str, Any]],
        *,
        state: Any,
        budget: int | None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]: ...


@runtime_checkable
class Fingerprinted(Protocol):
    """Examples that can be identified without being read: equal fingerprints, equal examples in equal order.

    Their iterator may have `skip(count) -> int`: pass over so many, and say how many there were.
    """

    def __iter__(self) -> Iterator[Example]: ...

    def fingerprint(self) -> Any:
        """Identity of the examples, as JSON values; `None` if it is unknown this time. May read files."""

    def unchanged(self) -> bool:
        """Does the last fingerprint still hold?"""


class Recorder(Protocol):
    """A tap as the engine sees it, in this process or behind its control API."""

    marker: str  # "key" | "header" | "serial"

    async def begin(self, conversation: str, pairing: BaselinePairing | None = None) -> Mark:
        """Open a window for one piece of work of `conversation` (same conversation → same token) and say how to mark
        its calls. `pairing`: it is compared with the baseline's by what arrives.
        """

    async def end(self, mark: Mark) -> list[Forwarded]:
        """Close the window: what reached the provider in it, in order."""

    async def late(self) -> list[Forwarded]:
        """Matched records that arrived after their window was closed (at most 5 s after); each is given once."""

    async def unmatched(self) -> list[Forwarded]:
        """Records that match no window; each is given once."""


class Spend(Protocol):
    """A money limit: asked before a call with its worst case, told afterwards what it was."""

    async def reserve(self, worst: float) -> int:
        """Take `worst` dollars aside; raises `CostCapReached` when the limit could be passed. Returns a ticket."""

    def settle(self, ticket: int, actual: float | None) -> None:
        """Replace a reservation by what was really billed (`None` = unknown: the worst case stays)."""


class Prices(Protocol):
    """Prices of tokens."""

    def cost(self, usage: Usage, model: str) -> float | None:
        """US dollars for `usage` on `model`, or `None` when no price is known."""


class ReplyCache(Protocol):
    """Replies remembered by the content of their request (`key` holds endpoint, model and body, never a key to them),
    for calls that would be answered alike again. Called from any thread. An evaluator that can use one has an attribute
    `cache`, which may be set.
    """

    def get(self, key: str) -> dict[str, Any] | None:
        """The reply, as JSON values, or `None`."""

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Remember a reply."""


class Report(Protocol):
    """Turns a finished page into text of one format."""

    def render(self, page: Any) -> str: ...


async def call(function: Callable[..., Any], *args: Any, pool: Executor | None = None, **kwargs: Any) -> Any:
    """Await `function` if it is async; else run it in a thread (with the current context variables) so the loop stays
    free. What a plug-in raises to end the program ends only this call: it becomes a `RuntimeError`.
    """
    pid = os.getpid()
    code = getattr(function, "__code__", None)  # of a method, too: asking `inspect` takes three times as long
    try:
        if (code is not None and code.co_flags & inspect.CO_COROUTINE) or inspect.iscoroutinefunction(function):
            result = await function(*args, **kwargs)
        else:
            context = contextvars.copy_context()
            import asyncio  # who gives a pool has a loop: a process that only scores loads none

            result = await asyncio.get_running_loop().run_in_executor(
                pool, _in_thread, pid, lambda: context.run(function, *args, **kwargs)
            )
            if inspect.isawaitable(result):
                result = await result
    except (SystemExit, KeyboardInterrupt) as error:
        _fail(error)
    _only_in(pid)
    return result


def call_here(function: Callable[..., Any], *args: Any) -> Any:
    """Call a plain `function` in this thread. What it raises to end the program, or what would mean something else
    where a coroutine waits, becomes a `RuntimeError`.
    """
    try:
        return function(*args)
    except (StopIteration, GeneratorExit, SystemExit, KeyboardInterrupt) as error:
        _fail(error)


def _fail(error: BaseException) -> NoReturn:
    """Raise a failure like any other in place of one that ends programs or is misread by those who wait. A Ctrl-C stays
    what it is; only the main thread ever hears of one.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error
    raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _in_thread(pid: int, function: Callable[[], Any]) -> Any:
    try:
        return call_here(function)
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
