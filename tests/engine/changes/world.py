"""A graph with every kind of value, and a plain model of it to compare diffs with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

import pytest

from omnigraph.engine.changes import comparison
from omnigraph.engine.changes.change import Change, ChangeOperation
from omnigraph.graph import Graph

SCHEMA = """
node Thing {
    k: String @key
    s: String?
    flag: Bool?
    i: I32?
    l: I64?
    u: U32?
    v: U64?
    f: F32?
    d: F64?
    day: Date?
    at: DateTime?
    level: enum(low, high)?
    tags: [String]?
    nums: [F64]?
    days: [Date]?
    vec: Vector(2)?
    data: Blob?
}
node Hub { k: String @key }
edge Link: Hub -> Hub { w: F64? }
"""
HUBS = ("x", "y", "z")
PROPERTIES = (
    "s",
    "flag",
    "i",
    "l",
    "u",
    "v",
    "f",
    "d",
    "day",
    "at",
    "level",
    "tags",
    "nums",
    "days",
    "vec",
    "data",
)

Row = dict[str, Any]
State = dict[tuple[str, str], Row]
"""The rows of a graph by type and id."""
Mode = Literal["append", "merge", "overwrite"]


def thing(key: str, **values: Any) -> Row:
    return {"k": key, **dict.fromkeys(PROPERTIES), **values}


def link(source: str, target: str, weight: float | None = None) -> Row:
    return {"w": weight, "src": source, "dst": target}


def load(graph: Graph, rows: State, mode: Mode = "merge", branch: str = "main") -> None:
    """Rows through a file, in one commit."""
    with NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(json.dumps(_record(name, entity, row)) for (name, entity), row in rows.items()))
        file.flush()
        graph.load(Path(file.name), mode=mode, branch=branch)


def _record(name: str, entity: str, row: Row) -> Row:
    if name != "Link":
        return {"type": name, "data": row}
    return {"edge": name, "from": row["src"], "to": row["dst"], "data": {"id": entity, "w": row["w"]}}


@contextmanager
def few_rows_at_once() -> Iterator[None]:
    """Tasks of two rows and buckets of two, whatever the size of a change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "ROWS_PER_PART", 2)
        patch.setattr(comparison, "ROWS_PER_BUCKET", 2)
        patch.setattr(comparison, "ROWS_READ", 4)
        patch.setattr(comparison, "LARGE_CHANGE", -1)
        yield


def hubs() -> State:
    return {("Hub", name): {"k": name} for name in HUBS}


def image(change: Change, side: Literal["before", "after"]) -> Row | None:
    """The row of the model that an image of a change shows."""
    found = change.before if side == "before" else change.after
    if found is None:
        return None
    ends = {} if found.source is None else {"src": found.source, "dst": found.target}
    return {**found.properties, **ends}


def text(row: Row | None) -> str:
    """A row so that texts are equal exactly when rows are, zeros with their signs."""
    return json.dumps(row, sort_keys=True)


def texts(state: State) -> dict[tuple[str, str], str]:
    return {key: text(row) for key, row in state.items()}


def apply_changes(state: State, changes: Iterable[Change]) -> State:
    """The rows after changes; fails when a change does not fit the rows it is applied to."""
    found = dict(state)
    for change in changes:
        key = (change.type_name, change.id)
        before, after = image(change, "before"), image(change, "after")
        assert text(found.pop(key, None)) == text(before), f"{change} is about another row"
        assert (change.op is ChangeOperation.INSERT) == (before is None)
        assert (change.op is ChangeOperation.DELETE) == (after is None)
        if before is not None and after is not None:
            names = {name for name in before if text(before[name]) != text(after[name])}
            assert set(change.changed) == names, change
            assert names, f"{change} changes nothing"
        if after is not None:
            found[key] = after
    return found


def order(change: Change) -> tuple[bool, str, str]:
    return change.kind == "edge", change.type_name, change.id
