"""Each published format, with invented conversations in the published schema and the faults that the real files
have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from context_bench.core.errors import BadInput
from context_bench.memory.datasets.formats import FORMATS, sniff
from context_bench.memory.datasets.formats.memoryagentbench import pieces
from context_bench.memory.datasets.memory_records import Dirt, Document, MemoryConversation, iso, numbered
from context_bench.memory.protocol import conversation, packed, unpacked

LOCOMO = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Bo",
        "session_10_date_time": "12:05 am on 1 January, 2024",
        "session_10": [{"speaker": "Bo", "dia_id": "D10:1", "text": "Happy new year from Lyon!"}],
        "session_2_date_time": "1:56 pm on 8 May, 2023",
        "session_2": [
            {"speaker": "Ann", "dia_id": "D2:1", "text": "The vet said it is at 7:30 pm."},
            {
                "speaker": "Bo",
                "dia_id": "D2:2",
                "text": "Look",
                "img_url": ["http://x"],
                "blip_caption": "a photo of a red kayak",
                "query": "kayak",
            },
            {"speaker": "Ann", "dia_id": "D2:3", "text": ""},
        ],
        "session_3_date_time": "9:00 am on 9 May, 2023",
    },
    "qa": [
        {"question": "When is the vet?", "answer": "7:30 pm", "evidence": ["D2:1"], "category": 2},
        {"question": "How many kayaks?", "answer": 1, "evidence": ["D2:2; D:10:01", "D"], "category": 1},
        {"question": "What would Bo like?", "answer": "water", "evidence": ["D99:1"], "category": 3},
        {"question": "Where is Bo?", "answer": "Lyon", "evidence": ["D010:01"], "category": 4},
        {"question": "When did Ann go to Oslo?", "adversarial_answer": "2022", "evidence": ["D2:1"], "category": 5},
        {"question": "Why?", "answer": "because", "adversarial_answer": "so", "evidence": [], "category": 5},
        {"question": "Odd", "answer": "odd", "evidence": ["D2:1"], "category": 9},
    ],
    "event_summary": {},
    "observation": {},
}
LOCOMO_ROWS = {
    "questions": ["When is the vet?", "Where is Bo?", "Oslo?"],
    "answers": ["7:30 pm", "Lyon", None],
    "evidences": [[[1, 1]], [[2, 1], [7, 7]], []],
    "category": [2, 4, 5],
    "turns": ["unused"],
    "sessions": [
        "1:56 pm on 8 May, 2023\n Ann: The vet said:\nit is at 7:30 pm.\n Bo: Look\n",
        "12:05 am on 1 January, 2024\n Bo: Happy new year from Lyon!\n Ann: Note: so late\n",
    ],
}
LONGMEMEVAL = {
    "question_id": "q1",
    "question_type": "multi-session",
    "question": "How many plants?",
    "answer": 3,
    "question_date": "2023/05/30 (Tue) 23:40",
    "haystack_session_ids": ["answer_9_1", "filler", "filler", "filler"],
    "haystack_dates": [
        "2023/05/25 (Thu) 10:00",
        "2023/05/20 (Sat) 02:21",
        "2023/05/21 (Sun) 02:21",
        "2023/05/22 (Mon) 00:00",
    ],
    "haystack_sessions": [
        [
            {"role": "user", "content": "I bought three plants.", "has_answer": True},
            {"role": "assistant", "content": "Lovely."},
        ],
        [{"role": "user", "content": "hello"}, {"role": "assistant", "content": ""}],
        [{"role": "user", "content": "hello"}, {"role": "assistant", "content": ""}],
        [{"role": "user", "content": "something else"}],
    ],
    "answer_session_ids": ["answer_9_1", "gone"],
}
DMR = {
    "previous_dialogs": [
        {
            "dialog": [{"text": "I breed terns."}, {"text": "I sing."}],
            "time_num": 7,
            "time_unit": "days",
            "time_back": "7 days 1 hour",
        },
        {"dialog": [{"text": "The oldest is Pip."}]},
    ],
    "dialog": [{"id": "Speaker 2", "text": "Morning!"}, {"id": "Speaker 1", "text": "Hi."}],
    "summary_speaker_1": [["I breed terns."]],
    "self_instruct": {"B": "What birds did you say you breed?", "A": "Terns!"},
    "metadata": {"initial_data_id": "valid_9", "session_id": 4},
}
BEAM = {
    "conversation_id": "7",
    "chat": [
        [
            {
                "role": "user",
                "id": 0,
                "time_anchor": "March-15-2024",
                "content": "The sprint ends on March 29. ->-> 1,1",
            },
            {"role": "assistant", "id": 1, "content": "Noted."},
        ],
        [{"role": "user", "id": 2, "content": "It moved to April 2."}],
    ],
    "probing_questions": str(
        {
            "knowledge_update": [
                {
                    "question": "When does it end?",
                    "answer": "April 2",
                    "source_chat_ids": {"old": [0], "new": [[2], 99]},
                    "rubric": ["April 2"],
                }
            ],
            "abstention": [{"question": "Who leads?", "ideal_response": "It is not said.", "rubric": ["not said"]}],
            "instruction_following": [
                {"question": "Show code", "expected_compliance": "fenced", "rubric": ["fenced code"]}
            ],
        }
    ),
}
_TALKS = [
    {
        "id": "c1",
        "messages": [{"speaker": "User", "text": "My  budget is 5k."}, {"speaker": "Assistant", "text": "Fine."}],
    }
]
CONVOMEM = {
    "evidence_items": [
        {
            "question": "Budget?",
            "answer": "5k",
            "message_evidences": [{"speaker": "User", "text": "My budget is 5k."}],
            "conversations": _TALKS,
        },
        {
            "question": "Phone?",
            "answer": "not told",
            "message_evidences": [{"speaker": "User", "text": "Call me."}],
            "conversations": _TALKS,
        },
    ]
}
CONVOMEM_MIXED = {
    "contextSize": 2,
    "evidenceItems": [{k: v for k, v in one.items() if k != "conversations"} for one in CONVOMEM["evidence_items"]],
    "conversations": [*_TALKS, {"messages": [{"speaker": "User", "text": "other"}]}],
}
MEMBENCH = {
    "simple": {
        "roles": [
            {
                "tid": 0,
                "message_list": [
                    {"user": "I met Maya. (place: Rome; time'2024-10-01 08:00' Tuesday)", "agent": "Good."},
                    {"user": "She moved to Boston.", "agent": "Noted."},
                ],
                "QA": {
                    "qid": 7,
                    "question": "Where did she move?",
                    "answer": "Boston",
                    "target_step_id": [1, 2],
                    "choices": {"A": "Austin", "B": "Boston", "C": "Oslo", "D": "Rome"},
                    "ground_truth": "B",
                    "time": "'2024-10-02 09:00' Wednesday",
                },
            }
        ]
    },
    "highlevel_rec": {
        "movie": [
            {
                "tid": 0,
                "message_list": ["Liked it."],
                "QA": {"question": "?", "choices": [["x", "y"], "z"], "answer": "B"},
            }
        ]
    },
}
MAB = {
    "context": "Fact one.\n" * 300 + "The capital moved.\n",
    "questions": ["Where?", "Who?"],
    "answers": [["Rome", "roma"], ["Ann"]],
    "metadata": {
        "source": "longmemeval_s*",
        "qa_pair_ids": ["p1", "p2"],
        "question_types": ["a"],
        "question_dates": ["2023/05/30 (Tue) 23:40"],
    },
}
GENERIC = {
    "id": "ann",
    "items": [
        "I live in Porto.",
        {"id": "t2", "content": "Moved to Faro.", "speaker": "Ann", "time": "2024-05-01T09:00:00Z", "session_id": 4},
    ],
    "qa_pairs": [
        {"question": "Where?", "answers": ["Faro", "in Faro"], "type": "update", "evidence": ["t2", "zz"]},
        {"query": "Age?", "answerable": False, "rubric": "says it is not known"},
    ],
}
SEED = {
    "c1": {
        "session_10": [{"human_turn": "late", "blenderbot_message": ""}],
        "session_2": [{"human_turn": "Rex is a dog", "blenderbot_message": "Nice"}],
        "question_answer_pairs": [{"question": "What is Rex?", "answer": "a dog", "category": " Temporal reasoning "}],
    }
}
ALL = {
    "locomo": LOCOMO,
    "locomo (rows)": LOCOMO_ROWS,
    "longmemeval": LONGMEMEVAL,
    "dmr": DMR,
    "beam": BEAM,
    "convomem": CONVOMEM,
    "membench": MEMBENCH,
    "memoryagentbench": MAB,
    "cortex": SEED,
    "generic": GENERIC,
}


def read(value: Mapping[str, Any], path: str = "f.json") -> tuple[list[MemoryConversation], dict[str, int]]:
    found, dirt = sniff(value), Dirt()
    assert found is not None
    return list(found.read(iter([Document(value, path)]), dirt)), dict(dirt.counts)


@pytest.mark.parametrize("name", ALL)
def test_a_format_is_told_by_its_content_and_by_one_only(name):
    assert [each.name for each in FORMATS if each.sniff(ALL[name])] == [name]
    assert {each.name for each in FORMATS} == {*ALL}
    haystacks, _ = read(ALL[name])
    assert all(haystack.items and haystack.questions for haystack in haystacks)
    for haystack in haystacks:
        assert unpacked(packed(haystack.items)) == tuple(haystack.items)
        known = {item.id for item in haystack.items}
        assert len(known) == len(haystack.items)
        assert all({*question.evidence} <= known for question in haystack.questions)


def test_locomo_keeps_sessions_in_order_dates_pictures_and_every_turn():
    [haystack], dirt = read(LOCOMO)
    assert [(item.id, item.session, item.time) for item in haystack.items] == [
        ("D2:1", "S2", "2023-05-08T13:56:00"),
        ("D2:2", "S2", "2023-05-08T13:56:00"),
        ("D10:1", "S10", "2024-01-01T00:05:00"),
    ]
    assert haystack.items[0].line == "Ann: The vet said it is at 7:30 pm."
    assert haystack.items[1].text == "Look [picture: a photo of a red kayak]"
    assert conversation(haystack.items).splitlines()[0] == "[session S2] 2023-05-08T13:56:00"
    assert (dirt["dates without a session"], dirt["empty turns left out"]) == (1, 1)


def test_locomo_names_categories_as_the_authors_do_and_keeps_the_number():
    [haystack], dirt = read(LOCOMO)
    assert [(q.category, q.type) for q in haystack.questions] == [
        ("2", "temporal"),
        ("1", "multi-hop"),
        ("3", "open-domain"),
        ("4", "single-hop"),
        ("5", "adversarial"),
        ("5", "adversarial"),
        ("9", "category-9"),
    ]
    assert dirt["categories without a name"] == 1


def test_locomo_mends_evidence_and_counts_what_it_did():
    [haystack], dirt = read(LOCOMO)
    found = {question.id: (question.evidence, question.sessions) for question in haystack.questions}
    assert found["conv-1-q1"] == (
        ("D2:2", "D10:1"),
        ("S2", "S10"),
    )  # two ids in one text, a stray colon, a leading zero, and a lone D
    assert found["conv-1-q2"] == ((), ())
    assert found["conv-1-q3"] == (("D10:1",), ("S10",))
    assert (
        dirt["pieces of evidence mended"],
        dirt["pieces of evidence that name nothing"],
        dirt["questions without evidence"],
    ) == (
        2,
        2,
        2,
    )


def test_locomo_answers_that_are_numbers_become_text_and_adversarial_ones_have_none():
    [haystack], dirt = read(LOCOMO)
    answers = {question.id: (question.answers, question.answerable, question.trap) for question in haystack.questions}
    assert answers["conv-1-q1"] == (("1",), True, None)
    assert answers["conv-1-q4"] == ((), False, "2022")
    assert answers["conv-1-q5"] == ((), False, "so")
    assert dirt["answers that were numbers"] == 1
    assert dirt["adversarial questions with an answer, which was left out"] == 1


def test_locomo_rows_give_the_same_turns_as_the_authors_file():
    [haystack], dirt = read(LOCOMO_ROWS)
    assert [(item.id, item.line) for item in haystack.items] == [
        ("D1:1", "Ann: The vet said:\nit is at 7:30 pm."),
        ("D1:2", "Bo: Look"),
        ("D2:1", "Bo: Happy new year from Lyon!"),
        ("D2:2", "Ann: Note: so late"),
    ]
    assert [item.time for item in haystack.items][::2] == ["2023-05-08T13:56:00", "2024-01-01T00:05:00"]
    assert [(q.type, q.evidence, q.answerable) for q in haystack.questions] == [
        ("temporal", ("D1:1",), True),
        ("single-hop", ("D2:1",), True),
        ("adversarial", (), False),
    ]
    assert dirt == {"pieces of evidence that name nothing": 1, "questions without evidence": 1}


def test_locomo_rows_as_text_and_without_sessions():
    turns = ["1:56 pm on 8 May, 2023\n Ann: One", "Bo: Two", "9:00 am on 9 May, 2023\n Ann: Three"]
    row = {
        "questions": '["q"]',
        "answers": '["a"]',
        "category": "[4]",
        "evidences": "[[[2, 1]]]",
        "turns": json.dumps(turns),
    }
    [haystack], _ = read(row)
    assert [(item.id, item.text) for item in haystack.items] == [("D1:1", "One"), ("D1:2", "Two"), ("D2:1", "Three")]
    assert haystack.questions[0].evidence == ("D2:1",)
    with pytest.raises(BadInput, match="2 questions and 1 answers"):
        read({**row, "questions": '["q", "r"]'})


def test_longmemeval_order_of_time_repeated_sessions_and_evidence():
    [haystack], dirt = read(LONGMEMEVAL)
    assert [(item.id, item.role, item.time) for item in haystack.items] == [
        ("filler_1", "user", "2023-05-20T02:21:00"),
        ("filler#2_1", "user", "2023-05-22T00:00:00"),
        ("answer_9_1_1", "user", "2023-05-25T10:00:00"),
        ("answer_9_1_2", "assistant", "2023-05-25T10:00:00"),
    ]
    [question] = haystack.questions
    assert (question.answers, question.evidence, question.sessions) == (("3",), ("answer_9_1_1",), ("answer_9_1",))
    assert (question.asked, question.answerable, question.type) == ("2023-05-30T23:40:00", True, "multi-session")
    assert dirt == {
        "answers that were numbers": 1,
        "empty turns left out": 1,
        "evidence sessions not there": 1,
        "histories put in order of time": 1,
        "other sessions under an id used before": 1,
        "sessions repeated word for word, left out": 1,
    }


def test_longmemeval_abstention_and_missing_dates():
    value = {
        **LONGMEMEVAL,
        "question_id": "q1_abs",
        "haystack_dates": [],
        "question_date": "soon",
        "question_type": "single-session-preference",
    }
    [haystack], dirt = read(value)
    assert haystack.items[0].id == "answer_9_1_1"  # without dates the order of the file stays
    [question] = haystack.questions
    assert (question.answerable, question.type, question.asked, question.rubric) == (
        False,
        "single-session-preference",
        "soon",
        ("3",),
    )
    assert (dirt["session dates missing"], dirt["question dates that could not be read"]) == (3, 1)


def test_dmr_speakers_alternate_and_summaries_are_not_remembered():
    [haystack], dirt = read(DMR)
    assert [(item.id, item.line, item.time) for item in haystack.items] == [
        ("1:1", "A: I breed terns.", "7 days 1 hour ago"),
        ("1:2", "B: I sing.", "7 days 1 hour ago"),
        ("2:1", "A: The oldest is Pip.", None),
        ("3:1", "B: Morning!", None),
        ("3:2", "A: Hi.", None),
    ]
    assert (haystack.questions[0].text, haystack.questions[0].answers) == (
        "What birds did you say you breed?",
        ("Terns!",),
    )
    assert dirt == {"session dates missing": 1}


def test_beam_questions_written_as_a_python_literal():
    [haystack], dirt = read(BEAM)
    assert [(item.id, item.time, item.session) for item in haystack.items] == [
        ("0", "2024-03-15", "1"),
        ("1", "2024-03-15", "1"),
        ("2", None, "2"),
    ]
    found = {question.type: question for question in haystack.questions}
    assert (found["knowledge-update"].evidence, found["knowledge-update"].sessions) == (("0", "2"), ("1", "2"))
    assert (found["abstention"].answerable, found["abstention"].answers) == (False, ("It is not said.",))
    assert (found["instruction-following"].answers, found["instruction-following"].rubric) == ((), ("fenced code",))
    assert dirt == {"pieces of evidence that name nothing": 1, "session dates missing": 1}


@pytest.mark.parametrize("second", [0, 2])
def test_beam_plans_whose_ids_begin_anew_or_go_on(second):
    def batch(first):
        turns = [[{"role": "user", "id": first + i, "content": f"m{i}"} for i in (0, 1)]]
        return [{"batch_number": 1, "time_anchor": "March-15-2024", "turns": turns}]

    chat = [{"plan-1": batch(0), "plan-2": None}, {"plan-1": None, "plan-2": batch(second)}]
    probes = {"event_ordering": [{"question": "q", "answer": "a", "source_chat_ids": [1, 3]}]}
    [haystack], dirt = read({"chat": chat, "probing_questions": json.dumps(probes)})
    assert [item.id for item in haystack.items] == ["0", "1", "2", "3"]
    assert haystack.questions[0].evidence == ("1", "3")
    assert dirt == {}


def test_convomem_finds_who_said_the_evidence_and_the_kind_by_the_folder():
    haystacks, dirt = read(CONVOMEM, "core_benchmark/evidence_questions/abstention_evidence/1_evidence/a_Clerk.json")
    assert [haystack.id for haystack in haystacks] == ["abstention/a_Clerk-q0", "abstention/a_Clerk-q1"]
    assert [haystack.questions[0].evidence for haystack in haystacks] == [("c1:1",), ()]
    assert (haystacks[0].questions[0].type, haystacks[0].questions[0].answerable) == ("abstention", False)
    assert dirt == {"pieces of evidence that no message says": 1}
    [mixed], dirt = read(CONVOMEM_MIXED, "user_evidence/batched_001.json")
    assert (len(mixed.items), len(mixed.questions), mixed.questions[0].type) == (3, 2, "user-facts")
    assert mixed.questions[0].sessions == ("c1",)
    assert read(CONVOMEM)[1]["categories without a name"] == 2


def test_membench_steps_choices_and_times():
    haystacks, dirt = read(MEMBENCH, "data2test/0-10k/FirstAgentDataLowLevel_multiple_0.json")
    first, second = haystacks
    assert first.id == "participation/factual/simple/roles/0"
    assert [(item.id, item.time) for item in first.items] == [("0", "2024-10-01T08:00:00"), ("1", None)]
    assert first.items[1].text == "She moved to Boston.\nassistant: Noted."
    [question] = first.questions
    assert (question.answers, question.correct, question.evidence, question.asked) == (
        ("Boston",),
        "B",
        ("1",),
        "2024-10-02T09:00:00",
    )
    assert (question.type, question.category, first.granularity) == ("simple", "roles", "step")
    [other] = second.questions
    assert (other.choices, other.correct, other.answers) == ({"A": "x, y", "B": "z"}, "B", ("z",))
    assert dirt["pieces of evidence that name nothing"] == 1
    assert dirt["message times missing"] == 2


def test_membench_sessions_and_pairs():
    trajectory = {
        "message_list": [
            [{"user_message": "a", "assistant_message": "b", "time": "'2024-10-01 08:00' Tuesday"}],
            [{"message": "c"}],
        ],
        "QA": [{"question": "q", "answer": "c", "choices": {"A": "c"}, "target_step_id": [[1, 0]]}],
    }
    [haystack], _ = read(trajectory)
    assert [(item.id, item.session) for item in haystack.items] == [("0", "1"), ("1", "2")]
    assert (haystack.questions[0].evidence, haystack.questions[0].correct) == (("1",), "A")


def test_memoryagentbench_cuts_at_lines_and_loses_nothing():
    [haystack], _ = read(MAB)
    assert (haystack.id, [question.id for question in haystack.questions]) == (
        "longmemeval_s",
        ["longmemeval_s/p1", "longmemeval_s/p2"],
    )
    assert [(q.answers, q.type, q.asked) for q in haystack.questions] == [
        (("Rome", "roma"), "a", "2023-05-30T23:40:00"),
        (("Ann",), "longmemeval_s", None),
    ]
    assert max(len(item.text) for item in haystack.items) <= 2048
    assert all(item.text.endswith((".", "!")) for item in haystack.items)
    assert "".join("".join(item.text.split()) for item in haystack.items) == "".join(MAB["context"].split())


@given(st.text(alphabet="ab .\n", max_size=400), st.integers(1, 50))
def test_pieces_hold_every_character_but_white_space_and_are_short(text, size):
    found = list(pieces(text, size))
    assert "".join("".join(piece.split()) for piece in found) == "".join(text.split())
    assert all(0 < len(piece) <= size for piece in found)


def test_the_shapes_of_cortex():
    [haystack], dirt = read(SEED)
    assert [(item.id, item.line) for item in haystack.items] == [
        ("2:1:user", "user: Rex is a dog"),
        ("2:1:assistant", "assistant: Nice"),
        ("10:1:user", "user: late"),
    ]
    assert (haystack.questions[0].id, haystack.questions[0].type) == ("c1-q0", "temporal")
    assert dirt == {"empty turns left out": 1}
    rows = [
        {
            "conversation": [{"speaker": "human", "content": "Ilse runs it"}],
            "question": "Who?",
            "answer": "Ilse",
            "hop_count": 2,
        },
        {"turns": [], "query": "Empty?", "expected_answer": 4},
    ]
    found, dirt = sniff(rows[0]), Dirt()
    haystacks = list(found.read((Document(row, "d.json", i) for i, row in enumerate(rows)), dirt))
    assert [(h.id, h.questions[0].type, h.questions[0].answers) for h in haystacks] == [
        ("dmr-0", "2-hop", ("Ilse",)),
        ("dmr-1", "unknown", ("4",)),
    ]
    assert haystacks[0].items[0].line == "human: Ilse runs it"
    assert dirt.counts["questions with nothing to remember"] == 1
    turns = [{"role": "user", "content": "x"}, {"role": "user", "content": " "}]
    [haystack], dirt = read(
        {"question": "q", "answer": "a", "question_type": "temporal reasoning", "sessions": [turns, []]}
    )
    assert (haystack.id, haystack.questions[0].type, haystack.items[0].session) == ("lme-full-0", "temporal", "1")
    assert (len(haystack.items), dirt) == (
        1,
        {"empty turns left out": 1},
    )  # one blank turn does not make a file unreadable


def test_our_own_shape():
    [haystack], dirt = read(GENERIC)
    assert [(item.id, item.text, item.time, item.session) for item in haystack.items] == [
        ("1", "I live in Porto.", None, None),
        ("t2", "Moved to Faro.", "2024-05-01T09:00:00+00:00", "4"),
    ]
    first, second = haystack.questions
    assert (first.answers, first.evidence, first.sessions) == (("Faro", "in Faro"), ("t2",), ("4",))
    assert (second.answerable, second.rubric, second.type) == (False, ("says it is not known",), "unknown")
    assert dirt == {"pieces of evidence that name nothing": 1, "categories without a name": 1}
    sessions = [{"id": "s", "date": "8 May, 2023", "turns": ["a", "b"]}, ["c"]]
    [haystack], _ = read(
        {"sessions": sessions, "questions": [{"question": "q", "choices": ["x", "y"], "correct_letter": "B"}]}
    )
    assert [(item.session, item.time) for item in haystack.items] == [
        ("s", "2023-05-08"),
        ("s", "2023-05-08"),
        ("2", None),
    ]
    assert haystack.questions[0].choices == {"A": "x", "B": "y"}


def test_line_separators_inside_texts_survive_packing():
    [haystack], _ = read({**GENERIC, "items": ["one\u2028two\x85three\x1c"]})
    assert [item.text for item in unpacked(packed(haystack.items))] == ["one\u2028two\x85three"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56:00"),
        ("12:05 am on 31 December, 2023", "2023-12-31T00:05:00"),
        ("2023/05/20 (Sat) 02:21", "2023-05-20T02:21:00"),
        ("2023/05/20 (Sat) 00:00", "2023-05-20T00:00:00"),
        ("'2024-10-02 09:00' Wednesday", "2024-10-02T09:00:00"),
        ("March-15-2024", "2024-03-15"),
        ("Sep 3rd, 2024", "2024-09-03"),
        ("2024-05-01T09:00:00Z", "2024-05-01T09:00:00+00:00"),
        ("2024-05-01", "2024-05-01"),
        ("13:00 pm on 8 May, 2023", None),
        ("8 Foo, 2023", None),
        ("2023/02/30 (Thu) 02:21", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_dates(text, expected):
    assert iso(text) == expected


def test_session_numbers_are_numbers():
    assert numbered(["session_10", "session_2", "session_2_date_time", "session_x", 3], r"session_(\d+)") == [
        (2, "session_2"),
        (10, "session_10"),
    ]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("locomo", {"qa": ["x"]}, '"qa" holds text; expected objects'),
        ("locomo", {"conversation": {"session_1": {}}}, '"session_1" is an object; expected a list'),
        ("longmemeval", {"haystack_sessions": [["x"]]}, "a session is a list; expected a list of turns"),
        ("beam", {"probing_questions": "{'a': "}, "neither JSON nor a literal"),
        ("beam", {"probing_questions": "7"}, "expected an object of lists"),
        ("beam", {"chat": [["x"]]}, "a message is text; expected an object"),
        ("memoryagentbench", {"answers": []}, "2 questions and 0 answers"),
        ("generic", {"items": [7]}, "item 1 is 7; expected text"),
        ("cortex", {"c1": {"question_answer_pairs": []}}, "has no session_1"),
    ],
)
def test_what_only_begins_like_a_format_is_refused_with_its_place(name, change, message):
    with pytest.raises(BadInput, match=f"f.json.*{message}"):
        read({**ALL[name], **change})


_KEYS = sorted(
    {key for value in ALL.values() for key in value}
    | {"session_1", "session_1_date_time", "A", "B", "dialog", "messages", "plan-1"}
)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 10**6)
    | st.floats(allow_nan=False)
    | st.text(max_size=12)
    | st.sampled_from(_KEYS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS) | st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(_KEYS), _json, max_size=6))
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_no_document_does_more_than_be_refused(value):
    for each in FORMATS:
        if not each.sniff(value):
            continue
        try:
            haystacks = list(each.read(iter([Document(value)]), Dirt()))
        except BadInput:
            continue
        for haystack in haystacks:
            assert unpacked(packed(haystack.items)) == tuple(haystack.items)


def _places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [above, *(place for key, each in inside for place in _places(each, (*above, key)))]


def _with(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _with(copy[place[0]], place[1:], new)
    return copy


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_no_change_at_any_place_of_a_good_document_does_more_than_be_refused(data):
    name = data.draw(st.sampled_from(sorted(ALL)))
    place = data.draw(st.sampled_from(_places(ALL[name])[1:]))
    changed = _with(ALL[name], place, data.draw(_json))
    found = sniff(changed)
    if found is None:
        return
    with suppress(BadInput):
        list(found.read(iter([Document(changed, "f.json")]), Dirt()))
