"""Compressors from a spec or an object: `bm25:budget=300`, `py:pkg.mod:Class`, `cli:COMMAND`, `http:URL`, `pairs:FILE`.

An object's `compress` may take the messages or a text alone; its signature is checked before it is called. A system
counts as a compressor too: it gets the prefix as the context of an example and returns a shorter context.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

from context_bench.compression.compressors import ADAPTED, COMPRESSORS, SCHEMES
from context_bench.compression.compressors.texts import Messages, result_of
from context_bench.compression.probes import rendered, tokens_of
from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput, BadReply
from context_bench.core.lazy import registry
from context_bench.core.plugins import build, load_object, parse_spec
from context_bench.core.protocols import Compressed, Compressor, method
from context_bench.core.tokens import counter_for
from context_bench.wire.conversation import message_text

_WAYS = "compress(messages), compress(text), or compress(prefix, tail, *, state, budget, query=None)"
_OF_TEXT = ("text", "context", "prompt", "content", "string", "document")


class SimpleCompressor:
    """An object whose `compress` takes one thing: the messages, or a text where its parameter is called so or annotated
    as `str`.

    `budget` and `query` are handed over if it takes them by name. It gives messages or a text, `{"messages": …}` or
    `{"text": …}`.
    """

    def __init__(self, made: Any) -> None:
        first = next(iter(inspect.signature(made.compress).parameters.values()))
        self._made, self._named = made, _named(made)
        self.of_text = first.annotation in (str, "str") or (first.annotation is first.empty and first.name in _OF_TEXT)
        self.name: str = calling.name_of(made)
        self.needs_query = bool(getattr(made, "needs_query", "query" in self._named))
        self.ignores_budget = bool(getattr(made, "ignores_budget", "budget" not in self._named))
        self.deterministic = bool(getattr(made, "deterministic", False))
        self.longest_context = getattr(made, "longest_context", None)

    def fingerprint(self) -> dict[str, Any]:
        """That of the object."""
        return {"class": "SimpleCompressor", "of": calling.fingerprint(self._made)}

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The object's result for the prefix."""
        more: dict[str, Any] = {
            name: value for name, value in (("budget", budget), ("query", query)) if name in self._named
        }
        given: Any = prefix
        if self.of_text:
            given = message_text(prefix[0]) if len(prefix) == 1 else rendered(prefix)
        found = await calling.call(self._made.compress, given, **more)
        return found if isinstance(found, Compressed) else Compressed(
            result_of(found, f"{self.name}: compress()")
        ), state

    async def aclose(self) -> None:
        """Close the object."""
        close = calling.method(self._made, "aclose", "close")
        if close is not None:
            await calling.call(close)


def as_compressor(made: Any) -> Compressor:
    """An object with `compress` as a compressor; `BadInput` if it cannot be called in any known way."""
    if calling.misfit(made.compress, [], [], state=None, budget=None, query=None) is None:
        if not isinstance(getattr(made, "name", None), str):
            raise BadInput(
                f"{type(made).__name__} has compress() and no name; give it one, as in name = "
                f"{type(made).__name__.lower()!r}"
            )
        found: Compressor = made
        return found
    if (why := calling.misfit(made.compress, [], **dict.fromkeys(_named(made)))) is not None:
        raise BadInput(f"{type(made).__name__} cannot be called: {why}; expected {_WAYS}")
    wrapped: Any = SimpleCompressor(made)
    found = wrapped
    return found


def _named(made: Any) -> list[str]:
    """The options that `compress` takes by name beside the messages or the text."""
    return [name for name in ("budget", "query") if name in list(inspect.signature(made.compress).parameters)[1:]]


def compressor_of(spec: str | Compressor, **options: Any) -> Compressor:
    """The compressor that `spec` names (`bm25:budget=300`, `py:module:Class`, a registered name); `options` are added
    to its own.

    An object is taken as it is; one that has `process` but no `compress` is adapted. Raises `UnknownName`, `BadInput`.
    """
    if not isinstance(spec, str):
        return adapted(spec)
    if options:
        more = ",".join(f"{name}={json.dumps(value)}" for name, value in options.items())
        spec += ("," if parse_spec(spec).options else ":") + more
    return compressor_for(spec)


def compressor_for(spec: str | Compressor, **given: Any) -> Compressor:
    """The compressor that `spec` names, told what of `given` (relay, model, api_key) its constructor takes and the spec
    leaves open.
    """
    if not isinstance(spec, str):
        return adapted(spec)
    scheme, colon, rest = spec.partition(":")
    if colon and scheme in ("http", "https"):
        rest = spec if rest.startswith("//") else rest
        scheme = "http"
    if colon and scheme in SCHEMES:
        if not rest:
            raise BadInput(f"{spec!r} names nothing after {scheme}: (see docs/guide/compressors.md)")
        made: Compressor = load_object(SCHEMES[scheme])(rest)
        return made
    known = {**COMPRESSORS, **ADAPTED}
    parsed = parse_spec(spec)
    target: Any = load_object(parsed.target) if parsed.scheme == "py" else registry.find("system", parsed.target)
    if target is None and parsed.target in known:
        target = load_object(known[parsed.target])
    try:
        taken = inspect.signature(target).parameters if callable(target) else {}
    except (TypeError, ValueError):  # a callable that does not say
        taken = {}
    told = {name: value for name, value in given.items() if value is not None and name in taken}
    return adapted(build("system", spec, known, _compresses, told))


def adapted(made: Any) -> Compressor:
    """A compressor as it is, or as one if it takes messages or a text alone; a system, as `core.protocols.System`
    describes it, as one.
    """
    if callable(getattr(made, "compress", None)):
        return as_compressor(made)
    if not _compresses(made):
        raise BadInput(
            f"an object of type {type(made).__name__} has neither compress() nor process(): it is no compressor"
        )

    calling.check("system", made)
    wrapped: Any = SystemCompressor(made)
    found: Compressor = wrapped
    return found


def _compresses(made: Any) -> bool:
    return callable(getattr(made, "compress", None)) or method(made, "aprocess", "process") is not None


class SystemCompressor:
    """Hands `{id, context, messages, question, budget}` to `process` (or `aprocess`): `context` is the prefix as text,
    `messages` as it is.

    What comes back is read in this order: `compressed` (`{messages}` or `{text}`), `messages` (if they are others),
    `context`. A response alone is none: a system that answers is not a compressor.
    """

    def __init__(self, system: Any) -> None:
        process = calling.method(system, "aprocess", "process")
        if process is None:
            raise BadInput(f"{type(system).__name__} has neither process() nor aprocess()")
        self._system, self._process = system, process
        self.name: str = getattr(system, "name", type(system).__name__)
        self.needs_query = bool(getattr(system, "needs_query", False))

    def fingerprint(self) -> dict[str, Any]:
        """That of the system."""
        return {"class": "SystemCompressor", "system": calling.fingerprint(self._system)}

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The system's result for the prefix."""
        context = rendered(prefix)
        example = {"id": "prefix", "context": context, "messages": prefix, "question": query or "", "budget": budget}
        found = await calling.call(self._process, example)
        if not isinstance(found, dict):
            raise BadReply(f"{self.name}: process() gave {type(found).__name__}, expected a dict")
        if "compressed" in found:
            made = result_of(found["compressed"], self.name)
        elif found.get("messages", prefix) != prefix:
            made = result_of(found["messages"], self.name)
        elif isinstance(found.get("context"), str):
            made = prefix if found["context"] == context else result_of(found["context"], self.name)
        else:
            raise BadReply(
                f"{self.name}: process() gave no compressed, messages or context; it gave {', '.join(map(str, found))}"
            )
        counter = counter_for(getattr(self._system, "model", None))
        return Compressed(made, tokens_of(prefix, counter), tokens_of(made, counter)), state

    async def aclose(self) -> None:
        """Close the system."""
        close = calling.method(self._system, "aclose", "close")
        if close is not None:
            await calling.call(close)
