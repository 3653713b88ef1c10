"""What a one-row insert costs over one and two tables, by the number of commits before it.

The yardstick makes the bare calls such a write cannot do without, in the same order and through the
same layers: stage, record, commit, confirm, publish, remove the record.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import lance
import pyarrow as pa

from bench.measure import Result, interleaved
from omnigraph.engine import manifest
from omnigraph.engine.initialise import initialise
from omnigraph.engine.manifest import Records, TableVersion
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.root import Root
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.tables import Tables

DEPTHS = (0, 100, 1000)
SHORT_DEPTHS = (0, 10)
SCHEMA = "node A { text: String }\nnode B { text: String }\n"
STATEMENTS = {1: 'insert A { text: "x" }', 2: 'insert A { text: "x" }  insert B { text: "x" }'}
BARE = "bare calls, {} table(s)"


def run(*, short: bool = False) -> Result:
    """Inserts on graphs of several ages, next to the bare calls."""
    depths = SHORT_DEPTHS if short else DEPTHS
    rounds = 5 if short else 40
    with tempfile.TemporaryDirectory() as folder:
        tasks: dict[str, Callable[[], object]] = {}
        for tables in STATEMENTS:
            tasks[BARE.format(tables)] = _bare_writer(Path(folder) / f"bare{tables}", tables)
        for depth in depths:
            for tables in STATEMENTS:
                name = f"insert into {tables} table(s) after {depth} commits"
                tasks[name] = _writer(Path(folder) / f"{depth}-{tables}", depth, tables)
        timings = interleaved(tasks, rounds=rounds, calls=1)
    return Result(
        name="writes",
        timings=timings,
        yardsticks=tuple(BARE.format(tables) for tables in STATEMENTS),
        targets={},
        facts={"depths": list(depths), "lance": lance.__version__, "python": platform.python_version()},
    )


def _writer(at: Path, depth: int, tables: int) -> Callable[[], None]:
    root = Root.at(Location.parse(at))
    initialise(root, SCHEMA)
    graph = OpenGraph.open(root)
    compiled = compile_query(f"query q() {{ {STATEMENTS[tables]} }}", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)

    def insert() -> None:
        mutate(graph, compiled, {}, Author("main"))

    for _ in range(depth):
        insert()
    return insert


def _bare_writer(at: Path, tables: int) -> Callable[[], None]:
    """The least a write over so many tables has to do."""
    place = Location.parse(at)
    objects, store = ObjectStore.at(place), Tables()
    columns = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("text", pa.string())])
    written = [store.create(place / f"t{number}", columns, primary_key="id") for number in range(tables)]
    book = store.create(place / "book", manifest.SCHEMA, primary_key=manifest.KEY)
    state = {"book": book}
    numbers = count()

    def write() -> None:
        number = next(numbers)
        rows = pa.table({"id": [f"i{number}"], "text": ["x"]}, schema=columns)
        staged = [stage_append(table, rows) for table in written]
        record = place / "record.json"
        objects.write_text_if_absent(record, f"armed {number}")
        written[:] = [commit_staged(one) for one in staged]
        objects.write_text(record, f"confirmed {number}")
        versions = [TableVersion(f"node:T{n}", table.version, None, 1) for n, table in enumerate(written)]
        paths = {f"node:T{n}": f"t{n}" for n in range(tables)}
        entry = manifest.encode(Records(versions=versions, heads={"main": f"c{number}"}), paths)
        state["book"] = merge_rows(state["book"], entry, manifest.KEY).table
        objects.delete(record)

    return write
