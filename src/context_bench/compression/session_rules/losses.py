"""Losses of a compaction, by rules of words, and those of them that the session was seen to miss.

A fact was *lost* if the history before the compaction had it, and neither the summary nor the messages kept behind it
name it. A lost fact was *needed* if the session shows it, up to the next compaction: a file was read again unchanged, a
command that had failed was run again and failed alike, an error that had gone was met again, a rule was broken, a
decision turned round, or the user said the thing again. What a summary says in quite other words counts as lost, and a
need that leaves no such trace is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from context_bench.compression.evaluators.probe_atoms import SearchableText
from context_bench.compression.probes import ProbeAtom
from context_bench.compression.session_rules.artifacts import acts_of
from context_bench.compression.session_rules.facts import (
    command_in,
    error_lines,
    only_shows,
    rules_in,
    runs,
    sides_of,
)
from context_bench.compression.session_rules.open_tasks import open_work
from context_bench.compression.session_rules.utterances import Utterance, decisions, everything, utterances
from context_bench.core.text import stem, tokens
from context_bench.core.tokens import TokenCounter, counter_for
from context_bench.transcripts.session import users_words
from context_bench.transcripts.traces.vocabulary import unwrapped
from context_bench.wire.conversation import ChatMessage, message_text, tool_calls_of
from context_bench.wire.request import RESULT_ROLES

FactKind = Literal["rule", "decision", "failed", "open", "file", "error"]
Need = Literal["read again", "tried again", "met again", "violated", "turned round", "asked again"]
#: Share of a sentence's content words that must come back for the same thing to be said.
_SAME = 0.6
_DID = {"part": "changed", "whole": "wrote", "gone": "deleted"}
_MOST_FACTS = 400
_LONGEST = 20_000


@dataclass(frozen=True, slots=True)
class SessionFact:
    """A fact of the history: its kind, its text, the message it stands in, and the names by which it is known again.

    `rejected`: of a decision, the names of what was not chosen; of a rule, the names of what it forbids.
    """

    kind: FactKind
    text: str
    message: int
    names: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loss:
    """A lost fact. `need`: how it was seen to be missed, `None` if it was not. `evidence`: the text that shows it;
    `turn`: the number of the message after the compaction; `tokens`: of a file, those of reading it again.
    """

    kind: FactKind
    text: str
    need: Need | None = None
    evidence: str = ""
    turn: int | None = None
    tokens: int | None = None


# Facts of a history
# ------------------------------------------------------------------------

_NAME = re.compile(
    r"`([^`\n]{2,80})`"  # a piece of code
    r"|(?<![\w./-])((?:\.{0,2}/)?(?:[\w.@-]+/)+[\w.@*-]*|[\w-]+\.(?:py|js|ts|tsx|go|rs|rb|java|md|json|ya?ml|toml|sql|env|lock|cfg|txt|sh|css|html))(?![\w/])"
    r"|(?<![\w./-])(\.env\b)"
    r"|\b([a-z]+(?:_[a-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+|[A-Z][A-Z0-9]*_[A-Z0-9_]+)\b"
    r"|(?<!\w)(--?[a-z][\w-]{2,40})\b"
)
_TOOLS = re.compile(
    r"\b(npm|pnpm|yarn|bun|pip|uv|poetry|conda|docker|podman|sudo|curl|wget|git push|git commit|git rebase|git stash"
    r"|make|rm -rf|jest|mocha|vitest|unittest|pytest|requests|httpx|aiohttp|axios|sqlite|postgres(?:ql)?|mysql|redis"
    r"|float|double|decimal|any|eval|exec|print)\b",
    re.IGNORECASE,
)
_AGAINST = re.compile(
    r"\b(?:never|do not|don't|don’t|must not|mustn't|may not|should not|shouldn't|cannot|not to|avoid|without|no longer"
    r"|instead of|rather than|nie(?:mals)?|nicht|keine?n?)\b|,\s*not\b|\bno\s",
    re.IGNORECASE,
)
_DID_NOT_WORK = re.compile(
    r"\b(?:did(?:n't| not)|does(?:n't| not)|will not|won't) (?:work|help|fix)|\bdead end\b|\bno luck\b"
    r"|\b(?:had to|have to|I|we)? ?(?:reverted?|rolled? (?:it |that )?back|undid)\b|\bfails? because\b"
    r"|\bmade (?:it|things) worse\b",
    re.IGNORECASE,
)
_ALWAYS = re.compile(r"\b(?:always|from now on|make sure|every time|immer|stets|ab jetzt)\b", re.IGNORECASE)
_READS = re.compile(r"\b(?:read|open|look|print|show|cat)\b", re.IGNORECASE)


def names_in(text: str) -> tuple[str, ...]:
    """Names in a text by which a thing is known again: code, paths, identifiers, options, tools."""
    found = [next(part for part in hit.groups() if part) for hit in _NAME.finditer(text)]
    bare = _NAME.sub(" ", text)
    found += [hit[1] for hit in _TOOLS.finditer(bare)]
    return tuple(dict.fromkeys(name.strip(" .,;:") for name in found if len(name.strip(" .,;:")) >= 2))


def forbidden_in(text: str) -> tuple[str, ...]:
    """Names of what a rule forbids: those behind the word that forbids, in its clause."""
    found: list[str] = []
    for hit in _AGAINST.finditer(text):
        clause = re.split(
            r"[;!?]|\.\s|,\s+(?:but|use|always|only)|\b(?:but|use|only|unless|because)\b", text[hit.end() :]
        )
        found += names_in(clause[0])
    return tuple(dict.fromkeys(found))


def facts_of(before: Sequence[ChatMessage], *, cwd: str | None = None) -> list[SessionFact]:
    """The facts of a history that can be lost, at most 400, each once."""
    said = utterances(before)
    makers: tuple[Callable[[], Iterable[SessionFact]], ...] = (
        lambda: (
            SessionFact("rule", a.text, _place(a), names_in(a.text), forbidden_in(a.text)) for a in rules_in(said)
        ),
        lambda: _standing(said),
        lambda: _decided(before),
        lambda: _failed(before, said),
        lambda: _open(before),
        lambda: _errors(before),
        lambda: _files(before, cwd),
    )
    found: dict[tuple[str, str], SessionFact] = {}
    for make in makers:
        for fact in make():
            if len(found) < _MOST_FACTS:
                found.setdefault((fact.kind, fact.text), fact)
    return list(found.values())


def _standing(said: Sequence[Utterance]) -> Iterator[SessionFact]:
    """Rules of the user that say what is always to be done, where no word of them forbids."""
    for one in said:
        for sentence, _ in one.sentences() if one.role == "user" else ():
            if len(sentence) <= 300 and _ALWAYS.search(sentence) and not sentence.endswith("?"):
                yield SessionFact("rule", sentence.rstrip(" .!"), one.at, names_in(sentence), forbidden_in(sentence))


def _place(atom: ProbeAtom) -> int:
    return atom.sources[0].message if atom.sources else 0


def _decided(before: Sequence[ChatMessage]) -> Iterator[SessionFact]:
    for one in decisions(before):
        chosen = one.atoms[0]
        left = one.fill[0] if one.key == "chosen" and one.fill else ""
        rejected = names_in(left) or ((left,) if 0 < len(left.split()) <= 4 else ())
        yield SessionFact("decision", chosen.text, _place(chosen), names_in(chosen.text), rejected)


def _failed(before: Sequence[ChatMessage], said: Sequence[Utterance]) -> Iterator[SessionFact]:
    for ran in runs(before):
        if _failure(ran.output.text) and not only_shows(ran.command):
            yield SessionFact("failed", _command(ran.command), ran.at)
    for one in said:
        for sentence, _ in one.sentences() if one.role in ("user", "assistant") else ():
            if len(sentence) <= 400 and _DID_NOT_WORK.search(sentence) and (names := names_in(sentence)):
                yield SessionFact("failed", sentence, one.at, names)


def _failure(output: str) -> str:
    """The line of an output that says what failed; "" for none."""
    printed = unwrapped(output)[0]
    lines = [line for line, _ in error_lines(Utterance(0, "tool", printed[-_LONGEST:]))]
    place = -1 if "Traceback (most recent call last)" in printed else 0  # which names the error last
    return " ".join(lines[place].split()) if lines else ""


def _command(text: str) -> str:
    """A command without the change of folder before it."""
    return " ".join(re.sub(r"^\s*cd\s+\S+\s*(?:&&|;)\s*", "", text).split())


def _open(before: Sequence[ChatMessage]) -> Iterator[SessionFact]:
    for one in open_work(before):
        if one.key in ("todo", "listed", "next", "failing", "request"):
            for atom in one.atoms:
                yield SessionFact("open", atom.text, _place(atom), names_in(atom.text))


def _errors(before: Sequence[ChatMessage]) -> Iterator[SessionFact]:
    """Errors that a command gave and that its last run no longer gave."""
    last: dict[str, str] = {}
    seen: dict[str, tuple[str, int]] = {}
    for ran in runs(before):
        command = _command(ran.command)
        last[command] = ran.output.text
        if (line := _failure(ran.output.text)) and not only_shows(command) and len(line) > 12:
            seen[line] = (command, ran.at)
    for line, (command, at) in seen.items():
        if line not in " ".join(last[command].split()):
            yield SessionFact("error", line, at)


def _files(before: Sequence[ChatMessage], cwd: str | None) -> Iterator[SessionFact]:
    """Files that were read and not changed since."""
    last: dict[str, tuple[str, int]] = {}
    for at, _, act, path in acts_of(before, cwd=cwd):
        last[_bare(path, cwd)] = (act, at)
    for path, (act, at) in last.items():
        if act == "read" and path:
            yield SessionFact("file", path, at)


def _bare(path: str, cwd: str | None) -> str:
    return path.removeprefix(f"{cwd.rstrip('/')}/" if cwd else "").removeprefix("./")


# What was lost of them, and missed
# ------------------------------------------------------------------------


def losses(
    facts: Sequence[SessionFact],
    before: Sequence[ChatMessage],
    opening: Sequence[ChatMessage],
    after: Sequence[ChatMessage],
    *,
    cwd: str | None = None,
    counter: TokenCounter | None = None,
) -> list[Loss]:
    """The facts that `opening` does not name, those first that `after` shows to have been missed."""
    visible = SearchableText(everything(opening))
    later = _Later(before, after, cwd, counter or counter_for())
    shown = {
        path for _, _, act, written in acts_of(opening, cwd=cwd) if act == "read" for path in (_bare(written, cwd),)
    }
    found = []
    for fact in facts:
        if fact.text not in shown if fact.kind == "file" else not _kept(fact, visible):
            found.append(later.missed(fact))
    return sorted(found, key=lambda loss: loss.need is None)


def _kept(fact: SessionFact, visible: SearchableText) -> bool:
    """True if a text says a fact: in its words, by all of its names, or in most of its content words."""
    if visible.names(ProbeAtom(fact.text)):
        return True
    if fact.names and all(visible.has(name) for name in fact.names):
        return True
    return not fact.names and fact.kind in ("rule", "decision", "open") and _says_again(visible.text, fact.text)


def _says_again(text: str, fact: str) -> bool:
    """True if one sentence of a text has most of the content words of another."""
    wanted = _content(fact)
    sentences = (sentence for sentence, _ in Utterance(0, "", text).sentences())
    return len(wanted) >= 2 and any(len(wanted & _content(one)) >= _SAME * len(wanted) for one in sentences)


def _content(text: str) -> set[str]:
    return {stem(word) for word in tokens(text.casefold()) if len(word) > 3}


class _Later:
    """Acts of a session after a compaction, ready to be asked whether a fact was missed."""

    def __init__(
        self, before: Sequence[ChatMessage], after: Sequence[ChatMessage], cwd: str | None, counter: TokenCounter
    ) -> None:
        self.counter = counter
        self.runs = runs(after)
        self.said = [Utterance(at, "user", users_words(m)) for at, m in enumerate(after) if m.get("role") == "user"]
        self.acts = [(at, act, _bare(path, cwd)) for at, _, act, path in acts_of(after, cwd=cwd)]
        self.changed_before = [at for at, _, act, _ in acts_of(before, cwd=cwd) if act not in ("read", "unread")]
        self.before = {_command(ran.command): _failure(ran.output.text) for ran in runs(before)}
        self.calls = [(at, _edited(call), call) for at, m in enumerate(after) for call in tool_calls_of(m)]
        self.outputs = {m.get("tool_call_id"): message_text(m) for m in after if m.get("role") in RESULT_ROLES}

    def missed(self, fact: SessionFact) -> Loss:
        """The fact as a loss, with the first sign that it was missed."""
        signs: dict[FactKind, Callable[[SessionFact], Loss | None]] = {
            "file": self._read_again,
            "failed": self._tried_again,
            "error": self._met_again,
            "rule": partial(self._done, need="violated"),
            "decision": partial(self._done, need="turned round"),
        }
        sign = signs[fact.kind](fact) if fact.kind in signs else None
        return sign or self._asked_again(fact) or Loss(fact.kind, fact.text)

    def _read_again(self, fact: SessionFact) -> Loss | None:
        for at, act, path in self.acts:
            if path == fact.text and act == "read":
                texts = [self.outputs.get(call["id"], "") for place, _, call in self.calls if place == at]
                own = max((text for text in texts), key=len, default="")
                return Loss("file", fact.text, "read again", path, at, self.counter.count(own))
            if path == fact.text and act != "unread":
                return None  # written anew: nothing of the old text was missed
        return None

    def _tried_again(self, fact: SessionFact) -> Loss | None:
        if fact.names:
            return self._done(fact, need="tried again", names=fact.names, all_of=True)
        changed = [at for at, act, _ in self.acts if act not in ("read", "unread")]
        for ran in self.runs:
            same = _command(ran.command) == fact.text
            if same and any(at < ran.at for at in changed):
                return None  # something was changed first: then it is another try
            if same and any(at > fact.message for at in self.changed_before):
                return None
            if same and _failure(ran.output.text) == self.before.get(fact.text):
                return Loss("failed", fact.text, "tried again", _failure(ran.output.text), ran.at)
        return None

    def _met_again(self, fact: SessionFact) -> Loss | None:
        for ran in self.runs:
            if _failure(ran.output.text) == fact.text and not only_shows(ran.command):
                return Loss("error", fact.text, "met again", ran.command.strip()[:200], ran.at)
        return None

    def _done(
        self, fact: SessionFact, need: Need, names: Sequence[str] | None = None, all_of: bool = False
    ) -> Loss | None:
        """The first act that does what the names stand for: a file of the name changed (or read, where the rule speaks
        of reading), a command with it, a text put in with it.
        """
        wanted = fact.rejected if names is None else names
        if not wanted:
            return None
        reads = fact.kind == "rule" and bool(_READS.search(fact.text))
        for at, act, path in self.acts:
            touched = not all_of and act != "unread" and (act != "read" or reads)
            if touched and any(_is_path(name) and _below_path(path, name) for name in wanted):
                return Loss(fact.kind, fact.text, need, f"{_DID.get(act, act)} {path}", at)
        rest = [name for name in wanted if not _is_path(name)] or ([*wanted] if all_of else [])
        for at, text, _ in self.calls:
            said = SearchableText(text)
            hits = [name for name in rest if said.has(name)]
            if hits and (not all_of or len(hits) == len(rest)):
                return Loss(fact.kind, fact.text, need, _around_name(text, hits[0]), at)
        return None

    def _asked_again(self, fact: SessionFact) -> Loss | None:
        for one in self.said:
            for sentence, _ in one.sentences():
                named = fact.names and all(SearchableText(sentence).has(name) for name in fact.names)
                if (named and len(_content(sentence) & _content(fact.text)) >= 2) or _says_again(sentence, fact.text):
                    return Loss(fact.kind, fact.text, "asked again", sentence[:200], one.at)
        return None


def _is_path(name: str) -> bool:
    return "/" in name or bool(re.search(r"\.\w{1,5}$", name))


def _below_path(path: str, name: str) -> bool:
    bare = name.rstrip("/*").removeprefix("./")
    return path == bare or path.endswith("/" + bare) or f"/{path}".find(f"/{bare}/") >= 0


def _edited(call: Mapping[str, Any]) -> str:
    """The text that a call puts in or runs: the command, or what an edit writes; of other calls nothing."""
    arguments = str(call["arguments"])
    return (command_in(arguments) or sides_of(arguments)[1])[:_LONGEST]


def _around_name(text: str, name: str) -> str:
    at = max(0, text.casefold().find(name.casefold()))
    line = text[text.rfind("\n", 0, at) + 1 :].split("\n", 1)[0]
    return line.strip()[:200]
