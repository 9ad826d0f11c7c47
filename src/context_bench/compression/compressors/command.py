"""Any program that reads a session on standard input and writes a shorter one on standard output. Never through a
shell.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_bench.compression.compressors.texts import Messages, result_of
from context_bench.compression.probes import rendered, tokens_of
from context_bench.core.errors import BadInput, BadReply, BadSpec, Refused
from context_bench.core.jsontext import load_json
from context_bench.core.numbers import duration
from context_bench.core.protocols import Compressed
from context_bench.core.templates import read_description
from context_bench.core.tokens import counter_for
from context_bench.llm.redact import redact
from context_bench.sandbox.vendors import run_program, time_left

SCHEMES = {"cli": "from_spec"}

TIMEOUT = 120.0
_KEYS = {"command", "format", "timeout", "name", "needs_query"}


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


def from_spec(target: str) -> CommandFilter:
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
    given = read_description(path)
    faults = [f"`{name}` is not known; expected {', '.join(sorted(_KEYS))}" for name in sorted(given.keys() - _KEYS)]
    argv = given.get("command")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        faults.append('`command` is expected to be a list of arguments, as in ["program", "--budget", "{budget}"]')
    if given.get("format", "text") not in ("text", "json"):
        faults.append(f"`format` is text or json, found {given['format']!r}")
    timeout = given.get("timeout", TIMEOUT)
    if not duration(timeout):
        faults.append(f"`timeout` is expected to be seconds above 0, found {timeout!r}")
    faults += [
        f"`{name}` is expected to be {what}"
        for name, kind, what in (("name", str, "text"), ("needs_query", bool, "true or false"))
        if not isinstance(given.get(name, kind()), kind)
    ]
    if faults:
        raise BadSpec(path, faults)
    options = {name: given[name] for name in ("timeout", "name", "needs_query") if name in given}
    return CommandFilter(argv or [], form=given.get("format", "text"), **options)
