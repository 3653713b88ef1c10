"""What the tests of inputs share: a schema, its rows in every format, and reading all items of a load."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.item_reader import read_item
from omnigraph.engine.load.sources.mapping import InputMapping
from omnigraph.engine.load.sources.plan import plan_items
from omnigraph.engine.rows.blobs import is_blob
from omnigraph.engine.rows.row_builder import LoadReader, SplitRows, collect_rows
from omnigraph.engine.rows.violations import Violation
from tests.engine.write.support import IDS, accept_schema

SCHEMA = """
node Person {
  handle: String @key
  name: String?
  age: I32?
  score: F64?
  weight: F32?
  big: U64?
  active: Bool?
  born: Date?
  seen: DateTime?
  role: enum(dev, lead)?
  tags: [String]?
  marks: [I64]?
  face: Vector(2)?
  photo: Blob?
  @range(age, 0..150)
  @check(name, "^[^0]*$")
}
node Note { text: String }
node Place { number: I64 @key }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge LivesIn: Person -> Place
"""

PEOPLE: list[dict[str, Any]] = [
    {
        "handle": "ada",
        "name": 'Ada, "the" first\nof many',
        "age": 36,
        "score": 1.5,
        "weight": 0.25,
        "big": 2**64 - 1,
        "active": True,
        "born": "1815-12-10",
        "seen": "2024-05-01T12:30:00.125Z",
        "role": "lead",
        "tags": ["x", "y z", ""],
        "marks": [1, -(2**63)],
        "face": [0.5, -1.0],
        "photo": "base64:AAEC",
    },
    {"handle": "bo", "name": "", "tags": [], "marks": [], "active": False, "photo": "base64:"},
    {"handle": "cy é☃"},
    {"handle": "dee", "age": -0, "score": -1e300, "seen": "1960-01-01T00:00:00.001Z", "face": [1.0, 2.0]},
]
KNOWS: list[dict[str, Any]] = [
    {"from": "ada", "to": "bo", "since": "2019-05-01", "weight": 0.5},
    {"from": "bo", "to": "ada"},
    {"id": "k3", "from": "dee", "to": "cy é☃", "weight": 2.0},
]

PERSON = pa.schema(
    [
        ("handle", pa.string()),
        ("name", pa.string()),
        ("age", pa.int32()),
        ("score", pa.float64()),
        ("weight", pa.float32()),
        ("big", pa.uint64()),
        ("active", pa.bool_()),
        ("born", pa.date32()),
        ("seen", pa.timestamp("ms", "UTC")),
        ("role", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("marks", pa.list_(pa.int64())),
        ("face", pa.list_(pa.float32(), 2)),
        ("photo", pa.string()),
    ]
)


def person_table() -> pa.Table:
    """The people as columns of the very types that are stored, but for the Blob."""
    texts = {"born": pa.date32(), "seen": pa.timestamp("ms", "UTC")}
    columns = [
        pa.array([person.get(field.name) for person in PEOPLE], pa.string()).cast(texts[field.name])
        if field.name in texts
        else pa.array([person.get(field.name) for person in PEOPLE], field.type)
        for field in PERSON
    ]
    return pa.Table.from_arrays(columns, schema=PERSON)


def knows_table() -> pa.Table:
    columns: dict[str, pa.Array] = {
        name: pa.array([edge.get(name) for edge in KNOWS], pa.string()) for name in ("id", "from", "to")
    }
    columns["since"] = pa.array([edge.get("since") for edge in KNOWS], pa.string()).cast(pa.date32())
    columns["weight"] = pa.array([edge.get("weight") for edge in KNOWS], pa.float64())
    return pa.table(columns)


def ndjson(people: Iterable[dict[str, Any]] = PEOPLE, knows: Iterable[dict[str, Any]] = KNOWS) -> bytes:
    records: list[dict[str, Any]] = [{"type": "Person", "data": person} for person in people]
    for edge in knows:
        data = {name: value for name, value in edge.items() if name not in ("from", "to")}
        records.append({"edge": "Knows", "from": edge["from"], "to": edge["to"], "data": data})
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def csv_field(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return '"' + text.replace('"', '""') + '"' if not text or set(text) & set('",\r\n') else text


def csv_text(rows: Sequence[dict[str, Any]], names: Sequence[str], end: str = "\r\n") -> bytes:
    lines = [",".join(names), *(",".join(csv_field(row.get(name)) for name in names) for row in rows)]
    return (end.join(lines) + end).encode()


@dataclass(frozen=True)
class Read:
    """All that a load reads."""

    rows: dict[str, list[dict[str, Any]]]
    """By table, with Blobs as what they store."""
    generated: dict[str, list[bool]]
    violations: list[Violation]
    lines: int

    @property
    def problems(self) -> list[tuple[int | None, str]]:
        return [(wrong.line, wrong.reason) for wrong in self.violations]


def reader(schema: str = SCHEMA) -> LoadReader:
    return LoadReader(accept_schema(schema), IDS)


def plan(
    *inputs: str | Path, schema: str = SCHEMA, mapping: InputMapping | None = None, **options: Any
) -> list[Item]:
    return plan_items(inputs, accept_schema(schema).catalog, mapping, **{"cores": 2, **options})


def read_all(items: Sequence[Item], schema: str = SCHEMA) -> Read:
    """Every item read as a task elsewhere would, and lines counted on over the items of a file."""
    loading: LoadReader = pickle.loads(pickle.dumps(reader(schema)))
    parts: list[SplitRows] = []
    violations: list[Violation] = []
    before: Counter[int] = Counter()
    lines = 0
    for item in pickle.loads(pickle.dumps(items)):
        seen = 0
        for part in read_item(item, loading):
            parts.append(part)
            violations += (wrong.moved(before[item.file_number]) for wrong in part.violations)
            seen += part.lines
        before[item.file_number] += seen
        lines += seen
    found = collect_rows(parts, reader(schema).targets, [])
    for key, rows in found.items():
        rows.rows.validate(full=True)
        assert rows.rows.schema == reader(schema).targets[key].schema
    return Read(
        {key: _plain(rows.rows) for key, rows in found.items()},
        {key: rows.generated.tolist() for key, rows in found.items()},
        violations,
        lines,
    )


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    columns = {
        field.name: [value and value["data"] for value in _storage(rows.column(field.name))]
        if is_blob(field)
        else _values(rows.column(field.name))
        for field in rows.schema
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    # Moments far from today are no Python dates.
    plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    found: list[Any] = plain.to_pylist()
    return found


def _storage(column: pa.ChunkedArray) -> list[Any]:
    return [value for chunk in column.chunks for value in chunk.storage.to_pylist()]


def read(
    *inputs: str | Path, schema: str = SCHEMA, mapping: InputMapping | None = None, **options: Any
) -> Read:
    return read_all(plan(*inputs, schema=schema, mapping=mapping, **options), schema)
