from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from context_bench.core.errors import BadInput
from context_bench.shell.repo import Snapshot
from context_bench.traces.gold import ContentDrift, Gold, GoldItem, content_drift, faults, load_gold

ITEM = {"file": "a.py", "start_line": 2, "end_line": 3}
ROW = {
    "inst_id": "I-1",
    "original_inst_id": "owner__repo-1",
    "commit": "c" * 40,
    "init_ctx": [ITEM],
    "add_ctx": [{**ITEM, "file": "b.py"}],
}


def test_jsonl_json_and_a_tree_of_annotations_give_the_same_gold(tmp_path):
    other = ROW | {"inst_id": "I-2", "original_inst_id": "owner__repo-2"}
    (tmp_path / "g.jsonl").write_text(f"{json.dumps(ROW)}\n\n{json.dumps(other)}\n")
    (tmp_path / "g.json").write_text(json.dumps([ROW, other], indent=1))
    for row in (ROW, other):
        (tmp_path / "tree" / row["inst_id"]).mkdir(parents=True)
        (tmp_path / "tree" / row["inst_id"] / "annot.json").write_text(json.dumps(row, indent=1))
    sets = [load_gold(tmp_path / name) for name in ("g.jsonl", "g.json", "tree")]
    assert sets[0].golds == sets[1].golds == sets[2].golds
    gold = sets[0].find("owner/repo:pr-1")
    assert gold is sets[0].find("I-1")
    assert (gold.repo, gold.commit, [i.file for i in gold.init], [i.file for i in gold.add]) == (
        "owner/repo",
        "c" * 40,
        ["a.py"],
        ["b.py"],
    )
    assert sets[0].find(None, "nobody") is None


def test_both_parquet_layouts(tmp_path):
    base = {
        "repo": "o/r",
        "base_commit": "d" * 40,
        "language": "python",
        "patch": "",
        "source": "Verified",
        "f2p": "[]",
    }
    rows = [
        {
            "instance_id": "A",
            "original_inst_id": "o__r-1",
            "gold_context": json.dumps([{**ITEM, "content": "x"}]),
            **base,
        },
        {
            "instance_id": "B",
            "original_inst_id": "o__r-2",
            "gold_context": "context0：\nfile: a.py\nlines: 2-3\ncontent:\nx\n",
            **base,
        },
        {"instance_id": "C", "original_inst_id": "o__r-3", "gold_context": "nothing anybody could read", **base},
        {"instance_id": "D", "original_inst_id": "o__r-4", "gold_context": "[]", **base},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "g.parquet")
    golds = load_gold(tmp_path / "g.parquet")
    assert [(g.instance_id, g.init[0].first, g.init[0].last, g.commit, g.repo) for g in golds] == [
        ("A", 2, 3, "d" * 40, "o/r"),
        ("B", 2, 3, "d" * 40, "o/r"),
    ]
    assert sum(golds.skipped.values()) == 2


def test_no_gold_at_all_is_an_error(tmp_path):
    (tmp_path / "e.jsonl").write_text("")
    (tmp_path / "n.jsonl").write_text('{"inst_id": "x", "gold_ctx": []}\n{"a": 1}\n[2]\n{\n')
    (tmp_path / "d").mkdir()
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "c.csv").write_text("instance_id\nI-1\n")
    for name in ("e.jsonl", "n.jsonl", "d", "x.parquet", "c.csv", "nowhere"):
        with pytest.raises(BadInput):
            load_gold(tmp_path / name)
    with pytest.raises(BadInput, match="gold is empty"):
        load_gold(tmp_path / "n.jsonl")


def test_rows_that_cannot_be_used_are_counted_and_the_first_of_an_instance_stays(tmp_path):
    (tmp_path / "g.jsonl").write_bytes(
        b'{"inst_id": "x"}\n{"inst_id": "y"}\n\xff\n' + (json.dumps(ROW) + "\n").encode() * 2
    )
    golds = load_gold(tmp_path / "g.jsonl")
    assert len(golds) == 1
    assert golds.repeated == ["I-1"]
    assert sorted(golds.skipped.values()) == [1, 2]


def test_a_csv_beside_selects_and_fills_in(tmp_path):
    other = {"inst_id": "I-2", "gold_ctx": [ITEM]}
    (tmp_path / "g.jsonl").write_text(f"{json.dumps(ROW)}\n{json.dumps(other)}\n")
    head = "bench,instance_id,original_inst_id,language,status,repo,commit\n"
    (tmp_path / "s.csv").write_text(
        f"{head}Pro,I-2,instance_o__r-{'a' * 40}-v{'b' * 40},go,pass,o/r,abc\nPro,I-9,,go,pass,,\n",
        encoding="utf-8-sig",
    )
    golds = load_gold(tmp_path / "g.jsonl", join=tmp_path / "s.csv")
    assert [(g.instance_id, g.repo, g.commit, g.language, g.source) for g in golds] == [
        ("I-2", "o/r", "abc", "go", "Pro")
    ]
    assert golds.find(f"o__r-{'a' * 40}") is golds.golds[0]
    assert golds.skipped == {"listed in the CSV, no gold": 1}
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="names no instances"):
        load_gold(tmp_path / "g.jsonl", join=tmp_path / "bad.csv")


def test_gold_whose_text_is_elsewhere_is_reported():
    repo = Snapshot({"a.py": b"one\r\ntwo\r\nthree\r\nfour\r\n", "b.py": b"x\nx\n"})
    gold = Gold(
        "i",
        [
            GoldItem("a.py", 2, 3, "two \nthree\n"),
            GoldItem("/testbed/a.py", 1, 2, "three\nfour"),
            GoldItem("a.py", 1, 1, "five"),
            GoldItem("b.py", 5, 5, "x"),
            GoldItem("gone.py", 1, 1, "x"),
            GoldItem("a.py", 9, 9),
        ],
    )
    assert content_drift(gold, repo) == [
        ContentDrift("/testbed/a.py", 1, 2, 3),
        ContentDrift("a.py", 1, 1, None),
        ContentDrift("b.py", 5, 5, None),
        ContentDrift("gone.py", 1, 1, None),
    ]
    assert faults([gold], repo) == {"gold_content_mismatch": 4, "gold_missing_file": 1}
