"""The local read engine: a logical plan in, an Arrow table out.

Rows in flight are integers: positions in the tables of one snapshot. Properties are fetched when an
expression needs them, and returned columns once, at the end. Read in this order:

    query_service.py, reader.py            a query, compiled, prepared and run on a snapshot
    request.py                             its parameters, limits and explained steps
    engine_choice.py                       this process or Spark, by size
    plan_runner.py                         runs a plan, step by step; context.py: what all steps share
    interrupt.py                           long work in worker threads
    pattern.py, match.py                   what a plan matches, and the order of its walks
    scan.py, key_lookup.py, index_hop.py   nodes by tests or by key, and hops through indexes on disk
    frame.py, joins.py                     rows in flight, and cross, anti and optional joins of them
    counted_branches.py                    branches that are only counted
    expressions/                           terms and predicates on rows
    search/, rank_rows.py                  text and vector search, and the best rows by it
    aggregate.py, group_and_sort.py        groups and sorting; exact_sums.py: floats added without rounding
    arrow_tables.py, sql.py                types as datasets of Arrow, and SQL over them with DuckDB
    result.py                              results, as tables for people
    sources.py, rows.py, read_cache.py     the tables of a snapshot, numbered, and what stays in memory
    row_growth.py                          cached rows, extended for newer versions of a table
    topology/                              adjacency and walks over it
    algorithms/                            algorithms over all nodes at once
"""
