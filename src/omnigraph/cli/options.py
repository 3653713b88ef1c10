"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

OnBranch = Annotated[str, typer.Option("--branch", help="The branch.", metavar="BRANCH")]
EngineBySize = Annotated[
    Literal["auto", "local", "spark"],
    typer.Option("--engine", help="Where the work is done; by size, if not said."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
