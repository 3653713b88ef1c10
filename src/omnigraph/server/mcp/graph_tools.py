"""The table of tools: those of the published bridge, their present names, and those for work on a branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from omnigraph.engine.graph.manifest import MAIN
from omnigraph.server.mcp.description import describe_graph
from omnigraph.server.mcp.exchange import WireRequest
from omnigraph.server.mcp.tools import Arguments, Context, Effect, Schema, Text, Tool, send_one


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _choice(description: str, *values: str) -> Schema:
    return {"type": "string", "enum": list(values), "description": description}


BRANCH = _text("The branch; the default branch of this connection, if none is named.")
_SNAPSHOT = _text("Read the graph as this commit left it, instead of a branch.")
_PARAMS: Schema = {
    "type": "object",
    "description": "Values of the parameters that the query declares, by name without the $ sign.",
}
_NAME = _text("Which query of the text to run, if it has several.")
_COMMIT = {"commitId": _text("The id of the commit.")}
_QUERY = (
    "The text of one query, such as: query q($name: String) { match { $p: Person { name: $name } } "
    "return { $p } }. Call `describe` first to see the types of the graph, with examples."
)
_MUTATION = (
    "The text of one mutation, such as: query q($name: String) { insert Person { name: $name } }. "
    "Call `describe` first to see the types of the graph, with examples."
)
_DATA = (
    'One JSON object in each line: {"type": "Person", "data": {...}} for a node, '
    '{"edge": "Knows", "from": "id", "to": "id", "data": {...}} for an edge.'
)
_MERGE: Mapping[str, Schema] = {
    "source": _text("The branch whose changes are taken; the default branch, if it is not main."),
    "target": _text("The branch that gets the changes; main, if none is named."),
    "strategy": _choice("Which side wins every conflict: ours is the target.", "ours", "theirs"),
    "granularity": _choice("What counts as one thing in a conflict; row, if not said.", "row", "property"),
    "resolutions": {
        "type": "object",
        "description": "Decisions by conflict, in the form that `merge_preview` returns as `resolutions`.",
    },
}


def _pick(arguments: Arguments, **members: str) -> dict[str, Any]:
    """Return the members of a body that the arguments have, as `member=argument`; `from_` is `from`."""
    return {
        member.rstrip("_"): arguments[argument]
        for member, argument in members.items()
        if arguments.get(argument) is not None
    }


def _branch(context: Context, arguments: Arguments) -> str:
    return str(arguments.get("branch") or context.branch)


def _at(context: Context, arguments: Arguments) -> dict[str, Any]:
    """Return the moment of a read: a snapshot, or a branch."""
    if arguments.get("snapshot") is not None:
        return _pick(arguments, snapshot="snapshot", branch="branch")
    return {"branch": _branch(context, arguments)}


def _source(context: Context, arguments: Arguments) -> str:
    """Return the branch to merge; main is never meant when no branch is named."""
    return str(arguments.get("source") or ("" if context.branch == MAIN else context.branch))


def _get(*path: str) -> Callable[[Context, Arguments], WireRequest]:
    return lambda _context, _arguments: WireRequest("GET", path)


def _get_of_branch(*path: str) -> Callable[[Context, Arguments], WireRequest]:
    return lambda context, arguments: WireRequest("GET", path, [("branch", _branch(context, arguments))])


def _read(context: Context, arguments: Arguments) -> WireRequest:
    chosen = _pick(arguments, query_source="querySource", query_name="queryName", params="params")
    return WireRequest("POST", ["read"], body={**chosen, **_at(context, arguments)})


def _query(context: Context, arguments: Arguments) -> WireRequest:
    chosen = _pick(arguments, query="query", name="name", params="params")
    return WireRequest("POST", ["query"], body={**chosen, **_at(context, arguments)})


def _change(context: Context, arguments: Arguments) -> WireRequest:
    chosen = _pick(arguments, query_source="querySource", query_name="queryName", params="params")
    return WireRequest("POST", ["change"], body={**chosen, "branch": _branch(context, arguments)})


def _mutate(context: Context, arguments: Arguments) -> WireRequest:
    chosen = _pick(arguments, query="query", name="name", params="params")
    return WireRequest("POST", ["mutate"], body={**chosen, "branch": _branch(context, arguments)})


def _ingest(context: Context, arguments: Arguments) -> WireRequest:
    chosen = _pick(arguments, from_="from", mode="mode", data="data")
    return WireRequest("POST", ["ingest"], body={**chosen, "branch": _branch(context, arguments)})


def _create_branch(_: Context, arguments: Arguments) -> WireRequest:
    return WireRequest("POST", ["branches"], body=_pick(arguments, name="name", from_="from"))


def _delete_branch(_: Context, arguments: Arguments) -> WireRequest:
    return WireRequest("DELETE", ["branches", arguments["name"]])


def _merge_members(context: Context, arguments: Arguments) -> dict[str, Any]:
    chosen = _pick(
        arguments,
        target="target",
        strategy="strategy",
        granularity="granularity",
        resolutions="resolutions",
        delete_branch="deleteBranch",
    )
    return {"source": _source(context, arguments), **chosen}


def _merge(context: Context, arguments: Arguments) -> WireRequest:
    return WireRequest("POST", ["branches", "merge"], body=_merge_members(context, arguments))


def _preview(context: Context, arguments: Arguments) -> WireRequest:
    return WireRequest("POST", ["branches", "merge", "preview"], body=_merge_members(context, arguments))


def _diff(context: Context, arguments: Arguments) -> WireRequest:
    chosen = _pick(arguments, types="types", ops="ops", stat="stat")
    moments = {"from": arguments.get("from") or MAIN, "to": arguments.get("to") or context.branch}
    return WireRequest("POST", ["diff"], body={**moments, **chosen})


def _apply_schema(_: Context, arguments: Arguments) -> WireRequest:
    return WireRequest("POST", ["schema", "apply"], body=_pick(arguments, schema_source="schemaSource"))


async def _get_schema(context: Context, _: Arguments) -> Text:
    found = msgspec.json.decode(await context.send(WireRequest("GET", ["schema"])))
    return Text(found["schema_source"])


_HEALTH = Tool(
    name="health",
    description="Whether the server answers, and its version.",
    run=send_one(_get("healthz")),
)
_QUERY_TOOL = Tool(
    name="query",
    description="Run a read query on a branch, or on the graph as a commit left it. Rows come back as JSON.",
    run=send_one(_query),
    action="read",
    properties={
        "query": _text(_QUERY),
        "name": _NAME,
        "params": _PARAMS,
        "branch": BRANCH,
        "snapshot": _SNAPSHOT,
    },
    required=("query",),
)
_MUTATE_TOOL = Tool(
    name="mutate",
    description="Insert, update or delete by a query, in one commit on a branch.",
    run=send_one(_mutate),
    action="change",
    properties={"query": _text(_MUTATION), "name": _NAME, "params": _PARAMS, "branch": BRANCH},
    required=("query",),
    effect=Effect.CHANGE,
)
_CREATE_TOOL = Tool(
    name="branches_create",
    description="Create a branch. No data is copied, and what is changed on it stays there until a merge.",
    run=send_one(_create_branch),
    action="branch_create",
    properties={
        "name": _text("The name of the new branch, such as agent/cleanup."),
        "from": _text("The branch to start at, or an older commit, tag or time; main, if none is named."),
    },
    required=("name",),
    effect=Effect.ADD,
)
_MERGE_TOOL = Tool(
    name="branches_merge",
    description="Take what a branch changed into another one, in one commit. Conflicts are reported, and "
    "then nothing is changed: look at them with `merge_preview`, then pass `strategy` or `resolutions`.",
    run=send_one(_merge),
    action="branch_merge",
    properties={
        **_MERGE,
        "deleteBranch": {"type": "boolean", "description": "Delete the source after the merge."},
    },
    effect=Effect.REPEATABLE_CHANGE,
)

GRAPH_TOOLS: tuple[Tool, ...] = (
    Tool(
        name="describe",
        description="The types of the graph with their properties, edges, numbers of entities and stored "
        "queries, and examples of queries that are valid for it. Call this first.",
        run=describe_graph,
        action="read",
        properties={"branch": BRANCH},
    ),
    _HEALTH,
    Tool(
        name="snapshot",
        description="The version and the number of entities of every type on a branch.",
        run=send_one(_get_of_branch("snapshot")),
        action="read",
        properties={"branch": BRANCH},
    ),
    _QUERY_TOOL,
    Tool(
        name="read",
        description="The former name of `query`.",
        run=send_one(_read),
        action="read",
        properties={
            "querySource": _text(_QUERY),
            "queryName": _NAME,
            "params": _PARAMS,
            "branch": BRANCH,
            "snapshot": _SNAPSHOT,
        },
        required=("querySource",),
    ),
    Tool(
        name="schema_get",
        description="The schema of the graph as its author wrote it; `describe` is easier to read.",
        run=_get_schema,
        action="read",
    ),
    Tool(
        name="branches_list",
        description="The names of all branches.",
        run=send_one(_get("branches")),
        action="read",
    ),
    Tool(
        name="tags_list",
        description="All tags: names of commits. A tag can be named wherever a commit can.",
        run=send_one(_get("tags")),
        action="read",
    ),
    Tool(
        name="commits_list",
        description="The history of a branch, newest commit first.",
        run=send_one(_get_of_branch("commits")),
        action="read",
        properties={"branch": BRANCH},
    ),
    Tool(
        name="commits_get",
        description="One commit: its branch, parents, actor and time.",
        run=send_one(lambda _, arguments: WireRequest("GET", ["commits", arguments["commitId"]])),
        action="read",
        properties=_COMMIT,
        required=("commitId",),
    ),
    Tool(
        name="diff",
        description="The entities that differ between two moments: inserted, updated with values before and "
        "after, deleted. A moment is a branch, a commit id, a time, BRANCH@TIME or BRANCH@vVERSION.",
        run=send_one(_diff),
        action="read",
        properties={
            "from": _text("The earlier moment; main, if none is named."),
            "to": _text("The later moment; the default branch, if none is named."),
            "types": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Only these types of nodes or edges.",
            },
            "ops": {
                "type": "array",
                "items": {"enum": ["insert", "update", "delete"]},
                "description": "Only these kinds of changes.",
            },
            "stat": {"type": "boolean", "description": "Only count the changes of each type."},
        },
    ),
    Tool(
        name="merge_preview",
        description="What a merge would do, with its conflicts and a form for decisions about them. Nothing "
        "is changed.",
        run=send_one(_preview),
        action="read",
        properties=_MERGE,
    ),
    _MUTATE_TOOL,
    Tool(
        name="change",
        description="The former name of `mutate`.",
        run=send_one(_change),
        action="change",
        properties={
            "querySource": _text(_MUTATION),
            "queryName": _NAME,
            "params": _PARAMS,
            "branch": BRANCH,
        },
        required=("querySource",),
        effect=Effect.CHANGE,
    ),
    Tool(
        name="ingest",
        description="Load many nodes and edges in one commit. Nothing is written if any of them is invalid.",
        run=send_one(_ingest),
        action="change",
        properties={
            "branch": BRANCH,
            "from": _text("The branch to create the branch from, if it does not exist."),
            "mode": _choice(
                "merge (insert or replace by key), append (insert only), patch (change only the properties "
                "that records have) or overwrite (replace the types).",
                "merge",
                "append",
                "patch",
                "overwrite",
            ),
            "data": _text(_DATA),
        },
        required=("data",),
        effect=Effect.CHANGE,
    ),
    _CREATE_TOOL,
    replace(_CREATE_TOOL, name="branch_start", description="Start work on a branch: `branches_create`."),
    Tool(
        name="branches_delete",
        description="Delete a branch with all that was not merged.",
        run=send_one(_delete_branch),
        action="branch_delete",
        properties={"name": _text("The branch.")},
        required=("name",),
        effect=Effect.REPEATABLE_CHANGE,
    ),
    _MERGE_TOOL,
    replace(_MERGE_TOOL, name="merge", description="Finish work on a branch: `branches_merge`."),
    Tool(
        name="schema_apply",
        description="Change to another schema, in one commit on main. Pass the whole schema.",
        run=send_one(_apply_schema),
        action="schema_apply",
        properties={"schemaSource": _text("The whole schema in the .pg language.")},
        required=("schemaSource",),
        effect=Effect.REPEATABLE_CHANGE,
    ),
)

SERVER_TOOLS: tuple[Tool, ...] = (
    _HEALTH,
    Tool(
        name="graphs_list",
        description="The graphs of the server; each has tools of its own at /graphs/{graph_id}/mcp.",
        run=send_one(_get("graphs")),
        action="graph_list",
    ),
)
