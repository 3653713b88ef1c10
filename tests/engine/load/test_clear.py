"""A first look at a load shows that nothing is wrong with it, and never that something wrong is right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.load import id_files
from omnigraph.engine.load.id_files import (
    RANGES,
    BitmapBuilder,
    IdHashes,
    MarkedIds,
    find_shared_hashes,
    find_unmarked,
    read_union,
    write_id_hashes,
)
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.tasks.buckets import are_among, hash_keys
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import KeyConflict, LoadRejected
from tests.engine.write.support import IDS, accept_schema

SCHEMA = """
node Person { slug: String @key }
edge Knows: Person -> Person { }
"""
NUMBERED = """
node Person { number: I64 @key }
node Place { name: String @key }
edge Knows: Person -> Person { }
edge In: Person -> Place { }
"""


class _Buckets(LocalRunner):
    """Counts how often rows have to meet in buckets."""

    def __init__(self) -> None:
        self.met = 0
        self.rows = 0
        self.stages: list[str] = []

    def each(self, stage: str, items: Any, task: Any) -> Iterator[Any]:
        if items:
            self.stages.append(stage)
        return super().each(stage, items, task)

    def grouped(self, stage: str, items: Any, emit: Any, *args: Any, **options: Any) -> Iterator[Any]:
        def counted(item: Any) -> Iterator[Any]:
            for keyed in emit(item):
                self.rows += keyed.rows.num_rows
                yield keyed

        self.met += 1
        return super().grouped(stage, items, counted, *args, **options)


def _count_meetings(graph: omnigraph.Graph, folder: Path, records: list[dict[str, Any]], mode: Mode) -> int:
    """How often the rows of a load met in buckets."""
    return _run(graph, folder, records, mode).met


def _run(
    graph: omnigraph.Graph,
    folder: Path,
    records: list[dict[str, Any]],
    mode: Mode,
    *,
    skip_bad: bool = False,
) -> _Buckets:
    file = folder / "records.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    runner = _Buckets()
    load(
        graph._writing(),
        LoadRequest((file,), mode, skip_bad),
        Author("main"),
        engine=lambda _: Engine(runner, "asked for"),
    )
    return runner


def _people(first: int, last: int) -> list[dict[str, Any]]:
    return [{"type": "Person", "data": {"slug": f"p{at}"}} for at in range(first, last)]


def _edge(source: str, target: str, name: str) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": name}}


@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.MERGE, Mode.OVERWRITE])
def test_the_rows_of_a_load_that_is_right_need_not_meet(tmp_path: Path, mode: Mode) -> None:
    with omnigraph.init(tmp_path / "graph", schema=SCHEMA) as graph:
        assert _count_meetings(graph, tmp_path, _people(0, 20), Mode.APPEND) == 0
        new = [*_people(20, 30), _edge("p20", "p21", "e1"), _edge("p25", "p29", "e2")]
        assert _count_meetings(graph, tmp_path, new, mode) == 0
        if mode is not Mode.OVERWRITE:
            assert _count_meetings(graph, tmp_path, [_edge("p1", "p25", "e3")], mode) == 0


def test_what_is_wrong_is_found_where_rows_meet(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "graph", schema=SCHEMA) as graph:
        _count_meetings(graph, tmp_path, [*_people(0, 20), _edge("p1", "p2", "e1")], Mode.APPEND)
        with pytest.raises(KeyConflict, match="p3"):
            _count_meetings(graph, tmp_path, _people(3, 4), Mode.APPEND)
        with pytest.raises(KeyConflict, match="e1"):
            _count_meetings(graph, tmp_path, [_edge("p1", "p2", "e1")], Mode.APPEND)
        with pytest.raises(LoadRejected, match="p7"):
            _count_meetings(graph, tmp_path, [*_people(7, 8), *_people(7, 8)], Mode.MERGE)
        with pytest.raises(LoadRejected, match="dst 'p99' not found in Person"):
            _count_meetings(graph, tmp_path, [_edge("p1", "p99", "e2")], Mode.APPEND)
        # These people are to be all there are.
        with pytest.raises(LoadRejected, match="src 'p1' not found in Person"):
            _count_meetings(graph, tmp_path, [*_people(5, 9), _edge("p1", "p5", "e2")], Mode.OVERWRITE)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is much for this process, so that nothing of the checks is done by it."""
    monkeypatch.setattr("omnigraph.engine.load.checks.check_scope.FEW", 0)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", ["p{}", "{}"])
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.MERGE, Mode.OVERWRITE])
def test_few_bad_rows_do_not_make_the_others_meet(tmp_path: Path, mode: Mode, name: str) -> None:
    people = [{"type": "Person", "data": {"slug": name.format(at)}} for at in range(50)]
    edges = [_edge(name.format(at), name.format(at + 1), f"e{at}") for at in range(49)]
    lost = [_edge(name.format(3), "nowhere", "lost-1"), _edge("70", name.format(99), "lost-2")]
    with omnigraph.init(tmp_path / "graph", schema=SCHEMA) as graph:
        done = _run(graph, tmp_path, [*people, *edges, *lost], mode, skip_bad=True)
        assert (done.met, graph.snapshot().rows("Knows").num_rows) == (0, 49)
    # Of ids that are there twice only those rows meet.
    again = [*people, *edges, people[7], _edge(name.format(7), name.format(9), "e7")]
    with omnigraph.init(tmp_path / "other", schema=SCHEMA) as graph:
        done = _run(graph, tmp_path, again, mode, skip_bad=True)
        assert (done.met, done.rows) == (1, 4)
        assert [graph.snapshot().rows(name).num_rows for name in ("Person", "Knows")] == [50, 49]


def _number_records(*numbers: int) -> list[dict[str, Any]]:
    return [{"type": "Person", "data": {"number": number}} for number in numbers]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("mode", [Mode.APPEND, Mode.MERGE, Mode.OVERWRITE])
def test_no_row_is_read_again_where_ids_are_numbers(tmp_path: Path, mode: Mode) -> None:
    with omnigraph.init(tmp_path / "graph", schema=NUMBERED) as graph:
        first = [*_number_records(0, 7, 70_000), _edge("0", "70000", "1")]
        assert _run(graph, tmp_path, first, mode).stages == ["read"]
        more = [
            *_number_records(3),
            _edge("3", "3", "2"),
            *([] if mode is Mode.OVERWRITE else [_edge("3", "7", "3")]),
        ]
        done = _run(graph, tmp_path, more, mode)
        # Stored ones are looked at as far as they stay.
        assert set(done.stages) <= {"read", "stored ids"}
        assert ("stored ids" in done.stages) == (mode is not Mode.OVERWRITE)
        # Edges of another type stay when their nodes are replaced, and have to meet them.
        assert done.met == (mode is Mode.OVERWRITE)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("records", "stages"),
    [
        ([*_number_records(1, 2), _edge("1", "2", "1"), _edge("2", "1", "2")], ["read"]),
        ([*_number_records(1, 2), {"edge": "Knows", "from": "1", "to": "2"}], ["read"]),
        ([*_number_records(1, -2), _edge("1", "-2", "1")], ["read", "check"]),
        ([*_number_records(1, 1 << 24), _edge("1", str(1 << 24), "1")], ["read", "check"]),
        ([*_number_records(1, 2), _edge("1", "2", "e")], ["read", "check"]),
    ],
)
@pytest.mark.parametrize("texts", [0, 10])
def test_what_has_no_mark_is_looked_at_otherwise(
    tmp_path: Path,
    records: list[dict[str, Any]],
    stages: list[str],
    texts: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(id_files, "_FEW_TEXTS", texts)
    if texts:
        stages = ["read"]  # few texts are kept beside the bits
    with omnigraph.init(tmp_path / "graph", schema=NUMBERED) as graph:
        done = _run(graph, tmp_path, records, Mode.APPEND)
        assert done.stages == stages
        assert done.met == 0


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([*_number_records(4, 5, 4)], "4"),
        ([_edge("1", "07", "e")], "dst '07' not found in Person"),
        ([_edge("1", "0x1", "e")], "dst '0x1' not found in Person"),
        ([_edge("-1", "1", "e")], "src '-1' not found in Person"),
        ([*_number_records(8), _edge("8", "9", "e")], "dst '9' not found in Person"),
        ([_edge("1", "16777217", "e")], "dst '16777217' not found in Person"),
        ([{"edge": "In", "from": "1", "to": "1"}], "dst '1' not found in Place"),
    ],
)
def test_numbers_that_are_not_there_are_found_where_rows_meet(
    tmp_path: Path, records: list[dict[str, Any]], message: str
) -> None:
    with omnigraph.init(tmp_path / "graph", schema=NUMBERED) as graph:
        _run(graph, tmp_path, [*_number_records(0, 1, 7), _edge("1", "7", "3")], Mode.APPEND)
        with pytest.raises(LoadRejected, match=message):
            _run(graph, tmp_path, records, Mode.APPEND)
        for again in (_number_records(7), [_edge("1", "7", "3")]):
            with pytest.raises(KeyConflict):
                _run(graph, tmp_path, again, Mode.APPEND)


@pytest.mark.parametrize(
    ("some", "others"),
    [
        ([{"a", 1}], [{"a"}, {1}]),
        ([{"a", "07", 2**24}, {"b", 9}], [{"a", 7}, {9, 2**24}]),
        ([], []),
        ([{1}], []),
        ([{1, 2}, {2}], [{2}, {1, 3}]),
        ([{1, 2}, {2, 4}], [{2}, {1, 3}]),
        ([{5, 2**16}], [{5}]),
        ([{5}], [{5, 2**16}]),
        ([{5, 2**16 - 1}, {2**16, 9}], [{2**16 - 1}, {9, 2**16}, {5}]),
        ([{5, 2**16 + 7}], [{5, 2**16 + 6}]),
    ],
)
def test_marks_are_sets_of_ids(tmp_path: Path, some: list[set[Any]], others: list[set[Any]]) -> None:
    job = LoadJob(str(tmp_path), accept_schema(SCHEMA), IDS, "waiting", 100)

    def marks(name: str, parts: list[set[Any]]) -> MarkedIds:
        files = []
        for at, part in enumerate(parts):
            marking = BitmapBuilder()
            names = sorted(map(str, part))
            for texts in ([], names, names[:1], names[-1:]):
                marking.add(pa.array(texts, pa.string()))
            files.append(marking.write(job, f"{name}-{at}"))
        known = [one for one in files if one is not None]
        assert [one.count for one in known] == [len(part) for part in parts]
        return read_union(job, known)

    one, two = marks("some", some), marks("others", others)
    assert one.count == len(set().union(*some))
    lost = set().union(*some) - set().union(*others)
    assert sorted(find_unmarked(one, two).to_pylist()) == sorted(map(str, lost))


def test_equal_hashes_are_found_wherever_they_are(tmp_path: Path) -> None:
    job = LoadJob(str(tmp_path), accept_schema(SCHEMA), IDS, "waiting", 100)
    hashes = hash_keys(pa.array([f"id-{at}" for at in range(5000)]))

    def kept(name: str, *parts: Any) -> IdHashes:
        return write_id_hashes(job, name, [np.asarray(part, np.uint64) for part in parts])

    files = [kept("a", hashes[:100], hashes[100:2000]), kept("b", hashes[2000:]), kept("none", hashes[:0])]
    assert [one.count for one in files] == [2000, 3000, 0]
    assert _shared(job, files, 0, RANGES) == []
    for again in (0, 1999, 2000, 4999):
        more = [*files, kept("again", hashes[again : again + 1])]
        at = int(hashes[again] >> np.uint64(56))
        assert _shared(job, more, 0, RANGES) == [hashes[again]]
        assert _shared(job, more, at, at + 1) == [hashes[again]]
        assert _shared(job, more, 0, at) == []
        assert _shared(job, more, at + 1, RANGES) == []
    twice = [*files, kept("twice", hashes[:3])]
    assert _shared(job, twice, 0, RANGES) == sorted(hashes[:3])
    assert find_shared_hashes(job, twice, 0, RANGES, 3) is not None
    assert find_shared_hashes(job, twice, 0, RANGES, 2) is None


def _shared(job: LoadJob, files: list[IdHashes], first: int, last: int) -> list[Any]:
    found = find_shared_hashes(job, files, first, last)
    assert found is not None
    return sorted(found)


@pytest.mark.parametrize("count", [0, 1, 300])
def test_rows_with_one_of_some_hashes_are_found(count: int) -> None:
    hashes = hash_keys(pa.array([f"id-{at}" for at in range(5000)]))
    chosen = np.sort(hashes[:: 5000 // count][:count]) if count else hashes[:0]
    assert (are_among(hashes, chosen) == np.isin(hashes, chosen)).all()
