"""The power goes between any two commits: what was acknowledged is on the disk, whatever became of what was not yet.

SQLite appends to its log and waits for the disk at every durable commit. So a state after a loss of power is a state
right after a commit, followed by any part of what was written later: nothing, half of it, zeros, or noise.
"""

import random
import shutil
import sqlite3

import pytest

TAILS = {
    "nothing after it": lambda later, chance: b"",
    "half of what came later": lambda later, chance: later[: len(later) // 2 + 1],
    "zeros": lambda later, chance: bytes(len(later)),
    "noise": lambda later, chance: chance.randbytes(len(later)),
}


@pytest.fixture
def states(bench):
    """Copies of database and log after each commit of a run, and the number of answers acknowledged by then."""
    kept = bench.folder / "kept"
    status, out = bench.run(fault={"snapshots": str(kept), "of": str(bench.store)})
    assert status == 0, out
    return kept, [int(count) for count in (kept / "answers").read_text().split()]


def lost(kept, number, tail, chance, where):
    """The store as it is found after the power was lost right after a commit."""
    state, later = kept / str(number), kept / str(number + 1)
    log = (state / "store.db-wal").read_bytes()
    after = (later / "store.db-wal").read_bytes() if later.exists() else b""
    written = after[len(log) :] if after.startswith(log) else b""
    shutil.copy(state / "store.db", where)
    where.with_name("store.db-wal").write_bytes(log + TAILS[tail](written, chance))
    where.with_name("store.db-shm").unlink(missing_ok=True)


def test_every_acknowledged_answer_is_there(states, tmp_path):
    kept, answers = states
    assert answers[-1] == 12
    chance, where = random.Random(3), tmp_path / "store.db"
    for number, acknowledged in enumerate(answers):
        for tail in TAILS:
            lost(kept, number, tail, chance, where)
            with sqlite3.connect(where) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
                if "outputs" in tables:
                    found = connection.execute(
                        "SELECT count(*) FROM outputs o JOIN plan p ON p.output = o.id"
                    ).fetchone()[0]
                    assert found >= acknowledged, (number, tail)
            connection.close()


def test_it_would_be_noticed_if_a_commit_had_not_waited_for_the_disk(states, tmp_path):
    kept, answers = states
    where = tmp_path / "store.db"
    lost(kept, len(answers) - 1, "nothing after it", random.Random(5), where)
    log = where.with_name("store.db-wal")
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    with sqlite3.connect(where) as connection:
        assert connection.execute("SELECT count(*) FROM outputs").fetchone()[0] < answers[-1]
    connection.close()


@pytest.mark.parametrize("tail", ["half of what came later", "noise"])
def test_the_same_command_goes_on_from_there(bench, states, undisturbed, tail):
    kept, answers = states
    number = next(at for at, count in enumerate(answers) if count == 6)
    lost(kept, number, tail, random.Random(4), bench.store)
    status, out = bench.run()
    assert status == 0, out
    assert "6 rows were already in the store" in out
    assert bench.report().replace(str(bench.folder), "FOLDER") == undisturbed
