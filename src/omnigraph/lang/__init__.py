"""The two languages: `.pg` schemas and `.gq` queries. Text in, typed values out; no I/O."""
