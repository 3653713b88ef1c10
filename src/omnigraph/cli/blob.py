"""`omnigraph blob`: the bytes of Blobs, which no query returns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import Uri, open_graph, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson, Branch, Commit
from omnigraph.cli.output import print_result
from omnigraph.engine.files.atomic_output import new_file
from omnigraph.engine.rows.blobs import Blob, require_range
from omnigraph.errors import BadRequest, StorageFailure

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.client.snapshot import RemoteSnapshot
    from omnigraph.graph import Graph
    from omnigraph.snapshot import Snapshot

app = new_app()


class Entity(StrEnum):
    """What a Blob belongs to."""

    NODE = "node"
    EDGE = "edge"


Kind = Annotated[Entity, typer.Argument(help="What it belongs to: node or edge.", metavar="ENTITY")]
TypeName = Annotated[str, typer.Argument(help="The type.", metavar="TYPE")]
Id = Annotated[str, typer.Argument(help="The id of the node or edge.", metavar="ID")]
Property = Annotated[str, typer.Argument(help="The property.", metavar="PROPERTY")]


@app.callback()
def blob() -> None:
    """Read a Blob, or see how large it is."""


@app.command()
def get(
    entity: Kind,
    type_name: TypeName,
    id: Id,
    property_name: Property,
    branch: Branch = None,
    commit: Commit = None,
    offset: Annotated[
        int | None, typer.Option("--offset", help="The first byte, counted from 0.", metavar="N")
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", help="How many bytes, at most.", metavar="N")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write them to this file.", metavar="FILE")
    ] = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Write the bytes of a Blob, or a range of them, as they are."""
    require_range(offset, length)
    if out is None and as_json:
        raise BadRequest("--json and bytes on standard output exclude each other", remedy="use --out")
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        found = _open_moment(opened, branch, commit).blob(type_name, id, property_name, entity=entity.value)
        parts = found.parts(offset, length)
        # Read before anything is opened: what fails here leaves the file as it is.
        first = next(parts, b"")
        if out is None:
            _print_parts(first, parts)
        else:
            with new_file(out, overwrite=True) as temporary, temporary.open("wb") as stream:
                stream.write(first)
                stream.writelines(parts)
                written = stream.tell()
            report = {**_collect_facts(found), "out": str(out), "bytes_written": written}
            print_result(report, f"wrote {written:,} bytes to {out}", as_json=as_json)


@app.command()
def stat(
    entity: Kind,
    type_name: TypeName,
    id: Id,
    property_name: Property,
    branch: Branch = None,
    commit: Commit = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Show how large a Blob is, without reading it."""
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened:
        moment = _open_moment(opened, branch, commit)
        found = moment.blob(type_name, id, property_name, entity=entity.value)
    facts = _collect_facts(found)
    target = {"snapshot": commit} if commit is not None else {"branch": moment.branch}
    report = {**facts, "target": {**target, "resolved_snapshot": moment.id}}
    lines = [f"{name}: {value}" for name, value in facts.items() if name != "selector"]
    print_result(report, "\n".join([*lines, f"snapshot: {moment.id}"]), as_json=as_json)


def _open_moment(
    opened: Graph | RemoteGraph, branch: str | None, commit: str | None
) -> Snapshot | RemoteSnapshot:
    if branch is not None and commit is not None:
        raise BadRequest("--branch and --snapshot are mutually exclusive")
    return opened.snapshot(branch or "main") if commit is None else opened.at(commit=commit)


def _collect_facts(found: Blob) -> dict[str, Any]:
    """What is known of a Blob; what does not apply to its kind is left out."""
    selector = {
        "entity": found.entity,
        "type": found.type_name,
        "id": found.id,
        "property": found.property_name,
    }
    known = {"size": found.size, "etag": found.etag, "uri": found.uri}
    facts = {name: value for name, value in known.items() if value is not None}
    return {"selector": selector, "kind": found.kind, **facts}


def _print_parts(first: bytes, parts: Iterator[bytes]) -> None:
    try:
        sys.stdout.buffer.write(first)
        sys.stdout.buffer.writelines(parts)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise StorageFailure(f"cannot write the output: {failure.strerror}", kind="output") from failure
