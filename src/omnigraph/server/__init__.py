"""Graphs over HTTP: parse a request, ask policy, call one method of `Graph`, encode the answer.

settings.py         what a server was started with: options and environment
start.py            starts a server: tokens, graphs, policies, then the socket
sources.py          what to serve, as values; one store is a source, cluster_source.py another
revisions.py        the revision that is served, and older ones in use; reload.py: the next one
boot.py             opens what a source names, and leaves out what fails
supervisor.py       with --workers: starts, replaces and ends worker processes (worker_process.py)
board.py            what workers share: a folder; numbers.py: numbers in a file of it
listen.py           binds, announces the address, serves until a signal; the only file that knows granian
route.py            what a route is
routes.py           the one table: method, path, operation, policy action, admission, types
data_routes.py      its part about loads, exports, stored queries, changes, Blobs and comparisons
route_tree.py       which route a path and a method mean
wire/               the structs that travel; nothing else knows how members are spelled
app.py              the ASGI application: the steps of every request, its log line and its headers
requests.py         one request: body, actor, policy, admission, work in a thread, answer
auth.py             bearer tokens: sources and the check
authorize.py        whether an actor may do this here
admission.py        how much one actor may have under way
workers.py          threads that run the calls of `Graph`
service.py          what all requests share
errors.py           a failure as status and body
handlers.py         which handler belongs to which operation; data_handlers.py: those of data_routes.py
health.py, reads.py, writes.py, branches.py, commits.py, schemas.py     handlers
loads.py, load_files.py, exports.py, blobs.py, change_feed.py     more of them
comparisons.py, invocations.py, statements.py, type_rows.py     and the last
moments.py          which moment of a graph a read is about
streams.py          answers that are sent piece by piece; slots.py: how many exports run at once
ui_routes.py        the part of the table for the page in the browser; ui_handlers.py: which handler does what
ui_page.py          the files of the page, as `make ui` built them
ui_sessions.py      cookies that only the page can use; ui_sign_in.py: a token for a cookie
ui_reads.py         rights, types, findings of lint, health; ui_subgraph.py: nodes by text and around others
ui_start.py         a server for one person on this machine
mcp/                the same routes as tools for language models, over HTTP and on standard input
openapi.py          the OpenAPI document; pages.py: docs/http.md; both from the table
engine_phases.py    what the engine does for a request, by phase; tracing.py: spans for OpenTelemetry
logs.py             one JSON line for each request; metrics.py: counters for Prometheus
"""
