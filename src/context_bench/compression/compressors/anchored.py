"""A ledger of the session, kept by rules and without a model: what was asked, files, decisions, errors and results,
what is left to do.

The rules are those by which structured probes are made (`compression.session_rules`). On such probes it is at home:
what it scores there shows that
the instrument can see a good compressor, not that it is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from context_bench.compression.compressors.model_summaries import (
    SummarySections,
    newly,
    seen,
    summary_message,
)
from context_bench.compression.compressors.texts import Messages
from context_bench.compression.probes import tokens_of
from context_bench.compression.session_rules.artifacts import ArtifactLedger, artifact_ledger
from context_bench.compression.session_rules.facts import facts
from context_bench.compression.session_rules.open_tasks import open_work
from context_bench.compression.session_rules.utterances import Candidate, decisions, utterances
from context_bench.core.keys import load_json
from context_bench.core.protocols import Compressed
from context_bench.core.tokens import counter_for
from context_bench.systems.context import check_limit
from context_bench.wire.conversation import ChatMessage, tool_calls_of

COMPRESSORS = {"anchored": "Anchored"}

_LONGEST = 300  # characters of an entry
_LISTED = 6  # values in one message; more are a listing, which is looked up and not remembered
_REQUEST = 600  # … of a user's message
_SHELLS = ("command", "cmd", "script")


class Anchored:
    """Keeps sections (intent; files created, modified, deleted, read; decisions; state; next steps) in place of the
    messages.

    `state` holds the sections: later calls look only at what came since and add to them. An entry is struck out where a
    later one says otherwise (a file that was only read is changed, a test passes, a list of open work replaces the one
    before). `budget`: tokens shown, whole entries only, the most useful and newest first; without one, everything is
    shown.
    """

    name = "anchored"
    deterministic = True

    def __init__(self, budget: int | None = None, cwd: str | None = None, model: str | None = None) -> None:
        check_limit(self.name, budget, 0)
        self.budget, self.cwd, self.model = budget, cwd, model

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        counter, held = counter_for(self.model), state or {}
        sections, files = SummarySections.from_json(held.get("sections")), FileStates(held.get("files"))
        new = newly(prefix, state)
        _intent(sections, new)
        files.read(artifact_ledger(new, cwd=self.cwd))
        files.write(sections)
        for found in decisions(new):
            sections.put("decisions", _cut(found.truth))
        _facts(sections, new, first=not held)
        open_now = _open(sections, new, held.get("open") or {})
        text, left_out = sections.fitting(self.budget if budget is None else budget, counter)
        made = summary_message(text)
        warnings = [f"{left_out} entries of the ledger did not fit"] if left_out else []
        after = {"sections": sections.to_json(), "files": files.to_json(), "open": open_now, **seen(prefix, made)}
        return Compressed(made, tokens_of(prefix, counter), tokens_of(made, counter), warnings=warnings), after


class FileStates:
    """Files of a session and what became of each, over several looks at it. A file is known by any way in which it was
    written.
    """

    def __init__(self, known: dict[str, dict[str, Any]] | None = None) -> None:
        self._known = {path: {**row, "written": list(row["written"])} for path, row in (known or {}).items()}
        self._by_form = {form: path for path, row in self._known.items() for form in (path, *row["written"])}

    def read(self, ledger: ArtifactLedger) -> None:
        """Take in what a ledger of the messages that came since says."""
        for file in ledger.files.values():
            forms = (file.path, *file.written)
            path = next((self._by_form[form] for form in forms if form in self._by_form), None)
            if path is None:
                path = file.path
                self._known[path] = {
                    "written": [],
                    "read": False,
                    "created": False,
                    "modified": False,
                    "deleted": False,
                }
                self._known[path]["created"] = file.created
                changed = file.modified
            else:
                changed = file.modified or file.created
            row = self._known[path]
            row["read"] |= file.read
            row["modified"] |= changed
            row["deleted"] = file.deleted or (row["deleted"] and not changed)
            row["written"] += [form for form in forms if form not in row["written"]]
            self._by_form |= dict.fromkeys(forms, path)

    def write(self, sections: SummarySections) -> None:
        """Put each file where it belongs now."""
        for path, row in self._known.items():
            place = _place(row)
            for section in ("created", "modified", "deleted", "read"):
                if section != place:
                    sections.strike(section, path)
            if place is not None:
                sections.put(place, path, path)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """As JSON values."""
        return self._known


def _place(row: dict[str, Any]) -> str | None:
    if row["deleted"]:
        return None if row["created"] else "deleted"
    return next((name for name in ("created", "modified", "read") if row[name]), None)


def _intent(sections: SummarySections, new: Sequence[ChatMessage]) -> None:
    for one in utterances(new, "user"):
        sections.put("intent", _cut(one.text, _REQUEST))


def _facts(sections: SummarySections, new: Sequence[ChatMessage], *, first: bool) -> None:
    """Errors, failed commands, results, versions, settings, rules: each with where it was said."""
    commands = dict(_commands(new))
    found_all = list(facts(new))
    lists = Counter(
        found.atoms[0].sources[0].message for found in found_all if found.atoms[0].kind in ("version", "number")
    )
    for found in found_all:
        kind = found.atoms[0].kind
        if kind == "constraint":
            for atom in found.atoms:
                sections.put("intent", f"Rule: {_cut(atom.text)}")
        elif kind == "command":
            sections.put("state", f"`{_cut(found.truth, 120)}` failed with {_cut(found.fill[0])}", found.question)
        elif found.rank == 0.0:
            if first:
                sections.put("state", f"First error: {_cut(found.truth)}", "first error", first=True)
        elif lists[found.atoms[0].sources[0].message] <= _LISTED:
            sections.put("state", _sentence_of(found, new, commands), found.question)


def _sentence_of(found: Candidate, new: Sequence[ChatMessage], commands: dict[Any, str]) -> str:
    """The sentence in which a fact was said; of a result, with the command that gave it."""
    source = found.atoms[0].sources[0]
    message = new[source.message]
    sentence = found.truth
    for text, start in (one for each in utterances([message]) for one in each.sentences()):
        if source.start is None or start <= source.start < start + len(text):
            sentence = text
            break
    command = commands.get(message.get("tool_call_id"))
    return f"`{_cut(command, 120)}`: {_cut(sentence)}" if command else _cut(sentence)


def _commands(messages: Sequence[ChatMessage]) -> Iterator[tuple[Any, str]]:
    for message in messages:
        for call in tool_calls_of(message):
            try:
                given = load_json(call["arguments"])
            except ValueError:
                continue
            told = next(
                (given[name] for name in _SHELLS if isinstance(given, dict) and isinstance(given.get(name), str)), None
            )
            if call["id"] and told:
                yield call["id"], told


def _open(sections: SummarySections, new: Sequence[ChatMessage], before: dict[str, list[str]]) -> dict[str, list[str]]:
    """Open tasks: a newer list takes the place of an older one; tests that failed before stay until they pass."""
    failed = "\n".join(f"FAILED {name}" for name in before.get("failing", []))
    listed, failing = list(before.get("todo", [])), list[str]()
    for found in open_work([{"role": "tool", "content": failed}, *new] if failed else new):
        texts = [max((atom.text, *atom.variants), key=len) for atom in found.atoms]
        if found.key == "failing":
            failing = texts
        elif found.key in ("todo", "listed", "next"):
            listed = texts
    for key in list(sections.entries["next"]):
        sections.strike("next", key)
    for text in listed:
        sections.put("next", _cut(text))
    for name in failing:
        sections.put("next", f"Test still failing: {_cut(name)}")
    return {"todo": listed, "failing": failing}


def _cut(text: str, longest: int = _LONGEST) -> str:
    from context_bench.compression.compressors.texts import word_end

    text = " ".join(text.split())
    return text if len(text) <= longest else text[: word_end(text, longest - 1)].rstrip() + "…"
