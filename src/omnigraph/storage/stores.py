"""Open the store of a location, and refuse one that lacks what safe writing needs."""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path

from omnigraph import errors
from omnigraph.storage.failures import FailureKind, wrap_os_errors
from omnigraph.storage.folder import FolderStore
from omnigraph.storage.location import Location, require_s3
from omnigraph.storage.objects import ObjectStore, Observer
from omnigraph.storage.record_lock import supports_record_locks


def open_store(root: Location, observe: Observer | None = None) -> ObjectStore:
    """Return the store that holds `root`; nothing is contacted yet."""
    if root.is_local:
        return FolderStore(observe)
    require_s3()
    from omnigraph.storage.bucket import BucketStore

    return BucketStore.connect(root, observe)


_SCRATCH_FOLDER = "__probe"

_mutex = threading.Lock()
_proven: set[tuple[str, str]] = set()


def require_safe_writes(store: ObjectStore, root: Location) -> None:
    """Prove that conditional puts (and, in a folder, hard links and record locks) work at `root`.

    For opening read-write only: it writes. Whatever it writes it removes again.
    """
    # One root may have several names in a file system.
    key = (store.scope, os.path.realpath(root.path) if root.is_local else root.uri)
    with _mutex:
        if key in _proven:
            return
        if root.is_local:
            _prove_folder(store, root)
        else:
            _prove_store(store, root)
        _proven.add(key)


def _prove_folder(store: ObjectStore, root: Location) -> None:
    with wrap_os_errors("look for", root.uri):
        made = _missing_folders(root.path)
    try:
        _prove_store(store, root)
    finally:
        _remove_empty([*made, (root / _SCRATCH_FOLDER).path])


def _prove_store(store: ObjectStore, root: Location) -> None:
    scratch = root / _SCRATCH_FOLDER / f"{secrets.token_hex(8)}.json"
    try:
        _prove_conditional_puts(store, root, scratch)
        if root.is_local:
            _prove_record_locks(root, scratch)
    except errors.StorageFailure:
        # What the probe found is the news, not what tidying up met after it.
        with suppress(errors.StorageFailure):
            store.delete(scratch)
        raise
    store.delete(scratch)


def _prove_conditional_puts(store: ObjectStore, root: Location, scratch: Location) -> None:
    # Every text differs from those before: a token may be a hash of the content.
    first = store.create_text(scratch, "1")
    if first is None or store.create_text(scratch, "2") is not None:
        raise _lacking_error(
            root, "conditional puts: a put with `If-None-Match: *` replaced an existing object"
        )
    second = store.write_text_if_match(scratch, "3", first)
    if second is None:
        raise _lacking_error(root, "conditional puts: a put with `If-Match` and the current ETag was refused")
    if store.write_text_if_match(scratch, "4", first) is not None:
        raise _lacking_error(
            root, "conditional puts: a put with `If-Match` and an old ETag replaced the object"
        )
    if store.read_text(scratch) != "3":
        raise _lacking_error(root, "consistent reads: an object just written was not read back")


def _prove_record_locks(root: Location, scratch: Location) -> None:
    if not supports_record_locks(scratch.path):
        raise _lacking_error(root, "record locks between processes")


def _lacking_error(root: Location, what: str) -> errors.StorageFailure:
    place = "use a local file system" if root.is_local else "use an S3 store that honours conditional puts"
    return errors.StorageFailure(
        f"the store of '{root.uri}' lacks {what}",
        kind=FailureKind.CONFIGURATION,
        uri=root.uri,
        remedy=f"{place}, or open the graph read-only",
    )


def _missing_folders(folder: Path) -> list[Path]:
    """The folders on the way to `folder` that do not exist yet, outermost first."""
    missing: list[Path] = []
    while not folder.exists():
        missing.insert(0, folder)
        folder = folder.parent
    return missing


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        # Another process may have begun to use it.
        with suppress(OSError):
            folder.rmdir()
