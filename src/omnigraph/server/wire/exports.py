"""Exports and baselines."""

from __future__ import annotations

import msgspec

from omnigraph.errors import BadRequest
from omnigraph.server.wire.base import Wire


class ExportRequest(Wire, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to export: all types, or those named; `table_keys` is the former way to name them.

    `commit`, `version` and `time` are those of the library's `Graph.export`.
    """

    branch: str | None = None
    type_names: list[str] = msgspec.field(default_factory=list)
    table_keys: list[str] = msgspec.field(default_factory=list)
    commit: str | None = None
    version: int | None = None
    time: str | None = None

    @property
    def types(self) -> tuple[str, ...] | None:
        """The chosen types; None for all."""
        if self.type_names and self.table_keys:
            former = {key.rpartition(":")[2] for key in self.table_keys}
            if former != {name.rpartition(":")[2] for name in self.type_names}:
                raise BadRequest(
                    "'type_names' and its former name 'table_keys' have different values",
                    remedy="send 'type_names'",
                )
        return tuple(self.table_keys or self.type_names) or None


class BaselineRequest(Wire, frozen=True, kw_only=True):
    """A branch, and which of its entities and changes are wanted."""

    branch: str | None = None
    kind: list[str] = msgspec.field(default_factory=list)
    type: list[str] = msgspec.field(default_factory=list)
    op: list[str] = msgspec.field(default_factory=list)


class BaselinePosition(Wire, frozen=True, kw_only=True):
    """The commit that a baseline shows, and the cursor for everything after it."""

    snapshot_commit_id: str
    resume_cursor: str


class BaselineLine(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of a baseline."""

    baseline: BaselinePosition
