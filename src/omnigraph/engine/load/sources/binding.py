"""The columns of a file against the type they are meant for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

import pyarrow as pa
from pyarrow import types as kinds

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import END_NAMES, ID, SOURCE, TARGET
from omnigraph.engine.load.sources.arrow_columns import is_convertible, plain_type
from omnigraph.engine.load.sources.casts import is_castable
from omnigraph.engine.load.sources.item import Columns
from omnigraph.engine.load.sources.mapping import EVERYTHING, MappingEntry
from omnigraph.engine.rows.ndjson import RESERVED
from omnigraph.engine.rows.violations import Violation
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import arrow_type, shorten_legibly, stored_name

_OTHER_ENDS = {SOURCE: "source", TARGET: "target"}
_ENDS = {name: end for end, name in END_NAMES.items()}


@dataclass(frozen=True, slots=True)
class BoundColumns:
    """What came of it."""

    columns: Columns
    problems: tuple[Violation, ...] = ()
    """Everything that is wrong with the file as a whole."""
    casts: Mapping[str, str] = field(default_factory=dict)
    """Casts of columns that would help."""


def bind_columns(
    file: str,
    key: str,
    names: Sequence[str],
    types: Sequence[pa.DataType] | None,
    entry: MappingEntry,
    catalog: Catalog,
    *,
    patches: bool = False,
) -> BoundColumns:
    """Which column becomes what; `types` is None where columns are texts, read as their property wants.

    Columns of `patches` need only say which rows they are about.
    """
    binding = _Binding(file, key, catalog, entry)
    binding.refuse_repeats(names)
    binding.find_ends(names)
    binding.take(names)
    if patches:
        binding.require_identity()
    else:
        binding.require()
    if types is not None:
        binding.check_types(dict(zip(names, types, strict=True)))
    columns = Columns(
        key,
        tuple(names),
        tuple(binding.taken.items()),
        tuple((binding.inner(name), value) for name, value in entry.constants),
        casts=entry.cast,
    )
    return BoundColumns(columns, tuple(binding.problems), binding.casts)


@dataclass(slots=True)
class _Binding:
    file: str
    key: str
    catalog: Catalog
    entry: MappingEntry
    ends: dict[str, str] = field(default_factory=dict)
    """Which columns of the file are ends of an edge, and which end each is."""
    taken: dict[str, str] = field(default_factory=dict)
    problems: list[Violation] = field(default_factory=list)
    casts: dict[str, str] = field(default_factory=dict)
    """Casts with which columns of another type would be taken."""

    @property
    def is_edge(self) -> bool:
        return self.key.startswith("edge:")

    @property
    def owner(self) -> NodeType | EdgeType:
        name = self.key.partition(":")[2]
        return self.catalog.edges[name] if self.is_edge else self.catalog.nodes[name]

    def inner(self, name: str) -> str:
        """What an end is called inside of the graph; any other name stays."""
        return _ENDS.get(name, name) if self.is_edge else name

    def wrong(self, reason: str) -> None:
        self.problems.append(Violation(self.file, None, self.key, reason))

    def refuse_repeats(self, names: Sequence[str]) -> None:
        for name, times in Counter(names).items():
            if times > 1:
                self.wrong(f"column '{shorten_legibly(name)}' appears {times} times")

    def find_ends(self, names: Sequence[str]) -> None:
        """Look for the ends under `from` and `to`, and under `src` and `dst` where that leaves no doubt.

        With a column `src`, one called `from` is the property of that name; a type without it has two
        columns for one end then, and `src` is refused. Many programs write `source` and `target`.
        """
        for end, name in END_NAMES.items() if self.is_edge else ():
            stored = end in names and (name not in names or name in self.owner.properties)
            usual = end if stored else name
            other = _OTHER_ENDS[end]
            takes_other = usual not in names and other in names and other not in self.owner.properties
            self.ends[other if takes_other else usual] = end

    def take(self, names: Sequence[str]) -> None:
        """Give each column its meaning: by the mapping first, then by its name."""
        meant = self._meant()
        for name in (*meant, *(column for column, _ in self.entry.cast if column not in meant)):
            if name not in names:
                self.wrong(
                    f"the mapping names a column '{shorten_legibly(name)}' that the file does not have"
                )
        elsewhere = {*meant.values(), *self._other_sources()}
        for name in dict.fromkeys(names):
            if name in meant:
                self.taken[meant[name]] = name
            elif self._is_dropped(name):
                continue
            elif (becomes := self._by_name(name)) is not None and becomes not in elsewhere:
                self.taken[becomes] = name
            elif self.entry.drop != EVERYTHING:
                self.wrong(self._why_unknown(name))

    def _meant(self) -> dict[str, str]:
        """What the mapping says about columns."""
        meant = dict(self.entry.columns)
        if self.entry.key is not None and isinstance(self.owner, NodeType):
            meant[self.entry.key] = self.owner.key[0]
        others = ((self.entry.id, ID), (self.entry.source, SOURCE), (self.entry.target, TARGET))
        meant.update({column: becomes for column, becomes in others if column is not None})
        return meant

    def _other_sources(self) -> set[str]:
        return {self.inner(name) for name, _ in self.entry.constants}

    def _is_dropped(self, name: str) -> bool:
        return name in self.entry.drop

    def _by_name(self, name: str) -> str | None:
        if name == ID:
            return ID
        if name in self.ends:
            return self.ends[name]
        return name if name in self.owner.properties else None

    def _why_unknown(self, name: str) -> str:
        if name in RESERVED:
            return f"input field '{name}' is reserved physical state"
        if self.is_edge and name in (SOURCE, TARGET):
            return f"edge data field '{name}' is reserved structural state"
        if self._by_name(name) is not None:
            return (
                f"column '{shorten_legibly(name)}' has a value from elsewhere in the mapping; drop it there"
            )
        return f"unknown input field '{shorten_legibly(name)}' for '{self.key}'"

    def require(self) -> None:
        """Every row would lack what has no column."""
        known = {*self.taken, *self._other_sources()}
        if self.is_edge:
            for end, name in END_NAMES.items():
                if end not in known:
                    self.wrong(f"graph batch record requires field '{name}'")
        for declared in self.owner.properties.values():
            if declared.name in known or declared.type.nullable:
                continue
            kind = ""
            if declared.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
                kind = f"{declared.type.scalar.value.lower()} "
            self.wrong(f"non-nullable {kind}property '{declared.name}' has no column")

    def require_identity(self) -> None:
        """A patch is about the row with its key, or with its id where the type has no key."""
        known = {*self.taken, *self._other_sources()}
        for name in self.owner.key or (ID,):
            if name not in known:
                shown = END_NAMES.get(name, name) if self.is_edge else name
                self.wrong(f"a patch of '{self.owner.name}' requires a column '{shown}'")

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        """Refuse columns of which no value fits."""
        for becomes, column in self.taken.items():
            found = types[column]
            cast = dict(self.entry.cast).get(column)
            if cast is not None and is_castable(found, cast):
                found = arrow_type(ValueType(cast))
            if becomes == ID or (self.is_edge and becomes in END_NAMES):
                self._check_id(becomes, found)
            elif not is_convertible(found, type_ := self.owner.properties[becomes].type):
                self.wrong(f"strict property '{becomes}' expects {_expected(type_)}, got {found}")
                if cast is None and not type_.is_list and is_castable(found, type_.scalar):
                    self.casts[column] = type_.scalar.value

    def _check_id(self, becomes: str, found: pa.DataType) -> None:
        plain = plain_type(found)
        if any(test(plain) for test in (kinds.is_string, kinds.is_null, kinds.is_integer, kinds.is_floating)):
            return
        if becomes == ID:
            self.wrong(f"input entity of type '{self.owner.name}' field 'id' must be a string, got {found}")
        else:
            self.wrong(f"graph batch field '{END_NAMES[becomes]}' must be a string, got {found}")


def _expected(type_: ValueType) -> str:
    return "bytes or text" if type_.scalar is Scalar.BLOB else stored_name(type_)


def find_table(catalog: Catalog, name: str, *, kind: str | None = None) -> str | None:
    """The table of the type of that name; None when there is none, or one of each kind."""
    edge = None if kind == "node" else catalog.find_edge(name)
    if name not in catalog.nodes or kind == "edge":
        return None if edge is None else f"edge:{edge.name}"
    return None if edge is not None and edge.name == name else f"node:{name}"
