"""From a name, a file or a folder to memory examples: what is counted, chosen, corrected, refused; and the hub by its
loopback stand-in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from context_bench.core.errors import BadInput, PreflightFailed, UnknownName
from context_bench.datasets import catalogue_names, datasets_known, describe, load
from context_bench.memory.datasets import load_memory, memory_names, summary_line
from context_bench.memory.datasets.published import PUBLISHED
from context_bench.memory.protocol import conversation, unpacked
from minihub import MiniHub, MiniRepo, parquet_bytes


def talk(number: int, categories: list[int]) -> dict:
    turns = [{"speaker": "Ann", "dia_id": f"D1:{i}", "text": f"talk {number} says {i}"} for i in range(1, 4)]
    asked = [
        {"question": f"q{i}?", "answer": f"a{i}", "evidence": ["D1:2"], "category": code}
        for i, code in enumerate(categories)
    ]
    spoken = {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}
    return {"sample_id": f"conv-{number}", "conversation": spoken, "qa": asked}


LOCOMO = [talk(1, [1, 2, 4]), talk(2, [4, 4]), talk(3, [2, 5, 1])]


def history(name: str, type_: str = "multi-session") -> dict:
    sessions = [[{"role": "user", "content": f"{name} was here", "has_answer": True}]]
    ids = {"haystack_session_ids": ["s1"], "haystack_dates": ["2023/05/20 (Sat) 02:21"], "answer_session_ids": ["s1"]}
    asked = {
        "question_id": name,
        "question_type": type_,
        "question": "who?",
        "answer": name,
        "question_date": "2023/05/21 (Sun) 10:00",
    }
    return {**asked, **ids, "haystack_sessions": sessions}


@pytest.fixture
def locomo(tmp_path: Path) -> str:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps(LOCOMO), "utf-8")
    return str(path)


@pytest.fixture
def on_hub(monkeypatch, tmp_path, hub_client):
    """Serves repositories for one test, with a cache of its own."""
    hub_client(monkeypatch, tmp_path / "home")
    running = []

    def serve(repos: dict[str, MiniRepo]) -> MiniHub:
        hub = MiniHub(repos)
        hub.__enter__()
        running.append(hub)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        return hub

    yield serve
    for hub in running:
        hub.__exit__()


def test_an_example_is_whole_and_a_group_shares_its_texts(locomo):
    examples = list(load_memory(locomo).examples())
    first, second, third = examples[:3]
    assert first["items"] is second["items"] is third["items"]
    assert first["context"] is second["context"]
    assert first["context"] == conversation(unpacked(first["items"]))
    assert {key: value for key, value in first.items() if key not in ("items", "context")} == {
        "id": "conv-1-q0",
        "question": "q0?",
        "answer": "a0",
        "qa_type": "multi-hop",
        "group": "conv-1",
        "cluster": "conv-1",
        "evidence": ["D1:2"],
        "evidence_sessions": ["S1"],
        "answerable": True,
        "granularity": "turn",
        "category": "1",
        "dataset": locomo,
    }
    assert [example["group"] for example in examples] == ["conv-1"] * 3 + ["conv-2"] * 2 + ["conv-3"] * 3
    adversarial = next(example for example in examples if example["qa_type"] == "adversarial")
    assert adversarial["answerable"] is False
    assert "answer" not in adversarial
    assert adversarial["trap"] == "a1"


def test_the_counts_are_told_so_that_wrong_names_would_be_seen(locomo):
    loaded = load_memory(locomo)
    manifest = loaded.manifest()
    assert manifest["counts"] == {
        "haystacks": 3,
        "items": 9,
        "questions": 8,
        "unanswerable": 1,
        "with_evidence": 8,
        "types": {"adversarial": 1, "multi-hop": 2, "single-hop": 3, "temporal": 2},
        "categories": {"multi-hop": "1", "temporal": "2", "single-hop": "4", "adversarial": "5"},
    }
    told = summary_line(manifest)
    assert told.startswith(
        "3 conversations, 9 items, 8 questions: adversarial (category 5) 1, multi-hop (category 1) 2, "
    )
    assert told.endswith("Data: 1 adversarial questions with an answer, which was left out.")
    assert manifest["note"] == told
    assert (manifest["formats"], manifest["source"]) == (["locomo"], "file:talks.json")
    assert str(Path(locomo).parent) not in json.dumps({**manifest, "name": ""})
    list(loaded.examples())
    assert loaded.manifest() == manifest


def test_n_counts_conversations_after_the_types_were_chosen(locomo):
    assert {e["group"] for e in load_memory(locomo, n=1).examples()} == {"conv-1"}
    chosen = list(load_memory(locomo, n=2, qa_types=["temporal"]).examples())
    assert [(e["group"], e["qa_type"]) for e in chosen] == [("conv-1", "temporal"), ("conv-3", "temporal")]
    assert [e["id"] for e in load_memory(locomo, qa_types=["Single_Hop", "5"]).examples()] == [
        "conv-1-q2",
        "conv-2-q0",
        "conv-2-q1",
        "conv-3-q1",
    ]
    assert [e["id"] for e in load_memory(locomo, qa_types=["abstention"]).examples()] == ["conv-3-q1"]
    assert list(load_memory(locomo, n=0).examples()) == []
    with pytest.raises(
        BadInput,
        match=r"no question of type preference; its types are: multi-hop \(2\), temporal \(2\), single-hop \(3\)",
    ):
        load_memory(locomo, qa_types=["preference"])
    with pytest.raises(BadInput, match="n is -1"):
        load_memory(locomo, n=-1)


def test_an_ordinary_run_reads_the_same_examples_and_counts_examples(locomo):
    run = load(f"memory:{locomo}", n=4)
    examples = list(run.examples())
    same = list(load_memory(f"memory:{locomo}").examples())[:4]
    assert examples == same
    assert run.manifest()["counts"]["questions"] == 4
    assert run.manifest()["counts"]["haystacks"] == 2
    assert list(load(f"memory:{locomo}", n=0).examples()) == []


@pytest.mark.parametrize("compressed", [False, True])
def test_lines_are_read_as_well_as_lists(tmp_path, compressed):
    import gzip

    path = tmp_path / ("h.jsonl.gz" if compressed else "h.jsonl")
    data = "".join(json.dumps(history(f"q{i}")) + "\n" for i in range(3)).encode()
    path.write_bytes(gzip.compress(data) if compressed else data)
    assert [e["id"] for e in load_memory(str(path)).examples()] == ["q0", "q1", "q2"]


def test_one_object_in_a_file_is_not_taken_apart(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps(
            {"id": "me", "items": [{"text": "one"}, {"text": "two"}], "questions": [{"question": "q", "answer": "a"}]}
        ),
        "utf-8",
    )
    [example] = load_memory(str(path)).examples()
    assert [item.text for item in unpacked(example["items"])] == ["one", "two"]
    wrapped = tmp_path / "wrapped.json"
    wrapped.write_text(json.dumps({"version": 1, "data": LOCOMO}), "utf-8")
    assert len(list(load_memory(str(wrapped)).examples())) == 8


def test_ids_used_twice_are_told_apart(tmp_path):
    path = tmp_path / "twice.json"
    path.write_text(json.dumps([history("q"), history("q"), history("other")]), "utf-8")
    loaded = load_memory(str(path))
    assert [(e["id"], e["group"]) for e in loaded.examples()] == [("q", "q"), ("q#2", "q#2"), ("other", "other")]
    dirt = loaded.manifest()["dirt"]
    assert (dirt["questions whose id was used before"], dirt["conversations whose id was used before"]) == (1, 1)


def test_a_folder_of_beam_chats_pairs_them_with_their_questions(tmp_path):
    for number in (10, 2):
        place = tmp_path / "chats" / "100K" / str(number)
        (place / "probing_questions").mkdir(parents=True)
        message = {"role": "user", "id": 0, "content": f"chat {number}", "time_anchor": "March-15-2024"}
        (place / "chat.json").write_text(json.dumps([{"batch_number": 1, "turns": [[message]]}]), "utf-8")
        probes = {"information_extraction": [{"question": "q", "answer": "a", "source_chat_ids": [0], "rubric": ["a"]}]}
        (place / "probing_questions" / "probing_questions.json").write_text(json.dumps(probes), "utf-8")
    (tmp_path / "chats" / "100K" / "10" / "chat_trunecated.json").write_text(
        '[[{"role": "user", "id": 0, "content": "cut"}]]', "utf-8"
    )
    (tmp_path / "chats" / "topic.json").write_text('{"topic": "x"}', "utf-8")
    loaded = load_memory(str(tmp_path))
    assert [(e["group"], unpacked(e["items"])[0].text) for e in loaded.examples()] == [
        ("100K-2", "chat 2"),
        ("100K-10", "cut"),
    ]
    assert "1 files of no known shape were left aside (chats/topic.json)" in loaded.manifest()["note"]
    assert len(list(load_memory(str(tmp_path / "chats" / "100K" / "2" / "chat.json")).examples())) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.json", "", "holds no memory data.*it is empty|not JSON"),
        ("list.json", "[]", "it is empty"),
        ("other.json", '[{"text": "x"}]', r"its first entry has the fields 'text'.*Known shapes:\n  locomo: "),
        ("broken.json", '[{"qa": [', "not JSON"),
        ("binary.json", "\ud800", "not UTF-8"),
        ("asked.json", json.dumps([{**LOCOMO[0], "qa": []}]), "holds no question on anything to remember"),
        ("late.json", json.dumps([{**LOCOMO[0], "qa": []}, {"x": 1}]), "late.json, entry 2 has none of the shapes"),
        ("data.xlsx", "x", "data files end in"),
    ],
)
def test_what_holds_no_memory_data_is_never_silently_empty(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(BadInput, match=f"(?s){message}"):
        load_memory(str(path))


def test_names_and_places_that_are_not_there(tmp_path):
    with pytest.raises(BadInput, match=r"there is no such file or folder\. Known by name: locomo, longmemeval"):
        load_memory("./nowhere.json")
    with pytest.raises(BadInput, match="there: no data files"):
        load_memory(str(tmp_path))
    with pytest.raises(UnknownName, match=r"memory dataset 'locomoo'. Did you mean locomo\?"):
        load_memory("locomoo")
    with pytest.raises(UnknownName, match="configuration of longmemeval 'xl'"):
        load_memory("longmemeval:xl")
    with pytest.raises(
        PreflightFailed, match=r"no hub carries membench: get it from github\.com/import-myself/Membench"
    ):
        load_memory("membench")


def test_memory_names_are_listed_and_described():
    assert {*memory_names()} <= {*datasets_known()}
    assert {*memory_names()} <= {*catalogue_names()}
    for name in memory_names():
        found = describe(name)
        assert found["name"] == name
        assert found["about"]
        assert found["licence"]
        assert found["has_context"]
    assert "not for commercial use" in describe("locomo")["licence"]
    assert describe("longmemeval:oracle")["configs"] == ["s", "m", "oracle"]
    assert (
        sorted(
            name
            for name, each in PUBLISHED.items()
            for parts in each.configs.values()
            for part in parts
            if part.revision is None
        )
        != []
    )


def test_what_is_not_pinned_is_known():
    unpinned = {
        part.repo
        for each in PUBLISHED.values()
        for parts in each.configs.values()
        for part in parts
        if part.revision is None
    }
    assert unpinned == {
        "KimmoZZZ/locomo",
        "KhangPTT373/locomo_preprocess",
        "MemGPT/MSC-Self-Instruct",
        "Mohammadta/BEAM-10M",
        "Salesforce/ConvoMem",
        "ai-hyz/MemoryAgentBench",
    }


# --- overlays ---


def test_an_overlay_leaves_out_and_corrects_and_says_so(locomo, tmp_path):
    sha = load_memory(locomo).manifest()["sha256"]
    overlay = tmp_path / "mine.json"
    changes = {
        "conv-1-q1": {"answer": 7, "evidence": ["D1:3"], "type": "dated"},
        "conv-3-q1": {"answerable": True, "answers": ["x", "y"]},
    }
    content = {
        "dataset_sha256": sha,
        "source": "me",
        "exclude": {"conv-2-q0": "wrong", "conv-2-q1": "wrong", "gone": ""},
        "correct": changes,
    }
    overlay.write_text(json.dumps(content), "utf-8")
    loaded = load_memory(locomo, overlay=str(overlay), n=2)
    examples = {example["id"]: example for example in loaded.examples()}
    assert {example["group"] for example in examples.values()} == {"conv-1", "conv-3"}  # conv-2 has no question left
    assert (examples["conv-1-q1"]["answer"], examples["conv-1-q1"]["evidence"], examples["conv-1-q1"]["qa_type"]) == (
        "7",
        ["D1:3"],
        "dated",
    )
    assert (examples["conv-3-q1"]["answers"], examples["conv-3-q1"]["answerable"]) == (["x", "y"], True)
    facts = load_memory(locomo, overlay=str(overlay)).manifest()
    told = facts["overlay"]
    assert (told["excluded"], told["corrected"], told["not_found"]) == (
        ["conv-2-q0", "conv-2-q1"],
        ["conv-1-q1", "conv-3-q1"],
        ["gone"],
    )
    assert "warning" not in told
    assert "overlay mine.json: 2 questions left out, 2 corrected, 1 not found." in facts["note"]
    Path(locomo).write_text(json.dumps(LOCOMO[:2]), "utf-8")
    note = load_memory(locomo, overlay=str(overlay)).manifest()["note"]
    assert f"WARNING: it was made for other bytes of the dataset ({sha[:12]}…)" in note


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "is not JSON"),
        ("[]", "is a list; expected an object"),
        ('{"dataset": "talks.json"}', "neither excludes nor corrects"),
        ('{"exclude": ["a"]}', "does not say what it is for"),
        ('{"dataset": "longmemeval", "exclude": ["a"]}', "was made for 'longmemeval', not for 'talks.json'"),
        ('{"dataset": "talks.json", "correct": {"a": {"colour": 1}}}', r"sets \['colour'\]"),
        ('{"dataset": "talks.json", "exclude": 5}', "exclude is a list of ids"),
        (
            '{"dataset": "talks.json", "correct": {"conv-1-q0": {"evidence": ["D7:7"]}}}',
            r"names \['D7:7'\], which is not there",
        ),
    ],
)
def test_overlays_that_make_no_sense(locomo, tmp_path, content, message):
    path = tmp_path / "o.json"
    path.write_text(content, "utf-8")
    with pytest.raises(BadInput, match=message):
        load_memory(locomo, overlay=str(path))


def test_an_unknown_overlay_names_the_shipped_ones(locomo):
    with pytest.raises(UnknownName, match=r"overlay 'nope'.*longmemeval-reported"):
        load_memory(locomo, overlay="nope")


# --- the hub ---


def test_longmemeval_reads_no_more_of_a_large_file_than_is_wanted(on_hub):
    filler = [{"role": "user", "content": "x" * 50_000}]
    rows = [history(f"q{i}") for i in range(200)]
    for row in rows:
        row["haystack_sessions"].append(filler)
        row["haystack_session_ids"].append("s2")
    repo, revision = "xiaowu0162/longmemeval-cleaned", "98d7416c24c778c2fee6e6f3006e7a073259d48f"
    data = json.dumps(rows).encode()
    hub = on_hub(
        {repo: MiniRepo({"longmemeval_s_cleaned.json": data, "longmemeval_oracle.json": b"[]"}, commit=revision)}
    )
    loaded = load_memory("longmemeval", n=3)
    examples = list(loaded.examples())
    assert [(e["id"], e["asked"], e["evidence"], e["dataset"]) for e in examples] == [
        (f"q{i}", "2023-05-21T10:00:00", ["s1_1"], "longmemeval") for i in range(3)
    ]
    assert hub.sent("longmemeval_s_cleaned.json") < len(data) / 4
    manifest = loaded.manifest()
    assert (manifest["revision"], manifest["pinned"], manifest["config"], manifest["licence"]) == (
        revision,
        True,
        "s",
        "MIT",
    )
    assert manifest["dirt"] == {"session dates missing": 3}
    assert [e["id"] for e in load("longmemeval:S", n=2).examples()] == ["q0", "q1"]
    with pytest.raises(BadInput, match="longmemeval:oracle holds no question"):
        load_memory("longmemeval:oracle")


def test_the_shipped_overlay_of_longmemeval(on_hub):
    repo, revision = "xiaowu0162/longmemeval-cleaned", "98d7416c24c778c2fee6e6f3006e7a073259d48f"
    rows = [history("370a8ff4"), history("fine")]
    on_hub({repo: MiniRepo({"longmemeval_s_cleaned.json": json.dumps(rows).encode()}, commit=revision)})
    loaded = load_memory("longmemeval:s", n=1, overlay="longmemeval-reported")
    assert [e["id"] for e in loaded.examples()] == ["fine"]
    assert loaded.manifest()["overlay"]["excluded"] == ["370a8ff4"]
    assert "made for other bytes" in loaded.manifest()["overlay"]["warning"]


def test_locomo_says_when_a_copy_is_not_the_authors_file(on_hub):
    row = {
        "questions": ["q"],
        "answers": ["a"],
        "category": [2],
        "evidences": [[[1, 1]]],
        "turns": ["t"],
        "sessions": ["8 May, 2023\n Ann: hi"],
    }
    on_hub(
        {
            "KimmoZZZ/locomo": MiniRepo({"locomo10.json": json.dumps(LOCOMO).encode(), "README.md": b"x"}),
            "KhangPTT373/locomo_preprocess": MiniRepo(
                {"data/test-00000-of-00001.parquet": parquet_bytes([row]), "README.md": b"x"}
            ),
        }
    )
    loaded = load_memory("locomo", n=1)
    assert [e["qa_type"] for e in loaded.examples()] == ["multi-hop", "temporal", "single-hop"]
    assert "its bytes are NOT those that the authors published." in loaded.manifest()["note"]
    assert loaded.manifest()["pinned"] is False
    [example] = load_memory("locomo:preprocessed").examples()
    assert (example["qa_type"], example["category"], example["evidence"]) == ("temporal", "2", ["D1:1"])
    assert example["context"] == "[session S1] 2023-05-08\nAnn: hi"


def test_parts_of_a_benchmark_are_taken_in_turn(on_hub):
    def row(source: str) -> dict:
        meta = {"source": source, "qa_pair_ids": [f"{source}-1"], "question_types": [], "question_dates": []}
        return {"context": f"text of {source}", "questions": ["q"], "answers": [["a", "b"]], "metadata": meta}

    splits = ("Accurate_Retrieval", "Test_Time_Learning", "Long_Range_Understanding", "Conflict_Resolution")
    files = {f"data/{split}-00000-of-00001.parquet": parquet_bytes([row(split), row(split)]) for split in splits}
    on_hub({"ai-hyz/MemoryAgentBench": MiniRepo(files)})
    assert [e["qa_type"] for e in load_memory("memoryagentbench", n=5).examples()] == [*splits, "Accurate_Retrieval"]
    assert [e["id"] for e in load_memory("memoryagentbench:conflict-resolution").examples()] == [
        "Conflict_Resolution/Conflict_Resolution-1",
        "Conflict_Resolution#2/Conflict_Resolution-1",
    ]


def test_beam_dmr_and_convomem_on_the_hub(on_hub):
    probes = str({"abstention": [{"question": "q", "ideal_response": "no", "rubric": ["r"], "source_chat_ids": [0]}]})
    chat = [[{"role": "user", "id": 0, "content": "hi", "time_anchor": "March-15-2024"}]]
    plan = [{"plan-1": [{"batch_number": 1, "time_anchor": "March-15-2024", "turns": chat}], "plan-2": None}]
    evidence = {"question": "q", "answer": "a", "message_evidences": [{"speaker": "User", "text": "hi"}]}
    evidence["conversations"] = [{"id": "c", "messages": [{"speaker": "User", "text": "hi"}]}]
    dmr = {
        "previous_dialogs": [{"dialog": [{"text": "hi"}], "time_back": "1 day"}],
        "dialog": [],
        "self_instruct": {"B": "q", "A": "a"},
    }
    kinds = ("user", "assistant_facts", "changing", "abstention", "preference", "implicit_connection")
    convomem = {
        f"core_benchmark/evidence_questions/{kind}_evidence/1_evidence/p_Clerk.json": json.dumps(
            {"evidence_items": [evidence]}
        ).encode()
        for kind in kinds
    }
    on_hub(
        {
            "Mohammadta/BEAM": MiniRepo(
                {
                    "data/100K-00000-of-00001.parquet": parquet_bytes(
                        [{"conversation_id": "1", "chat": chat, "probing_questions": probes}]
                    )
                },
                commit="3205395e897e7318c7b094ef4e6047b9b82dbb03",
            ),
            "Mohammadta/BEAM-10M": MiniRepo(
                {
                    "data/10M-00000-of-00001.parquet": parquet_bytes(
                        [{"conversation_id": "1", "chat": plan, "probing_questions": probes}]
                    )
                }
            ),
            "MemGPT/MSC-Self-Instruct": MiniRepo({"msc_self_instruct.jsonl": (json.dumps(dmr) + "\n").encode()}),
            "Salesforce/ConvoMem": MiniRepo(convomem),
        }
    )
    for name in ("beam", "beam:10m"):
        [example] = load_memory(name).examples()
        assert (example["qa_type"], example["answerable"], example["rubric"], example["evidence"]) == (
            "abstention",
            False,
            ["r"],
            ["0"],
        )
    [example] = load_memory("dmr").examples()
    assert (example["qa_type"], example["answer"]) == ("fact", "a")
    found = [(e["qa_type"], e["answerable"], e["evidence"]) for e in load_memory("convomem").examples()]
    assert [kind for kind, *_ in found] == [
        "user-facts",
        "assistant-facts",
        "changing-facts",
        "abstention",
        "preferences",
        "implicit-connections",
    ]
    assert [answerable for _, answerable, _ in found] == [True, True, True, False, True, True]
    assert [e["qa_type"] for e in load_memory("convomem:changing").examples()] == ["changing-facts"]


def test_nothing_heavy_is_imported_before_it_is_needed():
    import subprocess

    code = (
        "import sys, context_bench.memory.datasets; print([m for m in ('numpy', 'pyarrow', 'huggingface_hub') "
        "if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda i: st.lists(i, max_size=3) | st.dictionaries(st.sampled_from(["qa", "conversation", "question", "turns", "sessions", "items", "answer", "id", "chat"]), i, max_size=4), max_leaves=10))  # fmt: skip  # noqa: E501
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_json_is_read_or_refused(tmp_path, value):
    path = tmp_path / "any.json"
    path.write_text(json.dumps(value), "utf-8")
    try:
        loaded = load_memory(str(path))
        examples = list(loaded.examples())
    except BadInput:
        return
    assert examples
    assert loaded.manifest()["counts"]["questions"] == len(examples)


def test_a_question_about_nothing_is_counted_and_never_asked(tmp_path):
    nothing = {**history("void"), "haystack_sessions": [], "haystack_dates": [], "haystack_session_ids": []}
    mixed, empty = tmp_path / "mixed.json", tmp_path / "empty.json"
    mixed.write_text(json.dumps([nothing, history("ann")]), "utf-8")
    empty.write_text(json.dumps([nothing]), "utf-8")
    loaded = load_memory(str(mixed))
    assert [example["answer"] for example in loaded.examples()] == ["ann"]
    assert loaded.manifest()["dirt"]["conversations without a turn, left out"] == 1
    with pytest.raises(BadInput, match="anything to remember"):
        load_memory(str(empty))
