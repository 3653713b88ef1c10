"""Copying a graph to another place, step by step.

The files of the accepted schema come last, and without them no release opens a graph: so until then there is
none at the new place. An interrupted copy is continued by the next one: files that are there with all their
bytes are not copied again. When something was cleaned up in the original before it was copied, the original
is looked at again, and only what is new since is copied. Where that happens again and again, the last looks
hold the locks of all branches, so that nothing is removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import field
from typing import TypeVar

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.copying.content import (
    ContentMemo,
    CopyContent,
    VersionFile,
    list_content,
    read_pipelines,
    read_tags,
)
from omnigraph.engine.copying.cut import Cut, take_consistent_cut
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.relocation import record_place
from omnigraph.engine.graph.root import Root
from omnigraph.errors import (
    BadRequest,
    CopyNotVerified,
    CorruptGraph,
    PlaceNotEmpty,
    StorageFailure,
    Unavailable,
    WriterBusy,
)
from omnigraph.progress import stage
from omnigraph.storage.base_paths import MalformedVersion, relocate_file
from omnigraph.storage.failures import TableFailureKind, not_found
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.objects import ObjectStore, Observer
from omnigraph.storage.references import is_reference
from omnigraph.storage.stores import require_safe_writes

AT_ONCE = 8

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

Digest = bytes
"""The SHA-256 of a file."""


def copy_file(source: ObjectStore, at: Location, target: ObjectStore, to: Location) -> Digest:
    """Copy a file of any size; gives the checksum of what was read."""
    digest = hashlib.sha256()

    def chunks() -> Iterator[bytes]:
        for chunk in source.read_chunks(at):
            digest.update(chunk)
            yield chunk

    target.write_chunks(to, chunks())
    return digest.digest()


def compute_digest(store: ObjectStore, at: Location) -> Digest:
    """Compute the checksum of a stored file."""
    digest = hashlib.sha256()
    for chunk in store.read_chunks(at):
        digest.update(chunk)
    return digest.digest()


def run_parallel(do: Callable[[_Item], _Answer], items: Iterable[_Item]) -> list[_Answer]:
    """Run a function for each item in parallel; the first failure cancels those not started."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(do, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def verify_sizes(target: Root, sizes: Mapping[str, int]) -> None:
    """Every file is there, with as many bytes as were to be stored."""
    stored = target.objects.list_all(target.layout.root)
    for name, size in sizes.items():
        if stored.get(name) != size:
            raise _not_verified(target, name, f"it has {stored.get(name)} bytes and should have {size}")


def verify_digests(target: Root, digests: Mapping[str, Digest], sizes: Mapping[str, int]) -> None:
    """Every file is read back, and holds what was read from the original."""
    with stage("verify", tasks=len(digests), size=sum(sizes.values())) as verifying:

        def verify(name: str) -> None:
            if compute_digest(target.objects, target.layout.root / name) != digests[name]:
                raise _not_verified(target, name, "its checksum is not that of the original")
            verifying.advance(tasks=1, size=sizes[name])

        run_parallel(verify, digests)


def verify_content(target: Root, cut: Cut) -> None:
    """Every branch of the copy can be read, and has the commits, the tables and the rows of the original."""
    copy = OpenGraph(target, read_only=True)
    for branch, loaded in cut.branches.items():
        found = copy.load(branch)
        here, there = loaded.state, found.state
        if (here.head, here.commits, here.entries()) != (there.head, there.commits, there.entries()):
            raise _not_verified(target, f"branch '{branch}'", "it is not at the commit of the original")
        for entry in there.entries().values():
            table = target.tables.open(target.layout.table(entry.path), entry.version, branch=entry.owner)
            if entry.row_count is not None and table.count() != entry.row_count:
                reason = f"it has {table.count()} rows and should have {entry.row_count}"
                raise _not_verified(target, f"{entry.key} of branch '{branch}'", reason)


def _not_verified(target: Root, what: str, reason: str) -> CopyNotVerified:
    return CopyNotVerified(target.uri, what, reason)


_FORMAT = 1
_ROUNDS = 16
_ROUNDS_WITHOUT_LOCKS = 4
"""Each copies what is new since the one before, so that writers have to wait for little in the end."""
_NOT_CONTENT = ("__locks/", "__probe/", "__copy.json")
_CHOOSE = "choose an empty place; an interrupted copy is continued by the same command"


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What a copy consists of, and how it was verified."""

    source: str
    destination: str
    branches: tuple[str, ...]
    commit: str | None
    """The newest commit of main in the copy."""
    files: int
    bytes: int
    files_copied: int
    """Without those that an earlier, interrupted run had copied."""
    bytes_copied: int
    read_back: bool
    """Whether every file was read back and its checksum compared; sizes and rows always are."""

    def __repr__(self) -> str:
        return f"<CopyResult '{self.destination}': {len(self.branches)} branches, {self.bytes} bytes>"


@dataclass(slots=True)
class _CopyProgress:
    """What this run copied so far, over all passes."""

    digests: dict[str, Digest] = field(default_factory=dict)
    versions: dict[str, tuple[VersionFile, int]] = field(default_factory=dict)
    """Version files, with their bytes in the copy."""
    files: int = 0
    bytes: int = 0


def copy_graph(
    graph: OpenGraph, destination: Location, *, read_back: bool = True, observe: Observer | None = None
) -> CopyResult:
    """Copy a graph to an empty place, or continue a copy that was interrupted; others may write meanwhile."""
    _refuse_overlap(graph.root.layout.root, destination)
    target = Root.at(destination, observe)
    _refuse_taken(graph, target)
    require_safe_writes(target.objects, destination)
    with target.locks.hold([MAIN]) as held:
        _refuse_taken(graph, target)
        _note(graph, target)
        if not target.objects.exists(target.layout.schema_state):
            done = _copy(graph, target, held, read_back=read_back)
        else:
            # Everything was there and verified when it was interrupted.
            done = _describe_finished_copy(graph, target)
        held.require()
        target.objects.delete(target.layout.copy_note)
    return done


# --- whether it may begin --------------------------------------------------------------------------


def _refuse_overlap(source: Location, destination: Location) -> None:
    one, other = (f"{at.uri.rstrip('/')}/" for at in (source, destination))
    if one.startswith(other) or other.startswith(one):
        raise BadRequest(f"'{destination}' and '{source}' overlap", remedy="choose another place")


def _refuse_taken(graph: OpenGraph, target: Root) -> None:
    stored = target.objects.list_all(target.layout.root)
    if all(name.startswith(_NOT_CONTENT) for name in stored) and target.layout.copy_note.name not in stored:
        return
    text = target.objects.read_text_if_exists(target.layout.copy_note)
    if text is None:
        names = {name.partition("/")[0] for name in stored if not name.startswith(_NOT_CONTENT)}
        raise PlaceNotEmpty(target.uri, sorted(names), remedy=_CHOOSE)
    try:
        noted = json.loads(text)["graph"]
    except (ValueError, KeyError, TypeError):
        noted = None
    if noted != graph.origin:
        raise PlaceNotEmpty(target.uri, ["an unfinished copy of another graph"], remedy=_CHOOSE)


def _note(graph: OpenGraph, target: Root) -> None:
    note = {"format": _FORMAT, "source": graph.root.uri, "graph": graph.origin}
    target.objects.write_text_if_absent(target.layout.copy_note, json.dumps(note))


# --- the steps -------------------------------------------------------------------------------------


def _copy(graph: OpenGraph, target: Root, held: HeldLocks, *, read_back: bool) -> CopyResult:
    copied = _CopyProgress()
    memo = ContentMemo()
    for number in range(_ROUNDS):
        locked = number >= _ROUNDS_WITHOUT_LOCKS
        with _pause_writers(graph) if locked else nullcontext(), _catch_removed_files(graph) as again:
            early = {**read_pipelines(graph.root), **read_tags(graph.root)}
            cut = take_consistent_cut(graph)
            content = _with(list_content(graph, cut, memo), early)
            sizes = _transfer(graph, target, content, copied)
            _require_same_forks(graph, content)
            if read_back:
                _read_originals(graph, content, copied)
        if not again:
            break
    else:
        raise Unavailable(
            "the graph is cleaned up faster than it can be copied", remedy="continue it by the same command"
        )
    held.require()
    if read_back:
        _verify_digests(target, copied, sizes)
    _remove_others(target, content)
    verify_sizes(target, sizes)
    verify_content(target, cut)
    record_place(target)
    held.require()
    _write_schema(target, cut.schema)
    total = sum(sizes.values()) + sum(map(len, cut.schema.values()))
    return _result(graph, target, cut, len(content.names()), total, copied, read_back=read_back)


@contextmanager
def _pause_writers(graph: OpenGraph) -> Iterator[None]:
    """Hold the locks of all branches, if they can be taken, so that none is written or cleaned up."""
    try:
        held = graph.root.locks.hold(graph.branch_names())
    except (WriterBusy, StorageFailure):
        # A writer holds a lock for long, or the original is read-only: continue without locks.
        yield
        return
    with held:
        yield


@contextmanager
def _catch_removed_files(graph: OpenGraph) -> Iterator[list[StorageFailure]]:
    """Catch the failure of a file that was removed meanwhile; the list it yields then has that failure."""
    gone: list[StorageFailure] = []
    try:
        yield gone
    except StorageFailure as failure:
        if failure.kind not in (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED):
            raise
        gone.append(failure)
        graph.root.tables.forget()


def _with(content: CopyContent, early: Mapping[str, bytes]) -> CopyContent:
    return CopyContent(content.data, content.versions, {**content.control, **early})


def _transfer(graph: OpenGraph, target: Root, content: CopyContent, copied: _CopyProgress) -> dict[str, int]:
    """Copy all files but those of the schema, what others name first; gives their sizes in the copy."""
    source, stored = graph.root, target.objects.list_all(target.layout.root)
    missing = {name: size for name, size in content.data.items() if stored.get(name) != size}
    tasks = len(content.names()) - len(_schema_places(target))
    with stage("copy", tasks=tasks, size=sum(content.data.values())) as copying:
        here = len(content.data) - len(missing)
        copying.advance(tasks=here, size=sum(content.data.values()) - sum(missing.values()))

        def copy_data(name: str) -> None:
            at, to = source.layout.root / name, target.layout.root / name
            copied.digests[name] = copy_file(source.objects, at, target.objects, to)
            copying.advance(tasks=1, size=missing[name])

        def write(name: str, body: bytes) -> int:
            target.objects.write_bytes(target.layout.root / name, body)
            copied.digests[name] = hashlib.sha256(body).digest()
            copying.advance(tasks=1)
            return len(body)

        def copy_version(name: str) -> None:
            file = content.versions[name]
            known = copied.versions.get(name)
            if known is None or known[0] != file:
                body = _version_here(source, target, name, file.table)
                copied.versions[name] = file, write(name, body)
            else:
                copying.advance(tasks=1)

        run_parallel(copy_data, missing)
        copied.files += len(missing)
        copied.bytes += sum(missing.values())
        run_parallel(copy_version, content.versions)
        sizes = dict(content.data) | {name: copied.versions[name][1] for name in content.versions}
        for name, body in content.control.items():
            if target.layout.root / name not in _schema_places(target):
                sizes[name] = write(name, body)
    return sizes


def _require_same_forks(graph: OpenGraph, content: CopyContent) -> None:
    """Look again where a branch was deleted and created again: its files have the same names."""
    names = [name for name in content.control if is_reference(name)]
    places = [graph.root.layout.root / name for name in names]
    bodies = run_parallel(graph.root.objects.read_bytes_if_exists, places)
    for name, at, body in zip(names, places, bodies, strict=True):
        if body != content.control[name]:
            raise not_found(at.uri)


def _version_here(source: Root, target: Root, name: str, table: str) -> bytes:
    """A version file that records the place of the copy."""
    at = source.layout.root / name
    body = b"".join(source.objects.read_chunks(at))
    try:
        return relocate_file(body, target.layout.table(table), at.uri) or body
    except (MalformedVersion, UnicodeDecodeError) as error:
        raise CorruptGraph(f"'{at.uri}' is damaged: {error}", object_id=name) from error


def _read_originals(graph: OpenGraph, content: CopyContent, copied: _CopyProgress) -> None:
    """Read the original of what an earlier run copied, for its checksum."""
    source = graph.root
    unknown = [name for name in content.data if name not in copied.digests]
    known = run_parallel(lambda name: compute_digest(source.objects, source.layout.root / name), unknown)
    copied.digests.update(zip(unknown, known, strict=True))


def _verify_digests(target: Root, copied: _CopyProgress, sizes: Mapping[str, int]) -> None:
    try:
        verify_digests(target, {name: copied.digests[name] for name in sizes}, sizes)
    except CopyNotVerified as failure:
        # So that the next run copies it again.
        target.objects.delete(target.layout.root / failure.name)
        raise


def _remove_others(target: Root, content: CopyContent) -> None:
    """Remove what an earlier look at the original had, and what was cut short."""
    stored, names = target.objects.list_all(target.layout.root), content.names()
    for name in stored:
        if name not in names and not name.startswith(_NOT_CONTENT):
            target.objects.delete(target.layout.root / name)
    for folder in {name.rpartition("/")[0] for name in stored}:
        target.objects.discard_partial(target.layout.root / folder if folder else target.layout.root, 0.0)


def _schema_places(target: Root) -> tuple[Location, Location, Location]:
    layout = target.layout
    return layout.schema_source, layout.schema_ir, layout.schema_state


def _write_schema(target: Root, schema: Mapping[str, bytes]) -> None:
    for at in _schema_places(target):
        target.objects.write_bytes(at, schema[at.name])


def _describe_finished_copy(graph: OpenGraph, target: Root) -> CopyResult:
    stored = target.objects.list_all(target.layout.root)
    names = [name for name in stored if not name.startswith(_NOT_CONTENT)]
    found = OpenGraph(target, read_only=True)
    head = found.load(MAIN).state.head
    return CopyResult(
        graph.root.uri,
        target.uri,
        tuple(found.branch_names()),
        None if head is None else head.id,
        len(names),
        sum(stored[name] for name in names),
        0,
        0,
        False,
    )


def _result(
    graph: OpenGraph, target: Root, cut: Cut, files: int, size: int, copied: _CopyProgress, *, read_back: bool
) -> CopyResult:
    head = cut.branches[MAIN].state.head
    return CopyResult(
        graph.root.uri,
        target.uri,
        tuple(cut.branches),
        None if head is None else head.id,
        files,
        size,
        copied.files,
        copied.bytes,
        read_back,
    )
