"""Any dataset on the hub, without a description: its files found, its columns guessed, no script run, no more fetched
than wanted.
"""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest
import zstandard

from context_bench.core.errors import BadInput, PreflightFailed
from context_bench.datasets import load
from minihub import MiniHub, MiniRepo, parquet_bytes, zip_bytes

ROWS = [
    {"id": f"r{i}", "passage": f"text {i}", "query": f"what is {i}?", "answers": {"text": [str(i), f"no. {i}"]}}
    for i in range(5)
]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def serve(monkeypatch, tmp_path, hub_client):
    hub_client(monkeypatch, tmp_path / "hf")
    running = []

    def start(files, **more):
        hub = MiniHub({"me/set": MiniRepo(files, **more)})
        hub.__enter__()
        running.append(hub)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        return hub

    yield start
    for hub in running:
        hub.__exit__()


def examples(name, **options):
    return list(load(name, **options).examples())


def test_parquet_with_splits_takes_the_test_split_and_says_what_was_guessed(serve, monkeypatch):
    serve(
        {
            "README.md": b"#",
            "dataset_infos.json": b"{}",
            "data/train-00000-of-00001.parquet": parquet_bytes(ROWS[:1]),
            "data/test-00000-of-00002.parquet": parquet_bytes(ROWS[:2]),
            "data/test-00001-of-00002.parquet": parquet_bytes(ROWS[2:]),
        }
    )
    loaded = load("hf:me/set")
    found = list(loaded.examples())
    assert [(e["id"], e["context"], e["question"], e["answers"]) for e in found] == [
        (r["id"], r["passage"], r["query"], r["answers"]["text"]) for r in ROWS
    ]
    assert (loaded.base, loaded.evaluators, loaded.has_context) == ("hf:me/set", ["answer"], True)
    manifest = loaded.manifest()
    assert manifest["fields"] == {"id": "id", "context": "passage", "question": "query", "answers": "answers.text"}
    assert manifest["fields_guessed"] is True
    assert manifest["pinned"] is False
    assert [f["path"] for f in manifest["files"]] == [
        "data/test-00000-of-00002.parquet",
        "data/test-00001-of-00002.parquet",
    ]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert examples("hf:me/set") == found
    assert len(examples("hf:me/set", n=2)) == 2


def test_configuration_split_and_revision(serve):
    files = {
        f"{config}/{split}.jsonl": lines([{"text": f"{config} {split}", "question": "?"}])
        for config in ("red", "blue")
        for split in ("train", "validation")
    }
    hub = serve(files)
    with pytest.raises(
        BadInput, match=r"several configurations \(blue, red\); add the name of one, as in hf:OWNER/NAME:blue"
    ):
        load("hf:me/set")
    assert examples("hf:me/set:red")[0]["context"] == "red validation"
    assert examples("hf:me/set:blue:train")[0]["context"] == "blue train"
    with pytest.raises(BadInput, match="no data file matches 'green'"):
        load("hf:me/set:green")
    commit = hub.repos["me/set"].commit
    pinned = load(f"hf:me/set:red@{commit}")
    assert (pinned.manifest()["revision"], pinned.manifest()["pinned"]) == (commit, True)
    with pytest.raises(PreflightFailed, match="has no revision 'nothing'"):
        load("hf:me/set@nothing")
    with pytest.raises(BadInput, match="is not a dataset on the hub"):
        load("hf:set")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("test.json", json.dumps(ROWS).encode()),
        ("test.json", json.dumps({"data": ROWS}).encode()),
        ("test.jsonl.gz", gzip.compress(lines(ROWS), mtime=0)),
        ("test.jsonl.zst", zstandard.ZstdCompressor().compress(lines(ROWS))),
        ("test.csv", "id,passage,query\nr0,text 0,what is 0?\n".encode("utf-8-sig")),
    ],
)
def test_other_kinds_of_files(serve, name, content):
    serve({name: content})
    first = examples("hf:me/set", n=1)[0]
    assert (first["id"], first["context"], first["question"]) == ("r0", "text 0", "what is 0?")


def test_a_repository_with_a_script_is_read_from_the_hubs_own_conversion(serve):
    script = {"set.py": b"raise SystemExit('never run')\n"}
    made = MiniRepo({"default/test/0000.parquet": parquet_bytes(ROWS)})
    hub = serve(script, branches={"refs/convert/parquet": made})
    loaded = load("hf:me/set")
    assert len(list(loaded.examples())) == 5
    assert loaded.manifest()["revision"] == made.commit
    assert "script, which was not run" in loaded.manifest()["note"]
    del hub.repos["me/set"].branches["refs/convert/parquet"]
    with pytest.raises(
        PreflightFailed, match=r"has no data files \(it has: set.py\), and the hub has made none.*never run"
    ):
        load("hf:me/set")


def test_columns_that_say_nothing_are_listed(serve):
    serve({"test.jsonl": lines([{"a": "x", "b": [1], "c": True}])})
    with pytest.raises(
        BadInput,
        match=r"hf:me/set: no column .* Columns: a \(text\), b \(list\), c \(true or false\)\..*\./dataset\.toml",
    ):
        load("hf:me/set")


def test_ids_that_repeat_are_numbered(serve):
    serve({"test.jsonl": lines([{"id": 7, "text": "x"}, {"id": 7, "text": "y"}, {"id": 8, "text": "z"}])})
    assert [e["id"] for e in examples("hf:me/set")] == [7, "7#2", 8]


BIG = [
    {"id": i, "text": f"{i} " + hashlib.shake_256(str(i).encode()).hexdigest(4000), "question": "?"} for i in range(900)
]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("test.jsonl", lines(BIG)),
        ("test.json", json.dumps(BIG).encode()),
        ("test.jsonl.gz", gzip.compress(lines(BIG), 1, mtime=0)),
    ],
)
def test_few_rows_of_a_large_text_file_are_read_from_its_beginning(serve, monkeypatch, path, content):
    hub = serve({path: content})
    assert [e["id"] for e in examples("hf:me/set", n=10)] == list(range(10))
    once = hub.sent()
    assert once < len(content) / 4
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert [e["id"] for e in examples("hf:me/set", n=10)] == list(range(10))
    with pytest.raises(PreflightFailed, match="not in the cache"):
        examples("hf:me/set")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert [e["id"] for e in examples("hf:me/set")] == list(range(900))


TOML = """
about = "x"
source = "hf:me/set"
files = "{files}"
licence = "MIT"
evaluators = ["answer"]
[fields]
id = "id"
context = "text"
question = "question"
[sample]
row = {{ id = 1, text = "t", question = "q" }}
example = {{ id = 1, context = "t", question = "q" }}
"""


def described(tmp_path, files):
    (tmp_path / "set.toml").write_text(TOML.format(files=files))
    return str(tmp_path / "set.toml")


def test_of_an_archive_only_the_wanted_member_is_fetched(serve, monkeypatch, tmp_path):
    noise = [{"id": i, "text": hashlib.shake_256(f"n{i}".encode()).hexdigest(4000)} for i in range(1500)]
    archive = zip_bytes({"data/other.jsonl": lines(noise), "data/test.jsonl": lines(BIG[:50])})
    hub = serve({"data.zip": archive})
    name = described(tmp_path, "data.zip!data/{split}.jsonl")
    found = examples(name)
    assert [e["id"] for e in found] == list(range(50))
    assert hub.sent() < len(archive) / 4
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert examples(name) == found
    assert examples(name, n=3) == found[:3]
    monkeypatch.delenv("HF_HUB_OFFLINE")
    with pytest.raises(BadInput, match=r"holds no 'data/none.jsonl'; there are: data/other.jsonl, data/test.jsonl"):
        examples(described(tmp_path, "data.zip!data/none.jsonl"))


def test_a_damaged_archive(serve, tmp_path):
    serve({"data.zip": b"PK\x03\x04 not an archive"})
    with pytest.raises(BadInput, match="not a readable zip archive"):
        examples(described(tmp_path, "data.zip!a.jsonl"))


def test_more_rows_than_asked_for_are_read_on_when_a_function_skips_some(serve, tmp_path):
    """Three rows a dialogue: what comes out is counted, not what is read."""
    rows = [f'd{i},"{BIG[i // 3]["text"]}",summary {i},t\n' for i in range(900)]
    hub = serve({"test.csv": ("id,dialogue,summary,topic\n" + "".join(rows)).encode()})
    (tmp_path / "set.toml").write_text(
        'about = "x"\nsource = "hf:me/set"\nfiles = "test.csv"\nlicence = "x"\nevaluators = []\nprepare = "dialogsum"\n'
        '[fields]\nid = "id"\ncontext = "dialogue"\nanswers = "summaries"\n[sample]\n'
        'row = { id = "1", dialogue = "d", summary = "s" }\nexample = { id = "1", context = "d", answers = ["s"] }\n'
    )
    found = examples(str(tmp_path / "set.toml"), n=10)
    assert [len(e["answers"]) for e in found] == [3] * 10
    assert hub.sent() < len(hub.repos["me/set"].files["test.csv"]) / 3
