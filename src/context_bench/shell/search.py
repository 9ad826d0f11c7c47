# ruff: noqa: E501 - tables of names
"""grep, ripgrep and git grep, run on the repository's own lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from context_bench.shell.call import CommandCall, Options, Result, parse_options
from context_bench.shell.model import FileLine, LineStream, Part, Unknown, UnknownLines
from context_bench.shell.patterns import Pattern, glob, regex

_GREP_LONG = "regexp file max-count after-context before-context context include exclude exclude-dir color colour binary-files devices directories label"
_RG_LONG = (
    "regexp file max-count after-context before-context context glob iglob type type-not max-depth color colors sort sortr max-columns threads "
    "encoding engine max-filesize pre replace ignore-file path-separator context-separator"
)
_GREP_KNOWN = set("nHhrRislLcovwxFEGPAaBCmqeITZ") | {
    "line-number", "with-filename", "no-filename", "recursive", "ignore-case", "no-messages", "files-with-matches", "files-without-match", "count",
    "only-matching", "invert-match", "word-regexp", "line-regexp", "fixed-strings", "extended-regexp", "basic-regexp", "perl-regexp",
    "after-context", "before-context", "context", "max-count", "quiet", "silent", "regexp", "include", "exclude", "exclude-dir", "color", "colour",
    "text", "binary-files", "dereference-recursive", "line-buffered",
}  # fmt: skip
_RG_KNOWN = set("nNHIislcovwxFPAaBCmqegtTSuUp.") - {"U", "p"} | {
    "line-number", "no-line-number", "with-filename", "no-filename", "ignore-case", "smart-case", "case-sensitive", "files-with-matches",
    "files-without-match", "count", "only-matching", "invert-match", "word-regexp", "line-regexp", "fixed-strings", "pcre2", "after-context",
    "before-context", "context", "max-count", "quiet", "regexp", "glob", "type", "type-not", "hidden", "no-ignore", "files", "color", "no-heading",
    "text", "sort", "sortr", "max-depth", "no-messages", "unrestricted", "max-columns", "threads", "no-config", "trim", "column",
}  # fmt: skip
_TYPES = {
    "py": ("*.py", "*.pyi"), "python": ("*.py", "*.pyi"), "js": ("*.js", "*.jsx", "*.cjs", "*.mjs", "*.vue"), "ts": ("*.ts", "*.tsx", "*.cts", "*.mts"),
    "go": ("*.go",), "rust": ("*.rs",), "java": ("*.java", "*.jsp", "*.jspx", "*.properties"), "c": ("*.c", "*.h", "*.[chH].in", "*.cats"),
    "json": ("*.json", "*.sarif"), "yaml": ("*.yaml", "*.yml"), "toml": ("*.toml", "Cargo.lock"), "css": ("*.css", "*.scss"), "html": ("*.htm", "*.html", "*.ejs"),
}  # fmt: skip
_MOST_ALTERNATIVES = 200


@dataclass
class LineSearch:
    """Patterns of a search, and the form of its output."""

    pattern: Pattern
    inverted: bool = False
    before: int = 0
    after: int = 0
    most: int | None = None
    numbers: bool = False
    names: bool = False
    show: str = "lines"
    """"lines", "files", "missing" (names of files without a match), "count", "only" (the match alone), "nothing"."""

    def hits(self, texts: list[str], matches: Callable[[str], object]) -> list[int]:
        found: list[int] = []
        for at, text in enumerate(texts):
            if self.most is not None and len(found) >= self.most:
                break
            if bool(matches(text.removesuffix("\r") if text.endswith("\r") else text)) != self.inverted:
                found.append(at)
        return found

    def _around(self, hits: list[int], length: int) -> Iterator[int]:
        """The places of the hits and of the lines around them, each once, in order."""
        following = 0
        for hit in hits:
            until = min(hit + self.after + 1, length)
            yield from range(max(hit - self.before, following), until)
            following = max(following, until)

    def printed(self, name: str, lines: list[FileLine], hits: list[int]) -> list[Part]:
        """The lines a tool prints for one file."""
        if self.show == "count":
            return [FileLine(None, 0, f"{name}:{len(hits)}" if self.names else str(len(hits)))]
        if self.show in ("files", "missing", "nothing"):
            return []
        out: list[Part] = []
        matched = set(hits)
        last = -1
        for at in self._around(hits, len(lines)):
            if last >= 0 and at > last + 1 and (self.before or self.after):
                out.append(FileLine(None, 0, "--"))
            last = at
            line = lines[at]
            mark = ":" if at in matched else "-"
            prefix = (name + mark if self.names else "") + (f"{at + 1}{mark}" if self.numbers else "")
            if self.show == "only" and line.no:
                out.append(UnknownLines(line.path))
            else:
                out.append(line._replace(text=prefix + (line.text or ""), eol=True))
        return out


def grep(call: CommandCall) -> Result:
    """Lines that match (grep and its kin)."""
    args = [re.sub(r"^-(\d+)$", r"-C\1", arg) for arg in call.args]
    given = parse_options(args, "ABCmefdD", _GREP_LONG)
    names = list(given.rest)
    patterns = given.values("e", "regexp")
    if not patterns and not given.has("f", "file"):
        if not names:
            return LineStream(), 2
        patterns = [names.pop(0)]
    recursive = given.has("r", "R", "recursive", "dereference-recursive") or call.name == "rgrep"
    if recursive and not names:
        names = ["."]
    wanted = _wanted(call, names, given, recursive)
    if set(given.given) - _GREP_KNOWN:
        return blurred(wanted, call)
    kind = (
        "fixed"
        if given.has("F", "fixed-strings") or call.name == "fgrep"
        else "extended"
        if given.has("E", "extended-regexp") or call.name == "egrep"
        else "perl"
        if given.has("P", "perl-regexp")
        else "basic"
    )
    named = (len(names) > 1 or recursive or given.has("H", "with-filename")) and not given.has("h", "no-filename")
    return searched(
        call,
        given,
        patterns,
        kind,
        wanted,
        named,
        given.has("n", "line-number"),
        bool(recursive),
        given.has("i", "ignore-case"),
    )


def _wanted(call: CommandCall, names: list[str], given: Options, recursive: bool) -> list[tuple[str, str | None]]:
    """(how the tool names it, path in the repository) of the files to look at; path `None`: standard input or a pipe."""
    included = [glob(one) for one in given.values("include")]
    excluded = [glob(one) for one in given.values("exclude")]
    no_dirs = [glob(one.rstrip("/")) for one in given.values("exclude-dir")]
    found: list[tuple[str, str | None]] = []
    for name in names:
        path = None if name in call.files.pipes or name == "-" else call.files.resolve(name)
        if path is None:
            found.append((name, None))
            continue
        if call.files.is_dir(path) and path not in call.files.written:
            if not recursive:
                continue
            for below in call.files.below(path):
                inner = below[len(path) :].lstrip("/").split("/")
                if included and not any(one.match(inner[-1]) for one in included):
                    continue
                if any(one.match(inner[-1]) for one in excluded) or any(
                    one.match(part) for one in no_dirs for part in inner[:-1]
                ):
                    continue
                found.append((call.files.spelled(name, path, below), below))
        else:
            found.append((name, path))
    return found


def blurred(wanted: list[tuple[str, str | None]], call: CommandCall) -> Result:
    """An unknown selection; a whole tree that was looked through is not a list of files that were read."""
    parts: list[Part] = [
        UnknownLines(path, weak=len(wanted) > 1)
        for _, path in wanted[:500]
        if path is not None and call.files.is_file(path) is not False
    ]
    if not wanted and call.stdin is not None:
        return call.stdin.blurred(), None
    return LineStream([*parts, UnknownLines(None)]), None


def searched(
    call: CommandCall,
    given: Options,
    patterns: list[str],
    kind: str,
    wanted: list[tuple[str, str | None]],
    named: bool,
    numbers: bool,
    many: bool,
    ignore: bool,
) -> Result:
    """Run the search, or say that its result is not known."""
    try:
        search = _search(given, patterns, kind, named, numbers, ignore)
        return _run(call, search, wanted, many)
    except Unknown:
        if given.has("l", "files-with-matches", "L", "files-without-match", "c", "count", "q", "quiet", "silent"):
            return LineStream([UnknownLines(None)]), None
        return blurred(wanted, call)


def _search(given: Options, patterns: list[str], kind: str, named: bool, numbers: bool, ignore: bool) -> LineSearch:
    if given.has("f", "file", "z"):
        raise Unknown
    around = given.number("C", "context") or 0
    before, after = given.number("B", "before-context"), given.number("A", "after-context")
    joined = (
        "\n".join(patterns)
        if kind != "perl"
        else "|".join(f"(?:{one})" for one in patterns)
        if len(patterns) > 1
        else patterns[0]
    )
    search = LineSearch(
        regex(joined, kind, ignore, given.has("w", "word-regexp"), given.has("x", "line-regexp")),
        inverted=given.has("v", "invert-match"),
        before=around if before is None else before,
        after=around if after is None else after,
        most=given.number("m", "max-count"),
        numbers=numbers,
        names=named,
    )
    for show, *flags in (
        ("nothing", "q", "quiet", "silent"),
        ("files", "l", "files-with-matches"),
        ("missing", "L", "files-without-match"),
        ("count", "c", "count"),
        ("only", "o", "only-matching"),
    ):
        if given.has(*flags):
            search.show = show
            break
    return search


def _sources(
    call: CommandCall, wanted: list[tuple[str, str | None]]
) -> Iterator[tuple[str, str | None, LineStream | None]]:
    if not wanted:
        yield "(standard input)", None, call.stdin or LineStream()
    for name, path in wanted:
        if path is None:
            yield name, None, (call.stdin or LineStream()) if name == "-" else call.files.open(name)
        else:
            yield name, path, call.files.read(path, name)


def _run(call: CommandCall, search: LineSearch, wanted: list[tuple[str, str | None]], many: bool) -> Result:
    out = LineStream(ordered=not (many and len(wanted) > 1))
    found = missing = shown = False
    for name, path, stream in _sources(call, wanted):
        if stream is None:
            missing = True
            continue
        lines = stream.texts()
        if not stream.ordered and (search.before or search.after or search.most is not None):
            raise Unknown
        texts = [line.text or "" for line in lines]
        together = "".join(texts)
        if "\0" in together:
            continue
        hits = search.hits(texts, search.pattern.prepare(texts, len(together), call.files.budget))
        if hits and search.show in ("lines", "only"):
            shown_most = min(len(lines), len(hits) * (1 + search.before + search.after))
            call.files.budget.make(sum(len(lines[at].text or "") for at in hits) + shown_most * len(name), shown_most)
        if (search.show == "files" and hits) or (search.show == "missing" and not hits):
            out.parts.append(FileLine(path, 0, name))
        found = found or bool(hits)
        printed = search.printed(name, lines, hits)
        if printed and shown and (search.before or search.after) and search.show == "lines":
            out.parts.append(FileLine(None, 0, "--"))
        shown = shown or bool(printed)
        out.parts += printed
        out.ordered = out.ordered and stream.ordered
    return out, 2 if missing else 0 if found else 1


def rg(call: CommandCall) -> Result:
    """Lines that match (ripgrep)."""
    given = parse_options(call.args, "ABCmefgtTEjMrd", _RG_LONG)
    names = list(given.rest)
    listing = given.has("files")
    patterns = given.values("e", "regexp")
    if not patterns and not listing:
        if not names:
            return LineStream(), 2
        patterns = [names.pop(0)]
    from_pipe = not names and call.stdin is not None and not listing
    keep = _rg_filter(given)
    bases = names or ([] if from_pipe else ["."])
    wanted: list[tuple[str, str | None]] = []
    for name in bases:
        path = None if name in call.files.pipes or name == "-" else call.files.resolve(name)
        if path is not None and call.files.is_dir(path):
            for below in call.files.below(path):
                inner = below[len(path) :].lstrip("/")
                if keep(inner):
                    wanted.append((call.files.spelled(name, path, below) if names else inner, below))
        else:
            wanted.append((name, path))
    many = any((path := call.files.resolve(name)) is not None and call.files.is_dir(path) for name in bases)
    if listing:
        return LineStream([FileLine(path, 0, name) for name, path in wanted if path], ordered=False), 0
    if set(given.given) - _RG_KNOWN or given.has("trim", "column", "max-columns", "M"):
        return blurred(wanted, call)
    kind = "fixed" if given.has("F", "fixed-strings") else "perl"
    ignore = given.has("i", "ignore-case") or (
        given.has("S", "smart-case") and not any(re.search(r"(?<!\\)[A-Z]", one) for one in patterns)
    )
    named = (many or len(wanted) > 1 or given.has("H", "with-filename")) and not given.has("I", "no-filename")
    return searched(
        call,
        given,
        patterns,
        kind,
        wanted,
        named,
        given.has("n", "line-number") and not given.has("N", "no-line-number"),
        many,
        ignore,
    )


def _rg_filter(given: Options) -> Callable[[str], bool]:
    """Filter for the files that ripgrep reads in a directory. Ignore files are not consulted: what is committed is
    rarely ignored.
    """
    hidden = (
        given.has("hidden", ".")
        or given.has("uu", "uuu")
        or sum(name in ("u", "unrestricted") for name, _ in given.every) > 1
    )
    wants = [one for one in given.values("g", "glob") if not one.startswith("!")]
    bans = [one[1:] for one in given.values("g", "glob") if one.startswith("!")]
    types = given.values("t", "type")
    if any(name not in _TYPES for name in [*types, *given.values("T", "type-not")]) or given.has(
        "iglob", "max-depth", "d"
    ):
        raise Unknown
    for name in types:
        wants_of_type = _TYPES[name]
        wants += wants_of_type
    bans += [one for name in given.values("T", "type-not") for one in _TYPES[name]]

    wants = [one for written in wants for one in _alternatives(written)]
    bans = [one for written in bans for one in _alternatives(written)]

    def fits(path: str, pattern: str) -> bool:
        anchored = "/" in pattern.rstrip("/")
        compiled = glob(pattern.strip("/"))
        parts = path.split("/")
        ends = range(1, len(parts) + 1)
        if anchored:
            return any(compiled.match("/".join(parts[:end])) for end in ends)
        return any(compiled.match(part) for part in parts)

    def keep(path: str) -> bool:
        if not hidden and any(part.startswith(".") for part in path.split("/")):
            return False
        return (not wants or any(fits(path, one) for one in wants)) and not any(fits(path, one) for one in bans)

    return keep


def _alternatives(pattern: str) -> list[str]:
    """The patterns that one with `{a,b}` stands for; `Unknown` for more than anyone looks at."""
    made: list[str] = []
    left = [pattern]
    while left:
        one = left.pop()
        found = re.search(r"\{([^{}]*)\}", one)
        if found is None:
            made.append(one)
        else:
            left += [one[: found.start()] + choice + one[found.end() :] for choice in found[1].split(",")]
        if len(made) + len(left) > _MOST_ALTERNATIVES:
            raise Unknown
    return made


def git_grep(call: CommandCall) -> Result:
    """Matches of git grep in committed files below the working directory."""
    args = [re.sub(r"^-(\d+)$", r"-C\1", arg) for arg in call.args]
    given = parse_options(args, "ABCmefO", _GREP_LONG)
    names = list(given.rest)
    patterns = given.values("e", "regexp")
    if not patterns:
        if not names:
            return LineStream(), 128
        patterns = [names.pop(0)]
    if "--" in args:
        after = args[args.index("--") + 1 :]
        if len(names) > len(after):
            raise Unknown  # a revision
    elif any(
        call.files.resolve(name) is None
        or (not call.files.known(call.files.resolve(name) or "") and not re.search(r"[*?\[]", name))
        for name in names
    ):
        raise Unknown
    base = call.files.resolve(".")
    if base is None:
        raise Unknown
    wanted: list[tuple[str, str | None]] = []
    for below in call.files.below(base):
        inner = below[len(base) :].lstrip("/")
        if not names or any(_pathspec(call, name, base, below, inner) for name in names):
            wanted.append((inner, below))
    if set(given.given) - _GREP_KNOWN:
        return blurred(wanted, call)
    kind = (
        "fixed"
        if given.has("F", "fixed-strings")
        else "extended"
        if given.has("E", "extended-regexp")
        else "perl"
        if given.has("P", "perl-regexp")
        else "basic"
    )
    return searched(
        call,
        given,
        patterns,
        kind,
        wanted,
        not given.has("h", "no-filename"),
        given.has("n", "line-number"),
        False,
        given.has("i", "ignore-case"),
    )


def _pathspec(call: CommandCall, name: str, base: str, below: str, inner: str) -> bool:
    if name.startswith(":"):
        raise Unknown
    path = call.files.resolve(name)
    if path is not None and (path == "" or below == path or below.startswith(path + "/")):
        return True
    return bool(re.search(r"[*?\[]", name)) and glob(name, stars_cross=True).match(inner) is not None
