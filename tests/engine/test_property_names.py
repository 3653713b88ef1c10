"""Whatever a property is called, it is exported under its name and loads back: all formats, nodes and edges.

The names are words that stand as texts in the source of omnigraph, because a name can only go wrong where the
code has a meaning of its own for it, and words with a meaning in SQL; `make fuzz` tries all of them.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.export.export_request import ExportFormat, ExportRequest
from omnigraph.engine.export.exporter import export
from omnigraph.engine.load.loader import load as run_load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.engine.write.transaction import Author
from omnigraph.graph import Graph
from omnigraph.lang.schema.schema_parser import STORAGE_COLUMNS, SYSTEM_COLUMNS
from tests.examples import EXAMPLES

pytestmark = pytest.mark.fuzz
SQL = "select from where order group by limit and or not null true false is in like between case when as"
ENVELOPE = ("type", "data", "edge", "from", "to", "src", "dst", "_tombstone", "_score", "_distance")
NAME = re.compile(r"[a-z_][A-Za-z0-9_]{0,254}")
PER_TYPE = 400
_MOMENT = "2024-02-29T12:00:00.500Z"
VALUES: dict[str, Any] = {
    "String?": 'a,"b"\n',
    "Bool?": True,
    "I32?": -(2**31),
    "I64?": 2**63 - 1,
    "U32?": 2**32 - 1,
    "U64?": 2**64 - 1,
    "F32?": 0.5,
    "F64?": 0.1,
    "Date?": "2024-02-29",
    "DateTime?": _MOMENT,
    "Vector(2)?": [0.5, -1.0],
    "Blob?": f"base64:{base64.b64encode(bytes(range(9))).decode()}",
    "enum(red, blue)?": "red",
    "[String]?": ["", "null", "x"],
    "[Bool]?": [True, False],
    "[I64]?": [],
    "[U64]?": [2**64 - 1],
    "[F64]?": [0.1],
    "[Date]?": ["1969-12-31"],
    "[DateTime]?": [_MOMENT],
}
FORMATS = ["ndjson", "csv", "parquet", "lance"]


@cache
def words() -> frozenset[str]:
    """All texts in the source that could be names."""
    return frozenset(
        node.value
        for file in Path(og.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value)
    )


@cache
def names(kind: str) -> tuple[str, ...]:
    """All names to try."""
    illegal = {*STORAGE_COLUMNS, *SYSTEM_COLUMNS[kind]}
    legal = sorted({*SQL.split(), *ENVELOPE, *words()} - illegal)
    # Those with a meaning in files come first, and so into the first types.
    certain = {*ENVELOPE, *SQL.split()}
    others = [name for name in legal if name not in certain]
    chosen = others if EXAMPLES > 100 else Random(7).sample(others, 100)
    return (*(name for name in legal if name in certain), *chosen)


@cache
def properties(kind: str) -> tuple[dict[str, str], ...]:
    """For each type of a schema its properties, every name once and every type of values often."""
    types = cycle(VALUES)
    found = names(kind)
    starts = range(0, len(found), PER_TYPE)
    return tuple({name: next(types) for name in found[at : at + PER_TYPE]} for at in starts)


def schema() -> str:
    def body(of: dict[str, str]) -> str:
        return " ".join(f"{name}: {type_}" for name, type_ in of.items())

    nodes = [f"node N{number} {{ {body(of)} }}\n" for number, of in enumerate(properties("node"))]
    edges = [f"edge E{number}: N0 -> N0 {{ {body(of)} }}\n" for number, of in enumerate(properties("edge"))]
    return "".join(nodes + edges)


def rows(of: dict[str, str], number: int) -> Iterator[dict[str, Any]]:
    """An entity with all values and one without any."""
    yield {"id": f"a{number}", **{name: VALUES[type_] for name, type_ in of.items()}}
    yield {"id": f"b{number}", **dict.fromkeys(of)}


def records() -> list[dict[str, Any]]:
    nodes = [
        {"type": f"N{number}", "data": row}
        for number, of in enumerate(properties("node"))
        for row in rows(of, number)
    ]
    edges = [
        {"edge": f"E{number}", "from": "a0", "to": "b0", "data": row}
        for number, of in enumerate(properties("edge"))
        for row in rows(of, number)
    ]
    return nodes + edges


def export_bytes(graph: Graph) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    graph.export(stream)
    return sorted(map(json.loads, stream.getvalue().splitlines()), key=_by_id)


def _by_id(record: dict[str, Any]) -> tuple[str, str]:
    return record.get("type") or record["edge"], record["data"]["id"]


def write(graph: Graph, at: Path, form: str, *, parts: bool) -> None:
    if not parts:
        graph.export(at, format=form)  # type: ignore[arg-type]
        return
    engine = Engine(LocalRunner(), "a test")
    request = ExportRequest(at, ExportFormat(form), engine=lambda: engine)
    export(graph._opened, graph.snapshot()._pinned, request)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    at = tmp_path_factory.mktemp("names")
    (at / "in.ndjson").write_text("".join(f"{json.dumps(one)}\n" for one in records()))
    with og.init(at / "g.omni", schema=schema()) as graph:
        graph.load(at / "in.ndjson", mode="append")
        yield graph


def test_the_names_are_many_and_those_that_matter_are_among_them() -> None:
    assert len(names("node")) > 100
    assert {"src", "dst", "from", "to", "type", "data", "edge", "_tombstone"} <= set(names("node"))
    assert {"from", "to", "type", "data", "edge"} <= set(names("edge"))
    assert not {"src", "dst", "id"} & set(names("edge"))


def test_a_load_of_every_name_is_exported_as_it_was_written(source: Graph) -> None:
    assert export_bytes(source) == sorted(records(), key=_by_id)


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("form", FORMATS)
def test_every_name_loads_back_from_every_format(
    source: Graph, tmp_path: Path, form: str, *, parts: bool
) -> None:
    write(source, tmp_path / "out", form, parts=parts)
    with og.init(tmp_path / "back.omni", schema=schema()) as back:
        assert back.load(tmp_path / "out", mode="append").total == len(records())
        assert export_bytes(back) == export_bytes(source)


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.MERGE, Mode.OVERWRITE])
def test_every_name_is_loaded_by_a_large_load(source: Graph, tmp_path: Path, mode: Mode) -> None:
    """Such a load checks ids and ends in files, by the names of their columns."""
    source.export(tmp_path / "in.ndjson")
    request = LoadRequest((tmp_path / "in.ndjson",), mode)
    with og.init(tmp_path / "back.omni", schema=schema()) as back:
        if mode is Mode.MERGE:
            back.load(tmp_path / "in.ndjson", mode="append")
        run_load(back._opened, request, Author("main"), engine=lambda _: Engine(LocalRunner(), "a test"))
        assert export_bytes(back) == export_bytes(source)


def test_changes_have_every_name(source: Graph) -> None:
    found = {
        (one["type"]["name"], one["id"]): one["after"]["properties"]
        for block in source.changes(since="beginning", types=["N0", "E0"])
        for one in (change.to_json() for change in block.changes)
    }
    wanted = [record for record in records() if (record.get("type") or record["edge"]) in ("N0", "E0")]
    assert len(found) == len(wanted) == 4
    for record in wanted:
        data = dict(record["data"])
        properties = found[record.get("type") or record["edge"], data.pop("id")]
        assert sorted(properties) == sorted(data)


def test_every_name_loads_from_rows_in_memory(source: Graph, tmp_path: Path) -> None:
    with og.init(tmp_path / "back.omni", schema=schema()) as back:
        for number, of in enumerate(properties("node")):
            back.load(list(rows(of, number)), type=f"N{number}", mode="append")
        for number, of in enumerate(properties("edge")):
            given = [{"src": "a0", "dst": "b0", **row} for row in rows(of, number)]
            back.load(given, type=f"E{number}", mode="append")
        assert export_bytes(back) == export_bytes(source)


def test_every_name_is_inserted_by_a_query_and_chosen_by_delete(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", schema=schema()) as graph:
        graph.load([{"id": "a0"}], type="N0", mode="append")
        for number, of in enumerate(properties("edge")):
            texts = {name: VALUES[type_] for name, type_ in of.items() if type_ == "String?"}
            values = ", ".join(f"`{name}`: {json.dumps(value)}" for name, value in texts.items())
            graph.mutate(f'query q() {{ insert E{number} {{ from: "a0", to: "a0", {values} }} }}')
            (stored,) = graph.snapshot().rows(f"E{number}").to_pylist()
            assert {name: stored[name] for name in texts} == texts
            for name, value in islice(texts.items(), 1):
                where = f"`{name}` = {json.dumps(value)}"
                assert graph.mutate(f"query q() {{ delete E{number} where {where} }}").affected_edges == 1
