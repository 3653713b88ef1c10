"""Loads over HTTP: lines in JSON, lines as they are, and Arrow."""

from __future__ import annotations

import gzip
import http.client
import io
import json
import socket
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from omnigraph.server import route
from omnigraph.server.route import ARROW, LOAD_LIMIT, TAR
from tests.server.route_cases import archive_of
from tests.server.running import RunningServer, start_server

NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def client(open_server: RunningServer) -> Iterator[httpx.Client]:
    with open_server.client() as opened:
        yield opened


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def person(name: str, **data: object) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(source: str, target: str) -> dict[str, object]:
    return {"edge": "Knows", "from": source, "to": target, "data": {}}


def arrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def count(client: httpx.Client, branch: str = "main") -> int:
    source = "query q() { match { $p: Person } return { count($p) as people } }"
    found: int = client.post("/query", json={"query": source, "branch": branch}).json()["rows"][0]["people"]
    return found


def test_load_answers_with_counts_under_both_names(client: httpx.Client) -> None:
    data = lines(person("L1"), person("L2"), knows("L1", "L2"))
    answer = client.post("/load", json={"data": data, "mode": "append"}).json()
    assert answer["nodes"] == [{"name": "Person", "entities_loaded": 2}]
    assert answer["edges"] == [{"name": "Knows", "entities_loaded": 1}]
    assert answer["tables"] == [
        {"table_key": "edge:Knows", "rows_loaded": 1},
        {"table_key": "node:Person", "rows_loaded": 2},
    ]
    assert (answer["total_entities"], answer["mode"], answer["base_branch"]) == (3, "append", None)
    assert answer["uri"].endswith("people.omni")
    newest = client.get("/commits").json()["commits"][0]
    assert answer["commit"] == newest


def test_ingest_creates_a_branch_only_when_it_is_missing(client: httpx.Client) -> None:
    body = {"data": lines(person("I1")), "branch": "ingested", "from": "main"}
    first, second = (client.post("/ingest", json=body).json() for _ in range(2))
    assert (first["branch_created"], second["branch_created"]) == (True, False)
    assert first["base_branch"] == second["base_branch"] == "main"
    assert count(client, "ingested") == count(client) + 1


def test_missing_branch_without_from_is_not_found(client: httpx.Client) -> None:
    answer = client.post("/load", json={"data": lines(person("X")), "branch": "nowhere"})
    assert answer.status_code == 404
    assert answer.json()["error"] == "branch 'nowhere' not found; pass `from` to create it"
    assert answer.json()["error_code"] == "branch_not_found"


def test_append_of_a_stored_id_is_a_key_conflict(client: httpx.Client) -> None:
    answer = client.post("/load", json={"data": lines(person("Ada")), "mode": "append"})
    assert answer.status_code == 409
    body = answer.json()
    assert body["error"] == "node type 'Person' already has id 'Ada'"
    assert body["key_conflict"] == {
        "entity_kind": "node",
        "type_name": "Person",
        "table_key": "node:Person",
        "entity_id": "Ada",
        "key": "Ada",
    }


def test_json_form_ignores_unknown_members_and_says_so(client: httpx.Client) -> None:
    record = {**person("Tolerant", nickname="T"), "comment": "x"}
    answer = client.post("/load", json={"data": lines(record)})
    assert answer.status_code == 200, answer.text
    assert answer.json()["ignored_members"] == ["Person.nickname", "record.comment"]
    refused = client.post("/load", json={"data": lines(person("Odd", age="many"), record)})
    assert refused.status_code == 400
    assert refused.json()["error_code"] == "load_rejected"


@pytest.mark.parametrize(
    "record",
    [
        {**person("S1"), "comment": "x"},
        person("S2", nickname="T"),
        person("S3", _rowid=1),
        {"type": "Person", "data": {"name": "S4", "id": "other"}},
        {"type": "Nothing", "data": {}},
        {"type": "Person"},
        [1],
    ],
    ids=["member", "property", "reserved", "id", "type", "no-key", "list"],
)
def test_raw_form_is_strict_and_writes_nothing(client: httpx.Client, record: object) -> None:
    before = count(client)
    answer = client.post("/load/ndjson", content=lines(person("Good"), record).encode(), headers=NDJSON)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "bad_request"
    assert count(client) == before


@pytest.mark.parametrize(
    "data", [b'{"type": "Person", "type": "Person", "data": {"name": "D"}}\n', b"\xff\xfe{}\n"]
)
def test_raw_form_refuses_repeated_members_and_bytes_that_are_no_text(
    client: httpx.Client, data: bytes
) -> None:
    assert client.post("/load/ndjson", content=data, headers=NDJSON).status_code == 400


def test_raw_form_is_one_commit_without_the_place_of_the_graph(client: httpx.Client) -> None:
    before = len(client.get("/commits").json()["commits"])
    answer = client.post(
        "/load/ndjson",
        params={"mode": "merge", "branch": " main "},
        content=lines(person("N1"), person("N2")).encode(),
        headers={"Content-Type": "Application/X-NDJSON; charset=utf-8"},
    )
    assert answer.status_code == 200, answer.text
    assert "uri" not in answer.json()
    assert answer.json()["branch"] == "main"
    assert len(client.get("/commits").json()["commits"]) == before + 1


@pytest.mark.parametrize("route", ["/load/ndjson", "/load/arrow?type=Person"])
def test_other_content_types_are_refused(client: httpx.Client, route: str) -> None:
    answer = client.post(route, content=b"{}", headers={"Content-Type": "application/json"})
    assert answer.status_code == 415
    assert answer.json()["code"] == "bad_request"


def test_body_over_the_limit_is_refused_by_its_declared_length(open_server: RunningServer) -> None:
    head = (
        "POST /load/ndjson HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
        f"Content-Length: {LOAD_LIMIT + 1}\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((open_server.host, open_server.port), timeout=30) as connection:
        connection.sendall(head.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        body = json.loads(answer.read())
    assert answer.status == 413
    limit = {"resource": "graph_batch_request_bytes", "limit": LOAD_LIMIT, "actual": LOAD_LIMIT + 1}
    assert body["resource_limit"] == limit


def test_streamed_body_over_the_limit_is_refused(client: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(LOAD_LIMIT // 2**20 + 1):
            yield b"\n" * 2**20

    answer = client.post("/load/ndjson", content=endless(), headers=NDJSON)
    assert answer.status_code == 413
    assert answer.json()["resource_limit"]["resource"] == "graph_batch_request_bytes"


def test_unknown_mode_is_refused(client: httpx.Client) -> None:
    assert client.post("/load", json={"data": "", "mode": "replace"}).status_code == 400
    assert client.post("/load/ndjson?mode=replace", content=b"", headers=NDJSON).status_code == 400


def test_a_patch_changes_the_members_it_has(client: httpx.Client) -> None:
    stored = '{"type": "Person", "data": {"name": "Patched", "age": 4, "tags": ["a"]}}\n'
    assert client.post("/load/ndjson", content=stored, headers=NDJSON).status_code == 200
    change = '{"type": "Person", "data": {"name": "Patched", "age": 5}}\n'
    answer = client.post("/load/ndjson?mode=patch&retry=3", content=change, headers=NDJSON)
    assert (answer.status_code, answer.json()["mode"]) == (200, "patch"), answer.text
    query = 'query q() { match { $p: Person { name: "Patched" } } return { $p.age as age, $p.tags as tags } }'
    assert client.post("/query", json={"query": query}).json()["rows"] == [{"age": 5, "tags": ["a"]}]
    for wrong in ("mode=patch&retry=x", "mode=merge&retry=1"):
        assert client.post(f"/load/ndjson?{wrong}", content=change, headers=NDJSON).status_code == 400


def test_arrow_rows_are_loaded_in_one_commit(client: httpx.Client) -> None:
    before, commits = count(client), len(client.get("/commits").json()["commits"])
    rows = pa.table({"name": [f"arrow-{n}" for n in range(5000)], "age": pa.array(range(5000), pa.int32())})
    answer = client.post(
        "/load/arrow",
        params={"type": "Person", "mode": "append"},
        content=arrow(rows),
        headers={"Content-Type": ARROW},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["total_entities"] == 5000
    assert count(client) == before + 5000
    assert len(client.get("/commits").json()["commits"]) == commits + 1


@pytest.mark.parametrize(
    ("params", "content"),
    [
        ({}, arrow(pa.table({"name": ["x"]}))),
        ({"type": "Nothing"}, arrow(pa.table({"name": ["x"]}))),
        ({"type": "Person"}, arrow(pa.table({"nickname": ["x"]}))),
        ({"type": "Person"}, b"no arrow at all"),
        ({"type": "Person"}, arrow(pa.table({"name": ["x"]}))[:-20]),
        ({"type": "Person"}, b""),
    ],
    ids=["no-type", "unknown-type", "wrong-columns", "garbage", "cut-off", "empty"],
)
def test_wrong_arrow_gets_a_typed_error(client: httpx.Client, params: dict[str, str], content: bytes) -> None:
    answer = client.post("/load/arrow", params=params, content=content, headers={"Content-Type": ARROW})
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "bad_request"
    assert "rows.arrow" not in answer.text
    assert "/omnigraph-held" not in answer.text


def link_archive() -> bytes:
    """Return an archive whose only member points to a file elsewhere."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        member = tarfile.TarInfo("../../secret.csv")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    return sink.getvalue()


def nested_archive() -> bytes:
    """Return an archive with nothing but headers, each about the next one."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for _ in range(1000):
            header = tarfile.TarInfo("x")
            header.type, header.size = tarfile.XHDTYPE, 9
            archive.addfile(header, io.BytesIO(b"9 path=x\n"))
    return sink.getvalue()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not a tar archive"),
        (nested_archive(), "not a tar archive"),
        (b"x" * 2000, "not a tar archive"),
        (gzip.compress(archive_of("Person.csv", b"name\nx\n")), "not a tar archive"),
        (archive_of("Person.csv", b"name\n" + b"x\n" * 1000)[:1500], "not a tar archive"),
        (archive_of("Person.csv", b"")[512:], "no files"),
        (link_archive(), "'../../secret.csv' in the archive is not a file"),
        (archive_of("../../Nothing.csv", b"name\nx\n"), "Nothing.csv"),
        (archive_of("Person.lance", b"name"), "Person.lance"),
        (archive_of("s3://bucket/Person.parquet", b"name"), "s3://bucket/Person.parquet"),
    ],
    ids=[
        "empty",
        "nested",
        "garbage",
        "packed",
        "cut-off",
        "none",
        "link",
        "unknown-type",
        "lance",
        "bucket",
    ],
)
def test_wrong_archive_gets_a_typed_error(client: httpx.Client, content: bytes, expected: str) -> None:
    before = count(client)
    answer = client.post("/load/files", content=content, headers={"Content-Type": TAR})
    assert answer.status_code == 400, answer.text
    assert expected in answer.text
    assert "/omnigraph-held" not in answer.text
    assert count(client) == before


def test_limit_of_arrow_loads_is_configurable(copied: Callable[[], Path], tmp_path: Path) -> None:
    limit = {"OMNIGRAPH_ARROW_LOAD_BYTES_MAX": "1000"}
    with (
        start_server(copied(), tmp_path / "log", "--unauthenticated", env=limit) as server,
        server.client() as client,
    ):
        answer = client.post(
            "/load/arrow?type=Person",
            content=arrow(pa.table({"name": ["x" * 2000]})),
            headers={"Content-Type": ARROW},
        )
    assert answer.status_code == 413
    assert answer.json()["resource_limit"]["resource"] == "arrow_load_request_bytes"
    assert answer.json()["resource_limit"]["limit"] == 1000


def test_load_that_creates_its_branch_needs_both_rights(policy_server: RunningServer) -> None:
    body = {"data": lines(person("R")), "branch": "new", "from": "main"}
    with policy_server.client("reader") as reader:
        answer = reader.post("/load", json=body)
    assert answer.status_code == 403
    assert answer.json()["error"] == (
        "policy denied action 'branch_create' on branch 'main' targeting branch 'new' for actor 'reader'"
    )


def test_raw_load_is_denied_before_its_body_is_read(policy_server: RunningServer) -> None:
    head = (
        "POST /load/ndjson HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-reader\r\n"
        "Content-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n"
    )
    with socket.create_connection((policy_server.host, policy_server.port), timeout=30) as connection:
        connection.sendall(head.encode())
        assert connection.recv(12) == b"HTTP/1.1 403"


def tar(*members: tuple[str, bytes, dict[str, str]]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content, headers in members:
            head = tarfile.TarInfo(name)
            head.size, head.pax_headers = len(content), headers
            archive.addfile(head, io.BytesIO(content))
    return sink.getvalue()


MAPPING = b"inputs:\n- files: [data.txt]\n  type: Person\n  format: csv\n"


@pytest.mark.parametrize(
    ("body", "params", "error"),
    [
        (
            tar(("data.txt", b"name\nx\n", {})),
            {"mapping": "map.yaml"},
            "the archive has no mapping 'map.yaml'",
        ),
        (tar(("map.yaml", MAPPING, {})), {"mapping": "map.yaml"}, "the archive has no files"),
        (tar(("map.yaml", b"\xff", {})), {"mapping": "map.yaml"}, "mapping 'map.yaml' is not UTF-8"),
        (tar(("map.yaml", b" " * 2**21, {})), {"mapping": "map.yaml"}, "at most 1048576 bytes"),
        (tar(("data", b"x", {"omnigraph.format": "xls"})), {}, "'xls' is not a format of a load"),
        (tar(("data", b"x", {"omnigraph.rows": "Person"})), {}, "not a stream of Arrow batches"),
        (tar(("data", b"x", {"omnigraph.rows": "Persn"})), {}, "unknown type 'Persn'"),
        (
            tar(("Person.csv", b"name\nx\n", {"GNU.sparse.map": "0,7", "GNU.sparse.size": "10000000"})),
            {},
            "'Person.csv' in the archive is not a file",
        ),
        (tar(("Person.csv", b"name\nx\n", {})), {"skip_bad": "yes"}, "`skip_bad` is true or false"),
    ],
)
def test_archive_with_wrong_members_is_a_bad_request(
    open_server: RunningServer, body: bytes, params: dict[str, str], error: str
) -> None:
    with open_server.client() as client:
        answer = client.post("/load/files", content=body, params=params, headers={"Content-Type": TAR})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert error in answer.json()["error"]
    assert "/tmp" not in answer.text


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/zero", "/proc/self/fd/0", "s3://bucket/people.csv"])
def test_names_in_an_archive_lead_nowhere(open_server: RunningServer, name: str) -> None:
    body = tar((name, json.dumps(person("Max")).encode(), {"omnigraph.format": "ndjson"}))
    params = {"branch": "named", "from": "main"}
    with open_server.client() as client:
        answer = client.post("/load/files", content=body, params=params, headers={"Content-Type": TAR})
    assert answer.json()["total_entities"] == 1, answer.text


def test_lines_are_answered_only_to_clients_that_accept_nothing_else(open_server: RunningServer) -> None:
    body = tar(("Person.csv", b"name,age\nKit,1\nLou,x\n", {}))
    params = {"skip_bad": "true", "branch": "lines", "from": "main"}
    with open_server.client() as client:
        headers = {"Content-Type": TAR}
        for accepted in ("application/json, application/x-ndjson", "*/*"):
            headers["Accept"] = accepted
            answer = client.post("/load/files", content=body, params=params, headers=headers)
            assert answer.json()["skipped_counts"] == {"value": 1}
        headers["Accept"] = "application/x-ndjson"
        answer = client.post("/load/files", content=body, params=params, headers=headers)
        result, rejected = map(json.loads, answer.text.splitlines())
        assert (answer.status_code, answer.headers["content-type"]) == (200, route.NDJSON)
        assert (result["total_entities"], rejected["record"]) == (1, "Lou,x")
        refused = client.post("/load/files", content=body, params={"branch": "lines"}, headers=headers)
        error, rejected = map(json.loads, refused.text.splitlines())
        assert (refused.status_code, error["error_code"]) == (400, "load_rejected")
        assert rejected["line"] == 3


def test_answer_reaches_a_client_that_is_still_sending(policy_server: RunningServer) -> None:
    sent = (b"\n" * 2**20 for _ in range(16))
    headers = {"Content-Type": "application/x-ndjson"}
    with policy_server.client("reader") as client:
        answer = client.post("/load/ndjson", content=sent, headers=headers)
    assert (answer.status_code, answer.headers["connection"]) == (403, "close")
