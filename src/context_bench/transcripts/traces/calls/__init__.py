"""One tool call as events: what it read, searched, listed or edited, where that is known from, and whether it reached the model.

What the output shows counts before what the arguments ask for; where the two disagree the output wins and `Workspace.counts` says so.
"""

from context_bench.transcripts.traces.calls.batches import parts_of
from context_bench.transcripts.traces.calls.commands import command_of
from context_bench.transcripts.traces.calls.turning import events_of_call
from context_bench.transcripts.traces.calls.workspace import Workspace

__all__ = [
    "Workspace",
    "command_of",
    "events_of_call",
    "parts_of",
]
