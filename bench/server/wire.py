"""A small HTTP client: one connection, one request at a time, bodies of JSON."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

CHUNK = 1 << 20


def request_bytes(path: str, body: Mapping[str, Any] | None, accept: str = "*/*") -> bytes:
    """Return a request; a POST if it has a body."""
    method = "GET" if body is None else "POST"
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Connection:
    """A connection for threads."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", CHUNK)

    def send(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Return the body of an answer, which must be a success."""
        return b"".join(self.stream(path, body))

    def stream(
        self, path: str, body: Mapping[str, Any] | None = None, accept: str = "*/*"
    ) -> Iterator[bytes]:
        """Yield the parts of an answer, which must be a success."""
        self._socket.sendall(request_bytes(path, body, accept))
        status, headers = _parse_head(self._read_head())
        if "content-length" in headers:
            content = self._file.read(int(headers["content-length"]))
            _require_success(status, content)
            yield content
            return
        while size := int(self._file.readline(), 16):
            yield self._file.read(size)
            self._file.readline()
        self._file.readline()

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self._socket.close()

    def _read_head(self) -> bytes:
        lines = []
        while (line := self._file.readline()) not in (b"\r\n", b""):
            lines.append(line)
        return b"".join(lines)


class AsyncConnection:
    """A connection for an event loop; answers must have a length."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> AsyncConnection:
        """Connect to a server."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, sent: bytes) -> bytes:
        """Return the body of an answer, which must be a success."""
        self._writer.write(sent)
        status, headers = _parse_head(await self._reader.readuntil(b"\r\n\r\n"))
        content = await self._reader.readexactly(int(headers["content-length"]))
        _require_success(status, content)
        return content

    def close(self) -> None:
        """Close it."""
        self._writer.close()


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").splitlines()
    headers = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in headers}


def _require_success(status: int, content: bytes) -> None:
    if status != 200:
        raise RuntimeError(f"status {status}: {content[:300].decode(errors='replace')}")
