"""What travels over HTTP: msgspec structs, and nothing else knows how members are spelled.

base           the struct all others are, and W2: one value under two names
error_output   `ErrorOutput`, the body of every failure
health         health, list of graphs
commits        commits, and the moment a read is about
reads          queries and their results, snapshots
writes         mutations
branches       branches and merges
schemas        the schema and its changes
loads          loads of NDJSON and Arrow
exports        exports and baselines
stored_queries     stored queries and their parameters
changes        changes of commits and branches
comparisons    differences, explanations, previews of merges
explorer       what the page in the browser shows
json_rows      rows of a result as JSON, encoded by columns

A member that was renamed once is there under both names with equal values; each struct has a function that
fills both. The names of the structs are the names of the schemas in the OpenAPI document.
"""
