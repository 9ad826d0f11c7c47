"""A bound on what it may cost to read one command, and all commands of a log; it is drawn on before anything is made or looked through.

Logs are hostile: a line of a hundred letters can stand for more words than there is memory.
"""

from __future__ import annotations

from dataclasses import dataclass

PIECE = 100
"""Characters that a word or a line of its own counts for, beside its text."""
LINE = 8
"""Steps that a look at one line counts for."""


class TooLarge(Exception):
    """The command would cost more to read than it may: what it shows is unknown."""


@dataclass(slots=True)
class Budget:
    """What may still be spent on one command."""

    made: int = 64 << 20
    """Characters of words, values and lines that may be made."""
    steps: int = 500_000_000
    """Characters and lines that may be looked at, and statements that may be run; about so many, ten to a millisecond at the slowest."""
    over: bool = False
    """More was asked for than there was."""

    @classmethod
    def of_log(cls) -> Budget:
        """What may be spent on all commands of a log."""
        return cls(made=4 << 30, steps=10_000_000_000)

    def lend(self) -> Budget:
        """What the next command of this log may spend; what it did not spend is given back."""
        lent = Budget()
        lent.made, lent.steps = min(lent.made, self.made), min(lent.steps, self.steps)
        self.made -= lent.made
        self.steps -= lent.steps
        return lent

    def take_back(self, left: Budget) -> None:
        """Take back what a command did not spend."""
        self.made += left.made
        self.steps += left.steps

    def make(self, characters: int, pieces: int = 0) -> None:
        """Pay for characters about to be made, and for words or lines about to be (`pieces`)."""
        self.made -= characters + PIECE * pieces
        if self.made < 0:
            self.over = True
            raise TooLarge

    def step(self, number: int) -> None:
        """Pay for a look at so many characters."""
        self.steps -= number
        if self.steps < 0:
            self.over = True
            raise TooLarge

    def look(self, lines: int) -> None:
        """Pay for a look at so many lines."""
        self.step(LINE * lines)
