from __future__ import annotations

import difflib

import pytest
from hypothesis import given, strategies as st

from context_bench.traces.edits import (
    anchors,
    deleted_lines,
    edit_location,
    parse_patch,
    upstream_deleted,
    upstream_edit_location,
)

lines = st.lists(
    st.sampled_from(["a", "b", "-- c", "++ d", "", " e", "diff --git a/x b/x", "@@ -1,1 +1,1 @@", "--- x"]), max_size=14
)


def diff_of(old, new, path="x"):
    return "\n".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")) + "\n"


@given(lines, lines)
def test_the_lines_a_diff_takes_away_are_those_it_took(old, new):
    """Without the deleted lines, the old file is the new one without what was inserted: whatever the lines look
    like.
    """
    text = diff_of(old, new)
    gone = deleted_lines(parse_patch(text)).get("x", [])
    kept = [line for n, line in enumerate(old, 1) if n not in gone]
    matcher = difflib.SequenceMatcher(None, old, new)
    assert len(kept) == sum(block.size for block in matcher.get_matching_blocks())
    assert len(kept) == sum(i2 - i1 for tag, i1, i2, _, _ in matcher.get_opcodes() if tag == "equal")


@given(lines, st.integers(0, 14), st.integers(1, 3))
def test_a_run_of_insertions_is_anchored_to_the_line_it_follows(old, place, count):
    place = min(place, len(old))
    old = [
        f"{line} of {number}" for number, line in enumerate(old)
    ]  # among equal lines difflib finds other places for it
    new = [*old[:place], *["new line"] * count, *old[place:]]
    text = diff_of(old, new)
    edits = parse_patch(text)
    assert deleted_lines(edits) == {}
    assert [edit.inserted for edit in edits] == [[(place, count)]]
    assert anchors(edits) == {"x": [max(1, place)]}


@given(st.text(max_size=200) | lines.map("\n".join))
def test_text_that_is_no_diff_is_no_fault(text):
    parse_patch(text)
    upstream_deleted(text)


def test_an_add_only_patch_is_located_by_what_it_follows():
    patch = diff_of(list("abcdef"), list("abcXdef"))
    found = edit_location(patch, {"x": [(3, 4)]})
    assert found is not None
    assert (found["precision"], found["pred_size"]) == (None, 0)
    assert (found["insert_anchors"], found["insert_anchor_hits"], found["anchored_precision"]) == (1, 1, 1.0)
    outside = edit_location(patch, {"x": [(5, 6)]})
    assert outside is not None
    assert outside["anchored_precision"] == 0.0


def test_recall_is_against_the_reference_patch_within_so_many_lines():
    old = [str(n) for n in range(20)]
    mine, theirs = diff_of(old, [*old[:5], *old[6:]]), diff_of(old, [*old[:6], *old[7:]])
    near = {k: edit_location(mine, {"x": [(1, 20)]}, gold_patch=theirs, dilate=k) for k in (0, 1)}
    assert [near[k]["recall"] for k in (0, 1)] == [0.0, 1.0]
    assert edit_location(mine, {"x": [(1, 20)]})["recall"] is None


@pytest.mark.parametrize("patch", [None, "", " \n"])
def test_without_a_patch_there_is_no_edit_location(patch):
    assert edit_location(patch, {"x": [(1, 2)]}, gold_patch="--- a/x\n+++ b/x\n@@ -1 +0,0 @@\n-a\n") is None


def test_the_original_scores_the_reference_in_place_of_a_missing_patch():
    reference = "--- a/x\n+++ b/x\n@@ -1 +0,0 @@\n-a\n"
    assert upstream_edit_location("", {"x": [(1, 2)]}, reference) == {
        "recall": 1.0,
        "precision": 1.0,
        "intersection": 1,
        "gold_size": 2,
        "pred_size": 1,
    }


def test_new_deleted_and_renamed_files():
    patch = (
        "diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,2 @@\n+x\n+y\n"
        "diff --git a/old.py b/old.py\ndeleted file mode 100644\n--- a/old.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y\n"
        "diff --git a/one.py b/two.py\nsimilarity index 100%\nrename from one.py\nrename to two.py\n"
    )
    assert [(edit.old, edit.new) for edit in parse_patch(patch)] == [
        (None, "new.py"),
        ("old.py", None),
        ("one.py", "two.py"),
    ]
    assert deleted_lines(parse_patch(patch)) == {"old.py": [1, 2]}
    assert anchors(parse_patch(patch)) == {}


@pytest.mark.parametrize("blank", ["", " ", "\r"])
def test_a_context_line_whose_blank_was_stripped_counts(blank):
    patch = f"--- a/x\n+++ b/x\n@@ -1,4 +1,3 @@\n a\n{blank}\n b\n-c\n"
    assert deleted_lines(parse_patch(patch)) == {"x": [4]}
