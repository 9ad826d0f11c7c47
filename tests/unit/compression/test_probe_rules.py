"""What the rules that make probes find and pass over: decisions, values, rules, open work, changes, files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.compression.datasets import (
    artifact_ledger,
    compression_points,
    generate_probes,
    visible_share,
)
from context_bench.compression.evaluators.probe_atoms import grade
from context_bench.compression.probes import CompressionPoint, Probe
from context_bench.compression.session_rules.utterances import decisions, language_of, question_of
from context_bench.compression.systems.sentence import SentenceReader
from context_bench.core.text import stem, tokens
from context_bench.datasets import sessions
from context_bench.wire.conversation import message_text, to_chat, tool_calls_of

Row = dict[str, Any]


def user(text: str) -> Row:
    return {"role": "user", "content": text}


def says(text: str) -> Row:
    return {"role": "assistant", "content": text}


def did(ident: str, tool: str, arguments: Any, output: str = "ok") -> list[Row]:
    function = {"name": tool, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": ident, "type": "function", "function": function}],
    }
    return [call, {"role": "tool", "tool_call_id": ident, "content": output}]


def asked(messages: list[Row], start: str) -> list[Probe]:
    return [probe for probe in generate_probes(messages) if probe.question.startswith(start)]


def stems(text: str) -> set[str]:
    return {stem(word) for word in tokens(text.casefold())} - {"a", "the", "of", "to", "in", "by", "an"}


def test_most_decisions_of_the_bundled_sessions_are_found() -> None:
    found = known = 0
    for name in sessions.bundled():
        session = sessions.load_session(name)
        made = list(decisions([message for message in session.messages if message["role"] != "system"]))
        for truth in session.meta["truth"]["decisions"]:
            chosen, rejected = stems(truth["chosen"]), stems(truth["rejected"])
            found += any(
                len(chosen & stems(one.truth)) >= 0.5 * len(chosen)
                and len(rejected & stems(f"{one.truth} {one.question}")) >= 0.4 * len(rejected)
                for one in made
            )
            known += 1
    assert found / known >= 0.7


@pytest.mark.parametrize(
    ("text", "question", "atoms"),
    [
        (
            "I would not use a cron job, because it is late. I put both commands into one script instead of two trips.",
            'What was chosen instead of "cron job", and why?',
            ["put both commands into one script", "it is late"],
        ),
        (
            "We keep the old one rather than `lib.new()`, since tests need it.",
            'What was chosen instead of "`lib.new()`", and why?',
            ["keep the old one", "tests need it"],
        ),
        ("I choose a record over a base class.", 'What was chosen instead of "base class", and why?', ["record"]),
        ("The list takes 96 ms instead of 3,812 ms now.", None, []),
        ("Move them to a table instead of it.", None, []),
        (
            "We decided on Redis because the session store is shared.",
            "What was decided, given that the session store is shared?",
            ["Redis"],
        ),
        ("Rather busy today; I read the file.", None, []),
    ],
)
def test_sentences_of_decisions(text: str, question: str | None, atoms: list[str]) -> None:
    made = [
        probe
        for probe in generate_probes([user("Fix the thing that is broken."), says(text)])
        if probe.type == "decision"
    ]
    assert ([made[0].question, [atom.text for atom in made[0].atoms]] if made else [None, []]) == [question, atoms]


def test_a_value_that_was_replaced_is_banned() -> None:
    messages = [
        *did("1", "Edit", {"file_path": "a.py", "old_string": "x", "new_string": "MIN_RETRY_S = 5\n"}),
        *did("2", "Edit", {"file_path": "a.py", "old_string": "MIN_RETRY_S = 5\n", "new_string": "MIN_RETRY_S = 12\n"}),
    ]
    (probe,) = asked(messages, "What is `MIN_RETRY_S` set to now?")
    assert [(atom.text, atom.role) for atom in probe.atoms] == [("12", "wanted"), ("5", "banned")]
    assert grade("12.", probe.atoms).score == 1.0
    assert grade("It is 5, or 12.", probe.atoms).score == 0.0
    # Two values and no edit that says which holds: not asked.
    assert not asked([user("MIN_RETRY_S = 5"), user("MIN_RETRY_S = 12")], "What is")


def test_rules_that_were_taken_back_are_not_asked() -> None:
    said = [
        user("Never touch the billing tables. You must not push to main."),
        user("Forget what I said about the billing tables, touch them."),
    ]
    (probe,) = asked(said, "Which rules")
    assert [atom.text for atom in probe.atoms] == ["You must not push to main"]


@pytest.mark.parametrize(
    "text",
    [
        "connect ECONNREFUSED 127.0.0.1:6380",
        "Took 3.2 s",
        "About 85.75 % of it",
        "Version 2.14.0",
        "Drop 4.5 from it",
        "peer react@17.0.2 and react@18.2.0",
    ],
)
def test_what_is_no_version_of_anything(text: str) -> None:
    assert not asked([user("It breaks."), *did("1", "Bash", {"command": "npm test"}, text)], "Which version")


def test_what_the_tail_changes_is_not_asked() -> None:
    todo = {
        "todos": [
            {"content": "Write the guide", "status": "pending"},
            {"content": "Close the port", "status": "pending"},
        ]
    }
    later = {
        "todos": [
            {"content": "Write the guide", "status": "completed"},
            {"content": "Close the port", "status": "pending"},
        ]
    }
    ran = did("2", "Bash", {"command": "pytest"}, "FAILED tests/test_a.py::test_one - x\n1 failed, 2 passed in 1s")
    prefix = [user("Do it."), *did("1", "TodoWrite", todo), *ran]
    tail = [*did("3", "TodoWrite", later), *did("4", "Bash", {"command": "pytest"}, "3 passed in 1s")]
    before = {probe.question: [atom.text for atom in probe.atoms] for probe in generate_probes(prefix)}
    after = {
        probe.question: [atom.text for atom in probe.atoms]
        for probe in generate_probes(CompressionPoint("s", len(prefix), "", prefix, tail))
    }
    assert before["Which items were still open on the last todo list?"] == ["Write the guide", "Close the port"]
    assert before["Which tests are still failing?"] == ["tests/test_a.py::test_one"]
    assert after["Which items were still open on the last todo list?"] == ["Close the port"]
    assert "Which tests are still failing?" not in after
    assert "How many tests passed and failed when they were last run?" not in after


def test_a_run_of_some_tests_says_nothing_of_the_others() -> None:
    failed = did(
        "1",
        "Bash",
        {"command": "pytest -q"},
        "FAILED tests/test_a.py::test_one - x\nFAILED tests/test_b.py::test_two - y\n2 failed, 9 passed",
    )
    some = did("2", "Bash", {"command": "pytest -q tests/test_a.py"}, "5 passed in 1s")
    without = did(
        "3", "Bash", {"command": "pytest -q --deselect tests/test_b.py::test_two"}, "10 passed, 1 deselected in 2s"
    )
    (still,) = asked([*failed, *some, *without], "Which tests are still failing?")
    assert [atom.text for atom in still.atoms] == ["tests/test_b.py::test_two"]
    (fixed,) = asked([*failed, *some], "Which tests failed at first")
    assert [atom.text for atom in fixed.atoms] == ["tests/test_a.py::test_one"]


def test_what_was_changed_in_a_file() -> None:
    messages = [
        *did("1", "Read", {"file_path": "a.py"}, "def old(): pass"),
        *did(
            "2",
            "Edit",
            {
                "file_path": "a.py",
                "old_string": "def old(): pass",
                "new_string": "def take_turn(): pass\nMOST_TURNS = 3",
            },
        ),
        *did(
            "3",
            "Bash",
            {"command": "git apply <<'X'\n--- a/b.py\n+++ b/b.py\n@@ -1 +1,2 @@\n x = 1\n+def give_back(): pass\nX"},
        ),
    ]
    found = {probe.question: [atom.text for atom in probe.atoms] for probe in asked(messages, "What was added")}
    assert found["What was added or changed in `a.py`?"] == ["take_turn", "MOST_TURNS"]
    assert ["give_back"] in found.values()


@pytest.mark.parametrize(
    ("command", "created", "modified", "deleted"),
    [
        ("git mv old.py new.py", ["new.py"], [], ["old.py"]),
        ("git rm -q junk.py && touch fresh.txt", ["fresh.txt"], [], ["junk.py"]),
        ("mv 'with space.md' docs/plain.md", ["docs/plain.md"], [], ["with space.md"]),
        ("sed -i -E 's/(a)/\\U\\1/' src/b.go; echo x >> notes.md", [], ["src/b.go", "notes.md"], []),
        ("echo a > one.txt && echo b >> one.txt", ["one.txt"], [], []),
        ("cat a.txt | tee b.txt", ["b.txt"], [], []),
        (
            "git apply <<'X'\n--- /dev/null\n+++ b/made.py\n@@ -0,0 +1 @@\n+x\n--- a/gone.py\n+++ /dev/null\n@@ -1 "
            "+0,0 @@\n-x\nX",
            ["made.py"],
            [],
            ["gone.py"],
        ),
        ("git apply <<'X'\ndiff --git a/p.py b/q.py\nrename from p.py\nrename to q.py\nX", ["q.py"], [], ["p.py"]),
        ("patch -p1 <<'X'\n--- a/c.c\n+++ b/c.c\n@@ -1 +1 @@\n-x\n+y\nX", [], ["c.c"], []),
        (
            "apply_patch <<'X'\n*** Begin Patch\n*** Update File: u.py\n-a\n+b\n*** Add File: v.py\n+c\n*** End "
            "Patch\nX",
            ["v.py"],
            ["u.py"],
            [],
        ),
    ],
)
@pytest.mark.parametrize("shape", ["Bash", "argv", "cmd"])
def test_what_commands_do_to_files(
    shape: str, command: str, created: list[str], modified: list[str], deleted: list[str]
) -> None:
    given: dict[str, tuple[str, Any]] = {
        "Bash": ("Bash", {"command": command}),
        "argv": ("shell", {"command": ["bash", "-lc", command]}),
        "cmd": ("exec_command", {"cmd": command}),
    }
    ledger = artifact_ledger(did("1", *given[shape], ""))
    assert (sorted(ledger.created), sorted(ledger.modified), sorted(ledger.deleted)) == (
        sorted(created),
        sorted(modified),
        sorted(deleted),
    )


@pytest.mark.parametrize(
    ("command", "output", "read"),
    [
        ("grep -n foo a.py b.py", "b.py:1:foo", ["b.py"]),
        ("grep -rn foo src", "src/a.py:1:foo\nsrc/b.py:2:foo", ["src/a.py", "src/b.py"]),
        ("rg -n foo", "src/a.py:3:foo", ["src/a.py"]),
        ("grep -rn foo .", "./src/a.py:3:foo", ["src/a.py"]),
        ("cd src && grep -n foo a.py b.py", "a.py:1:foo", ["src/a.py"]),
        ("cat a.py; grep -rn foo src", "import x\nsrc/b.py:1:foo", ["a.py", "src/b.py"]),
        ("grep foo Makefile", "foo:", ["Makefile"]),
        ("grep -rn foo src", "", []),
        ("grep -rn foo src | wc -l", "12", []),
    ],
)
def test_a_search_reads_the_files_of_its_hits(command: str, output: str, read: list[str]) -> None:
    assert artifact_ledger(did("1", "Bash", {"command": command}, output)).read_only == read


def test_files_are_moved_into_a_folder_and_deleted_by_a_tool() -> None:
    moved = artifact_ledger(did("1", "Bash", {"command": "mv a.py dir/; mv b.py c.py lib"}, ""))
    assert (moved.created, moved.deleted) == (["dir/a.py", "lib/b.py", "lib/c.py"], ["a.py", "b.py", "c.py"])
    assert artifact_ledger(did("1", "delete_file", {"target_file": "a.py"}, "ok")).deleted == ["a.py"]
    assert artifact_ledger(did("1", "run_in_terminal", {"command": "rm a.py"}, "")).deleted == ["a.py"]
    assert artifact_ledger(did("1", "create_file", {"filePath": "a.py", "content": "x"}, "ok")).created == ["a.py"]


def test_other_tools_and_other_wires() -> None:
    messages = [
        *did("1", "MultiEdit", {"file_path": "m.py", "edits": [{"old_string": "a", "new_string": "b"}]}),
        *did("2", "NotebookEdit", {"notebook_path": "n.ipynb", "cell_id": "1", "new_source": "x"}),
        *did("3", "Bash", {"command": "npm install left-pad"}, "added 1 package"),
    ]
    assert {"m.py", "n.ipynb"} <= set(artifact_ledger(messages).modified)
    seen = [*did("0", "Read", {"file_path": "package.json"}, "{}"), *messages]
    assert "package.json" in artifact_ledger(seen).modified  # installing a package changes the file that lists them
    blocks = [
        {"role": "user", "content": "Please fix it."},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "1", "name": "Write", "input": {"file_path": "w.md", "content": "x"}}
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "1", "content": "File created successfully at: w.md"}],
        },
    ]
    assert artifact_ledger(to_chat("anthropic", {"messages": blocks}).messages).created == ["w.md"]


@pytest.mark.parametrize("name", sessions.bundled())
def test_questions_are_in_the_language_of_the_session(name: str) -> None:
    session = sessions.load_session(name)
    language = session.meta["language"]
    assert language_of(session.messages) == language
    (point,) = compression_points(session, "fraction:0.75")
    probes = generate_probes(point, cwd=session.meta["cwd"])
    assert question_of("read_only", language=language) in [probe.question for probe in probes]
    assert {probe.type for probe in probes} >= {"recall", "artifact", "continuation"}


def test_the_reader_answers_what_it_is_shown() -> None:
    reader, full, none = SentenceReader(), list[float](), list[float]()
    for name in sessions.bundled()[1:]:
        session = sessions.load_session(name)
        (point,) = compression_points(session, "fraction:0.75")
        probes = generate_probes(point, cwd=session.meta["cwd"])
        for probe, share in zip(probes, visible_share(probes, point), strict=True):
            if share > 0.4:
                continue
            for shown, scores in ((session.messages, full), ([session.messages[0], *point.tail], none)):
                turns = [*shown, user(probe.question)]
                response = reader.process({"question": probe.question, "turns": turns})["response"]
                scores.append(grade(response, probe.atoms, truth=probe.ground_truth, question=probe.question).score)
    assert sum(full) / len(full) >= 0.7
    assert sum(none) / len(none) <= 0.1


_TEXT = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "Error: connect ECONNREFUSED 10.0.0.7:6380",
            "I use a pool instead of a lock, because it is fast.",
            "Never push to main. Only touch src/a.py.",
            "FAILED tests/test_a.py::test_x - AssertionError\n1 failed, 3 passed",
            "Python 3.12.1 and Redis 7.2",
            "Remaining: write the guide; close port 8080.",
            "MAX_SIZE = 30 in src/b.py",
        ]
    ),
)
_CALL = st.tuples(
    st.sampled_from(["Bash", "Edit", "Write", "Read", "TodoWrite", "odd", ""]),
    st.one_of(
        st.fixed_dictionaries(
            {
                "command": st.sampled_from(
                    ["pytest -q", "cat a.py", "rm b.py; echo x > c.py", "git apply <<X\n+++ b/d.py\n+y_z\nX", "'"]
                )
            }
        ),
        st.fixed_dictionaries(
            {"file_path": st.sampled_from(["a.py", "/w/b.py", ""]), "new_string": _TEXT, "old_string": _TEXT}
        ),
        st.fixed_dictionaries(
            {
                "todos": st.lists(
                    st.fixed_dictionaries({"content": _TEXT, "status": st.sampled_from(["pending", "completed"])}),
                    max_size=3,
                )
            }
        ),
        st.sampled_from(["{", "[]", "null", '{"command": [1]}', '{"todos": 3}']),
    ),
    _TEXT,
)
_STEP = st.one_of(
    _TEXT.map(lambda text: [user(text)]), _TEXT.map(lambda text: [says(text)]), _CALL.map(lambda call: did("c", *call))
)


@settings(max_examples=80, deadline=None)
@given(st.lists(_STEP, max_size=8), st.integers(0, 20))
def test_any_session_any_point(steps: list[list[Row]], cut: int) -> None:
    messages = [row for step in steps for row in step]
    for point in compression_points(messages, f"at:{cut}"):
        probes = generate_probes(point)
        assert probes == generate_probes(point)
        assert len({probe.id for probe in probes}) == len(probes)
        for probe in probes:
            assert any(atom.role == "wanted" for atom in probe.atoms)
            for atom in probe.atoms:
                assert atom.text not in probe.question
                assert atom.sources
                for source in atom.sources:
                    assert source.message < point.index
                    message = point.prefix[source.message]
                    if source.start is not None:
                        assert message_text(message)[source.start : source.end].casefold() == atom.text.casefold()
                    else:
                        assert tool_calls_of(message)


def test_ten_thousand_messages() -> None:
    """Many messages, few of them of interest: time has to grow with their number, not with its square."""
    session = sessions.load_session("rate-limiter-en").messages
    filler = [
        user("Go on."),
        says("I look at the next one."),
        *did("x", "Bash", {"command": "true"}, "nothing to see"),
        says("Done with it."),
    ]
    messages = [*session, *(filler * 2_000)]
    assert len(messages) > 10_000
    point = CompressionPoint("s", len(messages) - 4, "", messages[:-4], messages[-4:])
    assert {probe.type for probe in generate_probes(point)} == {"recall", "artifact", "continuation", "decision"}


def test_no_question_is_left_untold() -> None:
    for language in ("en", "de", "zh", "ar"):
        for key in ("error", "rules", "created", "todo", "chosen", "current"):
            text = question_of(key, "GAP", language=language)
            assert text
            assert not re.search(r"\{\d\}", text)


def named(probes: list[Probe], start: str) -> list[str]:
    return [atom.text for probe in probes if probe.question.startswith(start) for atom in probe.atoms]


HEAD_AND_TAIL = [
    # a file of the head under an absolute path, of the tail under a relative one, and the other way round
    ("/work/app/src/a.py", did("9", "Bash", {"command": "cat src/a.py"}, "x = 1")),
    ("/work/app/src/a.py", did("9", "Bash", {"command": "cd src && cat a.py"}, "x = 1")),
    ("/work/app/src/a.py", did("9", "Read", {"file_path": "./src/a.py"}, "x = 1")),
    ("src/a.py", did("9", "Read", {"file_path": "/work/app/src/a.py"}, "x = 1")),
    ("/work/app/src/a.py", did("9", "Read", {"file_path": "src/../src/a.py"}, "x = 1")),
    ("C:\\work\\app\\src\\a.py", did("9", "Read", {"file_path": "src\\a.py"}, "x = 1")),
    ("C:\\work\\app\\src\\a.py", did("9", "Bash", {"command": "cat src/a.py"}, "x = 1")),
    ("/work/app/src/a.py", did("9", "Grep", {"pattern": "x", "path": "src/a.py"}, "src/a.py:1:x = 1")),
]


@pytest.mark.parametrize(("head", "tail"), HEAD_AND_TAIL)
def test_artefacts_survive_a_tail_that_names_the_same_file_otherwise(head: str, tail: list[Row]) -> None:
    prefix = [
        user("Do it."),
        *did("1", "Read", {"file_path": head}, "     1\tx = 1"),
        *did("2", "Write", {"file_path": head.replace("a.py", "new.py"), "content": "y"}, "File created successfully"),
        *did(
            "3",
            "Edit",
            {"file_path": head.replace("a.py", "b.py"), "old_string": "a", "new_string": "def brought_in(): pass"},
        ),
    ]
    tail = [*tail, *did("10", "Bash", {"command": "cat src/b.py src/new.py"}, "y")]
    probes = generate_probes(CompressionPoint("s", len(prefix), "", prefix, tail))
    asked = {
        start: named(probes, start)
        for start in (
            "Which files were read or examined",
            "Which new files were created",
            "Which existing files were modified",
        )
    }
    assert {start: [text.rsplit("/", 1)[-1] for text in found] for start, found in asked.items()} == {
        "Which files were read or examined": ["a.py"],
        "Which new files were created": ["new.py"],
        "Which existing files were modified": ["b.py"],
    }
    assert named(probes, "What was added or changed in") == ["brought_in"]
    (created,) = [
        atom for probe in probes if probe.question.startswith("Which new files were created") for atom in probe.atoms
    ]
    for answer in ("src/new.py", "It was new.py.", head.replace("a.py", "new.py")):
        assert grade(answer, [created]).score == 1.0


def test_an_artefact_that_the_tail_changes_under_another_name_is_not_asked_as_it_was() -> None:
    prefix = [
        user("Do it."),
        *did("1", "Read", {"file_path": "/work/app/src/a.py"}, "x"),
        *did("2", "Read", {"file_path": "/work/app/b.py"}, "x"),
    ]
    tail = did("3", "Bash", {"command": "sed -i s/x/y/ src/a.py && cat b.py"}, "")
    probes = generate_probes(CompressionPoint("s", len(prefix), "", prefix, tail))
    assert named(probes, "Which files were read or examined") == ["b.py"]


@pytest.mark.parametrize(
    "said",
    [
        [user("A ValueError: that is what the parser must raise, and TimeoutError(…) elsewhere.")],
        [says("I see a ConnectionError: the pool is empty.")],
        did("1", "Task", {"prompt": "look"}, "The loader raises KeyError: for a missing name."),
        did("1", "Bash", {"command": "cd docs && cat errors.md"}, "TimeoutError: raised when nobody answers."),
        did("1", "Read", {"file_path": "errors.md"}, "TimeoutError: raised when nobody answers."),
        did("1", "WebFetch", {"url": "http://x.test"}, "TimeoutError: raised when nobody answers."),
    ],
)
def test_the_first_error_is_one_that_a_tool_returned(said: list[Row]) -> None:
    assert not asked(said, "Which error was seen first")
    later = did("8", "Bash", {"command": "pytest -q"}, "E   OSError: [Errno 98] Address already in use")
    (probe,) = asked([*said, *later], "Which error was seen first")
    assert "OSError" in probe.ground_truth
