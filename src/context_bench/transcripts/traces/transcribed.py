"""Transcripts as recordings, of which traces are made. The other view, as sessions, is `logs.transcripts.views`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from context_bench.transcripts.source import Source
from context_bench.transcripts.traces.recording import Recording, run
from context_bench.transcripts.transcripts.record import Message, Transcript


@dataclass(frozen=True)
class Recorded:
    """A format as the traces' door knows one: every run of a file as a recording, what its sub-agents did in it and marked."""

    reader: Any

    @property
    def NAME(self) -> str:
        """The format's name."""
        return str(self.reader.NAME)

    def recordings(self, source: Source) -> Iterator[Recording]:
        """One recording per run."""
        for transcript in self.reader.transcripts(source):
            one = recording(transcript)
            if one.told:
                yield one


def recording(transcript: Transcript) -> Recording:
    """The transcript as a recording: its calls in order, with what the model had processed before each."""
    one = run(transcript.agent, transcript.ident if transcript.named else None)
    one.lasting_shell, one.outputs = transcript.lasting_shell, transcript.outputs
    head = one.head
    head.model = transcript.model or next((m.model for m in transcript.messages() if m.model), None)
    head.cwd, head.repo, head.commit, head.patch = transcript.cwd, transcript.repo, transcript.commit, transcript.patch
    head.final, head.events = transcript.final, list(transcript.claims)
    costs: list[float] = []
    told = [(message, part is not transcript) for part in transcript.family() for message in part.messages()]
    if transcript.within and all(message.at is not None for message, _ in told):
        told.sort(key=lambda one: one[0].at or 0.0)
    for message, aside in told:
        _take(message, one, aside=aside)
        if message.cost is not None:
            costs.append(message.cost)
    head.usage = transcript.usage or head.usage
    head.cost = transcript.cost if transcript.cost is not None else sum(costs) if costs else None
    return one


def _take(message: Message, one: Recording, *, aside: bool) -> None:
    one.turns += message.made
    one.at(message.at)
    for call in [*message.acts, *message.calls]:
        call.turn = one.turns or None
        call.tokens_before, call.sidechain = one.processed, aside
        one.at(call.t)
        one.calls.append(call)
    one.billed(message.usage)
