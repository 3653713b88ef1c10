"""How far each stream has come that writes into a graph: `__pipelines/<sink>/sink.json`.

As with runs of declared pipelines, what is about to happen is recorded first, and the history of the branch
decides whether it did: the record names the commit of a batch before there is one, and a branch that has
this commit has the batch.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.root import Root
from omnigraph.errors import BadRequest, StreamSinkTaken
from omnigraph.lang.values import shorten_legibly
from omnigraph.pipeline.declared.records import FOLDER
from omnigraph.storage.location import Location

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """The newest batch of a sink."""

    query: str
    """The id of the query, which its checkpoint keeps."""
    branch: str
    batch: int
    commit_id: str
    """The commit that holds the batch, once it is there."""


def require_sink_name(name: str) -> str:
    """Return the name of a sink, which is also that of a folder."""
    if _NAME.fullmatch(name) is None:
        raise BadRequest(
            f"'{shorten_legibly(name)}' cannot be the name of a sink",
            remedy="use up to 100 letters, digits, '-', '_' and '.', beginning with a letter or digit",
        )
    return name


def claim_batch(root: Root, sink: str, query: str, branch: str, batch: int) -> str | None:
    """Record that a batch is about to be committed; return its commit id, or None for one that is past.

    The same batch always gets the same commit id. A query with another checkpoint is refused.
    """
    at = _locate_record(root, sink)
    while True:
        found = root.objects.read_text_versioned(at)
        if found is None:
            new = SinkBatch(query, branch, batch, root.new_id())
            if root.objects.create_text(at, _format_record(new)) is not None:
                return new.commit_id
            continue
        known = SinkBatch(**json.loads(found.text))
        if (known.query, known.branch) != (query, branch):
            raise StreamSinkTaken(sink, branch=known.branch, batch=known.batch)
        if batch <= known.batch:
            return known.commit_id if batch == known.batch else None
        new = SinkBatch(query, branch, batch, root.new_id())
        if root.objects.write_text_if_match(at, _format_record(new), found.token) is not None:
            return new.commit_id


def _locate_record(root: Root, sink: str) -> Location:
    return root.layout.root / f"{FOLDER}/{sink}/sink.json"


def _format_record(batch: SinkBatch) -> str:
    return json.dumps(asdict(batch), indent=1)
