"""Types that hold every value of another one, so that a property can change to them without loss."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.lang.types import Scalar, ValueType

WIDER: dict[Scalar, tuple[Scalar, ...]] = {
    Scalar.I32: (Scalar.I64, Scalar.F64),
    Scalar.U32: (Scalar.U64, Scalar.I64, Scalar.F64),
    Scalar.F32: (Scalar.F64,),
}
"""The number types that have every number of another one."""


def is_wider_number(old: ValueType, new: ValueType) -> bool:
    """Whether a type, nullable or not, is another one, or a list of it, with wider numbers."""
    alike = replace(old, scalar=new.scalar, nullable=new.nullable) == new
    return alike and new.scalar in WIDER.get(old.scalar, ())


def added_values(old: ValueType, new: ValueType) -> tuple[str, ...]:
    """The values that an enum has beyond those of another one, all of which it must have."""
    before, after = set(old.enum_values), set(new.enum_values)
    return tuple(sorted(after - before)) if before and before < after else ()


def keeps_ids(old: ValueType) -> bool:
    """Whether a key property of this type makes the same ids once its numbers are wider.

    The shortest digits of a 32-bit float are not those of the same number with 64 bits.
    """
    return old.scalar is not Scalar.F32
