"""Six jobs of a newcomer, from zero: with the wheel in a clean environment and an empty folder, each in at most three
commands, each ending in a sentence that answers the question.

    python scripts/jobs.py [--python 3.12] [--job memory]

What a newcomer has already (a log of an agent, a compressor, a memory in Python) is written into the folder first. The
sentence is looked for in what the last command printed; exit code 1 if one is missing. `make wheels` runs all of them.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import wheels

MOST_COMMANDS = 3
Rows = list[dict[str, Any]]
_MEMORY = '''
class Notes:
    """Finds by shared words."""

    name = "notes"

    def __init__(self, space=""):
        self._notes = {}

    def namespace(self, name):
        return Notes(name)

    def add(self, text, metadata=None):
        number = str(len(self._notes))
        self._notes[number] = (text, metadata or {})
        return number

    def search(self, query, k):
        words = set(query.lower().split())
        ranked = sorted(self._notes.items(), key=lambda item: -len(words & set(item[1][0].lower().split())))
        return [{"id": number, "text": text, "metadata": about} for number, (text, about) in ranked[:k]]

    def delete_all(self):
        self._notes.clear()
'''
_SYSTEM = """
import os


class Mine:
    name = "mine"

    def process(self, example):
        return {**example, "context": example["context"][-int(os.environ["KEEP"]):]}
"""
_COMPRESSOR = """
class Tail:
    name = "tail"

    def compress(self, messages):
        return messages[:1] + messages[-4:]
"""


@dataclass(frozen=True, slots=True)
class Job:
    """`question`: what is asked. `has`: writes what the asker has already. `commands`: at most three, `{port}` and
    `{tap}` are free ones. `code`: of the last. `answer`: a pattern of the sentence, blanks as one.
    """

    question: str
    has: Callable[[Path], Any]
    commands: tuple[str, ...]
    answer: str
    code: int = 0


def main() -> int:
    """Do all that was asked for, in one environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.11", help="version of Python of the environment")
    parser.add_argument("--job", action="append", choices=list(JOBS), help="only this one; may be given several times")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="context-bench-jobs-") as folder:
        wheel = wheels.built(Path(folder))
        program = wheels.installed(Path(folder), wheel, given.python, "highest")
        failed = False
        for name in given.job or JOBS:
            told = tried(JOBS[name], program, Path(folder) / name)
            failed |= not told.startswith("answered")
            print(f"{name}: {JOBS[name].question}\n  {told}", flush=True)
    return int(failed)


def tried(job: Job, program: Path, folder: Path) -> str:
    """`answered: ` and the sentence, or what went wrong."""
    if len(job.commands) > MOST_COMMANDS:
        return f"{len(job.commands)} commands, expected at most {MOST_COMMANDS}"
    (folder / "work").mkdir(parents=True)
    job.has(folder / "work")
    port, tap = free_ports(2)
    said = ""
    try:
        for number, line in enumerate(job.commands, 1):
            code = job.code if number == len(job.commands) else -1
            # The programs that a line names are this environment's.
            words = ["env", f"PATH={program.parent}:/usr/bin:/bin", "sh", "-c", line.format(port=port, tap=tap)]
            said = wheels.run(words, folder / "work", folder, code)
    except wheels.Failed as failure:
        return " ".join(str(failure).split())[:600]
    return answered(said, job.answer)


def answered(said: str, pattern: str) -> str:
    """`answered: ` and what of an output answers the question; else the end of that output."""
    plain = " ".join(said.split())
    found = re.search(pattern, plain)
    return f"answered: {found[0]}" if found else f"no answer of the form {pattern!r} in: {plain[-400:]}"


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens at now."""
    held = [socket.socket() for _ in range(number)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return found


# What a newcomer has
# ------------------------------------------------------------------------


def _line(kind: str, second: int, content: Any, usage: tuple[int, int] | None = None, **more: Any) -> dict[str, Any]:
    """One line of a Claude Code log; `usage`: prompt tokens read from the cache, and written to it."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if usage is not None:
        read, written = usage
        told = {"input_tokens": 4, "cache_read_input_tokens": read, "cache_creation_input_tokens": written}
        message |= {"id": f"m{second}", "model": "claude-sonnet-4-5", "usage": told | {"output_tokens": 40}}
    head = {"sessionId": "ferry", "uuid": f"u{second}", "parentUuid": None, "cwd": "/work/ferry", "version": "2.1.197"}
    at = f"2026-11-24T10:{second // 60:02d}:{second % 60:02d}.000Z"
    return {"type": kind, **head, "timestamp": at, "message": message, **more}


def _called(second: int, tool: str, given: Mapping[str, str], output: str, usage: tuple[int, int]) -> Rows:
    """A call and its result."""
    call = {"type": "tool_use", "id": f"c{second}", "name": tool, "input": given}
    result = {"type": "tool_result", "tool_use_id": f"c{second}", "content": output}
    return [_line("assistant", second, [call], usage), _line("user", second + 1, [result])]


def _agents_log(folder: Path) -> None:
    """A session that reads 25 files, 15 of them twice, and nearly all of its prompts from the cache."""
    read = 0
    rows = [_line("user", 0, "Mend the fees of the ferry.")]
    for step in range(40):
        name, random = f"src/part{step % 25}.py", Random(step % 25)
        text = "".join(f"{n:>6}\tvalue_{step % 25}_{n} = {random.randrange(10**6)}\n" for n in range(1, 60))
        written = len(text) // 3 if step else 3000
        rows += _called(2 * step + 1, "Read", {"file_path": f"/work/ferry/{name}"}, text, (read, written))
        read += written
    rows.append(_line("assistant", 90, [{"type": "text", "text": "The fees are right now."}], (read, 900)))
    _write(folder / "claude.jsonl", rows)


def _compacted_log(folder: Path) -> None:
    """A session whose client compacted it: it then reads the same file, fails the same way and breaks the rule."""
    fees = {"command": "cat src/fees.py"}, "RATE = 0.02\n"
    build = {"command": "sh tools/build.sh"}, "error: BUILD_TOKEN is not set\n"
    boundary = {"type": "system", "subtype": "compact_boundary", "sessionId": "ferry", "uuid": "b"}
    summary = (
        "This session is being continued from a previous conversation that ran out of context.\n\nSummary:\nMend it."
    )
    rows = [
        _line("user", 0, "Mend the build. Never edit migrations/001.sql."),
        *_called(1, "Bash", *fees, (9000, 400)),
        *_called(3, "Bash", *build, (9400, 50)),
        {**boundary, "compactMetadata": {"trigger": "auto", "preTokens": 9450}},
        _line("user", 6, summary, isCompactSummary=True),
        *_called(7, "Bash", *fees, (9000, 400)),
        *_called(9, "Bash", *build, (9400, 50)),
        *_called(11, "Bash", {"command": "sed -i s/INTEGER/BIGINT/ migrations/001.sql"}, "", (9450, 50)),
    ]
    _write(folder / "compacted.jsonl", rows)


def _questions(folder: Path) -> None:
    """Questions with answers, a reader that knows one where its sentence arrives, and a system that cuts."""
    river = "The river there is the {}."
    rows = [
        {
            "id": n,
            "context": f"Town {n} is called Aa{n}. {'It has a mill. ' * 20}{river.format(f'Bb{n}')}",
            "question": f"Which river is at town {n}?",
            "answer": f"Bb{n}",
        }
        for n in range(80)
    ]
    _write(folder / "rows.jsonl", rows)
    key = {row["question"]: {"answer": row["answer"], "evidence": river.format(row["answer"])} for row in rows}
    (folder / "reader.json").write_text(json.dumps({"answer_key": key}))
    (folder / "mine.py").write_text(_SYSTEM)


def _write(file: Path, rows: Rows) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


_RUN = "context-bench run --system py:mine:Mine --controls --upstream scripted:reader.json --dataset rows.jsonl "
_GATED = _RUN + "--score-field contains --margin 0.1 --output json --out"
JOBS = {
    "money": Job(
        "I use Claude Code through a proxy: does it save money?",
        _agents_log,
        (
            "context-bench serve --system mask_observations --port {port} --upstream http://127.0.0.1:{tap} -- "
            "context-bench replay claude.jsonl --proxy http://127.0.0.1:{port} --name mine --tap {tap} --upstream echo",
        ),
        r"mine sends [\d.]+ % fewer tokens but costs [\d.]+ % more\.",
    ),
    "compressor": Job(
        "Is my compressor in Python better than truncation?",
        lambda folder: (folder / "tail.py").write_text(_COMPRESSOR),
        ("context-bench compress run bundled:sessions --system py:tail:Tail --points fraction:0.75",),
        r"Tail sends [\d.]+ % fewer tokens; quality suffers: .*? against truncation: [-+]?[\d.]+ points",
    ),
    "memory": Job(
        "My memory or BM25?",
        lambda folder: (folder / "notes.py").write_text(_MEMORY),
        (
            "context-bench memory --system py:notes:Notes --system bm25 --dataset bundled:recall-lab -n 12 "
            "--reader none",
        ),
        r"Notes sends [\d.]+ % more tokens; quality suffers: [\d.]+ points (\w+ )?lost\.",
    ),
    "gate": Job(
        "Does this change make answers worse?",
        _questions,
        (
            f"KEEP=200 {_GATED} accepted.json",
            f"KEEP=20 {_GATED} now.json",
            "context-bench gate now.json --against accepted.json",
        ),
        r"gate failed: - mine .*? the loss is shown to exceed the margin of 10 points\.",
        code=4,
    ),
    "reading": Job(
        "Does my agent read too many files?",
        _agents_log,
        ("context-bench trace show claude.jsonl",),
        r"Of [\d,]+ tokens of files that were read, .*? were never used afterwards: \d+ of \d+ files\.",
    ),
    "compaction": Job(
        "Does auto-compact lose my decisions?",
        _compacted_log,
        ("context-bench explain compacted.jsonl --compactions",),
        r"1 compaction lost 3 of 3 facts; 3 of them were missed afterwards \(rule 1, failed 1, file 1\)\.",
    ),
}

if __name__ == "__main__":
    sys.exit(main())
