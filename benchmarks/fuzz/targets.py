"""Every parser of text from outside as a function of bytes: what `fuzz.py` drives for hours and `tests/security` for a moment.

A target may refuse what it gets with one of our own errors or a `ValueError`; whatever else it raises is a finding.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from context_bench.core import editloc, loopback, plugins
from context_bench.core.errors import ContextBenchError
from context_bench.core.jsontext import load_json
from context_bench.datasets import readers
from context_bench.evaluators import _letters, _mathtext, _yes_no
from context_bench.llm import redact, retry, sse, wire
from context_bench.logs import read, repo, shell
from context_bench.logs.answers import read as answers
from context_bench.systems import relay
from context_bench.tap import masking
from context_bench.viewer import asking

Target = Callable[[bytes], object]
WIRES = ("openai-chat", "openai-responses", "anthropic")
_FOLDER = Path(tempfile.mkdtemp(prefix="context-bench-fuzz-"))


def tried(target: Target, data: bytes) -> object:
    """What the target makes of `data`; `None` if it refuses it as it should."""
    try:
        return target(data)
    except (ContextBenchError, ValueError):
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _in_file(name: str, use: Callable[[Path], object]) -> Target:
    def target(data: bytes) -> object:
        path = _FOLDER / name
        path.write_bytes(data)
        return use(path)

    return target


def _rows(name: str) -> Target:
    return _in_file(name, lambda path: sum(1 for _ in readers.rows_of(path)))


def _requests(data: bytes) -> object:
    body = load_json(data)
    return [wire.parse_request(kind, body) for kind in WIRES] if isinstance(body, dict) else None


def _replies(data: bytes) -> object:
    body = load_json(data)
    return [tried(lambda _, kind=kind: wire.parse_reply(kind, body), data) for kind in WIRES]


def _events(data: bytes) -> object:
    half, reader = len(data) // 2, sse.EventReader()
    return [*reader.feed(data[:half]), *reader.feed(data[half:])]


def _waits(told: str) -> object:
    names = ("retry-after", "retry-after-ms", "x-ratelimit-reset-requests", "x-ratelimit-remaining-requests", "x-ratelimit-limit-requests")
    headers = dict.fromkeys(names, told)
    return retry.asked_wait(headers, 0.0), list(retry.quotas_told(headers, 0.0))


def _repository(path: Path) -> object:
    with repo.open_repo(path) as opened:
        return [opened.blob(name) for name in opened.paths()]


TARGETS: dict[str, Target] = {
    "sse": _events,
    "requests": _requests,
    "replies": _replies,
    "retry-after": lambda data: _waits(_text(data)),
    "jsonl": _rows("rows.jsonl"),
    "json": _rows("rows.json"),
    "csv": _rows("rows.csv"),
    "parquet": _rows("rows.parquet"),
    "sessions": _in_file("log.jsonl", lambda path: sum(1 for _ in read.read_sessions(path))),
    "answers": _in_file("log.eval", lambda path: sum(1 for _ in answers.read_answers(path).answers)),
    "repository": _in_file("repo.zip", _repository),
    "shell": lambda data: shell.read_shell(_text(data), "", None, _text(data[::-1])),
    "patches": lambda data: editloc.parse_patch(_text(data)),
    "viewer": lambda data: asking.read_pair(_text(data)),
    "specs": lambda data: plugins.parse_spec(_text(data)),
    "formulas": lambda data: _mathtext.final_answer(_text(data), "2"),
    "letters": lambda data: _letters.chosen_letter(_text(data)),
    "yes-no": lambda data: _yes_no.verdict(_text(data)),
    "redact": lambda data: redact.redact(_text(data), ["0123456789abcdef"]),
    "masking": lambda data: masking.mask_private(masking.mask_text(_text(data))),
    "hosts": lambda data: loopback.refusal({"Host": _text(data), "Origin": _text(data)}),
    "codings": lambda data: relay._plain(data[1:], ("gzip", "deflate", "zstd", "br")[data[0] % 4]) if data else None,
}
