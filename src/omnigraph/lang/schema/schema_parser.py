"""Schema text -> syntax tree, with every mistake of the text reported in one run."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.schema.schema_ast import (
    Annotation,
    Argument,
    Card,
    CheckConstraint,
    ColumnConstraint,
    Constraint,
    Declaration,
    Edge,
    Interface,
    Name,
    Node,
    Property,
    RangeConstraint,
    SchemaFile,
)
from omnigraph.lang.schema.type_syntax import parse_type
from omnigraph.lang.source import Problems, Source, Span, TooManyProblems, shorten
from omnigraph.lang.tokens import (
    END,
    FLOAT,
    INT,
    LOWER,
    STR,
    UPPER,
    Cursor,
    SyntaxFault,
    parse_integer,
    unescape,
)

CONSTRAINTS = ("key", "unique", "index", "range", "check")
"""The words that open a body constraint when a parenthesis follows."""

STORAGE_COLUMNS = (
    "_rowid",
    "_rowaddr",
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
)
SYSTEM_COLUMNS = {"interface": ("id",), "node": ("id",), "edge": ("id", "src", "dst")}

MAX_INTEGER = 2**63 - 1

_DECLARATIONS = ("interface", "node", "edge")
_RESUMES = (LOWER, "@", "}")
_RANGE_SHAPE = "@range requires property name and bounds: @range(prop, min..max)"
_CHECK_SHAPE = '@check requires property name and pattern: @check(prop, "regex")'

# The owner of a body whose declaration could not be read.
_UNKNOWN = Name("")

Owner = Literal["interface", "node", "edge"]


def parse_schema(source: Source) -> SchemaFile:
    """The tree of a schema text; raises `ParseError` with up to 20 diagnostics."""
    problems = Problems(source)
    try:
        found = _Parser(source, problems).parse_file()
    except TooManyProblems:
        problems.raise_if_any(truncated=True)
        raise
    problems.raise_if_any()
    return found


@dataclass(slots=True)
class _Body:
    properties: list[Property] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Bounds:
    minimum: int | float | None
    maximum: int | float | None


class _Parser:
    def __init__(self, source: Source, problems: Problems) -> None:
        self.cursor = Cursor(source)
        self.problems = problems
        self.unclosed = 0
        """Bodies that ended without `}` because a declaration began; each may leave a `}` behind."""

    # --- declarations ------------------------------------------------------------------------

    def parse_file(self) -> SchemaFile:
        found: list[Declaration] = []
        while not self.cursor.at(END):
            start = self.cursor.start
            if self.unclosed and self.cursor.accept("}"):
                self.unclosed -= 1
                continue
            try:
                found.append(self.parse_declaration())
            except SyntaxFault as fault:
                self.report_fault(fault)
                self.recover_outside(start)
        return SchemaFile(tuple(found))

    def parse_declaration(self) -> Declaration:
        cursor, start = self.cursor, self.cursor.start
        if cursor.at("}"):
            cursor.fail("unexpected `}`", help="every declaration is closed already")
        if cursor.word("interface"):
            return self.parse_interface(start)
        if cursor.word("node"):
            return self.parse_node(start)
        if cursor.word("edge"):
            return self.parse_edge(start)
        cursor.expected(
            "`node`, `edge` or `interface`",
            help="a type is written as `node Person { name: String @key }`",
        )

    def parse_interface(self, start: int) -> Interface:
        self.cursor.advance()
        name = self.type_name("an interface name")
        if self.cursor.at("@"):
            self.cursor.fail("interfaces take no annotations", help="put them on the properties")
        body = self.parse_body("interface", name)
        return Interface(name, tuple(body.properties), self.cursor.since(start))

    def parse_node(self, start: int) -> Node:
        self.cursor.advance()
        name = self.type_name("a node type name")
        annotations = self.header_annotations()
        implements = self.parse_implements() if self.cursor.word("implements") else ()
        if implements and self.cursor.at("@"):
            self.cursor.fail("annotations come before `implements`")
        body = self.parse_body("node", name)
        at = self.cursor.since(start)
        return Node(name, annotations, implements, tuple(body.properties), tuple(body.constraints), at)

    def parse_implements(self) -> tuple[Name, ...]:
        self.cursor.advance()
        names = [self.type_name("an interface name")]
        while self.cursor.accept(","):
            names.append(self.type_name("an interface name"))
        return tuple(names)

    def parse_edge(self, start: int) -> Edge:
        cursor = self.cursor
        cursor.advance()
        if not cursor.at(UPPER) and not cursor.at(LOWER):
            cursor.expected("an edge type name", help="an edge is written as `edge Knows: Person -> Person`")
        name = self.type_name("an edge type name")
        cursor.take(":")
        source = self.type_name("a node type name")
        cursor.take("->")
        target = self.type_name("a node type name")
        card = self.parse_card() if cursor.at("@") and cursor.peek()[0] == (LOWER, "card") else None
        annotations = self.header_annotations()
        body = self.parse_body("edge", name) if cursor.at("{") else _Body()
        properties, constraints = tuple(body.properties), tuple(body.constraints)
        return Edge(name, source, target, card, annotations, properties, constraints, cursor.since(start))

    def parse_card(self) -> Card:
        cursor, start = self.cursor, self.cursor.start
        cursor.advance()
        cursor.advance()
        cursor.take("(", "`(` and the bounds of @card, like `@card(0..1)`")
        minimum = self.whole_number()
        cursor.take("..", "`..` between the bounds of @card")
        if cursor.at("*"):
            cursor.fail("`*` is not a bound", help="leave the maximum out when there is none: `@card(1..)`")
        maximum = None if cursor.at(")") else self.whole_number()
        cursor.take(")")
        at = cursor.since(start)
        if maximum is not None and minimum > maximum:
            self.problems.add(f"cardinality min ({minimum}) exceeds max ({maximum})", at)
        return Card(minimum, maximum, at)

    def whole_number(self) -> int:
        at = self.cursor.span
        text = self.cursor.take(INT, "a whole number")
        value = parse_integer(text, MAX_INTEGER)
        if value is None:
            self.cursor.fail(f"number out of range: {shorten(text)}", at)
        return value

    def type_name(self, what: str) -> Name:
        if self.cursor.at(LOWER):
            self.cursor.expected(what, help="type names begin with an upper-case letter")
        at = self.cursor.span
        return Name(self.cursor.take(UPPER, what), at)

    # --- bodies ------------------------------------------------------------------------------

    def parse_body(self, owner: Owner, name: Name) -> _Body:
        cursor, body = self.cursor, _Body()
        cursor.take("{")
        while not cursor.accept("}"):
            start = cursor.start
            if cursor.at(END) or self.at_declaration():
                label = f"{owner} {shorten(name.text)}" if name != _UNKNOWN else "this declaration"
                self.problems.add(f"the body of {label} has no closing `}}`", name.at)
                self.unclosed += 1
                break
            try:
                self.parse_member(owner, name.text, body)
            except SyntaxFault as fault:
                self.report_fault(fault)
                self.recover_inside(start)
                if cursor.at(END):
                    # The end of the body was lost in the mistake just reported.
                    break
        return body

    def parse_member(self, owner: Owner, type_name: str, body: _Body) -> None:
        cursor = self.cursor
        if self.at_constraint():
            if owner == "interface":
                cursor.fail(
                    "interfaces take no body constraints",
                    help=f"write `@{cursor.peek()[0][1]}` without arguments after the property",
                )
            body.constraints.append(self.parse_constraint())
        elif cursor.at(","):
            cursor.fail("unexpected `,`", help="properties are not separated by commas")
        elif cursor.at("@"):
            cursor.fail("an annotation must follow the property it belongs to")
        else:
            body.properties.append(self.parse_property(owner, type_name))

    def parse_property(self, owner: Owner, type_name: str) -> Property:
        cursor, start = self.cursor, self.cursor.start
        at = cursor.span
        if cursor.at(UPPER):
            cursor.expected("a property name", help="property names begin with a lower-case letter or `_`")
        if cursor.at("["):
            cursor.expected(
                "a property name or `}`", help="a list is written with its type inside: `[String]`"
            )
        name = Name(cursor.take(LOWER, "a property name or `}`"), at)
        self.refuse_system_column(owner, type_name, name)
        if not cursor.at(":"):
            cursor.expected(
                f"`:` and a type after property '{shorten(name.text)}'",
                help=f"write `{shorten(name.text)}: String`",
            )
        cursor.advance()
        value_type = parse_type(cursor, self.problems)
        annotations = []
        while cursor.at("@") and not self.at_constraint():
            annotations.append(self.parse_annotation())
        return Property(name, value_type, tuple(annotations), cursor.since(start))

    def refuse_system_column(self, owner: Owner, type_name: str, name: Name) -> None:
        if name.text in STORAGE_COLUMNS:
            self.problems.add(
                f"property name '{name.text}' is reserved for a virtual storage system column; "
                "choose another name",
                name.at,
            )
        elif name.text in SYSTEM_COLUMNS[owner] and type_name != _UNKNOWN.text:
            self.problems.add(
                f"property name '{name.text}' is reserved for a system column of {owner} {type_name}",
                name.at,
                help="choose another name",
            )

    # --- annotations and constraints -----------------------------------------------------------

    def at_constraint(self) -> bool:
        if not self.cursor.at("@"):
            return False
        (_, word), (opens, _) = self.cursor.peek(2)
        return word in CONSTRAINTS and opens == "("

    def header_annotations(self) -> tuple[Annotation, ...]:
        """Annotations before a body; a body constraint written there keeps its name and is refused later."""
        found = []
        while self.cursor.at("@"):
            if self.at_constraint():
                constraint = self.parse_constraint()
                found.append(Annotation(constraint.name, at=constraint.at))
            else:
                found.append(self.parse_annotation())
        return tuple(found)

    def parse_annotation(self) -> Annotation:
        cursor, start = self.cursor, self.cursor.start
        cursor.advance()
        name = cursor.take(LOWER, "an annotation name")
        if not cursor.accept("("):
            return Annotation(name, at=cursor.since(start))
        if cursor.at(INT) and cursor.peek()[0][0] == ".." and name == "card":
            cursor.fail("@card comes right after the edge's end points, before other annotations")
        value = self.parse_argument(bare_name=True)
        options = []
        while cursor.accept(","):
            option = cursor.take(LOWER, "an option like `name=value`")
            cursor.take("=", f"`=` after option '{shorten(option)}'")
            options.append((option, self.parse_argument(bare_name=False)))
        cursor.take(")")
        return Annotation(name, value, tuple(options), cursor.since(start))

    def parse_argument(self, *, bare_name: bool) -> Argument:
        cursor, at = self.cursor, self.cursor.span
        if cursor.at(STR):
            return Argument(self.parse_string(), quoted=True, at=at)
        is_word = cursor.at(LOWER) and (bare_name or cursor.text in ("true", "false"))
        if is_word or cursor.at(INT) or cursor.at(FLOAT):
            text = cursor.text
            cursor.advance()
            return Argument(text, quoted=False, at=at)
        cursor.expected("a string, number or name" if bare_name else "a string, a number, `true` or `false`")

    def parse_string(self) -> str:
        value = unescape(self.cursor.text, self.cursor.span)
        self.cursor.advance()
        return value

    def parse_constraint(self) -> Constraint:
        cursor, start = self.cursor, self.cursor.start
        cursor.advance()
        name = cursor.take(LOWER)
        cursor.take("(")
        arguments = []
        if not cursor.at(")"):
            arguments.append(self.constraint_argument())
            while cursor.accept(","):
                arguments.append(self.constraint_argument())
        cursor.take(")", "`,` or `)`")
        return self.build_constraint(name, arguments, cursor.since(start))

    def constraint_argument(self) -> tuple[object, Span]:
        """A name, literal or bounds, and where it is; the constraint decides later which may stand here."""
        cursor, start = self.cursor, self.cursor.start
        value: object
        if cursor.at(STR):
            value = self.parse_string()
        elif cursor.at(LOWER):
            value = cursor.text in ("true", "false") or Name(cursor.text, cursor.span)
            cursor.advance()
        elif cursor.at("-") or cursor.at("..") or cursor.at(INT) or cursor.at(FLOAT):
            value = self.parse_bounds()
        else:
            cursor.expected("a property name, a string or bounds like `0..10`")
        return value, cursor.since(start)

    def parse_bounds(self) -> _Bounds | int | float:
        cursor, at = self.cursor, self.cursor.span
        signed = cursor.at("-")
        minimum = None if cursor.at("..") else self.signed_number()
        if cursor.accept(".."):
            open_above = minimum is not None and (cursor.at(")") or cursor.at(","))
            return _Bounds(minimum, None if open_above else self.signed_number())
        if signed or minimum is None:
            cursor.fail("expected range bounds (min..max) in @range constraint", at)
        return minimum

    def signed_number(self) -> int | float:
        cursor, at = self.cursor, self.cursor.span
        negative = cursor.accept("-")
        if not (cursor.at(INT) or cursor.at(FLOAT)):
            cursor.expected("a number")
        text, is_whole = cursor.text, cursor.at(INT)
        cursor.advance()
        value = parse_integer(text, MAX_INTEGER) if is_whole else float(text)
        if value is None or value == float("inf"):
            cursor.fail(f"number out of range: {shorten(text)}", at)
        return -value if negative else value

    def build_constraint(self, name: str, arguments: list[tuple[object, Span]], at: Span) -> Constraint:
        cursor = self.cursor
        if name in ("range", "check"):
            if len(arguments) != 2:
                cursor.fail(_RANGE_SHAPE if name == "range" else _CHECK_SHAPE, at)
            column, (value, value_at) = self.parse_column(arguments[0]), arguments[1]
            if name == "range":
                if not isinstance(value, _Bounds):
                    cursor.fail("expected range bounds (min..max) in @range constraint", value_at)
                return RangeConstraint(column, value.minimum, value.maximum, at)
            if not isinstance(value, str):
                cursor.fail("expected string argument in constraint", value_at)
            return CheckConstraint(column, value, at)
        if not arguments:
            cursor.fail(f"@{name} requires at least one property name", at)
        return ColumnConstraint(name, tuple(self.parse_column(argument) for argument in arguments), at)

    def parse_column(self, argument: tuple[object, Span]) -> Name:
        value, at = argument
        if not isinstance(value, Name):
            self.cursor.fail("expected property name in constraint", at)
        return value

    # --- recovery ------------------------------------------------------------------------------

    def report_fault(self, fault: SyntaxFault) -> None:
        self.problems.add(fault.message, fault.span, help=fault.help)

    def at_declaration(self, *, outside: bool = False) -> bool:
        """Whether a declaration begins here; outside a body, one with a wrong or missing name counts too."""
        cursor = self.cursor
        if not (cursor.at(LOWER) and cursor.text in _DECLARATIONS):
            return False
        following = cursor.peek()[0][0]
        if following == UPPER or not outside:
            return following == UPPER
        return following == LOWER or (following != ":" and self.begins_line())

    def recover_inside(self, start: int) -> None:
        """Skip to the next property, constraint or end of the body."""
        cursor, depth = self.cursor, 0
        if cursor.start == start:
            depth = self.skip_token(depth)
        while not cursor.at(END):
            # Most tokens of a hostile text cannot be a place to go on; those cost only this test.
            if cursor.kind in _RESUMES and (self.at_declaration() or (depth == 0 and self.at_member())):
                return
            depth = self.skip_token(depth)

    def at_member(self) -> bool:
        """Whether the body can be read on from here."""
        cursor = self.cursor
        if not cursor.at(LOWER):
            return cursor.at("}") or self.at_constraint()
        following = cursor.peek()[0][0]
        # A property that lacks its colon is recognised by the line it begins.
        return following == ":" or (following in (UPPER, "[") and self.begins_line())

    def begins_line(self) -> bool:
        return "\n" in self.cursor.source.text[self.cursor.last_end : self.cursor.start]

    def skip_token(self, depth: int) -> int:
        """Move past one token and return the depth of open braces after it."""
        kind = self.cursor.kind
        self.cursor.advance()
        return depth + 1 if kind == "{" else max(0, depth - 1) if kind == "}" else depth

    def recover_outside(self, start: int) -> None:
        """Skip to the next declaration; a body on the way is read for the mistakes in it."""
        cursor = self.cursor
        if cursor.start == start:
            cursor.advance()
        while not cursor.at(END) and not self.at_declaration(outside=True):
            if cursor.at("{"):
                self.unowned_body()
                return
            cursor.advance()

    def unowned_body(self) -> None:
        try:
            self.parse_body("node", Name(_UNKNOWN.text, self.cursor.span))
        except SyntaxFault as fault:
            self.report_fault(fault)
