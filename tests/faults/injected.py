"""Faults that a child arms in itself before it plays its scene."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import struct
import sys
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.pool import Pool

_CAPABILITIES_3, _DAC_OVERRIDE, _DAC_READ_SEARCH = 0x20080522, 1 << 1, 1 << 2
_READS = ("SELECT", "PRAGMA", "ROLLBACK", "EXPLAIN")


def head(statement):
    """What a statement does, without its values: enough to tell one boundary from the next."""
    words = statement.split()
    if words[0] in ("CREATE", "ALTER", "DROP"):
        return "a change of the schema"
    return " ".join(words[: 3 if words[0] in ("INSERT", "DELETE") else 2])


def writes(statement):
    """Is this the beginning, a part or the end of something written?"""
    text = statement.strip().upper()
    if text.startswith(("PRAGMA APPLICATION_ID=", "PRAGMA WAL_CHECKPOINT")):
        return True
    return text not in ("", "BEGIN") and not text.startswith(_READS)


def kind(before, after):
    """Names the boundary between two writes."""
    return f"{before} > {after}"


def each_statement(heard):
    """Call `heard` with every statement that any SQLite connection of this process is about to execute."""

    def connected(connection, _):
        connection.set_trace_callback(heard)

    event.listen(Pool, "connect", connected)


def die_at_a_new_kind(file):
    known, last = set(file.read_text().splitlines()) if file.exists() else set(), ["start"]

    def look(statement):
        if not writes(statement):
            return
        found, last[0] = kind(last[0], head(statement)), head(statement)
        if found not in known:
            with file.open("a") as stream:
                stream.write(f"{found}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    each_statement(look)


def keep_what_is_durable(folder, name):
    """After each commit copy the database and its log to `folder`/N, and note how many answers were committed by
    then.
    """
    seen, committed, copies = [0], [0], []

    def look(statement):
        if committed[0] is None:
            place = folder / str(len(copies))
            place.mkdir(parents=True)
            for file in (name, name.with_name(f"{name.name}-wal")):
                shutil.copy(file, place)
            copies.append(seen[0])
            (folder / "answers").write_text(" ".join(map(str, copies)))
        seen[0] += statement.startswith("INSERT INTO outputs")
        committed[0] = None if statement == "COMMIT" else seen[0]

    each_statement(look)


def obey_modes():
    """Give up the two capabilities by which root reads and writes whatever a mode forbids."""
    head = struct.pack("II", _CAPABILITIES_3, 0)
    sets = ctypes.create_string_buffer(24)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(head, sets) == 0
    words = list(struct.unpack("6I", sets))
    words[:3] = [word & ~(_DAC_OVERRIDE | _DAC_READ_SEARCH) for word in words[:3]]
    assert libc.capset(head, struct.pack("6I", *words)) == 0


def arm(fault):
    """Arm what `fault` asks for; what it tells is filled in as the scene is played.

    `record`: tell every write; `count`: how many statements there are; `interrupt_at`: Ctrl-C before these of them;
    `die_at`: SIGKILL before the k-th write; `new_kind`: a file of kinds of boundaries; SIGKILL at the first that is not
    in it, which it then is; `snapshots`: see `keep_what_is_durable`; `file_size`: largest file in bytes; `die_at_size`:
    the kernel kills who writes a file beyond so many bytes; `pages`: largest database; `memory`: most bytes that may be
    added to the address space; `modes_hold`: even root is kept out of what a file's mode forbids.
    """
    sys.dont_write_bytecode = True  # a module cut short by a limit below would end every later command
    told = {}
    if fault.get("record"):
        told["writes"] = []
        each_statement(lambda statement: writes(statement) and told["writes"].append(head(statement)))
    if fault.get("snapshots"):
        keep_what_is_durable(Path(fault["snapshots"]), Path(fault["of"]))
    if fault.get("count"):
        told["statements"] = 0

        def add(statement):
            told["statements"] += 1

        each_statement(add)
    if fault.get("interrupt_at"):
        passed = [0]

        def interrupt(statement):
            passed[0] += 1
            if passed[0] in fault["interrupt_at"]:
                os.kill(os.getpid(), signal.SIGINT)

        each_statement(interrupt)
    if fault.get("die_at"):
        left = [fault["die_at"]]

        def count(statement):
            left[0] -= writes(statement)
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        each_statement(count)
    if fault.get("new_kind"):
        die_at_a_new_kind(Path(fault["new_kind"]))
    if fault.get("file_size"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault["file_size"], resource.RLIM_INFINITY))
    if fault.get("die_at_size"):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault["die_at_size"], resource.RLIM_INFINITY))
    if fault.get("modes_hold"):
        obey_modes()
    if fault.get("memory"):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + fault["memory"], resource.RLIM_INFINITY))
    if fault.get("pages"):
        event.listen(
            Pool, "connect", lambda connection, _: connection.execute(f"PRAGMA max_page_count={fault['pages']}")
        )
    return told
