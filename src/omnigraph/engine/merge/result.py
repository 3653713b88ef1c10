"""What a merge did, or would do."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.display.markup import FIRST_ROWS, Heading, render_html_table
from omnigraph.display.text import format_count
from omnigraph.engine.changes.change import ChangeCounts, render_counts
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.merge.choices import MergeChoices, MergeGranularity
from omnigraph.engine.merge.conflict import DroppedValues, MergeConflict
from omnigraph.engine.merge.merge_inputs import MergeOutcome
from omnigraph.engine.merge.resolutions import build_resolutions, write_resolutions
from omnigraph.engine.merge.table_merge import BranchChanges
from omnigraph.engine.upkeep.declared_indexes import PendingIndexes, pending_json

_CONFLICTS = [Heading("type"), Heading("id"), Heading("conflict"), Heading("what")]


@dataclass(frozen=True, slots=True, repr=False)
class MergeResult:
    """A merge that took place."""

    source: str
    target: str
    outcome: MergeOutcome
    commit: Commit | None
    """None when the target had all of the source already."""
    changes: Mapping[str, ChangeCounts] = field(default_factory=dict, hash=False)
    """How many entities of the target came, changed and went, by `node:Name` and `edge:Name`."""
    resolved: int = 0
    """How many entities that both branches changed were decided on by a strategy or by resolutions."""
    branch_deleted: bool | None = None
    """Whether the source is gone; None when that was not asked for."""
    branch_delete_error: str | None = None
    """Why it is not."""
    given_up: tuple[DroppedValues, ...] = ()
    """Values that only one branch had changed, dropped because a decision took the entity from the other one;
    those of the first 1,000 entities."""
    given_up_count: int = 0
    """Of how many entities."""
    pending_indexes: PendingIndexes = field(default_factory=dict, hash=False)
    """Columns whose declared index is not built yet or lags, by table; reads are right without."""
    by_branch: Mapping[str, BranchChanges] = field(default_factory=dict, hash=False)
    """What each branch did since their histories parted, by type, of the types that the source changed."""

    def to_json(self) -> dict[str, Any]:
        """The result as scripts read it."""
        deleted = {} if self.branch_deleted is None else {"branch_deleted": self.branch_deleted}
        error = {} if self.branch_delete_error is None else {"branch_delete_error": self.branch_delete_error}
        return {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome.value,
            "actor_id": self.commit.actor if self.commit else None,
            **deleted,
            **error,
            "graph_commit_id": self.commit.id if self.commit else None,
            "resolved": self.resolved,
            "changes": {key: stat.to_json() for key, stat in self.changes.items()},
            **_given_up_json(self.given_up, self.given_up_count),
            "pending_indexes": pending_json(self.pending_indexes),
            "by_branch": {key: one.to_json() for key, one in self.by_branch.items()},
        }

    def __repr__(self) -> str:
        gone = ", branch deleted" if self.branch_deleted else ""
        counts = summarize_stats(self.changes)
        return f"<MergeResult '{self.source}' into '{self.target}': {self.outcome.value}, {counts}{gone}>"

    def _repr_html_(self) -> str:
        gone = ["branch deleted"] if self.branch_deleted else []
        return render_counts(
            f"Merged '{self.source}' into '{self.target}': {self.outcome.value}", self.changes, gone
        )


@dataclass(frozen=True, slots=True, repr=False)
class MergePreview:
    """What a merge would do; nothing was changed."""

    source: str
    target: str
    outcome: MergeOutcome
    """The outcome once there are no conflicts."""
    changes: Mapping[str, ChangeCounts] = field(hash=False)
    """How many entities would come, change and go, without those in conflict."""
    conflicts: tuple[MergeConflict, ...]
    """What is not decided: with any of these the merge fails."""
    resolved: int = 0
    """How many entities that both branches changed are decided on."""
    granularity: MergeGranularity | Mapping[str, MergeGranularity] = field(
        default=MergeGranularity.ROW, hash=False
    )
    """What counted as contradicting in the types with conflicts; by type where they differ."""
    choices: MergeChoices = field(default_factory=MergeChoices, hash=False)
    """The decisions that it was made with."""
    met: tuple[MergeConflict, ...] = ()
    """Every conflict, decided or not."""
    given_up: tuple[DroppedValues, ...] = ()
    """Values that only one branch had changed, and that decisions about whole entities would drop; those of
    the first 1,000 entities."""
    given_up_count: int = 0
    """Of how many entities."""
    by_branch: Mapping[str, BranchChanges] = field(default_factory=dict, hash=False)
    """What each branch did since their histories parted, by type, of the types that the source changed."""

    def resolution_file(self) -> dict[str, Any]:
        """All conflicts with room for decisions, as `merge(resolutions=...)` takes them."""
        return build_resolutions(self.source, self.target, self.granularity, self.choices, self.met)

    def write_resolutions(self, path: str | os.PathLike[str], *, replaces: bool = False) -> None:
        """Write them to a file, for a person to edit; one that exists is refused unless `replaces`."""
        write_resolutions(path, self.resolution_file(), replaces=replaces)

    def to_json(self) -> dict[str, Any]:
        """The preview as scripts read it."""
        return {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome.value,
            "resolved": self.resolved,
            "changes": {key: stat.to_json() for key, stat in self.changes.items()},
            **_given_up_json(self.given_up, self.given_up_count),
            "by_branch": {key: one.to_json() for key, one in self.by_branch.items()},
            "merge_conflicts": [conflict.to_json() for conflict in self.conflicts],
        }

    def __repr__(self) -> str:
        counts = summarize_stats(self.changes)
        return (
            f"<MergePreview '{self.source}' into '{self.target}': {self.outcome.value}, {counts}, "
            f"{len(self.conflicts)} conflicts>"
        )

    def _repr_html_(self) -> str:
        caption = f"Merging '{self.source}' into '{self.target}' would be: {self.outcome.value}"
        footer = [f"{format_count(len(self.conflicts), 'conflict')}, {self.resolved} decided"]
        return render_counts(caption, self.changes, footer) + _render_conflicts(self.conflicts)


def _given_up_json(first: Sequence[DroppedValues], count: int) -> dict[str, Any]:
    """Return the dropped values as JSON members; none when nothing was dropped."""
    return {"given_up": [one.to_json() for one in first], "given_up_count": count} if count else {}


def summarize_stats(changes: Mapping[str, ChangeCounts]) -> str:
    """Return the sums of all types as text."""
    inserted, updated, deleted = (
        sum(getattr(stat, name) for stat in changes.values()) for name in ("inserted", "updated", "deleted")
    )
    return f"{inserted} inserted, {updated} updated, {deleted} deleted"


def _render_conflicts(conflicts: Sequence[MergeConflict]) -> str:
    """Render the first conflicts; empty when there are none."""
    if not conflicts:
        return ""
    rows = (
        [found.type_name, found.entity_id, found.kind.value, found.message]
        for found in conflicts[:FIRST_ROWS]
    )
    rest = len(conflicts) - FIRST_ROWS
    more = [f"… {format_count(rest, 'more conflict')}"] if rest > 0 else []
    return render_html_table("Conflicts", _CONFLICTS, rows, more)
