"""SQL over the types of a graph, and types as datasets of Arrow."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.graph import Graph
from omnigraph.query import sql as sql_module
from omnigraph.query.sql import name_tables
from omnigraph.storage.tables import Table

SCHEMA = """
node Person {
  name: String @key  age: I32?  born: Date?  seen: DateTime?  score: F64?  tags: [String]?
  large: U64?  place: Vector(2)?  active: Bool?  photo: Blob?
}
node Order { number: I64 @key }
edge Knows: Person -> Person { since: I32? }
"""
SEEN = datetime(2026, 1, 1, 12, 0, 0, 123_000, UTC)
FOREVER = "select count(*) from range(1000000000000) where range % 7 = 8"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with og.init(tmp_path_factory.mktemp("sql") / "g", schema=SCHEMA) as made:
        with made.write() as tx:
            tx.insert(
                "Person",
                name="Ada",
                age=36,
                born="1990-12-10",
                seen=SEEN,
                score=1.5,
                tags=["x", "y"],
                large=2**64 - 1,
                place=[1.0, 2.0],
                active=True,
            )
            tx.insert("Person", name="Bo", age=21, large=5, active=False)
            tx.insert("Person", name="Cy")
            tx.insert("Order", number=7)
            tx.insert_edge("Knows", "Ada", "Bo", since=2020)
            tx.insert_edge("Knows", "Bo", "Cy", since=2021)
        yield made


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str | None]]:
    """The columns and conditions that storage was asked for."""
    seen: list[tuple[list[str], str | None]] = []
    read = Table.batches

    def noted(self: Table, columns: Sequence[str] | None = None, **how: Any) -> Iterator[pa.RecordBatch]:
        where = how.get("where")
        seen.append((list(columns or ()), None if where is None else str(where)))
        return read(self, columns, **how)

    monkeypatch.setattr(Table, "batches", noted)
    return seen


def test_nodes_and_edges_are_tables_that_join(graph: Graph) -> None:
    found = graph.sql(
        "select p.name, q.name as other, since from Knows k "
        "join Person p on p.id = k.src join Person q on q.id = k.dst order by 1"
    )
    assert found.tuples() == [("Ada", "Bo", 2020), ("Bo", "Cy", 2021)]
    assert found.branch == "main"
    assert found.graph_commit_id == graph.snapshot().id


def test_names_of_tables_take_any_case_and_reserved_words_quotes(graph: Graph) -> None:
    assert graph.sql("select count(*) from pErSoN").scalar() == 3
    assert graph.sql('select number from "Order"').scalar() == 7


def test_every_type_of_a_property_comes_back_as_it_is_stored(graph: Graph) -> None:
    stored = graph.snapshot().rows("Person").sort_by("name")
    found = graph.sql("select * from Person order by name").to_arrow()
    assert "photo" not in found.column_names
    assert found.column_names == stored.column_names
    for name in stored.column_names:
        assert found.column(name).to_pylist() == stored.column(name).to_pylist(), name
        assert found.column(name).type == stored.column(name).type or name == "tags"


def test_types_that_a_graph_lacks_are_cast(graph: Graph) -> None:
    row = graph.sql(
        "select sum(age) as total, 1.5 as exact, 1::tinyint as small, {'a': 1} as struct, "
        "interval 2 day as span, "
        "null as nothing, [1::smallint] as list, seen::timestamp as at, [[1]] as nested from Person "
        "where name = 'Ada' group by seen"
    ).one()
    assert row == {
        "total": 36,
        "exact": 1.5,
        "small": 1,
        "struct": "{'a': 1}",
        "span": "2 days",
        "nothing": None,
        "list": [1],
        "at": "2026-01-01T12:00:00.123Z",
        "nested": "[[1]]",
    }


def test_the_order_and_equal_names_of_columns_survive_casts(graph: Graph) -> None:
    found = graph.sql("select sum(age) as a, name as a from Person group by name order by name desc")
    assert found.columns == ["a", "a"]
    assert found.tuples() == [(None, "Cy"), (21, "Bo"), (36, "Ada")]


def test_a_sum_that_fits_no_number_is_refused(graph: Graph) -> None:
    with pytest.raises(errors.SqlError, match="out of range") as refused:
        graph.sql("select sum(large) from Person")
    assert "DOUBLE" in str(refused.value.remedy)
    assert graph.sql("select sum(large)::double from Person").scalar() == 2.0**64 + 4


def test_parameters_are_values_by_name_or_in_order(graph: Graph) -> None:
    assert graph.sql("select name from Person where age > $least", {"least": 30}).scalar() == "Ada"
    assert graph.sql("select name from Person where age < ? and name <> ?", [30, "x"]).scalar() == "Bo"
    assert len(graph.sql("select 1 from Person where name = $n", {"n": "' or 1=1 --"})) == 0
    with pytest.raises(errors.BadRequest, match="mapping or a list"):
        graph.sql("select ?", "x")


# --- pushdown ------------------------------------------------------------------------------------


def test_columns_that_are_not_asked_for_are_not_read(
    graph: Graph, scans: list[tuple[list[str], str | None]]
) -> None:
    assert len(graph.sql("select name from Person")) == 3
    assert scans == [(["name"], None)]


def test_conditions_are_evaluated_by_storage(graph: Graph, scans: list[tuple[list[str], str | None]]) -> None:
    assert graph.sql("select name from Person where age > 30 and active is not null").tuples() == [("Ada",)]
    [(columns, condition)] = scans
    assert columns == ["name"]
    assert condition is not None
    assert "age > 30" in condition


def test_a_condition_that_storage_has_no_form_for_reads_its_column(
    graph: Graph, scans: list[tuple[list[str], str | None]]
) -> None:
    assert graph.sql("select name from Person where large > 5").tuples() == [("Ada",)]
    assert scans == [(["name", "large"], None)]


CONDITIONS = [
    "age > 30",
    "age in (21, 36)",
    "age is null",
    "age = 21 or age is null",
    "name >= 'B' and name < 'Cz'",
    "name like 'A%'",
    "name in ('Ada', 'Cy')",
    "not (name = 'Ada')",
    "born = date '1990-12-10'",
    "born <> date '1990-12-10'",
    "seen > timestamptz '2026-01-01 12:00:00.122+00'",
    "seen > timestamptz '2026-01-01 12:00:00.123+00'",
    "seen < timestamp '2030-01-01'",
    "score > 1",
    "large = 5",
    "large > 5 and age > 1",
    "active",
    "not active",
    "active = false",
    "place is not null and tags is not null",
    "'x' in tags",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pushed_conditions_keep_the_rows_that_duckdb_keeps(graph: Graph, condition: str) -> None:
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.register("Person", graph.snapshot().rows("Person"))
    statement = f"select name from Person where {condition} order by name"
    assert graph.sql(statement).tuples() == connection.execute(statement).fetchall()
    connection.close()


# --- moments -------------------------------------------------------------------------------------


def test_any_moment_can_be_read(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", schema="node P { k: String @key }") as made:
        with made.write() as tx:
            tx.insert("P", k="a")
        first = made.snapshot()
        made.branches.create("side")
        with made.write("side") as tx:
            tx.insert("P", k="b")
        count = "select count(*) from P"
        assert made.sql(count).scalar() == 1
        assert made.sql(count, branch="side").scalar() == 2
        with made.write() as tx:
            tx.delete("P", ("k", "=", "a"))
        assert made.sql(count).scalar() == 0
        assert first.sql(count).scalar() == 1
        found = made.sql(count, commit=first.id)
        assert (found.scalar(), found.snapshot) == (1, first.id)
        assert made.sql(count, version=first.version).scalar() == 1
        assert made.arrow("P", commit=first.id).count_rows() == 1
        assert first.arrow("P").to_table().column("k").to_pylist() == ["a"]
        rows = made.arrow("P", branch="side")
    with pytest.raises(errors.GraphClosed):
        rows.to_table()
    with pytest.raises(errors.GraphClosed):
        made.sql(count)


def test_types_that_differ_in_case_alone_have_their_keys_as_names() -> None:
    keys = dict.fromkeys(("node:Team", "edge:TEAM", "edge:Knows"))
    assert name_tables(keys) == {"node:Team": "node:Team", "edge:TEAM": "edge:TEAM", "Knows": "edge:Knows"}


def test_catalogs_of_sql_list_all_types(graph: Graph) -> None:
    listed = "select table_name from information_schema.tables order by 1"
    assert graph.sql(listed).tuples() == [("Knows",), ("Order",), ("Person",)]
    assert graph.sql("show tables").tuples() == [("Knows",), ("Order",), ("Person",)]
    assert ("src", "VARCHAR") in [row[:2] for row in graph.sql("describe Knows").tuples()]


# --- nothing but reading the graph ---------------------------------------------------------------

REFUSED = {
    "select * from read_csv('/etc/hosts')": "disabled by configuration",
    "select * from '/etc/hosts'": "does not exist",
    "select * from read_text('/etc/hosts')": "disabled by configuration",
    "select * from glob('/etc/*')": "disabled by configuration",
    "select * from read_parquet('https://localhost/x.parquet')": "Error",
    "select * from secret_variable": "does not exist",
    "select getenv('HOME')": "does not exist",
    "copy Person to 'x.csv'": "only SELECT",
    "attach 'x.db'": "only SELECT",
    "install httpfs": "only SELECT",
    "load httpfs": "only SELECT",
    "set memory_limit = '1TB'": "only SELECT",
    "set enable_external_access = true": "only SELECT",
    "create table t as select 1": "only SELECT",
    "drop view Person": "only SELECT",
    "insert into Person values (1)": "only SELECT",
    "select 1; drop view Person": "expected one statement, got 2",
    "": "expected one statement, got 0",
    "selec 1": "LINE 1: selec 1",
    "select nme from Person": "name",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_statements_read_the_graph_and_nothing_else(graph: Graph, statement: str) -> None:
    secret_variable = pa.table({"a": [1]})
    with pytest.raises(errors.SqlError, match=REFUSED[statement]):
        graph.sql(statement)
    assert secret_variable.num_rows == 1


def test_the_configuration_is_locked(graph: Graph) -> None:
    setting = "select value from duckdb_settings() where name = $name"
    for name, value in {
        "lock_configuration": "true",
        "enable_external_access": "false",
        "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false",
        "python_enable_replacements": "false",
    }.items():
        assert graph.sql(setting, {"name": name}).scalar() == value


def test_memory_is_bounded(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_module, "machine_memory", lambda: 4 * (64 << 20))
    with pytest.raises(errors.SqlError, match="more than the 67 MB of memory"):
        graph.sql("select len(list(range)) from range(100000000)")


def test_rows_are_bounded(graph: Graph) -> None:
    with pytest.raises(errors.ResourceLimitExceeded) as refused:
        graph.sql("select name from Person", max_rows=2)
    assert refused.value.limit == 2


def test_a_timeout_and_an_event_stop_a_statement(graph: Graph) -> None:
    with pytest.raises(errors.QueryCancelled, match=r"longer than 0\.1 s"):
        graph.sql(FOREVER, timeout=0.1)
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(errors.QueryCancelled, match="was cancelled"):
        graph.sql(FOREVER, cancel=cancel)


def test_ctrl_c_stops_a_statement(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    read = sql_module._read_all

    def interrupted(*arguments: Any) -> Any:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return read(*arguments)

    monkeypatch.setattr(sql_module, "_read_all", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            graph.sql(FOREVER)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_missing_package_is_one_typed_error(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(errors.MissingExtra) as missing:
        graph.sql("select 1")
    assert missing.value.remedy == "install it: pip install 'omnigraph[sql]'"


# --- Arrow ---------------------------------------------------------------------------------------


def test_a_type_is_a_dataset_of_arrow(graph: Graph, scans: list[tuple[list[str], str | None]]) -> None:
    people = graph.arrow("Person")
    assert isinstance(people, ds.Dataset)
    assert "photo" not in people.schema.names
    assert people.to_table(columns=["name"], filter=pc.field("age") > 30).to_pylist() == [{"name": "Ada"}]
    assert scans == [(["name"], "(age > 30)")]
    assert people.count_rows() == 3
    assert people.count_rows(pc.field("large") == pa.scalar(5, pa.uint64())) == 1
    assert people.head(2).num_rows == 2
    computed = people.to_table(columns={"older": pc.field("age") + 1}, filter=pc.field("name") == "Bo")
    assert computed.to_pylist() == [{"older": 22}]
    assert graph.arrow("Knows").to_table(["src", "dst"]).num_rows == 2


def test_polars_and_duckdb_push_down_into_it(graph: Graph, scans: list[tuple[list[str], str | None]]) -> None:
    people = graph.arrow("Person")
    lazy = polars.scan_pyarrow_dataset(people).filter(polars.col("age") > 30).select("name")
    assert lazy.collect().rows() == [("Ada",)]
    assert [columns for columns, _ in scans] == [["name"]] or "tags" not in scans[0][0]
    with duckdb.connect() as connection:
        connection.register("people", people)
        scans.clear()
        assert connection.sql("select name from people where age < 30").fetchall() == [("Bo",)]
    assert scans == [(["name"], "(age < 30)")]


def test_datasets_refuse_what_they_do_not_offer(graph: Graph) -> None:
    people = graph.arrow("Person")
    offered: list[Callable[[], object]] = [
        people.get_fragments,
        lambda: people.filter(pc.field("age") > 1),
        lambda: people.sort_by("age"),
        lambda: people.join(people, "id"),
        lambda: people.join_asof(people, "id", "id", 1),
        lambda: people.replace_schema(people.schema),
    ]
    for refused in offered:
        with pytest.raises(errors.BadRequest, match="is not offered"):
            refused()
    with pytest.raises(errors.BadRequest, match="has no column 'nme'"):
        people.to_table(["nme"])
    with pytest.raises(errors.BadRequest, match="no type 'Persn'"):
        graph.arrow("Persn")
    assert repr(people).startswith("<Person of snapshot")
    assert str(people.partition_expression) == "true"
