"""Programs whose doings only their output tells: interpreters, and commands nobody described. What they name may have been read."""

from __future__ import annotations

import re

from context_bench.shell.call import Call, Result
from context_bench.shell.files import Files
from context_bench.shell.model import Line, Some, Stream

_QUIET = {
    "stat", "file", "md5sum", "sha1sum", "sha256sum", "cksum", "du", "df", "which", "type", "basename", "dirname", "realpath", "readlink",
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


def interpreter(call: Call) -> Result:
    """python, node and the like: files their program names may be read."""
    call.files.budget.make(sum(map(len, call.args)), 1)
    text = " ".join(call.args)
    inline = any(arg in _INLINE for arg in call.args)
    if call.stdin is not None and (not call.args or call.args[-1] == "-"):
        inline = True
        text += "\n".join(part.text or "" for part in call.stdin.parts if isinstance(part, Line))
    call.files.budget.step(16 * len(text))
    named = named_files(call.files, text) if inline else []
    flowing = call.stdin.blurred().parts if call.stdin is not None else []
    return Stream([*named, *flowing, Some(None)], ordered=False), None


def perl(call: Call) -> Result:
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
            call.files.write(arg, Stream([Some(path)]), in_place=True)
    return Stream(), None


def other(call: Call) -> Result:
    """Any other command: files it is given may be shown."""
    if call.name in _QUIET_AND_WELL:
        return Stream([Some(None)]), 0
    if call.name in _QUIET:
        return Stream([Some(None)]), None
    if re.fullmatch(r"python[\d.]*", call.name):
        return interpreter(call)
    paths = [path for arg in call.args if (path := call.files.resolve(arg)) and call.files.is_file(path)]
    return Stream([*(Some(path, weak=True) for path in paths), Some(None)], ordered=False), None


def named_files(files: Files, text: str) -> list[Some]:
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
    return [Some(path, weak=not opens) for path in paths]
