"""Where an agent's program is on this machine, so that it can be shown inside the sandbox."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from context_bench.core.errors import BadInput
from context_bench.llm.paths import home_folder
from context_bench.sandbox.backends import PATH

#: Folders that every sandbox shows.
_SHOWN = ("/usr/", "/bin/", "/sbin/", "/lib", "/opt/", "/nix/store/")
#: Shown of a program outside of these: so many folders up, if they belong to an installation.
_INSTALLATIONS = ("bin", "sbin")


def found_here(command: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The command with programs and scripts as absolute paths, and what has to be readable for it. Raises `BadInput`.

    The first word is looked up on PATH, unless the sandbox has a program of that name itself (`python`, `bash`, `node` …). Of the words
    after it, up to the first option, files that are here are taken for scripts.
    """
    if not command:
        raise BadInput("there is no command: give the agent's after --, such as -- my-agent --task {instruction}")
    program = shutil.which(command[0]) or shutil.which(command[0], path=PATH)
    if program is None:
        raise BadInput(f"{command[0]!r} is no program on this machine: neither a path to one nor found on PATH")
    words, readable = [command[0]], list[Path]()
    if shutil.which(command[0], path=PATH) is None or "/" in command[0]:
        place = Path(os.path.abspath(program))  # noqa: PTH100 (links stay links)
        words, readable = [str(place)], _needed(place)
    taking = True
    for word in command[1:]:
        taking = taking and not word.startswith("-") and "{" not in word
        if taking and Path(word).is_file():
            words.append(str(Path(word).absolute()))
            readable.append(Path(word).absolute())
        else:
            words.append(word)
    return words, list(dict.fromkeys(readable))


def _needed(program: Path) -> list[Path]:
    """The installations that a program belongs to: its own, and those behind links, scripts' first lines and virtual environments."""
    found: list[Path] = []
    waiting, seen = [program], set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        home = _installation(path)
        if not str(home).startswith(_SHOWN) and not str(home).startswith(str(Path(sys.base_prefix).resolve())):
            found.append(home)
        if path.is_symlink():
            target = path.readlink()
            waiting.append(target if target.is_absolute() else path.parent / target)
        waiting += [*_interpreter(path), *_base(home)]
    return found


def _installation(path: Path) -> Path:
    """The folder that goes with a program (of `X/bin/program` it is `X`), else the program alone."""
    above = path.parent.parent
    own = path.parent.name in _INSTALLATIONS and above not in (Path("/"), home_folder(), (home_folder() or Path("/")) / ".local")
    return above if own else path


def _interpreter(path: Path) -> list[Path]:
    """What the first line of a script names."""
    try:
        with path.open("rb") as file:
            start = file.readline(512)
    except OSError:
        return []
    words = start[2:].split() if start.startswith(b"#!") else []
    named = words[1:2] if words and words[0].endswith(b"/env") else words[:1]
    known = [shutil.which(word.decode("utf-8", "replace")) for word in named]
    return [Path(name) for name in known if name]


def _base(home: Path) -> list[Path]:
    """The Python that a virtual environment stands on."""
    try:
        lines = (home / "pyvenv.cfg").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    told = dict(line.partition("=")[::2] for line in lines)
    place = next((value.strip() for name, value in told.items() if name.strip() == "home"), "")
    return [Path(place, "python3")] if place else []
