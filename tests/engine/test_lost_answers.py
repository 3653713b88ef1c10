from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.engine.initialise import initialise
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.root import Root
from omnigraph.storage.location import Location
from tests.engine.graphs import PERSON, SCHEMA, bare_publish, require_consistent, require_linear
from tests.engine.lossy_s3 import COUNT
from tests.storage.conftest import use_s3

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def lossy_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    """A prefix in a bucket of a server that loses answers."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.engine.lossy_s3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield use_s3(f"http://127.0.0.1:{server.stdout.readline().strip()}", monkeypatch)
        server.stdin.close()


@pytest.mark.s3
def test_a_store_that_loses_every_first_answer_loses_no_write_and_doubles_none(lossy_root: Location) -> None:
    initialise(Root.at(lossy_root), SCHEMA)
    assert Root.at(lossy_root).tables.tip(lossy_root / "__manifest").config == {
        "table_version_management": "true"
    }
    graph = OpenGraph.open(Root.at(lossy_root))
    done = [bare_publish(graph.coordinator("main"), {PERSON: version}) for version in range(2, 6)]
    state = OpenGraph.open(Root.at(lossy_root)).load("main").state
    require_linear(state.commits.values(), [each.commit.id for each in done])
    require_consistent(state)
    assert state.entries()[PERSON].version == 5
    assert [each.commit for each in done] == [state.commits[each.commit.id] for each in done]
    with urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"] + COUNT) as answer:
        assert int(answer.read()) == state.version, "every version was written by a put without an answer"
