"""The grader that needs no model: it orders the recorded answers as any grader must, and is not fooled by cheap
tricks.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench.compression.evaluators.probe_atoms import SearchableText, grade
from context_bench.compression.probes import ProbeAtom

RECORDED = json.loads((Path(__file__).parents[2] / "vectors" / "compression.json").read_text("utf-8"))[
    "offline_grader_order"
]
ATOMS = [ProbeAtom(text) for text in RECORDED["probe"]["atoms"]]


def test_the_recorded_order() -> None:
    probe = RECORDED["probe"]
    found = {
        name: grade(text, ATOMS, truth=probe["ground_truth"], question=probe["question"]).rating
        for name, text in RECORDED["responses"].items()
    }
    for rule in RECORDED["must_hold"]:
        assert eval(rule, {}, found), f"{rule}: {found}"
    assert found["exact"] == 5.0


def test_reciting_everything_does_not_pay() -> None:
    files = [ProbeAtom("a/one.py", kind="path"), ProbeAtom("a/two.py", kind="path")]
    right = grade("We changed a/one.py and a/two.py.", files).score
    recited = grade(" ".join(["a/one.py a/two.py", *(f"a/other{n}.py" for n in range(30))]), files)
    assert right == 1.0
    assert recited.score < 0.35
    assert len(recited.strays) == 30


@pytest.mark.parametrize(
    ("text", "atom", "there"),
    [
        ("port 6380", "6380", True),
        ("port 16380", "6380", False),
        ("version 1.401 of it", "401", False),
        ("it was 401.", "401", True),
        ("4,010 rows", "010", False),
        ("see /repo/src/a.py:10", "src/a.py", True),
        ("see src/a.python", "src/a.py", False),
        ("use my_pool", "pool", False),
        ("`config/redis.ts`", "config/redis.ts", True),
        ("config\\redis.ts", "config/redis.ts", True),
        ("数据库在6380端口", "6380", True),
        ("The STATUS was Unauthorised", "unauthorised", True),
        ("We pooled the connections per session store", "connection pool", False),
        ("Two of the session mocks are failing", "2 failing session mocks", False),
        ("There are 2 session mocks failing", "2 failing session mocks", True),
        ("the sockets of the session store run out", "session store runs out of sockets", True),
    ],
)
def test_where_an_atom_stands(text: str, atom: str, there: bool) -> None:
    assert SearchableText(text).names(ProbeAtom(atom)) is there


def test_a_variant_counts_and_a_banned_one_ruins() -> None:
    atoms = [ProbeAtom("PostgreSQL", ("Postgres",)), ProbeAtom("SQLite", role="banned")]
    assert grade("We took Postgres.", atoms).score == 1.0
    refused = grade("We took Postgres, or was it SQLite?", atoms)
    assert (refused.score, refused.banned) == (0.0, ("SQLite",))


def test_weights() -> None:
    atoms = [ProbeAtom("pool", weight=3.0), ProbeAtom("sockets", weight=1.0)]
    assert grade("a pool", atoms).score > grade("of sockets", atoms).score


@given(st.text(max_size=200), st.lists(st.text(min_size=1, max_size=20), max_size=4))
def test_any_text_is_graded(response: str, wanted: list[str]) -> None:
    found = grade(response, [ProbeAtom(text) for text in wanted])
    assert 0.0 <= found.score <= 1.0
    assert len(found.found) + len(found.missed) == len(wanted)


@given(st.text(max_size=100))
def test_a_fact_more_never_hurts(response: str) -> None:
    assert grade(f"{response}\nUnauthorized", ATOMS).score >= grade(response, ATOMS).score - 1e-9
