"""One grammar for everything that can be plugged in, wherever a name is asked for.

`NAME[:k=v,…]` a built-in, a registered name or an entry point · `py:pkg.mod:Class[:k=v,…]` any importable object, also
of a module in the working folder · `py:./file.py:Class[:k=v,…]` one of a file · `cli:COMMAND` · `http:URL` ·
`mcp:COMMAND`. `builtin:NAME` forces a built-in. The user's own modules are imported here too: installed, in the working
folder, or one file by its path.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from context_bench.core import protocols as calling
from context_bench.core.errors import BadInput, ContextBenchError, UnknownName, describe
from context_bench.core.families import brought
from context_bench.core.keys import stable_hash
from context_bench.core.lazy import registry
from context_bench.core.machine import expanded


def is_file(module: str) -> bool:
    """True for what names a file (`./mine.py`) and not a module (`package.mine`)."""
    return module.endswith(".py") or "/" in module or os.sep in module


def imported(module: str) -> ModuleType:
    """The module of that name, looked for last in the working folder, or the one in that file. Raises `BadInput`.

    The folder stays on the path, at its end: what is imported later, here or in a process that is started from here, is
    found as well, and nothing that is installed is hidden.
    """
    try:
        if is_file(module):
            return _from_file(expanded(module))
        if not _ours(module):
            _also_in(Path.cwd())
        return importlib.import_module(module)
    except (ContextBenchError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise BadInput(
                f"cannot import {module!r}: {error}. Is it installed, in the working folder, or on PYTHONPATH?"
            ) from error
        raise BadInput(f"cannot import {module!r}: it imports {error.name!r}, which is not installed here") from error
    except (Exception, SystemExit) as error:
        if _ours(module):
            raise
        raise BadInput(f"cannot import {module!r}: {_where(error)}{type(error).__name__}: {error}") from error


def _ours(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]


def _from_file(path: Path) -> ModuleType:
    """A file as a module under its own name, or where something else has that name, under one that nothing else has."""
    if not path.is_file():
        there = "is a folder" if path.is_dir() else "there is no such file"
        raise BadInput(f"cannot import {str(path)!r}: {there}; expected the path of a Python file, such as ./mine.py")
    path = path.resolve()
    name = path.stem if _free(path.stem, path) else f"{path.stem}_{stable_hash(str(path), 8)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"cannot import {str(path)!r}: expected a Python file, whose name ends in .py")
    _also_in(path.parent)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _free(name: str, path: Path) -> bool:
    """True if no other file than `path` is imported by that name."""
    if not name.isidentifier():
        return False
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return name not in sys.modules
    return found is None or (found.origin is not None and Path(found.origin).resolve() == path)


def _also_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()


def _where(error: BaseException) -> str:
    """`file:line: ` of what a module was doing when it failed."""
    if isinstance(error, SyntaxError):
        return ""  # its text says where
    steps = [step for step in traceback.extract_tb(error.__traceback__) if not step.filename.startswith("<frozen ")]
    return f"{Path(steps[-1].filename).name}:{steps[-1].lineno}: " if steps else ""


#: Schemes of what is no Python object; a kind of plug-in may have others (`parse_spec`).
OUTSIDE = frozenset(("cli", "http", "mcp"))

#: Annotations whose values are told apart here: what they are called in messages, and what fits.
_SORTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "float": ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    "None": ("null", lambda value: value is None),
}
#: A file before its attribute; what a drive is called has a colon as well.
_FILE = re.compile(r"((?:[A-Za-z]:[\\/])?[^:]*\.py):")
#: Kind → the methods without which nothing is one.
_LACKS = {
    "system": "neither process(example) nor compress(messages)",
    "evaluator": "no score(example, output)",
    "metric": "no compute(rows)",
}
_OPTIONAL = re.compile(r"(?:typing\.)?Optional\[(\w+)\]")


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """A parsed specification: `scheme`, what it names, and the options given after it."""

    scheme: str
    target: str
    options: dict[str, Any] = field(default_factory=dict)
    text: str = ""


def parse_spec(text: str, schemes: Collection[str] = OUTSIDE) -> PluginSpec:
    """Read a specification. Option values are JSON where they can be (`3`, `0.5`, `true`, `"a,b"`), else text.

    `schemes`: those after which everything is the target, as in `cli:COMMAND`; the target of `http` is a whole URL.
    """
    scheme, found, rest = text.partition(":")
    if found and "http" in schemes and (scheme == "https" or text.startswith("http://")):
        return PluginSpec("http", text, {}, text)
    if found and scheme in schemes:
        return PluginSpec(scheme, rest, {}, text)
    if found and scheme == "py":
        file = _FILE.match(rest)
        module, colon, tail = (file[1], ":", rest[file.end() :]) if file else rest.partition(":")
        attribute, _, options = tail.partition(":")
        if not (module and colon and attribute):
            raise BadInput(
                f"{text!r} is not a Python plug-in; expected py:package.module:Name or py:./file.py:Name, "
                "optionally followed by :key=value,…"
            )
        return PluginSpec("py", f"{module}:{attribute}", _options(options, text), text)
    if found and scheme == "builtin":
        name, _, options = rest.partition(":")
        return PluginSpec("builtin", name, _options(options, text), text)
    name, _, options = text.partition(":")
    return PluginSpec("name", name, _options(options, text), text)


def _options(text: str, whole: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not key.isidentifier():
            raise BadInput(f"option {item!r} of {whole!r} is not key=value")
        options[key] = _value(value)
    return options


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def build(
    kind: str,
    text: str,
    builtins: dict[str, str],
    accepts: Callable[[Any], bool] = lambda _: True,
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Make the plug-in that `text` names.

    `builtins` maps names to "module:Class"; user registrations and entry points come before them. A class or function
    is called with `defaults` and, over them, the options; an instance is taken as it is (and then takes none). Raises
    `UnknownName` or `BadInput`. Options of another type than their parameter's are refused: see `check_options`.
    """
    spec = parse_spec(text)
    if spec.scheme == "py":
        target = load_object(spec.target)
    elif spec.scheme in ("name", "builtin"):
        target = registry.find(kind, spec.target) if spec.scheme == "name" else None
        if target is None:
            known = builtins if spec.target in builtins else {**brought(kind), **builtins}
            if spec.target not in known:
                raise UnknownName(kind, spec.target, [*known, *registry.names(kind)])
            target = load_object(known[spec.target])
    else:
        raise BadInput(f"{text!r}: {spec.scheme}: is not a way to name a {kind} here")
    made = _instance(kind, spec, target, accepts, defaults)
    calling.check(kind, made)
    return made


def _instance(
    kind: str, spec: PluginSpec, target: Any, accepts: Callable[[Any], bool], defaults: Mapping[str, Any]
) -> Any:
    if not isinstance(target, type) and accepts(target) and not spec.options:
        return target
    if not callable(target):
        raise BadInput(
            f"{spec.text!r} is an object of type {type(target).__name__}: it takes no options and is not a {kind}"
        )
    check_options(kind, spec, target, defaults)
    try:
        made = target(**{**defaults, **spec.options})
    except ContextBenchError:
        raise
    except Exception as error:  # somebody else's code: whatever it raises is its fault, and named as such
        raise BadInput(f"{kind} {spec.text!r} could not be made: {_fault(target, error)}") from error
    if not accepts(made):
        name, article = type(made).__name__, "an" if kind[0] in "aeiou" else "a"
        raise BadInput(
            f"{spec.text!r} made a {name}, which is not {article} {kind}: {name} has "
            f"{_LACKS.get(kind, 'not what it takes')}"
        )
    return made


def _fault(target: Callable[..., Any], error: Exception) -> str:
    """The fault of a call of a class or factory, in words."""
    if isinstance(error, TypeError) and inspect.isfunction(target):
        return (
            f"{target.__name__} is a function, called without arguments to make one ({error}); name a class "
            "with the method instead"
        )
    return str(error) if isinstance(error, TypeError) else describe(error)


def check_options(
    kind: str, spec: PluginSpec, target: Callable[..., Any], filled: Iterable[str] = (), hint: str = ""
) -> None:
    """Raises `BadInput` for an option that there is not, and for one whose parameter is annotated as a number or a
    truth value (or `None`) and which is none.

    Text is true and compares with nothing: taken for either, it would only be found out in the numbers, if at all.
    `filled`: parameters that others fill, so that nobody is sent there; `hint`: what else to say where there is no such
    option.
    """
    if not spec.options:
        return
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):  # some things can be called and do not say how
        return
    _refuse_unknown(spec, parameters, set(filled), hint)
    for name, value in spec.options.items():
        sorts = [_SORTS.get(word) for word in _words(parameters[name].annotation)] if name in parameters else []
        known = [sort for sort in sorts if sort is not None]
        if known and len(known) == len(sorts) and not any(fits(value) for _, fits in known):
            raise BadInput(
                f"{kind} {spec.text!r}: {name} is {value!r}; expected {' or '.join(called for called, _ in known)}"
            )


def _refuse_unknown(spec: PluginSpec, parameters: Mapping[str, inspect.Parameter], filled: set[str], hint: str) -> None:
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    takes = [name for name, parameter in parameters.items() if parameter.kind in named]
    own = [name for name in takes if name not in filled and not name.startswith("_")]
    for name in spec.options:
        if name not in takes:
            near = difflib.get_close_matches(name, own, n=1)
            ask = f"; did you mean {near[0]}?" if near else "."
            raise BadInput(f"{_called(spec)} has no option {name}{ask} It has {', '.join(own) or 'none'}.{hint}")


def _called(spec: PluginSpec) -> str:
    """The specification without its options."""
    return f"{spec.scheme}:{spec.target}" if spec.scheme not in ("name", "builtin") else spec.target


def _words(annotation: Any) -> list[str]:
    """The parts of an annotation by name, `int | None` → int, None; whatever is written otherwise is one part."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    optional = _OPTIONAL.fullmatch(text)
    return [optional[1], "None"] if optional else text.split(" | ")


def load_object(path: str) -> Any:
    """The object at `package.module:attribute`, or `file.py:attribute`."""
    module, _, attribute = path.rpartition(":")
    found: Any = imported(module)
    for name in attribute.split("."):
        if not hasattr(found, name):
            public = [each for each in dir(found) if not each.startswith("_")][:30]
            raise BadInput(f"{module!r} has no {attribute!r}; it has: {', '.join(public)}")
        found = getattr(found, name)
    return found
