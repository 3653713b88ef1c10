"""A staged schema: its files are beside the live ones until the write that accepts it is visible.

They are complete before the write is confirmed, and promoted after it is published. Until the last one is
promoted, a reader uses the staged version of each file where there is one; so it finds one complete schema.

A file is replaced only if it has not changed since it was read: a process that was paused, while the next
schema was accepted, changes nothing.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.schema_files import (
    SchemaFiles,
    bind_schema,
    compiled_identities,
    initial_schema,
    live_places,
    make_texts_unique,
    read_identified_schema,
    read_identities,
    record_accepted_schema,
    render_files,
    render_identities_file,
    with_identities,
)
from omnigraph.errors import LockLost, OmnigraphError, SchemaContractBroken
from omnigraph.lang.schema.identity import Identities
from omnigraph.lang.schema.ir import legacy_hash, legacy_ir
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.objects import VersionedText

_REMEDY = "restore the schema files from a backup; the data is not affected"


@dataclass(frozen=True, slots=True)
class StagedSchema:
    """A schema, and the live files that it replaces."""

    files: SchemaFiles
    replaced: tuple[VersionedText, VersionedText, VersionedText]
    replaced_ids: VersionedText | None
    """The file of identities; None where there was none."""


def stage_schema(root: Root, files: SchemaFiles) -> StagedSchema:
    """Write the staged files of a schema."""
    replaced, files = _live(root), make_unique_in_bucket(root, files)
    texts = (files.source, files.ir, files.state)
    for at, text in zip(live_places(root), texts, strict=True):
        root.objects.write_text(root.layout.staged(at), text)
    return StagedSchema(files, replaced, _live_ids(root))


def read_staged_schema(root: Root, target: str | None, commit_id: str) -> StagedSchema:
    """Return the schema that an interrupted write staged, even if some files are promoted already.

    Its commit is visible, so it must be accepted. In a bucket a process that was paused may have removed or
    replaced the files: then they are rebuilt from the text that the commit accepted.
    """
    replaced, ids = _live(root), _live_ids(root)
    texts_staged = [root.objects.read_text_if_exists(root.layout.staged(at)) for at in live_places(root)]
    texts = [now.text if new is None else new for now, new in zip(replaced, texts_staged, strict=True)]
    files = SchemaFiles(*texts)
    if target is not None and _hash(files) != target:
        files = _rebuild_files(root, target, commit_id, replaced[1].text, ids)
    else:
        files = _add_derived_identities(files, replaced[1].text, ids)
    return StagedSchema(files, replaced, ids)


def _hash(files: SchemaFiles) -> str | None:
    """Return the hash of a schema; None when its files disagree."""
    try:
        return bind_schema(files).hash
    except SchemaContractBroken:
        return None


def _add_derived_identities(files: SchemaFiles, compiled_now: str, ids: VersionedText | None) -> SchemaFiles:
    """Return the files with identities derived from the live ones, where the format has none inside."""
    if bind_schema(files).accepted.identities is not None:
        return files
    known = _identities_now(compiled_now, ids)
    return replace(files, ids=render_files(with_identities(bind_schema(files), known)).ids)


def _identities_now(compiled_now: str, ids: VersionedText | None) -> tuple[Identities, str | None] | None:
    """Return the live identities, which may be those of the new schema already, and their schema hash."""
    inside = compiled_identities(compiled_now)
    if inside is not None:
        return inside, None
    return None if ids is None else read_identities(ids.text)


def _rebuild_files(
    root: Root, target: str, commit_id: str, compiled_now: str, ids: VersionedText | None
) -> SchemaFiles:
    missing = f"the files of the schema that commit '{commit_id}' accepted are missing"
    source = root.objects.read_text_if_exists(root.layout.past_schema(commit_id))
    if source is None:
        raise SchemaContractBroken(missing, remedy=_REMEDY)
    try:
        found = with_identities(initial_schema(source), _identities_now(compiled_now, ids))
    except OmnigraphError as error:
        raise SchemaContractBroken(f"{missing}: {error.message}", remedy=_REMEDY) from error
    if target not in (found.hash, legacy_hash(legacy_ir(found.accepted))):
        raise SchemaContractBroken(missing, remedy=_REMEDY)
    return make_unique_in_bucket(root, render_files(found))


def make_unique_in_bucket(root: Root, files: SchemaFiles) -> SchemaFiles:
    """Make the texts unique in a bucket, where a paused process is not kept out by the lock."""
    return files if root.layout.root.is_local else make_texts_unique(files)


def _live(root: Root) -> tuple[VersionedText, VersionedText, VersionedText]:
    source, ir, state = (_present(root, at) for at in live_places(root))
    return source, ir, state


def _live_ids(root: Root) -> VersionedText | None:
    return root.objects.read_text_versioned(root.layout.schema_ids)


def _present(root: Root, at: Location) -> VersionedText:
    found = root.objects.read_text_versioned(at)
    if found is None:
        raise SchemaContractBroken(f"schema file '{at.uri}' is missing", remedy=_REMEDY)
    return found


def is_schema_staged(root: Root, target: str | None) -> bool:
    """Whether all files of a schema are there and agree, and are those of `target` if one is given."""
    texts = [root.objects.read_text_if_exists(root.layout.staged(at)) for at in live_places(root)]
    present = [text for text in texts if text is not None]
    if len(present) < len(texts):
        return False
    try:
        found = bind_schema(SchemaFiles(*present))
    except SchemaContractBroken:
        return False
    return target is None or found.hash == target


def promote_schema(root: Root, held: HeldLocks, staged: StagedSchema) -> None:
    """Promote the files of an accepted schema; idempotent."""
    files = staged.files
    texts = (files.source, files.ir, files.state)
    for at, before, text in zip(live_places(root), staged.replaced, texts, strict=True):
        held.require()
        if not replace_if_unchanged(root, at, before, text):
            return  # another process finished it and continued
    held.require()
    # Last: until then they follow from those of the schema before.
    store_identities(root, staged.files.ids, staged.replaced_ids)
    held.require()
    # Who holds the lock instead, if it was lost, finishes the change again, and removes them.
    with suppress(LockLost):
        discard_staged_schema(root, held)


def store_identities(root: Root, ids: str | None, before: VersionedText | None) -> None:
    """Write the identities, unless they changed since they were read."""
    if ids is None:
        return
    if before is None:
        root.objects.write_text_if_absent(root.layout.schema_ids, ids)
    else:
        root.objects.write_text_if_match(root.layout.schema_ids, ids, before.token)


def replace_if_unchanged(root: Root, at: Location, before: VersionedText, text: str) -> bool:
    """Replace a file unless it changed since it was read; True when it has the text in the end."""
    if root.objects.write_text_if_match(at, text, before.token) is not None:
        return True
    return root.objects.read_text_if_exists(at) == text


def discard_staged_schema(root: Root, held: HeldLocks) -> None:
    """Remove the files of a staged schema; `held` has main's lock."""
    for at in live_places(root):
        root.objects.delete(root.layout.staged(at), held)


_log = logging.getLogger(__name__)


def upgrade_if_free(graph: OpenGraph) -> bool:
    """Upgrade the schema files unless main is locked; False when the upgrade was skipped.

    The accepted schema is recorded too: if another implementation changes it, the past stays readable.
    """
    root = graph.root
    held = root.locks.try_acquire([MAIN])
    if held is None:
        return False
    with held:
        done = upgrade_schema_files(root, held)
        if done:
            state = graph.load(MAIN).state
            held.require()
            record_accepted_schema(root, state.commits, state.head.id if state.head else None, graph.schema())
        return done


def upgrade_schema_files(root: Root, held: HeldLocks) -> bool:
    """Upgrade the schema files; `held` has main's lock. False while a record may be about the schema."""
    if sidecar.operations(root):
        return False
    found = read_identified_schema(root)
    if found.is_current:
        return True
    wanted, live = render_files(found.schema), _read_live_files(root)
    stays = _has_common_shape(live)
    ids = render_identities_file(found.schema) if stays else wanted.ids
    held.require()
    store_identities(root, ids, root.objects.read_text_versioned(root.layout.schema_ids))
    if not stays:
        _replace(root, held, make_unique_in_bucket(root, wanted), live)
        _log.info("the compiled schema of '%s' has the common shape now", root.uri)
    return True


def _read_live_files(root: Root) -> list[VersionedText]:
    found = [root.objects.read_text_versioned(at) for at in live_places(root)]
    return [each for each in found if each is not None]


def _has_common_shape(live: list[VersionedText]) -> bool:
    try:
        return not bind_schema(SchemaFiles(*(each.text for each in live))).is_legacy
    except SchemaContractBroken:
        return False  # an upgrade died between the two files


def _replace(root: Root, held: HeldLocks, wanted: SchemaFiles, live: list[VersionedText]) -> None:
    """Put compiled schema and state in place; until both are, each counts in its staged form."""
    _, *places = live_places(root)
    texts = (wanted.ir, wanted.state)
    for at, text in zip(places, texts, strict=True):
        held.require()
        root.objects.write_text(root.layout.staged(at), text)
    for at, before, text in zip(places, live[1:], texts, strict=True):
        held.require()
        if not replace_if_unchanged(root, at, before, text):
            return
    held.require()
    discard_staged_schema(root, held)
