from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings, strategies as st

from context_bench.shell.repo import Snapshot
from context_bench.traces import symbols
from context_bench.traces.coverage import POLICIES, Selection, score
from context_bench.traces.gold import Gold, GoldItem
from context_bench.traces.symbols import CodeFiles, definitions, grammar_versions, language_of

CODE = {
    "a.go": (
        b"package a\ntype (\n\tOne struct{ x int }\n\tTwo int\n)\nfunc (s *One) Push() {}\n",
        {"One", "Two", "Push"},
    ),
    "a.rs": (b"struct Q<T>(T);\nimpl<T> Q<T> { fn new() {} }\n", {"Q", "new"}),
    "a.c": (b"struct n { int v; };\nstruct n *f(struct n *x) { return x; }\n", {"n", "f"}),
    "a.cs": (b"class A { void M() {} }\ninterface I {}\n", {"A", "M", "I"}),
    "a.php": (b"<?php function f() {} class C { function m() {} }\n", {"f", "C", "m"}),
    "a.rb": (b"module M\n class C\n  def m\n  end\n end\nend\n", {"M", "C", "m"}),
    "a.kt": (b"class A { fun run(): Int { return 1 } }\n", {"A", "run"}),
    "a.scala": (b"trait R { def run(): Int }\nclass A { def go(): Int = 1 }\n", {"R", "A", "go"}),
    "a.java": (b"class A { A() {} int m() { return 1; } interface I {} }\n", {"A", "m", "I"}),
    "a.cpp": (b"class A; class B { void m() {} };\n", {"B", "m"}),
    "a.tsx": (b"interface P {}\nfunction V() { return <b/>; }\n", {"P", "V"}),
    "a.swift": (b"class A { func run() -> Int { return 1 } }\n", {"A", "run"}),
    "A.PY": (b"@d\nclass A:\n    async def m(self): pass\n", {"A", "m"}),
}


@pytest.mark.parametrize("path", CODE)
def test_names_of_definitions(path):
    data, wanted = CODE[path]
    assert {name for one in definitions(data, path) for name in one.names} == wanted


def test_a_mention_of_a_struct_is_a_definition_only_for_the_original():
    data, _ = CODE["a.c"]
    kinds = {
        profile: [one.kind for one in definitions(data, "a.c", profile)].count("struct_specifier")
        for profile in ("definitions", "contextbench-v1")
    }
    assert kinds == {"definitions": 1, "contextbench-v1": 3}


def test_the_full_profile_counts_what_the_original_leaves_out():
    data = b"enum E { A }\ntype T = number;\nconst f = () => 1;\n[1].map(() => 2);\nabstract class C {}\n"
    assert {name for one in definitions(data, "a.ts", "full") for name in one.names} == {"E", "T", "f", "C"}
    assert definitions(data, "a.ts") == []
    assert definitions(data, "a.mts") == []
    assert len(definitions(data, "a.mts", "full")) == 4
    assert [one.names for one in definitions(b"go() { ls; }\nfunction stop { :; }\n", "x.sh", "full")] == [
        ("go",),
        ("stop",),
    ]
    assert definitions(b"go() { ls; }\n", "x.sh") == []
    with pytest.raises(ValueError, match="profile"):
        definitions(data, "a.ts", "everything")


@settings(max_examples=60)
@given(
    st.binary(max_size=200) | st.text(alphabet="def class({[:\n '\"ü", max_size=200).map(str.encode),
    st.sampled_from(sorted(CODE)),
)
def test_any_bytes_are_read_and_definitions_lie_in_them(data, path):
    for one in definitions(data, path, "full"):
        assert 0 <= one.start < one.end <= len(data)


def test_a_file_is_parsed_once_and_found_again_in_the_cache(tmp_path):
    data, _ = CODE["a.rb"]
    first = CodeFiles(Snapshot({"a.rb": data, "x.md": b"#", "e.py": b""}), tmp_path)
    found = first.definitions("a.rb", "definitions")
    assert [one.kind for one in found] == ["module", "class", "method"]
    assert first.definitions("a.rb", "definitions") is found
    assert [list(first.definitions(path, "definitions")) for path in ("x.md", "e.py", "gone.py")] == [[], [], []]
    (kept,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    again = CodeFiles(Snapshot({"other.rb": data}), tmp_path)
    assert list(again.definitions("other.rb", "definitions")) == list(found)
    kept.write_bytes(kept.read_bytes().replace(b'"method"', b'"marked"'))
    marked = CodeFiles(Snapshot({"a.rb": data}), tmp_path).definitions("a.rb", "definitions")
    assert [one.kind for one in marked] == ["module", "class", "marked"]
    kept.write_bytes(b"not JSON")
    assert list(CodeFiles(Snapshot({"a.rb": data}), tmp_path).definitions("a.rb", "definitions")) == list(found)


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path):
    (tmp_path / "file").write_text("")
    assert CodeFiles(Snapshot({"a.py": b"def f(): pass\n"}), tmp_path / "file").definitions("a.py", "definitions")


def test_without_the_grammar_wheels_nothing_is_known(monkeypatch):
    monkeypatch.setitem(sys.modules, "tree_sitter", None)  # importing it fails, as where it is not installed
    symbols._language.cache_clear()
    symbols._tools.cache_clear()
    try:
        assert definitions(b"def f(): pass\n", "a.py") is None
        assert definitions(b"text", "a.txt") == []
        files = CodeFiles(Snapshot({"a.py": b"def f(): pass\n"}))
        assert files.definitions("a.py", "definitions") is None
        assert files.table("a.py").lines == 1
    finally:
        symbols._language.cache_clear()
        symbols._tools.cache_clear()


def test_every_ending_has_a_grammar_installed():
    languages = {language_of(f"x{ending}", "full") for ending in (*symbols._BY_ENDING, *symbols._MORE_ENDINGS)}
    assert None not in languages
    assert all(symbols._language(name) is not None for name in languages)
    assert "tree-sitter" in grammar_versions()


def test_a_policy_says_what_counts_as_a_definition():
    files = CodeFiles(Snapshot({"a.rs": b"enum E {\n  A,\n}\nfn f() {\n}\n"}))
    gold = Gold("i", [GoldItem("a.rs", 1, 5)])
    seen = {
        name: score(gold, [Selection(spans=[("a.rs", [(4, 4)])])], files, policy=POLICIES[name])
        for name in ("strict", "strict-full")
    }
    assert {name: one.final["symbol"].coverage for name, one in seen.items()} == {"strict": 1.0, "strict-full": 0.5}
    assert seen["strict-full"].to_row()["policy"] == "strict-full"
