"""Images, files and sound: each is a thing of its own, however it is wrapped."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from context_bench.core.keys import canonical_json, hash_text
from context_bench.wire.request import WireRequest
from context_bench.wire.violations.blocks import raw_of
from context_bench.wire.violations.kinds import Violation

_MEDIA = frozenset({"image", "image_url", "input_image", "file", "input_file", "document", "audio", "input_audio", "video", "input_video"})


def media_changes(sent: WireRequest, received: WireRequest) -> Iterator[Violation]:
    """Images, files and sound, wherever they stand: each is a thing of its own."""
    left = Counter(content for _, content in _media_of(received))
    missing: list[int] = []
    for i, content in _media_of(sent):
        if left[content]:
            left[content] -= 1
        else:
            missing.append(i)
    others = left.total()
    for place, i in enumerate(missing):
        kind, what = ("media_reencoded", "holds other bytes") if place < others else ("media_lost", "is gone")
        yield Violation(kind, f"message {i + 1}: an image, file or recording {what}", i)


def _media_of(request: WireRequest) -> Iterator[tuple[int, str]]:
    for i, message in enumerate(request.messages):
        for part in message.parts:
            if part.text is None and part.kind in _MEDIA:
                yield i, _content(raw_of(part))


def _content(raw: Mapping[str, Any]) -> str:
    """The identity of a medium: its bytes if they are in the request, else its address; how they are wrapped does not count."""
    for value in _strings(raw):
        data = value.partition(",")[2] if value.startswith("data:") else value
        if len(data) >= 16 and not value.startswith(("http:", "https:")):
            try:
                return hash_text(base64.b64decode(data, validate=True).hex())
            except (binascii.Error, ValueError):
                continue
    return canonical_json(sorted(value for value in _strings(raw) if value != "ephemeral"))


def _strings(value: Any) -> Iterator[str]:
    """Every text in a value, longest first."""
    found: list[str] = []
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, Mapping):
            stack += [inner for key, inner in item.items() if key not in ("type", "cache_control", "detail", "media_type", "title")]
        elif isinstance(item, list):
            stack += item
    return iter(sorted(found, key=len, reverse=True))
