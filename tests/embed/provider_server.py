"""An embedding provider on a loopback port: it speaks both protocols, or says what a test has laid ready."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Numbers = Callable[[str, int], Sequence[float]]


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Any
    client: tuple[str, int]
    """The address of the connection, the same for requests that share it."""


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = False
    hangs: bool = False
    """Say nothing until the test is over."""
    drops: bool = False
    """Close the connection without an answer."""
    trickles: bool = False
    """Send a hundred blanks one by one, for a second in all, before the body."""


def letters(text: str, dimension: int) -> list[float]:
    """A vector that is easy to tell apart: the code of the first character, then ones."""
    return [float(ord(text[0])), *[1.0] * (dimension - 1)]


def failing(status: int, message: str = "", **headers: str) -> Reply:
    body = json.dumps({"error": {"message": message, "type": "some_error"}}).encode()
    return Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def openai_answer(vectors: Sequence[Sequence[float]]) -> bytes:
    items = [{"object": "embedding", "index": at, "embedding": list(each)} for at, each in enumerate(vectors)]
    return json.dumps({"object": "list", "data": items, "model": "any", "usage": {}}).encode()


class ProviderServer:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.replies: deque[Reply] = deque()
        """Taken one per request; when there are none left, the server does its work."""
        self.numbers: Numbers = letters
        self.over = threading.Event()
        self._came = threading.Condition()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.provider = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> ProviderServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def note(self, request: Request) -> None:
        with self._came:
            self.requests.append(request)
            self._came.notify_all()

    def saw(self, count: int) -> bool:
        """Whether this many requests came, and no more; those of clients that gave up may come late."""
        with self._came:
            self._came.wait_for(lambda: len(self.requests) >= count, timeout=30)
            return len(self.requests) == count

    def work(self, request: Request) -> Reply:
        """The answer of a provider that does what it should."""
        if request.path.endswith(":batchEmbedContents"):
            asked = request.body["requests"]
            rows = [
                self.numbers(each["content"]["parts"][0]["text"], each["outputDimensionality"])
                for each in asked
            ]
            return Reply(body=json.dumps({"embeddings": [{"values": list(row)} for row in rows]}).encode())
        dimension = request.body.get("dimensions", 3)
        return Reply(body=openai_answer([self.numbers(text, dimension) for text in request.body["input"]]))


class _Server(ThreadingHTTPServer):
    provider: ProviderServer
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # Sent at once: a test over many small answers must not wait for the network to make up its mind.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        provider = self.server.provider
        content = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, json.loads(content), self.client_address)
        provider.note(request)
        self._send(provider.replies.popleft() if provider.replies else provider.work(request))

    def _send(self, reply: Reply) -> None:
        if reply.hangs:
            self.server.provider.over.wait()
        if reply.hangs or reply.drops:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.trickles:
            self._trickle(reply.body)
        elif reply.chunked:
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            size = 7 if len(reply.body) < 1000 else 70_000
            for at in range(0, len(reply.body), size):
                piece = reply.body[at : at + size]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        else:
            if "content-length" not in reply.headers:
                self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            self.close_connection = "content-length" in reply.headers

    def _trickle(self, body: bytes) -> None:
        self.send_header("content-length", str(100 + len(body)))
        self.end_headers()
        for _ in range(100):
            self.server.provider.over.wait(0.01)
            self.wfile.write(b" ")
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read the requests, not a log."""
