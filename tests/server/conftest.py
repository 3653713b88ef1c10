"""Servers that tests of this folder share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.running import (
    RunningServer,
    make_example,
    policy_options,
    start_server,
    stored_query_options,
    with_tokens,
)


@pytest.fixture(scope="session")
def example_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small graph; copy it before writing to it."""
    return make_example(tmp_path_factory.mktemp("example"))


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
    return stored_query_options(tmp_path_factory.mktemp("queries"))


@pytest.fixture(scope="session")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name the policies of the graph and of the server."""
    return policy_options(tmp_path_factory.mktemp("policies"))


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
