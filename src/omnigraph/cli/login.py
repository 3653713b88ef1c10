"""`omnigraph login` and `omnigraph logout`: keep or remove the token of a server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from omnigraph.cli.command_groups import new_app
from omnigraph.cli.config_file import current_config
from omnigraph.cli.credentials import remove_token, save_token
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_note, print_result
from omnigraph.errors import BadRequest

ServerName = Annotated[str, typer.Argument(help="The name of the server in the config file.", metavar="NAME")]

app = new_app()


@app.command()
def login(
    name: ServerName,
    token: Annotated[
        str | None, typer.Option("--token", help="The token; else a line of standard input.", metavar="TOKEN")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Keep the token of a server in the credentials file, which only you can read."""
    require_server_name(name)
    path = save_token(name, _require_token(_read_line() if token is None else token))
    declared = name in current_config().servers
    report = {"server": name, "credentials_path": str(path), "declared": declared}
    print_result(report, f"saved the token of {name} in {path}", as_json=as_json)
    if not declared:
        print_note(f"note: {current_config().place} has no server '{name}' yet; add it under servers")


def require_server_name(name: str) -> None:
    """Refuse a name that the credentials file cannot have."""
    if not name.strip() or not name.isprintable() or set(name) & set("[]#=") or name != name.strip():
        raise BadRequest(f"'{name}' cannot be the name of a server", remedy="choose another name")


def _read_line() -> str:
    if sys.stdin is None:
        raise BadRequest("no token given", remedy="pass --token, or write it to standard input")
    return sys.stdin.readline()


def _require_token(text: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or set(token) & set(" \"'#"):
        raise BadRequest(
            "no token given, or one that no header can carry",
            remedy="pass --token, or write it to standard input",
        )
    return token


logout_app = new_app()


@logout_app.command()
def logout(name: ServerName, as_json: AsJson = False) -> None:
    """Remove the token of a server from the credentials file; it is fine if there is none."""
    require_server_name(name)
    path = remove_token(name)
    report = {
        "server": name,
        "credentials_path": str(path),
        "declared": name in current_config().servers,
    }
    print_result(report, f"removed the token of {name} from {path}", as_json=as_json)
