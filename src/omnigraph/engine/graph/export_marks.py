"""Marks of running exports: while one is there, the graph is not deleted.

An export may run for hours in another process or on another machine. It keeps a small file,
`__staging/exporting/<ULID>.json`, and renews it every minute, so that the mark of a process that died
counts for a few minutes only; one that cannot be read counts for a week. A graph that a program opened for
reading only is never written to, and its exports have no mark; `omnigraph export` reads only and keeps one
wherever it may write.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from ulid import ULID

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.errors import OmnigraphError, StorageFailure
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.lock_table import THIS_PROCESS, Owner

MARKS = "exporting"
"""The folder of marks, below that of staged files."""
RENEW_SECONDS = 60.0
EXPIRY_SECONDS = 300.0
"""A mark that was not renewed for so long is one of a process that died."""
LONGEST_EXPORT_SECONDS = 7 * 86_400.0
"""Longer than any export takes; for marks that do not say when they were renewed."""

Piece = TypeVar("Piece")

_log = logging.getLogger(__name__)


class ExportMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An export that runs."""

    owner: Owner
    renewed_at: int
    """Microseconds since 1970, by the clock of the machine that exports."""


@contextmanager
def mark_export(graph: OpenGraph) -> Iterator[None]:
    """Show that an export of a graph runs until the block ends."""
    if graph.read_only:
        yield
        return
    at = _new_mark(graph.root)
    write_mark(graph.root, at)
    with _renewing(graph.root, at):
        yield


@contextmanager
def mark_export_if_possible(root: Root) -> Iterator[None]:
    """The same for a reader: where it may not write, or cannot, the export runs without a mark."""
    at = _new_mark(root)
    try:
        write_mark(root, at)
    except StorageFailure as failure:
        if failure.kind != FailureKind.CONFIGURATION:
            _log.warning("the export of '%s' has no mark: %s", root.uri, failure)
        yield
        return
    with _renewing(root, at):
        yield


def mark_pieces(graph: OpenGraph, pieces: Iterable[Piece]) -> Generator[Piece, None, None]:
    """Yield the pieces of an export that runs until the last one, or until the generator is closed."""
    with mark_export(graph):
        yield from pieces


def list_exports(root: Root) -> list[ExportMark]:
    """Return the exports of a graph that run now, on any machine."""
    found = [_read(root, at) for at in root.objects.list_dir(_folder(root))]
    return [mark for mark in found if mark is not None and not _is_expired(root, mark)]


def remove_expired_marks(graph: OpenGraph) -> None:
    """Remove the marks that processes left when they died."""
    for at in graph.root.objects.list_dir(_folder(graph.root)):
        mark = _read(graph.root, at)
        if mark is not None and _is_expired(graph.root, mark):
            graph.root.objects.delete(at)


def write_mark(root: Root, at: Location) -> None:
    """Write a mark with the time of now."""
    root.objects.write_text(at, _encode_now(root))


def renew_mark(root: Root, at: Location) -> None:
    """Write a mark again; not where its graph was deleted, which would leave a folder without a graph."""
    found = root.objects.read_text_versioned(at)
    if found is not None:
        root.objects.write_text_if_match(at, _encode_now(root), found.token)
    elif root.objects.exists(root.layout.manifest_versions):
        write_mark(root, at)


def _new_mark(root: Root) -> Location:
    return _folder(root) / f"{root.new_id()}.json"


def _encode_now(root: Root) -> str:
    return msgspec.json.encode(ExportMark(THIS_PROCESS.owner, root.clock())).decode()


@contextmanager
def _renewing(root: Root, at: Location) -> Iterator[None]:
    """Renew a mark until the block ends, and remove it then."""
    stopping = threading.Event()
    renewing = threading.Thread(
        target=_renew_until, args=(root, at, stopping), name="omnigraph export mark", daemon=True
    )
    renewing.start()
    try:
        yield
    finally:
        stopping.set()
        renewing.join()
        _remove(root, at)


def _renew_until(root: Root, at: Location, stopping: threading.Event) -> None:
    while not stopping.wait(RENEW_SECONDS):
        try:
            renew_mark(root, at)
        except OmnigraphError as failure:
            _log.warning("the mark '%s' of an export was not renewed: %s", at.name, failure)


def _read(root: Root, at: Location) -> ExportMark | None:
    """Return a mark; None when its export ended meanwhile."""
    text = root.objects.read_text_if_exists(at)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=ExportMark)
    except msgspec.MsgspecError:
        return ExportMark(Owner(host="unknown", pid=0, token=""), _assume_renewed_at(root, at))


def _assume_renewed_at(root: Root, at: Location) -> int:
    """Return a time for a damaged mark or one of another release: it counts as long as exports may take."""
    try:
        began = ULID.from_str(at.name.removesuffix(".json")).timestamp
    except ValueError:
        return root.clock()
    return min(root.clock(), int((began + LONGEST_EXPORT_SECONDS) * 1_000_000))


def _is_expired(root: Root, mark: ExportMark) -> bool:
    return mark.renewed_at < root.clock() - EXPIRY_SECONDS * 1_000_000


def _remove(root: Root, at: Location) -> None:
    """The export is over, however this ends; a mark that stays expires."""
    try:
        root.objects.delete(at)
    except OmnigraphError as failure:
        _log.warning("the mark '%s' of an export was not removed: %s", at.name, failure)


def _folder(root: Root) -> Location:
    return root.layout.staging / MARKS
