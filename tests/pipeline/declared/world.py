"""A small graph, a file that declares a pipeline into it, and rows that need no Spark."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pyarrow as pa

import omnigraph as og
from omnigraph.engine.load.spool import PassedRows
from omnigraph.graph import Graph
from omnigraph.pipeline.declared.batch import Batch, Bounds
from omnigraph.pipeline.declared.declaration import Destination, Pipeline
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.declared.records import SourceRecord

SCHEMA = """
node Person { email: String @key  full_name: String?  age: I32? }
node Firm { slug: String @key }
node Strict { no: I64 @key  word: String }
edge WorksAt: Person -> Firm { since: Date? }
edge Sees: Strict -> Strict
"""
PEOPLE_MAP = "{nodes: [{type: Person, view: people, properties: {email: email, age: cast(age as int)}}]}"

Rows = Mapping[str, Mapping[str, Sequence[object]]]
"""Columns by table."""


def graph_at(at: Path) -> None:
    """An empty graph; made once, and copied."""
    shutil.copytree(_empty_graph(), at)


@cache
def _empty_graph() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    og.init(folder / "empty", schema=SCHEMA).close()
    return folder / "empty"


def declare_pipeline(folder: Path, into: str, more: str = "", sources: str = "") -> Pipeline:
    """A pipeline `crm` that reads people from a CSV file, with what a test adds."""
    if not (folder / "people.csv").exists():
        (folder / "people.csv").write_text("email,age,updated\na@x,1,2024-01-01\n", encoding="utf-8")
    path = folder / "crm.yaml"
    people = (
        "{format: csv, path: people.csv, options: {header: 'true'}, watermark: {column: updated, type: date}}"
    )
    more_sources = textwrap.indent(textwrap.dedent(sources), "      ")
    head = f"pipelines:\n  crm:\n    sources:\n      people: {people}\n{more_sources}\n"
    body = textwrap.indent(textwrap.dedent(more).strip("\n"), "    ")
    path.write_text(f"{head}{body}\n    into:\n{textwrap.indent(textwrap.dedent(into), '      ')}\n")
    return read_pipeline(path)


def into(graph: str = "team", mode: str = "append", **more: str) -> str:
    """A target that gets the people."""
    others = "".join(f", {name}: {value}" for name, value in more.items())
    return f"- {{graph: {graph}, mode: {mode}, map: {PEOPLE_MAP}{others}}}"


class Given:
    """Rows that are there already, as a run takes them; no Spark is asked."""

    def __init__(self, folder: Path, rows: Rows, upper: str | None = None, content: str = "1") -> None:
        self.folder = folder
        self.rows = rows
        self.upper = upper
        self.content = content
        self.asked: list[Bounds] = []

    def find_bounds(self, known: Bounds, reached: Sequence[Mapping[str, str]]) -> Bounds:
        return known or {"people": SourceRecord(upper=self.upper)}

    @contextmanager
    def open_batch(self, target: Destination, graph: Graph, bounds: Bounds) -> Iterator[Batch]:
        self.asked.append(bounds)
        files: list[PassedRows] = []
        for key, columns in self.rows.items():
            file = self.folder / f"{key.partition(':')[2]}.arrow"
            table = pa.table(dict(columns))
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            files += [PassedRows(str(file), file.stem)] if table.num_rows else []
        counts = {key: len(next(iter(columns.values()))) for key, columns in self.rows.items()}
        yield Batch(tuple(files), counts, self.content)

    def release(self) -> None:
        """Nothing is kept."""

    def describe_engine(self) -> Mapping[str, str]:
        return {"app_id": "", "version": ""}

    def redact(self, text: str) -> str:
        return text


def people(graph: Path, branch: str = "main") -> list[str]:
    """The ids of everybody on a branch."""
    with og.open(graph, read_only=True) as opened:
        return sorted(opened.snapshot(branch).rows("Person", columns=["id"])["id"].to_pylist())


class Growing(Given):
    """A source that is read by its watermark: there is nothing after the greatest one."""

    @contextmanager
    def open_batch(self, target: Destination, graph: Graph, bounds: Bounds) -> Iterator[Batch]:
        nothing: Rows = {key: {name: [] for name in columns} for key, columns in self.rows.items()}
        rows = nothing if bounds["people"].lower == self.upper else self.rows
        with Given(self.folder, rows, self.upper, self.content).open_batch(target, graph, bounds) as made:
            yield made
