"""The rules about annotations: which may stand where, and with which arguments."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

from omnigraph.errors import InvalidValue
from omnigraph.lang.schema import schema_ast as ast
from omnigraph.lang.schema.catalog import GRANULARITIES, LANGUAGES, METRICS, Property, TypeKind
from omnigraph.lang.schema.interfaces import MARKS, Member, Members
from omnigraph.lang.source import Problems
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import Json, Stored, convert, shorten_legibly, to_json_value

_WRITTEN_AS_TEXT = (Scalar.STRING, Scalar.DATE, Scalar.DATETIME)


def read_default(text: str, type_: ValueType) -> Stored:
    """The value that the text of a `@default` stands for; raises `InvalidValue` when it is none of the type.

    Texts, days and moments are written as they are; everything else, lists included, as JSON.
    """
    if type_.scalar is Scalar.BLOB:
        raise InvalidValue("a Blob has no default")
    as_text = type_.scalar in _WRITTEN_AS_TEXT and not type_.is_list
    value = convert(text if as_text else _parse_json(text), type_.with_nullable(False))
    if type_.enum_values and value not in type_.enum_values:
        raise InvalidValue(f"'{shorten_legibly(text)}' is none of {', '.join(type_.enum_values)}")
    return value


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidValue(f"'{shorten_legibly(text)}' cannot be read") from None


def default_of(declared: Property) -> Stored:
    """The value of a property's `@default`; None when it has none."""
    return None if declared.default is None else read_default(declared.default, declared.type)


def default_json(declared: Property) -> Json:
    """The same as a JSON value."""
    return to_json_value(default_of(declared), declared.type)


ANNOTATIONS = ("description", "instruction", "rename_from", "embed", "default", "metric", "text", "merge")
"""The annotations that mean something; any other is kept as metadata."""

_ON_PROPERTIES = (*MARKS, "embed")
_EMBED_OPTIONS = ("model",)


def check_type_annotations(
    kind: TypeKind, name: str, annotations: Sequence[ast.Annotation], problems: Problems
) -> None:
    """Check the annotations in the header of a node or edge type."""
    for found in annotations:
        if found.name in _ON_PROPERTIES:
            reason = (
                f"@{found.name} is only supported on node properties or as body constraint (node {name})"
                if kind == "node"
                else f"@{found.name} is not supported on edges (edge {name})"
            )
            problems.add(reason, found.at)
        elif found.name == "merge":
            _check_choice(found, f"{kind} {name}", GRANULARITIES, problems)
    for repeated in _find_repeated(annotations, ("merge",)):
        problems.add(f"{kind} {name} declares @merge multiple times", repeated.at)
    _check_texts(f"{kind} {name}", annotations, ("description", "instruction"), problems)
    _check_rename(f"{kind} {name}", annotations, problems)


def check_property_annotations(
    kind: TypeKind, owner: str, declared: ast.Property, members: Members, problems: Problems
) -> None:
    """Check the annotations of a property where it is declared."""
    if not declared.annotations:
        return
    path = f"{owner}.{declared.name.text}"
    for found in declared.annotations:
        if found.name == "instruction":
            problems.add(f"@instruction is only supported on node and edge types (property {path})", found.at)
        elif kind == "edge" and found.name in ("key", "embed"):
            how = f"write `@key(src, dst, {declared.name.text})` in the body: the ends are part of a key"
            misplaced = f"@{found.name} is not supported on edge properties (edge {path})"
            problems.add(misplaced, found.at, help=how if found.name == "key" else None)
        elif found.name in _ON_PROPERTIES and (reason := _find_misfit(found.name, declared, path)):
            problems.add(reason, found.at)
        elif found.name == "embed":
            _check_embed_shape(found, path, problems)
        elif found.name == "default":
            _check_default(found, declared, path, problems)
        elif found.name == "metric" and declared.type.scalar is Scalar.VECTOR:
            _check_choice(found, path, METRICS, problems)
        elif found.name == "text" and declared.type.is_text:
            _check_choice(found, path, LANGUAGES, problems)
    for repeated in _find_repeated(declared.annotations, _names_declared_once(declared)):
        problems.add(f"property {path} declares @{repeated.name} multiple times", repeated.at)
    _check_texts(f"property {path}", declared.annotations, ("description",), problems)
    _check_rename(f"property {path}", declared.annotations, problems)
    if kind == "node":
        check_embed_source(owner, Member(declared), members, problems)


def _names_declared_once(declared: ast.Property) -> tuple[str, ...]:
    """The annotations that a property has once; `@metric` on other than vectors is metadata, and `@text` on
    other than texts."""
    return (*_ON_PROPERTIES, "default", *names_of_kind(declared.type))


def names_of_kind(type_: ValueType) -> tuple[str, ...]:
    """The annotations that mean something on properties of this type only."""
    if type_.scalar is Scalar.VECTOR:
        return ("metric",)
    return ("text",) if type_.is_text else ()


def misfit_of_kind(name: str, declared: ast.Property, path: str, kinds: Sequence[str]) -> str | None:
    """Why a constraint cannot be on a property of this kind (list, vector, blob), or None."""
    if declared.type.is_list:
        found = "list"
    elif declared.type.scalar is Scalar.VECTOR:
        found = "vector"
    elif declared.type.scalar is Scalar.BLOB:
        found = "blob"
    else:
        return None
    return f"@{name} is not supported on {found} property {path}" if found in kinds else None


def _find_misfit(name: str, declared: ast.Property, path: str) -> str | None:
    kinds = ("list", "vector", "blob") if name in ("key", "unique") else ("list", "blob")
    reason = misfit_of_kind(name, declared, path, kinds)
    if reason is None and name == "embed" and declared.type.scalar is not Scalar.VECTOR:
        return f"@embed is only supported on vector properties ({path})"
    return reason


def _find_repeated(annotations: Sequence[ast.Annotation], names: Sequence[str]) -> Iterator[ast.Annotation]:
    """The second and later annotations of the same name, each name once."""
    for name in names:
        found = [annotation for annotation in annotations if annotation.name == name]
        if len(found) > 1:
            yield found[1]


def _check_texts(
    target: str, annotations: Sequence[ast.Annotation], names: Sequence[str], problems: Problems
) -> None:
    for found in annotations:
        if found.name in names and (found.value is None or not found.value.text.strip()):
            problems.add(f"@{found.name} on {target} requires a non-empty value", found.at)
    for repeated in _find_repeated(annotations, names):
        problems.add(f"{target} declares @{repeated.name} multiple times", repeated.at)


def _check_rename(target: str, annotations: Sequence[ast.Annotation], problems: Problems) -> None:
    for found in annotations:
        if found.name != "rename_from":
            continue
        if found.value is None or not found.value.text:
            problems.add(
                f"@rename_from on {target} requires exactly one non-empty positional value", found.at
            )
        elif found.options:
            problems.add(f"@rename_from on {target} does not accept keyword arguments", found.at)
    for repeated in _find_repeated(annotations, ("rename_from",)):
        problems.add(f"{target} declares @rename_from multiple times", repeated.at)


def _check_embed_shape(found: ast.Annotation, path: str, problems: Problems) -> None:
    if found.value is None or not found.value.text:
        problems.add(f"@embed on {path} requires a source property name", found.at)
    seen: set[str] = set()
    for option, value in found.options:
        if option not in _EMBED_OPTIONS:
            problems.add(
                f"@embed on {path} has unknown argument '{option}=' (only 'model' is supported)", value.at
            )
        elif option in seen:
            problems.add(f"@embed on {path} has argument '{option}=' multiple times", value.at)
        seen.add(option)


def _check_default(found: ast.Annotation, declared: ast.Property, path: str, problems: Problems) -> None:
    if found.value is None:
        problems.add(f"@default on {path} requires a value", found.at)
        return
    if found.options:
        problems.add(f"@default on {path} does not accept keyword arguments", found.at)
    try:
        read_default(found.value.text, declared.type)
    except InvalidValue as wrong:
        problems.add(f"@default on {path} is no value of {declared.type}: {wrong.message}", found.value.at)


def _check_choice(found: ast.Annotation, path: str, names: Collection[str], problems: Problems) -> None:
    """Check an annotation whose value is one of these names."""
    if found.value is None or found.value.text not in names:
        problems.add(f"@{found.name} on {path} must be one of {', '.join(names)}", found.at)
    elif found.options:
        problems.add(f"@{found.name} on {path} does not accept keyword arguments", found.at)


def check_embed_source(owner: str, member: Member, members: Members, problems: Problems) -> None:
    """Check that the text behind an embedding is a String property of the same node type."""
    declared = member.declared
    found = next((each for each in declared.annotations if each.name == "embed"), None)
    if found is None or found.value is None or not found.value.text:
        return
    if _find_misfit("embed", declared, ""):
        return
    name = found.value.text
    source = members.get(name)
    if source is None:
        path = f"{owner}.{declared.name.text}"
        problems.add(f"@embed on {path} references unknown source property {name}", found.value.at)
    elif not source.declared.type.is_text or source.declared.type.enum_values:
        problems.add(f"@embed source property {owner}.{name} must be String", found.value.at)
