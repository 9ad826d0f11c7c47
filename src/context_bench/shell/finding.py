"""Commands that name files: ls, find, fd, git ls-files, tree."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from context_bench.shell.model import CommandCall, FileLine, LineStream, Result, Unknown, UnknownLines, parse_options
from context_bench.shell.patterns import glob

#: (the name as find prints it, its last part, is a directory, depth) → whether it fits.
Test = Callable[[str, str, bool, int], bool]


def ls(call: CommandCall) -> Result:
    """Names in directories."""
    given = parse_options(call.args, "ITw", "ignore color sort time-style format")
    names = given.rest or ["."]
    hidden = given.has("a", "A", "all", "almost-all")
    if given.has("R", "recursive", "d"):
        raise Unknown
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
        for below in call.files.below(path):
            inner = below[len(path) :].lstrip("/")
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
    out = []
    for below in call.files.below(base):
        inner = below[len(base) :].lstrip("/")
        if not given.rest or any(one.match(inner) for one in compiled):
            out.append(FileLine(below, 0, inner))
    return LineStream(out), 0


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
        self.least, self.most = 0, 10_000
        self.actions: list[tuple[str, list[str]]] = []
        self.test = self._any() if args else lambda *_: True
        if self.args:
            raise Unknown

    def _any(self) -> Test:
        tests = [self._all()]
        while self.args and self.args[0] in ("-o", "-or"):
            self.args.popleft()
            if self.actions:
                raise Unknown
            tests.append(self._all())
        if len(tests) == 1:
            return tests[0]
        if self.actions:
            raise Unknown  # an action that belongs to one branch only
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
        if not self.args:
            raise Unknown
        return self.args.popleft()

    def _one(self) -> Test:
        word = self.args.popleft()
        if word in ("!", "-not"):
            if not self.args:
                raise Unknown
            inner = self._one()
            return lambda *entry: not inner(*entry)
        if word == "(":
            inside = self._any()
            if self._value() != ")":
                raise Unknown
            return inside
        if word in ("-name", "-iname"):
            fold = word == "-iname"
            pattern = self._value()
            named = glob(pattern.lower() if fold else pattern)
            return lambda full, last, is_dir, depth: named.match(last.lower() if fold else last) is not None
        if word in ("-path", "-wholename", "-ipath"):
            fold_path = word == "-ipath"
            text = self._value()
            whole = glob(text.lower() if fold_path else text, stars_cross=True)
            return lambda full, last, is_dir, depth: whole.match(full.lower() if fold_path else full) is not None
        if word == "-type":
            kind = self._value()
            if kind not in ("f", "d"):
                raise Unknown
            return lambda full, last, is_dir, depth: is_dir == (kind == "d")
        if word in ("-maxdepth", "-mindepth"):
            depth_text = self._value()
            if not depth_text.isdigit():
                raise Unknown
            if word == "-maxdepth":
                self.most = int(depth_text[:6])
            else:
                self.least = int(depth_text[:6])
            return lambda *_: True
        if word in ("-print", "-print0"):
            self.actions.append((word[1:], []))
            return lambda *_: True
        if word in ("-exec", "-execdir"):
            return self._exec(word)
        raise Unknown

    def _exec(self, word: str) -> Test:
        command = []
        while self.args and self.args[0] not in (";", "+"):
            command.append(self.args.popleft())
        if not self.args or not command or word == "-execdir":
            raise Unknown
        each = self.args.popleft() == ";"
        self.actions.append(("each" if each else "together", command))
        return lambda *_: True

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
            for below in call.files.below(path):
                if below == path:
                    continue
                parts = below[len(path) :].lstrip("/").split("/")
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
        return self.least <= depth <= self.most and self.test(full, last, is_dir, depth)
