"""What one warm write stores and asks for, counted: the files it makes, the records it keeps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from omnigraph.engine.initialise import initialise
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.root import Root
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder

SCHEMA = "node Person { handle: String @key }\nnode Log { msg: String }\n"
ONE = 'insert Log { msg: "a" }'
TWO = 'insert Log { msg: "a" }  insert Person { handle: "p" }'
PUTS = {"write_text", "write_text_if_absent", "write_text_if_match"}


class Warm:
    """A graph that has been written to before, and what the next write does."""

    def __init__(self, at: Path) -> None:
        self.folder = at
        self.recorder = Recorder()
        root = Root.at(Location.parse(at), self.recorder)
        initialise(root, SCHEMA)
        self.graph = OpenGraph.open(root)
        for _ in range(3):
            self.write(TWO)

    def write(self, text: str) -> tuple[Counter[str], int]:
        """The storage calls of a write, and how many files it left in the tables and the manifest."""
        compiled = compile_query(f"query q() {{ {text} }}", self.graph.schema().catalog)
        assert isinstance(compiled, CompiledMutation)
        before = self._files()
        self.recorder.clear()
        mutate(self.graph, compiled, {}, Author("main"))
        return self.recorder.counts(), len(self._files() - before)

    def _files(self) -> set[Path]:
        return {path for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    return Warm(tmp_path_factory.mktemp("costs") / "g")


@pytest.mark.parametrize(("text", "tables"), [(ONE, 1), (TWO, 2)])
def test_a_write_puts_few_objects_and_deletes_one(warm: Warm, text: str, tables: int) -> None:
    calls, files = warm.write(text)
    records = sum(calls[op] for op in PUTS)
    assert records == 2, "the record of the operation, written and confirmed"
    assert files + records <= 6 + 4 * tables
    assert calls["delete"] == 1
    assert calls["list_dir"] == 2, "only the records of writes under way are listed"


@pytest.mark.parametrize(("text", "tables"), [(ONE, 1), (TWO, 2)])
def test_a_write_touches_each_table_and_the_manifest_once(warm: Warm, text: str, tables: int) -> None:
    calls, _ = warm.write(text)
    assert calls["commit"] == tables
    assert calls["merge_rows"] == 1


def test_costs_do_not_grow_with_history(warm: Warm) -> None:
    first, _ = warm.write(ONE)
    for _ in range(10):
        warm.write(ONE)
    later, _ = warm.write(ONE)
    assert later == first
