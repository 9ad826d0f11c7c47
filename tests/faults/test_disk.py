"""A disk that is full, read-only, or taken away: what is wrong is said, and the same command goes on when it is
mended.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from context_bench.engine import open_store, run_of
from context_bench.llm.background import run_sync
from context_bench.llm.servers import ModelServer
from context_bench.wire.apis import Reply


def mended(bench, undisturbed):
    """Play the same command, now that nothing is wrong: it ends well and has found what an undisturbed run finds."""
    status, out = bench.run()
    assert status == 0, out
    assert bench.report().replace(str(bench.folder), "FOLDER") == undisturbed


def rows_of(bench):
    """(stored, owed) rows of the run."""
    with open_store(bench.store) as store:
        record = run_of(store, "r")
        return record.rows, record.planned


@pytest.mark.parametrize("fault", [{"pages": 56}, {"file_size": 420_000}], ids=["no space", "no larger files"])
def test_a_full_disk_is_said_and_what_was_committed_is_kept(bench, undisturbed, fault):
    status, out = bench.run(fault=fault)
    assert status == 2, out
    assert str(bench.store) in out
    assert "free some space, then resume: everything committed is kept" in out
    assert "Traceback" not in out
    kept, owed = rows_of(bench)
    assert 0 < kept < owed == 12
    mended(bench, undisturbed)


def test_a_disk_too_full_for_a_store_leaves_nothing_that_stands_in_the_way(bench, undisturbed):
    status, out = bench.run(fault={"file_size": 20_000})
    assert status == 2, out
    assert "free some space" in out
    mended(bench, undisturbed)


@pytest.mark.program("bwrap")
def test_a_disk_that_turned_read_only_can_be_read_and_is_said_when_written(bench, undisturbed):
    status, out = bench.run(fault={"file_size": 420_000})
    assert status == 2, out
    there = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", str(bench.folder), str(bench.folder)]
    program = (
        "import json, sys; from context_bench.__main__ import main; print([main(argv) for argv in "
        "json.loads(sys.argv[1])])"
    )
    commands = [bench.argv(), ["show", "r", "--store", str(bench.store)], ["runs", "--store", str(bench.store)]]
    done = subprocess.run(
        [*there, sys.executable, "-c", program, json.dumps(commands)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == "[2, 0, 0]", done.stderr
    assert f"store {bench.store}" in done.stderr
    assert "Traceback" not in done.stderr
    mended(bench, undisturbed)


class Meddling:
    """A model that does something to the store's disk when it is asked for the n-th time."""

    name = "meddling"

    def __init__(self, at, act):
        self.left, self.act = at, act

    async def reply(self, request, headers):
        self.left -= 1
        if self.left == 0:
            self.act()
        said = next((f"It is word{number}." for number in range(4) if f"word{number}" in request.messages[0].text), "?")
        return Reply(said, [], "stop", None, request.model)


@pytest.fixture
def meddling():
    servers = []

    def started(at, act):
        server = ModelServer(Meddling(at, act))
        run_sync(server.start())
        servers.append(server)
        return server.url

    yield started
    for server in servers:
        run_sync(server.stop())


def test_a_store_that_is_removed_under_a_run_ends_it_at_once(bench, meddling):
    aside = bench.folder / "aside"

    def away():
        aside.mkdir()
        for name in ("store.db", "store.db-wal", "store.db-shm"):
            (bench.folder / name).rename(aside / name)

    url = meddling(6, away)
    status, out = bench.run(url=url)
    assert status == 2, out
    assert "was removed or replaced while it was in use" in out
    assert not bench.store.exists()
    for file in aside.iterdir():
        shutil.copy(file, bench.folder)
    status, out = bench.run(url=url)
    assert status == 0, out
    assert "rows were already in the store" in out


def another(folder):
    """A store of somebody else's in the place of the run's."""
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        (folder / name).rename(folder / f"own-{name}")
    with open_store(folder / "store.db"):
        pass


def put_back(folder):
    """Everything as it was."""
    if (aside := folder.with_name("aside")).exists():
        aside.rename(folder)
    folder.chmod(0o700)
    for file in folder.glob("own-*"):
        file.rename(folder / file.name.removeprefix("own-"))
    (folder / "store.db").chmod(0o600)


LOSSES = {
    "the folder is gone": (lambda folder: folder.rename(folder.with_name("aside")), "was removed or replaced"),
    "another store is there": (another, "was removed or replaced"),
    "nobody may enter the folder": (lambda folder: folder.chmod(0), "cannot be reached any more: Permission denied"),
    "nobody may open the file": (lambda folder: (folder / "store.db").chmod(0), None),
    "nothing may be made in the folder": (lambda folder: folder.chmod(0o500), None),
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_store_that_is_taken_away_in_the_middle_is_said_and_nothing_that_was_committed_is_lost(bench, meddling, what):
    happens, said = LOSSES[what]
    bench.store = bench.folder / "inner" / "store.db"
    bench.store.parent.mkdir()
    url = meddling(6, lambda: happens(bench.store.parent))
    status, out = bench.run(url=url, fault={"modes_hold": True})
    assert status == (2 if said else 0), out  # what is open already can be written on
    assert said is None or said in out
    assert "Traceback" not in out
    put_back(bench.store.parent)
    kept, owed = rows_of(bench)
    assert (kept, owed) == ((4, 12) if said else (12, 12))
    status, out = bench.run(url=url)
    assert status == 0, out
    assert f"{kept} rows were already in the store" in out
    assert rows_of(bench) == (12, 12)


def test_a_folder_of_logs_that_may_not_be_listed_is_not_said_to_be_empty(tmp_path):
    (tmp_path / "logs").mkdir(mode=0)
    for command in (["explain", "logs"], ["replay", "logs", "--upstream", "echo", "--proxy", "http://127.0.0.1:9"]):
        program = "import sys; from injected import obey_modes; from context_bench.__main__ import main; obey_modes(); "
        done = subprocess.run(
            [sys.executable, "-c", f"{program}sys.exit(main(sys.argv[1:]))", *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert "logs: this folder cannot be read: Permission denied" in " ".join(done.stderr.split())
