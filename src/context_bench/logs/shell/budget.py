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


@dataclass
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

    def of_command(self) -> Budget:
        """The part of a log's budget that its next command may spend."""
        own = Budget()
        return Budget(min(own.made, self.made), min(own.steps, self.steps))

    def pay(self, begun: Budget, left: Budget) -> None:
        """Take what a command spent: it had `begun`, and has `left`."""
        self.made -= begun.made - left.made
        self.steps -= begun.steps - left.steps

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
