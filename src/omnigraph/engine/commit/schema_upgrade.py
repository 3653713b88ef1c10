"""Upgrade the schema files of a graph to the format this release writes.

Earlier releases kept identities inside the compiled schema, and the reference implementation keeps none. A
graph of either kind works as it is. When it is opened for writing and main is free, its compiled schema gets
the common format and its identities a separate file. The identities are written first: a crash in between
leaves files that read as the same schema.
"""

from __future__ import annotations

import logging

from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.schema_staging import (
    discard_staged_schema,
    make_unique_in_bucket,
    replace_if_unchanged,
    store_identities,
)
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.schema_files import (
    SchemaFiles,
    bind_schema,
    live_places,
    read_identified_schema,
    record_accepted_schema,
    render_files,
    render_identities_file,
)
from omnigraph.errors import SchemaContractBroken
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.objects import VersionedText

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
    wanted, live = render_files(found.schema), _live(root)
    stays = _has_common_shape(live)
    ids = render_identities_file(found.schema) if stays else wanted.ids
    held.require()
    store_identities(root, ids, root.objects.read_text_versioned(root.layout.schema_ids))
    if not stays:
        _replace(root, held, make_unique_in_bucket(root, wanted), live)
        _log.info("the compiled schema of '%s' has the common shape now", root.uri)
    return True


def _live(root: Root) -> list[VersionedText]:
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
    discard_staged_schema(root)
