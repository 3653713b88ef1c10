"""The rules about whole loads, worked out where rows with the same key meet.

`check_rounds.py` has their order; `quick_checks.py` finds what may be wrong; `id_checks.py`,
`unique_checks.py` and `endpoint_checks.py` find what is; `check_scope.py` has what they look at.
"""
