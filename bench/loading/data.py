"""The files that are loaded: persons and whom they follow, as Parquet and as NDJSON, and very many edges."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bench.made import make_once, write_lines, write_tables

Numbers = NDArray[np.int64]

SEED = 43
SCHEMA = """
node Person {
  number: I64 @key
  name: String
  age: I64
  score: F64
  active: Bool
}
edge Follows: Person -> Person
"""
_AT_ONCE = 1_000_000
_FILES = 8
_GROUP_ROWS = 250_000


def parquet(persons: int, follows: int) -> Path:
    """A folder with a file of persons and one of edges, which refer to them by number."""

    def make(folder: Path) -> None:
        source, target = _pairs(np.random.default_rng(SEED), persons, follows)
        edges = pa.table({"from": source, "to": target})
        write_tables(folder, {"Person": _persons(np.arange(persons)), "Follows": edges})

    return make_once(f"loads-{SEED}-{persons}-{follows}/parquet", make)


def ready(folder: Path) -> dict[str, pa.Table]:
    """The same as Arrow in the columns that a graph stores, with nothing left to do but to write it."""
    persons = pq.read_table(folder / "Person.parquet")
    edges = pq.read_table(folder / "Follows.parquet")
    return {
        "Person": persons.add_column(0, "id", pc.cast(persons["number"], pa.string())),
        "Follows": pa.table(
            {
                "id": _names("e", np.arange(len(edges))),
                "src": pc.cast(edges["from"], pa.string()),
                "dst": pc.cast(edges["to"], pa.string()),
            }
        ),
    }


def ndjson(persons: int, follows: int) -> Path:
    """One file with a line for each person and each edge."""

    def make(path: Path) -> None:
        random = np.random.default_rng(SEED)
        for begin in range(0, persons, _AT_ONCE):
            rows = _persons(np.arange(begin, min(begin + _AT_ONCE, persons)))
            write_lines(path, _person_parts(rows))
        for begin in range(0, follows, _AT_ONCE):
            source, target = _pairs(random, persons, min(_AT_ONCE, follows - begin))
            ends = [pa.array(source), pa.array(target)]
            write_lines(path, ['{"edge":"Follows","from":"', ends[0], '","to":"', ends[1], '"}'])

    return make_once(f"loads-{SEED}-{persons}-{follows}/records.jsonl", make)


def edges(persons: int, follows: int) -> Path:
    """A folder `Follows` of several files: edges with ids of their own, between persons by id."""

    def make(folder: Path) -> None:
        folder.mkdir()
        random = np.random.default_rng(SEED)
        bounds = [follows * part // _FILES for part in range(_FILES + 1)]
        for number, (begin, end) in enumerate(pairwise(bounds)):
            source, target = _pairs(random, persons, end - begin)
            table = pa.table(
                {
                    "id": _names("edge-", np.arange(begin, end)),
                    "from": pc.cast(pa.array(source), pa.string()),
                    "to": pc.cast(pa.array(target), pa.string()),
                }
            )
            pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=_GROUP_ROWS)

    return make_once(f"bulk-{SEED}-{persons}-{follows}/Follows", make)


def persons(count: int) -> Path:
    """A folder with one file of persons."""
    return make_once(
        f"bulk-{SEED}-persons-{count}",
        lambda folder: write_tables(folder, {"Person": _persons(np.arange(count))}),
    )


def _persons(numbers: Numbers) -> pa.Table:
    return pa.table(
        {
            "number": numbers,
            "name": _names("Person ", numbers),
            "age": numbers % 90,
            "score": (numbers % 1000) / 8,
            "active": numbers % 3 == 0,
        }
    )


def _pairs(random: np.random.Generator, persons: int, count: int) -> tuple[Numbers, Numbers]:
    source = random.integers(persons, size=count)
    return source, (source + random.integers(1, persons, size=count)) % persons


def _names(what: str, numbers: Numbers) -> pa.Array:
    return pc.binary_join_element_wise(what, pc.cast(pa.array(numbers), pa.string()), "")


def _person_parts(rows: pa.Table) -> list[str | pa.Array | pa.ChunkedArray]:
    return [
        '{"type":"Person","data":{"number":',
        rows["number"],
        ',"name":"',
        rows["name"],
        '","age":',
        rows["age"],
        ',"score":',
        rows["score"],
        ',"active":',
        rows["active"],
        "}}",
    ]
