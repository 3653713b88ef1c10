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
from omnigraph.engine.load.buckets import key_hash
from omnigraph.engine.load.job import LoadJob
from omnigraph.engine.load.prints import RANGES, Prints, all_differ, keep_prints
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.load.run import Engine, load
from omnigraph.engine.load.runner import LocalRunner
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import KeyConflict, LoadRejected
from tests.engine.write.support import IDS, accepted

SCHEMA = """
node Person { slug: String @key }
edge Knows: Person -> Person { }
"""


class _Buckets(LocalRunner):
    """Counts how often rows have to meet in buckets."""

    def __init__(self) -> None:
        self.met = 0

    def grouped(self, *args: Any, **options: Any) -> Iterator[Any]:
        self.met += 1
        return super().grouped(*args, **options)


def _loaded(graph: omnigraph.Graph, folder: Path, records: list[dict[str, Any]], mode: Mode) -> int:
    """How often the rows of a load met in buckets."""
    file = folder / "records.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    runner = _Buckets()
    load(
        graph._writing(),
        LoadRequest((file,), mode),
        Author("main"),
        engine=lambda _: Engine(runner, "asked for"),
    )
    return runner.met


def _people(first: int, last: int) -> list[dict[str, Any]]:
    return [{"type": "Person", "data": {"slug": f"p{at}"}} for at in range(first, last)]


def _edge(source: str, target: str, name: str) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": name}}


@pytest.mark.parametrize("mode", list(Mode))
def test_the_rows_of_a_load_that_is_right_need_not_meet(tmp_path: Path, mode: Mode) -> None:
    with omnigraph.init(tmp_path / "graph", schema=SCHEMA) as graph:
        assert _loaded(graph, tmp_path, _people(0, 20), Mode.APPEND) == 0
        new = [*_people(20, 30), _edge("p20", "p21", "e1"), _edge("p25", "p29", "e2")]
        assert _loaded(graph, tmp_path, new, mode) == 0
        if mode is not Mode.OVERWRITE:
            assert _loaded(graph, tmp_path, [_edge("p1", "p25", "e3")], mode) == 0


def test_what_is_wrong_is_found_where_rows_meet(tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "graph", schema=SCHEMA) as graph:
        _loaded(graph, tmp_path, [*_people(0, 20), _edge("p1", "p2", "e1")], Mode.APPEND)
        with pytest.raises(KeyConflict, match="p3"):
            _loaded(graph, tmp_path, _people(3, 4), Mode.APPEND)
        with pytest.raises(KeyConflict, match="e1"):
            _loaded(graph, tmp_path, [_edge("p1", "p2", "e1")], Mode.APPEND)
        with pytest.raises(LoadRejected, match="p7"):
            _loaded(graph, tmp_path, [*_people(7, 8), *_people(7, 8)], Mode.MERGE)
        with pytest.raises(LoadRejected, match="dst 'p99' not found in Person"):
            _loaded(graph, tmp_path, [_edge("p1", "p99", "e2")], Mode.APPEND)
        # These people are to be all there are.
        with pytest.raises(LoadRejected, match="src 'p1' not found in Person"):
            _loaded(graph, tmp_path, [*_people(5, 9), _edge("p1", "p5", "e2")], Mode.OVERWRITE)


def test_equal_hashes_are_found_wherever_they_are(tmp_path: Path) -> None:
    job = LoadJob(str(tmp_path), accepted(SCHEMA), IDS, "waiting", 100)
    hashes = key_hash(pa.array([f"id-{at}" for at in range(5000)]))

    def kept(name: str, *parts: Any) -> Prints:
        return keep_prints(job, name, [np.asarray(part, np.uint64) for part in parts])

    files = [kept("a", hashes[:100], hashes[100:2000]), kept("b", hashes[2000:]), kept("none", hashes[:0])]
    assert [one.count for one in files] == [2000, 3000, 0]
    assert all_differ(job, files, 0, RANGES)
    for again in (0, 1999, 2000, 4999):
        more = [*files, kept("again", hashes[again : again + 1])]
        at = int(hashes[again] >> np.uint64(56))
        assert not all_differ(job, more, 0, RANGES)
        assert not all_differ(job, more, at, at + 1)
        assert all_differ(job, more, 0, at)
        assert all_differ(job, more, at + 1, RANGES)
