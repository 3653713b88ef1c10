"""Errors keep their facts, wherever they go."""

from __future__ import annotations

import pickle
import traceback
from inspect import Parameter, signature

import pytest

from omnigraph.diagnostics import Diagnostic
from omnigraph.engine.rows.violations import Violation
from omnigraph.errors import (
    BadRequest,
    BranchNotFound,
    CompileError,
    KeyConflict,
    LoadRejected,
    MergeConflicts,
    OmnigraphError,
    ParseError,
    PreconditionFailed,
    ResourceLimitExceeded,
    TableVersionConflict,
    UnsupportedSchemaChange,
    WriterBusy,
)
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source

PLACE = Diagnostic("bad", 2, 3, 10, 12, "a\tb c", 2, code="T7", help="do this", source_name="x.gq")

SAMPLES = [
    BranchNotFound("work"),
    KeyConflict("node", "Person", "ada"),
    KeyConflict("edge", "Knows", None),
    MergeConflicts("a", "b", ["one", "two", "three", "four", "five"]),
    ParseError([PLACE]),
    PreconditionFailed("main", expected="01A", actual=None),
    ResourceLimitExceeded("keyed entities for node:Log", limit=8192, actual=8193),
    TableVersionConflict("node:Person", expected=7, actual=9),
    UnsupportedSchemaChange("changing it", entity="node:P", change_code="OG-MF-106"),
    WriterBusy("main", owner="host/1", waited=1.25),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_to_another_process(error: OmnigraphError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.to_json() == error.to_json()


def test_messages_use_the_users_own_names() -> None:
    assert str(BranchNotFound("work")) == "branch 'work' not found"
    assert str(KeyConflict("node", "Person", "ada")) == "node type 'Person' already has id 'ada'"
    assert str(KeyConflict("node", "Person", None)) == "node type 'Person' already has this id"
    assert str(PreconditionFailed("main", expected="01A", actual=None)).endswith("but current is <absent>")
    assert str(SAMPLES[6]) == (
        "resource limit exceeded for keyed entities for node:Log: actual 8193, limit 8192"
    )


def test_many_merge_conflicts_are_previewed() -> None:
    assert str(SAMPLES[3]).endswith("one; two; three; and 2 more")


def test_json_carries_code_remedy_and_facts() -> None:
    body = TableVersionConflict("node:Person", expected=7, actual=9).to_json()
    assert body["code"] == "manifest_conflict"
    assert body["retryable"] is True
    assert body["remedy"]
    assert body["data"] == {"table_key": "node:Person", "expected": 7, "actual": 9}
    limited = ResourceLimitExceeded("keyed entities for node:Log", limit=8192, actual=8193).to_json()
    assert limited["code"] == "resource_limit"
    assert limited["data"] == {"resource": "keyed entities for node:Log", "limit": 8192, "actual": 8193}


def test_a_diagnostic_is_drawn_with_its_place_underlined() -> None:
    assert PLACE.render().splitlines() == [
        "error[T7]: bad",
        " --> x.gq:2:3",
        "  |",
        "2 | a b c",
        "  |   ^^",
        "  = help: do this",
    ]


def test_a_long_line_is_shown_around_the_place() -> None:
    line = "x" * 5000 + "HERE" + "y" * 5000
    shown = Diagnostic("bad", 1, 5001, 5000, 5004, line, 4).render().splitlines()
    text, marks = shown[3], shown[4]
    assert len(text) < 200
    assert text[marks.index("^") : marks.rindex("^") + 1] == "HERE"


def test_unprintable_characters_are_not_sent_to_a_terminal() -> None:
    shown = Diagnostic("bad", 1, 1, 0, 1, "\x1b[31m\x07red", 1).render()
    assert "\x1b" not in shown
    assert "\x07" not in shown


def _all_kinds(kind: type[OmnigraphError]) -> list[type[OmnigraphError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in _all_kinds(child))]


STEERING = "\x1b[31m\x07\x9b2J\u202e\u2028\udc80"


def test_no_error_steers_a_terminal_whatever_is_in_it() -> None:
    tried = 0
    for kind in _all_kinds(OmnigraphError):
        parameters = list(signature(kind).parameters.values())
        texts = {one.name: STEERING for one in parameters if str(one.annotation).startswith("str")}
        others = [one for one in parameters if one.default is Parameter.empty and one.name not in texts]
        if others:
            continue
        keywords = [one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
        named = {name: texts.pop(name) for name in keywords if name in texts}
        error = kind(*texts.values(), **named)
        assert not set(STEERING) & set(f"{error}{error.message}{error.remedy}") - set("[31m2J"), kind
        tried += 1
    assert tried > 40


def test_a_diagnostic_shows_no_control_characters() -> None:
    bad = STEERING[:-1]
    for text in (bad, f"node {bad} {{}}", f'query q() {{ match {{ $p: "{bad}'):
        for compiled in (compile_schema, parse_queries):
            with pytest.raises(CompileError) as refused:
                compiled(Source(text))
            rendered = f"{refused.value}{refused.value.render()}{refused.value.diagnostics[0].message}"
            assert "\x1b" not in rendered
            assert "\u202e" not in rendered


def test_a_traceback_ends_with_the_remedy() -> None:
    error = BadRequest("no", remedy="do\x1b it")
    assert "".join(traceback.format_exception_only(error)).splitlines()[1:] == ["help: do\\x1b it"]
    assert not hasattr(BadRequest("no"), "__notes__")
    assert error.data() == {}
    assert pickle.loads(pickle.dumps(error)).__notes__ == error.__notes__


def test_equal_reasons_are_grouped_with_a_count_and_three_examples() -> None:
    def wrong(line: int, reason: str) -> Violation:
        return Violation("p.csv", line, None, reason)

    ages = [wrong(line, f"strict property 'age' expects Int32, got \"{line}\"") for line in range(1, 6)]
    ends = [wrong(9, "src 'a' not found in Person"), wrong(10, "src 'b' not found in Person")]
    error = LoadRejected(
        [*ages, *ends], total=9, counts={"value": 7, "endpoint": 2}, remedy="fix the records"
    )
    assert error.summary().splitlines() == [
        "9 violations: 2 endpoint, 7 value",
        "  help: fix the records",
        "  5 times: strict property 'age' expects Int32",
        *(f"    {one}" for one in ages[:3]),
        "    and 2 more",
        *(f"  {one}" for one in ends),
        "  and 2 more, which are not listed",
    ]
