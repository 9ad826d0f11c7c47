"""Agents' logs as traces: which lines of which file each tool call showed to the model, in whatever format the program writes."""

from __future__ import annotations

from context_bench.transcripts.record import ToolCall as ToolCall
from context_bench.transcripts.record import Transcript as Transcript
from context_bench.transcripts.traces.calls import Workspace as Workspace
from context_bench.transcripts.traces.calls import events_of_call as events_of_call
from context_bench.transcripts.traces.read import load_traces as load_traces
from context_bench.transcripts.traces.vocabulary import Vocabulary as Vocabulary
