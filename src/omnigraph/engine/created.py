"""Tables that a write makes: where they are, and what is there before and after one that failed."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.engine.columns import ID
from omnigraph.engine.effects import opened
from omnigraph.engine.layout import split_key, table_path
from omnigraph.engine.manifest import State
from omnigraph.engine.plan import Create
from omnigraph.engine.root import Root
from omnigraph.errors import Conflict, StorageFailure
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import Staged, stage_overwrite
from omnigraph.storage.tables import Table


def path_of(key: str) -> str:
    """The folder of a new table, relative to the root."""
    return table_path(*split_key(key))


def create_table(root: Root, held: Held, key: str, effect: Create, state: State) -> Table | None:
    """The table, made now; None when there is one in its place that must not be removed.

    What an earlier attempt left there, known to no manifest, goes first. Not in a bucket: whoever has lost
    the lease without a sign could remove the table of somebody who went on from there.
    """
    path = path_of(key)
    _refuse_taken(key, path, state)
    place = root.layout.table(path)
    held.require()
    if root.layout.root.is_local:
        root.objects.delete_prefix(place)
    rows = opened(effect.rows)
    try:
        return root.tables.create(place, rows.schema, primary_key=ID, rows=rows)
    except StorageFailure as failure:
        if failure.kind != Trouble.EXISTS or root.layout.root.is_local:
            raise
        return None


def stage_over(root: Root, held: Held, key: str, effect: Create, now: Callable[[], State]) -> Staged:
    """The rows of a new table in the place of what an earlier attempt left there.

    Only once the table is open is the manifest asked whether anybody knows it: should somebody go on from
    there later, the table moves, and what is staged here cannot be committed.
    """
    place = root.layout.table(path_of(key))
    left = root.tables.tip(place)
    _refuse_taken(key, path_of(key), now())
    held.require()
    return stage_overwrite(left, opened(effect.rows))


def remove_created(root: Root, held: Held, key: str, path: str, state: State) -> None:
    """Remove a table that a write made in vain; in a bucket it stays, to be written over when needed."""
    if not root.layout.root.is_local:
        return
    if key not in state.locations and path not in state.locations.values():
        held.require()
        root.objects.delete_prefix(root.layout.table(path))


def _refuse_taken(key: str, path: str, state: State) -> None:
    """A folder that the manifest knows has a past, which has to stay readable."""
    for known, where in state.locations.items():
        if known == key or where == path:
            raise Conflict(
                f"the place of table '{key}' is taken: the graph has, or had, '{known}' there",
                remedy="choose another name for the type",
            )
