"""Compressors outside this process: a program (`cli:`), a service (`http:`), recorded results (`pairs:`).

A program reads a session on standard input and writes a shorter one on standard output, never through a shell. A
service takes one over HTTP: by its URL alone if it speaks our plain form, else described in a file. Of recorded results
for these very messages nothing runs or costs, and the numbers can be repeated.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from context_bench.compression.compressors.provider_api import post_json
from context_bench.compression.compressors.texts import Messages, result_of
from context_bench.compression.probes import packed, rendered, tokens_of
from context_bench.core.addresses import base_url
from context_bench.core.errors import BadInput, BadReply, BadSpec, Refused
from context_bench.core.keys import hash_text, load_json, stable_hash
from context_bench.core.numbers import duration
from context_bench.core.protocols import Compressed
from context_bench.core.templates import at, fill, names_in, read_description
from context_bench.core.tokens import counter_for
from context_bench.llm.redact import bare_url, key_in, redact, secrets_in
from context_bench.llm.sessions import leave
from context_bench.sandbox.vendors import run_program, time_left
from context_bench.systems.recorded_answers import NotRecorded
from context_bench.wire.conversation import ChatMessage, message_text, tool_calls_of
from context_bench.wire.request import SYSTEM_ROLES

SCHEMES = {
    "cli": "program_of",
    "http": "service_of",
    "pairs": "RecordedPairs",
}
ADAPTED = {"as-recorded": "AsRecorded"}
TIMEOUT = 120.0
#: Names in any description, each with the type of its value.
_COMMON = {"name": (str, "text"), "needs_query": (bool, "true or false")}


class CommandFilter:
    """`cli:COMMAND`: text in, text out. `cli:json:COMMAND`: `{"messages", "budget", "query"}` in; `{"messages"}` or
    `{"text"}` out.

    `{budget}` and `{query}` in an argument are replaced. The program runs in a process group of its own; it and all
    that it started are killed after `timeout` seconds or at 64 MiB of output. An exit status other than 0 is a failure.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        form: str = "text",
        timeout: float = TIMEOUT,
        name: str | None = None,
        needs_query: bool = False,
    ) -> None:
        self.argv, self.form, self.timeout = list(argv), form, timeout
        self.name = name or Path(self.argv[0]).name
        self.needs_query = needs_query

    def fingerprint(self) -> dict[str, Any]:
        """The command as it was given."""
        return {"class": "CommandFilter", "argv": self.argv, "format": self.form}

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The output of the program."""
        counter = counter_for()
        given = {"messages": prefix, "budget": budget, "query": query}
        stdin = json.dumps(given) + "\n" if self.form == "json" else rendered(prefix)
        done = run_program([self._filled(word, budget, query) for word in self.argv], time_left(self.timeout), stdin)
        if done.status != 0:
            said = (
                redact((done.err.strip() or done.out.strip())[-4000:].decode("utf-8", "replace"))[-1000:]
                or "it said nothing"
            )
            how = f"exit status {done.status}" if done.status > 0 else f"signal {-done.status}"
            raise Refused(f"{self.name} ended with {how}: {said}")
        made = self._read(done.out)
        return Compressed(made, tokens_of(prefix, counter), tokens_of(made, counter)), state

    def _filled(self, word: str, budget: int | None, query: str | None) -> str:
        if "{budget}" in word and budget is None:
            raise BadInput(f"cli: {self.name} asks for {{budget}}, and no budget was given; write the number")
        return word.replace("{budget}", str(budget)).replace("{query}", query or "")

    def _read(self, out: bytes) -> Messages:
        text = out.decode("utf-8", "replace")
        if self.form == "text":
            return result_of(text, self.name)
        try:
            return result_of(load_json(text), self.name)
        except ValueError:
            raise BadReply(f"{self.name} is expected to write JSON, found {redact(text[:2000])[:200]!r}") from None


def program_of(target: str) -> CommandFilter:
    """The text after `cli:`: a command, `json:` and a command, or a file that describes one."""
    if target.endswith(".toml") and not any(char.isspace() for char in target):
        return _from_file(target)
    kind, colon, rest = target.partition(":")
    form, command = (kind, rest) if colon and kind in ("json", "text") else ("text", target)
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"cli:{target}: the command cannot be read: {error}") from None
    if not argv:
        raise BadInput(f"cli:{target}: no command is named")
    return CommandFilter(argv, form=form)


def _from_file(path: str) -> CommandFilter:
    given, faults = _description(path, {}, {"command", "format"})
    argv = given.get("command")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        faults.append('`command` is expected to be a list of arguments, as in ["program", "--budget", "{budget}"]')
    if given.get("format", "text") not in ("text", "json"):
        faults.append(f"`format` is text or json, found {given['format']!r}")
    if faults:
        raise BadSpec(path, faults)
    options = {name: given[name] for name in ("timeout", *_COMMON) if name in given}
    return CommandFilter(argv or [], form=given.get("format", "text"), **options)


def _description(
    path: str, kinds: Mapping[str, tuple[type, str]], more: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """A described compressor and the faults of what any description may have. `kinds`: further names with the type of
    their values; `more`: names whose values the caller checks.
    """
    given = read_description(path)
    typed = {**kinds, **_COMMON}
    names = {*typed, *more, "timeout"}
    faults = [f"`{name}` is not known; expected {', '.join(sorted(names))}" for name in sorted(given.keys() - names)]
    faults += [
        f"`{name}` is expected to be {what}, found {given[name]!r:.40}"
        for name, (kind, what) in typed.items()
        if name in given and not isinstance(given[name], kind)
    ]
    if not duration(given.get("timeout", TIMEOUT)):
        faults.append(f"`timeout` is expected to be seconds above 0, found {given['timeout']!r}")
    return given, faults


_PLAIN = {"messages": "{messages}", "budget": "{budget}", "query": "{query}"}
_PLACES = frozenset(("messages", "text", "budget", "query"))
_KINDS = {
    "url": (str, "text"),
    "headers": (dict, "a table"),
    "auth": (dict, "a table"),
    "messages": (str, "a path"),
    "text": (str, "a path"),
}


class HTTPCompressor:
    """`http:URL`: gets `{"messages", "budget", "query"}` by POST, gives messages, `{"messages"}` or `{"text"}`.
    `http:FILE.toml` says more:

    ```toml
    name = "morph"
    url = "https://api.example.com/v1/compact"
    timeout = 60                                   # seconds
    [auth]                                         # the variable's name stands here, its value nowhere
    env = "COMPACT_KEY"
    header = "Authorization"                       # value = "Bearer {key}"
    [body]                                         # {messages} {text} {budget} {query}; what has no value is left out
    input = "{text}"
    target_tokens = "{budget}"
    ```

    `text = "output.0"` or `messages = "result.messages"` (beside `url`) is the path to the result in the reply.
    """

    def __init__(self, url: str, *, more: Mapping[str, Any] | None = None, key: tuple[str, str] | None = None) -> None:
        given = more or {}
        parts = urlsplit(url := base_url(url, "http: the URL of the service"))
        if parts.username or parts.password:
            raise BadInput("http: the URL holds a login; give it through [auth] in a file (docs/guide/compressors.md)")
        self._url, self._key = url, key
        self.name: str = given.get("name") or parts.hostname or ""
        self._timeout, self._headers = (
            float(given.get("timeout", TIMEOUT)),
            dict(given.get("headers", {})),
        )
        self._body: Any = given.get("body", _PLAIN)
        found = next(((str(given[kind]), kind) for kind in ("messages", "text") if kind in given), ("", "either"))
        self._path, self._reads = found
        self.needs_query = bool(given.get("needs_query", False))

    def __repr__(self) -> str:
        return f"HTTPCompressor({bare_url(self._url)!r})"

    def fingerprint(self) -> dict[str, Any]:
        """The address and the settings; no key."""
        return {
            "class": "HTTPCompressor",
            "url": bare_url(self._url),
            "body": self._body,
            "headers": sorted(self._headers),
        }

    async def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The reply of the service."""
        counter = counter_for()
        values = {"messages": prefix, "text": rendered(prefix), "budget": budget, "query": query}
        headers = {**self._headers, **({self._key[0]: self._key[1]} if self._key else {})}
        document = await post_json(self, self._url, fill(self._body, values), headers=headers, timeout=self._timeout)
        found = at(document, self._path)
        if found is None or (self._reads == "text" and not isinstance(found, str)):
            raise BadReply(
                f"{self.name}: nothing to read at {self._path or 'the top'!r} of the reply of {bare_url(self._url)}"
            )
        made = result_of(found, self.name)
        return Compressed(made, tokens_of(prefix, counter), tokens_of(made, counter)), state

    async def aclose(self) -> None:
        """Let go of the connections."""
        await leave(self)


def service_of(target: str) -> HTTPCompressor:
    """The text after `http:`: a URL, or a description's file."""
    if target.startswith(("http://", "https://")):
        return HTTPCompressor(target)
    given, faults = _description(target, _KINDS, {"body"})
    if "body" in given and (odd := sorted(names_in(given["body"]) - _PLACES)):
        faults.append(
            f"`body`: {{{odd[0]}}} is not known; expected {', '.join(f'{{{name}}}' for name in sorted(_PLACES))}"
        )
    if not given.get("url"):
        faults.append("no `url`")
    if faults:
        raise BadSpec(target, faults)
    if loud := [name for name, value in given.get("headers", {}).items() if secrets_in({str(name): str(value)})]:
        raise BadSpec(
            target, [f"header {loud[0]!r} looks like a key; give it through [auth] and an environment variable"]
        )
    return HTTPCompressor(given["url"], more=given, key=_key(target, given.get("auth")))


def _key(target: str, auth: Mapping[str, Any] | None) -> tuple[str, str] | None:
    if auth is None:
        return None
    variable, header, value = auth.get("env"), auth.get("header", "Authorization"), auth.get("value", "Bearer {key}")
    if (
        not all(isinstance(one, str) for one in (variable, header, value))
        or "{key}" not in value
        or auth.keys() - {"env", "header", "value"}
    ):
        raise BadSpec(
            target,
            [
                "[auth] is expected to have env (the name of a variable), and may have header and value (with {key} "
                "in it)"
            ],
        )
    found = key_in(str(variable))
    if not found:
        raise BadInput(f"{target} takes its key from {variable}, which is not set")
    return header, value.replace("{key}", found.strip())


class RecordedPairs:
    """`pairs:FILE.jsonl`: lines of `{id, original_messages, compressed_messages}`, found by what the original says.

    System messages are left aside on both sides. A pair of a whole request (prefix and tail) fits too, if the recorded
    result ends with the tail. What is not in the file is the counted failure `NotRecorded`; two results for one
    original are `BadInput`.
    """

    deterministic = True

    def __init__(self, path: str) -> None:
        from context_bench.transcripts.session_files import read_pairs

        self.name = "pairs"
        self._path = path
        self._results: dict[str, Messages] = {}
        for pair in read_pairs(path):
            key, made = _identity(pair.original), _spoken(pair.compressed)
            if self._results.setdefault(key, made) != made:
                raise BadInput(
                    f"{path}: {pair.id!r} has another result for an original that was there before; give one file per "
                    "compressor"
                )
        if not self._results:
            raise BadInput(f"{path} holds no pairs; expected lines of {{id, original_messages, compressed_messages}}")

    def fingerprint(self) -> dict[str, Any]:
        """The content of the file, not its place."""
        return {"class": "RecordedPairs", "pairs": stable_hash(self._results)}

    def compress(
        self,
        prefix: Messages,
        tail: Messages,
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The recorded result; a budget changes nothing."""
        counter = counter_for()
        made = [] if not prefix else self._found(prefix, tail)
        left = tokens_of(made, counter)
        over = budget is not None and left > budget
        warnings = [f"the recorded result has {left} tokens where {budget} were allowed"] if over else []
        return Compressed(made, tokens_of(prefix, counter), left, warnings=warnings), state

    def _found(self, prefix: Messages, tail: Messages) -> Messages:
        if (made := self._results.get(_identity(prefix))) is not None:
            return made
        whole = self._results.get(_identity([*prefix, *tail])) if tail else None
        end = 0 if whole is None else len(whole) - len(tail)
        if whole is not None and _identity(whole[end:]) == _identity(tail):
            return whole[:end]
        raise NotRecorded(
            f"{self._path} has no result for these {len(prefix)} messages ({len(self._results)} originals are in it)"
        )


def _spoken(messages: Sequence[ChatMessage]) -> Messages:
    return [message for message in messages if message.get("role") not in SYSTEM_ROLES]


def _identity(messages: Sequence[ChatMessage]) -> str:
    """The texts of messages, however their content is written."""
    return stable_hash(
        [[m.get("role"), message_text(m), tool_calls_of(m), m.get("tool_call_id")] for m in _spoken(messages)]
    )


def history_key(messages: Sequence[ChatMessage]) -> str:
    """Name of a history, by which its recorded compaction is found again."""
    return hash_text(packed(messages), 24)


class AsRecorded:
    """Replaces a history by what the session's own client replaced it with. `recorded`: those by `history_key`."""

    name = "as-recorded"
    ignores_budget = True

    def __init__(self, recorded: Mapping[str, list[ChatMessage]] | None = None, model: str | None = None) -> None:
        self.recorded, self.model = dict(recorded or {}), model

    def fingerprint(self) -> dict[str, Any]:
        """The histories that are known, and their replacements."""
        return {"class": "AsRecorded", "recorded": hash_text(repr(sorted(self.recorded.items())), 24)}

    def compress(
        self,
        prefix: list[ChatMessage],
        tail: list[ChatMessage],
        *,
        state: Any = None,
        budget: int | None = None,
        query: str | None = None,
    ) -> tuple[Compressed, Any]:
        """The recorded replacement. `BadInput` for a history of which the session recorded no compaction."""
        found = self.recorded.get(history_key(prefix))
        if found is None:
            raise BadInput(
                "as-recorded: the session recorded no compaction of this history; it compresses where the session's "
                "own client did (--points recorded)"
            )
        counter = counter_for(self.model)
        return Compressed(list(found), tokens_of(prefix, counter), tokens_of(found, counter)), state
