"""Blocks of columns -> checked rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import END_NAMES, ID, TableType
from omnigraph.engine.load.sources.arrow_columns import convert_column, plain, plain_type
from omnigraph.engine.load.sources.item import Columns, Item
from omnigraph.engine.load.sources.text_columns import NOT_UTF8, parse_texts, valid_texts
from omnigraph.engine.rows.blobs import read_blobs
from omnigraph.engine.rows.json_columns import ParsedColumn, parse_column
from omnigraph.engine.rows.row_builder import FIELDS, OWN_ID, Fault, Origin, build_rows_from_columns
from omnigraph.engine.rows.split_reader import LoadReader, SplitRows
from omnigraph.engine.rows.violations import Numbers, Violation
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import FORMS


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of an item as they were read."""

    columns: pa.RecordBatch
    lines: Numbers
    """Lines, or rows where there are no lines, counted from 1 at the beginning of the item."""
    positions: Numbers
    """What generated ids are made from."""
    read: int
    """How many lines were read for it."""
    violations: tuple[Violation, ...] = ()
    """What is wrong with lines that are no rows."""


def build_block_rows(block: Block, item: Item, reader: LoadReader) -> SplitRows:
    """The rows of a block that are fine by themselves, and what is wrong with the others."""
    assert item.mapping is not None
    shaping = _BlockBuilder(block, item.mapping, item.format.is_csv, reader, reader.targets[item.mapping.key])
    cells = {declared.name: shaping.cells(declared) for declared in shaping.target.owner.properties.values()}
    faults: list[Fault] = []
    ends = {end: shaping.end(end, faults) for end in END_NAMES if shaping.target.kind == "edge"}
    given = shaping.given_ids(faults)
    origin = Origin(item.file, item.file_number, block.lines, block.positions)
    shaped = build_rows_from_columns(cells, ends, given, origin, shaping.target, reader.ids, faults)
    violations = sorted([*block.violations, *shaped.violations], key=lambda wrong: wrong.line or 0)
    return SplitRows((shaped,), item.placed(violations), block.read)


@dataclass(frozen=True, slots=True)
class _BlockBuilder:
    block: Block
    columns: Columns
    is_csv: bool
    reader: LoadReader
    target: TableType

    @property
    def count(self) -> int:
        return len(self.block.lines)

    def column(self, becomes: str) -> pa.Array | None:
        """The column that becomes a property, an end or the id."""
        name = dict(self.columns.taken).get(becomes)
        return None if name is None else self.block.columns.column(name)

    def cells(self, declared: Property) -> ParsedColumn:
        constants = dict(self.columns.constants)
        if declared.name in constants:
            return self._repeated(declared, constants[declared.name])
        column = self.column(declared.name)
        if column is None:
            column = pa.nulls(self.count)
        elif self.is_csv:
            return self._from_texts(column, declared)
        field = self.target.schema.field(declared.name)
        return convert_column(column, declared.name, declared.type, field, self.reader.external)

    def _repeated(self, declared: Property, value: object) -> ParsedColumn:
        if declared.type.scalar is Scalar.BLOB:
            field = self.target.schema.field(declared.name)
            one = read_blobs([value], declared.name, field, self.reader.external)
        else:
            one = parse_column([value], declared.name, declared.type)
        array = one.array.take(pa.array(np.zeros(self.count, np.int64)))
        return ParsedColumn(
            array, {row: reason for reason in one.faults.values() for row in range(self.count)}
        )

    def _from_texts(self, column: pa.Array, declared: Property) -> ParsedColumn:
        name, type_ = declared.name, declared.type
        texts, wrong = valid_texts(column)
        if type_.scalar is Scalar.BLOB:
            cells = read_blobs(texts.to_pylist(), name, self.target.schema.field(name), self.reader.external)
        else:
            cells = parse_texts(texts, name, type_)
        if wrong is None:
            return cells
        reason = f"strict property '{name}' expects {FORMS[type_.scalar].name}, got {NOT_UTF8}"
        return ParsedColumn(
            cells.array, {**cells.faults, **dict.fromkeys(np.flatnonzero(wrong).tolist(), reason)}
        )

    def end(self, end: str, faults: list[Fault]) -> pa.Array:
        """The ids of the nodes at one end of edges."""
        constants = dict(self.columns.constants)
        if end in constants:
            return pa.repeat(pa.scalar(constants[end], pa.string()), self.count)
        column = self.column(end)
        assert column is not None, "a file of edges without ends was planned"
        texts = self._ids(column, f"graph batch field '{END_NAMES[end]}' must be a string", FIELDS, faults)
        if texts.null_count:
            known = {row for row, _, _ in faults}
            missing = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist()
            reason = f"graph batch field '{END_NAMES[end]}' must be a string, got null"
            faults += ((row, FIELDS, reason) for row in missing if row not in known)
        return texts

    def given_ids(self, faults: list[Fault]) -> pa.Array | None:
        """The ids that rows bring along; None when none does."""
        column = self.column(ID)
        if column is None:
            return None
        rule = f"input entity of type '{self.target.name}' field 'id' must be a string"
        texts = self._ids(column, rule, OWN_ID, faults)
        return None if texts.null_count == len(texts) else texts

    def _ids(self, column: pa.Array, rule: str, place: int, faults: list[Fault]) -> pa.Array:
        values = plain(column)
        if plain_type(values.type) in (pa.string(), pa.large_binary()):
            texts, wrong = valid_texts(values)
            if wrong is not None:
                faults += ((row, place, f"{rule}, got {NOT_UTF8}") for row in np.flatnonzero(wrong).tolist())
            return texts
        return values.cast(pa.string())
