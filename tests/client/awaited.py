"""A graph for asyncio behind the calls of one that is not: each call runs on one event loop to its end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterator
from typing import Any

import omnigraph as og

READ_BY_CALL = {"format_version", "schema", "schema_source"}
"""Properties of a graph that are methods of one for asyncio."""
ASYNC_KINDS = (
    og.AsyncBatches,
    og.AsyncBlob,
    og.AsyncRemoteBranches,
    og.AsyncRemoteChangeFeed,
    og.AsyncRemoteCommitDiff,
    og.AsyncRemoteCommits,
    og.AsyncRemoteDiff,
    og.AsyncRemoteGraph,
    og.AsyncRemoteSnapshot,
    og.AsyncRemoteTags,
    og.AsyncRemoteWriteBlock,
)


class Awaited:
    """An object of the async face whose calls are awaited, and whose iterations are stepped."""

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner = runner
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return self._wrap(found)

        def call(*given: Any, **named: Any) -> Any:
            return self._wrap(self._finish(found(*map(unwrap, given), **named)))

        return call() if name in READ_BY_CALL else call

    def __iter__(self) -> Iterator[Any]:
        steps = aiter(self._inner)
        while True:
            found: Any = self._finish(anext(steps, None))
            if found is None:
                return
            yield found

    def __contains__(self, item: object) -> bool:
        return item in list(self)

    def __len__(self) -> int:
        return len(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    def __bool__(self) -> bool:
        return bool(self._inner)

    def __enter__(self) -> Any:
        return self._wrap(self._finish(self._inner.__aenter__()))

    def __exit__(self, *failure: Any) -> None:
        self._finish(self._inner.__aexit__(*failure))

    def _wrap(self, found: Any) -> Any:
        return Awaited(self._runner, found) if isinstance(found, ASYNC_KINDS) else found

    def _finish(self, found: Any) -> Any:
        return self._runner.run(wait_for(found)) if inspect.isawaitable(found) else found


async def wait_for(found: Awaitable[Any]) -> Any:
    """Await what may be no coroutine, which a runner would refuse."""
    return await found


def unwrap(given: Any) -> Any:
    """Return what the async face knows."""
    return given._inner if isinstance(given, Awaited) else given
