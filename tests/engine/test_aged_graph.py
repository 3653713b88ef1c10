"""A graph without upkeep for a thousand commits costs what a new one costs.

`OMNIGRAPH_UPDATE_GOLDEN=1` writes the counts of this run into `aged_costs.json`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.graph.manifest import TableVersion
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup
from omnigraph.engine.upkeep import manifest_upkeep as upkeep
from omnigraph.engine.upkeep.after_write import WrittenTables, run_table_upkeep
from omnigraph.engine.upkeep.manifest_upkeep import FRAGMENT_LIMIT, run_manifest_upkeep
from omnigraph.engine.upkeep.table_rewrite import TIERS
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.objects import Recorder
from omnigraph.storage.staging import commit_staged, stage_append
from tests.engine.crash.world import change
from tests.engine.upkeep_graph import DOC, LOG, commits_of, docs_graph, log, table_of

THROUGH_THE_DOOR = bool(os.environ.get("OMNIGRAPH_TORTURE"))
COMMITS, BRANCHES = 1_000, 20
GOLDEN = Path(__file__).with_name("aged_costs.json")

Counts = dict[str, int]


# --- growing old ---------------------------------------------------------------------------------


def add_logs(graph: OpenGraph, times: int) -> None:
    """So many commits of one row, each looked after as a write does."""
    if THROUGH_THE_DOOR:
        log(graph, times)
        return
    with graph.root.locks.hold(["main"]) as held:
        for _ in range(times):
            _add_log(graph, held)


def _add_log(graph: OpenGraph, held: HeldLocks) -> None:
    """What a write does to tables and manifest, without what it checks and records: a fifth of the time."""
    main, table = graph.coordinator("main"), table_of(graph, LOG)
    identifier = graph.root.new_id()
    landed = commit_staged(
        stage_append(table, pa.table({"id": [identifier], "msg": ["x"]}, schema=table.schema))
    )
    version = TableVersion(LOG, landed.version, None, landed.count())
    done = publish(
        main, ManifestChanges(versions=(version,)), NewCommit(graph.root.new_id()), base=main.load()
    )
    run_table_upkeep(graph, "main", done.loaded.state, held, WrittenTables({LOG: landed}, {LOG: 1}))
    run_manifest_upkeep(main, done)


def grow_graph(at: Location, commits: int) -> OpenGraph:
    """A graph with so many commits, and branches made all along."""
    graph = docs_graph(at)
    change(graph, 'insert Doc { slug: "d" }')
    for number in range(BRANCHES):
        add_logs(graph, commits // BRANCHES)
        create_branch(graph, f"b{number}")
        log(graph, 1, f"b{number}")
    return graph


# --- what things cost ----------------------------------------------------------------------------


def read_main(graph: OpenGraph) -> None:
    open_table(graph, graph.snapshot(AtBranch()), LOG).count("msg = 'x'")


def read_branch(graph: OpenGraph) -> None:
    open_table(graph, graph.snapshot(AtBranch("b7")), LOG).count("msg = 'x'")


def read_past(graph: OpenGraph) -> None:
    commits = commits_of(graph)
    open_table(graph, graph.snapshot(AtCommit(commits[len(commits) // 2].id)), LOG).count("msg = 'x'")


def write_main(graph: OpenGraph) -> None:
    log(graph)


def write_two_tables(graph: OpenGraph) -> None:
    change(graph, 'insert Log { msg: "x" }  update Doc set { score: 1 } where slug = "d"')


def write_branch(graph: OpenGraph) -> None:
    log(graph, 1, "b7")


def first_touch(graph: OpenGraph) -> None:
    change(graph, 'update Doc set { score: 2 } where slug = "d"', "b8")


def make_branch(graph: OpenGraph) -> None:
    create_branch(graph, "new")


OPERATIONS: tuple[Callable[[OpenGraph], None], ...] = (
    read_main,
    read_branch,
    read_past,
    write_main,
    write_two_tables,
    write_branch,
    first_touch,
    make_branch,
)


ONCE = (first_touch, make_branch)
"""Operations that are another one the second time."""


def measure_calls(at: Location) -> dict[str, Counts]:
    """The storage calls of every operation, warm; of writes in a row one may look after something."""
    recorder = Recorder()
    graph = OpenGraph.open(Root.at(at, recorder))
    found = {}
    for operation in OPERATIONS:
        tries = [_calls(operation, graph, recorder) for _ in range(1 if operation in ONCE else 4)]
        found[operation.__name__] = dict(sorted(min(tries[-3:], key=Counter.total).items()))
    return found


def _calls(operation: Callable[[OpenGraph], None], graph: OpenGraph, recorder: Recorder) -> Counter[str]:
    recorder.clear()
    operation(graph)
    return recorder.counts()


def reads_of(graph: OpenGraph) -> Counter[str]:
    """Requests inside Lance for a complete scan and for finding a row to replace, of tables opened again."""
    found: Counter[str] = Counter()
    for key in (LOG, DOC):
        entry = graph.load("main").state.entries()[key]
        table = Root.at(graph.root.layout.root).tables.tip(graph.root.layout.table(entry.path))
        table.native.io_stats_incremental()
        table.scan()
        found[key] = table.native.io_stats_incremental().read_iops
    return found


def golden() -> dict[str, Counts]:
    found: dict[str, Counts] = json.loads(GOLDEN.read_text())
    return found


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OpenGraph]:
    """A graph that is new and one that is old, with the same branches."""
    folder = Location.parse(tmp_path_factory.mktemp("aged"))
    with pytest.MonkeyPatch.context() as patch:
        # Old versions of the manifest go once they are many; here they are seconds old.
        patch.setenv(upkeep.SETTING, "0")
        return {
            "new": grow_graph(folder / "new", BRANCHES),
            "old": grow_graph(folder / "old", COMMITS),
        }


def test_reads_and_writes_of_an_old_graph_cost_what_those_of_a_new_one_cost(
    graphs: dict[str, OpenGraph],
) -> None:
    assert len(commits_of(graphs["old"])) >= COMMITS
    new, old = (measure_calls(graphs[name].root.layout.root) for name in ("new", "old"))
    if os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(new, indent=2) + "\n")
    assert old == new
    assert new == golden(), "record it with OMNIGRAPH_UPDATE_GOLDEN=1 if that is meant"


def test_what_it_is_stored_in_stays_small_by_itself(graphs: dict[str, OpenGraph]) -> None:
    old = graphs["old"]
    assert table_of(old, LOG).fragment_count <= TIERS[-1].spare
    assert len(old.load("main").table.versions()) < COMMITS // 2
    assert old.load("main").table.fragment_count <= FRAGMENT_LIMIT + 1
    # A request or two for each fragment, of which an old table may have a few more.
    assert reads_of(old)[LOG] <= reads_of(graphs["new"])[LOG] + 2 * TIERS[-1].spare


def test_a_cleanup_leaves_as_few_versions_as_a_new_graph_has(graphs: dict[str, OpenGraph]) -> None:
    old = graphs["old"]
    assert len(table_of(old, LOG).versions()) > COMMITS
    done = cleanup(old, CleanupPolicy.of(1, None, 0.0))
    assert done.ok
    # Its newest, and those where branches began.
    assert len(table_of(old, LOG).versions()) <= BRANCHES + 3
    assert len(table_of(graphs["new"], LOG).versions()) >= BRANCHES
    log(old)
    log(old, 1, "b3")
