"""What happens on the socket: wrong bytes, slow and vanished clients, and the end of the server."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from tests.python_process import PIPE, Python
from tests.server.route_cases import READ, insert
from tests.server.running import RunningServer, environment, start_server

HOST = b"Host: x\r\n"
QUERY = json.dumps({"query": READ}).encode()


def exchange(server: RunningServer, sent: bytes, *, half_close: bool = False) -> bytes:
    """Return all that the server sends until it closes, or until it is silent after an answer."""
    with socket.create_connection((server.host, server.port), timeout=20) as connection:
        connection.sendall(sent)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        while b"\r\n\r\n" not in found or half_close:
            part = connection.recv(65536)
            if not part:
                break
            found += part
        return found


def post(path: bytes, body: bytes, *more: bytes) -> bytes:
    head = b"POST /%b HTTP/1.1\r\n%bContent-Type: application/json\r\n" % (path, HOST)
    return b"".join([head, b"Content-Length: %d\r\n" % len(body), *more, b"\r\n", body])


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST /query HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        b"POST /query HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /query HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
    ],
    ids=range(11),
)
def test_bytes_that_are_no_request_are_answered_or_cut_off(open_server: RunningServer, sent: bytes) -> None:
    try:
        found = exchange(open_server, sent)
    except ConnectionResetError:
        found = b""
    head, _, body = found.partition(b"\r\n\r\n")
    assert b"Traceback" not in found
    assert not body or json.loads(body)["error"] or not head.startswith(b"HTTP/1")
    with open_server.client() as client:
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        b"%ff",
        b"graphs/%00/branches",
        b"commits/%F0%9F%98%80",
        b"commits/a%20b",
        b"branches/%2e%2e",
        b"//",
        b"*",
    ],
)
def test_strange_paths_get_a_typed_error(open_server: RunningServer, path: bytes) -> None:
    method = b"DELETE" if path.startswith(b"branches") else b"GET"
    found = exchange(open_server, b"%b /%b HTTP/1.1\r\n%b\r\n" % (method, path, HOST))
    status = int(found.split()[1])
    assert status in (400, 404)
    assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]


def test_pipelined_requests_are_answered_in_order(open_server: RunningServer) -> None:
    health = b"GET /healthz HTTP/1.1\r\n%b\r\n" % HOST
    last = b"GET /nothing HTTP/1.1\r\n%bConnection: close\r\n\r\n" % HOST
    with socket.create_connection((open_server.host, open_server.port), timeout=20) as connection:
        connection.sendall(post(b"query", QUERY) + health + last)
        found = b""
        while part := connection.recv(65536):
            found += part
    assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"200", b"200", b"404"]


def test_chunked_body_over_the_limit_is_refused(open_server: RunningServer) -> None:
    def body() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 65536

    with open_server.client() as client:
        answer = client.post("/query", content=body(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["resource_limit"]["resource"] == "request_body_bytes"


def test_half_closed_connection_does_not_stay_open(open_server: RunningServer) -> None:
    cut = post(b"query", QUERY)[:-5]
    assert b"200 OK" not in exchange(open_server, cut, half_close=True)


def test_head_that_comes_too_slowly_is_cut_off(example_graph: Path, tmp_path: Path) -> None:
    with waiting_server(example_graph, tmp_path / "log") as (server, _):
        silent = socket.create_connection((server.host, server.port), timeout=20)
        slow = socket.create_connection((server.host, server.port), timeout=0.02)
        silent.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        slow.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        with silent, slow, server.client() as client:
            assert drip(slow) in (b"", b"HTTP/1.1 408")
            assert silent.recv(12) in (b"", b"HTTP/1.1 408")
            assert client.get("/healthz").status_code == 200


def drip(connection: socket.socket) -> bytes:
    """Send a byte now and then until the server has had enough; return how its answer begins."""
    while True:
        try:
            connection.sendall(b"a")
            return connection.recv(12)
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return b""


def test_query_that_takes_too_long_is_stopped(open_server: RunningServer) -> None:
    with open_server.client() as client:
        answer = client.post("/query", json={"query": READ, "timeout": 1e-9})
    assert answer.status_code == 408
    assert "code" not in answer.json()
    assert answer.json()["error_code"] == "query_cancelled"


@contextmanager
def waiting_server(store: Path, log: Path) -> Iterator[tuple[RunningServer, Python]]:
    with log.open("w") as errors:
        process = Python(
            "-m",
            "tests.server.waiting_server",
            str(store),
            env=environment(),
            cwd=Path(__file__).parents[2],
            stdout=PIPE,
            stderr=errors.fileno(),
        )
    with process:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().partition("=")[2].rpartition(":")
        server = RunningServer(host, int(port), process, log)
        yield server, process
        assert server.stop() == 0


def lines(process: Python, count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def test_client_that_goes_away_stops_its_query(example_graph: Path, tmp_path: Path) -> None:
    with waiting_server(example_graph, tmp_path / "log") as (server, process):
        with socket.create_connection((server.host, server.port)) as connection:
            connection.sendall(post(b"query", QUERY))
            assert lines(process, 1) == ["begun"]
        assert lines(process, 1) == ["cancelled"]
        with server.client() as client:
            assert "omnigraph_http_disconnects_total 1" in client.get("/metrics").text
    assert server.log_lines()[-2]["operation"] in ("query", "metrics")


def test_server_answers_while_all_threads_are_busy_and_drops_what_waits(
    example_graph: Path, tmp_path: Path
) -> None:
    with waiting_server(example_graph, tmp_path / "log") as (server, process):
        connections = [socket.create_connection((server.host, server.port)) for _ in range(16)]
        for connection in connections:
            connection.sendall(post(b"query", QUERY))
        lines(process, 2)
        with server.client() as client:
            assert client.get("/healthz").json()["status"] == "ok"
            while 'omnigraph_work{pool="read"} 16' not in client.get("/metrics").text:
                pass
            for connection in connections:
                connection.close()
            while 'omnigraph_work{pool="read"} 0' not in client.get("/metrics").text:
                pass


def test_write_under_way_is_finished_before_the_server_ends(
    copied: Callable[[], Path], tmp_path: Path
) -> None:
    place = copied()
    with (
        start_server(place, tmp_path / "log", "--unauthenticated") as server,
        server.client() as client,
        server.client() as other,
        ThreadPoolExecutor(1) as pool,
    ):
        with Root.at(Location.parse(place)).locks.hold(["main"]):
            sent = pool.submit(client.post, "/mutate", json=insert("last"))
            while "omnigraph_admitted 1" not in other.get("/metrics").text:
                pass
            server.process.send_signal(15)
        assert sent.result().status_code == 200
        assert server.process.wait() == 0


def test_load_that_is_under_way_at_the_end_of_the_server_is_whole_or_not_there(
    copied: Callable[[], Path], tmp_path: Path
) -> None:
    place = copied()
    lines = b"".join(b'{"type": "Person", "data": {"name": "load-%d"}}\n' % number for number in range(200))
    kind = {"Content-Type": "application/x-ndjson"}
    with (
        start_server(place, tmp_path / "log", "--unauthenticated") as server,
        server.client() as client,
        server.client() as other,
        socket.create_connection((server.host, server.port), timeout=30) as half_sent,
        ThreadPoolExecutor(1) as pool,
    ):
        half_sent.sendall(
            b"POST /load/ndjson HTTP/1.1\r\n%bContent-Type: application/x-ndjson\r\n"
            b"Content-Length: %d\r\n\r\n" % (HOST, len(lines)) + lines.replace(b"load", b"half")[:-100]
        )
        with Root.at(Location.parse(place)).locks.hold(["main"]):
            sent = pool.submit(client.post, "/load/ndjson", content=lines, headers=kind)
            while "omnigraph_admitted 1" not in other.get("/metrics").text:
                pass
            server.process.send_signal(15)
        assert sent.result().status_code == 200
        half_sent.close()
        assert server.process.wait() == 0
    with og.open(place) as graph:
        names = [str(row["p.name"]) for row in graph.query(READ).rows()]
    assert sum(name.startswith("load-") for name in names) == 200
    assert not any(name.startswith("half-") for name in names)


def test_https_with_a_certificate(copied: Callable[[], Path], tmp_path: Path) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *files, *names], check=True, capture_output=True)
    options = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    with start_server(copied(), tmp_path / "log", "--unauthenticated", *options) as server:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        with httpx.Client(verify=trusted, trust_env=False) as client:
            answer = client.get(f"https://127.0.0.1:{server.port}/healthz")
    assert answer.json()["status"] == "ok"
