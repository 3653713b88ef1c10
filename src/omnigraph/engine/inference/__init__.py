"""Schemas guessed from data: frames and files in, the text of a schema out.

To read in this order:

    samples.py                     frames and files as Arrow tables, one per type
    column_types.py                the type that a column could have as a property
    type_guesses.py                which column is the key, and which types edges join
    schema_text.py                 the guesses as `.pg` text, with comments on what was guessed
"""
