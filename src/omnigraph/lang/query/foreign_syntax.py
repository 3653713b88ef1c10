"""Words of SQL and Cypher where a query has others, and how the same is written here."""

from __future__ import annotations

_READ = "a query is written as `query name() { match { ... } return { ... } }`"
_WRITE = 'a mutation is written as `query name() { insert Person { name: "Ada" } }`'
_UPDATE = 'a mutation is written as `query name() { update Person set { age: 37 } where name = "Ada" }`'
_DELETE = 'a mutation is written as `query name() { delete Person where name = "Ada" }`'
_UPSERT = "write `upsert`: it replaces the node with this key, or inserts it"
_FILTER = "filters stand inside `match`, after the variable: `match { $p: Person  $p.age > 30 }`"

FIRST_WORDS = {
    "select": _READ,
    "match": _READ,
    "insert": _WRITE,
    "create": _WRITE,
    "merge": _WRITE,
    "update": _UPDATE,
    "set": _UPDATE,
    "delete": _DELETE,
    "detach": _DELETE,
}
"""By the word that a text begins with."""

STATEMENT_WORDS = {
    "merge": _UPSERT,
    "replace": _UPSERT,
    "select": "a read begins with `match { $p: Person }` and ends with `return { $p.name }`",
    "return": "a read begins with `match { $p: Person }`",
}
"""By the word that a body begins with."""

AFTER_MATCH = {
    "where": _FILTER,
    "filter": _FILTER,
    "}": "end the query with what it gives, like `return { $p.name }`",
}
"""By what stands where `return` belongs."""

AFTER_RETURN = {
    "group": "columns that are not aggregates are the groups: take `group` away",
    "where": _FILTER,
    "skip": "write `offset` after `limit`",
    "having": "`having` comes before `order`",
}
"""By what stands behind `return` and is no clause."""

FUNCTIONS = {
    "size": "count",
    "mean": "avg",
    "average": "avg",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "lcase": "lower",
    "tolower": "lower",
    "ucase": "upper",
    "toupper": "upper",
    "array_agg": "collect",
    "list": "collect",
    "group_concat": "collect",
}
"""Functions of other languages, and what they are called here."""
