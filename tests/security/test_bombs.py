"""Small files that would become large, deep or endless: each is refused by name, in a process that may not have much
memory.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import subprocess
import sys
import tarfile
import zipfile
import zlib

import brotli
import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from context_bench.core.errors import BadInput
from context_bench.datasets.readers import rows_from, rows_of
from context_bench.shell.repo import open_repo
from context_bench.transcripts.harness_results import read_answers
from context_bench.transcripts.session_files import read_sessions
from context_bench.transcripts.traces import load_traces

GIGABYTE = 2**30
ZEROS = b"0" * 2**20
# Rows of a file, read in a process with 900 MB of address space beyond what it has at the start; prints why it stopped.
CHILD = """
import resource, sys
from context_bench.core.errors import ContextBenchError
from context_bench.datasets.readers import rows_of
from context_bench.transcripts.harness_results import read_answers
from context_bench.transcripts.session_files import read_sessions
from context_bench.shell.repo import open_repo
from context_bench.llm.hop import HopRequest
from multidict import CIMultiDict
from pathlib import Path
import pyarrow.parquet, zstandard, brotli
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 900 * 2**20,) * 2)
path = Path(sys.argv[2])
def body(coding):
    HopRequest("POST", "/", CIMultiDict({"Content-Encoding": coding}), path.read_bytes()).document
ways = {
    "rows": lambda: sum(1 for _ in rows_of(path)),
    "answers": lambda: sum(1 for _ in read_answers(path).answers),
    "sessions": lambda: sum(1 for _ in read_sessions(path)),
    "repo": lambda: [blob for repo in [open_repo(path)] for name in repo.paths() if (blob := repo.blob(name))],
    "gzip": lambda: body("gzip"), "zstd": lambda: body("zstd"), "br": lambda: body("br"), "deflate": lambda: body("deflate"),
}
try:
    print("read", ways[sys.argv[1]]())
except (ContextBenchError, ValueError) as error:
    print("refused", type(error).__name__, error)
"""  # noqa: E501


def in_little_memory(way, path):
    done = subprocess.run(
        [sys.executable, "-c", CHILD, way, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-1500:]
    return done.stdout


def repeated(compressor, size):
    """`size` zeros as a stream that is packed."""
    out = io.BytesIO()
    for _ in range(size // len(ZEROS)):
        out.write(compressor.compress(ZEROS))
    out.write(compressor.flush())
    return out.getvalue()


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """One file of each kind, all small, each 2 GB of zeros when unpacked (in pieces, which both kinds allow: so they
    are made at once).
    """
    folder = tmp_path_factory.mktemp("bombs")
    packed = gzip.compress(ZEROS * 16, 1) * 128
    for name in ("rows.jsonl.gz", "rows.txt.gz", "rows.csv.gz"):
        (folder / name).write_bytes(packed)
    (folder / "rows.json.gz").write_bytes(gzip.compress(b'[{"a": "') + packed)
    (folder / "rows.jsonl.zst").write_bytes(zstandard.ZstdCompressor(1).compress(ZEROS * 16) * 128)
    return folder


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.txt.gz", "rows.csv.gz", "rows.json.gz", "rows.jsonl.zst"])
def test_a_file_that_unpacks_without_end(bombs, name):
    assert (bombs / name).stat().st_size < 2**24
    assert "refused BadInput" in (said := in_little_memory("rows", bombs / name)), said
    assert name in said


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd", "br"])
def test_a_request_body_that_unpacks_without_end(tmp_path, name):
    size = 2**28  # twice what is taken
    made = {
        "gzip": lambda: repeated(zlib.compressobj(1, wbits=31), size),
        "deflate": lambda: repeated(zlib.compressobj(1), size),
        "zstd": lambda: repeated(zstandard.ZstdCompressor(1).compressobj(), size),
        "br": lambda: brotli.compress(ZEROS * 256, quality=1),
    }[name]()
    (tmp_path / "body").write_bytes(made)
    assert in_little_memory(name, tmp_path / "body").startswith("refused TooLarge")


def test_an_archive_whose_members_unpack_without_end(tmp_path):
    path = tmp_path / "log.eval"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("header.json", "w") as member,
    ):
        for _ in range(GIGABYTE // len(ZEROS) + 1):
            member.write(ZEROS)
    assert in_little_memory("repo", path).strip() == "read []"  # a repository has no file of that size: it is not there
    assert "at most" in (said := in_little_memory("answers", path)), said
    assert said.startswith("refused BadInput")


def escaping(folder, kind):
    """An archive with members that point out of it, by name and by link."""
    path = folder / f"repo.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("top/ok.py", "top/../../evil.py", "/etc/evil.py", "top/sub/../../../evil.py"):
                archive.writestr(name, "x")
            link = zipfile.ZipInfo("top/link.py")
            link.external_attr = 0o120777 << 16
            archive.writestr(link, "/etc/passwd")
        return path
    with tarfile.open(path, "w") as archive:
        for name in ("top/ok.py", "top/../../evil.py", "/etc/evil.py"):
            info = tarfile.TarInfo(name)
            info.size = 1
            archive.addfile(info, io.BytesIO(b"x"))
        for name, kind_of, target in (
            ("top/link.py", tarfile.SYMTYPE, "/etc/passwd"),
            ("top/hard.py", tarfile.LNKTYPE, "/etc/passwd"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind_of, target
            archive.addfile(info)
        device = tarfile.TarInfo("top/null.py")
        device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 1, 5
        archive.addfile(device)
    return path


def test_a_tar_with_a_name_without_end(tmp_path):
    """The name of a member may stand in data of any length before it, which is read whole."""
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = tarfile.GNUTYPE_LONGNAME, 2 * GIGABYTE
    path = tmp_path / "repo.tar.gz"
    path.write_bytes(gzip.compress(head.tobuf(tarfile.GNU_FORMAT)) + gzip.compress(ZEROS * 16, 1) * 128)
    assert "refused BadInput" in (said := in_little_memory("repo", path)), said


def archives():
    """Small archives of one file in every packing, by name."""
    made = {}
    for packing in ("", "gz", "bz2", "xz"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=f"w:{packing}") as archive:
            info = tarfile.TarInfo("top/samples/a.jsonl")
            info.size = 1000
            archive.addfile(info, io.BytesIO(bytes(range(250)) * 4))
        made[f"tar.{packing}"] = out.getvalue()
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            archive.writestr("samples/a.jsonl", b'{"a": "b", "c": 1}\n' * 20)
        made[f"zip.{method}"] = out.getvalue()
    return made


@pytest.mark.parametrize("name", archives())
def test_damaged_archives_are_refused_wherever_they_are_damaged(tmp_path, name):
    whole, path, rng = archives()[name], tmp_path / "a.eval", random.Random(1)
    for at in range(60):
        data = bytearray(whole)
        place = rng.randrange(len(data))
        data[place : place + rng.choice((1, 4))] = rng.randbytes(4)
        path.write_bytes(data if at % 3 else data[: rng.randrange(30, len(data))])
        for use in (
            lambda: [repo.blob(name) for repo in [open_repo(path)] for name in repo.paths()],
            lambda: list(read_answers(path).answers),
            lambda: list(load_traces(path)),
            lambda: list(rows_from(io.BytesIO(path.read_bytes()), "rows.zip!*", "rows.zip")),
        ):
            with contextlib.suppress(BadInput):
                use()


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_members_that_point_out_of_an_archive_are_not_in_it(tmp_path, kind):
    repo = open_repo(escaping(tmp_path, kind))
    assert list(repo.paths()) == ["ok.py"]
    assert repo.blob("ok.py") == b"x"
    assert not (tmp_path.parent / "evil.py").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 200_000, "nested too deeply|not JSON"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply|not JSON"),
        ('{"a": ' + "9" * 100_000 + "}", "not JSON|digits"),
        ('{"a": "' + "\\u0000" * 10 + "\x00" + '"}', "not JSON"),
    ],
)
def test_lines_that_are_deep_or_hold_numbers_without_end(tmp_path, text, said):
    path = tmp_path / "rows.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(BadInput, match=said):
        list(rows_of(path))
    with pytest.raises(BadInput):  # as a log it is one that nobody knows
        list(read_sessions(path))


def test_a_line_of_five_megabytes_is_a_line_like_any_other(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"context": "x" * 5 * 2**20}) + "\n")
    assert len(next(iter(rows_of(path)))["context"]) == 5 * 2**20


def test_a_table_whose_numbers_lie(tmp_path):
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"context": ["x" * 1000] * 50}), path)
    whole = path.read_bytes()
    for data in (
        whole[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1",  # a footer of 2 GB
        whole[:-8] + (1).to_bytes(4, "little") + b"PAR1",
        whole[:4] + b"\xff" * 64 + whole[68:],  # a page that is longer than the file
        b"PAR1" + b"\x00" * 100 + b"PAR1",
        whole[: len(whole) // 2],
    ):
        path.write_bytes(data)
        assert "refused BadInput" in (said := in_little_memory("rows", path)), said


def test_a_table_with_one_row_that_is_a_gigabyte(tmp_path):
    path = tmp_path / "rows.parquet"
    column = pa.array(["0" * (GIGABYTE // 2)], pa.string())
    parquet.write_table(pa.table({"context": column}), path, compression="zstd", use_dictionary=True)
    del column
    assert path.stat().st_size < 2**20
    assert "refused BadInput" in (said := in_little_memory("rows", path)), said


def test_answers_of_an_archive_are_bounded_too(tmp_path):
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", "[" * 100_000)
    with pytest.raises(BadInput):
        list(read_answers(path).answers)
