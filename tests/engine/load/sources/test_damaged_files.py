"""Files of columns with flipped bits: rows, refused rows or a typed error; never a crash or other memory."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omnigraph.engine.load.sources.columnar import validate_batch
from omnigraph.engine.load.sources.item_reader import read_item
from omnigraph.engine.load.sources.plan import plan_items
from omnigraph.engine.rows.row_builder import LoadReader
from omnigraph.errors import BadRequest, OmnigraphError
from tests.engine.load.sources.support import SCHEMA, person_table
from tests.engine.write.support import IDS, accept_schema

ACCEPTED = accept_schema(SCHEMA)
READER = LoadReader(ACCEPTED, IDS)


def _people() -> pa.Table:
    people = person_table()
    return pa.concat_tables(
        people.set_column(0, "handle", pa.array([f"{name}{turn}" for name in people["handle"].to_pylist()]))
        for turn in range(5)
    ).combine_chunks()


def _ipc(new: Callable[..., pa.RecordBatchWriter], rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with new(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


@cache
def _file(kind: str) -> bytes:
    rows, sink = _people(), io.BytesIO()
    match kind:
        case "file.arrow":
            return _ipc(pa.ipc.new_file, rows)
        case "stream.arrow":
            return _ipc(pa.ipc.new_stream, rows)
        case "dictionary.arrow":
            return _ipc(pa.ipc.new_file, rows.set_column(1, "name", rows["name"].dictionary_encode()))
        case "packed.feather":
            feather.write_feather(rows, sink, compression="lz4")
        case "packed.parquet":
            pq.write_table(rows, sink)
        case "plain.parquet":
            pq.write_table(rows, sink, use_dictionary=False, compression="none")
    return sink.getvalue()


def _read(file: Path) -> tuple[int, int]:
    """How many rows are taken, and how many refused."""
    taken, refused = 0, set[tuple[int, int | None]]()
    for item in plan_items([file], ACCEPTED.catalog, cores=1):
        for found in read_item(item, READER):
            taken += sum(shaped.count for shaped in found.shaped)
            refused |= {(item.number, violation.line) for violation in found.violations}
    return taken, len(refused)


KINDS = [
    "file.arrow",
    "stream.arrow",
    "dictionary.arrow",
    "packed.feather",
    "packed.parquet",
    "plain.parquet",
]


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(places=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=3))
@example(places=[])
def test_flipped_bits_give_rows_or_a_typed_error(kind: str, places: list[float], tmp_path: Path) -> None:
    whole = _file(kind)
    damaged = bytearray(whole)
    for place in places:
        bit = int(place * len(damaged) * 8)
        damaged[bit // 8] ^= 1 << bit % 8
    file = tmp_path / f"Person.{kind.partition('.')[2]}"
    file.write_bytes(damaged)
    if bytes(damaged) == whole:
        assert _read(file) == (20, 0)
        return
    try:
        _read(file)
    except OmnigraphError as refused:
        named = str(file) in refused.message
        assert named


def test_damage_is_reported_with_its_file_and_column(tmp_path: Path) -> None:
    offsets = pa.array([0, 900, 1], pa.int32()).buffers()[1]
    tags = pa.Array.from_buffers(pa.list_(pa.string()), 2, [None, offsets], children=[pa.array(["x"])])
    rows = pa.table({"handle": ["ada", "bo"], "tags": tags})
    (tmp_path / "Person.arrow").write_bytes(_ipc(pa.ipc.new_file, rows))
    with pytest.raises(
        BadRequest, match=r"cannot read '.*Person\.arrow': column 'tags' is damaged"
    ) as refused:
        _read(tmp_path / "Person.arrow")
    assert refused.value.remedy == "check the file"


@pytest.mark.parametrize("column", ["name", "photo", "born"])
def test_a_text_that_is_not_utf8_costs_its_row_only(column: str, tmp_path: Path) -> None:
    texts = pa.concat_arrays([pa.array([b"\xff"]).view(pa.string()), pa.nulls(1, pa.string())])
    rows = pa.table({"handle": ["ada", "bo"], column: texts})
    (tmp_path / "Person.arrow").write_bytes(_ipc(pa.ipc.new_file, rows))
    assert _read(tmp_path / "Person.arrow") == (1, 1)


def test_a_text_that_is_not_utf8_hides_no_other_damage() -> None:
    validate_batch(pa.record_batch({"a": pa.array([b"\xff"]).view(pa.string())}))
    offsets = pa.array([0, 1, 900, 2], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"\xffb")])
    inside = pa.Array.from_buffers(
        pa.list_(pa.string()), 1, [None, pa.array([0, 3], pa.int32()).buffers()[1]], children=[broken]
    )
    for column in (broken, inside):
        with pytest.raises(pa.ArrowInvalid, match="column 'a' is damaged"):
            validate_batch(pa.record_batch({"a": column}))


def test_a_stream_that_ends_before_its_file_is_refused(tmp_path: Path) -> None:
    stream = _file("stream.arrow")
    (tmp_path / "Person.arrow").write_bytes(stream + stream)
    with pytest.raises(BadRequest, match=f"the stream ends at byte {len(stream)} of {2 * len(stream)}"):
        _read(tmp_path / "Person.arrow")
