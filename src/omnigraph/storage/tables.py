"""A table at a version: open, read and count it, and look for newer versions."""

from __future__ import annotations

import copy
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.dataset import Session  # type: ignore[attr-defined]  # public in its documentation only
from lance.fragment import write_fragments
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.base_paths import find_moved_base, fork_uri, relocate, rewrite_fork
from omnigraph.storage.checksums import Checksums, VersionChange
from omnigraph.storage.column_types import logical_schema, stored_filter, stored_schema, to_logical, to_stored
from omnigraph.storage.concurrency import Together
from omnigraph.storage.durability import Sync, require_complete_files, sync_version
from omnigraph.storage.failures import (
    LANCE_RAISES,
    TableFailureKind,
    classify_lance_error,
    is_missing_transaction,
)
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore, Observer
from omnigraph.storage.references import Incarnation, read_incarnation
from omnigraph.storage.session import (
    Access,
    ForkCache,
    drop_pinned_session,
    fork_session,
    own_session,
    pinned_session,
    tip_session,
)
from omnigraph.storage.version_files import check_newest as newest_in_folder
from omnigraph.storage.version_files import data_file_name, list_versions, version_files

Rows: TypeAlias = pa.Table | pa.RecordBatchReader

PRIMARY_KEY = b"lance-schema:unenforced-primary-key"
STORAGE_FORMAT: Final = "2.2"

_CACHED_HANDLES = 512

_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Table:
    """One table as it stands at one version of one branch; later writes do not change what it reads."""

    location: Location
    branch: str | None
    version: int
    access: Access = field(repr=False, compare=False)
    native: LanceDataset = field(repr=False, compare=False)
    """Lance's handle. Only this room may touch it, and only through a copy where a call moves it."""
    incarnation: Incarnation | None = field(default=None, repr=False, compare=False)
    """The verified incarnation of a fork; None where it was not verified, and for main."""

    @property
    def uri(self) -> str:
        """Where this branch of the table is stored."""
        return fork_uri(self.location, self.branch)

    @property
    def schema(self) -> pa.Schema:
        """The columns in the types they are read in, with the metadata of the schema and of each field."""
        return logical_schema(self.native.schema)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns marked as key."""
        return tuple(column.name for column in self.schema if PRIMARY_KEY in (column.metadata or {}))

    @property
    def config(self) -> dict[str, str]:
        """The table's own settings."""
        return dict(self.native.config())

    @property
    def fragment_count(self) -> int:
        """How many fragments the rows are stored in; write cost follows it."""
        return len(self.native.get_fragments())

    @property
    def signature(self) -> str:
        """A hash that differs between tables of one name and version created at different times."""
        fragments = self.native.get_fragments()
        names = (data_file_name(file) for fragment in fragments for file in fragment.data_files())
        return sha256("\n".join(names).encode()).hexdigest()

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their row id and remember the versions that made and changed them."""
        return bool(self.native.has_stable_row_ids)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: str | pc.Expression | None = None,
        limit: int | None = None,
        ordered: bool = True,
        row_ids: bool = False,
        batch_size: int | None = None,
        blob_bytes: bool = False,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that satisfy `where`, as they are read; see `scan`.

        Of Arrow's expressions it takes those that `accepts_filter`.
        """

        def begun(indexed: bool) -> tuple[pa.RecordBatch | None, pa.RecordBatchReader]:
            # An index is asked before the first rows come: when its files are missing, no row is read yet.
            reader = self._open_scanner(
                columns, where, limit, ordered, row_ids, batch_size, blob_bytes, fragments, indexed=indexed
            ).to_reader()
            return next(reader, None), reader

        batch, reader = self.run_with_indexes("scan", begun)
        while batch is not None:
            yield to_logical(batch)
            with self.access.continue_call("scan", self.uri):
                batch = next(reader, None)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: str | None = None,
        limit: int | None = None,
        ordered: bool = True,
        row_ids: bool = False,
        blob_bytes: bool = False,
        fragments: Sequence[int] | None = None,
    ) -> pa.Table:
        """Return the rows that satisfy `where`, of all fragments or of those that are named.

        `columns` may name `_rowid`, `_row_created_at_version` and `_row_last_updated_at_version`. Blobs come
        as descriptions of where their bytes are, unless `blob_bytes` asks for the bytes.
        """

        def found(indexed: bool) -> pa.Table:
            return self._open_scanner(
                columns, where, limit, ordered, row_ids, None, blob_bytes, fragments, indexed=indexed
            ).to_table()

        return to_logical(self.run_with_indexes("scan", found))

    def run_with_indexes(self, operation: str, ask: Callable[[bool], _Answer]) -> _Answer:
        """Return what `ask` returns with indexes, or without them when the files of one are missing.

        Indexes are derived from rows: losing one must cost nothing but time.
        """
        this = (self.uri, self.version)
        if this not in self.access.unindexed:
            try:
                with self.access.call(operation, self.uri):
                    return ask(True)
            except StorageFailure as failure:
                if failure.kind != TableFailureKind.INDEX_LOST:
                    raise
                self.access.unindexed.add(this)
                _log.warning("reading without indexes until they are rebuilt: %s", failure)
        with self.access.call(operation, self.uri):
            return ask(False)

    def _open_scanner(
        self,
        columns: Sequence[str] | None,
        where: str | pc.Expression | None,
        limit: int | None,
        ordered: bool,
        row_ids: bool,
        batch_size: int | None,
        blob_bytes: bool = False,
        fragments: Sequence[int] | None = None,
        *,
        indexed: bool,
    ) -> Any:
        return self.native.scanner(
            fragments=None if fragments is None else self._choose_fragments(fragments),
            columns=None if columns is None else list(columns),
            filter=self._stored_filter(where) if where is None or isinstance(where, str) else where,
            limit=limit,
            scan_in_order=ordered,
            with_row_id=row_ids,
            batch_size=batch_size,
            blob_handling="all_binary" if blob_bytes else None,
            use_scalar_index=indexed,
        )

    def accepts_filter(self, condition: pc.Expression) -> bool:
        """Whether Lance can evaluate an expression of Arrow while it scans.

        It has no form for some types, such as unsigned numbers, and none for columns that are read in another
        type than they are stored in.
        """
        stored = self.native.schema
        if any(column.type != field.type for column, field in zip(self.schema, stored, strict=True)):
            return False
        try:
            # It looks at the condition when it plans the scan.
            self.native.scanner(columns=[], with_row_id=True, filter=condition).explain_plan()
        except (ValueError, NotImplementedError):
            return False
        return True

    def _stored_filter(self, where: str | None) -> str | None:
        return None if where is None else stored_filter(where, self.native.schema)

    def _choose_fragments(self, numbers: Sequence[int]) -> list[Any]:
        wanted = set(numbers)
        return [one for one in self.native.get_fragments() if one.fragment_id in wanted]

    def take(self, row_ids: Sequence[int] | pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows with these row ids, in this order; ids that are not stored are skipped."""
        with self.access.call("take", self.uri):
            wanted = None if columns is None else list(columns)
            # Private in Lance's Python package, so a test pins it; a filter on `_rowid` costs far more.
            return to_logical(self.native._take_rows(row_ids, columns=wanted))  # noqa: SLF001

    def take_offsets(self, offsets: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Return the rows at these offsets of the order that a scan has."""
        with self.access.call("take", self.uri):
            return to_logical(self.native.take(pa.array(offsets), columns=list(columns)))

    def take_range(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return the rows between two offsets of the order that a scan has; a quarter of taking each."""
        with self.access.call("take", self.uri):
            rows = self.native.scanner(columns=list(columns), offset=start, limit=stop - start)
            return to_logical(rows.to_table())

    def count(self, where: str | None = None, *, fragments: Sequence[int] | None = None) -> int:
        """Count the rows that satisfy `where`; without it, the answer is in memory already.

        With `fragments`, only these are counted, by reading them.
        """
        some = None if fragments is None else self._choose_fragments(fragments)
        where = self._stored_filter(where)
        return self.run_with_indexes(
            "count",
            lambda indexed: int(
                self.native.count_rows(filter=where)
                if indexed and some is None
                else self.native.scanner(filter=where, fragments=some, use_scalar_index=False).count_rows()
            ),
        )

    def latest_version(self) -> int:
        """Return the newest version of this branch at this moment."""
        with self.access.call("probe", self.uri):
            return self.version if self._is_surely_last() else int(self.native.latest_version)

    def latest(self) -> Table:
        """Return this branch at its newest version; itself when there is no newer one."""
        self.access.announce("probe", self.uri)
        if self._is_still_last():
            return self
        with self.access.continue_call("probe", self.uri):
            # Asking alone is several times faster than opening the answer, and mostly nothing moved.
            if self._is_surely_last() or self.native.latest_version == self.version:
                return self
            moved = checkout_newest(self.native)
        return self.with_handle(moved)

    def is_newest(self) -> bool:
        """Whether this is the newest version, for a caller about to write on it; mostly without a listing.

        In a bucket only the next version is looked up by name. That is enough while no process can have
        collected it: with the branch's lock held, and this version the one the branch is at. A fork may have
        been recreated with unrelated versions, so it is listed.
        """
        if self.location.is_local or self.branch is not None:
            return self.latest_version() == self.version
        if self.access.objects is not None:
            return not self._is_stored(self.version + 1, self.access.objects)
        with self.access.call("probe", self.uri):
            return not _version_exists(self.native, self.version + 1)

    def _is_stored(self, version: int, objects: ObjectStore) -> bool:
        """Whether a version is stored, under either of the names that it can have."""
        with Together(self.location) as calls:
            names = [self.location / name for name in version_files(version)]
            found = [calls.add(partial(objects.is_stored, at)) for at in names]
        return any(one.answer for one in found)

    def _is_surely_last(self) -> bool:
        if not self.location.is_local:
            return False
        last, found = newest_in_folder(self.uri, self.version)
        if found is not None:
            self.access.newest[self.uri] = found
        return last

    def _is_still_last(self) -> bool:
        """Whether this was found to be the newest version before, and nothing has changed since."""
        known = self.access.newest.get(self.uri)
        return known is not None and known.version == self.version and known.holds()

    def versions(self) -> tuple[int, ...]:
        """List the stored versions of this branch, oldest first."""
        with self.access.call("versions", self.uri):
            found = list_versions(self.uri) if self.location.is_local else []
            return tuple(found or sorted(ref["version"] for ref in self.native.version_refs()))

    def with_handle(self, native: LanceDataset) -> Table:
        """Return the same branch of the same table through another handle."""
        native = relocate_if_moved(native, self.location, self.branch, self.access)
        return Table(self.location, self.branch, native.version, self.access, native, self.incarnation)

    def before_commit(self) -> None:
        """Rewrite the versions of a moved fork to record its present location, before a new one does.

        Lance reads older versions when it compares two of them. Callers hold the branch's lock.
        """
        if self.branch is not None and self.uri in self.access.relocated and self.access.rewrite_fork:
            self.access.rewrite_fork(self.location, self.branch)
            del self.access.relocated[self.uri]

    def make_durable(
        self, before: Table | None = None, made_by: Any | None = None, *, is_first: bool = False
    ) -> Table:
        """Sync this version to disk where that is configured, record its checksums, and return it.

        Files of `before` are on disk already. `made_by` is Lance's transaction where it is known; `is_first`
        says that this process has just created the table or fork.
        """
        if self.access.sync is not None:
            self.access.announce("sync", self.uri)
            sync_version(
                self.access.sync, self.location.path, self.branch, self.native, before and before.native
            )
        if self.access.checksums is not None:
            older = before and before.native
            self.access.checksums.note_version(
                VersionChange(self.location.path, self.branch, self.native, older, made_by, is_first)
            )
        return self


class Tables:
    """Opens and creates tables, and caches the handles of pinned versions."""

    def __init__(
        self,
        observe: Observer | None = None,
        *,
        cached_handles: int = _CACHED_HANDLES,
        sync: Sync | None = None,
        objects: ObjectStore | None = None,
        checksums: Checksums | None = None,
    ) -> None:
        """Without `objects`, through which references of forks are read, forks are not cached."""
        self.access = Access(observe, sync, checksums)
        self._handles: OrderedDict[tuple[str, int], Table] = OrderedDict()
        self._room = cached_handles
        self._objects = self.access.objects = objects
        if objects is not None:
            self.access.rewrite_fork = partial(rewrite_fork, objects, checksums)
        self._forks: ForkCache[Table] = ForkCache()
        self._lock = threading.Lock()

    def open(self, location: Location, version: int, *, branch: str | None = None) -> Table:
        """Open a table at a pinned version; the handle is cached for the next caller."""
        if branch is not None:
            return self._open_fork(location, branch, version)
        with self._lock:
            if found := self._handles.get((location.uri, version)):
                self._handles.move_to_end((location.uri, version))
                return found
        return self._keep_handle(self._open_version(location, None, version, pinned_session(self.access)))

    def keep(self, table: Table) -> None:
        """Cache the handle of a version that was just committed, for the next caller."""
        if table.branch is None:
            self._keep_handle(table)
        elif table.incarnation is not None:
            self._forks.keep(table.branch, table.uri, table.incarnation, table.version, table)

    def prepare_to_keep(self, made: Table) -> Table:
        """Return a fork that was just created, and cannot have been recreated yet, ready for `keep`."""
        incarnation = None if made.branch is None else self._read_incarnation(made.location, made.branch)
        if made.branch is None or incarnation is None:
            return made
        native = with_session(made.native, self._forks.session(made.branch, made.uri, incarnation))
        return Table(made.location, made.branch, made.version, self.access, native, incarnation)

    def drop(self, branch: str) -> None:
        """Drop everything cached for the forks of a branch that is about to be deleted."""
        self._forks.drop(branch)

    def tip(self, location: Location, *, branch: str | None = None, followed: bool = False) -> Table:
        """Open a table at its newest version, without any cache.

        `followed` is for a handle that will be moved to newer versions: it remembers the files it read.
        """
        return self._open_version(location, branch, None, own_session() if followed else tip_session())

    def create(
        self, location: Location, schema: pa.Schema, *, primary_key: str, rows: Rows | None = None
    ) -> Table:
        """Create a table, empty unless `rows` are passed; fails with `AlreadyExists` when there is one."""
        uri = location.uri
        annotated = with_primary_key(schema, primary_key)
        with self.access.call("create", uri):
            first = annotated.empty_table() if rows is None else cast_rows(rows, annotated)
            place = storage_options(location)
            written = write_fragments(
                first,
                uri,
                mode="create",
                return_transaction=True,
                enable_stable_row_ids=True,
                data_storage_version=STORAGE_FORMAT,
                storage_options=place,
            )
            require_complete_files("create", location, uri, written.operation)
            # Not `write_dataset`: of two rivals there the slower one replaces the table of the faster one.
            native = LanceDataset.commit(
                uri, written, storage_options=place, enable_stable_row_ids=True, max_retries=0
            )
        return Table(location, None, native.version, self.access, native).make_durable(
            made_by=written, is_first=True
        )

    def exists(self, location: Location) -> bool:
        """Whether there is a table; only the store's own not-found means no."""
        try:
            self.tip(location)
        except StorageFailure as error:
            if error.kind == TableFailureKind.NOT_FOUND:
                return False
            raise
        return True

    def forget(self) -> None:
        """Drop every cached handle, and what was read through them."""
        with self._lock:
            self._handles.clear()
        self._forks.clear()
        drop_pinned_session(self.access)

    def _open_fork(self, location: Location, branch: str, version: int) -> Table:
        """Open a fork at a version; cached handles serve while its incarnation is the same."""
        uri, incarnation = fork_uri(location, branch), self._read_incarnation(location, branch)
        if incarnation is None:
            return self._open_version(location, branch, version, fork_session())
        found = self._forks.find(branch, uri, incarnation, version)
        if found is not None:
            return found
        opened = self._open_version(
            location, branch, version, self._forks.session(branch, uri, incarnation), incarnation
        )
        if self._read_incarnation(location, branch) != incarnation:
            # It was recreated while it was opened: this may be either incarnation.
            self._forks.drop(branch)
            return self._open_version(location, branch, version, fork_session())
        return self._forks.keep(branch, uri, incarnation, version, opened)

    def _read_incarnation(self, location: Location, branch: str) -> Incarnation | None:
        return None if self._objects is None else read_incarnation(self._objects, location, branch)

    def _open_version(
        self,
        location: Location,
        branch: str | None,
        version: int | None,
        session: Session,
        incarnation: Incarnation | None = None,
    ) -> Table:
        uri = fork_uri(location, branch)
        with self.access.call("open", uri):
            native = lance.dataset(
                uri, version=version, storage_options=storage_options(location), session=session
            )
            native = relocate_if_moved(native, location, branch, self.access)
        return Table(location, branch, native.version, self.access, native, incarnation)

    def _keep_handle(self, table: Table) -> Table:
        with self._lock:
            kept = self._handles.setdefault((table.location.uri, table.version), table)
            while len(self._handles) > self._room:
                self._handles.popitem(last=False)
            return kept


def _version_exists(native: LanceDataset, version: int) -> bool:
    """Whether Lance finds a version in a bucket by its name; only the store's own not-found means no."""
    try:
        # A handle is locked while it reads, and this one is shared: use a copy.
        copy.copy(native).read_transaction(version)
    except LANCE_RAISES as error:
        if is_missing_transaction(error):
            return True
        if classify_lance_error(error) == TableFailureKind.NOT_FOUND:
            return False
        raise
    return True


def checkout_newest(native: LanceDataset) -> LanceDataset:
    """Return another handle of the same branch, at its newest version; `native` stays at its own."""
    moved = copy.copy(native)
    moved.checkout_latest()  # type: ignore[no-untyped-call]
    return moved


def relocate_if_moved(
    native: LanceDataset, location: Location, branch: str | None, access: Access
) -> LanceDataset:
    """Return a handle that reads shared files from the present location; `native` unless the table moved."""
    elsewhere = None if branch is None else find_moved_base(native, location)
    if branch is None or elsewhere is None:
        return native
    access.relocated[fork_uri(location, branch)] = elsewhere
    access.saw_moved_fork = True
    return relocate(native, location, branch)


def with_session(native: LanceDataset, session: Session) -> LanceDataset:
    """Return another handle of the same version with this session; nothing is read for it."""
    uri, place, version, manifest, *_ = native.__getstate__()  # type: ignore[no-untyped-call]
    return LanceDataset(uri, version, storage_options=place, serialized_manifest=manifest, session=session)


def storage_options(location: Location) -> dict[str, str] | None:
    """Return the options Lance needs to reach this location; None for a folder."""
    return dict(location.storage_options()) or None


def to_stored_types(rows: Rows, table: Table) -> Rows:
    """Return rows in the types that a table stores its columns in."""
    stored = table.native.schema
    if isinstance(rows, pa.Table):
        return to_stored(rows, stored)
    schema = stored_schema(rows.schema, stored)
    if schema is rows.schema:
        return rows
    return pa.RecordBatchReader.from_batches(schema, (to_stored(batch, stored) for batch in rows))


def cast_rows(rows: Rows, schema: pa.Schema) -> Rows:
    """Return the rows cast to a schema."""
    if isinstance(rows, pa.Table):
        return rows.cast(schema)
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in rows))


def with_primary_key(schema: pa.Schema, *columns: str) -> pa.Schema:
    """Return the schema with exactly these columns marked as key, each of them required."""
    return pa.schema([_mark_key(column, columns) for column in schema], metadata=schema.metadata)


def _mark_key(column: pa.Field, key: Sequence[str]) -> pa.Field:
    kept: Mapping[bytes, bytes] = {
        k: v for k, v in (column.metadata or {}).items() if not k.startswith(PRIMARY_KEY)
    }
    if column.name not in key:
        return column.with_metadata(kept) if kept else column.remove_metadata()
    position = {PRIMARY_KEY + b":position": str(key.index(column.name) + 1).encode()} if len(key) > 1 else {}
    return column.with_nullable(False).with_metadata({**kept, PRIMARY_KEY: b"true", **position})
