"""Many threads that write to one branch all get their turn."""

from __future__ import annotations

import threading
from pathlib import Path

from omnigraph import failpoints
from omnigraph.engine.initialise import initialise
from omnigraph.engine.lineage import first_parents
from omnigraph.engine.opened import AtBranch, OpenGraph
from omnigraph.engine.pinned import open_table
from omnigraph.engine.root import Root
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.load import LoadRequest, load
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage.location import Location

THREADS, EACH = 12, 4


def test_no_writer_of_disjoint_keys_starves(tmp_path: Path) -> None:
    root = Root.at(Location.parse(tmp_path / "g"))
    initialise(root, "node P { k: String @key }")
    graph = OpenGraph.open(root)
    compiled = compile_query("query q($k: String) { insert P { k: $k } }", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    start = threading.Barrier(THREADS)
    acknowledged: list[str] = []

    def work(number: int) -> None:
        start.wait()
        for turn in range(EACH):
            done = mutate(graph, compiled, {"k": f"{number}-{turn}"}, Author("main"))
            assert done.commit is not None
            acknowledged.append(done.commit.id)

    crew = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()

    state = graph.load("main").state
    assert state.head is not None
    chain = [commit.id for commit in first_parents(state.commits, state.head.id)]
    assert len(chain) == len(state.commits) == 1 + THREADS * EACH
    assert sorted(chain[:-1]) == sorted(acknowledged)
    assert open_table(graph, graph.snapshot(AtBranch()), "node:P").count() == THREADS * EACH


def test_a_load_that_is_overtaken_reads_its_files_once(tmp_path: Path) -> None:
    root = Root.at(Location.parse(tmp_path / "g"))
    initialise(root, "node P { k: String @key }")
    graph = OpenGraph.open(root)
    compiled = compile_query("query q($k: String) { insert P { k: $k } }", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    records = tmp_path / "p.jsonl"
    records.write_text('{"type":"P","data":{"k":"mine"}}\n', encoding="utf-8")
    read: list[int] = []

    def overtake() -> None:
        mutate(OpenGraph.open(root), compiled, {"k": "faster"}, Author("main"))

    request = LoadRequest((records,), Mode.APPEND, progress=lambda size, lines: read.append(lines))
    with failpoints.armed(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE, failpoints.once(overtake)):
        done = load(graph, request, Author("main"))

    assert done.nodes == {"P": 1}
    assert read == [1]
    rows = open_table(graph, graph.snapshot(AtBranch()), "node:P").scan(["k"])
    assert sorted(rows.column("k").to_pylist()) == ["faster", "mine"]
