"""Places to store things in: a folder, a bucket on a loopback S3 server, a bucket in memory."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.stores import open_store

_SERVER = Path(__file__).with_name("s3_server.py")
_BUCKETS = itertools.count(1)


@cache
def _servers() -> subprocess.Popen[str]:
    """The process of the S3 servers of this test worker; starting it takes longer than most tests."""
    servers = subprocess.Popen(
        [sys.executable, str(_SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(servers.communicate)
    return servers


def _tell(do: str, **arguments: Any) -> int:
    """Tell that process to start or stop a server; gives the port."""
    servers = _servers()
    assert servers.stdin is not None
    assert servers.stdout is not None
    servers.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
    servers.stdin.flush()
    port = servers.stdout.readline()
    assert port, "the S3 server did not start"
    return int(port)


@contextmanager
def s3_server(*, ignore: Iterable[str] = (), lose: str | None = None) -> Iterator[str]:
    """The address of a new S3 server.

    It ignores some request headers, and loses the first answer to every put of paths of a pattern.
    """
    port = _tell("start", ignore=list(ignore), lose=lose)
    yield f"http://127.0.0.1:{port}"
    _tell("stop", port=port)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server for this test worker."""
    with s3_server() as endpoint:
        yield endpoint


def use_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Location:
    """Point this process and its children at a server; returns a prefix in a new bucket."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    bucket = f"graphs-{next(_BUCKETS)}"
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")):
        return Location.parse(f"s3://{bucket}/some/graph")


def ask_s3(question: str, **arguments: str) -> Any:
    """What the server in use says about itself; `s3_server.Answers` has the questions."""
    asked = f"{os.environ['AWS_ENDPOINT_URL']}/-/{question}?{urlencode(arguments)}"
    with urllib.request.urlopen(asked) as answer:
        return json.loads(answer.read())


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A prefix in a new bucket, which this process and its children can reach."""
    return use_s3(s3_endpoint, monkeypatch)


@pytest.fixture
def faulty_s3_root(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    """A prefix in a bucket of a server that ignores the request headers given as parameter."""
    with s3_server(ignore=request.param) as endpoint:
        yield use_s3(endpoint, monkeypatch)


@dataclass(frozen=True, slots=True)
class Place:
    """A root and the store that holds it."""

    root: Location
    store: ObjectStore


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty root in each kind of store."""
    if request.param == "folder":
        root = Location.parse(tmp_path / "some" / "graph")
        return Place(root, open_store(root))
    if request.param == "memory":
        from omnigraph.storage.bucket import BucketStore

        return Place(Location.parse("s3://memory/some/graph"), BucketStore.in_memory("memory"))
    root = request.getfixturevalue("s3_root")
    return Place(root, open_store(root))


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.s3)])
def shared_root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty root that several processes can reach."""
    if request.param == "folder":
        return Location.parse(tmp_path / "graph")
    root: Location = request.getfixturevalue("s3_root")
    return root
