"""Names of variables that blocks keep to themselves.

A block sees the variables bound before it in source order. What a `not` block binds first is local to it,
even where another block, or the clauses behind it, bind the same name. Each variable of a plan has a name of
its own, so that no reader of a plan has to know where a name was bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from omnigraph.lang.query.resolved import Bind, Maybe, NotBlock, Step, Traverse, Where
from omnigraph.lang.query.terms import EntityId, Predicate, Prop, variables

Names = dict[str, str]
"""For each name of the source that is visible at a point, the name of the variable it stands for."""
Tree = TypeVar("Tree")


def make_names_unique(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the same clauses with a different name for every variable.

    Variables that results can depend on keep their names. A local variable of a block gets another one
    (`b#1`) only where its name is in use elsewhere.
    """
    top = frozenset(find_bound_names(steps))
    return _Namer(set(top)).rename_steps(steps, {name: name for name in top})


def find_shadowed_names(steps: tuple[Step, ...], around: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names that a `not` block binds for itself although clauses behind the block bind them too."""
    every = around.union(find_bound_names(steps))
    for step in steps:
        if isinstance(step, NotBlock):
            local = [name for name in find_bound_names(step.clauses) if name not in step.outer]
            yield from (name for name in local if name in every)
            yield from find_shadowed_names(step.clauses, every)
        elif isinstance(step, Maybe):
            yield from find_shadowed_names(step.clauses, every)


def find_bound_names(steps: tuple[Step, ...]) -> Iterator[str]:
    """The variables that clauses bind for what comes after them."""
    for step in steps:
        match step:
            case Bind(var=var):
                yield var
            case Traverse(left=left, right=right, edge_var=edge_var):
                yield from (left, right)
                if edge_var is not None:
                    yield edge_var
            case Maybe(adds=adds):
                yield from adds


class _Namer:
    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def rename_steps(self, steps: tuple[Step, ...], names: Names) -> tuple[Step, ...]:
        """Clauses in source order; `names` learns what they bind."""
        return tuple(self._rename_step(step, names) for step in steps)

    def _rename_step(self, step: Step, names: Names) -> Step:
        match step:
            case NotBlock(clauses=clauses, outer=outer):
                inner = {name: names[name] for name in outer}
                for name in find_bound_names(clauses):
                    self._bind_name(name, inner)
                return NotBlock(self.rename_steps(clauses, inner), tuple(names[name] for name in outer))
            case Maybe(clauses=clauses, adds=adds):
                return Maybe(self.rename_steps(clauses, names), tuple(names[name] for name in adds))
            case Bind(var=var, type_name=type_name, tests=tests):
                return Bind(names[var], type_name, tuple(_rename_test(test, names) for test in tests))
            case Traverse(left=left, right=right, edge_var=edge_var, path=path):
                edge = None if edge_var is None else names[edge_var]
                path = None if path is None else _rename_part(path, names)
                return replace(step, left=names[left], right=names[right], edge_var=edge, path=path)
            case Where(test=test):
                return Where(_rename_test(test, names))

    def _bind_name(self, name: str, names: Names) -> None:
        """Give a variable of a block its name, unless it is one from around the block."""
        if name in names:
            return
        free, number = name, 0
        while free in self._taken:
            number += 1
            free = f"{name}#{number}"  # which no text can spell
        names[name] = free
        self._taken.add(free)


def _rename_test(test: Predicate, names: Mapping[str, str]) -> Predicate:
    if all(names[var] == var for var in variables(test)):
        return test
    return _rename_part(test, names)


def _rename_part(part: Tree, names: Mapping[str, str]) -> Tree:
    """A term or predicate about the variables that these names stand for."""
    changed: dict[str, Any] = {}
    if isinstance(part, Prop | EntityId):
        changed["var"] = names[part.var]
    elif is_dataclass(part):
        held = {field.name: getattr(part, field.name) for field in fields(part)}
        changed = {
            name: _rename_part(inner, names)
            for name, inner in held.items()
            if is_dataclass(inner) or isinstance(inner, tuple)
        }
    elif isinstance(part, tuple):
        return tuple(_rename_part(inner, names) for inner in part)  # type: ignore[return-value]
    return replace(part, **changed) if changed else part  # type: ignore[type-var]  # it is a dataclass
