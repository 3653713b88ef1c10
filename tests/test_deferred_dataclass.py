"""A dataclass whose methods are compiled on first use behaves as one of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pkgutil
import threading
from abc import ABC, abstractmethod
from dataclasses import FrozenInstanceError, field
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pytest

import omnigraph
from omnigraph.deferred_dataclass import dataclass

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Point:
    """A place."""

    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list, compare=False, repr=False)
    origin: ClassVar[str] = "here"

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


@dataclass(frozen=True, slots=True)
class Named(Point):
    """A place with a name."""

    name: str = "a"
    length: int = field(init=False, default=7)


class Sized(Protocol):
    """Something with a size."""

    def size(self) -> int: ...


class Shape(ABC):
    """Something with an area."""

    @abstractmethod
    def area(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Box(Shape, Generic[Item]):
    """A generic value with an abstract base."""

    item: Item

    def area(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Unfinished(Shape):
    """A value that lacks a method of its base."""


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """Equal to itself only."""

    x: int


@dataclass(frozen=True, slots=True)
class Loose:
    """A value that compares by a rule of its own."""

    x: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loose)

    def __hash__(self) -> int:
        return 5


@dataclass(frozen=True)
class Cached:
    """A class without slots goes to the standard decorator."""

    x: int

    @cached_property
    def double(self) -> int:
        return 2 * self.x


def is_complete(kind: type) -> bool:
    return inspect.isfunction(vars(kind)["__init__"])


def test_methods_are_made_with_the_first_instance() -> None:
    @dataclass(frozen=True, slots=True)
    class Value:
        x: int

    assert not is_complete(Value)
    assert Value(1) == Value(x=1)
    assert is_complete(Value)


def test_instances_compare_print_and_hash_by_their_fields() -> None:
    assert Point(1, tags=["a"]) == Point(1, 2) != Point(2)
    assert hash(Point(1, tags=["a"])) == hash(Point(1, 2))
    assert repr(Point(1)) == "Point(x=1, y=2)"
    assert repr(Named(1, name="b")) == "Named(x=1, y=2, name='b', length=7)"
    assert Named(1) != Point(1)
    assert Same(1) != Same(1)
    assert Loose(1) == Loose(2)
    assert hash(Loose(1)) == 5


def test_instances_are_frozen_and_have_no_dict() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")
    assert vars(Named)["__slots__"] == ("name", "length")


def test_wrong_values_are_refused_as_the_class_says() -> None:
    with pytest.raises(ValueError, match="negative"):
        Point(-1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="abstract"):
        Unfinished()  # type: ignore[abstract]


def test_a_subclass_without_the_decorator_calls_the_methods_of_its_base() -> None:
    @dataclass(frozen=True, slots=True)
    class Base:
        x: int

    class Derived(Base):
        def __init__(self, x: int) -> None:
            super().__init__(x + 1)

    assert Derived(1).x == 2


def test_a_standard_dataclass_inherits_the_fields() -> None:
    @dataclass(frozen=True, slots=True)
    class Base:
        x: int

    @dataclasses.dataclass(frozen=True)
    class Derived(Base):
        y: int

    assert Derived(1, 2) == Derived(x=1, y=2)


@pytest.mark.parametrize("made", [Point(1, 3, ["t"]), Named(1, name="n"), Box("item")])
def test_instances_are_copied_and_pickled(made: object) -> None:
    assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made) == copy.copy(made)


def test_the_functions_of_the_standard_library_know_the_class() -> None:
    assert dataclasses.is_dataclass(Named)
    assert [one.name for one in dataclasses.fields(Named)] == ["x", "y", "tags", "name", "length"]
    assert dataclasses.replace(Point(1), y=5) == Point(1, 5)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2, "tags": []}
    assert list(inspect.signature(Point).parameters) == ["x", "y", "tags"]


def test_patterns_match_by_place() -> None:
    @dataclass(frozen=True, slots=True)
    class Pair:
        left: int
        right: int

    match Pair(1, 2):
        case Pair(left, right):
            assert (left, right) == (1, 2)
        case _:
            pytest.fail("no match")


def test_an_unused_class_can_be_unpickled() -> None:
    kept = pickle.dumps(Point(4))
    fresh: Any = dataclass(frozen=True, slots=True)(type("Point", (), {"__annotations__": {"x": "int"}}))
    assert not is_complete(fresh)
    made = fresh.__new__(fresh)
    made.__setstate__([4])
    assert made.x == 4
    assert pickle.loads(kept).x == 4


def test_threads_that_use_a_class_at_once_all_get_instances() -> None:
    @dataclass(frozen=True, slots=True)
    class Value:
        x: list[int] = field(default_factory=list)

    start = threading.Barrier(8)
    made: list[Value] = []

    def make() -> None:
        start.wait()
        made.append(Value())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert made == [Value()] * 8


def test_a_class_with_an_attribute_cache_goes_to_the_standard_decorator() -> None:
    assert is_complete(Cached)
    assert Cached(2).double == 4


def test_every_dataclass_of_the_package_can_be_completed() -> None:
    names = [
        one.name
        for one in pkgutil.walk_packages(omnigraph.__path__, "omnigraph.")
        # Each integration needs a package that is not among those of the tests.
        if "__main__" not in one.name and not one.name.startswith("omnigraph.integrations.")
    ]
    kinds = {
        kind
        for name in names
        for kind in vars(import_module(name)).values()
        if isinstance(kind, type) and kind.__module__ == name and "__dataclass_fields__" in vars(kind)
    }
    assert kinds
    for kind in kinds:
        dataclasses.fields(kind)
        assert is_complete(kind) or "__init__" not in vars(kind), kind
