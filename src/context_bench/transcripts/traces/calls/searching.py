"""Calls that search and list: the lines and files that their output names."""

from __future__ import annotations

from context_bench.transcripts.trace import Event, Provenance
from context_bench.transcripts.traces import outputs
from context_bench.transcripts.traces.calls.workspace import Handled, has_failed
from context_bench.transcripts.values import mapping, sequence


def events_of_search(one: Handled) -> list[Event]:
    """What a search found: lines where its output names them, else files."""
    paths = one.paths()
    if has_failed(one):
        return [one.event("search", path, None, "args", "listed", ok=False) for path in _or_none(paths)]
    record = mapping(one.call.structured)
    text = record.get("content") if isinstance(record.get("content"), str) else one.text
    if not text:
        listed = [
            found for name in sequence(record.get("filenames")) if isinstance(name, str) and (found := one.place.locate(name, one.folder))
        ]
        events = [one.event("search", path, None, "structured", "listed") for path in dict.fromkeys(listed)]
        return events or [one.event("search", path, None, "args", "listed") for path in _or_none(paths)]
    provenance: Provenance = "args" if one.foreign else "output_numbered"
    return _search_shown(one, str(text), paths, provenance) or [
        one.event("search", path, None, "args", "listed") for path in _or_none(paths)
    ]


def _search_shown(one: Handled, text: str, paths: list[str], provenance: Provenance) -> list[Event]:
    hits = outputs.found(text)
    base = _search_base(one, paths) if hits.relative else one.folder
    events: list[Event] = []
    lines: dict[str, list[int]] = {}
    for name, numbers in hits.lines.items():
        if (path := one.place.locate(name, base)) is not None:
            lines.setdefault(path, []).extend(number for number in numbers if number > 0)
    for path, numbers in lines.items():
        events.append(one.event("search", path, outputs.runs(numbers), provenance, cut=hits.cut))
    if not lines and len(paths) == 1 and (numbers := outputs.line_numbers(text)) and not hits.files:
        return [one.event("search", paths[0], outputs.runs(numbers), provenance, cut=hits.cut)]
    for name in hits.files:
        if (path := one.place.locate(name, base)) is not None and path not in lines:
            events.append(one.event("search", path, None, provenance, "listed", cut=hits.cut))
    return events


def _search_base(one: Handled, paths: list[str]) -> str | None:
    """The folder that a search's names are relative to, as a path that `locate` understands."""
    named = one.row.paths_of(one.call.arguments)
    if not named:
        return one.folder
    base = one.folder or one.place.cwd or one.place.root
    return named[0] if named[0].startswith("/") or not base else f"{base.rstrip('/')}/{named[0]}"


def events_of_list(one: Handled) -> list[Event]:
    """What a listing named: places, none of them read."""
    paths = one.paths()
    if has_failed(one):
        return [one.event("list", path, None, "args", "listed", ok=False) for path in _or_none(paths)]
    names = [name for name in sequence(mapping(one.call.structured).get("filenames")) if isinstance(name, str)]
    names = names or (outputs.found(one.text).files if one.text else [])
    found = [path for name in names if (path := one.place.locate(name, one.folder)) is not None]
    return [one.event("list", path, None, "args", "listed") for path in dict.fromkeys([*paths, *found])] or [
        one.event("list", None, None, "args", "listed")
    ]


def _or_none(paths: list[str]) -> list[str | None]:
    return [*paths] or [None]
