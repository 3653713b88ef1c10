"""Graphs over HTTP: parse a request, ask policy, call one method of `Graph`, encode the answer.

settings     what a server was started with: options and environment
routes, data_routes     the one table: method, path, operation, policy action, admission, types
route_tree   which route a path and a method mean
wire/        the structs that travel; nothing else knows how members are spelled
errors       a failure as status and body
auth         bearer tokens: sources and the check
authorize    whether an actor may do this here
admission    how much one actor may have under way
boot         the graphs to serve: one store now; opens them and reports those that failed
service      what all requests share: graphs, tokens, limits, worker threads, counters
workers      threads that run the calls of `Graph`
requests     one request: body, actor, policy, admission, work, answer
streams      answers that are produced while they are sent
slots        how many exports may run
stored_queries     the registry of stored queries
permissive_lines   the older way to read records of a load
conditions   conditions and ranges of requests for bytes
reads, writes, branches, commits, schemas, health     the handlers
loads, exports, invocations, change_feed, blobs, arrow_results, comparisons     the handlers of `data_routes`
handlers, data_handlers     which handler belongs to which operation
app          the ASGI application
openapi, pages     the OpenAPI document and docs/http.md, from the table
logs, metrics      one JSON line for each request; counters for Prometheus
listen       bind, announce the address, serve until a signal
"""
