"""Nothing in the package turns bytes or texts into code, but for the few places that are listed here.

A new entry needs a reason in SECURITY.md, which names each of these files.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "omnigraph"

MODULES = frozenset(
    {
        *("pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "copyreg"),
        *("runpy", "code", "codeop", "imp", "yaml", "ruamel", "ruamel_yaml", "torch"),
    }
)
"""Modules that decode more than plain values."""
CALLS = frozenset({"eval", "exec", "compile", "__import__", "import_module", "literal_eval"})
METHODS = frozenset({"__setstate__", "__reduce__", "__reduce_ex__", "__arrow_ext_deserialize__"})
ARGUMENTS = frozenset({"allow_pickle"})

ALLOWED = {
    # A pickle that can name nothing but values.
    "pipeline/answers.py: pickle",
    # The one reader of YAML.
    "yaml_text.py: ruamel",
    # How values of ours travel inside pickles that Spark or a user makes and reads.
    "engine/changes/table_side.py: __reduce__",
    "engine/merge/patched_side.py: __reduce__",
    "errors/base.py: __reduce__",
    "query/result.py: __reduce__",
    # Names from tables in the code, never from a text.
    "__init__.py: import_module",
    "cli/command_groups.py: import_module",
    "engine/tasks/runner.py: import_module",
    "notebook/rendering.py: import_module",
    "query/result.py: import_module",
    "spark.py: import_module",
}


def _uses(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name.partition(".")[0] for name in names)
            case ast.ImportFrom(module=str(module)):
                yield module.partition(".")[0]
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
                plain = name == "import_module" and arguments and isinstance(arguments[0], ast.Constant)
                # `re.compile` and its like are methods of something else.
                method = name in {"compile", "exec"} and isinstance(node.func, ast.Attribute)
                if name in CALLS and not plain and not method:
                    yield name
            case ast.FunctionDef(name=name) if name in METHODS:
                yield name
            case ast.keyword(arg=str(name)) if name in ARGUMENTS:
                yield name


def _find_decoders(source: Path) -> set[str]:
    found = set()
    for path in source.rglob("*.py"):
        used = set(_uses(ast.parse(path.read_text(encoding="utf-8"))))
        wanted = used & (MODULES | CALLS | METHODS | ARGUMENTS)
        found |= {f"{path.relative_to(source)}: {name}" for name in wanted}
    return found


def test_no_decoder_appears_outside_the_list() -> None:
    assert _find_decoders(SOURCE) == ALLOWED


def test_each_place_that_decodes_is_explained() -> None:
    explained = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert [place for place in sorted(ALLOWED) if f"`{place.partition(':')[0]}`" not in explained] == []


def test_what_is_looked_for_is_found(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(
        "import pickle\nfrom ruamel.yaml import YAML\nimport numpy as np\n"
        "eval('1')\nnp.load('x', allow_pickle=True)\n"
        "import_module(name)\nimport_module('json')\nre.compile('x')\n"
    )
    assert _find_decoders(tmp_path) == {
        f"new.py: {name}" for name in ("pickle", "ruamel", "eval", "allow_pickle", "import_module")
    }
