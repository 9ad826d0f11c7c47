"""Every error of ours, ordered by what happens next.

```
ContextBenchError
├─ Stop      nothing (more) is spent; the command ends with `exit_code`
│  ├─ UnknownName · BadSpec · BadInput (NothingToRun) · MissingExtra (MissingProgram) · SameName · StoreUnusable · PreflightFailed   exit 2
│  ├─ NotComparable                                                                                    exit 3
│  ├─ GateFailed                                                                                       exit 4
│  ├─ CostCapReached                                                                                   exit 5
│  └─ RunTimedOut                                                                                      exit 1
└─ Failed    becomes a row's error or a missing score; the run goes on
   ├─ SystemFailed: Unreachable, TimedOut, RateLimited, ServerFailed, NoBudget, SetupFailed, NotStored
   │  ├─ Refused: ContextTooLong, Filtered, Declined
   │  └─ BadReply: OutputSpent, EmptyReply
   └─ EvaluatorFailed: JudgeUnreadable · SandboxFailed (CopyUnusable)
```

Every message names the thing, the value seen, what was expected and what to do next.
"""  # noqa: E501

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: The name under which the package is installed.
DISTRIBUTION = "context-bench-tool"
#: The name is this project's on the package index.
REGISTERED = False

#: So many names are listed where one is not known, the nearest first; more than so many have lines of their own.
_MOST_KNOWN, _ON_ONE_LINE = 60, 20


class ContextBenchError(Exception):
    """Root of all errors raised on purpose by this package."""


class Stop(ContextBenchError):
    """The command cannot go on; `exit_code` is what the shell sees."""

    exit_code = 2


class BadInput(Stop):
    """A value given by the user (file, flag, field) is not what was expected."""


class NothingToRun(BadInput):
    """The command line names nothing that could be run: no system, no such dataset, no example."""


class BadSpec(Stop):
    """A specification has faults; all of them are listed at once."""

    def __init__(self, thing: str, faults: Iterable[str]) -> None:
        self.faults = list(faults)
        super().__init__("\n".join([f"{thing} is not usable:", *(f"  - {fault}" for fault in self.faults)]))


class UnknownName(Stop, KeyError):
    """No such dataset, system, evaluator, metric or reporter; lists the known ones, the nearest first. `more`: a
    sentence on what else is taken, or where they are described.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], more: str = "") -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        left = f" and {len(names) - _MOST_KNOWN:,} more" if len(names) > _MOST_KNOWN else ""
        listed = [*near, *(each for each in names if each not in near)][:_MOST_KNOWN]
        there = _in_lines(f"Known: {', '.join(listed) or 'none'}{left}.", many=len(listed) > _ON_ONE_LINE)
        self.message = f"Unknown {kind} {name!r}.{hint}{there}{more}"
        super().__init__(self.message)

    def __str__(self) -> str:  # KeyError would show the repr
        return self.message


def _in_lines(listed: str, *, many: bool) -> str:
    """A list as the rest of a line, or where there are `many` in lines of its own."""
    if not many:
        return f" {listed}"
    return f"\n{textwrap.fill(listed, 100, break_on_hyphens=False, break_long_words=False)}\n"


class MissingExtra(Stop, ImportError):
    """An optional dependency is not installed; says which extra brings it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the optional extra {extra!r}: {install_line(extra)}")


def needed(module: str, what: str, extra: str) -> Any:
    """The module of an optional package, imported; `MissingExtra` says what needs it and which extra brings it."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(what, extra) from None


def need(modules: Iterable[str], what: str, extra: str) -> None:
    """Make sure, without importing them, that optional packages are there: before work begins that ends with them."""
    if any(find_spec(module) is None for module in modules):
        raise MissingExtra(what, extra)


def install_line(extra: str = "") -> str:
    """The command that installs this package again with one more extra, from wherever it was installed (PEP 610).

    The bare name stands in none of them while it is not registered: somebody else could register it.
    """
    named = f"[{extra}]" if extra else ""
    origin = _origin()
    installer, after = _installer()
    if "dir_info" in origin:
        return f"{installer} '.{named}' in a checkout of context-bench{after}"
    if address := origin.get("url"):
        vcs = str((origin.get("vcs_info") or {}).get("vcs") or "")
        # An index's or a repository's address may hold a password, though the standard says that it must not.
        shown = re.sub(r"(?<=//)[^/@]*@", "", str(address))
        wanted = f"{DISTRIBUTION}{named} @ {f'{vcs}+' if vcs else ''}{shown}"
    elif REGISTERED:
        wanted = DISTRIBUTION + named
    else:
        wheel = f"{DISTRIBUTION.replace('-', '_')}-{_version()}-py3-none-any.whl{named}"
        return f"{installer} '{wheel}' in the folder of that wheel (the name is on no index yet){after}"
    if _for_one_command():
        return f"uvx --from '{wanted}' context-bench …"
    return f"{installer} '{wanted}'{after}"


def _installer() -> tuple[str, str]:
    """The words that install packages into this environment, by what is there; and what is said after them."""
    if find_spec("pip"):
        return "pip install", ""
    if uv_program():
        return f"uv pip install --python {sys.executable}", ""
    if find_spec("ensurepip"):
        return f"{sys.executable} -m ensurepip && {sys.executable} -m pip install", ""
    return f"{sys.executable} -m pip install", ", once this Python has pip (neither pip nor uv was found)"


def uv_program() -> str | None:
    """The path of uv: beside this Python, as `uvx` and `uv run` name it to what they start, or on the PATH."""
    name = "uv.exe" if sys.platform == "win32" else "uv"
    named = os.environ.get("UV")
    places = [Path(sys.executable).parent / name, *([Path(named)] if named else [])]
    places += [Path(folder) / name for folder in os.get_exec_path()]
    return next((str(place) for place in places if place.is_file() and os.access(place, os.X_OK)), None)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "VERSION"


def _for_one_command() -> bool:
    """Tell whether `uvx` keeps this environment in its cache: the next call may not find what is installed into it."""
    return any(part.startswith("archive-v") for part in Path(sys.prefix).parts)


def _origin() -> dict[str, Any]:
    """The place where the installer found this package, as it noted that; nothing if it came from an index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        noted = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


class MissingProgram(MissingExtra):
    """A program that has to be on the machine is not there, or does not work there; says how to get it."""

    def __init__(self, message: str) -> None:
        Stop.__init__(self, message)


class SameName(Stop):
    """Two systems of one run share a name, so their rows could not be told apart."""


class StoreUnusable(Stop):
    """The store cannot be opened, written or understood."""


class PreflightFailed(Stop):
    """A check made before anything is spent did not pass."""


class NotComparable(Stop):
    """Two runs measured different things and were asked to be compared."""

    exit_code = 3


class GateFailed(Stop):
    """A gate's condition does not hold."""

    exit_code = 4


class CostCapReached(Stop):
    """The next call could exceed the money allowed with `--max-cost`; nothing more is sent."""

    exit_code = 5


class LimitCrossed(Stop):
    """A limit on sessions is crossed, and that is to end the command."""

    exit_code = 6


class RunTimedOut(Stop):
    """The time allowed for the whole run is over; what was finished is kept."""

    exit_code = 1


class Failed(ContextBenchError):
    """Something about one example failed. The class name is the failure class shown in reports."""


class SystemFailed(Failed, RuntimeError):
    """The system under test gave no answer for this example (also a `RuntimeError`, as documented for
    `OpenAIProxy`).
    """


class Unreachable(SystemFailed):
    """No connection could be made, or it broke before a whole reply arrived."""


class TimedOut(SystemFailed):
    """A deadline passed (attempt, example or run)."""


class RateLimited(SystemFailed):
    """Still refused for quota after every allowed attempt."""


class ServerFailed(SystemFailed):
    """The endpoint answered with a failure of its own (5xx) at every allowed attempt."""


class Refused(SystemFailed):
    """The endpoint refused the request (4xx, content filter); its own words are in the message."""


class BadReply(SystemFailed):
    """The endpoint answered with something that is not a usable reply."""


class ContextTooLong(Refused):
    """The request does not fit the model's context window."""


class Filtered(Refused):
    """The provider's content filter held the answer back, or cut it short."""


class Declined(Refused):
    """The model itself refused, in the field that its API has for that."""


class OutputSpent(BadReply):
    """The output limit was used up before any text came (on reasoning, for the most part)."""


class EmptyReply(BadReply):
    """The reply is in order and holds no answer: null or empty content."""


class NoBudget(SystemFailed):
    """A budgeted control had no token budget to match: its partner gave no answer, or nobody knows what it
    forwarded.
    """


class SetupFailed(SystemFailed):
    """A group could not be set up (a memory lost too much of what it was given), so none of its questions can be
    asked.
    """


class NotStored(SystemFailed):
    """A reply that cannot be kept in the store; the row keeps the reason and the cost."""


class EvaluatorFailed(Failed):
    """An evaluator that applies to the row gave no score."""


class JudgeUnreadable(EvaluatorFailed):
    """The judge's reply carries no rating that can be read."""


class SandboxFailed(EvaluatorFailed):
    """A sandbox that works elsewhere on this machine did not start this time; says nothing about the program it was
    for.
    """


class CopyUnusable(SandboxFailed):
    """An agent left its copy so that nobody can read or verify it: the agent's own doing, and no failure of the
    sandbox.
    """


def describe(error: BaseException) -> str:
    """The form in which a failure is kept in a row: `Class: message`, one line, at most 2,000 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:2000] if text else type(error).__name__


@cache
def archive_faults() -> tuple[type[Exception], ...]:
    """Exceptions that the archive modules raise for corrupt, encrypted or unsupported files; this call loads them."""
    import lzma
    import struct
    import tarfile
    import zipfile
    import zlib

    return (
        OSError,
        EOFError,
        ValueError,
        IndexError,  # a member without a name
        RuntimeError,  # encrypted
        NotImplementedError,  # a version or method that is not known
        struct.error,
        zlib.error,
        lzma.LZMAError,
        zipfile.BadZipFile,
        tarfile.TarError,
    )
