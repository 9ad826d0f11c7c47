"""kill -9 at every kind of boundary between two writes to the store, then the same command again: the report of an
undisturbed run.
"""

import shutil
import signal
import sqlite3

import pytest


@pytest.fixture(scope="module")
def calm(forge, endpoint, tmp_path_factory):
    """An undisturbed run: what it says, and the writes it made."""
    where = str(tmp_path_factory.mktemp("calm") / "store.db")
    status, said, out = forge.play("whole", fault={"record": True}, url=endpoint.url, where=where)
    assert status == 0, out
    assert said["completed"]
    assert not said["counts"]["failed"]
    return said


@pytest.fixture
def stored(forge, endpoint, place):
    """The store of an undisturbed run, closed."""
    where = place / "store.db"
    status, _, out = forge.play("whole", url=endpoint.url, where=str(where))
    assert status == 0, out
    return where


def sound(where):
    """No page of the store is torn."""
    with sqlite3.connect(where) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def killed_until_it_ends(forge, place, scene, **arguments):
    """Play a scene again and again, each time until it comes to a boundary where no time before died; the last time it
    ends by itself.
    """
    kinds, deaths = place / "kinds", 0
    while True:
        status, said, out = forge.play(scene, fault={"new_kind": str(kinds)}, **arguments)
        if status == 0:
            return said, kinds.read_text().splitlines()
        assert status == -signal.SIGKILL, (deaths, out)
        deaths += 1
        assert sound(arguments["where"])


def test_killed_at_every_kind_of_boundary_and_resumed_it_is_the_undisturbed_run(forge, endpoint, calm, place):
    said, kinds = killed_until_it_ends(forge, place, "whole", url=endpoint.url, where=str(place / "store.db"))
    died = {kind.partition(" > ")[2] for kind in kinds}
    assert died >= set(calm["writes"])  # before each kind of write that an undisturbed run makes
    assert said["report"] == calm["report"]
    assert said["spent"] >= calm["spent"]


def test_killed_while_a_file_is_planned_and_answered_it_goes_on_where_the_plan_is_known(forge, place):
    data = place / "d.jsonl"
    data.write_text("".join(f'{{"id": {n}, "context": "text {n}", "answer": "a{n % 3}"}}\n' for n in range(140)))
    said, kinds = killed_until_it_ends(forge, place, "of_a_file", where=str(place / "store.db"), data=str(data))
    assert {"INSERT INTO sources", "UPDATE sources"} <= {kind.partition(" > ")[2] for kind in kinds}
    assert set(said["asked"]) == {str(n) for n in range(140)}
    assert len(said["asked"]) <= 140 + len(kinds)  # what was in flight, once for every death
    status, calm, out = forge.play("of_a_file", where=str(place / "calm.db"), data=str(data))
    assert status == 0, out
    assert said["report"] == calm["report"]
    status, again, _ = forge.play("of_a_file", where=str(place / "store.db"), data=str(data))
    assert (again["asked"], again["report"], again["counts"]["reused"]) == (said["asked"], said["report"], 140)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_killed_once_nothing_is_paid_twice_but_groups_that_are_done_again(forge, endpoint, calm, place, share):
    arguments = {"url": endpoint.url, "where": str(place / "store.db")}
    status, _, out = forge.play("whole", fault={"die_at": int(share * len(calm["writes"]))}, **arguments)
    assert status == -signal.SIGKILL, out
    status, said, out = forge.play("whole", **arguments)
    assert status == 0, out
    assert said["report"] == calm["report"]
    again = said["counts"]["restarted"] or said["counts"]["set_up_again"]
    assert said["spent"] > calm["spent"] if again else said["spent"] == pytest.approx(calm["spent"])
    status, once_more, out = forge.play("whole", **arguments)
    assert status == 0, out
    assert once_more["counts"]["done"] == 0
    assert (once_more["report"], once_more["spent"]) == (said["report"], said["spent"])


def test_killed_while_judging_again(forge, endpoint, stored, place):
    other = place / "other.db"
    shutil.copy(stored, other)
    status, calm_said, out = forge.play("rescored", url=endpoint.url, where=str(other))
    assert status == 0, out
    said, kinds = killed_until_it_ends(forge, place, "rescored", url=endpoint.url, where=str(stored))
    assert "INSERT INTO scores" in {kind.partition(" > ")[2] for kind in kinds}
    assert said["report"] == calm_said["report"]
    assert said["spent"] >= calm_said["spent"]


def test_killed_while_a_store_of_an_older_version_is_brought_up_to_date(forge, calm, stored, place):
    with sqlite3.connect(stored) as connection:  # as the version before left it
        connection.execute("DROP TABLE pens")
        connection.execute("DROP TABLE sources")
        connection.execute("DROP TABLE certificates")
        connection.execute("DROP TABLE counted_sessions")
        connection.execute("DROP TABLE row_notes")
        for column in ("title", "tags", "deleted"):
            connection.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        connection.execute("ALTER TABLE calls DROP COLUMN in_flight")
        connection.execute("UPDATE alembic_version SET version_num = '0004'")
        newer = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'v5%'")}
    assert not newer
    said, kinds = killed_until_it_ends(forge, place, "opened", where=str(stored))
    assert {"a change of the schema", "UPDATE alembic_version", "COMMIT"} <= {
        kind.partition(" > ")[2] for kind in kinds
    }
    assert said["report"] == calm["report"]


def test_killed_while_purging_a_run_is_there_or_gone(forge, calm, stored, place):
    kinds = place / "kinds"
    while True:
        status, _, out = forge.play("purged", fault={"new_kind": str(kinds)}, where=str(stored))
        if status == 0:
            break
        assert status == -signal.SIGKILL, out
        assert sound(stored)
        with sqlite3.connect(stored) as connection:
            runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
            rows = connection.execute("SELECT count(*) FROM plan").fetchone()[0]
        assert (runs, rows) in ((1, 12), (0, 0))
    assert "VACUUM" in kinds.read_text()
    with sqlite3.connect(stored) as connection:
        tables = [
            name
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            )
        ]
        left = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables}
    kept = {"alembic_version", "evaluators", "endpoints", "replies"}
    assert {name for name, count in left.items() if count} <= kept
