"""What was changed in a file: the names that edits brought in, from edits and patches as they were called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from context_bench.compression.probes.probe import ProbeAtom, Source
from context_bench.compression.session_rules.facts import command_in
from context_bench.compression.session_rules.ledger import Ledger
from context_bench.compression.session_rules.saying import Candidate, candidate
from context_bench.core.jsontext import load_json
from context_bench.transcripts.traces.vocabulary import cleaned
from context_bench.wire.conversation import ChatMessage, tool_calls_of

#: Names that a line of code defines, and names that only code has.
_DEFINED = re.compile(
    r"\b(?:def|class|func|function|fn|struct|interface|enum|record|trait|const|module)\s+(?:\([^()\n]{0,60}\)\s*)?\"?(?:self\.)?([A-Za-z_]\w{2,60})"
    r"|^\s*([A-Z][A-Z0-9_]{2,60})\s*=|\bit\(\s*['\"]([^'\"\n]{4,80})['\"]",
    re.M,
)
_CODED = re.compile(
    r"\b(?:[A-Za-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z][a-z0-9]+(?:[A-Z][a-z0-9]+)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)\b"
)
_FILE = re.compile(r"^(?:\+\+\+ (?:b/)?|\*\*\* (?:Update|Add) File: )(\S+)")
_OLD = ("old_string", "old_str", "oldText")
_NEW = ("new_string", "new_str", "newText")
_PATH = ("file_path", "path", "filePath", "filename", "target_file")
_MOST_NAMES = 5
_MOST_FILES = 3
_LONGEST = 50_000


def changes(prefix: Sequence[ChatMessage], ledger: Ledger) -> Iterator[Candidate]:
    """What was changed in the files that were changed most, by the names that came in and are still new to the file."""
    modified = set(ledger.modified)
    places = {form: path for path in modified for form in (path, *ledger.files[path].written)}
    ends = {path.rsplit("/", 1)[-1]: path for path in modified}
    brought: dict[str, dict[str, int]] = {}
    taken: dict[str, set[str]] = {}
    for at, message in enumerate(prefix):
        for call in tool_calls_of(message):
            for told, old, new in _edits(call["arguments"]):
                written = cleaned(told) or told
                path = places.get(written) or ends.get(written.rsplit("/", 1)[-1], "")
                if not path or not (written in places or written.endswith("/" + path) or path.endswith("/" + written)):
                    continue
                before = set(_CODED.findall(old)) | set(_names(old))
                names = list(dict.fromkeys([*_names(new), *_CODED.findall(new)]))
                for name in names:
                    if name not in before and name not in taken.get(path, ()):
                        brought.setdefault(path, {}).setdefault(name, at)
                for name in before - set(names):
                    brought.get(path, {}).pop(name, None)
                taken.setdefault(path, set()).update(before)
    order = sorted(brought, key=lambda path: -len(brought[path]))
    for rank, path in enumerate([path for path in order if brought[path]][:_MOST_FILES]):
        found = [ProbeAtom(name, kind="identifier", sources=(Source(at),)) for name, at in list(brought[path].items())[:_MOST_NAMES]]
        yield candidate("artifact", "changed", (f"`{path}`",), ", ".join(atom.text for atom in found), found, 2.5 + 0.1 * rank)


def _names(text: str) -> list[str]:
    return [next(part for part in hit.groups() if part) for hit in _DEFINED.finditer(text)]


def _edits(arguments: str) -> Iterator[tuple[str, str, str]]:
    """(path as written, text taken out, text put in) of a call."""
    command = command_in(arguments)
    patch = command if command and ("+++ " in command or "*** " in command) else None
    given = None
    if command is None:
        try:
            given = load_json(arguments)
        except ValueError:
            patch = arguments
    if isinstance(given, Mapping):
        patch = next((value for value in given.values() if isinstance(value, str) and "*** Begin Patch" in value), None)
        path = next((given[name] for name in _PATH if isinstance(given.get(name), str)), None)
        edits = given["edits"] if isinstance(given.get("edits"), list) else [given]
        for edit in edits:
            old, new = (
                (next((edit[n] for n in names if isinstance(edit.get(n), str)), None) for names in (_OLD, _NEW))
                if isinstance(edit, Mapping)
                else (None, None)
            )
            if path and new is not None:
                yield path, (old or "")[:_LONGEST], new[:_LONGEST]
    if patch:
        yield from _patched(patch[:_LONGEST])


def _patched(patch: str) -> Iterator[tuple[str, str, str]]:
    path, old, new = None, [], []  # type: ignore[var-annotated]
    for line in [*patch.split("\n"), "+++ "]:
        found = _FILE.match(line)
        if found or line == "+++ ":
            if path and new:
                yield path, "\n".join(old), "\n".join(new)
            path, old, new = found[1] if found else None, [], []
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith(("-", " ")):
            old.append(line[1:])
