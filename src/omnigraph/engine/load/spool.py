"""Rows in memory or in a DataFrame as files that a load reads like any other.

Rows in memory are dictionaries, pandas, polars, or whatever gives a stream of Arrow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from math import isnan
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from omnigraph.arguments import require_path
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_types import END_NAMES
from omnigraph.engine.load.sources.input_files import cover_file, cover_path
from omnigraph.engine.load.sources.mapping import InputMapping, MappingEntry, name_types
from omnigraph.engine.load.sources.pipes import ReceivedPipe, receive_pipes
from omnigraph.engine.load.sources.plan import file_of
from omnigraph.engine.load.sources.spark_source import SparkSource
from omnigraph.engine.rows.violations import Violation, passed_rows_name
from omnigraph.engine.tasks.runner import SPARK, Engine, engine_module
from omnigraph.errors import BadRequest, KeyConflict, LoadRejected
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import suggest_name
from omnigraph.lang.values import shorten_legibly
from omnigraph.storage.scratch import TemporaryFolder, wrap_temporary_errors, write_rows
from omnigraph.yaml_text import yaml_error

_ROWS_AT_ONCE = 65_536
"""So many rows of an iterator are in memory at a time."""


@dataclass(frozen=True, slots=True)
class PassedRows(os.PathLike[str]):
    """A file of some of the rows of a type; a load takes it like any other path."""

    at: str
    type: str
    before: int = 0
    """How many of the rows come before this file."""
    places: tuple[int, ...] = ()
    """Which of the rows after those they are, counted from 0; empty if they are the next ones."""

    def __fspath__(self) -> str:
        return self.at

    def locate(self, violation: Violation) -> Violation:
        """A violation in this file by its row number among all passed rows."""
        line = violation.line
        if line is not None:
            line = self.before + (self.places[line - 1] + 1 if self.places else line)
        return replace(violation, file=passed_rows_name(self.type), line=line)


class InputNames:
    """How the inputs of a load are called where people read of them."""

    def __init__(self, inputs: Iterable[str | os.PathLike[str]]) -> None:
        self._given = {one.at: one for one in inputs if isinstance(one, PassedRows)}

    def locate(self, violation: Violation) -> Violation:
        """A violation as the user can find its place."""
        given = None if violation.file is None else self._given.get(violation.file)
        return violation if given is None else given.locate(violation)

    def locate_all(self, refused: LoadRejected | KeyConflict) -> LoadRejected | KeyConflict:
        """The same of all that an error names."""
        if not self._given:
            return refused
        located = [self.locate(one) for one in refused.violations]
        if isinstance(refused, LoadRejected):
            return LoadRejected(located, total=refused.total, counts=refused.counts, remedy=refused.remedy)
        refused.violations = tuple(located)
        return refused


@dataclass(frozen=True, slots=True)
class Spool:
    """Rows as files that a load reads like any other."""

    files: tuple[str | os.PathLike[str], ...]
    engine: Engine | None = None
    """What made the files and is at hand to load them, too."""
    mapping: InputMapping | None = None
    """How their columns become properties."""


class Frames(Protocol):
    """DataFrames of one engine."""

    def open_graph(self, graph: Any, questions: Any, session: Any) -> Any:
        """A graph as DataFrames, with what compiles its queries; without a session one is found or made."""
        ...

    def spark_state(self) -> Any:
        """How far Spark is from running a job, as a `SparkState`."""
        ...

    def query_runner(self) -> Callable[..., Any]:
        """What answers reads that are pinned, with a session that is found or made."""
        ...

    def spool_frame(self, frame: Any, root: Root, key: str) -> AbstractContextManager[Spool]:
        """The rows of a DataFrame or `SparkSource` as files that tasks write, while the block lasts."""
        ...

    def spool_computed(
        self, files: tuple[str | os.PathLike[str], ...], mapping: InputMapping, root: Root
    ) -> AbstractContextManager[Spool]:
        """Files with the values that a mapping has expressions for; there while the block lasts."""
        ...


def is_frame(data: object) -> bool:
    """Whether Spark has the rows, in a DataFrame or behind a source; asking must not import it."""
    return isinstance(data, SparkSource) or type(data).__module__.startswith("pyspark.sql.")


def get_frames() -> Frames:
    """Return the DataFrames of Spark."""
    spark: Frames = engine_module(SPARK).FRAMES
    return spark


@contextmanager
def open_inputs(
    data: Any,
    type_name: str | None,
    mapping: InputMapping | None,
    engine: str,
    catalog: Catalog,
    root: Root,
    *,
    by_record: bool = False,
) -> Iterator[Spool]:
    """Open the inputs of a load as files and a mapping.

    `by_record` keeps dictionaries with other members than their neighbours apart: what a record does not
    have must not become a null.
    """
    with ExitStack() as spools:
        by_type = data if type_name is None and _is_by_type(data, catalog) else {type_name: data}
        each = [
            spools.enter_context(_open_input(rows, name, catalog, root, by_record))
            for name, rows in by_type.items()
        ]
        at_hand = next((one.engine for one in each if one.engine is not None), None)
        spool = Spool(tuple(file for one in each for file in one.files), at_hand)
        entries = [entry for one in each if one.mapping is not None for entry in one.mapping.entries]
        mapping = name_types(mapping, entries) if entries else mapping
        if mapping is None or not mapping.computing:
            yield replace(spool, mapping=mapping)
            return
        mapping.check(catalog)
        if engine == "local":
            raise yaml_error(
                mapping.name,
                mapping.computing[0].place,
                "`expressions` are worked out by Spark, and not by engine 'local'",
                "load with --engine spark (`engine`), or write the values into the files",
            )
        yield spools.enter_context(get_frames().spool_computed(spool.files, mapping, root))


@contextmanager
def _open_input(
    data: Any, type_name: str | None, catalog: Catalog, root: Root, by_record: bool
) -> Iterator[Spool]:
    """Open rows, or files, of one type; without a name files show their types themselves."""
    if by_record and type_name is not None and is_rows(data):
        data = iter(data)
    if is_table(data) or (type_name is not None and is_nothing(data)):
        with spool_rows(data, type_name, catalog, root) as spool:
            yield spool
        return
    if type_name is not None and isinstance(data, Iterator):
        with _spool_iterator(data, type_name, catalog, by_record) as spool:
            yield spool
        return
    paths = require_paths(data, type_name)
    if type_name is not None:
        covered = [pattern for path in paths for pattern in cover_path(os.fspath(path))]
        entries = [_entry(find_type(catalog, type_name), covered)]
    else:
        typed = [one for one in paths if isinstance(one, ReceivedPipe) and one.type is not None]
        entries = [_entry(find_type(catalog, one.type or ""), [cover_file(one.name)]) for one in typed]
    with receive_pipes(paths) as files:
        yield Spool(files, mapping=InputMapping("<types>", tuple(entries)) if entries else None)


def _entry(key: str, patterns: Sequence[str]) -> MappingEntry:
    """What says that all files that patterns mean have rows of one type."""
    kind, _, name = key.partition(":")
    files = tuple(patterns)
    return MappingEntry(files, type=name) if kind == "node" else MappingEntry(files, edge=name)


@contextmanager
def _spool_iterator(
    data: Iterator[Any], type_name: str, catalog: Catalog, by_record: bool
) -> Iterator[Spool]:
    """Rows that are made one by one, or table by table, as one file for each of many rows."""
    key = find_type(catalog, type_name)
    with TemporaryFolder("rows") as folder:
        files: list[PassedRows] = []
        before = 0
        for places, part in _tables(data, type_name, by_record):
            rows = part.read_all() if isinstance(part, pa.RecordBatchReader) else part
            file = folder / str(len(files)) / file_of(key)
            with wrap_temporary_errors():
                file.parent.mkdir(parents=True)
            write_rows(file, rows.schema, rows.to_batches())
            files.append(PassedRows(str(file), key.partition(":")[2], before, places))
            before += 0 if places else rows.num_rows
        if not files:
            with spool_rows([], type_name, catalog, None) as spool:
                yield spool
            return
        yield Spool(tuple(files))


def _tables(
    data: Iterator[Any], type_name: str, by_record: bool
) -> Iterator[tuple[tuple[int, ...], pa.Table | pa.RecordBatchReader]]:
    """The rows of an iterator, some at a time, with their places among all where these do not follow."""
    before = 0
    for first in data:
        if is_table(first):
            yield (), as_arrow(first)
        elif isinstance(first, Mapping):
            rows = [first, *islice(data, _ROWS_AT_ONCE - 1)]
            for places, some in group_by_members(rows) if by_record else [((), rows)]:
                yield tuple(before + place for place in places), as_arrow(some)
            before += len(rows) if by_record else 0
        else:
            raise _unreadable_input(first, type_name, " in an iterator")


@contextmanager
def spool_rows(data: Any, type_name: str | None, catalog: Catalog, root: Root | None) -> Iterator[Spool]:
    """Rows as Arrow files named after their type; they are there while the block lasts."""
    if type_name is None:
        raise BadRequest(
            "rows in memory do not tell which type they have", remedy='name it, as in `type="Person"`'
        )
    key = find_type(catalog, type_name)
    if root is not None and is_frame(data):
        with get_frames().spool_frame(data, root, key) as spool:
            yield spool
        return
    rows = empty_rows(catalog, key) if is_nothing(data) else as_arrow(data)
    with TemporaryFolder("rows") as folder:
        file = folder / file_of(key)
        with wrap_temporary_errors():
            file.parent.mkdir()
        write_rows(file, rows.schema, rows.to_batches() if isinstance(rows, pa.Table) else rows)
        yield Spool((PassedRows(str(file), key.partition(":")[2]),))


def require_paths(data: Any, type_name: str | None) -> tuple[str | os.PathLike[str], ...]:
    """The names of files, one or several; anything else is an error."""
    if isinstance(data, str | os.PathLike):
        given: tuple[Any, ...] = (data,)
    elif _may_be_paths(data, type_name):
        given = tuple(data)
    else:
        raise _unreadable_input(data, type_name)
    odd = [one for one in given if not isinstance(one, str | os.PathLike)]
    if odd:
        # Of a list that has rows as well, what is no row is to blame.
        raise _unreadable_input(min(odd, key=lambda one: isinstance(one, Mapping)), type_name, " in a list")
    for path in given:
        require_path(path)
    return given


def _may_be_paths(data: object, type_name: str | None) -> bool:
    if type_name is not None:
        return isinstance(data, list | tuple)
    return isinstance(data, Iterable) and not isinstance(data, Mapping | bytes)


def _unreadable_input(what: object, type_name: str | None, where: str = "") -> BadRequest:
    found = f"'{type(what).__name__}'{where}"
    rows = "a list of dictionaries, an Arrow table or stream, or a DataFrame"
    if type_name is not None:
        return BadRequest(
            f"a load of '{shorten_legibly(type_name)}' takes rows or paths, and no {found}",
            remedy=f"give {rows}, an iterator of these, or paths",
        )
    return BadRequest(
        f"a load takes names of files, and no {found}",
        remedy=f'give paths; or rows, which are {rows}, and their type, as in `type="Person"`',
    )


def _is_by_type(data: object, catalog: Catalog) -> bool:
    """Whether an input is rows or files of several types, by their names; a single row is none."""
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        return False
    known = {*catalog.nodes, *catalog.edges}
    return any(
        name.rpartition(":")[2] in known or is_table(rows) or is_nothing(rows) or isinstance(rows, Iterator)
        for name, rows in data.items()
    )


def group_by_members(rows: Sequence[Mapping[str, Any]]) -> list[tuple[tuple[int, ...], list[Any]]]:
    """Return the rows by the members that they have, each group with the places of its rows."""
    groups: dict[frozenset[str], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(frozenset(row), []).append(place)
    return [(tuple(places), [rows[place] for place in places]) for places in groups.values()]


def is_nothing(data: object) -> bool:
    """Whether an input is a list of no rows, which has no columns either."""
    return isinstance(data, list | tuple) and not data


def empty_rows(catalog: Catalog, key: str) -> pa.Table:
    """An empty list of rows, which has no columns, with the columns of its type."""
    kind, _, name = key.partition(":")
    ends = () if kind == "node" else END_NAMES
    owner = catalog.nodes[name] if kind == "node" else catalog.edges[name]
    return pa.table({column: pa.nulls(0) for column in (*ends, *owner.properties)})


def find_type(catalog: Catalog, type_name: str) -> str:
    """Return the table of a type by its name, or by `node:Name` and `edge:Name` where both kinds have one."""
    tables = [f"node:{name}" for name in catalog.nodes] + [f"edge:{name}" for name in catalog.edges]
    found = [key for key in tables if type_name in (key, key.partition(":")[2])]
    if len(found) > 1:
        raise BadRequest(
            f"'{shorten_legibly(type_name)}' is a node type and an edge type",
            remedy=f"name {' or '.join(found)}",
        )
    if not found:
        known = sorted({key.partition(":")[2] for key in tables})
        raise BadRequest(
            f"unknown type '{shorten_legibly(type_name)}'", remedy=suggest_name(type_name, known)
        )
    return found[0]


_MISSING_TYPES = frozenset({"NAType", "NaTType"})
"""The types of pandas' markers, which is not imported for this."""

Form = type[int] | type[float]


def is_table(data: object) -> bool:
    """Whether an input is rows and not the name of a file."""
    return (
        hasattr(data, "__arrow_c_stream__")
        or isinstance(data, pa.RecordBatch | SparkSource)
        or is_rows(data)
        or _collect(data) is not None
    )


def is_rows(data: object) -> bool:
    """Whether an input is a list of dictionaries, one for each row."""
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(row, Mapping) for row in data)


def _collect(data: object) -> Callable[[], Any] | None:
    """What computes a query that was not run yet: a LazyFrame of polars, or a relation of DuckDB."""
    kind = type(data)
    if kind.__module__.startswith("polars.") and kind.__name__ == "LazyFrame":
        found: Callable[[], Any] = data.collect  # type: ignore[attr-defined]
        return found
    names = ("fetch_arrow_reader", "arrow")
    return next((one for name in names if callable(one := getattr(data, name, None))), None)


def as_arrow(data: Any) -> pa.Table | pa.RecordBatchReader:
    """The rows as Arrow; those of a stream can be read once."""
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if type(data).__module__.startswith("pandas."):
            # An index is a place and no property, unless the user makes a column of it.
            return _from_pandas(data)
        if is_rows(data):
            names = dict.fromkeys(name for row in data for name in row)
            return pa.table({name: _build_column(name, [row.get(name) for row in data]) for name in names})
        if not hasattr(data, "__arrow_c_stream__") and (collect := _collect(data)) is not None:
            return as_arrow(collect())
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
        raise BadRequest(f"these rows cannot be read as Arrow: {_describe_reason(failure)}") from failure


def _from_pandas(data: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(data, preserve_index=False)
    except (OverflowError, pa.ArrowInvalid):
        # A column of Python integers, because one of them is missing or large.
        columns = {
            name: _build_column(name, column.astype(object).where(column.notna(), None).tolist())
            if column.dtype == object
            else pa.array(column, from_pandas=True)
            for name, column in data.items()
        }
        return pa.table(columns)


def _build_column(name: object, values: Sequence[object]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
        large = _large_integers(name, values)
        if large is not None:
            return large
        with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            return pa.array([_plain(value) for value in values])
        raise BadRequest(
            f"the values of '{shorten_legibly(str(name))}' do not fit together: {_describe_reason(failure)}",
            remedy="give all rows values of one type",
        ) from failure


def _large_integers(name: object, values: Sequence[object]) -> pa.Array | None:
    """Numbers, or lists of them, of which Arrow does not guess the type: over 2**63 it expects no integer."""
    present = [value for value in values if value is not None]
    lists = bool(present) and all(isinstance(value, list | tuple) for value in present)
    items = [item for value in present for item in value] if lists else present  # type: ignore[attr-defined]
    numbers = [item for item in items if item is not None]
    if not numbers or not all(type(number) in (int, float) for number in numbers):
        return None
    integers = [number for number in numbers if type(number) is int]
    wide = next((one for one in integers if not -(2**63) <= one < 2**64), None)
    if wide is not None:
        raise BadRequest(
            f"the value {shorten_legibly(str(wide))} of '{shorten_legibly(str(name))}' "
            "does not fit into 64 bits",
            remedy="U64 holds 0 to 18446744073709551615, and I64 the whole numbers from -2^63 to 2^63 - 1",
        )
    if len(integers) < len(numbers):
        if any(float(one) != one for one in integers):
            return None
        kind, form = pa.float64(), cast(Form, float)
    elif min(integers) >= 0:
        kind, form = pa.uint64(), cast(Form, int)
    else:
        raise BadRequest(
            f"'{shorten_legibly(str(name))}' has both {min(integers)} and {max(integers)}, "
            "and no type of integers holds both",
            remedy="U64 has no values below 0, and I64 none over 9223372036854775807",
        )
    formed = [_convert_value(value, form) for value in values]
    return pa.array(formed, pa.list_(kind) if lists else kind)


def _plain(value: object) -> object:
    """A value as Arrow takes it one by one: not a moment of NumPy, and no marker of a missing value."""
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else value.astype("datetime64[us]").item()
    is_nan = isinstance(value, float) and isnan(value)
    return None if is_nan or type(value).__name__ in _MISSING_TYPES else value


def _convert_value(value: Any, form: Form) -> Any:
    if isinstance(value, list | tuple):
        return [_convert_value(item, form) for item in value]
    return None if value is None else form(value)


def _describe_reason(failure: Exception) -> str:
    return str(failure).partition("\n")[0]
