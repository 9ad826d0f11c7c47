"""Commands that change files: rm, cp, mv, touch, patch."""

from __future__ import annotations

from context_bench.shell import options
from context_bench.shell.call import Call, Result
from context_bench.shell.gitting import patched
from context_bench.shell.model import Some, Stream

_MOST_FILES = 3000


def rm(call: Call) -> Result:
    """Files and all below directories are gone."""
    for name in call.args:
        path = None if name.startswith("-") else call.files.resolve(name)
        for below in (call.files.below(path) if call.files.tree is not None else [path]) if path else []:
            call.files.written[below] = None
            call.files.edits[below] = "gone"
    return Stream(), 0 if any(arg.startswith("-") and "f" in arg for arg in call.args) else None


def copy(call: Call) -> Result:
    """cp, mv: one file to one place is followed; else what was there, or is no longer, is unknown."""
    files, moves = call.files, call.name == "mv"
    names = options.parse(call.args, "tS").rest
    if len(names) == 2:
        name, place = names
        origin, target = files.resolve(name), files.resolve(place)
        if origin is not None and target is not None and files.is_file(origin) is not False:
            goal = f"{place.rstrip('/')}/{name.rsplit('/', 1)[-1]}" if files.is_dir(target) else place
            files.write(goal, files.read(origin, name))
            if moves:
                files.write(name, None)
            return Stream(), 0
    for name in names if moves else names[-1:]:
        path = files.resolve(name)
        for below in files.below(path)[:_MOST_FILES] if path is not None else []:
            files.written[below] = Stream([Some(below)])
    return Stream(), None


def touch(call: Call) -> Result:
    """A file that was not there is made; one that was keeps its text."""
    given = options.parse(call.args, "drt", "date reference time")
    made = not any(arg in ("-c", "--no-create") for arg in call.args)
    for name in given.rest if made else []:
        path = call.files.resolve(name)
        if path and path not in call.files.written and call.files.is_file(path) is not True:
            call.files.edits[path] = "touched"
            if call.files.tree is not None:
                call.files.written[path] = Stream()
    return Stream(), 0


def patch(call: Call) -> Result:
    """patch, apply_patch: what the patch on standard input or in an argument names is changed."""
    patched(call)
    return Stream([Some(None)]), None
