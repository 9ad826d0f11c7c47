"""The shell's own commands, which change the shell: where it is, what its variables hold, whether it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from context_bench.shell.call import Call, Result
from context_bench.shell.model import UNKNOWN, Some, Stop, Stream

if TYPE_CHECKING:
    from context_bench.shell.running import Shell


def cd(shell: Shell, call: Call) -> Result:
    """Change directory; where the directory is not known to be there, paths are guesses from here on."""
    files = shell.files
    names = [arg for arg in call.args if arg not in ("--", "-P", "-L")]
    before, left = files.cwd, shell.left
    if names[:1] == ["-"]:
        files.cwd, shell.left = shell.left, before
        return Stream([Some(None)]), 0 if files.cwd is not None else None
    shell.left = before
    status = files.cd(names[0] if names else "~")
    if status == 1:
        files.cwd, shell.left, files.doubt = before, left, True
    return Stream(), status


def pushd(shell: Shell, call: Call) -> Result:
    """Change directory, and keep the old one."""
    shell.stack.append(shell.files.cwd)
    _, status = cd(shell, call)
    return Stream([Some(None)]), status


def popd(shell: Shell, call: Call) -> Result:
    """Go back to the directory kept last."""
    shell.files.cwd = shell.stack.pop() if shell.stack else None
    return Stream([Some(None)]), 0


def leave(shell: Shell, call: Call) -> Result:
    """End the shell (exit)."""
    raise Stop(Stream())


def evaluate(shell: Shell, call: Call) -> Result:
    """Run the arguments as a script (eval)."""
    shell.budget.make(sum(map(len, call.args)), 1)
    return shell.source(" ".join(call.args), call.stdin)


def read(shell: Shell, call: Call) -> Result:
    """Put a line of standard input into variables; which, nobody can tell."""
    for name in call.args:
        if name.isidentifier():
            shell.variables[name] = UNKNOWN
    return Stream(), None
