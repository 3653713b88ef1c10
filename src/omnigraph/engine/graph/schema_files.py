"""The schema a graph works with, now and in the past, as files below its root.

Three files are the contract with every implementation: the text, the compiled schema and the hash that binds
them. A fourth is ours alone, the identities that survive a rename. It says which compiled schema it belongs
to; where it is missing or belongs to another one, the identities follow from names and rename hints.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from functools import cached_property, lru_cache, partial
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.lineage import Commit, walk_first_parents
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.table_types import TableType, table_types_of
from omnigraph.errors import CompileError, GraphNotFound, SchemaContractBroken
from omnigraph.lang.schema import AcceptedSchema, first_identities, resolve
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.identity import Identities, follow, parse_identities, render_identities
from omnigraph.lang.schema.ir import (
    compile_with_ir,
    has_same_meaning,
    ir_hash,
    is_legacy,
    legacy_hash,
    read_legacy,
    render,
)
from omnigraph.storage.concurrency import Together
from omnigraph.storage.location import Location

_STATE_FORMAT = 1
_IDENTITY_VERSION = 1
_READS = 4
_MARK = re.compile(r"\n[ \t]{64}\n\Z")
"""The line that `make_texts_unique` adds."""
_REMEDY = "restore the schema files from a backup; the data is not affected"


@dataclass(frozen=True, slots=True)
class SchemaFiles:
    """The texts of the schema files."""

    source: str
    ir: str
    state: str
    ids: str | None = None
    """The identities, where they are to be written."""


@dataclass(frozen=True)
class LiveSchema:
    """The accepted schema, and the text it was written as."""

    source: str
    accepted: AcceptedSchema
    hash: str
    """The hash of the compiled schema."""
    is_legacy: bool = False
    """Whether the compiled schema has the format of an earlier release."""

    @property
    def catalog(self) -> Catalog:
        """The types that the schema declares."""
        return self.accepted.catalog

    @cached_property
    def targets(self) -> Mapping[str, TableType]:
        """Every type, by table key; computed once for all writes."""
        return table_types_of(self.accepted)


def initial_schema(source: str) -> LiveSchema:
    """Return the schema of a new graph."""
    catalog, value = compile_with_ir(source)
    return LiveSchema(source, AcceptedSchema(catalog, first_identities(catalog)), ir_hash(value))


def successor(accepted: AcceptedSchema, source: str) -> LiveSchema:
    """Return the schema that succeeds the accepted one; deterministic for the same text."""
    catalog, value = compile_with_ir(source)
    following = AcceptedSchema(catalog, resolve(accepted, catalog).identities)
    return LiveSchema(source, following, ir_hash(value))


def render_files(schema: LiveSchema) -> SchemaFiles:
    """Return the files of a schema."""
    _, value = compile_with_ir(schema.source)
    found = ir_hash(value)
    state = {
        "format_version": _STATE_FORMAT,
        "schema_ir_hash": found,
        "schema_identity_version": _IDENTITY_VERSION,
    }
    ids = render_identities(schema.accepted.known_identities, found)
    return SchemaFiles(schema.source, render(value, indent=2), json.dumps(state, indent=2), ids)


def render_identities_file(schema: LiveSchema) -> str:
    """Return the identities file of a schema whose other files stay."""
    return render_identities(schema.accepted.known_identities, schema.hash)


def make_texts_unique(files: SchemaFiles) -> SchemaFiles:
    """Return the files with a unique line of blanks at the end of each text.

    A bucket identifies a version of an object by its content. When an earlier schema is accepted again, a
    paused process that read it before must not mistake it for the version it read.
    """
    mark = format(secrets.randbits(64), "064b").translate({ord("0"): " ", ord("1"): "\t"})
    source, ir, state = (f"{text}\n{mark}\n" for text in (files.source, files.ir, files.state))
    return SchemaFiles(source, ir, state, files.ids)


def read_schema(root: Root) -> LiveSchema:
    """Read the accepted schema; its three files must agree. Identities are read only for composite keys."""
    return _read(root, identities=False).schema


def read_identified_schema(root: Root) -> IdentifiedSchema:
    """Read the accepted schema with its identities."""
    return _read(root, identities=True)


def _read(root: Root, *, identities: bool) -> IdentifiedSchema:
    live = files = _live_files(root)
    for _ in range(_READS):
        try:
            found = bind_schema(files)
            if found.is_legacy or not (identities or _has_composite_keys(found.catalog)):
                return IdentifiedSchema(found, is_current=False)
            ids = root.objects.read_text_if_exists(root.layout.schema_ids)
            known = identify_schema(files, ids)
            if files is not live:
                # Some of the files are still staged.
                return IdentifiedSchema(known.schema, is_current=False)
            if ids is None or known.is_current:
                return known
            # Another schema may have been accepted meanwhile: then the files have changed.
            again = _live_files(root)
            if again == files:
                return known
            live = files = again
        except SchemaContractBroken:
            # Its successor may be replacing it now, file by file, the source first.
            newest = read_newest_files(root)
            if newest == files or newest.source != _read_required(root, root.layout.schema_source):
                raise
            files = newest
    return identify_schema(files, root.objects.read_text_if_exists(root.layout.schema_ids))


def _live_files(root: Root) -> SchemaFiles:
    with Together(root.layout.root) as calls:
        texts = [calls.add(partial(_read_required, root, at)) for at in live_places(root)]
    return SchemaFiles(*(text.answer for text in texts))


def _has_composite_keys(catalog: Catalog) -> bool:
    return any(len(node.key) > 1 for node in catalog.nodes.values())


def live_places(root: Root) -> tuple[Location, Location, Location]:
    """Return the locations of the three files that must agree, in the order in which they are replaced."""
    layout = root.layout
    return layout.schema_source, layout.schema_ir, layout.schema_state


def read_newest_files(root: Root) -> SchemaFiles:
    """Read the schema files, preferring staged ones."""
    texts = []
    for at in live_places(root):
        staged = root.objects.read_text_if_exists(root.layout.staged(at))
        texts.append(_read_required(root, at) if staged is None else staged)
    return SchemaFiles(*texts)


def read_schema_hash(root: Root) -> str:
    """Return the hash of the accepted schema, with one read."""
    state = _json(_read_required(root, root.layout.schema_state), "__schema_state.json")
    return str(state.get("schema_ir_hash"))


def _read_required(root: Root, at: Location) -> str:
    text = root.objects.read_text_if_exists(at)
    if text is None:
        refuse_unfinished_copy(root)
        raise SchemaContractBroken(f"schema file '{at.uri}' is missing", remedy=_REMEDY)
    return text


def refuse_unfinished_copy(root: Root) -> None:
    """Raise `GraphNotFound` while a copy to this location is unfinished: its schema is written last."""
    if root.objects.exists(root.layout.copy_note):
        raise GraphNotFound(root.uri, reason="the copy to it is not finished; `omnigraph copy` continues it")


# A schema is read once for every operation and changes almost never.
@lru_cache(maxsize=64)
def bind_schema(files: SchemaFiles) -> LiveSchema:
    """Return the schema of three files; raises `SchemaContractBroken` when they disagree."""
    value = _json(files.ir, "_schema.ir.json")
    state = _json(files.state, "__schema_state.json")
    if state.get("format_version") != _STATE_FORMAT:
        found = state.get("format_version")
        raise SchemaContractBroken(
            f"__schema_state.json has format {found}, and this release knows {_STATE_FORMAT}",
            remedy="upgrade omnigraph, or restore the schema files from a backup",
        )
    legacy = is_legacy(value)
    if state.get("schema_ir_hash") != _hash(value, legacy=legacy):
        raise SchemaContractBroken(
            "the schema files disagree: the compiled schema was changed", remedy=_REMEDY
        )
    try:
        catalog, compiled = compile_with_ir(files.source, "_schema.pg")
    except CompileError as error:
        raise SchemaContractBroken(f"_schema.pg does not compile: {error.message}", remedy=_REMEDY) from error
    identities = None
    if legacy:
        fingerprint, identities = _read_legacy(value)
        agrees = catalog.fingerprint == fingerprint and _covers(identities, catalog)
    else:
        agrees = has_same_meaning(value, compiled)
    if not agrees:
        raise SchemaContractBroken("the schema files disagree: _schema.pg was changed", remedy=_REMEDY)
    accepted = AcceptedSchema(catalog, identities)
    return LiveSchema(_MARK.sub("", files.source), accepted, state["schema_ir_hash"], is_legacy=legacy)


def _read_legacy(value: dict[str, Any]) -> tuple[str, Identities]:
    try:
        return read_legacy(value)
    except ValueError as error:
        raise SchemaContractBroken(f"_schema.ir.json: {error}", remedy=_REMEDY) from error


def _covers(identities: Identities, catalog: Catalog) -> bool:
    """Whether everything that a schema declares has a number."""
    known = identities.by_owner()
    return all(
        (kind, owner.name) in identities.types and owner.properties.keys() <= known[kind, owner.name].keys()
        for kind, owner in catalog.owners()
    )


@dataclass(frozen=True, slots=True)
class IdentifiedSchema:
    """A schema with its identities, and whether the identities file is up to date."""

    schema: LiveSchema
    is_current: bool


@lru_cache(maxsize=64)
def identify_schema(files: SchemaFiles, ids: str | None) -> IdentifiedSchema:
    """Return the schema of three files with the identities of the fourth."""
    schema = bind_schema(files)
    if schema.is_legacy:
        return IdentifiedSchema(schema, is_current=False)
    known = None if ids is None else read_identities(ids)
    current = known is not None and known[1] == schema.hash and _covers(known[0], schema.catalog)
    return IdentifiedSchema(with_identities(schema, known), current)


def with_identities(schema: LiveSchema, known: tuple[Identities, str | None] | None) -> LiveSchema:
    """Return the schema with identities derived from known ones, of this schema or its predecessor."""
    if known is None:
        return _with(schema, first_identities(schema.catalog))
    identities, of = known
    current = of == schema.hash and _covers(identities, schema.catalog)
    return _with(schema, identities if current else follow(identities, schema.catalog))


def _with(schema: LiveSchema, identities: Identities) -> LiveSchema:
    return LiveSchema(schema.source, AcceptedSchema(schema.catalog, identities), schema.hash)


def read_identities(text: str) -> tuple[Identities, str | None]:
    """Parse an identities file; returns also the hash of the compiled schema it belongs to."""
    try:
        return parse_identities(text)
    except ValueError as error:
        raise SchemaContractBroken(
            f"_schema.ids.json is damaged: {error}",
            remedy="restore it from a backup, or delete it: identities then follow from names alone",
        ) from error


def compiled_identities(ir: str) -> Identities | None:
    """Return the identities inside a compiled schema of an earlier release; None in the current format."""
    value = _json(ir, "_schema.ir.json")
    return _read_legacy(value)[1] if is_legacy(value) else None


def _hash(ir: dict[str, Any], *, legacy: bool) -> str | None:
    try:
        return legacy_hash(ir) if legacy else ir_hash(ir)
    except UnicodeEncodeError:
        # A lone surrogate, which no schema has.
        return None


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaContractBroken(f"{name} is not readable: {error}", remedy=_REMEDY) from error
    if not isinstance(found, dict):
        raise SchemaContractBroken(f"{name} is not an object", remedy=_REMEDY)
    return found


def find_past_source(root: Root, commits: Mapping[str, Commit], commit_id: str) -> str | None:
    """Return the schema text of a commit, if the graph recorded it, with one list and one read."""
    found = find_past_schema(root, commits, commit_id)
    return None if found is None else found.source


@dataclass(frozen=True, slots=True)
class PastSchema:
    """A schema text, and the commit that accepted it."""

    commit_id: str
    source: str


def find_past_schema(root: Root, commits: Mapping[str, Commit], commit_id: str) -> PastSchema | None:
    """Return the recorded schema of a commit, if there is one, with one list and one read."""
    found = root.objects.list_dir(root.layout.past_schemas)
    recorded = {at.name.removesuffix(".pg") for at in found if at.name.endswith(".pg")}
    for commit in walk_first_parents(commits, commit_id):
        if commit.id in recorded:
            return PastSchema(commit.id, root.objects.read_text(root.layout.past_schema(commit.id)))
    return None


def record_past_schema(root: Root, commit_id: str, source: str, *, if_absent: bool = True) -> None:
    """Record the schema text that a commit accepts, with its checksum where checksums are kept."""
    at = root.layout.past_schema(commit_id)
    if if_absent:
        root.objects.write_text_if_absent(at, source)
    else:
        root.objects.write_text(at, source)
    checksums = root.tables.access.checksums
    if checksums is not None:
        checksums.note(root.layout.past_schemas.path, [at.path])


def record_accepted_schema(
    root: Root, commits: Mapping[str, Commit], head: str | None, schema: LiveSchema
) -> None:
    """Record the accepted schema before it changes, unless it is recorded.

    Graphs of other implementations have no record: the accepted schema was that of all commits so far. Where
    another implementation changed a recorded schema, the new record counts from the head on.
    """
    if head is None:
        return
    known = find_past_source(root, commits, head)
    if known is None:
        *_, first = walk_first_parents(commits, head)
        record_past_schema(root, first.id, schema.source)
    elif _differs(known, schema):
        record_past_schema(root, head, schema.source)


def _differs(source: str, schema: LiveSchema) -> bool:
    return source != schema.source and ir_hash(compile_with_ir(source)[1]) != schema.hash
