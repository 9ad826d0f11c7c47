"""kill -9 at every kind of boundary between two writes to the store, then the same command again: the report of an undisturbed run."""

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


def sound(where):
    """No page of the store is torn."""
    with sqlite3.connect(where) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def killed_until_it_ends(forge, place, scene, **arguments):
    """Play a scene again and again, each time until it comes to a boundary where no time before died; the last time it ends by itself."""
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
