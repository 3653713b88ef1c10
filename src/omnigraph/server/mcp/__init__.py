"""Tools for language models over MCP, at `POST /graphs/{graph_id}/mcp`, `POST /mcp` and on standard input.

A tool is a request to a route of this server. Policy, admission, limits and errors are therefore those of the
route, whether the tools are used over HTTP, in a folder, or through a server elsewhere.

routes.py           the two routes
exchange.py         a request as a value, its answer, and how it is answered inside this process
tools.py            what a tool is
graph_tools.py      the table of tools; query_tools.py: one for each stored query
description.py      the schema as a model reads it best; examples.py: queries that are valid for it
bounds.py           results that fit into a context window, with a note of what was left out
surface.py          lists and calls tools, lists and reads resources
protocol.py         the surface as a server of the MCP package
endpoint.py         the handlers of the routes
stdio.py            the same on standard input and output
"""
