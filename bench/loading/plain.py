"""A script such as one writes by hand: one process, Arrow and Lance, and nothing is checked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import lance
import msgspec
import pyarrow as pa

from bench.loading.data import ready

VERSION = lance.__version__
_BLOCK = 16 * 2**20
_PERSON = pa.struct(
    [
        ("number", pa.int64()),
        ("name", pa.string()),
        ("age", pa.int64()),
        ("score", pa.float64()),
        ("active", pa.bool_()),
    ]
)
_PERSONS = pa.schema([pa.field("id", pa.string()), *_PERSON])
_EDGES = pa.schema([("src", pa.string()), ("dst", pa.string())])


class Engine:
    """Writes tables, some for each load."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._numbers = count()
        self._ready: dict[str, pa.Table] = {}

    def prepare(self, folder: Path) -> None:
        """Have everything in memory that `write` writes."""
        self._ready = ready(folder)

    def write(self) -> tuple[float, int]:
        """Write tables that are ready; the seconds, and how many rows they have."""
        begun = time.perf_counter()
        for name, table in self._ready.items():
            lance.write_dataset(table, self._new(name), enable_stable_row_ids=True)
        return time.perf_counter() - begun, sum(map(len, self._ready.values()))

    def load(self, records: Path) -> tuple[float, int]:
        """Lines of JSON into one table for each type; the seconds, and how many rows there are."""
        begun = time.perf_counter()
        tables: dict[str, Any] = {}
        rows = 0
        for lines in _lines(records):
            found = msgspec.json.decode(b"[" + lines.rstrip(b"\n").replace(b"\n", b",") + b"]")
            persons = [one["data"] for one in found if "type" in one]
            edges = [one for one in found if "edge" in one]
            for name, block in (("Person", _persons(persons)), ("Follows", _edges(edges))):
                if block.num_rows:
                    tables[name] = self._add(tables.get(name), name, block)
            rows += len(found)
        return time.perf_counter() - begun, rows

    def _add(self, table: Any, name: str, block: pa.Table) -> Any:
        if table is None:
            return lance.write_dataset(block, self._new(name), enable_stable_row_ids=True)
        return lance.write_dataset(block, table, mode="append")

    def _new(self, name: str) -> str:
        return str(self._place / f"{name}-{next(self._numbers)}")


def _persons(found: list[Any]) -> pa.Table:
    columns = pa.array(found, _PERSON).flatten()
    return pa.table([columns[0].cast(pa.string()), *columns], schema=_PERSONS)


def _edges(found: list[Any]) -> pa.Table:
    ends = [pa.array([one[end] for one in found], pa.string()) for end in ("from", "to")]
    return pa.table(ends, schema=_EDGES)


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time."""
    rest = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            whole, newline, tail = block.rpartition(b"\n")
            if newline:
                yield rest + whole
                rest = tail
            else:
                rest += block
    if rest:
        yield rest
