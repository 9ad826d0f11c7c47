"""Checks of what an agent sends, from its recorded requests or from an agent that is started with our provider alone.

There is no front to compare with: a request is held against the rules of the provider that gets it, a session against
its own beginning, and a second start of the same agent against the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.families import GradeAnswer, GradeCheck, GradeFault, GradeTarget
from context_bench.core.keys import canonical_json
from context_bench.core.machine import started
from context_bench.llm.redact import redact
from context_bench.llm.servers import ModelServer
from context_bench.traffic.client import dummy_environment, prepare
from context_bench.traffic.probes import KEY, WIRES, ProbeProvider
from context_bench.wire.apis import parse_request
from context_bench.wire.diff import first_difference
from context_bench.wire.violations import lint_request, repeated_requests

#: Seconds for one run of an agent.
_AGENT_SECONDS = 45.0
#: Characters that show a finding.
_AROUND = 200
_NOTHING_SENT = "it sent no request to an API that is known here"


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One request of an agent, as it was sent."""

    wire: str
    body: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The body for people, without keys."""
        return redact(canonical_json(self.body), (KEY,))


#: A session's requests in order.
AgentSession = Sequence[AgentRequest]


@asynccontextmanager
async def agent_checks(target: GradeTarget) -> AsyncIterator[Sequence[GradeCheck]]:
    """The checks of a recording, or of an agent that is started twice."""
    if target.subject == "agent-log":
        sessions = _recorded(target.value)
        yield _checks(sessions)
        return
    first, second = [await _started(target.value) for _ in range(2)]
    repeated = GradeCheck(
        "agent, started twice",
        ("determinism",),
        "Does it send the same beginning again?",
        partial(_answer_twice, first.requests, second.requests),
    )
    checks = [*_checks([first.requests]), repeated]
    how = GradeCheck("agent, its end", ("errors",), "Does it end well?", partial(_ending, first))
    yield [*checks, how]


def _recorded(place: str) -> list[AgentSession]:
    from context_bench.datasets.recorded import RecordedSessions

    sessions: list[AgentSession] = [
        [AgentRequest(request.wire, request.body) for request in session.requests]
        for _, session in RecordedSessions([place], agents=True).sessions()
    ]
    if not any(sessions):
        raise BadInput(f"--agent-log {place}: it holds no requests; expected a recording such as `tap --record` makes")
    return sessions


def _checks(sessions: Sequence[AgentSession]) -> list[GradeCheck]:
    asked = {
        "agent, its requests are valid": (
            ("faithful requests", "cache and money"),
            "Would the provider take them?",
            _valid,
        ),
        "agent, a session keeps its beginning": (
            ("determinism", "cache and money"),
            "Does what was sent before stay the beginning of what is sent now?",
            _grown,
        ),
        "agent, nothing is sent twice": (("cache and money",), "Is a request paid once?", _once),
    }
    return [
        GradeCheck(name, headings, question, partial(_over_all, sessions, answer))
        for name, (headings, question, answer) in asked.items()
    ]


async def _over_all(sessions: Sequence[AgentSession], answer: Any) -> GradeAnswer:
    """The faults of all sessions, of each kind the first with the number of all."""
    if not any(sessions):
        return GradeAnswer(not_asked=_NOTHING_SENT)
    found = [fault for session in sessions for fault in answer(session)]
    firsts: dict[str, GradeFault] = {}
    for fault in found:
        firsts.setdefault(fault.kind, fault)
    numbered = [
        GradeFault(
            kind,
            fault.detail
            if (times := sum(each.kind == kind for each in found)) == 1
            else f"{fault.detail}; {times} times",
            fault.sent,
            fault.arrived,
            fault.tokens,
        )
        for kind, fault in firsts.items()
    ]
    count = sum(map(len, sessions))
    return GradeAnswer(tuple(numbered), detail=f"{count:,} requests in {len(sessions):,} sessions")


def _valid(session: AgentSession) -> list[GradeFault]:
    return [
        GradeFault(found.kind, f"request {number + 1}: {found.detail}", request.text, tokens=_tokens(request))
        for number, request in enumerate(session)
        for found in lint_request(request.body, request.wire)
    ]


def _tokens(request: AgentRequest) -> int:
    from context_bench.core.tokens import counter_for
    from context_bench.wire.request import count_request

    parsed = parse_request(request.wire, request.body)
    return count_request(parsed, counter_for(parsed.model)).total


def _grown(session: AgentSession) -> list[GradeFault]:
    """Messages that are another now, where the history did not become shorter: that is a compaction, and meant."""
    faults: list[GradeFault] = []
    for number, (before, now) in enumerate(pairwise(session), 2):
        a, b = (
            [canonical_json([one.role, one.text]) for one in parse_request(each.wire, each.body).messages]
            for each in (before, now)
        )
        if len(b) < len(a) or a[:1] != b[:1]:  # shortened, or another conversation
            continue
        place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
        if place < len(a) - 1:  # the last message may change when it is the last no more
            detail = f"request {number}: message {place + 1} of the {len(a):,} that were sent is another now"
            tokens = _tokens(now)
            faults += [
                GradeFault(kind, detail, a[place], b[place], tokens) for kind in ("prefix_broken", "history_rewritten")
            ]
    return faults


def _once(session: AgentSession) -> list[GradeFault]:
    bodies = [(canonical_json(request.body).encode(), 200) for request in session]
    return [
        GradeFault(found.kind, f"request {(found.index or 0) + 1}: {found.detail}", session[found.index or 0].text)
        for found in repeated_requests(bodies)
    ]


async def _answer_twice(first: AgentSession, second: AgentSession) -> GradeAnswer:
    """The first request of both starts: the later ones follow from replies, which are the same."""
    if not first or not second:
        return GradeAnswer(not_asked=_NOTHING_SENT)
    found = []
    for number, (one, other) in enumerate(zip(first, second, strict=False), 1):
        a, b = one.text, other.text
        place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        if place is not None:
            around = slice(max(0, place - _AROUND // 2), place + _AROUND)
            difference = first_difference(one.body, other.body)
            cause = f", {difference.path}: {difference.cause}" if difference is not None and difference.path else ""
            detail = f"request {number} differs between two starts, from character {place:,} of its canonical form on"
            detail += cause
            found.append(GradeFault("bytes_differ", detail, a[around], b[around], _tokens(one)))
    if len(first) != len(second):
        found.append(GradeFault("bytes_differ", f"{len(first)} requests in one start, {len(second)} in another"))
    return GradeAnswer(tuple(found[:3]), detail=f"{len(first)} requests in each start")


@dataclass(frozen=True, slots=True)
class AgentStart:
    """One start of an agent: what it sent, and why it did not end well."""

    requests: AgentSession
    failure: str = ""


async def _ending(start: AgentStart) -> GradeAnswer:
    """Its end after our replies; of one that got none, nothing is known but that it ended."""
    if not start.requests:
        return GradeAnswer(not_asked="; ".join([_NOTHING_SENT, *([start.failure] if start.failure else [])]))
    return GradeAnswer((GradeFault("agent_failed", start.failure),) if start.failure else ())


async def _started(line: str) -> AgentStart:
    """Start an agent with dummy keys and our provider as every provider, and wait for its end."""
    async with ModelServer(ProbeProvider()) as provider:
        prepared = prepare(shlex.split(line), provider.url, dummy_environment(KEY))
        with tempfile.TemporaryFile() as log:
            try:
                agent = await started(
                    *prepared.command,
                    env=prepared.env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            except OSError as error:
                raise BadInput(
                    f"--command: {prepared.command[0]!r} cannot be started: {error.strerror or error}"
                ) from None
            failure = await _outcome(agent, log.fileno())
        sent = [each for each in provider.requests if each.wire in WIRES and isinstance(each.body, Mapping)]
    return AgentStart([AgentRequest(each.wire, each.body) for each in sent], failure)


async def _outcome(agent: asyncio.subprocess.Process, log: int) -> str:
    """The reason for a bad end; empty if it ended well. It and all that it started are at their end afterwards."""
    try:
        code = await asyncio.wait_for(agent.wait(), _AGENT_SECONDS)
    except TimeoutError:
        return f"no end within {_AGENT_SECONDS:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(agent.pid, signal.SIGKILL)
        await agent.wait()
    if not code:
        return ""
    size = os.fstat(log).st_size
    words = redact(os.pread(log, 400, max(0, size - 400)).decode("utf-8", "replace"), (KEY,)).strip()
    return f"exit code {code}: {words or 'no output'}"
