"""Log formats of agents and gateways, answers and reports of harnesses, one module each.

A module declares what it reads: a `FORMAT` makes transcripts, `ANSWERS` recorded answers, a `REPORT` verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator

from context_bench.transcripts.format import Format, formats_in
from context_bench.transcripts.transcript import Transcript


def formats() -> dict[str, Format[Iterator[Transcript]]]:
    """Every format of transcripts by its module's name, in the order in which they are tried."""
    return formats_in("FORMAT")
