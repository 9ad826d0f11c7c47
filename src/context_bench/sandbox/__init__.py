"""Run code that a model wrote: apart from this machine, under limits, killed as a whole.

Two things are done here. A *program* (code execution): `find_sandbox()` gives the first kind that works on this machine
and `run()` runs a unit in it, with nothing but the standard library. An *agent* (repository tasks): `workspace()` makes
a fresh copy of a repository; commands run in it with the tools of this machine, read-only, and `verify()` puts the
hidden tests over what the agent left and runs them.
"""

from context_bench.sandbox.backends import Bubblewrap, Container, NoSandbox, Sandbox
from context_bench.sandbox.launch import Outcome, Unit, find_agent_sandbox, find_sandbox, run
from context_bench.sandbox.supervision import Bounds, Finished, Limits
from context_bench.sandbox.verification import Verdict, verify
from context_bench.sandbox.workspace import Workspace, workspace

__all__ = [
    "Bounds",
    "Bubblewrap",
    "Container",
    "Finished",
    "Limits",
    "NoSandbox",
    "Outcome",
    "Sandbox",
    "Unit",
    "Verdict",
    "Workspace",
    "find_agent_sandbox",
    "find_sandbox",
    "run",
    "verify",
    "workspace",
]
