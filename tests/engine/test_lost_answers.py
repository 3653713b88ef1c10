from __future__ import annotations

from collections.abc import Iterator

import pytest

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.storage.location import Location
from tests.engine.graphs import PERSON, SCHEMA, bare_publish, require_consistent, require_linear
from tests.storage.conftest import ask_s3, s3_server, use_s3


@pytest.fixture
def lossy_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    """A prefix in a bucket of a server that loses its first answer to every put of a manifest version."""
    with s3_server(lose="/__manifest/_versions/") as endpoint:
        yield use_s3(endpoint, monkeypatch)


@pytest.mark.s3
def test_a_store_that_loses_every_first_answer_loses_no_write_and_doubles_none(lossy_root: Location) -> None:
    create_graph(Root.at(lossy_root), SCHEMA)
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
    lost = ask_s3("answers_lost")
    assert lost == state.version, "every version was written by a put without an answer"
