"""Writes for the crash matrix about tags, and branches that begin at old commits."""

from __future__ import annotations

from omnigraph.engine.branches.manage import create_branch, create_branch_at, delete_branch
from omnigraph.engine.branches.tags import create_tag, delete_tag
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, OpenGraph, ReadTarget
from tests.engine.crash.steps import BRANCH, Step, Write, touch_branch
from tests.engine.crash.world import change

TAG = "v1"


def _tags(target: ReadTarget, *, force: bool = False) -> Step:
    return lambda graph: create_tag(graph, TAG, graph.snapshot(target), force=force)


def _tag_main(graph: OpenGraph) -> None:
    create_tag(graph, TAG, graph.snapshot(AtBranch("main")))


def _tag_then_move_on(graph: OpenGraph) -> None:
    _tag_main(graph)
    change(graph, 'insert Person { name: "gus" }  insert Team { name: "late" }')


def _tag_branch(graph: OpenGraph) -> None:
    touch_branch(graph)
    create_tag(graph, TAG, graph.snapshot(AtBranch(BRANCH)))


def _begins_at_tag(graph: OpenGraph) -> object:
    return create_branch_at(graph, BRANCH, graph.snapshot(AtCommit(TAG)))


def _begins_at_head(graph: OpenGraph) -> object:
    return create_branch(graph, BRANCH)


TAGS: dict[str, Write] = {
    "tag-create": Write(_tags(AtBranch("main"))),
    "tag-move": Write(_tags(AtBranch("main"), force=True), _tag_then_move_on),
    "tag-delete": Write(lambda graph: delete_tag(graph, TAG), _tag_main),
    "branch-delete-tagged": Write(lambda graph: delete_branch(graph, BRANCH), _tag_branch),
    # Lance makes the branch at the newest commit; until the next writer, a killed process can leave it there.
    "branch-create-old": Write(_begins_at_tag, _tag_then_move_on, halfway=_begins_at_head),
}
