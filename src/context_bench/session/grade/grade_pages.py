"""A grade on one page: text, Markdown, HTML, SARIF, and a badge. Each is made of the same document, and escapes it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from context_bench.reports.visible_text import json_ready, markdown, visible

_COLOURS = {"A": "#2e7d32", "B": "#689f38", "C": "#b26a00", "D": "#d84315", "F": "#b71c1c", None: "#616161"}
_LONGEST = 1_600
_LEVELS = {"wrong": "error", "refused": "error", "worse": "warning", "costs": "warning"}


def text_page(document: Mapping[str, Any]) -> str:
    """The grade for a terminal: letters, the findings by kind, what was not asked."""
    lines = [f"Grade of {visible(_title(document))}: {_letter(document['grade'])}", ""]
    for one in document["headings"]:
        found = _kinds(one["kinds"])
        asked = f"{one['asked']} asked" + (f", {one['not_asked']} not asked" if one["not_asked"] else "")
        lines.append(f"  {_letter(one['letter']):9} {one['heading']:18} {asked}{f': {found}' if found else ''}")
    counted = [one for one in document["findings"] if one["severity"] != "note"]
    if counted:
        lines += ["", "Findings (the bytes that show each: --output html or json):"]
        lines += [f"  {line}" for line in _by_kind(counted)]
    for title, listed in _left_out(document):
        lines += ["", title, *(f"  {line}" for line in listed)]
    details = [f"  {visible(one['check'])}: {visible(one['detail'], 300)}" for one in document["checks"]]
    return "\n".join([*lines, *(["", "Seen:", *details] if details else []), ""])


def _name(document: Mapping[str, Any]) -> str:
    return str(document.get("name") or document["start"] or document["target"])


def _letter(letter: str | None) -> str:
    return letter or "not asked"


def _by_kind(findings: list[dict[str, Any]]) -> Iterator[str]:
    """One line a kind: its letter, how often, the first of it, the likely answer."""
    for (letter, _, kind), same in groupby(findings, key=lambda one: (one["letter"], one["heading"], one["kind"])):
        listed = list(same)
        times = f" ×{len(listed)}" if len(listed) > 1 else ""
        first = listed[0]
        price = f" {first['price']}." if first["price"] else ""
        yield f"{letter}  {kind}{times}: {visible(first['detail'], 400)} ({visible(first['check'])}){price}"


def _left_out(document: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The checks without an answer, by reason."""
    by_reason: dict[str, list[str]] = {}
    for one in document["not_asked"]:
        by_reason.setdefault(one["why"], []).append(one["check"])
    if by_reason:
        yield "Not asked:", [f"{visible(why, 300)}: {_some(names)}" for why, names in by_reason.items()]
    if document["not_offered"]:
        yield "Not offered (no part of a letter):", [_some(document["not_offered"])]


def _some(names: list[str], most: int = 4) -> str:
    more = len(names) - most
    return "; ".join(map(visible, names[:most])) + (f"; and {more} more" if more > 0 else "")


def markdown_page(document: Mapping[str, Any]) -> str:
    """The same as Markdown, with the issue text of each finding left out."""
    lines = [f"## Grade of {markdown(_title(document))}: {_letter(document['grade'])}", ""]
    lines += ["| heading | letter | asked | not asked | found |", "|---|---|---|---|---|"]
    for one in document["headings"]:
        found = ", ".join(f"`{kind}`{f' ×{n}' if n > 1 else ''}" for kind, n in one["kinds"].items())
        lines.append(f"| {one['heading']} | {_letter(one['letter'])} | {one['asked']} | {one['not_asked']} | {found} |")
    counted = [one for one in document["findings"] if one["severity"] != "note"]
    lines += ["", *(f"- {markdown(line, 500)}" for line in _by_kind(counted))]
    return "\n".join(lines) + "\n"


_STYLE = """
:root{color-scheme:light dark;font:16px/1.45 system-ui,sans-serif}body{max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem}h1,td,summary,li,p{overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%}td,th{padding:.35rem .6rem;text-align:left;vertical-align:top;
border-bottom:1px solid #8884}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#8881;padding:.6rem;
font-size:.8rem}b.l{display:inline-block;min-width:1.6em;text-align:center;color:#fff;
border-radius:.3em;padding:.1em .3em}
details{margin:.6rem 0}details details{margin-left:1.5rem}summary{cursor:pointer}small{opacity:.8}
@media screen and (max-width:40rem){tr:first-child{display:none}tr{display:grid;grid-template-columns:3rem 1fr;
border-bottom:1px solid #8884;padding:.3rem 0}td{border:0;padding:.1rem .3rem}td:nth-child(n+3){grid-column:2}
td[data-of]::before{content:attr(data-of) ": ";opacity:.8}td:empty{display:none}}
""" + "".join(f"b.g{letter or 'none'}{{background:{colour}}}" for letter, colour in _COLOURS.items())


def html_page(document: Mapping[str, Any]) -> str:
    """The same as one HTML file, with the bytes that show each finding and an issue text to paste. It fetches nothing
    and runs nothing.
    """
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'"
    rows = "".join(
        f"<tr><td>{_mark(one['letter'])}<td>{_h(one['heading'])}<br><small>{_h(one['about'])}</small>"
        f"<td data-of=asked>{one['asked']}<td data-of='not asked'>{one['not_asked']}<td>{_h(_kinds(one['kinds']))}"
        for one in document["headings"]
    )
    same_kind = groupby(document["findings"], key=lambda one: (one["letter"], one["heading"], one["kind"]))
    findings = "".join(_of_a_kind(list(same)) for _, same in same_kind)
    left = "".join(
        f"<h2>{_h(title)}</h2><ul>{''.join(f'<li>{_h(line)}' for line in listed)}</ul>"
        for title, listed in _left_out(document)
    )
    title = f"Grade of {visible(_title(document))}: {_letter(document['grade'])}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{policy}"><meta name="viewport" content="width=device-width"><title>{_h(title)}</title>'
        f"<style>{_STYLE}</style><h1>{_mark(document['grade'])} {_h(_title(document))}</h1>{_started_by(document)}"
        f"<p>A letter is that of the worst finding under its heading, never an average (rules version "
        f"{document['rules']}).</p><table><tr><th><th>heading<th>asked<th>not asked<th>found{rows}</table>"
        f"<h2>Findings</h2>{findings or '<p>None.</p>'}{left}</html>\n"
    )


def _title(document: Mapping[str, Any]) -> str:
    """A name that fits a heading: of a command, its program and the first word after it."""
    if document.get("name") or not document["start"]:
        return _name(document)
    words = str(document["start"]).split()
    return " ".join([words[0].rpartition("/")[2], *words[1:2]]) if words else ""


def _started_by(document: Mapping[str, Any]) -> str:
    return f"<p>Started by<pre>{_h(document['start'])}</pre>" if document["start"] else ""


def _kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{kind}{f' ×{times}' if times > 1 else ''}" for kind, times in kinds.items())


def _of_a_kind(found: list[dict[str, Any]]) -> str:
    """Findings of one kind under one line."""
    if len(found) == 1:
        return _finding(found[0])
    first = found[0]
    return (
        f"<details><summary>{_mark(first['letter'])} {_h(first['kind'])} ×{len(found)}: {_h(first['detail'])}"
        f"</summary>{''.join(map(_finding, found))}</details>"
    )


def _h(text: object) -> str:
    return html.escape(visible(text, 2_000), quote=True)


def _mark(letter: str | None) -> str:
    return f'<b class="l g{letter or "none"}">{letter or "?"}</b>'


def _finding(one: Mapping[str, Any]) -> str:
    shown = "".join(
        f"<p>{title}<pre>{html.escape(visible(one[name], _LONGEST, lines=True))}</pre>"
        for title, name in (("sent", "sent"), ("arrived", "arrived"))
        if one[name]
    )
    issue = html.escape(visible(one["issue"], 3 * _LONGEST, lines=True))
    price = f"<p>Price: {_h(one['price'])}" if one["price"] else ""
    return (
        f"<details><summary>{_mark(one['letter'])} {_h(one['kind'])}: {_h(one['detail'])} <small>{_h(one['check'])}"
        f"</small></summary><p>Likely answer of the provider: {_h(one['answer'])}"
        f"{price}{shown}<p>Issue text<pre>{issue}</pre></details>"
    )


def sarif_page(document: Mapping[str, Any], version: str) -> str:
    """The findings in SARIF 2.1.0, for code scanning."""
    kinds = list(dict.fromkeys(one["kind"] for one in document["findings"]))
    by_kind = {one["kind"]: one for one in document["findings"]}
    rules = [
        {
            "id": kind,
            "shortDescription": {"text": f"{kind} ({by_kind[kind]['heading']})"},
            "help": {"text": by_kind[kind]["answer"] or kind},
            "defaultConfiguration": {"level": _LEVELS.get(by_kind[kind]["severity"], "note")},
        }
        for kind in kinds
    ]
    results = [
        {
            "ruleId": one["kind"],
            "ruleIndex": kinds.index(one["kind"]),
            "level": _LEVELS.get(one["severity"], "note"),
            "message": {"text": visible(f"{one['detail']} ({one['check']})", 1_000)},
            "locations": [{"logicalLocations": [{"fullyQualifiedName": visible(_name(document)), "kind": "module"}]}],
            "properties": {"heading": one["heading"], "letter": one["letter"], "price": one["price"]},
        }
        for one in document["findings"]
    ]
    run = {
        "tool": {"driver": {"name": "context-bench", "version": version, "rules": rules}},
        "results": results,
        "properties": {"grade": document["grade"], "target": visible(_name(document))},
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(json_ready(log), indent=2, ensure_ascii=False) + "\n"


def json_page(document: Mapping[str, Any]) -> str:
    """The document itself."""
    return json.dumps(document, indent=2) + "\n"


def badge(document: Mapping[str, Any]) -> str:
    """The overall letter as an SVG picture of a badge."""
    letter = document["grade"] or "?"
    title = f"context-bench grade: {_letter(document['grade'])}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="150" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        '<rect width="126" height="20" fill="#444"/>'
        f'<rect x="126" width="24" height="20" fill="{_COLOURS[document["grade"]]}"/>'
        '<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="63" y="14">context-bench grade</text><text x="138" y="14">{letter}</text></g></svg>\n'
    )
