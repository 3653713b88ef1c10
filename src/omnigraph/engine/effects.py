"""What the effects of a plan ask of tables: which of them move, in how many steps, and with which files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from omnigraph.engine.plan import (
    Adopt,
    Append,
    BuildIndexes,
    Create,
    Drop,
    Effect,
    Rearrange,
    Remove,
    Replace,
    Rows,
    Steps,
    Upsert,
)
from omnigraph.storage.indexes import stage_indexes
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.pieces import Pieces, stage_pieces, upsert_pieces
from omnigraph.storage.staging import Counts, Staged, stage_append, stage_delete, stage_overwrite
from omnigraph.storage.tables import Table
from omnigraph.storage.upserting import Found, look_up, stage_upsert

Step = Append | Upsert | Remove | Replace | BuildIndexes
"""A change of one table that can be staged, and makes one version; see `stage` for when it makes two."""


def steps_of(effect: Effect) -> tuple[Step, ...]:
    """The changes that can be staged, in their order; none where a table moves otherwise, or not at all."""
    match effect:
        case Steps(steps=steps):
            return steps
        case Rearrange() | Adopt() | Create() | Drop():
            return ()
        case _:
            return (effect,)


def moving(effects: Mapping[str, Effect]) -> list[str]:
    """The tables that are there already and get new versions."""
    return [key for key, effect in effects.items() if not isinstance(effect, Adopt | Create | Drop)]


def stage(objects: ObjectStore, table: Table, step: Step, *, in_two: bool = False) -> Staged:
    """Write the files of one change, or bring those that are written; the table does not move.

    `in_two` allows a change to take two versions of the table where that is faster.
    """
    match step:
        case Append(rows=Pieces() as pieces) | Replace(rows=Pieces() as pieces):
            return stage_pieces(objects, table, pieces, replace=isinstance(step, Replace))
        case Upsert(rows=Pieces() as pieces):
            return upsert_pieces(objects, table, pieces)
        case Append(rows=rows):
            return stage_append(table, rows)
        case Upsert(rows=rows, replaced=replaced):
            return stage_upsert(table, rows, replaced=replaced, in_two=in_two)
        case Remove(ids=ids):
            return stage_delete(table, ids)
        case Replace(rows=rows):
            return stage_overwrite(table, opened(rows))
        case BuildIndexes(indexes=indexes):
            return stage_indexes(table, indexes)


def looked_up(table: Callable[[], Table], step: Step) -> Found | None:
    """What can be found out about a change of a table before that is forked; None where that is nothing."""
    match step:
        case Upsert(rows=pa.Table() as rows, replaced=replaced):
            return look_up(table(), rows, replaced=replaced, in_two=True)
        case _:
            return None


def opened(rows: Rows) -> pa.Table | pa.RecordBatchReader:
    """Rows to be written now: those that are made on the way begin here."""
    return rows if isinstance(rows, pa.Table) else rows()


def together(counts: Sequence[Counts]) -> Counts:
    """What several changes of a table did."""
    return Counts(
        _sum([one.inserted for one in counts]),
        _sum([one.updated for one in counts]),
        _sum([one.deleted for one in counts]),
    )


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [one for one in numbers if one is not None]
    return sum(known) if len(known) == len(numbers) else None
