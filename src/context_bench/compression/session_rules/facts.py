"""Recall: errors, failed commands, test results, versions, addresses, settings and rules that a session told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_bench.compression.probes import ProbeAtom, Source
from context_bench.compression.session_rules.utterances import Candidate, Utterance, candidate, utterances
from context_bench.core.keys import load_json
from context_bench.core.text import stem, tokens
from context_bench.wire.atoms import atoms
from context_bench.wire.conversation import ChatMessage, tool_calls_of
from context_bench.wire.request import RESULT_ROLES

_ERROR = re.compile(
    r"\b(?:\w+(?:\.|::))*[A-Z]\w*(?:Error|Exception|NotAvailable|TooLong)\b\s*[:(]|\bE[A-Z]{5,14}\b"
    r"|\b(?:error|Error|ERROR|fatal|FATAL|panic|failed)\b(?: [A-Z]{1,4}\d{2,6})?\s*:|\b[45]\d\d\s+[A-Z][a-z]+"
    r"|\bexit(?:ed with)? (?:code|status) [1-9]"
)
_LOOSE = re.compile(r"^\s*(?:E\s+)?(?:\w+\s+)?(?:error|fatal|panic|exception)\b\s*[:\[]", re.IGNORECASE)
_WORDS = r"(?:passed|failed|failing|skipped|errors?|failures?|deselected|ignored)"
_TESTS = re.compile(rf"\b\d+ {_WORDS}\b(?:(?:,| \||;)? ?(?:and )?\d+ {_WORDS}\b)*")
_COUNT = re.compile(rf"\d+ {_WORDS}")
_FILES_OF_TESTS = re.compile(r"Test (?:Files|Suites)\W*$")
_NO_VERSION = r"(?![\w.]*\w|\s?(?:%|ms|s|min|h|[kMG]?i?B|€|cents?)\b|\s?%)"
_VERSIONS = (
    re.compile(
        rf"(?<![\w./-])(?P<name>[A-Z][A-Za-z+]{{2,24}}(?: [A-Z][a-z]{{2,15}})?) "
        rf"v?(?P<value>\d+\.\d+(?:\.\d+)?){_NO_VERSION}"
    ),
    re.compile(rf"(?<![\w./-])(?P<name>[a-z][\w.-]{{1,40}})==(?P<value>\d+\.\d+(?:\.\d+)?){_NO_VERSION}"),
    re.compile(r"(?<![\w./@-])(?P<name>@?[a-z][\w/.-]{1,40})@(?P<value>\d+\.\d+\.\d+)(?![\w.-])"),
    re.compile(r"\"(?P<name>@?[a-z][\w@/.-]{1,40})\":\s*\"[\^~]?(?P<value>\d+\.\d+\.\d+)\""),
)
_NO_PRODUCT = re.compile(
    r"^(?:E[A-Z]{4,}|Drop|Use|Add|Set|Got|Needs|Version|Release|Section|Step|Phase|Table|Figure|Chapter|Line|Page|Rate|Total|Took|Text|About|From|Until|Over|Under|Before|After"
    r"|Index|Only|Now|Done|Took|Level|Score|Query|Plan|Until|Since|The|That|This|[Vv]ersion|engines|node)\b"
)
#: A name that only code has, and the value it is given.
_CODED = r"(?:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z][a-z0-9]*(?:[A-Z][a-z0-9]+)+)"
_SETTING = re.compile(
    rf"(?<![\w./'\"-])`?(?P<name>{_CODED})`?(?:\s*[:=]\s*|\s+is\s+(?:now\s+)?)`?(?P<value>\d[\d_,]*(?:\.\d+)?)`?(?![\w:./%-]|\.\d|\s*[*/+(-])"
)
_HOST = re.compile(
    r"(?<![\w.@/:-])(?P<whole>(?P<name>[a-z][a-z0-9-]{1,40})(?:\.[a-z][a-z0-9-]{1,40}){1,5}:\d{2,5})(?![\w.:]*\d)",
    re.IGNORECASE,
)
_CODE_FILE = re.compile(
    r"\.(?:py|ts|tsx|js|jsx|go|rb|rs|java|kt|tf|ya?ml|json|toml|c|h|cpp|cs|php|sh|sql|md|txt|log|lock|cfg|ini|html|css):\d+$"
)
_STRONG = ("error", "path", "url", "email_host_port", "hash_uuid", "version")
_SHELLS = ("command", "cmd", "script", "code")
_SHOWING = re.compile(
    r"\s*(?:cat|head|tail|less|more|sed -n|nl|bat|grep|rg|awk|git "
    r"(?:show|diff|log|grep)|ls|find|cd|pushd|popd|pwd|echo|sort|uniq|wc|cut)\b"
)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
#: Tools that show what stands somewhere, and those that answer in prose.
_READING = re.compile(
    r"read|view|open|grep|search|glob|list|fetch|browse|^(?:task|agent|think|todo\w*|skill|ask\w*)$", re.IGNORECASE
)
_LOGS = re.compile(r"\.(?:log|jsonl|out|err)\b|\blogs?/|journalctl|kubectl|docker logs")
_WITHDRAWN = re.compile(
    r"\b(?:forget|never mind|ignore) (?:the|what|that|my|about)|\byou may (?:now|after all)|\bno longer\b|\bdrop the "
    r"rule\b"
    r"|\bdoch erlaubt\b|\bchanged my mind\b|\bvergiss\b|忘掉|不用管|انس",
    re.IGNORECASE,
)
_MERE = ("ERROR", "Error", "error", "FATAL", "fatal", "WARN", "FAILED")
_MOST_VERSIONS = 12  # in one text; more is a lock file, of which nobody asks
_MOST_OF_A_LINE = 240
_LOOKED_AT = 20_000


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A command that was run: in which message, and what it gave."""

    command: str
    output: Utterance
    at: int


def facts(prefix: Sequence[ChatMessage]) -> Iterator[Candidate]:
    """Everything of that kind in the messages. What was said with two values is only asked where an edit shows which
    one holds.
    """
    spoken = utterances(prefix)
    ran = runs(prefix)
    shown = _only_shown(prefix)
    yield from _first_error([one for one in spoken if one.role in RESULT_ROLES and one.at not in shown])
    yield from _rules(spoken)
    yield from _failures(ran)
    yield from _test_results(ran)
    yield from _settings(prefix, spoken)
    yield from _hosts(spoken)
    yield from _versions(spoken)


def runs(prefix: Sequence[ChatMessage]) -> list[CommandRun]:
    """Commands with what they gave, in order; a list of words is joined."""
    outputs = {prefix[one.at].get("tool_call_id"): one for one in utterances(prefix, *RESULT_ROLES)}
    return [
        CommandRun(command, outputs[call["id"]], at)
        for at, message in enumerate(prefix)
        for call in tool_calls_of(message)
        if call["id"] in outputs and (command := command_in(call["arguments"]))
    ]


def command_in(arguments: str) -> str | None:
    """The command in a call's arguments, if there is one."""
    try:
        given = load_json(arguments)
    except ValueError:
        return None
    found = next((given[name] for name in _SHELLS if given.get(name)), None) if isinstance(given, Mapping) else None
    if isinstance(found, list) and all(isinstance(word, str) for word in found):
        shell = len(found) >= 3 and found[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh") and found[1].startswith("-")
        found = found[2] if shell else " ".join(found)
    return found if isinstance(found, str) and found.strip() else None


def _only_shown(prefix: Sequence[ChatMessage]) -> set[int]:
    """Messages of tools that only show what stands in files, or what somebody wrote; logs are not among them."""
    found: set[Any] = set()
    for message in prefix:
        for call in tool_calls_of(message):
            command = command_in(call["arguments"])
            shows = command is not None and only_shows(command) and not _LOGS.search(command)
            reads = command is None and _READING.search(str(call["name"]))
            if (shows or reads) and not _LOGS.search(call["arguments"]):
                found.add(call["id"])
    return {at for at, message in enumerate(prefix) if message.get("tool_call_id") in found}


def only_shows(command: str) -> bool:
    """True if all parts of a command line only show what is there."""
    parts = re.split(r"&&|\|\||[;|\n]", _QUOTED.sub("q", command[:_LOOKED_AT]))
    return all(_SHOWING.match(part) for part in parts if part.strip())


def error_lines(one: Utterance) -> Iterator[tuple[str, int]]:
    """Lines of a text that tell an error, each with its place."""
    for text, start in one.sentences():
        if len(text) <= 2000 and (_ERROR.search(text) or (one.role == "tool" and _LOOSE.search(text))):
            yield text[:_MOST_OF_A_LINE], start


def _line_atoms(one: Utterance, line: str, start: int) -> tuple[ProbeAtom, ...]:
    """The things in a line that must not be lost, without those that lie inside of others and without pieces of
    data.
    """
    found: dict[str, tuple[str, int]] = {}
    for kind, of_kind in atoms(line).items():
        for text, at in of_kind.items() if kind in _STRONG else ():
            whole = text.rstrip("\"}',;] ") if kind == "error" and text.count('"') % 2 else text.rstrip()
            whole = whole.lstrip()
            at = line.find(whole, at)  # spaces are made one in atoms: what is not there as it is written is not asked
            if (
                at >= 0
                and 2 < len(whole) <= 120
                and whole not in _MERE
                and whole.count("{") == whole.count("}")
                and not re.match(r"\W*\{", whole)
            ):
                found[whole] = (kind, at)
    found = {
        text: place for text, place in found.items() if place[0] != "path" or not _CODE_FILE.search(text + ":1")
    } or found
    kept = [text for text in found if not any(text != other and text in other for other in found)]
    return tuple(
        ProbeAtom(
            text, kind=found[text][0], sources=(one.source(start + found[text][1], start + found[text][1] + len(text)),)
        )
        for text in kept[:4]
    )


def _first_error(spoken: Sequence[Utterance]) -> Iterator[Candidate]:
    for one in spoken:
        for line, start in error_lines(one):
            if found := _line_atoms(one, line, start):
                yield candidate("recall", "error", (), line, found, 0.0)
            return


def _content(text: str) -> set[str]:
    return {stem(word) for word in tokens(text.casefold()) if len(word) > 3}


def rules_in(spoken: Sequence[Utterance]) -> list[ProbeAtom]:
    """The rules of the user, in order; those taken back later are left out."""
    users = [one for one in spoken if one.role == "user"]
    found: list[ProbeAtom] = []
    for number, one in enumerate(users):
        for text, at in sorted(atoms(one.text[:_LOOKED_AT]).get("constraint", {}).items(), key=lambda item: item[1]):
            if not 3 <= len(text.split()) + text.count("，") <= 40 or text.endswith("?") or text not in one.text:
                continue
            if not any(len(_content(text) & _content(later)) >= 2 for later in _taken_back(users[number + 1 :])):
                found.append(ProbeAtom(text, kind="constraint", sources=(one.source(at, at + len(text)),)))
    return found


def _rules(spoken: Sequence[Utterance]) -> Iterator[Candidate]:
    """All rules of the user in one question."""
    if found := rules_in(spoken):
        yield candidate("recall", "rules", (), "; ".join(atom.text for atom in found[:6]), found[:6], 1.0)


def _taken_back(later: Sequence[Utterance]) -> Iterator[str]:
    for one in later:
        for sentence, _ in one.sentences():
            if _WITHDRAWN.search(sentence):
                yield sentence


def _failures(ran: Sequence[CommandRun]) -> Iterator[Candidate]:
    """Errors of failed commands that ran once, and the commands behind errors that came once."""
    times = [run.command for run in ran]
    failed = [
        (run, *hit)
        for run in ran
        if not ("|" not in run.command and only_shows(run.command)) and (hit := next(error_lines(run.output), None))
    ]
    for run, line, start in failed:
        short = run.command.strip()
        found = _line_atoms(run.output, line, start)
        if not found or "\n" in short or len(short) > 120:
            continue
        if sum(short in command for command in times) == 1:
            yield candidate("recall", "failed", (short,), line, found, 1.5)
        head = next((atom.text for atom in found if atom.kind == "error" and len(atom.text) > 10), None)
        if head and sum(head in other.output.text for other in ran) == 1:
            yield candidate(
                "recall",
                "command",
                (f"`{head}`",),
                short,
                (ProbeAtom(short, kind="command", sources=(Source(run.at),)),),
                2.0,
            )


def _test_results(ran: Sequence[CommandRun]) -> Iterator[Candidate]:
    for run in reversed(ran):
        text = run.output.text[-_LOOKED_AT:]
        base = len(run.output.text) - len(text)
        hits = [
            hit
            for hit in _TESTS.finditer(text)
            if not _FILES_OF_TESTS.search(text[max(0, hit.start() - 16) : hit.start()])
        ]
        if hits:
            hit = hits[-1]
            parts = [(piece.group(), base + hit.start() + piece.start()) for piece in _COUNT.finditer(hit.group())]
            found = [
                ProbeAtom(part, kind="number", sources=(run.output.source(at, at + len(part)),)) for part, at in parts
            ]
            yield candidate("recall", "tests", (), hit.group(), found, 3.0)
            return


@dataclass(frozen=True, slots=True)
class _Given:
    value: str
    source: Source
    stated: bool  # by an edit, or by somebody; not merely seen in a file


def _settings(prefix: Sequence[ChatMessage], spoken: Sequence[Utterance]) -> Iterator[Candidate]:
    """Names that code has, with their value; where an edit replaced it, the value that holds now is asked and the old
    one is banned.
    """
    given_values: dict[str, list[_Given]] = {}
    edited: dict[str, list[tuple[str, str]]] = {}
    for one in spoken:
        for hit in _SETTING.finditer(one.text[:_LOOKED_AT]):
            given_values.setdefault(hit["name"], []).append(
                _Given(_plain(hit["value"]), one.source(*hit.span("value")), one.role == "user")
            )
    for at, message in enumerate(prefix):
        for call in tool_calls_of(message):
            old, new = sides_of(call["arguments"])
            before = {hit["name"]: _plain(hit["value"]) for hit in _SETTING.finditer(old)}
            for hit in _SETTING.finditer(new):
                name, value = hit["name"], _plain(hit["value"])
                given_values.setdefault(name, []).append(_Given(value, Source(at), True))
                if before.get(name, value) != value:
                    edited.setdefault(name, []).append((before[name], value))
    for name, given in given_values.items():
        given.sort(key=lambda one: one.source.message)
        values = list(dict.fromkeys(one.value for one in given))
        last = given[-1]
        if len(values) == 1 and (name.isupper() or any(one.stated for one in given)):
            atom = ProbeAtom(last.value, _written(last.value), "number", (last.source,))
            yield candidate("recall", "value", (name,), f"{name} = {last.value}", (atom,), 2.5 if last.stated else 5.0)
        elif (
            name in edited
            and edited[name][-1][1] == last.value
            and {v for pair in edited[name] for v in pair} == set(values)
        ):
            atom = ProbeAtom(last.value, _written(last.value), "number", (last.source,), weight=1.0)
            was = [value for value in values if value != last.value]
            banned = [ProbeAtom(value, _written(value), "number", _first(given, value), "banned") for value in was]
            yield candidate("recall", "current", (name,), f"{name} = {last.value}", (atom, *banned), 1.2)


def _first(given: Sequence[_Given], value: str) -> tuple[Source, ...]:
    return tuple(one.source for one in given if one.value == value)[:1]


def _plain(number: str) -> str:
    return number.strip(",_")


def _written(number: str) -> tuple[str, ...]:
    """Other ways to write a number: without marks between thousands, with commas."""
    bare = number.replace("_", "").replace(",", "")
    other = [bare, f"{int(bare):,}"] if bare.isdigit() and len(bare) > 3 else [bare]
    return tuple(form for form in dict.fromkeys(other) if form != number)


def sides_of(arguments: str) -> tuple[str, str]:
    """The text that an edit takes out and the text that it puts in, by the usual names; a written file is put in as a
    whole.
    """
    try:
        given = load_json(arguments)
    except ValueError:
        return "", ""
    if not isinstance(given, Mapping):
        return "", ""
    edits = (
        [given, *(edit for edit in given.get("edits") or () if isinstance(edit, Mapping))]
        if isinstance(given.get("edits"), list)
        else [given]
    )
    old = [
        edit[name] for edit in edits for name in ("old_string", "old_str", "oldText") if isinstance(edit.get(name), str)
    ]
    new = [
        edit[name]
        for edit in edits
        for name in ("new_string", "new_str", "newText", "content", "file_text", "contents")
        if isinstance(edit.get(name), str)
    ]
    return "\n".join(old)[:_LOOKED_AT], "\n".join(new)[:_LOOKED_AT]


def _hosts(spoken: Sequence[Utterance]) -> Iterator[Candidate]:
    hosts: dict[str, dict[str, Source]] = {}
    for one in spoken:
        for hit in _HOST.finditer(one.text[:_LOOKED_AT]):
            if not _CODE_FILE.search(hit["whole"]):
                hosts.setdefault(hit["name"], {}).setdefault(hit["whole"], one.source(*hit.span("whole")))
    for name, values in hosts.items():
        if len(values) == 1:
            ((value, source),) = values.items()
            yield candidate(
                "recall",
                "host",
                (f"`{name}`",),
                value,
                (ProbeAtom(value, kind="email_host_port", sources=(source,)),),
                3.5,
            )


def _versions(spoken: Sequence[Utterance]) -> Iterator[Candidate]:
    """Products with one version throughout; one that was given two is passed over."""
    versions: dict[str, dict[str, Source]] = {}
    for one in spoken:
        for pattern in _VERSIONS:
            hits = list(pattern.finditer(one.text[:_LOOKED_AT]))
            for hit in hits if len(hits) <= _MOST_VERSIONS else ():
                name = _product(one.text, hit)
                if not _NO_PRODUCT.match(name):
                    versions.setdefault(name, {}).setdefault(hit["value"], one.source(*hit.span("value")))
    folded = {name.casefold() for name in versions if len(versions[name]) > 1}
    for name, values in versions.items():
        if len(values) == 1 and name.casefold() not in folded:
            ((value, source),) = values.items()
            yield candidate(
                "recall", "version", (f"`{name}`",), value, (ProbeAtom(value, kind="version", sources=(source,)),), 4.0
            )


def _product(text: str, hit: re.Match[str]) -> str:
    """The name of a product; a word that begins a sentence is not part of it."""
    before = text[max(0, hit.start() - 2) : hit.start()]
    begins = not before or before[-1] == "\n" or before in (". ", "- ", "* ", ": ")
    return hit["name"].split(" ")[-1] if begins else hit["name"]
