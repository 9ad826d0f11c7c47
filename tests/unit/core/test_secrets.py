"""Secrets by their names, in every form that a text may give them."""

from __future__ import annotations

import base64
import html
import json
import time
import urllib.parse
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from context_bench.core.keys import Sieve
from context_bench.core.secrets import Masker, names_a_secret, secrets_in_url, secrets_in_variable
from context_bench.core.text import beginning
from context_bench.engine.encoding import secrets_of
from context_bench.llm.redact import environment_notes

PRIVATE = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n"
ACCOUNT = json.dumps(
    {"type": "service_account", "project_id": "my-project", "private_key": PRIVATE, "client_secret": "GOCSPX-inner-77"}
)
FORMS = {
    "spaces": "correct horse planted 7731 staple",
    "lines": PRIVATE.strip(),
    "a slash first": "/SLASHabcd+efgh/ijkl0123456789mnopqrstuv",
    "letters": "plantedletters",
    "seven": "abc12d7",
    "six letters": "garden",
    "quotes": 'it\'s "quo\\ted" <&> 100%',
    "foreign letters": "pässwörd-Ключ-鍵-🔑",
    "nothing but foreign letters": "парольключ",
    "digits": "84719365021",
    "JSON": ACCOUNT,
}
ANNOUNCE = """
OPENAI_API_KEY SERVICE_KEY_2 GITHUB_PAT DB_PASSWD SSH_PASSPHRASE AWS_CREDENTIALS AWS_SECRET_ACCESS_KEY MY_TOKEN
TOKEN1 KEY API_KEYS API_KEY_PROD STRIPE_SECRET DB_PASS MYSQL_PWD MYTOKEN apiKey x-api-key Authorization auth_header
CLIENT_SECRET_ID SESSION_COOKIE PRIVATE_KEY_PEM CREDENTIALS_JSON JWT BOT_TOKENS GOOGLE_APPLICATION_CREDENTIALS_JSON
TOKEN_GITHUB AZURE_STORAGE_CONNECTION_STRING OAUTH_REFRESH OAUTH2_REFRESH GOOGLE_OAUTH CERT_PRIVATE PRIVATE_CERT
TLS_PRIVATE RSA_PRIVATE PRIVATE_PEM SSHPASS DBPASS PGPASS ADMINPW APPKEY CLIENTKEY PRIVKEY LICENSEKEY PASSKEY
WIFI_PSK TOTP_SEED WALLET_SEED MNEMONIC VAULT_UNSEAL_1 RECOVERY_CODES MFA_BACKUP_CODES SEED_PHRASE AUTH_REFRESH
OAUTH_ACCESS KEY_MATERIAL STRIPE_SK OPENAIKEY DISCORD_WEBHOOK COOKIE_SALT
"""
ORDINARY = """
PATH HOME PWD OLDPWD SSH_KEY_PATH TLS_KEY_FILE SECRETS_DIR SSH_AUTH_SOCK GIT_ASKPASS MAX_TOKENS prompt_tokens
AWS_ACCESS_KEY_ID KEYBOARD MONKEY TOKENIZERS_PARALLELISM API_KEY_ENV TOKEN_LIMIT author AUTHORS pattern compass
PYTHONPATH TOKEN_URL OAUTH_PROVIDER OAUTH_CLIENT_ID OAUTH_SCOPES REFRESH AUTO_REFRESH REFRESH_SECONDS CERT
CERTIFICATE PRIVATE PRIVATE_REPO REPO_PRIVATE SEED RANDOM_SEED PYTHONHASHSEED STATUS_CODE ERROR_CODES COMPASS BYPASS
APP_KEYWORDS CLIENT_KEYSPACE HOTKEY TURKEY KEYFILE KEY_FILE CERT_PRIVATE_PATH ACCESS PUBLIC_CERT JWKS_URL SSH_HOST
WEBHOOK_ENABLED WEBHOOK_PORT DISK TASK DONKEY
"""


@pytest.mark.parametrize("name", ANNOUNCE.split())
def test_names_that_announce_a_secret(name):
    assert names_a_secret(name)


@pytest.mark.parametrize("name", ORDINARY.split())
def test_names_that_do_not(name):
    assert not names_a_secret(name)


def written(value: str) -> dict[str, str]:
    """`value` as others may write it."""
    inner = json.dumps(value)[1:-1]
    return {
        "as it is": value,
        "JSON": inner,
        "JSON with its letters": json.dumps(value, ensure_ascii=False)[1:-1],
        "JSON in JSON": json.dumps(inner)[1:-1],
        "repr": repr(value)[1:-1],
        "bytes": repr(value.encode())[2:-1],
        "URL": urllib.parse.quote(value, safe=""),
        "URL, small": "".join(
            f"%{each:02x}" if not chr(each).isalnum() or each > 127 else chr(each) for each in value.encode()
        ),
        "form": urllib.parse.quote_plus(value),
        "HTML": html.escape(value),
        "XML": value.encode("ascii", "xmlcharrefreplace").decode(),
        "one line": " ".join(value.split()),
    }


@pytest.mark.parametrize("value", FORMS.values(), ids=FORMS)
def test_a_secret_is_masked_however_it_is_written(value):
    masker = Masker(secrets_in_variable("MY_SECRET", value), "[x]")
    for way, text in written(value).items():
        shown = masker.text(f"before >{text}< after")
        assert shown.startswith("before >[x]"), (way, shown)
        assert shown.endswith("< after"), (way, shown)
    secrets = secrets_of([], {"MY_SECRET": value})
    for held in ({"said": value, "n": [f"({value})"]}, {"inner": json.dumps({"said": value})}):
        for data in (json.dumps(held).encode(), json.dumps(held, ensure_ascii=False).encode()):
            cleaned = json.dumps(json.loads(secrets.clean(data)), ensure_ascii=False)
            assert value[:12] not in cleaned
            assert "[redacted]" in cleaned


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_a_secret_is_masked_in_base64(shift):
    key = "kqzw-7f93hd?>ab~c8d1kfm20"
    for code in (base64.b64encode, base64.urlsafe_b64encode):
        text = code(b"." * shift + key.encode() + b" and more").decode()
        shown = Masker([key], "[x]").text(f"it was {text}")
        assert "[x]" in shown
        assert len(shown) < len(text) - 10


def test_parts_of_a_secret_are_secret_too():
    found = set(secrets_in_variable("GOOGLE_APPLICATION_CREDENTIALS_JSON", ACCOUNT))
    assert {ACCOUNT, "GOCSPX-inner-77", PRIVATE.strip(), "MIIEvQIBADANBgkqhkiG9w0B"} <= found
    assert not {"service_account", "my-project", "-----BEGIN PRIVATE KEY-----"} & found
    assert set(secrets_in_variable("API_KEYS", "first-key-0001, second-key-02")) >= {"first-key-0001", "second-key-02"}
    assert "s3cr3t=" in set(secrets_in_variable("STORAGE", "AccountName=me;AccountKey=s3cr3t=;EndpointSuffix=x"))
    assert set(secrets_in_variable("SENTRY_DSN", "https://planted-login-17@sentry.example/4")) >= {"planted-login-17"}
    assert set(secrets_in_variable("DATABASE_URL", "postgres://bob:p%40ss-9@db/x?sslmode=require")) == {
        "p%40ss-9",
        "p@ss-9",
    }
    assert "inner-password-1" in set(
        secrets_in_variable("VCAP_SERVICES", '{"a": [{"credentials": {"password": "inner-password-1"}}]}')
    )
    assert list(secrets_in_variable("USE_API_KEY", "true")) == []
    encoded = base64.b64encode(ACCOUNT.encode()).decode()
    assert "GOCSPX-inner-77" in set(secrets_in_variable("ACCOUNT_KEY_B64", encoded))


def test_every_value_of_a_query_and_the_login_belong_to_the_url():
    assert set(secrets_in_url("https://h/v1?key=PLANTed%2F1&code=abc%20def&api-version=2024-10-21")) == {
        *("PLANTed%2F1", "PLANTed/1", "abc%20def", "abc def", "2024-10-21")
    }
    assert set(secrets_in_url("https://a-token-of-twenty-c:x-oauth@h")) == {"a-token-of-twenty-c", "x-oauth"}
    assert set(secrets_in_url("http://[::1/b")) == set()


def test_what_is_too_short_is_masked_as_a_whole_value_only():
    masker = Masker(["EMPTY", "abc1", "test", "dummy"], "[x]")
    plain = "a test that EMPTY is no dummy, abc1"
    assert masker.text(plain) == plain
    assert masker.text("POST /v1?key=abc1&v=2 HTTP/1.1") == "POST /v1?key=[x]&v=2 HTTP/1.1"
    assert masker.text("/v1?code=abc12") == "/v1?code=abc12"
    assert masker.text('{"Authorization": "Bearer EMPTY"}') == '{"Authorization": "Bearer [x]"}'
    assert masker.value({"headers": {"x-api-key": "abc1"}, "said": "abc1"}) == {
        "headers": {"x-api-key": "[x]"},
        "said": "abc1",
    }


def test_the_notes_name_variables_and_no_values():
    notes = environment_notes(
        {
            "LOCAL_API_KEY": "EMPTY",
            "PIN_TOKEN": "731",
            "ADMIN_PASSWORD": "garden",
            "DB_PASSWORD": "long enough 1",
            "A": "b",
        }
    )
    assert "too short to search for: LOCAL_API_KEY, PIN_TOKEN." in notes[0]
    assert "ADMIN_PASSWORD" in notes[1]
    assert not any(value in " ".join(notes) for value in ("EMPTY", "731", "garden", "DB_PASSWORD"))
    assert environment_notes({"DB_PASSWORD": "long enough 1"}) == []


def test_paths_are_no_secrets(tmp_path):
    (tmp_path / "key").write_text("x")
    found = secrets_of(
        [],
        {
            "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/account.json",
            "SIGNING_KEY": str(tmp_path / "key"),
            "SSH_KEY_PATH": "id_rsa_main",
        },
    )
    assert found.texts == ()
    assert secrets_of([], {"AWS_SECRET_ACCESS_KEY": "/abc/def+ghi"}).texts == ("/abc/def+ghi",)


def test_json_stays_what_it_was_where_a_secret_is_an_ordinary_word():
    secrets = secrets_of([], {"A_PASSWORD": "answer", "B_PASSWORD": "12345678"})
    held = {"answer": "the answer is", "n": 12345678, "12345678": 1, "context": "12345678", "my answer": 2}
    assert json.loads(secrets.clean(json.dumps(held).encode())) == {
        **{"answer": "the [redacted] is", "n": 12345678},
        **{"[redacted]": 1, "context": "[redacted]", "my [redacted]": 2},
    }


def test_what_a_cut_leaves_of_a_secret_goes_too():
    key = "planted-key-0123456789"
    secrets = secrets_of([], {"A_KEY": key})
    assert secrets.text(f"{key[5:]} was it, or {key[:14]}") == "[redacted] was it, or [redacted]"


@pytest.mark.parametrize("value", ["straße-7f4k2m9q", "ﬁne-keys-7f4k2m9q", "pä7f4k2mß€9qx8w7"])
def test_capitals_that_are_other_letters_are_found(value):
    said = value.upper()
    assert len(said) > len(value)
    for text in (said, json.dumps(said), urllib.parse.quote(said), base64.b64encode(said.encode()).decode()):
        found = Masker([value], "[x]").text(f"it is {text}, they say")
        assert "7F4K2M" not in found
        assert "[x]" in found


@pytest.mark.parametrize(
    "code", [str, str.upper, lambda key: key.encode().hex(), lambda key: base64.b64encode(key.encode()).decode()]
)
def test_no_part_of_a_secret_is_left_where_a_text_is_shortened(code):
    key = "planted-key-0123456789-planted"
    for limit in range(400):
        left = Masker([key], "[x]").text(beginning(f"this is the key of it: {code(key)} and that was it", limit))
        assert left in "this is the key of it: [x] and that was it" or "[x]" in left
        assert code(key)[:4] not in left
        assert len(left) <= limit or len(left) < 60


@given(st.text(min_size=6, max_size=40), st.text(max_size=10), st.text(max_size=10))
def test_no_text_keeps_a_secret(secret, before, after):
    secret = secret.strip()
    masker = Masker([secret], "\0")
    if masker.values:
        for text in written(secret.encode("utf-8", "replace").decode()).values():
            assert secret not in masker.text(before + text + after)


@pytest.mark.parametrize("piece", ["a", "\\", " ", "correct horse ", "correct ", "%20", "&#32;", "\\n"])
def test_time_grows_with_the_text_alone(piece):
    masker = Masker(["correct horse staple", "aaaaaaaaaaab", "\\\\\\\\\\\\\\x", PRIVATE], "[x]")
    took = []
    for size in (100_000, 400_000):
        text = piece * (size // len(piece))
        start = time.process_time()
        masker.text(text)
        took.append(time.process_time() - start)
    assert took[1] < 8 * took[0] + 0.5
    assert took[1] < 5


def test_values_of_a_query_that_answers_may_hold_are_masked_as_whole_values_only() -> None:
    url = "http://h/v1?region=france&api-version=2024-02-01&model=gpt-4o-mini&tenant=Kansas&user=mz-5521-planted&key=2024-10-21&n=1"
    masked = secrets_of([SimpleNamespace(url=url)], {})
    answer = "The capital of france is Paris; gpt-4o-mini, 2024-02-01, Kansas"
    assert masked.text(answer) == answer
    assert "france" not in masked.text("POST /v1?region=france&tenant=Kansas HTTP/1.1")
    assert "Kansas" not in masked.text("POST /v1?region=france&tenant=Kansas HTTP/1.1")
    for secret in ("mz-5521-planted", "2024-10-21"):
        assert secret not in masked.text(f"your {secret} is wrong")
    [note] = masked.notes
    assert note.startswith("Query parameters of the URLs asked: user.")


def test_of_a_program_only_its_urls_are_read_for_parameters() -> None:
    program = """ask = post("http://127.0.0.1:8000/v1?user=mz-5521-planted", body)
    # Is there more? Then: reply = one of "TALK", or "SUBMIT" alone; else stop = never
    print(reply)"""
    masked = secrets_of([SimpleNamespace(program=program)], {})
    [note] = masked.notes
    assert note.startswith("Query parameters of the URLs asked: user.")
    assert "mz-5521-planted" not in masked.text("your mz-5521-planted is wrong")
    for text in ("one of TALK, or SUBMIT alone", "print(reply)"):
        assert masked.text(text) == text


def test_what_no_parameter_is_called_is_not_told_of_a_url() -> None:
    """A program in one line may go on behind a URL with its own text."""
    url = 'http://h/v1?user=mz-5521-planted&reply%20with%20one%2C%20or%20"SUBMIT"%20alone%20if%20n=planted-7731'
    [note] = secrets_of([SimpleNamespace(url=url)], {}).notes
    assert note.startswith("Query parameters of the URLs asked: user. Their")


def test_a_key_of_figures_alone_is_named_in_the_notes() -> None:
    assert "ordinary words" in environment_notes({"OPENAI_API_KEY": "100000"})[0]


@pytest.mark.parametrize("name", ["MASTERKEY", "ADMIN_PW", "signingKey", "ENCRYPTIONKEY_2", "DEPLOYKEY", "sshkey"])
def test_names_without_a_gap_between_their_words_announce_a_secret_too(name):
    assert names_a_secret(name)


@pytest.mark.parametrize("name", ["MONKEY", "HOTKEY", "PWD", "SSHKEY_FILE", "power"])
def test_names_that_only_look_like_them_do_not(name):
    assert not names_a_secret(name)


SECRET_KEY = "kqZw7f93hdQab-c8d1K.fm20"


@pytest.mark.parametrize("name", ["KEYFILE", "SSH_KEY_FILE", "TLS_KEYFILE", "API_TOKEN_PATH"])
def test_a_variable_for_a_place_may_hold_the_key_itself(name):
    assert set(secrets_in_variable(name, PRIVATE)) >= {PRIVATE.strip(), "MIIEvQIBADANBgkqhkiG9w0B"}
    assert set(secrets_in_variable(name, "skProj7f93hdQabc8d1Kfm20")) == {"skProj7f93hdQabc8d1Kfm20"}
    for place in (
        "id_rsa_main",
        "server.key",
        "/etc/tls/server.pem",
        "keys/main-2024.pem",
        "C:\\keys\\a.pem",
        "~/.ssh/id",
    ):
        assert list(secrets_in_variable(name, place)) == []


def test_a_private_key_is_secret_whatever_its_variable_is_called():
    assert PRIVATE.strip() in set(secrets_in_variable("TLS_PEM", PRIVATE))
    assert list(secrets_in_variable("TLS_PEM", PRIVATE.replace("PRIVATE KEY", "CERTIFICATE"))) == []
    assert list(secrets_in_variable("LOG_FILE", "skProj7f93hdQabc8d1Kfm20")) == []


#: Ways of writing every letter otherwise, each with what it becomes within others.
WHOLLY = {
    "hexadecimal": lambda text: text.encode().hex(),
    "HEXADECIMAL": lambda text: text.encode().hex().upper(),
    "\\u of JSON": lambda text: "".join(
        f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H").tolist()
    ),
    "\\u in capitals": lambda text: "".join(
        f"\\u{unit:04X}" for unit in memoryview(text.encode("utf-16-le")).cast("H").tolist()
    ),
    "\\x of Python": lambda text: "".join(f"\\x{each:02x}" for each in text.encode()),
    "% of URLs": lambda text: "".join(f"%{each:02X}" for each in text.encode()),
    "&# of XML": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "&#x of XML": lambda text: "".join(f"&#x{ord(each):x};" for each in text),
    "Base64": lambda text: base64.b64encode(text.encode()).decode(),
    "as it is": lambda text: text,
}
CASES = {"as it is": str, "in capitals": str.upper, "in small letters": str.lower}
AROUND = {
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON with its letters": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "URL": lambda text: urllib.parse.quote(text, safe=""),
    "form": urllib.parse.quote_plus,
}


@pytest.mark.parametrize("way", WHOLLY)
@pytest.mark.parametrize(
    "value", [SECRET_KEY, FORMS["spaces"], FORMS["quotes"], FORMS["foreign letters"], FORMS["digits"]]
)
def test_a_secret_is_masked_when_every_letter_is_written_otherwise(way, value):
    masker = Masker([value], "[x]")
    for large in (0, 5_000, 3_000_000):  # looked through in other ways
        padding = "some words, " * (large // 12)
        shown = masker.text(f"{padding}before >{WHOLLY[way](value)}< after{padding}")
        assert "before >[x]" in shown
        assert masker.may_be_in(f"{padding} {WHOLLY[way](value)} {padding}".encode())


@given(
    st.text("aZ09 -_./+=\"'\\é鍵🔑&<\n", min_size=14, max_size=30).filter(lambda text: len(text.strip()) > 12),
    st.sampled_from(sorted(CASES)),
    st.sampled_from(sorted(WHOLLY)),
    st.lists(st.sampled_from(sorted(AROUND)), max_size=2),
    st.integers(0, 40),
)
def test_no_nesting_of_codings_keeps_a_secret(value, case, way, around, before):
    value = value.strip()
    masker, text = Masker([value], "\0"), CASES[case](value)
    if case != "as it is" and way in ("Base64", "hexadecimal", "HEXADECIMAL"):
        return  # not promised: capitals, and then a coding that hides them
    text = WHOLLY[way](text)
    if way.startswith("&#") and any(each in ("URL", "form") for each in around):
        return  # not promised: XML within a URL
    for each in around:
        text = AROUND[each](text)
    shown = masker.text("." * before + text + " and more")
    assert "\0" in shown
    assert len(shown) <= before + len(" and more") + 8  # Base64 shares a letter with what stands beside it


def test_words_are_looked_for_in_their_own_capitals_alone():
    masker = Masker(["garden", "answer"], "[x]")
    assert masker.text("The Garden of GARDEN: a garden") == "The Garden of GARDEN: a [x]"
    assert Masker([SECRET_KEY], "[x]").text(f"{SECRET_KEY.upper()} {SECRET_KEY.lower()}") == "[x] [x]"


@given(
    st.binary(max_size=60),
    st.lists(st.binary(min_size=15, max_size=40), min_size=1, max_size=9),
    st.integers(0, 70_000),
)
def test_a_sieve_lets_nothing_through_that_it_is_for(other, needles, at):
    looked = Sieve(tuple(needles))
    for needle in needles:
        assert looked.may_be_in(b"." * at + needle + other)
    assert not looked.may_be_in(b"\0" * 8) or any(b"\0" * 8 in needle for needle in needles)


@pytest.mark.parametrize("times", [2, 3, 5])
@pytest.mark.parametrize("form", ["spaces", "lines", "a slash first", "quotes", "foreign letters"])
@pytest.mark.parametrize("write", [lambda text: urllib.parse.quote(text, safe=""), html.escape])
def test_a_secret_is_masked_however_often_it_was_written_for_a_url_or_a_page(form, write, times):
    """As a target of a redirection within a query is, or a page that quotes a page."""
    value = FORMS[form]
    mask, text = Masker(list(secrets_in_variable("X_SECRET", value)), "[masked]"), value
    for _ in range(times):
        text = write(text)
    assert mask.text(f"before {text} after") == "before [masked] after"


@pytest.mark.parametrize("before", ["", "x", "xy", "user:"])
@pytest.mark.parametrize("value", ["abc12d7", "k3y-8cha", "parola9!zz"])
def test_a_short_secret_is_masked_in_base64(value, before):
    mask = Masker(list(secrets_in_variable("X_SECRET", value)), "[masked]")
    told = mask.text(base64.b64encode(f"{before}{value}".encode()).decode())
    assert "[masked]" in told
    left = told.partition("[masked]")[0]
    assert value[1:3].encode() not in base64.b64decode(left[: len(left) // 4 * 4])
