"""What a load reads: files of several formats, found, cut into items and read item by item.

To read in this order:

    found.py, formats.py           which files, and what they are; streams.py: pipes as files
    plan.py, item.py               files cut into items, one for each task
    read.py                        an item from its bytes to checked rows
    ranges.py                      NDJSON: the lines of a part of a file
    csv_records.py, csv_blocks.py  CSV: records, and columns of bytes
    columnar.py                    Parquet, Arrow and Lance: columns
    binding.py, mapping.py         which column is which property
    blocks.py, convert.py, texts.py               columns -> checked rows
    tables.py                      rows in memory; yaml_text.py: mapping files with line numbers
"""
