"""Atoms by kind, in several languages, on odd text, and in linear time."""

import time

import pytest
from hypothesis import given, settings, strategies as st

import context_bench.wire.atoms as module
from context_bench.wire.atoms import KINDS, atoms, plain_number


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("The timeout is 30 s, retries=5, p99 was 1,250 ms.", "number", {"timeout=30s", "retries=5", "p99=1250ms"}),
        ("It grew by 12.50 % to $1,200 and -5 °C over 3 days.", "number", {"12.5 %", "$1200", "-5 °C", "3 days"}),
        ('{"port": 8080, "name": "x7"}', "number", {"port=8080"}),
        ("温度：35度，超时=30秒", "number", {"温度=35度", "超时=30秒"}),
        ("Таймаут 30 секунд", "number", {"30 секунд"}),
        ("In 2024 he saw 17 and 3, then a2 4b.", "number", set()),
        (
            "open /etc/hosts, ~/x/y.txt and src/a.py; also C:\\x\\y or notes.md.",
            "path",
            {"/etc/hosts", "~/x/y.txt", "src/a.py", "C:\\x\\y", "notes.md"},
        ),
        ("配置文件/etc/app.conf在这里", "path", {"/etc/app.conf"}),
        ("this and/or that, TCP/IP, 1/2", "path", set()),
        ("see https://a.example/b?c=1#d. And ftp://h/x, ok", "url", {"https://a.example/b?c=1#d", "ftp://h/x"}),
        (
            "commit 9fceb02d by 123e4567-e89b-12d3-a456-426614174000, not 1234567 or defaced",
            "hash_uuid",
            {"9fceb02d", "123e4567-e89b-12d3-a456-426614174000"},
        ),
        (
            "v2.1 and 1.2.3-rc1, numpy==2.1, needs >=3.11, pi is 3.14",
            "version",
            {"v2.1", "1.2.3-rc1", "numpy==2.1", ">=3.11"},
        ),
        (
            "set MAX_RETRIES and getUserName via os.path.join --dry-run `x y`; e.g. Plain words. End",
            "identifier",
            {"MAX_RETRIES", "getUserName", "os.path.join", "--dry-run", "x y"},
        ),
        (
            "KeyError in src/a.py:42: HTTP 503, exit code 1, 401 Unauthorized",
            "error",
            {"KeyError", "src/a.py:42", "HTTP 503", "exit code 1", "401 Unauthorized"},
        ),
        ("fatal: not a git repository", "error", {"not a git repository"}),
        (
            "2024-05-06T07:08:09Z, 2024-05-06 07:08, 6.5.2024, Mar 3, 2024, 2024年5月6日, 14:30",
            "date_time",
            {"2024-05-06T07:08:09Z", "2024-05-06 07:08", "6.5.2024", "Mar 3, 2024", "2024年5月6日"},
        ),
        ('She said "keep the old one" and „bitte nicht“; "word"', "quote", {"keep the old one", "bitte nicht"}),
        (
            "mail ops@a.example, 10.0.0.1:8080, localhost:5432, db.a.example:1234",
            "email_host_port",
            {"ops@a.example", "10.0.0.1:8080", "localhost:5432", "db.a.example:1234"},
        ),
        (
            "Fine. You must never push to main! Only admins deploy.",
            "constraint",
            {"You must never push to main", "Only admins deploy"},
        ),
        ("必须在周五之前完成。其他随意。", "constraint", {"必须在周五之前完成"}),
        ("Hier. Das darf nicht geändert werden. Gut.", "constraint", {"Das darf nicht geändert werden"}),
        (
            '$ git push origin main\nnpm run build\n{"command": "ls -la /tmp"}\nwe go there',
            "command",
            {"git push origin main", "npm run build", "ls -la /tmp"},
        ),
    ],
)
def test_kinds(text, kind, expected):
    found = set(atoms(text).get(kind, ()))
    assert found >= expected if kind == "date_time" else found == expected


def test_places_are_where_they_first_stand():
    text = "a first_name here, last_name there, first_name again"
    assert atoms(text) == {"identifier": {"first_name": 2, "last_name": 19}}


def test_numbers_are_one_number_however_they_are_written():
    assert {plain_number(number) for number in ("1,024.50", "1024.5", "+1'024.500")} == {"1024.5"}


def test_the_table_in_the_docs_names_every_kind():
    assert all(f"| `{kind}` |" in module.__doc__ for kind in KINDS)


pieces = st.sampled_from(
    [
        *"aA1._-/@:\"`'=,$%#\\\n\t (){}<>",
        "must ",
        "error: ",
        "http://",
        "汉",
        "必须",
        "ш",
        "ي",
        "\u0130",
        "\ud800",
        "\ufffd",
        "2024-01-01",
        "v1.",
    ]
)


@settings(max_examples=300)
@given(st.one_of(st.text(), st.lists(pieces, max_size=60).map("".join)))
def test_any_text(text):
    for kind, held in atoms(text).items():
        assert kind in KINDS
        assert held
        assert all(atom and 0 <= place < len(text) for atom, place in held.items())


MEGABYTE = 1_000_000
HOSTILE = [
    "a",
    "a.",
    "/a",
    "a-",
    '"',
    "1,",
    "a@",
    "x=",
    "1 ",
    "must ",
    "`a",
    '"cmd": "\\"',
    "0",
    "f",
    "a_",
    "\n",
    "a:1",
    "汉",
    "v1.",
    "error: ",
    "-",
    "a/",
    "C:\\a",
    "Aa",
    "1a ",
    "git a\n",
    "  \n",
    "http",
    "[45]",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_linear_time(piece):
    """Eight times the text takes about eight times as long; with any backtracking over the text it would be sixty-four
    times.
    """

    def seconds(size):
        text = piece * (size // len(piece))
        start = time.process_time()
        atoms(text)
        return time.process_time() - start

    seconds(1000)
    assert seconds(240_000) < 32 * max(seconds(30_000), 0.02)


def test_a_megabyte_of_everything_at_once():
    text = "".join(piece * 40 for piece in HOSTILE)
    found = atoms((text * (MEGABYTE // len(text) + 1))[:MEGABYTE])
    assert found.keys() >= {"constraint", "number", "error"}
