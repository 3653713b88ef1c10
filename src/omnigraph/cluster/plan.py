"""A plan as a value: what would change, what it needs, and what apply would do with each change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from omnigraph.cluster.approvals import Question
from omnigraph.deferred_dataclass import dataclass

DELETE_REASON = "delete may remove deployed graph or schema definition"
OVERWRITE_REASON = "pipeline overwrites its target"
DATA_LOSS_REASON = "schema migration removes dropped data for good"


class Action(StrEnum):
    """What happens to a resource."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Disposition(StrEnum):
    """What apply does with a change."""

    APPLIED = "applied"
    DERIVED = "derived"
    DEFERRED = "deferred"
    BLOCKED = "blocked"


class Metadata(StrEnum):
    """What changes besides a digest."""

    BINDINGS = "policy_bindings"
    PROFILE = "embedding_profile"


@dataclass(frozen=True, slots=True)
class Migration:
    """The steps of a schema change on the live graph."""

    supported: bool
    steps: tuple[Mapping[str, Any], ...]
    words: tuple[str, ...] = ()
    """A line for each step."""
    data_loss_approved: bool = False

    @property
    def has_drops(self) -> bool:
        """Whether data is dropped."""
        return any(str(step.get("kind")).startswith("drop_") for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """The migration as a script reads it."""
        found: dict[str, Any] = {"supported": self.supported, "steps": [dict(step) for step in self.steps]}
        return {**found, "data_loss_approved": True} if self.data_loss_approved else found


@dataclass(frozen=True, slots=True)
class Change:
    """One resource that differs between the files and the ledger."""

    resource: str
    operation: Action
    before_digest: str | None = None
    after_digest: str | None = None
    disposition: Disposition | None = None
    reason: str | None = None
    binding_change: bool = False
    metadata_change: Metadata | None = None
    migration: Migration | None = None

    def question(self, config_digest: str) -> Question:
        """What an approval of this change is bound to."""
        return Question(
            self.resource, self.operation.value, config_digest, self.before_digest, self.after_digest
        )

    def to_json(self) -> dict[str, Any]:
        """The change as a script reads it; absent members are left out."""
        found = {
            "resource": self.resource,
            "operation": self.operation.value,
            "before_digest": self.before_digest,
            "after_digest": self.after_digest,
            "disposition": None if self.disposition is None else self.disposition.value,
            "reason": self.reason,
            "binding_change": self.binding_change or None,
            "metadata_change": None if self.metadata_change is None else self.metadata_change.value,
            "migration": None if self.migration is None else self.migration.to_json(),
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Gate:
    """An approval that a change needs."""

    resource: str
    reason: str
    satisfied: bool

    def to_json(self) -> dict[str, Any]:
        """The gate as a script reads it."""
        return {"resource": self.resource, "reason": self.reason, "satisfied": self.satisfied}


@dataclass(frozen=True, slots=True)
class Fence:
    """A live graph as the plan saw it; its data may move, its schema may not."""

    schema_digest: str
    manifest_version: int

    def to_json(self) -> dict[str, Any]:
        """The fence as it is stored."""
        return {"schema_digest": self.schema_digest, "manifest_version": self.manifest_version}


@dataclass(frozen=True, slots=True)
class Plan:
    """What would change."""

    config_digest: str
    state_cas: str | None
    changes: tuple[Change, ...]
    gates: tuple[Gate, ...] = ()
    blast_radius: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The resources that depend on each changed one."""
    fences: Mapping[str, Fence] = field(default_factory=dict)
    """The live graphs whose schemas change, by id."""

    def find(self, resource: str, operation: Action | None = None) -> Change | None:
        """Return the change of a resource."""
        return next(
            (one for one in self.changes if one.resource == resource and operation in (None, one.operation)),
            None,
        )

    def blast_json(self) -> list[dict[str, Any]]:
        """The blast radius as a script reads it."""
        return [{"resource": one, "affected": list(others)} for one, others in self.blast_radius.items()]


def select(changes: Iterable[Change], operation: Action, disposition: Disposition) -> list[Change]:
    """Return the changes of one operation and disposition, in their order."""
    return [one for one in changes if one.operation is operation and one.disposition is disposition]
