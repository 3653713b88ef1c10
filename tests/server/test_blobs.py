"""Blobs: bytes, ranges, ETags and conditions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.engine.rows.blobs import Blob
from omnigraph.errors import UnsatisfiableRange
from omnigraph.server.blobs import FoundBlob, redirect
from omnigraph.server.conditions import ByteRange, matches_strongly, matches_weakly, parse_range
from tests.server.running import PHOTO, SCHEMA, RunningServer, start_server

ADA = {"entity": "node", "type": "Person", "id": "Ada", "property": "photo"}
SIZE = len(PHOTO)


@pytest.fixture(scope="module")
def client(open_server: RunningServer) -> Iterator[httpx.Client]:
    with open_server.client() as opened:
        yield opened


@pytest.fixture(scope="module")
def etag(client: httpx.Client) -> str:
    found: str = client.get("/blob", params=ADA).headers["etag"]
    return found


def get(client: httpx.Client, method: str = "GET", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.request(method, "/blob", params=ADA, headers=named)


def test_blob_has_its_bytes_and_a_strong_etag(client: httpx.Client) -> None:
    answer = get(client)
    assert answer.content == PHOTO
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(SIZE)
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["etag"].startswith('"')
    newest = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    assert answer.headers["omnigraph-snapshot-id"] == newest


def test_head_has_the_headers_and_ignores_ranges(client: httpx.Client) -> None:
    answer, whole = get(client, "HEAD", Range="bytes=0-3"), get(client)
    assert answer.status_code == 200
    assert answer.content == b""
    for name in ("content-length", "etag", "accept-ranges", "content-type", "omnigraph-snapshot-id"):
        assert answer.headers[name] == whole.headers[name]


@pytest.mark.parametrize(
    ("asked", "expected", "shown"),
    [
        ("bytes=2-4", PHOTO[2:5], "bytes 2-4/10"),
        ("bytes=7-", PHOTO[7:], "bytes 7-9/10"),
        ("bytes=-3", PHOTO[-3:], "bytes 7-9/10"),
        ("bytes=8-100", PHOTO[8:], "bytes 8-9/10"),
        ("bytes=-100", PHOTO, "bytes 0-9/10"),
    ],
)
def test_range_gives_a_part(client: httpx.Client, asked: str, expected: bytes, shown: str) -> None:
    answer = get(client, Range=asked)
    assert answer.status_code == 206
    assert answer.content == expected
    assert answer.headers["content-range"] == shown
    assert answer.headers["content-length"] == str(len(expected))


@pytest.mark.parametrize("asked", ["bytes=1-2,4-5", "lines=1-2", "bytes=x", "bytes=4-2", "bytes=-", "1-2"])
def test_ranges_that_are_not_understood_give_everything(client: httpx.Client, asked: str) -> None:
    answer = get(client, Range=asked)
    assert answer.status_code == 200
    assert answer.content == PHOTO


def test_range_behind_the_last_byte_is_refused(client: httpx.Client) -> None:
    answer = get(client, Range="bytes=10-12")
    assert answer.status_code == 416
    assert answer.headers["content-range"] == "bytes */10"
    assert answer.json()["blob_range"] == {"start": 10, "end": 13, "length": 10}
    assert answer.json()["code"] == "bad_request"


def test_conditions_are_evaluated_in_their_order(client: httpx.Client, etag: str) -> None:
    other = '"other"'
    failed = get(client, If_Match=other, If_None_Match=etag)
    assert failed.status_code == 412
    assert failed.json()["code"] == "conflict"
    unchanged = get(client, If_Match=f"{other}, {etag}", If_None_Match=f"W/{etag}", Range="bytes=0-1")
    assert unchanged.status_code == 304
    assert unchanged.content == b""
    assert unchanged.headers["content-length"] == str(SIZE)
    assert unchanged.headers["etag"] == etag
    assert get(client, If_Match="*", If_None_Match=other, Range="bytes=0-1").content == PHOTO[:2]
    assert get(client, "HEAD", If_None_Match="*").status_code == 304


@pytest.mark.parametrize(("tag", "status"), [("exact", 206), ("weak", 200), ("other", 200)])
def test_if_range_counts_only_for_the_exact_tag(
    client: httpx.Client, etag: str, tag: str, status: int
) -> None:
    sent = {"exact": etag, "weak": f"W/{etag}", "other": '"other"'}[tag]
    assert get(client, Range="bytes=0-1", If_Range=sent).status_code == status


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"id": "Missing"}, 404),
        ({"id": "Bob"}, 404),
        ({"property": "age"}, 400),
        ({"property": "nothing"}, 400),
        ({"type": "Nothing"}, 400),
        ({"entity": "thing"}, 400),
        ({"entity": ""}, 400),
        ({"branch": "nowhere"}, 404),
        ({"branch": "main", "snapshot": "x"}, 400),
        ({"snapshot": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, 404),
    ],
)
def test_blobs_that_are_not_there_get_a_typed_error(
    client: httpx.Client, changes: dict[str, str], status: int
) -> None:
    answer = client.get("/blob", params={**ADA, **changes})
    assert answer.status_code == status, answer.text
    head = client.head("/blob", params={**ADA, **changes})
    assert (head.status_code, head.content) == (status, b"")


def test_etag_changes_with_the_bytes_and_the_past_keeps_its_own(client: httpx.Client) -> None:
    before = get(client)
    line = '{"type": "Person", "data": {"name": "Ada", "photo": "base64:AAECAw=="}}'
    assert client.post("/load", json={"data": line}).status_code == 200
    after = get(client)
    assert after.content == bytes(range(4))
    assert after.headers["etag"] != before.headers["etag"]
    past = client.get("/blob", params={**ADA, "snapshot": before.headers["omnigraph-snapshot-id"]})
    assert past.content == before.content
    assert past.headers["etag"] == before.headers["etag"]


class NoBytes:
    """The source of bytes that nothing may read."""

    def parts(self, begin: int, end: int, part: int) -> Iterator[bytes]:
        raise AssertionError("the bytes were read")


def test_external_blob_is_a_redirect_that_is_never_fetched() -> None:
    # No writer of ours stores such a Blob yet, so one is made here.
    blob = Blob("node", "Person", "Ada", "photo", "external", None, None, "s3://photos/ada", NoBytes())
    answer = redirect(FoundBlob(blob, "commit"))
    assert answer.status_code == 302
    assert answer.headers["location"] == "s3://photos/ada"
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers


def test_large_blob_arrives_whole(tmp_path: Path) -> None:
    data = bytes(range(256)) * 20_500
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as graph:
        graph.load([{"name": "Ada", "photo": data}], type="Person", mode="append")
    with (
        start_server(tmp_path / "g.omni", tmp_path / "log", "--unauthenticated") as server,
        server.client() as client,
    ):
        assert get(client).content == data
        assert get(client, Range="bytes=5000000-").content == data[5_000_000:]


# --- the headers alone -----------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [["x"], ['"a" "b"'], ["W/"], [""], ['"a", x']])
def test_malformed_lists_of_tags_match_nothing(headers: list[str]) -> None:
    assert not matches_strongly(headers, '"a"')
    assert not matches_weakly(headers, '"a"')


def test_weak_tags_match_only_weakly() -> None:
    assert matches_weakly(['W/"a"'], '"a"')
    assert not matches_strongly(['W/"a"'], '"a"')
    assert matches_strongly(['"b"', '"a"'], '"a"')


def test_ranges_of_an_empty_blob_are_unsatisfiable() -> None:
    for asked in ("bytes=0-", "bytes=-5", "bytes=-0"):
        with pytest.raises(UnsatisfiableRange):
            parse_range([asked], [], '"a"', 0)
    assert parse_range(["bytes=0-0"], [], '"a"', 1) == ByteRange(0, 1)
    assert parse_range(["bytes=0-1", "bytes=2-3"], [], '"a"', 9) is None
