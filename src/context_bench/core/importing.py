"""Modules of the user's own: installed, in the working folder, or one file by its path."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from context_bench.core.errors import BadInput, ContextBenchError
from context_bench.core.keys import stable_hash


def is_file(module: str) -> bool:
    """True for what names a file (`./mine.py`) and not a module (`package.mine`)."""
    return module.endswith(".py") or "/" in module or os.sep in module


def imported(module: str) -> ModuleType:
    """The module of that name, looked for last in the working folder, or the one in that file. Raises `BadInput`.

    The folder stays on the path, at its end: what is imported later, here or in a process that is started from here, is found as well,
    and nothing that is installed is hidden.
    """
    try:
        if is_file(module):
            return _from_file(Path(module).expanduser())
        if not _ours(module):
            _also_in(Path.cwd())
        return importlib.import_module(module)
    except (ContextBenchError, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise BadInput(f"cannot import {module!r}: {error}. Is it installed, in the working folder, or on PYTHONPATH?") from error
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
