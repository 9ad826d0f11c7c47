"""From what a user writes to a compressor: `bm25:budget=300`, `py:pkg.mod:Class`, `cli:COMMAND`, `http:URL`, `pairs:FILE`."""

from __future__ import annotations

import inspect
import json
from typing import Any

from context_bench.compression.compressors import ADAPTED, COMPRESSORS, SCHEMES
from context_bench.compression.compressors._simple import as_compressor
from context_bench.core import calling
from context_bench.core.calling import method
from context_bench.core.errors import BadInput
from context_bench.core.plugins import build, load_object, parse_spec
from context_bench.core.protocols import Compressor
from context_bench.core.registry import registry


def compressor_of(spec: str | Compressor, **options: Any) -> Compressor:
    """The compressor that `spec` names (`bm25:budget=300`, `py:module:Class`, a registered name); `options` are added to its own.

    An object is taken as it is; one that has `process` but no `compress` is adapted. Raises `UnknownName`, `BadInput`.
    """
    if not isinstance(spec, str):
        return adapted(spec)
    if options:
        more = ",".join(f"{name}={json.dumps(value)}" for name, value in options.items())
        spec += ("," if parse_spec(spec).options else ":") + more
    return compressor_for(spec)


def compressor_for(spec: str | Compressor, **given: Any) -> Compressor:
    """The compressor that `spec` names, told what of `given` (relay, model, api_key) its constructor takes and the spec leaves open."""
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
    """A compressor as it is, or as one if it takes messages or a text alone; a system, as `core.protocols.System` describes it, as one."""
    if callable(getattr(made, "compress", None)):
        return as_compressor(made)
    if not _compresses(made):
        raise BadInput(f"an object of type {type(made).__name__} has neither compress() nor process(): it is no compressor")
    from context_bench.compression.compressors.system import SystemCompressor

    calling.check("system", made)
    wrapped: Any = SystemCompressor(made)
    found: Compressor = wrapped
    return found


def _compresses(made: Any) -> bool:
    return callable(getattr(made, "compress", None)) or method(made, "aprocess", "process") is not None
