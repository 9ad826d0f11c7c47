"""Commands that name files: ls, find, fd, git ls-files, tree."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from context_bench.shell.model import (
    CommandCall,
    FileLine,
    LineStream,
    Result,
    Unknown,
    UnknownLines,
    give_up_if,
    parse_options,
)
from context_bench.shell.patterns import glob

#: (the name as find prints it, its last part, is a directory, depth) → whether it fits.
Test = Callable[[str, str, bool, int], bool]
#: Tests of a name by a pattern: whether it is the whole path, and whether capitals count as small letters.
_PATTERNS = {
    "-name": (False, False),
    "-iname": (False, True),
    "-path": (True, False),
    "-wholename": (True, False),
    "-ipath": (True, True),
}


def ls(call: CommandCall) -> Result:
    """Names in directories."""
    given = parse_options(call.args, "ITw", "ignore color sort time-style format")
    names = given.rest or ["."]
    hidden = given.has("a", "A", "all", "almost-all")
    give_up_if(given.has("R", "recursive", "d"))
    out: list[FileLine] = []
    status = 0
    dirs: list[tuple[str, str]] = []
    for name in names:
        path = call.files.resolve(name)
        if path is None or call.files.tree is None:
            return LineStream([UnknownLines(None)]), None
        if call.files.is_dir(path):
            dirs.append((name, path))
        elif call.files.is_file(path):
            out.append(FileLine(path, 0, name))
        else:
            status = 2
    for at, (name, path) in enumerate(dirs):
        if len(names) > 1:
            out += [FileLine(None, 0, "")] * bool(at or out) + [FileLine(None, 0, f"{name}:")]
        seen: dict[str, str | None] = {}
        for inner, below in call.files.inside(path):
            first = inner.split("/")[0]
            if hidden or not first.startswith("."):
                seen.setdefault(first, below if "/" not in inner else None)
        out += [FileLine(file, 0, first) for first, file in seen.items()]
    # what is not committed is listed too, and every locale sorts its own way
    stream = LineStream(out, ordered=not dirs)
    if given.has("l", "s", "h", "i", "F", "g", "o"):
        stream = LineStream([FileLine(line.path, 0, None) for line in out], ordered=False)
    return stream, status


def listing(call: CommandCall) -> Result:
    """tree, fd and others whose filter is not followed."""
    return LineStream([UnknownLines(None)]), None


def ls_files(call: CommandCall) -> Result:
    """Names of what is committed (git ls-files)."""
    given = parse_options(call.args, "xX", "exclude exclude-from")
    base = call.files.resolve(".")
    if given.given or base is None or call.files.tree is None:
        return LineStream([UnknownLines(None)]), None
    compiled = []
    for name in given.rest:
        path = call.files.resolve(name)
        if re.search(r"[*?\[]", name):
            compiled.append(glob(name, stars_cross=True))
        elif path is not None:
            inner = path[len(base) :].lstrip("/")
            compiled.append(re.compile(re.escape(inner) + r"(?:/.*)?\Z" if inner else ".*"))
    names = call.files.inside(base)
    fits = [pair for pair in names if not given.rest or any(one.match(pair[0]) for one in compiled)]
    return LineStream([FileLine(below, 0, inner) for inner, below in fits]), 0


class Find:
    """A find expression: where to look, which entries, and what to do with each."""

    def __init__(self, call: CommandCall) -> None:
        args = deque(call.args)
        while args and args[0] in ("-L", "-H", "-P"):
            args.popleft()
        self.bases: list[str] = []
        while args and not args[0].startswith("-") and args[0] not in ("(", "!"):
            self.bases.append(args.popleft())
        self.cost = len(args) + 1
        self.bases = self.bases or ["."]
        self.args = args
        self.depths = {"-mindepth": 0, "-maxdepth": 10_000}
        self.actions: list[tuple[str, list[str]]] = []
        self.test = self._any() if args else lambda *_: True
        give_up_if(self.args)

    def _any(self) -> Test:
        tests = [self._all()]
        while self.args and self.args[0] in ("-o", "-or"):
            self.args.popleft()
            give_up_if(self.actions)
            tests.append(self._all())
        if len(tests) == 1:
            return tests[0]
        give_up_if(self.actions)  # an action that belongs to one branch only
        return lambda *entry: any(test(*entry) for test in tests)

    def _all(self) -> Test:
        tests: list[Test] = []
        while self.args and self.args[0] not in ("-o", "-or", ")"):
            if self.args[0] in ("-a", "-and"):
                self.args.popleft()
                continue
            tests.append(self._one())
        return lambda *entry: all(test(*entry) for test in tests)

    def _value(self) -> str:
        give_up_if(not self.args)
        return self.args.popleft()

    def _one(self) -> Test:
        word = self.args.popleft()
        if word in ("!", "-not"):
            give_up_if(not self.args)
            inner = self._one()
            return lambda *entry: not inner(*entry)
        if word == "(":
            inside = self._any()
            give_up_if(self._value() != ")")
            return inside
        if word in _PATTERNS:
            by_path, fold = _PATTERNS[word]
            text = self._value()
            fits = glob(text.lower() if fold else text, stars_cross=by_path).match

            def named(full: str, last: str, is_dir: bool, depth: int) -> bool:
                name = full if by_path else last
                return fits(name.lower() if fold else name) is not None

            return named
        if word == "-type":
            kind = self._value()
            give_up_if(kind not in ("f", "d"))
            return lambda full, last, is_dir, depth: is_dir == (kind == "d")
        if word in ("-exec", "-execdir"):
            self._exec(word)
        elif word in ("-maxdepth", "-mindepth"):
            depth = self._value()
            give_up_if(not depth.isdigit())
            self.depths[word] = int(depth[:6])
        elif word in ("-print", "-print0"):
            self.actions.append((word[1:], []))
        else:
            raise Unknown
        return lambda *_: True

    def _exec(self, word: str) -> None:
        command = []
        while self.args and self.args[0] not in (";", "+"):
            command.append(self.args.popleft())
        give_up_if(not self.args or not command or word == "-execdir")
        self.actions.append(("each" if self.args.popleft() == ";" else "together", command))

    def entries(self, call: CommandCall) -> list[tuple[str, str | None]]:
        """(name as printed, path of a file or `None` for a directory) of all that fit."""
        found: list[tuple[str, str | None]] = []
        for base in self.bases:
            path = call.files.resolve(base)
            if path is None or call.files.tree is None:
                raise Unknown
            seen: set[str] = set()
            if self._fits(base, base.rstrip("/").rsplit("/", 1)[-1], bool(call.files.is_dir(path)), 0):
                found.append((base, None if call.files.is_dir(path) else path))
            for inside, below in call.files.inside(path):
                if below == path:
                    continue
                parts = inside.split("/")
                call.files.budget.look(self.cost * len(parts))
                for depth in range(1, len(parts) + 1):
                    inner = "/".join(parts[:depth])
                    if inner in seen:
                        continue
                    seen.add(inner)
                    full = base.rstrip("/") + "/" + inner
                    is_dir = depth < len(parts)
                    if self._fits(full, parts[depth - 1], is_dir, depth):
                        found.append((full, None if is_dir else below))
        return found

    def _fits(self, full: str, last: str, is_dir: bool, depth: int) -> bool:
        return self.depths["-mindepth"] <= depth <= self.depths["-maxdepth"] and self.test(full, last, is_dir, depth)
