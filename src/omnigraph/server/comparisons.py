"""Handlers of differences, explanations and previews of merges."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from starlette.responses import Response

from omnigraph.engine.changes.change import Change
from omnigraph.engine.changes.diff import Diff
from omnigraph.engine.merge.resolutions import granularity_json
from omnigraph.engine.merge.result import MergePreview
from omnigraph.errors import InvalidName, NotFound, WrongQueryKind
from omnigraph.policy.actions import Action
from omnigraph.server.arrow_results import contains_mutations
from omnigraph.server.moments import authorize_moment, parse_moment
from omnigraph.server.requests import Call, branch_or_main
from omnigraph.server.route import JSON
from omnigraph.server.streams import Pieces, start_stream
from omnigraph.server.wire.base import encode
from omnigraph.server.wire.comparisons import DiffRequest, MergePreviewRequest
from omnigraph.server.wire.reads import QueryRequest

CHANGES_PER_PIECE = 500


async def diff(call: Call) -> Response:
    """Stream the changes between two moments; the actor must be allowed to read the branches of both."""
    asked = call.body(DiffRequest)
    found = await _resolve(call, asked)
    for branch in dict.fromkeys([found.before.branch, found.after.branch]):
        call.authorize(Action.READ, branch=branch)
    if asked.stat:
        return call.reply(await call.read(lambda: call.encode(found.about())))
    return await start_stream(call, lambda: _diff_pieces(call, found), JSON)


async def explain(call: Call) -> Response:
    """Run a query and return its steps."""
    asked = call.body(QueryRequest)
    moment = parse_moment(asked.branch, asked.snapshot, asked.commit, asked.version, asked.time)
    await authorize_moment(call, moment)
    graph = call.graph

    def work() -> bytes:
        try:
            found = graph.explain(asked.query, asked.params, name=asked.name, **moment.arguments())
        except WrongQueryKind as error:
            raise contains_mutations(error.query) from error
        return call.encode(found.to_json())

    return call.reply(await call.read(work))


async def preview_merge(call: Call) -> Response:
    """Return what a merge would do; nothing is changed, so the right to read both branches is enough."""
    asked = call.body(MergePreviewRequest)
    source, target = branch_or_main(asked.source), branch_or_main(asked.target)
    for branch in dict.fromkeys([source, target]):
        call.authorize(Action.READ, branch=branch)
    graph = call.graph

    def work() -> bytes:
        found = graph.merge(
            source,
            target,
            dry_run=True,
            strategy=asked.strategy,
            resolutions=asked.resolutions,
            granularity=asked.granularity,
            engine="local",
        )
        return call.encode(_describe_preview(found))

    return call.reply(await call.read(work))


def _describe_preview(found: MergePreview) -> dict[str, Any]:
    return {
        "given_up": [],
        "given_up_count": 0,
        **found.to_json(),
        "granularity": granularity_json(found.granularity),
        "met": [conflict.to_json() for conflict in found.met],
        "resolutions": found.resolution_file(),
    }


async def _resolve(call: Call, asked: DiffRequest) -> Diff:
    graph = call.graph
    try:
        return await call.look_up(
            lambda: graph.diff(
                asked.from_, asked.to, types=asked.types, kinds=asked.kinds, ops=asked.ops, engine="local"
            )
        )
    except (NotFound, InvalidName):
        # What is not there is reported to those who may read what they named.
        for named in (asked.from_, asked.to):
            call.authorize(Action.READ, branch=named.partition("@")[0])
        raise


def _diff_pieces(call: Call, found: Diff) -> Pieces:
    """Yield one JSON object, with the changes as they are read."""
    yield encode(found.about())[:-1] + b',"changes":['
    rows, changes = 0, iter(found)
    while some := list(islice(changes, CHANGES_PER_PIECE)):
        yield (b"," if rows else b"") + _join(some)
        rows += len(some)
    call.facts.update(rows=rows)
    yield b"]}"


def _join(changes: Iterable[Change]) -> bytes:
    return encode([change.to_json() for change in changes])[1:-1]
