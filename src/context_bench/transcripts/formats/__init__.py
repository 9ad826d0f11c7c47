"""Log formats of agents and gateways, one module each; each reader makes `Transcript`s."""

from __future__ import annotations

from collections.abc import Iterator

from context_bench.transcripts.format import Format, formats_in
from context_bench.transcripts.transcript import Transcript


def formats() -> dict[str, Format[Iterator[Transcript]]]:
    """Every format by its module's name, in the order in which they are tried."""
    return formats_in(__name__)
