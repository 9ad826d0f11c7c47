from __future__ import annotations

import json

import pytest

from context_bench.traces.gold import GoldItem, clean_path, gold_of_row, repo_of_row, upstream_path

ITEM = {"file": "a.py", "start_line": 1, "end_line": 3}


def test_init_and_add_are_kept_apart_and_gold_ctx_only_stands_in_for_both():
    both = gold_of_row(
        {
            "inst_id": "i",
            "init_ctx": [ITEM],
            "add_ctx": [ITEM | {"file": "b.py"}],
            "gold_ctx": [ITEM | {"file": "c.py"}],
        }
    )
    assert ([item.file for item in both.init], [item.file for item in both.add]) == (["a.py"], ["b.py"])
    alone = gold_of_row({"original_inst_id": "i", "init_ctx": [], "add_ctx": None, "gold_ctx": [ITEM]})
    assert [item.file for item in alone.init] == ["a.py"]


def test_both_published_layouts_give_the_same_gold():
    wanted = [GoldItem("src/a.py", 3, 4, "x = 1\ny = 2"), GoldItem("b.py", 7, 7)]
    rows = [
        {"file": "src/a.py", "start_line": 3, "end_line": 4, "content": "x = 1\ny = 2"},
        {"file": "b.py", "start_line": "7", "end_line": 7},
    ]
    text = (
        "context0：\nfile: src/a.py\nlines: 3-4\ncontent:\nx = 1\ny = 2\n\ncontext1：\nfile: b.py\nstart_line: "
        "7\nend_line: 7\n"
    )
    as_json = gold_of_row({"instance_id": "i", "gold_context": json.dumps(rows)}).init
    as_text = gold_of_row({"instance_id": "i", "gold_context": text}).init
    assert as_json == wanted
    assert [(item.file, item.first, item.last, (item.content or "").strip() or None) for item in as_text] == [
        (item.file, item.first, item.last, item.content) for item in wanted
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"init_ctx": [ITEM]}, "names no instance"),
        ({"inst_id": "i"}, "is empty"),
        ({"inst_id": "i", "gold_context": "see the issue"}, "neither JSON nor blocks"),
        ({"inst_id": "i", "gold_context": "context0：\nfile: a.py\n"}, "names no lines"),
        ({"inst_id": "i", "gold_context": "context0：\nlines: 1-2\n"}, "names no file"),
        ({"inst_id": "i", "init_ctx": [{"file": "a.py"}]}, "expected {file, start_line, end_line}"),
        ({"inst_id": "i", "init_ctx": 3}, "expected a list"),
    ],
)
def test_gold_is_never_silently_empty(row, words):
    with pytest.raises(ValueError, match=words):
        gold_of_row(row)


@pytest.mark.parametrize(
    ("row", "repo"),
    [
        ({"repo": "owner/name"}, "owner/name"),
        ({"repo": "owner__name"}, "owner/name"),
        ({"repo_url": "https://github.com/owner/name.git"}, "owner/name"),
        ({"repo_url": "git@github.com:owner/name.git"}, "owner/name"),
        ({"original_inst_id": "owner__name-123"}, "owner/name"),
        ({"original_inst_id": "instance_owner__na-me-" + "a" * 40 + "-v" + "b" * 40}, "owner/na-me"),
        ({"instance_id": "SWE-PolyBench__python__x"}, None),
        ({"repo": "name"}, "name"),
        ({"repo": "name", "original_inst_id": "owner__name-123"}, "owner/name"),
        ({"repo": "name", "original_inst_id": "owner__other-123"}, "name"),
        ({"repo": "name", "repo_url": "https://github.com/owner/name"}, "owner/name"),
        ({}, None),
    ],
)
def test_the_repository_of_a_row(row, repo):
    assert repo_of_row(row) == repo


def test_paths_of_containers():
    assert clean_path("/testbed/src/a.py") == "src/a.py"
    assert clean_path("/workspace/o__r__0.1/src/a.py") == "src/a.py"
    assert clean_path("workspace/x/a.py") == "workspace/x/a.py"
    assert clean_path("./.github/x") == ".github/x"
    assert upstream_path(".github/x") == "github/x"
