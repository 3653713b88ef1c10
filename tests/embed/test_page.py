"""The page about embeddings says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.embed import settings
from omnigraph.embed.offline import DIMENSIONS
from omnigraph.errors import OmnigraphError, embedding
from omnigraph.lang.query.compile import CompiledRead, compile_parsed
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "embeddings.md").read_text(encoding="utf-8")
ERRORS = [
    kind
    for name, kind in vars(embedding).items()
    if name.startswith("Embedding") and issubclass(kind, OmnigraphError)
]


@pytest.mark.parametrize("provider", settings.PROVIDERS)
def test_every_provider_is_documented_with_its_default_model(provider: str) -> None:
    (row,) = re.findall(rf"^\| `{provider}`.*$", PAGE, re.MULTILINE)
    model = settings._MODELS.get(provider)
    assert model is None or f"`{model}`" in row
    key = settings._KEYS.get(provider)
    assert key is None or f"`{key}`" in row


@pytest.mark.parametrize(
    "setting", [value for name, value in vars(settings).items() if name.endswith("_SETTING")]
)
def test_every_setting_is_documented(setting: str) -> None:
    assert f"`{setting}`" in PAGE


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.code)
def test_every_error_is_documented(kind: type[OmnigraphError]) -> None:
    assert f"| `{kind.code}` |" in PAGE


def test_the_list_of_errors_is_not_empty() -> None:
    assert len(ERRORS) == 8


def test_the_dimensions_of_the_offline_model_are_documented() -> None:
    assert re.search(r"\s".join(["64,", "128", "and", "256"]), PAGE)
    assert DIMENSIONS == (64, 128, 256)


def test_the_example_compiles() -> None:
    (schema,) = re.findall(r"^```pg\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (query,) = re.findall(r"^```gq\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    source = Source(query)
    (parsed,) = parse_queries(source).queries
    assert isinstance(compile_parsed(parsed, compile_schema(schema), source), CompiledRead)
