"""Which column of a type is its key, and which types edges join, guessed from the values."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.engine.inference.column_types import ColumnGuess, guess_type
from omnigraph.engine.inference.samples import Sample, find_end_columns
from omnigraph.engine.load.sources.arrow_columns import plain
from omnigraph.engine.rows.ndjson import RESERVED
from omnigraph.errors import BadRequest
from omnigraph.lang.types import INTEGERS, Scalar
from omnigraph.lang.values import shorten_legibly

_KEY_SCALARS = frozenset({Scalar.STRING, *INTEGERS})
_TYPE_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*")


_ENDS = ("src", "dst")
"""What the ends of an edge are called in keys."""


@dataclass(frozen=True, slots=True)
class PropertyGuess:
    """A property, and the column that it comes from."""

    name: str
    column: str
    guess: ColumnGuess
    is_unique: bool = False
    """Whether the values could be a key: single, none missing and none twice."""


@dataclass(frozen=True, slots=True)
class TypeGuess:
    """A node type, or an edge type with the types that it joins."""

    sample: Sample
    properties: tuple[PropertyGuess, ...]
    key: tuple[str, ...] = ()
    """The properties that identify a node."""
    key_note: str | None = None
    end_columns: tuple[str, str] | None = None
    """The columns with the ends of edges; None for nodes."""
    ends: tuple[str, str] | None = None
    ends_note: str | None = None

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.sample.type

    @property
    def table_key(self) -> str:
        """The name of the type's table."""
        return f"{'node' if self.end_columns is None else 'edge'}:{self.name}"

    @property
    def has_ids(self) -> bool:
        """Whether a column holds the ids."""
        return ID in self.sample.table.column_names

    def find(self, name: str) -> PropertyGuess | None:
        """A property by its name, or by that of its column."""
        return next((one for one in self.properties if name in (one.name, one.column)), None)


def guess_types(samples: Iterable[Sample], keys: Mapping[str, Sequence[str]]) -> list[TypeGuess]:
    """Guess the types of several tables; `keys` are the key columns that the caller named."""
    guesses = [_guess_table(sample) for sample in samples]
    _require_distinct(guesses)
    _require_known(guesses, keys)
    nodes = [one for one in guesses if one.end_columns is None]
    edges = [one for one in guesses if one.end_columns is not None]
    if edges and not nodes:
        raise BadRequest(
            f"edges '{edges[0].name}' have no nodes to join", remedy="add the table of the nodes"
        )
    references = [(edge, end) for edge in edges for end in (0, 1)]
    known = [_choose_key(node, references, keys.get(node.name)) for node in nodes]
    joined = [_with_key(_choose_ends(edge, known), keys) for edge in edges]
    chosen = {one.table_key: one for one in (*known, *joined)}
    return [chosen[one.table_key] for one in guesses]


def _guess_table(sample: Sample) -> TypeGuess:
    if not _TYPE_NAME.fullmatch(sample.type):
        raise BadRequest(
            f"'{shorten_legibly(sample.type)}' cannot be the name of a type",
            remedy="begin it with an uppercase letter A to Z; letters, digits and _ may follow",
        )
    names = sample.table.column_names
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise BadRequest(f"{sample.type} has the column '{shorten_legibly(repeated)}' more than once")
    ends = _find_ends(sample)
    reserved = {ID, *RESERVED, *((SOURCE, TARGET) if ends else ())}
    properties: dict[str, PropertyGuess] = {}
    for column in names:
        if column == ID or (ends is not None and column in ends):
            continue
        name = _name_property(column, {*properties, *reserved})
        properties[name] = _guess_property(name, column, sample)
    return TypeGuess(sample, tuple(properties.values()), end_columns=ends)


def _find_ends(sample: Sample) -> tuple[str, str] | None:
    """The columns with the ends; edges without any that is named so have them in their first two."""
    if sample.is_edge is False:
        return None
    names = sample.table.column_names
    named = find_end_columns(names)
    if named is not None or sample.is_edge is None:
        return named
    if len(names) < 2:
        raise BadRequest(
            f"edges '{sample.type}' need two columns, for the nodes that they join",
            remedy="call them `from` and `to`",
        )
    return names[0], names[1]


def _guess_property(name: str, column: str, sample: Sample) -> PropertyGuess:
    values = _column(sample, column)
    guess = guess_type(values, is_text=sample.is_text)
    single = guess.type is not None and guess.type.scalar in _KEY_SCALARS and not guess.type.is_list
    return PropertyGuess(name, column, guess, single and _identifies(values))


def _identifies(values: pa.Array) -> bool:
    texts = _texts(values)
    if texts.null_count or pc.any(pc.equal(texts, "")).as_py():
        return False
    return len(texts) > 0 and pc.count_distinct(texts).as_py() == len(texts)


def _column(sample: Sample, name: str) -> pa.Array:
    found = sample.table.column(name)
    joined = found.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def _texts(values: pa.Array) -> pa.Array:
    """The ids that values stand for, as texts."""
    if isinstance(values.type, pa.UuidType):
        return pa.array(map(str, values.to_pylist()))
    found = plain(values)
    if pa.types.is_floating(found.type):
        whole = pc.and_(pc.is_finite(found), pc.equal(found, pc.floor(found)))
        found = pc.if_else(whole, found, None).cast(pa.int64(), safe=False)
    return found.cast(pa.string())


def _name_property(column: str, taken: set[str]) -> str:
    """The name of a property by that of its column: `First Name` -> `first_name`."""
    ascii_only = unicodedata.normalize("NFKD", column).encode("ascii", "ignore").decode()
    words = re.findall(r"[A-Za-z0-9_]+", ascii_only)
    if len(words) > 1:
        words = [word.lower() for word in words]
    name = "_".join(words)
    name = name.lower() if name.isupper() else name[:1].lower() + name[1:]
    if not re.match("[a-z_]", name):
        name = f"column_{name}" if name else "column"
    number, base = 1, name
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def _require_distinct(guesses: Sequence[TypeGuess]) -> None:
    names = [one.table_key for one in guesses]
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(
                f"two tables would be the type '{name.partition(':')[2]}'",
                remedy="give each table the name of its own type",
            )


def _require_known(guesses: Sequence[TypeGuess], keys: Mapping[str, Sequence[str]]) -> None:
    """Fail on a key of a type or column that is not there."""
    nodes_by_name = {one.name: one for one in guesses if one.end_columns is None}
    by_name = {one.name: one for one in guesses} | nodes_by_name
    for name, columns in keys.items():
        guess = by_name.get(name)
        if guess is not None and guess.end_columns is not None:
            _require_edge_key(guess, columns)
            continue
        if guess is None:
            nodes = [one.name for one in guesses if one.end_columns is None]
            raise BadRequest(
                f"there is no node type '{shorten_legibly(name)}' for the key "
                f"'{shorten_legibly('.'.join((name, *columns)))}'",
                remedy=f"it may be: {', '.join(nodes)}",
            )
        for column in columns:
            if guess.find(column) is None:
                known = ", ".join(one.name for one in guess.properties)
                remedy = (
                    "leave the key out: the column `id` holds the ids already"
                    if column == ID and guess.has_ids
                    else f"it has: {known}"
                )
                raise BadRequest(f"{name} has no property '{shorten_legibly(column)}'", remedy=remedy)


def _require_edge_key(edge: TypeGuess, columns: Sequence[str]) -> None:
    others = [column for column in columns if column not in _ENDS]
    unknown = next((column for column in others if edge.find(column) is None), None)
    if unknown is not None:
        known = ", ".join((*_ENDS, *(one.name for one in edge.properties)))
        raise BadRequest(
            f"{edge.name} has no property '{shorten_legibly(unknown)}'", remedy=f"it has: {known}"
        )
    if not set(_ENDS) <= set(columns) or len(others) > 1:
        raise BadRequest(
            f"the key of the edge type '{edge.name}' must name src, dst and at most one property",
            remedy=f"name {edge.name}.src and {edge.name}.dst",
        )


# --- keys and ends -------------------------------------------------------------------------------


def _choose_key(
    node: TypeGuess, references: Sequence[tuple[TypeGuess, int]], named: Sequence[str] | None
) -> TypeGuess:
    if named is not None:
        found = [node.find(name) for name in named]
        return replace(node, key=tuple(one.name for one in found if one is not None))
    candidates = [one for one in node.properties if one.is_unique]
    if node.has_ids:
        ids = _texts(_column(node.sample, ID))
        same = next((one for one in candidates if ids == _texts(_column(node.sample, one.column))), None)
        if same is None:
            return replace(node, key_note="the column `id` holds the ids")
        return replace(node, key=(same.name,), key_note="guessed: equal to the column `id`")
    if not candidates:
        return replace(node, key_note="no column identifies a row, so ids are generated")
    hits = {one.name: _count_references(node, one.column, references) for one in candidates}
    best = max(candidates, key=lambda one: hits[one.name])
    if hits[best.name]:
        note = "guessed: edges refer to it, and no value is missing or repeated"
    else:
        note = "guessed: the first column without missing or repeated values"
    return replace(node, key=(best.name,), key_note=note)


def _count_references(node: TypeGuess, column: str, references: Sequence[tuple[TypeGuess, int]]) -> int:
    """How many ends of edges are values of a column; edges with named ends count for these types only."""
    ids = _texts(_column(node.sample, column))
    return sum(
        _count_found(edge, end, ids)
        for edge, end in references
        if edge.sample.ends is None or edge.sample.ends[end] == node.name
    )


def _count_found(edge: TypeGuess, end: int, ids: pa.Array) -> int:
    assert edge.end_columns is not None
    wanted = _texts(_column(edge.sample, edge.end_columns[end]))
    found: int = pc.sum(pc.is_in(wanted, value_set=ids)).as_py() or 0
    return found


def _with_key(edge: TypeGuess, keys: Mapping[str, Sequence[str]]) -> TypeGuess:
    """An edge type with the key that the caller named; none is guessed, since other readers know none."""
    named = keys.get(edge.name, ())
    return replace(edge, key=(*_ENDS, *(name for name in named if name not in _ENDS))) if named else edge


def _choose_ends(edge: TypeGuess, nodes: Sequence[TypeGuess]) -> TypeGuess:
    names = [node.name for node in nodes]
    if edge.sample.ends is not None:
        unknown = next((name for name in edge.sample.ends if name not in names), None)
        if unknown is not None:
            raise BadRequest(
                f"edges '{edge.name}' join '{shorten_legibly(unknown)}', which is no node type here",
                remedy=f"it may be: {', '.join(names)}",
            )
        return replace(edge, ends=edge.sample.ends)
    (source, source_note), (target, target_note) = (_choose_end(edge, end, nodes) for end in (0, 1))
    notes = dict.fromkeys(note for note in (source_note, target_note) if note is not None)
    return replace(edge, ends=(source, target), ends_note=f"guessed: {'; '.join(notes)}" if notes else None)


def _choose_end(edge: TypeGuess, end: int, nodes: Sequence[TypeGuess]) -> tuple[str, str | None]:
    assert edge.end_columns is not None
    rows, column = edge.sample.table.num_rows, edge.end_columns[end]
    hits = {node.name: 0 if (ids := _ids(node)) is None else _count_found(edge, end, ids) for node in nodes}
    best = max(nodes, key=lambda node: hits[node.name]).name
    if len(nodes) == 1 and hits[best] == rows:
        return best, None
    if not hits[best]:
        why = "the only node type" if len(nodes) == 1 else "no node type has such ids"
        return best, f"{why}, so check the ends"
    return best, f"{hits[best]} of {rows} values of '{column}' are ids of {best}"


def _ids(node: TypeGuess) -> pa.Array | None:
    """The ids of a sample of nodes; None when they are generated or made of several values."""
    if not node.key and node.has_ids:
        return _texts(_column(node.sample, ID))
    found = node.find(node.key[0]) if len(node.key) == 1 else None
    return None if found is None else _texts(_column(node.sample, found.column))
