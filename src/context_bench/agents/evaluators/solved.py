"""Did the agent solve the task: what the task's own tests said."""

from __future__ import annotations

from context_bench.core.records import Example


class Solved:
    """`solved`: 1 if every test that had to pass does, else 0; so also for a run that a rule ended before it was
    done.
    """

    name, version = "solved", "1"
    needs: tuple[str, ...] = ()
    fields = ("solved",)

    def applies(self, example: Example, output: Example) -> bool:
        """The output is one of an agent."""
        return isinstance(output.get("solved"), bool)

    def score(self, original: Example, processed: Example) -> dict[str, float]:
        """1.0 or 0.0; nothing where no tests were run."""
        return {"solved": float(processed["solved"])} if self.applies(original, processed) else {}
