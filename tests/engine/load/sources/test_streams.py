"""Pipes as inputs: they are read once, to their end, and reported by the name the user has for them."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from threading import Thread
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.load.sources.item import Format
from omnigraph.engine.load.sources.pipes import Stream
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.errors import BadRequest, LoadRejected
from omnigraph.progress import Progress

SCHEMA = "node Person { name: String @key  age: I32? }"

Pipe = Callable[[str, bytes], Path]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    yield
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    """A pipe with a name, and somebody who writes to it once."""
    writers: list[Thread] = []

    def made(name: str, body: bytes) -> Path:
        at = tmp_path / name
        os.mkfifo(at)
        writers.append(Thread(target=at.write_bytes, args=(body,), daemon=True))
        writers[-1].start()
        return at

    yield made
    for writer in writers:
        writer.join(10)


def people(*names: str, **more: object) -> bytes:
    return b"".join(
        json.dumps({"type": "Person", "data": {"name": name, **more}}).encode() + b"\n" for name in names
    )


def stored_names(graph: og.Graph) -> list[str]:
    return sorted(graph.snapshot().rows("Person").column("name").to_pylist())


@pytest.mark.parametrize("way", ["memory", "files"])
def test_what_comes_out_of_a_pipe_is_loaded(graph: og.Graph, pipe: Pipe, way: str) -> None:
    at = pipe("people", people(*(f"p{number}" for number in range(10_000))))
    engine = Engine(LocalRunner(), "asked for") if way == "files" else None
    with patch("omnigraph.graph.select_engine", lambda *_, **__: engine):
        done = graph.load(at, mode="append")
    assert (done.total, len(stored_names(graph))) == (10_000, 10_000)


def test_a_pipe_is_loaded_among_files_and_by_the_ending_of_its_name(
    graph: og.Graph, pipe: Pipe, tmp_path: Path
) -> None:
    (tmp_path / "some.jsonl").write_bytes(people("ada"))
    packed, table = pipe("more.jsonl.gz", gzip.compress(people("bo"))), pipe("Person.csv", b"name\ncy\n")
    assert graph.load([packed, tmp_path / "some.jsonl", table], mode="append").total == 3
    assert stored_names(graph) == ["ada", "bo", "cy"]


@pytest.mark.parametrize("way", ["memory", "files"])
def test_what_is_wrong_is_reported_by_the_name_of_the_pipe(
    graph: og.Graph, pipe: Pipe, tmp_path: Path, way: str
) -> None:
    at = pipe("people", people("ada") + people("bo", age="old"))
    engine = Engine(LocalRunner(), "asked for") if way == "files" else None
    with (
        patch("omnigraph.graph.select_engine", lambda *_, **__: engine),
        pytest.raises(LoadRejected) as refused,
    ):
        graph.load(at, mode="append", rejects=tmp_path / "rejects")
    assert str(refused.value) == f"{at}:2: strict property 'age' expects Int32, got \"old\""
    (reject,) = map(json.loads, (tmp_path / "rejects").read_text().splitlines())
    assert (reject["file"], reject["line"], reject["record"]["data"]["name"]) == (str(at), 2, "bo")


def test_a_load_that_was_overtaken_does_not_read_its_pipe_again(
    graph: og.Graph, pipe: Pipe, tmp_path: Path
) -> None:
    gate = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with og.open(tmp_path / "g.omni") as rival:
        faster = failpoints.once(lambda: rival.mutate('query q() { insert Person { name: "rival" } }'))
        with failpoints.arm(gate, faster):
            graph.load(pipe("people", people("ada")), mode="append")
    assert stored_names(graph) == ["ada", "rival"]


def test_an_open_stream_has_the_format_that_is_given(graph: og.Graph) -> None:
    source = BytesIO(gzip.compress(people("ada")))
    assert graph.load([Stream("-", Format.NDJSON_GZ, source)], mode="append").total == 1
    mapping = {"inputs": [{"files": "-", "type": "Person", "columns": {"who": "name"}}]}
    lines = Stream("-", Format.CSV, BytesIO(b"who\nbo\n"))
    assert graph.load([lines], mode="append", mapping=mapping).total == 1
    assert stored_names(graph) == ["ada", "bo"]


def test_an_open_stream_is_ndjson_by_itself_and_called_as_the_user_does(graph: og.Graph) -> None:
    with pytest.raises(LoadRejected, match=r"^-:1: strict property"):
        graph.load([Stream("-", opened=BytesIO(people("ada", age="old")))], mode="append")


def test_a_file_behind_standard_input_is_named_by_its_descriptor(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "some").write_bytes(people("ada"))
    with (tmp_path / "some").open("rb") as named, tempfile.TemporaryFile(dir=tmp_path) as nameless:
        nameless.write(people("bo"))
        nameless.flush()
        inputs = [f"/dev/fd/{one.fileno()}" for one in (named, nameless)]
        assert graph.load(inputs, mode="append").total == 2
    assert stored_names(graph) == ["ada", "bo"]


def test_a_pipe_that_is_named_twice_is_refused(graph: og.Graph) -> None:
    reading, writing = os.pipe()
    os.write(writing, people("ada"))
    os.close(writing)
    try:
        with pytest.raises(BadRequest, match="is read already, and can be read once"):
            graph.load([f"/dev/fd/{reading}"] * 2, mode="append")
    finally:
        os.close(reading)
    assert stored_names(graph) == []


def test_an_empty_device_brings_nothing(graph: og.Graph) -> None:
    assert graph.load("/dev/null", mode="append").commit is None


def test_a_pipe_in_a_folder_is_refused_and_not_taken_for_an_empty_file(
    graph: og.Graph, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "people.jsonl")
    for given in (tmp_path / "data", f"{tmp_path}/data/*.jsonl"):
        with pytest.raises(BadRequest, match=r"people\.jsonl' is no file"):
            graph.load(given, mode="append")


def test_a_format_is_only_for_pipes(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_bytes(people("ada"))
    with pytest.raises(BadRequest, match="a format was given"):
        graph.load([Stream(str(tmp_path / "some.jsonl"), Format.CSV)], mode="append")
    with pytest.raises(BadRequest, match="a Lance table is a folder"):
        graph.load([Stream("-", Format.LANCE, BytesIO(b""))], mode="append")


def test_how_much_came_out_of_a_pipe_is_reported(graph: og.Graph, pipe: Pipe) -> None:
    heard: list[Progress] = []
    body = people("ada")
    graph.load(pipe("people", body), mode="append", progress=heard.append)
    assert [one.bytes for one in heard if one.stage == "receive"][-1] == len(body)
