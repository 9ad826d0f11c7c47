"""Agents against each other: does a proxy, a hook or a setting make the tasks cheaper without making them fail?

```python
from context_bench.agents import run_agents

result = run_agents(
    "bundled:repo-tasks",
    {"base": "", "hr": "OPENAI_BASE_URL=http://localhost:18401/v1"},   # the proxy's own upstream is {tap}
    ["my-agent", "--task", "{instruction}"],
    upstream="https://api.openai.com", tap_port=18409, trials=3,
)
result.agents["against"]["hr"]["cost"]                                # {"ratio": 0.71, "low": …, "median": …}
```

The command line is `context-bench agent`; both run on the ordinary engine, so runs resume, are stored and compared like
any other.

`Result.agents` of such a run: `baseline`, `limits`, `arms[name]` (see `agents.figures`), `against[name][amount]` (see
`amounts_against`), `without_one[name]` (see `flips`), `tasks` (task by task).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.core.lazy import lazy

if TYPE_CHECKING:
    from context_bench.agents.agent_runs import (
        Line as Line,
        add_agents as add_agents,
        line_up as line_up,
        run_agents as run_agents,
    )
    from context_bench.agents.figures import AgentRun as AgentRun
    from context_bench.agents.systems import (
        AbortRules as AbortRules,
        Agent as Agent,
        ArmSpec as ArmSpec,
        parse_arm as parse_arm,
    )

_HOMES = [
    ".figures:AgentRun",
    ".agent_runs:Line",
    ".agent_runs:add_agents",
    ".agent_runs:line_up",
    ".agent_runs:run_agents",
    ".systems:AbortRules",
    ".systems:Agent",
    ".systems:ArmSpec",
    ".systems:parse_arm",
]

__all__ = sorted(home.partition(":")[2] for home in _HOMES)

__getattr__, __dir__ = lazy(__name__, _HOMES)
