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
from omnigraph.engine.schema_files import SchemaFiles, bound, live_places
from omnigraph.errors import SchemaContractBroken
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
    replaced = _live(root)
    texts = (files.source, files.ir, files.state)
    for at, text in zip(live_places(root), texts, strict=True):
        root.objects.write_text(root.layout.staged(at), text)
    return Succession(files, replaced)


def staged_schema(root: Root, target: str | None) -> Succession:
    """The schema that a dead writer left, whether or not some of its files are in place already."""
    replaced = _live(root)
    staged = [root.objects.read_text_if_exists(root.layout.staged(at)) for at in live_places(root)]
    texts = [now.text if new is None else new for now, new in zip(replaced, staged, strict=True)]
    files = SchemaFiles(*texts)
    found = bound(files)
    if target is not None and found.hash != target:
        raise SchemaContractBroken(
            f"the files of the accepted schema '{target}' are missing: there are those of '{found.hash}'",
            remedy=_REMEDY,
        )
    return Succession(files, replaced)


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
