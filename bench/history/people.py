"""People who can be changed in known places, and the rounds in which they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bench.made import made, write_tables
from bench.read_peers.worker import Peer

SCHEMA = "node Person { number: I64 @key  name: String  city: String  age: I64 }"
PEERS = (
    Peer("omnigraph", "bench.history.ours", "omnigraph"),
    Peer("doltlite", "bench.history.doltlite_peer", "doltlite"),
)
_CITIES = 100
_AGES = 90


@dataclass(frozen=True, slots=True)
class Edit:
    """So many people, evenly spread over the table, who all get the same age."""

    people: int
    changed: int
    first: int
    age: int

    @property
    def step(self) -> int:
        """From one of them to the next."""
        return self.people // self.changed

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Who they are."""
        return self.first % self.step + np.arange(self.changed) * self.step

    def rows(self) -> pa.Table:
        """They, as they are afterwards."""
        return people(self.numbers, np.full(self.changed, self.age))


def edits(people: int, changed: int, turn: int) -> tuple[Edit, Edit]:
    """What a branch and its target change in one turn: never the same people."""
    if people < 2 * changed:
        raise ValueError(f"two disjoint sides of {changed} do not fit into {people} people")
    first = 2 * (turn % (people // changed // 2))
    return Edit(people, changed, first, 1000 + 2 * turn), Edit(people, changed, first + 1, 1001 + 2 * turn)


def people(numbers: NDArray[np.int64], ages: NDArray[np.int64]) -> pa.Table:
    """The people with these numbers."""
    return pa.table(
        {
            "number": numbers,
            "name": _named("Person ", numbers),
            "city": _named("City ", numbers % _CITIES),
            "age": ages,
        }
    )


def _named(what: str, numbers: NDArray[np.int64]) -> pa.Array:
    return pc.binary_join_element_wise(what, pc.cast(pa.array(numbers), pa.string()), "")


def group(count: int) -> str:
    """What the files and databases of so many people are kept under."""
    return f"people-{count}"


def data(count: int) -> Path:
    """A file of so many people, made by an earlier run or now."""
    numbers = np.arange(count)
    return made(
        f"{group(count)}/data",
        lambda folder: write_tables(folder, {"Person": people(numbers, numbers % _AGES)}),
    )
