"""The language server for `.pg` and `.gq` files: diagnostics, hover, completion, go to definition.

schemas.py          which schema a query file belongs to, and what it says
findings.py         what the checkers find, as diagnostics of the protocol
server.py           the requests of an editor, answered by `lang/assist`; the only file that knows pygls
"""
