"""The cases of reads on Spark: the rows that this process finds, of the same types.

All run as what they are, queries of a few rows. As if there were many, with jobs that move rows, `make test`
runs some that have every operator between them, and a few with more partitions than rows; `make fuzz` runs
all, and `make torture` all with more partitions than rows.
"""

from __future__ import annotations

import os

import pytest

from omnigraph.graph import Graph
from omnigraph.pipeline import fan_out
from omnigraph.pipeline.query import join_strategy
from omnigraph.query.result import Result
from tests.lang.casefile import Case
from tests.pipeline.conftest import PARTITIONS
from tests.query.conftest import Shelf
from tests.query.test_cases import ANSWERED, data_of, expect, params_of, query_of, schema_of

SAMPLE = (
    "E2 an edge binding keeps parallel edges apart, ties by edge id",
    "a self-loop counts at the hop it is met",
    "between bound ends an edge binding gives a row for each edge",
    "E9 and two are none",
    "columns of different widths compare exactly",
    "a variable of a not block means nothing outside",
    "optional inside optional",
    "E30 the name of an aggregate of nothing",
    "distinct comes before offset and limit",
    "aggregates of the nearest",
    "a variable found by a traversal can be ranked",
    "rrf with an offset",
    "a text that does not match is false, no text is null",
    "V1 a large integer as text",
)
SCATTERED = (
    "E2 an edge binding keeps parallel edges apart, ties by edge id",
    "optional inside optional",
    "distinct comes before offset and limit",
)
"""Some with joins, groups and an order."""
ALL = os.environ.get("OMNIGRAPH_FUZZ") or PARTITIONS
MOVED = [case for case in ANSWERED if ALL or case.name in SAMPLE]


def test_the_sample_names_cases_that_exist() -> None:
    assert {*SAMPLE, *SCATTERED} <= {case.name for case in ANSWERED}


@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize("case", ANSWERED, ids=str)
def test_a_read_on_spark_gives_the_rows_of_its_case(case: Case, shelf: Shelf) -> None:
    with shelf.reading(schema_of(case), data_of(case), "warm") as graph:
        compare(graph, case)


@pytest.mark.fuzz
@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize("case", MOVED, ids=str)
def test_a_read_of_many_rows_gives_them_too(
    case: Case, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_strategy, "FEW_ROWS", -1)
    monkeypatch.setattr(fan_out, "MANY_VALUES", 0)
    with shelf.reading(schema_of(case), data_of(case), "warm") as graph:
        compare(graph, case)


@pytest.mark.usefixtures("many_partitions")
@pytest.mark.parametrize("case", [case for case in ANSWERED if case.name in SCATTERED], ids=str)
def test_more_partitions_than_rows_give_them_too(
    case: Case, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    test_a_read_of_many_rows_gives_them_too(case, shelf, monkeypatch)


def compare(graph: Graph, case: Case) -> None:
    """What Spark finds with what this process finds, and with what the case says."""
    local = graph.query(query_of(case), params_of(case))
    found = graph.query(query_of(case), params_of(case), engine="spark")
    assert found.to_arrow().schema == local.to_arrow().schema
    assert found.envelope().keys() == local.envelope().keys()
    assert found.about() == local.about()
    assert in_order(found, case) == in_order(local, case)
    expect(case, list(found.columns), found.rows())


def in_order(found: Result, case: Case) -> list[str]:
    """The rows, in any order unless the case settles it."""
    rows = [repr(row) for row in found.tuples()]
    return rows if case.section("ordered rows") is not None else sorted(rows)
