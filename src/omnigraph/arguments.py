"""Arguments of public methods, checked against their annotations before anything else happens.

A value of another type, or a text that UTF-8 cannot hold, ends in a typed error that names the argument; it
never comes to Arrow or to the store. A path may be any bytes that the file system takes.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from sys import modules
from types import FunctionType, NoneType, SimpleNamespace, UnionType
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from omnigraph.diagnostics import printable
from omnigraph.errors import InvalidValue

Kind = TypeVar("Kind", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])
Check = Callable[[object], bool]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_FILE_NAME = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_TEXTS_OR_PATHS = frozenset({"query", "schema", "what"})
"""Arguments that are a text unless they are a `Path`; the languages say what is wrong with a text."""
_CHECKED_FURTHER_IN = frozenset({"actor", "branch", "from_", "params", "to", "what", "where"})
"""Arguments whose wrong values have errors and words of their own."""
_SHOWN = 60
_WORDS: dict[Any, str] = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    os.PathLike: "a path",
    Mapping: "a mapping",
    Iterable: "several texts",
    Sequence: "several texts",
    Callable: "a function",
}


def check_arguments(kind: Kind) -> Kind:
    """Check the arguments of every public method of a class, but those that are checked further in."""
    return _check_methods(kind, _CHECKED_FURTHER_IN)


def check_all_arguments(kind: Kind) -> Kind:
    """Check the arguments of every public method of a class."""
    return _check_methods(kind, frozenset())


def _check_methods(kind: Kind, unchecked: frozenset[str]) -> Kind:
    for name, found in list(vars(kind).items()):
        if isinstance(found, FunctionType) and not name.startswith("_"):
            setattr(kind, name, check_function_arguments(found, unchecked))
    return kind


def check_function_arguments(function: Function, unchecked: frozenset[str] = frozenset()) -> Function:
    """Check the arguments of a function."""
    arguments = _Arguments(function, unchecked)

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        for name, value in zip(arguments.positional, given, strict=False):
            arguments.require(name, value)
        for name, value in named.items():
            arguments.require(name, value)
        return function(*given, **named)

    return cast(Function, call)


_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_COLLECTING = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class _Arguments:
    """What may be given for the parameters of a function.

    An annotation is evaluated with the first value that differs from the default: by then all that it names
    can be imported, and a type that only some callers need is not imported for the others.
    """

    def __init__(self, function: Any, unchecked: frozenset[str] = frozenset()) -> None:
        parameters = signature(function).parameters.values()
        self.positional = [one.name for one in parameters if one.kind in _BY_PLACE]
        self._named = {one.name: one for one in parameters if one.kind not in _COLLECTING}
        self._keywords = next((one for one in parameters if one.kind is Parameter.VAR_KEYWORD), None)
        self._globals: dict[str, Any] = function.__globals__
        self._evaluated: dict[str, _Argument | None] = dict.fromkeys(unchecked)

    def require(self, name: str, value: object) -> None:
        """Refuse a value that the annotation of the parameter does not allow."""
        if name not in self._evaluated:
            if name in self._named and value is self._named[name].default:
                return
            self._evaluated[name] = self.evaluate(name)
        if (argument := self._evaluated[name]) is not None:
            argument.require(value)

    def evaluate(self, name: str) -> _Argument | None:
        """Return what may be given for a parameter, or for a keyword behind `**how`; None if anything may."""
        if name in self._named:
            hint = self._hint(self._named[name])
        elif self._keywords is not None:
            hint = _options(self._hint(self._keywords)).get(name, Any)
        else:
            return None
        return None if hint is Any else _Argument(name, hint)

    def _hint(self, parameter: Parameter) -> Any:
        if parameter.annotation is Parameter.empty:
            return Any
        one = SimpleNamespace(__annotations__={"hint": parameter.annotation})
        return get_type_hints(one, self._globals, _Names(self._globals))["hint"]


class _Argument:
    """What may be given for one parameter."""

    def __init__(self, name: str, annotation: Any) -> None:
        parts = _parts(annotation)
        self._name = name.rstrip("_")
        self._checks = [_check_of(part) for part in parts]
        self._is_text = os.PathLike not in map(_plain, parts)
        self._words = " or ".join(dict.fromkeys(map(_word, parts)))

    def require(self, value: object) -> None:
        if not any(check(value) for check in self._checks):
            raise InvalidValue(
                f"`{self._name}` must be {self._words}, got {_quote_value(value)}",
                remedy="give another value",
            )
        if self._is_text:
            self._refuse_surrogates(value)
        elif self._name not in _TEXTS_OR_PATHS and isinstance(value, str | os.PathLike):
            require_path(value)

    def _refuse_surrogates(self, value: object) -> None:
        if isinstance(value, str):
            if not value.isascii() and _LONE_SURROGATE.search(value):
                raise InvalidValue(
                    f"`{self._name}` is not a text that UTF-8 can hold: {_quote_value(value)}",
                    remedy="leave out half of a surrogate pair, or bytes that are not UTF-8",
                )
        elif isinstance(value, list | tuple | set | frozenset):
            for item in value:
                self._refuse_surrogates(item)


def require_path(path: str | os.PathLike[str]) -> None:
    """Refuse what cannot be the name of a file; bytes that are not UTF-8 can, as Python writes them."""
    text = os.fspath(path)
    if "\0" in text or _NO_FILE_NAME.search(text):
        raise InvalidValue(f"{_quote_value(text)} cannot be the name of a file", remedy="give another path")


def _options(annotation: Any) -> dict[str, Any]:
    """Return the keywords of a `TypedDict`, if there is one behind `**how`, with their annotations."""
    if get_origin(annotation) is not Unpack or not is_typeddict(kind := get_args(annotation)[0]):
        return {}
    return get_type_hints(kind, localns=_Names(vars(modules[kind.__module__])))


class _Names(dict[str, Any]):
    """The names of a module, and the public ones, which a module often imports for type checkers only.

    Other names that are imported for type checkers only stand for any value.
    """

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        # Not imported: the public face stands above everything, and is there before any module of it.
        return getattr(modules["omnigraph"], name, Any)


def _parts(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, UnionType):
        return [part for one in get_args(annotation) for part in _parts(one)]
    return [annotation]


def _plain(part: Any) -> Any:
    return get_origin(part) or part


def _check_of(part: Any) -> Check:
    plain = _plain(part)
    if plain is Literal:
        kinds = tuple({type(one) for one in get_args(part)})
        return lambda value: isinstance(value, kinds)
    if plain is None or plain is NoneType:
        return lambda value: value is None
    if plain is int:
        return lambda value: hasattr(value, "__index__") and not isinstance(value, bool)
    if plain is float:
        return lambda value: isinstance(value, Real) and not isinstance(value, bool)
    if plain is bool:
        return lambda value: isinstance(value, bool) or type(value).__name__ == "bool"
    if plain in (Iterable, Sequence) and get_args(part) == (str,):
        return _is_texts
    if plain is Callable or plain is type(_is_texts):
        return callable
    if not isinstance(plain, type) or (getattr(plain, "_is_protocol", False) and plain is not os.PathLike):
        return lambda value: value is not None
    return lambda value: isinstance(value, plain)


def _is_texts(value: object) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, Iterable) and not isinstance(value, bytes | bytearray)


def _word(part: Any) -> str:
    plain = _plain(part)
    if plain is Literal:
        return " or ".join(repr(one) for one in get_args(part))
    if plain is None or plain is NoneType:
        return "None"
    return _WORDS.get(plain) or f"a {getattr(plain, '__name__', plain)}"


def _quote_value(value: object) -> str:
    text = repr(value)
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"{printable(short)} ({type(value).__name__})"


def require_whole(name: str, given: object, least: int) -> int:
    """Return a whole number of at least `least`; unlike Python, a Boolean is none."""
    if type(given) is bool or not isinstance(given, Integral):
        raise InvalidValue(f"{name} must be a whole number, got {given!r}")
    if given < least:
        raise InvalidValue(f"{name} must be at least {least}, got {given}")
    return int(given)


def require_number(name: str, given: object) -> None:
    """Raise `InvalidValue` unless the argument is a number."""
    if type(given) is bool or not isinstance(given, Real):
        raise InvalidValue(f"{name} must be a number, got {given!r}")
