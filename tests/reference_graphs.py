"""Graphs as the reference implementation stores them (format 4), written with Lance alone.

Columns are in alphabetical order after those of the system, a DateTime is a date64, `id` is not marked as
key, the manifest says where versions are with the folder the writer knew them by, and there is no record of
past schemas and no file of identities.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import omnigraph as og
from omnigraph.engine.graph.layout import table_path
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.ir import compile_with_ir, ir_hash, render

_SYSTEM = ("id", "src", "dst")
_DAY = pa.date64()
_STAMP = "omnigraph:internal_schema_version"
_MANIFEST = pa.schema(
    [
        pa.field(
            "object_id",
            pa.string(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.string())),
        pa.field("table_key", pa.string(), nullable=False),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
    ],
    metadata={_STAMP: "4"},
)
FIRST_MOMENT = 1_700_000_000_000_000


class ReferenceGraph:
    """A graph of the reference with rows in its tables; each change is one commit."""

    def __init__(self, place: Path, schema: str, rows: Mapping[str, pa.Table], *, parts: int = 1) -> None:
        self.place = place
        self.versions: dict[str, int] = {}
        self.commits: list[str] = []
        self._write_schema(schema)
        catalog = compile_schema(schema)
        self.paths = {f"node:{name}": table_path("node", name) for name in catalog.nodes}
        self.paths |= {f"edge:{name}": table_path("edge", name) for name in catalog.edges}
        entries = []
        for key, path in sorted(self.paths.items()):
            stored = as_reference_stores(rows[key])
            lance.write_dataset(
                stored.slice(0, 0),
                place / path,
                enable_stable_row_ids=True,
                data_storage_version="2.2",
            )
            self.versions[key] = 1
            entries += [_row(key, "table", location=path, table_key=key), self._version(key, 0)]
        commit = self._commit(1)
        lance.write_dataset(
            _table([*entries, commit]),
            place / "__manifest",
            enable_stable_row_ids=True,
            data_storage_version="2.2",
        ).update_config({"table_version_management": "true"})
        (place / "__recovery").mkdir()
        for number in range(parts):
            self.append(
                {key: table.slice(*_part(table.num_rows, number, parts)) for key, table in rows.items()}
            )

    def append(self, rows: Mapping[str, pa.Table], *, actor: str | None = None) -> None:
        """Add rows to tables in one commit on main."""
        changed = []
        for key, table in rows.items():
            if table.num_rows:
                stored = as_reference_stores(table)
                written = lance.write_dataset(stored, self.place / self.paths[key], mode="append")
                self.versions[key] = written.version
                changed.append(self._version(key, written.count_rows()))
        self._publish(changed, actor)

    def branch(self, name: str, rows: Mapping[str, pa.Table]) -> None:
        """Make a branch with one commit that adds rows."""
        manifest = lance.dataset(self.place / "__manifest")
        manifest.create_branch(name, (None, manifest.version))
        changed = []
        for key, table in rows.items():
            at = self.place / self.paths[key]
            lance.dataset(at).create_branch(name, (None, self.versions[key]))
            fork = lance.dataset(at / "tree" / name)
            written = lance.write_dataset(as_reference_stores(table), fork, mode="append")
            changed.append(self._version(key, written.count_rows(), written.version, name))
        fork = lance.dataset(self.place / "__manifest" / "tree" / name)
        self._merge(fork, changed, name, None)

    def change_schema(self, schema: str, rewritten: Mapping[str, pa.Table]) -> None:
        """Accept another schema in one commit that replaces rows; no file of ours is touched."""
        changed = []
        for key, table in rewritten.items():
            at = self.place / self.paths[key]
            written = lance.write_dataset(as_reference_stores(table), at, mode="overwrite")
            self.versions[key] = written.version
            changed.append(self._version(key, written.count_rows()))
        self._publish(changed, None)
        self._write_schema(schema)

    def _publish(self, changed: list[dict[str, Any]], actor: str | None) -> None:
        self._merge(lance.dataset(self.place / "__manifest"), changed, None, actor)

    def _merge(
        self,
        manifest: lance.LanceDataset,
        changed: list[dict[str, Any]],
        branch: str | None,
        actor: str | None,
    ) -> None:
        parent = self.commits[-1]
        commit = self._commit(manifest.version + 1, branch, parent, actor)
        heads = {"head_commit_id": commit["object_id"], "parent_commit_id": parent}
        head = _row(f"graph_head:{branch or 'main'}", "graph_head", metadata=json.dumps(heads))
        rows = _table([*changed, commit, head]).replace_schema_metadata(None)
        manifest.merge_insert("object_id").when_matched_update_all().when_not_matched_insert_all().execute(
            rows
        )

    def _commit(
        self, version: int, branch: str | None = None, parent: str | None = None, actor: str | None = None
    ) -> dict[str, Any]:
        commit_id = f"01HF0000000000000000{len(self.commits):06d}"
        named = {"parent_commit_id": parent, "actor_id": actor}
        known = {name: value for name, value in named.items() if value is not None}
        metadata = {**known, "created_at": FIRST_MOMENT + len(self.commits) * 1_000_000}
        if branch is None:
            self.commits.append(commit_id)
        else:
            commit_id = f"01HF000000000000000B{len(self.commits):06d}"
        return _row(
            commit_id,
            "graph_commit",
            metadata=json.dumps(metadata),
            table_version=version,
            table_branch=branch,
        )

    def _version(
        self, key: str, rows: int, version: int | None = None, branch: str | None = None
    ) -> dict[str, Any]:
        number = self.versions[key] if version is None else version
        fork = f"/tree/{branch}" if branch else ""
        file = f"elsewhere/{self.paths[key]}{fork}/_versions/{2**64 - 1 - number:020d}.manifest"
        metadata = {"manifest_path": file, "manifest_size": 700, "e_tag": "x", "naming_scheme": "V2"}
        return _row(
            f"{key}${number:020d}",
            "table_version",
            metadata=json.dumps(metadata),
            table_key=key,
            table_version=number,
            table_branch=branch,
            row_count=rows,
        )

    def _write_schema(self, text: str) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        _, value = compile_with_ir(text)
        state = {
            "format_version": 1,
            "schema_ir_hash": ir_hash(value),
            "schema_identity_version": 1,
        }
        (self.place / "_schema.pg").write_text(text)
        (self.place / "_schema.ir.json").write_text(render(value, indent=2))
        (self.place / "__schema_state.json").write_text(json.dumps(state, indent=2))


def as_reference_stores(rows: pa.Table) -> pa.Table:
    """Return rows with the columns and types of the reference."""
    names = [name for name in _SYSTEM if name in rows.column_names]
    ordered = [*names, *sorted(set(rows.column_names) - set(names))]
    fields = [_field(rows.schema.field(name)) for name in ordered]
    columns = [_column(rows.column(field.name), field.type) for field in fields]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _field(field: pa.Field) -> pa.Field:
    if isinstance(field.type, pa.BaseExtensionType):
        return field
    kind = field.type
    if pa.types.is_timestamp(kind):
        kind = _DAY
    elif pa.types.is_list(kind) and pa.types.is_timestamp(kind.value_type):
        kind = pa.list_(_DAY)
    return pa.field(field.name, kind, field.nullable)


def _column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def rows_of(graph: og.Graph) -> dict[str, pa.Table]:
    """Return the rows of all tables of main, Blobs as they are written."""
    opened = graph._opened
    found = {}
    for key, entry in opened.load("main").state.entries().items():
        table = opened.root.tables.open(opened.root.layout.table(entry.path), entry.version)
        target = opened.schema().targets[key]
        parts = [pa.Table.from_batches([batch]) for batch in table.batches(blob_bytes=True)]
        found[key] = pa.concat_tables(
            [as_written(part, target.schema) for part in parts] or [target.schema.empty_table()]
        )
    return found


def as_written(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows that were read with the bytes of their Blobs in the columns they are written with."""
    from omnigraph.storage.blobs import to_writable

    return to_writable(rows, schema)


def convert(source: Path, target: Path, *, parts: int = 1) -> ReferenceGraph:
    """Return a graph of the reference with the rows that main of one of ours has."""
    with og.open(source, read_only=True) as graph:
        return ReferenceGraph(target, graph.schema_source, rows_of(graph), parts=parts)


def _part(rows: int, number: int, parts: int) -> tuple[int, int]:
    start = rows * number // parts
    return start, rows * (number + 1) // parts - start


def _row(object_id: str, object_type: str, **more: Any) -> dict[str, Any]:
    return {"object_id": object_id, "object_type": object_type, "table_key": "", **more}


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=_MANIFEST)
