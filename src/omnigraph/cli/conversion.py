"""Conversion of texts, choices, files and defaults of the command line without pydantic.

Typer asks pydantic about every value, also about that of an option which is not given. Importing pydantic
takes a tenth of a second, as long as all other work of a short command. It is still asked about numbers, and
about values that may be wrong.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, get_args, get_origin


def convert_plain_values(command: Any) -> None:
    """Let a command convert texts, choices, files and defaults here, and other values by Typer."""
    listed = command.get_params

    def get_params(ctx: Any) -> list[Any]:
        params: list[Any] = listed(ctx)  # with `--help`, which the command adds itself
        for param in params:
            convert = getattr(param, "get_runtime_param", None)
            # A release of Typer that converts in another way is left alone.
            if convert is not None and not isinstance(convert, _Conversion):
                param.get_runtime_param = _Conversion(convert)
        return params

    command.get_params = get_params


class _Conversion:
    """Stands for Typer's conversion of one parameter, which it creates for a value that needs it."""

    def __init__(self, create: Any) -> None:
        self._create = create

    def __call__(self) -> _Conversion:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value in the type of the parameter, or raise what Typer raises."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        descriptor = param.type_descriptor
        if descriptor.parameter_info.parser is None:
            converted = _convert_plain(descriptor.annotation, value)
            if converted is not None:
                return converted
        return self._create().coerce(value, param=param, ctx=ctx)


def _convert_plain(kind: Any, value: Any) -> Any:
    """Return the value in this type, or None where Typer has to decide."""
    if type(value) is str:
        if kind is str or (get_origin(kind) is Literal and value in get_args(kind)):
            return value
        # Of a file that exists, Typer requires that it can be read.
        return Path(value) if kind is Path and os.access(value, os.R_OK) else None
    if kind == list[str] and type(value) is tuple and all(type(one) is str for one in value):
        return list(value)
    return value if type(value) is int and kind is int else None
