"""Values of every kind come over as they are, and equal ones are agreed on."""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.graph.open_graph import AtBranch
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.graph import Graph
from tests.engine.merge.family import PERSON, PET, kinds, person, pet, put, put_rows, rows, value


def blob(data: bytes) -> str:
    return f"base64:{base64.b64encode(data).decode()}"


VALUES: list[tuple[str, Any, Any]] = [
    ("photo", blob(b"\x00one"), blob(b"two")),
    ("photo", blob(b""), None),
    ("photo", blob(b"x" * 100_000), blob(b"x" * 99_999 + b"y")),
    ("vec", [1.0, 2.0], [1.0, 3.0]),
    ("vec", [0.0, 0.0], None),
    ("tags", ["a", "b"], ["ab"]),
    ("tags", [], None),
    ("tags", ["a"], ["a", "a"]),
    ("weight", 0.0, -0.0),
    ("weight", 0.0, None),
]


@pytest.mark.parametrize(("name", "one", "other"), VALUES)
@pytest.mark.parametrize("into", ["main", "side"])
def test_a_value_comes_over_as_it_is(graph: Graph, name: str, one: Any, other: Any, into: str) -> None:
    graph.branches.create("side")
    put(graph, pet("cat", **{name: one}), pet("new", **{name: other}), branch="work")
    put(graph, person("dan"), branch=into)
    graph.merge("work", into)
    assert rows(graph, PET, into) == rows(graph, PET, "work")


@pytest.mark.parametrize(("name", "one", "other"), VALUES)
def test_values_that_differ_contradict_and_equal_ones_agree(
    graph: Graph, name: str, one: Any, other: Any
) -> None:
    put(graph, pet("cat", **{name: one}, weight=7.0) if name != "weight" else pet("cat", weight=7.0))
    graph.branches.create("later")
    put(graph, pet("cat", **{name: one}))
    put(graph, pet("cat", **{name: other}), branch="later")
    assert kinds(graph, "later") == ["divergent_update"]
    put(graph, pet("cat", **{name: other}))
    assert kinds(graph, "later") == []
    assert graph.merge("later").changes == {}


def nan(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def weighing(graph: Graph, number: float, branch: str) -> None:
    opened = graph._opened
    table = open_table(opened, opened.snapshot(AtBranch(branch)), PET)
    found = table.scan(["id", "name", "tags", "vec", "weight"])
    weights = pa.array(np.array([number] * found.num_rows))
    at = found.schema.get_field_index("weight")
    photo = pa.nulls(found.num_rows, table.schema.field("photo").type)
    changed = found.set_column(at, found.schema.field(at), weights)
    put_rows(graph, PET, changed.append_column(table.schema.field("photo"), photo), branch)


def test_not_a_number_is_compared_by_its_bits(graph: Graph) -> None:
    quiet, other = nan(0x7FF8000000000000), nan(0x7FF8000000000001)
    weighing(graph, quiet, "work")
    weighing(graph, quiet, "main")
    assert kinds(graph, "work") == []
    weighing(graph, other, "work")
    assert kinds(graph, "work") == ["divergent_update"]
    graph.merge("work", strategy="theirs")
    found = value(graph, PET, "cat", "weight")
    assert math.isnan(found)
    assert struct.pack("<d", found) == struct.pack("<d", other)


def test_many_blobs_come_over_in_portions(graph: Graph) -> None:
    put(
        graph,
        *(pet(f"p{number}", photo=blob(bytes([number % 251]) * 10)) for number in range(600)),
        branch="work",
    )
    put(graph, person("dan"))
    assert graph.merge("work").changes[PET].inserted == 600
    assert rows(graph, PET) == rows(graph, PET, "work")


def test_many_entities_come_over(graph: Graph) -> None:
    put(graph, *(person(f"m{number}", age=1) for number in range(3000)))
    graph.branches.create("bulk")
    put(
        graph,
        *(person(f"m{number}", age=2) for number in range(2500)),
        *map(person, ["x", "y"]),
        branch="bulk",
    )
    put(graph, *(person(f"m{number}", age=2 if number < 2000 else 3) for number in range(1500, 2600)))
    preview = graph.merge("bulk", dry_run=True)
    assert len(preview.conflicts) == 500
    assert preview.changes[PERSON].to_json() == {"inserted": 2, "updated": 1500, "deleted": 0}
    done = graph.merge("bulk", strategy="theirs")
    assert (done.resolved, done.changes[PERSON].updated) == (500, 2000)
    ages = graph.snapshot().rows("Person", columns=["id", "age"]).to_pydict()
    found = dict(zip(ages["id"], ages["age"], strict=True))
    assert [found[f"m{number}"] for number in (0, 1600, 2400, 2550, 2999)] == [2, 2, 2, 3, 1]
