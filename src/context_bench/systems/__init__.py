"""Systems under test: `OpenAIProxy` (anything that speaks OpenAI's or Anthropic's wire), `ClaudeCLI`, and the free
controls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.systems.claude_cli import ClaudeCLI
    from context_bench.systems.openai_proxy import OpenAIProxy

__all__ = ["ClaudeCLI", "Control", "Finding", "OpenAIProxy", "Replay", "Served", "examine"]

__getattr__, __dir__ = lazy(
    __name__,
    [
        ".claude_cli:ClaudeCLI",
        "context_bench.systems.control:Control",
        "context_bench.session.activity:Finding",
        ".openai_proxy:OpenAIProxy",
        "context_bench.traffic.systems:Replay",
        "context_bench.systems.serve:Served",
        "context_bench.traffic.doctor:examine",
    ],
)
