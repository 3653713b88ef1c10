"""`omnigraph logout`: forget the token of a server."""

from __future__ import annotations

from omnigraph.cli.command_groups import new_app
from omnigraph.cli.config_file import current_config
from omnigraph.cli.credentials import remove_token
from omnigraph.cli.login import ServerName, require_server_name
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result

app = new_app()


@app.command()
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
