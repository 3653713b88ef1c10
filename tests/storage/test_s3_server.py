"""The S3 server of the tests answers reads by itself, exactly as the emulation behind it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from xml.etree import ElementTree

import pytest
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.test import Client

from tests.storage.s3_server import QuickReads

pytestmark = pytest.mark.s3

BUCKET = "/reads-of-tests"
KEYS = ["a/1", "a/2", "a/b/3", "a/b/c/4", "a&b/<5>", "a/ä 6", "b=7/_x-8.lance"]
ADDRESS = "http://127.0.0.1:5000"
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
}


class Emulation:
    """The emulation, which counts what it is asked."""

    def __init__(self) -> None:
        self._app: WSGIApplication = create_backend_app("s3")
        self.asked = 0

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.asked += 1
        return self._app(environ, start_response)


@pytest.fixture(scope="module")
def emulation() -> Emulation:
    made = Emulation()
    client = Client(made)
    assert client.put(BUCKET, base_url=ADDRESS).status_code == 200
    for key in KEYS:
        client.put(f"{BUCKET}/{key}", base_url=ADDRESS, data=f"value of {key}", content_type="text/plain")
    for number in range(1100):
        client.put(f"{BUCKET}/many/{number:04}", base_url=ADDRESS, data="x")
    return made


Answer = tuple[int, dict[str, str | None], Any]


def ask(app: WSGIApplication, method: str, path: str, headers: dict[str, str]) -> Answer:
    sent = SIGNED | headers
    answer = Client(app).open(f"{BUCKET}{path}", method=method, base_url=ADDRESS, headers=sent)
    names = ("etag", "last-modified", "content-length", "content-range", "accept-ranges", "content-type")
    listed = path.startswith("?")
    shown = {name: answer.headers.get(name) for name in names if not listed}
    return answer.status_code, shown, elements(answer.text) if listed else answer.data


def elements(text: str) -> list[object]:
    """What an XML text says, whatever the order of its parts."""

    def flat(one: ElementTree.Element) -> tuple[str, str, list[object]]:
        return one.tag, one.text or "", sorted((flat(child) for child in one), key=repr)

    return sorted(map(flat, ElementTree.fromstring(text)), key=repr)


QUICK = [
    ("GET", "/a/1", {}),
    ("HEAD", "/a/1", {}),
    ("GET", "/b=7/_x-8.lance", {"Range": "bytes=2-5"}),
    ("GET", "?list-type=2&prefix=a%2F", {}),
    ("GET", "?list-type=2&prefix=a%2F&delimiter=%2F", {}),
    ("GET", "?list-type=2&prefix=a%26b%2F&delimiter=%2F", {}),
    ("GET", "?list-type=2&delimiter=%2F", {}),
    ("GET", "?list-type=2&prefix=none%2F", {}),
    ("GET", "?list-type=2&prefix=a%2F&start-after=a%2F2", {}),
    ("GET", "?list-type=2&prefix=many%2F", {}),
]
LEFT_TO_IT = [
    ("GET", "/a/%C3%A4%206", {}),
    ("GET", "/a/1", {"Range": "bytes=2-"}),
    ("GET", "/a/1", {"Range": "bytes=90-99"}),
    ("GET", "/a/1", {"If-None-Match": "*"}),
    ("GET", "?list-type=2&prefix=a%2F&max-keys=1", {}),
    ("GET", "?versions=", {}),
    ("GET", "/a/1", {"Authorization": ""}),
]


@pytest.mark.parametrize(("method", "path", "headers"), QUICK)
def test_a_plain_read_is_answered_as_by_the_emulation_and_without_it(
    method: str, path: str, headers: dict[str, str], emulation: Emulation
) -> None:
    expected = ask(emulation, method, path, headers)
    before = emulation.asked
    assert ask(QuickReads(emulation), method, path, headers) == expected
    assert emulation.asked == before


def test_the_second_page_of_a_list_is_the_rest(emulation: Emulation) -> None:
    app = QuickReads(emulation)
    page = f"{BUCKET}?list-type=2&prefix=many%2F"
    first = Client(app).get(page, base_url=ADDRESS, headers=SIGNED).text
    token = first.partition("<NextContinuationToken>")[2].partition("<")[0]
    second = f"?list-type=2&prefix=many%2F&continuation-token={token}"
    found = ask(app, "GET", second, {})
    assert found == ask(emulation, "GET", second, {})
    assert str(found[2]).count("many/") == 101  # with the prefix itself


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_is_missing_is_reported_as_by_the_emulation_and_without_it(
    method: str, emulation: Emulation
) -> None:
    expected, _, text = ask(emulation, method, "/a/none", {})
    before = emulation.asked
    status, _, found = ask(QuickReads(emulation), method, "/a/none", {})
    assert status == expected == 404
    assert (b"<Code>NoSuchKey</Code>" in found) is (b"<Code>NoSuchKey</Code>" in text) is (method == "GET")
    assert emulation.asked == before


@pytest.mark.parametrize(("method", "path", "headers"), LEFT_TO_IT)
def test_all_else_is_left_to_the_emulation(
    method: str, path: str, headers: dict[str, str], emulation: Emulation
) -> None:
    expected = ask(emulation, method, path, headers)[0]
    before = emulation.asked
    assert ask(QuickReads(emulation), method, path, headers)[0] == expected
    assert emulation.asked == before + 1
