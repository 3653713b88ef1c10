"""Migrations that are interrupted, or run by several at once, end like one that was left alone."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import errors, failpoints
from omnigraph.engine.graph import migrations
from omnigraph.engine.graph.coordinator import open_manifest
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.location import Location
from tests.engine.graphs import bare_publish, require_consistent, run
from tests.engine.old_graphs import (
    OldGraph,
    kinds,
    manifest_schema,
    open_again,
    require_migrated,
    small_graph,
    stored_stamp,
)
from tests.python_process import PIPE, Python

OPEN = """
import sys
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
print("ready", flush=True)
sys.stdin.readline()
OpenGraph.open(Root.at(Location.parse(sys.argv[1])))
"""
MIGRATE_WITHOUT_LOCK = """
import sys
from omnigraph.engine.graph.coordinator import open_manifest
from omnigraph.engine.graph.migrations import migrate_branch
from omnigraph.engine.graph.root import Root
from omnigraph.errors import StorageFailure
from omnigraph.storage.location import Location
root = Root.at(Location.parse(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
while True:
    try:
        migrate_branch(root, "main", open_manifest(root, "main"))
        break
    except StorageFailure as failure:
        if failure.kind != "Contention":
            raise
"""


# --- interrupted ---------------------------------------------------------------------------------


EFFECTS = ("commit", "delete", "delete_prefix", "merge_rows")


class Killed(BaseException):
    """Ends a migration before one of its effects."""


class KillAt:
    """An observer that ends the work before its n-th effect on the manifest."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, op: str, uri: str, /) -> None:
        if op in EFFECTS:
            if self.left == 0:
                raise Killed(op)
            self.left -= 1


def test_migration_killed_before_any_of_its_effects_is_finished_by_the_next(tmp_path: Path) -> None:
    kills = 0
    while True:
        at = Location.parse(tmp_path / str(kills))
        old = small_graph(at)
        try:
            migrations.migrate_main(Root.at(at, KillAt(kills)))
        except Killed:
            kills += 1
        else:
            break
        assert open_again(at, read_only=True).load(MAIN).state.commits == old.history(MAIN)
        graph = open_again(at)
        require_migrated(old)
        assert graph.load(MAIN).state.commits == old.history(MAIN)
        assert graph.branch_names() == [MAIN, "work"]
    effects = ["key", "stamp 2", "swept branch", "its files", "stamp 3", "commits", "stamp 4"]
    assert kills == len(effects)


def test_publish_killed_while_it_migrates_a_branch_is_finished_by_the_next(tmp_path: Path) -> None:
    kills = 0
    while True:
        at = Location.parse(tmp_path / str(kills))
        old = small_graph(at)
        open_again(at)
        try:
            graph = OpenGraph(Root.at(at, KillAt(kills)), read_only=False)
            bare_publish(graph.coordinator("work"), actor="killed")
        except Killed:
            kills += 1
        else:
            break
        known = open_again(at, read_only=True).load("work").state.commits
        made = bare_publish(open_again(at).coordinator("work")).commit
        require_migrated(old, "work")
        found = open_again(at).load("work").state.commits
        assert found == {**known, made.id: made}
        assert known == old.history("work")
    assert kills == len(["key", "stamp 2", "stamp 3", "commits", "stamp 4", "publish"])


@pytest.mark.crash
@pytest.mark.parametrize(
    ("point", "copied"),
    [
        (failpoints.MIGRATION_V3_TO_V4_LEGACY_OPEN, False),
        (failpoints.MIGRATION_V4_STAMP_FORCE_INCOMPATIBLE, True),
    ],
)
def test_process_that_dies_before_the_stamp_loses_nothing(folder: Location, point: str, copied: bool) -> None:
    old = small_graph(folder)
    died = run(OPEN, str(folder), **{failpoints.SETTING: f"{point}=exit"})
    assert died.returncode == failpoints.EXIT_STATUS, died.stderr
    assert stored_stamp(old) == "3"
    assert (kinds(old.stored("__manifest").to_table())["graph_commit"] > 0) == copied
    for read_only in (True, False):
        assert open_again(folder, read_only=read_only).load(MAIN).state.commits == old.history(MAIN)
    require_migrated(old)


# --- several at once -----------------------------------------------------------------------------


@contextmanager
def waiting(code: str, at: Location, count: int) -> Iterator[list[Python]]:
    """Processes that stand right before their work."""
    processes = [
        Python(
            "-c",
            code,
            str(at),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, "OMNIGRAPH_LOCK_WAIT": "60"},
        )
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_processes_that_open_at_once_end_with_one_history(shared_root: Location) -> None:
    require_one_history_after(OPEN, shared_root)


def test_processes_that_migrate_without_a_lock_end_with_one_history(folder: Location) -> None:
    require_one_history_after(MIGRATE_WITHOUT_LOCK, folder)


def require_one_history_after(code: str, at: Location) -> None:
    old = small_graph(at)
    with waiting(code, at, 2) as processes:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outcomes = [process.communicate() for process in processes]
        assert [process.returncode for process in processes] == [0, 0], outcomes
    require_migrated(old)
    assert kinds(old.stored("__manifest").to_table())["graph_commit"] == len(old.history(MAIN))
    graph = open_again(at)
    assert graph.load(MAIN).state.commits == old.history(MAIN)
    assert graph.branch_names() == [MAIN, "work"]


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize(
    "point", [failpoints.MIGRATION_V3_TO_V4_LEGACY_OPEN, failpoints.MIGRATION_V4_STAMP_FORCE_INCOMPATIBLE]
)
def test_runner_that_wakes_up_after_another_one_finished_changes_nothing(
    folder: Location, point: str, stable: bool
) -> None:
    old = OldGraph(folder, 3, stable_row_ids=stable)
    old.commit(actor="ann")
    root, pause = Root.at(folder), failpoints.Pause()
    failed: list[BaseException] = []

    def sleepy() -> None:
        try:
            migrations.migrate_branch(root, MAIN, open_manifest(root, MAIN))
        except BaseException as error:  # noqa: BLE001 - reported to the test below
            failed.append(error)

    with failpoints.arm(point, failpoints.once(pause)):
        runner = threading.Thread(target=sleepy)
        runner.start()
        pause.wait_until_reached()
        graph = open_again(folder)
        made = bare_publish(graph.coordinator(MAIN)).commit
        pause.resume()
        runner.join()
    assert failed == []
    require_migrated(old)
    state = open_again(folder).load(MAIN).state
    assert state.commits == {**old.history(MAIN), made.id: made}
    require_consistent(state)


def failing_lists(count: int, kind: TableFailureKind) -> Callable[[str, str], None]:
    """An observer in whose way the first lists of branches fail."""
    left = iter(range(count))

    def observe(op: str, uri: str, /) -> None:
        if op == "list_tags" and next(left, None) is not None:
            raise table_failure(kind, op, uri, "a branch vanished")

    return observe


def test_run_that_vanishes_while_branches_are_listed_is_no_failure(folder: Location) -> None:
    old = small_graph(folder)
    vanished: list[str] = []

    def vanish(op: str, uri: str, /) -> None:
        if op == "read_bytes_versioned" and "__run__" in uri and not vanished:
            Path(uri).unlink()
            vanished.append(uri)

    migrations.migrate_main(Root.at(folder, vanish))
    assert vanished
    require_migrated(old)
    assert open_again(folder).branch_names() == [MAIN, "work"]


def test_list_of_branches_that_fails_stops_the_sweep(folder: Location) -> None:
    old = small_graph(folder)
    with pytest.raises(errors.StorageFailure, match="a branch vanished"):
        migrations.migrate_main(Root.at(folder, failing_lists(1, TableFailureKind.TRANSIENT)))
    assert stored_stamp(old) == "2"
    assert "__run__01" in open_again(folder, read_only=True).branch_names()


def rival_head(at: Location, branch: str | None = None) -> Callable[[], None]:
    """Somebody who rewrites the head row, and so gets in the way of every copy of the commits."""
    uri = str(at / "__manifest") + (f"/tree/{branch}" if branch else "")
    row = {"object_id": f"graph_head:{branch or MAIN}", "object_type": "graph_head", "table_key": ""}

    def act() -> None:
        metadata = json.dumps({"head_commit_id": os.urandom(4).hex()})
        rows = pa.Table.from_pylist([{**row, "metadata": metadata}], schema=manifest_schema(None))
        builder = lance.dataset(uri).merge_insert("object_id").when_matched_update_all()
        builder.when_not_matched_insert_all().execute(rows)

    return act


def times(count: int, action: Callable[[], None]) -> Callable[[], None]:
    """An action that acts only so often."""
    left = iter(range(count))

    def act() -> None:
        if next(left, None) is not None:
            action()

    return act


def test_copy_that_keeps_losing_gives_up_typed_and_can_be_repeated(folder: Location) -> None:
    old = small_graph(folder)
    with (
        failpoints.arm(failpoints.MIGRATION_V3_TO_V4_LEGACY_OPEN, rival_head(folder)),
        pytest.raises(errors.PublishContention) as refused,
    ):
        open_again(folder)
    assert refused.value.retryable
    assert stored_stamp(old) == "3"
    graph = open_again(folder)
    require_migrated(old)
    assert graph.load(MAIN).state.commits == old.history(MAIN)
    require_consistent(graph.load(MAIN).state)


def test_copy_that_loses_once_is_repeated(folder: Location) -> None:
    old = small_graph(folder)
    with failpoints.arm(failpoints.MIGRATION_V3_TO_V4_LEGACY_OPEN, times(2, rival_head(folder))):
        open_again(folder)
    require_migrated(old)


def test_publish_tries_a_contended_migration_again(folder: Location) -> None:
    old = small_graph(folder)
    graph = open_again(folder)
    # A read, five lost copies of two opens each, and the read of the next attempt: all meet the rival.
    with failpoints.arm(failpoints.MIGRATION_V3_TO_V4_LEGACY_OPEN, times(14, rival_head(folder, "work"))):
        made = bare_publish(graph.coordinator("work")).commit
    require_migrated(old, "work")
    assert open_again(folder).load("work").state.commits == {**old.history("work"), made.id: made}


def test_stamp_that_keeps_losing_gives_up_typed_and_can_be_repeated(folder: Location) -> None:
    old = small_graph(folder)
    attempts = []

    def lose() -> None:
        attempts.append(1)
        raise table_failure(TableFailureKind.CONFLICT, "commit", str(folder), "Incompatible transaction")

    with (
        failpoints.arm(failpoints.MIGRATION_V4_STAMP_FORCE_INCOMPATIBLE, lose),
        pytest.raises(errors.PublishContention),
    ):
        open_again(folder)
    assert len(attempts) == migrations.ATTEMPTS
    assert stored_stamp(old) == "3"
    open_again(folder)
    require_migrated(old)


def test_stamp_survives_a_concurrent_change_of_settings(folder: Location) -> None:
    old = small_graph(folder)

    def rival() -> None:
        lance.dataset(str(folder / "__manifest")).update_schema_metadata({"somebody": os.urandom(4).hex()})

    with failpoints.arm(failpoints.MIGRATION_V4_STAMP_FORCE_INCOMPATIBLE, times(3, rival)):
        open_again(folder)
    require_migrated(old)
