"""Continuation: what is still to be done, by the last list of the agent, by what was said, and by tests that fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_bench.compression.probes import ProbeAtom, Source
from context_bench.compression.session_rules.facts import command_in
from context_bench.compression.session_rules.utterances import Candidate, Utterance, candidate, utterances
from context_bench.core.keys import load_json
from context_bench.wire.conversation import ChatMessage, message_text, tool_calls_of

_LEFT = re.compile(
    r"\b(?:remaining(?: work| steps| tasks)?|still (?:to do|open|missing|left)|left to do|next(?: steps?)?|to "
    r"?do|open(?: points?| items?)?"
    r"|not (?:yet )?done)\s*[:：]\s*(.+)"
    r"|\b(?:what remains is|what is left is|it remains to|next,? (?:I|we) (?:will|should|need to)|still needs? to"
    r"|(?:I|we) still have to)\s+(.+)"
    r"|(?:剩下的?|待办|还需要|下一步)\s*[:：]?\s*(.+)"
    r"|(?:offen(?: bleibt)?|noch zu tun|nächste Schritte?)\s*[:：]\s*(.+)"
    r"|(?:المتبقي|بقي)\s*[:：]?\s*(.+)",
    re.IGNORECASE,
)
_SPLIT = re.compile(r";|,\s*(?:and\s+)?then\s+|\.\s+Then\s+|\s+then\s+|；|，然后|,\s+and\s+(?=\w+ )")
_VERB = re.compile(
    r"^(?:(?:and|then|to|also|finally)\s+)*(?:(?:fix|run|re-?run|add|write|update|check|remove|rename|migrate|finish|implement|test|document"
    r"|deploy|clean up|look at|look "
    r"into|investigate|review|replace|verify|move|make|do|create|delete|release|merge|ask|wait for"
    r"|handle|close)\s+)?(?:(?:the|a|an|our|all|both)\s+)?",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"^(?:FAILED|ERROR)\s+(\S+)|^\s*(?:not ok \d+ -|✗|✕|×|--- FAIL:)\s*(\S.{0,120})|^(\S+::\S+)\s+FAILED"
    r"|^ ?FAIL  (\S+ > .{1,120})"
    r"|^(\w[\w$.]* > .{1,100}) FAILED$",
    re.M,
)
_PASSED = re.compile(
    r"^(?:PASSED|ok)\s+(\S+)|^\s*(?:ok \d+ -|✓|√|--- PASS:)\s*(\S.{0,120})|^(\S+::\S+)\s+PASSED|^(\w[\w$.]* > "
    r".{1,100}) PASSED$",
    re.M,
)
_ALL_WELL = re.compile(r"\b[1-9]\d* passed\b(?!.*\b[1-9]\d* (?:failed|errors?|deselected|failures?)\b)")
_SOME = re.compile(
    r"(?:^|[\s='\"])((?:[\w.-]+/)*[\w.-]*(?:test|spec)[\w.-]*(?:/|\.\w{1,4})[\w./:\[\]-]*)|(?:^|\s)(?:-k|--tests|-run|-t|--filter)\b",
    re.IGNORECASE,
)
_LONG_TASK = 1500
_LIST = re.compile(r"todo|plan|task_list|tasks", re.IGNORECASE)
_LOOKS = re.compile(r"read|view|grep|glob|search|list|fetch", re.IGNORECASE)
_PRAISE = re.compile(
    r"^(?:good|great|fine|thanks|thank you|ok(?:ay)?|agreed|yes|no|right|perfect|nice|sehr "
    r"gut|gut|danke|ja|好的?|谢谢)\b[^:;]{0,40}$",
    re.IGNORECASE,
)
_DONE = frozenset({"completed", "done", "finished", "cancelled", "canceled", "closed"})


def open_work(prefix: Sequence[ChatMessage]) -> Iterator[Candidate]:
    """Open work at the end of the messages: by the last list or what was said since, by tests, by the user's last
    word.
    """
    listed, at = _todo_atoms(prefix)
    told, since = _open_items(prefix)
    if told and since > at:
        yield candidate("continuation", "next", (), "; ".join(a.text for a in told), told, 0.5)
    elif listed:
        key = "listed" if _changed_since(prefix, at) else "todo"
        yield candidate("continuation", key, (), "; ".join(a.text for a in listed), listed, 0.0)
    failing, fixed = _tests(prefix)
    if failing:
        yield candidate("continuation", "failing", (), "; ".join(a.text for a in failing), failing, 1.0)
    if fixed:
        yield candidate("continuation", "fixed", (), "; ".join(a.text for a in fixed), fixed, 1.1)
    if done := _done(prefix, at):
        yield candidate("continuation", "done", (), "; ".join(a.text for a in done), done, 1.2)
    if task := _task(prefix):
        yield candidate("continuation", "task", (), " ".join(a.text for a in task), task, 2.0)
    if asked := _request(prefix):
        yield candidate("continuation", "request", (), " ".join(a.text for a in asked), asked, 0.8)


def _todo_atoms(prefix: Sequence[ChatMessage]) -> tuple[tuple[ProbeAtom, ...], int]:
    """The open items of the last list that the agent kept with a tool, and where it stands."""
    for at in range(len(prefix) - 1, -1, -1):
        for call in reversed(tool_calls_of(prefix[at])):
            items = _items(call["name"], call["arguments"])
            if items is not None:
                left = [text for text, status in items if status not in _DONE]
                return tuple(ProbeAtom(text, _short(text), "todo", (Source(at),)) for text in left), at
    return (), -1


def _done(prefix: Sequence[ChatMessage], at: int) -> tuple[ProbeAtom, ...]:
    """The items of the last list that are done."""
    calls = tool_calls_of(prefix[at]) if at >= 0 else []
    found = next(
        (items for call in reversed(calls) if (items := _items(call["name"], call["arguments"])) is not None), []
    )
    return tuple(ProbeAtom(text, _short(text), "todo", (Source(at),)) for text, status in found if status in _DONE)


def _task(prefix: Sequence[ChatMessage]) -> tuple[ProbeAtom, ...]:
    """The sentences of the user's first message, if it is short enough to be asked for."""
    one = next(iter(utterances(prefix, "user")), None)
    if one is None or len(one.text.strip()) > _LONG_TASK:
        return ()
    return tuple(
        ProbeAtom(text, (), "request", (one.source(start, start + len(text)),)) for text, start in _wanted(one)
    )


def _wanted(one: Utterance) -> list[tuple[str, int]]:
    pieces = [
        (text, start)
        for text, start in one.sentences()
        if 4 <= len(text.split()) + text.count("，") <= 40 and len(text) <= 300
    ]
    return [(text, start) for text, start in pieces if not _PRAISE.match(text)][:4]


def _changed_since(prefix: Sequence[ChatMessage], at: int) -> bool:
    """True if something was done beside or after message `at`: then nobody knows which of its items are done by now."""
    calls = [call for message in prefix[at:] for call in tool_calls_of(message)]
    return any(not _LIST.search(str(call["name"])) and not _LOOKS.search(str(call["name"])) for call in calls)


def _request(prefix: Sequence[ChatMessage]) -> tuple[ProbeAtom, ...]:
    """The sentences of the user's last message, where the assistant has not ended its turn since."""
    for one in reversed(utterances(prefix, "user", "assistant")):
        if one.role == "assistant":
            if not tool_calls_of(prefix[one.at]):
                return ()
            continue
        if len(one.text.strip()) > _LONG_TASK or one.at == utterances(prefix, "user")[0].at:
            return ()  # too long to be asked for, or the first word of the user, which is asked for by itself
        return tuple(
            ProbeAtom(text, (), "request", (one.source(start, start + len(text)),)) for text, start in _wanted(one)
        )
    return ()


def _items(name: Any, arguments: str) -> list[tuple[str, str]] | None:
    if not _LIST.search(str(name)):
        return None
    try:
        given = load_json(arguments)
    except ValueError:
        return None
    lists = [value for value in (given.values() if isinstance(given, Mapping) else [given]) if isinstance(value, list)]
    found = [item for item in (lists[0] if lists else []) if isinstance(item, Mapping)]
    texts = [
        (next((str(item[key]) for key in ("content", "step", "text", "title") if item.get(key)), ""), item)
        for item in found
    ]
    return [(text, str(item.get("status") or "").casefold()) for text, item in texts if text] if texts else None


def _short(text: str) -> tuple[str, ...]:
    bare = _VERB.sub("", text).strip()
    return (bare,) if bare and bare != text and len(bare) >= 4 else ()


def _open_items(prefix: Sequence[ChatMessage]) -> tuple[tuple[ProbeAtom, ...], int]:
    """Open items of the assistant's last text that lists some, with their places; none where files were worked on after
    it.
    """
    for one in reversed(utterances(prefix, "assistant")):
        found = [atom for sentence, start in one.sentences() for atom in _left(one, sentence, start)]
        if found:
            return (() if _changed_since(prefix, one.at + 1) else tuple(found)), one.at
    return (), -1


def _left(one: Utterance, sentence: str, start: int) -> Iterator[ProbeAtom]:
    hit = _LEFT.search(sentence)
    if hit is None:
        return
    place = next(number for number in range(1, 6) if hit[number])
    for item in _SPLIT.split(hit[place]):
        text = item.strip(" .,;:。；")
        bare = _VERB.sub("", text).strip()
        if len(bare) >= 4 and len(text) <= 200:
            at = start + max(0, sentence.find(bare))
            yield ProbeAtom(bare, (text,) if text != bare else (), "todo", (one.source(at, at + len(bare)),))


def _tests(prefix: Sequence[ChatMessage]) -> tuple[tuple[ProbeAtom, ...], tuple[ProbeAtom, ...]]:
    """Names of tests that fail, by the tools' outputs, and of those that failed and passed later. A run of everything
    leaves none failing.

    A run of some tests says nothing of the others.
    """
    commands = {
        call["id"]: command_in(call["arguments"]) or "" for message in prefix for call in tool_calls_of(message)
    }
    found: dict[str, Source] = {}
    ever: dict[str, Source] = {}
    for at, message in enumerate(prefix):
        if message.get("role") != "tool":
            continue
        text = message_text(message)
        failed = {name: text.find(name, hit.start()) for hit in _FAILED.finditer(text) if (name := _name(hit))}
        for hit in _PASSED.finditer(text):
            found.pop(_name(hit), None)
        if not failed and _ALL_WELL.search(text):
            some = [hit[1] for hit in _SOME.finditer(commands.get(message.get("tool_call_id"), ""))]
            if not some:
                found.clear()
            for name in [name for name in found if any(part and name.startswith(part.rstrip("/")) for part in some)]:
                del found[name]
        found |= {name: Source(at, place, place + len(name)) for name, place in failed.items()}
        ever |= {name: source for name, source in found.items() if name not in ever}
    gone = "\n".join(command for command in commands.values() if "git mv" in command or "rm " in command)
    still = {name: source for name, source in found.items() if name.split("::")[0] not in gone}
    fixed = {name: source for name, source in ever.items() if name not in found and name.split("::")[0] not in gone}
    return _named(still), _named(fixed)


def _named(tests: Mapping[str, Source]) -> tuple[ProbeAtom, ...]:
    return tuple(ProbeAtom(name, _last_part(name), "test", (source,)) for name, source in tests.items())


def _name(hit: re.Match[str]) -> str:
    return next((group.strip().rstrip(":") for group in hit.groups() if group), "")


def _last_part(name: str) -> tuple[str, ...]:
    last = re.split(r"::| > ", name)[-1].split(" - ")[0].strip()
    return (last,) if last and last != name else ()
