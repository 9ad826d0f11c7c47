"""Who is let in, and what every answer says to the browser."""

import hashlib
import shutil
import stat

import pytest

from context_bench.core.errors import BadInput, StoreUnusable
from context_bench.session.runs import result_of
from context_bench.viewer import Viewer

from .conftest import session_with


async def test_the_token_becomes_a_cookie_and_leaves_the_address(served, stranger):
    async with stranger.get("/runs/nothing") as closed:
        assert closed.status == 403
        assert "token" in await closed.text()
    async with stranger.get(f"/?q=first&token={served.url.partition('token=')[2]}", allow_redirects=False) as entered:
        assert entered.status == 303
        assert entered.headers["Location"] == "/?q=first"
        cookie = entered.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert served.url.partition("token=")[2] not in cookie
    async with stranger.get("/") as after:
        assert after.status == 200


async def test_a_link_of_another_site_with_the_token_goes_by_a_page_of_ours(served, stranger):
    clicked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with stranger.get(served.url, headers=clicked, allow_redirects=False) as entered:
        assert entered.status == 200
        assert 'http-equiv="refresh" content="0; url=/"' in await entered.text()
    async with stranger.get("/", headers=clicked) as inside:
        assert inside.status == 200


@pytest.mark.parametrize("token", ["", "x", "é", "0" * 40])
async def test_a_wrong_token_opens_nothing(stranger, token):
    async with stranger.get("/", params={"token": token}) as response:
        assert response.status == 403
    async with stranger.get("/") as response:
        assert response.status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example"},
        {"Host": "rebound.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "user@127.0.0.1:{port}"},
        {"Host": "127.0.0.1.evil.example:{port}"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
    ],
)
async def test_other_names_and_other_pages_are_refused_even_with_cookie_and_token(served, session, headers):
    port = served.address.rpartition(":")[2]
    told = {name: value.format(port=port) for name, value in headers.items()}
    for path in ("/", "/static/style.css", served.url.removeprefix(served.address)):
        async with session.get(path, headers=told, allow_redirects=False) as response:
            assert response.status == 403
            assert "Set-Cookie" not in response.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_every_loopback_name_with_the_port_will_do(served, session, host):
    port = served.address.rpartition(":")[2]
    async with session.get("/", headers={"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}"}) as response:
        assert response.status in (200, 403)
        assert response.status == 200 or "token" in await response.text()  # the client keeps the cookie for one name


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
async def test_only_get(session, method):
    async with session.request(method, "/") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET"


async def test_every_answer_tells_the_browser_how_little_is_allowed(session):
    for path in ("/", "/nowhere", "/static/style.css", "/static/viewer.js", "/runs/first"):
        async with session.get(path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; ")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Referrer-Policy"] == "no-referrer"
            assert response.headers["Cache-Control"] == "no-store"


async def test_a_store_is_read_and_never_written(store_path, tmp_path):
    folder = tmp_path / "still"
    folder.mkdir()
    path = folder / "store.db"
    shutil.copy(store_path, path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.chmod(stat.S_IRUSR)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        async with Viewer(path, result_of=result_of) as viewer, session_with(viewer) as session:
            for address in ("/", "/runs/first", "/runs/first?q=word1"):
                async with session.get(address) as response:
                    assert response.status == 200
    finally:
        folder.chmod(stat.S_IRWXU)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


async def test_what_is_no_store_is_said(tmp_path):
    (tmp_path / "text").write_text("not a database, but some text that is long enough to be looked at as one" * 20)
    with pytest.raises(StoreUnusable, match="no store at"):
        await Viewer(tmp_path / "none.db", result_of=result_of).start()
    with pytest.raises(StoreUnusable, match="not a SQLite database"):
        await Viewer(tmp_path / "text", result_of=result_of).start()
    assert not (tmp_path / "none.db").exists()


async def test_a_port_that_is_taken_is_said(store_path, served):
    taken = int(served.address.rpartition(":")[2])
    with pytest.raises(BadInput, match="choose another --port"):
        await Viewer(store_path, result_of=result_of, port=taken).start()
