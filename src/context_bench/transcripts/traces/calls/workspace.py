"""Where the calls of a run happen, and one call on its way to events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from context_bench.shell.budget import Budget
from context_bench.shell.repo import FilesByPath
from context_bench.transcripts.record import ToolCall
from context_bench.transcripts.trace import Event, EventKind, Provenance, Ranges, Strength
from context_bench.transcripts.traces import outputs
from context_bench.transcripts.traces.edited import Edits
from context_bench.transcripts.traces.paths import located
from context_bench.transcripts.traces.vocabulary import ToolRow, Vocabulary


@dataclass
class Workspace:
    """Where a run's calls happen. `counts` collects what is worth knowing about how its reads were found.

    `roots`: folders that turned out to hold the repository, where the log names none, by how often. `first_test`: the first command that
    ran tests.
    """

    root: str | None = None
    repo: FilesByPath | None = None
    vocabulary: Vocabulary = field(default_factory=Vocabulary.load)
    lasting_shell: bool = False
    outputs: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    cwd: str | None = None
    roots: Counter[str] = field(default_factory=Counter)
    first_test: str | None = None
    known: Collection[str] | None = field(init=False, default=None)
    edits: Edits | None = field(init=False, default=None)
    budget: Budget = field(init=False, default_factory=Budget.of_log)
    """What reading the run's commands may still cost."""

    def __post_init__(self) -> None:
        self.known = frozenset(self.repo.paths()) if self.repo is not None else None
        self.edits = Edits(self.repo) if self.repo is not None else None

    @property
    def now(self) -> FilesByPath | None:
        """The repository as the agent has left it so far."""
        return self.edits or self.repo

    def locate(self, path: str, cwd: str | None = None) -> str | None:
        """The path from the repository's root; see `paths.located`."""
        found = located(path, cwd or self.cwd, self.root, self.known)
        if found is None:
            self.counts["paths that are none"] += 1
        elif self.root is None and path.startswith("/") and not found.startswith("/") and path.endswith("/" + found):
            self.roots[path.removesuffix("/" + found)] += 1
        return found


@dataclass(slots=True)
class Handled:
    """One call on its way to events."""

    call: ToolCall
    step: int
    row: ToolRow
    place: Workspace
    foreign: bool
    text: str | None
    command: str = ""
    changes: dict[str, str] = field(default_factory=dict)
    """What a command did to each file that it changed."""

    def event(
        self,
        kind: EventKind,
        path: str | None,
        ranges: Ranges,
        provenance: Provenance,
        strength: Strength = "shown",
        *,
        ok: bool = True,
        cut: bool = False,
    ) -> Event:
        call = self.call
        return Event(
            self.step,
            call.ident,
            kind,
            call.tool,
            path,
            ranges,
            provenance,
            strength,
            ok,
            cut or call.cut,
            call.sidechain,
            call.t,
            call.tokens_before,
            call.place,
            turn=call.turn,
        )

    @property
    def folder(self) -> str | None:
        return self.call.cwd or self.call.lasting_cwd

    @property
    def asked(self) -> Strength:
        """How sure it is that what the arguments ask for was shown, when no output says so."""
        return "shown" if self.text is not None or not self.place.outputs else "claimed"

    def paths(self) -> list[str]:
        found = (self.place.locate(path, self.folder) for path in self.row.paths_of(self.call.arguments))
        return [path for path in found if path is not None]


def has_failed(one: Handled) -> bool:
    """Whether a call that is no command failed: the log says so, or its output is nothing but an error."""
    if one.call.failed is not None:
        return one.call.failed
    if one.call.exit_code not in (None, 0) and not (one.text or "").strip():
        return True
    return one.text is not None and outputs.looks_failed(one.text)
