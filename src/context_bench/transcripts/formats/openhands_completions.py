"""OpenHands' `llm_completions/<id>/<model>-<time>.json`: one file for each request to the model, which repeats what
came before.

Fields (V0, `openhands/llm/llm.py`): `messages`, `response`, `args`, `kwargs`, `timestamp`, `cost`; where tools were put
into the prompt, `fncall_messages` and `fncall_response` hold the conversation with its calls. The SDK (V1,
`telemetry.py`) calls its files `<model>-<time>-<4 hex>.json` and writes `llm_path`, `messages` (on OpenAI's Responses
wire `instructions` and `input`), `tools`, `kwargs`, `response` (with its calls, wherever they were), `timestamp`,
`cost`, `latency_sec`; `…-error.json` is a request that was not answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from context_bench.core.errors import BadInput
from context_bench.core.keys import stable_hash
from context_bench.core.numbers import moment, money
from context_bench.core.usage import OPENAI, usage_of
from context_bench.transcripts.dialogue import Dialogue, reply_items
from context_bench.transcripts.format import Format, LogSource, Peek, mapping, sequence, text
from context_bench.transcripts.requests import Logged
from context_bench.transcripts.transcript import Transcript, run

_FILE_NAME = re.compile(r"-(\d{9,12}(?:\.\d{1,9})?)(?:-[0-9a-f]{4})?(?:-error)?\.json$")
#: A file of one request is no larger.
_LIMIT = 256 * 1024 * 1024


def sniff(peek: Peek) -> bool:
    """True if the first object is a request with its reply, as OpenHands keeps them."""
    first = peek.first
    told = isinstance(first.get("response"), Mapping) or isinstance(first.get("error"), Mapping)
    return told and _asked(first) is not None and ("kwargs" in first or "fncall_messages" in first or "args" in first)


def _asked(value: Mapping[str, Any]) -> str | None:
    """The field that holds what the model was given."""
    named = ("messages", "input") if value.get("llm_path") == "responses" else ("messages",)
    return next((name for name in named if isinstance(value.get(name), list)), None)


def is_part(path: Path) -> bool:
    """True if a file is one request of such a folder."""
    if not _FILE_NAME.search(path.name) or path.stat().st_size > _LIMIT:
        return False
    return sniff(Peek(LogSource(path)))


def read(source: LogSource) -> Iterator[Transcript]:
    """The run of a file: the history of its last request is nearly all of it."""
    yield _run(source.values(), source.path.name)


def of_folder(folder: Path) -> Transcript:
    """The run of a folder, in the order in which its requests were made."""
    skipped = run("openhands", None)
    files = sorted(path for path in folder.iterdir() if path.suffix == ".json" and path.is_file())
    one = _run((value for path in sorted(files, key=_made) for value in skipped.values_of(path)), folder.name)
    one.skipped.update(skipped.skipped)
    one.ident, one.named = folder.name, True
    return one


def _made(path: Path) -> tuple[float, str]:
    """Time at which a file was made, by the end of its name."""
    end = _FILE_NAME.search(path.name)
    return (float(end[1]) if end else 0.0), path.name


def _run(values: Iterable[Any], name: str) -> Transcript:
    """The conversation with the most requests; others in the same place (a condenser's, an editor's) are counted."""
    talks: dict[str, tuple[Dialogue, list[float]]] = {}
    strays = failed = 0
    for value in map(mapping, values):
        if (asked := _asked(value)) is None:
            strays += 1
            continue
        if not isinstance(value.get("response"), Mapping):
            failed += 1
            continue
        logged, reply = _request(value)
        messages = sequence(value[asked])
        first = [value.get("instructions"), *messages[:1]] if asked == "input" else messages[:2]
        talk, costs = talks.setdefault(stable_hash(first), (Dialogue(run("openhands", None, lasting_shell=True)), []))
        talk.take(logged, reply)
        if (cost := money(value.get("cost"))) is not None:
            costs.append(cost)
    if not talks:
        raise BadInput(f"{name}: no request to a model in it")
    (talk, costs), *others = sorted(talks.values(), key=lambda told: -told[0].one.turns)
    one = talk.one
    one.cost = sum(costs) if costs else None
    for reason, number in (
        ("not a request to a model", strays),
        ("a request that was not answered", failed),
        ("requests of another conversation", sum(t.one.turns for t, _ in others)),
    ):
        if number:
            one.skipped[reason] += number
    return one


def _request(value: Mapping[str, Any]) -> tuple[Logged, list[Any]]:
    """One file as a request on OpenAI's wire, and its reply."""
    mocked = isinstance(value.get("fncall_messages"), list)
    response = mapping(value.get("fncall_response" if mocked and value.get("fncall_response") else "response"))
    asked = mapping(value.get("kwargs"))
    wire, tools = "openai-chat", asked.get("tools") or value.get("tools") or [{}]
    if _asked(value) == "input":
        wire, body = (
            "openai-responses",
            {"input": value["input"], "instructions": value.get("instructions"), "tools": tools},
        )
    else:
        body = {"messages": value["fncall_messages" if mocked else "messages"], "tools": tools}
    usage = usage_of(response.get("usage"), OPENAI)
    model = text(response.get("model")) or text(asked.get("model"))
    at = moment(value.get("timestamp"))
    return Logged(wire, body, usage=usage, model=model, at=at), reply_items(wire, response)


FORMAT = Format("openhands-completions", 220, sniff, read, is_part=is_part, of_folder=of_folder)
