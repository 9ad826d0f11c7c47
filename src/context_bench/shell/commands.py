"""Which function stands for which command, and what kind of looking each is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from context_bench.shell import (
    changing,
    comparing,
    finding,
    interpreters,
    ordering,
    own,
    picking,
    programs,
    search,
    showing,
    telling,
    wrappers,
)
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
        (showing.cat, "cat less more"),
        (showing.bat, "bat batcat"),
        (picking.head, "head"),
        (picking.tail, "tail"),
        (showing.nl, "nl"),
        (programs.sed, "sed gsed"),
        (programs.awk, "awk gawk mawk"),
        (programs.cut, "cut"),
        (ordering.keep_lines, "sort tac shuf"),
        (ordering.uniq, "uniq"),
        (showing.retold, "tr expand unexpand fold column rev"),
        (telling.wc, "wc"),
        (telling.tee, "tee"),
        (telling.echo, "echo"),
        (telling.printf, "printf"),
        (
            showing.other_form,
            "zcat fmt xxd od hexdump strings jq yq base64 pygmentize highlight ag ack",
        ),
        (comparing.diff, "diff colordiff"),
        (comparing.aside, "sdiff join vimdiff nvimdiff wdiff icdiff delta difft"),
        (comparing.same, "cmp"),
        (comparing.comm, "comm"),
        (comparing.paste, "paste"),
        (telling.silent, "mkdir rmdir touch chmod true : sleep set shopt umask trap clear wait"),
        (_false, "false"),
        (search.grep, "grep egrep fgrep rgrep"),
        (search.rg, "rg"),
        (finding.ls, "ls"),
        (finding.listing, "tree fd fdfind"),
        (changing.rm, "rm"),
        (changing.copy, "cp mv"),
        (changing.touch, "touch"),
        (changing.patch, "patch apply_patch"),
        (interpreters.interpreter, "python python2 python3 node deno ruby php"),
        (interpreters.perl, "perl"),
    ]
)
"""Commands that need nothing but their arguments, standard input and the files."""

OF_SHELL: dict[str, Callable[[Shell, Call], Result]] = _by_name(
    [
        (own.cd, "cd"),
        (own.pushd, "pushd"),
        (own.popd, "popd"),
        (own.leave, "exit"),
        (own.evaluate, "eval"),
        (own.read, "read"),
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
