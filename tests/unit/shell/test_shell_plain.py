"""Single plain commands are split without the parser; the parser splits them the same way."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings, strategies as st

from context_bench.shell.files import Files
from context_bench.shell.running import Shell, _parser
from context_bench.shell.words import plain_words, spelled

NAMES = st.sampled_from(
    [
        "cat",
        "sed",
        "grep",
        "find",
        "git",
        "python3",
        "x-y",
        "a.b",
        "_t",
        "test",
        "time",
        "export",
        "if",
        "in",
        "true",
        "then",
    ]
)
BARE = st.text("abzAZ019_./,:+-=xU%@^#!~*", min_size=1, max_size=9)
INNER = st.text([chr(code) for code in range(0x20, 0x7F)], max_size=14)
WORDS = st.one_of(
    BARE,
    INNER.map(lambda text: f"'{text}'"),
    INNER.map(lambda text: f'"{text}"'),
    st.sampled_from(
        [
            "-n",
            "-A3",
            "--include=a.py",
            "1,5p",
            "30",
            "-",
            "--",
            ".",
            "..",
            "a:b",
            "12:",
            "+3",
            "''",
            '""',
            "do",
            "time",
            "-f=",
        ]
    ),
)


@settings(max_examples=800, deadline=None)
@given(NAMES, st.lists(WORDS, max_size=5), st.sampled_from(["", " ", "  ", "\n"]))
@example("sed", ["-n", "'1,5p'", "src/a.py"], "")
@example("grep", ["-rn", '"def f(x):"', "."], "")
def test_where_no_parser_is_asked_the_parser_says_the_same(name: str, words: list[str], end: str) -> None:
    text = " ".join([name, *words]) + end
    found = plain_words(text)
    if found is None:
        return
    root = _parser().parse(spelled(text)).root_node
    assert not root.has_error
    (command,) = root.named_children
    assert command.type == "command"
    assert {child.type for child in command.named_children} <= {
        "command_name",
        "word",
        "number",
        "string",
        "raw_string",
    }
    assert Shell(Files(None, "", None)).words.args(command.named_children) == found


@pytest.mark.parametrize(
    "text",
    [
        "cat a | head",
        "cat a > b",
        "A=1 cat a",
        "cat $A",
        "cat *.py",
        "cat a b\\ c",
        "cat ~/a",
        "if a",
        "cat a'b'",
        "",
        " cat",
        "cat\ta",
        "a;b",
        "a&",
        "cat {a,b}",
        "cat é",
    ],
)
def test_what_is_more_than_plain_goes_to_the_parser(text: str) -> None:
    assert plain_words(text) is None


def test_plain_commands_are_split() -> None:
    assert plain_words("sed -n '1,5p' src/a.py") == ["sed", "-n", "1,5p", "src/a.py"]
    assert plain_words('grep -n "a b" x') == ["grep", "-n", "a b", "x"]
    assert plain_words("pwd") == ["pwd"]
