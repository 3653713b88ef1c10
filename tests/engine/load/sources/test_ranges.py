"""Lines are read once each, whatever the ranges and blocks they are read in."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.load.sources import line_ranges
from omnigraph.engine.load.sources.item import Format, Item
from omnigraph.engine.load.sources.line_ranges import line_blocks
from omnigraph.engine.rows.lines import Limits
from omnigraph.errors import BadRequest, ResourceLimitExceeded
from tests.engine.load.sources.support import plan, read, read_all
from tests.examples import EXAMPLES

GOOD = [
    json.dumps({"type": "Person", "data": {"handle": "ada", "age": 36}}),
    json.dumps({"type": "Note", "data": {"text": "é☃"}}, ensure_ascii=False),
    json.dumps({"edge": "Knows", "from": "ada", "to": "bo"}),
    "",
    "  \t",
]
BAD = [
    "{",
    json.dumps({"type": "Persn"}),
    json.dumps({"type": "Person", "data": {"handle": "x", "age": "old"}}),
    json.dumps({"type": "Person", "data": {"age": 1}}),
    json.dumps({"type": "Person", "data": {"handle": "line 1: no", "age": 999}}),
]


def _ranges(path: Path, cuts: list[int]) -> list[Item]:
    (whole,) = plan(path)
    bounds = [0, *sorted(cuts), whole.end]
    pairs = pairwise(bounds)
    return [replace(whole, begin=begin, end=end, number=number) for number, (begin, end) in enumerate(pairs)]


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_cut_at_any_byte_changes_nothing(end: bytes, tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_bytes("\r\n".join([GOOD[0], "", BAD[0], GOOD[1], BAD[1], GOOD[2], BAD[4]]).encode() + end)
    once = read(path)
    assert len(once.violations) == 3
    for cut in range(path.stat().st_size + 1):
        assert read_all(_ranges(path, [cut])) == once, cut


@pytest.mark.fuzz
@given(
    chosen=st.lists(st.sampled_from(GOOD + BAD), max_size=12),
    ends=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    data=st.data(),
)
@settings(max_examples=EXAMPLES // 2)
def test_any_ranges_give_the_same_rows_ids_and_violations(
    scratch: Path, chosen: list[str], ends: str, last: bool, data: st.DataObject
) -> None:
    path = scratch / "all.ndjson"
    path.write_bytes((ends.join(chosen) + (ends if last else "")).encode() or b"\n")
    size = path.stat().st_size
    cuts = data.draw(st.lists(st.integers(0, size), max_size=6))
    assert read_all(_ranges(path, cuts)) == read(path)


@pytest.mark.fuzz
@given(
    text=st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r\n"]), max_size=40).map(b"".join),
    size=st.integers(1, 12),
    data=st.data(),
)
@settings(max_examples=2 * EXAMPLES)
def test_blocks_of_a_range_are_its_whole_lines(
    scratch: Path, text: bytes, size: int, data: st.DataObject
) -> None:
    path = scratch / "t.ndjson"
    path.write_bytes(text)
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    item = Item(str(path), str(path), 0, 0, Format.NDJSON, begin, end, end - begin)
    starts = [0, *(at + 1 for at, byte in enumerate(text) if byte == 10)]
    wanted = [at for at in starts if begin <= at < end]
    blocks = list(line_blocks(item, Limits(), size=size))
    found = b"".join(block.data for block in blocks)
    assert found == b"".join(
        text[at:].split(b"\n")[0] + b"\n"[: len(text[at:].split(b"\n")) - 1] for at in wanted
    )
    for block in blocks:
        assert text[block.offset : block.offset + len(block.data)] == block.data
        assert block.offset in starts


def test_a_line_that_is_too_long_is_refused_without_reading_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "long.ndjson"
    path.write_bytes(b"x" * 5000 + b"\n")
    (item,) = plan(path)
    with pytest.raises(
        ResourceLimitExceeded, match="graph_batch_line_bytes: actual 1200, limit 1000"
    ) as caught:
        list(line_blocks(item, Limits(line_bytes=1000), size=600))
    assert caught.value.remedy == f"make the record smaller whose line begins at byte 0 of '{path}'"


@pytest.mark.parametrize(("name", "body"), [("a.ndjson.gz", b"no gzip"), ("a.ndjson.zst", b"nothing packed")])
def test_a_damaged_file_is_reported_by_name(name: str, body: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(body)
    with pytest.raises(BadRequest, match=f"cannot read '.*{name}'"):
        read(tmp_path / name)


def test_large_files_are_cut_for_the_cores_there_are(tmp_path: Path) -> None:
    path = tmp_path / "large.ndjson"
    with path.open("wb") as file:
        file.truncate(3 * 2**30)
    items = plan(path, cores=4)
    assert {item.size for item in items} == {3 * 2**30 // 16}
    assert [item.number for item in items] == list(range(16))
    assert all(one.end == two.begin for one, two in pairwise(items))
    assert max(item.size for item in plan(path, cores=1)) == 256 * 2**20
    # One for each of so many cores, which is a little less than 32 MB.
    assert len(plan(path, cores=100)) == 100


@pytest.mark.parametrize(
    ("size", "cores", "items"),
    [(347_341_636, 2, 8), (2**30 + 1, 2, 8), (16_700_104, 2, 2), (70 * 2**20, 8, 8), (7 * 2**20, 2, 1)],
)
def test_every_core_gets_as_many_items(size: int, cores: int, items: int, tmp_path: Path) -> None:
    path = tmp_path / "large.ndjson"
    with path.open("wb") as file:
        file.truncate(size)
    assert len(plan(path, cores=cores)) == items


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_small_file_of_very_many_blank_lines_is_read(packing: str, tmp_path: Path) -> None:
    path = tmp_path / f"blank.jsonl.{'gz' if packing == 'gzip' else 'zst'}"
    lines = b"\n" * 9_000_000 + GOOD[0].encode()
    path.write_bytes(pa.Codec(packing).compress(lines, asbytes=True))
    found = read(path)
    assert found.violations == []
    assert {key: len(rows) for key, rows in found.rows.items()} == {"node:Person": 1}


def test_a_file_that_unpacks_out_of_all_proportion_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_ranges, "UNPACKED_FREELY", 2**24)
    path = tmp_path / "bomb.jsonl.zst"
    path.write_bytes(pa.Codec("zstd").compress(b"\n" * 2**26, asbytes=True))
    with pytest.raises(ResourceLimitExceeded) as refused:
        read(path)
    assert (refused.value.resource, refused.value.limit) == (
        "load_unpacked_ratio",
        line_ranges.UNPACKED_RATIO,
    )
    assert "bomb.jsonl.zst" in (refused.value.remedy or "")
