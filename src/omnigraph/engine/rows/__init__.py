"""Records into checked Arrow rows, and filters on stored rows.

Nothing here knows where it runs: the tasks of a load call the same functions in other processes.

    lines.py                       text in splits and lines; lines that begin alike
    ndjson.py, uniform_lines.py   lines -> records, singly or many of one layout
    records.py, row_builder.py, json_columns.py, ids.py   records -> rows with ids, a property at a time;
                                   a split from its bytes to checked rows
    patch_rows.py                  rows that give only some of their properties
    blobs.py                       values of Blob properties, in and out
    value_checks.py                rules about single values
    violations.py                  violations, and the file that keeps all of them
    error_json.py                  errors as JSON, for tasks and workers
    predicate.py                   which rows an update or delete is about: asked of Arrow, and of Lance
    lookup.py                      many texts looked up among many others, and the bytes of a column
"""
