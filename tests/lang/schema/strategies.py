"""Hypothesis strategies for schema trees, valid schemas and broken texts."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from omnigraph.lang.schema import schema_ast as ast
from omnigraph.lang.schema.schema_parser import CONSTRAINTS
from omnigraph.lang.types import FLOATS, INTEGERS, SCALARS, Scalar, ValueType

# Drawing from lists is many times faster than building names and texts letter by letter.
WORDS = [
    "a", "b", "c", "name", "node", "edge", "interface", "implements", "enum", "key", "unique", "index",
    "range", "check", "card", "embed", "description", "rename_from", "true", "false", "_", "__", "_1",
    "x1", "camelCase", "from", "to", "e5", "node_", "n" * 255,
]  # fmt: skip
TYPE_NAMES = ["A", "B", "Person", "Node", "Edge", "String", "Vector", "I32", "X_1", "ALL", "T" * 255]
TEXTS = [
    "", "a", " ", "two words", '"', '\\"', "\\", "\\n", "\n", "\r\n", "\t", "ü", "\u2028", "\x85", "\x01",
    "😀", "*/", "/*", "//", "{", "}", "@key(a)", "^[a-z]+$", "'", "#", "$x", "0", "\ufeff", "\uffff",
    "x" * 300,
]  # fmt: skip
ENUM_VALUES = ["a", "b", "A", "a-b", "-", "_", "0", "3d", "true", "enum", "--", "x_1", "z" * 255]
MAX_INT = 2**63 - 1

lower = st.sampled_from(WORDS)
upper = st.sampled_from(TYPE_NAMES)
text = st.sampled_from(TEXTS)
property_name = st.sampled_from([*WORDS, "_rowid2", "ids", "src_", "iD"])
enum_values = st.lists(st.sampled_from(ENUM_VALUES), min_size=1, max_size=4, unique=True)

value_types = st.one_of(
    st.builds(ValueType, st.sampled_from(list(SCALARS.values())), st.booleans()),
    st.builds(
        ValueType,
        st.sampled_from([scalar for scalar in SCALARS.values() if scalar is not Scalar.BLOB]),
        st.booleans(),
        is_list=st.just(True),
    ),
    st.builds(
        ValueType,
        st.just(Scalar.STRING),
        st.booleans(),
        enum_values=enum_values.map(lambda found: tuple(sorted(found))),
    ),
    st.builds(ValueType, st.just(Scalar.VECTOR), st.booleans(), dimension=st.integers(1, 2_147_483_647)),
)


# --- any tree that can be written ------------------------------------------------------------------

bare = st.one_of(
    lower.filter(lambda name: name not in ("true", "false")),
    st.integers(0, 10**30).map(str),
    st.sampled_from(["0.0", "00.10", "1.5", "123456789.987654321"]),
    st.sampled_from(["true", "false"]),
)
quoted = st.builds(ast.Argument, text, st.just(True))
value = st.builds(ast.Argument, bare, st.just(False)) | quoted
option = st.tuples(
    lower, st.builds(ast.Argument, st.integers(0, 99).map(str) | st.just("true"), st.just(False)) | quoted
)
some_annotations = st.lists(
    st.builds(ast.Annotation, lower.filter(lambda name: name != "card"))
    | st.builds(
        ast.Annotation,
        lower.filter(lambda name: name not in (*CONSTRAINTS, "card")),
        value,
        st.lists(option, max_size=2).map(tuple),
    ),
    max_size=3,
).map(tuple)
names = st.builds(ast.Name, lower.filter(lambda name: name not in ("true", "false")))
number = st.integers(-MAX_INT, MAX_INT) | st.floats(allow_nan=False, allow_infinity=False)
bounds = st.tuples(number | st.none(), number | st.none()).filter(lambda pair: pair != (None, None))
constraints = st.one_of(
    st.builds(
        ast.ColumnConstraint,
        st.sampled_from(["key", "unique", "index"]),
        st.lists(names, min_size=1, max_size=3).map(tuple),
    ),
    st.tuples(names, bounds).map(lambda found: ast.RangeConstraint(found[0], *found[1])),
    st.builds(ast.CheckConstraint, names, text),
)
properties = st.lists(
    st.builds(ast.Property, st.builds(ast.Name, property_name), value_types, some_annotations), max_size=4
).map(tuple)
body = {"properties": properties, "constraints": st.lists(constraints, max_size=3).map(tuple)}
type_name = st.builds(ast.Name, upper)
cards = st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9)).map(
    lambda pair: ast.Card(pair[0], None if pair[1] is None else pair[0] + pair[1])
)
declarations = st.one_of(
    st.builds(ast.Interface, type_name, properties),
    st.builds(ast.Node, type_name, some_annotations, st.lists(type_name, max_size=2).map(tuple), **body),
    st.builds(ast.Edge, type_name, type_name, type_name, st.none() | cards, some_annotations, **body),
)
trees = st.lists(declarations, max_size=4).map(tuple).map(ast.SchemaFile)


# --- schemas that compile --------------------------------------------------------------------------


def _metadata(draw: st.DrawFn) -> list[ast.Annotation]:
    found = []
    if draw(st.booleans()):
        found.append(ast.Annotation("description", ast.Argument(draw(text.filter(str.strip)))))
    if draw(st.booleans()):
        found.append(ast.Annotation("owner", ast.Argument(draw(text))))
    return found


def _plain(found: ValueType) -> bool:
    return not found.is_list and found.scalar not in (Scalar.VECTOR, Scalar.BLOB)


@st.composite
def _members(draw: st.DrawFn, prefix: str, *, edge: bool = False) -> list[ast.Property]:
    found: list[ast.Property] = []
    for index in range(draw(st.integers(0, 4))):
        name, kind, notes = f"{prefix}{index}", draw(value_types), _metadata(draw)
        if _plain(kind) and draw(st.booleans()):
            notes.append(ast.Annotation(draw(st.sampled_from(["unique", "index"]))))
        if draw(st.booleans()):
            notes.append(ast.Annotation("rename_from", ast.Argument(draw(lower))))
        sources = [each.name.text for each in found if each.type.is_text and not each.type.enum_values]
        if kind.scalar is Scalar.VECTOR and sources and not edge:
            notes.append(ast.Annotation("embed", ast.Argument(draw(st.sampled_from(sources)))))
        found.append(ast.Property(ast.Name(name), kind, tuple(notes)))
    return found


@st.composite
def _constraints(draw: st.DrawFn, members: list[ast.Property], *, edge: bool) -> list[ast.Constraint]:
    plain = [each.name for each in members if _plain(each.type)]
    columns = plain + ([ast.Name("src"), ast.Name("dst")] if edge else [])
    found: list[ast.Constraint] = []
    if columns:
        some = st.lists(st.sampled_from(columns), min_size=1, max_size=3).map(tuple)
        kinds = draw(st.lists(st.sampled_from(["unique", "index"]), max_size=2))
        found += [ast.ColumnConstraint(kind, draw(some)) for kind in kinds]
    required = [each.name for each in members if _plain(each.type) and not each.type.nullable]
    if edge:
        if draw(st.booleans()):
            more = draw(st.lists(st.sampled_from(required), max_size=1)) if required else []
            ends = [ast.Name("src"), ast.Name("dst"), *more]
            found.append(ast.ColumnConstraint("key", tuple(draw(st.permutations(ends)))))
        return found
    if bool(required) and draw(st.booleans()):
        key = draw(st.lists(st.sampled_from(required), min_size=1, max_size=3, unique=True))
        found.append(ast.ColumnConstraint("key", tuple(key)))
    for each in members:
        if each.type.scalar in INTEGERS | FLOATS and draw(st.booleans()):
            low, high = sorted(draw(st.tuples(number, number)))
            found.append(ast.RangeConstraint(each.name, low, draw(st.sampled_from([None, high]))))
        if each.type.scalar is Scalar.STRING and draw(st.booleans()):
            found.append(ast.CheckConstraint(each.name, draw(text)))
    return found


@st.composite
def valid_schemas(draw: st.DrawFn) -> ast.SchemaFile:
    interfaces = [
        ast.Interface(ast.Name(f"I{index}"), tuple(draw(_members(f"i{index}_"))))
        for index in range(draw(st.integers(0, 2)))
    ]
    nodes = []
    for index in range(draw(st.integers(0, 3))):
        implemented = (
            draw(st.lists(st.sampled_from(interfaces), unique_by=lambda each: each.name.text))
            if interfaces
            else []
        )
        members = draw(_members("p"))
        offered = [each for interface in implemented for each in interface.properties]
        redeclared = [ast.Property(each.name, each.type) for each in offered if not each.annotations]
        if draw(st.booleans()):
            members = [*members, *redeclared]
        nodes.append(
            ast.Node(
                ast.Name(f"N{index}"),
                tuple(_metadata(draw)),
                tuple(interface.name for interface in implemented),
                tuple(members),
                tuple(draw(_constraints(members, edge=False))),
            )
        )
    edges = []
    for index in range(draw(st.integers(0, 3)) if nodes else 0):
        ends = st.sampled_from([node.name for node in nodes])
        members = draw(_members("w", edge=True))
        rules = tuple(draw(_constraints(members, edge=True)))
        card = draw(st.none() | cards)
        notes = tuple(_metadata(draw))
        name = ast.Name(f"E{index}")
        edges.append(ast.Edge(name, draw(ends), draw(ends), card, notes, tuple(members), rules))
    return ast.SchemaFile(tuple(draw(st.permutations([*interfaces, *nodes, *edges]))))


# --- broken texts ----------------------------------------------------------------------------------

FRAGMENTS = [
    "{", "}", "(", ")", "[", "]", "@", ":", "->", "..", ",", "?", '"', "\\", "/*", "*/", "//", "\n", "\r\n",
    "#", "'", "-", "node ", "edge ", "interface ", "implements ", "enum(", "Vector(", "@key", "@unique(",
    "@range(", "@check(", "@card(", "@embed(", "@rename_from(", "String", "I32", "9" * 30, "1.", ".5", "$x",
    "\0", "\ud800", "\ufeff", "ü", "true", "\u2028",
]  # fmt: skip


def mutate_text(source: str, random: Random) -> str:
    """A text with one to six random changes, often only one."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        at, length = random.randint(0, len(source)), random.choice((1, 1, 2, 5, 20))
        fragment = random.choice(FRAGMENTS)
        repeated = source[at : at + length] * random.choice((2, 2, 50))
        part, taken = random.choice(((fragment, 0), ("", length), (fragment, length), (repeated, length)))
        source = source[:at] + part + source[at + taken :]
    return source


def shuffled_tokens(source: str, random: Random) -> str:
    """The words and signs of a text in random order, some from elsewhere."""
    tokens = source.split() + random.choices(FRAGMENTS, k=random.randint(0, 10))
    random.shuffle(tokens)
    return " ".join(tokens)
