"""Making a new graph.

Small files come first and can be taken back. From the first table on nothing is undone: whether the
graph exists is then only a question of whether its manifest does, and that is created in one write.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from omnigraph import failpoints
from omnigraph.engine import manifest
from omnigraph.engine.columns import ID, table_schema
from omnigraph.engine.coordinator import all_records
from omnigraph.engine.layout import refuse_colliding_paths, split_key, table_keys, table_path
from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import MAIN, Records, TableVersion
from omnigraph.engine.root import Root
from omnigraph.engine.schema_files import LiveSchema, files_of, first_schema
from omnigraph.engine.stamp import CURRENT
from omnigraph.errors import (
    AlreadyInitialized,
    InitializationClaimed,
    InitializationCommitted,
    InitializationIndeterminate,
    OmnigraphError,
    StorageFailure,
)
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.locks import Held
from omnigraph.storage.probe import probe
from omnigraph.storage.staging import commit_staged, stage_config
from omnigraph.storage.tables import Table

_MANAGED = {"table_version_management": "true"}
_PARALLEL_CREATES = 8


def initialise(root: Root, source: str, *, force: bool = False) -> None:
    """Create a graph with this schema at an empty root.

    `force` replaces what an initialisation that died left behind; it never touches a graph.
    """
    schema = first_schema(source)
    keys = table_keys(schema.catalog)
    refuse_colliding_paths(keys)
    probe(root.objects, root.layout.root)
    _refuse_existing(root, force=force)
    # Whoever holds main's lock and finds a claim knows that its owner is gone.
    with root.locks.hold([MAIN]) as held:
        _claim(root, force=force)
        genesis = root.new_id()
        _write_schema(root, held, schema, genesis, force=force)
        try:
            held.require()
            _create_graph(root, held, schema, keys, genesis, force=force)
            failpoints.reach(failpoints.INIT_AFTER_COORDINATOR_INIT)
            root.objects.delete(root.layout.init_claim)
        except OmnigraphError as error:
            _settle(root, genesis, error)


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


def _holds_graph(root: Root) -> bool:
    """Whether there is a manifest, or so much of one that it must be a damaged graph and no residue."""
    manifest = root.layout.manifest
    parts = (root.layout.manifest_versions, manifest / "_deletions", manifest / "_refs")
    return any(root.objects.exists(at) for at in parts)


def _claim(root: Root, *, force: bool) -> None:
    text = json.dumps({"claim": root.new_id(), "created_at": root.clock()})
    at = root.layout.init_claim
    if not _created(root, at, text):
        if not force:
            raise InitializationClaimed(root.uri)
        root.objects.write_text(at, text)
    _refuse_existing_under_claim(root, force=force)


def _created(root: Root, at: Location, text: str) -> bool:
    """Whether this very text is there now: a store may refuse what it took a moment before, unheard."""
    return root.objects.write_text_if_absent(at, text) or root.objects.read_text_if_exists(at) == text


def _refuse_existing_under_claim(root: Root, *, force: bool) -> None:
    try:
        _refuse_existing(root, force=force)
    except OmnigraphError:
        root.objects.delete(root.layout.init_claim)
        raise


def _write_schema(root: Root, held: Held, schema: LiveSchema, genesis: str, *, force: bool) -> None:
    files, layout, objects = files_of(schema), root.layout, root.objects
    try:
        _write_source(root, files.source, force=force)
        failpoints.reach(failpoints.INIT_AFTER_SCHEMA_PG_WRITTEN)
        objects.write_text(layout.schema_ir, files.ir)
        objects.write_text(layout.schema_state, files.state)
        objects.write_text_if_absent(layout.past_schema(genesis), files.source)
        failpoints.reach(failpoints.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN)
    except AlreadyInitialized:
        objects.delete(layout.init_claim)
        raise
    except OmnigraphError:
        # What failed first is the news, and what cannot be taken back is what `force` is for. With it
        # there may be tables of an earlier attempt, and only the files here tell of these.
        with suppress(StorageFailure):
            if not force and held.still_held():
                _take_back(root, genesis)
        raise


def _write_source(root: Root, text: str, *, force: bool) -> None:
    at = root.layout.schema_source
    if force:
        root.objects.write_text(at, text)
    elif not _created(root, at, text):
        raise AlreadyInitialized(root.uri, found=at.name)


def _take_back(root: Root, genesis: str) -> None:
    layout = root.layout
    own = (layout.past_schema(genesis), layout.schema_state, layout.schema_ir, layout.schema_source)
    for at in (*own, layout.init_claim):
        root.objects.delete(at)


# --- tables and manifest -------------------------------------------------------------------------


def _create_graph(
    root: Root, held: Held, schema: LiveSchema, keys: list[str], genesis: str, *, force: bool
) -> None:
    paths = {key: table_path(*split_key(key)) for key in keys}
    if force:
        root.objects.delete_prefix(root.layout.manifest)

    def create(key: str) -> TableVersion:
        if force:
            root.objects.delete_prefix(root.layout.table(paths[key]))
        place = root.layout.table(paths[key])
        table = root.tables.create(place, table_schema(schema.catalog, key), primary_key=ID)
        return TableVersion(key, table.version, None, 0)

    with ThreadPoolExecutor(_PARALLEL_CREATES) as pool:
        versions = list(pool.map(create, keys))
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
        # It may be there although the answer was lost; the first commit in it tells whose it is.
        if not _has_genesis(root, genesis):
            raise
    commit_staged(stage_config(root.tables.tip(root.layout.manifest), _MANAGED))


def _settle(root: Root, genesis: str, error: OmnigraphError) -> None:
    """Something failed after the first table may have been made: only the manifest tells how it ended."""
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
        if failure.kind == Trouble.NOT_FOUND:
            return False
        raise
    return any(commit.id == genesis for commit in all_records(table).commits)
