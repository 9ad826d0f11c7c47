"""Agents' logs as traces: the lines of files that each tool call showed to the model, in any program's format."""

from __future__ import annotations

from context_bench.transcripts.traces.events import events_of_call as events_of_call
from context_bench.transcripts.traces.tool_calls import RunWorkspace as RunWorkspace
from context_bench.transcripts.traces.trace_files import load_traces as load_traces
from context_bench.transcripts.traces.vocabulary import Vocabulary as Vocabulary
from context_bench.transcripts.transcript import ToolCall as ToolCall, Transcript as Transcript
