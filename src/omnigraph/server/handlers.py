"""Which handler belongs to which operation of the table."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.server import branches, commits, health, reads, schemas, tags, writes
from omnigraph.server.app import Handler
from omnigraph.server.data_handlers import DATA_HANDLERS
from omnigraph.server.mcp import endpoint
from omnigraph.server.ui_handlers import UI_HANDLERS

HANDLERS: Mapping[str, Handler] = {
    "health": health.health,
    "graphHealth": health.health,
    "openapi": health.openapi,
    "metrics": health.metrics,
    "listGraphs": health.list_graphs,
    "getSnapshot": reads.snapshot,
    "query": reads.query,
    "read": reads.read,
    "mutate": writes.mutate,
    "mutate_if_graph_commit": writes.mutate_if_commit,
    "change": writes.mutate,
    "getSchema": schemas.get_schema,
    "applySchema": schemas.apply_schema,
    "listBranches": branches.list_branches,
    "createBranch": branches.create_branch,
    "deleteBranch": branches.delete_branch,
    "mergeBranches": branches.merge_branches,
    "revertCommit": branches.revert,
    "cherryPickCommit": branches.cherry_pick,
    "resetBranch": branches.reset,
    "listTags": tags.list_tags,
    "createTag": tags.create_tag,
    "deleteTag": tags.delete_tag,
    "listCommits": commits.list_commits,
    "readLog": commits.read_log,
    "readHistory": commits.read_history,
    "getCommit": commits.get_commit,
    **DATA_HANDLERS,
    **UI_HANDLERS,
    "serverMcp": endpoint.serve_server,
    "graphMcp": endpoint.serve_graph,
}
