"""`omnigraph embed` for files: records of NDJSON get their vectors before they are loaded."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.embed.mock import MockEmbedder
from tests.embed.provider_server import ProviderServer

LINES = [
    '{"type":"Doc","data":{"slug":"a","title":" One ","n":12345678901234567890,"tags":["x","",null,"y"]}}',
    '{"edge": "Cites", "from": "a", "to": "b"}',
    '{"type":"Doc","data":{"slug":"b","title":"Two","about":[1.0,0.0,0.0,0.0]}}',
    '  {"type":"Doc","data":{"slug":"c","title":"","about":[]}}',
    "",
    '{"type": "Person", "data": {"name": "ada"}}',
    '{"type":"Doc","data":{"slug":"d","title":"Four","about":null}}',
]
SPEC = {"dimension": 4, "types": {"Doc": {"target": "about", "fields": ["title", "n", "tags"]}}}
JSON_NAMES = (
    "input",
    "output",
    "records",
    "selected_records",
    "embedded_records",
    "cleaned_records",
    "mode",
    "dimension",
    "model",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files are, and a provider without a network."""
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    (tmp_path / "raw.jsonl").write_text("\n".join(LINES))
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    return tmp_path


def embed_flags(folder: Path, *more: str) -> list[str]:
    flags = [f"--{flag}={folder / name}" for flag, name in (("input", "raw.jsonl"), ("spec", "spec.json"))]
    return ["embed", *flags, f"--output={folder / 'new' / 'out.jsonl'}", *more]


def output_lines(folder: Path) -> list[str]:
    return (folder / "new" / "out.jsonl").read_text().splitlines()


def fields(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)["data"]
    return found


def vector(text: str) -> pytest.Approx[list[float]]:
    [made] = MockEmbedder().embed([text], 4, "document")
    return pytest.approx(made.tolist(), rel=1e-6)


def test_missing_vectors_are_filled_and_all_else_stays_as_it_was_written(
    folder: Path, run_json: Callable[..., Any]
) -> None:
    report = run_json(*embed_flags(folder))
    assert {name: report[name] for name in JSON_NAMES} == {
        "input": str(folder / "raw.jsonl"),
        "output": str(folder / "new" / "out.jsonl"),
        "records": 6,
        "selected_records": 5,
        "embedded_records": 2,
        "cleaned_records": 0,
        "mode": "fill_missing",
        "dimension": 4,
        "model": "mock",
    }
    first, edge, given, without, other, last = output_lines(folder)
    assert [edge, given, without, other] == [LINES[1], LINES[2], LINES[3].strip(), LINES[5]]
    assert '"n":12345678901234567890,"tags":["x","",null,"y"]' in first, "no value is read and rewritten"
    assert fields(first)["about"] == vector("type: Doc\ntitle: One\nn: 12345678901234567890\ntags: x, y")
    assert fields(last)["about"] == vector("type: Doc\ntitle: Four")


def test_a_file_with_vectors_can_be_loaded(folder: Path, run: Callable[..., str]) -> None:
    docs = [line for line in LINES if '"Doc"' in line and "12345678901234567890" not in line]
    (folder / "raw.jsonl").write_text("\n".join(docs))
    assert run(*embed_flags(folder)) == (
        f"{folder / 'new' / 'out.jsonl'}: 1 embedded by mock, of 3 selected and 3 in all\n"
    )
    lines = [line.replace('"about":[]', '"about":null') for line in output_lines(folder)]
    (folder / "load.jsonl").write_text("\n".join(lines))
    schema = "node Doc { slug: String @key  title: String?  about: Vector(4)? }"
    with og.init(folder / "g", schema=schema) as graph:
        graph.load(folder / "load.jsonl", mode="append")
        asked = 'query q() { match { $d: Doc { slug: "d" } } return { $d.about as v } }'
        assert graph.query(asked).one()["v"] == vector("type: Doc\ntitle: Four")


@pytest.mark.parametrize(
    ("flags", "mode", "selected", "embedded"),
    [
        (["--reembed-all"], "reembed_all", 5, 3),
        (["--reembed_all", "--type", "Doc"], "reembed_all", 4, 3),
        (["--select", "slug=b", "--select", "Doc:title=Four"], "reembed_selected", 2, 2),
        (["--select", "n=12345678901234567890"], "reembed_selected", 1, 1),
        (["--type", "Doc"], "fill_missing", 4, 2),
    ],
)
def test_which_records_are_embedded(
    folder: Path, run_json: Callable[..., Any], flags: list[str], mode: str, selected: int, embedded: int
) -> None:
    report = run_json(*embed_flags(folder, *flags))
    assert (report["mode"], report["selected_records"], report["embedded_records"]) == (
        mode,
        selected,
        embedded,
    )
    replaced = fields(output_lines(folder)[2])["about"] != [1.0, 0.0, 0.0, 0.0]
    assert replaced is (mode != "fill_missing" and "n=12345678901234567890" not in flags)


def test_vectors_can_be_taken_out_without_a_provider(
    folder: Path, run_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER")
    report = run_json(*embed_flags(folder, "--clean"))
    assert (report["cleaned_records"], report["embedded_records"], report["mode"]) == (3, 0, "clean")
    assert (report["model"], report["dimension"]) == ("", 4)
    assert not any("about" in line for line in output_lines(folder))


def test_a_manifest_names_the_files_from_its_own_folder(folder: Path, run_json: Callable[..., Any]) -> None:
    spec = "dimension: 4\n  types:\n    Doc: {target: about, fields: [title]}\n"
    manifest = folder / "seed.yaml"
    manifest.write_text(f"sources:\n  raw_seed: raw.jsonl\nembeddings:\n  {spec}")
    report = run_json("embed", "--seed", str(manifest))
    assert report["output"] == str(folder / "build" / "seed.embedded.jsonl")
    assert report["embedded_records"] == 2
    manifest.write_text(
        f"seed:\n  data: raw.jsonl\nartifacts:\n  embedded_seed: out/e.jsonl\nembeddings:\n  {spec}"
    )
    assert run_json("embed", "--seed", str(manifest))["output"] == str(folder / "out" / "e.jsonl")


def test_a_text_that_is_refused_is_reported_and_its_record_stays(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = json.dumps({"type": "Doc", "data": {"slug": "l", "title": "x" * (256 * 1024 + 1)}})
    (folder / "raw.jsonl").write_text("\n".join([*LINES, long]))
    assert main([*embed_flags(folder), "--quiet"]) == 0
    shown = capsys.readouterr()
    assert "2 embedded" in shown.out
    assert "line 8 was left as it is: text for model 'mock' has" in shown.err
    assert output_lines(folder)[-1] == long


def test_what_fails_leaves_the_file_that_was_there(
    folder: Path, refused: Callable[..., tuple[str, str]]
) -> None:
    (folder / "new").mkdir()
    (folder / "new" / "out.jsonl").write_text("before")
    (folder / "raw.jsonl").write_text("\n".join([*LINES, "[1]"]))
    assert refused(*embed_flags(folder))[1].startswith("line 8: a record must be an object of JSON")
    assert output_lines(folder) == ["before"]
    assert [file.name for file in (folder / "new").iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["embed", "--input", "x"], "--input, --output and --spec go together"),
        (["embed", "--seed", "x", "--input", "y"], "--seed and --input or --spec are mutually exclusive"),
        (["embed", "--clean"], "--clean is about files"),
        (["embed", "--select", "a=b", "--output", "x"], "--output is about files"),
        (["embed", "g.omni", "--seed", "x"], "a URI is about a graph"),
        (["embed", "--branch", "main", "--seed", "x"], "--branch is about a graph"),
        (["embed", "--store", "g.omni", "--seed", "x"], "--store is about a graph"),
        (["embed", "--seed", "nowhere.yaml"], "cannot read 'nowhere.yaml': No such file or directory"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    refused: Callable[..., tuple[str, str]], flags: list[str], part: str
) -> None:
    code, message = refused(*flags)
    assert code == "bad_request"
    assert message.startswith(part)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--clean", "--reembed-all"], "--clean and --reembed-all are mutually exclusive"),
        (["--type", "Dog"], "no vector is asked for in 'Dog'"),
        (["--select", "Dog:a=b"], "no vector is asked for in 'Dog'"),
        (["--select", "slug"], "'slug' selects nothing"),
        (["--select", ":slug=a"], "':slug=a' selects nothing"),
    ],
)
def test_a_selection_that_means_nothing_is_refused(
    folder: Path, refused: Callable[..., tuple[str, str]], flags: list[str], part: str
) -> None:
    assert refused(*embed_flags(folder, *flags))[1].startswith(part)
    assert not (folder / "new").exists()


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("[]", "the file must have members"),
        ('{"types": {}}', "dimension is missing in the file"),
        ('{"dimension": 0, "types": {}}', "dimension must be a number from 1 on"),
        ('{"dimension": 4, "types": {}}', "types has no type"),
        ('{"dimension": 4, "types": {"D": {"target": "v"}}}', "fields is missing in types.D"),
        ('{"dimension": 4, "types": {"D": {"target": 1, "fields": ["a"]}}}', "types.D.target must be a text"),
        ('{"dimension": 4, "types": {"D": {"target": "v", "fields": []}}}', "types.D.fields must be a list"),
    ],
)
def test_a_wrong_spec_is_reported_with_its_place(
    folder: Path, refused: Callable[..., tuple[str, str]], spec: str, part: str
) -> None:
    (folder / "spec.json").write_text(spec)
    message = refused(*embed_flags(folder))[1]
    assert message.startswith(f"{folder / 'spec.json'}:1: {part}")


def test_a_member_that_is_there_twice_is_refused(
    folder: Path, refused: Callable[..., tuple[str, str]]
) -> None:
    (folder / "raw.jsonl").write_text('{"type":"Doc","data":{"title":"a","title":"b"}}')
    assert refused(*embed_flags(folder))[1] == "line 1: duplicate JSON member 'title'"


@pytest.mark.parametrize("value", [b'"\xff"', b"[" * 900 + b"]" * 900])
def test_a_value_that_cannot_be_read_is_reported_with_its_line(
    folder: Path, refused: Callable[..., tuple[str, str]], value: bytes
) -> None:
    line = b'{"type":"Doc","data":{"title":' + value + b"}}"
    (folder / "raw.jsonl").write_bytes(LINES[0].encode() + b"\n" + line)
    assert refused(*embed_flags(folder))[1].startswith("line 2: a value cannot be read: ")


def test_a_number_beyond_all_types_stays_as_it_is_written(folder: Path) -> None:
    numbers = ("1e999", "9" * 5000)
    lines = [f'{{"type":"Doc","data":{{"n":{number},"other":{number}}}}}' for number in numbers]
    (folder / "raw.jsonl").write_text("\n".join(lines))
    assert main(embed_flags(folder)) == 0
    for line, found in zip(lines, output_lines(folder), strict=True):
        assert found.startswith(f'{line[:-2]},"about":[')


def test_what_is_no_file_is_not_replaced_by_one(
    folder: Path, refused: Callable[..., tuple[str, str]]
) -> None:
    (folder / "new").mkdir()
    os.mkfifo(folder / "new" / "out.jsonl")
    assert refused(*embed_flags(folder))[1].endswith("out.jsonl': it is no file")
    assert (folder / "new" / "out.jsonl").is_fifo()


def test_a_folder_that_cannot_be_made_is_reported(
    folder: Path, refused: Callable[..., tuple[str, str]]
) -> None:
    (folder / "new").write_text("a file")
    assert refused(*embed_flags(folder))[1] == f"cannot write to '{folder / 'new'}': File exists"


def test_without_a_provider_it_is_an_error(
    folder: Path, refused: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER")
    assert refused(*embed_flags(folder))[0] == "embedding_not_configured"


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_leaves_the_file_as_it_was_and_speaks_of_no_graph(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupting(_text: str, dimension: int) -> list[float]:
        os.kill(os.getpid(), signal.SIGINT)
        return [1.0] * dimension

    (folder / "new").mkdir()
    (folder / "new" / "out.jsonl").write_text("as it was")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "http")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "mock")
    with ProviderServer() as server:
        server.numbers = interrupting
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", server.url)
        assert main(embed_flags(folder)) == 130
    assert output_lines(folder) == ["as it was"]
    output = folder / "new" / "out.jsonl"
    assert capsys.readouterr().err.endswith(f"interrupted: '{output}' is as it was\n")
