"""`omnigraph completion`: what a shell needs to complete commands and flags."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from typer import completion as shells

from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result

app = new_app()


@app.command()
def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"], typer.Argument(help="The shell.", metavar="SHELL")
    ],
    as_json: AsJson = False,
) -> None:
    """Print a script for bash, zsh, fish or powershell, to be read when the shell starts."""
    script = vars(shells)["get_completion_script"](
        prog_name="omnigraph", complete_var="_OMNIGRAPH_COMPLETE", shell=shell
    )
    print_result({"shell": shell, "script": script}, script, as_json=as_json)
