"""A memory behind a command line, against stand-in programs: what they are given, how they can end, and what may be
left running.
"""

import json
import os
import shlex
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from context_bench.core.errors import BadInput, BadReply, BadSpec, Refused, SystemFailed, TimedOut, Unreachable
from context_bench.core.ledger import Ledger, open_ledger
from context_bench.core.machine import SYSTEM_CLOCK
from context_bench.memory.cortex.containment import Client
from context_bench.memory.protocol import Hit, Item, Memory, NotSupported, Receipt
from context_bench.memory.systems.command import Command, CommandClient, CortexClient, Output, from_spec
from context_bench.sandbox import vendors as _program

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "memory.json").read_text("utf-8"))["subprocess_client"]
RUNNABLE = [case for case in VECTORS if "fake_program" in case]


@pytest.fixture
def program(tmp_path):
    """Writes a shell script that notes its arguments, and gives its path; `arguments()` reads them."""

    def write(script):
        path = tmp_path / "fake"
        path.write_text(
            f'#!/bin/sh\nfor one in "$@"; do printf \'%s\\0\' "$one"; done > {tmp_path}/arguments\n{script}\n', "utf-8"
        )
        path.chmod(0o755)
        return str(path)

    return write


def arguments(folder):
    path = folder / "arguments"
    return path.read_bytes().decode().split("\0")[:-1] if path.exists() else None


def act(client, case):
    if case["op"] == "recall":
        return client.recall(case.get("text", "q"), case.get("limit", 5))
    return client.store(case["text"]) if case["op"] == "store" else client.reset()


# As recorded
# ------------------------------------------------------------------------


@pytest.mark.parametrize("case", RUNNABLE, ids=[case["id"] for case in RUNNABLE])
def test_recorded_calls(case, program, tmp_path):
    seconds = case.get("call_timeout_ms", 30_000) / 1000
    client = CommandClient.preset(
        "cortex", binary=program(case["fake_program"]), config=case.get("config") or None, timeout=seconds
    )
    if case.get("error"):
        with pytest.raises(TimedOut if "call_timeout_ms" in case else SystemFailed):
            act(client, case)
    else:
        assert act(client, case) == case["result"]
    if "argv" in case:
        assert arguments(tmp_path) == case["argv"]


def test_a_missing_program_is_named():
    with pytest.raises(Unreachable, match="/nonexistent/binary cannot be started: No such file"):
        CommandClient.preset("cortex", binary="/nonexistent/binary").recall("q", 5)


def test_the_program_is_openclaw_cortex_by_default():
    expected = next(case for case in VECTORS if case["id"] == "default-binary-name")["binary_path"]
    assert CommandClient.preset("cortex").binary_path == expected == CortexClient().binary_path
    assert CommandClient.preset("cortex").timeout == CortexClient("b", "", 0).timeout == 30.0
    assert CortexClient("b", "c", 1.5) == CommandClient.preset("cortex", binary="b", config="c", timeout=1.5)


# The preset
# ------------------------------------------------------------------------


def test_arguments_of_the_first_version(program, tmp_path):
    client = CommandClient.preset("cortex", binary=program("echo '[]'"), config="c", compat="v0.10")
    assert client.recall("q", 12_000) == []
    assert arguments(tmp_path) == ["--config", "c", "recall", "--budget", "6000000", "--context", "_", "--", "q"]
    with pytest.raises(Refused, match="1 to 1,048,576"):
        client.recall("q", 1_048_577)


HOSTILE = [
    "--type=secret",
    "-h",
    "--",
    "$(id)",
    "`id`",
    "a\nb\r\n",
    "' \" \\",
    "* ? ~ {content} {query}",
    "%s %n \\0",
    " ",
    "北京 🚀",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_content_is_one_argument(program, tmp_path, text):
    CommandClient.preset("cortex", binary=program("true"), config="c").store(text)
    assert arguments(tmp_path) == ["--config", "c", "store", "--scope", "permanent", "--type", "fact", "--", text]


def test_a_nul_character_is_refused_before_anything_is_started(program, tmp_path):
    with pytest.raises(Refused, match="null byte"):
        CommandClient.preset("cortex", binary=program("true")).store("a\0b")
    assert arguments(tmp_path) is None


def test_a_lone_surrogate_is_replaced(program, tmp_path):
    CommandClient.preset("cortex", binary=program("true")).store("lone \ud800 half")
    assert arguments(tmp_path)[-1] == "lone ? half"


def test_a_text_longer_than_an_argument_may_be_is_refused(program):
    with pytest.raises(Refused, match="an argument of 3,000,000 characters is longer"):
        CommandClient.preset("cortex", binary=program("true")).store("x" * 3_000_000)


def test_an_empty_query_is_refused(program, tmp_path):
    with pytest.raises(Refused, match="empty query"):
        CommandClient.preset("cortex", binary=program("echo '[]'")).recall("", 5)
    assert arguments(tmp_path) is None


@pytest.mark.parametrize(
    "said",
    [
        "",
        '{"memory": {"content": "a"}}',
        '"text"',
        '[{"memory":{"content":"a"}}] more',
        '[{"memory":{"content":5}}]',
        "[1]",
        '["a"]',
        '[{"memory":{"content":""}},{"memory":{}},{}]',
        '[{"content":"a"}]',
        "[" * 100_000,
        "[[[",
    ],
)
def test_output_that_is_not_what_cortex_writes_is_an_error(program, tmp_path, said):
    (tmp_path / "said").write_text(said)
    with pytest.raises(BadReply):
        CommandClient.preset("cortex", binary=program(f"cat {tmp_path}/said")).recall("q", 5)


def test_a_failing_program_is_not_believed_and_is_quoted_without_keys(program):
    client = CommandClient.preset(
        "cortex", binary=program("echo '[]'; echo 'no key sk-abcdefghijkl123456' >&2; exit 3")
    )
    with pytest.raises(Refused, match="recall ended with exit status 3: no key") as caught:
        client.recall("q", 5)
    assert "abcdefghijkl" not in str(caught.value)
    with pytest.raises(Refused, match=r"exit status 1: a{1000}$"):
        CommandClient.preset("cortex", binary=program("head -c 300000 /dev/zero | tr '\\0' a >&2; exit 1")).reset()
    with pytest.raises(Refused, match="signal 9"):
        CommandClient.preset("cortex", binary=program("kill -9 $$")).reset()


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"name": "other"}, "no preset"), ({"compat": "v9"}, "compat"), ({"config": "{query}"}, "placeholder")],
)
def test_presets_that_are_not_known(asked, said):
    with pytest.raises(BadInput, match=said):
        CommandClient.preset(**{"name": "cortex", **asked})


# Deadlines and what is left running
# ------------------------------------------------------------------------


def alive(pid):
    """Whether the process runs; one that has ended and was not yet collected by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid):
    for _ in range(200):
        if not alive(pid):
            return True
        time.sleep(0.01)
    return False


def noted_pid(folder):
    return int((folder / "pid").read_text())


def test_time_over_kills_what_the_program_started_too(program, tmp_path):
    """The grandchild holds the pipe for a minute; waiting for the end of the output would take as long."""
    client = CommandClient.preset("cortex", binary=program(f"sleep 60 & echo $! > {tmp_path}/pid; wait"), timeout=1.5)
    with pytest.raises(TimedOut, match=r"had not ended after 1\.5 s"):
        client.recall("q", 5)
    assert gone(noted_pid(tmp_path))


def test_a_grandchild_in_a_group_of_its_own_cannot_hold_the_caller(program, tmp_path):
    """It cannot be killed with the group, so what counts is that nobody waits for it: were it waited for, the call
    would take a minute.
    """
    client = CommandClient.preset(
        "cortex", binary=program(f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & sleep 60"), timeout=1.5
    )
    with pytest.raises(TimedOut):
        client.recall("q", 5)
    pid = noted_pid(tmp_path)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_output_is_complete_when_the_program_is_though_something_it_left_holds_the_pipe(program, tmp_path):
    script = f'sleep 60 & echo $! > {tmp_path}/pid; echo \'[{{"memory":{{"content":"a"}}}}]\''
    assert CommandClient.preset("cortex", binary=program(script)).recall("q", 5) == ["a"]
    pid = noted_pid(tmp_path)
    assert alive(pid)  # a server that the first call starts may go on
    os.kill(pid, signal.SIGKILL)


def test_the_end_of_the_example_is_the_end_of_the_call(program):
    client = CommandClient.preset("cortex", binary=program("exec sleep 60"))
    with open_ledger(Ledger(deadline=SYSTEM_CLOCK.monotonic() + 0.3)), pytest.raises(TimedOut):
        client.recall("q", 5)


def test_nothing_is_started_when_no_time_is_left(program, tmp_path):
    client = CommandClient.preset("cortex", binary=program("echo '[]'"))
    with open_ledger(Ledger(deadline=SYSTEM_CLOCK.monotonic() - 1)), pytest.raises(TimedOut, match="was not started"):
        client.recall("q", 5)
    assert arguments(tmp_path) is None


def test_endless_output_is_cut_off(program, monkeypatch, tmp_path):
    monkeypatch.setattr(_program, "LARGEST", 1_000_000)
    client = CommandClient.preset("cortex", binary=program(f"echo $$ > {tmp_path}/pid; exec yes"))
    with pytest.raises(BadReply, match="more than 1,000,000 bytes"):
        client.recall("q", 5)
    assert gone(noted_pid(tmp_path))


def test_large_output_and_much_noise_arrive_whole(program):
    many = "head -c 300000 /dev/zero | tr '\\0' a"
    script = f'{many} >&2; printf \'[{{"memory":{{"content":"\'; {many}; printf \'"}}}}]\''
    assert CommandClient.preset("cortex", binary=program(script)).recall("q", 5) == ["a" * 300_000]


def test_a_program_that_closes_its_output_is_still_waited_for(program, tmp_path):
    client = CommandClient.preset("cortex", binary=program(f"exec >&- 2>&-; sleep 0.2; echo done > {tmp_path}/done"))
    client.reset()
    assert (tmp_path / "done").exists()


def test_standard_input_reaches_the_program_and_may_be_ignored(program, tmp_path):
    text = "long " * 100_000
    path = program(f"cat > {tmp_path}/input")
    client = CommandClient(Command((path,), stdin="{content}"), Command((path, "{query}")))
    client.store(text)
    assert (tmp_path / "input").read_text() == text
    CommandClient(Command((program("exit 0"),), stdin="{content}"), Command((path,))).store(text)


# Any command line
# ------------------------------------------------------------------------

STORE = r"""
import json, sys
from pathlib import Path
folder, command, *rest = sys.argv[1:]
path = Path(folder) / "memories.json"
kept = json.loads(path.read_text()) if path.exists() else []
if command == "add":
    kept.append({"id": f"m{len(kept)}", "body": rest[1], "from": rest[0], "when": rest[2]})
    print(json.dumps({"created": {"id": kept[-1]["id"]}}))
elif command == "find":
    words = set(rest[1].lower().split())
    scored = [(len(words & set(one["body"].lower().split())), one) for one in kept]
    best = sorted(scored, key=lambda pair: -pair[0])[: int(rest[0])]
    print(json.dumps({"results": [{"note": one, "score": score} for score, one in best if score]}))
elif command == "drop":
    kept = [one for one in kept if one["id"] != rest[0]]
elif command == "clear":
    kept = []
path.write_text(json.dumps(kept))
"""


@pytest.fixture
def notes(tmp_path):
    """A description, in TOML, of a small program that keeps notes; one folder a namespace."""
    import sys

    script = tmp_path / "notes.py"
    script.write_text(STORE)
    start = f'"{sys.executable}", "{script}"'
    for name in ("context-bench", "other"):
        (tmp_path / name).mkdir()
    text = f"""
name = "notes"
timeout = 20
memory_id = "created.id"
store = [{start}, "{tmp_path}/{{namespace}}", "add", "{{id}}", "{{text}}", "{{time}}"]
recall = [{start}, "{tmp_path}/{{namespace}}", "find", "{{limit}}", "{{query}}"]
delete = [{start}, "{tmp_path}/{{namespace}}", "drop", "{{id}}"]
reset = {{argv = [{start}, "{tmp_path}/{{namespace}}", "clear"]}}
[output]
items = "results"
text = "note.body"
score = "score"
id = "note.id"
source = "note.from"
time = "note.when"
"""
    path = tmp_path / "notes.toml"
    path.write_text(text)
    return CommandClient.from_file(path)


def test_a_described_program_is_a_whole_memory(notes):
    assert isinstance(notes, Memory)
    assert isinstance(notes, Client)
    assert notes.capabilities == {
        "add", "search", "delete", "delete_all", "timestamps", "source_ids", "scores", "namespaces", "persistent",
    }  # fmt: skip
    receipts = notes.add(
        [Item("D1:1", "the heron is a boat", time="2024-05-01"), Item("D1:2", ""), Item("D1:3", "tea at noon")]
    )
    assert [(receipt.item_id, receipt.memory_id) for receipt in receipts] == [
        ("D1:1", "m0"),
        ("D1:2", None),
        ("D1:3", "m1"),
    ]
    assert "empty text" in receipts[1].error
    assert notes.search("which boat is the heron", 5) == [
        Hit("the heron is a boat", 4.0, ("D1:1",), "m0", "2024-05-01")
    ]
    notes.delete("m0")
    assert notes.search("which boat is the heron", 5) == []
    assert notes.namespace("other").search("tea", 5) == []
    assert notes.recall("tea", 5) == ["tea at noon"]
    notes.delete_all()
    assert notes.recall("tea", 5) == []
    with pytest.raises(NotSupported, match="no command to update"):
        notes.update("m1", "x")
    notes.flush(1.0)  # there is no command for it: what is stored is there


def test_a_name_that_the_command_gives_is_the_id():
    given = {"store": ["true", "{namespace}/{id}", "{text}"], "recall": ["true", "{query}"], "delete": ["true", "{id}"]}
    memory = CommandClient.from_dict({**given, "memory_id": "{namespace}/{id}"})
    assert "delete" in memory.capabilities
    assert memory.add([Item("D1:1", "the heron is a boat")]) == [Receipt("D1:1", "context-bench/D1:1")]
    with pytest.raises(BadSpec, match=r"`memory_id`: \{query\} is not known there"):
        CommandClient.from_dict({**given, "memory_id": "{query}"})


def test_a_store_that_fails_is_on_the_receipt(program):
    path = program("echo full >&2; exit 1")
    client = CommandClient(Command((path, "{content}")), Command((path, "{query}")))
    assert client.add([Item("a", "b")])[0].error == "Refused: command: store ended with exit status 1: full"


def test_lines(program):
    path = program("printf 'one\\n\\n  \\ntwo words\\n'")
    client = CommandClient(Command((path, "{content}")), Command((path, "{query}")), output=Output("lines"))
    assert client.recall("q", 5) == ["one", "two words"]
    assert client.recall("q", 1) == ["one"]


def test_entries_that_are_texts(program):
    path = program("""echo '["a", "b"]'""")
    assert CommandClient(Command((path, "{content}")), Command((path, "{query}")), output=Output(text="")).recall(
        "q", 5
    ) == ["a", "b"]


def test_without_namespaces_there_is_no_twin():
    client = CommandClient.preset("cortex")
    assert client.capabilities == {"add", "search", "delete_all", "persistent"}
    with pytest.raises(NotSupported, match="namespace"):
        client.namespace("a")


def test_the_fingerprint_tells_what_matters():
    one = CommandClient.preset("cortex")
    assert one.fingerprint() == CommandClient.preset("cortex", timeout=1).fingerprint()
    assert one.fingerprint() != CommandClient.preset("cortex", compat="v0.10").fingerprint()
    assert json.loads(json.dumps(one.fingerprint()))["class"] == "CommandClient"


def test_a_description_in_yaml(tmp_path):
    path = tmp_path / "notes.yaml"
    path.write_text('store: [notes, add, "{content}"]\nrecall: [notes, find, "{query}"]\n')
    assert CommandClient.from_file(path).store_command == Command(("notes", "add", "{content}"))


@pytest.mark.parametrize(
    ("name", "text"), [("a.toml", "store = ["), ("a.yaml", "a: [b"), ("a.toml", "\udcff"), ("a.yaml", "[1, 2]")]
)
def test_files_that_cannot_be_read(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInput):
        CommandClient.from_file(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="cannot read"):
        CommandClient.from_file(tmp_path / "none.toml")


GOOD = {"store": ["n", "{content}"], "recall": ["n", "{query}"]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"store": None}, "`store` is expected to be a list"),
        ({"store": "n {content}"}, "`store` is expected to be a list"),
        ({"recall": ["n", "{limit}"]}, "never says {query}"),
        ({"recall": ["n", "{query}", "{content}"]}, "{content} is not known there"),
        ({"recall": {"argv": ["n", "{query}"], "shell": True}}, "'shell' is not known"),
        ({"timeout": 0}, "`timeout` is expected"),
        ({"timeout": "30"}, "`timeout` is expected"),
        ({"max_limit": 1.5}, "`max_limit` is expected"),
        ({"name": 3}, "`name` is expected to be text"),
        ({"colour": "red"}, "`colour` is not known"),
        ({"output": "json"}, "`output` is expected to be a table"),
        ({"output": {"format": "xml"}}, "json or lines"),
        ({"output": {"path": "a"}}, "'path' is not known"),
        ({"output": {"text": 3}}, "text is expected to be text"),
    ],
)
def test_faults_of_a_description_are_named(change, said):
    with pytest.raises(BadSpec) as caught:
        CommandClient.from_dict({**GOOD, **change}, "notes.toml")
    assert said in str(caught.value)


def test_all_faults_are_named_at_once():
    with pytest.raises(BadSpec) as caught:
        CommandClient.from_dict({"timeout": -1})
    assert len(caught.value.faults) == 3


words = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)


@given(st.lists(words, min_size=1, max_size=3), words, words)
def test_what_is_put_in_is_never_looked_at_again(template, query, limit):
    command = Command(tuple(word.replace("{", "").replace("}", "") + "{query}{limit}" for word in template))
    argv, _ = command.filled({"query": query, "limit": limit})
    assert [word.removesuffix(query + limit) for word in argv] == [
        word.replace("{", "").replace("}", "") for word in template
    ]


def test_quoting_is_nobodys_business(program, tmp_path):
    """An argument that would be two words in a shell stays one."""
    client = CommandClient(Command((program("true"), "--text={content}")), Command(("x", "{query}")))
    client.store("two words; rm")
    assert arguments(tmp_path) == ["--text=two words; rm"]
    assert shlex.split("--text=two words; rm") != arguments(tmp_path)


# On the command line of context-bench
# ------------------------------------------------------------------------


def test_a_spec_names_the_preset_or_a_file(tmp_path):
    found = from_spec("preset=cortex,binary=/opt/c=1,config=own.yaml,timeout=2.5,compat=v0.10")
    assert found == CommandClient.preset("cortex", binary="/opt/c=1", config="own.yaml", timeout=2.5, compat="v0.10")
    assert from_spec("preset=cortex,wipe=yes") == CommandClient.preset("cortex")
    path = tmp_path / "n.toml"
    path.write_text('store = ["n", "{content}"]\nrecall = ["n", "{query}"]\n')
    assert from_spec(str(path)).recall_command.argv == ("n", "{query}")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("", "is expected to name a file"),
        ("preset=cortex", "would empty the store"),
        ("preset=cortex,binary=x", "would empty the store"),
        ("preset=other,wipe=yes", "no preset 'other'"),
        ("preset=cortex,wipe=yes,timeout=soon", "timeout is expected"),
        ("preset=cortex,wipe=yes,timeout=-1", "timeout is expected"),
        ("preset=cortex,wipe=yes,timeout=nan", "timeout is expected"),
        ("preset=cortex,wipe=yes,colour=red", "colour not known"),
    ],
)
def test_specs_that_are_refused(target, said):
    with pytest.raises(BadInput, match=said):
        from_spec(target)


def test_dates_are_in_the_text_where_the_command_line_has_no_place_for_them(program, tmp_path):
    path = program("true")
    item = Item("D1:1", "tea at noon", speaker="Ann", time="2024-05-01", session="1")
    CommandClient(Command((path, "{content}")), Command((path, "{query}"))).add([item])
    assert arguments(tmp_path) == ["[2024-05-01] Ann: tea at noon"]
    CommandClient(Command((path, "{content}", "{time}", "{session}")), Command((path, "{query}"))).add([item])
    assert arguments(tmp_path) == ["Ann: tea at noon", "2024-05-01", "1"]
