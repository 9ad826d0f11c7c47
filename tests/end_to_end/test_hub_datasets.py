"""The real loading code against a hub on loopback: download, cache, offline re-use, refusals, broken transfers."""

from __future__ import annotations

import hashlib
import json
import socket
from pathlib import Path

import pytest

from context_bench.core.errors import PreflightFailed, UnknownName
from context_bench.datasets import load, spec
from minihub import MiniHub, MiniRepo, catalogue_fixtures, fixture_rows, parquet_bytes

HOTPOT = "fullwiki/validation-00000-of-00001.parquet"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, hub_client):
    """A client's home of its own, so that no test sees another's cache."""
    hub_client(monkeypatch, tmp_path / "hf")
    return tmp_path


@pytest.fixture
def hub(monkeypatch):
    with MiniHub(catalogue_fixtures()) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def examples(name, **options):
    return list(load(name, **options).examples())


@pytest.mark.parametrize("name", spec.names())
def test_every_set_of_the_catalogue_loads_and_loads_again_offline(name, hub, monkeypatch):
    loaded = load(name)
    found = list(loaded.examples())
    assert len(found) >= 3
    assert len({str(e["id"]) for e in found}) == len(found)
    for example in found:
        assert example["context"]
        assert example["dataset"] == name
        assert json.loads(json.dumps(example)) == example
    assert examples(name, n=2) == found[:2]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert examples(name) == found


@pytest.mark.parametrize(
    "name",
    [
        "longbench:gov_report",
        "longbench:multifieldqa_zh",
        "infinitebench:longbook_qa_eng",
        "infinitebench:en_sum",
        "infinitebench:math_calc",
    ],
)
def test_configurations(name, hub):
    loaded = load(name)
    found = list(loaded.examples())
    assert len(found) == 3
    assert all(e["context"] and e["question"] and e["answer"] for e in found)
    assert (loaded.manifest()["config"], found[0]["dataset"]) == (name.partition(":")[2], name)
    with pytest.raises(UnknownName, match="configuration of"):
        load(f"{loaded.base}:nothing")


def by_id(name):
    return {str(e["id"]): e for e in examples(name)}


def test_all_gold_answers_are_kept(hub):
    assert by_id("musique")["2hop__10_11"]["answers"] == ["Norland", "the Kingdom of Norland"]
    assert by_id("narrativeqa")["0"]["answers"] == ["A painter", "a painter of seascapes"]
    assert by_id("triviaqa")["tc_33"]["answers"] == ["Eska", "River Eska", "The Eska"]
    assert by_id("drop")["f37e81fa-1"]["answers"] == ["2", "two"]
    assert by_id("longbench")["1"]["answers"] == ["Ilse Brandt", "Brandt"]
    assert by_id("dialogsum")["test_0_1"]["answers"][1:] == ["The bridge opens at noon.", "They talk about a bridge."]
    papers = by_id("qasper")
    assert papers["1909.00001_0"]["answers"] == ["12 towns", "Twelve."]
    assert [e["answer"] for e in papers.values()] == ["12 towns", "Unanswerable", "Yes", "12 towns, Norland"]


def test_questions_about_one_document_are_one_cluster(hub):
    for name, sizes in (("qasper", [3, 1]), ("narrativeqa", [2, 1]), ("quality", [3]), ("nolima", [2, 2, 1])):
        clusters = [e["cluster"] for e in examples(name)]
        assert [clusters.count(c) for c in dict.fromkeys(clusters)] == sizes, name
    paper = by_id("qasper")["1909.00001_2"]["context"]
    assert paper.startswith(
        "Counting Bridges\n\nWe count bridges with a new method.\n\nIntroduction\n\nBridges matter.\n\nData"
    )


@pytest.mark.parametrize("name", ["quality", "longbench-v2", "infinitebench:en_mc", "infinitebench:code_debug"])
def test_options_are_shown_and_the_right_one_is_known(name, hub):
    loaded = load(name)
    assert "multiple_choice" in loaded.evaluators
    for example in loaded.examples():
        right = "ABCD".index(example["correct_letter"])
        assert example["answer"] == example["choices"][right]
        assert f"{example['correct_letter']}) {example['answer']}" in example["question"]
        assert "A) " not in example["context"]


def test_nolima_does_not_change_from_run_to_run_but_with_the_seed(hub):
    assert examples("nolima") == examples("nolima")
    assert [e["id"] for e in examples("nolima", seed=1)] == [e["id"] for e in examples("nolima")]
    assert len({tuple(e["context"] for e in examples("nolima", seed=seed)) for seed in range(4)}) == 4


def test_bfcl_sends_what_the_user_says(hub):
    found = by_id("bfcl")
    first = found["live_multiple_0-0-0"]
    assert first["question"].startswith("Tide at Haug, please.")
    assert json.loads(first["context"]) == first["tools"]
    assert first["context"].startswith('[\n  {\n    "name": "clock"')
    assert first["expected_calls"] == [
        {"name": "tide", "arguments": {"place": ["Haug", "Port of Haug"], "unit": ["m", ""]}}
    ]
    assert found["exec_multiple_0"]["expected_calls"] == [{"name": "times", "arguments": {"a": [3], "b": [4]}}]
    assert "expected_calls" not in found["exec_multiple_1"]


def test_scrolls_sets_part_request_and_text_and_no_script_is_fetched(hub):
    first = by_id("qmsum")["va-sq-1"]
    assert (first["question"], first["context"]) == (
        "What was said about the bridge?",
        "Anna: The bridge is old.\n\nBen: It needs paint.",
    )
    assert by_id("summscreenfd")["fd_Show_01x01"]["context"] == "[Scene: a bridge]\n\nAnna: Jump!"
    assert by_id("multi-news")["0"]["context"].startswith("The bridge fell at noon. \n \n Nobody was hurt. |||||")
    assert not [s for s in hub.seen if s.path.endswith(".py")]


def test_hotpotqa_keeps_titles_sentences_and_ids(hub):
    first, *_, last = examples("hotpotqa")
    assert first["context"] == (
        "Aldbrook: Aldbrook is a market town on the river Eska. It has a stone bridge.\n"
        "Eska: The Eska is a river of 210 km. It ends in Norland, near the port of Haug.\n"
        "Haug: Haug is a port."
    )
    assert (first["id"], first["answer"], first["type"], first["dataset"]) == (
        "5ab000000000000000000001",
        "Norland",
        "bridge",
        "hotpotqa",
    )
    assert "東京" in last["context"]
    assert "<|endoftext|>" in examples("hotpotqa")[4]["context"]


def test_gsm8k_answer_is_what_follows_the_last_mark(hub):
    found = examples("gsm8k")
    assert [e["answer"] for e in found] == ["10", "180", "21", "1,440", "23", "14"]
    assert [e["id"] for e in found] == [0, 1, 2, 3, 4, 5]
    assert all(e["context"] == e["question"] and e["reasoning"].endswith(e["answer"]) for e in found)
    assert load("gsm8k").has_context is False


def test_mmlu_shows_lettered_choices_and_takes_a_subject(hub):
    first = examples("mmlu:anatomy", n=1)[0]
    assert first["context"].endswith("\n\nA) the tibia  B) the femur  C) the humerus  D) the ulna")
    assert (first["answer"], first["correct_letter"], first["dataset"]) == ("the femur", "B", "mmlu:anatomy")
    assert len(examples("mmlu")) == 7
    loaded = load("mmlu:anatomy")
    assert (loaded.name, loaded.base) == ("mmlu:anatomy", "mmlu")
    assert "size" not in loaded.manifest()  # the size written in the catalogue is that of the whole set


def test_manifest_names_the_commit_and_the_hash_of_what_was_read(hub):
    manifest = load("hotpotqa", n=2).manifest()
    repo = hub.repos["hotpotqa/hotpot_qa"]
    assert manifest["revision"] == repo.commit == "1908d6afbbead072334abe2965f91bd2709910ab"
    assert manifest["pinned"] is True
    assert manifest["files"] == [
        {"path": HOTPOT, "bytes": len(repo.files[HOTPOT]), "sha256": hashlib.sha256(repo.files[HOTPOT]).hexdigest()}
    ]
    assert json.loads(json.dumps(manifest)) == manifest


def test_a_pinned_set_is_asked_for_once_and_then_works_offline(hub, monkeypatch):
    before = examples("hotpotqa")
    asked = len(hub.seen)
    assert examples("hotpotqa") == before
    assert len(hub.seen) == asked
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert examples("hotpotqa") == before


def test_offline_without_a_copy_says_the_ways_on(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        PreflightFailed, match=r"HF_HUB_OFFLINE is set.*not in the cache.*HF_HOME.*HF_ENDPOINT.*bundled:pydocs-qa"
    ):
        load("hotpotqa")
    assert hub.seen == []


def test_an_unreachable_hub_is_named(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    with pytest.raises(
        PreflightFailed, match=rf"cannot reach the hub at http://127.0.0.1:{port} for dataset openai/gsm8k"
    ):
        load("gsm8k")


def test_a_copy_made_by_another_tool_is_used(hub, monkeypatch, home):
    from huggingface_hub import hf_hub_download

    commit = hub.repos["hotpotqa/hotpot_qa"].commit
    cache = home / "hf" / "hub"
    hf_hub_download(
        "hotpotqa/hotpot_qa", HOTPOT, repo_type="dataset", revision=commit, cache_dir=cache, endpoint=hub.url
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    loaded = load("hotpotqa", n=1)
    assert next(loaded.examples())["answer"] == "Norland"
    assert "client's cache" in loaded.manifest()["note"]


def test_gated_needs_a_token_and_says_how_to_get_one(hub, monkeypatch):
    hub.repos["openai/gsm8k"].gated = True
    with pytest.raises(
        PreflightFailed,
        match=rf"gated: sign in at {hub.url}/datasets/openai/gsm8k, accept its terms, then set HF_TOKEN",
    ):
        load("gsm8k")
    monkeypatch.setenv("HF_TOKEN", "hf_stranger")
    with pytest.raises(PreflightFailed, match="gated"):
        load("gsm8k")
    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    assert len(examples("gsm8k")) == 6


def test_a_private_or_missing_repository(hub):
    hub.repos["openai/gsm8k"].private = True
    del hub.repos["cais/mmlu"]
    for name, repo in (("gsm8k", "openai/gsm8k"), ("mmlu", "cais/mmlu")):
        with pytest.raises(PreflightFailed, match=rf"knows no dataset {repo}, or keeps it private"):
            load(name)


def test_a_mirror_cannot_write_outside_the_cache(hub):
    files = hub.repos["openai/gsm8k"].files
    files["main/test-/../../../../../evil.parquet"] = files["main/test-00000-of-00001.parquet"]
    with pytest.raises(PreflightFailed, match="gave an impossible commit or file name"):
        load("gsm8k")


def test_credentials_in_the_endpoint_are_not_shown(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://me:secret@127.0.0.1:9")
    with pytest.raises(PreflightFailed) as caught:
        load("gsm8k")
    assert "http://127.0.0.1:9" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_missing_revision(hub):
    hub.repos["openai/gsm8k"].commit = "0" * 40
    with pytest.raises(PreflightFailed, match=r"has no revision 'cc7b047b6e5bb11b4f1af84efc572db110a51b3c'"):
        load("gsm8k")


def test_a_known_subject_that_the_repository_lacks(hub):
    with pytest.raises(PreflightFailed, match=r"cais/mmlu has no 'virology'"):
        load("mmlu:virology")
    with pytest.raises(UnknownName, match="Did you mean anatomy"):
        load("mmlu:anatomyy")


def test_a_transfer_that_broke_off_is_taken_up_again(hub):
    hub.faults[HOTPOT] = "cut-once"
    assert len(examples("hotpotqa")) == 6
    assert len([s for s in hub.seen if s.method == "GET" and s.path.endswith(HOTPOT)]) == 2


def test_a_transfer_that_always_breaks_off_fails_and_leaves_nothing(hub):
    hub.faults[HOTPOT] = "cut"
    with pytest.raises(PreflightFailed, match=rf"{HOTPOT} of dataset hotpotqa/hotpot_qa could not be downloaded whole"):
        examples("hotpotqa")
    hub.faults.clear()
    assert len(examples("hotpotqa")) == 6


def test_damaged_content_is_noticed_and_deleted(hub):
    hub.faults[HOTPOT] = "corrupt"
    with pytest.raises(PreflightFailed, match="arrived damaged"):
        examples("hotpotqa")
    hub.faults.clear()
    assert len(examples("hotpotqa")) == 6


@pytest.fixture
def large(monkeypatch, tmp_path):
    """A repository with one file of 800 rows in 8 row groups (8 MB), and a dataset file of the user's that names no
    commit.
    """
    rows = [
        {"n": i, "q": f"What is item {i}?", "text": f"item {i} " + hashlib.shake_256(str(i).encode()).hexdigest(5000)}
        for i in range(800)
    ]
    repo = MiniRepo({"data/test-00000-of-00001.parquet": parquet_bytes(rows, row_group_size=100)})
    described = tmp_path / "large.toml"
    described.write_text(
        'about = "x"\nsource = "hf:me/large"\nfiles = "data/{split}-*.parquet"\nlicence = "MIT"\nevaluators = '
        '["answer"]\n'
        '[fields]\nid = "n"\ncontext = "text"\nquestion = "q"\n'
        '[sample]\nrow = { n = 1, text = "t", q = "q" }\nexample = { id = 1, context = "t", question = "q" }\n'
    )
    with MiniHub({"me/large": repo}) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running, str(described), rows


def test_few_examples_do_not_download_the_whole_file(large, monkeypatch):
    hub, name, rows = large
    size = len(next(iter(hub.repos["me/large"].files.values())))
    assert [e["context"] for e in examples(name, n=10)] == [r["text"] for r in rows[:10]]
    once = hub.sent()
    assert 0 < once < size / 3
    assert [e["id"] for e in examples(name, n=100)] == list(range(100))
    assert hub.sent() == once
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert len(examples(name, n=50)) == 50
    with pytest.raises(PreflightFailed, match="not in the cache"):
        examples(name, n=200)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert [e["id"] for e in examples(name, n=250)] == list(range(250))
    assert [e["id"] for e in examples(name)] == list(range(800))


def test_an_unpinned_set_takes_the_newest_and_says_which(large, monkeypatch):
    hub, name, _ = large
    repo = hub.repos["me/large"]
    manifest = load(name, n=1).manifest()
    assert (manifest["revision"], manifest["pinned"]) == (repo.commit, False)
    assert len(examples(name, n=3)) == 3
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    again = load(name, n=3)
    assert "could not be reached" in again.manifest()["note"]
    assert len(list(again.examples())) == 3


def test_shards_are_fetched_only_when_reached(monkeypatch):
    with MiniHub(catalogue_fixtures(shards=3)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert len(examples("hotpotqa", n=2)) == 2
        assert not hub.sent("00001-of-00003")
        assert [e["id"][-1] for e in examples("hotpotqa")] == list("123456")
        assert hub.sent("00002-of-00003")


def test_the_hub_serves_folders_and_models_too(tmp_path, home):
    from huggingface_hub import HfApi

    (tmp_path / "repos/me/tiny").mkdir(parents=True)
    (tmp_path / "repos/me/tiny/config.json").write_text('{"a": 1}')
    with MiniHub(tmp_path / "repos") as hub:
        api = HfApi(endpoint=hub.url)
        assert api.model_info("me/tiny").sha == api.dataset_info("me/tiny").sha
        assert [f.path for f in api.get_paths_info("me/tiny", ["config.json", "nothing"])] == ["config.json"]
        assert json.loads(Path(api.hf_hub_download("me/tiny", "config.json", cache_dir=home / "c")).read_text()) == {
            "a": 1
        }


def test_fixtures_have_the_real_columns():
    assert set(fixture_rows("hotpotqa/hotpot_qa", HOTPOT)[0]) == {
        "id", "question", "answer", "type", "level", "supporting_facts", "context"
    }  # fmt: skip
    assert set(fixture_rows("openai/gsm8k", "main/test-00000-of-00001.parquet")[0]) == {"question", "answer"}
    assert set(fixture_rows("cais/mmlu", "all/test-00000-of-00001.parquet")[0]) == {
        "question",
        "subject",
        "choices",
        "answer",
    }
