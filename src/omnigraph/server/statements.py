"""Handlers of writes whose statements a client collected in a block."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from omnigraph.engine.write.builder import ReceivedStatement, run_received, schema_behind
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.policy.actions import Action
from omnigraph.server.requests import Call, branch_or_main
from omnigraph.server.wire.statements import WriteRequest, WriteSchemaOutput
from omnigraph.server.wire.writes import change_output
from omnigraph.server.writes import optional_commit


async def get_write_schema(call: Call) -> Response:
    """Return what a client checks statements by; to those who may write, whatever they may read."""
    branch = branch_or_main(call.query("branch"))
    call.authorize(Action.CHANGE, branch=branch)
    graph = call.graph
    return call.reply(await call.read(lambda: WriteSchemaOutput.of(schema_behind(graph.write(branch)))))


async def write(call: Call) -> Response:
    """Run the statements of a request as one commit."""
    asked, branch = call.body(WriteRequest), branch_or_main(call.body(WriteRequest).branch)
    if_commit = optional_commit(call)
    call.authorize(Action.CHANGE, branch=branch)

    def check(catalog: Catalog) -> Iterator[ReceivedStatement]:
        return (one.resolve(catalog) for one in asked.statements)

    def work() -> bytes:
        block = call.graph.write(
            branch, actor=call.actor, if_commit=if_commit, retry=asked.retry, message=asked.message
        )
        done = run_received(block, asked.schema_fingerprint, check)
        call.facts.update(
            commit=done.commit.id if done.commit else None, rows=done.affected_nodes + done.affected_edges
        )
        return call.encode(change_output(done, branch, call.actor))

    with call.admit(call.body_size):
        return call.reply(await call.write(work))
