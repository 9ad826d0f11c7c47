"""What Tab offers in a shell: commands and options, and the names that they take (runs of the store, datasets, systems, formats …).

`context-bench --install-completion` puts a script in place that asks this program; what goes wrong here is silent, and what is offered is
found without opening the store as a run does, so that a key press is answered at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

VARIABLE = "_CONTEXT_BENCH_COMPLETE"
#: Names that a shell takes as they are: others are not offered, since some shells evaluate what they are given.
_HARMLESS = re.compile(r"[\w@.+#:/,=%-]+")


def wanted() -> bool:
    """Is it a shell that asks what can come next?"""
    return VARIABLE in os.environ


def answer(root: Any, complete_line: Callable[[list[str]], list[str]]) -> int:
    """Print what can come next, in the shell's own form. `complete_line` puts in the command that may be left out."""
    with suppress(Exception):
        print(_answered(root, complete_line))
    return 0


def script(args: list[str]) -> int | None:
    """`--show-completion SHELL` and `--install-completion SHELL`; `None` for all else, also where the shell is to be found out."""
    if len(args) != 2 or args[0] not in ("--show-completion", "--install-completion"):
        return None
    from typer._completion_shared import get_completion_script, install

    from context_bench.core.errors import UnknownName

    shells = ("bash", "zsh", "fish", "powershell", "pwsh")
    if args[1] not in shells:
        raise UnknownName("shell", args[1], shells)
    if args[0] == "--show-completion":
        print(get_completion_script(prog_name="context-bench", complete_var=VARIABLE, shell=args[1]))
        return 0
    _, path = install(shell=args[1], prog_name="context-bench", complete_var=VARIABLE)
    print(f"context-bench: completion for {args[1]} is in {path}; it works in terminals opened from now on")
    return 0


def _answered(root: Any, complete_line: Callable[[list[str]], list[str]]) -> str:
    from click.shell_completion import get_completion_class
    from typer._completion_classes import completion_init

    completion_init()
    shell = os.environ[VARIABLE].partition("_")[2]
    kind = get_completion_class(shell)
    if kind is None:
        return ""
    asked = kind(root, {}, "context-bench", VARIABLE)
    args, incomplete = asked.get_completion_args()
    head = ""
    if shell == "bash":
        args, incomplete, head = _joined(args, incomplete)
    if len(args) > 1 or "-" in (incomplete[:1], *(each[:1] for each in args)):
        args = complete_line([*args, incomplete])[:-1]
    found = [item for item in asked.get_completions(args, incomplete) if _HARMLESS.fullmatch(item.value)]
    for item in found:
        item.value = item.value.removeprefix(head)
    setattr(asked, "get_completion_args", lambda: (args, incomplete))  # noqa: B010
    setattr(asked, "get_completions", lambda *_: found)  # noqa: B010
    return str(asked.complete())


def _joined(args: list[str], incomplete: str) -> tuple[list[str], str, str]:
    """Words as they were typed, where bash has broken them at `:` and `=`; and the part of the last one that bash will not replace."""
    words: list[str] = []
    glue = False
    for word in [*args, incomplete]:
        mark = word in (":", "=")
        if words and (glue or mark):
            words[-1] += word
        else:
            words.append(word)
        glue = mark
    last = words.pop() if words else ""
    if last.startswith("-") and "=" in last:  # --option=value: the parser wants them apart
        option, _, last = last.partition("=")
        words.append(option)
        return words, last, last[: last.rfind(":") + 1]
    return words, last, last[: max(last.rfind(":"), last.rfind("=")) + 1]
