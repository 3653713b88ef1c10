"""A graph in a folder, and the same graph behind a server, also for asyncio: tests run on all of them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

import omnigraph as og
from tests.client.awaited import Awaited
from tests.server.running import RunningServer, make_example, start_server, stored_query_options

AnyGraph = og.Graph | og.RemoteGraph


@pytest.fixture(scope="session")
def client_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph; copy it before writing to it."""
    return make_example(tmp_path_factory.mktemp("client"))


@contextmanager
def serve_copy(template: Path, folder: Path) -> Iterator[RunningServer]:
    """Serve a copy of a graph to callers without a token."""
    shutil.copytree(template, folder / "people.omni")
    options = stored_query_options(folder)
    with start_server(folder / "people.omni", folder / "log", "--unauthenticated", *options) as found:
        yield found


@pytest.fixture(scope="module")
def server(client_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the small graph that needs no token."""
    with serve_copy(client_template, tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture(scope="module")
def remote(server: RunningServer) -> Iterator[og.RemoteGraph]:
    """The small graph behind the server."""
    with og.connect(f"{server.url}/graphs/default") as found:
        yield found


@pytest.fixture(scope="module")
def awaited(client_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.RemoteGraph]:
    """A copy of the small graph behind a server of its own, through the client for asyncio."""
    with (
        serve_copy(client_template, tmp_path_factory.mktemp("awaited")) as found,
        asyncio.Runner() as runner,
        Awaited(runner, og.aconnect(f"{found.url}/graphs/default")) as graph,
    ):
        yield cast(og.RemoteGraph, graph)


@pytest.fixture(scope="module", params=["folder", "server", "asyncio"])
def graph(
    request: pytest.FixtureRequest, client_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnyGraph]:
    """The small graph: in a folder, behind a server, and behind a server for asyncio."""
    if request.param != "folder":
        yield request.getfixturevalue({"server": "remote", "asyncio": "awaited"}[request.param])
        return
    place = tmp_path_factory.mktemp("local") / "people.omni"
    shutil.copytree(client_template, place)
    with og.open(place) as opened:
        yield opened
