"""The public face: users can import, annotate with and look up every type that they can hold."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, get_args

import pytest

import omnigraph as og
from omnigraph.cli.reference import INTERNAL_MEMBERS

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
MODULES = {"errors", "spark"}
NAMES = [name for name in og.__all__ if name not in {"__version__", *MODULES}]
CALLED_BY_SYNTAX = {"__call__", "__enter__", "__getitem__", "__iter__", "__next__"}


class Definition(NamedTuple):
    """Where a type or an alias of omnigraph is defined."""

    module: str
    name: str


class Hint(NamedTuple):
    """An annotation that users see, and the module whose names it uses."""

    where: str
    text: str
    module: str


@cache
def imports(module: str) -> dict[str, tuple[str, str]]:
    """Names that a module imports from others, those for type checkers included."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.asname or name.name: (node.module or "", name.name) for node in found for name in node.names}


def definition(name: str, module: str) -> Definition | None:
    """Follow imports to where a name is defined; None when that is not in omnigraph."""
    source, original = imports(module).get(name, (module, name))
    if not source.startswith("omnigraph"):
        return None
    if (source, original) != (module, name):
        return definition(original, source)
    value = vars(import_module(module)).get(name)
    is_ours = value is not None and not isinstance(value, ModuleType | TypeVar)
    return Definition(module, name) if is_ours else None


def definitions(hint: Hint) -> set[Definition]:
    """The types and aliases of omnigraph that an annotation names."""
    names = {node.id for node in ast.walk(ast.parse(hint.text)) if isinstance(node, ast.Name)}
    found = (definition(name, hint.module) for name in names if not hasattr(builtins, name))
    return {one for one in found if one is not None}


def function_hints(where: str, function: Callable[..., Any]) -> Iterator[Hint]:
    plain = inspect.unwrap(function)
    for name, text in plain.__annotations__.items():
        shown = text if isinstance(text, str) else inspect.formatannotation(text)
        yield Hint(f"{where}({name})", shown, plain.__module__)


def class_hints(path: str, kind: type) -> Iterator[Hint]:
    """The annotations of public fields, properties and methods, the inherited ones included."""
    hidden = INTERNAL_MEMBERS.get(path, ())
    for owner in inspect.getmro(kind):
        if not owner.__module__.startswith("omnigraph"):
            continue
        fields = inspect.get_annotations(owner)
        for name, text in fields.items():
            if not name.startswith("_"):
                yield Hint(f"{path}.{name}", str(text), owner.__module__)
        for name, member in vars(owner).items():
            function = function_of(member)
            if function is not None and name not in hidden and is_public(name, kind):
                yield from function_hints(f"{path}.{name}", function)


def is_public(name: str, kind: type) -> bool:
    is_error = issubclass(kind, BaseException)
    return not name.startswith("_") or name in CALLED_BY_SYNTAX or (is_error and name == "__init__")


def function_of(member: object) -> Callable[..., Any] | None:
    match member:
        case property():
            return member.fget
        case cached_property():
            return member.func
        case classmethod() | staticmethod():
            return member.__func__
    return member if inspect.isfunction(member) else None


def alias_hints(path: str, at: Definition) -> Iterator[Hint]:
    """The value of an alias; aliases within it need no public name, classes do."""
    for node in ast.parse(inspect.getsource(import_module(at.module))).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=at.name)], value=value):
                named = definitions(Hint(path, ast.unparse(value), at.module))
                yield from (Hint(path, one.name, one.module) for one in named if is_class(one))


def is_class(at: Definition) -> bool:
    return inspect.isclass(getattr(import_module(at.module), at.name))


def exports() -> dict[str, Definition]:
    """Every public path with the definition behind it."""
    found = {f"omnigraph.{name}": definition(name, "omnigraph") for name in NAMES}
    found |= {f"omnigraph.spark.{name}": definition(name, "omnigraph.spark") for name in og.spark.__all__}
    found |= {f"omnigraph.errors.{name}": definition(name, "omnigraph.errors") for name in og.errors.__all__}
    assert None not in found.values()
    return {path: at for path, at in found.items() if at is not None}


EXPORTS = exports()


@pytest.mark.parametrize("path", EXPORTS)
def test_every_type_that_a_public_name_mentions_is_public(path: str) -> None:
    at = EXPORTS[path]
    value = getattr(import_module(at.module), at.name)
    if inspect.isclass(value):
        hints = list(class_hints(path, value))
        bases = {argument for base in getattr(value, "__orig_bases__", ()) for argument in get_args(base)}
        mentioned = {one for one in bases if inspect.isclass(one) and one.__module__.startswith("omnigraph")}
        assert {Definition(one.__module__, one.__name__) for one in mentioned} <= set(EXPORTS.values())
    elif inspect.isfunction(value):
        hints = list(function_hints(path, value))
    else:
        hints = list(alias_hints(path, at))
    missing = {hint.where: definitions(hint) - set(EXPORTS.values()) for hint in hints}
    assert {where: names for where, names in missing.items() if names} == {}


def test_every_public_name_has_one_module_and_one_theme() -> None:
    named = [name for homes in og.THEMES.values() for names in homes.values() for name in names]
    assert sorted(named) == sorted(NAMES)
    assert sorted(og.__all__) == og.__all__
    assert set(og.__all__) <= set(dir(og))


def test_every_name_is_defined_where_the_type_checker_finds_it() -> None:
    for homes in og.THEMES.values():
        for home, names in homes.items():
            assert {name: definition(name, "omnigraph") for name in names} == {
                name: definition(name, home) for name in names
            }


def test_every_public_name_is_in_the_reference() -> None:
    entries = re.findall(r"^::: (omnigraph[\w.]*)$", REFERENCE, re.MULTILINE)
    assert len(entries) == len(set(entries))
    assert {path for path in EXPORTS if not path.startswith("omnigraph.errors.")} <= set(entries)


@pytest.mark.parametrize("path", INTERNAL_MEMBERS)
def test_a_member_that_the_reference_hides_exists(path: str) -> None:
    at = EXPORTS[path]
    kind = getattr(import_module(at.module), at.name)
    assert [name for name in INTERNAL_MEMBERS[path] if not hasattr(kind, name)] == []


def test_importing_the_face_loads_no_storage_and_no_spark() -> None:
    program = (
        "import sys, omnigraph, omnigraph.spark; dir(omnigraph); "
        "print({'lance', 'pandas', 'pyarrow', 'pyspark'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    for module in (og, og.spark):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            module.nothing  # noqa: B018
