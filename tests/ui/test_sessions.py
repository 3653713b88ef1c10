"""What protects the page: the one-time link, the cookie, the Host header and the headers of its files."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from omnigraph.errors import NotFound
from omnigraph.server.ui_page import POLICY, is_page_built, read_page_file
from omnigraph.server.ui_sessions import SESSION_SECONDS, Sessions
from tests.python_process import PIPE, Python
from tests.server.running import TOKENS, RunningServer, environment

PAGE = {"X-Omnigraph-Page": "1"}
BUILT = pytest.mark.skipif(not is_page_built(), reason="the explorer is not built: run `make ui`")


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address and the token that `omnigraph ui` prints."""
    if not is_page_built():
        pytest.skip("the explorer is not built: run `make ui`")
    folder = tmp_path_factory.mktemp("ui")
    import omnigraph as og

    og.init(folder / "small.omni", schema="node Person { name: String @key }").close()
    words = ("-m", "omnigraph", "ui", str(folder / "small.omni"), "--no-open", "--as", "ann")
    with (folder / "log").open("w") as log:
        process = Python(*words, env=environment(), stdout=PIPE, stderr=log.fileno())
    with process:
        assert process.stdout is not None
        address, _, token = process.stdout.readline().strip().partition("/ui#token=")
        yield address, token
        process.send_signal(signal.SIGTERM)


def test_link_works_once_and_its_cookie_only_for_the_page(link: tuple[str, str]) -> None:
    address, token = link
    with httpx.Client(base_url=address, trust_env=False) as client:
        assert client.get("/branches").status_code == 401
        assert client.post("/ui/session", json={"token": token}).status_code == 401  # not from the page
        opened = client.post("/ui/session", json={"token": token}, headers=PAGE)
        assert opened.json() == {"actor_id": "ann"}
        cookie = opened.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        again = client.post("/ui/session", json={"token": token}, headers=PAGE)
        assert (again.status_code, again.json()["error_code"]) == (401, "unauthorized")
        assert client.get("/branches", headers=PAGE).json() == {"branches": ["main"]}
        for foreign in (
            {},
            {**PAGE, "Origin": "http://evil.example"},
            {**PAGE, "Sec-Fetch-Site": "same-site"},
            {**PAGE, "Sec-Fetch-Site": "cross-site"},
        ):
            assert client.get("/branches", headers=foreign).status_code == 401, foreign
        for host in ("evil.example", "127.0.0.1", address.removeprefix("http://") + ".evil.example"):
            assert client.get("/branches", headers={**PAGE, "Host": host}).status_code == 400, host
        rights = client.get("/permissions", headers=PAGE).json()
        assert (rights["mode"], rights["actor_id"]) == ("personal", "ann")
        assert all(rights["actions"].values())
        insert = {"query": 'query q() { insert Person { name: "Ada" } }'}
        assert client.post("/mutate", json=insert, headers=PAGE).json()["commit"]["actor_id"] == "ann"
        assert client.delete("/ui/session", headers=PAGE).status_code == 200
        assert client.get("/branches", headers=PAGE).status_code == 401


def test_bearer_token_becomes_a_session_with_the_rights_of_its_actor(lab_server: RunningServer) -> None:
    with lab_server.client() as client:
        assert client.post("/ui/session", json={"token": "wrong"}, headers=PAGE).status_code == 401
        client.post("/ui/session", json={"token": TOKENS["reader"]}, headers=PAGE).raise_for_status()
        rights = client.get("/permissions", headers=PAGE).json()
        assert rights["actor_id"] == "reader"
        assert {name for name, may in rights["actions"].items() if may} == {"read"}
        body = {"query": 'query q() { insert Person { handle: "x", name: "X" } }'}
        assert client.post("/mutate", json=body, headers=PAGE).status_code == 403
        # A header wins over the cookie.
        as_root = {**PAGE, "Authorization": f"Bearer {TOKENS['root']}"}
        assert client.get("/permissions", headers=as_root).json()["actor_id"] == "root"


@BUILT
def test_page_has_no_inline_script_and_asks_no_other_host(lab_server: RunningServer) -> None:
    with lab_server.client() as client:
        answer = client.get("/ui")
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        for name in ("no.js", "..%2F..%2Fauth.py", "%2e%2e"):
            assert client.get(f"/ui/{name}").status_code == 404, name
    assert "script-src 'self';" in POLICY
    assert "<script>" not in answer.text
    assert "http://" not in answer.text
    assert "https://" not in answer.text


def test_missing_page_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.server import ui_page

    monkeypatch.setattr(ui_page, "_folder", lambda: tmp_path)
    read_page_file.cache_clear()
    with pytest.raises(NotFound) as failure:
        read_page_file("index.html")
    read_page_file.cache_clear()
    assert "make ui" in str(failure.value.remedy)


def test_sessions_end_after_a_while_and_the_oldest_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    sessions = Sessions(tmp_path / "sessions", clock=lambda: now)
    monkeypatch.setattr("omnigraph.server.ui_sessions.MOST_SESSIONS", 2)
    first = page_request(sessions.start("ann"))
    for file in (tmp_path / "sessions").iterdir():
        os.utime(file, (0, 0))
    second = page_request(sessions.start("bo"))
    assert [one and one.actor for one in map(sessions.find, (first, second))] == ["ann", "bo"]
    third = page_request(sessions.start("cy"))
    assert [one and one.actor for one in map(sessions.find, (first, second, third))] == [None, "bo", "cy"]
    now = SESSION_SECONDS + 1
    assert sessions.find(third) is None


def page_request(secret: str) -> Request:
    headers = [
        (b"host", b"h:1"),
        (b"x-omnigraph-page", b"1"),
        (b"cookie", f"omnigraph_session_1={secret}".encode()),
    ]
    return Request({"type": "http", "headers": headers})
