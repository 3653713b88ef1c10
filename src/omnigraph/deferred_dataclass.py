"""`dataclass` of the standard library, with the methods compiled when a class is first used.

The standard decorator writes the source of up to nine methods for every class and compiles it, half a
millisecond each time. Hundreds of classes are defined on the way to a command, and a command uses few of
them. For a frozen class with slots this decorator creates the class at once, and has the standard decorator
make the methods with the first instance, or the first look at the fields. Every other class goes straight to
the standard decorator.
"""

from __future__ import annotations

import dataclasses
from threading import RLock
from typing import TYPE_CHECKING, Any

_ALWAYS = (
    "__init__",
    "__setattr__",
    "__delattr__",
    "__getstate__",
    "__setstate__",
    "__match_args__",
    "__dataclass_fields__",
    "__dataclass_params__",
)
_BY_OPTION = {"repr": ("__repr__",), "eq": ("__eq__", "__hash__")}
_UNDERSTOOD = {"frozen", "slots", "kw_only", *_BY_OPTION}
_NO_FIELD = ("ClassVar", "typing.ClassVar")
_OF_THE_OLD_CLASS = ("__dict__", "__weakref__")
_LOCK = RLock()

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """Make a class a dataclass; the options are those of the standard decorator."""
        if cls is None:
            return lambda defined: dataclass(defined, **options)
        if not _can_wait(cls, options):
            return dataclasses.dataclass(**options)(cls)
        return _Definition(cls, options).create()


def _can_wait(cls: type, options: dict[str, bool]) -> bool:
    annotations = vars(cls).get("__annotations__", {}).values()
    return (
        bool(options.get("frozen") and options.get("slots"))
        and options.keys() <= _UNDERSTOOD
        and all(
            isinstance(kind, str) and "InitVar" not in kind and "KW_ONLY" not in kind for kind in annotations
        )
        and all(
            "__slots__" in vars(base) for base in cls.__mro__[1:-1] if "__dataclass_fields__" in vars(base)
        )
    )


class _Definition:
    """A class as its author wrote it, and the class with slots that is made of it."""

    def __init__(self, cls: type, options: dict[str, bool]) -> None:
        self.made: Any = None
        self._kind = type(cls)
        self._name = cls.__name__
        self._bases = cls.__bases__
        self._body = {name: value for name, value in vars(cls).items() if name not in _OF_THE_OLD_CLASS}
        self._body["__qualname__"] = cls.__qualname__
        self._options = options
        self._inherited = {slot for base in cls.__mro__[1:-1] for slot in vars(base).get("__slots__", ())}

    def create(self) -> type:
        """Create the class, with a stand-in for each method that the standard decorator would add."""
        annotations = self._body.get("__annotations__", {})
        fields = [name for name, kind in annotations.items() if not kind.startswith(_NO_FIELD)]
        body = {name: value for name, value in self._body.items() if name not in fields}
        body["__slots__"] = tuple(name for name in fields if name not in self._inherited)
        body |= {name: _Method(self, name) for name in self._generated()}
        made: type = self._kind(self._name, self._bases, body)
        self.made = made
        return made

    def _generated(self) -> list[str]:
        """What the standard decorator adds: all but what the author wrote."""
        optional = (
            name for option, names in _BY_OPTION.items() if self._options.get(option, True) for name in names
        )
        # Python itself sets `__hash__` to None in a class that only has an `__eq__`.
        return [name for name in (*_ALWAYS, *optional) if self._body.get(name) is None]

    def complete(self) -> None:
        """Replace the stand-ins by what the standard decorator makes."""
        with _LOCK:
            # From the body each time: what an interrupt leaves half done is not used again.
            standard: Any = self._kind(self._name, self._bases, dict(self._body))
            standard = dataclasses.dataclass(**self._options)(standard)
            if standard.__slots__ != self.made.__slots__:
                raise TypeError(f"{self._name}: cannot tell its fields from its annotations")
            for name, held in list(vars(self.made).items()):
                if isinstance(held, _Method):
                    setattr(self.made, name, vars(standard)[name])


class _Method:
    """Stands for a method or member of a class until something looks at it."""

    __slots__ = ("_definition", "_name")

    def __init__(self, definition: _Definition, name: str) -> None:
        self._definition = definition
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self._definition.complete()
        member = vars(self._definition.made)[self._name]
        bind = getattr(type(member), "__get__", None)
        return member if bind is None else bind(member, instance, owner)
