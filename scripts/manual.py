"""The manual page and the completions of shells that the wheel installs, from the commands themselves.

    python scripts/manual.py        # writes share/

`share/man/man1/context-bench.1` has every command with all its options; `share/completions` what bash, zsh and fish
ask the program with. They are kept in git since the build has no more than the build's own package; the golden tests
hold them to the program (`pytest tests/golden --refresh-golden` writes them anew as well).
"""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Iterator
from pathlib import Path

import click
import typer.main

from context_bench import __version__
from context_bench.cli import app

SHARE = Path(__file__).parents[1] / "share"
#: The file of a shell under share/completions.
SHELLS = {"bash": "context-bench.bash", "zsh": "_context-bench", "fish": "context-bench.fish"}


def main() -> None:
    """Write all of them."""
    for name, text in files().items():
        place = SHARE / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def files() -> dict[str, str]:
    """Path under share/ → text."""
    shells = {f"completions/{file}": completion(shell) for shell, file in SHELLS.items()}
    return {"man/man1/context-bench.1": manual(), **shells}


def completion(shell: str) -> str:
    """The script with which a shell asks the program for the next words."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if app.completion_script(["--show-completion", shell]) != 0:
            raise SystemExit(f"manual: no completion for {shell}")
    return said.getvalue()


def manual() -> str:
    """The page in the macros of `man`; without a date, so that the same commands make the same page."""
    root = typer.main.get_command(app.app)
    about = " ".join(inspect.cleandoc(root.help or "").split())
    lines = [
        f'.TH CONTEXT\\-BENCH 1 "" "context\\-bench {escaped(__version__)}" "User Commands"',
        ".SH NAME",
        "context\\-bench \\- measure what changes the context of a language model",
        ".SH SYNOPSIS",
        ".B context\\-bench",
        "[COMMAND] [OPTIONS]",
        ".SH DESCRIPTION",
        escaped(about),
        ".PP",
        escaped(root.epilog or ""),
        ".SH COMMANDS",
    ]
    for name in app.COMMANDS:
        lines += _command((name,), app.built(name))
    codes = inspect.cleandoc(app.__doc__ or "").partition("Exit codes: ")[2]
    lines += [".SH EXIT STATUS", escaped(" ".join(codes.split()))]
    return "\n".join(lines) + "\n"


def _command(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(("context-bench", *path)))
    yield f".SS {escaped(' '.join([context.info_name or '', *command.collect_usage_pieces(context)]))}"
    yield from _paragraphs(inspect.cleandoc(command.help or ""))
    for one in command.params:
        if isinstance(one, click.Option):
            value = "" if one.is_flag else f" {one.make_metavar(context)}"
            name = ", ".join((*one.opts, *one.secondary_opts)) + value
        elif getattr(one, "hidden", False):
            continue
        else:
            name = one.make_metavar(context)
        yield ".TP"
        yield f".B {escaped(name)}"
        yield escaped(" ".join((getattr(one, "help", None) or "").split())) or "\\&"
    for name, child in getattr(command, "commands", {}).items():
        yield from _command((*path, name), child)


def _paragraphs(text: str) -> Iterator[str]:
    for number, part in enumerate(text.split("\n\n")):
        yield from [".PP"] * bool(number)
        yield escaped(" ".join(part.replace("\b", "").split()))


def escaped(text: str) -> str:
    """Text in which nothing is a command of the formatter."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


if __name__ == "__main__":
    main()
