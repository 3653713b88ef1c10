"""The rules about constraints, and what the constraints of a type come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.schema import schema_ast as ast
from omnigraph.lang.schema.annotations import misfit_of_kind
from omnigraph.lang.schema.catalog import CheckRule, PropertyIndex, RangeRule, TypeKind, UniqueRule
from omnigraph.lang.schema.interfaces import Member, Members
from omnigraph.lang.source import Problems, Span
from omnigraph.lang.types import NUMBERS, Scalar

_END_POINTS = ("src", "dst")
_UNFIT = {"key": ("list", "vector", "blob"), "unique": ("list", "vector", "blob"), "index": ("blob",)}


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints of a type, from properties and body together."""

    key: tuple[str, ...]
    uniques: tuple[UniqueRule, ...]
    indexes: tuple[PropertyIndex, ...]
    ranges: tuple[RangeRule, ...]
    checks: tuple[CheckRule, ...]


def resolve_constraints(
    kind: TypeKind, owner: str, members: Members, body: Sequence[ast.Constraint], problems: Problems
) -> Constraints:
    """Check the constraints of a node or edge type and bring them into one form."""
    scope = _Scope(kind, owner, members, problems)
    named = [*_from_marks(members), *(found for found in body if isinstance(found, ast.ColumnConstraint))]
    for found in body:
        scope.check_constraint(found)
    keys = [found for found in named if found.name == "key"]
    if kind != "interface":
        scope.check_key(keys)
    key = next(map(_name_columns, keys), ())
    return Constraints(
        key=_order_edge_key(key) if kind == "edge" else key,
        uniques=tuple(UniqueRule(columns) for columns in _collect_columns(named, "unique", ordered=False)),
        indexes=tuple(PropertyIndex(columns) for columns in _collect_columns(named, "index", ordered=True)),
        ranges=_collect_ranges(body),
        checks=_collect_checks(body),
    )


def _from_marks(members: Members) -> list[ast.ColumnConstraint]:
    """Property-level constraints in the form of a body constraint."""
    return [
        ast.ColumnConstraint(mark, (member.declared.name,), _find_place(member, mark))
        for member in members.values()
        for mark in member.marks
    ]


def _find_place(member: Member, mark: str) -> Span:
    return next(found.at for found in member.declared.annotations if found.name == mark)


def _name_columns(found: ast.ColumnConstraint) -> tuple[str, ...]:
    return tuple(dict.fromkeys(column.text for column in found.columns))


def _order_edge_key(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The ends first: so the id of an edge does not depend on how its key is written."""
    return tuple(sorted(columns, key=lambda name: _END_POINTS.index(name) if name in _END_POINTS else 2))


def _collect_columns(
    named: Iterable[ast.ColumnConstraint], name: str, *, ordered: bool
) -> list[tuple[str, ...]]:
    found = {_name_columns(each) for each in named if each.name == name}
    return sorted(found if ordered else {tuple(sorted(columns)) for columns in found})


def _collect_ranges(body: Iterable[ast.Constraint]) -> tuple[RangeRule, ...]:
    found = {
        RangeRule(each.column.text, _normalize_bound(each.minimum), _normalize_bound(each.maximum))
        for each in body
        if isinstance(each, ast.RangeConstraint)
    }
    return tuple(sorted(found, key=lambda each: (each.column, str(each.minimum), str(each.maximum))))


def _normalize_bound(value: int | float | None) -> int | float | None:
    """`5.0` and `5` are the same bound."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _collect_checks(body: Iterable[ast.Constraint]) -> tuple[CheckRule, ...]:
    found = {
        CheckRule(each.column.text, each.pattern) for each in body if isinstance(each, ast.CheckConstraint)
    }
    return tuple(sorted(found, key=lambda each: (each.column, each.pattern)))


@dataclass(frozen=True, slots=True)
class _Scope:
    kind: TypeKind
    owner: str
    members: Members
    problems: Problems

    def check_constraint(self, found: ast.Constraint) -> None:
        """Check one body constraint."""
        if self.kind == "edge" and found.name in ("range", "check"):
            reason = f"@{found.name} constraint is not supported on edges (edge {self.owner})"
            self.problems.add(reason, found.at)
        elif isinstance(found, ast.ColumnConstraint):
            self.check_columns(found)
        elif isinstance(found, ast.RangeConstraint):
            self.check_range(found)
        else:
            self.check_pattern(found)

    def find_member(self, constraint: str, column: ast.Name) -> Member | None:
        """The property a column names, or None after reporting an unknown one."""
        member = self.members.get(column.text)
        if member is None and not (self.kind == "edge" and column.text in _END_POINTS):
            reason = f"@{constraint} on {self.owner} references unknown property '{column.text}'"
            self.problems.add(reason, column.at)
        return member

    def check_columns(self, found: ast.ColumnConstraint) -> None:
        for column in {each.text: each for each in reversed(found.columns)}.values():
            member = self.find_member(found.name, column)
            if member is None:
                continue
            path = f"{self.owner}.{column.text}"
            reason = misfit_of_kind(found.name, member.declared, path, _UNFIT[found.name])
            if reason:
                self.problems.add(reason, column.at)

    def check_range(self, found: ast.RangeConstraint) -> None:
        member = self.find_member("range", found.column)
        path = f"{self.owner}.{found.column.text}"
        if member and member.declared.type.scalar not in NUMBERS:
            reason = f"@range on {path} requires a numeric type, got {member.declared.type}"
            self.problems.add(reason, found.column.at)
        low, high = found.minimum, found.maximum
        if low is not None and high is not None and low > high:
            self.problems.add(f"@range on {path} has min ({low}) greater than max ({high})", found.at)

    def check_pattern(self, found: ast.CheckConstraint) -> None:
        member = self.find_member("check", found.column)
        if member and member.declared.type.scalar is not Scalar.STRING:
            path = f"{self.owner}.{found.column.text}"
            reason = f"@check on {path} requires String type, got {member.declared.type}"
            self.problems.add(reason, found.column.at)

    def check_key(self, keys: Sequence[ast.ColumnConstraint]) -> None:
        if len(keys) > 1:
            reason = f"{self.kind} type {self.owner} has multiple @key constraints; only one is supported"
            self.problems.add(reason, keys[1].at, help="name all columns in one: @key(a, b)")
            return
        if self.kind == "edge" and keys:
            self.check_edge_key(keys[0])
        for column in keys[0].columns if keys else ():
            member = self.members.get(column.text)
            if member and member.declared.type.nullable:
                reason = f"@key property {self.owner}.{column.text} cannot be nullable"
                self.problems.add(reason, column.at, help=f"take the `?` away: every {self.kind} has its key")

    def check_edge_key(self, key: ast.ColumnConstraint) -> None:
        """The key of an edge names both ends, and what tells edges between the same nodes apart."""
        columns = _name_columns(key)
        others = [name for name in columns if name not in _END_POINTS]
        if len(columns) - len(others) < len(_END_POINTS) or len(others) > 1:
            reason = f"@key on edge {self.owner} must name src, dst and at most one property"
            self.problems.add(reason, key.at, help="write @key(src, dst) or @key(src, dst, property)")
