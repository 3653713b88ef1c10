"""The `omnigraph` command.

    start.py, sigint.py, main.py   a run of it, from Ctrl-C during the imports to the exit code
    help.txt                       the top-level help, which start.py prints without Typer
    commands.py, command_groups.py   the table of commands, each imported when it runs
    global_flags.py, capabilities.py, invocation.py   flags of all commands
    addressing.py, config.py, config_file.py   which graph a command works on
    foreign_commands.py            words of git and DuckDB, and what they are here
    options.py                     options that several commands have
    served.py, credentials.py      a graph behind a server, and the tokens of servers
    conversion.py                  converts texts, choices and files without pydantic
    output.py, result_output.py, progress.py   what is printed
    shell_session.py, shell_commands.py, shell_prompt.py   what `omnigraph shell` keeps, does and shows
    reference.py                   generates docs/cli.md and help.txt from all of this

Every other file is the command of its name. login.py has logout as well, query.py has explain, and changes.py
has diff. log.py has show and status; lanes.py draws the lines of its --graph. replay.py
has revert, cherry-pick and reset.
"""
