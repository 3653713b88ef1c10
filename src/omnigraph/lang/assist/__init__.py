"""What editors ask about a text that is being written: completion, descriptions, definitions.

Everything here goes by tokens, so that it works on a text that does not parse yet; checkers find mistakes.

reading.py          the tokens of a text, and the one at a place
variables.py        the variables of a query, and the types they must have
query_assist.py     `.gq`: what may follow, what a word means, and where it comes from
schema_assist.py    `.pg`: the same
type_text.py        types and properties in words
"""
