"""What a one-row insert costs over one and two tables, by the number of commits before it.

At each depth it takes turns with a new graph, with other embedded databases of the same depth, and with the
yardstick: the bare calls such a write cannot do without, in the same order and through the same layers:
stage, record, commit, confirm, publish, remove the record.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

import lance
import pyarrow as pa

from bench.made import made
from bench.measure import Result, Timing, interleaved
from bench.peers import NAMES, TABLES, missing, peer
from omnigraph.engine import manifest
from omnigraph.engine.initialise import initialise
from omnigraph.engine.manifest import Records, TableVersion
from omnigraph.engine.opened import AtBranch, OpenGraph
from omnigraph.engine.pinned import open_table
from omnigraph.engine.root import Root
from omnigraph.engine.upkeep import SETTING as COLLECTION
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.tables import Tables

DEPTHS = (0, 100, 1000, 5000)
SHORT_DEPTHS = (0, 5)
SCHEMA = "node A { text: String }\nnode B { text: String }\n"
STATEMENTS = {1: 'insert A { text: "x" }', 2: 'insert A { text: "x" }  insert B { text: "x" }'}
OURS, NEW, BARE = "omnigraph", "omnigraph, new graph", "bare calls"


class Writer(Protocol):
    """A database with two tables."""

    @property
    def name(self) -> str: ...
    def insert(self, tables: int) -> None: ...
    def rows(self) -> tuple[int, ...]: ...


def run(*, short: bool = False) -> Result:
    """Inserts into databases of each depth; all of a depth take turns, next to the bare calls."""
    depths, rounds = (SHORT_DEPTHS, 3) if short else (DEPTHS, 30)
    # Old versions of the manifest would go after a while; here every commit of the past is left to weigh.
    os.environ[COLLECTION] = "1e9"
    absent = missing()
    peers = [name for name in NAMES if name not in absent]
    blocks = {depth: _measured(depth, peers, rounds, keep=not short) for depth in depths}
    return Result(
        name="writes",
        timings=tuple(timing for block in blocks.values() for timing in block.timings),
        yardsticks=tuple(_name(BARE, tables, depths[0]) for tables in STATEMENTS),
        targets={},
        facts={
            "rows each at last": list(blocks[depths[-1]].rows),
            "lance": lance.__version__,
            "python": platform.python_version(),
        },
        notes=(
            *(f"{name} is not installed, and so not measured" for name in absent),
            *_ratios(blocks),
        ),
    )


@dataclass(frozen=True, slots=True)
class Block:
    """What was measured at one depth."""

    timings: tuple[Timing, ...]
    writers: tuple[str, ...]
    rows: tuple[int, ...]


def _measured(depth: int, peers: Sequence[str], rounds: int, *, keep: bool) -> Block:
    """Databases with so many commits behind them, and what one more costs in each."""
    with tempfile.TemporaryDirectory() as created, ExitStack() as stack:
        folder = Path(created)
        if keep and depth:
            shutil.copytree(_aged(depth), folder / "graph")
        writers: list[Writer] = [Graph(folder / "graph")]
        writers += [stack.enter_context(peer(name, folder / name)) for name in peers]
        for writer in writers:
            _grow(writer, depth)
        timings = interleaved(_tasks(writers, folder, depth), rounds=rounds, calls=1)
        stored = {writer.name: writer.rows() for writer in writers}
    assert len(set(stored.values())) == 1, f"all must have stored the same: {stored}"
    return Block(timings, tuple(stored), stored[OURS])


def _aged(depth: int) -> Path:
    """A graph with so many commits, kept from the first run on: to make one takes minutes.

    It goes on from the one of the depth before. Delete the folder to have it made by another release.
    """

    def make(at: Path) -> None:
        before = DEPTHS[DEPTHS.index(depth) - 1]
        if before:
            shutil.copytree(_aged(before), at)
        _grow(Graph(at), depth)

    return made(f"writes-lance-{lance.__version__}-{depth}", make)


def _name(who: str, tables: int, depth: int) -> str:
    return f"{who}, {tables} table(s), {depth} commits"


def _tasks(writers: Sequence[Writer], folder: Path, depth: int) -> dict[str, Callable[[], object]]:
    """One insert of every kind; the bare calls and a graph start anew, so that they never slow down."""
    tasks: dict[str, Callable[[], object]] = {}
    new = Graph(folder / f"new-{depth}")
    for tables in STATEMENTS:
        tasks[_name(BARE, tables, depth)] = _bare_writer(folder / f"bare-{depth}-{tables}", tables)
        tasks[_name(NEW, tables, depth)] = partial(new.insert, tables)
        for writer in writers:
            tasks[_name(writer.name, tables, depth)] = partial(writer.insert, tables)
    return tasks


def _grow(writer: Writer, depth: int) -> None:
    """Insert into both tables until the second has so many rows, each of a commit of its own."""
    for _ in range(depth - writer.rows()[1]):
        writer.insert(2)


def _ratios(blocks: Mapping[int, Block]) -> Iterator[str]:
    """Each insert against the bare calls and, ours, against a new graph: always those of the same turns."""
    medians = {timing.name: timing.median for block in blocks.values() for timing in block.timings}

    def against(other: str, who: str, tables: int) -> str:
        return _shown(
            {
                depth: medians[_name(who, tables, depth)] / medians[_name(other, tables, depth)]
                for depth in blocks
            }
        )

    for tables in STATEMENTS:
        yield f"{OURS} / the same on a new graph, {tables} table(s): {against(NEW, OURS, tables)}"
        for name in next(iter(blocks.values())).writers:
            yield f"{name} / {BARE}, {tables} table(s): {against(BARE, name, tables)}"


def _shown(ratios: Mapping[int, float]) -> str:
    return ", ".join(f"{ratio:.2f} after {depth} commits" for depth, ratio in ratios.items())


class Graph:
    """A graph of ours, made when there is none yet."""

    name = OURS

    def __init__(self, at: Path) -> None:
        root = Root.at(Location.parse(at))
        if not at.exists():
            initialise(root, SCHEMA)
        self._graph = OpenGraph.open(root)
        self._compiled = {tables: self._compile(text) for tables, text in STATEMENTS.items()}

    def insert(self, tables: int) -> None:
        mutate(self._graph, self._compiled[tables], {}, Author("main"))

    def rows(self) -> tuple[int, ...]:
        snapshot = self._graph.snapshot(AtBranch())
        return tuple(open_table(self._graph, snapshot, f"node:{name}").count() for name in TABLES)

    def _compile(self, text: str) -> CompiledMutation:
        compiled = compile_query(f"query q() {{ {text} }}", self._graph.schema().catalog)
        assert isinstance(compiled, CompiledMutation)
        return compiled


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
