"""Shell commands that are short and would become large or endless: each a text of about so many parts, and what it
printed.
"""

from __future__ import annotations

from collections.abc import Callable

A = "a" * 40
#: What the bombs find: lines that patterns take long over, a file of many lines, one long line, names with many equal
#: letters.
FILES = {
    "one.txt": (A + "\n").encode() * 40,
    "many.txt": b"x = 1\n" * 3_000,
    "long.txt": b"a" * 200_000 + b"\n",
    **{f"dir/{'a' * 30}/{'a' * 20}{number}.py": b"x\n" for number in range(200)},
}

Shape = Callable[[int], str]


def _twice(step: str, first: str) -> Shape:
    """Each step makes what was there twice as large."""
    return lambda n: first + step * n


SHAPES: dict[str, Shape] = {
    # braces
    "braces side by side": lambda n: "cat " + "{a,b}" * n,
    "braces in braces": lambda n: "cat " + "{a," * n + "b" + "}" * n,
    "braces in braces, on both sides": lambda n: "cat " + "{{a,b}," * n + "c" + "}" * n,
    "braces that open only": lambda n: "cat " + "{a," * n,
    "braces that close only": lambda n: "cat " + ",a}" * n,
    "braces of one": lambda n: "cat " + "{a}" * n,
    "braces of nothing": lambda n: "cat " + "{,}" * n,
    "braces quoted": lambda n: "cat " + "\\{a,b\\}" * n,
    "ranges side by side": lambda n: "cat " + "{1..1000}" * n,
    "ranges upside down": lambda n: "cat " + "{999999..999000}" * n,
    "ranges in a loop": lambda n: "for i in {1..300}; do " * min(n, 9) + "cat a{1..90}; " + "done; " * min(n, 9),
    # variables and sums
    "a variable twice": _twice('A="$A$A"; ', "A=x; "),
    "a variable and itself": _twice("A+=$A; ", "A=x; "),
    "a variable twice, by default": _twice("A=${A:-x}${A:-x}; ", "A=x; "),
    "a variable trimmed": lambda n: "A=" + "a" * n + "; echo ${A%%*a*a*a*b} ${A##*a*a*a*b}",
    "a variable in many words": lambda n: "A=" + "a" * n + "; cat" + " $A" * n,
    "a variable split": lambda n: 'A="' + "a " * n + '"; cat' + " $A" * (n // 8 + 1),
    "a string of variables": lambda n: 'A=a; echo "' + "$A" * n * 10 + '"',
    "sums": _twice("A=$((A*A)); ", "A=99; "),
    "sums in sums": lambda n: "echo " + "$((1+" * n + "1" + "))" * n,
    "arguments": lambda n: "f() { " * 2 + "f $@ $@; " + "}; " * 2 + "f " + "a " * n,
    "a function that calls itself": lambda n: "f() { f; f; }; f" + "; f" * n,
    "functions of functions": lambda n: "f0() { echo a; }; " + "".join(f"f{i + 1}() {{ f{i}; f{i}; }}; " for i in range(n)) + f"f{n}",  # noqa: E501
    # substitutions
    "what a command printed, twice": _twice("A=$(echo $A $A); ", "A=x; "),
    "substitutions in substitutions": lambda n: "echo " + "$(echo " * n + "a" + ")" * n,
    "substitutions side by side": lambda n: "cat " + "$(cat one.txt)" * n,
    "captured texts": lambda n: "".join(f"A{i}=$(cat one.txt); " for i in range(n)) + 'echo "$A1"; ' * n,
    "a file of pipes": lambda n: "cat " + "<(cat many.txt) " * n,
    "eval of eval": lambda n: "eval " * n + "cat one.txt",
    "bash of bash": lambda n: "bash -c '" + "cat one.txt; " * n + "'",
    # files and streams
    "standard input twice": lambda n: "cat many.txt" + " | cat - -" * n,
    "a file twice": _twice("cat b b > c; cat c c > b; ", "cat one.txt > b; "),
    "a file appended to itself": _twice("cat b >> b; ", "cat one.txt > b; "),
    "tee": _twice("cat b b | tee b c; ", "cat one.txt > b; "),
    "one file very often": lambda n: "cat" + " many.txt" * n,
    "columns": lambda n: "paste many.txt" + " /dev/null" * n,
    "a document here": lambda n: "cat <<EOF\n" + "a\n" * n + "EOF\n",
    "documents here, in a loop": lambda n: "for i in {1..300}; do cat <<EOF\n" + "a\n" * n + "EOF\ndone",
    "a text here": lambda n: "cat <<< " + "a" * n,
    "heads of nothing known": lambda n: "head -n 99999" + " no/a.py" * n,
    # names
    "a long word": lambda n: "cat " + "a" * (n * 50),
    "a long name with dots": lambda n: "python -c '" + "a." * n + "/" * n + "'",
    "a long name quoted": lambda n: "perl '-" + "i" * n + " x'",
    "globs": lambda n: "cat " + "*/*/*a " * n,
    "a glob of stars": lambda n: "ls dir/" + "a" * 20 + "*a" * n + "*b/*",
    "stars of find": lambda n: "find . -name '" + "*a" * n + "*b'",
    "a case of stars": lambda n: "case " + "a" * n * 4 + " in " + "*a" * n + "*b) cat one.txt;; esac",
    "patterns of a case": lambda n: "case x in " + "a|" * n * 4 + "a) cat one.txt;; esac",
    "stars of two levels": lambda n: "find . -path '" + "**/" * n + "b'",
    "braces of ripgrep": lambda n: "rg --files -g '" + "{a,b}" * n + "'",
    "folders": lambda n: "cd dir; " * n + "cat a.py",
    "find from everywhere": lambda n: "find" + " ." * n + " -name x",
    "find with not": lambda n: "find . " + "! " * n + "-name x",
    "commands of find": lambda n: "find . -exec echo " + "{}" * n + " \\;",
    "items of xargs": lambda n: "echo " + "a" * n + " | xargs -I a echo " + "a" * n,
    # programs and patterns
    "a pattern of maybes": lambda n: "grep -E '" + "a?" * n + "a" * n + "b' one.txt",
    "a pattern of repeats": lambda n: "grep -E '" + "(a|a)*" * n + "b' one.txt",
    "a pattern of repeats in repeats": lambda n: "grep -E '" + "(" * n + "a" + "*)" * n + "b' one.txt",
    "a pattern of counts": lambda n: "grep -E '" + "(a|aa){2,9}" * n + "b' one.txt",
    "a pattern for a long line": lambda n: "grep 'a*a*b' " + "long.txt " * (n // 16 + 1),
    "a pattern of a negative": lambda n: "grep -P '" + "(?:a+)+" * n + "(?!a)b' one.txt",
    "a pattern that refers back": lambda n: "grep -P '" + "(a*)*" * min(n, 40) + "\\1b' one.txt",
    "lines around": lambda n: "grep -C " + "9" * min(n, 8) + " x many.txt",
    "a pattern of sed": lambda n: "sed -n '" + "/a*a*a*a*b/p;" * n + "' one.txt",
    "sed that makes more": lambda n: "cat one.txt" + " | sed 's/a/aaaaaaaa/g'" * n,
    "sed that says it again": lambda n: "sed 's/.*/" + "&" * n + "/' long.txt",
    "commands of sed": lambda n: "sed '" + "p;" * n + "' many.txt",
    "blocks of sed": lambda n: "sed '" + "{" * n + "p" + "}" * n + "' one.txt",
    "rules of awk": lambda n: "awk '" + "1;" * n + "' many.txt",
    "awk that says it again": lambda n: "awk '{print " + "$0 " * n + "}' long.txt",
    "a width of awk": lambda n: "awk '{printf \"%" + "9" * min(n, 20) + "s\\n\", $0}' one.txt",
    "a pattern of awk": lambda n: "awk '/" + "(a|a)*" * n + "b/' one.txt",
    "a width of nl": lambda n: "nl -w " + "9" * min(n, 9) + " one.txt",
    "fields of cut": lambda n: "cut -c " + "1-," * n + "1 many.txt",
    "letters of options": lambda n: "cat -" + "a" * n * 50,
    "many options": lambda n: "echo" + " -n" * n * 10,
    "many variables of env": lambda n: "env" + " A=1" * n * 10 + " cat one.txt",
    # grammar
    "loops in loops": lambda n: "for i in a b c d; do " * n + "cat one.txt; " + "done; " * n,
    "lines that are read": lambda n: "cat one.txt | while read -r x; do " * n + "cat one.txt; " + "done; " * n,
    "conditions": lambda n: "if [ -f one.txt ]; then " * n + "cat one.txt; " + "fi; " * n,
    "conditions nobody knows": lambda n: "if foo; then cat one.txt; else cat many.txt; " * n + "fi; " * n,
    "brackets": lambda n: "(" * n + "cat one.txt" + ")" * n,
    "redirections of nothing": lambda n: "<a>" * n * 10,
    "cases that never end": lambda n: "case a in a) b;;\n" * n * 4,
    "quotes": lambda n: "cat " + "\"'" * n,
    "backticks": lambda n: "echo " + "`" * n,
    "pipes": lambda n: "cat many.txt" + " | sort" * n,
    "lists": lambda n: "true && " * n + "cat one.txt",
    "redirections": lambda n: "cat one.txt" + " > b" * n,
    "here-documents that never end": lambda n: "cat <<EOF\n" * n,
}  # fmt: skip

#: Commands whose output is long: (command, what it printed).
OUTPUTS: dict[str, Callable[[int], tuple[str, str]]] = {
    "equal lines": lambda n: ("cat many.txt", "x = 1\n" * n + "y\n"),
    "equal lines and others": lambda n: ("cat many.txt", "x = 1\ny\n" * n),
    "equal lines in another order": lambda n: ("sort many.txt", "x = 1\n" * n),
    "equal lines between unknown ones": lambda n: ("foo; cat many.txt; foo", "x = 1\n" * n),
    "marks of cuts": lambda n: ("cat many.txt", "...\n" * n),
    "blank lines": lambda n: ("cat many.txt", "x = 1\n...\n" + "\n" * n),
    "numbers": lambda n: ("grep -rn x .", "a-1-" * n),
    "complaints": lambda n: ("cat a", "x: a: " * n + "No such file or directory\n"),
    "a long line": lambda n: ("foo a", "a" * n * 20),
    "differences": lambda n: ("diff one.txt many.txt", "@@ -1,9 +1,9 @@\n x\n" * n),
}
