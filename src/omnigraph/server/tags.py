"""Handlers of tags."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.tags import parse_tag_name
from omnigraph.policy.actions import Action
from omnigraph.server.admission import BRANCH_BYTES
from omnigraph.server.moments import find_owner
from omnigraph.server.requests import Call
from omnigraph.server.wire.tags import TagCreateRequest, TagDeleteOutput, TagListOutput, TagOutput


async def list_tags(call: Call) -> Response:
    """Return all tags."""
    call.authorize(Action.READ)
    tags = call.graph.tags
    return call.reply(await call.read(lambda: TagListOutput(tags=[TagOutput.of(one) for one in tags.list()])))


async def create_tag(call: Call) -> Response:
    """Create or move a tag; who may create branches from the branch of a commit may tag that commit."""
    asked = call.body(TagCreateRequest)
    name, at = parse_tag_name(asked.name), asked.at or MAIN
    call.authorize(Action.BRANCH_CREATE, branch=await find_owner(call, at), target=name)
    tags = call.graph.tags

    def work() -> TagOutput:
        made = tags.create(name, at=at, message=asked.message, force=asked.force, actor=call.actor)
        return TagOutput.of(made)

    with call.admit(BRANCH_BYTES):
        return call.reply(await call.write(work))


async def delete_tag(call: Call) -> Response:
    """Delete a tag."""
    name = parse_tag_name(call.path["tag"])
    call.authorize(Action.BRANCH_DELETE, target=name)
    graph = call.graph
    with call.admit(BRANCH_BYTES):
        await call.write(lambda: graph.tags.delete(name, actor=call.actor))
    return call.reply(TagDeleteOutput(uri=graph.uri, name=name, actor_id=call.actor))
