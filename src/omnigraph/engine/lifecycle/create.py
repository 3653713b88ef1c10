"""Create a new graph.

Small files are written first and can be removed. From the first table on nothing is undone: the graph exists
exactly when its manifest does, and that is created in one write.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from omnigraph import failpoints
from omnigraph.engine.graph import manifest
from omnigraph.engine.graph.coordinator import read_all_records
from omnigraph.engine.graph.format_stamp import CURRENT
from omnigraph.engine.graph.layout import (
    ENTITY_FOLDERS,
    is_part,
    is_table_folder,
    refuse_colliding_paths,
    split_key,
    table_keys,
    table_path,
)
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN, Records, TableVersion
from omnigraph.engine.graph.relocation import record_place
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.schema_files import LiveSchema, initial_schema, record_past_schema, render_files
from omnigraph.engine.graph.table_types import ID, table_schema
from omnigraph.errors import (
    AlreadyInitialized,
    InitializationClaimed,
    InitializationCommitted,
    InitializationIndeterminate,
    OmnigraphError,
    PlaceNotEmpty,
    StorageFailure,
)
from omnigraph.lang.values import shorten_legibly
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import commit_staged, stage_config
from omnigraph.storage.stores import require_safe_writes
from omnigraph.storage.tables import Table

_MANAGED = {"table_version_management": "true"}
_PARALLEL_CREATES = 8


def create_graph(root: Root, source: str, *, force: bool = False) -> None:
    """Create a graph with this schema at an empty root.

    `force` replaces what an initialisation that died left behind; it never touches a graph.
    """
    schema = initial_schema(source)
    keys = table_keys(schema.catalog)
    refuse_colliding_paths(keys)
    require_safe_writes(root.objects, root.layout.root)
    _refuse_existing(root, force=force)
    _refuse_other_files(root)
    # A process that holds main's lock and finds a claim knows that its owner is dead.
    with root.locks.hold([MAIN]) as held:
        _claim(root, force=force)
        genesis = root.new_id()
        _write_schema(root, held, schema, genesis, force=force)
        try:
            held.require()
            _create_tables_and_manifest(root, held, schema, keys, genesis, force=force)
            failpoints.reach(failpoints.INIT_AFTER_COORDINATOR_INIT)
            root.objects.delete(root.layout.init_claim)
        except OmnigraphError as error:
            _raise_outcome(root, genesis, error)


# --- before anything is created ------------------------------------------------------------------


def _refuse_existing(root: Root, *, force: bool) -> None:
    layout = root.layout
    if _holds_graph(root):
        raise AlreadyInitialized(root.uri, found="__manifest")
    if force:
        return
    for at in (layout.schema_source, layout.schema_ir, layout.schema_state):
        if root.objects.exists(at):
            raise AlreadyInitialized(
                root.uri,
                found=f"{at.name} of an unfinished initialisation",
                remedy="if no other process is creating it, run `omnigraph init --force`",
            )


def _refuse_other_files(root: Root) -> None:
    """Refuse a place with files that no graph has; names with a dot in front do not count."""
    found = [name for name in root.objects.list_entries(root.layout.root) if not is_part(name)]
    for folder in ENTITY_FOLDERS:
        inside = root.objects.list_entries(root.layout.root / folder)
        found += (f"{folder}/{name}" for name in inside if not is_table_folder(name))
    if found:
        raise PlaceNotEmpty(root.uri, [shorten_legibly(name) for name in sorted(found)])


def _holds_graph(root: Root) -> bool:
    """Whether there is a manifest, or enough of one that it must be a damaged graph."""
    manifest = root.layout.manifest
    parts = (root.layout.manifest_versions, manifest / "_deletions", manifest / "_refs")
    return any(root.objects.exists(at) for at in parts)


def _claim(root: Root, *, force: bool) -> None:
    text = json.dumps({"claim": root.new_id(), "created_at": root.clock()})
    at = root.layout.init_claim
    if not _create_or_match(root, at, text):
        if not force:
            raise InitializationClaimed(root.uri)
        root.objects.write_text(at, text)
    _refuse_existing_under_claim(root, force=force)


def _create_or_match(root: Root, at: Location, text: str) -> bool:
    """Create a file; True when it has this text now: the answer to an earlier put may have been lost."""
    return root.objects.write_text_if_absent(at, text) or root.objects.read_text_if_exists(at) == text


def _refuse_existing_under_claim(root: Root, *, force: bool) -> None:
    try:
        _refuse_existing(root, force=force)
    except OmnigraphError:
        root.objects.delete(root.layout.init_claim)
        raise


def _write_schema(root: Root, held: HeldLocks, schema: LiveSchema, genesis: str, *, force: bool) -> None:
    files, layout, objects = render_files(schema), root.layout, root.objects
    try:
        _write_source(root, files.source, force=force)
        failpoints.reach(failpoints.INIT_AFTER_SCHEMA_PG_WRITTEN)
        objects.write_text(layout.schema_ir, files.ir)
        objects.write_text(layout.schema_state, files.state)
        objects.write_text(layout.schema_ids, files.ids or "")
        record_past_schema(root, genesis, files.source)
        failpoints.reach(failpoints.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN)
    except AlreadyInitialized:
        objects.delete(layout.init_claim)
        raise
    except OmnigraphError:
        # The first error is raised; `force` handles files that stay. With `force` the files are kept, because
        # only they show that there may be tables of an earlier attempt.
        with suppress(StorageFailure):
            if not force and held.still_held():
                _remove_written_files(root, held, genesis)
        raise


def _write_source(root: Root, text: str, *, force: bool) -> None:
    at = root.layout.schema_source
    if force:
        root.objects.write_text(at, text)
    elif not _create_or_match(root, at, text):
        raise AlreadyInitialized(root.uri, found=at.name)


def _remove_written_files(root: Root, held: HeldLocks, genesis: str) -> None:
    layout = root.layout
    schema = (layout.schema_ids, layout.schema_state, layout.schema_ir, layout.schema_source)
    for at in (layout.past_schema(genesis), *schema, layout.init_claim):
        root.objects.delete(at, held)
    # There are no tables yet, so nothing else has a checksum.
    root.objects.delete_prefix(layout.checksums, held)


# --- tables and manifest -------------------------------------------------------------------------


def _create_tables_and_manifest(
    root: Root, held: HeldLocks, schema: LiveSchema, keys: list[str], genesis: str, *, force: bool
) -> None:
    paths = {key: table_path(*split_key(key)) for key in keys}
    if force:
        root.objects.delete_prefix(root.layout.manifest, held)

    def create(key: str) -> TableVersion:
        if force:
            root.objects.delete_prefix(root.layout.table(paths[key]), held)
        place = root.layout.table(paths[key])
        table = root.tables.create(place, table_schema(schema.catalog, key), primary_key=ID)
        return TableVersion(key, table.version, None, 0)

    with ThreadPoolExecutor(_PARALLEL_CREATES) as pool:
        versions = list(pool.map(create, keys))
    record_place(root)
    held.require()
    _create_manifest(root, paths, versions, genesis)


def _create_manifest(root: Root, paths: dict[str, str], versions: list[TableVersion], genesis: str) -> None:
    first = Commit(id=genesis, branch=MAIN, version=1, created_at=root.clock())
    records = Records(locations=paths, versions=versions, commits=[first], heads={MAIN: genesis})
    stamped = manifest.SCHEMA.with_metadata({manifest.STAMP: str(CURRENT)})
    rows = manifest.encode(records, paths)
    try:
        root.tables.create(root.layout.manifest, stamped, primary_key=manifest.KEY, rows=rows)
        failpoints.reach(failpoints.INIT_MANIFEST_CREATE_ACK_LOST)
    except OmnigraphError:
        # It may exist although the answer was lost; its first commit shows whether it is ours.
        if not _has_genesis(root, genesis):
            raise
    commit_staged(stage_config(root.tables.tip(root.layout.manifest), _MANAGED))


def _raise_outcome(root: Root, genesis: str, error: OmnigraphError) -> None:
    """Raise the outcome of a failure after the first table, read from the manifest."""
    try:
        created = _has_genesis(root, genesis)
    except StorageFailure as failure:
        raise InitializationIndeterminate(root.uri, error.message) from failure
    with suppress(StorageFailure):
        root.objects.delete(root.layout.init_claim)
    if created:
        raise InitializationCommitted(root.uri, error.message) from error
    raise error


def _has_genesis(root: Root, genesis: str) -> bool:
    try:
        table: Table = root.tables.tip(root.layout.manifest)
    except StorageFailure as failure:
        if failure.kind == TableFailureKind.NOT_FOUND:
            return False
        raise
    return any(commit.id == genesis for commit in read_all_records(table).commits)
