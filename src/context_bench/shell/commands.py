"""The function for each command and the kind of looking it is; the shell's own commands, and those that run others.

The shell's own change its folder, its variables, or whether it goes on. Others change files (rm, cp, mv, touch, patch),
run commands (bash -c, env, timeout, xargs, find -exec, git -C) or may have read the files that they name (interpreters,
and all that nobody described).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from context_bench.shell import finding, git_commands, programs, search, text_commands
from context_bench.shell.files import Files
from context_bench.shell.finding import Find
from context_bench.shell.model import (
    MOST_ROUNDS,
    UNKNOWN,
    CommandCall,
    FileLine,
    LineStream,
    Result,
    ShellExit,
    Status,
    Unknown,
    UnknownLines,
    give_up_if,
    parse_options,
    rendered,
)

if TYPE_CHECKING:
    from context_bench.shell.running import Shell

_MOST_BASES = 3
_MOST_BELOW = 300


def cd(shell: Shell, call: CommandCall) -> Result:
    """Change directory; where the directory is not known to be there, paths are guesses from here on."""
    files = shell.files
    names = [arg for arg in call.args if arg not in ("--", "-P", "-L")]
    before, left = files.cwd, shell.left
    if names[:1] == ["-"]:
        files.cwd, shell.left = shell.left, before
        return LineStream([UnknownLines(None)]), 0 if files.cwd is not None else None
    shell.left = before
    status = files.cd(names[0] if names else "~")
    if status == 1:
        files.cwd, shell.left, files.doubt = before, left, True
    return LineStream(), status


def pushd(shell: Shell, call: CommandCall) -> Result:
    """Change directory, and keep the old one."""
    shell.stack.append(shell.files.cwd)
    _, status = cd(shell, call)
    return LineStream([UnknownLines(None)]), status


def popd(shell: Shell, call: CommandCall) -> Result:
    """Go back to the directory kept last."""
    shell.files.cwd = shell.stack.pop() if shell.stack else None
    return LineStream([UnknownLines(None)]), 0


def leave(shell: Shell, call: CommandCall) -> Result:
    """End the shell (exit)."""
    raise ShellExit(LineStream())


def evaluate(shell: Shell, call: CommandCall) -> Result:
    """Run the arguments as a script (eval)."""
    shell.budget.make(sum(map(len, call.args)), 1)
    return shell.source(" ".join(call.args), call.stdin)


def read(shell: Shell, call: CommandCall) -> Result:
    """Put a line of standard input into variables; which, nobody can tell."""
    for name in call.args:
        if name.isidentifier():
            shell.variables[name] = UNKNOWN
    return LineStream(), None


_MOST_FILES = 3000


def rm(call: CommandCall) -> Result:
    """Files and all below directories are gone."""
    for name in call.args:
        path = None if name.startswith("-") else call.files.resolve(name)
        for below in (call.files.below(path) if call.files.tree is not None else [path]) if path else []:
            call.files.written[below] = None
            call.files.edits[below] = "gone"
    return LineStream(), 0 if any(arg.startswith("-") and "f" in arg for arg in call.args) else None


def copy(call: CommandCall) -> Result:
    """cp, mv: files to one place are followed; else what was there, or is no longer, is unknown."""
    files, moves = call.files, call.name == "mv"
    names = parse_options(call.args, "tS").rest
    target = files.resolve(names[-1]) if len(names) > 1 else None
    origins = {name: path for name in names[:-1] if (path := files.resolve(name)) and files.is_file(path) is not False}
    if target is not None and origins.keys() == set(names[:-1]):
        into = len(origins) > 1 or names[-1].endswith("/") or files.is_dir(target)
        for name, origin in origins.items():
            goal = f"{names[-1].rstrip('/')}/{name.rsplit('/', 1)[-1]}" if into else names[-1]
            files.write(goal, files.read(origin, name))
            if moves:
                files.write(name, None)
        return LineStream(), 0
    for name in names if moves else names[-1:]:
        path = files.resolve(name)
        for below in files.below(path)[:_MOST_FILES] if path is not None else []:
            files.written[below] = LineStream([UnknownLines(below)])
    return LineStream(), None


def touch(call: CommandCall) -> Result:
    """A file that was not there is made; one that was keeps its text."""
    given = parse_options(call.args, "drt", "date reference time")
    made = not any(arg in ("-c", "--no-create") for arg in call.args)
    for name in given.rest if made else []:
        path = call.files.resolve(name)
        if path and path not in call.files.written and call.files.is_file(path) is not True:
            call.files.edits[path] = "touched"
            if call.files.tree is not None:
                call.files.written[path] = LineStream()
    return LineStream(), 0


def _patch(call: CommandCall) -> Result:
    """patch, apply_patch: what the patch on standard input or in an argument names is changed."""
    git_commands.patched(call)
    return LineStream([UnknownLines(None)]), None


_QUIET = {
    "stat", "file", "md5sum", "sha1sum", "sha256sum", "cksum", "du", "df", "which", "type", "basename", "dirname", "realpath", "readlink",  # noqa: E501
    "id", "hostname",
}  # fmt: skip
_QUIET_AND_WELL = {"pwd", "date", "whoami", "uname", "seq"}
_INLINE = {"-c", "-e", "-ne", "-pe", "-n", "-E", "-p", "-"}
_LETTERS = re.compile(r"-([a-zA-Z0-9]*+)\S*")
_NAME = re.compile(r"[\w@+./~-]*[\w-]\.\w+|[\w@+~-]+(?:/[\w@+.~-]+)+")
_RUN = re.compile(r"[\w@+./~-]+")
#: A run of letters without a blank that is longer is no name of a file.
_LONGEST_RUN = 400
_OPENS = re.compile(r"open\(|read_text|readlines|readFile|linecache|getline|-[np]")
_MOST_NAMES = 200


def interpreter(call: CommandCall) -> Result:
    """python, node and the like: files their program names may be read."""
    call.files.budget.make(sum(map(len, call.args)), 1)
    text = " ".join(call.args)
    inline = any(arg in _INLINE for arg in call.args)
    if call.stdin is not None and (not call.args or call.args[-1] == "-"):
        inline = True
        text += "\n".join(part.text or "" for part in call.stdin.parts if isinstance(part, FileLine))
    call.files.budget.step(16 * len(text))
    named = named_files(call.files, text) if inline else []
    flowing = call.stdin.unknown_selection().parts if call.stdin is not None else []
    return LineStream([*named, *flowing, UnknownLines(None)], ordered=False), None


def perl(call: CommandCall) -> Result:
    """perl: with `-i` it changes the files in place."""
    if not any((found := _LETTERS.fullmatch(arg)) and "i" in found[1] for arg in call.args):
        return interpreter(call)
    for arg in call.args:
        path = call.files.resolve(arg)
        if (
            path
            and not arg.startswith("-")
            and call.files.is_file(path) is not False
            and (call.files.tree is not None or _NAME.fullmatch(arg))
        ):
            call.files.write(arg, LineStream([UnknownLines(path)]), in_place=True)
    return LineStream(), None


def other(call: CommandCall) -> Result:
    """Any other command: files it is given may be shown."""
    if call.name in _QUIET_AND_WELL:
        return LineStream([UnknownLines(None)]), 0
    if call.name in _QUIET:
        return LineStream([UnknownLines(None)]), None
    if re.fullmatch(r"python[\d.]*", call.name):
        return interpreter(call)
    paths = [path for arg in call.args if (path := call.files.resolve(arg)) and call.files.is_file(path)]
    return LineStream([*(UnknownLines(path, weak=True) for path in paths), UnknownLines(None)], ordered=False), None


def named_files(files: Files, text: str) -> list[UnknownLines]:
    """Files of the repository that a text names."""
    names: list[str] = []
    for run in _RUN.finditer(text):
        if run.end() - run.start() <= _LONGEST_RUN and not {".", "/"}.isdisjoint(run[0]):
            names += _NAME.findall(text, run.start(), run.end())
        if len(names) >= _MOST_NAMES:
            break
    names = names[:_MOST_NAMES]
    paths = dict.fromkeys(path for name in names if (path := files.resolve(name)) and files.is_file(path))
    opens = _OPENS.search(text) is not None
    return [UnknownLines(path, weak=not opens) for path in paths]


def bash(shell: Shell, call: CommandCall) -> Result:
    """bash, sh, zsh, dash: a script in an argument or on standard input is run, one in a file is not looked at."""
    args = list(call.args)
    while args and args[0].startswith("-"):
        flag = args.pop(0)
        if "c" in flag and not flag.startswith("--") and args:
            give_up_if(UNKNOWN in args[0])
            return shell.apart(partial(shell.source, args[0], call.stdin))
    if not args and call.stdin is not None:
        shell.budget.make(sum(len(part.text or "") + 1 for part in call.stdin.parts if isinstance(part, FileLine)))
        return shell.apart(partial(shell.source, rendered(call.stdin)))
    return LineStream([UnknownLines(None)]), None


def env(shell: Shell, call: CommandCall) -> Result:
    """env: the command behind the assignments."""
    at = 0
    while at < len(call.args) and (re.match(r"[A-Za-z_]\w*=", call.args[at]) or call.args[at].startswith("-")):
        give_up_if(call.args[at] in ("-C", "-S"))
        at += 2 if call.args[at] == "-u" else 1
    args = call.args[at:]
    return shell.call(args, call.stdin) if args else (LineStream([UnknownLines(None)]), 0)


#: Commands in front of another one: options of theirs that have a value, and words that come before the other.
_IN_FRONT = {
    "timeout": ("ks", "kill-after signal", 1),
    "sudo": ("ugDhpCrt", "user group", 0),
    **dict.fromkeys(("nice", "ionice", "stdbuf"), ("noei", "adjustment", 0)),
}


def in_front(shell: Shell, call: CommandCall) -> Result:
    """timeout, sudo, nice, command and the like: the command behind their options; time prints a few lines more."""
    valued, longs, words = _IN_FRONT.get(call.name, ("", "", 0))
    given = parse_options(call.args, valued, longs, stop_at_first=True)
    if call.name not in _IN_FRONT and given.has("v", "V"):
        out, status = LineStream([UnknownLines(None)]), None
    else:
        out, status = shell.call(given.rest[words:], call.stdin)
    if call.name == "time":
        out = LineStream([*out.parts, UnknownLines(None)], out.ordered)
    return out, status


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
        give_up_if(moved is not None and shell.files.cd(moved) != 0)
        return git_commands.git(CommandCall("git " + args[0], args[1:], call.stdin, shell.files))

    return shell.apart(run)


def xargs(shell: Shell, call: CommandCall) -> Result:
    """xargs: the command once for every group of items on standard input."""
    given = parse_options(call.args, "aEIdLnPs", "max-args max-procs replace delimiter arg-file", stop_at_first=True)
    give_up_if(given.has("a", "E", "L", "s", "arg-file", "d", "delimiter"))
    stdin = call.stdin or LineStream()
    shell.budget.make(8 * sum(len(part.text or "") for part in stdin.parts if isinstance(part, FileLine)))
    wrapped = given.rest or ["echo"]
    holder = given.get("I", "replace")
    items = _items(stdin, zero=given.has("0", "null"), by_line=holder is not None)
    each = given.number("n", "max-args")
    size = 1 if holder is not None else each or max(len(items), 1)
    give_up_if(len(items) // size > MOST_ROUNDS)
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
    give_up_if(any(re.search(r"[\"'\\]", line) for line in lines))
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
    give_up_if(len(expression.actions) > 1 or len(entries) > MOST_ROUNDS)
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


SIMPLE: dict[str, Callable[[CommandCall], Result]] = _by_name(
    [
        (text_commands.cat, "cat less more"),
        (text_commands.bat, "bat batcat"),
        (text_commands.ends, "head tail"),
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
        (git_commands.diff, "diff colordiff"),
        (git_commands.aside, "sdiff join vimdiff nvimdiff wdiff icdiff delta difft"),
        (lambda call: (LineStream([UnknownLines(None)]), None), "cmp"),
        (git_commands.comm, "comm"),
        (git_commands.paste, "paste"),
        (lambda call: (LineStream(), 0), "mkdir rmdir touch chmod true : sleep set shopt umask trap clear wait"),
        (lambda call: (LineStream(), 1), "false"),
        (search.grep, "grep egrep fgrep rgrep"),
        (search.rg, "rg"),
        (finding.ls, "ls"),
        (finding.listing, "tree fd fdfind"),
        (rm, "rm"),
        (copy, "cp mv"),
        (touch, "touch"),
        (_patch, "patch apply_patch"),
        (interpreter, "python python2 python3 node deno ruby php"),
        (perl, "perl"),
    ]
)
#: Commands that change the shell, or have it run others.
OF_SHELL: dict[str, Callable[[Shell, CommandCall], Result]] = _by_name(
    [
        (cd, "cd"),
        (pushd, "pushd"),
        (popd, "popd"),
        (leave, "exit"),
        (evaluate, "eval"),
        (read, "read"),
        (bash, "bash sh zsh dash"),
        (env, "env"),
        (in_front, "timeout sudo nice ionice stdbuf command builtin exec nohup unbuffer time"),
        (git, "git"),
        (xargs, "xargs"),
        (find, "find"),
    ]
)
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
