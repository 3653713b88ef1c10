"""Terms and predicates on Arrow columns, and which of them Lance can answer instead."""
