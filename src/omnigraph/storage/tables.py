"""A table at a version: open it, read it, count it, ask for newer ones."""

from __future__ import annotations

import copy
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar

import lance
import numpy as np
import pyarrow as pa
from lance import LanceDataset
from lance.dataset import Session  # type: ignore[attr-defined]  # public in its documentation only
from lance.fragment import write_fragments
from numpy.typing import NDArray

from omnigraph.errors import StorageFailure
from omnigraph.storage.durability import Sync, settle
from omnigraph.storage.lance_errors import LANCE_RAISES, Trouble, classify, misses_transaction
from omnigraph.storage.lives import Lives
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore, Observer
from omnigraph.storage.references import Identity, life_of
from omnigraph.storage.session import (
    Access,
    drop_pinned_session,
    fork_session,
    own_session,
    pinned_session,
    tip_session,
)
from omnigraph.storage.version_files import newest as newest_in_folder
from omnigraph.storage.version_files import stored_versions
from omnigraph.storage.whole import require_whole

Rows: TypeAlias = pa.Table | pa.RecordBatchReader

PRIMARY_KEY = b"lance-schema:unenforced-primary-key"
STORAGE_FORMAT: Final = "2.2"

_CACHED_HANDLES = 512

_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)


def fork_uri(location: Location, branch: str | None) -> str:
    """Where the versions of one branch of a table are stored."""
    return location.uri if branch is None else f"{location.uri}/tree/{branch}"


@dataclass(frozen=True, slots=True)
class Table:
    """One table as it stands at one version of one branch; later writes do not change what it reads."""

    location: Location
    branch: str | None
    version: int
    access: Access = field(repr=False, compare=False)
    native: LanceDataset = field(repr=False, compare=False)
    """Lance's handle. Only this room may touch it, and only through a copy where a call moves it."""
    life: Identity | None = field(default=None, repr=False, compare=False)
    """The life of a fork that this is of for certain; None where nobody made sure, and for main."""

    @property
    def uri(self) -> str:
        """Where this branch of the table is stored."""
        return fork_uri(self.location, self.branch)

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the metadata of the schema and of each field."""
        return self.native.schema

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
        """How many pieces the rows are stored in; write cost follows it."""
        return len(self.native.get_fragments())

    @property
    def signature(self) -> str:
        """Tells apart tables of one name and version that were made at different times."""
        names = (file.path for fragment in self.native.get_fragments() for file in fragment.data_files())
        return sha256("\n".join(names).encode()).hexdigest()

    @property
    def has_stable_row_ids(self) -> bool:
        """Whether rows keep their row id and remember the versions that made and changed them."""
        return bool(self.native.has_stable_row_ids)

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: str | None = None,
        limit: int | None = None,
        ordered: bool = True,
        row_ids: bool = False,
        batch_size: int | None = None,
        blob_bytes: bool = False,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows that satisfy `where`, as they are read; see `scan`."""

        def begun(indexed: bool) -> tuple[pa.RecordBatch | None, pa.RecordBatchReader]:
            # An index is asked before the first rows come: when its files are missing, no row is read yet.
            reader = self._scanner(
                columns, where, limit, ordered, row_ids, batch_size, blob_bytes, fragments, indexed=indexed
            ).to_reader()
            return next(reader, None), reader

        batch, reader = self.asked("scan", begun)
        while batch is not None:
            yield batch
            with self.access.rest("scan", self.uri):
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
        """The rows that satisfy `where`, at once; of some fragments where these are named.

        `columns` may name `_rowid`, `_row_created_at_version` and `_row_last_updated_at_version`. Blobs come
        as descriptions of where their bytes are, unless `blob_bytes` asks for the bytes.
        """

        def found(indexed: bool) -> pa.Table:
            return self._scanner(
                columns, where, limit, ordered, row_ids, None, blob_bytes, fragments, indexed=indexed
            ).to_table()

        return self.asked("scan", found)

    def asked(self, operation: str, ask: Callable[[bool], _Answer]) -> _Answer:
        """What `ask` answers with the help of indexes, or without it when the files of one are missing.

        Indexes are derived from rows: to lose one must not cost anything but time.
        """
        this = (self.uri, self.version)
        if this not in self.access.unindexed:
            try:
                with self.access.call(operation, self.uri):
                    return ask(True)
            except StorageFailure as failure:
                if failure.kind != Trouble.INDEX_LOST:
                    raise
                self.access.unindexed.add(this)
                _log.warning("going on without indexes until they are built anew: %s", failure)
        with self.access.call(operation, self.uri):
            return ask(False)

    def _scanner(
        self,
        columns: Sequence[str] | None,
        where: str | None,
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
            fragments=None if fragments is None else self._fragments(fragments),
            columns=None if columns is None else list(columns),
            filter=where,
            limit=limit,
            scan_in_order=ordered,
            with_row_id=row_ids,
            batch_size=batch_size,
            blob_handling="all_binary" if blob_bytes else None,
            use_scalar_index=indexed,
        )

    def _fragments(self, numbers: Sequence[int]) -> list[Any]:
        wanted = set(numbers)
        return [one for one in self.native.get_fragments() if one.fragment_id in wanted]

    def take(self, row_ids: Sequence[int] | pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows with these row ids, in this order; ids that are not stored are left out."""
        with self.access.call("take", self.uri):
            wanted = None if columns is None else list(columns)
            # Private in Lance's Python package, so a test pins it; a filter on `_rowid` costs far more.
            return self.native._take_rows(row_ids, columns=wanted)  # noqa: SLF001

    def take_offsets(self, offsets: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """The rows at these places of the table's own order, which is the order a scan has."""
        with self.access.call("take", self.uri):
            return self.native.take(pa.array(offsets), columns=list(columns))

    def count(self, where: str | None = None, *, fragments: Sequence[int] | None = None) -> int:
        """How many rows satisfy `where`; without it, the answer is in memory already.

        With `fragments`, of some fragments: these are read.
        """
        some = None if fragments is None else self._fragments(fragments)
        return self.asked(
            "count",
            lambda indexed: int(
                self.native.count_rows(filter=where)
                if indexed and some is None
                else self.native.scanner(filter=where, fragments=some, use_scalar_index=False).count_rows()
            ),
        )

    def latest_version(self) -> int:
        """The newest version of this branch of the table at this moment."""
        with self.access.call("probe", self.uri):
            return self.version if self._is_surely_last() else int(self.native.latest_version)

    def latest(self) -> Table:
        """This branch of the table at its newest version; itself when nothing moved."""
        self.access.announce("probe", self.uri)
        if self._is_still_last():
            return self
        with self.access.rest("probe", self.uri):
            # Asking alone is several times faster than opening the answer, and mostly nothing moved.
            if self._is_surely_last() or self.native.latest_version == self.version:
                return self
            moved = newest(self.native)
        return self.moved(moved)

    def stands_still(self) -> bool:
        """Whether this is the newest version, for whoever is about to write on it; mostly without a listing.

        In a bucket the next version is looked for by its name. That is enough while nobody can have
        collected it: with the branch's lock held, and this version the one that the branch is at. A fork
        may have been made anew, with versions that have nothing to do with this one, so it is listed.
        """
        if self.location.is_local or self.branch is not None:
            return self.latest_version() == self.version
        with self.access.call("probe", self.uri):
            return not _finds(self.native, self.version + 1)

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
        """Every version of this branch that is still stored, oldest first."""
        with self.access.call("versions", self.uri):
            found = stored_versions(self.uri) if self.location.is_local else []
            return tuple(found or sorted(ref["version"] for ref in self.native.version_refs()))

    def moved(self, native: LanceDataset) -> Table:
        """The same branch of the same table through another handle."""
        return Table(self.location, self.branch, native.version, self.access, native, self.life)

    def settled(self, before: Table | None = None) -> Table:
        """This version, on disk for good where the graph is kept so; what `before` has is there already."""
        if self.access.sync is not None:
            self.access.announce("sync", self.uri)
            settle(self.access.sync, self.location.path, self.branch, self.native, before and before.native)
        return self


class Tables:
    """Opens and creates tables, and keeps the handles of pinned versions."""

    def __init__(
        self,
        observe: Observer | None = None,
        *,
        cached_handles: int = _CACHED_HANDLES,
        sync: Sync | None = None,
        objects: ObjectStore | None = None,
    ) -> None:
        """Without `objects`, where the references of forks are read, nothing is kept of forks."""
        self.access = Access(observe, sync)
        self._handles: OrderedDict[tuple[str, int], Table] = OrderedDict()
        self._room = cached_handles
        self._objects = objects
        self._lives: Lives[Table] = Lives()
        self._lock = threading.Lock()

    def open(self, location: Location, version: int, *, branch: str | None = None) -> Table:
        """A table at a version that does not change any more; the handle is kept for the next caller."""
        if branch is not None:
            return self._open_fork(location, branch, version)
        with self._lock:
            if found := self._handles.get((location.uri, version)):
                self._handles.move_to_end((location.uri, version))
                return found
        return self._keep(self._open(location, None, version, pinned_session(self.access)))

    def keep(self, table: Table) -> None:
        """Keep the handle of a version that was just made, and is there for good, for the next caller."""
        if table.branch is None:
            self._keep(table)
        elif table.life is not None:
            self._lives.keep(table.branch, table.uri, table.life, table.version, table)

    def grown_up(self, made: Table) -> Table:
        """A fork that was just made, and that nobody can have made anew yet, ready to be kept."""
        life = None if made.branch is None else self._life(made.location, made.branch)
        if made.branch is None or life is None:
            return made
        native = apart(made.native, self._lives.session(made.branch, made.uri, life))
        return Table(made.location, made.branch, made.version, self.access, native, life)

    def drop(self, branch: str) -> None:
        """Keep nothing of the forks of a branch, which is about to go."""
        self._lives.drop(branch)

    def tip(self, location: Location, *, branch: str | None = None, followed: bool = False) -> Table:
        """A table at its newest version, read anew and never kept.

        `followed` is for a handle that is to be moved to newer versions: it remembers the files it read.
        """
        return self._open(location, branch, None, own_session() if followed else tip_session())

    def create(
        self, location: Location, schema: pa.Schema, *, primary_key: str, rows: Rows | None = None
    ) -> Table:
        """A new table, empty unless `rows` are given; fails with `AlreadyExists` when there is one."""
        uri = location.uri
        annotated = with_primary_key(schema, primary_key)
        with self.access.call("create", uri):
            first = annotated.empty_table() if rows is None else under(rows, annotated)
            place = options(location)
            written = write_fragments(
                first,
                uri,
                mode="create",
                return_transaction=True,
                enable_stable_row_ids=True,
                data_storage_version=STORAGE_FORMAT,
                storage_options=place,
            )
            require_whole("create", location, uri, written.operation)
            # Not `write_dataset`: of two rivals there the slower one replaces the table of the faster one.
            native = LanceDataset.commit(
                uri, written, storage_options=place, enable_stable_row_ids=True, max_retries=0
            )
        return Table(location, None, native.version, self.access, native).settled()

    def exists(self, location: Location) -> bool:
        """Whether there is a table; only the store's own not-found means no."""
        try:
            self.tip(location)
        except StorageFailure as error:
            if error.kind == Trouble.NOT_FOUND:
                return False
            raise
        return True

    def forget(self) -> None:
        """Drop every kept handle, and what was read through them."""
        with self._lock:
            self._handles.clear()
        self._lives.clear()
        drop_pinned_session(self.access)

    def _open_fork(self, location: Location, branch: str, version: int) -> Table:
        """A fork at a version. What is kept of it serves as long as its reference shows the same life."""
        uri, life = fork_uri(location, branch), self._life(location, branch)
        if life is None:
            return self._open(location, branch, version, fork_session())
        found = self._lives.find(branch, uri, life, version)
        if found is not None:
            return found
        opened = self._open(location, branch, version, self._lives.session(branch, uri, life), life)
        if self._life(location, branch) != life:
            # It was made anew while it was opened: nobody knows which of the two this is.
            self._lives.drop(branch)
            return self._open(location, branch, version, fork_session())
        return self._lives.keep(branch, uri, life, version, opened)

    def _life(self, location: Location, branch: str) -> Identity | None:
        return None if self._objects is None else life_of(self._objects, location, branch)

    def _open(
        self,
        location: Location,
        branch: str | None,
        version: int | None,
        session: Session,
        life: Identity | None = None,
    ) -> Table:
        uri = fork_uri(location, branch)
        with self.access.call("open", uri):
            native = lance.dataset(uri, version=version, storage_options=options(location), session=session)
        return Table(location, branch, native.version, self.access, native, life)

    def _keep(self, table: Table) -> Table:
        with self._lock:
            kept = self._handles.setdefault((table.location.uri, table.version), table)
            while len(self._handles) > self._room:
                self._handles.popitem(last=False)
            return kept


def _finds(native: LanceDataset, version: int) -> bool:
    """Whether Lance finds a version in a bucket by its name; only the store's own not-found means no."""
    try:
        # While it reads, nobody else can use the handle, and others share this one.
        copy.copy(native).read_transaction(version)
    except LANCE_RAISES as error:
        if misses_transaction(error):
            return True
        if classify(error) == Trouble.NOT_FOUND:
            return False
        raise
    return True


def newest(native: LanceDataset) -> LanceDataset:
    """Another handle of the same branch, at its newest version; the given one stays where it is."""
    moved = copy.copy(native)
    moved.checkout_latest()  # type: ignore[no-untyped-call]
    return moved


def apart(native: LanceDataset, session: Session) -> LanceDataset:
    """Another handle of the same version with a session of its own; nothing is read for that."""
    uri, place, version, manifest, *_ = native.__getstate__()  # type: ignore[no-untyped-call]
    return LanceDataset(uri, version, storage_options=place, serialized_manifest=manifest, session=session)


def options(location: Location) -> dict[str, str] | None:
    """What Lance needs to reach this place, none for a folder."""
    return dict(location.storage_options()) or None


def under(rows: Rows, schema: pa.Schema) -> Rows:
    """The same rows with the columns of a schema."""
    if isinstance(rows, pa.Table):
        return rows.cast(schema)
    return pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in rows))


def with_primary_key(schema: pa.Schema, *columns: str) -> pa.Schema:
    """The schema with exactly these columns marked as key, each of them required."""
    return pa.schema([_marked(column, columns) for column in schema], metadata=schema.metadata)


def _marked(column: pa.Field, key: Sequence[str]) -> pa.Field:
    kept: Mapping[bytes, bytes] = {
        k: v for k, v in (column.metadata or {}).items() if not k.startswith(PRIMARY_KEY)
    }
    if column.name not in key:
        return column.with_metadata(kept) if kept else column.remove_metadata()
    position = {PRIMARY_KEY + b":position": str(key.index(column.name) + 1).encode()} if len(key) > 1 else {}
    return column.with_nullable(False).with_metadata({**kept, PRIMARY_KEY: b"true", **position})
