"""Servers that tests of this folder share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import omnigraph as og
from tests.server.running import (
    PEOPLE,
    POLICY,
    SCHEMA,
    SERVER_POLICY,
    STORED_QUERIES,
    RunningServer,
    start_server,
    with_tokens,
)


@pytest.fixture(scope="session")
def example_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph; copy it before writing to it."""
    place = tmp_path_factory.mktemp("example") / "people.omni"
    with og.init(place, schema=SCHEMA) as graph:
        graph.load(PEOPLE, type="Person", mode="append")
        graph.mutate('query q() { insert Knows { from: "Ada", to: "Bob", since: 1833 } }', actor="root")
    return place


@pytest.fixture(scope="session")
def copied(example_graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes copies of the small graph."""

    def copy() -> Path:
        place = tmp_path_factory.mktemp("graph") / "people.omni"
        shutil.copytree(example_graph, place)
        return place

    return copy


@pytest.fixture(scope="module")
def open_server(
    copied: Callable[[], Path], stored_queries: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server that needs no token."""
    log = tmp_path_factory.mktemp("open") / "server.log"
    with start_server(copied(), log, "--unauthenticated", *stored_queries) as server:
        yield server


@pytest.fixture(scope="session")
def stored_queries(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name the stored queries."""
    folder = tmp_path_factory.mktemp("queries")
    (folder / "people.gq").write_text(STORED_QUERIES)
    return ["--queries", str(folder)]


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name the policies of the graph and of the server."""
    folder = tmp_path_factory.mktemp("policies")
    (folder / "graph.yaml").write_text(POLICY)
    (folder / "server.yaml").write_text(SERVER_POLICY)
    return ["--policy", str(folder / "graph.yaml"), "--server-policy", str(folder / "server.yaml")]


@pytest.fixture(scope="module")
def policy_server(
    copied: Callable[[], Path],
    policies: list[str],
    stored_queries: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningServer]:
    """A server with tokens and policies."""
    log = tmp_path_factory.mktemp("policy") / "server.log"
    with start_server(copied(), log, *policies, *stored_queries, env=with_tokens()) as server:
        yield server
