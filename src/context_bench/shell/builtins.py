"""The shell's own commands, those that change files, and programs known only by their output.

Own commands change the shell: its folder, its variables, whether it goes on. Others are rm, cp, mv, touch, patch.
Interpreters and commands nobody described may have read the files that they name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from context_bench.shell.call import CommandCall, Result, parse_options
from context_bench.shell.files import Files
from context_bench.shell.git_commands import patched
from context_bench.shell.model import UNKNOWN, FileLine, LineStream, ShellExit, UnknownLines

if TYPE_CHECKING:
    from context_bench.shell.running import Shell


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
    """cp, mv: one file to one place is followed; else what was there, or is no longer, is unknown."""
    files, moves = call.files, call.name == "mv"
    names = parse_options(call.args, "tS").rest
    if len(names) == 2:
        name, place = names
        origin, target = files.resolve(name), files.resolve(place)
        if origin is not None and target is not None and files.is_file(origin) is not False:
            goal = f"{place.rstrip('/')}/{name.rsplit('/', 1)[-1]}" if files.is_dir(target) else place
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


def patch(call: CommandCall) -> Result:
    """patch, apply_patch: what the patch on standard input or in an argument names is changed."""
    patched(call)
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
    flowing = call.stdin.blurred().parts if call.stdin is not None else []
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
