"""Omnigraph itself, in its own process or on Spark."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Literal

import omnigraph
from bench.loading.data import SCHEMA
from bench.loading.memory import watch_memory

VERSION = omnigraph.__version__
EngineName = Literal["local", "spark"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load took."""

    seconds: float
    rows: int
    stages: dict[str, float]
    memory: dict[str, int] = field(default_factory=dict)
    """Where it was watched, which takes time as well."""


class Engine:
    """Makes graphs, one for each load."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._numbers = count()

    def start(self, master: str) -> None:
        """Start Spark."""
        from omnigraph.pipeline.session import session

        os.environ["OMNIGRAPH_SPARK"] = master
        session(master)

    def stop(self) -> None:
        """End Spark."""
        from omnigraph.pipeline.session import session

        session().stop()

    def copy(self, folder: Path) -> float:
        """The seconds in which Spark by itself copies Parquet files as Parquet files."""
        from omnigraph.pipeline.session import session

        at = self._place / f"copy-{next(self._numbers)}"
        begun = time.perf_counter()
        session().read.parquet(str(folder)).write.parquet(str(at))
        return time.perf_counter() - begun

    def load(self, inputs: list[Path], engine: EngineName, commits: int = 0) -> Loaded:
        """Load into a graph that is new, or has so many commits behind it."""
        at = self._place / f"graph-{next(self._numbers)}"
        with omnigraph.init(at, schema=SCHEMA) as graph:
            _age(graph, commits)
            loaded = _load(graph, inputs, engine)
        shutil.rmtree(at)
        return loaded

    def load_edges(self, persons: Path, edges: Path, engine: EngineName, commits: int = 0) -> Loaded:
        """Load edges on a new branch of a graph that has their persons already; the graph goes afterwards."""
        at = self._place / f"graph-{next(self._numbers)}"
        with omnigraph.init(at, schema=SCHEMA) as graph:
            graph.load(persons, mode="append", engine="local")
            _age(graph, commits)
            before = len(graph.commits.list())
            with watch_memory() as peak:
                loaded = _load(graph, [edges], engine, branch="work")
            after = len(graph.commits.list("work"))
            assert after == before + 1, "a load is one commit"
        shutil.rmtree(at)
        return replace(loaded, memory=peak.to_json())


def _age(graph: omnigraph.Graph, commits: int) -> None:
    """Persons with numbers that no file has, one commit each."""
    for number in range(-commits, 0):
        with graph.write() as tx:
            tx.insert("Person", number=number, name="Earlier", age=1, score=0.5, active=False)


def _load(graph: omnigraph.Graph, inputs: list[Path], engine: EngineName, branch: str = "main") -> Loaded:
    before = None if branch == "main" else "main"
    begun = time.perf_counter()
    done = graph.load(inputs, mode="append", branch=branch, from_=before, engine=engine)
    took = time.perf_counter() - begun
    assert done.engine is not None
    stages = {stage.name: stage.seconds for stage in done.engine.stages}
    return Loaded(took, done.total, stages)
