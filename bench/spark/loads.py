"""Loads on Spark beside Spark itself, with more executors, with wrong rows, and as merges of a few."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import omnigraph as og
from bench.loading import data
from bench.loading.memory import watch_memory
from bench.made import make_once

BAD_SHARE = CHANGED_SHARE = 100
"""One row in so many."""
OURS, COPY = "omnigraph", "Spark copies Parquet with the same checks"

_numbers = count()


def copy(place: Path, persons: int, edges: int, rounds: int, master: str) -> Mapping[str, Any]:
    """A load of edges, and Spark's copy of the same files with the same checks in SQL."""
    spark = _session(master)
    files = data.persons(persons), data.edges(persons, edges)
    with watch_memory() as peak:
        load_edges(place, *files)
    copy_with_checks(spark, place, *files)
    parties = {
        OURS: lambda: load_edges(place, *files),
        COPY: lambda: copy_with_checks(spark, place, *files),
    }
    times = _in_turns(parties, rounds)
    ratio = _median(times[OURS]) / _median(times[COPY])
    return {"edges": edges, "seconds": times, "memory": peak.to_json(), "ratio": ratio, "target": 0.9}


def executors(persons: int, edges: int, rounds: int) -> Mapping[str, Any]:
    """A load on two executors of one core each, and on one; each in a process of its own."""
    data.persons(persons)
    data.edges(persons, edges)

    def load_on(number: int) -> float:
        master = f"local-cluster[{number},1,1024]"
        return float(_apart("executor", edges=edges, persons=persons, master=master)["seconds"])

    parties = {str(number): partial(load_on, number) for number in (1, 2)}
    times = _in_turns(parties, rounds)
    ratio = _median(times["2"]) / _median(times["1"])
    return {"edges": edges, "seconds by executors": times, "ratio": ratio, "target": 0.6}


def one_load(place: Path, persons: int, edges: int, master: str) -> Mapping[str, Any]:
    """The seconds of a load on a Spark of its own, when that is warm."""
    _session(master)
    files = data.persons(persons), data.edges(persons, edges)
    load_edges(place, data.persons(100), data.edges(100, 1_000))
    return {"seconds": load_edges(place, *files)}


def skip_bad(place: Path, persons: int, edges: int, rounds: int, master: str) -> Mapping[str, Any]:
    """A load that skips 1 % of its rows, whose ends are missing, and one of the same rows without these."""
    _session(master)
    known, clean = data.persons(persons), data.edges(persons, edges)
    bad = _with_bad_rows(persons, edges)
    parties: dict[str, Callable[[], float]] = {
        "clean": lambda: load_edges(place, known, clean),
        "with bad rows": lambda: load_edges(place, known, bad, skip_bad=True, rows=edges),
    }
    for load in parties.values():
        load()
    times = _in_turns(parties, rounds)
    ratio = _median(times["with bad rows"]) / _median(times["clean"])
    return {"edges": edges, "bad": edges // BAD_SHARE, "seconds": times, "ratio": ratio, "target": 1.3}


def merge(place: Path, persons: int, rounds: int, master: str) -> Mapping[str, Any]:
    """A merge of 1 % of the rows, half of them new, and the load of all."""
    _session(master)
    files, changed = data.persons(persons), _changed_persons(persons)
    # The first load starts processes and compiles, whatever its size.
    load_edges(place, data.persons(100), data.edges(100, 1_000))
    times: dict[str, list[float]] = {"load": [], "merge": []}
    for _ in range(rounds):
        at = place / f"graph-{next(_numbers)}"
        with og.init(at, schema=data.SCHEMA) as graph:
            times["load"].append(_seconds(partial(graph.load, files, mode="append", engine="spark")))
            times["merge"].append(_seconds(partial(graph.load, changed, mode="merge", engine="spark")))
            new = persons // CHANGED_SHARE - persons // CHANGED_SHARE // 2
            assert graph.snapshot().tables["node:Person"].rows == persons + new
        shutil.rmtree(at)
    ratio = _median(times["merge"]) / _median(times["load"])
    return {"persons": persons, "seconds": times, "ratio": ratio, "target": 0.3}


def load_edges(
    place: Path, persons: Path, edges: Path, *, skip_bad: bool = False, rows: int | None = None
) -> float:
    """The seconds of a load of edges onto a new branch of a graph that has their persons."""
    at = place / f"graph-{next(_numbers)}"
    with og.init(at, schema=data.SCHEMA) as graph:
        graph.load(persons, mode="append", engine="local")
        begun = time.perf_counter()
        done = graph.load(
            edges, mode="append", branch="work", from_="main", engine="spark", skip_bad=skip_bad
        )
        took = time.perf_counter() - begun
        assert rows is None or done.total == rows, "all rows but the wrong ones must be there"
    shutil.rmtree(at)
    return took


def copy_with_checks(spark: Any, place: Path, persons: Path, edges: Path) -> float:
    """The seconds in which Spark copies the files, and proves ids unique and ends to be there in SQL."""
    at = place / f"copy-{next(_numbers)}"
    begun = time.perf_counter()
    spark.read.parquet(str(edges)).write.parquet(str(at))
    spark.read.parquet(str(at)).createOrReplaceTempView("edges")
    spark.read.parquet(str(persons)).selectExpr("cast(number as string) as id").createOrReplaceTempView(
        "known"
    )
    twice = "select id from edges group by id having count(*) > 1 limit 1"
    ends = "select `from` as id from edges union all select `to` from edges"
    missing = f"select 1 from ({ends}) e left anti join known k on e.id = k.id limit 1"
    assert not spark.sql(twice).collect()
    assert not spark.sql(missing).collect()
    took = time.perf_counter() - begun
    shutil.rmtree(at)
    return took


def _with_bad_rows(persons: int, edges: int) -> Path:
    """The edges of `data.edges` with further ones that end where nothing is, spread over all files.

    The others keep their order: ids in another order take longer to store and to index.
    """

    def make(folder: Path) -> None:
        folder.mkdir()
        random = np.random.default_rng(data.SEED)
        for file in sorted(data.edges(persons, edges).glob("*.parquet")):
            table = pq.read_table(file)
            wrong = table.slice(0, len(table) // BAD_SHARE)
            wrong = wrong.set_column(0, "id", pc.binary_join_element_wise("bad-", wrong["id"], ""))
            wrong = wrong.set_column(2, "to", pa.array(["nowhere"] * len(wrong)))
            mixed = pa.concat_tables([table, wrong])
            places = np.concatenate([np.arange(len(table)), random.uniform(0, len(table), len(wrong))])
            rows = mixed.take(pa.array(np.argsort(places, kind="stable")))
            pq.write_table(rows, folder / file.name, row_group_size=250_000)

    return make_once(f"bulk-{data.SEED}-{persons}-{edges}-bad-in-order/Follows", make)


def _changed_persons(persons: int) -> Path:
    """A file of 1 % of the persons, half of them new, the others from all over with another age."""
    few = persons // CHANGED_SHARE

    def make(folder: Path) -> None:
        folder.mkdir()
        known = np.linspace(0, persons - 1, few // 2, dtype=np.int64)
        numbers = np.concatenate([known, np.arange(persons, persons + few - few // 2)])
        table = pa.table(
            {
                "number": numbers,
                "name": pc.binary_join_element_wise("Changed ", pc.cast(pa.array(numbers), pa.string()), ""),
                "age": np.full(len(numbers), 91),
                "score": np.zeros(len(numbers)),
                "active": np.ones(len(numbers), bool),
            }
        )
        pq.write_table(table, folder / "Person.parquet")

    return make_once(f"bulk-{data.SEED}-changed-{persons}", make)


def _session(master: str) -> Any:
    from omnigraph.pipeline.session import session

    return session(master)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _in_turns(parties: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in parties}
    for turn in range(rounds):
        names = list(parties)
        for name in names if turn % 2 == 0 else reversed(names):
            times[name].append(parties[name]())
    return times


def _apart(figure: str, **options: object) -> Any:
    """The result of another figure, from a process of its own."""
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark", figure, *given], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def _median(times: list[float]) -> float:
    return statistics.median(times)
