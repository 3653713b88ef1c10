"""What only the client for asyncio has: tasks side by side, streams that are awaited, and cancellation."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.client.arrow_frames import BatchFrames
from tests.server.running import PHOTO, RunningServer

PEOPLE = "query people() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
ADD = "query add($name: String) { insert Person { name: $name } }"
COMMITS = b'{"commits": []}'
SNAPSHOT = (
    b'{"graph_branch": "main", "graph_manifest_version": 1, "commit": null, "tables": [],'
    b' "internal_schema_version": 1}'
)


@pytest.fixture
def url(server: RunningServer) -> str:
    return f"{server.url}/graphs/default"


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


def test_calls_of_several_tasks_run_side_by_side(url: str) -> None:
    async def steps() -> None:
        async with og.aconnect(url) as graph:
            queries = asyncio.gather(*(graph.query(PEOPLE) for _ in range(8)))
            found, branches = await asyncio.gather(queries, graph.branches.list())
        assert [len(one) for one in found] == [4] * 8
        assert "main" in branches

    run(steps())


def test_stored_queries_and_baselines_are_served(url: str) -> None:
    async def steps() -> None:
        async with og.aconnect(url) as graph:
            assert [one["name"] for one in await graph.stored_queries()] == ["add_person", "older_than"]
            assert [row["p.name"] for row in await graph.invoke("older_than", {"age": 25})] == ["Ada", "Cy"]
            await graph.branches.create("stored")
            done = await graph.invoke_mutation("add_person", {"name": "Zoe"}, branch="stored")
            assert done.affected_nodes == 1
            lines = io.BytesIO()
            taken = await graph.baseline(lines, "stored", types="Person")
            assert (taken.rows, taken.bytes) == (5, len(lines.getvalue()))
            feed = await graph.changes("stored", since=taken.cursor, types="Person")
            assert [block async for block in feed] == []
            await graph.branches.delete("stored")

    run(steps())


def test_rows_of_any_number_are_sent_and_received_in_batches(url: str) -> None:
    names = [f"row {at:06}" for at in range(70_000)]
    rows = pa.table({"name": names})

    async def steps() -> None:
        async with og.aconnect(url) as graph:
            reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=10_000))
            done = await graph.load(reader, type="Person", mode="append", branch="rows", from_="main")
            assert done.total == len(names)
            async with graph.stream(PEOPLE, branch="rows") as batches:
                assert batches.schema.names == ["p.name", "p.age"]
                found = [batch async for batch in batches]
            assert len(found) > 1
            assert sum(batch.num_rows for batch in found) == len(names) + 4
            async with graph.stream(PEOPLE, branch="rows") as batches:
                first = await anext(batches)
            assert first.num_rows < len(names)
            assert [one async for one in batches] == []
            await graph.branches.delete("rows")

    run(steps())


def test_a_query_that_fails_fails_before_its_first_batch(url: str) -> None:
    async def steps() -> None:
        async with og.aconnect(url) as graph:
            with pytest.raises(errors.BranchNotFound):
                async with graph.stream(PEOPLE, branch="nowhere"):
                    pass
            with pytest.raises(errors.BranchNotFound):
                await anext(graph.stream(PEOPLE, branch="nowhere"))

    run(steps())


def test_bytes_of_a_blob_come_in_parts(url: str) -> None:
    async def steps() -> None:
        async with og.aconnect(url) as graph:
            blob = await (await graph.snapshot()).blob("Person", "Ada", "photo")
            assert [part async for part in blob.parts(2, 4)] == [PHOTO[2:6]]
            with pytest.raises(errors.InvalidValue, match="`offset`"):
                await blob.read("x")  # type: ignore[arg-type]

    run(steps())


def test_options_that_do_not_exist_are_refused_as_by_python(url: str) -> None:
    async def steps() -> None:
        async with og.aconnect(url) as graph:
            unknown: dict[str, Any] = {"brunch": "main"}
            calls: list[Callable[..., Awaitable[object]]] = [
                lambda **more: graph.query(PEOPLE, **more),
                lambda **more: graph.explain(PEOPLE, **more),
                lambda **more: graph.mutate(ADD, {"name": "x"}, **more),
                lambda **more: graph.load([{"name": "x"}], type="Person", mode="append", **more),
                lambda **more: graph.merge("main", **more),
                lambda **more: graph.diff("main", "main", **more),
                lambda **more: graph.at(version=1, **more),
                graph.changes,
                graph.change_page,
                lambda **more: graph.export(io.BytesIO(), **more),
                lambda **more: graph.baseline(io.BytesIO(), **more),
            ]
            for call in calls:
                with pytest.raises(TypeError, match="'brunch'"):
                    await call(**unknown)

    run(steps())


def test_a_closed_graph_refuses_calls(url: str, tmp_path: Path) -> None:
    async def steps() -> None:
        graph = og.aconnect(url)
        assert not graph.closed
        await graph.close()
        assert repr(graph) == f"<AsyncRemoteGraph '{url}' closed>"
        with pytest.raises(errors.GraphClosed):
            await graph.query(PEOPLE)
        with pytest.raises(errors.GraphClosed):
            await graph.load(tmp_path / "rows.ndjson", mode="append")
        with pytest.raises(errors.GraphClosed):
            await graph.refresh()

    run(steps())


# --- servers that do not answer -------------------------------------------------------------------

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listen(serve: Serve) -> AsyncIterator[str]:
    """Accept connections, and yield the address of a graph there."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield f"http://{host}:{port}/graphs/default"


def answer(body: bytes, *, promised: int | None = None) -> bytes:
    size = len(body) if promised is None else promised
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size + body


def answers(*bodies: bytes) -> tuple[Serve, list[bytes]]:
    """Return a server that sends an answer to each connection and closes it, and the requests it got."""
    requests: list[bytes] = []
    waiting = iter(bodies)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(next(waiting, b""))
        await writer.drain()
        writer.close()

    return serve, requests


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_read_without_an_answer_is_sent_again_and_a_write_is_not(kind: str) -> None:
    async def list_commits(url: str) -> list[og.Commit]:
        if kind == "sync":
            with og.connect(url) as opened:
                return await asyncio.to_thread(opened.commits.list)
        async with og.aconnect(url) as graph:
            return await graph.commits.list()

    async def add(url: str) -> og.MutationResult:
        if kind == "sync":
            with og.connect(url) as opened:
                return await asyncio.to_thread(opened.mutate, ADD, {"name": "x"})
        async with og.aconnect(url) as graph:
            return await graph.mutate(ADD, {"name": "x"})

    async def count_streamed(url: str) -> int:
        if kind == "sync":
            with og.connect(url) as opened:
                return len(await asyncio.to_thread(lambda: opened.stream(PEOPLE).read_all()))
        async with og.aconnect(url) as graph, graph.stream(PEOPLE) as batches:
            return sum([batch.num_rows async for batch in batches])

    async def steps() -> None:
        serve, requests = answers(b"", b"", answer(COMMITS))
        async with listen(serve) as url:
            assert await list_commits(url) == []
        assert len(requests) == 3
        serve, requests = answers(b"", b"", answer(arrow_of(4)))
        async with listen(serve) as url:
            assert await count_streamed(url) == 4
        assert len(requests) == 3
        serve, requests = answers()
        async with listen(serve) as url:
            with pytest.raises(errors.ServerUnreachable):
                await count_streamed(url)
        assert len(requests) == 3
        serve, requests = answers()
        async with listen(serve) as url:
            with pytest.raises(errors.ServerUnreachable):
                await list_commits(url)
        assert len(requests) == 3
        serve, requests = answers()
        async with listen(serve) as url:
            with pytest.raises(errors.ServerUnreachable) as lost:
                await add(url)
        assert len(requests) == 1
        assert "may have taken effect" in str(lost.value.remedy)

    run(steps())


def arrow_of(rows: int) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"a": list(range(rows)), "b": pa.array(["x", "y"] * (rows // 2)).dictionary_encode()})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=3):
            writer.write_batch(batch)
    return sink.getvalue()


def test_a_stream_that_breaks_off_raises_a_typed_error() -> None:
    async def steps() -> None:
        body = arrow_of(10)
        serve, _ = answers(answer(body[:-60], promised=len(body)), answer(body[:-8]))
        async with listen(serve) as url, og.aconnect(url) as graph:
            with pytest.raises(errors.ServerUnreachable):
                async for _ in graph.stream(PEOPLE):
                    pass
            with pytest.raises(errors.InternalError, match="ended before its last batch"):
                async for _ in graph.stream(PEOPLE):
                    pass
        serve, _ = answers(answer(body[:-60], promised=len(body)))
        async with listen(serve) as url:
            with og.connect(url) as graph, pytest.raises(errors.ServerUnreachable):
                await asyncio.to_thread(lambda: graph.stream(PEOPLE).read_all())

    run(steps())


def test_an_export_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    async def steps() -> None:
        serve, _ = answers(answer(SNAPSHOT), answer(b'{"type":"Person","da'))
        async with listen(serve) as address, og.aconnect(address) as graph:
            with pytest.raises(errors.InternalError, match="in the middle of a line"):
                await graph.export(tmp_path / "out.ndjson")
        assert list(tmp_path.iterdir()) == []

    run(steps())


def test_a_cancelled_export_closes_its_connection_and_leaves_no_file(tmp_path: Path) -> None:
    async def steps() -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await reader.readuntil(b"\r\n\r\n")
            if request.startswith(b"GET"):
                writer.write(answer(SNAPSHOT))
            else:
                started.set()
                while await reader.read(1024):
                    pass
                ended.set()
            writer.close()

        async with listen(hang) as url, og.aconnect(url) as graph:
            task = asyncio.create_task(graph.export(tmp_path / "out.ndjson"))
            await started.wait()
            assert len(list(tmp_path.iterdir())) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()
        assert list(tmp_path.iterdir()) == []

    run(steps())


# --- Arrow in chunks ------------------------------------------------------------------------------


def split_body(body: bytes, size: int) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))


@pytest.mark.parametrize("size", [1, 7, 100, 1_000_000])
def test_batches_do_not_depend_on_where_chunks_end(size: int) -> None:
    frames = BatchFrames()
    found = [batch for chunk in split_body(arrow_of(10), size) for batch in frames.add(chunk)]
    frames.finish()
    assert [batch.num_rows for batch in found] == [3, 3, 3, 1]
    assert pa.Table.from_batches(found).column("b").to_pylist() == ["x", "y"] * 5


def test_bytes_that_are_not_arrow_are_refused() -> None:
    with pytest.raises(errors.InternalError, match="not a result in Arrow"):
        list(BatchFrames().add(b"<html>hello</html>"))
