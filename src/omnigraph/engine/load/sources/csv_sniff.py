"""How a CSV file is written, guessed from its first lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.load.sources.csv_records import BYTE_ORDER_MARK, csv_blocks
from omnigraph.engine.load.sources.item import Dialect, Item
from omnigraph.engine.load.sources.line_ranges import open_text
from omnigraph.engine.load.sources.mapping import MappingEntry
from omnigraph.engine.load.sources.text_columns import valid_texts
from omnigraph.engine.rows.lines import Limits

DELIMITERS = (",", ";", "\t", "|")
_QUOTED = re.compile(rb'"[^"]*"')
_LINES = 20
_SNIFFED_BYTES = 2**16
_DATE_FORMATS = ("%d.%m.%Y", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%Y%m%d")
_DAY = "day"
_DAYS = "[0-3]?[0-9]"
_NAMES = ".+?"
_DIRECTIVES = {
    "Y": "[0-9]{4}",
    "j": "[0-9]{1,3}",
    **dict.fromkeys("de", _DAYS),
    **dict.fromkeys("bBp", _NAMES),
}
_ISO = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"


def read_dialect(item: Item, entry: MappingEntry) -> Dialect:
    """How a CSV file is written: as the mapping says, else with a delimiter that is guessed."""
    dialect = Dialect(
        entry.delimiter or DELIMITERS[0],
        entry.nulls,
        entry.multiline,
        has_names=not entry.header,
        date_format=entry.date_format,
    )
    if entry.delimiter is not None:
        return dialect
    with open_text(item) as stream:
        found = sniff_delimiter(stream.read(_SNIFFED_BYTES).removeprefix(BYTE_ORDER_MARK))
    if found == dialect.delimiter:
        return dialect
    return replace(dialect, delimiter=found, guessed=(f"delimiter {found!r}",))


def guess_date_format(item: Item, columns: Sequence[str]) -> Item:
    """The item with the format of its dates, if they are not ISO 8601 and one other fits all of them."""
    assert item.mapping is not None
    if not columns:
        return item
    block = next(csv_blocks(item, Limits(), size=_SNIFFED_BYTES), None)
    if block is None:
        return item
    texts = pa.concat_arrays([valid_texts(block.columns.column(name))[0].drop_null() for name in columns])
    if not len(texts) or pc.any(pc.match_substring_regex(texts, _ISO)).as_py():
        return item
    fitting = [each for each in _DATE_FORMATS if not parse_moments(texts, each).null_count]
    if len(fitting) != 1:
        return item  # none, or the day and the month cannot be distinguished
    dialect = item.mapping.dialect
    known = replace(dialect, date_format=fitting[0], guessed=(*dialect.guessed, f"dates as {fitting[0]}"))
    return replace(item, mapping=replace(item.mapping, dialect=known))


def parse_moments(texts: pa.Array, date_format: str) -> pa.Array:
    """Moments written in a format; null where a text is not."""
    found = pc.strptime(texts, format=date_format, unit="s", error_is_null=True)
    # `strptime` takes 31.02. for a day in March, and 24 for a year of the first century.
    read = pc.extract_regex(texts, _to_pattern(date_format))
    right = read.is_valid()
    if read.type.get_field_index(_DAY) >= 0:
        right = pc.and_(right, pc.equal(pc.struct_field(read, _DAY).cast(pa.int64()), pc.day(found)))
    return pc.if_else(right, found, pa.scalar(None, found.type))


@cache
def _to_pattern(date_format: str) -> str:
    """A regular expression for the texts of a format, with a group for the day of the month, if any."""
    parts = [_part_pattern(part) for part in re.split(r"(%.|\s+)", date_format)]
    pattern = "".join(parts).replace(_DAYS, f"(?P<{_DAY}>{_DAYS})", 1)
    return f"^(?P<text>{pattern})$"


def _part_pattern(part: str) -> str:
    if part.isspace():
        return r"\s*"
    if not part.startswith("%") or part == "%%":
        return re.escape(part[:1] if part == "%%" else part)
    return r"\s*" + _DIRECTIVES.get(part[1], "[0-9]{1,2}")


def sniff_delimiter(data: bytes) -> str:
    """The character between fields: a comma, unless the first line has none and another one occurs in it.

    Of several others the one counts that occurs in later lines as often as in the first.
    """
    lines = [line for line in _QUOTED.sub(b"", data).split(b"\n")[:_LINES] if line.strip()]
    if not lines or b"," in lines[0]:
        return DELIMITERS[0]
    counts = {each: [line.count(each.encode()) for line in lines] for each in DELIMITERS[1:]}
    present = {each: found for each, found in counts.items() if found[0]}
    regular = [each for each, found in present.items() if len(set(found)) == 1]
    return next(iter(regular or present), DELIMITERS[0])
