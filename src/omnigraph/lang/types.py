"""The types of properties, parameters and query values."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from omnigraph.deferred_dataclass import dataclass

MAX_VECTOR_DIMENSION = 2_147_483_647


class Scalar(StrEnum):
    """The kinds of single values; the text is the spelling in both languages."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATETIME = "DateTime"
    DATE = "Date"
    VECTOR = "Vector"


SCALARS: dict[str, Scalar] = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMBERS = INTEGERS | FLOATS


@dataclass(frozen=True, slots=True)
class ValueType:
    """A scalar, enum, vector, or a list of scalars, nullable or not."""

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] = ()
    """Sorted and unique; empty when the type is not an enum (an enum's scalar is String)."""
    dimension: int = 0
    """The length of a vector; 0 for every other type."""

    def __str__(self) -> str:
        if self.enum_values:
            name = f"enum({', '.join(self.enum_values)})"
        elif self.scalar is Scalar.VECTOR:
            name = f"Vector({self.dimension})"
        else:
            name = self.scalar.value
        return f"{f'[{name}]' if self.is_list else name}{'?' if self.nullable else ''}"

    @property
    def is_numeric(self) -> bool:
        """A single number."""
        return self.scalar in NUMBERS and not self.is_list

    @property
    def is_text(self) -> bool:
        """A single string or enum value."""
        return self.scalar is Scalar.STRING and not self.is_list

    @property
    def item(self) -> ValueType:
        """The type of a list's items."""
        return ValueType(self.scalar)

    def with_nullable(self, nullable: bool = True) -> ValueType:
        """The same type, nullable or not."""
        return self if self.nullable is nullable else replace(self, nullable=nullable)


STRING = ValueType(Scalar.STRING)
BOOL = ValueType(Scalar.BOOL)
I64 = ValueType(Scalar.I64)
F64 = ValueType(Scalar.F64)
DATE = ValueType(Scalar.DATE)
DATETIME = ValueType(Scalar.DATETIME)


def vector_type(dimension: int, nullable: bool = False) -> ValueType:
    """A vector of `dimension` 32-bit floats."""
    return ValueType(Scalar.VECTOR, nullable=nullable, dimension=dimension)


def are_compatible(left: ValueType, right: ValueType) -> bool:
    """Whether two values may meet: both lists or both not, and equal or both numeric scalars."""
    if left.is_list != right.is_list:
        return False
    return left.scalar is right.scalar or (left.scalar in NUMBERS and right.scalar in NUMBERS)
