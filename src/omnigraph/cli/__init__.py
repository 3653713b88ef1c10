"""The `omnigraph` command.

    start.py, main.py              a run of it, from Ctrl-C while it is imported to the exit code
    commands.py, lazy.py           the table of commands, each imported only when it runs
    global_flags.py, capabilities.py, former.py   flags that all share, who can use them, and old spellings
    addressing.py, scopes.py, config.py           which graph is meant
    options.py, query_options.py, change_options.py   options that several commands have
    output.py, delivery.py, formats.py, progress.py   what is printed
    reference.py                   docs/cli.md, made from all of this

Every other file is the command of its name.
"""
