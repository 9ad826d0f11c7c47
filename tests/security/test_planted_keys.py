"""Keys planted in every place where people put keys, every command run among them, and every byte that comes of it
searched.

The providers, judges and clients quote the keys wherever they can. What they received is looked at too: there the keys
must be.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import html
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

from context_bench.engine.encoding import unpack

ENVIRONMENT = (
    "WORK",
    "DOOR",
    "MARKS",
    "SHELF_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "HF_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
)
TOLD = (
    "proxy_url",
    "upstream",
    "query",
    "database",
    "bearer",
    "header",
    "cookie",
    "basic",
    "remote",
    "arm",
    "config",
    "service",
    "plugin",
    "proxy_env",
    "url_key",
    "url_code",
    "url_any",
    "url_login",
)
RUN = 12  # so many characters of a key in a row are a leak


def planted() -> dict[str, str]:
    """Texts that occur nowhere else and have the shape of no provider's keys, by the name of their place."""
    rng = random.Random(5)
    return {
        name: "".join(rng.choice("bcdfghjklmnpqrstvwxz0123456789") for _ in range(40)) for name in (*TOLD, *ENVIRONMENT)
    }


def odd() -> dict[str, str]:
    """Variables named like secrets whose values do not look like keys, or whose names were overlooked once."""
    rng = random.Random(7)

    def letters(count: int, of: str = "bcdfghjklmnpqrstvwxz") -> str:
        return "".join(rng.choice(of) for _ in range(count))

    lines = [letters(40) for _ in range(3)]
    pem = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"])
    account = {
        "type": "service_account",
        "private_key": pem.replace(lines[0], letters(40)),
        "client_secret": letters(30),
        "client_id": "1",
    }
    return {
        "DB_PASSWORD": f"{letters(7)} {letters(8)} {letters(7)}",
        "TLS_PRIVATE_KEY": pem,
        "AWS_SECRET_KEY": f"/{letters(18)}+{letters(9)}/{letters(10)}",
        "SHORT_TOKEN": letters(7),
        "LETTERS_TOKEN": letters(15),
        "GOOGLE_APPLICATION_CREDENTIALS_JSON": json.dumps(account),
        "SERVICE_KEY_2": letters(30),
        "GITHUB_PAT": letters(30),
        "MAIL_PASSWD": f'{letters(8)}"{letters(8)}\\{letters(8)}',
        "SSH_PASSPHRASE": f"pä{letters(8)} ö%{letters(8)}",
        "QUEUE_DSN": f"amqp://someone:{letters(20)}@127.0.0.1/x",
        "AZURE_CREDENTIALS": letters(40, "0123456789abcdef"),
    }


def pieces_of(value: str) -> list[str]:
    """What must not be found of such a value: its lines, fields and runs of letters."""
    return [
        piece
        for piece in re.findall(r"[a-z0-9]{7,}", value)
        if piece not in ("private", "service", "account", "someone")
    ]


def cells(path: Path) -> list[bytes]:
    """Everything in a store's tables, taken out of its packing."""
    found = []
    with contextlib.closing(sqlite3.connect(path)) as raw:
        for (table,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in raw.execute(f'SELECT * FROM "{table}"'):
                for cell in row:
                    with contextlib.suppress(Exception):  # a key or a hash is not packed
                        found.append(unpack(cell) if isinstance(cell, bytes) else str(cell).encode())
    return found


def contents(path: Path, data: bytes) -> list[bytes]:
    """What a file holds, as it lies there and taken out of what it is packed in."""
    if path.suffix == ".db":
        return [data, *cells(path)]
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return [data, json.dumps(parquet.read_table(path).to_pylist(), default=str).encode()]
    return [data, gzip.decompress(data)] if data[:2] == b"\x1f\x8b" else [data]


def spellings(key: str) -> set[bytes]:
    """Begin, middle and end of `key`, by which it is found in the clear and in Base64 (in each of the three ways it can
    be aligned).
    """
    plain = {key[:RUN], key[14 : 14 + RUN], key[-RUN:]}
    coded = {base64.b64encode(b"\0" * shift + key.encode()).decode()[4:-4] for shift in range(3)}
    return {piece.encode() for piece in plain | {part for whole in coded for part in (whole[:16], whole[-16:])}}


def readings(text: bytes) -> list[bytes]:
    """`text` as it is and, where that makes a difference, as a URL or a page says it."""
    found = [text]
    if b"%" in text:
        found.append(urllib.parse.unquote_to_bytes(text))
    if b"&" in text:
        found.append(html.unescape(text.decode("utf-8", "replace")).encode())
    return found


class Scene:
    """The folder that the commands wrote, and what the others saw."""

    def __init__(self, folder: Path) -> None:
        self.keys = planted()
        self.out, self.given = folder / "out", folder / "given"
        for place in (self.out, self.given, folder / "home"):
            place.mkdir()
        shown = {**self.keys, "basic": base64.b64encode(f"someone:{self.keys['basic']}".encode()).decode()}
        (self.given / "keys.json").write_text(json.dumps({**shown, "odd": odd()}))
        kept = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
        environment = {
            **kept,
            **{name: self.keys[name] for name in ENVIRONMENT},
            **odd(),
            "EMPTY_TOKEN": "EMPTY",
            "HOME": str(folder / "home"),
        }
        environment |= {
            "XDG_CACHE_HOME": str(self.out / "cache"),
            "XDG_CONFIG_HOME": str(self.out / "config"),
            "TMPDIR": str(self.tmp(folder)),
        }
        with (self.out / "stdout.txt").open("wb") as out, (self.out / "stderr.txt").open("wb") as err:
            line = [sys.executable, str(Path(__file__).with_name("planting.py")), str(self.out), str(self.given)]
            self.code = subprocess.run(
                line, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False
            ).returncode
        self.error = (self.out / "stderr.txt").read_text()
        written = {
            path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and self.given not in path.parents
        }
        self.files = {
            path: [seen for text in contents(path, data) for seen in readings(text)] for path, data in written.items()
        }

    @staticmethod
    def tmp(folder: Path) -> Path:
        place = folder / "tmp"
        place.mkdir()
        return place

    def leaks(self, key: str, *, spelled: bool = True) -> list[str]:
        """Where `key` is, with the text around it. `spelled`: in Base64 and in pieces too."""
        pieces, found = spellings(key) if spelled else {key.encode()}, []
        for path, texts in self.files.items():
            for seen in texts:
                place = next((at for piece in pieces if (at := seen.find(piece)) >= 0), None)
                if place is not None:
                    found.append(f"{path.name}: {seen[max(0, place - 120) : place + 40]!r}")
        return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return Scene(tmp_path_factory.mktemp("planted"))


def test_the_commands_did_what_they_are_here_for(scene):
    assert scene.code == 0, scene.error[-2000:]
    codes = json.loads((scene.given / "codes.json").read_text())
    assert {name for name, code in codes.items() if code == 0} >= {
        "diff",
        "doctor",
        "explain",
        "export-inspect",
        "judge-audit",
        "memory",
        "runs",
        "show-html",
        "watch",
    }
    assert all(code == 200 for name, code in codes.items() if name.startswith("page ")), codes
    for refused in ("upstream-password", "upstream-query", "dead", "refused", "no-such-system", "database"):
        assert codes[refused] == 2, refused
    assert [codes[f"config-{number}"] for number in range(5)] == [2] * 5
    assert codes["show-own"] == 0
    assert codes["grade"] == 1  # nothing is marked of what answers with another text
    for failing in ("own", "services"):
        assert codes[failing] in (1, 2), failing
    for wire in ("openai", "responses"):
        told = (scene.out / f"{wire}.jsonl").read_text()
        assert codes[f"export-{wire}-jsonl"] == codes[f"show-{wire}"] == 0
        assert "?key=[key]&code=[key]&v=[key] HTTP/1.1" in told
    for failing in (
        "quoted-openai",
        "quoted-responses",
        "run",
        "guarded",
        "replay",
        "compress",
        "memory-service",
    ):  # each meets an answer that is an error and quotes its key
        assert codes[failing] == 1, failing
    assert sum(len(texts) for texts in scene.files.values()) > 300
    assert "Traceback" not in scene.error


def test_the_other_side_did_get_the_keys(scene):
    received = (scene.given / "received.txt").read_text()
    for name in (
        "WORK",
        "DOOR",
        "MARKS",
        "SHELF_TOKEN",
        "bearer",
        "header",
        "cookie",
        "url_key",
        "url_code",
        "url_any",
    ):
        assert scene.keys[name] in received, name


@pytest.mark.parametrize("name", [*TOLD, *ENVIRONMENT])
def test_no_key_is_in_any_output_log_store_or_command_line(scene, name):
    assert scene.leaks(scene.keys[name]) == []


def test_the_notes_name_what_is_too_short_and_what_may_be_an_ordinary_word(scene):
    told = json.loads((scene.out / "one.json").read_text())["notes"]
    assert any("too short to search for: EMPTY_TOKEN." in note for note in told), told
    assert any("words or figures: LETTERS_TOKEN, SHORT_TOKEN." in note for note in told), told


@pytest.mark.parametrize("name", odd())
def test_no_variable_named_like_a_secret_is_found_whatever_its_form(scene, name):
    found = {piece: scene.leaks(piece, spelled=False) for piece in pieces_of(odd()[name])}
    assert found
    assert {piece: places[:3] for piece, places in found.items() if places} == {}


def test_the_search_finds_what_is_there(scene):
    marked = ("said nowhere by anybody at all", "Incorrect API key provided", "The red door is in the east")
    assert [bool(scene.leaks(text)) for text in marked] == [False, True, True]
