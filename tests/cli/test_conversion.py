"""Values that are converted without pydantic become what Typer would make of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from omnigraph.cli.commands import COMMANDS
from omnigraph.cli.main import app

NO_UNICODE = "\udcff"
PATHS = (__file__, ".", "..", "no such file")
TEXTS = ("local", "ada", "Zoë", "", "-", "17", NO_UNICODE)
VALUES = (None, *TEXTS, *PATHS, (), ("a", "b"), ("a", NO_UNICODE), ("a", 1))


def params_of(command: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    yield from ((context, param) for param in command.get_params(context))
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            yield from params_of(child, child.make_context(name, [], parent=context, resilient_parsing=True))


def outcome(param: Any, conversion: Any, value: Any, context: Any) -> tuple[type, object]:
    try:
        converted = conversion.coerce(value, param=param, ctx=context)
    except Exception as refusal:  # noqa: BLE001 - compared, whatever it is
        return type(refusal), str(refusal)
    return type(converted), converted


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_a_command_converts_values_as_typer_does(name: str) -> None:
    root: Any = get_command(app)
    context = root.make_context("omnigraph", [], resilient_parsing=True)
    if name:
        command = root.get_command(context, name)
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
        params = list(params_of(command, context))
    else:
        params = [(context, param) for param in root.get_params(context)]
    assert params
    for at, param in params:
        conversion = param.get_runtime_param()
        by_typer = type(param).get_runtime_param(param)
        assert type(by_typer) is not type(conversion)
        for value in (*VALUES, param.get_default(at)):
            expected = outcome(param, by_typer, value, at)
            assert outcome(param, conversion, value, at) == expected, (param.name, value)
