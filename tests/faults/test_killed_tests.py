"""Tests that are killed leave nothing running: the forge dies with who started it, and the children with the forge."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

#: Stands in for pytest: starts a forge, has it begin a scene that never ends, tells both process ids, and waits.
STARTER = """
import json, os, subprocess, sys
command = [sys.executable, sys.argv[1], str(os.getpid())]
forge = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(json.dumps({"start": "waits"}), file=forge.stdin, flush=True)
child = json.loads(forge.stdout.readline())["pid"]
print(json.dumps({"wait": child}), file=forge.stdin, flush=True)  # the forge waits for it, and so does not see its own input end
print(json.dumps([forge.pid, child]), flush=True)
forge.wait()
"""  # noqa: E501


def gone(handle, seconds=30):
    """Is the process of a pidfd over?"""
    return bool(select.select([handle], [], [], seconds)[0])


def test_a_killed_test_leaves_no_process_behind():
    command = [sys.executable, "-c", STARTER, str(Path(__file__).with_name("forge.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        handles = [os.pidfd_open(pid) for pid in json.loads(starter.stdout.readline())]
        assert not any(gone(handle, 0) for handle in handles)
        starter.send_signal(signal.SIGKILL)
        assert all(gone(handle) for handle in handles)
    for handle in handles:
        os.close(handle)
