"""The structure of the source, as `tests/house/measure.py` sees it."""

from __future__ import annotations

from tests.house.measure import cycles, imports, modules, operations

MOST_FILES = {"load": 78, "mutation": 67, "query": 43, "merge": 73}
"""How many files a one-row operation may go through."""


def test_no_modules_import_each_other_not_even_inside_functions() -> None:
    assert cycles(imports(modules())) == []


def test_one_row_goes_through_few_files() -> None:
    found = dict(operations())
    assert found.keys() == MOST_FILES.keys()
    assert {name: number for name, number in found.items() if number > MOST_FILES[name]} == {}
