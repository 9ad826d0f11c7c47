"""What harnesses said of patches: which tasks of a run are solved, from any report of §11 of the specification of traces.

Nothing is run here. `load_solved` reads a report, or a folder of them; `Solved.find` joins by id, in any of an id's spellings.
"""

from context_bench.transcripts.solved.read import formats, load_solved
from context_bench.transcripts.solved.record import Outcome, Solved

__all__ = ["Outcome", "Solved", "formats", "load_solved"]
