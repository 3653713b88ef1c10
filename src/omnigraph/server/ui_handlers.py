"""Which handler belongs to which operation of `ui_routes`."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.server import ui_page, ui_reads, ui_sign_in, ui_subgraph
from omnigraph.server.app import Handler

UI_HANDLERS: Mapping[str, Handler] = {
    "uiPage": ui_page.page,
    "uiFile": ui_page.page,
    "openSession": ui_sign_in.open_session,
    "closeSession": ui_sign_in.close_session,
    "getPermissions": ui_reads.get_permissions,
    "describeSchema": ui_reads.describe_schema,
    "lint": ui_reads.lint_queries,
    "findNodes": ui_subgraph.find_nodes,
    "readSubgraph": ui_subgraph.read_subgraph,
    "doctor": ui_reads.doctor,
}
