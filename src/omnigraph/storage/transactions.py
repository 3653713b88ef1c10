"""Read the transaction that made a version of a table, as Lance stored it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import field

from lance import LanceOperation, Transaction
from lance.debug import list_transactions

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.lance_errors import is_missing_transaction
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
class TransactionInfo:
    """The transaction behind one version; `uuid` is None where Lance does not expose it."""

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


def read_transaction(table: Table, version: int) -> TransactionInfo:
    """Return the transaction of `version` of this branch; fails with `NotFound` when it is not stored."""
    with table.access.call("read_transaction", table.uri):
        try:
            # A handle is locked while it reads, and this one is shared: use a copy.
            found = copy.copy(table.native).read_transaction(version)
        except TypeError as error:
            if not is_missing_transaction(error):
                raise
            return _parse_debug_print(table, version)
        if found is None:
            return TransactionInfo(version, UNKNOWN, None, None)
        if type(found.operation) is LanceOperation.BaseOperation:
            return _parse_debug_print(table, version)
        return _from_lance(version, found)


def read_transactions(table: Table, after: int, until: int) -> tuple[TransactionInfo, ...]:
    """Return the transactions of the versions after one and up to another, in order."""
    return tuple(read_transaction(table, version) for version in range(after + 1, until + 1))


def _parse_debug_print(table: Table, version: int) -> TransactionInfo:
    """Read Lance's debug print, for operations its Python package has no class for, or cannot build."""
    printed = list_transactions(table.native.checkout_version(version), 1)
    found = _PRINT.match(printed[0]) if printed else None
    if found is None:
        return TransactionInfo(version, UNKNOWN, None, None)
    return TransactionInfo(version, found["operation"], found["uuid"], int(found["read_version"]))


def _from_lance(version: int, found: Transaction) -> TransactionInfo:
    operation = found.operation
    return TransactionInfo(
        version=version,
        operation=type(operation).__name__,
        uuid=found.uuid,
        read_version=found.read_version,
        properties=dict(found.transaction_properties or {}),
        restored=operation.version if isinstance(operation, LanceOperation.Restore) else None,
    )
