"""Log formats of agents and gateways, answers and reports of harnesses, one module for each program.

A module declares what it reads: a `FORMAT` makes transcripts, `ANSWERS` recorded answers, a `REPORT` verdicts; a dict
of them by name where the program writes several.
"""

from __future__ import annotations

from collections.abc import Iterator

from context_bench.transcripts.format import Format, formats_in
from context_bench.transcripts.transcript import Transcript


def formats() -> dict[str, Format[Iterator[Transcript]]]:
    """Every format of transcripts by name, in the order in which they are tried."""
    return formats_in("FORMAT")
