"""Which types a load is about: those of its records, and those that files and tables are named after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.errors import BadRequest, LoadRejected

SCHEMA = """
node Person { name: String @key  age: I32? }
node Follows { name: String @key }
edge Knows: Person -> Person
edge Follows: Person -> Person
"""
NO_PERSONS = pa.table({"name": pa.array([], pa.string()), "age": pa.array([], pa.int32())})


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made:
        with made.write() as tx:
            tx.insert("Person", name="ada")
            tx.insert("Person", name="bo")
        yield made


def people(graph: og.Graph) -> list[str]:
    return sorted(graph.snapshot().rows("Person")["name"].to_pylist())


def _csv(at: Path) -> Path:
    (at / "Person.csv").write_text("name,age\n")
    return at / "Person.csv"


def _parquet(at: Path) -> Path:
    with pq.ParquetWriter(at / "Person.parquet", NO_PERSONS.schema):
        pass
    return at / "Person.parquet"


def _lance(at: Path) -> Path:
    lance.write_dataset(NO_PERSONS, str(at / "Person.lance"))
    return at / "Person.lance"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "csv": _csv,
    "parquet": _parquet,
    "lance": _lance,
    "memory": lambda _: NO_PERSONS,
}


@pytest.mark.parametrize("way", ["memory", "files"])
@pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))
def test_overwriting_with_no_rows_leaves_a_type_empty(
    graph: og.Graph, tmp_path: Path, source: Callable[[Path], Any], way: str
) -> None:
    data = source(tmp_path)
    kind = None if isinstance(data, Path) else "Person"
    engine = Engine(LocalRunner(), "asked for") if way == "files" else None
    with patch("omnigraph.graph.select_engine", lambda *_, **__: engine):
        for mode in ("append", "merge"):
            assert graph.load(data, mode=mode, type=kind).commit is None
        assert people(graph) == ["ada", "bo"]
        done = graph.load(data, mode="overwrite", type=kind)
    assert (done.nodes, done.commit is None, people(graph)) == ({"Person": 0}, False, [])


def test_no_rows_do_not_take_nodes_from_their_edges(graph: og.Graph) -> None:
    graph.load(pa.table({"from": ["ada"], "to": ["bo"]}), type="Knows", mode="append")
    with pytest.raises(LoadRejected, match="not found in Person"):
        graph.load(NO_PERSONS, type="Person", mode="overwrite")
    assert people(graph) == ["ada", "bo"]


def test_rows_say_which_of_two_types_of_one_name_they_have(graph: og.Graph) -> None:
    ends = pa.table({"from": ["ada"], "to": ["bo"]})
    with pytest.raises(BadRequest, match="'Follows' is a node type and an edge type") as refused:
        graph.load(ends, type="Follows", mode="append")
    assert refused.value.remedy == "name node:Follows or edge:Follows"
    assert graph.load(ends, type="edge:Follows", mode="append").edges == {"Follows": 1}
    assert graph.load(pa.table({"name": ["x"]}), type="node:Follows", mode="append").nodes == {"Follows": 1}
    with pytest.raises(BadRequest, match="unknown type 'edge:Person'"):
        graph.load(ends, type="edge:Person", mode="append")
