"""Read everything a graph stores and report what cannot be trusted; nothing is changed.

Three checks, each of which finds what the others cannot:

files     every file of a table against the checksum noted when it was written
rows      every row of every table that a branch shows, with the bytes of Blobs, decoded and validated
texts     the records of past schemas

Memory is that of one block of a file, or of one batch of rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.coordinator import open_manifest
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.schema_files import read_identified_schema
from omnigraph.engine.graph.table_types import ID
from omnigraph.errors import BranchNotFound, CompileError, InternalError, OmnigraphError, StorageFailure
from omnigraph.lang.schema import compile_schema
from omnigraph.progress import Stage, stage
from omnigraph.storage.blobs import blob_sizes, is_blob
from omnigraph.storage.checksums import Checksum, Checksums, compute_checksum
from omnigraph.storage.index_files import find_unreadable_index_files
from omnigraph.storage.tables import Table
from omnigraph.storage.version_files import hint_file

_ROWS_AT_ONCE = 8_192
_BLOB_BYTES_AT_ONCE = 64 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """Something stored that is not what was written, or cannot be read."""

    path: str
    """A file below the root, or the table and branch that could not be read."""
    reason: str


@dataclass(frozen=True, slots=True)
class DeepReport:
    """What was read, and what was found."""

    damaged: tuple[Damage, ...]
    files: int
    """Files that were compared with a checksum."""
    bytes: int
    unrecorded: tuple[str, ...]
    """Files without a checksum: written by another implementation or an earlier release, or in a bucket."""
    tables: int
    rows: int
    """Rows that were decoded, those of each version once."""

    @property
    def ok(self) -> bool:
        """Whether everything that was read is what was written, as far as that is known."""
        return not self.damaged


@dataclass(slots=True)
class _Findings:
    damaged: list[Damage] = field(default_factory=list)
    unrecorded: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    tables: int = 0
    rows: int = 0

    def add(self, path: str, reason: str) -> None:
        self.damaged.append(Damage(path, reason))

    def report(self) -> DeepReport:
        return DeepReport(
            tuple(self.damaged), self.files, self.bytes, tuple(self.unrecorded), self.tables, self.rows
        )


def check_deeply(graph: OpenGraph) -> DeepReport:
    """Read all files, rows, Blobs and indexes of a graph, on all branches."""
    found = _Findings()
    if graph.root.layout.root.is_local:
        _check_files(graph.root.layout.root.path, found)
    _check_branches(graph, found)
    _check_texts(graph, found)
    return found.report()


def check_unopened(root: Root, failure: OmnigraphError) -> DeepReport:
    """Compare the files of a graph that cannot be opened."""
    found = _Findings()
    found.add("the graph", failure.message)
    if root.layout.root.is_local:
        _check_files(root.layout.root.path, found)
    return found.report()


def record_checksums(graph: OpenGraph, names: tuple[str, ...]) -> int:
    """Note the checksums of files that have none, as they are now; how many were noted."""
    root = graph.root.layout.root.path
    checksums = Checksums(root)
    noted = 0
    for table in _table_folders(root):
        own = [root / name for name in names if (root / name).is_relative_to(table)]
        noted += checksums.note(table, own)
    return noted


# --- files -----------------------------------------------------------------------------------------


def _table_folders(root: Path) -> list[Path]:
    """The folders of tables, with the manifest and the past schemas."""
    single = [root / name for name in ("__manifest", "_graph_commit_recoveries.lance", "__schemas")]
    groups = [root / name for name in ("nodes", "edges")]
    found = [each for group in groups if group.is_dir() for each in group.iterdir() if each.is_dir()]
    return [*(each for each in single if each.is_dir()), *sorted(found)]


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            yield Path(parent) / name


def _check_files(root: Path, found: _Findings) -> None:
    checksums = Checksums(root)
    folders = _table_folders(root)
    size = sum(_size(path) for folder in folders for path in _files_below(folder))
    with stage("files", tasks=len(folders), size=size) as shown:
        for folder in folders:
            known = checksums.read(folder)
            for path in _files_below(folder):
                _check_file(root, folder, path, known, found)
                shown.advance(size=_size(path))
            shown.advance(tasks=1)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # removed by a cleanup meanwhile


def _check_file(
    root: Path, folder: Path, path: Path, known: Mapping[str, Checksum], found: _Findings
) -> None:
    if path.name == Path(hint_file()).name:
        return  # Lance looks for the newest version itself where the hint is wrong
    name = path.relative_to(root).as_posix()
    noted = known.get(path.relative_to(folder).as_posix())
    if noted is None:
        found.unrecorded.append(name)
        return
    now = compute_checksum(path)
    if now is None:
        return  # removed by a cleanup meanwhile
    found.files += 1
    found.bytes += now.size
    if now != noted:
        what = f"{now.size} bytes instead of {noted.size}" if now.size != noted.size else "changed"
        found.add(name, f"it has {what}: CRC-32 {now.crc:08x}, and {noted.crc:08x} when it was written")


# --- rows ------------------------------------------------------------------------------------------


def _check_branches(graph: OpenGraph, found: _Findings) -> None:
    entries: dict[tuple[str, str | None, int], tuple[str, TableEntry]] = {}
    for branch in graph.branch_names():
        try:
            _check_manifest(graph, branch, found)
            for entry in graph.load(branch).state.entries().values():
                entries.setdefault((entry.path, entry.owner, entry.version), (branch, entry))
        except BranchNotFound:
            continue  # deleted meanwhile
        except (InternalError, StorageFailure) as error:
            found.add(f"branch {branch}", error.message)
    total = sum(entry.row_count or 0 for _, entry in entries.values())
    with stage("rows", tasks=len(entries), rows=total) as shown:
        for branch, entry in entries.values():
            _check_table(graph, branch, entry, shown, found)
            shown.advance(tasks=1)


def _check_manifest(graph: OpenGraph, branch: str, found: _Findings) -> None:
    manifest = open_manifest(graph.root, branch)
    problem = _first_problem(manifest.batches(batch_size=_ROWS_AT_ONCE), None)
    if isinstance(problem, str):
        found.add(f"manifest of branch {branch}", problem)


def _check_table(graph: OpenGraph, branch: str, entry: TableEntry, shown: Stage, found: _Findings) -> None:
    name = f"{entry.key} of branch {branch}"
    try:
        table = graph.root.tables.open(graph.root.layout.table(entry.path), entry.version, branch=entry.owner)
        rows = _check_rows(table, name, shown, found)
        if entry.row_count is not None and rows != entry.row_count:
            found.add(name, f"it has {rows:,} rows, and the branch says {entry.row_count:,}")
        for path, reason in find_unreadable_index_files(table):
            found.add(f"index file {path} of {name}", reason)
        found.tables += 1
        found.rows += rows
    except OmnigraphError as error:
        found.add(name, error.message)


def _check_rows(table: Table, name: str, shown: Stage, found: _Findings) -> int:
    plain = [column.name for column in table.schema if not is_blob(column)]
    problem = _first_problem(table.batches(plain, batch_size=_ROWS_AT_ONCE), shown)
    if isinstance(problem, str):
        found.add(name, problem)
        return table.count()
    for column in (column.name for column in table.schema if is_blob(column)):
        _check_blobs(table, name, column, found)
    return problem


def _first_problem(batches: Iterator[pa.RecordBatch], shown: Stage | None) -> int | str:
    """Return what is wrong with rows as they are decoded, or how many there are."""
    rows = 0
    for batch in batches:
        try:
            batch.validate(full=True)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            return f"rows {rows:,} to {rows + len(batch):,} are not valid: {error}"
        for column in batch.schema:
            if not column.nullable and batch.column(column.name).null_count:
                return f"'{column.name}' is null among rows {rows:,} to {rows + len(batch):,}"
        rows += len(batch)
        if shown is not None:
            shown.advance(rows=len(batch))
    return rows


def _check_blobs(table: Table, name: str, column: str, found: _Findings) -> None:
    """Read the bytes of Blobs, in batches small enough that even the largest Blobs fit into memory."""
    largest = 0
    for batch in table.batches([column], batch_size=_ROWS_AT_ONCE):
        sizes: Any = blob_sizes(batch.column(0)).to_pylist()
        largest = max([largest, *sizes])
    at_once = max(1, min(_ROWS_AT_ONCE, _BLOB_BYTES_AT_ONCE // max(1, largest)))
    problem = _first_problem(table.batches([ID, column], batch_size=at_once, blob_bytes=True), None)
    if isinstance(problem, str):
        found.add(f"{name}, {column}", problem)


# --- texts -----------------------------------------------------------------------------------------


def _check_texts(graph: OpenGraph, found: _Findings) -> None:
    try:
        read_identified_schema(graph.root)
    except OmnigraphError as error:
        found.add("the schema", error.message)
    for at in graph.root.objects.list_dir(graph.root.layout.past_schemas):
        text = graph.root.objects.read_text_if_exists(at)
        try:
            compile_schema(text or "", at.name)
        except CompileError as error:
            found.add(f"__schemas/{at.name}", error.message)
