"""Who made a version of a table: the transaction Lance stored with it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lance import LanceOperation, Transaction
from lance.debug import list_transactions

from omnigraph.storage.lance_errors import misses_transaction
from omnigraph.storage.tables import Table

MAINTENANCE = frozenset({"Rewrite", "ReserveFragments", "CreateIndex", "UpdateConfig"})
"""Operations that change how rows are stored or found, and never which rows there are."""

UNKNOWN = "Unknown"

_PRINT = re.compile(
    r"Transaction \{\s+read_version: (?P<read_version>\d+),"
    r'\s+uuid: "(?P<uuid>[^"]+)",'
    r"\s+operation: (?P<operation>\w+)"
)


@dataclass(frozen=True, slots=True)
class Authorship:
    """The transaction behind one version; `uuid` is None where Lance cannot tell it."""

    version: int
    operation: str
    """Lance's name of the operation: Append, Update, Delete, Overwrite, Restore, CreateIndex, ..."""
    uuid: str | None
    read_version: int | None
    properties: Mapping[str, str] = field(default_factory=dict)
    restored: int | None = None
    """The version a Restore went back to."""

    @property
    def is_maintenance(self) -> bool:
        """Whether the version holds the same rows as the one before it."""
        return self.operation in MAINTENANCE


def authorship(table: Table, version: int) -> Authorship:
    """Who made `version` of this branch of the table; fails with `NotFound` when it is not stored."""
    with table.access.call("read_transaction", table.uri):
        try:
            # While it reads, nobody else can use the handle, and others share this one.
            found = copy.copy(table.native).read_transaction(version)
        except TypeError as error:
            if not misses_transaction(error):
                raise
            return _printed(table, version)
        if found is None:
            return Authorship(version, UNKNOWN, None, None)
        if type(found.operation) is LanceOperation.BaseOperation:
            return _printed(table, version)
        return _told(version, found)


def history(table: Table, after: int, until: int) -> tuple[Authorship, ...]:
    """Who made the versions after one and up to another, in order."""
    return tuple(authorship(table, version) for version in range(after + 1, until + 1))


def _printed(table: Table, version: int) -> Authorship:
    """For the operations Lance's Python package has no class for, or cannot build: its debug print."""
    printed = list_transactions(table.native.checkout_version(version), 1)
    found = _PRINT.match(printed[0]) if printed else None
    if found is None:
        return Authorship(version, UNKNOWN, None, None)
    return Authorship(version, found["operation"], found["uuid"], int(found["read_version"]))


def _told(version: int, found: Transaction) -> Authorship:
    operation = found.operation
    return Authorship(
        version=version,
        operation=type(operation).__name__,
        uuid=found.uuid,
        read_version=found.read_version,
        properties=dict(found.transaction_properties or {}),
        restored=operation.version if isinstance(operation, LanceOperation.Restore) else None,
    )
