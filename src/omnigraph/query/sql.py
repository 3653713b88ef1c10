"""SQL over the types of a snapshot, run by DuckDB: read-only, and nothing but the rows of the graph.

DuckDB runs in memory of this process, without access to files, extensions or variables of Python, and with
a configuration that a statement cannot change. It gets each type as a dataset of Arrow, so that columns and
conditions are pushed down to storage.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import copy_context
from importlib import import_module
from typing import Any

import pyarrow as pa

from omnigraph import ctrl_c
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.open_graph import AtBranch
from omnigraph.errors import BadRequest, MissingExtra, ResourceLimitExceeded, SqlError
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import arrow_type
from omnigraph.query.arrow_tables import EntityDataset
from omnigraph.query.interrupt import THREAD_NAME
from omnigraph.query.query_service import QueryService
from omnigraph.query.reader import PinnedTarget
from omnigraph.query.request import Limits, Request
from omnigraph.query.result import Result
from omnigraph.storage.cache_budget import machine_memory

SqlParams = Mapping[str, object] | Sequence[object]
"""Values for `$name`, by their names, or for `?`, in their order."""

_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    # Beyond the memory it may take, a statement fails: nothing is written to disk.
    "temp_directory": "",
}
_SHARE = 4
"""A statement may take 1 / _SHARE of the machine's memory."""
_LEAST_MEMORY = 64 << 20
_POLL_SECONDS = 0.02
_BATCH_ROWS = 65_536
_CATALOGS = ("information_schema", "duckdb_", "pg_", "sqlite_")
"""Parts of the names of relations that list all tables."""

_TYPES = {
    "boolean": Scalar.BOOL,
    "integer": Scalar.I32,
    "bigint": Scalar.I64,
    "uinteger": Scalar.U32,
    "ubigint": Scalar.U64,
    "float": Scalar.F32,
    "double": Scalar.F64,
    "varchar": Scalar.STRING,
    "date": Scalar.DATE,
    "timestamp with time zone": Scalar.DATETIME,
    "timestamptz": Scalar.DATETIME,
}
_CASTS = {
    "tinyint": "integer",
    "smallint": "integer",
    "utinyint": "uinteger",
    "usmallint": "uinteger",
    "hugeint": "bigint",
    "uhugeint": "ubigint",
    "bignum": "bigint",
    "decimal": "double",
    "timestamp": "timestamptz",
    "timestamp_s": "timestamptz",
    "timestamp_ms": "timestamptz",
    "timestamp_ns": "timestamptz",
}
"""Types that a result has no column for, and those they are cast to; all others become texts."""


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """A statement as the caller passed it."""

    text: str
    params: SqlParams | None
    limits: Limits


def run_sql(queries: QueryService, pinned: PinnedTarget, statement: SqlStatement) -> Result:
    """Return the rows of a statement; the calling thread can stop waiting for it at any moment."""
    duckdb = _import_duckdb()
    memory = max(machine_memory() // _SHARE, _LEAST_MEMORY)
    with closing(_connect(duckdb, memory)) as connection, _typed_errors(duckdb, memory):
        _require_select(duckdb, connection, statement.text)
        datasets = _register(connection, queries, pinned, statement.text)
        try:
            table, types = _run_interruptible(connection, statement)
        except duckdb.Error:
            for dataset in datasets:
                if dataset.failure is not None:
                    raise dataset.failure from None
            raise
    snapshot, live = pinned.snapshot, isinstance(pinned.target, AtBranch)
    return Result(
        table,
        types,
        "sql",
        snapshot.branch if live else None,
        None if live else snapshot.id,
        snapshot.commit.id if snapshot.commit else None,
    )


def _import_duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ModuleNotFoundError as missing:
        if missing.name != "duckdb":
            raise
        raise MissingExtra("SQL", package="duckdb", extra="sql") from missing


def _connect(duckdb: Any, memory: int) -> Any:
    connection = duckdb.connect(":memory:", config={**_CONFIG, "memory_limit": f"{memory // 1_000_000}MB"})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection


@contextmanager
def _typed_errors(duckdb: Any, memory: int) -> Iterator[None]:
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise SqlError(
            f"the statement needs more than the {memory // 1_000_000} MB of memory it may take",
            remedy="read fewer columns or rows, or aggregate in parts",
        ) from error
    except duckdb.PermissionException as error:
        raise SqlError(
            str(error).partition("\n")[0], remedy="SQL reads the types of the graph and nothing else"
        ) from error
    except duckdb.ConversionException as error:
        raise SqlError(
            str(error).partition("\n")[0],
            remedy="cast the value to a type that has room for it, such as DOUBLE",
        ) from error
    except duckdb.Error as error:
        raise SqlError(str(error)) from error


def _require_select(duckdb: Any, connection: Any, text: str) -> None:
    found = connection.extract_statements(text)
    if len(found) != 1:
        raise SqlError(f"expected one statement, got {len(found)}", remedy="send them one by one")
    if found[0].type != duckdb.StatementType.SELECT:
        raise SqlError(
            f"only SELECT is offered, not {found[0].type.name}",
            remedy="SQL only reads; change a graph with a mutation or a load",
        )


# --- tables --------------------------------------------------------------------------------------


def _register(connection: Any, queries: QueryService, pinned: PinnedTarget, text: str) -> list[EntityDataset]:
    """Make the types that a statement names tables of DuckDB; all types, where it may list them."""
    names, lower = name_tables(pinned.snapshot.entries), text.lower()
    used = {name: key for name, key in names.items() if name.lower() in lower}
    if used and not any(part in lower for part in _CATALOGS):
        names = used
    datasets = {name: EntityDataset(queries.opened, pinned.snapshot, key) for name, key in names.items()}
    for name, dataset in datasets.items():
        connection.register(name, dataset)
    return list(datasets.values())


def name_tables(keys: Mapping[str, object]) -> dict[str, str]:
    """Return the table keys of types by their names in SQL.

    SQL does not distinguish upper and lower case: types that differ in nothing else have their table keys as
    names.
    """
    plain = {key: key.partition(":")[2] for key in keys}
    times = Counter(name.lower() for name in plain.values())
    return {key if times[name.lower()] > 1 else name: key for key, name in plain.items()}


# --- running -------------------------------------------------------------------------------------


def _run_interruptible(connection: Any, statement: SqlStatement) -> tuple[pa.Table, tuple[ValueType, ...]]:
    request = Request({}, 0, statement.limits)
    done: list[tuple[pa.Table, tuple[ValueType, ...]]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(_read_all(connection, statement, request))
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failed.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), name=THREAD_NAME)
    try:
        with ctrl_c.postpone_ctrl_c():  # Ctrl-C in there could leave one of Python's own locks behind
            thread.start()
        while thread.is_alive():
            request.check()
            thread.join(_POLL_SECONDS)
    except BaseException:
        request.abandoned = True
        while thread.is_alive():
            connection.interrupt()
            thread.join(_POLL_SECONDS)
        raise
    if failed:
        raise failed[0]
    return done[0]


def _read_all(
    connection: Any, statement: SqlStatement, request: Request
) -> tuple[pa.Table, tuple[ValueType, ...]]:
    relation = connection.sql(statement.text, params=_check_params(statement.params))
    types, casts = zip(*map(_choose_type, relation.types), strict=True)
    if any(cast is not None for cast in casts):
        relation = relation.project(", ".join(_render_columns(relation.columns, casts)))
    batches, rows, size = [], 0, 0
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    for batch in reader:
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        request.check()
        _check_size(rows, size, statement.limits)
    return _to_result_types(pa.Table.from_batches(batches, schema=reader.schema), types), types


def _check_params(params: SqlParams | None) -> SqlParams | None:
    if params is None:
        return None
    if isinstance(params, Mapping):
        return dict(params)
    if isinstance(params, (str, bytes)) or not isinstance(params, Sequence):
        raise BadRequest("params must be a mapping or a list", remedy="write them like {'least': 30}")
    return list(params)


def _check_size(rows: int, size: int, limits: Limits) -> None:
    if limits.rows is not None and rows > limits.rows:
        raise ResourceLimitExceeded(
            "rows of the statement", limit=limits.rows, actual=rows, remedy="add a LIMIT, or allow more rows"
        )
    if size > limits.bytes_in_flight:
        raise ResourceLimitExceeded(
            "bytes of the result",
            limit=limits.bytes_in_flight,
            actual=size,
            remedy="ask for fewer columns or rows, or aggregate",
        )


# --- types ---------------------------------------------------------------------------------------


def _choose_type(found: Any) -> tuple[ValueType, str | None]:
    """Return the type of a result column, and what its values are cast to in DuckDB; None for nothing."""
    if found.id in ("list", "array"):
        return _choose_list_type(found)
    name = _CASTS.get(found.id, found.id)
    scalar = _TYPES.get(name)
    if scalar is None:
        return ValueType(Scalar.STRING, nullable=True), "varchar"
    return ValueType(scalar, nullable=True), None if name == found.id else name


def _choose_list_type(found: Any) -> tuple[ValueType, str | None]:
    parts = dict(found.children)
    item, size = parts["child"], parts.get("size")
    if size is not None and item.id == "float":
        return ValueType(Scalar.VECTOR, nullable=True, dimension=int(size)), None
    name = _CASTS.get(item.id, item.id)
    scalar = _TYPES.get(name)
    if scalar is None:
        return ValueType(Scalar.STRING, nullable=True), "varchar"
    cast = None if size is None and name == item.id else f"{name}[]"
    return ValueType(scalar, nullable=True, is_list=True), cast


def _render_columns(names: Sequence[str], casts: Sequence[str | None]) -> Iterator[str]:
    """Columns by their places: several may have the same name."""
    for place, (name, cast) in enumerate(zip(names, casts, strict=True), 1):
        quoted = name.replace('"', '""')
        yield f'{f"#{place}" if cast is None else f"CAST(#{place} AS {cast})"} AS "{quoted}"'


def _to_result_types(table: pa.Table, types: Sequence[ValueType]) -> pa.Table:
    """Times have milliseconds in a graph; DuckDB returns microseconds."""
    columns = [
        column.cast(arrow_type(type_), safe=False) for column, type_ in zip(table.columns, types, strict=True)
    ]
    return pa.table(columns, names=table.column_names)
