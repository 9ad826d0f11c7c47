"""`make release`, as a dry run: what it makes, and what keeps it from making it."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import image  # noqa: E402
import metadata as hook  # noqa: E402
import release  # noqa: E402


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a dry run, and the changelog before it."""
    out = tmp_path_factory.mktemp("release") / "dist"
    before = (ROOT / "CHANGELOG.md").read_bytes()
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/release.py"), "--dry-run", "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out, before


def test_a_dry_run_changes_nothing(made):
    assert (ROOT / "CHANGELOG.md").read_bytes() == made[1]


def test_every_file_has_its_hash(made):
    sums = dict(reversed(line.split("  ")) for line in (made[0] / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {path.name for path in made[0].iterdir()} - {"SHA256SUMS"}
    for name, told in sums.items():
        assert hashlib.sha256((made[0] / name).read_bytes()).hexdigest() == told


def test_the_wheel_has_types_licence_and_what_an_index_shows(made):
    (wheel,) = made[0].glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    assert "context_bench/py.typed" in names
    metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "Author: The context-bench developers" in metadata
    assert "License-Expression: MIT" in metadata
    assert "Classifier: Typing :: Typed" in metadata


def test_no_link_of_what_an_index_shows_is_relative(made):
    (wheel,) = made[0].glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    shown = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
    assert "Description-Content-Type: text/markdown" in shown
    assert "# context-bench" in shown
    assert [link for link in re.findall(r"\]\(([^)]+)\)", shown) if ":" not in link] == []


README = """[![MIT](docs/mit.svg)](LICENSE) ![bars](docs/bars.svg) [the tour](docs/tour.md#one) [here](#install)
[out](https://example.org/a)
```sh
echo "[kept](as/it/is)"
```
"""


def test_with_an_address_links_lead_to_the_tag():
    at = "https://host.example/me/it"
    assert hook.long_description(README, at + "/", "v1.2.3").splitlines() == [
        f"[![MIT]({at}/raw/v1.2.3/docs/mit.svg)]({at}/blob/v1.2.3/LICENSE) ![bars]({at}/raw/v1.2.3/docs/bars.svg) "
        f"[the tour]({at}/blob/v1.2.3/docs/tour.md#one) [here](#install)",
        "[out](https://example.org/a)",
        *README.splitlines()[2:],
    ]


def test_without_an_address_words_stay():
    assert hook.long_description(README, "", "v1.2.3").splitlines() == [
        "*MIT* *bars* the tour [here](#install)",
        "[out](https://example.org/a)",
        *README.splitlines()[2:],
    ]


def test_the_components_are_those_of_the_lock(made):
    told = json.loads((made[0] / "sbom.cdx.json").read_text())
    locked = {
        line.split("==")[0] for line in (ROOT / "lock.txt").read_text().splitlines() if re.match(r"[\w.-]+==", line)
    }
    assert {each["name"] for each in told["components"]} == locked
    assert told["bomFormat"] == "CycloneDX"
    assert len({each["bom-ref"] for each in told["components"]}) == len(told["components"])
    assert all(each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}" for each in told["components"])


def test_a_faulty_wheel_is_told(tmp_path):
    wheel = tmp_path / "context_bench_tool-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("context_bench/__init__.py", "")
        archive.writestr("tests/x.py", "")
        archive.writestr("context_bench_tool-9.9.9.dist-info/METADATA", "Summary: x\n")
    faults = release.faults_of_wheel(wheel, "9.9.9")
    assert f"{wheel.name} lacks context_bench/py.typed" in faults
    assert f"{wheel.name} holds tests/x.py" in faults
    assert "its metadata has no Author" in faults
    assert "its metadata has no Summary" not in faults


def test_the_changelog_gets_the_version_once():
    log = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-01-01\n\n- Old.\n"
    renamed = release.released(log, "0.2.0", "2026-02-03")
    assert "## [Unreleased]\n\n## [0.2.0] - 2026-02-03\n\n### Added\n\n- A thing." in renamed
    with pytest.raises(release.Fault, match=r"a section \[0.1.0\] already"):
        release.released(log, "0.1.0", "2026-02-03")
    with pytest.raises(release.Fault, match="has nothing under"):
        release.released(renamed, "0.3.0", "2026-02-04")


def test_a_folder_with_something_in_it_is_left_alone(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    assert release.main(["--dry-run", "--out", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_version_of_another_form_is_told():
    assert release.version_of('__version__ = "1.2.3rc1"') == "1.2.3rc1"
    with pytest.raises(release.Fault, match="states no version"):
        release.version_of('__version__ = "next"')


def test_the_image_is_built_by_the_rules():
    kept = image.kept(ROOT)
    assert list(image.faults_of((ROOT / "Dockerfile").read_text("utf-8"), kept)) == []
    assert all((ROOT / name).exists() for name in kept)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("FROM python:3.12.11-slim-bookworm\n", "FROM python:3.12\n", "expected an exact version"),
        ("USER 10001\n", "", "USER missing"),
        ("USER 10001\n", "USER root\n", "not root"),
        ("USER 10001\n", "USER 10001\nENV OPENAI_API_KEY=x\n", "a key in a layer"),
        ('["context-bench"]', "context-bench", "ENTRYPOINT"),
        ("COPY src src", "COPY . .", "leaves it out"),
        ("COPY src src", "ADD https://host.example/x /x", "ADD"),
        (" --constraint constraints.txt", "", "expected --constraint"),
        ("--from=build", "--from=built", "no stage"),
    ],
)
def test_a_fault_of_the_image_is_told(before, after, told):
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert before in text
    faults = list(image.faults_of(text.replace(before, after), image.kept(ROOT)))
    assert any(told in fault for fault in faults), faults


def test_the_constraints_of_the_image_are_all_versions_of_the_lock(tmp_path):
    run = next(rest for word, rest in image.instructions((ROOT / "Dockerfile").read_text("utf-8")) if word == "RUN")
    (tmp_path / "lock.txt").write_bytes((ROOT / "lock.txt").read_bytes())
    subprocess.run(["sh", "-c", run.partition(" && ")[0]], cwd=tmp_path, check=True)
    told = [Requirement(line) for line in (tmp_path / "constraints.txt").read_text().splitlines()]
    assert len(told) == len(re.findall(r"^[\w.-]+(?:\[.*?\])?==", (ROOT / "lock.txt").read_text(), re.MULTILINE))
    assert all(not each.extras and str(each.specifier).startswith("==") for each in told)
