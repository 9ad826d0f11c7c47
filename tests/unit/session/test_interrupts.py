"""What a command that is interrupted knows of the processes it started."""

import subprocess
import sys
from pathlib import Path

import pytest

from context_bench.session.interrupts import children


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads what Linux says of processes")
def test_a_thread_that_ends_meanwhile_hides_no_child(monkeypatch):
    listed = Path.glob
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: [folder / "0" / "children", *listed(folder, pattern)])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.pid in children()
        child.communicate(b"\n")
    assert child.pid not in children()
