"""`omnigraph lint` on files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli.main import main

SCHEMA = "node P { k: String @key  a: I32? }\nedge Knows: P -> P\n"
GOOD = "query q($k: String) { match { $p: P { k: $k } } return { $p.a } }\n"


def _lint(folder: Path, queries: bytes | str, *extra: str) -> int:
    (folder / "s.pg").write_text(SCHEMA, encoding="utf-8")
    data = queries.encode() if isinstance(queries, str) else queries
    (folder / "q.gq").write_bytes(data)
    return main(["lint", "--schema", str(folder / "s.pg"), "--query", str(folder / "q.gq"), *extra])


def test_a_good_file_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _lint(tmp_path, GOOD) == 0
    assert capsys.readouterr().out == "ok    read q\n1 query checked: 0 errors, 0 warnings\n"


def test_the_report_describes_each_query(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _lint(tmp_path, GOOD, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == "ok"
    assert report["schema_source"] == {"kind": "file", "path": str(tmp_path / "s.pg")}
    assert report["query_path"] == str(tmp_path / "q.gq")
    assert report["results"] == [
        {
            "name": "q",
            "kind": "read",
            "status": "ok",
            "operation": {
                "result": [{"name": "a", "kind": "int", "nullable": True}],
                "reads": [{"kind": "node", "type_name": "P"}],
                "writes": [],
            },
        }
    ]


def test_warnings_do_not_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _lint(tmp_path, 'query q() { delete P where k = "x" }') == 0
    assert "hardcoded mutations are easy to miss" in capsys.readouterr().out


def test_a_wrong_query_fails_beside_a_good_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _lint(tmp_path, f"{GOOD}query bad() {{ match {{ $x: Nope }} return {{ $x }} }}") == 1
    shown = capsys.readouterr().out
    assert "ok    read q" in shown
    assert "error[T1]: unknown node type `Nope`" in shown
    assert "q.gq:2:23" in shown
    assert "2 queries checked: 1 error, 0 warnings" in shown


def test_a_file_that_does_not_parse_is_one_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = "query a() { match { } return { $p } }\nquery b( { }"
    assert _lint(tmp_path, broken, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["status"], report["queries_processed"], report["errors"]) == ("error", 0, 1)
    assert [finding["code"] for finding in report["findings"]] == ["Q000"]
    assert [place["line"] for place in report["findings"][0]["diagnostics"]] == [1, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xef\xbb\xbfquery", "byte order mark"),
        (b"query q() { \x00 }", "NUL"),
        (b"query q() { \xff }", "not valid UTF-8"),
    ],
)
def test_unreadable_bytes_have_a_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, message: str
) -> None:
    assert _lint(tmp_path, data, "--json") == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == "Q000"
    assert message in finding["message"]
    assert finding["diagnostics"][0]["line"] == 1
