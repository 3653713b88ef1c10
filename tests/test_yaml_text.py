"""YAML from anywhere: plain values with lines, or one typed error with its place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.cli.config_file import read_config
from omnigraph.engine.embedding.embed_file import read_manifest
from omnigraph.engine.load.sources.mapping import read_mapping
from omnigraph.errors import BadRequest, PipelineInvalid, YamlInvalid
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.policy.read_bundle import read_bundle
from omnigraph.yaml_text import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, read_yaml

LEVELS = 9
BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{level + 1}: &a{level + 1} [{', '.join([f'*a{level}'] * 9)}]\n" for level in range(LEVELS)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("---\n", None),
        ("# nothing\n", None),
        ("[1, -2.5, true, FALSE, ~, null, 2020-01-01, 'x', \"y\"]",
         [1, -2.5, True, False, None, None, "2020-01-01", "x", "y"]),
        ("a: &unused 1\nb: [x]\n", {"a": 1, "b": ["x"]}),
        ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        ("null: 1\n0x10: 2\n<<: 3\n", {"null": 1, "0x10": 2, "<<": 3}),
        ("%YAML 1.2\n---\na: yes\n...\n", {"a": "yes"}),
    ],
)  # fmt: skip
def test_values(text: str, value: Any) -> None:
    assert read_yaml(text, "f").plain() == value


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("a: &x 1\nb: *x", 2, 4, "'*x' is an alias, which is not allowed"),
        ("a: &x {}\nb:\n  <<: *x", 3, 7, "'*x' is an alias, which is not allowed"),
        ("a: &x 1\n? *x\n: 2", 2, 3, "'*x' is an alias, which is not allowed"),
        ("a: &x [*x]", 1, 8, "'*x' is an alias, which is not allowed"),
        ("a: [", 1, 5, "expected the node content, but found '<stream end>'"),
        ("a\n---\nb", 2, 1, "more than one document"),
        ("? [a]\n: b", 1, 3, "a name must be a text"),
        ("a: 1\na: 2", 2, 1, "'a' appears twice"),
        (
            "a: !!python/object/apply:os.mkdir [x]",
            *(1, 4, "'tag:yaml.org,2002:python/object/apply:os.mkdir' is not known here"),
        ),
        ("a: !!python/name:os.mkdir ''", 1, 4, "'tag:yaml.org,2002:python/name:os.mkdir' is not known here"),
        ("%YAML 1.1\n---\na: yes", 3, 4, "'yes' is ambiguous; write true or false, or quote it"),
        ("[" * (MAX_DEPTH + 9), 1, MAX_DEPTH + 2, f"more than {MAX_DEPTH} levels of nesting"),
        ("- " * (MAX_DEPTH + 9), 1, 2 * MAX_DEPTH + 3, f"more than {MAX_DEPTH} levels of nesting"),
    ],
)
def test_what_is_wrong_has_a_line_and_a_column(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(YamlInvalid) as refused:
        read_yaml(text, "f.yaml")
    assert (refused.value.file, refused.value.line, refused.value.column) == ("f.yaml", line, column)
    assert refused.value.message == f"f.yaml:{line}:{column}: {reason}"


def test_size_and_number_of_values_are_limited() -> None:
    with pytest.raises(YamlInvalid, match=f"more than {MAX_CHARACTERS} characters"):
        read_yaml("a" * (MAX_CHARACTERS + 1), "f")
    # Before the rest is read: after it, the text is not even YAML.
    many = "[" + "1," * MAX_NODES
    with pytest.raises(YamlInvalid, match=f"more than {MAX_NODES} values"):
        read_yaml(many, "f")


READERS: dict[str, Callable[[Path], object]] = {
    "mapping": read_mapping,
    "pipeline": read_pipeline,
    "config": read_config,
    "embedding": read_manifest,
    "policy": read_bundle,
}


@pytest.mark.parametrize("kind", READERS)
def test_aliases_are_refused_wherever_yaml_is_read(kind: str, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(BOMB)
    with pytest.raises(BadRequest, match=r"f\.yaml:2:10: '\*a0' is an alias") as refused:
        READERS[kind](tmp_path / "f.yaml")
    assert isinstance(refused.value, YamlInvalid | PipelineInvalid)


@pytest.mark.fuzz
@given(st.text(alphabet="ab01 \n\t-:[]{},?&*!|>'\"%#.~<=", max_size=60))
def test_any_text_is_values_or_a_typed_error(text: str) -> None:
    with suppress(YamlInvalid):
        read_yaml(text, "f").plain()
