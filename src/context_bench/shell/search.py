# ruff: noqa: E501 - tables of names
"""grep, ripgrep and git grep, run on the repository's own lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from context_bench.shell.model import (
    CommandCall,
    FileLine,
    LineStream,
    ParsedOptions,
    Part,
    Result,
    Unknown,
    UnknownLines,
    give_up_if,
    parse_options,
)
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
    "text", "sort", "sortr", "max-depth", "no-messages", "unrestricted", "threads", "no-config",
}  # fmt: skip
_TYPES = {
    "py": ("*.py", "*.pyi"), "python": ("*.py", "*.pyi"), "js": ("*.js", "*.jsx", "*.cjs", "*.mjs", "*.vue"), "ts": ("*.ts", "*.tsx", "*.cts", "*.mts"),
    "go": ("*.go",), "rust": ("*.rs",), "java": ("*.java", "*.jsp", "*.jspx", "*.properties"), "c": ("*.c", "*.h", "*.[chH].in", "*.cats"),
    "json": ("*.json", "*.sarif"), "yaml": ("*.yaml", "*.yml"), "toml": ("*.toml", "Cargo.lock"), "css": ("*.css", "*.scss"), "html": ("*.htm", "*.html", "*.ejs"),
}  # fmt: skip
_MOST_ALTERNATIVES = 200
#: Forms of the output beside lines, and the options that ask for them, in the order in which they win.
_SHOWN = (
    ("nothing", "q", "quiet", "silent"),
    ("files", "l", "files-with-matches"),
    ("missing", "L", "files-without-match"),  # names of files without a match
    ("count", "c", "count"),
    ("only", "o", "only-matching"),  # the match alone
)


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
    show: str = "lines"  # or one of `_SHOWN`

    def hits(self, texts: list[str], matches: Callable[[str], object]) -> list[int]:
        """The places of the texts that match (or do not), as many as are wanted."""
        found = (at for at, hit in enumerate(map(matches, texts)) if bool(hit) != self.inverted)
        return list(islice(found, self.most))

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
    given = parse_options(_with_context(call.args), "ABCmefdD", _GREP_LONG)
    asked = _asked(given, given.has("f", "file"))
    if asked is None:
        return LineStream(), 2
    patterns, names = asked
    recursive = given.has("r", "R", "recursive", "dereference-recursive") or call.name == "rgrep"
    names = names or ["."] * recursive
    named = (len(names) > 1 or recursive or given.has("H", "with-filename")) and not given.has("h", "no-filename")
    wanted = _wanted(call, names, given, recursive)
    return _searched(call, given, patterns, wanted, _kind(call, given), named, _GREP_KNOWN, recursive)


def _with_context(args: list[str]) -> list[str]:
    """`-3` is `-C3`."""
    return [re.sub(r"^-(\d+)$", r"-C\1", arg) for arg in args]


def _asked(given: ParsedOptions, elsewhere: bool) -> tuple[list[str], list[str]] | None:
    """The patterns and the files that a search names; `None` if no pattern is there. `elsewhere`: the first word is no
    pattern.
    """
    patterns = given.values("e", "regexp")
    if patterns or elsewhere:
        return patterns, list(given.rest)
    return (given.rest[:1], given.rest[1:]) if given.rest else None


def _kind(call: CommandCall, given: ParsedOptions) -> str:
    """Dialect of the patterns."""
    kinds = (
        ("fixed", "fgrep", "F", "fixed-strings"),
        ("extended", "egrep", "E", "extended-regexp"),
        ("perl", "", "P", "perl-regexp"),
    )
    return next((kind for kind, name, *flags in kinds if call.name == name or given.has(*flags)), "basic")


def _wanted(call: CommandCall, names: list[str], given: ParsedOptions, recursive: bool) -> list[tuple[str, str | None]]:
    """(how the tool names it, path in the repository) of the files to look at; path `None`: standard input or a pipe."""
    included = [glob(one) for one in given.values("include")]
    excluded = [glob(one) for one in given.values("exclude")]
    no_dirs = [glob(one.rstrip("/")) for one in given.values("exclude-dir")]

    def fits(inner: list[str]) -> bool:
        return (
            (not included or any(one.match(inner[-1]) for one in included))
            and not any(one.match(inner[-1]) for one in excluded)
            and not any(one.match(part) for one in no_dirs for part in inner[:-1])
        )

    found: list[tuple[str, str | None]] = []
    for name in names:
        path = _path(call, name)
        if path is None or not call.files.is_dir(path) or path in call.files.written:
            found.append((name, path))
        elif recursive:
            found += [
                (call.files.spelled(name, path, below), below)
                for inner, below in call.files.inside(path)
                if fits(inner.split("/"))
            ]
    return found


def _path(call: CommandCall, name: str) -> str | None:
    """The path of a name; `None` for standard input, a pipe, or what lies outside of the repository."""
    return None if name in call.files.pipes or name == "-" else call.files.resolve(name)


def _some_of(wanted: list[tuple[str, str | None]], call: CommandCall) -> Result:
    """An unknown selection; a whole tree that was looked through is not a list of files that were read."""
    if not wanted and call.stdin is not None:
        return call.stdin.unknown_selection(), None
    parts: list[Part] = [
        UnknownLines(path, weak=len(wanted) > 1)
        for _, path in wanted[:500]
        if path is not None and call.files.is_file(path) is not False
    ]
    return LineStream([*parts, UnknownLines(None)]), None


def _searched(
    call: CommandCall,
    given: ParsedOptions,
    patterns: list[str],
    wanted: list[tuple[str, str | None]],
    kind: str,
    named: bool,
    known: set[str],
    many: bool = False,
) -> Result:
    """Run the search, or say that its result is not known. `known`: the options that are understood."""
    if set(given.given) - known:
        return _some_of(wanted, call)
    try:
        return _run(call, _search(given, patterns, kind, named), wanted, many)
    except Unknown:
        if given.has("l", "files-with-matches", "L", "files-without-match", "c", "count", "q", "quiet", "silent"):
            return LineStream([UnknownLines(None)]), None
        return _some_of(wanted, call)


def _search(given: ParsedOptions, patterns: list[str], kind: str, named: bool) -> LineSearch:
    give_up_if(given.has("f", "file", "z"))
    around = given.number("C", "context") or 0
    before, after = given.number("B", "before-context"), given.number("A", "after-context")
    joined = (
        "\n".join(patterns)
        if kind != "perl"
        else "|".join(f"(?:{one})" for one in patterns)
        if len(patterns) > 1
        else patterns[0]
    )
    smart = given.has("S", "smart-case") and not any(re.search(r"(?<!\\)[A-Z]", one) for one in patterns)
    ignore = given.has("i", "ignore-case") or smart
    shows = (show for show, *flags in _SHOWN if given.has(*flags))
    return LineSearch(
        regex(joined, kind, ignore, given.has("w", "word-regexp"), given.has("x", "line-regexp")),
        inverted=given.has("v", "invert-match"),
        before=around if before is None else before,
        after=around if after is None else after,
        most=given.number("m", "max-count"),
        numbers=given.has("n", "line-number") and not given.has("N", "no-line-number"),
        names=named,
        show=next(shows, "lines"),
    )


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
        give_up_if(not stream.ordered and (search.before or search.after or search.most is not None))
        texts = [line.text or "" for line in lines]
        together = "".join(texts)
        if "\0" in together:
            continue
        matches = search.pattern.prepare(texts, len(together), call.files.budget)
        if "\r" in together:
            texts = [text.removesuffix("\r") for text in texts]
        hits = search.hits(texts, matches)
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
    listing = given.has("files")
    asked = _asked(given, listing)
    if asked is None:
        return LineStream(), 2
    patterns, names = asked
    keep = _rg_filter(given)
    bases = names or ([] if call.stdin is not None and not listing else ["."])
    wanted: list[tuple[str, str | None]] = []
    many = False
    for name in bases:
        path = _path(call, name)
        if path is None or not call.files.is_dir(path):
            wanted.append((name, path))
            continue
        many = True
        for inner, below in call.files.inside(path):
            if keep(inner):
                wanted.append((call.files.spelled(name, path, below) if names else inner, below))
    if listing:
        return LineStream([FileLine(path, 0, name) for name, path in wanted if path], ordered=False), 0
    kind = "fixed" if given.has("F", "fixed-strings") else "perl"
    named = (many or len(wanted) > 1 or given.has("H", "with-filename")) and not given.has("I", "no-filename")
    return _searched(call, given, patterns, wanted, kind, named, _RG_KNOWN, many)


def _rg_filter(given: ParsedOptions) -> Callable[[str], bool]:
    """Filter for the files that ripgrep reads in a directory. Ignore files are not consulted: what is committed is
    rarely ignored.
    """
    hidden = given.has("hidden", ".", "uu", "uuu") or sum(name in ("u", "unrestricted") for name, _ in given.every) > 1
    types, no_types = given.values("t", "type"), given.values("T", "type-not")
    give_up_if(not _TYPES.keys() >= {*types, *no_types} or given.has("iglob", "max-depth", "d"))
    globs = given.values("g", "glob")
    wants = [one for one in globs if not one.startswith("!")] + [one for name in types for one in _TYPES[name]]
    bans = [one[1:] for one in globs if one.startswith("!")] + [one for name in no_types for one in _TYPES[name]]
    wants, bans = ([one for written in each for one in _alternatives(written)] for each in (wants, bans))

    def fits(path: str, pattern: str) -> bool:
        compiled, parts = glob(pattern.strip("/")), path.split("/")
        if "/" in pattern.rstrip("/"):
            parts = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
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
        give_up_if(len(made) + len(left) > _MOST_ALTERNATIVES)
    return made


def git_grep(call: CommandCall) -> Result:
    """Matches of git grep in committed files below the working directory."""
    args = _with_context(call.args)
    given = parse_options(args, "ABCmefO", _GREP_LONG)
    asked = _asked(given, False)
    if asked is None:
        return LineStream(), 128
    patterns, names = asked
    paths = [call.files.resolve(name) for name in names]
    if "--" in args:
        revised = len(names) > len(args) - args.index("--") - 1
    else:
        revised = any(
            path is None or not (call.files.exists(path) or re.search(r"[*?\[]", name))
            for name, path in zip(names, paths, strict=True)
        )
    base = call.files.resolve(".")
    if revised or base is None:
        raise Unknown
    wanted: list[tuple[str, str | None]] = [
        (inner, below)
        for inner, below in call.files.inside(base)
        if not names or any(_pathspec(call, name, below, inner) for name in names)
    ]
    kind, named = _kind(call, given), not given.has("h", "no-filename")
    return _searched(call, given, patterns, wanted, kind, named, _GREP_KNOWN)


def _pathspec(call: CommandCall, name: str, below: str, inner: str) -> bool:
    give_up_if(name.startswith(":"))
    path = call.files.resolve(name)
    if path is not None and (path == "" or below == path or below.startswith(path + "/")):
        return True
    return bool(re.search(r"[*?\[]", name)) and glob(name, stars_cross=True).match(inner) is not None
