"""What travels over HTTP: msgspec structs, and nothing else knows how members are spelled.

    base.py             the struct all others are, and W2: one value under two names
    error_output.py     `ErrorOutput`, the body of every failure
    health.py           health, list of graphs
    commits.py          commits, and the moment a read is about
    reads.py            queries and their results, snapshots
    writes.py           mutations
    statements.py       statements that a client collected in a block
    branches.py         branches and merges
    tags.py             tags
    schemas.py          the schema and its changes
    loads.py            loads of NDJSON and Arrow
    exports.py          exports and baselines
    stored_queries.py   stored queries and their parameters
    changes.py          changes of commits and branches
    comparisons.py      differences, explanations, previews of merges
    explorer.py         what the page in the browser shows
    json_rows.py        rows of a result as JSON, encoded by columns

A member that was renamed once is there under both names with equal values; each struct has a function that
fills both. The names of the structs are the names of the schemas in the OpenAPI document.
"""
