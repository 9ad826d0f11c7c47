"""What fuzzing begins with: a few good inputs for each target (texts in `seeds.json`), and changes that keep JSON
JSON.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HOUSE = HERE.parents[1]
ROW = {"id": "1", "context": "The door is red.", "question": "Which?", "answer": ["red"], "choices": ["red", "blue"]}
SAMPLE = {"id": 1, "epoch": 1, "input": "q", "target": "a", "scores": {"s": {"value": "C"}}}
INSPECT = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}, "samples": [SAMPLE]}


def _line(row: Any) -> bytes:
    return json.dumps(row).encode() + b"\n"


def _zip(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def _table() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([ROW]), out)
    return out.getvalue()


def _weights() -> bytes:
    """A model of one tensor with 32 weights, packed as Q4_1, and one array and one text before it."""
    text = struct.pack("<Q1sI", 1, b"a", 8) + struct.pack("<Q1s", 1, b"b")
    array = struct.pack("<Q1sIIQ", 1, b"c", 9, 4, 2) + struct.pack("<II", 1, 2)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2) + text + array + struct.pack("<Q1sIQIQ", 1, b"t", 1, 32, 3, 0)
    return head + b"\0" * (-len(head) % 32) + bytes(20)


def _logs() -> list[bytes]:
    """The logs of the test vectors, their first lines."""
    told = json.loads((HOUSE / "tests" / "vectors" / "traces.json").read_text())
    held = [*told["same_session"]["formats"].values(), *told["importers"]]
    texts = [
        text if isinstance(text, str) else json.dumps(text) for one in held for text in one.get("files", {}).values()
    ]
    return [text.encode()[:20_000] for text in texts]


def _files(pattern: str, step: int = 1) -> list[bytes]:
    return [path.read_bytes() for path in sorted((HOUSE / "src" / "context_bench").glob(pattern))[::step]]


@cache
def known() -> dict[str, list[bytes]]:
    import zstandard

    pack = zstandard.ZstdCompressor().compress
    packed = {
        "codings": [b"\0" + gzip.compress(b"x" * 99), b"\2" + pack(b"x" * 99)],
        "parquet": [_table()],
        "gzip": [gzip.compress(_line(ROW))],
        "zstd": [pack(_line(ROW))],
        "zip": [_zip({"data/a.jsonl": _line(ROW), "b.csv": b"a,b\n1,2\n"})],
        "answers": [_zip({"header.json": _line(INSPECT), "samples/1.json": _line(SAMPLE)})],
        "repository": [_zip({"top/a.py": b"def f(): pass\n"})],
        "weights": [_weights()],
        "dataset-toml": _files("datasets/catalogue/*.toml", 8),
        "tasks-toml": _files("datasets/tasks/bundled/*.toml", 4),
        "tool-tables": _files("logs/traces/tools.toml"),
        "sessions": _logs(),
        "traces": _logs(),
    }
    texts = json.loads((HERE / "seeds.json").read_text("utf-8"))
    return {name: [text.encode() for text in texts.get(name, [])] + packed.get(name, []) for name in {*texts, *packed}}


ODD = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        2**63,
        2**70,
        -(10**40),
        1e308,
        float("nan"),
        "",
        "x",
        "1",
        "-1",
        "\ud800",
        "\x00",
        "a.py:1-2",
        "2026-01-01",
    ),
    *([], {}, [[]], [None], [1], ["x"], {"": None}, {"type": "text"}, {"text": 1}, "{", "[1]", '{"a": 1}', "x" * 300),
)


def changed(data: bytes, rng: random.Random, most: int) -> bytes | None:
    """The JSON (or a line of JSON) with one to three of its values replaced, dropped, doubled or put elsewhere; `None`
    if it is none.
    """
    try:
        made = _changed(data, rng)
    except (ValueError, RecursionError):
        return None
    return made if len(made) <= most else None


def _changed(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n") if b"\n" in data.strip() else [data]
    at = rng.randrange(len(lines))
    box = [json.loads(lines[at].removeprefix(b"data: "))]
    for _ in range(rng.randint(1, 3)):
        places = list(_places(box)) or [(box, 0)]
        holder, key = rng.choice(places)
        other, where = rng.choice(places)
        way = rng.randrange(8)
        if way < 5:
            holder[key] = rng.choice(ODD)
        elif way == 5 and holder is not box:
            holder.pop(key)
        elif way == 6 and isinstance(holder, list):
            holder.insert(key, holder[key])
        elif other[where] is not holder and not _holds(other[where], holder):
            holder[key] = json.loads(json.dumps(other[where]))
    lead = b"data: " if lines[at].startswith(b"data: ") else b""
    lines[at] = lead + json.dumps(box[0] if box else None).encode()
    return b"\n".join(lines)


def _places(value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _holds(value: Any, wanted: Any) -> bool:
    return any(holder is wanted or holder[key] is wanted for holder, key in _places(value))
