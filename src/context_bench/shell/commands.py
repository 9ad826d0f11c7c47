"""The function for each command and the kind of looking it is, and commands that run other commands.

The latter: bash -c, env, timeout, xargs, find -exec, git -C and the like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from context_bench.shell import builtins, comparing, finding, programs, search, text_commands
from context_bench.shell.call import CommandCall, Result, Status, parse_options
from context_bench.shell.finding import Find
from context_bench.shell.git_commands import git as run_git
from context_bench.shell.model import MOST_ROUNDS, UNKNOWN, FileLine, LineStream, Unknown, UnknownLines, rendered

if TYPE_CHECKING:
    from context_bench.shell.running import Shell

_MOST_BASES = 3
_MOST_BELOW = 300


def bash(shell: Shell, call: CommandCall) -> Result:
    """bash, sh, zsh, dash: a script in an argument or on standard input is run, one in a file is not looked at."""
    args = list(call.args)
    while args and args[0].startswith("-"):
        flag = args.pop(0)
        if "c" in flag and not flag.startswith("--") and args:
            if UNKNOWN in args[0]:
                raise Unknown
            return shell.apart(partial(shell.source, args[0], call.stdin))
    if not args and call.stdin is not None:
        shell.budget.make(sum(len(part.text or "") + 1 for part in call.stdin.parts if isinstance(part, FileLine)))
        return shell.apart(partial(shell.source, rendered(call.stdin)))
    return LineStream([UnknownLines(None)]), None


def env(shell: Shell, call: CommandCall) -> Result:
    """env: the command behind the assignments."""
    at = 0
    while at < len(call.args) and (re.match(r"[A-Za-z_]\w*=", call.args[at]) or call.args[at].startswith("-")):
        if call.args[at] in ("-C", "-S"):
            raise Unknown
        at += 2 if call.args[at] == "-u" else 1
    args = call.args[at:]
    return shell.call(args, call.stdin) if args else (LineStream([UnknownLines(None)]), 0)


def timeout(shell: Shell, call: CommandCall) -> Result:
    """timeout: the command behind the duration."""
    given = parse_options(call.args, "ks", "kill-after signal", stop_at_first=True)
    return shell.call(given.rest[1:], call.stdin)


def sudo(shell: Shell, call: CommandCall) -> Result:
    """sudo: the command behind its options."""
    return shell.call(parse_options(call.args, "ugDhpCrt", "user group", stop_at_first=True).rest, call.stdin)


def nice(shell: Shell, call: CommandCall) -> Result:
    """nice, ionice, stdbuf."""
    return shell.call(parse_options(call.args, "noei", "adjustment", stop_at_first=True).rest, call.stdin)


def command(shell: Shell, call: CommandCall) -> Result:
    """command, builtin, exec, nohup, unbuffer: nothing but the command behind them."""
    given = parse_options(call.args, "", stop_at_first=True)
    if given.has("v", "V"):
        return LineStream([UnknownLines(None)]), None
    return shell.call(given.rest, call.stdin)


def time(shell: Shell, call: CommandCall) -> Result:
    """time: the command, and a few lines about it."""
    out, status = command(shell, call)
    return LineStream([*out.parts, UnknownLines(None)], out.ordered), status


def git(shell: Shell, call: CommandCall) -> Result:
    """git: its own options, then its command, in the directory of `-C`."""
    args = list(call.args)
    moved = None
    while args and args[0].startswith("-"):
        flag = args.pop(0)
        if flag in ("-C", "-c", "--git-dir", "--work-tree") and args:
            value = args.pop(0)
            moved = value if flag == "-C" else moved
    if not args:
        return LineStream([UnknownLines(None)]), None

    def run() -> Result:
        if moved is not None and shell.files.cd(moved) != 0:
            raise Unknown
        return run_git(CommandCall("git " + args[0], args[1:], call.stdin, shell.files))

    return shell.apart(run)


def xargs(shell: Shell, call: CommandCall) -> Result:
    """xargs: the command once for every group of items on standard input."""
    given = parse_options(call.args, "aEIdLnPs", "max-args max-procs replace delimiter arg-file", stop_at_first=True)
    if given.has("a", "E", "L", "s", "arg-file", "d", "delimiter"):
        raise Unknown
    stdin = call.stdin or LineStream()
    shell.budget.make(8 * sum(len(part.text or "") for part in stdin.parts if isinstance(part, FileLine)))
    wrapped = given.rest or ["echo"]
    holder = given.get("I", "replace")
    items = _items(stdin, zero=given.has("0", "null"), by_line=holder is not None)
    each = given.number("n", "max-args")
    size = 1 if holder is not None else each or max(len(items), 1)
    if len(items) // size > MOST_ROUNDS:
        raise Unknown
    if not items and given.has("r", "no-run-if-empty"):
        return LineStream(), 0
    out = LineStream(ordered=stdin.ordered)
    last: Status = 0
    for at in range(0, max(len(items), 1), size):
        group = items[at : at + size]
        argv = (
            [_put(shell, arg, holder, group[0] if group else "") for arg in wrapped] if holder else [*wrapped, *group]
        )
        shell.budget.look(len(argv))
        made, last = shell.call(argv, None)
        shell.budget.look(len(made.parts))
        out.extend(made)
    out.ordered = out.ordered and (stdin.ordered or len(items) < 2)
    return out, last


def _put(shell: Shell, text: str, holder: str, item: str) -> str:
    """The text with an item in each place that is held for it."""
    shell.budget.make(len(text) + text.count(holder) * len(item), 1)
    return text.replace(holder, item)


def _items(stdin: LineStream, zero: bool, by_line: bool) -> list[str]:
    """Items that xargs reads; `Unknown` where it would take quotes away."""
    lines = [line.text or "" for line in stdin.texts()]
    if zero:
        return [item for line in lines for item in line.split("\0") if item]
    if by_line:
        return [line for line in lines if line]
    if any(re.search(r"[\"'\\]", line) for line in lines):
        raise Unknown
    return [item for line in lines for item in line.split()]


def find(shell: Shell, call: CommandCall) -> Result:
    """find: the names it prints, or what its commands show of the files."""
    try:
        expression = Find(call)
        entries = expression.entries(call)
    except Unknown:
        return _unknown_find(call), None
    sure = len(entries) < 2  # the order of entries is the machine's own
    if not expression.actions:
        return LineStream([FileLine(path, 0, name) for name, path in entries], sure), 0
    if len(expression.actions) > 1 or len(entries) > MOST_ROUNDS:
        raise Unknown
    action, wrapped = expression.actions[0]
    if action.startswith("print"):
        end = "\0" if action == "print0" else ""
        return LineStream([FileLine(path, 0, name + end) for name, path in entries], sure), 0
    names = [name for name, _ in entries]
    if action == "each":
        commands = [[_put(shell, word, "{}", name) for word in wrapped] for name in names]
    else:
        shell.budget.make(0, wrapped.count("{}") * len(names))
        commands = [[arg for word in wrapped for arg in (names if word == "{}" else [word])]] if names else []
    out = LineStream()
    for argv in commands:
        made, _ = shell.call(argv, None)
        out.extend(made)
    out.ordered = sure
    return out, 0


def _unknown_find(call: CommandCall) -> LineStream:
    """Output of a find that cannot be followed: with a command in it, files below where it looks."""
    spots = [at for at, arg in enumerate(call.args) if arg.startswith("-exec") or arg == "-delete"]
    if not spots:
        return LineStream([UnknownLines(None)])
    bases = [
        path
        for arg in call.args[: spots[0]]
        if not arg.startswith("-") and (path := call.files.resolve(arg)) is not None
    ]
    below = [name for base in bases[:_MOST_BASES] for name in call.files.below(base)[:_MOST_BELOW]]
    return LineStream([*(UnknownLines(name, weak=True) for name in below), UnknownLines(None)], ordered=False)


_T = TypeVar("_T")


def _by_name(rows: Iterable[tuple[_T, str]]) -> dict[str, _T]:
    return {name: value for value, names in rows for name in names.split()}


def _false(call: CommandCall) -> Result:
    return LineStream(), 1


SIMPLE: dict[str, Callable[[CommandCall], Result]] = _by_name(
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
OF_SHELL: dict[str, Callable[[Shell, CommandCall], Result]] = _by_name(
    [
        (builtins.cd, "cd"),
        (builtins.pushd, "pushd"),
        (builtins.popd, "popd"),
        (builtins.leave, "exit"),
        (builtins.evaluate, "eval"),
        (builtins.read, "read"),
        (bash, "bash sh zsh dash"),
        (env, "env"),
        (timeout, "timeout"),
        (sudo, "sudo"),
        (nice, "nice ionice stdbuf"),
        (command, "command builtin exec nohup unbuffer"),
        (time, "time"),
        (git, "git"),
        (xargs, "xargs"),
        (find, "find"),
    ]
)
"""Commands that change the shell, or have it run others."""
_KINDS = _by_name(
    [
        ("search", "grep egrep fgrep rgrep rg ag ack"),
        ("list", "ls find tree fd fdfind"),
        (
            "read",
            "cat bat batcat less more head tail nl sed awk gawk diff colordiff sdiff vimdiff comm paste join xxd "
            "strings jq",
        ),
    ]
)
_GIT_KINDS = {"grep": "search", "ls-files": "list", "show": "read", "blame": "read", "diff": "read"}


def kind_of(name: str, argv: list[str]) -> str | None:
    """Kind of a command: it searches, lists or reads. `name`: the first of `argv` without its folder."""
    if argv[0] == "git" and len(argv) > 1:
        return _GIT_KINDS.get(argv[1])
    return _KINDS.get(name)
