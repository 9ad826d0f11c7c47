"""The next action of an agent against the recorded one: the same tool with the same arguments, or the same text.

Arguments are compared as they act, not as they are spelt: paths without `./` and detours, and relative to the working
directory where it is known; commands as the shell would split them; key order, spaces and what an agent says about a
command play no part. Pure; nothing is ever executed.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_bench.core.keys import canonical_json, load_json
from context_bench.core.records import Estimate, Example
from context_bench.core.text import f1_score

_PATH = re.compile(r"(?:.*_)?(?:path|file|filename|filepath|dir|directory|folder|cwd|workdir)s?", re.IGNORECASE)
_COMMAND = re.compile(r"(?:.*_)?(?:command|cmd)s?", re.IGNORECASE)
_REMARKS = frozenset(("description", "explanation", "justification", "reason", "thought"))
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "/bin/sh", "/bin/bash", "/usr/bin/bash", "/bin/zsh"))
_SCRIPT = re.compile(r"-[a-z]*c")


@dataclass(frozen=True, slots=True)
class Action:
    """Action of one reply: `calls` of tools as `{"name", "arguments"}` (arguments as JSON text or decoded), or else its
    text.
    """

    text: str = ""
    calls: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @classmethod
    def of(cls, text: Any, calls: Any) -> Action:
        """From the fields of a reply; odd values count as nothing said and nothing called."""
        listed = calls if isinstance(calls, list | tuple) else ()
        return cls(text if isinstance(text, str) else "", tuple(call for call in listed if isinstance(call, Mapping)))

    def __bool__(self) -> bool:
        return bool(self.calls or self.text.strip())


def agreement(made: Action, wanted: Action, *, cwd: str | None = None) -> dict[str, float]:
    """Agreement of `made` with `wanted`, each number in [0, 1].

    `action_match`: 1 if exactly the same calls are made; where `wanted` only speaks, the token F1 of what is said (0 if
    a tool is called instead). `tool_match`: F1 of the tools chosen. `argument_match` (only where `wanted` calls tools):
    share of the arguments that are equal, 0 for a call that has no counterpart. `text_f1` (only where `wanted` says
    something).
    """
    found: dict[str, float] = {}
    said = f1_score(made.text, wanted.text) if wanted.text.strip() else None
    if wanted.calls:
        one, other = (
            [(str(call.get("name")), arguments(call.get("arguments"), cwd)) for call in side.calls]
            for side in (made, wanted)
        )
        found["action_match"] = float(_counted(one) == _counted(other))
        found["tool_match"] = _overlap([name for name, _ in one], [name for name, _ in other])
        found["argument_match"] = _paired(one, other)
    else:
        found["action_match"] = 0.0 if made.calls else said if said is not None else float(not made.text.strip())
        found["tool_match"] = float(not made.calls)
    if said is not None:
        found["text_f1"] = said
    return found


def arguments(given: Any, cwd: str | None = None) -> dict[str, Any]:
    """Arguments of a call in normal form, by name; those that are no JSON object stand as they are under an empty
    name.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        try:
            given = load_json(given) if given.strip() else {}
        except ValueError:
            return {"": _spaced(given)}
    if not isinstance(given, Mapping):
        return {"": given}
    told = {str(name): value for name, value in given.items() if value is not None}
    if any(_COMMAND.fullmatch(name) for name in told):
        told = {name: value for name, value in told.items() if name.lower() not in _REMARKS}
    return {name: _normal(name, value, cwd) for name, value in told.items()}


def _normal(name: str, value: Any, cwd: str | None) -> Any:
    if _COMMAND.fullmatch(name) and isinstance(value, str | list):
        return command(value)
    if _PATH.fullmatch(name):
        if isinstance(value, str):
            return path(value, cwd)
        if isinstance(value, list):
            return [path(item, cwd) if isinstance(item, str) else item for item in value]
    return value.strip() if isinstance(value, str) else value


def path(text: str, cwd: str | None = None) -> str:
    """A path without detours; below `cwd`, relative to it."""
    text = text.strip().removeprefix("file://")
    if not text:
        return ""
    found = posixpath.normpath(text)
    if cwd:
        base = posixpath.normpath(cwd)
        if found == base or found.startswith(base.rstrip("/") + "/"):
            return posixpath.relpath(found, base)
    return found


def command(given: str | Sequence[Any]) -> list[str]:
    """A command as the words that a shell would see; `["bash", "-lc", SCRIPT]` is SCRIPT. Lines stay apart."""
    if not isinstance(given, str):
        words = [str(word) for word in given]
        if len(words) == 3 and words[0] in _SHELLS and _SCRIPT.fullmatch(words[1]):
            return command(words[2])
        return words
    lexer = shlex.shlex(given.strip(), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return ["\n" if word and not word.strip("\n") else word for word in lexer]
    except ValueError:  # a quote that is never closed
        return [_spaced(given)]


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _counted(calls: Iterable[tuple[str, dict[str, Any]]]) -> Counter[str]:
    return Counter(canonical_json([name, values]) for name, values in calls)


def _overlap(one: Sequence[str], other: Sequence[str]) -> float:
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other)) if one or other else 1.0


def _paired(made: list[tuple[str, dict[str, Any]]], wanted: list[tuple[str, dict[str, Any]]]) -> float:
    """Each wanted call against the call of the same tool that is most like it, each used once; mean over the longer
    side.
    """
    left, total = list(made), 0.0
    for name, values in wanted:
        same = [(_equal(found, values), place) for place, (tool, found) in enumerate(left) if tool == name]
        if same:
            share, place = max(same, key=lambda item: (item[0], -item[1]))
            total += share
            del left[place]
    return total / max(len(made), len(wanted))


def _equal(one: dict[str, Any], other: dict[str, Any]) -> float:
    names = one.keys() | other.keys()
    if not names:
        return 1.0
    return sum(
        name in one and name in other and canonical_json(one[name]) == canonical_json(other[name]) for name in names
    ) / len(names)


EVALUATORS = {"next_action": "NextAction"}
MEASURES = {
    "action_match tool_match argument_match text_f1": {"unit": "score", "better": "higher", "place": "agreement"},
}


class NextAction:
    """`action_match`, `tool_match`, `argument_match`, `text_f1`: does the reply do what the recording did next?

    The recording is `example["recorded"]` (`text`, `tool_calls`), the reply `response` and `tool_calls` of the output.
    Examples without a recorded reply are not scored. Nothing is executed.
    """

    name = "next_action"
    version = "1"
    needs = ("recorded",)

    def applies(self, example: Example, output: Example) -> bool:
        """A reply was recorded, and one was given."""
        return bool(recorded_action(example)) and "response" in output

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        wanted = recorded_action(original)
        if not wanted:
            return {}
        cwd = original.get("cwd")
        return agreement(
            Action.of(processed.get("response"), processed.get("tool_calls")),
            wanted,
            cwd=cwd if isinstance(cwd, str) else None,
        )


def recorded_action(example: Example) -> Action:
    """The recorded action; empty if the recording has none."""
    recording: Any = example.get("recorded")
    return Action.of(recording.get("text"), recording.get("tool_calls")) if isinstance(recording, Mapping) else Action()


# Two arms on the same requests
# ------------------------------------------------------------------------


@dataclass(slots=True)
class Agreement:
    """Share of a system's next actions that equal those of passthrough, on the same requests."""

    passthrough: Mapping[tuple[str, int], Action]
    values: dict[tuple[str, int], float] = field(default_factory=dict)
    clusters: list[str] = field(default_factory=list)

    def add(self, item: Mapping[str, Any]) -> None:
        """Take in one answer; those without a counterpart are left out."""
        row = item["row"]
        key = (str(row["example_id"]), int(row.get("trial") or 0))
        wanted = self.passthrough.get(key)
        if wanted is None or "system" in (row.get("errors") or {}):
            return
        cwd = (item["example"] or {}).get("cwd")
        self.values[key] = agreement(action_of(item), wanted, cwd=cwd)["action_match"]
        self.clusters.append(str(row.get("cluster") or key[0]))

    def estimate(self) -> Estimate | None:
        """Mean agreement with its interval over sessions; `None` if nothing could be compared."""
        if not self.values:
            return None
        from context_bench.stats import MIN_CLUSTERS, bounded

        values = list(self.values.values())
        found = Estimate(sum(values) / len(values), n=len(values), clusters=len(set(self.clusters)))
        if found.clusters >= MIN_CLUSTERS:
            found.low, found.high = bounded(values, self.clusters, low=0.0, high=1.0).interval()
            found.method = "score interval, clustered"
        return found


def action_of(item: Mapping[str, Any]) -> Action:
    """The action of a system's reply."""
    output = item["output"] or {}
    return Action.of(output.get("response"), output.get("tool_calls"))


def actions_by_request(items: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], Action]:
    """The actions of one system by (example id, trial); failed requests are left out."""
    return {
        (str(item["row"]["example_id"]), int(item["row"].get("trial") or 0)): action_of(item)
        for item in items
        if "system" not in (item["row"].get("errors") or {})
    }
