from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.errors import (
    AlreadyInitialized,
    CompileError,
    GraphNotFound,
    InitializationClaimed,
    InitializationCommitted,
    InitializationIndeterminate,
    InternalError,
    OmnigraphError,
    PlaceNotEmpty,
    StorageFailure,
    WriterBusy,
)
from omnigraph.storage.location import Location
from tests.engine.graphs import SCHEMA, append_people, bare_publish, new_graph, run, schema_of, tree
from tests.python_process import PIPE, Python

AFTER_SOURCE = failpoints.INIT_AFTER_SCHEMA_PG_WRITTEN
AFTER_SCHEMA = failpoints.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN
ACK_LOST = failpoints.INIT_MANIFEST_CREATE_ACK_LOST
AFTER_GRAPH = failpoints.INIT_AFTER_COORDINATOR_INIT

SCHEMA_FILES = {"_schema.pg", "_schema.ir.json", "__schema_state.json"}
CLAIM = "__init_claim.json"


def files(at: Location) -> set[str]:
    """What is in the root, except the lock of an initialisation."""
    return {found.name for found in at.path.iterdir()} - {"__locks"} if at.path.exists() else set()


def require_whole(at: Location, types: int = 3) -> None:
    """The graph is complete: it opens in both modes, shows its tables, and takes writes."""
    assert len(OpenGraph.open(Root.at(at), read_only=True).load("main").state.entries()) == types
    graph = OpenGraph.open(Root.at(at))
    state = graph.load("main").state
    assert len(state.commits) == 1
    for entry in state.entries().values():
        assert graph.root.tables.open(graph.root.layout.table(entry.path), entry.version).count() == 0
    bare_publish(graph.coordinator("main"))


class Store:
    """An observer that acts when a storage call begins: raises, or plays another process."""

    def __init__(self, action: Callable[[str, str], None]) -> None:
        self.action = action

    def __call__(self, op: str, uri: str, /) -> None:
        self.action(op, uri)


def failing(*calls: tuple[str, str]) -> Store:
    """A store that fails these operations on objects whose address ends so."""

    def fail(op: str, uri: str) -> None:
        if any(op == failing_op and uri.endswith(end) for failing_op, end in calls):
            raise StorageFailure(f"{op} of {uri} failed", kind="Transient", uri=uri)

    return Store(fail)


# --- the plain cases -------------------------------------------------------------------------------


@pytest.mark.parametrize("types", [1, 30])
def test_a_graph_of_any_number_of_types_is_whole(folder: Location, types: int) -> None:
    create_graph(Root.at(folder), schema_of(types))
    require_whole(folder, types)


@pytest.mark.s3
def test_a_graph_in_a_bucket_is_whole(s3_root: Location) -> None:
    create_graph(Root.at(s3_root), SCHEMA)
    require_whole(s3_root)
    with pytest.raises(AlreadyInitialized):
        create_graph(Root.at(s3_root), SCHEMA)


def test_the_claim_is_gone_when_all_is_done(graph: OpenGraph, folder: Location) -> None:
    assert CLAIM not in files(folder)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("names", [["notes.txt"], ["nodes/Person.csv"], ["data/"], ["Makefile", "_own.py"]])
def test_a_folder_with_other_files_is_refused_and_stays_as_it_is(
    folder: Location, names: list[str], force: bool
) -> None:
    folder.path.mkdir()
    for name in names:
        at = folder.path / name
        (at if name.endswith("/") else at.parent).mkdir(exist_ok=True)
        if not name.endswith("/"):
            at.write_text("mine")
    before = sorted(folder.path.rglob("*"))
    with pytest.raises(PlaceNotEmpty) as refused:
        create_graph(Root.at(folder), SCHEMA, force=force)
    assert refused.value.found == tuple(sorted(name.rstrip("/") for name in names))
    assert sorted(folder.path.rglob("*")) == before


def test_of_many_files_a_few_are_named(folder: Location) -> None:
    folder.path.mkdir()
    for number in range(9):
        (folder.path / f"file{number}\x1b").touch()
    with pytest.raises(PlaceNotEmpty, match=r"'file4.*' and 4 more") as refused:
        create_graph(Root.at(folder), SCHEMA)
    assert "\x1b" not in str(refused.value)


def test_hidden_files_do_not_matter_and_stay(folder: Location) -> None:
    (folder.path / ".git").mkdir(parents=True)
    (folder.path / ".gitignore").write_text("mine")
    create_graph(Root.at(folder), SCHEMA)
    require_whole(folder)
    assert (folder.path / ".gitignore").read_text() == "mine"


def test_a_prefix_of_a_bucket_with_other_objects_is_refused(s3_root: Location) -> None:
    root = Root.at(s3_root)
    root.objects.write_text(s3_root / "people.csv", "mine")
    root.objects.write_text(s3_root / "raw/more.csv", "mine")
    with pytest.raises(PlaceNotEmpty) as refused:
        create_graph(root, SCHEMA)
    assert refused.value.found == ("people.csv", "raw")
    with pytest.raises(PlaceNotEmpty):
        create_graph(Root.at(s3_root / "raw"), SCHEMA)
    create_graph(Root.at(s3_root / "graph"), SCHEMA)


@pytest.mark.parametrize("source", ["", "node {", "node A { x: Nothing }", "edge E: A -> B"])
def test_a_schema_that_does_not_compile_leaves_no_trace(folder: Location, source: str) -> None:
    if source:
        with pytest.raises(CompileError):
            create_graph(Root.at(folder), source)
        assert not folder.path.exists()
    else:
        create_graph(Root.at(folder), source)
        require_whole(folder, 0)


@pytest.mark.parametrize("force", [False, True])
def test_a_graph_is_never_made_over_another(folder: Location, force: bool) -> None:
    append_people(new_graph(folder), "ada")
    before = tree(folder.path)
    with pytest.raises(AlreadyInitialized) as caught:
        create_graph(Root.at(folder), schema_of(2), force=force)
    assert caught.value.uri == folder.uri
    assert tree(folder.path) == before


def test_force_does_not_finish_off_a_damaged_graph(folder: Location) -> None:
    append_people(new_graph(folder), "ada")
    for file in (folder.path / "__manifest" / "_versions").iterdir():
        file.unlink()
    before = tree(folder.path)
    with pytest.raises(AlreadyInitialized):
        create_graph(Root.at(folder), SCHEMA, force=True)
    assert tree(folder.path) == before


@pytest.mark.parametrize("name", sorted(SCHEMA_FILES))
def test_an_orphan_schema_file_needs_force(folder: Location, name: str) -> None:
    folder.path.mkdir()
    (folder.path / name).write_text("old")
    with pytest.raises(AlreadyInitialized) as caught:
        create_graph(Root.at(folder), SCHEMA)
    assert name in caught.value.found
    assert "--force" in (caught.value.remedy or "")
    assert files(folder) == {name}
    create_graph(Root.at(folder), SCHEMA, force=True)
    require_whole(folder)


def test_a_claim_that_was_left_behind_needs_force(folder: Location) -> None:
    folder.path.mkdir()
    (folder.path / CLAIM).write_text("{}")
    with pytest.raises(InitializationClaimed) as caught:
        create_graph(Root.at(folder), SCHEMA)
    assert "--force" in (caught.value.remedy or "")
    assert files(folder) == {CLAIM}
    create_graph(Root.at(folder), SCHEMA, force=True)
    require_whole(folder)
    assert CLAIM not in files(folder)


def test_an_initialisation_keeps_others_out(folder: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "0")
    pause = failpoints.Pause()
    with ThreadPoolExecutor(1) as pool, failpoints.arm(AFTER_SCHEMA, pause):
        first = pool.submit(create_graph, Root.at(folder), SCHEMA)
        pause.wait_until_reached()
        try:
            with pytest.raises((AlreadyInitialized, WriterBusy)):
                create_graph(Root.at(folder), SCHEMA)
            with pytest.raises(WriterBusy):
                create_graph(Root.at(folder), SCHEMA, force=True)
        finally:
            pause.resume()
        first.result()
    require_whole(folder)


# --- crashes ---------------------------------------------------------------------------------------

_CHILD = """
import sys
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
create_graph(Root.at(Location.parse(sys.argv[1])), sys.argv[2], force="force" in sys.argv)
"""


@pytest.mark.crash
@pytest.mark.parametrize("point", [AFTER_SOURCE, AFTER_SCHEMA])
def test_a_crash_before_the_first_table_leaves_no_graph_and_force_starts_over(
    folder: Location, point: str
) -> None:
    died = run(_CHILD, folder.uri, SCHEMA, OMNIGRAPH_FAILPOINTS=f"{point}=exit")
    assert died.returncode == failpoints.EXIT_STATUS, died.stderr
    with pytest.raises(GraphNotFound, match="did not finish"):
        OpenGraph.open(Root.at(folder))
    with pytest.raises(AlreadyInitialized, match="unfinished"):
        create_graph(Root.at(folder), SCHEMA)
    create_graph(Root.at(folder), schema_of(5), force=True)
    require_whole(folder, 5)


@pytest.mark.crash
@pytest.mark.parametrize("point", [ACK_LOST, AFTER_GRAPH])
def test_a_crash_after_the_manifest_leaves_a_whole_graph(folder: Location, point: str) -> None:
    died = run(_CHILD, folder.uri, SCHEMA, OMNIGRAPH_FAILPOINTS=f"{point}=exit")
    assert died.returncode == failpoints.EXIT_STATUS, died.stderr
    for force in (False, True):
        with pytest.raises(AlreadyInitialized):
            create_graph(Root.at(folder), SCHEMA, force=force)
    require_whole(folder)


@pytest.mark.parametrize("residue", ["table", "manifest"])
def test_files_of_a_dataset_whose_creation_was_cut_short_are_no_graph(folder: Location, residue: str) -> None:
    with failpoints.arm(AFTER_SOURCE, failpoints.error(AFTER_SOURCE)), pytest.raises(InternalError):
        create_graph(Root.at(folder), SCHEMA)
    (folder.path / "_schema.pg").write_text(SCHEMA)
    data = folder.path / {"table": "nodes/40d76f1f51639ec0", "manifest": "__manifest"}[residue] / "data"
    data.mkdir(parents=True)
    (data / "0101.lance").write_bytes(b"half a file")
    with pytest.raises(GraphNotFound, match="did not finish"):
        OpenGraph.open(Root.at(folder), read_only=True)
    with pytest.raises(AlreadyInitialized, match="unfinished"):
        create_graph(Root.at(folder), SCHEMA)
    create_graph(Root.at(folder), SCHEMA, force=True)
    require_whole(folder)
    assert not (data / "0101.lance").exists()


# --- failures that are reported --------------------------------------------------------------------


@pytest.mark.parametrize("point", [AFTER_SOURCE, AFTER_SCHEMA])
def test_a_failure_before_the_first_table_takes_everything_back(folder: Location, point: str) -> None:
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(InternalError, match="injected"):
        create_graph(Root.at(folder), SCHEMA)
    assert {name.split("/")[0] for name, body in tree(folder.path).items() if body is not None} <= {"__locks"}
    create_graph(Root.at(folder), SCHEMA)
    require_whole(folder)


@pytest.mark.parametrize("name", ["_schema.ir.json", "__schema_state.json"])
def test_a_store_that_refuses_a_schema_file_gets_everything_back(folder: Location, name: str) -> None:
    with pytest.raises(StorageFailure, match=name):
        create_graph(Root.at(folder, failing(("write_text", name))), SCHEMA)
    assert not SCHEMA_FILES & files(folder)
    assert CLAIM not in files(folder)
    create_graph(Root.at(folder), SCHEMA)
    require_whole(folder)


def test_a_store_that_lets_nothing_be_taken_back_reports_what_failed_first(folder: Location) -> None:
    down = failing(("write_text", "_schema.ir.json"), ("delete", "_schema.pg"))
    with pytest.raises(StorageFailure, match=r"write_text of .*_schema\.ir\.json failed"):
        create_graph(Root.at(folder, down), SCHEMA)
    create_graph(Root.at(folder), SCHEMA, force=True)
    require_whole(folder)


def test_a_schema_that_appears_from_elsewhere_is_not_touched(folder: Location) -> None:
    def rival(op: str, uri: str) -> None:
        if op == "write_text_if_absent" and uri.endswith("_schema.pg"):
            (folder.path / "_schema.pg").write_text("theirs")

    with pytest.raises(AlreadyInitialized):
        create_graph(Root.at(folder, Store(rival)), SCHEMA)
    assert files(folder) == {"_schema.pg"}
    assert (folder.path / "_schema.pg").read_text() == "theirs"


@pytest.mark.parametrize("name", sorted(SCHEMA_FILES))
def test_a_forced_start_that_fails_over_tables_of_an_earlier_one_still_asks_for_force(
    folder: Location, name: str
) -> None:
    with pytest.raises(StorageFailure):
        create_graph(Root.at(folder, failing(("create", "__manifest"))), SCHEMA)
    with pytest.raises(StorageFailure, match=name):
        create_graph(Root.at(folder, failing(("write_text", name))), SCHEMA, force=True)
    with pytest.raises((AlreadyInitialized, InitializationClaimed)) as refused:
        create_graph(Root.at(folder), SCHEMA)
    assert "--force" in (refused.value.remedy or "")
    create_graph(Root.at(folder), SCHEMA, force=True)
    require_whole(folder)


def test_a_table_that_cannot_be_made_leaves_no_graph_and_force_starts_over(folder: Location) -> None:
    with pytest.raises(StorageFailure, match=r"create of .*602a25a3bd0b455b failed"):
        create_graph(Root.at(folder, failing(("create", "edges/602a25a3bd0b455b"))), SCHEMA)
    assert CLAIM not in files(folder)
    assert files(folder) > SCHEMA_FILES, "from the first table on nothing is undone"
    with pytest.raises(GraphNotFound, match="did not finish"):
        OpenGraph.open(Root.at(folder))
    create_graph(Root.at(folder), SCHEMA, force=True)
    require_whole(folder)


def test_a_lost_answer_to_the_manifest_is_a_success(folder: Location) -> None:
    with failpoints.arm(ACK_LOST, failpoints.error(ACK_LOST)):
        create_graph(Root.at(folder), SCHEMA)
    assert CLAIM not in files(folder)
    require_whole(folder)
    config = Root.at(folder).tables.tip(folder / "__manifest").config
    assert config == {"table_version_management": "true"}


def test_a_lost_answer_to_the_claim_is_recognised_as_ones_own(folder: Location) -> None:
    claim = json.dumps({"claim": "me", "created_at": 7})

    def answer_lost(op: str, uri: str) -> None:
        if op == "write_text_if_absent" and uri.endswith(CLAIM):
            (folder.path / CLAIM).write_text(claim)

    ids = iter(["me", "01GENESIS"])
    root = replace(Root.at(folder, Store(answer_lost)), clock=lambda: 7, new_id=ids.__next__)
    create_graph(root, SCHEMA)
    require_whole(folder)


@pytest.mark.parametrize("point", [AFTER_GRAPH])
def test_a_failure_after_the_manifest_says_that_the_graph_is_there(folder: Location, point: str) -> None:
    with (
        failpoints.arm(point, failpoints.error(point)),
        pytest.raises(InitializationCommitted, match="injected") as caught,
    ):
        create_graph(Root.at(folder), SCHEMA)
    assert caught.value.uri == folder.uri
    require_whole(folder)
    assert CLAIM not in files(folder)


def test_a_claim_that_cannot_be_removed_does_not_hide_that_the_graph_is_there(folder: Location) -> None:
    with pytest.raises(InitializationCommitted):
        create_graph(Root.at(folder, failing(("delete", CLAIM))), SCHEMA)
    require_whole(folder)


def test_when_the_outcome_is_unknown_the_claim_stays(folder: Location) -> None:
    down = failing(("open", "__manifest"))
    with (
        failpoints.arm(ACK_LOST, failpoints.error(ACK_LOST)),
        pytest.raises(InitializationIndeterminate) as caught,
    ):
        create_graph(Root.at(folder, down), SCHEMA)
    assert caught.value.uri == folder.uri
    assert CLAIM in files(folder)
    require_whole(folder)


def test_when_the_outcome_is_unknown_and_there_is_no_graph_force_starts_over(folder: Location) -> None:
    down = failing(("create", "__manifest"), ("open", "__manifest"))
    with pytest.raises(InitializationIndeterminate):
        create_graph(Root.at(folder, down), SCHEMA)
    assert CLAIM in files(folder)
    with pytest.raises(GraphNotFound, match="did not finish"):
        OpenGraph.open(Root.at(folder))
    create_graph(Root.at(folder), SCHEMA, force=True)
    require_whole(folder)


# --- two at once -----------------------------------------------------------------------------------


def outcome(at: Location, schema: str, start: threading.Barrier) -> OmnigraphError | None:
    root = Root.at(at)
    start.wait()
    try:
        create_graph(root, schema)
    except OmnigraphError as error:
        return error
    return None


@pytest.mark.parametrize("place", ["folder", pytest.param("s3", marks=pytest.mark.s3)])
def test_of_many_that_initialise_at_once_exactly_one_makes_the_graph(
    place: str, folder: Location, request: pytest.FixtureRequest
) -> None:
    at = folder if place == "folder" else request.getfixturevalue("s3_root")
    start = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda n: outcome(at, schema_of(n), start), range(1, 5)))
    assert ended.count(None) == 1
    refused = [error for error in ended if error is not None]
    assert {type(error) for error in refused} <= {AlreadyInitialized, InitializationClaimed, WriterBusy}
    require_whole(at, types=1 + ended.index(None))


_RACER = """
import sys
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.graph.root import Root
from omnigraph.errors import OmnigraphError
from omnigraph.storage.location import Location
root = Root.at(Location.parse(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
try:
    create_graph(root, sys.argv[2])
    print("made")
except OmnigraphError as error:
    print(error.code)
"""


@pytest.mark.crash
def test_of_many_processes_exactly_one_makes_the_graph(folder: Location) -> None:
    with ExitStack() as stack:
        racers = [
            stack.enter_context(Python("-c", _RACER, folder.uri, schema_of(n), stdin=PIPE, stdout=PIPE))
            for n in range(1, 4)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        ended = [racer.communicate("go\n")[0].strip() for racer in racers]
    assert ended.count("made") == 1
    assert set(ended) <= {"made", "already_initialized", "initialization_claimed", "writer_busy"}
    require_whole(folder, types=1 + ended.index("made"))


# --- no room ---------------------------------------------------------------------------------------

_CRAMPED = """
import json, resource, sys
from pathlib import Path
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.graph.root import Root
from omnigraph.errors import OmnigraphError
from omnigraph.storage.location import Location
folder, schema = Path(sys.argv[1]), sys.argv[2]
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for limit in map(int, sys.argv[3:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        create_graph(Root.at(Location.parse(folder / str(limit))), schema)
        ended = "made"
    except OmnigraphError as error:
        ended = error.code
    print(json.dumps([limit, ended]), flush=True)
"""

LIMITS = ["0", "700", "1000", "1500", "2500", "3500", "100000"]


@pytest.mark.crash
def test_a_disk_without_room_is_reported_wherever_it_runs_out(tmp_path: Path) -> None:
    done = run(_CRAMPED, str(tmp_path), SCHEMA, *LIMITS)
    ended = dict(json.loads(line) for line in done.stdout.splitlines())
    assert len(ended) == len(LIMITS), done.stderr
    assert ended[0] == "storage_failure"
    assert ended[100000] == "made"
    assert set(ended.values()) <= {"storage_failure", "initialization_committed", "made"}
    assert list(ended.values()).count("storage_failure") > 2
    for limit, end in ended.items():
        at = Location.parse(tmp_path / str(limit))
        if end == "storage_failure":
            with pytest.raises(GraphNotFound):
                OpenGraph.open(Root.at(at))
            create_graph(Root.at(at), SCHEMA, force=True)
        require_whole(at)
