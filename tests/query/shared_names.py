"""The same query with fewer names: variables that never meet may be called the same.

Generated queries give every variable a name of its own. A variable that a `not` block binds first is local to
that block: it may have any name that nothing visible has where it is bound, and nothing has that is bound
where it is visible. The text is read token by token: nothing here knows how the checker resolves names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\$[a-z_][A-Za-z0-9_]*|[A-Za-z_]+|[{}]|.', re.DOTALL)
_VARIABLE = re.compile(r"\$[ne]\d+")

Pick = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Variable:
    """A variable, by the name that it alone has, and the `not` blocks around its first mention."""

    name: str
    at: int
    blocks: tuple[int, ...]

    @property
    def is_local(self) -> bool:
        return bool(self.blocks)

    def sees(self, other: Variable) -> bool:
        """Whether another variable is visible where this one is bound."""
        return other.at < self.at and self.blocks[: len(other.blocks)] == other.blocks

    def meets(self, other: Variable) -> bool:
        """Whether the two need different names."""
        return self.sees(other) or other.sees(self)


def with_shared_names(text: str, pick: Pick) -> str:
    """The query with local variables called as others are, where that is allowed; `pick` chooses."""
    found = _variables(text)
    called = {variable.name: variable.name for variable in found if not variable.is_local}
    for variable in found:
        if variable.is_local:
            others = [other for other in found if other.name in called and not variable.meets(other)]
            taken = {called[other.name] for other in found if other.name in called and variable.meets(other)}
            free = sorted({called[other.name] for other in others} - taken)
            called[variable.name] = pick([*free, *free, variable.name])
    parts = _TOKEN.findall(text)
    return "".join(called.get(part, part) for part in parts)


def _variables(text: str) -> list[Variable]:
    """The variables in the order in which they are bound; each is bound where it is first mentioned."""
    parts = _TOKEN.findall(text)
    found: dict[str, Variable] = {}
    open_braces: list[int | None] = []
    word, blocks = "", 0
    for at, part in enumerate(parts):
        if part == "{":
            blocks += 1
            open_braces.append(blocks if word == "not" else None)
        elif part == "}":
            open_braces.pop()
        elif _VARIABLE.fullmatch(part) and part not in found:
            around = tuple(block for block in open_braces if block is not None)
            found[part] = Variable(part, at, around)
        if not part.isspace():
            word = part
    return list(found.values())
