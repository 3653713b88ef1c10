"""No option writes into a graph: every output of every command, found by walking the commands."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import omnigraph
from omnigraph import graph
from omnigraph.cli.main import app
from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest

Refused = Callable[..., tuple[str, str]]

READ: dict[str, set[str]] = {
    "cluster": {"--config", "--plan"},
    "embed": {"--seed", "--input", "--spec"},
    "init": {"--schema"},
    "lint": {"--query", "--schema"},
    "load": {"--data", "--mapping"},
    "lsp": {"--schema"},
    "mcp": {"--queries"},
    "merge": {"--resolutions"},
    "branch merge": {"--resolutions"},
    "pipeline": {"--config", "file", "what"},
    "policy": {"--file", "--tests"},
    "ui": {"--queries"},
    "serve": {"--policy", "--server-policy", "--queries", "--tls-cert", "--tls-key"},
    "schema": {"--schema", "files", "old", "new"},
}
"""Options and arguments that name a file to read, by the beginning of the command."""
READ_ANYWHERE = {"--query", "--params-file", "--timeout"}


def _compute(name: str, uri: str, _: Path, out: str) -> list[str]:
    return ["algorithm", name, uri, "-o", out]


QUERY = "query q() { match { $p: Person } return { $p.handle as h } }"
DOCS = '{"text": "a"}\n'
WRITTEN: dict[str, Callable[[str, Path, str], list[str]]] = {
    "export --output": lambda uri, _, out: ["export", uri, "--output", out, "--overwrite"],
    "query --output": lambda uri, _, out: ["query", "-e", QUERY, "--uri", uri, "-o", out],
    "sql --output": lambda uri, _, out: ["sql", "select 1", "--uri", uri, "-o", out],
    "blob get --out": lambda uri, _, out: [
        "blob", "get", "node", "Person", "ada", "face", "--uri", uri, "--out", out,
    ],
    "changes baseline --out": lambda uri, _, out: ["changes", "baseline", "--uri", uri, "--out", out],
    "load --rejects": lambda uri, at, out: [
        "load", uri, "--data", str(at / "in.ndjson"), "--mode", "merge", "--rejects", out,
    ],
    "branch merge --write-resolutions": lambda uri, _, out: [
        "branch", "merge", "work", "--uri", uri, "--write-resolutions", out,
    ],
    **{
        f"algorithm {name} --output": partial(_compute, name)
        for name in ("pagerank", "connected-components", "label-propagation", "triangle-count", "degree")
    },
    "algorithm shortest-paths --output": lambda uri, at, out: [
        *_compute("shortest-paths", uri, at, out), "--source", "ada",
    ],
    "cluster plan --out": lambda _, at, out: ["cluster", "plan", "--config", str(at), "--out", out],
    "cluster init directory": lambda _, __, out: ["cluster", "init", out],
    "schema infer --output": lambda _, at, out: ["schema", "infer", str(at / "people.csv"), "-o", out],
    "embed --output": lambda _, at, out: [
        "embed", "--input", str(at / "docs.ndjson"), "--spec", str(at / "spec.yaml"), "--output", out,
    ],
}  # fmt: skip
"""How each output is asked for; a new one is added here."""


def paths(command: Any, context: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Every parameter of every command that is a path, or has a name that sounds like one."""
    for one in command.params:
        name = one.opts[0] if one.opts[0].startswith("-") else one.name
        annotation = getattr(getattr(one, "type_descriptor", None), "annotation", None)
        sounds_so = any(word in (one.metavar or "") for word in ("PATH", "FILE", "FOLDER"))
        if "Path" in repr(annotation) or sounds_so or "out" in name:
            yield " ".join(words), name
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            inner = child.make_context(name, [], parent=context, resilient_parsing=True)
            yield from paths(child, inner, (*words, name))


def test_every_path_of_every_command_is_known_to_be_read_or_written() -> None:
    root = get_command(app)
    context = root.make_context("omnigraph", [], resilient_parsing=True)
    found = set(paths(root, context))
    assert ("export", "--output") in found
    unknown = {
        f"{command} {name}"
        for command, name in found
        if name not in READ_ANYWHERE
        and not any(command.startswith(begin) and name in names for begin, names in READ.items())
        and f"{command} {name}" not in WRITTEN
        and f"branch {command} {name}" not in WRITTEN
    }
    assert not unknown, "say in this test whether it is read, or how it is refused inside a graph"


@pytest.fixture
def filled(tmp_path: Path) -> str:
    uri = str(tmp_path / "filled.omni")
    with graph.init(uri, schema="node Person { handle: String @key  face: Blob?  n: I32? }") as made:
        made.load([{"handle": "ada", "face": b"x"}], type="Person", mode="append")
        made.branches.create("work")
        for branch, n in (("main", 1), ("work", 2)):
            made.mutate(f'query q() {{ update Person set {{ n: {n} }} where handle = "ada" }}', branch=branch)
    (tmp_path / "in.ndjson").write_text('{"type": "Person", "data": {"handle": 7}}\n')
    (tmp_path / "docs.ndjson").write_text(DOCS)
    (tmp_path / "people.csv").write_text("handle\nada\n")
    (tmp_path / "spec.yaml").write_text("fields: [text]\n")
    return uri


def digests(uri: str) -> dict[str, str]:
    files = (at for at in Path(uri).rglob("*") if at.is_file() and "__locks" not in at.parts)
    return {str(at): hashlib.sha256(at.read_bytes()).hexdigest() for at in files}


@pytest.mark.parametrize("asked", WRITTEN)
def test_no_output_goes_into_a_graph(asked: str, filled: str, tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "link").symlink_to(filled)
    (tmp_path / "file").symlink_to(Path(filled, "_schema.pg"))
    before = digests(filled)
    for out in (
        f"{filled}/_schema.pg",
        f"{filled}/nodes/new.ndjson",
        f"{tmp_path}/link/new.ndjson",
        f"{tmp_path}/file",
        f"{filled}/../filled.omni/__schemas/../x.ndjson",
    ):
        code, message = refused(*WRITTEN[asked](filled, tmp_path, out))
        assert code == "bad_request", message
        assert "is inside the graph" in message
    for out in ("s3://bucket/x.ndjson", "S3://Bucket/x.ndjson", "file:///x.ndjson"):
        code, message = refused(*WRITTEN[asked](filled, tmp_path, out))
        assert (code, "is not a path on this machine" in message) == ("bad_request", True)
    assert digests(filled) == before
    assert sorted(at.name for at in tmp_path.iterdir()) == sorted(
        ["docs.ndjson", "file", "filled.omni", "in.ndjson", "link", "people.csv", "spec.yaml"]
    )


def test_another_graph_is_as_safe_as_ones_own(tmp_path: Path) -> None:
    graph.init(tmp_path / "a.omni", schema="node P { k: String @key }").close()
    with graph.init(tmp_path / "b.omni", schema="node P { k: String @key }") as made:
        with pytest.raises(BadRequest, match=r"inside the graph '.*a\.omni'"):
            made.export(tmp_path / "a.omni" / "x.ndjson")
        made.export(tmp_path / "x.ndjson")
    assert require_output(tmp_path / "x.ndjson") == tmp_path / "x.ndjson"


WRITERS = {
    "cli/changes.py": "checks, and takes a lock beside the file",
    "cli/blob.py": "new_file",
    "cli/result_output.py": "checks",
    "cli/output.py": "nowhere",
    "cli/reference.py": "a tool for the pages in docs/",
    "cli/schema.py": "checks",
    "cli/shell_prompt.py": "the history of the shell, in the folder of the settings",
    "client/exports.py": "new_file",
    "engine/embedding/embed_file.py": "checks",
    "engine/files/atomic_output.py": "checks",
    "engine/export/export_request.py": "checks",
    "engine/export/export_job.py": "below what new_file and new_folder gave",
    "engine/export/exporter.py": "what new_file and new_folder gave",
    "engine/load/sources/pipes.py": "a temporary file",
    "engine/merge/resolutions.py": "checks",
    "engine/rows/violations.py": "checks",
    "notebook/picture.py": "checks",
    "pipeline/server_supervisor.py": "files of a server",
    "pipeline/processes.py": "files of a server",
    "pipeline/server.py": "files of a server",
    "pipeline/start_cache.py": "files of a cache",
    "cluster/example.py": "checks",
    "cluster/plan_file.py": "what plan_command.py checked",
    "server/load_files.py": "a temporary file",
    "server/loads.py": "a temporary file",
    "server/sources.py": "files of a server",
    "server/ui_sessions.py": "files of a server",
}
"""Files of the source that write files, outside of the storage."""
_CALLS = {"write_text", "write_bytes", "touch", "new_file", "new_folder"}


def test_no_other_code_writes_files_of_users() -> None:
    home = Path(omnigraph.__file__).parent
    found = set()
    for file in home.rglob("*.py"):
        name = file.relative_to(home).as_posix()
        if name.startswith("storage/"):
            continue
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and _writes(call):
                found.add(name)
    assert found <= WRITERS.keys(), "outputs go through omnigraph.engine.files.output_paths.require_output"
    for name, how in WRITERS.items():
        if how.startswith("checks"):
            assert "require_output(" in (home / name).read_text()


def _writes(call: ast.Call) -> bool:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if called == "open":
        modes = [one.value for one in call.args if isinstance(one, ast.Constant)]
        return any(isinstance(mode, str) and set(mode) & set("wax") and len(mode) < 4 for mode in modes)
    owner = getattr(
        getattr(call.func, "value", None), "attr", getattr(getattr(call.func, "value", None), "id", "")
    )
    return called in _CALLS and owner not in ("objects", "ipc", "_objects")
