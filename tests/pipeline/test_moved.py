"""Tasks of Spark read a graph where it is, also after it was moved, and also on its branches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.engine.moves.branching import EVERYONE, add, branching_graph, open_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_reads_and_merges_the_branches_of_a_moved_graph(tmp_path: Path, spark: SparkSession) -> None:
    with branching_graph(tmp_path / "made") as graph:
        rows = graph.query(EVERYONE, branch="innermost").rows()
        changes = [change.to_json() for change in graph.diff("main", "innermost")]
    (tmp_path / "made").rename(tmp_path / "moved")
    with open_at(tmp_path / "moved", read_only=True) as graph:
        assert graph.query(EVERYONE, branch="innermost", engine="spark").rows() == rows
        found = graph.diff("main", "innermost", engine="spark")
        assert [change.to_json() for change in found] == changes
    with open_at(tmp_path / "moved") as graph:
        add(graph, "new", branch="innermost")
        graph.merge("innermost", "inner", engine="spark")
        assert (
            graph.query(EVERYONE, branch="inner").rows() == graph.query(EVERYONE, branch="innermost").rows()
        )
