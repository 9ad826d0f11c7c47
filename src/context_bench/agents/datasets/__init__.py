"""Tasks for agents: an instruction, a repository to work in, and hidden tests that say whether it was done.

```python
from context_bench.agents.datasets import load_tasks

tasks = load_tasks("bundled:repo-tasks")      # or a folder of tasks, a task.toml, SWE-bench-like rows with repos=DIR
tasks.refused                                 # what was there but cannot be run here, each with the reason
```

A task is an example: `id`, `instruction` (also as `question`), `context` (empty), `repo` (see `sandbox.workspace`),
`verify` (see `sandbox.verify`), `timeout` (seconds for the agent), `task_source` (`folder`, `harbor`, `swe-bench`,
`bundled`), and where the source has them `setup`, `env`, `gold_patch`, `gold` (`init` and `add`: lists of file, first,
last), `cluster` (the repository), `kind`, `notes`.
"""

from context_bench.agents.datasets.folder import RefusedTask, Tasks
from context_bench.agents.datasets.tasks import BUNDLED, SCRIPT, load_tasks

__all__ = ["BUNDLED", "SCRIPT", "RefusedTask", "Tasks", "load_tasks"]
