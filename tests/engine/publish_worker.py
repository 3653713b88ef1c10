"""A process that publishes to a graph: `publish_worker.py URI BRANCH COUNT [lock]`.

Says `ready`, waits for a line, publishes COUNT times one version of a table above the one it read, and
answers with the ids of the commits it made, as far as it knows, then with how often it was refused.
"""

from __future__ import annotations

import sys
from collections import Counter

from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import TableVersion
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.upkeep.manifest_upkeep import run_manifest_upkeep
from omnigraph.errors import PublishContention, TableVersionConflict
from omnigraph.storage.location import Location

KEY = "node:Person"


def next_version(coordinator: Coordinator) -> tuple[ManifestChanges, dict[str, int]]:
    """One more version of the table, and the version that rests on."""
    known = coordinator.load().state.latest_version(KEY)
    return ManifestChanges(versions=(TableVersion(KEY, known + 1, None, 0),)), {KEY: known}


def under_lock(coordinator: Coordinator, lineage: NewCommit) -> str:
    """With the lock no publish can be refused: any error ends this process."""
    with coordinator.root.locks.hold([coordinator.branch], wait=600.0):
        changes, expected = next_version(coordinator)
        done = publish(coordinator, changes, lineage, expected=expected)
        run_manifest_upkeep(coordinator, done)
        return done.commit.id


def by_swap_alone(coordinator: Coordinator, lineage: NewCommit, refused: Counter[str]) -> str:
    """Without it the losers are refused, typed, and try again with the same commit id."""
    while True:
        changes, expected = next_version(coordinator)
        try:
            return publish(coordinator, changes, lineage, expected=expected).commit.id
        except (TableVersionConflict, PublishContention) as error:
            refused[error.code] += 1


def main() -> None:
    uri, branch, count, *options = sys.argv[1:]
    root = Root.at(Location.parse(uri))
    coordinator = Coordinator(root, branch)
    coordinator.load()
    print("ready", flush=True)
    sys.stdin.readline()
    refused: Counter[str] = Counter()
    done = []
    for _ in range(int(count)):
        lineage = NewCommit(root.new_id())
        locked = "lock" in options
        done.append(
            under_lock(coordinator, lineage) if locked else by_swap_alone(coordinator, lineage, refused)
        )
    print(" ".join(done))
    print(dict(refused), flush=True)


if __name__ == "__main__":
    main()
