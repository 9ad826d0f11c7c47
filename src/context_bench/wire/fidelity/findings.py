"""What there is to say about one pair of texts: tallies of atoms, the lost ones, the invented ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from context_bench.wire.fidelity.extracts import Fragments


@dataclass(slots=True)
class Tally:
    """Atoms of one sort: how many there were, and what became of them."""

    total: int = 0
    retained: int = 0
    recoverable: int = 0

    @property
    def lost(self) -> int:
        """Neither there nor to be had back."""
        return self.total - self.retained - self.recoverable

    @property
    def share(self) -> float | None:
        """The share retained."""
        return self.retained / self.total if self.total else None

    def add(self, state: str, count: int = 1) -> None:
        """Count atoms of one state: `retained`, `recoverable` or `lost`."""
        self.total += count
        self.retained += count * (state == "retained")
        self.recoverable += count * (state == "recoverable")

    def plus(self, other: Tally) -> None:
        """Add another tally."""
        self.total += other.total
        self.retained += other.retained
        self.recoverable += other.recoverable


@dataclass(frozen=True, slots=True)
class LostAtom:
    """An atom that is gone: its kind, who said it, in which tenth of the text (0 to 9), in which script."""

    kind: str
    atom: str
    role: str
    decile: int
    script: str


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A key that is still there with another value."""

    key: str
    before: str
    after: str


@dataclass(slots=True)
class Fidelity:
    """What happened to one text. `words`: script → (damaged, all); `fabricated`: kind → (made up, all)."""

    kinds: dict[str, Tally] = field(default_factory=dict)
    roles: dict[str, Tally] = field(default_factory=dict)
    deciles: dict[int, Tally] = field(default_factory=dict)
    scripts: dict[str, Tally] = field(default_factory=dict)
    lost: list[LostAtom] = field(default_factory=list)
    fabricated: dict[str, tuple[int, int]] = field(default_factory=dict)
    invented: list[tuple[str, str]] = field(default_factory=list)
    near_misses: list[NearMiss] = field(default_factory=list)
    fragments: Fragments = field(default_factory=Fragments)
    verbatim_lines: float | None = None
    order: float | None = None
    words: dict[str, tuple[int, int]] = field(default_factory=dict)
    utf8_ok: bool = True
    replacement_chars: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    requested_keep: float | None = None
    json_ok: bool | None = None
    answer_in_context: bool | None = None
    answer_introduced: bool | None = None
    evidence_recall: float | None = None
    id: str = ""

    @property
    def keep(self) -> float | None:
        """Tokens after over tokens before."""
        return self.tokens_after / self.tokens_before if self.tokens_before else None
