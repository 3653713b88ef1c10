"""Every size that the query engine decides by, near zero: a handful of rows goes the ways of millions.

Results must not depend on any of them. `test_near_zero.py` asks the oracle under these values, and fails when
a module of the query engine has a number that is neither here nor among those that decide nothing.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

import pytest

import omnigraph.query

Number = int | float

SIZES: dict[str, dict[str, Number]] = {
    "aggregate": {"_EXACT_FLOAT": 1},
    "algorithms.edge_block": {"_FEW": 1, "_AT_ONCE": 2},
    "algorithms.local_graph": {"_PIECE": 2, "_MOST_BYTES": 1},
    "algorithms.solver": {"_BATCH_ROWS": 2},
    "joins": {"_PAIRS_AT_ONCE": 2},
    "group_and_sort": {"_SPACE": 4, "_DENSE": 0, "_WORTH_SELECTING": 0},
    "index_hop": {"LARGE": 1, "_SORT": 1000.0},
    "frame": {"_SURELY_FITS": 1.0},
    "exact_sums": {"_HUGE": 1.0, "_WEIGHT_BITS": 1},
    "expressions.operators": {"_EXACT_IN_FLOATS": 1.0, "_PLACES_AT_ONCE": 4, "_BYTES_ALL_AT_ONCE": 1},
    "expressions.evaluate": {"_FEW": 1},
    "row_growth": {"_FEW": 1, "_SMALL": 1, "_AT_ONCE": 2},
    "interrupt": {"LONG_WORK_ROWS": 1},
    "match": {"_DEEP": 1, "_VERY_FEW": 1, "_SMALL": 0, "ROWS_AT_ONCE": 2},
    "rows": {
        "SMALL": 0,
        "COLD_SHARE": 1,
        "_FEW": 1,
        "_FEWER": 1,
        "_MOST_ASKED": 2,
        "_MAX_DERIVED_READS": 1,
        "_PASSES": 2,
        "_DICTIONARY_ROWS": 8,
        "_MOST_DEAD": 2,
        "_FEW_CHANGES": 2,
        "_MOST_BEFORE": 2,
    },
    "scan": {"LARGE": 1},
    "search.ranking": {"_FEW": 1},
    "search.searches": {"EXACT_BYTES": 0, "_FEW": 1, "_SPARE": 1, "_MOST_HITS": 2},
    "search.text_index": {"_RUN": 3, "_PIECE": 2, "_FEW": 1},
    "search.text_lookup": {"_MOST_UNINDEXED": 2, "_WARM": 1, "_SPARE": 1},
    "search.vectors": {"_CHUNK_BYTES": 16, "_FEW": 1, "_BLOCK": 2},
    "sources": {"_NEAR": 2, "_IDS_READ": 2},
    "context": {"MOST_BYTES": 300, "_FEW": 1},
    "topology.adjacency": {"_BLOCK": 2},
    "topology.file_blocks": {"_OFTEN": 1},
    "topology.endpoint_codes": {"_SPREAD": 1, "_SPARSE": 1},
    "topology.linked_topology": {"FEW": 1},
    "topology.breadth_first": {"_CELLS": 4, "_ENOUGH": 2, "_FEW": 1, "_SCANNED": 1, "_DEEP": 1},
    "topology.paths": {"_CELLS": 4},
    "topology.saved_topology": {"WORTH_SAVING": 1},
    "topology.topology": {"_MUCH": 0},
    "counted_branches": {
        "_WORTH_MERGING": 0,
        "_KEY_SPACE": 8,
        "STEPS_AT_ONCE": 2,
        "FEW": 1,
        "_DEEP": 1,
    },
}
"""By module and name."""

OTHERS: dict[str, set[str]] = {
    "sql": {"_SHARE", "_LEAST_MEMORY", "_POLL_SECONDS", "_BATCH_ROWS"},
    "algorithms.edge_block": {"_LARGEST"},
    "algorithms.solver": {"_ATTEMPTS"},
    "engine_choice": {"BUILT_PER_SECOND", "MOST_OF_MEMORY"},  # which engine runs, not how this one does
    "expressions.date_operators": {"_MOST_MONTHS"},  # beyond what moments can be
    "group_and_sort": {"_CODE_BYTES", "_RANK_BYTES"},
    "index_hop": {
        "_FEW_NODES",  # with more sources no index is asked
        "_FIND",
        "_LINK",
        "_LOOKUP",
        "_LOOKUP_EDGE",
        "_LOOKUP_NODE",
        "_READ",
        "_READ_NODE",
        "_SMALL_ENTRY",
    },
    "exact_sums": {"LARGEST_PART", "_FAINT", "_KEPT", "_LARGEST", "_MANTISSA", "_SHRINK"},
    "frame": {"NO_ROW", "_HALF", "_LARGEST", "_LOWER"},
    "row_growth": {"_BYTES", "_GONE_BYTES", "_SHARE"},
    "interrupt": {"MAX_ABANDONED", "_POLL_SECONDS"},
    "rank_rows": {"_UNRANKED"},
    "request": {"MAX_ROWS_IN_FLIGHT", "_BYTES", "_SHARE"},  # limits: what is more is refused
    "rows": {"_FORK_BYTES", "_ROWS_BYTES", "_ROW_BYTES"},
    "scan": {"_SMALL_ENTRY"},
    "search.ranking": {"_PRECISION"},
    "search.searches": {"DEFAULT_EDITS", "_UNINDEXED_SHARE"},
    "search.text_index": {"_LENGTH_WEIGHT", "_SATURATION"},
    "search.text_lookup": {
        "_EXACT_TEXTS",  # a promise: beyond it scores may deviate from the formula
        "_TEXT_BYTES",
        "_WARM_SHARE",
    },
    "search.vectors": {"_ROUNDING", "_SMALLEST"},
    "sources": {"_BYTES_TO_SORT", "_SMALL_ENTRY"},
    "context": {"_NUMBER_BYTES", "_OFFSET_BYTES", "_ROW_BYTES", "_UNKNOWN_BYTES"},
    "topology.adjacency": {"_KEY_BITS"},
    "topology.file_blocks": {"BLOCK", "WORD", "_MANY", "_WORDS"},  # what a file is made of
    "topology.endpoint_codes": {"_MOST_DIGITS"},
    "topology.topology_file": {"FORMAT", "_BOUNDARY"},
    "topology.breadth_first": {"CHUNK"},  # an argument; `test_topology.py` gives small ones
    "topology.topology": {"_OBJECT_BYTES"},
}
"""Numbers that decide between no two ways, or that no small value can be given to."""


@contextmanager
def near_zero() -> Iterator[None]:
    """The engine with these values, also where a module has taken over the name from another one."""
    modules = engine_modules()
    with pytest.MonkeyPatch.context() as changed:
        for owner, values in SIZES.items():
            for name, value in values.items():
                before = getattr(modules[owner], name)
                for module in modules.values():
                    if vars(module).get(name) is before or (
                        module is modules[owner] and hasattr(module, name)
                    ):
                        changed.setattr(module, name, value)
        yield


def engine_modules() -> dict[str, ModuleType]:
    """All modules of the query engine, by their name in it."""
    prefix = f"{omnigraph.query.__name__}."
    found = pkgutil.walk_packages(omnigraph.query.__path__, prefix)
    return {each.name.removeprefix(prefix): import_module(each.name) for each in found}


def numbers_of(module: ModuleType) -> set[str]:
    """The names of a module that are numbers in capitals."""
    return {
        name
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int | float) and not isinstance(value, bool)
    }
