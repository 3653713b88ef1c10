"""Vectors and compactions by tasks of Spark are those of this process."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.embed.settings import EmbedSettings
from omnigraph.engine.embedding import stale_rows as find
from omnigraph.engine.embedding.fill import EmbedRequest, fill_vectors
from omnigraph.engine.maintenance import optimize
from omnigraph.engine.tasks.runner import Engine
from omnigraph.engine.upkeep import table_rewrite as rearrange
from omnigraph.engine.write.transaction import Author
from omnigraph.pipeline.runner import SparkRunner
from omnigraph.storage import index_parts, indexes, upkeep
from tests.embed.provider_server import ProviderServer, letters
from tests.engine.embedding.docs import vectors
from tests.engine.upkeep_graph import table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "node Doc { slug: String @key  body: String?  about: Vector(8)? @embed(body) }"
ROWS = 300


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Texts in four fragments."""
    made = og.init(tmp_path / "g.omni", schema=SCHEMA)
    for start in range(0, ROWS, ROWS // 4):
        names = [f"d{number}" for number in range(start, start + ROWS // 4)]
        texts = [f"{name[1:]} is a text" for name in names]
        made.load(pa.table({"slug": names, "body": texts}), type="Doc", mode="append", engine="local")
    return made


def test_tasks_find_and_embed_rows_with_the_settings_of_who_asks(
    spark: SparkSession, graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "ROWS_PER_TASK", 150)
    engine = Engine(SparkRunner(spark), "a test")
    with ProviderServer() as server:
        settings = EmbedSettings.choose("http", model="m", base_url=server.url, api_key="secret")
        done = fill_vectors(graph._opened, Author("main"), EmbedRequest(), settings, lambda _: engine)
        texts = [text for request in server.requests for text in request.body["input"]]
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer secret"}
    assert (done.engine, done.why, done.embedded, len(done.commits)) == ("spark", "a test", ROWS, 1)
    assert sorted(texts) == sorted(f"{number} is a text" for number in range(ROWS))
    found = vectors(graph)
    for number in (0, ROWS // 2, ROWS - 1):
        ideal = np.array(letters(f"{number} is a text", 8))
        assert np.allclose(found[f"d{number}"], ideal / np.linalg.norm(ideal))


def test_tasks_write_the_new_files_of_a_compaction(spark: SparkSession, graph: og.Graph) -> None:
    before = graph.snapshot().rows("Doc").sort_by("slug")
    chosen = lambda *_: Engine(SparkRunner(spark), "a test")  # noqa: E731
    planned = partial(upkeep.plan_compaction, target_rows=ROWS // 2)
    assert len(planned(table_of(graph._opened, "node:Doc")).tasks) == 2
    with patch.object(optimize, "select_engine", chosen), patch.object(optimize, "plan_compaction", planned):
        (docs,) = graph.optimize(engine="spark").tables
    assert (docs.before.fragments, docs.indexes) == (4, ("id",))
    assert docs.after.fragments < 4
    assert graph.snapshot().rows("Doc").sort_by("slug").equals(before)


def test_tasks_build_an_index_in_parts(spark: SparkSession, graph: og.Graph) -> None:
    chosen = lambda *_: Engine(SparkRunner(spark), "a test")  # noqa: E731
    unchanged = lambda table: upkeep.CompactionPlan(table, ())  # noqa: E731
    with (
        patch.object(optimize, "select_engine", chosen),
        patch.object(optimize, "plan_compaction", unchanged),
        patch.object(rearrange, "plan_compaction", unchanged),
        patch.object(index_parts, "_ROWS_PER_PART", 1),
    ):
        (docs,) = graph.optimize(engine="spark").tables
    assert (docs.before, docs.indexes) == (docs.after, ("id",))
    table = table_of(graph._opened, "node:Doc")
    (stored,) = indexes.read_coverage(table).values()
    assert (stored.segments, stored.covered_fragments, stored.total_fragments) == (1, 4, 4)
    for number in (0, ROWS // 2, ROWS - 1):
        assert table.scan(["slug"], where=f"id = 'd{number}'").to_pylist() == [{"slug": f"d{number}"}]
