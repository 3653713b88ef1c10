"""What is kept of a fork is kept for one life of it, and of few branches."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.storage import session
from omnigraph.storage.forks import Forks
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.references import Incarnation
from omnigraph.storage.session import BRANCHES, ForkCache
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.stores import open_store
from omnigraph.storage.tables import Table, Tables

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False)])
FIRST: Incarnation = ((2, "a"),)
SECOND: Incarnation = ((2, "b"),)


class Handle:
    """Stands for a handle of Lance."""


def add_rows(table: Table, *ids: str) -> Table:
    return commit_staged(stage_append(table, pa.table({"id": list(ids)}, schema=SCHEMA)))


def ids(table: Table) -> list[str]:
    return sorted(table.scan(["id"]).column("id").to_pylist())


class Shared:
    """A table with a fork `work`, and two parties that know nothing of each other."""

    def __init__(self, root: Location) -> None:
        self.at = root / "people"
        self.calls = Recorder()
        self.here = Tables(self.calls, objects=open_store(root))
        there = open_store(root)
        self.forks = Forks(Tables(objects=there), there)
        self.main = add_rows(self.here.create(self.at, SCHEMA, primary_key="id"), "ann")

    def live(self, name: str) -> int:
        """The other party makes the fork and adds a row to it."""
        return add_rows(self.forks.create(self.main, "work"), name).version

    def die(self) -> None:
        """The other party removes it."""
        self.forks.delete(self.at, "work")

    def open(self, version: int) -> Table:
        return self.here.open(self.at, version, branch="work")


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(Location.parse(tmp_path / "graph"))


def test_a_fork_is_opened_once_in_its_life_and_never_seen_in_an_older_one(shared_root: Location) -> None:
    shared = Shared(shared_root)
    for name in ("old", "new"):
        version = shared.live(name)
        shared.calls.clear()
        found = shared.open(version)
        assert ids(found) == sorted(["ann", name])
        assert shared.open(version) is found
        assert shared.calls.counts()["open"] == 1
        shared.die()


def test_what_a_write_made_of_a_fork_is_there_for_the_next_one(shared: Shared) -> None:
    written = add_rows(shared.open(shared.live("bob")), "cid")
    shared.here.keep(written)
    assert shared.open(written.version) is written
    shared.die()
    shared.live("dan")
    shared.here.keep(written)  # by a writer that slept
    after = add_rows(shared.open(shared.main.version + 1), "eve")
    assert ids(shared.open(after.version)) == ["ann", "dan", "eve"]


def test_a_fork_that_was_made_here_is_kept_from_its_first_version_on(shared: Shared) -> None:
    made = shared.here.prepare_to_keep(shared.forks.create(shared.main, "work"))
    after = add_rows(made, "bob")
    shared.here.keep(after)
    assert shared.open(after.version) is after
    assert shared.here.prepare_to_keep(shared.main) is shared.main


def test_a_fork_that_is_recreated_while_it_is_opened_is_kept_for_no_incarnation(shared: Shared) -> None:
    version = shared.live("old")
    lives = iter(["new"])

    def recreate(op: str, _uri: str, /) -> None:
        if op == "open" and (name := next(lives, None)):
            shared.die()
            shared.live(name)

    shared.here.access.observe = recreate
    opened = [shared.open(version) for _ in range(3)]
    assert [ids(one) for one in opened] == [["ann", "new"]] * 3
    assert opened[0] is not opened[1] is opened[2]


def test_a_reference_that_cannot_be_understood_does_not_prevent_reading(shared: Shared) -> None:
    version = shared.live("bob")
    objects = open_store(shared.at)
    objects.write_text(Location(f"{shared.at.uri}/_refs/branches/work.json"), "[")
    opened = [shared.open(version) for _ in range(2)]
    assert [ids(one) for one in opened] == [["ann", "bob"]] * 2
    assert opened[0] is not opened[1]


def test_tables_of_a_branch_share_a_session_until_one_of_them_is_in_another_life() -> None:
    lives: ForkCache[Handle] = ForkCache()
    one = lives.session("work", "people", FIRST)
    handle = lives.keep("work", "pets", FIRST, 3, Handle())
    assert lives.session("work", "pets", FIRST) is one
    assert lives.session("other", "people", FIRST) is not one
    assert lives.find("work", "pets", FIRST, 3) is handle
    assert lives.keep("work", "pets", FIRST, 3, Handle()) is handle
    assert lives.session("work", "people", SECOND) is not one
    assert lives.find("work", "pets", FIRST, 3) is None


def test_something_is_kept_only_of_the_branches_that_were_used_last() -> None:
    lives: ForkCache[Handle] = ForkCache()
    for number in range(1_000):
        lives.keep(f"b{number}", "people", FIRST, 1, Handle())
        assert lives.find("b0", "people", FIRST, 1) is not None
    assert len(lives) == BRANCHES
    assert lives.find("b998", "people", FIRST, 1) is not None
    assert lives.find("b1", "people", FIRST, 1) is None


def test_of_the_versions_of_a_branch_those_that_were_used_last_are_kept() -> None:
    lives: ForkCache[Handle] = ForkCache()
    for version in range(100):
        lives.keep("work", "people", FIRST, version, Handle())
        assert lives.find("work", "people", FIRST, 0) is not None
    kept = [version for version in range(100) if lives.find("work", "people", FIRST, version)]
    assert kept == [0, *range(37, 100)]


def test_a_process_that_was_forked_starts_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lives: ForkCache[Handle] = ForkCache()
    one = lives.session("work", "people", FIRST)
    lives.keep("work", "people", FIRST, 1, Handle())
    monkeypatch.setattr(session, "_generation", session.fork_generation() + 1)
    assert lives.find("work", "people", FIRST, 1) is None
    assert lives.session("work", "people", FIRST) is not one
