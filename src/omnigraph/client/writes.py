"""Calls that write: mutations, branches, merges and the schema."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from omnigraph.client import decode
from omnigraph.client.calls import Call, decode_json, json_body, json_call, path_of, read_text
from omnigraph.client.reads import Params, QueryText, plain_params
from omnigraph.client.served_options import refuse_actor, refuse_engine, require_known
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.tags import Tag, parse_tag_name
from omnigraph.engine.merge.choices import StrategyInput, parse_strategies
from omnigraph.engine.merge.merge import MergeOptions
from omnigraph.engine.merge.replay import ReplayOptions
from omnigraph.engine.merge.resolutions import ResolutionsInput
from omnigraph.engine.merge.result import MergePreview, MergeResult
from omnigraph.engine.schema_apply.apply import SchemaResult
from omnigraph.engine.write.mutate import MutationResult
from omnigraph.errors import BadRequest

IF_COMMIT = "Omnigraph-If-Graph-Commit"


class MutateOptions(TypedDict, total=False):
    """The options of a mutation that a server carries out: those of `Graph.mutate`."""

    branch: str
    actor: str | None
    name: str | None
    if_commit: str | None
    retry: int
    message: str | None


def run_mutation(query: QueryText, params: Params, options: MutateOptions) -> Call[MutationResult]:
    """Return a mutation, conditional if it names a commit."""
    require_known(MutateOptions, options)
    refuse_actor(options.get("actor"))
    text, source_name = read_text(query)
    if_commit = options.get("if_commit")
    body = json_body(
        query=text,
        params=plain_params(params),
        name=options.get("name"),
        branch=parse_branch_name(options.get("branch", "main")),
        retry=options.get("retry", 0),
        message=options.get("message"),
    )
    return json_call(
        "mutate" if if_commit is None else "mutate/if-graph-commit",
        decode.mutation,
        body,
        is_safe=False,
        headers=condition_headers(if_commit),
        source_name=source_name,
    )


def invoke_mutation(
    name: str, params: Params, branch: str, if_commit: str | None, message: str | None = None
) -> Call[MutationResult]:
    """Return a stored query that writes."""
    segments = ("queries", name) if if_commit is None else ("queries", name, "if-graph-commit")
    body = json_body(
        params=plain_params(params), branch=parse_branch_name(branch), expect_mutation=True, message=message
    )
    headers = condition_headers(if_commit)
    return json_call(path_of(*segments), decode.mutation, body, is_safe=False, headers=headers)


def condition_headers(if_commit: str | None) -> dict[str, str]:
    """Return the header of a write that takes effect only while a commit is the newest of its branch."""
    if if_commit is None:
        return {}
    if not (if_commit.isascii() and if_commit.isalnum()):
        raise BadRequest(
            f"'{if_commit}' cannot be the id of a commit", remedy="list them with `commits.list()`"
        )
    return {IF_COMMIT: if_commit}


def create_branch(name: str, from_: str, actor: str | None) -> Call[str]:
    """Return the creation of a branch at a moment."""
    refuse_actor(actor)
    body = json_body(name=parse_branch_name(name), from_=from_)
    return json_call("branches", lambda found: str(found["name"]), body, is_safe=False)


def delete_branch(name: str, actor: str | None) -> Call[None]:
    """Return the deletion of a branch."""
    refuse_actor(actor)
    path = path_of("branches", parse_branch_name(name))
    return Call("DELETE", path, decode_json(lambda _: None), is_safe=False)


class TagOptions(TypedDict, total=False):
    """The options of a new tag besides its name and moment."""

    message: str | None
    force: bool
    actor: str | None


def create_tag(name: str, at: str, options: TagOptions) -> Call[Tag]:
    """Return the creation of a tag."""
    require_known(TagOptions, options)
    refuse_actor(options.get("actor"))
    body = json_body(
        name=parse_tag_name(name),
        at=at,
        message=options.get("message"),
        force=options.get("force", False),
    )
    return json_call("tags", decode.tag, body, is_safe=False)


def delete_tag(name: str, actor: str | None) -> Call[None]:
    """Return the deletion of a tag."""
    refuse_actor(actor)
    return Call("DELETE", path_of("tags", parse_tag_name(name)), decode_json(lambda _: None), is_safe=False)


def merge_branches(source: str, into: str, how: MergeOptions) -> Call[MergeResult]:
    """Return a merge."""
    more = {"delete_branch": how.get("delete_branch", False), "message": how.get("message")}
    body = _merge_body(source, into, how, **more)
    return json_call("branches/merge", decode.merge_result, body, is_safe=False)


def preview_merge(source: str, into: str, how: MergeOptions) -> Call[MergePreview]:
    """Return a merge that is only looked at."""
    body = _merge_body(source, into, how)
    return json_call("branches/merge/preview", decode.merge_preview, body, is_safe=True)


def _merge_body(source: str, into: str, how: MergeOptions, **more: Any) -> bytes:
    require_known(MergeOptions, how)
    refuse_actor(how.get("actor"))
    refuse_engine(how.get("engine", "auto"))
    return json_body(
        source=parse_branch_name(source),
        target=parse_branch_name(into),
        strategy=_plain_strategy(how.get("strategy")),
        resolutions=_resolutions(how.get("resolutions")),
        granularity=how.get("granularity"),
        **more,
    )


def _plain_strategy(given: StrategyInput) -> str | dict[str, str] | None:
    """Return strategies as a server takes them."""
    if given is None or isinstance(given, str):
        return given
    found = parse_strategies(given)
    everywhere = {} if found.everywhere is None else {"*": found.everywhere.value}
    return everywhere | {name: side.value for name, side in found.by_name.items()}


def replay(kind: str, commit: str | Commit, branch: str, how: ReplayOptions) -> Call[MergeResult]:
    """Return a `revert` or `cherry-pick`."""
    require_known(ReplayOptions, how)
    refuse_actor(how.get("actor"))
    refuse_engine(how.get("engine", "auto"))
    body = json_body(
        commit=commit.id if isinstance(commit, Commit) else commit,
        branch=parse_branch_name(branch),
        strategy=_plain_strategy(how.get("strategy")),
        granularity=how.get("granularity"),
        message=how.get("message"),
    )
    return json_call(kind, decode.merge_result, body, is_safe=False)


def reset(to: str | Commit, branch: str, message: str | None) -> Call[MergeResult]:
    """Return a reset to a commit."""
    commit = to.id if isinstance(to, Commit) else to
    body = json_body(to=commit, branch=parse_branch_name(branch), message=message)
    return json_call("reset", decode.merge_result, body, is_safe=False)


def _resolutions(given: ResolutionsInput | None) -> Any:
    if not isinstance(given, str | os.PathLike):
        return given
    path = Path(given)
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise BadRequest(f"the resolutions '{path}' cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"the resolutions '{path}' are not JSON: {error}") from None


def apply_schema(
    schema: QueryText, *, allow_data_loss: bool, actor: str | None, message: str | None
) -> Call[SchemaResult]:
    """Return a change of the schema."""
    refuse_actor(actor)
    text, source_name = read_text(schema)
    body = json_body(schema_source=text, allow_data_loss=allow_data_loss, message=message)
    return json_call("schema/apply", decode.schema_result, body, is_safe=False, source_name=source_name)
