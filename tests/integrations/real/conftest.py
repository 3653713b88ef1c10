"""A graph and a pipeline for tests with the real packages; `make integrations` installs and runs them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

import omnigraph as og

# They would fight with the packages of the other tests over versions.
collect_ignore_glob = [] if find_spec("dagster") else ["test_*.py"]

SCHEMA = "node Person { email: String @key  age: I32? }"
PIPELINE = """\
pipelines:
  people:
    source: {format: csv, path: people.csv, options: {header: "true"}}
    into:
      - graph: ./team
        map:
          version: 1
          nodes:
            - {type: Person, view: source, properties: {email: email, age: cast(age as int)}}
        mode: merge
    spark: {master: "local[1]"}
"""


@dataclass(frozen=True)
class Case:
    """A folder with a pipeline and its graph."""

    folder: Path

    @property
    def file(self) -> str:
        return str(self.folder / "people.yaml")

    @property
    def graph(self) -> str:
        return str(self.folder / "team")

    def break_input(self) -> None:
        """Make a row wrong: it has no key."""
        (self.folder / "people.csv").write_text("email,age\n,3\n")

    def ages(self) -> dict[str, int]:
        with og.open(self.graph, read_only=True) as graph:
            return {row["email"]: row["age"] for row in graph.snapshot().rows("Person").to_pylist()}

    def head(self) -> str:
        with og.open(self.graph, read_only=True) as graph:
            return graph.commits.list()[0].id


@pytest.fixture
def case(tmp_path: Path) -> Case:
    og.init(tmp_path / "team", schema=SCHEMA).close()
    (tmp_path / "people.csv").write_text("email,age\nada@x,36\nbo@x,41\n")
    (tmp_path / "people.yaml").write_text(PIPELINE)
    return Case(tmp_path)


@pytest.fixture(autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("OMNIGRAPH_JAVA", "bundled")
    monkeypatch.setenv("OMNIGRAPH_SPARK_START_CACHE", "off")
    monkeypatch.delenv("OMNIGRAPH_SPARK", raising=False)
