"""Recordings of real clients → fixtures that may be committed: `client_fixtures.py RECORDINGS [NAME…]` writes
tests/fixtures/clients/*.xz.

A recording is a folder with `truth.jsonl` (the scripted provider's log), `records.jsonl`
(`context-bench watch --record full`), `log/` (what the client left) and `meta.json`. Structure, roles, marks, ids,
times, usage and sizes are kept. Every text, the client's own and the work's, is replaced by made text of as many tokens
(o200k): the same line gives the same line everywhere, so what bodies and logs share stays shared and prefixes stay
prefixes; tools and their arguments get made names, the same in bodies and logs.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import random
import re
import sqlite3
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from context_bench.core.keys import canonical_json
from context_bench.core.tokens import counter_for
from context_bench.wire.apis import parse_request
from context_bench.wire.request import facts

OUT = Path(__file__).parents[1] / "tests" / "fixtures" / "clients"
FOLDER, LOGGED_FOLDER = "/work/repo", "-work-repo"
COUNT = counter_for(None).count

DATA = {
    name: value.split() for name, value in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}
WORDS = DATA["words"]
KEPT, PLACES, SECRETS, PACKED, TOOLS = (
    frozenset(DATA[name]) for name in ("kept", "places", "secrets", "packed", "tools")
)
IDENTIFIER = re.compile(r"[\w.:+/=@*\- ]{0,200}")
UNIT = re.compile(r"(\s*)(.*?)(\s*[\r\n]+|\s*\Z)", re.DOTALL)
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")


class Maker:
    """Made text for text; remembers what it gave, so that two texts get one made text only where words run out."""

    def __init__(self, seed: str = "clients") -> None:
        self.seed = seed
        self._made: dict[tuple[str, str], str] = {}
        self._taken: dict[tuple[str, str], str] = {}

    def text(self, text: str) -> str:
        """Line by line; the last line too has a unit of its own."""
        return "".join(self._once("text", unit, self._line) for unit in _units(text))

    def quoted(self, text: str) -> str:
        """A text that stands as a value in JSON: as many tokens there, its quotes included."""
        return self._once("quoted", text, self._quoted) if text else ""

    def name(self, name: str) -> str:
        """A name of a tool or of an argument: one word, no spaces."""
        return self._once("name", name, self._named) if name else ""

    def _once(self, kind: str, text: str, make: Callable[[str, random.Random], str]) -> str:
        if (kind, text) in self._made:
            return self._made[kind, text]
        made = text
        for attempt in range(20):
            digest = hashlib.sha256(f"{self.seed}\0{kind}\0{attempt}\0{text.strip()}".encode()).digest()
            made = make(text, random.Random(digest))
            if self._taken.setdefault((kind, made.strip()), text.strip()) == text.strip():
                break
        self._made[kind, text] = made
        return made

    def _line(self, unit: str, drawn: random.Random) -> str:
        before, core, after = UNIT.fullmatch(unit).groups()  # type: ignore[union-attr]
        if not any(c.isalnum() for c in core):
            return unit
        return _filled(lambda words: before + " ".join(words) + after, COUNT(unit), drawn)

    def _quoted(self, text: str, drawn: random.Random) -> str:
        if not any(c.isalnum() for c in text):
            return text
        return str(
            json.loads(
                _filled(
                    lambda words: json.dumps(" ".join(words)),
                    COUNT(_value(text)),
                    drawn,
                    lambda made: COUNT(f'":{made},"'),
                )
            )
        )

    def _named(self, name: str, drawn: random.Random) -> str:
        wanted = COUNT(_value(name))
        tries = ("".join(_cased(drawn.choices(WORDS, k=size), drawn)) for _ in range(40) for size in range(1, 8))
        return next((made for made in tries if COUNT(_value(made)) == wanted), "_".join(drawn.choices(WORDS, k=2)))


def _units(text: str) -> Iterator[str]:
    """A text cut after each run of line breaks."""
    at = 0
    for found in re.finditer(r"[^\r\n]*(?:\s*[\r\n])+", text):
        yield found[0]
        at = found.end()
    if at < len(text):
        yield text[at:]


def _value(text: str) -> str:
    """A text as the value of a field of canonical JSON, with what stands around it."""
    return f'":{json.dumps(text, ensure_ascii=False)},"'


def _filled(
    put: Callable[[list[str]], str], wanted: int, drawn: random.Random, count: Callable[[str], int] = COUNT
) -> str:
    """What `put` makes of so many words that it has the tokens wanted; a full stop or two where one word is too many or
    too few.
    """
    size = max(1, wanted - count(put([WORDS[0]])) + 1)
    words = drawn.choices(WORDS, k=size)
    for _ in range(20):
        missing = wanted - count(put(words))
        if missing == 0 or (missing < 0 and len(words) == 1):
            break
        words = words[:missing] if missing < 0 else [*words, *drawn.choices(WORDS, k=missing)]
    return put(words)


def _cased(words: list[str], drawn: random.Random) -> list[str]:
    style = drawn.randrange(3)
    return [words[0], *("_" + word if style else word.title() for word in words[1:])]


class Redactor:
    """Replaces the texts of bodies, records and logs, wherever they stand."""

    def __init__(self, maker: Maker | None = None) -> None:
        self.made = maker or Maker()

    def value(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            defined = field == "tools" and value and isinstance(value[0], dict)
            return self._tools(value) if defined else [self.value(item, field) for item in value]
        if not isinstance(value, str) or not value:
            return value
        if field in PLACES:
            return FOLDER
        if field in SECRETS:
            return hashlib.sha256(value.encode()).hexdigest()[: len(value)]
        if field in PACKED and value.startswith("{"):
            return json.dumps(self.value(json.loads(value)), separators=(",", ":"))
        if field in KEPT and IDENTIFIER.fullmatch(value) and (field != "path" or value.startswith("/v1/")):
            return value
        return self.made.text(value)

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        tool = value.get("type") in TOOLS or "tool" in value
        made = {}
        for key, item in value.items():
            if key in ("input", "arguments") and not isinstance(item, list):
                made[key] = self._arguments(item)
            elif key in ("name", "tool") and tool and isinstance(item, str):
                made[key] = self.made.name(item)
            elif key in ("schema", "input_schema", "parameters"):
                made[key] = self._schema(item)
            else:
                made[FOLDER if key.startswith("/") else key] = self.value(item, key)
        return made

    def _arguments(self, value: Any) -> Any:
        if isinstance(value, str):
            try:
                read = json.loads(value)
            except ValueError:
                return self.made.text(value)
            return json.dumps(
                self._arguments(read),
                separators=(",", ":") if value == json.dumps(read, separators=(",", ":")) else None,
            )
        if isinstance(value, dict):
            return {self.made.name(key): self._argument(item) for key, item in value.items()}
        return [self._argument(item) for item in value] if isinstance(value, list) else value

    def _argument(self, value: Any) -> Any:
        return self.made.quoted(value) if isinstance(value, str) else self._arguments(value)

    def _tools(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Definitions of tools; the last description makes up for what joins of names and signs cost or save."""
        made = [self._tool(tool) for tool in tools]
        described = next((tool for tool in reversed(made) if isinstance(tool.get("description"), str)), None)
        if described is not None:
            described["description"] = self._adjusted(described, COUNT(canonical_json(tools)), made)
        return made

    def _adjusted(self, described: dict[str, Any], wanted: int, made: list[dict[str, Any]]) -> str:
        words = str(described["description"]).split(" ")
        for _ in range(20):
            missing = wanted - COUNT(canonical_json(made))
            if missing == 0 or (missing < 0 and len(words) + missing < 1):
                break
            words = words[:missing] if missing < 0 else [*words, *WORDS[:missing]]
            described["description"] = " ".join(words)
        return str(described["description"])

    def _tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, item in tool.items():
            if key == "name":
                made[key] = self.made.name(item)
            elif key == "description":
                made[key] = self.made.quoted(item)
            elif key in ("input_schema", "parameters"):
                made[key] = self._schema(item)
            elif key == "function":
                made[key] = self._tool(item)
            elif key == "tools":
                made[key] = [self._tool(inner) for inner in item]
            else:
                made[key] = self.value(item, key)
        return made

    def _schema(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        made: dict[str, Any] = {}
        for key, item in schema.items():
            if key in ("properties", "$defs", "definitions") and isinstance(item, dict):
                made[key] = {self.made.name(name): self._schema(inner) for name, inner in item.items()}
            elif key == "required" and isinstance(item, list):
                made[key] = [self.made.name(name) for name in item]
            elif key in SCHEMA_LISTS:
                made[key] = [self._schema(inner) for inner in item]
            elif key in ("description", "title", "default", "const", "pattern", "examples", "enum"):
                made[key] = [self._value(inner) for inner in item] if isinstance(item, list) else self._value(item)
            else:
                made[key] = self._schema(item)
        return made

    def _value(self, value: Any) -> Any:
        return self.made.quoted(value) if isinstance(value, str) else value


def usage(row: dict[str, Any]) -> dict[str, Any]:
    """What the provider knows of a request, without its body."""
    headers = {name.lower(): text for name, text in row["headers"].items()}
    body = row.get("body") or {}
    named = (
        "x-claude-code-session-id",
        "x-claude-code-agent-id",
        "session-id",
        "x-session-id",
        "anthropic-beta",
        "user-agent",
    )
    fields = ("n", "t", "method", "path", "kind", "api", "status", "stream", "told", "fault", "usage")
    kept: dict[str, Any] = {name: row[name] for name in fields if name in row}
    return {**kept, "model": body.get("model"), "headers": {name: headers[name] for name in named if name in headers}}


def record(row: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """A record of a watch, its facts taken from the made body."""
    told = row.pop("facts")
    made: dict[str, Any] = redactor.value(row)
    kept = {name: told[name] for name in ("headers", "reply_complete", "policy") if name in told}
    parsed = facts(parse_request(made["wire"], made["request"])) if isinstance(made.get("request"), dict) else {}
    return {**made, "facts": {**parsed, **kept}}


def database(file: Path, redactor: Redactor) -> dict[str, Any]:
    """The tables of opencode's database that hold a conversation: rows as objects."""
    tables = {}
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as found:
        found.row_factory = sqlite3.Row
        for table in ("session", "message", "part"):
            tables[table] = [_row(dict(row), redactor) for row in found.execute(f"SELECT * FROM {table} ORDER BY id")]
    return tables


def _row(row: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    def cell(name: str, value: Any) -> Any:
        if name in ("data", "permission", "model", "summary_diffs") and value:
            return json.dumps(redactor.value(json.loads(value)), separators=(",", ":"), ensure_ascii=False)
        return value if name.endswith("_id") else redactor.value(value, name)

    return {name: cell(name, value) for name, value in row.items()}


def parts(folder: Path) -> Iterator[tuple[str, Any]]:
    """(file, value) of a fixture: one value is a line of a `.jsonl`, the whole of a `.json`, or the tables of a
    `.db`.
    """
    redactor = Redactor()
    meta = json.loads((folder / "meta.json").read_text())
    yield "meta.json", {"client": meta["client"], "version": meta["version"], "prompts": len(meta["prompts"])}
    for row in _lines(folder / "truth.jsonl"):
        yield "usage.jsonl", usage(row)
    for row in _lines(folder / "records.jsonl"):
        yield "records.jsonl", record(row, redactor)
    for file in sorted((folder / "log").rglob("*")):
        name = re.sub(r"(projects/)[^/]+", rf"\1{LOGGED_FOLDER}", str(file.relative_to(folder)))
        if file.suffix == ".jsonl":
            for row in _lines(file):
                yield name, redactor.value(row)
        elif file.suffix == ".json":
            yield name, redactor.value(json.loads(file.read_text()))
        elif file.suffix == ".db":
            yield name, database(file, redactor)


def _lines(file: Path) -> Iterator[Any]:
    for line in file.read_text().splitlines():
        yield json.loads(line)


def write(folder: Path, out: Path) -> Path:
    """The fixture of one recording."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [
        json.dumps({"file": name, "value": value}, ensure_ascii=False, separators=(",", ":"))
        for name, value in parts(folder)
    ]
    packed = out / f"{folder.name}.jsonl.xz"
    packed.write_bytes(lzma.compress("\n".join(rows).encode(), preset=9 | lzma.PRESET_EXTREME))
    return packed


def main(recordings: str, *names: str) -> None:
    """Write a fixture for each recording named, or for every one there."""
    for folder in sorted(Path(recordings).iterdir()):
        if (folder / "meta.json").exists() and (not names or folder.name in names):
            made = write(folder, OUT)
            sys.stdout.write(f"{made.name}: {made.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
