"""Counts how often a run evaluates each view, from the text of its statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from omnigraph.pipeline.declared.declaration import EntityMap, Pipeline
from omnigraph.pipeline.declared.sql import scan_tokens


def count_uses(pipeline: Pipeline) -> Counter[str]:
    """How often each view is evaluated if nothing is kept: rather too often than too seldom."""
    names = {view.lower(): view for view in pipeline.list_views()}
    uses: Counter[str] = Counter()
    for entry in (entry for target in pipeline.into for entry in target.map):
        uses[entry.view] += 1
        uses.update(_mentions_in_subqueries(entry, names))
    # A view is made of earlier ones only.
    for transform in reversed(pipeline.transforms):
        for view, times in _count_mentions(transform.sql, names).items():
            uses[view] += times * uses[transform.view]
    return uses


def _mentions_in_subqueries(entry: EntityMap, names: Mapping[str, str]) -> Counter[str]:
    """The views in expressions that have a query inside; in others a name is that of a column."""
    texts = [text for text in (entry.where, *entry.map_columns().values()) if text is not None]
    found: Counter[str] = Counter()
    for text in texts:
        if any(token.word == "SELECT" for token in scan_tokens(text)):
            found += _count_mentions(text, names)
    return found


def _count_mentions(sql: str, names: Mapping[str, str]) -> Counter[str]:
    """The names in a statement that no dot follows, which would be the view of a column."""
    found = [token.text.strip("`'\"").lower() for token in scan_tokens(sql)]
    pairs = zip(found, [*found[1:], ""], strict=True)
    return Counter(names[word] for word, behind in pairs if word in names and behind != ".")
