from __future__ import annotations

from hypothesis import given, strategies as st

from context_bench.traces.coverage import Resolver
from context_bench.traces.edits import Stage, funnel, summed
from context_bench.transcripts.trace import Event, Trace


def event(step, kind, path, tool="", provenance="output_numbered", strength="shown", ok=True):
    return Event(step, None, kind, tool or kind, path, None, provenance, strength, ok)


RUN = Trace(
    "i",
    events=[
        event(1, "read", "known.py"),
        event(2, "search", "src", "Grep", "args", "listed"),  # where it looked, not what it found
        event(3, "search", "src/a.py", "Grep"),
        event(3, "search", "src/b.py", "Grep"),
        event(3, "search", "known.py", "Grep"),
        event(4, "list", "src", "Glob", "args", "listed"),  # a folder
        event(4, "list", "src/c.py", "Glob", "args", "listed"),
        event(5, "read", "src/a.py"),
        event(6, "read", "src/c.py", ok=False),
        event(7, "edit", "src/a.py"),
        event(8, "edit", "src/d.py"),
        event(9, "read", "alone.py"),
        event(10, "edit", "known.py"),
    ],
)


def test_from_hit_to_edit():
    found = funnel(RUN, gold={"src/a.py", "src/d.py"})
    assert found.all == Stage(returned=4, known=1, opened=1, edited=2)
    assert found.tools == {"Grep": Stage(3, 1, 1, 2), "Glob": Stage(1, 0, 0, 0)}
    assert found.gold == Stage(1, 0, 1, 1)
    assert (found.searches, found.useful, found.steps_to_open) == (2, 1, 2.0)
    assert found.unopened == ["src/b.py", "src/c.py"]
    assert (found.opened_unsearched, found.edited_unread) == (2, 1)
    assert funnel(RUN).gold is None


def test_paths_can_be_told_by_the_repository():
    absolute = [
        event(1, "search", "/w/src/a.py", "rg"),
        event(2, "read", "src/a.py"),
        event(3, "read", "/elsewhere.py"),
    ]
    found = funnel(absolute, resolve=Resolver(["src/a.py"], "/w").resolve)
    assert (found.all, found.opened_unsearched) == (Stage(1, 0, 1, 0), 0)


@given(
    st.lists(
        st.builds(
            event,
            st.integers(1, 9),
            st.sampled_from(["search", "list", "read", "edit", "exec", "other"]),
            st.none() | st.sampled_from(["a", "b", "c/d"]),
            ok=st.booleans(),
            strength=st.sampled_from(["shown", "listed", "claimed"]),
        ),
        max_size=12,
    )
)
def test_every_stage_is_part_of_the_one_before(events):
    found = funnel(sorted(events, key=lambda one: one.step), gold=["a"])
    for stage in (found.all, found.gold, *found.tools.values()):
        assert stage.known + stage.opened <= stage.returned
        assert stage.edited <= stage.returned
    assert sum(stage.returned for stage in found.tools.values()) == found.all.returned
    assert len(found.unopened) <= found.all.returned
    assert found.useful <= found.searches
    assert found.to_json()["all"]["returned"] == found.all.returned


def test_counts_of_runs_add_up():
    one = funnel(RUN, gold={"src/a.py"}).to_json()
    both = summed([one, one, funnel([event(1, "search", f"f{n}.py", "rg") for n in range(60)]).to_json()])
    assert both["runs"] == 3
    assert both["all"] == {"returned": 68, "known": 2, "opened": 2, "edited": 4}
    assert both["gold"] == {"returned": 2, "known": 0, "opened": 2, "edited": 2}
    assert both["tools"]["rg"]["returned"] == 60
    assert (both["searches"], both["useful"], both["edited_unread"]) == (5, 2, 2)
    assert len(funnel([event(1, "search", f"f{n}.py") for n in range(60)]).to_json()["unopened"]) == 50
    assert summed([])["all"] == {}
