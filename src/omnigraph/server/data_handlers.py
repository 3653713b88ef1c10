"""Which handler belongs to which operation of `data_routes`."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.server import (
    blobs,
    change_feed,
    comparisons,
    exports,
    invocations,
    load_files,
    loads,
    statements,
    type_rows,
)
from omnigraph.server.app import Handler

DATA_HANDLERS: Mapping[str, Handler] = {
    "list_queries": invocations.list_queries,
    "invoke_query": invocations.invoke_query,
    "invoke_query_if_graph_commit": invocations.invoke_query_if_commit,
    "getWriteSchema": statements.get_write_schema,
    "write": statements.write,
    "load": loads.load,
    "loadNdjson": loads.load_ndjson,
    "loadArrow": loads.load_arrow,
    "loadFiles": load_files.load_files,
    "ingest": loads.load,
    "export": exports.export,
    "captureChangeBaseline": exports.capture_baseline,
    "getCommitChanges": change_feed.commit_changes,
    "pollChanges": change_feed.poll_changes,
    "getBlob": blobs.get_blob,
    "headBlob": blobs.head_blob,
    "diff": comparisons.diff,
    "explain": comparisons.explain,
    "rows": type_rows.rows,
    "previewMerge": comparisons.preview_merge,
}
