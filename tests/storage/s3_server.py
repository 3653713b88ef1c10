"""S3-compatible servers on loopback, as a program that ends when its input ends.

Each line starts or stops a server and is answered with its port; all of them show the same buckets. One can
be set to behave as servers do that lack something, or on a bad day. Under `/-/` it answers questions of
tests: which requests came and how many answers were lost; and it fills, copies and drops all below a prefix.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from xml.sax.saxutils import escape

from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import FakeBucket, FakeKey, s3_backends
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Response

_ACCOUNT, _PARTITION = "123456789012", "aws"
_PLAIN_PATH = re.compile(r"/([a-z0-9-]+)(?:/([A-Za-z0-9_./=-]*))?")
"""A bucket, and a key that is written the same in an address."""
_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]+)")
_DECISIVE = re.compile(r"HTTP_(IF_|X_AMZ_CHECKSUM_MODE|ORIGIN)")
"""Headers of a read that decide what its answer is."""
_LIST = {"list-type": "2", "prefix": "", "delimiter": "", "continuation-token": "", "start-after": ""}
"""What a list may say, and what it means if it says nothing."""
_MISSING = "<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"


class QuickReads:
    """Answers lists and plain reads from the store of the emulation, which takes ten times as long for them.

    All that is special in any way is left to the emulation: conditions, other ranges, names with signs that
    addresses do not have, and requests without a signature.
    """

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        found = self._answer(environ) if environ["REQUEST_METHOD"] in ("GET", "HEAD") else None
        if found is None:
            return self._app(environ, start_response)
        status, headers, body = found
        start_response(status, list(headers.items()))
        return [body] if environ["REQUEST_METHOD"] == "GET" else []

    def _answer(self, environ: WSGIEnvironment) -> tuple[str, dict[str, str], bytes] | None:
        place = _PLAIN_PATH.fullmatch(environ["REQUEST_URI"].partition("?")[0])
        bucket = None if place is None else s3_backends[_ACCOUNT][_PARTITION].buckets.get(place[1])
        signed = environ.get("HTTP_AUTHORIZATION")
        if place is None or bucket is None or not signed or any(map(_DECISIVE.match, environ)):
            return None
        if place[2]:
            key = bucket.keys.get(place[2])
            if environ["QUERY_STRING"] or not isinstance(key, FakeKey | None):
                return None
            return _read(key, environ) if key is not None else _answer_xml("404 NOT FOUND", _MISSING)
        asked = _LIST | _arguments(environ)
        wanted = environ["REQUEST_METHOD"] == "GET" and "list-type=2" in environ["QUERY_STRING"]
        while wanted and asked.keys() == _LIST.keys():
            # Others add and remove keys while they are listed.
            with suppress(KeyError, RuntimeError):
                return _list(bucket, asked)
        return None


def _read(key: FakeKey, environ: WSGIEnvironment) -> tuple[str, dict[str, str], bytes] | None:
    """What a read of an object is answered with."""
    wanted = environ.get("HTTP_RANGE")
    part = None if wanted is None else _RANGE.fullmatch(wanted)
    try:
        # One that is replaced at this moment has no bytes any more.
        body, headers = key.value, {**key.response_dict, **key.metadata, "Accept-Ranges": "bytes"}
    except ValueError:
        return None
    if wanted is None:
        return "200 OK", headers, body
    if part is None or not int(part[1]) <= int(part[2]) < len(body):
        return None
    first, last = int(part[1]), int(part[2])
    headers |= {
        "content-length": str(last - first + 1),
        "content-range": f"bytes {first}-{last}/{len(body)}",
    }
    return "206 PARTIAL CONTENT", headers, body[first : last + 1]


def _list(bucket: FakeBucket, asked: dict[str, str]) -> tuple[str, dict[str, str], bytes]:
    """One page of a list."""
    token, after = asked["continuation-token"] or None, asked["start-after"] or None
    prefix, delimiter = asked["prefix"], asked["delimiter"] or None
    backend = s3_backends[_ACCOUNT][_PARTITION]
    found, truncated, following = backend.list_objects_v2(bucket, prefix, delimiter, token, after, 1000)
    keys = [one for one in found if isinstance(one, FakeKey)]
    parts = [
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">',
        f"<Name>{bucket.name}</Name><Prefix>{escape(prefix)}</Prefix><MaxKeys>1000</MaxKeys>",
        f"<KeyCount>{len(found)}</KeyCount><IsTruncated>{str(truncated).lower()}</IsTruncated>",
        *(
            f"<Contents><Key>{escape(key.name)}</Key><LastModified>{key.last_modified_ISO8601}</LastModified>"
            f"<ETag>{escape(key.etag)}</ETag><Size>{key.size}</Size>"
            f"<StorageClass>{key.storage_class}</StorageClass></Contents>"
            for key in keys
        ),
        *(
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
            for one in found
            if isinstance(one, str)
        ),
        "" if delimiter is None else f"<Delimiter>{escape(delimiter)}</Delimiter>",
        "" if following is None else f"<NextContinuationToken>{following}</NextContinuationToken>",
        "" if after is None or token is not None else f"<StartAfter>{escape(after)}</StartAfter>",
        "</ListBucketResult>",
    ]
    return _answer_xml("200 OK", "".join(parts))


def _answer_xml(status: str, text: str) -> tuple[str, dict[str, str], bytes]:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
    return status, {"Content-Type": "application/xml", "Content-Length": str(len(body))}, body


class OneWriteAtATime:
    """S3 decides a conditional put atomically; the emulation checks and stores in two steps."""

    def __init__(self, app: WSGIApplication, ignored: list[str]) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._ignored = [f"HTTP_{name.upper().replace('-', '_')}" for name in ignored]

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        for name in self._ignored:
            environ.pop(name, None)
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._app(environ, start_response)
        with self._lock:
            return list(self._app(environ, start_response))


class LosesAnswers:
    """Answers the first of equal puts with an error of the server, although it took effect."""

    def __init__(self, app: WSGIApplication, paths: str | None) -> None:
        self._app = app
        self._paths = None if paths is None else re.compile(paths)
        self.lost: set[tuple[str, str]] = set()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        put = (environ["PATH_INFO"], environ.get("HTTP_IF_MATCH", ""))
        meant = self._paths is not None and self._paths.search(put[0])
        if environ["REQUEST_METHOD"] != "PUT" or not meant or put in self.lost:
            return self._app(environ, start_response)
        self.lost.add(put)
        list(self._app(environ, lambda *_: lambda _: None))
        return Response("the answer was lost", status=500)(environ, start_response)


class Answers:
    """What tests ask the server, beside S3."""

    def __init__(self, app: LosesAnswers) -> None:
        self._app = app
        self._requests: list[tuple[str, str, str]] | None = None
        self._latency = 0.0
        self._gate = threading.Condition()
        self._held_paths: re.Pattern[str] | None = None
        self._held: set[str] = set()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith("/-/"):
            found = getattr(self, path.removeprefix("/-/"))(environ)
            return Response(json.dumps(found))(environ, start_response)
        if self._requests is not None:
            self._requests.append((method, path, environ["QUERY_STRING"]))
        if self._latency:
            time.sleep(self._latency)
        if method == "GET":
            self._wait_at_gate(path)
        return self._app(environ, start_response)

    def _wait_at_gate(self, path: str) -> None:
        with self._gate:
            if self._held_paths is None or not self._held_paths.search(path):
                return
            # A client that waits too long asks again.
            self._held.add(path)
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._held_paths is None)

    def hold(self, environ: WSGIEnvironment) -> int:
        """Answer no reads of paths that match a pattern until `release`."""
        with self._gate:
            self._held, self._held_paths = set(), re.compile(_arguments(environ)["paths"])
        return 0

    def held(self, environ: WSGIEnvironment) -> int:
        """Wait until so many paths were read since `hold`; how many there are."""
        with self._gate:
            self._gate.wait_for(lambda: len(self._held) >= int(_arguments(environ)["count"]), 900)
            return len(self._held)

    def release(self, _: WSGIEnvironment) -> int:
        with self._gate:
            self._held_paths = None
            self._gate.notify_all()
        return 0

    def record(self, _: WSGIEnvironment) -> int:
        """Remember requests from here on."""
        self._requests = []
        return 0

    def count(self, _: WSGIEnvironment) -> int:
        """How many requests came since then, so far."""
        return len(self._requests or ())

    def latency(self, environ: WSGIEnvironment) -> int:
        """Answer each request this many milliseconds later from here on, as a store far away does."""
        milliseconds = int(_arguments(environ)["milliseconds"])
        self._latency = milliseconds / 1000
        return milliseconds

    def requests(self, _: WSGIEnvironment) -> list[tuple[str, str, str]]:
        """The requests since then, in order: method, path, query."""
        found, self._requests = self._requests, None
        return found or []

    def answers_lost(self, _: WSGIEnvironment) -> int:
        return len(self._app.lost)

    def copy(self, environ: WSGIEnvironment) -> int:
        """Copy all objects of one prefix to another, in any bucket; how many there were."""
        asked = _arguments(environ)
        backend = s3_backends[_ACCOUNT][_PARTITION]
        found = _below(asked["bucket"], asked["source"])
        for name, key in found:
            backend.copy_object(key, asked["into"], asked["target"] + name.removeprefix(asked["source"]))
        return len(found)

    def fill(self, environ: WSGIEnvironment) -> int:
        """Put all files of a folder below a prefix; how many there were."""
        asked = _arguments(environ)
        folder = Path(asked["folder"])
        found = [file for file in folder.rglob("*") if file.is_file()]
        for file in found:
            name = f"{asked['prefix']}/{file.relative_to(folder).as_posix()}"
            s3_backends[_ACCOUNT][_PARTITION].put_object(asked["bucket"], name, file.read_bytes())
        return len(found)

    def drop(self, environ: WSGIEnvironment) -> int:
        """Remove all objects of a prefix; how many there were."""
        asked = _arguments(environ)
        found = _below(asked["bucket"], asked["prefix"])
        for name, _ in found:
            s3_backends[_ACCOUNT][_PARTITION].delete_object(asked["bucket"], name)
        return len(found)


def _arguments(environ: WSGIEnvironment) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}


def _below(bucket: str, prefix: str) -> list[tuple[str, Any]]:
    keys = s3_backends[_ACCOUNT][_PARTITION].get_bucket(bucket).keys
    return [(name, key) for name, key in keys.items() if name.startswith(prefix + "/")]


class KeepsConnections(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"


class Servers:
    """The servers that run, by their ports."""

    def __init__(self) -> None:
        self._running: dict[int, BaseWSGIServer] = {}

    def start(self, ignore: list[str], lose: str | None) -> int:
        """One that ignores these headers, and loses the first answers to puts of paths of a pattern."""
        # Not through the dispatcher of all services, which looks for them in the file system at each request.
        store = OneWriteAtATime(QuickReads(create_backend_app("s3")), ignore)
        app = Answers(LosesAnswers(store, lose))
        server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=KeepsConnections)
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        self._running[server.server_port] = server
        return server.server_port

    def stop(self, port: int) -> int:
        server = self._running.pop(port)
        server.shutdown()
        server.server_close()
        return port


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    servers = Servers()
    for line in sys.stdin:
        command = json.loads(line)
        print(getattr(servers, command.pop("do"))(**command), flush=True)


if __name__ == "__main__":
    main()
