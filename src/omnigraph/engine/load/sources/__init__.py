"""What a load reads: files of several formats, found, cut into items and read item by item.

To read in this order:

    input_files.py                 which files, and their formats; pipes.py: pipes as files
    plan.py, item.py               files cut into items, one for each task; the formats
    item_reader.py                 an item from its bytes to checked rows; small files, read together
    line_ranges.py                 NDJSON: the lines of a part of a file
    csv_records.py                 CSV: records, and columns of bytes; csv_sniff.py: what is guessed
    columnar.py                    Parquet, Arrow and Lance: columns
    binding.py, mapping.py         which column is which property
    arrow_columns.py, text_columns.py   columns of Arrow or of texts -> columns of properties
    coercion.py, casts.py          values of other types: taken without loss, or as a mapping asks for
    spark_source.py                rows that a format of Spark reads
"""
