"""What a merge did, or would do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.display.lines import counted as counted_word
from omnigraph.engine.changes.change import Stat
from omnigraph.engine.changes.shown import counts_table
from omnigraph.engine.lineage import Commit
from omnigraph.engine.merge.choices import Choices, Granularity
from omnigraph.engine.merge.conflict import MergeConflict
from omnigraph.engine.merge.history import MergeOutcome
from omnigraph.engine.merge.resolutions import resolution_file, write_file
from omnigraph.engine.merge.shown import conflicts_table


@dataclass(frozen=True, slots=True, repr=False)
class MergeResult:
    """A merge that took place."""

    source: str
    target: str
    outcome: MergeOutcome
    commit: Commit | None
    """None when the target had all of the source already."""
    changes: Mapping[str, Stat] = field(default_factory=dict, hash=False)
    """How many entities of the target came, changed and went, by `node:Name` and `edge:Name`."""
    resolved: int = 0
    """How many entities that both branches changed were decided on by a strategy or by resolutions."""
    branch_deleted: bool | None = None
    """Whether the source is gone; None when that was not asked for."""
    branch_delete_error: str | None = None
    """Why it is not."""

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
        }

    def __repr__(self) -> str:
        gone = ", branch deleted" if self.branch_deleted else ""
        told = counted(self.changes)
        return f"<MergeResult '{self.source}' into '{self.target}': {self.outcome.value}, {told}{gone}>"

    def _repr_html_(self) -> str:
        gone = ["branch deleted"] if self.branch_deleted else []
        return counts_table(
            f"Merged '{self.source}' into '{self.target}': {self.outcome.value}", self.changes, gone
        )


@dataclass(frozen=True, slots=True, repr=False)
class MergePreview:
    """What a merge would do; nothing was changed."""

    source: str
    target: str
    outcome: MergeOutcome
    """What it comes to once there are no conflicts."""
    changes: Mapping[str, Stat] = field(hash=False)
    """How many entities would come, change and go, without those in conflict."""
    conflicts: tuple[MergeConflict, ...]
    """What is not decided: with any of these the merge fails."""
    resolved: int = 0
    """How many entities that both branches changed are decided on."""
    granularity: Granularity = Granularity.ROW
    choices: Choices = field(default_factory=Choices, hash=False)
    """The decisions that it was made with."""
    met: tuple[MergeConflict, ...] = ()
    """Every conflict, decided or not."""

    def resolution_file(self) -> dict[str, Any]:
        """All conflicts with room for decisions, as `merge(resolutions=...)` takes them."""
        return resolution_file(self.source, self.target, self.granularity, self.choices, self.met)

    def write_resolutions(self, path: str | os.PathLike[str], *, replaces: bool = False) -> None:
        """Write them to a file, for a person to edit; one that exists is refused unless `replaces`."""
        write_file(path, self.resolution_file(), replaces=replaces)

    def to_json(self) -> dict[str, Any]:
        """The preview as scripts read it."""
        return {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome.value,
            "resolved": self.resolved,
            "changes": {key: stat.to_json() for key, stat in self.changes.items()},
            "merge_conflicts": [conflict.to_json() for conflict in self.conflicts],
        }

    def __repr__(self) -> str:
        told = counted(self.changes)
        return (
            f"<MergePreview '{self.source}' into '{self.target}': {self.outcome.value}, {told}, "
            f"{len(self.conflicts)} conflicts>"
        )

    def _repr_html_(self) -> str:
        caption = f"Merging '{self.source}' into '{self.target}' would be: {self.outcome.value}"
        told = [f"{counted_word(len(self.conflicts), 'conflict')}, {self.resolved} decided"]
        return counts_table(caption, self.changes, told) + conflicts_table(self.conflicts)


def counted(changes: Mapping[str, Stat]) -> str:
    """Changes of all types together."""
    inserted, updated, deleted = (
        sum(getattr(stat, name) for stat in changes.values()) for name in ("inserted", "updated", "deleted")
    )
    return f"{inserted} inserted, {updated} updated, {deleted} deleted"
