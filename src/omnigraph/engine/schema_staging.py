"""A schema on its way: its files wait beside the present ones until the write that accepts it is visible.

They are complete before the write is confirmed, and put in place after it is published. Until the last of
them is in its place, each file counts in its newest form; so whoever reads in between finds one schema,
whole.

A file is replaced only while it is the one that was found: whoever wakes up late, when the next schema may be
the accepted one, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.engine.root import Root
from omnigraph.engine.schema_files import (
    LiveSchema,
    SchemaFiles,
    bound,
    compiled,
    files_of,
    live_places,
    successor,
    told_apart,
)
from omnigraph.errors import OmnigraphError, SchemaContractBroken
from omnigraph.storage.location import Location
from omnigraph.storage.locks import Held
from omnigraph.storage.objects import Versioned

_REMEDY = "restore the schema files from a backup; the data is not affected"


@dataclass(frozen=True, slots=True)
class Succession:
    """A schema, and the files whose place it takes."""

    files: SchemaFiles
    replaced: tuple[Versioned, Versioned, Versioned]


def stage_schema(root: Root, files: SchemaFiles) -> Succession:
    """Write the files of a schema that is to be accepted."""
    replaced, files = _live(root), _unlike_any(root, files)
    texts = (files.source, files.ir, files.state)
    for at, text in zip(live_places(root), texts, strict=True):
        root.objects.write_text(root.layout.staged(at), text)
    return Succession(files, replaced)


def staged_schema(root: Root, target: str | None, commit_id: str) -> Succession:
    """The schema that a dead writer left, whether or not some of its files are in place already.

    Its commit is visible, so there is no way back. In a bucket somebody who woke up late may have removed the
    files, or put others in their place: then they are worked out anew from the text that the commit accepted.
    """
    replaced = _live(root)
    staged = [root.objects.read_text_if_exists(root.layout.staged(at)) for at in live_places(root)]
    texts = [now.text if new is None else new for now, new in zip(replaced, staged, strict=True)]
    files = SchemaFiles(*texts)
    if target is not None and _hash(files) != target:
        files = _worked_out_anew(root, target, commit_id, replaced[1].text)
    else:
        bound(files)
    return Succession(files, replaced)


def _hash(files: SchemaFiles) -> str | None:
    """What a schema is recognised by; None when the files are not of one."""
    try:
        return bound(files).hash
    except SchemaContractBroken:
        return None


def _worked_out_anew(root: Root, target: str, commit_id: str, compiled_now: str) -> SchemaFiles:
    missing = f"the files of the schema that commit '{commit_id}' accepted are missing"
    source = root.objects.read_text_if_exists(root.layout.past_schema(commit_id))
    if source is None:
        raise SchemaContractBroken(missing, remedy=_REMEDY)
    try:
        found = _following(compiled_now, source, target)
    except OmnigraphError as error:
        raise SchemaContractBroken(f"{missing}: {error.message}", remedy=_REMEDY) from error
    if found.hash != target:
        raise SchemaContractBroken(missing, remedy=_REMEDY)
    return _unlike_any(root, files_of(found))


def _unlike_any(root: Root, files: SchemaFiles) -> SchemaFiles:
    """In a folder the lock keeps out whoever sleeps; in a bucket only the texts can."""
    return files if root.layout.root.is_local else told_apart(files)


def _following(compiled_now: str, source: str, target: str) -> LiveSchema:
    """The schema of a text, after the compiled one in place; that may be its own already."""
    accepted, known = compiled(compiled_now)
    return LiveSchema(source, accepted, target) if known == target else successor(accepted, source)


def _live(root: Root) -> tuple[Versioned, Versioned, Versioned]:
    source, ir, state = (_present(root, at) for at in live_places(root))
    return source, ir, state


def _present(root: Root, at: Location) -> Versioned:
    found = root.objects.read_text_versioned(at)
    if found is None:
        raise SchemaContractBroken(f"schema file '{at.uri}' is missing", remedy=_REMEDY)
    return found


def is_staged(root: Root, target: str | None) -> bool:
    """Whether all files of a schema are there and agree, and are those of `target` if one is given."""
    texts = [root.objects.read_text_if_exists(root.layout.staged(at)) for at in live_places(root)]
    present = [text for text in texts if text is not None]
    if len(present) < len(texts):
        return False
    try:
        found = bound(SchemaFiles(*present))
    except SchemaContractBroken:
        return False
    return target is None or found.hash == target


def promote_schema(root: Root, held: Held, succession: Succession) -> None:
    """Put the files of an accepted schema in place; done before, in part or as a whole, is fine."""
    files = succession.files
    texts = (files.source, files.ir, files.state)
    for at, before, text in zip(live_places(root), succession.replaced, texts, strict=True):
        held.require()
        if not _is_in_place(root, at, before, text):
            return  # somebody finished it and went on from there
    held.require()
    discard_schema(root)


def _is_in_place(root: Root, at: Location, before: Versioned, text: str) -> bool:
    if root.objects.write_text_if_match(at, text, before.token) is not None:
        return True
    return root.objects.read_text_if_exists(at) == text


def discard_schema(root: Root) -> None:
    """Remove the files of a schema on its way."""
    for at in live_places(root):
        root.objects.delete(root.layout.staged(at))
