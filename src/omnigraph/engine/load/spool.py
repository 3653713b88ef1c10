"""Rows in memory or in a DataFrame as files that a load reads like any other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from omnigraph.engine.load.engines import OnStage
from omnigraph.engine.load.frames import Spool, frames, is_frame
from omnigraph.engine.load.sources.binding import table_of
from omnigraph.engine.load.sources.tables import as_arrow
from omnigraph.engine.root import Root
from omnigraph.errors import BadRequest
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values import legible


@contextmanager
def spooled(
    data: Any, type_name: str | None, catalog: Catalog, root: Root, on_stage: OnStage | None = None
) -> Iterator[Spool]:
    """Rows as Arrow files named after their type; they are there while the block lasts."""
    known = sorted([*catalog.nodes, *catalog.edges])
    if type_name is None:
        raise BadRequest(
            "rows in memory do not tell which type they have", remedy='name it, as in `type="Person"`'
        )
    if type_name not in known:
        raise BadRequest(f"unknown type '{legible(type_name)}'", remedy=f"it may be: {', '.join(known)}")
    if is_frame(data):
        key = table_of(catalog, type_name) or type_name
        with frames().spooled(data, root, key, on_stage) as spool:
            yield spool
        return
    rows = as_arrow(data)
    with tempfile.TemporaryDirectory(prefix="omnigraph-rows-") as folder:
        file = Path(folder) / f"{type_name}.arrow"
        batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        yield Spool((str(file),))
