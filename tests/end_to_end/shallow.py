"""The bundled model with few of its layers: as quick as it is dull, for tests of what is around a model."""

import re
import struct
from pathlib import Path

from context_bench.llm.weights import fast_copy, find_weights

_NUMBER = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST, _ALIGNED = 8, 9, 32


class Reader:
    """What a GGUF file says of itself before its data, field by field."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        length = self.number("<Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind):
        if kind == _TEXT:
            return self.text()
        if kind == _LIST:
            kind, number = self.number("<I"), self.number("<Q")
            return [self.value(kind) for _ in range(number)]
        return self.number(_NUMBER[kind])


def shallow(target: Path, layers: int = 1) -> Path:
    """Write the bundled model's tokenizer, embedding and first `layers` (of 30) to `target`."""
    data = fast_copy(find_weights()).read_bytes()
    told = Reader(data)
    assert told.number("<I") == int.from_bytes(b"GGUF", "little")
    version, tensors, fields = (told.number(form) for form in ("<I", "<Q", "<Q"))
    begin, count_at = told.at, 0
    for _ in range(fields):
        name, kind = told.text(), told.number("<I")
        count_at = told.at if name.endswith(".block_count") else count_at
        told.value(kind)
    head = bytearray(data[begin : told.at])
    struct.pack_into("<I", head, count_at - begin, layers)
    found = [
        (told.text(), [told.number("<Q") for _ in range(told.number("<I"))], told.number("<I"), told.number("<Q"))
        for _ in range(tensors)
    ]
    start = -(-told.at // _ALIGNED) * _ALIGNED
    ends = sorted([offset for *_, offset in found] + [len(data) - start])
    kept = [one for one in found if int((re.match(r"blk\.(\d+)", one[0]) or [0, -1])[1]) < layers]
    body = bytearray()
    for name, shape, kind, offset in kept:
        words = name.encode()
        head += struct.pack(f"<Q{len(words)}sI{len(shape)}QIQ", len(words), words, len(shape), *shape, kind, len(body))
        body += data[start + offset : start + ends[ends.index(offset) + 1]]
    first = struct.pack("<4sIQQ", b"GGUF", version, len(kept), fields) + head
    target.write_bytes(first + b"\0" * (-len(first) % _ALIGNED) + body)
    return target
