"""A graph in a folder and the same graph behind a server: tests of this folder run on both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from tests.server.running import RunningServer, make_example, start_server, stored_query_options

AnyGraph = og.Graph | og.RemoteGraph


@pytest.fixture(scope="session")
def client_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph; copy it before writing to it."""
    return make_example(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def server(client_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the small graph that needs no token."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(client_template, folder / "people.omni")
    options = stored_query_options(folder)
    with start_server(folder / "people.omni", folder / "log", "--unauthenticated", *options) as found:
        yield found


@pytest.fixture(scope="module")
def remote(server: RunningServer) -> Iterator[og.RemoteGraph]:
    """The small graph behind the server."""
    with og.connect(f"{server.url}/graphs/default") as found:
        yield found


@pytest.fixture(scope="module", params=["folder", "server"])
def graph(
    request: pytest.FixtureRequest, client_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnyGraph]:
    """The small graph, once in a folder and once behind a server."""
    if request.param == "server":
        yield request.getfixturevalue("remote")
        return
    place = tmp_path_factory.mktemp("local") / "people.omni"
    shutil.copytree(client_template, place)
    with og.open(place) as opened:
        yield opened
