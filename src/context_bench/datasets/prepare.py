"""The few datasets whose rows need a function before `[fields]` can read them, one function each, named by `prepare` in
their TOML.

A function takes the raw rows, in order and perhaps not all of them, and a `RowSource`; it gives the rows that
`[fields]` then reads. It must be repeatable: what it chooses, it chooses by `chance(source.seed, …)`. It yields as it
reads, so that `-n` stays cheap.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from context_bench.core.keys import stable_hash

Row = Mapping[str, Any]


class RowSource(Protocol):
    """The files that a function needs besides the rows.

    `config` is what stands for `{config}` in the names of files, by default or by what was asked for after the colon.
    `seed` is that of the run.
    """

    @property
    def config(self) -> str | None: ...

    @property
    def split(self) -> str: ...

    @property
    def seed(self) -> int: ...

    def paths(self, pattern: str) -> list[str]:
        """Paths of the repository's files that match, sorted; none is an error."""

    def text(self, path: str) -> str:
        """The whole of one file, as UTF-8."""

    def rows(self, pattern: str) -> Iterator[Row]:
        """All rows of the files that match, read as data files are."""


Prepare = Callable[[Iterator[Row], RowSource], Iterator[Row]]

FUNCTIONS: dict[str, Prepare] = {}
LETTERS = "ABCDEFGHIJ"  # of choices; there are at most ten


def prepares(function: Prepare) -> Prepare:
    """Register `function` under its own name for `prepare = "…"`."""
    FUNCTIONS[function.__name__] = function
    return function


def lettered(choices: Any) -> str:
    """`A) one  B) two`: at most ten choices, two spaces between."""
    items = choices if is_list(choices) else []
    return "  ".join(f"{letter}) {text_of(item)}" for letter, item in zip(LETTERS, items, strict=False))


def is_list(value: Any) -> bool:
    """A list of any kind, but no text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def text_of(value: Any) -> str:
    """A value as part of a text; an absent one is empty."""
    return "" if value is None else str(value)


def chance(*parts: Any) -> random.Random:
    """Random choices that depend on `parts` alone: the same on every machine, in every process."""
    return random.Random(int(stable_hash(list(parts), 16), 16))


# --- sets with a context ---


@prepares
def triviaqa(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `evidence`: what the search found, else the pages of the entities; a question without either is its own text
    to read.
    """
    for row in rows:
        texts = (
            (row.get("search_results") or {}).get("search_context")
            or (row.get("entity_pages") or {}).get("wiki_context")
            or []
        )
        yield {**row, "evidence": [text for text in texts if text] or [row["question"]]}


@prepares
def qasper(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """One row for each question about a paper: `key`, `paper` (the whole text), `question`, `golds` (one of each
    annotator).
    """
    for row in rows:
        text = row["full_text"]
        sections = zip(text["section_name"], text["paragraphs"], strict=False)
        parts = [
            row["title"],
            row["abstract"],
            *(part for name, paragraphs in sections for part in (name, *paragraphs)),
        ]
        paper = "\n\n".join(part.strip() for part in parts if part and part.strip())
        asked = row["qas"]
        for i, (question, answers) in enumerate(zip(asked["question"], asked["answers"], strict=True)):
            golds = [_qasper_gold(answer) for answer in answers["answer"]]
            yield {"key": f"{row['id']}_{i}", "id": row["id"], "paper": paper, "question": question, "golds": golds}


def _qasper_gold(answer: Row) -> str:
    """The order is that of the authors' own evaluator."""
    if answer.get("unanswerable"):
        return "Unanswerable"
    if spans := answer.get("extractive_spans"):
        return ", ".join(spans)
    if text := answer.get("free_form_answer"):
        return str(text)
    return {True: "Yes", False: "No"}.get(answer.get("yes_no"), "")  # type: ignore[arg-type]


@prepares
def longbench(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `task`: the question, or what is to be done with the text where the rows do not say."""
    for row in rows:
        yield {**row, "task": row["input"] or _LONGBENCH_TASKS.get(source.config or "", "")}


_LONGBENCH_TASKS = {
    "gov_report": "Summarize the government report.",
    "multi_news": "Summarize the news articles.",
    "vcsum": "请总结这次会议的内容。",
    "passage_count": "Some of the paragraphs are repeated. How many different paragraphs are there? Answer with the "
    "number alone.",
    "lcc": "Write the next line of the code.",
}


@prepares
def longbench_v2(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `choices`, the four columns as one list."""
    for row in rows:
        yield {**row, "choices": [row[f"choice_{letter}"] for letter in "ABCD"]}


@prepares
def infinitebench(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `task` (the question, with the options where there are some), `golds` and, with options, the `position` of
    the right one.
    """
    for row in rows:
        golds = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
        if source.config == "math_calc":  # one answer: all the intermediate results
            golds = [" ".join(map(str, golds))]
        task = row["input"] or _INFINITEBENCH_TASKS.get(source.config or "", "")
        changed = {**row, "task": task, "golds": golds}
        if options := row.get("options"):
            right = next((gold for gold in golds if gold in options), None)
            changed |= {
                "task": f"{task}\n\n{lettered(options)}".strip(),
                "choices": options,
                "golds": golds if right is None else [right],
            }
            changed["position"] = options.index(right) if right is not None else None
        yield changed


_INFINITEBENCH_TASKS = {
    "longbook_sum_eng": "Summarize the book.",
    "longdialogue_qa_eng": 'In one place of the script the name of the speaker is hidden by "$$MASK$$". Who speaks '
    "there?",
    "code_debug": "In which of these functions is there an obvious error?",
    "math_calc": "Work the expression out from left to right. Give the value after each operation, in order.",
}


@prepares
def nolima(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """One row for each test of a needle and each kind of question: the needle stands on a line of its own in one of the
    books.

    Which book, which line and which of the names are chosen by seed and id, so that seeds go through them all.
    """
    books = source.paths("haystack/rand_shuffle/*.txt")
    lines: dict[str, list[str]] = {}
    for needle in rows:
        for test, given in needle["tests"].items():
            for hop, question in needle["questions"].items():
                key = f"{needle['id']}_{test}_{hop}"
                # Both kinds of question are asked of the same text.
                pick = chance(source.seed, "nolima", needle["id"], test)
                book, names = pick.choice(books), needle.get("character_set") or []
                name = pick.choice(names) if names else ""
                slots = {"CHAR": name, **{str(i): value for i, value in enumerate(given["input_args"], 1)}}
                lines.setdefault(book, source.text(book).split("\n"))
                place = pick.randrange(len(lines[book]) + 1)
                text = "\n".join([*lines[book][:place], _filled(needle["needle"], slots), *lines[book][place:]])
                golds = given.get("gold_answers") or [name]
                more = {
                    "key": key,
                    "pair": f"{needle['id']}_{test}",
                    "text": text,
                    "question": _filled(question, slots),
                    "golds": golds,
                }
                yield {
                    **more,
                    "hop": hop,
                    "book": book.rpartition("/")[2],
                    "place": place,
                    "kind": needle.get("reasoning_type"),
                }


def _filled(text: str, slots: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda slot: slots.get(slot[1], slot[0]), text)


@prepares
def bfcl(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `functions` (indented JSON), `asked` (what the user says, and the form of the answer), `expected` calls and
    `gold` text.

    Right calls stand with the executable rows as Python, for the others in files of their own, as accepted values of
    each parameter.
    """
    answers: dict[str, Any] = {}
    for row in rows:
        truth = row.get("ground_truth")
        if truth is None:
            if not answers:
                accepted = source.rows("possible_answer/BFCL_v3_live_*.json")
                answers = {answer["id"]: answer["ground_truth"] for answer in accepted}
            calls = answers.get(row["id"], ())
            expected = [{"name": name, "arguments": given} for call in calls for name, given in call.items()]
        else:
            expected = [call for text in truth if (call := _python_call(text, row["function"]))]
        messages = [message["content"] for turn in row["question"] for message in turn]
        first = truth[0] if truth else expected[0]["name"] if expected else row["function"][0]["name"]
        more = {
            "functions": json.dumps(row["function"], indent=2, ensure_ascii=False),
            "asked": "\n\n".join([*messages, _CALLS_WANTED]),
        }
        gold = first if isinstance(first, str) else json.dumps(first, ensure_ascii=False)
        yield {**row, **more, "gold": gold, "expected": expected or None}


def _python_call(text: Any, functions: list[Row]) -> dict[str, Any] | None:
    """`f(1, b="x")` as a name and one accepted value for each argument; `None` where it is not written in literals."""
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        name = ast.unparse(call.func)
        names = next((list(f["parameters"]["properties"]) for f in functions if f["name"] == name), [])
        given = {parameter: ast.literal_eval(value) for parameter, value in zip(names, call.args, strict=False)}
        given |= {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return {"name": name, "arguments": {parameter: [value] for parameter, value in given.items()}}


@prepares
def multi_news(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Articles and summaries stand line by line in two files."""
    summaries = source.rows(f"data/{source.split}.tgt")
    for row, summary in zip(rows, summaries, strict=False):
        yield {"document": row["text"].strip().replace("NEWLINE_CHAR", "\n"), "summary": summary["text"].strip()}


@prepares
def dialogsum(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """One row for each dialogue: rows that follow one another with the same one are its several `summaries`."""
    for _, group in groupby(rows, key=lambda row: row["dialogue"]):
        same = list(group)
        yield {**same[0], "summaries": [row["summary"] for row in same]}


# --- sets without a context ---


@prepares
def arc_challenge(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `position`, that of the choice which the key names; a row whose key names none is left out. Keys and labels
    may be digits.
    """
    letters = dict(zip("12345", "ABCDE", strict=True))
    for row in rows:
        labels = [letters.get(label, label) for label in row["choices"]["label"]]
        key = letters.get(row["answerKey"], row["answerKey"])
        if key in labels:
            yield {**row, "position": labels.index(key)}


@prepares
def gpqa(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `choices` in an order that depends on the seed and the record's own id alone, and the right one's
    `position`.
    """
    for row in rows:
        given = [row[column].strip() for column in ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))]
        order = list(range(len(given)))
        chance(source.seed, "gpqa", row["Record ID"]).shuffle(order)
        yield {
            **row,
            "Question": row["Question"].strip(),
            "choices": [given[i] for i in order],
            "position": order.index(0),
        }


@prepares
def hellaswag(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Texts without the marks that how-to articles were cut up by."""
    for row in rows:
        yield {**row, "ctx": _unmarked(row["ctx"]), "endings": [_unmarked(ending) for ending in row["endings"]]}


def _unmarked(text: str) -> str:
    # A title is a heading: with its mark gone, a full stop must keep it apart from what stands before.
    text = re.sub(r"([^\s.!?:;,])\s*\[title\]", r"\1.", text)
    return " ".join(re.sub(r"\[(?:header|title|step|substeps)\]", " ", text).split())


@prepares
def last_box(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `boxed`: what the last box of the solution holds, or the solution where it has none."""
    for row in rows:
        boxed = _last_box(row["solution"])
        yield {**row, "boxed": row["solution"] if boxed is None else boxed}


def _last_box(text: str) -> str | None:
    marks = list(re.finditer(r"\\f?box(?:ed)?(?![a-z])\s*", text))
    if not marks:
        return None
    rest = text[marks[-1].end() :]
    if not rest.startswith("{"):
        return re.split(r"[\s$]", rest, maxsplit=1)[0]
    depth = 0
    for sign in re.finditer(r"\\.|[{}]", rest, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0:
            return rest[1 : sign.start()].strip()
    return None


@prepares
def mbpp(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `task`, the prompt with the function's name and the tests, and `test_setup_code`, the tests' imports."""
    for row in rows:
        setup = "\n".join(row["test_imports"])
        tests = "\n".join([*([setup] if setup else []), *row["test_list"]])
        name = _tested_name(row["code"], "\n".join(row["test_list"]))
        must = f"The function's name is `{name}`. These tests must pass:" if name else "These tests must pass:"
        yield {**row, "task": f"{row['prompt']}\n\n{must}\n{tests}", "test_setup_code": setup}


def _tested_name(code: str, tests: str) -> str | None:
    """The function of `code` that `tests` call first."""
    defined = set(re.findall(r"^(?:def|class) (\w+)", code, re.MULTILINE))
    return next((name for name in re.findall(r"(\w+)\s*\(", tests) if name in defined), None)


@prepares
def mt_bench(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `turns`, the prompts as messages of the user."""
    for row in rows:
        yield {**row, "turns": [{"role": "user", "content": text} for text in row["prompt"]]}


@prepares
def scifact(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """One row for each claim that cites something, with its `abstracts` and its `label` (NOT_ENOUGH_INFO where there is
    no evidence).

    Evidence stands in columns, one row for each piece of it, or nested as in the authors' files.
    """
    corpus = {
        doc["doc_id"]: "\n".join([doc["title"], " ".join(s.strip() for s in doc["abstract"])])
        for doc in source.rows("corpus*")
    }
    for _, group in groupby(rows, key=lambda row: row["id"]):
        pieces = list(group)
        abstracts = [corpus[doc] for doc in pieces[0]["cited_doc_ids"] if doc in corpus]
        if abstracts:
            label = next((label for piece in pieces if (label := _evidence_label(piece))), "NOT_ENOUGH_INFO")
            yield {**pieces[0], "abstracts": "\n\n".join(abstracts), "label": label}


def _evidence_label(row: Row) -> str | None:
    nested = (row.get("evidence") or {}).values()
    return row.get("evidence_label") or next((piece["label"] for pieces in nested for piece in pieces or ()), None)


@prepares
def apigen(rows: Iterator[Row], source: RowSource) -> Iterator[Row]:
    """Adds `functions` as schemas, `asked` (the query and what may be called) and `expected` calls.

    A parameter that has its default value, or is left out of the right call though it has one, may be given or left
    out.
    """
    for row in rows:
        tools = json.loads(row["tools"])
        functions = [_function_schema(tool) for tool in tools]
        offered = json.dumps(functions, ensure_ascii=False)
        asked = f"{row['query']}\n\nFunctions you may call:\n{offered}\n\n{_CALLS_WANTED}"
        expected = [_expected_call(call, tools) for call in json.loads(row["answers"])]
        yield {**row, "functions": functions, "asked": asked, "expected": expected}


_CALLS_WANTED = 'Answer with the calls alone, as a JSON list: [{"name": …, "arguments": {…}}].'
_JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object"}
_JSON_TYPES |= dict.fromkeys(("list", "tuple", "set"), "array")


def _function_schema(tool: Row) -> dict[str, Any]:
    properties, required = {}, []
    for name, parameter in tool["parameters"].items():
        kinds = str(parameter.get("type", ""))
        kind = _JSON_TYPES.get(re.split(r"[^a-z]", kinds.lower(), maxsplit=1)[0])
        properties[name] = {**({"type": kind} if kind else {}), **{k: v for k, v in parameter.items() if k != "type"}}
        if "optional" not in kinds.lower() and "default" not in parameter:
            required.append(name)
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": tool["name"], "description": tool["description"], "parameters": schema}


def _expected_call(call: Row, tools: list[Row]) -> dict[str, Any]:
    parameters: Row = next((tool["parameters"] for tool in tools if tool["name"] == call["name"]), {})
    defaults = {name: parameter["default"] for name, parameter in parameters.items() if "default" in parameter}
    given = {**defaults, **call["arguments"]}
    return {
        "name": call["name"],
        "arguments": {k: [v, ""] if k in defaults and defaults[k] == v else [v] for k, v in given.items()},
    }
