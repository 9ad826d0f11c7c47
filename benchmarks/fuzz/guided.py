"""Fuzzing that is led by what was reached: an input that comes to a new line of the project is kept, and changed
further.

Nothing but Python's own tracing is needed. Same seed, same inputs.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from seeds import changed, known

HERE = Path(__file__).parent
OURS = str(HERE.parents[1] / "src" / "context_bench")
CORPUS = HERE / "corpus.json.gz"
LONGEST = 4096
"""Bytes of an input: what is found is found in small ones, and small ones are quick."""
SLOW = 2.0
"""Seconds of processor that no input of this length may take."""
_PIECES = [
    b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\n", b"\r\n", b"\n\n", b"data: ", b"event: ", b"[DONE]", b"\x00", b"\xff",  # noqa: E501
    b"\\ud800", b"null", b"-1", b"1e999", b"9223372036854775808", b"99999999999999999999", b"chunked",
    b"0\r\n\r\n", b"Content-Length: ", b"\x1f\x8b\x08", b"(\xb5/\xfd",
    b"$(", b"`", b"<<EOF\n", b"| ", b"*", b"http://", b"@", b"[::1", b"%", b"usage", b"\xe2\x80\xae", b"\xef\xbb\xbf",
]  # fmt: skip

Target = Callable[[bytes], object]


class Reached:
    """The lines of the project that were come to, by tracing; code of which all lines were is no longer looked at."""

    def __init__(self, under: str) -> None:
        self._under = under
        self._left: dict[CodeType, set[int]] = {}
        self.lines = 0
        self.new = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        left = self._left.get(code)
        if left is None:
            ours = code.co_filename.startswith(self._under)
            left = self._left[code] = {line for *_, line in code.co_lines() if line is not None} if ours else set()
            self._line(left, frame.f_lineno)
        return self._within if left else None

    def _within(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._line(self._left[frame.f_code], frame.f_lineno)
        return self._within

    def _line(self, left: set[int], line: int) -> None:
        if line in left:
            left.remove(line)
            self.new += 1
            self.lines += 1

    def by(self, use: Callable[[], object]) -> int:
        """How many new lines a use comes to."""
        self.new = 0
        sys.settrace(self)
        try:
            use()
        finally:
            sys.settrace(None)
        return self.new


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A change of an input: of the JSON it is, or of its bytes."""
    if rng.random() < 0.5 and (made := changed(data, rng, LONGEST)) is not None:
        return made
    box = bytearray(data)
    for _ in range(1 << rng.randrange(4)):
        at = rng.randrange(len(box) + 1)
        end = min(len(box), at + (1 << rng.randrange(8)))
        way = rng.randrange(7)
        if way == 0:
            box[at:at] = rng.choice(_PIECES)
        elif way == 1:
            box[at:end] = b""
        elif way == 2:
            box[at:at] = box[at:end] * rng.choice((1, 2, 9))
        elif way == 3 and at < len(box):
            box[at] ^= 1 << rng.randrange(8)
        elif way == 4 and at < len(box):
            box[at] = rng.randrange(256)
        elif way == 5:
            start = rng.randrange(len(other) + 1)
            box[at:end] = other[start : start + (1 << rng.randrange(8))]
        else:
            box[at:end] = rng.choice(_PIECES)
    return bytes(box[:LONGEST])


@dataclass
class Fuzzed:
    """What came of it. `findings`: the error and where it was raised → the first input that did."""

    inputs: int = 0
    seconds: float = 0.0
    lines: int = 0
    corpus: list[bytes] = field(default_factory=list)
    findings: dict[str, bytes] = field(default_factory=dict)
    slowest: float = 0.0


def fuzz(
    target: Target,
    corpus: list[bytes],
    *,
    inputs: int,
    seconds: float = 1e9,
    seed: int = 0,
    guided: bool = True,
    under: str = OURS,
) -> Fuzzed:
    """Drive a target with changes of `corpus`, so many inputs or seconds of processor, whatever comes first.

    `guided`: led by the lines of files below `under` that are come to; else only what was there from the start is
    changed.
    """
    rng = random.Random(seed)
    done = Fuzzed()
    reached = Reached(under)
    began = time.process_time()

    def tried(data: bytes) -> bool:
        """Whether it is worth keeping."""
        done.inputs += 1
        at = time.process_time()
        new = 0
        try:
            if guided:
                new = reached.by(lambda: target(data))
            else:
                target(data)
        except Exception as error:
            done.findings.setdefault(_where(error), data)
        took = time.process_time() - at
        done.slowest = max(done.slowest, took)
        if took > SLOW:
            done.findings.setdefault("slow", data)
        return new > 0

    for data in corpus:
        if tried(data) or not guided:
            done.corpus.append(data)
    while done.inputs < inputs and time.process_time() - began < seconds:
        pool = done.corpus or [b""]
        # what was found last leads on more often
        parent = pool[max(rng.randrange(len(pool)), rng.randrange(len(pool)))]
        data = mutated(parent, rng.choice(pool), rng)
        if tried(data):
            done.corpus.append(data)
    done.seconds, done.lines = time.process_time() - began, reached.lines
    return done


def _where(error: Exception) -> str:
    last = next(
        (one for one in reversed(traceback.extract_tb(error.__traceback__)) if "context_bench" in one.filename), None
    )
    place = f"{Path(last.filename).name}:{last.name}" if last else "?"
    return f"{type(error).__name__} in {place}" + (f": {str(error)[:60]}" if isinstance(error, AssertionError) else "")


def smallest(target: Target, corpus: list[bytes]) -> list[bytes]:
    """The inputs that are needed to come to every line that all of them come to, each without what it does not need."""
    reached = Reached(OURS)
    kept: list[bytes] = []
    for data in sorted(corpus, key=len):
        if reached.by(lambda data=data: _quietly(target, data)):
            kept.append(data)
    return kept


def _quietly(target: Target, data: bytes) -> None:
    try:
        target(data)
    except Exception:  # a finding is told by the run that found it
        return


def stored() -> dict[str, list[bytes]]:
    """The inputs kept in the tree, by target."""
    if not CORPUS.exists():
        return {}
    told = json.loads(gzip.decompress(CORPUS.read_bytes()))
    return {name: [text.encode("latin-1") for text in texts] for name, texts in told.items()}


def store(corpora: dict[str, list[bytes]]) -> None:
    """Keep inputs in the tree."""
    told = {name: [data.decode("latin-1") for data in corpora[name]] for name in sorted(corpora)}
    CORPUS.write_bytes(gzip.compress(json.dumps(told).encode(), 9, mtime=0))


def beginnings(name: str) -> Iterator[bytes]:
    """What a target begins with: its good inputs, and what earlier runs kept."""
    yield from (data[:LONGEST] for data in known().get(name, []))
    yield from stored().get(name, [])
