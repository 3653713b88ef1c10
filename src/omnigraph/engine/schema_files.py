"""The schema a graph works with, now and in the past, as files below its root."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from omnigraph.engine.lineage import Commit, first_parents
from omnigraph.engine.root import Root
from omnigraph.engine.write.target import Target, targets_of
from omnigraph.errors import CompileError, SchemaContractBroken
from omnigraph.lang.schema import AcceptedSchema, compile_schema, first_identities, resolve
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.ir import from_json, ir_hash, to_json
from omnigraph.storage.location import Location

_STATE_FORMAT = 1
_IDENTITY_VERSION = 1
_READS = 4
_MARK = re.compile(r"\n[ \t]{64}\n\Z")
"""What `told_apart` adds."""
_REMEDY = "restore the schema files from a backup; the data is not affected"


@dataclass(frozen=True, slots=True)
class SchemaFiles:
    """What the three schema files hold."""

    source: str
    ir: str
    state: str


@dataclass(frozen=True)
class LiveSchema:
    """The accepted schema, and the text it was written as."""

    source: str
    accepted: AcceptedSchema
    hash: str
    """What the compiled schema is recognised by."""

    @property
    def catalog(self) -> Catalog:
        """What the schema says."""
        return self.accepted.catalog

    @cached_property
    def targets(self) -> Mapping[str, Target]:
        """The target of every type, by table: made once, because a write to one type needs no other."""
        return targets_of(self.accepted)


def first_schema(source: str) -> LiveSchema:
    """The schema of a new graph."""
    catalog = compile_schema(source)
    accepted = AcceptedSchema(catalog, first_identities(catalog))
    return LiveSchema(source, accepted, ir_hash(to_json(accepted)))


def successor(accepted: AcceptedSchema, source: str) -> LiveSchema:
    """The schema that a text makes of the accepted one: whoever works it out, it is the same."""
    catalog = compile_schema(source)
    following = AcceptedSchema(catalog, resolve(accepted, catalog).identities)
    return LiveSchema(source, following, ir_hash(to_json(following)))


def files_of(schema: LiveSchema) -> SchemaFiles:
    """The files that record a schema."""
    value = to_json(schema.accepted)
    state = {
        "format_version": _STATE_FORMAT,
        "schema_ir_hash": schema.hash,
        "schema_identity_version": _IDENTITY_VERSION,
    }
    return SchemaFiles(schema.source, json.dumps(value, indent=2), json.dumps(state, indent=2))


def told_apart(files: SchemaFiles) -> SchemaFiles:
    """The same files as texts that never were before, by a line of blanks at the end of each.

    A bucket knows a state of an object by its content. When a schema comes back that was there before,
    whoever found it then, and slept since, must not take it for what he found.
    """
    mark = format(secrets.randbits(64), "064b").translate({ord("0"): " ", ord("1"): "\t"})
    return SchemaFiles(*(f"{text}\n{mark}\n" for text in (files.source, files.ir, files.state)))


def read_schema(root: Root) -> LiveSchema:
    """The accepted schema; its three files must agree."""
    files = SchemaFiles(*(_present(root, at) for at in live_places(root)))
    for _ in range(_READS):
        try:
            return bound(files)
        except SchemaContractBroken:
            # Its successor may be taking its place at this moment, file by file, the source first.
            newest = newest_files(root)
            if newest == files or newest.source != _present(root, root.layout.schema_source):
                raise
            files = newest
    return bound(files)


def live_places(root: Root) -> tuple[Location, Location, Location]:
    """Where the files of the accepted schema are, in the order in which they are replaced."""
    layout = root.layout
    return layout.schema_source, layout.schema_ir, layout.schema_state


def newest_files(root: Root) -> SchemaFiles:
    """The schema files, each in the form of a schema on its way where there is one."""
    texts = []
    for at in live_places(root):
        staged = root.objects.read_text_if_exists(root.layout.staged(at))
        texts.append(_present(root, at) if staged is None else staged)
    return SchemaFiles(*texts)


def schema_hash(root: Root) -> str:
    """What the accepted schema is recognised by: one read."""
    state = _json(_present(root, root.layout.schema_state), "__schema_state.json")
    return str(state.get("schema_ir_hash"))


def _present(root: Root, at: Location) -> str:
    text = root.objects.read_text_if_exists(at)
    if text is None:
        raise SchemaContractBroken(f"schema file '{at.uri}' is missing", remedy=_REMEDY)
    return text


# A schema is read once for every operation and changes almost never.
@lru_cache(maxsize=64)
def bound(files: SchemaFiles) -> LiveSchema:
    """The schema that three files describe, if they agree."""
    value = _json(files.ir, "_schema.ir.json")
    state = _json(files.state, "__schema_state.json")
    if state.get("format_version") != _STATE_FORMAT:
        found = state.get("format_version")
        raise SchemaContractBroken(
            f"__schema_state.json has format {found}, and this release knows {_STATE_FORMAT}",
            remedy="upgrade omnigraph, or restore the schema files from a backup",
        )
    if state.get("schema_ir_hash") != _hash(value):
        raise SchemaContractBroken(
            "the schema files disagree: the compiled schema was changed", remedy=_REMEDY
        )
    accepted = from_json(value)
    try:
        catalog = compile_schema(files.source, "_schema.pg")
    except CompileError as error:
        raise SchemaContractBroken(f"_schema.pg does not compile: {error.message}", remedy=_REMEDY) from error
    if catalog.fingerprint != accepted.catalog.fingerprint:
        raise SchemaContractBroken("the schema files disagree: _schema.pg was changed", remedy=_REMEDY)
    return LiveSchema(_MARK.sub("", files.source), accepted, state["schema_ir_hash"])


def compiled(ir: str) -> tuple[AcceptedSchema, str | None]:
    """A compiled schema by itself, and what it is recognised by."""
    value = _json(ir, "_schema.ir.json")
    return from_json(value), _hash(value)


def _hash(ir: dict[str, Any]) -> str | None:
    try:
        return ir_hash(ir)
    except UnicodeEncodeError:
        # Half a character, which no schema has.
        return None


def _json(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaContractBroken(f"{name} is not readable: {error}", remedy=_REMEDY) from error
    if not isinstance(found, dict):
        raise SchemaContractBroken(f"{name} is not an object", remedy=_REMEDY)
    return found


def past_source(root: Root, commits: Mapping[str, Commit], commit_id: str) -> str | None:
    """The schema text that held at a commit, if the graph recorded it: one list and one read."""
    found = root.objects.list_dir(root.layout.past_schemas)
    recorded = {at.name.removesuffix(".pg") for at in found if at.name.endswith(".pg")}
    for commit in first_parents(commits, commit_id):
        if commit.id in recorded:
            return root.objects.read_text(root.layout.past_schema(commit.id))
    return None


def remember_schema(root: Root, commits: Mapping[str, Commit], head: str | None, schema: LiveSchema) -> None:
    """Record the accepted schema for all commits so far, where none is recorded: before it changes.

    Graphs that older releases made have no record, and until now the accepted schema was that of all of them.
    """
    if head is None or past_source(root, commits, head) is not None:
        return
    *_, first = first_parents(commits, head)
    root.objects.write_text_if_absent(root.layout.past_schema(first.id), schema.source)
