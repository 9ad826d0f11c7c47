"""Which function stands for which command, and what kind of looking each is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from context_bench.shell import builtins, comparing, finding, programs, search, text_commands, wrappers
from context_bench.shell.call import Call, Result
from context_bench.shell.model import Stream

if TYPE_CHECKING:
    from context_bench.shell.running import Shell

_T = TypeVar("_T")


def _by_name(rows: Iterable[tuple[_T, str]]) -> dict[str, _T]:
    return {name: value for value, names in rows for name in names.split()}


def _false(call: Call) -> Result:
    return Stream(), 1


SIMPLE: dict[str, Callable[[Call], Result]] = _by_name(
    [
        (text_commands.cat, "cat less more"),
        (text_commands.bat, "bat batcat"),
        (text_commands.head, "head"),
        (text_commands.tail, "tail"),
        (text_commands.nl, "nl"),
        (programs.sed, "sed gsed"),
        (programs.awk, "awk gawk mawk"),
        (programs.cut, "cut"),
        (text_commands.keep_lines, "sort tac shuf"),
        (text_commands.uniq, "uniq"),
        (text_commands.retold, "tr expand unexpand fold column rev"),
        (text_commands.wc, "wc"),
        (text_commands.tee, "tee"),
        (text_commands.echo, "echo"),
        (text_commands.printf, "printf"),
        (
            text_commands.other_form,
            "zcat fmt xxd od hexdump strings jq yq base64 pygmentize highlight ag ack",
        ),
        (comparing.diff, "diff colordiff"),
        (comparing.aside, "sdiff join vimdiff nvimdiff wdiff icdiff delta difft"),
        (comparing.same, "cmp"),
        (comparing.comm, "comm"),
        (comparing.paste, "paste"),
        (text_commands.silent, "mkdir rmdir touch chmod true : sleep set shopt umask trap clear wait"),
        (_false, "false"),
        (search.grep, "grep egrep fgrep rgrep"),
        (search.rg, "rg"),
        (finding.ls, "ls"),
        (finding.listing, "tree fd fdfind"),
        (builtins.rm, "rm"),
        (builtins.copy, "cp mv"),
        (builtins.touch, "touch"),
        (builtins.patch, "patch apply_patch"),
        (builtins.interpreter, "python python2 python3 node deno ruby php"),
        (builtins.perl, "perl"),
    ]
)
"""Commands that need nothing but their arguments, standard input and the files."""

OF_SHELL: dict[str, Callable[[Shell, Call], Result]] = _by_name(
    [
        (builtins.cd, "cd"),
        (builtins.pushd, "pushd"),
        (builtins.popd, "popd"),
        (builtins.leave, "exit"),
        (builtins.evaluate, "eval"),
        (builtins.read, "read"),
        (wrappers.bash, "bash sh zsh dash"),
        (wrappers.env, "env"),
        (wrappers.timeout, "timeout"),
        (wrappers.sudo, "sudo"),
        (wrappers.nice, "nice ionice stdbuf"),
        (wrappers.command, "command builtin exec nohup unbuffer"),
        (wrappers.time, "time"),
        (wrappers.git, "git"),
        (wrappers.xargs, "xargs"),
        (wrappers.find, "find"),
    ]
)
"""Commands that change the shell, or have it run others."""

_KINDS = _by_name(
    [
        ("search", "grep egrep fgrep rgrep rg ag ack"),
        ("list", "ls find tree fd fdfind"),
        ("read", "cat bat batcat less more head tail nl sed awk gawk diff colordiff sdiff vimdiff comm paste join xxd strings jq"),
    ]
)
_GIT_KINDS = {"grep": "search", "ls-files": "list", "show": "read", "blame": "read", "diff": "read"}


def kind_of(name: str, argv: list[str]) -> str | None:
    """Whether a command searches, lists or reads. `name`: the first of `argv` without its folder."""
    if argv[0] == "git" and len(argv) > 1:
        return _GIT_KINDS.get(argv[1])
    return _KINDS.get(name)
