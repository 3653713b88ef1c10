"""Handlers of changes: those of one commit, and the feed of a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from starlette.responses import Response

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes import DEFAULT_CHANGES
from omnigraph.engine.changes.feed import AFTER, BEGINNING, NOW
from omnigraph.errors import BadRequest, ChangeCursorRejected, CommitNotFound, OmnigraphError, PolicyDenied
from omnigraph.policy.actions import Action
from omnigraph.server.errors import ClientGone, OpaqueFailure
from omnigraph.server.requests import Call, branch_or_main

FAILURE = "internal error while reading changes"
"""All that a client learns of a failure of the store on these routes."""
CURSOR = "c1."

_REPEATED = frozenset({"kind", "type", "op"})
_COMMIT = frozenset({"page_token", "limit"})
_FEED = _COMMIT | {"branch", "cursor", "start"}

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class ChangeParameters:
    """The parameters of a request for changes: at most one value of most, several of the filters."""

    single: Mapping[str, str]
    filters: Mapping[str, Sequence[str]]

    @property
    def limit(self) -> int:
        """How many changes a page may have."""
        text = self.single.get("limit")
        if text is None:
            return DEFAULT_CHANGES
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise BadRequest(f"limit must be a whole number from 1 on, got '{text}'")
        return int(text)

    def filter_arguments(self) -> dict[str, Sequence[str] | None]:
        """Return the filters under the names that the library has for them."""
        return {f"{name}s": self.filters.get(name) for name in sorted(_REPEATED)}


async def commit_changes(call: Call) -> Response:
    """Return what a commit changed; a commit of a branch that may not be read is unknown."""
    asked = _parse_parameters(call, _COMMIT)
    commit_id, commits = call.path["commit_id"], call.graph.commits
    with _hide_failures():
        commit = await _read_or_deny(call, lambda: commits.get(commit_id))
        try:
            call.authorize(Action.READ, branch=commit.branch)
        except PolicyDenied:
            raise CommitNotFound(commit_id) from None
        limit, token, filters = asked.limit, asked.single.get("page_token"), asked.filter_arguments()

        def work() -> bytes:
            page = commits.change_page(commit_id, page_token=token, limit=limit, **filters)
            call.facts.update(rows=len(page.changes))
            return call.encode(page.to_json())

        return call.reply(await call.read(work))


async def poll_changes(call: Call) -> Response:
    """Return the next changes of a branch, and where to go on."""
    asked = _parse_parameters(call, _FEED)
    branch = branch_or_main(asked.single.get("branch"))
    call.authorize(Action.READ, branch=branch)
    token = asked.single.get("page_token")
    since, limit, filters = _start(asked.single), asked.limit, asked.filter_arguments()
    graph = call.graph

    def work() -> bytes:
        page = graph.change_page(branch, since=since, page_token=token, limit=limit, **filters)
        call.facts.update(rows=sum(len(block.changes) for block in page.blocks))
        return call.encode(page.to_json())

    with _hide_failures():
        return call.reply(await call.read(work))


async def _read_or_deny(call: Call, work: Callable[[], Made]) -> Made:
    """Look something up before policy can be asked; an unknown thing is reported to anyone alike."""
    try:
        return await call.look_up(work)
    except CommitNotFound:
        call.was_authorized = True
        raise


def _parse_parameters(call: Call, known: frozenset[str]) -> ChangeParameters:
    single: dict[str, str] = {}
    filters: dict[str, list[str]] = {}
    for name, value in call.request.query_params.multi_items():
        if name in _REPEATED:
            filters.setdefault(name, []).append(value)
        elif name not in known:
            raise BadRequest(
                f"unknown parameter '{name}'", remedy=f"it may be: {', '.join(sorted(known | _REPEATED))}"
            )
        elif name in single:
            raise BadRequest(f"parameter '{name}' is repeated", remedy="send it once")
        else:
            single[name] = value
    return ChangeParameters(single, filters)


def _start(single: Mapping[str, str]) -> str | None:
    """Return where a feed begins; None where a page token says so."""
    named = [name for name in ("cursor", "start", "page_token") if name in single]
    if len(named) > 1:
        raise BadRequest(f"send only one of {' and '.join(named)}")
    if "page_token" in single:
        return None
    if "cursor" in single:
        if not single["cursor"].startswith(CURSOR):
            raise ChangeCursorRejected("it is not a cursor")
        return single["cursor"]
    start = single.get("start", NOW)
    if start not in (NOW, BEGINNING) and not start.startswith(AFTER):
        raise BadRequest(f"'{start}' is no place to start", remedy="write now, beginning or after:COMMIT_ID")
    return start


@contextmanager
def _hide_failures() -> Iterator[None]:
    """Report failures of the store in one sentence that names nothing of it."""
    try:
        yield
    except ClientGone:
        raise
    except OmnigraphError as error:
        if error.status != 500:
            raise
        raise OpaqueFailure(FAILURE) from error
    except Exception as error:
        raise OpaqueFailure(FAILURE) from error
