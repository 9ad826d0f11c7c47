"""What programs say of files that they could not read."""

from __future__ import annotations

import re

_WHY = r"(?:No such file or directory|Is a directory|Not a directory|Permission denied)"
_COMPLAINT = re.compile(
    r"^(?:\[bat error\]|[\w./+-]{1,100}): (?:line \d{1,6}: )?(?:fatal: )?(?P<by>\S{0,100}: )?"
    r"(?:can(?:not|'t) (?:open|access|read|stat) (?:file (?=`))?|IO error for operation on )?"
    r"['\"`\u2018]?(?P<name>[^\n:]{1,1000}?)['\"\u2019]?(?: for reading)?(?:: | \()"
    + _WHY
    # less names no program, zsh the file last
    + r"|^(?P<alone>[^\s:]{1,1000}): No such file or directory$"
    + r"|^\w{1,20}: (?:(?P<shell>cd|pushd): )?no such file or directory: (?P<last>[^\n]{1,1000})$",
    re.M,
)
_PHRASES = ("No such file", "no such file", "s a directory", "Not a directory", "ermission denied")


def complaints(text: str) -> tuple[list[str], list[str]]:
    """Files that programs say they could not read, and folders that the shell could not go to, as printed."""
    files: dict[str, None] = {}
    folders: dict[str, None] = {}
    if any(phrase in text for phrase in _PHRASES):
        for hit in _COMPLAINT.finditer(text):
            name = hit["name"] or hit["alone"] or hit["last"]
            moving = (hit["by"] or "").rstrip(": ") in ("cd", "pushd") or hit["shell"]
            (folders if moving else files)[name] = None
    return list(files), list(folders)
