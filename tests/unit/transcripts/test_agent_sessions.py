"""Every format of agents' logs can be asked about: as a conversation, or as its tool calls where the log holds no
more.
"""

import json
from pathlib import Path

import pytest

from context_bench.compression.datasets import ProbeSet, artifact_ledger
from context_bench.core.errors import BadInput
from context_bench.datasets.recorded import RecordedSessions
from context_bench.transcripts import read_sessions

SAME = json.loads((Path(__file__).parents[2] / "vectors" / "traces.json").read_text(encoding="utf-8"))["same_session"]
FORMS = sorted(SAME["formats"])


def written(folder, form):
    for name, content in SAME["formats"][form]["files"].items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("form", FORMS)
def test_what_was_edited_is_known_from_every_format(form, tmp_path):
    sessions = list(read_sessions(written(tmp_path, form), agents=True))
    ledgers = [artifact_ledger(session.messages, cwd=SAME["expected_common"]["workspace"]) for session in sessions]
    changed = {path for ledger in ledgers for path in (*ledger.created, *ledger.modified)}
    assert set(SAME["expected_common"]["edited_files"]) <= changed
    assert all(session.requests for session in sessions)


@pytest.mark.parametrize("form", FORMS)
def test_probes_can_be_made_of_every_format(form, tmp_path):
    sources = RecordedSessions([str(written(tmp_path, form))], agents=True)
    assert any(example["probe_type"] == "artifact" for example in ProbeSet(sources, "every:1").examples())


def test_a_replay_does_not_take_calls_for_a_conversation(tmp_path):
    with pytest.raises(BadInput, match=r"no recorded sessions"):
        list(read_sessions(written(tmp_path, "cursor_stream_json")))


def test_a_log_without_calls_is_said_to_be_one(tmp_path):
    place = tmp_path / "predictions.jsonl"
    place.write_text(
        json.dumps(
            {
                "instance_id": "x",
                "traj_data": {"pred_files": ["a.py"], "pred_spans": {}, "pred_steps": []},
                "model_patch": "",
            }
        )
    )
    with pytest.raises(BadInput, match="no tool call"):
        list(read_sessions(place, agents=True))
