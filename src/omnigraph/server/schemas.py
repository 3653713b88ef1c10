"""Handlers of the schema."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.engine.graph.manifest import MAIN
from omnigraph.errors import SchemaApplyBlocked
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source
from omnigraph.policy.actions import Action
from omnigraph.server.requests import Call
from omnigraph.server.stored_queries import check_stored_queries
from omnigraph.server.wire.schemas import SchemaApplyRequest, SchemaOutput, schema_apply_output


async def get_schema(call: Call) -> Response:
    """Return the accepted schema."""
    call.authorize(Action.READ)
    graph = call.graph
    return call.reply(await call.read(lambda: SchemaOutput(schema_source=graph.schema_source)))


async def apply_schema(call: Call) -> Response:
    """Change the schema; a declared deployment owns it, and says so only to those who may change it."""
    asked = call.body(SchemaApplyRequest)
    call.authorize(Action.SCHEMA_APPLY, target=MAIN)
    if call.target.is_managed:
        raise SchemaApplyBlocked(
            "the schema of this graph is managed by a cluster",
            remedy="change the cluster config and run `omnigraph cluster apply`",
        )
    graph = call.graph

    def work() -> bytes:
        if call.target.queries:
            check_stored_queries(call.target.queries, compile_schema(Source(asked.schema_source)))
        done = graph.apply_schema(
            asked.schema_source,
            allow_data_loss=asked.allow_data_loss,
            actor=call.actor,
            message=asked.message,
        )
        call.facts.update(commit=done.commit.id if done.commit else None)
        return call.encode(schema_apply_output(done, graph.uri))

    with call.admit(len(asked.schema_source.encode())):
        return call.reply(await call.write(work))
