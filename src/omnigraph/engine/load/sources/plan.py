"""Files of a load, cut into items."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from itertools import accumulate, pairwise
from pathlib import PurePosixPath

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.binding import BoundColumns, bind_columns, find_table
from omnigraph.engine.load.sources.columnar import open_arrow, open_parquet
from omnigraph.engine.load.sources.csv_records import read_header
from omnigraph.engine.load.sources.csv_sniff import guess_date_format, read_dialect
from omnigraph.engine.load.sources.input_files import InputFile, find_inputs
from omnigraph.engine.load.sources.item import Columns, Format, Item, format_of, strip_extension
from omnigraph.engine.load.sources.line_ranges import open_text
from omnigraph.engine.load.sources.mapping import NO_ENTRY, InputMapping, MappingEntry
from omnigraph.engine.rows.lines import Limits
from omnigraph.engine.rows.violations import Violation
from omnigraph.errors import BadRequest, LoadRejected
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import shorten_legibly
from omnigraph.storage.input_tables import describe_table

SMALLEST, LARGEST = 32 * 2**20, 256 * 2**20
_LEAST = 4 * 2**20
"""An item is only smaller than `SMALLEST` so that no core is without one, and never smaller than this."""
ITEMS_PER_CORE = 4
_LEAST_ROW = 64
"""What a row of columns weighs at least: files hold numbers in a byte or two that become ids as texts."""
_OPEN_COST = 256 * 2**10
"""What opening a file weighs: a task with many small files has as much to do as one with a large one."""
_MAX_REPORTED = 100
_AT_ONCE = 16
"""So many files are looked into at the same time: those of buckets take a while to answer."""
_KINDS = {"nodes": "node", "edges": "edge"}
"""Folders of an export, which distinguish types of one name."""


def plan_items(
    inputs: Sequence[str | os.PathLike[str]],
    catalog: Catalog,
    mapping: InputMapping | None = None,
    *,
    cores: int,
    split: int | None = None,
    patches: bool = False,
) -> list[Item]:
    """The items of a load in input order; fails when a file as a whole does not fit its type.

    Files of `patches` need columns only for what identifies their rows.
    """
    if mapping is not None:
        mapping.check(catalog)
    files = find_inputs(inputs, format_of if mapping is None else mapping.format_of)
    size = split or split_size(sum(file.size for file in files), cores)
    planner = _Planner(catalog, mapping, size, patches)
    planned = planner.all(files)
    problems = [problem for one in planned for problem in one.problems]
    if problems:
        raise LoadRejected(
            problems[:_MAX_REPORTED],
            total=len(problems),
            remedy=_remedy({name: cast for one in planned for name, cast in one.casts.items()}),
        )
    items = (item for one in planned for item in one.items)
    return [replace(item, number=number) for number, item in enumerate(items)]


def file_of(key: str) -> str:
    """The path that names the type of an Arrow file, also where both kinds have one of that name."""
    kind, _, name = key.partition(":")
    folder = {kind_: folder for folder, kind_ in _KINDS.items()}.get(kind, kind)
    return f"{folder}/{name}.{Format.ARROW}"


def split_size(total: int, cores: int) -> int:
    """About how many bytes an item has: as many items for every core, none of them tiny or huge."""
    size = min(max(-(-total // (ITEMS_PER_CORE * cores)), SMALLEST), LARGEST)
    rounds = -(-total // (size * cores))
    even = -(-total // max(1, rounds * cores))
    return even if even >= _LEAST else size


def pack_files(items: Sequence[Item], cores: int) -> list[Item]:
    """Combine small files that follow each other, so that a task has about as much to do as any other."""
    weights = [max(item.size, sum(item.rows) * _LEAST_ROW) + _OPEN_COST for item in items]
    limit = split_size(sum(weights), cores)
    parts = Counter(item.file_number for item in items)
    packs: list[list[Item]] = []
    held = 0
    for item, weight in zip(items, weights, strict=True):
        whole = parts[item.file_number] == 1
        if packs and whole and held + weight <= limit:
            packs[-1].append(item)
            held += weight
        else:
            packs.append([item])
            held = weight if whole else limit
    return [
        replace(
            first,
            number=number,
            size=first.size + sum(item.size for item in more),
            following=tuple(more),
        )
        for number, (first, *more) in enumerate(packs)
    ]


@dataclass(frozen=True, slots=True)
class _Planned:
    items: tuple[Item, ...]
    problems: tuple[Violation, ...] = ()
    casts: Mapping[str, str] = field(default_factory=dict)


def _remedy(casts: Mapping[str, str]) -> str:
    text = "rename, fill or drop columns in a mapping, or fix the files"
    if not casts:
        return text
    pairs = ", ".join(f"{shorten_legibly(name)}: {type_}" for name, type_ in casts.items())
    return f"{text}; `cast: {{{pairs}}}` in a mapping converts the values"


@dataclass(frozen=True, slots=True)
class _Planner:
    catalog: Catalog
    mapping: InputMapping | None
    split: int
    patches: bool

    def all(self, files: Sequence[InputFile]) -> list[_Planned]:
        if all(file.format.is_records for file in files):
            return list(map(self.one, files, range(len(files))))  # these are not opened
        with ThreadPoolExecutor(min(_AT_ONCE, len(files))) as threads:
            return list(threads.map(self.one, files, range(len(files))))

    def one(self, file: InputFile, number: int) -> _Planned:
        whole = Item(file.file, file.at, number, 0, file.format, 0, file.size, file.size)
        entry = NO_ENTRY if self.mapping is None else self.mapping.entry(file.file)
        if file.format.is_records:
            _refuse_mapping(file, entry)
            if entry.type is not None or entry.edge is not None:
                whole = replace(whole, mapping=Columns(self._table(file, entry), (), ()))
            return _Planned(tuple(self._ranges(whole)))
        key = self._table(file, entry)
        match file.format:
            case Format.PARQUET:
                return self._parquet(whole, key, entry)
            case Format.ARROW:
                return self._arrow(whole, key, entry)
            case Format.LANCE:
                return self._lance(whole, key, entry)
        return self._csv(whole, key, entry)

    def _table(self, file: InputFile, entry: MappingEntry) -> str:
        """The type that a file is about: by the mapping, its name, or the folders it is in."""
        named = (("node", entry.type), ("edge", entry.edge))
        for kind, name in named:
            if name is not None and (key := find_table(self.catalog, name, kind=kind)) is not None:
                return key
        for name, hint in _names(file):
            found = find_table(self.catalog, name, kind=hint)
            if found is not None:
                self._check(entry, found)
                return found
        raise BadRequest(
            f"'{file.file}' does not tell which type its rows have",
            remedy="name the type with --type (`type=`), name the file or its folder after it, or give its "
            "`type` or `edge` in a mapping",
        )

    def _check(self, entry: MappingEntry, key: str) -> None:
        """An entry that names no type is checked once the type is known."""
        if self.mapping is not None and entry is not NO_ENTRY:
            kind, _, name = key.partition(":")
            known = replace(entry, type=name) if kind == "node" else replace(entry, edge=name)
            InputMapping(self.mapping.name, (known,)).check(self.catalog)

    def _bound(self, item: Item, key: str, schema: pa.Schema, entry: MappingEntry) -> BoundColumns:
        return bind_columns(
            item.file, key, schema.names, schema.types, entry, self.catalog, patches=self.patches
        )

    def _ranges(self, item: Item) -> Iterator[Item]:
        """An item of lines as several of about equal size."""
        if item.format.packing is not None:
            yield item
            return
        parts = -(-item.size // self.split)
        bounds = [item.size * part // parts for part in range(parts + 1)] if parts else []
        for begin, end in pairwise(bounds):
            yield replace(item, begin=begin, end=end, size=end - begin)

    def _csv(self, item: Item, key: str, entry: MappingEntry) -> _Planned:
        dialect = read_dialect(item, entry)
        with open_text(item) as stream:
            names = entry.header or read_header(stream, dialect, item.file, Limits())
        bound = bind_columns(item.file, key, names, None, entry, self.catalog, patches=self.patches)
        item = replace(item, mapping=replace(bound.columns, dialect=dialect))
        if not bound.problems and entry.date_format is None:
            item = guess_date_format(item, self._date_columns(key, bound.columns))
        return _Planned((item,) if entry.multiline else tuple(self._ranges(item)), bound.problems)

    def _date_columns(self, key: str, columns: Columns) -> list[str]:
        kind, _, name = key.partition(":")
        owner = self.catalog.nodes[name] if kind == "node" else self.catalog.edges[name]
        return [
            column
            for becomes, column in columns.taken
            if becomes in owner.properties
            and owner.properties[becomes].type.scalar in (Scalar.DATE, Scalar.DATETIME)
            and not owner.properties[becomes].type.is_list
        ]

    def _arrow(self, item: Item, key: str, entry: MappingEntry) -> _Planned:
        with open_arrow(item) as (schema, _):
            bound = self._bound(item, key, schema, entry)
        return _Planned((replace(item, mapping=bound.columns),), bound.problems, bound.casts)

    def _parquet(self, item: Item, key: str, entry: MappingEntry) -> _Planned:
        with open_parquet(item) as file:
            bound = self._bound(item, key, file.schema_arrow, entry)
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            rows = [group.num_rows for group in groups]
            sizes = [group.total_byte_size for group in groups]
        parts = tuple(self._grouped(item, bound.columns, rows, sizes))
        return _Planned(parts, bound.problems, bound.casts)

    def _lance(self, item: Item, key: str, entry: MappingEntry) -> _Planned:
        table = describe_table(item.at)
        bound = self._bound(item, key, table.schema, entry)
        item = replace(item, version=table.version)
        numbers = [piece.number for piece in table.pieces]
        parts = self._grouped(
            item,
            bound.columns,
            [piece.rows for piece in table.pieces],
            [piece.size for piece in table.pieces],
        )
        return _Planned(
            tuple(replace(part, fragments=tuple(numbers[part.begin : part.end])) for part in parts),
            bound.problems,
            bound.casts,
        )

    def _grouped(
        self, item: Item, columns: Columns, rows: Sequence[int], sizes: Sequence[int]
    ) -> Iterator[Item]:
        """Row groups or fragments that follow each other, about as many bytes together as an item has."""
        if not rows:
            # Without rows it is about its type all the same.
            yield replace(item, end=0, size=0, mapping=columns)
        before = [0, *accumulate(rows)]
        weights = [max(size, count * _LEAST_ROW) for size, count in zip(sizes, rows, strict=True)]
        begin = 0
        for end in range(1, len(rows) + 1):
            size = sum(sizes[begin:end])
            if end < len(rows) and sum(weights[begin : end + 1]) <= self.split:
                continue
            yield replace(
                item,
                begin=begin,
                end=end,
                size=size,
                mapping=columns,
                first_row=before[begin],
                rows=tuple(rows[begin:end]),
            )
            begin = end


def _refuse_mapping(file: InputFile, entry: MappingEntry) -> None:
    if replace(entry, files=(), type=None, edge=None, format=None, place=None) != NO_ENTRY:
        raise BadRequest(
            f"'{file.file}' has records that say themselves what they are; a mapping is for columns",
            remedy="take the file out of the mapping, or name nothing but its `type` or `edge`",
        )


def _names(file: InputFile) -> Iterator[tuple[str, str | None]]:
    """Names that may be a type's, the nearest first, each with the kind where a folder names it."""
    path, root = PurePosixPath(file.file), PurePosixPath(file.folder)
    names = [strip_extension(path.name)]
    folder = path.parent
    while folder.is_relative_to(root) and folder.name:
        names.append(folder.name)
        folder = folder.parent
    for name in names:
        yield name, next((_KINDS[each] for each in names if each in _KINDS), None)
