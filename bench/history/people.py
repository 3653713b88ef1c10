"""People who can be changed in known places, and the rounds in which they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bench.made import make_once, write_tables
from bench.measure import OWN
from bench.worker import Peer, Worker, copy, own, worker

SCHEMA = "node Person { number: I64 @key  name: String  city: String  age: I64 }"
DOLTLITE = "doltlite"
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
            "name": _name_all("Person ", numbers),
            "city": _name_all("City ", numbers % _CITIES),
            "age": ages,
        }
    )


def _name_all(what: str, numbers: NDArray[np.int64]) -> pa.Array:
    return pc.binary_join_element_wise(what, pc.cast(pa.array(numbers), pa.string()), "")


def group(count: int) -> str:
    """What the files and databases of so many people are kept under."""
    return f"people-{count}"


def data(count: int) -> Path:
    """A file of so many people, made by an earlier run or now."""
    numbers = np.arange(count)
    return make_once(
        f"{group(count)}/data",
        lambda folder: write_tables(folder, {"Person": people(numbers, numbers % _AGES)}),
    )


def peers(commits: int, *, apart: bool) -> dict[str, Peer]:
    """All that keep a history, whether they are installed or not."""
    other = Peer(DOLTLITE, "bench.history.doltlite_peer", DOLTLITE)
    return {**own("bench.history.ours", commits=commits, apart=apart), DOLTLITE: other}


def open_peers(
    peers: dict[str, Peer], sizes: Sequence[int], folder: Path, stack: ExitStack
) -> dict[int, dict[str, Worker]]:
    """Every database that is installed, each with a copy of its own of so many people, by size and name.

    Of all sizes but the first there is only the fresh one of ours: they show what the size does.
    """
    found: dict[int, dict[str, Worker]] = {}
    for size in sizes:
        (folder / str(size)).mkdir()
        for name, peer in peers.items():
            if peer.installed and (size == sizes[0] or name == OWN[0]):
                place = folder / str(size) / name
                copy(peer.database(group(size), data(size)), place)
                found.setdefault(size, {})[name] = stack.enter_context(worker(peer, place))
    return found
