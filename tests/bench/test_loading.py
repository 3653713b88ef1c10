"""Loads are measured on files that say the same, with the memory of all processes that take part."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.loading import data
from bench.loading.memory import watch_memory
from bench.loading.plain import Engine

PERSONS, FOLLOWS = 40, 200
MEGABYTE = 2**20


def test_edges_end_at_persons_that_are_there_and_no_person_follows_themselves() -> None:
    folder = data.parquet(PERSONS, FOLLOWS)
    numbers = set(pq.read_table(folder / "Person.parquet")["number"].to_pylist())
    edges = pq.read_table(folder / "Follows.parquet")
    assert len(numbers) == PERSONS
    assert len(edges) == FOLLOWS
    assert set(edges["from"].to_pylist()) | set(edges["to"].to_pylist()) <= numbers
    assert not pc.any(pc.equal(edges["from"], edges["to"])).as_py()


def test_rows_that_are_ready_have_the_ids_that_a_graph_would_store() -> None:
    tables = data.ready(data.parquet(PERSONS, FOLLOWS))
    ids = set(tables["Person"]["id"].to_pylist())
    assert {"0", str(PERSONS - 1)} <= ids
    assert set(tables["Follows"]["src"].to_pylist()) <= ids
    assert len(set(tables["Follows"]["id"].to_pylist())) == FOLLOWS


def test_lines_are_records_of_both_types() -> None:
    lines = data.ndjson(PERSONS, FOLLOWS).read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert Counter("edge" if "edge" in one else one["type"] for one in records) == {
        "Person": PERSONS,
        "edge": FOLLOWS,
    }
    assert [one["data"]["number"] for one in records[:PERSONS]] == list(range(PERSONS))
    ends = {one[end] for one in records[PERSONS:] for end in ("from", "to")}
    assert ends <= {str(number) for number in range(PERSONS)}


def test_edges_with_ids_have_each_id_once_over_all_files() -> None:
    files = sorted(data.edges(PERSONS, FOLLOWS).iterdir())
    assert len(files) > 1
    ids = [one for file in files for one in pq.read_table(file)["id"].to_pylist()]
    assert len(set(ids)) == len(ids) == FOLLOWS


def test_the_script_stores_every_line(tmp_path: Path) -> None:
    seconds, rows = Engine(tmp_path).load(data.ndjson(PERSONS, FOLLOWS))
    assert rows == PERSONS + FOLLOWS
    assert seconds > 0


def test_memory_is_that_of_a_process_and_of_those_it_started() -> None:
    with watch_memory() as alone:
        pass
    hold = "import sys; held = bytearray(b'x') * (100 * 2**20); print('held', flush=True); sys.stdin.read()"
    with (
        watch_memory() as peak,
        subprocess.Popen(
            [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "held\n"
        peak.look()
        child.stdin.close()
    assert peak.total >= alone.total + 100 * MEGABYTE
    # A JVM of other tests may be about; what the child holds is not its.
    assert peak.python >= alone.python + 100 * MEGABYTE
