"""Agents whose calls and claims stand in what the model says: fenced commands, what came back, and the code it names as read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from context_bench.core.numbers import whole
from context_bench.transcripts.record import Transcript
from context_bench.transcripts.trace import Event, Ranges
from context_bench.transcripts.values import parsed, texts

FENCE = re.compile(r"```(?:bash|sh|shell|mswea_bash_command)[ \t]*\n(.*?)\n?```", re.S)
_EXPLORE = re.compile(r"<explore_context>(.*?)</explore_context>", re.S | re.I)
_FINAL = re.compile(r"<PATCH_CONTEXT>(.*?)</PATCH_CONTEXT>", re.S | re.I)
_SUBMIT = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
_SPAN = re.compile(r"File:[ \t]*(\S[^\n]*?)[ \t]*\n\s*Lines:[ \t]*(\d{1,9})[ \t]*-[ \t]*(\d{1,9})", re.I)


def claim(
    path: str, ranges: Ranges, step: int, tool: str, symbols: tuple[str, ...] = (), *, shown: bool = False, named: bool = True
) -> Event:
    """What a prediction, or the agent about itself, says was read. `named`: see `Event`."""
    return Event(step, None, "read", tool, path, ranges, "self_report", "shown" if shown else "claimed", symbols=symbols, named=named)


def spans(block: str, step: int, tool: str) -> list[Event]:
    """Claims in a block of `File:` and `Lines: a-b`."""
    lines: dict[str, list[tuple[int, int]]] = {}
    for hit in _SPAN.finditer(block):
        lines.setdefault(hit[1], []).append((int(hit[2]), int(hit[3])))
    return [claim(path, tuple(found), step, tool) for path, found in lines.items()]


def fenced(said: str) -> list[str]:
    """The command that an answer in plain text gives: its first fenced block, if it has one."""
    return FENCE.findall(said)[:1]


def tool_of(command: Any) -> str:
    """`submit` for the command that hands the work in, which reads nothing, else `bash`."""
    return "submit" if isinstance(command, str) and any(mark in command for mark in _SUBMIT) else "bash"


def observation(content: str, extra: Mapping[str, Any]) -> tuple[str, int | None, bool]:
    """Of what the agent was shown: the command's output, its exit code if that is told, and whether the middle was cut out."""
    told, code = parsed(content), whole(extra.get("returncode"))
    if isinstance(told, Mapping) and ("output" in told or "output_head" in told):
        code = whole(told.get("returncode")) if code is None else code
        return texts(told.get("output", told.get("output_head"))) or "", code, "output_head" in told
    if "raw_output" in extra and "<output_head>" not in content and "elided" not in content:
        return texts(extra.get("raw_output")) or "", code, False
    return content, code, False


def claims(said: str, one: Transcript) -> None:
    """Note what the agent says of itself in an answer: blocks that it explores, and the last context it names for its patch."""
    for block in _EXPLORE.findall(said):
        one.events += spans(block, len(one.calls) + 1, "explore_context")
    if blocks := _FINAL.findall(said):
        one.final = spans(blocks[-1], 1, "PATCH_CONTEXT")
