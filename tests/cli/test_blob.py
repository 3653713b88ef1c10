"""`omnigraph blob`."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import errors, graph
from omnigraph.cli.main import main

SCHEMA = """
node Doc { slug: String @key  body: Blob?  title: String? }
edge Cites: Doc -> Doc { scan: Blob }
"""
WHOLE = bytes(range(256)) * 3

Refused = Callable[..., tuple[str, str]]


def blob(data: bytes) -> str:
    return f"base64:{b64encode(data).decode()}"


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("blobs")
    records: list[dict[str, Any]] = [
        {"type": "Doc", "data": {"slug": "a", "body": blob(WHOLE)}},
        {"type": "Doc", "data": {"slug": "empty", "body": blob(b"")}},
        {"type": "Doc", "data": {"slug": "none"}},
        {"edge": "Cites", "from": "a", "to": "none", "data": {"id": "c1", "scan": blob(b"seen")}},
    ]
    (folder / "d.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records), encoding="utf-8")
    with graph.init(folder / "g.omni", schema=SCHEMA) as made:
        made.load(folder / "d.jsonl", mode="append")
        made.branches.create("draft")
        made.mutate(
            'query q($b: Blob) { update Doc set { body: $b } where slug = "a" }',
            {"b": blob(b"second")},
            branch="draft",
        )
        return made.uri


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], WHOLE),
        (["--offset", "700"], WHOLE[700:]),
        (["--length", "5"], WHOLE[:5]),
        (["--offset", "250", "--length", "10"], WHOLE[250:260]),
        (["--offset", "760", "--length", "99"], WHOLE[760:]),
        (["--branch", "draft"], b"second"),
    ],
)
def test_bytes_come_as_they_are_whole_or_in_part(
    docs: str, capsysbinary: pytest.CaptureFixture[bytes], flags: list[str], expected: bytes
) -> None:
    assert main(["blob", "get", "node", "Doc", "a", "body", "--uri", docs, *flags]) == 0
    assert capsysbinary.readouterr().out == expected


def test_an_edge_has_blobs_too_and_an_empty_one_is_not_null(
    docs: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["blob", "get", "edge", "Cites", "c1", "scan", "--store", docs]) == 0
    assert capsysbinary.readouterr().out == b"seen"
    assert main(["blob", "get", "node", "Doc", "empty", "body", "--store", docs]) == 0
    assert capsysbinary.readouterr().out == b""


def test_a_large_one_comes_in_parts(docs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.rows.blobs.PART_BYTES", 100)
    with graph.open(docs, read_only=True) as opened:
        parts = list(opened.snapshot().blob("Doc", "a", "body").parts(offset=50))
    assert [len(part) for part in parts] == [100] * 7 + [18]
    assert b"".join(parts) == WHOLE[50:]


def test_a_file_is_written_whole_or_left_alone(
    docs: str, tmp_path: Path, run: Callable[..., str], run_json: Callable[..., Any], refused: Refused
) -> None:
    out = tmp_path / "body.bin"
    cell = ["blob", "get", "node", "Doc", "a", "body", "--uri", docs, "--out", str(out)]
    assert run(*cell) == f"wrote 768 bytes to {out}\n"
    assert out.read_bytes() == WHOLE
    assert run_json(*cell, "--length", "3")["bytes_written"] == 3
    assert out.read_bytes() == WHOLE[:3]
    for wrong in (["--offset", "5000"], ["--length", "0"], ["--branch", "gone"]):
        assert main([*cell, *wrong]) == 1
        assert out.read_bytes() == WHOLE[:3]
    assert list(tmp_path.iterdir()) == [out]


def test_what_it_is_can_be_seen_without_reading_it(
    docs: str, run: Callable[..., str], run_json: Callable[..., Any]
) -> None:
    cell = ["blob", "stat", "node", "Doc", "a", "body", "--uri", docs]
    main_, draft = run_json(*cell), run_json(*cell, "--branch", "draft")
    assert main_["selector"] == {"entity": "node", "type": "Doc", "id": "a", "property": "body"}
    assert (main_["kind"], main_["size"], draft["size"]) == ("managed", len(WHOLE), 6)
    assert main_["etag"] != draft["etag"]
    assert main_["target"]["branch"] == "main"
    past = run_json(*cell, "--snapshot", main_["target"]["resolved_snapshot"])
    assert past["target"] == {
        "snapshot": main_["target"]["resolved_snapshot"],
        "resolved_snapshot": main_["target"]["resolved_snapshot"],
    }
    assert past["etag"] == main_["etag"]
    assert run(*cell).splitlines()[:2] == ["kind: managed", f"size: {len(WHOLE)}"]


@pytest.mark.parametrize(
    ("cell", "code", "message"),
    [
        (["node", "Doc", "b", "body"], "not_found", "there is no node Doc 'b' in snapshot"),
        (["node", "Doc", "none", "body"], "not_found", "node Doc 'none' has no 'body': it is null"),
        (["node", "Doc", "a", "title"], "bad_request", "'title' of Doc cannot be read as bytes: it is not"),
        (["node", "Doc", "a", "pages"], "bad_request", "'pages' of Doc cannot be read as bytes: there is no"),
        (["node", "Book", "a", "body"], "bad_request", "there is no node type 'Book' in snapshot"),
        (["edge", "Doc", "a", "body"], "bad_request", "there is no edge type 'Doc' in snapshot"),
    ],
)
def test_what_is_not_there_is_reported(
    docs: str, refused: Refused, cell: list[str], code: str, message: str
) -> None:
    found = refused("blob", "stat", *cell, "--uri", docs)
    assert found[0] == code
    assert found[1].startswith(message)


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--length", "0"], "invalid_value"),
        (["--offset", "-1"], "invalid_value"),
        (["--offset", str(2**63 - 1), "--length", "2"], "invalid_value"),
        (["--offset", "768"], "blob_range"),
    ],
)
def test_a_range_that_cannot_be_is_refused(docs: str, flags: list[str], code: str) -> None:
    numbers = {
        flag.removeprefix("--"): int(value) for flag, value in zip(flags[::2], flags[1::2], strict=True)
    }
    with graph.open(docs, read_only=True) as opened:
        found = opened.snapshot().blob("Doc", "a", "body")
        with pytest.raises(errors.OmnigraphError) as caught:
            found.read(**numbers)
    assert caught.value.code == code
    assert main(["blob", "get", "node", "Doc", "a", "body", "--uri", docs, *flags]) == 1


def test_bytes_and_json_do_not_share_the_output(docs: str, refused: Refused) -> None:
    code, message = refused("blob", "get", "node", "Doc", "a", "body", "--uri", docs)
    assert (code, message) == ("bad_request", "--json and bytes on standard output exclude each other")
