"""What the tests of incoming rows share: the example schema, its rows, and stored rows in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.constraints.stored_rows import COUNTED, EDGE, End
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.rows.ids import LoadIds
from omnigraph.engine.rows.lines import Limits, Split
from omnigraph.engine.rows.row_builder import LoadReader, LoadRows, SplitRows, collect_rows
from omnigraph.lang.schema import AcceptedSchema, compile_schema, first_identities

SCHEMA = (Path(__file__).parents[2] / "lang" / "cases" / "F.pg").read_text()
STARTED = 1_700_000_000_000
IDS = LoadIds(STARTED, salt=0xABCDEF)

PEOPLE: list[dict[str, Any]] = [
    {
        "handle": "ada",
        "age": 36,
        "score": 1.5,
        "joined": "2021-03-04",
        "role": "lead",
        "email": "a@x",
        "tags": ["x", "y"],
    },
    {"handle": "bo", "age": 20, "score": 2.0, "role": "dev"},
    {"handle": "cy", "tags": []},
    {"handle": "dee", "age": 36, "role": "ops"},
]
MENTORS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("m1", "ada", "bo", {"since": 2019}),
    ("m2", "ada", "bo", {"since": 2021, "note": "again"}),
    ("m3", "ada", "cy", {}),
    ("m4", "bo", "cy", {"since": 2020}),
    ("m5", "cy", "ada", {}),
    ("m6", "dee", "dee", {}),
]
MEMBERS = [("b1", "ada", "core"), ("b2", "ada", "infra"), ("b3", "bo", "core")]


@cache
def accept_schema(schema: str = SCHEMA) -> AcceptedSchema:
    """A schema as a new graph accepts it."""
    catalog = compile_schema(schema)
    return AcceptedSchema(catalog, first_identities(catalog))


@cache
def _reader(schema: str) -> LoadReader:
    return LoadReader(accept_schema(schema), IDS)


def node(type_name: str, **data: Any) -> dict[str, Any]:
    return {"type": type_name, "data": data}


def edge(type_name: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": type_name, "from": source, "to": target, **({"data": data} if data else {})}


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def read(data: bytes, schema: str = SCHEMA, *, limits: Limits | None = None) -> SplitRows:
    """What one file of a load says."""
    reader = LoadReader(accept_schema(schema), IDS, limits or Limits())
    return reader.read(Split("in.ndjson", data))


def list_problems(rows: SplitRows) -> list[tuple[int | None, str]]:
    return [(wrong.line, wrong.reason) for wrong in rows.violations]


def split_lines(data: bytes, file: str, size: int) -> Iterator[Split]:
    """The lines of a file in parts of about so many bytes, as the tasks of a load get them."""
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin + size - 1) + 1 or len(data)
        yield Split(file, data[begin:end], 0, data.count(b"\n", 0, begin) + 1, begin)
        begin = end


def load_rows(data: bytes, schema: str = SCHEMA, *, size: int = 1 << 20) -> dict[str, LoadRows]:
    """All rows of a file without faults of their own."""
    reader = _reader(schema)
    parts = [reader.read(split) for split in split_lines(data, "in.ndjson", size)]
    assert [wrong for part in parts for wrong in part.violations] == []
    return collect_rows(parts, reader.targets, ["in.ndjson"])


def fixture_lines() -> bytes:
    """The example graph as a load."""
    return lines(
        *(node("Person", **person) for person in PEOPLE),
        node("Team", slug="core", title="Core"),
        node("Team", slug="infra", title="Infra"),
        *(edge("Mentors", source, target, id=id_, **data) for id_, source, target, data in MENTORS),
        *(edge("MemberOf", source, target, id=id_) for id_, source, target in MEMBERS),
    )


@dataclass(frozen=True)
class InMemory:
    """Stored rows that are Arrow tables."""

    tables: Mapping[str, pa.Table]
    targets: Mapping[str, TableType]

    @classmethod
    def of(cls, data: bytes, schema: str = SCHEMA) -> InMemory:
        rows = load_rows(data, schema)
        targets = _reader(schema).targets
        empty = {key: target.schema.empty_table() for key, target in targets.items()}
        return cls({**empty, **{key: found.rows for key, found in rows.items()}}, targets)

    def ids(self, key: str) -> pa.ChunkedArray:
        return self.tables[key].column("id")

    def existing(self, key: str, ids: pa.Array) -> pa.ChunkedArray:
        return self._having(key, "id", ids).column("id")

    def holders(self, key: str, columns: Sequence[str], rows: pa.Table) -> pa.Table:
        return self.tables[key].select(list(dict.fromkeys(["id", *columns])))

    def edges(self, key: str, ids: pa.Array) -> pa.Table:
        return self._having(key, "id", ids).select(EDGE)

    def edges_at(self, key: str, end: End, nodes: pa.Array) -> pa.Table:
        return self._having(key, end, nodes).select(EDGE)

    def edge_counts(self, key: str, sources: pa.Array | None) -> pa.Table:
        found = self.tables[key] if sources is None else self._having(key, "src", sources)
        counted = found.group_by("src").aggregate([([], "count_all")])
        return pa.table([counted.column("src"), counted.column("count_all")], schema=COUNTED)

    def _having(self, key: str, column: str, values: pa.Array) -> pa.Table:
        rows = self.tables[key]
        return rows.filter(pc.is_in(rows.column(column), value_set=pc.unique(values)))
